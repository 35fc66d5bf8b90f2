"""The same values from every reader, in types that hold over all files."""

import datetime as dt
import os
import pickle
import time
from decimal import Decimal
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from source_files import numbers, plain, read, write

from streamnb.sources import decoded, open_source
from streamnb.sources import readers as readers_module
from streamnb.sources.types import canonical, conform, widen

SAME = [
    (pa.int8(), pa.int32(), pa.int32()),
    (pa.uint8(), pa.int8(), pa.int16()),
    (pa.uint32(), pa.int64(), pa.int64()),
    (pa.uint64(), pa.int64(), pa.decimal128(20, 0)),
    (pa.int64(), pa.float32(), pa.float64()),
    (pa.float16(), pa.float32(), pa.float32()),
    (pa.decimal128(5, 2), pa.decimal128(10, 4), pa.decimal128(10, 4)),
    (pa.decimal128(5, 2), pa.int64(), pa.decimal128(22, 2)),
    (pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal256(76, 38)),
    (pa.decimal128(5, 2), pa.float64(), pa.float64()),
    (pa.string(), pa.large_string(), pa.string()),
    (pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.string()),
    (pa.dictionary(pa.int8(), pa.int64()), pa.int32(), pa.int64()),
    (pa.binary(3), pa.large_binary(), pa.binary()),
    (pa.null(), pa.bool_(), pa.bool_()),
    (pa.null(), pa.null(), pa.null()),
    (pa.list_(pa.large_string()), pa.large_list(pa.string()), pa.list_(pa.string())),
    (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
    (pa.timestamp("s", "UTC"), pa.timestamp("ms", "Europe/Paris"), pa.timestamp("ms", "UTC")),
    (pa.duration("ms"), pa.duration("s"), pa.duration("ms")),
    (pa.date32(), pa.date64(), pa.date64()),
    (pa.time32("s"), pa.time64("ns"), pa.time64("ns")),
    (pa.int32(), pa.string(), None),
    (pa.bool_(), pa.int8(), None),
    (pa.timestamp("s"), pa.timestamp("s", "UTC"), None),
    (pa.date32(), pa.timestamp("s"), None),
    (pa.list_(pa.string()), pa.list_(pa.int8()), None),
]


@pytest.mark.parametrize(("left", "right", "wider"), SAME, ids=str)
def test_widening(left, right, wider):
    """Two types meet in the same one from both sides, and a widened type stays as it is."""
    assert widen(left, right) == wider == widen(right, left)
    if wider is not None:
        assert widen(wider, left) == canonical(wider) == wider


@pytest.mark.parametrize(
    ("array", "target", "values"),
    [
        (pa.array([1, None], pa.int8()), pa.float64(), [1.0, None]),
        (pa.array([2**53 + 1], pa.int64()), pa.float64(), [float(2**53)]),
        (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0), [Decimal(2**64 - 1)]),
        (pa.array(["a", None], pa.string_view()), pa.string(), ["a", None]),
        (pa.array([b"a"], pa.binary_view()), pa.binary(), [b"a"]),
        (pa.array([1.5], pa.float16()), pa.float64(), [1.5]),
        (pa.array([Decimal("1.25")]), pa.float64(), [1.25]),
        (pa.array([7, 7]).dictionary_encode(), pa.float64(), [7.0, 7.0]),
        (pa.array([7, None]), pa.dictionary(pa.int32(), pa.int64()), [7, None]),
        (pa.nulls(2), pa.string(), [None, None]),
        (pa.array([["a"]], pa.large_list(pa.large_string())), pa.list_(pa.string()), [["a"]]),
        (pa.array([1], pa.timestamp("s")), pa.timestamp("us"), [dt.datetime(1970, 1, 1, 0, 0, 1)]),
    ],
    ids=str,
)
def test_conform_keeps_the_values(array, target, values):
    """Casts between the layouts of one type, and to the wider one, keep every value."""
    got = conform(array, target)
    assert plain(got).to_pylist() == values
    assert got.type == target


# -- the readers ---------------------------------------------------------------------------------------------------

EVERY_TYPE = {
    "int8": pa.array([-128, None, 127], pa.int8()),
    "uint64": pa.array([0, None, 2**64 - 1], pa.uint64()),
    "int64": pa.array([-(2**63), None, 2**63 - 1], pa.int64()),
    "float16": pa.array([1.5, None, -2.0], pa.float16()),
    "float32": pa.array([1.5, None, float("inf")], pa.float32()),
    "float64": pa.array([-0.0, None, 1e300]),
    "bool": pa.array([True, None, False]),
    "decimal": pa.array([Decimal("1.25"), None, Decimal("-9.75")], pa.decimal128(20, 2)),
    "decimal256": pa.array([Decimal(10**50), None, Decimal(1)], pa.decimal256(60, 0)),
    "date": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "timestamp": pa.array([-(2**62), None, 2**62], pa.timestamp("ns", "UTC")),
    "timestamp_us": pa.array([-(2**62), None, 2**62], pa.timestamp("us")),
    "time": pa.array([1, None, 2], pa.time64("us")),
    "duration": pa.array([1, None, 2], pa.duration("ms")),
    "string": pa.array(["", None, "é"]),
    "binary": pa.array([b"\x00", None, b"\xff"]),
    "null": pa.nulls(3),
    "list": pa.array([["a", None], None, []], pa.list_(pa.string())),
    "struct": pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int64())])),
    "^x.*$": pa.array([1.0, None, 2.0]),
    "*": pa.array([1, None, 2]),
    "a.b": pa.array([1, None, 2]),
    "a": pa.array([{"b": 5}, None, {"b": 6}]),
    "ü \n'\"": pa.array([1, 2, 3]),
    "": pa.array([4, 5, 6]),
}


@pytest.mark.parametrize("reader", ["auto", "arrow"])
@pytest.mark.parametrize("column", EVERY_TYPE)
def test_every_type_and_name_comes_through(tmp_path, monkeypatch, reader, column):
    """Extreme values of every type, nulls among them, and names that look like patterns: nothing is lost."""
    monkeypatch.setattr(readers_module, "POLARS_LEAST_BYTES", 0)
    path = write(tmp_path / "a.parquet", {column: EVERY_TYPE[column], "other": [1.0, 2.0, 3.0], "s": ["x", "y", "z"]})
    source = open_source(path, reader=reader)
    assert source.schema.field(0).type == canonical(EVERY_TYPE[column].type)
    table = read(source, ["s", column, "other"])
    assert table["other"].to_pylist() == [1.0, 2.0, 3.0]
    expected, got = EVERY_TYPE[column], table[column].combine_chunks()
    if pa.types.is_timestamp(expected.type):
        expected, got = expected.cast(pa.int64()), got.cast(pa.int64())
    assert got.to_pylist() == expected.to_pylist()
    assert got.equals(plain(conform(expected, canonical(expected.type))))


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_both_readers_give_the_same(data):
    """Any table in any row groups: Polars and PyArrow together give what PyArrow alone gives."""
    rows = data.draw(st.integers(1, 200))
    columns = {
        "i": pa.array(data.draw(st.lists(st.none() | st.integers(-100, 100), min_size=rows, max_size=rows)), pa.int8()),
        "f": pa.array(data.draw(st.lists(st.none() | st.floats(), min_size=rows, max_size=rows)), pa.float64()),
        "s": pa.array(data.draw(st.lists(st.none() | st.text(max_size=3), min_size=rows, max_size=rows)), pa.string()),
    }
    sink = Path(os.environ.get("TMPDIR", "/tmp")) / f"streamnb-{os.getpid()}.parquet"
    try:
        write(sink, columns, row_group_size=data.draw(st.integers(1, 200)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(readers_module, "POLARS_LEAST_BYTES", 0)
            both = read(open_source(sink), ["s", "f", "i"])
        alone = read(open_source(sink, reader="arrow"), ["s", "f", "i"])
        assert [str(both[name].to_pylist()) for name in columns] == [str(alone[name].to_pylist()) for name in columns]
    finally:
        sink.unlink(missing_ok=True)


def test_a_file_that_polars_refuses_is_read_by_pyarrow(tmp_path, monkeypatch):
    """PyArrow has the last word on a file."""
    monkeypatch.setattr(readers_module, "POLARS_LEAST_BYTES", 0)
    path = write(tmp_path / "a.parquet", {"x": [1.0, 2.0]})

    def refuse(*_, **__):
        raise pl.exceptions.ComputeError("not my kind of file")

    monkeypatch.setattr(pl, "scan_parquet", refuse)
    assert read(open_source(path), ["x"])["x"].to_pylist() == [1.0, 2.0]


def test_an_abandoned_shard_leaves_nothing_running(tmp_path, monkeypatch):
    """Closing the batches early closes both readers: no thread, no open file stays."""
    monkeypatch.setattr(readers_module, "POLARS_LEAST_BYTES", 0)
    path = write(tmp_path / "a.parquet", numbers(300_000), row_group_size=50_000)
    read(open_source(path), ["x", "s"])  # the pools of Polars and PyArrow are there from now on
    threads = len(list(Path("/proc/self/task").iterdir()))
    for _ in range(5):
        (shard,) = open_source(path).shards()
        batches = shard.batches(["x", "s"])
        next(batches)
        batches.close()
    assert len(list(Path("/proc/self/task").iterdir())) <= threads + 4  # Polars keeps a few idle ones
    deadline = time.monotonic() + 10  # Polars lets go of the file in a thread of its own
    while str(path) in (opened := [os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir()]):
        assert time.monotonic() < deadline, opened
        time.sleep(0.01)


def test_shards_pickle(tmp_path):
    """A shard travels to another process and reads the same rows there."""
    path = write(tmp_path / "a.parquet", numbers(1000))
    shards = list(open_source(path).shards())
    copies = pickle.loads(pickle.dumps(shards))
    assert copies == shards
    assert [batch.to_pylist() for batch in copies[0].batches(["x", "s"])] == [
        batch.to_pylist() for batch in shards[0].batches(["x", "s"])
    ]


def test_decoded_batches_have_the_schema_of_the_source(tmp_path):
    """Codes, plain strings and constants of the path: once decoded, all batches of a source fit one file."""
    write(tmp_path / "1.parquet", {"s": ["a", "b"] * 500, "x": [1, 2] * 500})
    write(tmp_path / "2.parquet", {"s": [f"a text of its own, number {i}" for i in range(1000)], "x": [0.5] * 1000})
    source = open_source(tmp_path)
    batches = [batch for shard in source.shards() for batch in shard.batches(["s", "x"])]
    assert [batch.schema for batch in batches] != [source.schema] * 2
    assert [decoded(batch).schema for batch in batches] == [source.schema] * 2
