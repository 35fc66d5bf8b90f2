"""The state: what it takes, in every Arrow type and from every kind of frame, and what it refuses, in which words."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose

import streamnb as snb

X = snb.Schema(label="y", numeric=["x"])
FULL = snb.Schema(label="y", numeric=["x"], categorical=["c"], binary=["b"], counts=["n"])


def counted(schema: snb.Schema, *data: Any, shard: str | None = None) -> snb.State:
    """Return the state that has counted some batches."""
    state = snb.State(schema, shard=shard)
    for each in data:
        state.update(each)
    return state


def lines(state: snb.State, **where: Any) -> list[dict[str, Any]]:
    """Return the lines of the tidy content that have the given values."""
    return [line for line in state.to_table().to_pylist() if all(line[k] == v for k, v in where.items())]


def line(state: snb.State, **where: Any) -> dict[str, Any]:
    """Return the one such line."""
    found = lines(state, **where)
    assert len(found) == 1, found
    return found[0]


# --- labels of every type ---------------------------------------------------------------------------------------------

ROME = "Europe/Rome"
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=dt.UTC)
LABELS: dict[str, tuple[pa.DataType, list[Any], pa.DataType]] = {
    **{
        str(kind): (kind, [3, 1, 2], kind)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    },
    "negative int8": (pa.int8(), [-1, -128, 5], pa.int8()),
    "largest uint64": (pa.uint64(), [2**64 - 1, 2**63, 0], pa.uint64()),
    "float16": (pa.float16(), [np.float16(1.5), np.float16(-2), np.float16(0)], pa.float32()),
    "float32": (pa.float32(), [1.5, -2.0, 0.0], pa.float32()),
    "float64": (pa.float64(), [0.1, -2.0, 1e300], pa.float64()),
    "bool": (pa.bool_(), [True, False, True], pa.bool_()),
    "decimal32": (pa.decimal32(5, 2), [Decimal("1.25"), Decimal("-1.00"), Decimal("9.99")], pa.decimal128(5, 2)),
    "decimal64": (pa.decimal64(12, 2), [Decimal("1.25"), Decimal("-1.00"), Decimal("9.99")], pa.decimal128(12, 2)),
    "decimal128": (pa.decimal128(30, 2), [Decimal("1.25"), Decimal("-1.00"), Decimal("9.99")], pa.decimal128(30, 2)),
    "decimal256": (pa.decimal256(60, 2), [Decimal("1.25"), Decimal("-1.00"), Decimal("9.99")], pa.decimal256(60, 2)),
    "string": (pa.string(), ["b", "", "ä"], pa.string()),
    "large_string": (pa.large_string(), ["b", "", "ä"], pa.string()),
    "string_view": (pa.string_view(), ["b", "", "a longer text than fits in a view"], pa.string()),
    "binary": (pa.binary(), [b"b", b"", b"\xff"], pa.binary()),
    "large_binary": (pa.large_binary(), [b"b", b"", b"\xff"], pa.binary()),
    "binary_view": (pa.binary_view(), [b"b", b"", b"\xff" * 20], pa.binary()),
    "fixed binary": (pa.binary(2), [b"bb", b"aa", b"\xff\x00"], pa.binary()),
    "date32": (pa.date32(), [dt.date(2024, 2, 29), dt.date(1969, 1, 1), dt.date(2000, 1, 1)], pa.date32()),
    "date64": (pa.date64(), [dt.date(2024, 2, 29), dt.date(1969, 1, 1), dt.date(2000, 1, 1)], pa.date64()),
    "time32": (pa.time32("s"), [dt.time(23, 59), dt.time(0), dt.time(12)], pa.time32("s")),
    "time64": (pa.time64("us"), [dt.time(23, 59), dt.time(0), dt.time(12, 0, 0, 1)], pa.time64("us")),
    "timestamp": (
        pa.timestamp("us"),
        [NOON.replace(tzinfo=None), dt.datetime(1969, 1, 1), dt.datetime(2000, 1, 1)],
        pa.timestamp("us"),
    ),
    "timestamp with zone": (
        pa.timestamp("us", ROME),
        [NOON, NOON - dt.timedelta(days=365), NOON + dt.timedelta(microseconds=1)],
        pa.timestamp("us", ROME),
    ),
    "duration": (pa.duration("ms"), [dt.timedelta(1), dt.timedelta(0), dt.timedelta(-1)], pa.duration("ms")),
    "dictionary of strings": (pa.dictionary(pa.int8(), pa.large_string()), ["b", "a", "c"], pa.string()),
    "dictionary of integers": (pa.dictionary(pa.uint16(), pa.int64()), [3, 1, 2], pa.int64()),
}


def array_of(values: list[Any], dtype: pa.DataType) -> pa.Array:
    """Return an array of any type; PyArrow builds dictionaries only from their values."""
    if pa.types.is_dictionary(dtype):
        return pa.array(values, dtype.value_type).dictionary_encode().cast(dtype)
    return pa.array(values, dtype)


@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_back_as_they_were_given(kind: str) -> None:
    """Labels of every type: sorted classes, values unchanged in predictions, after a file, and with nulls between."""
    dtype, values, plain = LABELS[kind]
    labels = array_of([*values, None], dtype)
    given = [None if value is None else value for value in labels.to_pylist()][:3]
    x = {value: 10.0 * i for i, value in enumerate(sorted(set(given)))}
    table = pa.table({"y": labels, "x": [*(x[value] for value in given), 99.0]})
    state = counted(X, table, table.slice(1))
    assert state.classes.type == plain
    assert state.classes.to_pylist() == sorted(set(given))
    assert (state.n_rows, state.rows_without_label) == (5, 2)
    model = state.finish(numeric=snb.Gaussian(epsilon=1.0))
    again = snb.Predictor.from_bytes(model.to_bytes())
    for each in (model, again):
        predicted = each.predict(table.slice(0, 3))
        assert predicted.type == plain
        assert predicted.to_pylist() == given
    assert snb.State.from_bytes(state.to_bytes()) == state
    uniform = {value: 1 / len(x) for value in x}
    assert_allclose(
        np.exp(state.finish(numeric=snb.Gaussian(epsilon=1.0), class_prior=uniform).class_log_prior), 1 / len(x)
    )


def test_labels_of_nan_are_missing_and_minus_zero_is_zero() -> None:
    """A label of NaN is no label; 0.0 and −0.0 are one class."""
    y = pa.array([0.0, -0.0, float("nan"), 1.0, None], from_pandas=False)
    state = counted(X, pa.table({"y": y, "x": [1.0] * 5}))
    assert state.classes.to_pylist() == [0.0, 1.0]
    assert [line(state, block="label", **{"class": label})["count"] for label in (0.0, 1.0)] == [2, 1]
    assert state.rows_without_label == 2


OTHER_LABELS = {
    "int64 and string": (pa.array([1]), pa.array(["1"]), "Expected values of type int64, got string"),
    "int32 and int64": (pa.array([1], pa.int32()), pa.array([1]), "Expected values of type int32, got int64"),
    "int64 and double": (pa.array([1]), pa.array([1.0]), "Expected values of type int64, got double"),
    "bool and int8": (pa.array([True]), pa.array([1], pa.int8()), "Expected values of type bool, got int8"),
    "string and binary": (pa.array(["1"]), pa.array([b"1"]), "Expected values of type string, got binary"),
    "time zones": (
        pa.array([NOON], pa.timestamp("us", ROME)),
        pa.array([NOON], pa.timestamp("us", "UTC")),
        "Expected values of type timestamp[us, tz=Europe/Rome], got timestamp[us, tz=UTC]",
    ),
}


@pytest.mark.parametrize("kind", OTHER_LABELS)
def test_labels_of_different_types_do_not_mix(kind: str) -> None:
    """Batches and states whose labels differ in type are refused, showing both; the state stays as it was."""
    one, two, text = OTHER_LABELS[kind]
    first, second = pa.table({"y": one, "x": [1.0]}), pa.table({"y": two, "x": [2.0]})
    state = counted(X, first)
    before = state.to_bytes()
    with pytest.raises(snb.MergeError, match=re.escape(f"{text} - label column 'y'")):
        state.update(second)
    with pytest.raises(snb.MergeError, match=re.escape(f"{text} - label column 'y'")):
        state.merge(counted(X, second))
    with pytest.raises(snb.MergeError, match=re.escape(f"{text} - label column 'y'")):
        state + counted(X, second)
    assert state.to_bytes() == before


@pytest.mark.parametrize(
    "dtypes", [(pa.string(), pa.large_string()), (pa.string_view(), pa.dictionary(pa.int8(), pa.string()))]
)
def test_layouts_of_one_type_mix(dtypes: tuple[pa.DataType, pa.DataType]) -> None:
    """Strings are strings, in whatever layout a file has them."""
    schema = snb.Schema(label="y", categorical=["c"])
    tables = [pa.table({"y": array_of(["a", "b"], kind), "c": array_of(["u", "v"], kind)}) for kind in dtypes]
    state = counted(schema, *tables)
    assert state == counted(schema, tables[0]) + counted(schema, tables[1])
    assert state.classes.to_pylist() == ["a", "b"]
    assert line(state, feature="c", category="u", **{"class": "a"})["count"] == 2


# --- features of every type -------------------------------------------------------------------------------------------

NUMBERS = {
    **{
        str(kind): pa.array([1, 4, None, 7], kind)
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    },
    "float16": pa.array(np.array([1, 4, np.nan, 7], np.float16)),
    "float32": pa.array([1, 4, None, 7], pa.float32()),
    "float64": pa.array([1, 4, None, 7], pa.float64()),
    "decimal32": pa.array([Decimal(1), Decimal(4), None, Decimal(7)], pa.decimal32(5, 2)),
    "decimal64": pa.array([Decimal(1), Decimal(4), None, Decimal(7)], pa.decimal64(12, 2)),
    "decimal128": pa.array([Decimal(1), Decimal(4), None, Decimal(7)], pa.decimal128(20, 2)),
    "decimal256": pa.array([Decimal(1), Decimal(4), None, Decimal(7)], pa.decimal256(60, 2)),
    "dictionary": pa.array([1, 4, None, 7]).dictionary_encode(),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_of_every_type(kind: str) -> None:
    """Moments and sums are the same whatever type holds the numbers, in slices and with nulls."""
    column = NUMBERS[kind]
    schema = snb.Schema(label="y", numeric=["x"], counts=["n"])
    table = pa.table({"y": ["a", "a", "a", "b"], "x": column, "n": column})
    for state in (counted(schema, table), counted(schema, table.slice(1), table.slice(0, 1))):
        a = line(state, block="numeric", **{"class": "a"})
        assert (a["count"], a["mean"], a["variance"]) == (2, 2.5, 2.25)
        assert line(state, block="counts", **{"class": "a"})["total"] == 5.0
        assert state.missing() == {"x": {"a": 1, "b": 0}, "n": {"a": 1, "b": 0}}
        model = state.finish(numeric=snb.Gaussian(epsilon=1.0))
        plain = model.predict_proba(pa.table({"x": [1.0, 4.0, None, 7.0], "n": [1.0, 4.0, None, 7.0]}))
        assert model.predict_proba(table).tolist() == plain.tolist()


BITS = {
    "bool": pa.array([True, False, None, True]),
    "uint8": pa.array([1, 0, None, 1], pa.uint8()),
    "int64": pa.array([1, 0, None, 1]),
    "float32": pa.array([1, 0, None, 1], pa.float32()),
    "float64 with NaN": pa.array([1.0, -0.0, float("nan"), 1.0], from_pandas=False),
    "float16": pa.array(np.array([1, 0, np.nan, 1], np.float16)),
    "decimal": pa.array([Decimal(1), Decimal(0), None, Decimal(1)], pa.decimal128(5, 2)),
}


@pytest.mark.parametrize("kind", BITS)
def test_bits_of_every_type(kind: str) -> None:
    """A 0/1 column may have any type; slices of packed booleans are read from the right bit."""
    schema = snb.Schema(label="y", binary=["b"])
    table = pa.table({"y": ["a", "a", "a", "b"], "b": BITS[kind]})
    for state in (counted(schema, table), counted(schema, table.slice(3), table.slice(1, 2), table.slice(0, 1))):
        assert [line(state, block="binary", **{"class": y})["total"] for y in "ab"] == [1.0, 1.0]
        assert state.missing() == {"b": {"a": 1, "b": 0}}


CATEGORIES: dict[str, tuple[pa.Array, list[str]]] = {
    "string": (pa.array(["u", "v", None, "u"]), ["u", "v"]),
    "large_string": (pa.array(["u", "v", None, "u"], pa.large_string()), ["u", "v"]),
    "string_view": (pa.array(["u", "v", None, "u"], pa.string_view()), ["u", "v"]),
    "binary": (pa.array([b"u", b"v", None, b"u"]), ["b'u'", "b'v'"]),
    "int8": (pa.array([-1, 5, None, -1], pa.int8()), ["-1", "5"]),
    "uint64": (pa.array([2**63, 5, None, 2**63], pa.uint64()), ["9223372036854775808", "5"]),
    "int64 far apart": (pa.array([-(2**62), 2**62, None, -(2**62)]), [str(-(2**62)), str(2**62)]),
    "bool": (pa.array([True, False, None, True]), ["True", "False"]),
    "float": (pa.array([0.5, -1.5, None, 0.5]), ["0.5", "-1.5"]),
    "float16": (pa.array(np.array([0.5, -1.5, np.nan, 0.5], np.float16)), ["0.5", "-1.5"]),
    "decimal32": (
        pa.array([Decimal("0.50"), Decimal("1.25"), None, Decimal("0.50")], pa.decimal32(4, 2)),
        ["0.50", "1.25"],
    ),
    "dictionary": (pa.array(["u", "v", None, "u"]).dictionary_encode(), ["u", "v"]),
    "dictionary of views": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.uint8()), pa.array(["u", "v"], pa.string_view())),
        ["u", "v"],
    ),
    "dictionary of integers": (pa.array([7, 9, None, 7]).dictionary_encode(), ["7", "9"]),
}


@pytest.mark.parametrize("kind", CATEGORIES)
def test_categories_of_every_type(kind: str) -> None:
    """Values of any plain type are counted as they are, in slices, with nulls and through a file."""
    column, (first, second) = CATEGORIES[kind]
    schema = snb.Schema(label="y", categorical=["c"])
    table = pa.table({"y": ["a", "a", "a", "b"], "c": column})
    for state in (counted(schema, table), counted(schema, table.slice(3), table.slice(1, 2), table.slice(0, 1))):
        state = snb.State.from_bytes(state.to_bytes())
        found = {(each["class"], each["category"]): each["count"] for each in lines(state, feature="c")}
        assert found == {("a", first): 1, ("a", second): 1, ("b", first): 1, ("b", second): 0}
        assert state.missing() == {"c": {"a": 1, "b": 0}}
        model = state.finish()
        assert_allclose(
            model.predict_proba(table)[[0, 1, 2], 0],
            [0.6 / 1, 9 / 13, 0.75][:3]
            and [
                (3 / 4 * 2 / 4) / (3 / 4 * 2 / 4 + 1 / 4 * 2 / 3),
                (3 / 4 * 2 / 4) / (3 / 4 * 2 / 4 + 1 / 4 * 1 / 3),
                3 / 4,
            ],
        )


@pytest.mark.parametrize(
    ("one", "two", "shared"),
    [
        (pa.array([1, 2], pa.int8()), pa.array([2, 300], pa.int64()), 3),
        (pa.array([1, 2], pa.int32()), pa.array([2, 3], pa.uint16()), 3),
        (pa.array([1, 2]), pa.array([2.0, 2.5]), 3),
        (pa.array([1, -2]), pa.array([1, 2**63], pa.uint64()), 3),
        (pa.array([1, 2]), pa.array([Decimal("2.00"), Decimal("2.50")], pa.decimal128(5, 2)), 3),
        (pa.array([0.5, 2.0], pa.float32()), pa.array([0.5, 3.0]), 3),
        (pa.array([Decimal("0.5")], pa.decimal128(3, 1)), pa.array([Decimal("0.50")], pa.decimal128(9, 2)), 1),
    ],
    ids=str,
)
def test_equal_numbers_are_one_category_whatever_their_width(one: pa.Array, two: pa.Array, shared: int) -> None:
    """A column of codes may change its width or become a float from file to file; 2 and 2.0 stay one category."""
    schema = snb.Schema(label="y", categorical=["c"])
    tables = [pa.table({"y": ["a"] * len(each), "c": each}) for each in (one, two)]
    left, right = (counted(schema, table) for table in tables)
    assert (left + right).to_bytes() == (right + left).to_bytes()
    for state in (left + right, counted(schema, *tables), counted(schema, *tables[::-1])):
        counts = [each["count"] for each in lines(state, feature="c")]
        assert (len(counts), sum(counts)) == (shared, len(one) + len(two))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (pa.array(["1"]), pa.array([1])),
        (pa.array([True]), pa.array([1])),
        (pa.array([b"1"]), pa.array(["1"])),
        (pa.array([2**53 + 1]), pa.array([0.5])),
    ],
    ids=["string and integer", "boolean and integer", "binary and string", "an integer that no float holds"],
)
def test_categories_that_have_no_common_type(one: pa.Array, two: pa.Array) -> None:
    """A string beside a number is refused with the column's name, and nothing is counted."""
    schema = snb.Schema(label="y", categorical=["c"])
    first, second = (pa.table({"y": ["a"], "c": each}) for each in (one, two))
    state = counted(schema, first)
    before = state.to_bytes()
    with pytest.raises(snb.MergeError, match=r"Expected values of type .*, got .* - categorical column 'c'"):
        state.update(second)
    with pytest.raises(snb.MergeError, match=r"Expected values of type .*, got .* - categorical column 'c'"):
        state.merge(counted(schema, second))
    assert state.to_bytes() == before


def test_a_column_that_is_all_null_in_one_file_fits_any_type() -> None:
    """Readers give an empty column the type null or float; that says nothing about the column's own type."""
    schema = snb.Schema(label="y", categorical=["c"])
    there = pa.table({"y": ["a", "b"], "c": ["u", "v"]})
    for dtype in (pa.null(), pa.float64(), pa.int8(), pa.dictionary(pa.int8(), pa.int64())):
        gone = pa.table({"y": ["a"], "c": pa.nulls(1, dtype)})
        one, two = counted(schema, there), counted(schema, gone)
        assert (one + two).to_bytes() == (two + one).to_bytes()
        assert counted(schema, gone, there).to_bytes() == counted(schema, there, gone).to_bytes()
        assert (one + two).missing() == {"c": {"a": 1, "b": 0}}
    labels = counted(X, pa.table({"y": pa.nulls(2, pa.null()), "x": [1.0, 2.0]}))
    assert (labels.n_rows, labels.rows_without_label) == (0, 2)
    assert (labels + counted(X, pa.table({"y": [1], "x": [1.0]}))).classes.to_pylist() == [1]


# --- frames of every kind ---------------------------------------------------------------------------------------------

COLUMNS = {
    "y": ["a", "b", "a", "a", "b"],
    "x": [1.0, 2.0, None, 4.0, 8.0],
    "c": ["u", None, "v", "u", "w"],
    "b": [True, False, True, None, True],
    "n": [1, 2, 3, 0, 5],
}
TABLE = pa.table(COLUMNS)


def reader(batches: int = 2) -> pa.RecordBatchReader:
    """Return the rows as a stream of batches."""
    return pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=batches))


class Capsule:
    """Anything that exports one Arrow batch and nothing else."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        """Hand out the batch."""
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


FRAMES: dict[str, Callable[[], Any]] = {
    "RecordBatch": lambda: TABLE.to_batches()[0],
    "Table": lambda: TABLE,
    "chunked Table": lambda: pa.concat_tables([TABLE.slice(0, 2), TABLE.slice(2)]),
    "RecordBatchReader": reader,
    "Polars": lambda: pl.DataFrame(COLUMNS),
    "Polars categorical": lambda: pl.DataFrame(COLUMNS).with_columns(pl.col("y", "c").cast(pl.Categorical)),
    "Polars enum": lambda: pl.DataFrame(COLUMNS).with_columns(pl.col("c").cast(pl.Enum(["w", "v", "u", "unused"]))),
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "pandas categorical": lambda: pd.DataFrame(COLUMNS).astype({"y": "category", "c": "category"}),
    "pandas nullable": lambda: pd.DataFrame(COLUMNS).convert_dtypes(),
    "pandas Arrow": lambda: TABLE.to_pandas(types_mapper=pd.ArrowDtype),
    "DuckDB": lambda: duckdb.from_arrow(TABLE),
    "DuckDB query": lambda: duckdb.from_arrow(TABLE).filter("n >= 0"),
    "a stream of Arrow's C interface": lambda: pl.DataFrame(COLUMNS).rechunk(),
    "an array of Arrow's C interface": Capsule,
    "columns in another order": lambda: TABLE.select(["n", "c", "y", "b", "x"]),
    "with other columns": lambda: TABLE.append_column("more", pa.array([[1]] * 5)),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_of_every_kind(kind: str) -> None:
    """Whatever exports Arrow is counted alike, and scored alike."""
    state = counted(FULL, TABLE)
    assert_allclose(
        np.array(counted(FULL, FRAMES[kind]()).to_table()["weight"], float), np.array(state.to_table()["weight"], float)
    )
    again = counted(FULL, FRAMES[kind]())
    assert (
        again.to_table()
        .drop_columns(["mean", "variance", "total"])
        .equals(state.to_table().drop_columns(["mean", "variance", "total"]))
    )
    model = state.finish()
    assert_allclose(again.finish().predict_proba(TABLE), model.predict_proba(TABLE), rtol=1e-9)
    assert_allclose(model.predict_proba(FRAMES[kind]()), model.predict_proba(TABLE), rtol=1e-12)
    assert model.predict(FRAMES[kind]()).to_pylist() == model.predict(TABLE).to_pylist()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            {"y": ["a"], "x": [1.0]},
            "Expected a RecordBatch, Table, DataFrame or anything else that exports Arrow, got builtins.dict",
        ),
        ([1, 2], "got builtins.list"),
        (np.zeros((2, 2)), "got numpy.ndarray"),
        ("data.parquet", "got builtins.str"),
        (None, "got builtins.NoneType"),
    ],
    ids=["dict", "list", "array", "path", "None"],
)
def test_data_that_is_not_arrow(data: Any, text: str) -> None:
    """What does not export Arrow is refused by its type's name."""
    with pytest.raises(snb.SchemaError, match=re.escape(text)):
        snb.State(X).update(data)
    model = counted(X, pa.table({"y": ["a", "b"], "x": [1.0, 2.0]})).finish()
    with pytest.raises(snb.SchemaError, match=re.escape(text)):
        model.predict(data)


def test_a_pandas_column_of_mixed_objects() -> None:
    """A column that has no Arrow type is said to be one."""
    with pytest.raises(snb.SchemaError, match="Expected data that exports Arrow, got DataFrame"):
        snb.State(X).update(pd.DataFrame({"y": ["a", "b"], "x": pd.Series([1.0, "two"], dtype=object)}))


def test_a_stream_that_breaks_counts_nothing() -> None:
    """An error of the reader in the middle leaves the state as it was."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from TABLE.to_batches(max_chunksize=2)
        raise OSError("the line is dead")

    state = counted(FULL, TABLE)
    before = state.to_bytes()
    with pytest.raises(OSError, match="the line is dead"):
        state.update(pa.RecordBatchReader.from_batches(TABLE.schema, batches()))
    assert state.to_bytes() == before


def test_a_decimal_counts_as_python_reads_its_text() -> None:
    """Each is the double nearest to it, whatever stands beside it: one division of two exact numbers."""
    generator = np.random.default_rng(0)
    for scale in (0, 2, 9, 18):
        digits = [int(n) for n in generator.integers(-(2**53), 2**53, 300)] + [10**24 + 1, -(10**30)]
        for numbers in (digits[:300], digits):
            column = pa.array([None, *(Decimal(n).scaleb(-scale) for n in numbers)], pa.decimal128(38, scale))
            table = pa.table({"y": [str(i) for i in range(len(column))], "x": column})
            means = counted(X, table).to_table().sort_by("class")
            found = dict(zip(means["class"].to_pylist(), means["mean"].to_pylist(), strict=True))
            for i, n in list(enumerate(numbers, 1))[:300]:
                assert found[str(i)] == float(Decimal(n).scaleb(-scale))


# --- batches larger than a batch --------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
def test_errors_name_the_row_of_what_was_handed_in(chunked: bool) -> None:
    """Large inputs are cut inside; the row in a message counts from the start of the input, and nothing is counted."""
    n = X.batch_rows + 1000
    x = np.zeros(n)
    x[n - 5] = np.inf
    table = pa.table({"y": pa.array(["a", None]).take(pa.array(np.arange(n) % 2)), "x": x, "n": np.arange(n) % 3})
    y = table.column("y").combine_chunks()
    table = table.set_column(0, "y", pa.concat_arrays([y.slice(0, n - 5), pa.array(["b"] * 5)]))
    data = (
        pa.concat_tables([table.slice(0, 10), table.slice(10)]) if chunked else table.combine_chunks().to_batches()[0]
    )
    state = snb.State(X)
    with pytest.raises(snb.DataError, match=rf"got inf - column 'x', row {n - 5}$") as caught:
        state.update(data)
    assert (caught.value.column, caught.value.row) == ("x", n - 5)
    assert state == snb.State(X)
    model = counted(X, pa.table({"y": ["a", "b"], "x": [1.0, 2.0]})).finish()
    with pytest.raises(snb.DataError, match=rf"got inf - column 'x', row {n - 5}$"):
        model.predict(data)
    counts = counted(snb.Schema(label="y", counts=["n"]), data).finish()
    negative = pa.table({"n": np.where(np.arange(n) == n - 1, -1, 1)})
    with pytest.raises(snb.DataError, match=rf"got -1(\.0)? - column 'n', row {n - 1}$"):
        counts.predict(negative)


def test_large_inputs_are_counted_whole() -> None:
    """More rows than one batch, in one record batch: the same as row groups of any size."""
    n = 2 * FULL.batch_rows + 17
    generator = np.random.default_rng(0)
    table = pa.table(
        {
            "y": generator.integers(0, 3, n),
            "x": generator.normal(1e6, 1.0, n),
            "c": generator.integers(0, 300, n),
            "b": generator.random(n) < 0.5,
            "n": generator.integers(0, 9, n),
        }
    )
    state = counted(FULL, table.combine_chunks().to_batches()[0])
    assert state.n_rows == n
    x, y = table["x"].to_numpy(), table["y"].to_numpy()
    for label in range(3):
        each = line(state, block="numeric", **{"class": label})
        assert_allclose(each["mean"], x[y == label].mean(), rtol=1e-14)
        assert_allclose(each["variance"], x[y == label].var(), rtol=1e-9)
    pieces = counted(FULL, *(table.slice(i, 10_000) for i in range(0, n, 10_000)))
    drop = ["mean", "variance", "total"]
    assert pieces.to_table().drop_columns(drop).equals(state.to_table().drop_columns(drop))


# --- reading a state --------------------------------------------------------------------------------------------------


def test_to_table() -> None:
    """The tidy content: one line per class and feature, and category, with what the block knows of it."""
    state = counted(FULL, TABLE)
    table = state.to_table()
    assert table.schema == pa.schema(
        {
            "block": pa.string(),
            "feature": pa.string(),
            "category": pa.string(),
            "class": pa.string(),
            "count": pa.int64(),
            "weight": pa.float64(),
            "mean": pa.float64(),
            "variance": pa.float64(),
            "total": pa.float64(),
        }
    )
    rows = [tuple(each.values()) for each in table.to_pylist()]
    assert rows == [
        ("label", None, None, "a", 3, 3.0, None, None, None),
        ("label", None, None, "b", 2, 2.0, None, None, None),
        ("numeric", "x", None, "a", 2, 2.0, 2.5, 2.25, 5.0),
        ("numeric", "x", None, "b", 2, 2.0, 5.0, 9.0, 10.0),
        ("categorical", "c", "u", "a", 2, 2.0, None, None, None),
        ("categorical", "c", "v", "a", 1, 1.0, None, None, None),
        ("categorical", "c", "w", "a", 0, 0.0, None, None, None),
        ("categorical", "c", "u", "b", 0, 0.0, None, None, None),
        ("categorical", "c", "v", "b", 0, 0.0, None, None, None),
        ("categorical", "c", "w", "b", 1, 1.0, None, None, None),
        ("binary", "b", None, "a", 2, 2.0, 1.0, None, 2.0),
        ("binary", "b", None, "b", 2, 2.0, 0.5, None, 1.0),
        ("counts", "n", None, "a", 3, 3.0, 4 / 3, None, 4.0),
        ("counts", "n", None, "b", 2, 2.0, 3.5, None, 7.0),
    ]


def test_to_table_of_a_weighted_state() -> None:
    """With weights the counts stay numbers of rows, and the weights stand beside them."""
    schema = snb.Schema(label="y", numeric=["x"], categorical=["c"], binary=["b"], counts=["n"], weight="w")
    table = TABLE.append_column("w", pa.array([0.5, 2.0, 4.0, 1.0, 0.0]))
    state = counted(schema, table)
    assert state.n_rows == 4
    assert [(each["count"], each["weight"]) for each in lines(state, block="label")] == [(3, 5.5), (1, 2.0)]
    x = line(state, feature="x", **{"class": "a"})
    assert (x["count"], x["weight"]) == (2, 1.5)
    assert_allclose([x["mean"], x["variance"]], [3.0, 2.0])
    assert [each["weight"] for each in lines(state, feature="c", **{"class": "a"})] == [1.5, 4.0]
    n = line(state, feature="n", **{"class": "a"})
    assert (n["count"], n["weight"], n["total"]) == (3, 5.5, 12.5)
    assert state.missing() == {
        "x": {"a": 1, "b": 0},
        "c": {"a": 0, "b": 1},
        "b": {"a": 1, "b": 0},
        "n": {"a": 0, "b": 0},
    }


def test_the_empty_state() -> None:
    """Everything can be asked of a state without rows, but finishing it."""
    state = snb.State(FULL)
    assert (state.n_rows, state.rows_without_label, len(state.classes), state.ledger) == (0, 0, 0, {})
    assert state.to_table().num_rows == 0
    assert state.missing() == {"x": {}, "c": {}, "b": {}, "n": {}}
    assert repr(state) == "<State of 0 rows, 0 classes, 4 features>"
    assert snb.State.from_bytes(state.to_bytes()) == state
    with pytest.raises(snb.EmptyStateError, match="Expected rows to finish from, got a state without training rows"):
        state.finish()
    no_label = counted(X, pa.table({"y": pa.nulls(3, pa.string()), "x": [1.0, 2.0, 3.0]}))
    assert (no_label.n_rows, no_label.rows_without_label) == (0, 3)
    with pytest.raises(snb.EmptyStateError, match="Expected rows to finish from, got a state without training rows"):
        no_label.finish()
    weightless = snb.Schema(label="y", numeric=["x"], weight="w")
    with pytest.raises(snb.EmptyStateError, match="Expected rows to finish from"):
        counted(weightless, pa.table({"y": ["a"], "x": [1.0], "w": [0.0]})).finish()


def test_equality_and_copies() -> None:
    """States are compared by content; a copy is equal until one of the two goes on."""
    state = counted(FULL, TABLE)
    twin = state.copy()
    assert twin == state
    assert state != TABLE
    twin.update(TABLE)
    assert twin != state
    assert twin == state + state
    assert repr(twin) == "<State of 10 rows, 2 classes, 4 features>"
    assert state.digest() == counted(FULL, TABLE).digest() != twin.digest()
    with pytest.raises(TypeError, match="unhashable"):
        hash(state)


def test_wrong_arguments() -> None:
    """Programming errors are TypeErrors that say what was expected."""
    with pytest.raises(TypeError, match="Expected a Schema, got str"):
        snb.State("y")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Expected a State, got int"):
        snb.State(X).merge(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unsupported operand"):
        snb.State(X) + 3
    state = counted(FULL, TABLE)
    for block, family, text in (
        ("numeric", snb.Multinomial(), "Expected Gaussian for numeric=, got Multinomial"),
        ("categorical", snb.Bernoulli(), "Expected Categorical for categorical=, got Bernoulli"),
        ("binary", 1.0, "Expected Bernoulli for binary=, got float"),
        ("counts", snb.Gaussian(), "Expected Multinomial or Complement for counts=, got Gaussian"),
    ):
        with pytest.raises(TypeError, match=text):
            state.finish(**{block: family})


# --- merging ----------------------------------------------------------------------------------------------------------


def test_merging_aligns_columns_classes_and_categories_by_name() -> None:
    """The other state may list its columns in another order, and have other classes and categories."""
    one = snb.Schema(label="y", numeric=["p", "q"], categorical=["c", "d"], binary=["e", "f"], counts=["m", "n"])
    two = snb.Schema(label="y", numeric=["q", "p"], categorical=["d", "c"], binary=["f", "e"], counts=["n", "m"])
    first = pa.table(
        {
            "y": ["b", "b"],
            "p": [1.0, 3.0],
            "q": [10.0, 30.0],
            "c": ["u", "v"],
            "d": ["s", None],
            "e": [True, True],
            "f": [False, False],
            "m": [1, 2],
            "n": [100, 200],
        }
    )
    second = pa.table(
        {
            "y": ["a", "b"],
            "p": [5.0, 5.0],
            "q": [50.0, 50.0],
            "c": ["t", "v"],
            "d": ["z", "a"],
            "e": [False, True],
            "f": [True, False],
            "m": [3, 4],
            "n": [300, 400],
        }
    )
    merged = counted(one, first)
    merged.merge(counted(two, second))
    assert merged.schema == one
    whole = counted(one, first, second)
    assert (
        merged.to_table().drop_columns(["mean", "variance"]).equals(whole.to_table().drop_columns(["mean", "variance"]))
    )
    assert_allclose(merged.finish().predict_log_proba(second), whole.finish().predict_log_proba(second), rtol=1e-9)
    again = snb.State.from_bytes(merged.to_bytes())
    assert again.to_bytes() == merged.to_bytes()
    named = counted(one, first, shard="s1") + counted(two, second, shard="s2")
    assert_allclose(named.finish().predict_log_proba(second), whole.finish().predict_log_proba(second), rtol=1e-9)
    assert snb.State.from_bytes(named.to_bytes()) == named


UNLIKE: dict[str, tuple[snb.Schema, str]] = {
    "label": (snb.Schema(label="z", numeric=["x"], categorical=["c"]), "Expected states with label 'y', got label 'z'"),
    "a column less": (snb.Schema(label="y", numeric=["x"]), "Expected categorical column 'c' in both states"),
    "a column more": (
        snb.Schema(label="y", numeric=["x"], categorical=["c"], counts=["n"]),
        "Expected counts column 'n' in both states, got it in one only",
    ),
    "another kind": (snb.Schema(label="y", numeric=["x"], counts=["c"]), "categorical column 'c' in both states"),
    "weight": (
        snb.Schema(label="y", numeric=["x"], categorical=["c"], weight="w"),
        "Expected states with weight=None, got weight='w'",
    ),
    "infinite": (
        snb.Schema(label="y", numeric=["x"], categorical=["c"], infinite="missing"),
        "Expected states with infinite='error', got infinite='missing'",
    ),
    "binarize": (
        snb.Schema(label="y", numeric=["x"], categorical=["c"], binarize=1.0),
        "Expected states with binarize=None, got binarize=1.0",
    ),
}


@pytest.mark.parametrize("kind", UNLIKE)
def test_states_that_count_different_things_do_not_merge(kind: str) -> None:
    """The message names the first difference, even when both states are empty."""
    other, text = UNLIKE[kind]
    state = snb.State(snb.Schema(label="y", numeric=["x"], categorical=["c"]))
    with pytest.raises(snb.MergeError, match=re.escape(text)):
        state.merge(snb.State(other))
    with pytest.raises(ValueError, match=re.escape(text)):
        state + snb.State(other)


def test_late_classes_and_categories() -> None:
    """A class or category may appear in any batch or shard, before or after others in sorted order."""
    schema = snb.Schema(label="y", categorical=["c"], numeric=["x"])
    batches = [
        pa.table({"y": [label], "c": [category], "x": [float(i)]})
        for i, (label, category) in enumerate([("m", "q"), ("a", "z"), ("z", "a"), ("m", "b"), ("b", "q")])
    ]
    whole = counted(schema, pa.concat_tables(batches))
    for state in (counted(schema, *batches), counted(schema, *batches[::-1])):
        assert state.classes.to_pylist() == ["a", "b", "m", "z"]
        found = {(each["class"], each["category"]): each["count"] for each in lines(state, feature="c")}
        assert {key for key, count in found.items() if count} == {
            ("m", "q"),
            ("a", "z"),
            ("z", "a"),
            ("m", "b"),
            ("b", "q"),
        }
        assert len(found) == 4 * 4
        assert_allclose(state.finish().predict_proba(batches[0]), whole.finish().predict_proba(batches[0]), rtol=1e-9)


def test_named_and_anonymous_states() -> None:
    """Anonymous rows do not enter a named shard; they may stand beside named ones in an anonymous state."""
    anonymous, named = counted(FULL, TABLE), counted(FULL, TABLE, shard="s1")
    before = named.to_bytes()
    with pytest.raises(snb.MergeError, match="Expected states of named shards, got an anonymous one beside shard 's1'"):
        named.merge(anonymous)
    with pytest.raises(snb.MergeError, match="got an anonymous one beside shard 's2'"):
        snb.State(FULL, shard="s2").merge(anonymous)
    assert named.to_bytes() == before
    both = named + anonymous
    assert both.n_rows == 10
    assert both.to_bytes() == (anonymous + named).to_bytes()
    both.merge(named)
    assert both.n_rows == 10
    assert list(both.ledger) == ["s1"]
    named.merge(snb.State(FULL))
    assert named.to_bytes() == before


def test_shards_that_cannot_be_told_apart() -> None:
    """Two sums that share a shard, each merged beyond taking apart, are refused with the shard's name."""
    one, two, three = (counted(FULL, TABLE.slice(i, 1), shard=f"s{i}").total for i in range(3))
    pair, other = one.copy(), two.copy()
    pair.merge(two)
    other.merge(three)
    left = snb.State.of_shards(FULL, pair, {"s0": "d0", "s1": "d1"})
    right = snb.State.of_shards(FULL, other, {"s1": "d1", "s2": "d2"})
    before = left.to_bytes()
    with pytest.raises(snb.MergeError, match="Expected each shard in one state, got shard 's1' in two that also hold"):
        left.merge(right)
    assert left.to_bytes() == before
    left.merge(snb.State.of_shards(FULL, two, {"s1": "d1"}))
    assert left.to_bytes() == before
    whole = snb.State.of_shards(FULL, two, {"s1": "d1"})
    whole.merge(left)
    assert whole.to_bytes() == before


def test_named_shards_whose_sum_overflows() -> None:
    """A merge that fails leaves named states as they were too, also where parts are only kept side by side."""
    far = [
        counted(X, pa.table({"y": ["a"], "x": [value]}), shard=name)
        for value, name in ((1.7e308, "p"), (-1.7e308, "q"))
    ]
    total = snb.State(X) + far[0]
    before = total.to_bytes()
    with pytest.raises(snb.DataError, match=r"overflow.*column 'x'"):
        total.merge(far[1])
    assert total.to_bytes() == before
    assert total.n_rows == 1


def test_updates_beside_named_shards() -> None:
    """Rows counted after a merge are held against what the merged shards hold; a refused batch leaves no trace."""
    named = counted(X, pa.table({"y": ["a"], "x": [1.7e308]}), shard="s1")
    state = snb.State(X) + named
    before = state.to_bytes()
    with pytest.raises(snb.MergeError, match="Expected values of type string, got int64 - label column 'y'"):
        state.update(pa.table({"y": [1], "x": [1.0]}))
    with pytest.raises(snb.DataError, match=r"overflow.*column 'x'"):
        state.update(pa.table({"y": ["a"], "x": [-1.7e308]}))
    with pytest.raises(snb.DataError, match=r"overflow.*column 'x'"):
        state.merge(counted(X, pa.table({"y": ["a"], "x": [-1.7e308]})))
    assert state.to_bytes() == before
    state.update(pa.table({"y": ["a"], "x": [1.7e308]}))
    assert line(state, feature="x") | {"total": 0} == {
        "block": "numeric",
        "feature": "x",
        "category": None,
        "class": "a",
        "count": 2,
        "weight": 2.0,
        "mean": 1.7e308,
        "variance": 0.0,
        "total": 0,
    }


def test_merging_many_named_shards_is_not_quadratic() -> None:
    """Each merge costs what the other state holds, not what has arrived before."""
    shards = [counted(X, pa.table({"y": ["a"], "x": [float(i)]}), shard=f"s{i:03}") for i in range(400)]
    start = time.perf_counter()
    for shard in shards[:100]:
        shard + shard
    alone = time.perf_counter() - start
    total = snb.State(X)
    start = time.perf_counter()
    for shard in shards[::-1]:
        total.merge(shard)
    assert time.perf_counter() - start < 40 * alone
    assert total.n_rows == 400


def test_weights_whose_sum_overflows() -> None:
    """Weights that no float64 can add are refused, in every block, and leave the state as it was."""
    schema = snb.Schema(label="y", categorical=["c"], weight="w")
    heavy = pa.table({"y": ["a"], "c": ["u"], "w": [1.7e308]})
    state = counted(schema, heavy)
    before = state.to_bytes()
    with pytest.raises(snb.DataError, match="overflow"):
        state.update(heavy)
    with pytest.raises(snb.DataError, match="overflow"):
        state.merge(counted(schema, heavy))
    with pytest.raises(snb.DataError, match="overflow"):
        counted(schema, pa.concat_tables([heavy, heavy]).combine_chunks())
    assert state.to_bytes() == before


# --- weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pa.int8(), pa.uint32(), pa.float16(), pa.float32(), pa.decimal128(5, 1)], ids=str)
def test_weights_of_every_type(dtype: pa.DataType) -> None:
    """Weights may have any numeric type."""
    schema = snb.Schema(label="y", numeric=["x"], weight="w")
    weight = pa.array([1.0, 3.0, 0.0]).cast(dtype)
    state = counted(schema, pa.table({"y": ["a"] * 3, "x": [0.0, 4.0, 100.0], "w": weight}))
    assert (state.n_rows, line(state, block="label")["weight"]) == (2, 4.0)
    assert line(state, feature="x")["mean"] == 3.0


@pytest.mark.parametrize(
    ("weight", "text"),
    [
        ([1.0, -0.5], "Expected a weight of at least 0, got -0.5 - column 'w', row 1"),
        ([None, 1.0], "Expected a weight of at least 0, got none - column 'w', row 0"),
        ([1.0, float("nan")], "Expected a weight of at least 0, got none - column 'w', row 1"),
        ([float("inf"), 1.0], "Expected a weight of at least 0, got inf - column 'w', row 0"),
    ],
)
def test_weights_that_are_no_weights(weight: list[Any], text: str) -> None:
    """A negative, missing or endless weight is refused with its row; of a row without label it does not matter."""
    schema = snb.Schema(label="y", numeric=["x"], weight="w")
    table = pa.table({"y": ["a", "a"], "x": [0.0, 4.0], "w": pa.array(weight, pa.float64(), from_pandas=False)})
    with pytest.raises(snb.DataError, match=re.escape(text)):
        snb.State(schema).update(table)
    unlabelled = table.set_column(0, "y", pa.nulls(2, pa.string()))
    assert counted(schema, unlabelled).rows_without_label == 2


# --- declared classes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "labels", "expected"),
    [
        (["b", "c"], pa.array(["a"]), ["a", "b", "c"]),
        (["b", "c"], pa.array(["a"]).dictionary_encode(), ["a", "b", "c"]),
        ([1, 2], pa.array([3], pa.int8()), [1, 2, 3]),
        ([1, 2], pa.array([0.5]), [0.5, 1.0, 2.0]),
        ([True], pa.array([False]), [False, True]),
        (["2024-01-01"], pa.array([dt.date(2023, 1, 1)]), [dt.date(2023, 1, 1), dt.date(2024, 1, 1)]),
    ],
)
def test_declared_classes(classes: list[Any], labels: pa.Array, expected: list[Any]) -> None:
    """Declared classes take the labels' own type and their place in the order."""
    schema = snb.Schema(label="y", numeric=["x"], classes=classes)
    model = counted(schema, pa.table({"y": labels, "x": [1.0]})).finish(numeric=snb.Gaussian(epsilon=1.0))
    assert model.classes.to_pylist() == expected
    assert model.predict(pa.table({"x": [1.0]})).to_pylist() == labels.to_pylist()


@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        ([1, 2], pa.array(["1"])),
        (["1"], pa.array([1])),
        ([300], pa.array([1], pa.int8())),
        ([0.5], pa.array([1])),
        ([True], pa.array(["true"])),
        ([True], pa.array([1])),
        (["yesterday"], pa.array([dt.date(2023, 1, 1)])),
        ([1], pa.array([True])),
    ],
)
def test_declared_classes_of_another_type(classes: list[Any], labels: pa.Array) -> None:
    """The integer 1 is not the string "1", in a declaration as little as in the data."""
    schema = snb.Schema(label="y", numeric=["x"], classes=classes)
    state = counted(schema, pa.table({"y": labels, "x": [1.0]}))
    with pytest.raises(
        snb.MergeError, match=re.escape(f"Expected declared classes of type {labels.type}, got {classes}")
    ):
        state.finish(numeric=snb.Gaussian(epsilon=1.0))


# --- wide and many ----------------------------------------------------------------------------------------------------


def test_five_hundred_columns_of_each_kind() -> None:
    """Two thousand columns; counted by pieces and merged."""
    n, generator = 60, np.random.default_rng(3)
    y = generator.integers(0, 4, n)
    columns: dict[str, Any] = {"y": y}
    kinds: dict[str, list[str]] = {"numeric": [], "categorical": [], "binary": [], "counts": []}
    for j in range(500):
        for kind, values in (
            ("numeric", generator.normal(j, 1.0, n)),
            ("categorical", generator.integers(0, 3, n)),
            ("binary", generator.integers(0, 2, n)),
            ("counts", generator.integers(0, 5, n)),
        ):
            columns[f"{kind}{j}"] = values
            kinds[kind].append(f"{kind}{j}")
    schema, table = snb.Schema(label="y", **kinds), pa.table(columns)
    state = counted(schema, table.slice(0, 25)) + counted(schema, table.slice(25))
    rows = {(each["feature"], each["class"]): each for each in lines(state, block="numeric")}
    for j in (0, 250, 499):
        x = columns[f"numeric{j}"][y == 2]
        assert_allclose(rows[f"numeric{j}", 2]["mean"], x.mean(), rtol=1e-12)
        assert_allclose(rows[f"numeric{j}", 2]["variance"], x.var(), rtol=1e-9)
    assert snb.State.from_bytes(state.to_bytes()) == state
    assert state.finish().predict_proba(table).shape == (n, 4)


def test_a_thousand_classes(tmp_path: Path) -> None:
    """A thousand classes, each seen by one shard only; saved, loaded and finished."""
    n = 1000
    schema = snb.Schema(label="y", numeric=["x"], categorical=["c"])
    table = pa.table({"y": [f"k{i % n:04}" for i in range(2 * n)], "x": np.arange(2.0 * n) % n, "c": ["u", "v"] * n})
    order = np.random.default_rng(0).permutation(n)
    shards = [
        counted(schema, table.take(pa.array(np.concatenate([part, part + n])))) for part in np.array_split(order, 5)
    ]
    total = sum(shards[1:], shards[0])
    assert total.n_rows == 2 * n
    assert total.classes.to_pylist() == [f"k{i:04}" for i in range(n)]
    total.save(tmp_path / "many.snb")
    model = snb.State.load(str(tmp_path / "many.snb")).finish(numeric=snb.Gaussian(epsilon=0.01))
    assert model.predict(table.slice(0, n)).equals(table.column("y").slice(0, n).combine_chunks())


# --- files ------------------------------------------------------------------------------------------------------------


def test_save_and_load(tmp_path: Path) -> None:
    """Paths may be strings; what is not there or not a file is named."""
    state = counted(FULL, TABLE, shard="s1") + counted(FULL, TABLE, shard="s2")
    state.save(str(tmp_path / "a.snb"))
    assert snb.State.load(tmp_path / "a.snb") == state
    assert snb.State.load(tmp_path / "a.snb").ledger == state.ledger
    with pytest.raises(snb.SourceError, match=r"no file .*absent\.snb"):
        snb.State.load(tmp_path / "absent.snb")
    with pytest.raises(OSError, match=r"absent\.snb"):
        snb.State.load(tmp_path / "absent.snb")
    (tmp_path / "b.snb").write_text("not a state")
    with pytest.raises(snb.FileFormatError, match=r"b\.snb is not a streamnb file"):
        snb.State.load(tmp_path / "b.snb")
    with pytest.raises(ValueError, match=r"b\.snb"):
        snb.State.load(tmp_path / "b.snb")
