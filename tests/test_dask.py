"""Dask: the partitions of a dask.dataframe, counted where they are and each once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_fixtures import started
from engine_tasks import UnluckyCounting, kill_worker, rows
from strategies import assert_agree

import streamnb as snb
from streamnb import accumulator

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")

SCHEMA = snb.Schema(label="y", numeric=["x", "far"], categorical=["site"], binary=["flag"], counts=["n"], weight="w")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two workers."""
    with started("dask", tmp_path_factory.mktemp("dask")) as options:
        yield options["client"]


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """Rows with missing cells and labels."""
    return pa.concat_tables([rows(seed, 200) for seed in range(4)])


@pytest.fixture
def frame(client: Any, table: pa.Table) -> Any:
    """The same as a dask.dataframe of twenty partitions, some of them without rows."""
    dataframe = pytest.importorskip("dask.dataframe")
    frame = dataframe.from_pandas(table.to_pandas(), npartitions=20, sort=False)
    return dataframe.concat([frame, frame[frame["far"] < 0]])


@pytest.fixture(scope="module")
def expected(table: pa.Table) -> snb.State:
    """A plain loop over pandas frames, in which None among numbers is NaN and both are missing."""
    state = snb.State(SCHEMA)
    state.update(table.to_pandas())
    return state


def test_a_frame_is_counted_like_a_plain_loop(client: Any, frame: Any, expected: snb.State) -> None:
    """No row of a dry run is among them, and none is there twice; the current client is found."""
    from streamnb.engines import dask

    assert frame.npartitions == 40
    assert_agree(dask.fit(frame, SCHEMA, client=client), expected, moments=1e-12)
    assert_agree(dask.fit(frame, SCHEMA), expected, moments=1e-12)


def test_a_killed_worker_changes_nothing(
    client: Any, frame: Any, expected: snb.State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is SIGKILLed in the middle, with all results that it held: they are counted anew, and once."""
    from streamnb.engines import dask

    counting, marker = accumulator.Counting, tmp_path / "killed"
    monkeypatch.setattr(accumulator, "Counting", lambda schema: UnluckyCounting(counting(schema), kill_worker, marker))
    assert_agree(dask.fit(frame, SCHEMA, client=client), expected, moments=1e-12)
    assert marker.exists()


def test_a_bad_value_is_the_error_here(client: Any, table: pa.Table) -> None:
    """With its column."""
    dataframe = pytest.importorskip("dask.dataframe")
    from streamnb.engines import dask

    bad = table.set_column(1, "x", pa.array([float("inf")] * len(table)))
    with pytest.raises(snb.DataError, match=r"inf.*column 'x'"):
        dask.fit(dataframe.from_pandas(bad.to_pandas(), npartitions=2), SCHEMA, client=client)


def test_a_file_that_has_changed_is_read_again(client: Any, tmp_path: Path) -> None:
    """Results are not looked up by the names of files."""
    states = []
    for seed in (1, 2):
        pq.write_table(rows(seed, 50), tmp_path / "part.parquet")
        states.append(snb.fit(tmp_path, schema=SCHEMA, engine="dask", client=client))
        assert states[-1] == snb.fit(tmp_path, schema=SCHEMA)
    assert states[0] != states[1]
