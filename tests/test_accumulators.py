"""Counting in the shape of an accumulator, in SQL and by groups: always the state of a plain loop."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from engine_tasks import SCHEMA, plain_loop, rows, write
from hypothesis import given
from hypothesis import strategies as st
from strategies import assert_agree

import streamnb as snb
from streamnb.accumulator import Counting

COUNTING = Counting(SCHEMA)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few files."""
    return write(tmp_path_factory.mktemp("accumulators") / "data", 5)


@pytest.fixture(scope="module")
def table(folder: Path) -> pa.Table:
    """All their rows, with a column of tenants."""
    table = pa.concat_tables([pq.read_table(path) for path in sorted(folder.iterdir())])
    tenant = np.random.default_rng(1).choice(["red", "green", "blue"], len(table))
    return table.append_column("tenant", pa.array(tenant, mask=tenant == "blue"))


# The shape ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 40), max_size=4), max_size=5), st.randoms(use_true_random=False))
def test_any_grouping_in_any_order_is_the_plain_loop(cuts: list[list[int]], order: Any) -> None:
    """Add to some states, pack some, merge them in any order and grouping: the rows are counted, each once."""
    expected, states = snb.State(SCHEMA), []
    for seed, lengths in enumerate(cuts):
        state = COUNTING.create()
        for i, length in enumerate(lengths):
            batch = rows(10 * seed + i, length)
            expected.update(batch)
            assert COUNTING.add(state, batch) is state
        states.append(COUNTING.unpack(COUNTING.pack(state)))
    order.shuffle(states)
    middle = len(states) // 2
    before = [COUNTING.pack(state) for state in states]
    total = COUNTING.merge([COUNTING.merge(states[:middle]), COUNTING.merge(states[middle:])])
    assert [COUNTING.pack(state) for state in states] == before
    assert_agree(COUNTING.extract(total), expected, moments=1e-9)


def test_the_accumulator_travels() -> None:
    """It is picklable, and so are its states, which travel as the bytes of their files."""
    counting = pickle.loads(pickle.dumps(COUNTING))
    state = counting.add(counting.create(), rows(1, 30))
    assert pickle.loads(pickle.dumps(state)) == state
    assert counting.columns == SCHEMA.columns
    with pytest.raises(snb.FileFormatError):
        counting.unpack(b"nothing")


# SQL ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def context(table: pa.Table) -> Any:
    """DataFusion with the rows in several partitions and the function `train`."""
    datafusion = pytest.importorskip("datafusion")
    from streamnb.adapters.datafusion import training_function

    config = datafusion.SessionConfig().with_target_partitions(2).with_batch_size(100)
    context = datafusion.SessionContext(config)
    partitions = [table.slice(first, 300).to_batches() for first in range(0, len(table), 300)]
    context.register_record_batches("t", partitions)
    context.register_udaf(training_function(SCHEMA, table.schema))
    return context


def test_a_select_trains(context: Any, folder: Path) -> None:
    """The aggregate of all rows is the state; no rows are the empty state."""
    arguments = ", ".join(SCHEMA.columns)
    (found,) = context.sql(f"SELECT train({arguments}) AS state FROM t").to_pydict()["state"]
    assert_agree(snb.State.from_bytes(found), plain_loop(folder), moments=1e-12)
    (none,) = context.sql(f"SELECT train({arguments}) AS state FROM t WHERE far < 0").to_pydict()["state"]
    assert snb.State.from_bytes(none) == snb.State(SCHEMA)


def test_a_group_by_trains_a_state_each(context: Any, table: pa.Table) -> None:
    """GROUP BY gives the states of `fit_groups`."""
    query = f"SELECT tenant, train({', '.join(SCHEMA.columns)}) AS state FROM t GROUP BY tenant"
    found = {row["tenant"]: snb.State.from_bytes(row["state"]) for row in context.sql(query).to_pylist()}
    expected = snb.fit_groups(table, by="tenant", schema=SCHEMA)
    assert found.keys() == expected.keys() == {"red", "green", None}
    for key, state in found.items():
        assert_agree(state, expected[key], moments=1e-12)


def test_a_bad_value_ends_the_query(context: Any) -> None:
    """With the message that names the column."""
    columns = ", ".join("x / 0.0" if name == "x" else name for name in SCHEMA.columns)
    with pytest.raises(Exception, match=r"inf.*column 'x'"):
        context.sql(f"SELECT train({columns}) AS state FROM t").to_pydict()


@pytest.mark.parametrize(("module", "package"), [("beam", "apache_beam"), ("datafusion", "datafusion")])
def test_an_adapter_without_its_package_says_how_to_get_it(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the command."""
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"streamnb.adapters.{module}", raising=False)
    with pytest.raises(snb.MissingExtraError, match=rf"install it with: pip install 'streamnb\[{module}\]'"):
        __import__(f"streamnb.adapters.{module}")


# Groups -------------------------------------------------------------------------------------------------------------


def test_each_group_is_the_fit_of_its_rows(table: pa.Table) -> None:
    """And all of them roll up to the fit of all rows."""
    states = snb.fit_groups(table, by="tenant", schema=SCHEMA)
    assert set(states) == {"red", "green", None}
    for key, state in states.items():
        mask = pc.is_null(table["tenant"]) if key is None else pc.equal(table["tenant"], key)
        expected = snb.State(SCHEMA)
        expected.update(table.filter(mask))
        assert_agree(state, expected, moments=1e-12)
    everything = snb.State(SCHEMA)
    everything.update(table)
    assert_agree(sum(states.values(), snb.State(SCHEMA)), everything, moments=1e-12)


def test_groups_of_files_know_their_shards(table: pa.Table, tmp_path: Path) -> None:
    """Workers do not change a byte; a group that is merged twice counts once; groups of one shard do add up."""
    for i in range(4):
        pq.write_table(table.slice(300 * i, 300), tmp_path / f"{i}.parquet")
    one, two = (snb.fit_groups(tmp_path, by="tenant", schema=SCHEMA, workers=n) for n in (1, 2))
    assert one == two
    red = one["red"].copy()
    red.merge(two["red"])
    assert red == one["red"]
    total = sum(one.values(), snb.State(SCHEMA))
    assert total.n_rows == snb.fit(tmp_path, schema=SCHEMA).n_rows
    assert len(total.ledger) == sum(len(state.ledger) for state in one.values())


def test_groups_by_numbers_dates_and_a_feature(table: pa.Table) -> None:
    """Keys keep their type; the column may be a feature too; with `label` it is none."""
    numbered = table.append_column("day", pa.array((np.arange(len(table)) % 3).astype("M8[D]")))
    assert [str(key) for key in snb.fit_groups(numbered, by="day", schema=SCHEMA)] == [
        f"1970-01-0{i}" for i in (1, 2, 3)
    ]
    by_site = snb.fit_groups(table, by="site", schema=SCHEMA)
    assert by_site["north"].total.categories["site"].values.to_pylist() == ["north"]
    inferred = snb.fit_groups(numbered.select(["y", "x", "day"]), by="day", label="y")
    assert {state.schema.features for state in inferred.values()} == {("x",)}


def test_a_bad_value_in_a_group_is_named_with_its_row(tmp_path: Path) -> None:
    """The row is that of the file, not of the group."""
    frame = pl.DataFrame({"who": ["u", "v", "u", "v"], "y": ["a"] * 4, "x": [1.0, 2.0, float("inf"), 3.0]})
    frame.write_parquet(tmp_path / "part.parquet")
    with pytest.raises(snb.DataError, match=r"part\.parquet, row group 0, row 2\).*column 'x'"):
        snb.fit_groups(tmp_path, by="who", label="y")
    with pytest.raises(snb.SchemaError, match=r"Expected a column 'whom'.*did you mean 'who'"):
        snb.fit_groups(tmp_path, by="whom", label="y")
    with pytest.raises(snb.SchemaError, match="got both or neither"):
        snb.fit_groups(tmp_path, by="who")
