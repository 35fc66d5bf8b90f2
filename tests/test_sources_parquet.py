"""Parquet files: planned whole before a row is counted, cut by the data alone, the same values from every reader."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from source_files import numbers, plain, read, write

from streamnb.errors import SchemaError, SourceError
from streamnb.sources import BATCH_ROWS, open_source
from streamnb.sources import readers as readers_module
from streamnb.sources.batching import recut
from streamnb.sources.footer import Group, cut

# -- C15: dictionaries ---------------------------------------------------------------------------------------------


def test_differing_dictionaries_come_through_by_value(tmp_path):
    """Code 0 means another value in each row group and file; what comes out are the values (case C15)."""
    one = pa.DictionaryArray.from_arrays([0, 1, 0], ["red", "blue"])
    two = pa.DictionaryArray.from_arrays([0, 0, 1, 2, None], ["blue", "green", "red"])
    with pq.ParquetWriter(tmp_path / "a.parquet", pa.schema([("c", one.type), ("y", pa.string())])) as writer:
        writer.write_table(pa.table({"c": one, "y": ["a", "b", "a"]}))
        writer.write_table(pa.table({"c": two, "y": ["b", "a", "b", "b", "a"]}))
    write(tmp_path / "b.parquet", {"y": ["a"], "c": pa.DictionaryArray.from_arrays([0], ["green"])})
    source = open_source(tmp_path)
    assert source.schema.field("c").type == pa.string()
    assert read(source, ["c"])["c"].to_pylist() == [
        *["red", "blue", "red", "blue", "blue", "green", "red", None],
        "green",
    ]


def test_strings_come_as_codes_across_row_groups(tmp_path):
    """A batch over a seam of row groups has one dictionary, with values of the widened type."""
    table = pa.table({"s": pa.array(["a", "b"] * 500 + ["c", "a"] * 500).cast(pa.large_string())})
    (shard,) = open_source(write(tmp_path / "a.parquet", table, row_group_size=1000)).shards()
    (batch,) = shard.batches(["s"])
    assert batch.column(0).type == pa.dictionary(pa.int32(), pa.string())
    assert plain(batch.column(0)).to_pylist() == table["s"].to_pylist()


def test_running_text_is_not_coded(tmp_path):
    """Texts that hardly repeat come as plain strings: a dictionary would only be a detour."""
    table = pa.table({"t": [f"a text of its own, number {i}" for i in range(2000)]})
    (shard,) = open_source(write(tmp_path / "a.parquet", table)).shards()
    (batch,) = shard.batches(["t"])
    assert batch.column(0).type == pa.string()
    assert batch.column(0).to_pylist() == table["t"].to_pylist()


# -- C17: types over many files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [("1", "2"), ("2", "1")])
def test_columns_are_matched_by_name_and_widened(tmp_path, order):
    """Another order, another numeric type, an extra column: the names decide, the wider type holds (case C17)."""
    files = {
        "1": pa.table({"h": pa.array([150, 160], pa.int32()), "w": pa.array([50, 61], pa.int32()), "y": ["a", "b"]}),
        "2": pa.table({"w": [80.5, 70.25], "h": [180.0, 170.0], "y": ["a", "b"], "extra": pa.array([9, 9])}),
    }
    paths = [write(tmp_path / f"{name}.parquet", files[name]) for name in order]
    source = open_source(paths)
    assert set(source.schema) == {pa.field("h", pa.float64()), pa.field("w", pa.float64()), pa.field("y", pa.string())}
    source.check(["h", "w", "y"])
    expected = {"1": [(150, 50), (160, 61)], "2": [(180, 80.5), (170, 70.25)]}
    table = read(source, ["h", "w"])
    assert table.schema == pa.schema([("h", pa.float64()), ("w", pa.float64())])
    pairs = zip(*table.to_pydict().values(), strict=True)
    assert list(pairs) == expected[order[0]] + expected[order[1]]


def test_missing_column_names_file_column_and_near_miss(tmp_path):
    """A column that one file lacks is an error before any row, and offers what the file has instead."""
    write(tmp_path / "1.parquet", {"height": [1.0], "y": ["a"]})
    write(tmp_path / "2.parquet", {"hieght": [1.0], "y": ["a"]})
    source = open_source(tmp_path)
    with pytest.raises(SchemaError, match=r"column 'height', got none; did you mean 'hieght'\? - .*2\.parquet"):
        source.check(["height", "y"])
    assert source.schema.names == ["y"]
    (_, shard) = source.shards()
    with pytest.raises(SchemaError, match=r"column 'height', got none.* - .*2\.parquet"):
        list(shard.batches(["height"]))


def test_missing_column_can_be_skipped(tmp_path):
    """With on_error="skip" the files that lack a column leave the plan, each with a reason that names it."""
    for name, column in {"1": "h", "2": "x", "3": "x", "4": "h"}.items():
        write(tmp_path / f"{name}.parquet", {column: [float(name)]})
    source = open_source(tmp_path, on_error="skip")
    source.check(["h"])
    assert [(Path(path).name, f"{path}" in reason) for path, reason in source.skipped] == [
        ("2.parquet", True),
        ("3.parquet", True),
    ]
    assert read(source, ["h"])["h"].to_pylist() == [1.0, 4.0]
    with pytest.raises(SourceError, match="Expected a readable file, got none among 4"):
        source.check(["z"])


def test_types_without_a_common_one_name_both_files(tmp_path):
    """An int column in one file and a string column in another are refused, if the column is asked for."""
    write(tmp_path / "1.parquet", {"x": [1], "y": ["a"]})
    write(tmp_path / "2.parquet", {"x": ["one"], "y": ["b"]})
    source = open_source(tmp_path)
    message = r"column 'x' that go together, got int64 in .*1\.parquet and string in .*2\.parquet"
    with pytest.raises(SchemaError, match=message):
        source.check(["x", "y"])
    with pytest.raises(SchemaError, match=message):
        _ = source.schema
    source.check(["y"])
    assert read(source, ["y"])["y"].to_pylist() == ["a", "b"]
    skipping = open_source(tmp_path, on_error="skip")
    skipping.check(["x"])
    assert [Path(path).name for path, _ in skipping.skipped] == ["2.parquet"]
    assert read(skipping, ["x"])["x"].to_pylist() == [1]


def test_a_value_beyond_the_widened_type_is_an_error(tmp_path):
    """A time that the finer unit cannot hold names the file instead of wrapping around."""
    far = pa.array([2**62], pa.timestamp("s"))
    write(tmp_path / "1.parquet", {"t": pa.array([1], pa.timestamp("ns"))})
    pq.write_table(pa.table({"t": far.cast(pa.int64()).cast(pa.timestamp("ms"))}), tmp_path / "2.parquet")
    with pytest.raises(SourceError, match=r"2\.parquet"):
        read(open_source(tmp_path), ["t"])


# -- C18: equal names ----------------------------------------------------------------------------------------------


def test_equal_names_are_refused_where_the_column_is_used(tmp_path):
    """Two columns `v` in a file are an error if v is asked for, and else none (case C18)."""
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4]), pa.array(["a", "b"])], ["v", "v", "label"])
    source = open_source(write(tmp_path / "twice.parquet", table))
    with pytest.raises(SchemaError, match=r"Expected one column 'v', got several - .*twice\.parquet"):
        source.check(["label", "v"])
    source.check(["label"])
    assert source.schema.names == ["v", "label"]
    assert read(source, ["label"])["label"].to_pylist() == ["a", "b"]


# -- C19: memory ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", ["auto", "arrow"])
def test_memory_does_not_grow_with_the_rows(tmp_path, reader):
    """What Arrow holds while batches go by is a few batches, whatever the number of row groups (case C19)."""
    one = pa.table({f"x{i}": np.random.default_rng(i).normal(size=65_536) for i in range(8)} | {"y": ["a"] * 65_536})
    with pq.ParquetWriter(tmp_path / "long.parquet", one.schema) as writer:
        for _ in range(20):
            writer.write_table(one)
    del one
    before, peak, rows = pa.total_allocated_bytes(), 0, 0
    for shard in open_source(tmp_path, reader=reader).shards():
        for batch in shard.batches(["y", *(f"x{i}" for i in range(8))]):
            rows += batch.num_rows
            peak = max(peak, pa.total_allocated_bytes() - before)
    assert rows == 20 * 65_536
    assert peak < 40 << 20  # the file has 84 MB


# -- C20: damage ---------------------------------------------------------------------------------------------------


@pytest.fixture
def parts(tmp_path):
    """One good file, one cut in half and one of 0 bytes."""
    good = write(tmp_path / "part-0.parquet", {"v": [1, 2, 3], "y": ["a"] * 3}).read_bytes()
    (tmp_path / "part-2.parquet").write_bytes(good[: len(good) // 2])
    (tmp_path / "part-3.parquet").write_bytes(b"")
    return tmp_path


def test_broken_files_stop_the_job_before_a_row_is_counted(parts):
    """A file cut short, or empty, is named when the source is opened (case C20)."""
    with pytest.raises(SourceError, match=r"without a footer.*part-2\.parquet"):
        open_source(parts)
    with pytest.raises(SourceError, match=r"its size is 0 bytes - .*part-3\.parquet"):
        open_source(parts / "part-3.parquet")


def test_broken_files_are_skipped_and_reported(parts):
    """With on_error="skip" the whole files are read, and each of the others is listed with its reason."""
    source = open_source(parts, on_error="skip")
    assert read(source, ["v"])["v"].to_pylist() == [1, 2, 3]
    assert [Path(path).name for path, _ in source.skipped] == ["part-2.parquet", "part-3.parquet"]
    assert "0 bytes" in source.skipped[1][1]
    (parts / "part-0.parquet").unlink()
    with pytest.raises(SourceError, match="Expected a readable file, got none among 2"):
        open_source(parts, on_error="skip")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello", "without a footer"),
        (b"PAR1" + b"x" * 50 + b"\xff\xff\xff\x7fPAR1", "no room for its footer"),
        (b"PAR1" + b"x" * 50 + b"\x20\x00\x00\x00PAR1", "damaged one"),
        (b"PARE" + b"x" * 50 + b"\x20\x00\x00\x00PARE", "encrypted"),
    ],
)
def test_other_damage_of_a_footer(tmp_path, content, message):
    """Whatever the last bytes are, the error is a sentence with the file's name."""
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(SourceError, match=message + r".*x\.parquet"):
        open_source(tmp_path)


def damaged_page(tmp_path, **options) -> Path:
    """A file of 1000 doubles with 100 bytes of its page overwritten."""
    values = np.random.default_rng(1).normal(size=1000)
    path = write(tmp_path / "page.parquet", {"v": values}, use_dictionary=False, compression="none", **options)
    content = bytearray(path.read_bytes())
    content[1000:1100] = b"\x55" * 100
    path.write_bytes(content)
    return path


def test_damaged_page_with_checksums(tmp_path):
    """Page checksums that are there and verified turn silent damage into an error with file and row group."""
    path = damaged_page(tmp_path, write_page_checksum=True)
    source = open_source(path, verify_checksums=True)
    with pytest.raises(SourceError, match=r"(?i)crc checksum.*page\.parquet, row group 0, row 0"):
        read(source, ["v"])
    assert read(open_source(path), ["v"]).num_rows == 1000


@pytest.mark.parametrize("reader", ["auto", "arrow"])
@pytest.mark.parametrize("compression", ["snappy", "zstd"])
def test_unreadable_page_names_file_and_row_group(tmp_path, reader, compression, monkeypatch):
    """A page that cannot be decoded is an error from either reader, and never a shorter shard."""
    monkeypatch.setattr(readers_module, "POLARS_LEAST_BYTES", 0)
    table = pa.table({"v": np.random.default_rng(1).normal(size=300_000).round(1)})
    path = write(tmp_path / "p.parquet", table, row_group_size=100_000, compression=compression, use_dictionary=False)
    content = bytearray(path.read_bytes())
    place = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    content[place + 40 : place + 3000] = b"\xff" * 2960
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"p\.parquet \(p\.parquet, row group [01], row \d+\)"):
        read(open_source(path, reader=reader), ["v"])


def test_a_reader_that_ends_early_is_an_error(tmp_path, monkeypatch):
    """Polars ends its stream in silence when a thread of its panics; fewer rows than planned are never accepted."""
    monkeypatch.setattr(readers_module, "POLARS_LEAST_BYTES", 0)
    path = write(tmp_path / "p.parquet", {"v": np.arange(200_000.0)})
    whole = pl.LazyFrame.slice
    monkeypatch.setattr(pl.LazyFrame, "slice", lambda self, first, n: whole(self, first, n - 50_000))
    with pytest.raises(SourceError, match=r"the reader gave 150000 of 200000 rows - .*p\.parquet"):
        read(open_source(path), ["v"])


def test_a_file_that_changed_since_the_plan(tmp_path):
    """A file that was replaced, touched or removed after planning is an error that says so."""
    path = write(tmp_path / "x.parquet", {"v": [1, 2, 3]})
    (shard,) = open_source(path).shards()
    os.utime(path, ns=(1, 1))
    with pytest.raises(SourceError, match=r"changed since - .*x\.parquet"):
        list(shard.batches(["v"]))
    path.unlink()
    with pytest.raises(SourceError, match=r"it is gone - .*x\.parquet"):
        list(shard.batches(["v"]))


# -- the cut -------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 30), max_size=12),
    st.integers(1, 20),
)
def test_recut_law(sizes, rows):
    """However the rows come, they leave in order, in batches of one size but for the last."""
    start = np.cumsum([0, *sizes])
    given_batches = [pa.record_batch({"x": np.arange(a, b)}) for a, b in pairwise(start)]
    got = list(recut(given_batches, rows))
    assert [n for batch in got for n in batch.column(0).to_pylist()] == list(range(start[-1]))
    assert all(batch.num_rows == rows for batch in got[:-1])
    assert not got or 0 < got[-1].num_rows <= rows


def test_recut_shares_memory_where_it_can():
    """A batch that needs no seam is a view of what came in."""
    batch = pa.record_batch({"x": np.arange(100)})
    first, *_ = recut([batch], 60)
    assert first.column(0).buffers()[1].address == batch.column(0).buffers()[1].address


@given(st.lists(st.tuples(st.integers(0, 1_500_000), st.integers(0, 1 << 26)), max_size=30))
def test_shards_cover_the_row_groups_once(groups):
    """The runs of row groups are disjoint, in order, complete, and none is without rows."""
    groups = [Group(*group) for group in groups]
    runs = list(cut(groups))
    rows = [sum(groups[i].rows for i in run) for run in runs]
    assert all(rows)
    assert sum(rows) == sum(group.rows for group in groups)
    assert [i for run in runs for i in run] == (list(range(len(groups))) if runs else [])


@pytest.mark.parametrize("reader", ["auto", "arrow"])
def test_batches_end_where_row_groups_do_for_every_reader(tmp_path, reader):
    """Batches are cut by the file alone: at the end of a row group where one is near, else when they are full."""
    table = numbers(150_000)
    cuts = {
        150_000: [BATCH_ROWS, BATCH_ROWS, 150_000 - 2 * BATCH_ROWS],
        40_000: [40_000, 40_000, 40_000, 30_000],
        7_001: [5 * 7_001] * 4 + [150_000 - 20 * 7_001],
    }
    for size, expected in cuts.items():
        path = write(tmp_path / f"{size}.parquet", table, row_group_size=size)
        (shard,) = open_source(path, reader=reader).shards()
        batches = list(shard.batches(["s", "x", "n", "y"]))
        assert [batch.num_rows for batch in batches] == expected
        assert all(batch.schema.names == ["s", "x", "n", "y"] for batch in batches)
        assert read(open_source(path, reader=reader), table.schema.names).equals(table.combine_chunks())


def test_wide_and_long_files_are_cut(tmp_path):
    """About a million rows make a shard; its id, place and size follow from the file."""
    path = write(tmp_path / "a.parquet", {"x": np.zeros(2_500_000, np.int8)}, row_group_size=400_000)
    shards = list(open_source(path).shards())
    assert [shard.rows for shard in shards] == [800_000, 800_000, 900_000]
    assert [shard.id.partition("@")[0] for shard in shards][1] == f"{path}[800000:1600000]"
    assert len({shard.id.rpartition("@")[2] for shard in shards}) == 1
    assert shards[1].place(399_999) == "a.parquet, row group 2, row 1199999"
    assert shards[1].place(400_000) == "a.parquet, row group 3, row 1200000"
    assert abs(sum(shard.size for shard in shards) - path.stat().st_size) < 4
    assert [shard.id for shard in open_source(path).shards()] == [shard.id for shard in shards]


def test_ids_change_with_the_content(tmp_path):
    """A file with other rows under the same name has another id."""
    first = next(iter(open_source(write(tmp_path / "a.parquet", {"x": [1.0, 2.0]})).shards())).id
    again = next(iter(open_source(write(tmp_path / "a.parquet", {"x": [1.0, 2.0]})).shards())).id
    other = next(iter(open_source(write(tmp_path / "a.parquet", {"x": [1.0, 3.0]})).shards())).id
    assert first == again != other


def test_empty_files_and_row_groups_are_legal(tmp_path):
    """A file without rows gives no shard, a row group without rows changes nothing."""
    schema = pa.schema([("x", pa.float64())])
    write(tmp_path / "0.parquet", schema.empty_table())
    with pq.ParquetWriter(tmp_path / "1.parquet", schema) as writer:
        for values in ([], [1.0], [], [2.0], []):
            writer.write_table(pa.table({"x": pa.array(values, pa.float64())}))
    source = open_source(tmp_path)
    assert [shard.rows for shard in source.shards()] == [2]
    assert read(source, ["x"])["x"].to_pylist() == [1.0, 2.0]
    assert list(open_source(tmp_path / "0.parquet").shards()) == []
