"""States drawn by running updates, and what it means that two states agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

import streamnb as snb

SCHEMA = snb.Schema(
    label="y",
    numeric=["far", "near", "constant", "gone"],
    categorical=["site", "zone"],
    binary=["flag", "bit"],
    counts=["bees", "flies"],
)
WEIGHTED = snb.Schema(
    label="y",
    numeric=["far", "near", "constant", "gone"],
    categorical=["site", "zone"],
    binary=["flag", "bit"],
    counts=["bees", "flies"],
    weight="w",
)
SCHEMAS = {"plain": SCHEMA, "weighted": WEIGHTED}

ARROW = pa.schema(
    {
        "y": pa.string(),
        "far": pa.float64(),
        "near": pa.float32(),
        "constant": pa.int32(),
        "gone": pa.float64(),
        "site": pa.string(),
        "zone": pa.int16(),
        "flag": pa.bool_(),
        "bit": pa.uint8(),
        "bees": pa.int64(),
        "flies": pa.float64(),
        "w": pa.float64(),
    }
)

# Sums of these are exact in any order, so that counts can be compared exactly; moments cannot.
EXACT_WEIGHTS = [1.0, 0.25, 0.5, 2.0, 3.0, 0.0]

Row = dict[str, Any]


CELLS: dict[str, list[Any]] = {
    "far": [1e9, 1e9 + 1 / 3, 1e9 - 1.7, 1e9 + 0.1, 1e9 + 1, 1e9 - 1 / 7, 1e9 + 1.999, None, float("nan")],
    "near": [0.0, 1.5, -2.25, 1 / 3, 1e-5, -1e-30, 2.875, None],
    "constant": [7],
    "gone": [None],
    "site": ["north", "south", "east", "", None],
    "zone": [0, 1, -2, 2, None],
    "flag": [False, True, None],
    "bit": [0, 1, None],
    "bees": [0, 1, 2, 5, None],
    "flies": [0.0, -0.0, 0.5, 1.0, 4.0, None, float("nan")],
    "w": EXACT_WEIGHTS,
}


def rows(labels: Sequence[str | None] = ("a", "b", "c", None)) -> st.SearchStrategy[Row]:
    """Draw one row: a column far from zero with unit spread, a constant, a column without values, nulls and NaN.

    A row is one number, read digit by digit: drawing twelve cells apart would take most of the tests' time.
    """
    cells = {"y": list(labels), **CELLS}

    def decoded(code: int) -> Row:
        row = {}
        for name, choices in cells.items():
            code, place = divmod(code, len(choices))
            row[name] = choices[place]
        return row

    return st.integers(0, math.prod(map(len, cells.values())) - 1).map(decoded)


def batch_of(content: Sequence[Row], dictionary: bool = False) -> pa.RecordBatch:
    """Return rows as a record batch; with `dictionary`, the strings are dictionary encoded as they come."""
    batch = pa.RecordBatch.from_pylist(list(content), schema=ARROW)
    if not dictionary:
        return batch
    encoded = {
        name: batch.column(name).dictionary_encode() if name in ("y", "site") else batch.column(name)
        for name in batch.schema.names
    }
    return pa.record_batch(encoded)


@st.composite
def batches(draw: st.DrawFn, max_rows: int = 8) -> pa.RecordBatch:
    """Draw a batch: of all classes, of one class or none, with columns all null, dictionary encoded or not."""
    labels = draw(st.sampled_from([("a", "b", "c", None), ("a", "b"), ("b",), ("d",), (None,)]))
    content = draw(st.lists(rows(labels), max_size=max_rows))
    hidden = draw(st.sets(st.sampled_from(["far", "near", "site", "zone", "flag", "bees", "flies"]), max_size=3))
    hidden = hidden if draw(st.booleans()) else set()
    content = [{name: None if name in hidden else value for name, value in row.items()} for row in content]
    return batch_of(content, draw(st.booleans()))


@st.composite
def states(draw: st.DrawFn, schema: snb.Schema = SCHEMA, max_batches: int = 3) -> snb.State:
    """Draw a state by running updates; it may be empty."""
    return counted(schema, draw(st.lists(batches(), max_size=max_batches)))


def counted(schema: snb.Schema, data: Sequence[Any]) -> snb.State:
    """Return the state that has counted each of some batches."""
    state = snb.State(schema)
    for batch in data:
        state.update(batch)
    return state


def assert_agree(
    left: snb.State,
    right: snb.State,
    *,
    moments: float = 1e-9,
    counts: float = 0.0,
    rows_too: bool = True,
) -> None:
    """Hold two states against each other; a failure prints the first class and feature that differ.

    Moments may differ by `moments`, relative: means in units of their spread as well as of themselves. All that is
    a plain count or sum may differ by `counts`, 0 meaning exactly. With `rows_too` false numbers of rows may differ
    and only weights count.
    """
    one, two = left.total, right.total
    classes, others = one.classes.values.to_pylist(), two.classes.values.to_pylist()
    assert classes == others, f"classes {classes} against {others}"
    if classes:
        assert one.classes.type == two.classes.type, f"labels of type {one.classes.type} against {two.classes.type}"
    if rows_too:
        assert one.rows_without_label == two.rows_without_label, "rows without label"

    def compare(
        what: str, features: Sequence[Any], first: Any, second: Any, allowed: Callable[[Any, Any], Any]
    ) -> None:
        first, second = np.asarray(first), np.asarray(second)
        assert first.shape == second.shape, f"{what}: shape {first.shape} against {second.shape}"
        wrong = ~(np.abs(first - second) <= allowed(first, second))
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise AssertionError(
                f"class {classes[i]!r}, {what} of {features[j]!r}: {first[i, j]!r} against {second[i, j]!r}"
            )

    def relative(tolerance: float) -> Callable[[Any, Any], Any]:
        return lambda first, second: tolerance * np.maximum(np.abs(first), np.abs(second))

    compare("weight", ["label"], one.class_weight[:, None], two.class_weight[:, None], relative(counts))
    if rows_too:
        compare("rows", ["label"], one.rows[:, None], two.rows[:, None], relative(0.0))
    for block in ("numeric", "binary", "counts"):
        mine, yours = getattr(one, block), getattr(two, block)
        features = getattr(left.schema, block)
        if rows_too:
            compare(f"{block} count", features, mine.count, yours.count, relative(0.0))
        compare(f"{block} weight", features, mine.sum_of_weights, yours.sum_of_weights, relative(counts))
        if block == "numeric":
            spread = np.sqrt(mine.variance())
            compare(
                "mean",
                features,
                mine.mean,
                yours.mean,
                lambda first, second, spread=spread: (
                    moments * spread + 4e-16 * np.maximum(np.abs(first), np.abs(second))
                ),
            )
            compare("variance", features, mine.variance(), yours.variance(), relative(moments))
        else:
            compare(f"{block} total", features, mine.total, yours.total, relative(counts))
    for name in left.schema.categorical:
        values, other_values = (
            one.categories[name].values.to_pylist(),
            two.categories[name].values.to_pylist(),
        )
        assert values == other_values, f"categories of {name!r}: {values} against {other_values}"
        compare(
            f"category counts of {name!r},",
            values,
            one.categorical[name].counts,
            two.categorical[name].counts,
            relative(counts),
        )
