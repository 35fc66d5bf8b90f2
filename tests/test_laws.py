"""The laws: states add up, whatever the cut, the order and the schedule.

States are drawn by running updates (see `strategies.py`): over mixed columns, with nulls, columns without a value,
a class that only one shard saw, values near 1e9 with unit spread, and empty batches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    ARROW,
    SCHEMA,
    SCHEMAS,
    WEIGHTED,
    Row,
    assert_agree,
    batch_of,
    batches,
    counted,
    rows,
    states,
)

import streamnb as snb

both_schemas = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())


def cuts(n_rows: int, places: Sequence[float]) -> list[int]:
    """Return where to cut n rows, from fractions of their number."""
    return [0, *sorted(round(place * n_rows) for place in places), n_rows]


def pieces_of(table: pa.RecordBatch, places: Sequence[float]) -> list[pa.RecordBatch]:
    """Return the rows of a batch in pieces, some of them perhaps empty."""
    return [table.slice(i, j - i) for i, j in itertools.pairwise(cuts(len(table), places))]


def long_batches() -> st.SearchStrategy[pa.RecordBatch]:
    """Draw batches with rows enough to be cut."""
    return st.lists(rows(), min_size=1, max_size=16).map(batch_of)


# --- the monoid -------------------------------------------------------------------------------------------------------


@both_schemas
@given(data=st.data())
def test_empty_is_neutral_on_both_sides(schema: snb.Schema, data: st.DataObject) -> None:
    """0 + s and s + 0 have the bytes of s, whether 0 has counted nothing or a batch without rows."""
    state = data.draw(states(schema))
    no_rows = counted(schema, [batch_of([])])
    for empty in (snb.State(schema), no_rows):
        assert (state + empty).to_bytes() == state.to_bytes()
        assert (empty + state).to_bytes() == state.to_bytes()
        merged = state.copy()
        merged.merge(empty)
        assert merged.to_bytes() == state.to_bytes()


@both_schemas
def test_a_batch_without_rows_is_nothing(schema: snb.Schema) -> None:
    """Counting a batch without rows leaves the empty state, to the byte."""
    assert counted(schema, [batch_of([]), batch_of([])]).to_bytes() == snb.State(schema).to_bytes()


@both_schemas
@given(data=st.data())
def test_merge_is_commutative_to_the_byte(schema: snb.Schema, data: st.DataObject) -> None:
    """A + b and b + a have the same bytes."""
    left, right = data.draw(states(schema)), data.draw(states(schema))
    assert (left + right).to_bytes() == (right + left).to_bytes()


@both_schemas
@given(data=st.data())
def test_merge_is_associative(schema: snb.Schema, data: st.DataObject) -> None:
    """(a + b) + c and a + (b + c) agree: counts and sums exactly, moments to rounding."""
    one, two, three = (data.draw(states(schema, max_batches=2)) for _ in range(3))
    assert_agree((one + two) + three, one + (two + three))


@both_schemas
@given(data=st.data())
def test_adding_is_what_counting_both_gives(schema: snb.Schema, data: st.DataObject) -> None:
    """State is a homomorphism: the state of the rows of both is the sum of their states."""
    first, second = data.draw(long_batches()), data.draw(long_batches())
    whole = counted(schema, [pa.Table.from_batches([first, second]).combine_chunks()])
    assert_agree(counted(schema, [first]) + counted(schema, [second]), whole)


@both_schemas
@given(data=st.data())
def test_merge_with_itself_counts_twice(schema: snb.Schema, data: st.DataObject) -> None:
    """`state.merge(state)` is `state + state`: the argument is read whole before it changes."""
    state = data.draw(states(schema))
    twice = state + state
    state.merge(state)
    assert state.to_bytes() == twice.to_bytes()


# --- cuts, order, weights ---------------------------------------------------------------------------------------------


@both_schemas
@given(table=long_batches(), places=st.lists(st.floats(0, 1), max_size=4))
def test_any_cut_into_batches_gives_the_same_state(
    schema: snb.Schema, table: pa.RecordBatch, places: list[float]
) -> None:
    """One batch, a few, or one per row: the same state."""
    whole = counted(schema, [table])
    assert_agree(counted(schema, pieces_of(table, places)), whole)
    assert_agree(counted(schema, [table.slice(i, 1) for i in range(len(table))]), whole)


@both_schemas
@given(table=long_batches(), places=st.lists(st.floats(0, 1), max_size=4))
def test_a_chunked_table_is_its_rows(schema: snb.Schema, table: pa.RecordBatch, places: list[float]) -> None:
    """A Table of several chunks counts what its rows count."""
    chunked = pa.Table.from_batches(pieces_of(table, places), schema=table.schema)
    assert_agree(counted(schema, [chunked]), counted(schema, [table]))


@both_schemas
@given(table=long_batches(), places=st.lists(st.floats(0, 1), min_size=1, max_size=4), data=st.data())
def test_any_cut_into_shards_gives_the_same_state(
    schema: snb.Schema, table: pa.RecordBatch, places: list[float], data: st.DataObject
) -> None:
    """Shards counted apart and merged left to right, right to left, or in a drawn order give the same state."""
    whole = counted(schema, [table])
    shards = [counted(schema, [piece]) for piece in pieces_of(table, places)]
    assert_agree(reduce(add, shards), whole)
    assert_agree(reduce(add, reversed(shards)), whole)
    assert_agree(reduce(add, data.draw(st.permutations(shards))), whole)


@both_schemas
@given(table=long_batches(), data=st.data())
def test_the_order_of_rows_does_not_matter(schema: snb.Schema, table: pa.RecordBatch, data: st.DataObject) -> None:
    """Rows in any order give the same state."""
    order = data.draw(st.permutations(range(len(table))))
    assert_agree(counted(schema, [table.take(pa.array(order))]), counted(schema, [table]))


@given(content=st.lists(rows(), min_size=1, max_size=8), times=st.integers(1, 3))
def test_a_weight_of_n_is_the_row_n_times(content: list[Row], times: int) -> None:
    """Weight n says what n equal rows say: of weights, moments and sums, not of the number of rows."""
    once = [row | {"w": float(times)} for row in content]
    often = [row | {"w": 1.0} for row in content for _ in range(times)]
    assert_agree(counted(WEIGHTED, [batch_of(once)]), counted(WEIGHTED, [batch_of(often)]), rows_too=times == 1)


@given(content=st.lists(rows(), max_size=8), extra=st.lists(rows(("a", "z", None)), min_size=1, max_size=3))
def test_a_weight_of_zero_is_no_row(content: list[Row], extra: list[Row]) -> None:
    """Rows of weight 0 leave nothing: no class, no category, no row, wherever they stand."""
    nothing = [row | {"w": 0.0, "site": "nowhere"} for row in extra]
    plain = counted(WEIGHTED, [batch_of(content)])
    assert counted(WEIGHTED, [batch_of([*content, *nothing])]).to_bytes() == plain.to_bytes()
    assert counted(WEIGHTED, [batch_of(content), batch_of(nothing)]).to_bytes() == plain.to_bytes()
    mixed = batch_of([*nothing, *content])
    assert_agree(counted(WEIGHTED, [mixed]), plain)


@given(content=st.lists(rows(), max_size=8))
def test_weights_of_one_are_no_weights(content: list[Row]) -> None:
    """A weight column of ones gives the numbers that a schema without weights gives."""
    ones = batch_of([row | {"w": 1.0} for row in content])
    assert_agree(counted(WEIGHTED, [ones]), counted(SCHEMA, [ones]))


# --- missing cells ----------------------------------------------------------------------------------------------------


def content_by_feature(state: snb.State) -> dict[str | None, list[dict[str, Any]]]:
    """Return the tidy content of a state, feature by feature; the label's own rows stand under None."""
    found: dict[str | None, list[dict[str, Any]]] = {}
    for line in state.to_table().to_pylist():
        found.setdefault(line["feature"], []).append(line)
    return found


@both_schemas
@given(data=st.data())
def test_a_null_touches_only_its_own_feature(schema: snb.Schema, data: st.DataObject) -> None:
    """Blanking cells of one column leaves the label and all other columns exactly as they were."""
    content = data.draw(st.lists(rows(("a", "b")), min_size=1, max_size=10))
    name = data.draw(st.sampled_from(schema.features))
    blank = data.draw(st.lists(st.booleans(), min_size=len(content), max_size=len(content)))
    blanked = [row | ({name: None} if gone else {}) for row, gone in zip(content, blank, strict=True)]
    before = content_by_feature(counted(schema, [batch_of(content)]))
    after = content_by_feature(counted(schema, [batch_of(blanked)]))
    for feature in {*before, *after} - {name}:
        assert before[feature] == after[feature], feature
    # The column itself holds what the rows that kept their cell say.
    left = content_by_feature(
        counted(schema, [batch_of([row for row, gone in zip(content, blank, strict=True) if not gone])])
    )
    seen = {line["class"] for line in left.get(None, []) if line["count"]}
    for line in after.get(name, []):
        same = [
            other
            for other in left.get(name, [])
            if (other["class"], other["category"]) == (line["class"], line["category"])
        ]
        if line["class"] not in seen or not same:
            assert not line["weight"], line
            continue
        for key in ("count", "weight", "total", "mean", "variance"):
            if line[key] is None:
                assert same[0][key] is None
            else:
                assert math.isclose(line[key], same[0][key], rel_tol=1e-9, abs_tol=1e-9), (key, line, same[0])


@both_schemas
@given(table=long_batches())
def test_missing_cells_and_present_cells_make_all_rows(schema: snb.Schema, table: pa.RecordBatch) -> None:
    """`missing()` counts the null and NaN cells of each column and class among the rows that count."""
    content = [row for row in table.to_pylist() if row["y"] is not None]
    if schema.weight is not None:
        content = [row for row in content if row["w"] > 0]
    found = counted(schema, [table]).missing()
    assert list(found) == list(schema.features)
    for name, by_class in found.items():
        expected = {
            label: sum(row[name] is None or row[name] != row[name] for row in content if row["y"] == label)
            for label in sorted({row["y"] for row in content})
        }
        assert by_class == expected, name


# --- nothing is shared ------------------------------------------------------------------------------------------------


@both_schemas
@given(data=st.data())
def test_merge_leaves_the_other_side_alone(schema: snb.Schema, data: st.DataObject) -> None:
    """The other side keeps its bytes in the merge and after later updates, and later updates of it do not leak."""
    mine, other = data.draw(states(schema)), data.draw(states(schema))
    late = data.draw(batches())
    before = other.to_bytes()
    mine.merge(other)
    assert other.to_bytes() == before
    mine.update(late)
    mine.merge(other)
    assert other.to_bytes() == before
    held = mine.to_bytes()
    other.update(late)
    other.merge(mine)
    assert mine.to_bytes() == held


@both_schemas
@given(data=st.data())
def test_a_sum_shares_nothing_with_its_parts(schema: snb.Schema, data: st.DataObject) -> None:
    """A + b and copies stay as they are when a and b go on, and the other way round."""
    one, two, late = data.draw(states(schema)), data.draw(states(schema)), data.draw(batches())
    total, twin = one + two, one.copy()
    held, kept, parts = total.to_bytes(), twin.to_bytes(), (one.to_bytes(), two.to_bytes())
    total.update(late)
    twin.update(late)
    assert (one.to_bytes(), two.to_bytes()) == parts
    total, twin = one + two, one.copy()
    one.update(late)
    two.update(late)
    assert (total.to_bytes(), twin.to_bytes()) == (held, kept)


@both_schemas
@given(data=st.data())
def test_merging_into_an_empty_state_shares_nothing(schema: snb.Schema, data: st.DataObject) -> None:
    """The shortest way to alias another state's arrays: adopting them when there is nothing to add to."""
    other, late = data.draw(states(schema)), data.draw(batches())
    before = other.to_bytes()
    state = snb.State(schema)
    state.merge(other)
    state.update(late)
    assert other.to_bytes() == before


# --- finish -----------------------------------------------------------------------------------------------------------


@both_schemas
@given(data=st.data())
def test_finish_changes_nothing_and_is_repeatable(schema: snb.Schema, data: st.DataObject) -> None:
    """Finishing, predicting and reading leave the state's bytes; finishing twice gives equal predictors."""
    state, batch = data.draw(states(schema)), data.draw(batches())
    before = state.to_bytes()
    smoothing = snb.Gaussian(epsilon=1.0)
    if not state.n_rows:
        with pytest.raises(snb.EmptyStateError, match="state without training rows"):
            state.finish()
        assert state.to_bytes() == before
        return
    model = state.finish(numeric=smoothing)
    first = model.predict_log_proba(batch)
    state.to_table()
    state.missing()
    again = state.finish(numeric=smoothing)
    assert model == again
    assert model.to_bytes() == again.to_bytes()
    assert np.array_equal(first, again.predict_log_proba(batch))
    assert state.to_bytes() == before
    state.update(batch)
    assert model.to_bytes() == again.to_bytes()


@both_schemas
@given(data=st.data())
def test_posteriors_are_probabilities(schema: snb.Schema, data: st.DataObject) -> None:
    """Rows of probabilities sum to 1, logarithms match them, and the label is the class of the highest score."""
    state, batch = data.draw(states(schema)), data.draw(batches())
    if not state.n_rows:
        return
    model = state.finish(
        numeric=snb.Gaussian(epsilon=0.5), counts=data.draw(st.sampled_from([snb.Multinomial(), snb.Complement()]))
    )
    proba, log_proba, joint = (
        model.predict_proba(batch),
        model.predict_log_proba(batch),
        model.predict_joint_log_proba(batch),
    )
    assert proba.shape == (len(batch), len(model.classes))
    assert not np.isnan(log_proba).any()
    assert np.allclose(proba.sum(axis=1), 1.0, rtol=0, atol=1e-12)
    assert np.allclose(np.exp(log_proba), proba, rtol=1e-12, atol=0)
    labels = model.classes.to_pylist()
    assert model.predict(batch).to_pylist() == [labels[i] for i in joint.argmax(axis=1)]


@both_schemas
@given(data=st.data())
def test_a_row_is_scored_by_itself(schema: snb.Schema, data: st.DataObject) -> None:
    """What a row scores does not depend on the rows that stand beside it in the batch."""
    state, batch = data.draw(states(schema)), data.draw(batches())
    if not state.n_rows:
        return
    model = state.finish(numeric=snb.Gaussian(epsilon=0.5))
    whole = model.predict_joint_log_proba(batch)
    alone = [model.predict_joint_log_proba(batch.slice(i, 1)) for i in range(len(batch))]
    assert np.allclose(whole, np.vstack([np.zeros((0, len(model.classes))), *alone]), rtol=1e-12, atol=1e-12)


# --- files and refusals -----------------------------------------------------------------------------------------------


@both_schemas
@given(data=st.data())
def test_load_of_save_is_equal_to_the_byte(schema: snb.Schema, data: st.DataObject) -> None:
    """Bytes survive the round trip, and the state that comes back goes on as the one that went."""
    state, late = data.draw(states(schema)), data.draw(batches())
    loaded = snb.State.from_bytes(state.to_bytes())
    assert loaded == state
    assert loaded.to_bytes() == state.to_bytes()
    state.update(late)
    loaded.update(late)
    assert loaded.to_bytes() == state.to_bytes()


def poisoned(row: Row, column: str, value: Any, dtype: pa.DataType | None = None) -> pa.RecordBatch:
    """Return a batch of one row with one wrong cell, whose column may be of another type."""
    schema = ARROW if dtype is None else ARROW.set(ARROW.get_field_index(column), pa.field(column, dtype))
    return pa.RecordBatch.from_pylist([row | {column: value}], schema=schema)


POISON: dict[str, tuple[str, Any, pa.DataType | None, type[Exception], str]] = {
    "infinite": ("near", float("inf"), None, snb.DataError, "Expected a finite number.*column 'near'"),
    "overflowing": ("far", 1.7e308, None, snb.DataError, "overflow.*column 'far'"),
    "negative count": ("bees", -1, None, snb.DataError, "Expected a count of at least 0, got -1.*column 'bees', row"),
    "not a bit": ("bit", 2, None, snb.DataError, "Expected 0 or 1, got 2.*column 'bit', row"),
    "negative weight": ("w", -1.0, None, snb.DataError, "Expected a weight of at least 0, got -1.*column 'w', row"),
    "no weight": ("w", None, None, snb.DataError, "Expected a weight of at least 0, got none.*column 'w', row"),
    "endless weight": ("w", float("inf"), None, snb.DataError, "Expected a weight of at least 0.*column 'w', row"),
    "other labels": ("y", 1, pa.int64(), snb.MergeError, "type string, got int64 - label column 'y'"),
    "other categories": ("site", 1, pa.int64(), snb.MergeError, "string, got int64 - categorical column 'site'"),
    "no number": ("near", "x", pa.string(), snb.SchemaError, "Expected a number for numeric column 'near'"),
}


@pytest.mark.parametrize("kind", POISON)
@both_schemas
@given(data=st.data())
def test_a_refused_batch_leaves_the_state_as_it_was(schema: snb.Schema, kind: str, data: st.DataObject) -> None:
    """A wrong cell in the last row refuses the whole batch, and the bytes of the state stay."""
    column, value, dtype, error, text = POISON[kind]
    if column not in schema.columns:
        return
    # Class z has one value so far out that one more on the other side overflows.
    start = batch_of([dict.fromkeys(ARROW.names) | {"y": "z", "far": -1.7e308, "w": 1.0, "site": "north"}])
    state = counted(schema, [start, data.draw(batches())])
    row = data.draw(rows(("a", "e"))) | {"w": 1.0, "zone": 99} | ({"y": "z"} if kind == "overflowing" else {})
    before = state.to_bytes()
    wrong = poisoned(row, column, value, dtype)
    with pytest.raises(error, match=text):
        state.update(wrong)
    assert state.to_bytes() == before
    if dtype is None:
        # The same cell at the end of several good batches: not one of them has been counted.
        good = batch_of([row | {column: None} | ({"w": 1.0} if column == "w" else {})])
        with pytest.raises(error, match=text):
            state.update(pa.Table.from_batches([good, good, wrong]))
        assert state.to_bytes() == before


@both_schemas
@given(data=st.data())
def test_a_refused_merge_leaves_both_sides_as_they_were(schema: snb.Schema, data: st.DataObject) -> None:
    """Two states that do not add up, by their labels, categories or a sum that overflows, stay as they were."""
    state = data.draw(states(schema))
    state.update(batch_of([data.draw(rows(("z",))) | {"w": 1.0, "far": -1.7e308, "site": "x"}]))
    row = data.draw(rows(("a", "e"))) | {"w": 1.0, "zone": 99}
    others = {
        "label column 'y'": counted(schema, [poisoned(row, "y", 1, pa.int64())]),
        "column 'site'": counted(schema, [poisoned(row, "site", 1, pa.int64())]),
        "overflow.*column 'far'": counted(schema, [poisoned(row | {"y": "z"}, "far", 1.7e308)]),
    }
    before = state.to_bytes()
    for text, other in others.items():
        held = other.to_bytes()
        with pytest.raises((snb.MergeError, snb.DataError), match=text):
            state.merge(other)
        assert state.to_bytes() == before
        assert other.to_bytes() == held


# --- named shards -----------------------------------------------------------------------------------------------------


@both_schemas
@given(data=st.data())
def test_named_shards_give_the_same_bytes_in_any_order_and_tree(schema: snb.Schema, data: st.DataObject) -> None:
    """With shard names the whole is merged in their order, so that not even the rounding depends on the schedule."""
    shards = []
    for name in ("s1", "s2", "s3", "s4"):
        shard = snb.State(schema, shard=name)
        for batch in data.draw(st.lists(batches(), max_size=2)):
            shard.update(batch)
        shards.append(shard)
    reference = reduce(add, shards)
    order = data.draw(st.permutations(shards))
    assert reduce(add, order).to_bytes() == reference.to_bytes()
    one, two, three, four = order
    assert ((one + two) + (three + four)).to_bytes() == reference.to_bytes()
    assert (one + (two + (three + four))).to_bytes() == reference.to_bytes()
    # Once more each, alone and in partial sums: every shard still counts once.
    assert (reference + two + (three + one)).to_bytes() == reference.to_bytes()
