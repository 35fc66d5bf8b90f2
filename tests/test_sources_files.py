"""Which files a path, glob, folder or URI stands for, and the columns that folders are."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from source_files import part, plain, values

from streamnb.errors import SchemaError, SourceError
from streamnb.sources import open_source

# -- which files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """A folder as Spark leaves it: two parts, one of them below, with markers and a job that was cut off."""
    root = tmp_path / "out"
    part(root / "part-1.parquet", [4])
    part(root / "part-0.parquet", [1, 2, 3])
    part(root / "sub" / "part-2.pq", [5])
    (root / "_SUCCESS").touch()
    (root / ".part-0.parquet.crc").write_bytes(b"crc")
    (root / "notes.txt").write_text("not data")
    part(root / "_temporary" / "0" / "part-1.parquet", [9])
    part(root / ".hidden" / "part-1.parquet", [9])
    part(root / "sub" / "_delta_log" / "x.parquet", [9])
    return root


def test_a_folder_is_read_below_without_markers(folder):
    """Names that begin with _ or . are skipped at every level; other suffixes stay where they are (case C20)."""
    assert values(open_source(folder)) == [1, 2, 3, 4, 5]
    assert values(open_source(f"{folder}/")) == [1, 2, 3, 4, 5]


def test_the_root_itself_may_be_hidden(tmp_path):
    """Only what lies below the root given is judged by its name."""
    part(tmp_path / "_tmp" / ".x" / "a.parquet", [1])
    assert values(open_source(tmp_path / "_tmp" / ".x")) == [1]
    assert values(open_source(f"{tmp_path}/_tmp/.x/*")) == [1]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.parquet", [1, 2, 3, 4]),
        ("part-?.parquet", [1, 2, 3, 4]),
        ("part-[1-9].parquet", [4]),
        ("**/*.p*q*", [1, 2, 3, 4, 5]),
        ("**", [1, 2, 3, 4, 5]),
        ("*", [1, 2, 3, 4, 5]),
        ("s*/part-2.pq", [5]),
        ("_temp*/*/*", [9]),
    ],
)
def test_globs(folder, pattern, expected):
    """Wildcards match part by part, ** any depth, and never a hidden name unless it is written so."""
    assert values(open_source(f"{folder}/{pattern}")) == expected


def test_a_name_with_brackets_is_a_name(tmp_path):
    """A file that is there under exactly this name is meant, not a pattern."""
    assert values(open_source(part(tmp_path / "a[1].parquet"))) == [1, 2, 3]


def test_relative_paths_and_the_home_folder(folder, monkeypatch):
    """Ids hold absolute paths, however the path was written."""
    monkeypatch.chdir(folder.parent)
    monkeypatch.setenv("HOME", str(folder.parent))
    ids = [shard.id for shard in open_source(folder).shards()]
    for path in ("out", "./out", "out/../out", "~/out"):
        assert [shard.id for shard in open_source(path).shards()] == ids


def test_a_list_keeps_its_order_and_reads_a_file_once(folder):
    """The files of a list come in its order; one that is listed twice is one file."""
    paths = [folder / "part-1.parquet", str(folder / "part-0.parquet"), f"{folder}/*.parquet"]
    assert values(open_source(paths)) == [4, 1, 2, 3]


def test_a_suffix_is_no_condition_for_a_file_that_is_named(tmp_path):
    """Hive writes 000000_0: a file that is named, or matched by a glob, is Parquet until it proves otherwise."""
    part(tmp_path / "000000_0", [1])
    assert values(open_source(tmp_path / "000000_0")) == [1]
    assert values(open_source(f"{tmp_path}/0*")) == [1]
    with pytest.raises(SourceError, match=r"Expected .parquet files, got only names without a suffix; a glob takes"):
        open_source(tmp_path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("absent", r"got nothing at this path - '.*absent'"),
        ("absent/*.parquet", r"Expected files that match, got none - glob '.*absent/\*\.parquet'"),
        ("*.nothing", r"Expected files that match, got none - glob"),
        ("empty", r"the folder holds no data files - '.*empty'"),
        ("markers", r"the folder holds no data files - '.*markers'"),
        ("csv", r"Expected .parquet files, got only \.csv"),
        ("csv/a.csv", r"got \.csv; give pl\.scan_csv\('.*a\.csv'\) as the source instead - .*a\.csv"),
        ("csv/*", r"got \.csv; give pl\.scan_csv"),
        ("emp*", r"Expected Parquet files, got only folders without any"),
        ("nosuch://bucket/a.parquet", r"Expected a URI that PyArrow can open, got 'nosuch://bucket/a\.parquet'"),
    ],
)
def test_nothing_to_read_is_said(tmp_path, path, message):
    """A path without data is an error with the reason, never a source of no rows."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "markers").mkdir()
    (tmp_path / "markers" / "_SUCCESS").touch()
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "a.csv").write_text("x\n1\n")
    with pytest.raises(SourceError, match=message):
        open_source(path if "://" in path else f"{tmp_path}/{path}")


def test_an_empty_list_and_a_number_are_refused():
    """What is no source is refused with its type."""
    with pytest.raises(SourceError, match="got an empty list"):
        open_source([])
    with pytest.raises(SourceError, match=r"Expected a path, glob, folder.*got builtins\.int"):
        open_source(7)


# -- folders that are columns --------------------------------------------------------------------------------------


@pytest.fixture
def hive(tmp_path):
    """Three partitions: a code with a leading zero, a value that is escaped, and Hive's null."""
    part(tmp_path / "zip=01001" / "year=2024" / "a.parquet", [1, 2])
    part(tmp_path / "zip=a%2Fb%20c" / "year=2025.5" / "a.parquet", [3])
    part(tmp_path / "zip=__HIVE_DEFAULT_PARTITION__" / "year=__HIVE_DEFAULT_PARTITION__" / "a.parquet", [4])
    return tmp_path


def test_hive_values_are_strings(hive):
    """A value of a path is what is written there: leading zeros stay, escapes are undone, Hive's null is null."""
    source = open_source(hive)
    assert source.schema == pa.schema([("x", pa.int64()), ("zip", pa.string()), ("year", pa.string())])
    assert values(source, "zip") == ["01001", "01001", None, "a/b c"]
    assert values(source, "year") == ["2024", "2024", None, "2025.5"]
    assert values(source) == [1, 2, 4, 3]
    assert next(iter(source.shards())).place(1) == "zip=01001/year=2024/a.parquet, row group 0, row 1"


def test_hive_columns_beside_and_without_columns_of_the_file(hive):
    """Columns of path and file come in the order asked for, also when all are of the path."""
    (first, *_) = open_source(f"{hive}/*/*/*.parquet", hive_numeric=frozenset({"year"})).shards()
    (batch,) = first.batches(["year", "x", "zip"])
    assert {name: plain(batch.column(name)).to_pylist() for name in batch.schema.names} == {
        "year": [2024.0, 2024.0],
        "x": [1, 2],
        "zip": ["01001", "01001"],
    }
    (batch,) = first.batches(["zip"])
    assert plain(batch.column(0)).to_pylist() == ["01001", "01001"]


def test_hive_numbers_on_request(hive):
    """A column that is to be a number is one, null included; a value that is none names its path."""
    source = open_source(hive, hive_numeric=frozenset({"year"}))
    assert source.schema.field("year").type == pa.float64()
    assert values(source, "year") == [2024.0, 2024.0, None, 2025.5]
    with pytest.raises(SourceError, match=r"Expected a number in zip=\.\.\., got 'a/b c' - .*zip=a%2Fb%20c"):
        open_source(hive, hive_numeric=frozenset({"zip"}))
    skipping = open_source(hive, hive_numeric=frozenset({"zip"}), on_error="skip")
    assert values(skipping, "zip") == [1001.0, 1001.0, None]
    assert len(skipping.skipped) == 1


def test_the_files_own_column_wins(tmp_path):
    """A column that the file holds itself is not taken from its path."""
    part(tmp_path / "y=5" / "a.parquet", [1], y=["own"])
    assert values(open_source(tmp_path), "y") == ["own"]


def test_a_column_that_only_some_paths_have(tmp_path):
    """A folder outside of the partitions lacks their column, and is named."""
    part(tmp_path / "a.parquet", [1])
    part(tmp_path / "y=5" / "a.parquet", [2])
    source = open_source(tmp_path)
    assert source.schema.names == ["x"]
    with pytest.raises(SchemaError, match=r"Expected a column 'y', got none - .*/a\.parquet"):
        source.check(["y"])


def test_a_partition_column_may_begin_with_an_underscore(tmp_path):
    """`_year=2024` is a column, not a marker."""
    part(tmp_path / "_year=2024" / "a.parquet", [1])
    assert values(open_source(tmp_path), "_year") == ["2024"]


# -- other filesystems ---------------------------------------------------------------------------------------------


def test_a_uri_of_this_machine_is_its_path(folder):
    """file:// gives the ids, and the fast reader, of the plain path."""
    ids = [shard.id for shard in open_source(folder).shards()]
    assert [shard.id for shard in open_source(f"file://{folder}").shards()] == ids
    assert [shard.id for shard in open_source(folder.name, filesystem=subtree(folder.parent)).shards()] == ids
    assert values(open_source(f"file://{folder}/*.parquet")) == [1, 2, 3, 4]


def subtree(base: Path) -> fs.SubTreeFileSystem:
    """This machine's files below a folder, as a filesystem of their own."""
    return fs.SubTreeFileSystem(str(base), fs.LocalFileSystem())


def test_a_filesystem_of_ones_own():
    """Any PyArrow filesystem serves: folders, globs, partitions and checks of change."""
    mock, created = fs._MockFileSystem(), {}
    for year in ("2024", "2025"):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"x": [int(year)]}), sink)
        mock.create_dir(f"bucket/data/year={year}", recursive=True)
        created[year] = sink.getvalue()
        with mock.open_output_stream(f"bucket/data/year={year}/a.parquet") as stream:
            stream.write(created[year])
    source = open_source("bucket/data", filesystem=mock)
    assert values(source) == [2024, 2025]
    assert values(source, "year") == ["2024", "2025"]
    assert values(open_source("bucket/data/*/*.parquet", filesystem=mock)) == [2024, 2025]
    shard = next(iter(source.shards()))
    assert shard.id.startswith("mock://bucket/data/year=2024/a.parquet[0:1]@")
    with mock.open_output_stream("bucket/data/year=2024/a.parquet") as stream:
        stream.write(bytes(created["2024"]) + b" ")
    with pytest.raises(SourceError, match="changed since - mock://bucket/data/year=2024"):
        list(shard.batches(["x"]))
    with pytest.raises(SourceError, match="got nothing at this path - 'bucket/nope'"):
        open_source("bucket/nope", filesystem=mock)
