"""One suite over all engines: whatever counts the shards, the state is that of a plain loop over the files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from engine_fixtures import ENGINES, made, need, started
from engine_tasks import SCHEMA, Unlucky, failing, kill_worker, plain_loop, rows, square, write
from strategies import assert_agree

import streamnb as snb
from streamnb import train
from streamnb.protocols import Folding

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning"
)


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The options that choose an engine which has been started."""
    with started(request.param, tmp_path_factory.mktemp(request.param)) as options:
        yield options


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dozen files."""
    return write(tmp_path_factory.mktemp("engines") / "data")


@pytest.fixture(scope="module")
def single(folder: Path) -> bytes:
    """The state of one thread."""
    return snb.fit(folder, schema=SCHEMA, workers=1).to_bytes()


def test_the_bytes_are_those_of_one_thread(engine: dict[str, Any], folder: Path, single: bytes) -> None:
    """The same files give the same bytes; and the rows are those of a plain loop, counts exactly."""
    state = snb.fit(folder, schema=SCHEMA, **engine)
    assert state.to_bytes() == single
    assert_agree(state, plain_loop(folder), moments=1e-12)


def test_results_come_in_the_order_of_the_shards(engine: dict[str, Any]) -> None:
    """Whatever is done first; also when there is nothing to do, or more than is held at a time."""
    each = made(engine)
    assert list(each.map(square, range(30))) == [number * number for number in range(30)]
    assert list(each.map(square, [])) == []


def test_many_shards_are_joined_before_they_travel(
    engine: dict[str, Any], folder: Path, single: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where an engine joins results among its workers, the tree is the same, and so are the bytes."""
    each = made(engine)
    if not isinstance(each, Folding):
        assert engine["engine"] == "threads"
        return
    module = sys.modules[type(each).__module__]
    monkeypatch.setattr(module, "RESULTS", 3)
    arrived: list[int] = []
    take = train._Run.take
    monkeypatch.setattr(train._Run, "take", lambda run, node: (arrived.append(node.span.first), take(run, node))[1])
    assert snb.fit(folder, schema=SCHEMA, **engine).to_bytes() == single
    assert 1 < len(arrived) < 12
    assert list(each.fold(square, sum, range(30))) != []
    assert sum(each.fold(square, sum, range(30))) == sum(number * number for number in range(30))
    assert list(each.fold(square, sum, [])) == []


def test_shards_by_hand_on_an_engine(engine: dict[str, Any], folder: Path, single: bytes) -> None:
    """A cluster may do one part of the files and another the rest."""
    parts = [snb.fit(folder, schema=SCHEMA, shard=(i, 2), **engine) for i in (1, 2)]
    assert (parts[1] + parts[0]).to_bytes() == single


def test_the_first_failing_shard_in_order_is_the_error(engine: dict[str, Any]) -> None:
    """With its own type, text and place, as if it had been raised here."""
    with pytest.raises(snb.DataError, match="Expected an even mood, got 3") as raised:
        list(made(engine).map(failing, range(8)))
    assert (raised.value.column, raised.value.row) == ("mood", 3)


def test_a_bad_value_is_named_with_its_file(engine: dict[str, Any], folder: Path, tmp_path: Path) -> None:
    """Nothing is counted, and the message says where to look."""
    bad = rows(3, 200)
    values = pc.if_else(pc.equal(pa.array(range(200)), 77), float("inf"), bad["x"])
    files = [tmp_path / f"{name}.parquet" for name in ("good", "bad")]
    pq.write_table(rows(2, 200), files[0])
    pq.write_table(bad.set_column(1, "x", values), files[1])
    with pytest.raises(snb.DataError, match=r"inf.*bad\.parquet, row group 0, row 77.*column 'x'"):
        snb.fit(files, schema=SCHEMA, **engine)


def test_a_damaged_file_is_skipped_and_said(engine: dict[str, Any], tmp_path: Path) -> None:
    """The warning comes here, not on the worker, and the other files are counted."""
    folder = write(tmp_path / "data", 3)
    bad = folder / "part-01.parquet"
    pq.write_table(pq.read_table(bad), bad, write_page_checksum=True, compression="none")
    content = bytearray(bad.read_bytes())
    content[len(content) // 3] ^= 0xFF
    bad.write_bytes(content)
    with pytest.warns(snb.SkippedWarning, match=r"part-01\.parquet"):
        state = snb.fit(folder, schema=SCHEMA, on_error="skip", verify_checksums=True, **engine)
    assert len(state.ledger) == 2


def test_a_run_goes_on_from_a_checkpoint(engine: dict[str, Any], folder: Path, single: bytes, tmp_path: Path) -> None:
    """Begun on threads, ended on another engine: the bytes are the same."""
    stopped: list[Any] = []

    def stop(progress: Any) -> None:
        stopped.append(progress)
        if len(stopped) == 5:
            raise KeyboardInterrupt

    checkpoint = tmp_path / "run.snb"
    with pytest.raises(KeyboardInterrupt):
        snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, progress=stop)
    state = snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, resume=True, **engine)
    assert state.to_bytes() == snb.State.load(checkpoint).to_bytes() == single


def test_a_killed_worker_changes_nothing(engine: dict[str, Any], folder: Path, single: bytes, tmp_path: Path) -> None:
    """A process is SIGKILLed when it has counted a shard and not yet answered: every row is counted once."""
    if engine["engine"] == "threads":
        return  # they are this process: what survives its death are checkpoints, which test_train kills
    marker = tmp_path / "killed"
    state = snb.fit(folder, schema=SCHEMA, engine=Unlucky(made(engine), kill_worker, marker))
    assert marker.exists()
    assert state.to_bytes() == single


def test_predictions_are_written_by_the_workers(
    engine: dict[str, Any], folder: Path, single: bytes, tmp_path: Path
) -> None:
    """The same rows as on threads, in the same order; the folder appears whole, and is not written over."""
    model = snb.State.from_bytes(single).finish()
    expected, output = tmp_path / "expected.parquet", tmp_path / "scored"
    options: dict[str, Any] = {"proba": True, "keep": ["x", "site"]}
    n = snb.predict(model, folder, expected, **options)
    if engine["engine"] == "threads":
        output = output.with_suffix(".parquet")
    assert snb.predict(model, folder, output, **options, **engine) == n
    assert pq.read_table(output).equals(pq.read_table(expected))
    if engine["engine"] == "threads":
        return
    assert len(list(output.iterdir())) == 12
    with pytest.raises(snb.SourceError, match="Expected a new folder for the output, got one that is there"):
        snb.predict(model, folder, output, **engine)
    with pytest.raises(snb.SourceError, match="Cannot write"):
        snb.predict(model, folder, tmp_path / "nowhere" / "scored", **engine)
    assert {path.name for path in tmp_path.iterdir()} == {"expected.parquet", "scored"}


def test_closing_early_leaves_the_engine_usable(engine: dict[str, Any], folder: Path, single: bytes) -> None:
    """What was not wanted is dropped, and the next run is not disturbed by it."""
    results = made(engine).map(square, range(60))
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]
    assert snb.fit(folder, schema=SCHEMA, **engine).to_bytes() == single


@pytest.mark.parametrize(("engine_name", "package"), [("spark", "pyspark"), ("dask", "distributed"), ("ray", "ray")])
def test_a_missing_extra_is_one_line(engine_name: str, package: str) -> None:
    """Where the package is not installed the message is the command that installs it."""
    code = f"""
import sys
sys.modules[{package!r}] = None
import polars as pl, streamnb as snb
try:
    snb.fit(pl.DataFrame({{"y": ["a"], "x": [1.0]}}), label="y", engine={engine_name!r})
except snb.MissingExtraError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == f"{package} is not installed; install it with: pip install 'streamnb[{engine_name}]'\n"


@pytest.mark.parametrize(("engine_name", "advice"), [("spark", "session"), ("dask", "client"), ("ray", "ray.init")])
def test_an_engine_that_was_not_started_says_so(engine_name: str, advice: str) -> None:
    """Nothing is started behind one's back."""
    need(engine_name)
    code = f"""
import polars as pl, streamnb as snb
try:
    snb.fit(pl.DataFrame({{"y": ["a"], "x": [1.0]}}), label="y", engine={engine_name!r})
except ValueError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "got none" in run.stdout
    assert advice in run.stdout
