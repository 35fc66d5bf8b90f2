"""Everything that can be a source: paths, folders, URIs, frames, queries, datasets and streams."""

import pickle
import warnings

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from source_files import part, plain, values

from streamnb.errors import SchemaError, SourceError
from streamnb.sources import BATCH_ROWS, open_source
from streamnb.sources.parquet import ParquetSource

# -- rows in memory ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Two files with the rows 1 to 4, and a third one below."""
    root = tmp_path / "data"
    part(root / "part-0.parquet", [1, 2, 3])
    part(root / "part-1.parquet", [4])
    part(root / "sub" / "part-2.parquet", [5])
    return root


TABLE = pa.table({"x": [1, 2, 3], "s": ["a", "b", None]})


def in_memory():
    """Rows that are all there."""
    yield "table", TABLE
    yield "batch", TABLE.to_batches()[0]
    yield "chunks", pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])
    yield "polars", pl.from_arrow(TABLE)
    yield "polars chunks", pl.concat([pl.from_arrow(TABLE.slice(0, 1)), pl.from_arrow(TABLE.slice(1))], rechunk=False)
    yield "pandas", TABLE.to_pandas()
    yield "list", [TABLE.slice(0, 1), pl.from_arrow(TABLE.slice(1))]


def one_shot():
    """Streams that can be read once."""
    yield "reader", TABLE.to_reader()
    yield "polars batches", pl.from_arrow(TABLE).lazy().collect_batches()


def again():
    """Queries, which run again for each pass."""
    yield "lazy", pl.from_arrow(TABLE).lazy()
    yield "dataset", ds.dataset(TABLE)
    yield "duckdb", duckdb.from_arrow(TABLE)


@pytest.mark.parametrize("kind", [*dict(in_memory()), *dict(again())])
def test_sources_that_can_be_read_again(kind):
    """Any number of passes gives the same rows, with the columns asked for, in their order."""
    source = open_source((dict(in_memory()) | dict(again()))[kind])
    assert source.schema.names == ["x", "s"]
    for _ in range(2):
        assert values(source) == [1, 2, 3]
        assert values(source, "s") == ["a", "b", None]
    batches = [batch for shard in source.shards() for batch in shard.batches(["s", "x"])]
    assert {tuple(batch.schema.names) for batch in batches} == {("s", "x")}
    assert {shard.id for shard in source.shards()} == {""}
    assert source.skipped == []


@pytest.mark.parametrize("kind", dict(one_shot()))
def test_a_second_pass_over_a_stream_is_refused(kind):
    """A stream that was read gives no rows in silence; a second pass says so instead."""
    source = open_source(dict(one_shot())[kind])
    assert source.schema.names == ["x", "s"]
    assert values(source, "s") == ["a", "b", None]
    with pytest.raises(SourceError, match=r"Expected a source for a second pass, got a .* that was read before"):
        values(source, "s")


@pytest.mark.parametrize("kind", [*dict(in_memory()), *dict(one_shot()), *dict(again())])
def test_absent_columns_of_any_source(kind):
    """A column that is not there offers the near misses, before a row is read."""
    source = open_source((dict(in_memory()) | dict(one_shot()) | dict(again()))[kind])
    with pytest.raises(SchemaError, match="Expected a column 'xx', got none; did you mean 'x'"):
        source.check(["s", "xx"])


def test_equal_names_in_a_record_batch():
    """Two columns of one name, in a batch or a pandas frame, are refused where they are used (case C18)."""
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2]), pa.array(["a"])], ["v", "v", "label"])
    for source in (open_source(batch), open_source(pa.RecordBatchReader.from_batches(batch.schema, [batch]))):
        with pytest.raises(SchemaError, match="Expected one column 'v', got 2 - pyarrow"):
            source.check(["v", "label"])
        assert values(source, "label") == ["a"]
    with pytest.raises(SchemaError, match=r"pandas DataFrame: .*'v'"):
        open_source(pd.DataFrame([[1, 2]], columns=["v", "v"]))


def test_types_of_any_source_are_canonical():
    """Views, large strings and small codes become one type each; codes of strings stay codes, with wide indices."""
    codes = [pa.array([f"{k}{i}" for i in range(100)]).dictionary_encode() for k in "ab"]
    codes = [pa.DictionaryArray.from_arrays(part.indices.cast(pa.int8()), part.dictionary) for part in codes]
    batches = [
        pa.record_batch({"c": part, "v": part.dictionary.cast(pa.string_view()), "n": pa.array(range(100), pa.int8())})
        for part in codes
    ]
    source = open_source(pa.RecordBatchReader.from_batches(batches[0].schema, batches))
    assert source.schema == pa.schema([("c", pa.string()), ("v", pa.string()), ("n", pa.int8())])
    (shard,) = source.shards()
    (batch,) = shard.batches(["c", "v", "n"])
    assert [column.type for column in batch.columns] == [pa.dictionary(pa.int32(), pa.string()), pa.string(), pa.int8()]
    assert (
        plain(batch.column(0)).to_pylist()
        == batch.column(1).to_pylist()
        == [f"{k}{i}" for k in "ab" for i in range(100)]
    )


def test_large_frames_are_cut_into_shards_and_batches():
    """Every million rows a shard, every 65,536 rows a batch, for Arrow and Polars alike; shards pickle."""
    frame = pl.select(x=pl.int_range(1_100_000))
    for data in (frame, frame.to_arrow(), frame.to_pandas()):
        shards = list(open_source(data).shards())
        assert [shard.rows for shard in shards] == [1_000_000, 100_000]
        assert [batch.num_rows for batch in shards[1].batches(["x"])] == [BATCH_ROWS, 100_000 - BATCH_ROWS]
        assert next(iter(shards[1].batches(["x"]))).column(0)[0].as_py() == 1_000_000
        assert shards[1].place(5).startswith("row 1000005 of the p")
        assert 0 < shards[1].size < shards[0].size
    copy = pickle.loads(pickle.dumps(shards[1]))
    assert next(iter(copy.batches(["x"]))).equals(next(iter(shards[1].batches(["x"]))))


def test_empty_frames_give_no_rows():
    """A table without rows is legal and has no shard."""
    assert list(open_source(TABLE.slice(0, 0)).shards()) == []
    assert values(open_source(pl.DataFrame({"x": []}).lazy())) == []


# -- queries -------------------------------------------------------------------------------------------------------


def test_a_lazy_query_is_read_in_bounded_batches(tmp_path, recwarn):
    """A LazyFrame comes in order, in whole batches, with odd names as they are, without a word from Polars."""
    frame = pl.select(pl.int_range(200_000).alias("^x$"), pl.lit("a").cast(pl.Categorical).alias("*"))
    frame.write_parquet(tmp_path / "a.parquet")
    source = open_source(pl.scan_parquet(tmp_path / "a.parquet"))
    assert source.schema.names == ["^x$", "*"]
    (shard,) = source.shards()
    assert [batch.num_rows for batch in shard.batches(["^x$"])] == [BATCH_ROWS] * 3 + [200_000 - 3 * BATCH_ROWS]
    assert values(source, "^x$") == list(range(200_000))
    assert set(values(source, "*")) == {"a"}
    assert (shard.rows, shard.size, shard.place(3)) == (None, 0, "row 3 of the Polars LazyFrame")
    assert not recwarn.list


def test_a_query_that_fails_on_the_way(tmp_path):
    """An error within the query is a SourceError with what Polars says."""
    query = pl.LazyFrame({"x": ["1", "2", "three"]}).select(pl.col("x").cast(pl.Int64))
    with pytest.raises(SourceError, match=r"got a Polars LazyFrame that fails: .*conversion"):
        values(open_source(query))
    with pytest.raises(SourceError, match=r"got a Polars LazyFrame that fails: .*nope"):
        open_source(pl.LazyFrame({"x": [1]}).select("nope")).check(["x"])


def test_a_query_that_ends_in_silence(monkeypatch):
    """Polars ends a stream in silence when a thread of its panics; rows are never lost without an error."""
    whole = pl.LazyFrame.collect_batches
    monkeypatch.setattr(pl.LazyFrame, "collect_batches", lambda self, **options: whole(self.head(2), **options))
    with pytest.raises(SourceError, match="runs to its end, got one that stopped on the way"):
        values(open_source(pl.LazyFrame({"x": [1, 2, 3]})))


def test_an_abandoned_query_is_closed():
    """Closing the batches of a query early is no error."""
    (shard,) = open_source(pl.select(x=pl.int_range(500_000)).lazy()).shards()
    batches = shard.batches(["x"])
    next(batches)
    batches.close()


# -- datasets ------------------------------------------------------------------------------------------------------


def test_a_dataset_of_parquet_files_is_its_files(folder):
    """Whole Parquet files without partitions or filter get the fast path, ids and all."""
    dataset = ds.dataset([str(folder / "part-0.parquet"), str(folder / "part-1.parquet")])
    source = open_source(dataset)
    assert isinstance(source, ParquetSource)
    assert [shard.id for shard in source.shards()] == [
        shard.id for shard in open_source(f"{folder}/*.parquet").shards()
    ]


def test_a_dataset_keeps_its_filter_partitions_and_types(tmp_path):
    """A filter, typed partitions or a schema of the dataset's own are respected, fragment by fragment."""
    part(tmp_path / "year=2024" / "a.parquet", [1, 2])
    part(tmp_path / "year=2025" / "a.parquet", [3])
    dataset = ds.dataset(tmp_path, partitioning="hive")
    assert values(open_source(dataset), "year") == [2024, 2024, 2025]
    assert values(open_source(dataset.filter(ds.field("x") >= 2))) == [2, 3]
    assert values(open_source(dataset.filter(ds.field("year") == 2025))) == [3]
    typed = ds.dataset(tmp_path / "year=2024" / "a.parquet", schema=pa.schema([("x", pa.float32())]))
    (batch,) = [batch for shard in open_source(typed).shards() for batch in shard.batches(["x"])]
    assert batch.column(0).type == pa.float32()
    (fragment,) = ds.dataset(tmp_path / "year=2024" / "a.parquet").get_fragments()
    assert fragment.path in next(iter(open_source(typed).shards())).place(0)


def test_a_csv_dataset(tmp_path):
    """Formats that only PyArrow knows come through its datasets, a file at a time."""
    (tmp_path / "a.csv").write_text("x,s\n1,a\n2,b\n")
    (tmp_path / "b.csv").write_text("x,s\n3,c\n")
    source = open_source(ds.dataset(tmp_path, format="csv"))
    assert values(source) == [1, 2, 3]
    assert [shard.size for shard in source.shards()] == [12, 8]
    (tmp_path / "b.csv").write_text("x,s\nthree,c\n")
    with pytest.raises(SourceError, match=r"Expected a readable file, got .*three.*b\.csv"):
        values(source)


def test_a_dataset_of_some_row_groups(tmp_path):
    """A fragment that stands for part of a file gives that part."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1, 2, 3, 4]}), path, row_group_size=2)
    (fragment,) = ds.dataset(path).get_fragments()
    part = ds.FileSystemDataset(
        [fragment.subset(row_group_ids=[1])], fragment.physical_schema, ds.ParquetFileFormat(), fs.LocalFileSystem()
    )
    assert values(open_source(part)) == [3, 4]


# -- several at once -----------------------------------------------------------------------------------------------


def test_a_list_of_different_sources(folder):
    """Sources of different kinds follow one another, matched by name and widened."""
    source = open_source([folder, pl.DataFrame({"s": ["a"], "x": [0.5]}), pa.table({"x": pa.array([7], pa.int8())})])
    assert source.schema == pa.schema([("x", pa.float64())])
    assert values(source) == [1.0, 2.0, 3.0, 4.0, 5.0, 0.5, 7.0]
    shards = list(source.shards())
    assert [bool(shard.id) for shard in shards] == [True, True, True, False, False]
    assert (shards[0].rows, shards[0].size > 0) == (3, True)
    assert shards[0].place(2) == "part-0.parquet, row group 0, row 2"


def test_a_list_whose_types_do_not_meet():
    """An int column in one source and a string column in another are refused."""
    source = open_source([pa.table({"x": [1]}), pa.table({"x": ["one"]})])
    with pytest.raises(SchemaError, match="column 'x' that go together, got int64 before and string in source 1"):
        source.check(["x"])


def test_no_warning_even_when_warnings_are_errors(folder):
    """Opening and reading say nothing on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert values(open_source([folder, TABLE])) == [1, 2, 3, 4, 5, 1, 2, 3]
