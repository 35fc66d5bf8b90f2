"""Cases from people who do this job: faults met with learners and engines like this one, each with the right value.

Exact values were made by `fractions` on the inputs and 60-digit logarithms. C21 and C22 (Kafka) have no tests here.
Tolerance: 1e-12 relative for count models, 1e-9 for Gaussians, unless a value is exact.
"""

from __future__ import annotations

import datetime
import io
import itertools
import json
import math
import os
import pickle
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import streamnb as snb
from streamnb import statefile

ROOT = Path(__file__).parents[1]


def counted(schema: snb.Schema, *data: Any, shard: str | None = None) -> snb.State:
    """Return the state that has counted some batches."""
    state = snb.State(schema, shard=shard)
    for each in data:
        state.update(each)
    return state


def number(state: snb.State, what: str, feature: str | None, label: Any, category: str | None = None) -> Any:
    """Return one number of the state's tidy content."""
    found = [
        line[what]
        for line in state.to_table().to_pylist()
        if (line["feature"], line["class"], line["category"]) == (feature, label, category)
    ]
    assert len(found) == 1, found
    return found[0]


def probability(model: snb.Predictor, label: Any, **row: Any) -> float:
    """Return the posterior of a label for one row."""
    proba = model.predict_proba(pa.table({name: [value] for name, value in row.items()}))
    assert_allclose(proba.sum(), 1.0, rtol=0, atol=1e-12)
    return float(proba[0, model.classes.to_pylist().index(label)])


def joint(model: snb.Predictor, **row: Any) -> list[float]:
    """Return the joint log probabilities of one row."""
    return model.predict_joint_log_proba(pa.table({name: [value] for name, value in row.items()}))[0].tolist()


def merges(states: Sequence[snb.State]) -> Iterable[snb.State]:
    """Yield the states merged left to right in six orders, right to left, and as trees."""
    step = max(1, math.factorial(len(states)) // 6) if len(states) < 7 else 1
    for order in itertools.islice(itertools.permutations(states), 0, 6 * step, step):
        yield reduce(add, order)
        yield reduce(lambda total, state: state + total, order)
        if len(order) >= 4:
            yield reduce(add, order[:2]) + reduce(add, order[2:])


def feeds(schema: snb.Schema, table: pa.Table) -> Iterable[snb.State]:
    """Yield the state of a table counted at once, row by row, and as one shard per row merged in many trees."""
    yield counted(schema, table)
    rows = [table.slice(i, 1) for i in range(len(table))]
    yield counted(schema, *rows)
    yield counted(schema, *rows[::-1])
    yield from merges([counted(schema, row) for row in rows])


X = snb.Schema(label="y", numeric=["x"])


def labelled(x: Any, y: Sequence[Any], **more: Any) -> pa.Table:
    """Return a table of one feature x and a label y."""
    return pa.table({"x": x, "y": list(y), **more})


# --- C01: variance of a column that lies far from zero ----------------------------------------------------------------

FAR: dict[str, tuple[list[Any], pa.DataType]] = {
    "1e9 double": ([10**9 + k for k in (1, 2, 3, 11, 13)], pa.float64()),
    "1e9 int32": ([10**9 + k for k in (1, 2, 3, 11, 13)], pa.int32()),
    "1e9 uint32": ([10**9 + k for k in (1, 2, 3, 11, 13)], pa.uint32()),
    "1e15 double": ([10**15 + k for k in (1, 2, 3, 11, 13)], pa.float64()),
    "1e15 int64": ([10**15 + k for k in (1, 2, 3, 11, 13)], pa.int64()),
    "-1e15 int64": ([-(10**15) + k for k in (1, 2, 3, 11, 13)], pa.int64()),
}


@pytest.mark.parametrize("kind", FAR)
def test_c01_variance_far_from_zero(kind: str) -> None:
    """C01: 2/3 and 1 at 1e9 and 1e15, at once, row by row and merged; sums of squares give 0 or less."""
    values, dtype = FAR[kind]
    table = labelled(pa.array(values, dtype), ["ok"] * 3 + ["bad"] * 2)
    for state in feeds(X, table):
        assert (number(state, "count", "x", "ok"), number(state, "count", "x", "bad")) == (3, 2)
        assert number(state, "mean", "x", "ok") == values[1]
        assert number(state, "mean", "x", "bad") == values[3] + 1
        assert_allclose(number(state, "variance", "x", "ok"), 2 / 3, rtol=1e-15)
        assert_allclose(number(state, "variance", "x", "bad"), 1.0, rtol=1e-15)


def test_c01_scores_far_from_zero() -> None:
    """C01: joint log probabilities and posteriors at 1e9, without and with the default smoothing."""
    table = labelled([1e9 + k for k in (1, 2, 3, 11, 13)], ["ok"] * 3 + ["bad"] * 2)
    for state in feeds(X, table):
        exact = state.finish(numeric=snb.Gaussian(var_smoothing=0.0))
        bad, ok = joint(exact, x=1000000005.0)
        assert_allclose([ok, bad], [-7.977031602916581234, -26.335229265078827807], rtol=1e-9)
        assert_allclose(probability(exact, "bad", x=1000000005.0), 1.0644764384e-8, rtol=1e-9)
        assert_allclose(probability(state.finish(), "bad", x=1000000005.0), 1.0644768245e-8, rtol=1e-9)


def test_c01_nanoseconds() -> None:
    """C01: instants in nanoseconds as int64, where a float64 has a step of 256: variance 2/3 · 2^20."""
    table = labelled(pa.array([1_700_000_000_000_000_000 + k for k in (0, 1024, 2048)]), "aaa")
    for state in feeds(X, table):
        assert number(state, "mean", "x", "a") == 1_700_000_000_000_001_024
        assert_allclose(number(state, "variance", "x", "a"), 699050.66666666666, rtol=1e-15)


def test_c01_a_mean_between_two_floats() -> None:
    """C01's neighbour: a mean at 1e9 that no float64 holds (…+ 7/3); the score keeps 1e-9 all the same."""
    values = [10**9 + k for k in (1, 2, 4)]
    mean = Fraction(sum(values), 3)
    variance = sum((value - mean) ** 2 for value in values) / 3
    at = 10**9 + 11
    expected = -0.5 * math.log(2 * math.pi * variance) - float((at - mean) ** 2 / (2 * variance))
    for state in feeds(X, labelled([float(value) for value in values], "aaa")):
        assert_allclose(number(state, "variance", "x", "a"), float(variance), rtol=1e-14)
        model = state.finish(numeric=snb.Gaussian(var_smoothing=0.0))
        assert_allclose(joint(model, x=float(at)), [expected], rtol=1e-12)
        assert_allclose(joint(snb.Predictor.from_bytes(model.to_bytes()), x=float(at)), [expected], rtol=1e-12)


def test_c01_two_far_classes_with_little_spread() -> None:
    """C01's neighbour: means 1e9 apart with spread 1e-3; the expanded square would cancel, the direct form does not."""
    values = [1e9, 1e9 + 2**-9, 0.0, 2**-9]
    state = counted(X, labelled(values, "aabb"))
    model = state.finish(numeric=snb.Gaussian(var_smoothing=0.0))
    s = 2.0**-10
    near = math.log(0.5) - 0.5 * math.log(2 * math.pi * s * s)
    for at, centre in ((1e9 + 2**-8, 0), (2.0**-8, 1)):
        assert_allclose(joint(model, x=at)[centre], near - 0.5 * 9, rtol=1e-9)


# --- C02: merging with an empty state ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_c02_merging_with_an_empty_state(weighted: bool) -> None:
    """C02: a shard without a row of the class, or without rows at all, changes nothing in any of the six orders."""
    schema = snb.Schema(label="y", numeric=["x"], weight="w" if weighted else None)
    only_b = counted(schema, labelled([1.0, 2.0, 3.0], "bbb", w=[1.0] * 3))
    only_a = counted(schema, labelled([2.0, 4.0], "aa", w=[1.0] * 2))
    nothing = snb.State(schema)
    found = {reduce(add, order).to_bytes() for order in itertools.permutations([only_b, only_a, nothing])}
    assert len(found) == 1
    total = snb.State.from_bytes(found.pop())
    assert [number(total, what, "x", "a") for what in ("count", "mean", "variance")] == [2, 3.0, 1.0]


def test_c02_a_huge_value_beside_an_empty_state() -> None:
    """C02: a single 1e200 has variance 0; its square is never taken."""
    only_b = counted(X, labelled([1.0, 2.0, 3.0], "bbb"))
    huge = counted(X, labelled([1e200], "a"))
    found = {reduce(add, order).to_bytes() for order in itertools.permutations([only_b, huge, snb.State(X)])}
    assert len(found) == 1
    total = snb.State.from_bytes(found.pop())
    assert [number(total, what, "x", "a") for what in ("count", "mean", "variance")] == [1, 1e200, 0.0]


def test_c02_nothing_and_nothing() -> None:
    """C02: empty + empty is empty; finishing it says that there are no training rows."""
    nothing = snb.State(X) + snb.State(X)
    assert nothing == snb.State(X)
    assert nothing.n_rows == 0
    with pytest.raises(snb.EmptyStateError, match="Expected rows to finish from, got a state without training rows"):
        nothing.finish()


def test_c02_a_column_without_a_value_in_one_shard() -> None:
    """C02's neighbour: a class whose column has no value in one shard; in every block of features."""
    schema = snb.Schema(label="y", numeric=["x"], categorical=["c"], binary=["b"], counts=["n"])
    types = {"x": pa.float64(), "c": pa.string(), "b": pa.bool_(), "n": pa.int64(), "y": pa.string()}
    gone = pa.table({name: pa.array([None, "a" if name == "y" else None][1:], kind) for name, kind in types.items()})
    there = pa.table({"x": [1.0, 2.0], "c": ["u", "v"], "b": [True, False], "n": [1, 2], "y": ["a", "a"]})
    one, two = counted(schema, gone), counted(schema, there)
    assert (one + two).to_bytes() == (two + one).to_bytes()
    total = one + two
    assert total.n_rows == 3
    assert [number(total, what, "x", "a") for what in ("count", "mean", "variance")] == [2, 1.5, 0.25]
    assert number(total, "count", "c", "a", "u") == 1
    assert number(total, "total", "b", "a") == 1.0
    assert number(total, "total", "n", "a") == 3.0


# --- C03: the answer depends on the order in which shards are merged --------------------------------------------------


def test_c03_counts_are_exact_in_every_order() -> None:
    """C03: unweighted counts, sums of whole numbers and category counts are the same in every order, to the bit."""
    schema = snb.Schema(label="y", categorical=["c"], binary=["b"], counts=["n"])
    rows = pa.table(
        {
            "y": ["a"] * 10 + ["b"],
            "c": ["u", "v"] * 5 + ["u"],
            "b": [True] * 11,
            "n": [2**40 + k for k in range(11)],
        }
    )
    shards = [counted(schema, rows.slice(i, n)) for i, n in ((0, 1), (1, 3), (4, 4), (8, 3))]
    assert len({state.to_bytes() for state in merges(shards)}) == 1


def test_c03_weighted_totals_are_within_one_step() -> None:
    """C03: ten weights of 0.1 sum to 1.0 exactly rounded, and to its neighbour when added left to right.

    Without `exact=True` (for which see test_exact_laws), sums of weights are float64 sums, and two orders of merging
    may differ in the last digit: the total is within one step (ulp) of 1.0, row counts are exact, and `fit` merges in
    the order of the shards, so that the same data always give one answer. A tie of posteriors goes to the first label
    in sorted order.
    """
    schema = snb.Schema(label="y", numeric=["x"], weight="w")
    table = labelled([1.0] * 11, "a" * 10 + "b", w=[0.1] * 10 + [1.0])
    totals = set()
    for cuts in ((0, 11), (0, 5, 11), (0, 1, 4, 8, 11), tuple(range(12))):
        shards = [counted(schema, table.slice(i, j - i)) for i, j in itertools.pairwise(cuts)]
        for total in (reduce(add, shards), reduce(add, shards[::-1]), *itertools.islice(merges(shards), 8)):
            totals.add(number(total, "weight", None, "a"))
            assert number(total, "count", None, "a") == 10
            model = total.finish(numeric=snb.Gaussian(epsilon=1.0))
            assert_allclose(probability(model, "a", x=1.0), 0.5, rtol=1e-15)
    assert all(abs(total - 1.0) <= math.ulp(1.0) for total in totals)


def test_c03_a_tie_goes_to_the_first_label() -> None:
    """C03: equal posteriors give the first label in sorted order, in whatever order labels arrived."""
    for labels in ("ba", "ab"):
        model = counted(X, labelled([1.0, 1.0], labels)).finish(numeric=snb.Gaussian(epsilon=1.0))
        assert model.predict(pa.table({"x": [1.0, 5.0, None]})).to_pylist() == ["a", "a", "a"]


# --- C04: accumulators too narrow for the column's or the counter's type ----------------------------------------------

NARROW: dict[str, tuple[pa.DataType, list[Any], Fraction, Fraction]] = {
    "float32": (pa.float32(), [16777216, 1, 1, 1, 1], Fraction(3355444), Fraction(45035990904996)),
    "float16": (pa.float16(), [60000, 40000], Fraction(50000), Fraction(100000000)),
    "uint8": (pa.uint8(), [200, 100], Fraction(150), Fraction(2500)),
    "int8": (pa.int8(), [-128, 127, 127], Fraction(42), Fraction(14450)),
    "int16": (pa.int16(), [32767, -32768], Fraction(-1, 2), Fraction(65535**2, 4)),
    "uint32": (pa.uint32(), [4294967295, 4294967293], Fraction(4294967294), Fraction(1)),
}


@pytest.mark.parametrize("kind", NARROW)
def test_c04_moments_of_narrow_columns(kind: str) -> None:
    """C04: mean and variance of columns whose own type could not hold the sum, or not the deviation."""
    dtype, values, mean, variance = NARROW[kind]
    column = pa.array(np.array(values, np.float16) if kind == "float16" else values, dtype)
    for state in feeds(X, labelled(column, "a" * len(values))):
        assert_allclose(number(state, "mean", "x", "a"), float(mean), rtol=1e-15)
        assert_allclose(number(state, "variance", "x", "a"), float(variance), rtol=1e-12)


@pytest.mark.parametrize("dtype", [pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint64(), pa.float32()])
def test_c04_totals_of_narrow_counts(dtype: pa.DataType) -> None:
    """C04: uint8 counts 200 and 100 add up to 300."""
    schema = snb.Schema(label="y", counts=["x"])
    for state in feeds(schema, labelled(pa.array([200, 100], dtype), "aa")):
        assert number(state, "total", "x", "a") == 300.0


def test_c04_counters_wider_than_32_bits() -> None:
    """C04: three rows doubled 31 times are 6442450944 rows; the prior stays 2/3."""
    schema = snb.Schema(label="y", numeric=["x"], categorical=["c"], binary=["b"], counts=["n"])
    state = counted(
        schema, pa.table({"y": ["a", "a", "b"], "x": [1.0, 2.0, 3.0], "c": ["u"] * 3, "b": [1] * 3, "n": [1] * 3})
    )
    for _ in range(31):
        state.merge(state.copy())
    assert state.n_rows == 6442450944
    assert number(state, "count", None, "a") == number(state, "count", "x", "a") == 4294967296
    assert number(state, "count", None, "b") == number(state, "count", "c", "b", "u") == 2147483648
    assert number(state, "count", "b", "a") == number(state, "count", "n", "a") == 4294967296
    assert_allclose(np.exp(state.finish().class_log_prior), [2 / 3, 1 / 3], rtol=1e-15)


def test_c04_one_row_beside_two_to_the_53() -> None:
    """C04: 2^53 rows and one more are 9007199254740993, which no float64 holds."""
    schema = snb.Schema(label="y", numeric=["x"], categorical=["c"])
    one = counted(schema, pa.table({"y": ["a"], "x": [1.0], "c": ["u"]}))
    state = one.copy()
    for _ in range(53):
        state.merge(state.copy())
    state.update(pa.table({"y": ["a"], "x": [1.0], "c": ["u"]}))
    assert state.n_rows == 9007199254740993
    assert number(state, "count", "x", "a") == number(state, "count", "c", "a", "u") == 9007199254740993
    assert snb.State.from_bytes(state.to_bytes()).n_rows == 9007199254740993


# --- C05: negative, NaN, infinite or fractional values in count models ------------------------------------------------

PAIR = snb.Schema(label="y", counts=["u", "v"])


def pair(u: Sequence[Any], v: Sequence[Any], y: str | None = None) -> pa.Table:
    """Return a table of two counts columns, and labels if given."""
    return pa.table({"u": u, "v": v} | ({} if y is None else {"y": list(y)}))


@pytest.mark.parametrize("family", [snb.Multinomial(), snb.Complement(), snb.Complement(norm=True)])
def test_c05_negative_counts(family: Any) -> None:
    """C05: a negative count is refused in training, with nothing of its batch counted, and in prediction alike."""
    state = counted(PAIR, pair([1, 0], [1, 2], "ab"))
    before = state.to_bytes()
    with pytest.raises(snb.DataError, match=r"Expected a count of at least 0, got -1.*column 'v', row 1"):
        state.update(pair([1, 1], [0, -1], "ab"))
    assert state.to_bytes() == before
    with pytest.raises(snb.DataError, match=r"Expected a count of at least 0, got -1.*column 'v', row 0"):
        state.finish(counts=family).predict(pair([1], [-1]))
    with pytest.raises(snb.DataError, match=r"Expected a count of at least 0, got -0.5.*column 'u', row 1"):
        state.finish(counts=family).predict_proba(pair([1, -0.5], [1, 1]))


@pytest.mark.parametrize("kind", ["numeric", "counts"])
@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_c05_infinite_values(kind: str, value: float) -> None:
    """C05: ±inf is refused in training and prediction, with column and row; `infinite="missing"` opts out."""
    schema = snb.Schema(label="y", **{kind: ["u", "v"]})
    state = counted(schema, pair([1.0, 0.5], [1.0, 2.0], "ab"))
    before = state.to_bytes()
    with pytest.raises(snb.DataError, match=f"Expected a finite number, got {value}.*column 'v', row 2"):
        state.update(pair([1.0, 1.0, 0.0], [1.0, 0.0, value], "aba"))
    assert state.to_bytes() == before
    with pytest.raises(snb.DataError, match=f"Expected a finite number, got {value}.*column 'v', row 1"):
        state.finish(numeric=snb.Gaussian(epsilon=1.0)).predict(pair([1.0, 1.0], [1.0, value]))
    lenient = snb.Schema(label="y", infinite="missing", **{kind: ["u", "v"]})
    with_infinity = counted(lenient, pair([1.0, 0.5, 1.0], [1.0, 2.0, value], "aba"))
    with_null = counted(lenient, pair([1.0, 0.5, 1.0], [1.0, 2.0, None], "aba"))
    assert with_infinity == with_null
    model = with_infinity.finish(numeric=snb.Gaussian(epsilon=1.0))
    scores = model.predict_proba(pair([1.0, 1.0], [value, None]))
    assert scores[0].tolist() == scores[1].tolist()


def test_c05_infinite_values_of_thresholded_columns() -> None:
    """C05's neighbour: a threshold would swallow inf as a 1; it is refused, or missing, as in the other blocks."""
    schema = snb.Schema(label="y", binary=["u", "v"], binarize=0.5)
    state = counted(schema, pair([1.0, 0.25], [1.0, 2.0], "ab"))
    with pytest.raises(snb.DataError, match=r"Expected a finite number, got inf.*column 'v', row 1"):
        state.update(pair([1.0, 1.0], [1.0, math.inf], "ab"))
    with pytest.raises(snb.DataError, match=r"Expected a finite number, got -inf.*column 'u', row 0"):
        state.finish().predict(pair([-math.inf], [1.0]))
    lenient = snb.Schema(label="y", binary=["u", "v"], binarize=0.5, infinite="missing")
    assert counted(lenient, pair([1.0], [math.inf], "a")) == counted(lenient, pair([1.0], [None], "a"))


def test_c05_nan_and_minus_zero_are_missing_and_zero() -> None:
    """C05: NaN is a missing cell, −0.0 is 0."""
    nan = counted(PAIR, pair([1.0, -0.0], [1.0, math.nan], "ab"))
    null = counted(PAIR, pair([1.0, 0.0], [1.0, None], "ab"))
    assert nan == null
    model = nan.finish()
    scores = model.predict_proba(pair([1.0, 1.0, -0.0, 0.0], [math.nan, None, 1.0, 1.0]))
    assert scores[0].tolist() == scores[1].tolist()
    assert scores[2].tolist() == scores[3].tolist()


def test_c05_fractions_are_counts() -> None:
    """C05: multinomial takes fractions; P(a | 1, 0.5) by the formula."""
    model = counted(PAIR, pair([1.0, 0.0], [0.5, 2.0], "ab")).finish()
    assert_allclose(probability(model, "a", u=1.0, v=0.5), 0.63340926038404068682, rtol=1e-12)


@pytest.mark.parametrize("dtype", [pa.float64(), pa.float32(), pa.float16()])
def test_c05_fractional_categories_stay_apart(dtype: pa.DataType) -> None:
    """C05: 0.2 and 0.9 are two categories, never both the integer 0."""
    schema = snb.Schema(label="y", categorical=["x"])
    state = counted(schema, labelled(pa.array(np.array([0.25, 0.875, 1.5], dtype.to_pandas_dtype()), dtype), "aab"))
    assert {line["category"] for line in state.to_table().to_pylist()} == {None, "0.25", "0.875", "1.5"}
    assert_allclose(probability(state.finish(), "a", x=0.25), (2 / 3 * 2 / 5) / (2 / 3 * 2 / 5 + 1 / 3 * 1 / 4))


def test_c05_bernoulli_with_a_threshold_takes_negatives() -> None:
    """C05: with `binarize` any number is 0 or 1; without it −1 is refused, at prediction too."""
    schema = snb.Schema(label="y", binary=["u", "v"], binarize=0.0)
    state = counted(schema, pair([1, -3], [-1, 2], "ab"))
    assert number(state, "total", "u", "a") == 1.0
    assert number(state, "total", "v", "a") == 0.0
    assert state.finish().predict(pair([-5], [7])).to_pylist() == ["b"]
    strict = snb.Schema(label="y", binary=["u", "v"])
    with pytest.raises(snb.DataError, match=r"Expected 0 or 1, got -3.*column 'u', row 1"):
        counted(strict, pair([1, -3], [0, 1], "ab"))
    with pytest.raises(snb.DataError, match=r"Expected 0 or 1, got 0.5.*column 'v', row 0"):
        counted(strict, pair([1], [1], "a")).finish().predict(pair([1.0], [0.5]))


# --- C06: variance smoothing taken from the last batch only -----------------------------------------------------------

C06_BATCHES = [
    labelled([1.0, 3.0, 2.0, 2.0], "aabb"),
    labelled([0.0, 2000000.0, 1000000.0], "ccc"),
    labelled([2.0, 10000000.0], "ac"),
]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_c06_smoothing_comes_from_all_rows(order: tuple[int, int]) -> None:
    """C06: ε is that of all rows seen, in whatever order they came."""
    model = counted(X, *(C06_BATCHES[i] for i in order)).finish()
    assert_allclose(
        model.numeric.variance.ravel(), [531.6112653073877, 530.6112653073877, 666666667197.278], rtol=1e-12
    )
    found = [probability(model, label, x=2.2) for label in "abc"]
    assert_allclose(found, [0.49975966453760021552, 0.50023033564457049023, 9.999817829e-6], rtol=1e-9)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_c06_smoothing_after_every_order_of_three_batches(order: tuple[int, ...]) -> None:
    """C06: after three batches in every order, at once and merged, the variances are those of the whole."""
    batches = [C06_BATCHES[i] for i in order]
    right = [9580.910370371581, 9580.243703704913, 15687500009580.244]
    for state in (
        counted(X, *batches),
        counted(X, pa.concat_tables(batches)),
        reduce(add, [counted(X, batch) for batch in batches]),
    ):
        assert_allclose(state.finish().numeric.variance.ravel(), right, rtol=1e-12)
        assert_allclose(number(state, "variance", "x", "a"), 2 / 3, rtol=1e-12)


# --- C07: one row per batch -------------------------------------------------------------------------------------------

C07 = pa.table({"x1": [1.0, 3.0, 10.0, 14.0], "x2": [5.0, 5.0, 5.0, 9.0], "y": list("aabb")})
TWO = snb.Schema(label="y", numeric=["x1", "x2"])


def test_c07_one_row_per_batch() -> None:
    """C07: single rows give the model of the four rows, with a column that is constant within a class."""
    for state in feeds(TWO, C07):
        model = state.finish()
        assert_allclose(model.numeric.variance, [[1 + 2.75e-8, 2.75e-8], [4 + 2.75e-8, 4 + 2.75e-8]], rtol=1e-12)
        assert_allclose(joint(model, x1=5.0, x2=5.0), [1.6735157791676487664, -10.542318569417306701], rtol=1e-9)
        assert_allclose(probability(model, "b", x1=5.0, x2=5.0), 4.9514044220358687784e-6, rtol=1e-9)


# --- C08: a declared class that has not been seen yet -----------------------------------------------------------------


def test_c08_declared_class_of_counts() -> None:
    """C08: before any row of c its probability is exactly 0, without a warning; after it, 3125/11684 for c."""
    schema = snb.Schema(label="y", counts=["u", "v"], classes=["a", "b", "c"])
    first = counted(schema, pair([2, 0, 1], [0, 1, 1], "aab"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = first.finish()
        found = model.predict_proba(pair([1], [2]))[0]
        log_proba = model.predict_log_proba(pair([1], [2]))[0]
    assert model.classes.to_pylist() == ["a", "b", "c"]
    assert_allclose(found[:2], [192 / 317, 125 / 317], rtol=1e-12)
    assert found[2] == 0.0
    assert log_proba[2] == -math.inf
    assert model.class_log_prior[2] == -math.inf
    assert "c" not in model.predict(pair([0, 0, 9, 1], [0, 9, 0, 1])).to_pylist()
    second = counted(schema, pair([0], [4], "c"))
    for state in (first + second, second + first):
        after = state.finish().predict_proba(pair([1], [2]))[0]
        assert_allclose(after, [1296 / 2921, 3375 / 11684, 3125 / 11684], rtol=1e-12)


def test_c08_declared_class_of_numbers() -> None:
    """C08: with Gaussians a and b stay exactly as without c, and c has probability 0."""
    schema = snb.Schema(label="y", numeric=["x1", "x2"], classes=["c", "a", "b"])
    plain, model = counted(TWO, C07).finish(), counted(schema, C07).finish()
    table = pa.table({"x1": [5.0, 1.0], "x2": [5.0, None]})
    assert_allclose(
        model.predict_joint_log_proba(table)[:, :2], plain.predict_joint_log_proba(table), rtol=1e-14, atol=1e-14
    )
    assert model.predict_proba(table)[:, 2].tolist() == [0.0, 0.0]
    assert_allclose(probability(model, "b", x1=5.0, x2=5.0), 4.9514044220358687784e-6, rtol=1e-9)


def test_c08_declared_class_of_mixed_columns() -> None:
    """C08's neighbours: the declared class beside categories and 0/1 columns, with every prior."""
    schema = snb.Schema(label="y", numeric=["x"], categorical=["c"], binary=["b"], classes=["new", "old"])
    state = counted(schema, pa.table({"y": ["old"] * 2, "x": [1.0, 2.0], "c": ["u", "v"], "b": [True, False]}))
    row = pa.table({"x": [1.5], "c": ["u"], "b": [True]})
    assert state.finish().predict_proba(row).tolist() == [[0.0, 1.0]]
    assert state.finish(prior_alpha=1.0).class_log_prior.tolist() == [math.log(1 / 4), math.log(3 / 4)]
    uniform = state.finish(class_prior="uniform")
    assert np.isfinite(uniform.predict_log_proba(row)).all()
    assert state.n_rows == 2
    assert state.classes.to_pylist() == ["old"]


# --- C09: α = 0 in multinomial and complement models ------------------------------------------------------------------

THREE = snb.Schema(label="y", counts=["u", "v", "w"])


def triple(rows: Sequence[Sequence[float]], y: str | None = None) -> pa.Table:
    """Return a table of three counts columns from rows."""
    columns = {name: [row[j] for row in rows] for j, name in enumerate("uvw")}
    return pa.table(columns | ({} if y is None else {"y": list(y)}))


@pytest.mark.parametrize("family", [snb.Multinomial(alpha=0.0), snb.Complement(alpha=0.0)])
def test_c09_no_smoothing(family: Any) -> None:
    """C09: with α = 0 a count of 0 contributes 0, whatever the logarithm; the impossible row gets 1/2, 1/2, not NaN."""
    model = counted(THREE, triple([[2, 0, 1], [0, 3, 1]], "xy")).finish(counts=family)
    table = triple([[1, 0, 0], [0, 1, 0], [0, 0, 2], [1, 1, 0], [0, 0, 0]])
    proba = model.predict_proba(table)
    assert proba[0].tolist() == [1.0, 0.0]
    assert proba[1].tolist() == [0.0, 1.0]
    assert_allclose(proba[2], [16 / 25, 9 / 25], rtol=1e-12)
    assert_allclose(proba[3:], 0.5, rtol=1e-12)
    assert model.predict(table).to_pylist() == ["x", "y", "x", "x", "x"]
    assert not np.isnan(model.predict_log_proba(table)).any()
    assert not np.isnan(model.predict_joint_log_proba(table)).any()


def test_c09_an_impossible_row_gets_the_prior() -> None:
    """C09: the policy where every class is impossible is the prior, whose largest class is the label."""
    model = counted(THREE, triple([[2, 0, 1], [0, 3, 1], [0, 3, 1]], "xyy")).finish(counts=snb.Multinomial(alpha=0.0))
    assert_allclose(model.predict_proba(triple([[1, 1, 0]])), [[1 / 3, 2 / 3]], rtol=1e-12)
    assert_allclose(model.predict_log_proba(triple([[1, 1, 0]])), np.log([[1 / 3, 2 / 3]]), rtol=1e-12)
    assert model.predict(triple([[1, 1, 0]])).to_pylist() == ["y"]


def test_c09_no_smoothing_of_categories_and_bits() -> None:
    """C09's neighbours: α = 0 for categories and 0/1 columns; impossible is impossible, all impossible the prior."""
    schema = snb.Schema(label="y", categorical=["c"])
    model = counted(schema, pa.table({"y": list("aab"), "c": ["u", "v", "v"]})).finish(
        categorical=snb.Categorical(alpha=0.0)
    )
    assert_allclose(
        model.predict_proba(pa.table({"c": ["u", "v", None]})), [[1, 0], [0.5, 0.5], [2 / 3, 1 / 3]], rtol=1e-12
    )
    bits = snb.Schema(label="y", binary=["u", "v"])
    model = counted(bits, pair([1, 1, 0], [0, 1, 0], "aab")).finish(binary=snb.Bernoulli(alpha=0.0))
    proba = model.predict_proba(pair([1, 0, 0, None], [1, 0, 1, 1]))
    assert_allclose(proba, [[1, 0], [0, 1], [2 / 3, 1 / 3], [1, 0]], rtol=1e-12)


def test_c09_complement_and_categories_without_smoothing() -> None:
    """C09's neighbour: +inf of one block meets −inf of another; never NaN, and the label is that of the posterior."""
    schema = snb.Schema(label="y", counts=["u", "v"], categorical=["c"])
    state = counted(schema, pa.table({"y": list("abb"), "u": [1, 0, 0], "v": [0, 1, 1], "c": ["p", "q", "q"]}))
    model = state.finish(counts=snb.Complement(alpha=0.0), categorical=snb.Categorical(alpha=0.0))
    table = pa.table({"u": [1, 1, 0, 1], "v": [0, 0, 0, 1], "c": ["p", "q", "p", None]})
    proba = model.predict_proba(table)
    assert not np.isnan(proba).any()
    assert_allclose(proba.sum(axis=1), 1.0)
    labels = model.classes.to_pylist()
    assert model.predict(table).to_pylist() == [labels[i] for i in proba.argmax(axis=1)]


# --- C10: underflow with many features or far-away points -------------------------------------------------------------


def test_c10_long_counts() -> None:
    """C10: ten thousand counts underflow every likelihood; the posterior is 2/3 to 1/3 all the same."""
    model = counted(PAIR, pair([1, 3], [3, 1], "ab")).finish()
    assert_allclose(joint(model, u=5000, v=5001), [-7521.4855961700384766, -7522.1787433505984219], rtol=1e-12)
    assert_allclose(model.predict_proba(pair([5000], [5001])), [[2 / 3, 1 / 3]], rtol=1e-11)
    log_proba = model.predict_log_proba(pair([0], [20000]))[0]
    assert_allclose(log_proba[1], -13862.943611198906188, rtol=1e-12)
    assert log_proba[0] == 0.0
    assert model.predict_proba(pair([0], [20000])).tolist() == [[1.0, 0.0]]


def test_c10_a_far_away_point() -> None:
    """C10: a million standard deviations off, log P(a) = −999999.5 and P(b) = 1."""
    model = counted(X, labelled([-1.0, 1.0, 0.0, 2.0], "aabb")).finish(numeric=snb.Gaussian(var_smoothing=0.0))
    log_proba = model.predict_log_proba(pa.table({"x": [1e6]}))[0]
    assert_allclose(log_proba[0], -999999.5, rtol=1e-9)
    assert log_proba[1] == 0.0
    assert model.predict_proba(pa.table({"x": [1e6]})).tolist() == [[0.0, 1.0]]


def test_c10_five_thousand_columns() -> None:
    """C10: five thousand equal columns; exp of the joint underflows, the posterior is 0.5249791874789399861."""
    names = [f"f{j}" for j in range(5000)]
    train = pa.table({name: [-1.0, 1.0, 0.0, 2.0] for name in names} | {"y": list("aabb")})
    model = counted(snb.Schema(label="y", numeric=names), train).finish(numeric=snb.Gaussian(var_smoothing=0.0))
    row = pa.table({name: [0.4 if name == "f0" else 0.5] for name in names})
    assert_allclose(model.predict_joint_log_proba(row)[0], [-5220.3408132039236542, -5220.4408132039236542], rtol=1e-12)
    assert_allclose(model.predict_proba(row)[0, 0], 0.5249791874789399861, rtol=1e-9)


def test_c10_a_point_beyond_all_squares() -> None:
    """C10's neighbour: 1e200 has no square in float64; impossible under every class, so the prior, and no NaN."""
    model = counted(X, labelled([-1.0, 1.0, 0.0, 2.0, 0.0], "aabbb")).finish()
    for x in (1e160, 1e200, -1e300):
        assert_allclose(model.predict_proba(pa.table({"x": [x]})), [[0.4, 0.6]], rtol=1e-9)
        assert model.predict(pa.table({"x": [x]})).to_pylist() == ["b"]


def test_c10_a_column_that_training_never_saw_a_value_of() -> None:
    """C10's neighbour: a column that was all null in training says nothing, whatever is in it later."""
    schema = snb.Schema(label="y", numeric=["x", "gone"])
    state = counted(schema, labelled([1.0, 3.0, 10.0, 14.0], "aabb", gone=pa.nulls(4, pa.float64())))
    model = state.finish()
    reference = model.predict_proba(pa.table({"x": [5.0], "gone": [None]}))
    for value in (0.0, 1.0, 1e9, 1e200, -1e308):
        assert model.predict_proba(pa.table({"x": [5.0], "gone": [value]})).tolist() == reference.tolist()


# --- C11: mixed columns: the class prior counted once per column group ------------------------------------------------


def test_c11_the_prior_enters_once() -> None:
    """C11: P(yes) = 0.749…; counting the prior once per block gives 0.498… and the other label."""
    schema = snb.Schema(label="y", numeric=["g"], categorical=["c"])
    table = pa.table(
        {
            "g": [0.0, 2.0, 0.0, 2.0, 0.0, 2.0, 3.0, 5.0],
            "c": ["r", "r", "s", "r", "r", "s", "s", "s"],
            "y": ["no"] * 6 + ["yes"] * 2,
        }
    )
    for state in (counted(schema, table), counted(schema, table.slice(5)) + counted(schema, table.slice(0, 5))):
        model = state.finish(numeric=snb.Gaussian(var_smoothing=0.0))
        assert_allclose(joint(model, g=3.0, c="s"), [-4.1874498586681799061, -3.0929149667763442881], rtol=1e-9)
        assert_allclose(probability(model, "yes", g=3.0, c="s"), 0.74923470906600882944, rtol=1e-9)
        assert model.predict(pa.table({"g": [3.0], "c": ["s"]})).to_pylist() == ["yes"]


def test_c11_the_prior_enters_once_beside_complement() -> None:
    """C11's neighbour: complement alone takes no prior; beside other blocks the prior enters once, by those."""
    schema = snb.Schema(label="y", binary=["b"], counts=["u", "v"])
    table = pa.table({"b": [1, 0, 1], "u": [1, 2, 0], "v": [1, 0, 3], "y": list("aab")})
    row = {"b": 1, "u": 1, "v": 1}
    state = counted(schema, table)
    both = joint(state.finish(counts=snb.Complement()), **row)
    bits = joint(counted(snb.Schema(label="y", binary=["b"]), table).finish(), b=1)
    counts = joint(counted(PAIR, table).finish(counts=snb.Complement()), u=1, v=1)
    assert_allclose(both, np.add(bits, counts), rtol=1e-12)


# --- C12: complement weights, their optional normalisation, and the prior ---------------------------------------------

C12 = triple([[3, 1, 0], [2, 0, 1], [0, 1, 3], [1, 4, 0]], "aabc")


def test_c12_complement_scores() -> None:
    """C12: scores and their softmax, exactly; a supplied prior changes nothing."""
    state = counted(THREE, C12)
    for prior in ("empirical", "uniform", {"a": 0.1, "b": 0.1, "c": 0.8}):
        model = state.finish(counts=snb.Complement(), class_prior=prior)
        scores = model.predict_joint_log_proba(triple([[2, 1, 0]]))[0]
        assert_allclose(scores, [math.log(72), 2.44057083596794859, 3.23504076172155615], rtol=1e-12)
        proba = model.predict_proba(triple([[2, 1, 0], [0, 1, 1]]))
        assert_allclose(proba[0], [190512 / 288115, 6075 / 57623, 67228 / 288115], rtol=1e-12)
        assert_allclose(proba[1], [360 / 2269, 1125 / 2269, 784 / 2269], rtol=1e-12)
        assert model.predict(triple([[2, 1, 0], [0, 1, 1]])).to_pylist() == ["a", "b"]


def test_c12_complement_with_the_second_normalisation() -> None:
    """C12: `norm=True` divides each class's weights by their sum."""
    model = counted(THREE, C12).finish(counts=snb.Complement(norm=True))
    assert_allclose(model.counts.score[0], [0.5, 0.193426403617270793, 0.306573596382729207], rtol=1e-12)
    scores = model.predict_joint_log_proba(triple([[2, 1, 0]]))[0]
    assert_allclose(scores, [1.19342640361727079, 0.66080429367596555, 0.94664845579699772], rtol=1e-12)


@pytest.mark.parametrize("norm", [False, True])
def test_c12_complement_of_a_single_class(norm: bool) -> None:
    """C12's neighbour: with one class there is no complement; its probability is 1."""
    model = counted(THREE, triple([[1, 2, 0]], "a")).finish(counts=snb.Complement(norm=norm))
    assert model.predict_proba(triple([[1, 0, 5], [0, 0, 0]])).tolist() == [[1.0], [1.0]]
    assert model.predict(triple([[1, 0, 5]])).to_pylist() == ["a"]


# --- C13: a category at predict time that training never saw ----------------------------------------------------------

CITY = snb.Schema(label="y", categorical=["city"])


def cities(values: Sequence[str | None], y: str | None = None, dictionary: bool = False) -> pa.Table:
    """Return a table of one categorical column."""
    column = pa.array(values, pa.string())
    return pa.table({"city": column.dictionary_encode() if dictionary else column} | ({"y": list(y)} if y else {}))


@pytest.mark.parametrize("dictionary", [False, True])
def test_c13_an_unseen_category(dictionary: bool) -> None:
    """C13: ignored (the prior), smoothed (15/22, 7/22), or an error that names column and value."""
    state = counted(CITY, cities(["x", "x", "y", "z"], "aaab", dictionary))
    table = cities(["w", "x"], dictionary=dictionary)
    assert_allclose(state.finish().predict_proba(table), [[3 / 4, 1 / 4], [6 / 7, 1 / 7]], rtol=1e-12)
    smooth = state.finish(categorical=snb.Categorical(unseen="smooth"))
    assert_allclose(smooth.predict_proba(table)[0], [15 / 22, 7 / 22], rtol=1e-12)
    slot = state.finish(categorical=snb.Categorical(unseen="smooth", min_categories=4))
    assert_allclose(slot.predict_proba(table)[0], [15 / 22, 7 / 22], rtol=1e-12)
    strict = state.finish(categorical=snb.Categorical(unseen="error"))
    with pytest.raises(snb.DataError, match="Expected a category seen in training, got 'w' - column 'city', row 0"):
        strict.predict(table)
    assert_allclose(strict.predict_proba(cities(["x", None])), [[6 / 7, 1 / 7], [3 / 4, 1 / 4]], rtol=1e-12)


def test_c13_a_late_category_grows_the_column() -> None:
    """C13: merging a shard that has w makes four categories, for all classes."""
    state = counted(CITY, cities(["x", "x", "y", "z"], "aaab"))
    late = counted(CITY, cities(["w"], "b"))
    for total in (state + late, late + state):
        expected = [3 / 5 * 3 / 7, 2 / 5 * 1 / 6]
        assert_allclose(total.finish().predict_proba(cities(["x"]))[0], np.array(expected) / sum(expected), rtol=1e-12)


# --- C14: predicting changes the model --------------------------------------------------------------------------------


def test_c14_predicting_changes_nothing() -> None:
    """C14: unknown words and categories leave no trace, after 1000 predictions, from two threads."""
    schema = snb.Schema(label="y", counts=["rain", "wind", "sun"], categorical=["city"])
    train = pa.table({"rain": [1, 0], "wind": [1, 0], "sun": [0, 1], "city": [None, None], "y": [0, 1]})
    state = counted(schema, train.set_column(3, "city", pa.array([None, None], pa.string())))
    model = state.finish()
    held, bytes_of_state = model.to_bytes(), state.to_bytes()
    rain = pa.table({"rain": [1], "wind": [0], "sun": [0], "city": ["here"]})
    assert_allclose(model.predict_proba(rain)[0, 0], 8 / 13, rtol=1e-12)
    failures = []

    def predict(thread: int) -> None:
        for k in range(500):
            row = rain.set_column(3, "city", pa.array([f"place {thread}-{k}"])).append_column("foo", pa.array([1]))
            if abs(model.predict_proba(row)[0, 0] - 8 / 13) > 1e-12:
                failures.append(k)

    threads = [threading.Thread(target=predict, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert_allclose(model.predict_proba(rain)[0, 0], 8 / 13, rtol=1e-12)
    assert model.to_bytes() == held
    assert state.to_bytes() == bytes_of_state


# --- C15: dictionaries that differ between row groups or files --------------------------------------------------------


def dictionary_batch(codes: Sequence[int | None], values: Sequence[str | None], y: str) -> pa.RecordBatch:
    """Return a batch of a dictionary-encoded colour and labels."""
    colour = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(values, pa.string()))
    return pa.record_batch({"colour": colour, "y": pa.array(list(y))})


COLOUR = snb.Schema(label="y", categorical=["colour"])
RED_BLUE = dictionary_batch([0, 1, 0], ["red", "blue"], "aba")
BLUE_FIRST = dictionary_batch([0, 0, 1, 2], ["blue", "green", "red"], "babb")


def assert_colours(state: snb.State) -> None:
    """Hold a state against the counts and posteriors of C15."""
    table = {line["category"]: 0 for line in state.to_table().to_pylist() if line["block"] == "categorical"}
    assert sorted(table) == ["blue", "green", "red"]
    found = [[number(state, "count", "colour", label, value) for value in ("red", "blue", "green")] for label in "ab"]
    assert found == [[2, 1, 0], [1, 2, 1]]
    proba = state.finish().predict_proba(pa.table({"colour": ["red", "blue", "green"]}))[:, 0]
    assert_allclose(proba, [21 / 37, 7 / 19, 7 / 23], rtol=1e-12)


def test_c15_differing_dictionaries_in_memory() -> None:
    """C15: batches, a chunked table and merged shards whose code 0 means different colours."""
    assert_colours(counted(COLOUR, RED_BLUE, BLUE_FIRST))
    assert_colours(counted(COLOUR, BLUE_FIRST, RED_BLUE))
    assert_colours(counted(COLOUR, RED_BLUE) + counted(COLOUR, BLUE_FIRST))
    assert_colours(counted(COLOUR, pa.Table.from_batches([RED_BLUE, BLUE_FIRST])))
    assert_colours(counted(COLOUR, pa.Table.from_batches([RED_BLUE, BLUE_FIRST]).unify_dictionaries()))


def test_c15_differing_dictionaries_in_files(tmp_path: Path) -> None:
    """C15: two row groups of one file, and two files, each with its own dictionary."""
    with pq.ParquetWriter(tmp_path / "both.parquet", RED_BLUE.schema) as writer:
        writer.write_batch(RED_BLUE)
        writer.write_batch(BLUE_FIRST)
    assert_colours(snb.fit(tmp_path / "both.parquet", schema=COLOUR))
    for name, batch in (("one", RED_BLUE), ("two", BLUE_FIRST)):
        pq.write_table(pa.Table.from_batches([batch]), tmp_path / f"{name}.parquet")
    for order in (["one", "two"], ["two", "one"]):
        assert_colours(snb.fit([tmp_path / f"{name}.parquet" for name in order], schema=COLOUR))


def test_c15_unused_and_null_entries() -> None:
    """C15: unused entries add no category; a null code and a null entry are missing; repeated entries are one."""
    state = counted(COLOUR, RED_BLUE, BLUE_FIRST.filter(pa.array([False, True, False, False])))
    assert {line["category"] for line in state.to_table().to_pylist()} == {None, "red", "blue"}
    gone = counted(
        COLOUR,
        dictionary_batch([0, None, 2, 0], ["red", "unused", None], "aaba"),
        dictionary_batch([0, 1, 2], ["blue", "blue", "red"], "bba"),
    )
    assert gone.missing() == {"colour": {"a": 1, "b": 1}}
    assert number(gone, "count", "colour", "a", "red") == 3
    assert number(gone, "count", "colour", "b", "blue") == 2
    proba = gone.finish().predict_proba(dictionary_batch([None, 1], ["red", None], "xx"))
    assert_allclose(proba, [[4 / 7, 3 / 7]] * 2, rtol=1e-12)


def test_c15_label_dictionaries() -> None:
    """C15's neighbour: a label column with its own dictionary per batch, unused entries and nulls of both kinds."""

    def batch(codes: Sequence[int | None], values: Sequence[str | None]) -> pa.RecordBatch:
        label = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(values, pa.string()))
        return pa.record_batch({"y": label, "x": pa.array([float(k) for k in range(len(codes))])})

    state = counted(
        X,
        batch(
            [0, 1, 0],
            [
                "b",
                "a",
            ][::1],
        ),
        batch([1, None, 2, 0], ["a", "b", None, "never"]),
    )
    assert state.classes.to_pylist() == ["a", "b"]
    assert state.classes.type == pa.string()
    assert [number(state, "count", None, label) for label in "ab"] == [2, 3]
    assert state.rows_without_label == 2
    assert number(state, "mean", "x", "b") == pytest.approx(2 / 3)


# --- C16: null, NaN and infinity in a numeric column ------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pa.float64(), pa.float32(), pa.float16()])
def test_c16_null_and_nan_are_missing(dtype: pa.DataType) -> None:
    """C16: a missing cell is skipped in its column only; the row still counts for the prior."""
    values = np.array([1, 0, 3, np.nan, 10, 14, 0, 0], dtype.to_pandas_dtype())
    column = pa.array(values, dtype, mask=np.array([0, 1, 0, 0, 0, 0, 1, 1], bool), from_pandas=False)
    for state in feeds(X, labelled(column, "aaaabbbb")):
        assert [number(state, what, "x", "a") for what in ("count", "mean", "variance")] == [2, 2.0, 1.0]
        assert [number(state, what, "x", "b") for what in ("count", "mean", "variance")] == [2, 12.0, 4.0]
        assert state.missing() == {"x": {"a": 2, "b": 2}}
        assert state.n_rows == 8
        model = state.finish(numeric=snb.Gaussian(var_smoothing=0.0))
        assert_allclose(probability(model, "a", x=5.0), 0.91036887034345979945, rtol=1e-9)
        for missing in (None, math.nan):
            found = model.predict_proba(pa.table({"x": pa.array([missing], pa.float64(), from_pandas=False)}))
            assert_allclose(found, [[0.5, 0.5]], rtol=1e-12)


def test_c16_missing_cells_of_frames() -> None:
    """C16's neighbours: NaN of a pandas frame and null of a Polars frame are the same missing cell."""
    pd = pytest.importorskip("pandas")
    columns = {"x": [1.0, None, 3.0], "y": ["a", "a", "b"]}
    state = counted(X, pl.DataFrame(columns))
    assert counted(X, pd.DataFrame({"x": [1.0, np.nan, 3.0], "y": ["a", "a", "b"]})) == state
    assert state.missing() == {"x": {"a": 1, "b": 0}}


# --- C17: files with another column order, another numeric type, an extra column --------------------------------------


def c17_files(folder: Path) -> list[Path]:
    """Write the two files of C17."""
    one = pa.table({"h": pa.array([150, 160], pa.int32()), "w": pa.array([50, 61], pa.int32()), "label": ["a", "b"]})
    two = pa.table({"w": [80.5, 70.25], "h": [180.0, 170.0], "label": ["a", "b"], "extra": [7, 8]})
    paths = [folder / "one.parquet", folder / "two.parquet"]
    for path, table in zip(paths, (one, two), strict=True):
        pq.write_table(table, path)
    return paths


def test_c17_files_of_other_order_and_types(tmp_path: Path) -> None:
    """C17: columns are matched by name and widened, in either order of the files; the extra column is ignored."""
    paths = c17_files(tmp_path)
    schema = snb.Schema(label="label", numeric=["h", "w"])
    for order in (paths, paths[::-1]):
        state = snb.fit(order, schema=schema)
        assert [number(state, what, "h", "a") for what in ("mean", "variance")] == [165.0, 225.0]
        assert [number(state, what, "w", "a") for what in ("mean", "variance")] == [65.25, 232.5625]
        assert [number(state, what, "h", "b") for what in ("mean", "variance")] == [165.0, 25.0]
        assert [number(state, what, "w", "b") for what in ("mean", "variance")] == [65.625, 21.390625]
        model = state.finish(numeric=snb.Gaussian(var_smoothing=0.0))
        assert_allclose(probability(model, "a", h=165.0, w=65.25), 0.09208586518817013186, rtol=1e-9)


def test_c17_wider_integers_in_a_later_file(tmp_path: Path) -> None:
    """C17: int32 in one file and an int64 past it in the next."""
    pq.write_table(labelled(pa.array([1], pa.int32()), "a"), tmp_path / "1.parquet")
    pq.write_table(labelled(pa.array([3000000000], pa.int64()), "a"), tmp_path / "2.parquet")
    assert number(snb.fit(tmp_path, schema=X), "mean", "x", "a") == 1500000000.5


def test_c17_a_file_without_the_column(tmp_path: Path) -> None:
    """C17: a column that one file lacks is an error that names column and file."""
    c17_files(tmp_path)
    pq.write_table(pa.table({"h": [1.0], "label": ["a"]}), tmp_path / "three.parquet")
    with pytest.raises(snb.StreamNBError, match=r"(?s)'w'.*three\.parquet|three\.parquet.*'w'"):
        snb.fit(tmp_path, schema=snb.Schema(label="label", numeric=["h", "w"]))


def test_c17_scoring_a_file_without_the_column(tmp_path: Path) -> None:
    """C17's neighbour: scoring and evaluating name the file as training does."""
    paths = c17_files(tmp_path)
    model = snb.fit(paths, schema=snb.Schema(label="label", numeric=["h", "w"])).finish()
    pq.write_table(pa.table({"h": [1.0], "label": ["a"]}), tmp_path / "three.parquet")
    with pytest.raises(snb.StreamNBError, match=r"(?s)'w'.*three\.parquet"):
        snb.predict(model, tmp_path, tmp_path.parent / "scored.parquet")
    with pytest.raises(snb.StreamNBError, match=r"(?s)'w'.*three\.parquet"):
        snb.evaluate(model, tmp_path)


def test_c17_batches_of_other_order_and_types() -> None:
    """C17's neighbour: the same in memory, batch by batch and merged."""
    one = pa.table({"h": pa.array([150, 160], pa.int32()), "w": pa.array([50, 61], pa.int8()), "label": ["a", "b"]})
    two = pa.table({"w": [80.5, 70.25], "h": [180.0, 170.0], "label": ["a", "b"], "extra": [7, 8]})
    schema = snb.Schema(label="label", numeric=["h", "w"])
    for state in (counted(schema, one, two), counted(schema, two) + counted(schema, one)):
        assert [number(state, what, "w", "b") for what in ("mean", "variance")] == [65.625, 21.390625]


# --- C18: two columns with the same name ------------------------------------------------------------------------------


def doubled(x: Sequence[Any], again: Sequence[Any], name: str = "x") -> pa.Table:
    """Return a table with one name twice."""
    names = ["x", "y", name]
    return pa.table([pa.array(x), pa.array(["a", "b"]), pa.array(again)], names=names)


@pytest.mark.parametrize("name", ["x", "y"])
def test_c18_a_name_that_stands_twice(name: str, tmp_path: Path) -> None:
    """C18: a feature or label column that stands twice is refused before any row is counted, with file and name."""
    table = doubled([1.0, 2.0], [3.0, 4.0] if name == "x" else ["a", "b"], name)
    state = snb.State(X)
    for data in (table, table.to_batches()[0]):
        with pytest.raises(snb.SchemaError, match=f"Expected one column '{name}', got 2 of that name"):
            state.update(data)
    assert state == snb.State(X)
    pq.write_table(table, tmp_path / "joined.parquet")
    with pytest.raises(snb.StreamNBError, match=rf"(?s)'{name}'.*joined|joined.*'{name}'"):
        snb.fit(tmp_path / "joined.parquet", schema=X)
    if name == "x":
        model = counted(X, labelled([1.0, 2.0], "ab")).finish()
        with pytest.raises(snb.SchemaError, match="Expected one column 'x', got 2 of that name"):
            model.predict(table)


def test_c18_an_unused_name_that_stands_twice(tmp_path: Path) -> None:
    """C18: a doubled column that is not used does no harm."""
    table = pa.table(
        [pa.array([1.0, 2.0]), pa.array(["a", "b"]), pa.array([1, 2]), pa.array([3, 4])], names=["x", "y", "z", "z"]
    )
    assert counted(X, table).n_rows == 2
    pq.write_table(table, tmp_path / "joined.parquet")
    assert snb.fit(tmp_path / "joined.parquet", schema=X).n_rows == 2


# --- C19: memory grows with the data set while batches are iterated ---------------------------------------------------

PEAK = """
import resource, sys
import streamnb as snb
state = snb.fit(sys.argv[1], label="y", workers=2)
print(state.n_rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kilobytes on Linux only")
def test_c19_memory_does_not_grow_with_the_data(tmp_path: Path) -> None:
    """C19: totals are exact, and twelve files peak where three do (a reader that holds on would need 100 MB more)."""
    n = 131072
    table = pa.table({f"x{j}": np.arange(n, dtype=np.float32) % (97 + j) for j in range(16)})
    table = table.append_column("y", pa.array(["a", "b", "c", "a"] * (n // 4)))
    few, many = tmp_path / "few", tmp_path / "many"
    few.mkdir()
    many.mkdir()
    pq.write_table(table, few / "0.parquet", row_group_size=32768, compression="NONE", use_dictionary=["y"])
    for i in range(1, 3):
        os.link(few / "0.parquet", few / f"{i}.parquet")
    for i in range(12):
        os.link(few / "0.parquet", many / f"{i:02}.parquet")
    peaks = []
    for folder, files in ((few, 3), (many, 12)):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "STREAMNB_JIT": "0"}
        run = subprocess.run(
            [sys.executable, "-c", PEAK, str(folder)], capture_output=True, text=True, check=True, env=environment
        )
        rows, peak = map(int, run.stdout.split())
        assert rows == n * files
        peaks.append(peak / 1024)
    assert peaks[1] <= peaks[0] + 25, peaks


# --- C20: marker files, temporary files, truncated or damaged files ---------------------------------------------------


def spark_folder(folder: Path) -> bytes:
    """Write a folder as Spark leaves it, and return the bytes of its one whole file."""
    pq.write_table(labelled([1.0, 2.0, 3.0], "aaa"), folder / "part-0.parquet")
    content = (folder / "part-0.parquet").read_bytes()
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / ".part-0.parquet.crc").write_bytes(b"crc")
    (folder / "_temporary" / "0").mkdir(parents=True)
    (folder / "_temporary" / "0" / "part-1.parquet").write_bytes(content)
    return content


def test_c20_markers_and_temporary_files(tmp_path: Path) -> None:
    """C20: names that begin with _ or . are skipped, at every level: exactly three rows."""
    spark_folder(tmp_path)
    state = snb.fit(tmp_path, schema=X)
    assert state.n_rows == 3
    assert number(state, "mean", "x", "a") == 2.0


@pytest.mark.parametrize("broken", ["half", "nothing"])
def test_c20_truncated_files(broken: str, tmp_path: Path) -> None:
    """C20: a cut or empty file is an error that names it; `on_error="skip"` warns; after repair all is counted."""
    content = spark_folder(tmp_path)
    path = tmp_path / "part-2.parquet"
    path.write_bytes(content[: len(content) // 2] if broken == "half" else b"")
    with pytest.raises(snb.SourceError, match=r"part-2\.parquet"):
        snb.fit(tmp_path, schema=X)
    with pytest.warns(snb.SkippedWarning, match=r"part-2\.parquet"):
        state = snb.fit(tmp_path, schema=X, on_error="skip")
    assert state.n_rows == 3
    path.write_bytes(content)
    assert snb.fit(tmp_path, schema=X).n_rows == 6


def test_c20_a_checkpoint_holds_whole_files_only(tmp_path: Path) -> None:
    """C20: what was counted before a broken file is kept whole; after repair the run ends at the right totals."""
    data, checkpoint = tmp_path / "data", tmp_path / "run.snb"
    data.mkdir()
    for i in range(3):
        pq.write_table(labelled([1.0 + i, 2.0 + i, 3.0 + i], "aba"), data / f"{i}.parquet")
    whole = snb.fit(data, schema=X)
    content = (data / "2.parquet").read_bytes()
    footer = content[-400:]
    damaged = content[: len(content) // 4] + bytes(len(content) - len(content) // 4 - len(footer)) + footer
    (data / "2.parquet").write_bytes(damaged)
    with pytest.raises(snb.StreamNBError, match=r"2\.parquet"):
        snb.fit(data, schema=X, checkpoint=checkpoint, workers=1)
    if checkpoint.exists():
        held = snb.State.load(checkpoint)
        assert held.n_rows in (0, 3, 6)
        assert held.n_rows == 3 * len(held.ledger)
    (data / "2.parquet").write_bytes(content)
    state = snb.fit(data, schema=X, checkpoint=checkpoint, resume=True)
    assert state.to_table().equals(whole.to_table())


def test_c20_overwritten_page_bytes(tmp_path: Path) -> None:
    """C20: with page checksums and verification a damaged page is an error that names the file."""
    values = np.random.default_rng(0).standard_normal(1000)
    path = tmp_path / "page.parquet"
    pq.write_table(
        labelled(values, ["a"] * 1000), path, write_page_checksum=True, compression="NONE", use_dictionary=False
    )
    content = bytearray(path.read_bytes())
    content[2000:2100] = bytes(100)
    path.write_bytes(content)
    with pytest.raises(snb.SourceError, match=r"page\.parquet"):
        snb.fit(path, schema=X, verify_checksums=True)


# --- C23: the same shard merged twice ---------------------------------------------------------------------------------

Z = snb.Schema(label="y", numeric=["x"])


def shards() -> dict[str, snb.State]:
    """Return the three named shards of C23."""
    labels = {"s1": "aaab", "s2": "aabbb", "s3": "b"}
    return {name: counted(Z, labelled([1.0] * len(y), y), shard=name) for name, y in labels.items()}


@pytest.mark.parametrize("order", list(itertools.permutations(["s1", "s2", "s2", "s3"])))
def test_c23_a_shard_counts_once(order: tuple[str, ...]) -> None:
    """C23: ten rows, whether s2 arrives once or twice, in any order."""
    parts = shards()
    total = snb.State(Z)
    for name in order:
        total.merge(parts[name])
    assert total.n_rows == 10
    assert [number(total, "count", None, label) for label in "ab"] == [5, 5]
    assert total.to_bytes() == (parts["s1"] + parts["s2"] + parts["s3"]).to_bytes()
    assert sorted(total.ledger) == ["s1", "s2", "s3"]


def test_c23_partial_merges_that_overlap(tmp_path: Path) -> None:
    """C23: a saved {s1, s2} takes s2 again, or {s2, s3}, and counts each shard once."""
    parts = shards()
    (parts["s1"] + parts["s2"]).save(tmp_path / "partial.snb")
    right = parts["s1"] + parts["s2"] + parts["s3"]
    for more in ([parts["s2"], parts["s3"]], [parts["s2"] + parts["s3"]], [parts["s3"] + parts["s2"] + parts["s1"]]):
        total = snb.State.load(tmp_path / "partial.snb")
        for each in more:
            total.merge(each)
        assert total.n_rows == 10
        assert total.to_bytes() == right.to_bytes()


def test_c23_two_states_under_one_name() -> None:
    """C23: s2 re-run with a row fewer is another state: an error that names s2, and nothing is merged."""
    parts = shards()
    other = counted(Z, labelled([1.0] * 4, "aabb"), shard="s2")
    total = parts["s1"] + parts["s2"]
    before = total.to_bytes()
    with pytest.raises(snb.MergeError, match=r"Expected equal counts under one shard, got two different .* shard 's2'"):
        total.merge(other)
    assert total.to_bytes() == before


def test_c23_states_without_names_are_not_protected() -> None:
    """C23: without names a state that is merged twice counts twice: fifteen rows, as the documentation says."""
    anonymous = [counted(Z, labelled([1.0] * len(y), y)) for y in ("aaab", "aabbb", "b")]
    total = reduce(add, [*anonymous, anonymous[1]])
    assert total.n_rows == 15


def test_c23_a_merged_shard_is_closed() -> None:
    """C23's neighbour: a state that took its own shard whole from elsewhere does not count into it any more."""
    parts = shards()
    state = snb.State(Z, shard="s2")
    state.merge(parts["s2"])
    with pytest.raises(snb.MergeError, match="Expected a shard that is still open, got 's2', already merged"):
        state.update(labelled([1.0], "a"))
    assert state.n_rows == 5


# --- C24: loading a state file must not run code, and must refuse what it does not understand -------------------------


class Bomb:
    """An object whose unpickling would create a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.marker),)


def state_bytes() -> bytes:
    """Return the bytes of a small state."""
    return counted(X, labelled([1.0, 3.0, 10.0], "aab")).to_bytes()


def test_c24_pickles_are_not_read(tmp_path: Path) -> None:
    """C24: a pickle, and a NumPy archive with one inside, are refused and nothing runs."""
    marker = tmp_path / "marker"
    archive = io.BytesIO()
    np.savez(archive, state=np.array([Bomb(marker)], dtype=object))
    for content in (pickle.dumps(Bomb(marker)), archive.getvalue()):
        (tmp_path / "a.snb").write_bytes(content)
        for load in (snb.State.load, snb.Predictor.load):
            with pytest.raises(snb.FileFormatError, match="never read"):
                load(tmp_path / "a.snb")
    assert not marker.exists()


def test_c24_cut_and_flipped_files(tmp_path: Path) -> None:
    """C24: half a file and a file with one flipped byte are refused, never read as something shorter."""
    data = state_bytes()
    path = tmp_path / "a.snb"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(snb.FileFormatError, match=r"a\.snb"):
        snb.State.load(path)
    for place in range(len(data) // 4, len(data), 97):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        path.write_bytes(flipped)
        try:
            loaded = snb.State.load(path)
        except snb.FileFormatError as error:
            assert "a.snb" in str(error)  # noqa: PT017 - some bytes are padding: then the content must be whole
        else:
            assert loaded.to_bytes() == data


def edited(data: bytes, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> bytes:
    """Return the file of a state with its header or arrays changed, and a fitting checksum."""
    contents = statefile.loads(data)
    change(contents.header, contents.arrays)
    return statefile.dumps("state", contents.header, contents.arrays)


def name_of(arrays: dict[str, Any], ending: str) -> str:
    """Return the name of the one array that ends so."""
    found = [name for name in arrays if name.endswith(ending)]
    assert len(found) == 1, sorted(arrays)
    return found[0]


def put(ending: str, make: Callable[[Any], Any]) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """Return a change that replaces one array."""

    def change(header: dict[str, Any], arrays: dict[str, Any]) -> None:
        name = name_of(arrays, ending)
        arrays[name] = make(arrays[name])

    return change


CONTRADICTIONS = {
    "rows below zero": put("0.rows", lambda array: array - 3),
    "counts below zero": put("numeric.count", lambda array: array - 3),
    "squares below zero": put("sum_of_squared_deviations", lambda array: array - 100.0),
    "fewer classes than counts": put("0.classes", lambda array: array.slice(0, 1)),
    "more classes than counts": put("0.classes", lambda array: pa.array(["a", "b", "c"])),
    "classes twice": put("0.classes", lambda array: pa.array(["a", "a"])),
    "classes out of order": put("0.classes", lambda array: pa.array(["b", "a"])),
    "more cells than rows": put("numeric.count", lambda array: array + 100),
    "rows that are no integers": put("0.rows", lambda array: array + 0.5),
    "no mean": put("numeric.mean", lambda array: array[:, :0]),
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_c24_states_that_contradict_themselves(kind: str) -> None:
    """C24: counts below zero, or shapes that do not fit the classes, are refused though the checksum fits."""
    data = edited(state_bytes(), CONTRADICTIONS[kind])
    with pytest.raises(snb.FileFormatError, match="Expected"):
        snb.State.from_bytes(data)


def test_c24_no_nan_enters_a_file() -> None:
    """C24: NaN is refused when a state is written; the reader's own check is in test_statefile.py."""
    with pytest.raises(snb.DataError, match="Expected finite values in a state"):
        edited(state_bytes(), put("numeric.mean", lambda array: array * math.nan))


def test_c24_a_file_of_a_later_version() -> None:
    """C24: a format number 1000 higher is refused, with both numbers in the message."""
    data = state_bytes()
    with pa.ipc.open_file(data) as reader:
        batch = reader.get_batch(0)
    metadata = {key.decode(): value.decode() for key, value in batch.schema.metadata.items()}
    later = str(int(metadata["streamnb.format"]) + 1000)
    sink = pa.BufferOutputStream()
    batch = batch.replace_schema_metadata(metadata | {"streamnb.format": later})
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    with pytest.raises(snb.FileFormatError, match=rf"(?s){later}.*{statefile.FORMAT}|{statefile.FORMAT}.*{later}"):
        snb.State.from_bytes(sink.getvalue().to_pybytes())


def test_c24_a_model_is_no_state_and_a_state_is_no_model(tmp_path: Path) -> None:
    """C24's neighbour: each file kind says what it is and which call reads it."""
    state = counted(X, labelled([1.0, 3.0, 10.0], "aab"))
    state.save(tmp_path / "s.snb")
    state.finish().save(tmp_path / "m.snb")
    with pytest.raises(snb.FileFormatError, match=r"m\.snb holds a model, not a state: load it with Predictor\.load"):
        snb.State.load(tmp_path / "m.snb")
    with pytest.raises(snb.FileFormatError, match=r"s\.snb holds a state, not a model: load it with State\.load"):
        snb.Predictor.load(tmp_path / "s.snb")
    for load, data in ((snb.State.from_bytes, state.finish().to_bytes()), (snb.Predictor.from_bytes, state.to_bytes())):
        with pytest.raises(snb.FileFormatError):
            load(data)


def test_c24_a_round_trip_changes_nothing(tmp_path: Path) -> None:
    """C24: equal bytes on re-save, equal predictions, also in another process."""
    state = counted(X, labelled([1.0, 3.0, 10.0, 14.5], "aabb"))
    state.save(tmp_path / "a.snb")
    again = snb.State.load(tmp_path / "a.snb")
    again.save(tmp_path / "b.snb")
    assert (tmp_path / "a.snb").read_bytes() == (tmp_path / "b.snb").read_bytes()
    table = pa.table({"x": [2.0, 7.5, None]})
    expected = state.finish().predict_proba(table)
    assert again.finish().predict_proba(table).tolist() == expected.tolist()
    script = (
        "import sys, pyarrow as pa, streamnb as snb\n"
        "model = snb.State.load(sys.argv[1]).finish()\n"
        "print(model.predict_proba(pa.table({'x': [2.0, 7.5, None]})).tolist())\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a.snb")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.stdout.strip() == str(expected.tolist())


# --- C24 (v): files of released versions ------------------------------------------------------------------------------

DATA = Path(__file__).parent / "data"
FORMAT_ROWS = {
    "x": [1.0, None, 3.5, 1e9],
    "c": ["u", "w", None, "never seen"],
    "b": [True, False, None, True],
    "m": [1, 0, 4, None],
    "n": [0, 2, 1, 3],
}


def write_format_files(folder: Path) -> None:
    """Write a state, a model and what they say, in the present format: run once, when a format is released.

    `python -c "import sys; sys.path.insert(0, 'tests'); import test_cases as t; t.write_format_files(t.DATA)"`
    """
    schema = snb.Schema(
        label="day",
        numeric=["x"],
        categorical=["c"],
        binary=["b"],
        counts=["m", "n"],
        weight="w",
        classes=["2024-03-01"],
    )
    days = [datetime.date(2024, 1, 1), datetime.date(2024, 2, 29), None]
    table = pa.table(
        {
            "day": [days[i % 3] for i in range(12)],
            "x": [None if i % 5 == 0 else 1e9 + i / 3 for i in range(12)],
            "c": [("u", "v", None, "w")[i % 4] for i in range(12)],
            "b": [(True, False, None)[i % 3 if i < 9 else 0] for i in range(12)],
            "m": [i % 4 for i in range(12)],
            "n": [None if i == 7 else (i * i) % 7 for i in range(12)],
            "w": [0.5 + i % 2 for i in range(12)],
        }
    )
    named = counted(schema, table.slice(0, 5), shard="s1") + counted(schema, table.slice(5, 5), shard="s2")
    named.update(table.slice(10))
    model = named.finish(categorical=snb.Categorical(unseen="smooth"))
    name = f"format-{statefile.FORMAT}"
    folder.mkdir(exist_ok=True)
    named.save(folder / f"{name}.state.snb")
    model.save(folder / f"{name}.model.snb")
    expected = {
        "rows": named.n_rows,
        "without_label": named.rows_without_label,
        "shards": sorted(named.ledger),
        "log_proba": model.predict_log_proba(pa.table(FORMAT_ROWS)).tolist(),
    }
    (folder / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


@pytest.mark.parametrize("name", sorted(path.stem for path in DATA.glob("format-*.json")))
def test_c24_files_of_released_formats(name: str) -> None:
    """C24: a state and a model of every released format load, and say what they said when they were written."""
    expected = json.loads((DATA / f"{name}.json").read_text())
    state = snb.State.load(DATA / f"{name}.state.snb")
    assert (state.n_rows, state.rows_without_label) == (expected["rows"], expected["without_label"])
    assert sorted(state.ledger) == expected["shards"]
    rows = pa.table(FORMAT_ROWS)
    for model in (
        state.finish(categorical=snb.Categorical(unseen="smooth")),
        snb.Predictor.load(DATA / f"{name}.model.snb"),
    ):
        assert_allclose(model.predict_log_proba(rows), expected["log_proba"], rtol=1e-12)


def test_c24_every_format_has_its_files() -> None:
    """C24: the present format is among the files, so that raising the number asks for new ones."""
    assert (DATA / f"format-{statefile.FORMAT}.json").exists()
