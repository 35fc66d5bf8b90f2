"""The laws of states, with `==`: an exact state is a function of its rows, and rows can be taken out again."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import counted

import streamnb as snb

BLOCKS: dict[str, Any] = {
    "numeric": ["far", "near"],
    "categorical": ["site"],
    "binary": ["flag"],
    "counts": ["amount"],
}
PLAIN = snb.Schema(label="y", **BLOCKS, text=["notes"], exact=True)
WEIGHTED = snb.Schema(
    label="y",
    **BLOCKS,
    text=[snb.Text("notes", normalize="l2", sublinear=True, document_frequency=True)],
    weight="w",
    exact=True,
)
HASHED = snb.Schema(
    label="y", numeric=["far"], text=[snb.Text("notes", buckets=4, normalize="l1")], weight="w", exact=True
)
SCHEMAS = {"plain": PLAIN, "weighted": WEIGHTED, "hashed": HASHED}
each_schema = pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())

ARROW = pa.schema(
    {
        "y": pa.string(),
        "far": pa.float64(),
        "near": pa.float32(),
        "site": pa.string(),
        "flag": pa.bool_(),
        "amount": pa.float64(),
        "notes": pa.string(),
        "w": pa.float64(),
    }
)

hard = st.one_of(
    st.sampled_from([0.0, -0.0, 0.1, 1 / 3, 1e308, -1e308, 1e-308, 5e-324, -5e-324, 1e15 + 0.5, float("nan"), None]),
    st.floats(allow_nan=False, allow_infinity=False),
)
above_zero = st.one_of(
    st.sampled_from([0.0, 0.1, 0.3, 1.0, 1e300, 5e-324, 2.0**-40]),
    st.floats(0, 1e308, allow_nan=False),
)
hard_rows = st.fixed_dictionaries(
    {
        "y": st.sampled_from(["a", "b", "c", None]),
        "far": hard,
        "near": st.one_of(st.none(), st.floats(width=32, allow_nan=True, allow_infinity=False)),
        "site": st.sampled_from(["north", "south", "east", "", None]),
        "flag": st.sampled_from([True, False, None]),
        "amount": st.one_of(st.none(), above_zero),
        "notes": st.sampled_from(["rain", "sun sun fog", "fog rain wind sun", "", "snow", None]),
        "w": above_zero,
    }
)


def batch_of(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows as a record batch."""
    return pa.RecordBatch.from_pylist(list(rows), schema=ARROW)


def batches(min_size: int = 0, max_size: int = 10) -> st.SearchStrategy[pa.RecordBatch]:
    """Draw batches of hard rows."""
    return st.lists(hard_rows, min_size=min_size, max_size=max_size).map(batch_of)


def states(schema: snb.Schema) -> st.SearchStrategy[snb.State]:
    """Draw states by running updates; they may be empty."""
    return st.lists(batches(), max_size=2).map(lambda data: counted(schema, data))


def assert_same(one: snb.State, two: snb.State) -> None:
    """Equal rows give equal states, digests and, without names of shards, bytes."""
    assert one == two
    assert one.digest() == two.digest()
    assert one.anonymous().to_bytes() == two.anonymous().to_bytes()


# --- a function of the set of rows ------------------------------------------------------------------------------------


@each_schema
@given(data=st.data())
def test_a_state_depends_on_its_rows_alone(schema: snb.Schema, data: st.DataObject) -> None:
    """Any cut, any order of rows, any order and any tree of merges: the same bytes."""
    table = data.draw(batches(min_size=1, max_size=14))
    whole = counted(schema, [table])
    order = data.draw(st.permutations(range(len(table))))
    shuffled = table.take(pa.array(order))
    places = [0, *sorted(data.draw(st.lists(st.integers(0, len(table)), max_size=4))), len(table)]
    pieces = [shuffled.slice(i, j - i) for i, j in itertools.pairwise(places)]
    assert counted(schema, pieces).to_bytes() == whole.to_bytes()
    shards = [counted(schema, [piece]) for piece in pieces]
    while len(shards) > 1:
        i = data.draw(st.integers(0, len(shards) - 2))
        one, two = shards.pop(i), shards.pop(i)
        shards.insert(data.draw(st.integers(0, len(shards))), two + one)
    assert shards[0].to_bytes() == whole.to_bytes()


@each_schema
@given(data=st.data())
def test_addition(schema: snb.Schema, data: st.DataObject) -> None:
    """Addition is commutative and associative, empty is neutral, and no operand changes: all to the byte."""
    one, two, three = (data.draw(states(schema)) for _ in range(3))
    before = one.to_bytes(), two.to_bytes()
    assert (one + two).to_bytes() == (two + one).to_bytes()
    assert ((one + two) + three).to_bytes() == (one + (two + three)).to_bytes()
    assert (one + snb.State(schema)).to_bytes() == one.to_bytes()
    assert (one.to_bytes(), two.to_bytes()) == before


@each_schema
@given(data=st.data())
def test_files_hold_all_of_it(schema: snb.Schema, data: st.DataObject) -> None:
    """A state that was saved and loaded is the same, and goes on as it would have."""
    state, more = data.draw(states(schema)), data.draw(batches())
    loaded = snb.State.from_bytes(state.to_bytes())
    assert loaded.to_bytes() == state.to_bytes()
    loaded.update(more)
    state.update(more)
    assert loaded.to_bytes() == state.to_bytes()


@given(rows=st.lists(hard_rows, min_size=1, max_size=8), times=st.integers(1, 4))
def test_weight_n_is_the_row_n_times(rows: list[dict[str, Any]], times: int) -> None:
    """Weight n is the row n times, exactly: of weights and sums, not of numbers of rows."""
    schema = snb.Schema(label="y", **BLOCKS, text=["notes"], weight="w", exact=True)
    once = counted(schema, [batch_of([row | {"w": float(times)} for row in rows])]).total
    often = counted(schema, [batch_of([row | {"w": 1.0} for row in rows for _ in range(times)])]).total
    assert once.sum_of_weights == often.sum_of_weights
    for block in ("numeric", "binary", "counts"):
        assert getattr(once, block).sums == getattr(often, block).sums
    assert once.categorical["site"].weights == often.categorical["site"].weights
    assert once.text["notes"].counts.totals == often.text["notes"].counts.totals


def test_both_kernels_give_the_same_bytes() -> None:
    """With Numba and without it, in a process of its own, the digest is the same."""
    code = """
import numpy as np, pyarrow as pa, streamnb as snb
rng = np.random.default_rng(11)
n = 5000
far = rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n)
table = pa.table({
    "y": rng.integers(0, 3, n), "near": rng.normal(size=n), "far": far, "w": rng.random(n),
    "amount": rng.random(n), "site": rng.integers(0, 5, n).astype(str), "notes": rng.integers(0, 9, n).astype(str),
})
for weight in (None, "w"):
    schema = snb.Schema("y", ["near", "far"], ["site"], counts=["amount"], weight=weight, exact=True,
                        text=[snb.Text("notes", normalize="l2", tokens="chars", ngrams=(1, 1))])
    state = snb.State(schema)
    state.update(table)
    print(state.digest())
"""
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"STREAMNB_JIT": jit, "PYTHONPATH": str(Path(snb.__file__).parent.parent)},
        ).stdout
        for jit in ("0", "1")
    ]
    assert found[0] == found[1]
    assert len(found[0].split()) == 2


@pytest.fixture(scope="module")
def table() -> pa.Table:
    """A table of 3,000 rows with numbers of all magnitudes."""
    rng = np.random.default_rng(4)
    n = 3000
    return pa.table(
        {
            "y": pa.array(rng.choice(["a", "b", "c"], n)),
            "x": rng.normal(size=n) * 10.0 ** rng.integers(-8, 9, n),
            "z": pa.array(rng.normal(size=n), mask=rng.random(n) < 0.1),
            "site": pa.array(rng.choice(["north", "south"], n)),
            "w": rng.random(n),
        }
    )


SCHEMA = snb.Schema(label="y", numeric=["x", "z"], categorical=["site"], weight="w", exact=True)


def test_files_cut_in_any_way_give_one_state(table: pa.Table, tmp_path: Path) -> None:
    """Seven files or two, any row groups, any number of threads, one stream or a loop: one digest."""
    expected = counted(SCHEMA, [table])
    for name, sizes in {"seven": [430] * 7, "two": [2999, 1]}.items():
        (tmp_path / name).mkdir()
        start = 0
        for i, size in enumerate(sizes):
            pq.write_table(table.slice(start, size), tmp_path / name / f"{i}.parquet", row_group_size=150 + i)
            start += size
        for workers in (1, 2, 3):
            found = snb.fit(tmp_path / name, schema=SCHEMA, workers=workers)
            assert found.ledger
            assert_same(found, expected)
    assert_same(snb.fit(table, schema=SCHEMA), expected)


def test_a_run_that_was_stopped_gives_the_same_state(table: pa.Table, tmp_path: Path) -> None:
    """A checkpoint of some files, resumed over all of them, is the state of one run, to the byte."""
    for i in range(4):
        pq.write_table(table.slice(750 * i, 750), tmp_path / f"{i}.parquet")
    files = [tmp_path / f"{i}.parquet" for i in range(4)]
    checkpoint = tmp_path / "run.snb"
    snb.fit(files[:2], schema=SCHEMA, checkpoint=checkpoint)
    resumed = snb.fit(files, schema=SCHEMA, checkpoint=checkpoint, resume=True)
    assert resumed.to_bytes() == snb.fit(files, schema=SCHEMA).to_bytes()
    assert_same(resumed, counted(SCHEMA, [table]))


def test_c03_ten_tenths_in_every_order() -> None:
    """C03: ten weights of 0.1 give a class weight of 1.0 in every order of merging, and the tie goes to the first."""
    schema = snb.Schema(label="y", numeric=["x"], weight="w", exact=True)
    table = pa.table({"y": list("a" * 10 + "b"), "x": [1.0] * 11, "w": [0.1] * 10 + [1.0]})
    seen = set()
    for cuts in ((0, 11), (0, 5, 11), (0, 1, 4, 8, 11), tuple(range(12))):
        shards = [counted(schema, [table.slice(i, j - i)]) for i, j in itertools.pairwise(cuts)]
        for order in (shards, shards[::-1]):
            total = reduce(add, order)
            seen.add(total.to_bytes())
            assert total.total.class_weight.tolist() == [1.0, 1.0]
            model = total.finish(numeric=snb.Gaussian(epsilon=1.0))
            assert model.predict_proba(pa.table({"x": [1.0]})).tolist() == [[0.5, 0.5]]
            assert model.predict(pa.table({"x": [1.0]})).to_pylist() == ["a"]
    assert len(seen) == 1


def test_a_model_of_an_exact_state_agrees_with_the_other(table: pa.Table) -> None:
    """Exact or not, the model is the same but for rounding."""
    plain = snb.Schema(label="y", numeric=["x", "z"], categorical=["site"], weight="w")
    one, two = (counted(schema, [table]).finish().predict_proba(table) for schema in (SCHEMA, plain))
    assert np.abs(one - two).max() < 1e-9


def test_the_digest_is_the_same_everywhere() -> None:
    """Equal rows have this digest on every machine and in every release: it can be written down."""
    table = pa.table(
        {
            "y": ["a", "b", "a", "b", None],
            "x": [0.1, 1e15, -5e-324, 1.7e308, 1.0],
            "site": ["north", "south", None, "north", "north"],
            "flag": [True, False, True, None, True],
            "amount": [0.3, 2.0, 0.0, 1e-9, 1.0],
            "notes": ["sun sun rain", "fog", "", None, "sun"],
            "w": [0.1, 0.2, 0.3, 1e300, 1.0],
        }
    )
    blocks: dict[str, Any] = {"numeric": ["x"], "categorical": ["site"], "binary": ["flag"], "counts": ["amount"]}
    schemas = {
        "plain": snb.Schema("y", **blocks, text=["notes"], exact=True),
        "weighted": snb.Schema("y", **blocks, text=[snb.Text("notes", normalize="l2")], weight="w", exact=True),
        "hashed": snb.Schema("y", text=[snb.Text("notes", buckets=8)], exact=True),
    }
    assert {name: counted(schema, [table]).digest() for name, schema in schemas.items()} == {
        "plain": "8d6172b8c5384558ea18c7bc",
        "weighted": "603eac19f67ba974913bbc69",
        "hashed": "f4460bfd0a9fbc0ed250e515",
    }


def test_buckets_go_by_their_numbers() -> None:
    """Counted by hash, a token's name is the number of its bucket, which is there for as long as a row has it."""
    schema = snb.Schema("y", text=[snb.Text("notes", buckets=16)], exact=True)
    first = counted(schema, [pa.table({"y": ["a"], "notes": ["rain sun fog"]})])
    second = counted(schema, [pa.table({"y": ["b"], "notes": ["sun snow"]})])
    names = (first + second).total.text["notes"].names.to_pylist()
    assert names == [f"#{bucket}" for bucket in (first + second).total.text["notes"].buckets]
    assert ((first + second) - first).total.text["notes"].names.equals(second.total.text["notes"].names)


# --- names of shards --------------------------------------------------------------------------------------------------


def shards_of(table: pa.Table, n: int) -> list[snb.State]:
    """Return states of named shards."""
    states = []
    for i in range(n):
        states.append(snb.State(SCHEMA, shard=f"s{i}"))
        states[-1].update(table.slice(100 * i, 100))
    return states


def test_c23_a_shard_that_comes_twice_counts_once(table: pa.Table) -> None:
    """C23: exact states count each named shard once, in any order; equality asks for the rows and not for the names."""
    one, two, three = shards_of(table, 3)
    whole = counted(SCHEMA, [table.slice(0, 300)])
    for order in itertools.permutations([one, two, three, two]):
        total = reduce(add, order, snb.State(SCHEMA))
        assert_same(total, whole)
        assert set(total.ledger) == {"s0", "s1", "s2"}
    assert one + two + three == whole
    assert (one + two + three).to_bytes() == (three + two + one).to_bytes()
    assert (one + two + three).to_bytes() != whole.to_bytes()
    assert (one + two) + (two + three) == whole


def test_named_shards_go_with_their_names(table: pa.Table) -> None:
    """What is left after a named shard is what the others give, bytes and names; and the shard may come back."""
    one, two, three = shards_of(table, 3)
    total = one + two + three
    assert (total - two).to_bytes() == (snb.State(SCHEMA) + one + three).to_bytes()
    assert ((total - two) + two).to_bytes() == total.to_bytes()
    assert (total - (one + three)).ledger == two.ledger
    assert_same(total - total, snb.State(SCHEMA))
    # As `fit` has them: shards of one part.
    part = snb.State.of_shards(SCHEMA, total.total.copy(), total.ledger)
    assert_same(part - two, one + three)
    assert set((part - two).ledger) == {"s0", "s2"}
    assert not (part - one - two - three).ledger


def test_rows_without_names_leave_no_names(table: pa.Table) -> None:
    """Rows taken out of named shards leave an anonymous state: a shard that came again would bring them back."""
    total = reduce(add, shards_of(table, 3))
    customer = counted(SCHEMA, [table.slice(40, 90)])
    left = total - customer
    assert left.ledger == {}
    expected = counted(SCHEMA, [table.slice(0, 40), table.slice(130, 170)])
    assert left.to_bytes() == expected.to_bytes()
    named = snb.State(SCHEMA, shard="customer")
    named.update(table.slice(40, 90))
    assert (total - named).to_bytes() == expected.to_bytes()


def test_shards_that_do_not_fit_are_refused(table: pa.Table) -> None:
    """Another content under one name, and names of which only some are known, change nothing."""
    one, two, three = shards_of(table, 3)
    total = one + two
    before = total.to_bytes()
    other = snb.State(SCHEMA, shard="s1")
    other.update(table.slice(100, 99))
    with pytest.raises(snb.MergeError, match="two different states of shard 's1'"):
        total.subtract(other)
    with pytest.raises(snb.MergeError, match="got shard 's2', which was not"):
        total.subtract(two + three)
    assert total.to_bytes() == before


# --- the inverse ------------------------------------------------------------------------------------------------------


@each_schema
@given(data=st.data())
def test_subtraction_undoes_addition(schema: snb.Schema, data: st.DataObject) -> None:
    """(a + b) − b is a and a − a is empty, to the byte; the operands stay as they were."""
    one, two = data.draw(states(schema)), data.draw(states(schema))
    both = one + two
    before = both.to_bytes(), two.to_bytes()
    assert (both - two).to_bytes() == one.to_bytes()
    assert (both - one).to_bytes() == two.to_bytes()
    assert (one - one).to_bytes() == snb.State(schema).to_bytes()
    assert (both.to_bytes(), two.to_bytes()) == before
    both.subtract(two)
    assert both.to_bytes() == one.to_bytes()


@each_schema
@given(data=st.data())
def test_more_than_was_counted_is_refused(schema: snb.Schema, data: st.DataObject) -> None:
    """Rows that were not all counted are refused, and nothing is changed."""
    one, more = data.draw(states(schema)), data.draw(batches(min_size=1))
    too_much = one.copy()
    too_much.update(more)
    before = one.to_bytes()
    if too_much == one:
        return  # rows of weight 0 are no rows
    with pytest.raises(snb.MergeError, match="Expected only rows that were counted, got"):
        one.subtract(too_much)
    assert one.to_bytes() == before


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ({"y": "c"}, "rows of class 'c', of which none were counted"),
        ({"site": "west"}, "category 'west', which was not counted - column 'site'"),
        ({"site": "south"}, "category 'south' more often in class 'a' than it was counted - column 'site'"),
        ({"notes": "wind"}, "token 'wind' more often in class 'a' than it was counted - column 'notes'"),
        ({"amount": 100.0}, "other rows of class 'a' than were counted - column 'amount'"),
        ({"far": 100.0}, "other rows of class 'a' than were counted - column 'far'"),
        ({"y": None}, "more rows without a label than were counted"),
    ],
)
def test_what_was_never_counted_is_named(gone: dict[str, Any], message: str) -> None:
    """Class, category, token or column: the message names what cannot be taken out, and nothing changes."""
    row = {"y": "a", "far": 1.0, "near": 1.0, "site": "north", "flag": True, "amount": 2.0, "notes": "rain", "w": 1.0}
    state = counted(PLAIN, [batch_of([row, row | {"far": 2.0}, row | {"y": "b", "site": "south"}])])
    before = state.to_bytes()
    with pytest.raises(snb.MergeError, match="Expected only rows that were counted, got " + message):
        state.subtract(counted(PLAIN, [batch_of([row | gone])]))
    assert state.to_bytes() == before


def test_counts_are_subtracted_without_exact() -> None:
    """Whole numbers are exact anyway: categories, bits, counts and tokens need no `exact`."""
    schema = snb.Schema(label="y", categorical=["site"], binary=["flag"], counts=["amount"], text=["notes"])
    rows = [
        {"y": "a", "site": "north", "flag": True, "amount": 3.0, "notes": "rain rain sun"},
        {"y": "a", "site": "south", "flag": False, "amount": 1.0, "notes": "fog"},
        {"y": "b", "site": "east", "flag": None, "amount": 2.0, "notes": "snow rain"},
    ]
    one, two = counted(schema, [batch_of(rows[:2])]), counted(schema, [batch_of(rows[2:])])
    assert (one + two - two).to_bytes() == one.to_bytes()
    assert (one + two - one).to_bytes() == two.to_bytes()
    with pytest.raises(snb.MergeError, match="rows of class 'b', of which none were counted"):
        one + two - two - (two + two)


@pytest.mark.parametrize(
    ("blocks", "what"),
    [
        ({"numeric": ["far"]}, r"rounded moments \(numeric column 'far'\)"),
        ({"categorical": ["site"], "weight": "w"}, r"rounded sums of weights \(weight column 'w'\)"),
        ({"counts": ["amount"]}, r"rounded sums of fractions \(counts column 'amount'\)"),
        ({"text": [snb.Text("notes", normalize="l1")]}, r"rounded sums of what tokens count .*"),
        ({"text": [snb.Text("notes", buckets=8)]}, r"buckets that show the smallest of their tokens .*"),
    ],
)
def test_rounded_sums_are_not_subtracted(blocks: dict[str, Any], what: str) -> None:
    """Without `exact`, a difference would keep what rounding left: refused, with the two ways out."""
    row = {"y": "a", "far": 0.1, "site": "north", "amount": 0.1, "notes": "rain sun", "w": 0.1}
    state = counted(snb.Schema(label="y", **blocks), [batch_of([row])])
    with pytest.raises(snb.MergeError, match=f"{what}; train with .*exact=True.* or merge the states of the shards"):
        state.subtract(state)


def test_exact_and_rounded_states_do_not_mix() -> None:
    """An exact state stays exact: it does not merge with one that has rounded."""
    one, two = snb.State(snb.Schema("y", ["x"], exact=True)), snb.State(snb.Schema("y", ["x"]))
    for change in (one.merge, one.subtract):
        with pytest.raises(snb.MergeError, match="Expected states with exact=True, got exact=False"):
            change(two)


# --- the ends of floats -----------------------------------------------------------------------------------------------


def test_what_no_float_holds_is_refused_at_finish() -> None:
    """Sums have room for anything; what a model cannot hold is an error that names the column, and not before."""
    schema = snb.Schema(label="y", numeric=["far"], counts=["amount"], weight="w", exact=True)
    rows = {"y": ["a"] * 3, "far": [0.0] * 3, "amount": [1.0] * 3, "w": [1.0] * 3}
    for column, large in (("far", [-1e308, 0.0, 1e308]), ("amount", [1e308] * 3), ("w", [1e308] * 3)):
        table = pa.table(rows | {column: large})
        state = counted(schema, [table])
        for look in (state.finish, state.to_table):
            with pytest.raises(snb.DataError, match=f"overflow - column '{column}'"):
                look()
        assert (state - counted(schema, [table.slice(1)])) == counted(schema, [table.slice(0, 1)])


def test_infinity_and_negative_counts_are_refused_as_ever() -> None:
    """What cannot be counted is refused with column and row, and nothing of the batch is counted."""
    state = snb.State(PLAIN)
    row = {"y": "a", "far": 1.0, "near": 1.0, "site": "north", "flag": True, "amount": 2.0, "notes": "rain", "w": 1.0}
    for column, value, message in (
        ("far", float("-inf"), "Expected a finite number, got -inf - column 'far', row 1"),
        ("amount", -1.0, "Expected a count of at least 0, got -1.0 - column 'amount', row 1"),
    ):
        with pytest.raises(snb.DataError, match=message):
            state.update(batch_of([row, row | {column: value}]))
        assert state == snb.State(PLAIN)


def test_infinity_may_be_missing() -> None:
    """With infinite="missing" an infinite cell is as good as none."""
    schema = snb.Schema("y", ["x"], infinite="missing", exact=True)
    one = counted(schema, [pa.table({"y": ["a"] * 3, "x": [1.0, float("inf"), 0.1]})])
    two = counted(schema, [pa.table({"y": ["a"] * 3, "x": [0.1, None, 1.0]})])
    assert one == two
    assert one.missing() == {"x": {"a": 1}}
