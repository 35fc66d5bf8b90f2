"""The schema: what may be said in it, what it refuses, and how it is held against the data."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamnb as snb


def test_columns_stand_kind_by_kind() -> None:
    """Features come in the order of the kinds; training reads the label first and the weight last."""
    schema = snb.Schema(label="y", counts=["d"], binary=["c"], categorical=["b"], numeric=["a"], weight="w")
    assert schema.features == ("a", "b", "c", "d")
    assert schema.columns == ("y", "a", "b", "c", "d", "w")


def test_a_schema_is_frozen_and_compared_by_value() -> None:
    """Any sequence of names will do; what was given cannot be changed later."""
    names = ["a", "b"]
    schema = snb.Schema(label="y", numeric=names)
    names.append("c")
    assert schema == snb.Schema(label="y", numeric=("a", "b")) == snb.Schema(label="y", numeric=iter("ab"))
    with pytest.raises(AttributeError):
        schema.label = "z"  # type: ignore[misc]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no feature": ({}, "Expected at least one feature column, got none"),
    "a bare string": ({"numeric": "age"}, "Expected a list for numeric=, got 'age'"),
    "a number for a list": ({"counts": 3}, "Expected a list for counts=, got 3"),
    "a number for a name": ({"numeric": ["a", 3]}, "Expected names of columns, got 3"),
    "a feature twice": ({"numeric": ["a", "a"]}, "got 'a' as numeric and as numeric"),
    "two kinds": ({"numeric": ["a"], "binary": ["a"]}, "each column in one place, got 'a' as numeric and as binary"),
    "the label as feature": ({"numeric": ["y"]}, "got 'y' as label and as numeric"),
    "the label as weight": ({"numeric": ["a"], "weight": "y"}, "got 'y' as label and as weight"),
    "a feature as weight": ({"counts": ["a"], "weight": "a"}, "got 'a' as counts and as weight"),
    "a weight that is no name": ({"numeric": ["a"], "weight": 3}, "name of a column for weight=, got 3"),
    "infinite": ({"numeric": ["a"], "infinite": "drop"}, "Expected infinite='error' or 'missing', got 'drop'"),
    "a threshold for no column": (
        {"binary": ["flag"], "binarize": {"flog": 1.0}},
        "Expected binarize= for binary columns, got 'flog'; did you mean 'flag'?",
    ),
    "a threshold that is no number": ({"binary": ["a"], "binarize": "x"}, "a number for binarize=, got 'x'"),
    "a threshold of NaN": ({"binary": ["a"], "binarize": float("nan")}, "a number for binarize=, got nan"),
    "classes of two types": ({"numeric": ["a"], "classes": [1, "1"]}, "Expected classes= of one type, got [1, '1']"),
    "classes as a string": ({"numeric": ["a"], "classes": "ab"}, "Expected a list for classes=, got 'ab'"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_contradictions_are_refused(kind: str) -> None:
    """What a schema cannot mean is said at once, in terms of what was written."""
    options, text = WRONG[kind]
    with pytest.raises(snb.SchemaError, match=re.escape(text)):
        snb.Schema(label="y", **options)
    with pytest.raises(ValueError, match=re.escape(text)):
        snb.Schema(label="y", **options)


def test_a_label_must_be_a_name() -> None:
    """The label is the name of one column."""
    with pytest.raises(snb.SchemaError, match=re.escape("Expected the name of a column for label=, got ['y']")):
        snb.Schema(label=["y"], numeric=["a"])  # type: ignore[arg-type]


def test_thresholds() -> None:
    """One threshold is for all binary columns; a mapping leaves the columns that it does not name at 0/1."""
    assert snb.Schema(label="y", binary=["a", "b"]).threshold("a") is None
    assert snb.Schema(label="y", binary=["a", "b"], binarize=2).threshold("b") == 2.0
    schema = snb.Schema(label="y", binary=["a", "b"], binarize={"b": 0})
    assert (schema.threshold("a"), schema.threshold("b")) == (None, 0.0)


# --- JSON -------------------------------------------------------------------------------------------------------------

NAMES = st.lists(st.text(min_size=1, max_size=6), min_size=7, max_size=7, unique=True)


@given(names=NAMES, data=st.data())
def test_json_round_trip(names: list[str], data: st.DataObject) -> None:
    """A schema comes back equal from its JSON, whatever its names, thresholds and declared classes."""
    label, weight, *rest = names
    schema = snb.Schema(
        label=label,
        numeric=rest[:1],
        categorical=rest[1:2],
        binary=rest[2:4],
        counts=rest[4:],
        weight=data.draw(st.sampled_from([None, weight])),
        binarize=data.draw(st.sampled_from([None, 0.0, 1.5, {rest[2]: -1.0}])),
        infinite=data.draw(st.sampled_from(["error", "missing"])),
        classes=data.draw(st.sampled_from([(), ["a", "b"], [1, 2], [True, False], [0.5]])),
    )
    again = snb.Schema.from_json(schema.to_json())
    assert again == schema
    assert [type(value) for value in again.classes] == [type(value) for value in schema.classes]
    assert again.to_json() == schema.to_json()
    assert "\n" not in schema.to_json()
    assert snb.Schema.from_json(json.loads(schema.to_json())) == schema


def test_json_leaves_out_what_has_its_default() -> None:
    """A person can read it, and write it."""
    assert json.loads(snb.Schema(label="y", numeric=["a"]).to_json()) == {
        "label": "y",
        "numeric": ["a"],
        "infinite": "error",
    }
    assert snb.Schema.from_json('{"label": "y", "numeric": ["a"]}') == snb.Schema(label="y", numeric=["a"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expected a schema as JSON, got text that is none"),
        ("[]", "Expected a JSON object with a label, got none"),
        ("{}", "Expected a JSON object with a label, got none"),
        (
            '{"label": "y", "numerical": ["a"]}',
            "Expected the keys of a schema, got 'numerical'; did you mean 'numeric'",
        ),
        ('{"label": "y", "numeric": "a"}', "Expected a list for numeric=, got 'a'"),
        ('{"label": 1, "numeric": ["a"]}', "Expected the name of a column for label=, got 1"),
    ],
)
def test_json_that_is_no_schema(text: str, message: str) -> None:
    """Broken JSON, unknown keys and wrong values are refused with one sentence."""
    with pytest.raises(snb.SchemaError, match=re.escape(message)):
        snb.Schema.from_json(text)


# --- against the data -------------------------------------------------------------------------------------------------

NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal32(5, 2), pa.decimal64(12, 2), pa.decimal128(20, 3), pa.decimal256(50, 5)),
]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3)]
TIMES = [pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("ns", "Europe/Rome"), pa.duration("s")]
NESTED = [
    pa.list_(pa.float64()),
    pa.large_list(pa.int8()),
    pa.struct({"a": pa.int8()}),
    pa.map_(pa.string(), pa.int8()),
]

FITS: dict[str, list[pa.DataType]] = {
    "numeric": NUMBERS,
    "counts": NUMBERS,
    "binary": [*NUMBERS, pa.bool_()],
    "categorical": [*NUMBERS, *TEXTS, *BYTES, pa.bool_()],
    "weight": NUMBERS,
    "label": [*NUMBERS, *TEXTS, *BYTES, *TIMES, pa.bool_()],
}
ALL = [*NUMBERS, *TEXTS, *BYTES, *TIMES, *NESTED, pa.bool_(), pa.month_day_nano_interval()]


def schema_with(kind: str) -> snb.Schema:
    """Return a schema in which the column `x` has one role."""
    if kind in ("label", "weight"):
        return snb.Schema(**{"label": "y", "numeric": ["a"], kind: "x"})
    return snb.Schema(label="y", **{kind: ["x"]})


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("kind", FITS)
def test_types_that_fit_and_types_that_do_not(kind: str, dtype: pa.DataType) -> None:
    """Each role takes its types; any other is refused with the column and the type by name."""
    schema = schema_with(kind)
    columns = {name: pa.string() if name == "y" else pa.float64() for name in schema.columns} | {"x": dtype}
    if dtype in FITS[kind]:
        schema.check(pa.schema(columns))
        return
    wanted = {
        "label": "a scalar type",
        "categorical": "a string, an integer or a boolean",
        "binary": "a boolean or 0/1",
    }.get(kind, "a number")
    plain = pa.string() if dtype in TEXTS else pa.binary() if dtype in BYTES else dtype
    with pytest.raises(snb.SchemaError, match=re.escape(f"Expected {wanted} for {kind} column 'x', got {plain}")):
        schema.check(pa.schema(columns))


@pytest.mark.parametrize("kind", FITS)
def test_a_column_of_type_null_fits_everywhere(kind: str) -> None:
    """A column without any value has Arrow's type null in some files; it says nothing and is no error."""
    schema = schema_with(kind)
    schema.check(pa.schema({name: pa.null() for name in schema.columns}))


def test_hints_say_where_a_column_belongs() -> None:
    """A string or a boolean among the numbers is told where it would fit."""
    schema = snb.Schema(label="y", numeric=["x"])
    with pytest.raises(snb.SchemaError, match="got bool; a boolean belongs in binary="):
        schema.check(pa.schema({"y": pa.string(), "x": pa.bool_()}))
    with pytest.raises(snb.SchemaError, match="got string; a string belongs in categorical="):
        schema.check(pa.schema({"y": pa.string(), "x": pa.large_string()}))


def test_absent_columns_offer_the_near_misses() -> None:
    """A name that is not there offers the closest ones; a name that stands twice is refused."""
    schema = snb.Schema(label="species", numeric=["petal_length"], weight="w")
    with pytest.raises(
        snb.SchemaError,
        match=re.escape("Expected a column 'petal_length', got none of that name; did you mean 'petal_lenght'?"),
    ):
        schema.check(pa.schema({"species": pa.string(), "petal_lenght": pa.float64(), "w": pa.float64()}))
    with pytest.raises(snb.SchemaError, match=r"Expected a column 'w', got none of that name$"):
        schema.check(pa.schema({"species": pa.string(), "petal_length": pa.float64()}))
    twice = pa.schema([("species", pa.string()), ("petal_length", pa.float64()), ("w", pa.int8()), ("w", pa.int8())])
    with pytest.raises(snb.SchemaError, match="Expected one column 'w', got 2 of that name"):
        schema.check(twice)
    schema.check(twice, ["species", "petal_length"])


# --- inference --------------------------------------------------------------------------------------------------------

MIXED = pa.schema(
    {
        "id": pa.int64(),
        "y": pa.string(),
        "height": pa.float32(),
        "price": pa.decimal128(10, 2),
        "n": pa.uint8(),
        "town": pa.string(),
        "kind": pa.dictionary(pa.int32(), pa.large_string()),
        "code": pa.dictionary(pa.int32(), pa.int64()),
        "flag": pa.bool_(),
        "w": pa.float64(),
    }
)


def test_infer_from_types() -> None:
    """Numbers are numeric, strings and dictionaries categorical, booleans binary; the order is the data's."""
    schema = snb.Schema.infer(MIXED, label="y", weight="w", exclude=["id"])
    assert schema == snb.Schema(
        label="y",
        numeric=["height", "price", "n"],
        categorical=["town", "kind", "code"],
        binary=["flag"],
        weight="w",
    )


def test_infer_with_columns_placed_by_hand() -> None:
    """A kind given by name takes its columns out of the guess; other options go to the schema."""
    schema = snb.Schema.infer(
        MIXED,
        label="y",
        exclude=["id", "w", "code"],
        counts=["n"],
        categorical=["price"],
        infinite="missing",
        classes=["a"],
    )
    assert schema.counts == ("n",)
    assert schema.categorical == ("price", "town", "kind")
    assert schema.numeric == ("height",)
    assert (schema.infinite, schema.classes) == ("missing", ("a",))


@pytest.mark.parametrize("dtype", [*TIMES, *NESTED], ids=str)
def test_infer_says_how_to_leave_a_column_out(dtype: pa.DataType) -> None:
    """A column that is neither number, string nor boolean must be left out by name."""
    arrow = pa.schema({"y": pa.string(), "x": pa.float64(), "when": dtype})
    text = f"Expected a number, string or boolean, got {dtype} - column 'when'; leave it out with exclude=['when']"
    with pytest.raises(snb.SchemaError, match=re.escape(text)):
        snb.Schema.infer(arrow, label="y")
    assert snb.Schema.infer(arrow, label="y", exclude=["when"]).features == ("x",)
    assert snb.Schema.infer(arrow.remove(2), label="y").features == ("x",)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"label": "z"}, "Expected a column 'z', got none of that name"),
        (
            {"label": "y", "exclude": ["hieght"]},
            "Expected a column 'hieght', got none of that name; did you mean 'height'?",
        ),
        ({"label": "y", "weight": "weight"}, "Expected a column 'weight', got none of that name"),
        ({"label": "y", "categorical": "town"}, "Expected a list for categorical=, got 'town'"),
        ({"label": "y", "exclude": "id"}, "Expected a list for exclude=, got 'id'"),
    ],
)
def test_infer_refuses_names_that_are_not_there(options: dict[str, Any], text: str) -> None:
    """Names in the options are held against the data."""
    with pytest.raises(snb.SchemaError, match=re.escape(text)):
        snb.Schema.infer(MIXED, **options)


def test_infer_refuses_a_name_that_stands_twice() -> None:
    """A doubled column is never placed silently."""
    arrow = pa.schema([("y", pa.string()), ("v", pa.float64()), ("v", pa.float64())])
    with pytest.raises(snb.SchemaError, match="got 'v' as numeric and as numeric"):
        snb.Schema.infer(arrow, label="y")
    assert snb.Schema.infer(pa.schema([*arrow, ("x", pa.int8())]), label="y", exclude=["v"]).features == ("x",)
