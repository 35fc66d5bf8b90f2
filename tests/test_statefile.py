"""The state file: equal bytes, whole or not at all, and refused unless it is exactly what was written."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import io
import json
import os
import pickle
import random
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamnb import statefile
from streamnb.atomic import open_atomically, write_bytes_atomically
from streamnb.errors import DataError, FileFormatError, SourceError
from streamnb.statefile import FORMAT, Contents, dumps, loads, read, write

ROOT = Path(__file__).parents[1]

ARROW_ARRAYS = {
    "string": pa.array(["b", "", "ä"]),
    "large_string": pa.array(["b", "c"], pa.large_string()),
    "string_view": pa.array(["a", "long enough to lie outside the view"], pa.string_view()),
    "binary": pa.array([b"\0", b"\xff"]),
    "binary_view": pa.array([b"\0", b"\xff"], pa.binary_view()),
    "fixed_binary": pa.array([b"ab", b"cd"], pa.binary(2)),
    "int8": pa.array([-1, 2], pa.int8()),
    "uint64": pa.array([2**64 - 1], pa.uint64()),
    "float": pa.array([1.5, -0.0]),
    "bool": pa.array([True, False, True]),
    "decimal": pa.array([decimal.Decimal("1.25")], pa.decimal128(5, 2)),
    "decimal256": pa.array([decimal.Decimal("-9.99")], pa.decimal256(50, 2)),
    "date": pa.array([datetime.date(2024, 2, 29)]),
    "time": pa.array([datetime.time(23, 59)]),
    "timestamp": pa.array([datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)], pa.timestamp("us", "Europe/Rome")),
    "duration": pa.array([datetime.timedelta(seconds=1)]),
    "no strings": pa.array([], pa.string()),
    "nothing": pa.nulls(0),
}


def example() -> bytes:
    """Return the bytes of a small state with arrays of every kind."""
    arrays = {
        "mean": np.arange(6.0).reshape(2, 3),
        "count": np.array([[7], [2**53]], dtype=np.int64),
        "flags": np.array([True, False, True]),
        "none": np.empty((0, 4)),
        "scalar": np.array(1.5, dtype=np.float32),
        "classes": pa.array(["setosa", "virginica"]),
        "days": pa.array([datetime.date(2024, 1, 1)]),
    }
    return dumps("state", {"rows": 9, "columns": ["a", "b"], "deep": {"x": [1.5, None, True]}}, arrays)


def assert_equal(one: Contents, two: Contents) -> None:
    """Compare two contents to the bit."""
    assert (one.kind, one.header, list(one.arrays)) == (two.kind, two.header, list(two.arrays))
    for name, array in one.arrays.items():
        other = two.arrays[name]
        assert type(array) is type(other), name
        if isinstance(array, np.ndarray):
            assert (array.dtype, array.shape, array.tobytes()) == (
                other.dtype,
                other.shape,
                other.tobytes(),
            ), name
        else:
            assert array.type == other.type, name
            assert array.equals(other), name


def rewritten(data: bytes, *, checksum: bool = True, compression: str | None = None, **edits: str) -> bytes:
    """Return a file with some texts of its metadata exchanged and, unless told not to, a fitting checksum."""
    with pa.ipc.open_file(data) as reader:
        batch = reader.get_batch(0)
    texts = {key.decode().removeprefix("streamnb."): value.decode() for key, value in batch.schema.metadata.items()}
    texts |= edits
    if checksum:
        columns = [(name, batch.column(name)[0].values) for name in batch.schema.names]
        contents = ((name, array.type, statefile.content_of(array)) for name, array in columns)
        texts["checksum"] = statefile._checksum(texts, contents)
    return stored(batch, {f"streamnb.{key}": value for key, value in texts.items()}, compression)


def stored(batch: pa.RecordBatch, metadata: dict[str, str], compression: str | None = None) -> bytes:
    """Return an Arrow file of one batch, by Arrow's own means."""
    batch = batch.replace_schema_metadata(metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def names_in(folder: Path) -> list[str]:
    """Return the names of all that lies in a folder."""
    return sorted(each.name for each in folder.iterdir())


# --- the round trip ---


@pytest.mark.parametrize("name", ARROW_ARRAYS)
def test_arrow_arrays_return_with_their_type(name: str) -> None:
    """An Arrow array of any scalar type comes back equal, and is written to equal bytes again."""
    data = dumps("predictor", {}, {"a": ARROW_ARRAYS[name]})
    array = loads(data).arrays["a"]
    assert array.type == ARROW_ARRAYS[name].type
    assert array.equals(ARROW_ARRAYS[name])
    assert dumps("predictor", {}, {"a": array}) == data


@given(
    arrays=st.dictionaries(
        st.text(max_size=5).filter(lambda name: name.isprintable()),
        hnp.arrays(
            hnp.boolean_dtypes()
            | hnp.integer_dtypes(endianness="<")
            | hnp.floating_dtypes(sizes=(32, 64), endianness="<"),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        max_size=4,
    ),
    header=st.dictionaries(
        st.text(max_size=3),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=5,
        ),
        max_size=4,
    ),
)
@settings(deadline=None, max_examples=60)
def test_what_is_written_is_read(arrays: dict[str, Any], header: dict[str, Any]) -> None:
    """NumPy arrays and header come back to the bit, NaN and -inf included, and give equal bytes again."""
    data = dumps("predictor", header, arrays)
    contents = loads(data)
    assert_equal(contents, Contents("predictor", header, dict(sorted(arrays.items()))))
    assert dumps("predictor", contents.header, contents.arrays) == data


def test_equal_content_gives_equal_bytes() -> None:
    """Neither the order of names, nor slices, nor memory order, nor slack bits reach the file."""
    bools = pa.array([True] * 11)
    plain = dumps(
        "state",
        {"a": 1, "b": (2, 3)},
        {
            "m": np.arange(6.0).reshape(2, 3),
            "t": pa.array(["x", "yy"]),
            "v": pa.array(["x", "a text that is kept outside"], pa.string_view()),
            "b": bools.slice(0, 3),
        },
    )
    twisted = dumps(
        "state",
        {"b": [2, 3], "a": 1},
        {
            "v": pa.array(["?", "x", "a text that is kept outside", "another that is outside"], pa.string_view()).slice(
                1, 2
            ),
            "b": pa.Array.from_buffers(pa.bool_(), 3, [None, pa.py_buffer(b"\xff")]),
            "t": pa.array(["before", "x", "yy", "after"]).slice(1, 2),
            "m": np.asfortranarray(np.arange(6.0).reshape(2, 3)).astype(">f8"),
        },
    )
    assert plain == twisted
    # The first key sorts after the second as a number, and before it as the text that JSON makes of it.
    assert dumps("state", {10: 0, 9: 0}, {}) == dumps("state", {"10": 0, "9": 0}, {})


def test_the_content_of_format_1_is_settled() -> None:
    """The checksum of a known content is the one of the first release, on any machine and any Arrow."""
    schema = pa.ipc.open_file(example()).schema
    assert FORMAT == 1
    checksum = "b7b566f010a8abf03a550c195c31d466bf61c41031989215c0351b2a20398144"
    assert schema.metadata[b"streamnb.checksum"].decode() == checksum


def test_any_arrow_reader_opens_it() -> None:
    """The file is a table of one row with one list column per array."""
    table = pa.ipc.open_file(example()).read_all()
    assert table.num_rows == 1
    assert table.column_names == ["classes", "count", "days", "flags", "mean", "none", "scalar"]
    assert table.column("classes").to_pylist() == [["setosa", "virginica"]]
    assert table.column("count").to_pylist() == [[7, 2**53]]
    assert json.loads(table.schema.metadata[b"streamnb.shapes"])["mean"] == ["float64", 2, 3]


def test_loaded_arrays_are_one_s_own() -> None:
    """NumPy arrays are writable, and no array keeps the bytes of the file alive or is changed with them."""
    data = bytearray(example())
    contents = loads(pa.py_buffer(data))
    before = contents.arrays["classes"].to_pylist(), contents.arrays["mean"].copy()
    contents.arrays["mean"] += 0.0
    data[:] = bytes(len(data))
    assert contents.arrays["classes"].to_pylist() == before[0]
    assert np.array_equal(contents.arrays["mean"], before[1])


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (
            np.array(["a", None], dtype=object),
            TypeError,
            "Expected bool, integer or float values, got object - array 'x'",
        ),
        (np.array([1j]), TypeError, "got complex128"),
        ([1.0], TypeError, "Expected a NumPy or a scalar Arrow array, got list - array 'x'"),
        (pa.array([[1]]), TypeError, re.escape("got Arrow type list<item: int64>")),
        (pa.array(["a"]).dictionary_encode(), TypeError, "got Arrow type dictionary"),
        (pa.array([1, None]), DataError, "Expected no nulls, got 1 - array 'x'"),
        (
            np.array([1.0, np.nan]),
            DataError,
            "Expected finite values in a state, got NaN or infinity - array 'x'",
        ),
        (np.empty((0, 2**40)), ValueError, "absurd shape"),
    ],
)
def test_what_cannot_be_read_back_is_not_written(array: Any, error: type[Exception], message: str) -> None:
    """An array that loading would refuse is refused at writing, while its owner is still in memory."""
    with pytest.raises(error, match=message):
        dumps("state", {}, {"x": array})


def test_a_header_must_be_json() -> None:
    """NaN, which JSON has not, and objects are refused at writing; so is a kind that does not exist."""
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps("state", {"a": float("nan")}, {})
    with pytest.raises(TypeError, match="not JSON serializable"):
        dumps("state", {"a": object()}, {})
    with pytest.raises(ValueError, match="Expected a kind among state, predictor, got 'model'"):
        dumps("model", {}, {})  # type: ignore[arg-type]


# --- what is refused ---


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::FutureWarning")  # PyArrow 20 warns of such types
def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    """A pickle, a NumPy archive with one, and an Arrow type that holds one are refused and not run."""
    mark, path = tmp_path / "mark", tmp_path / "a.snb"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(Bomb(mark), protocol=protocol))
        with pytest.raises(FileFormatError, match=r"a\.snb is not a streamnb file: it "):
            read(path)
    with pytest.raises(FileFormatError, match="it is a pickle, which is never read"):
        read(path)
    with path.open("wb") as stream:
        np.savez(stream, mean=np.array([Bomb(mark)], dtype=object))
    with pytest.raises(FileFormatError, match="it is a zip or NumPy archive, which is never read"):
        read(path)
    field = pa.field(
        "a",
        pa.large_list(pa.int64()),
        metadata={
            "ARROW:extension:name": "arrow.py_extension_type",
            "ARROW:extension:metadata": pickle.dumps(Bomb(mark)),
        },
    )
    batch = pa.RecordBatch.from_arrays([pa.array([[1]], field.type)], schema=pa.schema([field]))
    path.write_bytes(stored(batch, {"streamnb.format": "1", "streamnb.kind": "state"}))
    with pytest.raises(FileFormatError, match=r"a\.snb"):
        read(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "x is not a streamnb file: it is empty"),
        (b"row,label\n", "x is not a streamnb file: it does not begin as an Arrow file does"),
        (b"PAR1....", "x is not a streamnb file: it is a Parquet file"),
        (b"\x1f\x8b..", "x is not a streamnb file: it is a gzip file"),
        (b"\x93NUMPY", "x is not a streamnb file: it is a NumPy array file"),
        (
            stored(pa.record_batch({"a": [1]}), {"pandas": "{}"}),
            "x is an Arrow file, but neither a state nor a model of streamnb",
        ),
        (
            rewritten(example(), format="1001"),
            "x is of format 1001, and this release reads format 1: upgrade streamnb",
        ),
        (rewritten(example(), format="0"), "x is of format 0, and this release reads format 1$"),
        (
            rewritten(example(), kind="forest"),
            "x is damaged: it holds 'forest', which is neither a state nor a predictor",
        ),
        (
            rewritten(example(), header='{"rows":10}', checksum=False),
            "x is damaged: the checksum of its content is",
        ),
        (rewritten(example(), header="[]"), "x is damaged: its header is not as streamnb writes it"),
        (
            rewritten(example(), header='{"a":1,"a":2}'),
            "x is damaged: its header is not as streamnb writes it",
        ),
        (rewritten(example(), header='{"a":NaN}'), "x is damaged: "),
        (rewritten(example(), header='{"a":1e999}'), "x is damaged: "),
        (rewritten(example(), header="[" * 100_000), "x is damaged: "),
        (rewritten(example(), header="9" * 10_000), "x is damaged: "),
        (rewritten(example(), header='{"a":"ä"}'), "x is damaged: "),
        (rewritten(example(), more="1"), "x is damaged: its columns are not as streamnb writes them"),
        (
            rewritten(example(), compression="zstd"),
            "x is damaged: it is compressed, which streamnb never does",
        ),
        (
            rewritten(example(), compression="lz4"),
            "x is damaged: it is compressed, which streamnb never does",
        ),
    ],
)
def test_foreign_and_edited_files_are_refused(data: bytes, message: str) -> None:
    """What is not a file of ours, of our format and kind, is refused in one sentence that says what it is."""
    with pytest.raises(FileFormatError, match=message) as caught:
        loads(data, where="x")
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({}, None),
        ([], "its shapes are not those of its arrays"),
        ({"mean": ["float64", 6], "other": ["float64", 1]}, "its shapes are not those of its arrays"),
        ({"mean": ["float64", 2, 4]}, r"array 'mean' of shape \[2, 4\] holds 6 values"),
        ({"mean": ["float64", 1]}, r"array 'mean' of shape \[1\] holds 6 values"),
        ({"mean": ["float64", -2, -3]}, "array 'mean' has the impossible shape"),
        ({"mean": ["float64", True, 6]}, "array 'mean' has the impossible shape"),
        ({"mean": ["float64", 6.0]}, "array 'mean' has the impossible shape"),
        ({"mean": ["float64", *[1] * 8, 6]}, "array 'mean' has the impossible shape"),
        ({"mean": ["float64", "6"]}, "array 'mean' has the impossible shape"),
        ({"none": ["float64", 0, 2**62]}, "array 'none' has the absurd shape"),
        ({"none": ["float64", 10**30, 0]}, "array 'none' has the absurd shape"),
        ({"mean": ["int64", 6]}, "array 'mean' is not of the type 'int64' that its shape names"),
        ({"mean": ["object", 6]}, "array 'mean' is not of the type 'object' that its shape names"),
        ({"mean": [["float64"], 6]}, "is damaged"),
        ({"mean": []}, "array 'mean' is not of the type '' that its shape names"),
        ({"mean": 6}, "array 'mean' is not of the type '' that its shape names"),
        ({"classes": ["string", 2]}, "array 'classes' is not of the type 'string' that its shape names"),
    ],
)
def test_shapes_are_checked(shapes: Any, message: str | None) -> None:
    """Shapes that do not fit their arrays are refused, and cost nothing, even when the checksum fits."""
    data = rewritten(example(), shapes=json.dumps(shapes, sort_keys=True, separators=(",", ":")))
    if message is None:
        assert isinstance(loads(data).arrays["mean"], pa.Array)
        return
    with pytest.raises(FileFormatError, match=message):
        loads(data)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": pa.array([1])}, "array 'a' is of the unexpected type int64"),
        ({"a": pa.array([[1]])}, "array 'a' is of the unexpected type list<item: int64>"),
        (
            {"a": pa.array([[[1]]], pa.large_list(pa.list_(pa.int64())))},
            "array 'a' is of the unexpected type",
        ),
        (
            {"a": pa.array([["x"]], pa.large_list(pa.dictionary(pa.int8(), pa.string())))},
            "array 'a' is of the unexpected type large_list<item: dictionary",
        ),
        ({"a": pa.array([[1, None]], pa.large_list(pa.int64()))}, "array 'a' holds nulls"),
        ({"a": pa.array([None], pa.large_list(pa.int64()))}, "array 'a' holds nulls"),
        ({"a": pa.array([[None] * 9], pa.large_list(pa.null()))}, "array 'a' holds nulls"),
        ({"a": pa.array([[1], [2]], pa.large_list(pa.int64()))}, "expected one row, got 2"),
        (
            {name: pa.array([[1]], pa.large_list(pa.int64())) for name in "ba"},
            "its columns are not as streamnb",
        ),
    ],
)
def test_unexpected_columns_are_refused(columns: dict[str, pa.Array], message: str) -> None:
    """Columns of other types, with nulls, in another order or with more rows are refused."""
    texts = {"format": "1", "kind": "state", "header": "{}", "shapes": "{}", "checksum": ""}
    data = stored(pa.record_batch(columns), {f"streamnb.{key}": text for key, text in texts.items()})
    with pytest.raises(FileFormatError, match=message):
        loads(data)


def test_views_cannot_fill_the_memory() -> None:
    """A small file whose thousand views all show one text of a megabyte is refused before it is laid out."""
    text = b"x" * 2**20
    view = np.array([len(text), int.from_bytes(b"xxxx", "little"), 0, 0], dtype=np.int32)
    buffers = [None, pa.py_buffer(np.tile(view, 4000)), pa.py_buffer(text)]
    array = pa.Array.from_buffers(pa.string_view(), 4000, buffers)
    lists = pa.LargeListArray.from_arrays(pa.array([0, 4000], pa.int64()), array)
    texts = {"format": "1", "kind": "state", "header": "{}", "shapes": "{}", "checksum": ""}
    data = stored(pa.record_batch({"a": lists}), {f"streamnb.{key}": value for key, value in texts.items()})
    before = pa.total_allocated_bytes()
    with pytest.raises(FileFormatError, match="texts overlap each other"):
        loads(data)
    assert pa.total_allocated_bytes() - before < 2**22


def test_not_finite_is_refused_in_a_state_only() -> None:
    """NaN in a state is refused although its checksum fits; a model may hold the logarithm of nothing."""
    data = dumps("predictor", {}, {"log": np.array([-np.inf]), "classes": pa.array([np.nan])})
    assert loads(data).arrays["log"][0] == -np.inf
    with pytest.raises(FileFormatError, match="bytes is damaged: array 'log' holds a value that is not finite"):
        loads(rewritten(data, kind="state"))


def test_domain_checks_name_file_and_array() -> None:
    """The owner's checks refuse NaN and values below zero, naming the file and the array."""
    contents = loads(dumps("predictor", {}, {"n": np.array([1, -1]), "x": np.array([np.nan])}), where="a.snb")
    statefile.check_finite(contents, ["n"])
    with pytest.raises(FileFormatError, match=r"a\.snb is damaged: array 'x' holds a value that is not finite"):
        statefile.check_finite(contents, ["n", "x"])
    with pytest.raises(FileFormatError, match=r"a\.snb is damaged: array 'n' holds a value below zero"):
        statefile.check_non_negative(contents, ["n"])
    with pytest.raises(FileFormatError, match="array 'x' holds a value below zero"):
        statefile.check_non_negative(contents, ["x"])


# --- damage ---


def refused_or_equal(data: bytes, original: Contents) -> bool:
    """Load damaged bytes; True if they were refused, False if they held exactly the original."""
    refusal = None
    try:
        assert_equal(loads(data, where="a.snb"), original)
    except FileFormatError as error:
        refusal = str(error)
    assert refusal is None or (refusal.startswith("a.snb is ") and "\n" not in refusal)
    return refusal is not None


def damages(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """Yield copies with flipped bits, exchanged, random and removed bytes, and lengths gone mad."""
    draw = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(data)
        way = draw.randrange(6)
        one, two = draw.randrange(len(data)), draw.randrange(len(data))
        if way <= 1:
            damaged[one] ^= 1 << draw.randrange(8)
        elif way == 2:
            damaged[one], damaged[two] = damaged[two], damaged[one]
        elif way == 3:
            damaged[one : one + 8] = draw.randbytes(8)
        elif way == 4:
            damaged[one : one + draw.randrange(1, 32)] = b""
        else:
            size = draw.choice([4, 8])
            value = draw.choice([-1, 0, 2**24, 2**31 - 1, -(2**31)] if size == 4 else [-1, 2**40, 2**62])
            start = one // size * size
            damaged[start : start + size] = value.to_bytes(size, "little", signed=True)
        yield bytes(damaged)


def test_every_cut_is_refused() -> None:
    """A file cut short anywhere is refused, never taken for a smaller one."""
    data = example()
    original = loads(data)
    assert all(refused_or_equal(data[:length], original) for length in range(len(data)))
    with pytest.raises(FileFormatError, match="it is cut short"):
        loads(data[:-1])


def test_random_damage_is_refused_or_harmless() -> None:
    """Random damage is refused, or touches nothing that is read: then the original comes back to the bit."""
    data = example()
    original = loads(data)
    refused = sum(refused_or_equal(damaged, original) for damaged in damages(data, 24, 4000))
    assert refused > 2000


def test_damage_with_a_fitting_checksum_is_met_by_the_other_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever recomputes the checksum still meets one sentence or a sound content, never another error."""
    monkeypatch.setattr(statefile, "_checksum", lambda texts, _: texts.get("checksum", ""))
    texts = pa.array(["a", "a text that is kept outside of its view"], pa.string_view())
    data = dumps("state", {"rows": 2}, {"n": np.arange(6).reshape(2, 3), "f": np.array([True]), "t": texts})
    passed = 0
    for damaged in damages(data, 42, 3000):
        with contextlib.suppress(FileFormatError):
            contents = loads(damaged)
            dumps("state", contents.header, contents.arrays)
            passed += 1
    assert 100 < passed < 2500


def test_a_flip_in_the_values_is_found() -> None:
    """Every bit of every value is under the checksum."""
    data = dumps("state", {}, {"mean": np.full(50, 1.5)})
    start = data.index(np.full(50, 1.5).tobytes())
    for position in range(start, start + 400):
        damaged = bytearray(data)
        damaged[position] ^= 1 << position % 8
        with pytest.raises(FileFormatError, match="the checksum of its content is"):
            loads(bytes(damaged))


# --- reading and writing files ---


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    """Writing and reading are dumps and loads on a file, and leave nothing else in the folder."""
    path = tmp_path / "a.snb"
    write(path, "state", {"rows": 1}, {"x": np.ones(3)})
    write(str(path), "state", {"rows": 2}, {"x": np.ones(3)})
    contents = read(path)
    assert path.read_bytes() == dumps("state", {"rows": 2}, {"x": np.ones(3)})
    assert (contents.header, contents.where) == ({"rows": 2}, str(path))
    assert names_in(tmp_path) == ["a.snb"]


def test_reading_says_what_is_wrong(tmp_path: Path) -> None:
    """An absent file, a folder, a device, the other kind and a large stranger each have their sentence."""
    with pytest.raises(SourceError, match=r"There is no file .*absent\.snb") as caught:
        read(tmp_path / "absent.snb")
    assert isinstance(caught.value, OSError)
    with pytest.raises(SourceError, match="Expected a file, got a folder - "):
        read(tmp_path)
    with pytest.raises(SourceError, match="Expected a file, got a device - /dev/null"):
        read("/dev/null")
    state, model = tmp_path / "s.snb", tmp_path / "m.snb"
    write(state, "state", {}, {})
    write(model, "predictor", {}, {})
    assert read(state, kind="state").kind == "state"
    with pytest.raises(
        FileFormatError, match=r"s\.snb holds a state, not a model: load it with State\.load and finish it"
    ):
        read(state, kind="predictor")
    with pytest.raises(FileFormatError, match=r"m\.snb holds a model, not a state: load it with Predictor\.load"):
        read(model, kind="state")
    state.write_bytes(example()[:100])
    with pytest.raises(FileFormatError, match=r"s\.snb is damaged"):
        read(state)


def test_a_large_stranger_is_not_read_whole(tmp_path: Path) -> None:
    """Somebody's Arrow or CSV file of a terabyte is refused by its first bytes."""
    path = tmp_path / "large.arrow"
    for start in (stored(pa.record_batch({"a": [1]}), {}), b"a,b\n1,2\n"):
        path.write_bytes(start)
        os.truncate(path, 2**40)
        with pytest.raises(FileFormatError, match=r"large\.arrow is "):
            read(path)


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    """A new file honours the umask, and a replaced one keeps the permissions that it had."""
    path = tmp_path / "a"
    old = os.umask(0o027)
    try:
        write_bytes_atomically(path, b"1")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        write_bytes_atomically(path, b"2")
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(old)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """Writing through a link replaces what it points to, also in another folder, also when that is absent."""
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/a")
    for content in (b"1", b"2"):
        write_bytes_atomically(link, content)
        assert link.is_symlink()
        assert (tmp_path / "there" / "a").read_bytes() == content


def test_a_device_is_written_straight(tmp_path: Path) -> None:
    """A pipe is written, and /dev/null is not replaced by a file."""
    write_bytes_atomically("/dev/null", b"gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    pipe, received = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    write_bytes_atomically(pipe, b"through")
    reader.join()
    assert received == [b"through"]


def test_writing_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing folder, a folder as path and a file made read-only each have their sentence."""
    with pytest.raises(SourceError, match=r"Cannot write .*no/a\.snb: the folder .*no does not exist"):
        write(tmp_path / "no" / "a.snb", "state", {}, {})
    with pytest.raises(SourceError, match=r"Cannot write .*: it is a folder"):
        write(tmp_path, "state", {}, {})
    path = tmp_path / "a"
    path.touch(mode=0o444)
    monkeypatch.setattr(os, "access", lambda *_: False)  # the tests may run as root, who may write anything
    with pytest.raises(SourceError, match=r"Cannot write .*a: the file is read-only"):
        write_bytes_atomically(path, b"")
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match=r"Cannot write .*: Not a directory"):
        write_bytes_atomically(tmp_path / "file" / "a", b"")
    assert names_in(tmp_path) == ["a", "file"]


@pytest.mark.skipif(os.name != "posix", reason="needs resource limits")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """When the system takes no more bytes, the error says so, and only the old file is there."""
    program = """
import resource, sys
from streamnb.atomic import open_atomically, write_bytes_atomically
from streamnb.errors import SourceError
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
try:
    write_bytes_atomically(sys.argv[1], bytes(1_000_000))
except SourceError as error:
    print(error)
try:
    with open_atomically(sys.argv[1]) as stream:
        for _ in range(100):
            stream.write(bytes(1000))
except SourceError as error:
    print(error)
"""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    run = subprocess.run([sys.executable, "-c", program, path], cwd=ROOT, check=True, capture_output=True, text=True)
    assert run.stdout == f"Cannot write {path}: File too large\n" * 2
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a"]


def test_an_error_while_streaming_leaves_the_old_file(tmp_path: Path) -> None:
    """The caller's own error, or Ctrl-C, passes unchanged and leaves the folder as it was."""
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def stream_and_raise(error: BaseException) -> None:
        with open_atomically(path) as stream:
            stream.write(b"half")
            raise error

    for error in (DataError("row"), SourceError("input"), OSError(2, "other file"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught:
            stream_and_raise(error)
        assert caught.value is error
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["a"]


def test_leftovers_of_the_dead_are_removed(tmp_path: Path) -> None:
    """Old temporary files of the same target go; young ones, locked ones and those of other files stay."""
    path = tmp_path / "a.snb"
    leftover, young = (tmp_path / f".a.snb.{'0' * 15}{digit}.tmp" for digit in "12")
    others = [tmp_path / f".b.snb.{'0' * 16}.tmp", tmp_path / f".a.snb.{'0' * 15}z.tmp", tmp_path / "axsnb"]
    for each in (leftover, young, *others):
        each.touch()
    for each in (leftover, *others):
        os.utime(each, (0, 0))
    with open_atomically(path) as stream:
        (alive,) = set(tmp_path.glob(".a.snb.*.tmp")) - {leftover, young, others[1]}
        os.utime(alive, (0, 0))  # a writer that waits for its source for hours
        write_bytes_atomically(path, b"other writer")
        stream.write(b"slow writer")
    assert path.read_bytes() == b"slow writer"
    assert set(tmp_path.iterdir()) == {path, young, *others}


def test_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    """Threads that write and read one path at once never meet half a file."""
    path = tmp_path / "a.snb"
    contents = [dumps("state", {"writer": number}, {"x": np.full(5000, float(number))}) for number in range(3)]
    write_bytes_atomically(path, contents[0])
    failures: list[BaseException] = []

    def work(data: bytes) -> None:
        try:
            for _ in range(10):
                write_bytes_atomically(path, data)
                assert set(read(path).arrays["x"]) <= {0.0, 1.0, 2.0}
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(data,)) for data in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert path.read_bytes() in contents
    assert names_in(tmp_path) == ["a.snb"]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_a_kill_leaves_the_old_file_or_the_new(tmp_path: Path) -> None:
    """A writer killed at any moment leaves a file that loads, and the next one can go on."""
    program = """
import sys
import numpy as np
from streamnb.statefile import write
number = 0.0
while True:
    if number == 1.0:
        print("ready", flush=True)
    write(sys.argv[1], "state", {"rows": number}, {"x": np.full(200_000, number)})
    number += 1.0
"""
    path = tmp_path / "a.snb"
    write(path, "state", {"rows": -1.0}, {"x": np.full(200_000, -1.0)})
    draw = random.Random(7)
    seen = set()
    for _ in range(8):
        with subprocess.Popen([sys.executable, "-c", program, path], cwd=ROOT, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(draw.uniform(0.0, 0.05))
            writer.send_signal(signal.SIGKILL)
        contents = read(path, kind="state")
        assert set(contents.arrays["x"]) == {contents.header["rows"]}
        seen.add(contents.header["rows"])
    assert -1.0 not in seen


def test_a_stream_of_any_writer_is_taken(tmp_path: Path) -> None:
    """An Arrow writer can write straight into the temporary file."""
    path = tmp_path / "t.arrow"
    batch = pa.record_batch({"a": [1, 2]})
    with open_atomically(path) as stream, pa.ipc.new_file(stream, batch.schema) as writer:
        writer.write_batch(batch)
    assert pa.ipc.open_file(io.BytesIO(path.read_bytes())).read_all().num_rows == 2
