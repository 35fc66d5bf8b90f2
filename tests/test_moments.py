"""Moments add up: the laws, the numbers of people's cases, and what may never be in a statistic."""

from __future__ import annotations

import copy
import itertools
import os
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamnb.errors import DataError, FileFormatError, MergeError
from streamnb.kernels import Groups
from streamnb.moments import Moments
from streamnb.protocols import Column

C = 3
"""Classes in the drawn tables."""

laws = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(params=["numpy", "numba"], scope="module", autouse=True)
def kernel(request):
    """Every test runs with either kernel."""
    if request.param == "numba":
        pytest.importorskip("numba")
    before = os.environ.get("STREAMNB_JIT")
    os.environ["STREAMNB_JIT"] = "0" if request.param == "numpy" else "1"
    yield
    if before is None:
        del os.environ["STREAMNB_JIT"]
    else:
        os.environ["STREAMNB_JIT"] = before


def update(running, codes, columns, weight=None, infinite="error"):
    """Count a batch as a state does: a part with the batch's classes alone, merged at their places."""
    index, own = np.unique(np.asarray(codes, int), return_inverse=True)
    known = running.count[index] > 0
    pivot = np.where(known, running.mean[index], np.nan)
    block = [c if isinstance(c, Column) else Column(np.asarray(c)) for c in columns]
    weight = None if weight is None else np.asarray(weight, float)
    part = Moments.of(Groups(own, len(index), weight), block, pivot=pivot, infinite=infinite)
    running.merge(part, index)
    return running


def moments_of(codes, *columns, n_classes=2, weight=None):
    """The moments of one batch."""
    return update(Moments(n_classes, len(columns), weight is not None), codes, columns, weight)


def bits(moments):
    """All of a statistic, to the bit."""
    return {name: array.tobytes() for name, array in moments.arrays().items()}


def added(one, two):
    """A new statistic, the sum of two with the same classes."""
    total = one.copy()
    total.merge(two, np.arange(one.n_classes))
    return total


far = st.sampled_from([0.0, 0.1, -3e5, 1e8, 1e9])
unit = st.floats(-1, 1, width=32)


@st.composite
def tables(draw, weighted=None, min_size=0, max_size=25):
    """Rows of two features, some cells null or NaN, a column far from 0 with unit spread, maybe one constant."""
    n = draw(st.integers(min_size, max_size))
    weighted = draw(st.booleans()) if weighted is None else weighted
    codes = np.array(draw(st.lists(st.integers(0, C - 1), min_size=n, max_size=n)), int)
    columns = []
    for _ in range(2):
        offset = draw(far)
        spread = st.just(0.0) if draw(st.booleans()) and draw(st.booleans()) else unit
        values = offset + np.array(draw(st.lists(spread, min_size=n, max_size=n)), float)
        flags = np.array(draw(st.lists(st.sampled_from("pppnN"), min_size=n, max_size=n)), "U1")
        values[flags == "N"] = np.nan
        columns.append(Column(values, None if (flags != "n").all() else flags != "n"))
    weight = None
    if weighted:
        weight = np.array(draw(st.lists(st.floats(0.125, 8, width=32), min_size=n, max_size=n)), float)
    return codes, columns, weight


def rows_of(table, rows):
    """Some rows of a table."""
    codes, columns, weight = table
    block = [Column(c.values[rows], None if c.valid is None else c.valid[rows]) for c in columns]
    return codes[rows], block, None if weight is None else weight[rows]


def fed(table, cuts=()):
    """The statistic of a table fed in batches that end at the cuts."""
    codes, _, weight = table
    running = Moments(C, 2, weight is not None)
    for low, high in itertools.pairwise([0, *sorted(cuts), len(codes)]):
        update(running, *rows_of(table, slice(low, high)))
    return running


def exact(table):
    """Count, weight, mean and sum of squared deviations in exact arithmetic, by class and feature."""
    codes, columns, weight = table
    for c, j in itertools.product(range(C), range(2)):
        values, valid = columns[j].values, columns[j].valid
        own = [
            (Fraction(1 if weight is None else float(weight[i])), Fraction(float(values[i])))
            for i in range(len(codes))
            if codes[i] == c and (valid is None or valid[i]) and not np.isnan(values[i])
        ]
        total = sum((w for w, _ in own), Fraction(0))
        mean = sum((w * x for w, x in own), Fraction(0)) / total if own else Fraction(0)
        yield c, j, len(own), total, mean, sum((w * (x - mean) ** 2 for w, x in own), Fraction(0))


def assert_exact(moments, table):
    """Assert that the moments of a table are those of exact arithmetic, to 1e-9 relative and often far better."""
    for c, j, count, weight, mean, square in exact(table):
        assert moments.count[c, j] == count
        assert moments.sum_of_weights[c, j] == pytest.approx(float(weight), rel=1e-13)
        assert moments.mean[c, j] == pytest.approx(float(mean), rel=1e-14, abs=1e-14)
        assert moments.sum_of_squared_deviations[c, j] == pytest.approx(float(square), rel=1e-9, abs=1e-300)


@laws
@given(tables(), st.lists(st.integers(0, 25), max_size=6))
def test_any_cut_into_batches_gives_the_exact_moments(table, cuts):
    """However the rows are cut, count, mean and variance are those of exact arithmetic over all of them."""
    n = len(table[0])
    assert_exact(fed(table, [min(cut, n) for cut in cuts]), table)


@laws
@given(tables())
def test_one_row_a_batch_gives_the_exact_moments(table):
    """A stream of single rows loses nothing, also in a column near 1e9 with unit spread."""
    assert_exact(fed(table, range(len(table[0]))), table)


@laws
@given(tables(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(table, random):
    """Shuffled rows give the same moments."""
    order = list(range(len(table[0])))
    random.shuffle(order)
    assert_exact(fed(rows_of(table, np.array(order, int)), [len(order) // 2]), table)


@laws
@given(tables())
def test_empty_is_neutral_on_both_sides(table):
    """Adding nothing, before or after, changes no bit."""
    some, nothing = fed(table), Moments(C, 2, table[2] is not None)
    assert bits(added(some, nothing)) == bits(some) == bits(added(nothing, some))


@laws
@given(tables(weighted=False), tables(weighted=False))
def test_merge_is_commutative_to_the_bit(one, two):
    """It does not matter which side is merged into which."""
    a, b = fed(one), fed(two, [1, 2] if len(two[0]) > 2 else [])
    assert bits(added(a, b)) == bits(added(b, a))


@laws
@given(tables(weighted=True), tables(weighted=True))
def test_weighted_merge_is_commutative_to_the_bit(one, two):
    """Nor does it with weights."""
    assert bits(added(fed(one), fed(two))) == bits(added(fed(two), fed(one)))


@laws
@given(tables(weighted=False), tables(weighted=False), tables(weighted=False))
def test_merge_is_associative_to_rounding(one, two, three):
    """Any tree of merges gives the same moments."""
    a, b, c = fed(one), fed(two), fed(three)
    left, right = added(added(a, b), c), added(a, added(b, c))
    np.testing.assert_array_equal(left.count, right.count)
    np.testing.assert_allclose(left.mean, right.mean, rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(left.variance(), right.variance(), rtol=1e-9)


@laws
@given(tables(weighted=False, min_size=1))
def test_weight_2_is_the_row_twice(table):
    """A weight counts as that many rows, in everything but the count of cells."""
    codes, columns, _ = table
    heavy = fed((codes, columns, np.full(len(codes), 2.0)))
    twice = fed(rows_of(table, np.repeat(np.arange(len(codes)), 2)))
    np.testing.assert_array_equal(2 * heavy.count, twice.count)
    np.testing.assert_array_equal(heavy.sum_of_weights, twice.sum_of_weights)
    np.testing.assert_allclose(heavy.mean, twice.mean, rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(heavy.variance(), twice.variance(), rtol=1e-9, atol=1e-300)


@laws
@given(tables(), st.integers(0, 24))
def test_a_null_touches_only_its_own_feature(table, row):
    """With one more cell missing, every other column's moments stay as they are, to the bit."""
    codes, columns, weight = table
    valid = np.ones(len(codes), bool) if columns[0].valid is None else columns[0].valid.copy()
    valid[row:][:1] = False
    before, after = fed(table), fed((codes, [Column(columns[0].values, valid), columns[1]], weight))
    for name, array in before.arrays().items():
        assert array[:, 1].tobytes() == after.arrays()[name][:, 1].tobytes()


@laws
@given(
    st.sampled_from([0.1, 1e9 + 0.1, -7.3e-5, 1e200]),
    st.lists(st.integers(1, 9), min_size=1, max_size=9),
    st.booleans(),
)
def test_a_constant_column_stays_constant(value, sizes, weighted):
    """Equal values have that mean and no variance, whatever the batches, the weights and the merges."""
    rng = np.random.default_rng(sum(sizes))
    shards = []
    for size in sizes:
        weight = rng.random(size) + 0.01 if weighted else None
        shards.append(moments_of(np.zeros(size, int), np.full(size, value), n_classes=1, weight=weight))
    total = Moments(1, 1, weighted)
    for shard in shards:
        total.merge(shard, np.array([0]))
    for moments in (*shards, total):
        assert moments.mean[0, 0] == value
        assert moments.mean_tail[0, 0] == moments.variance()[0, 0] == 0.0


@laws
@given(tables(weighted=False), tables(weighted=False))
def test_merge_leaves_the_other_side_alone_also_later(one, two):
    """Neither the merge nor what is done to the sum afterwards shows in the other side, nor in a shallow copy."""
    a, b = fed(one), fed(two)
    before, snapshot = bits(b), copy.copy(a)
    held = bits(a)
    a.merge(b, np.arange(C))
    update(a, *two)
    a.grow(np.arange(C), C + 1)
    assert bits(b) == before
    assert bits(snapshot) == held


@laws
@given(tables(), st.permutations(range(C + 2)))
def test_grow_moves_classes_and_changes_nothing_else(table, places):
    """After growing, the old class i is class index[i], and new classes are empty."""
    moments, index = fed(table), np.array(places[:C])
    old = {name: array.copy() for name, array in moments.arrays().items()}
    moments.grow(index, C + 2)
    assert moments.n_classes == C + 2
    for name, array in moments.arrays().items():
        np.testing.assert_array_equal(array[index], old[name])
        assert not np.delete(array, index, axis=0).any()


@laws
@given(tables())
def test_arrays_and_back_is_equal_to_the_bit(table):
    """A state file holds all that there is, and shares no memory with what it is read into."""
    moments = fed(table)
    back = Moments.from_arrays(moments.arrays())
    assert bits(back) == bits(moments)
    assert back.weighted == moments.weighted
    assert not any(np.shares_memory(back.arrays()[name], array) for name, array in moments.arrays().items())


@laws
@given(tables())
def test_pooled_moments_are_those_of_one_class(table):
    """Pooling equals counting all rows as one class."""
    codes, columns, weight = table
    pooled, one = fed(table).pooled(), fed((np.zeros_like(codes), columns, weight))
    assert pooled.n_classes == 1
    np.testing.assert_array_equal(pooled.count[0], one.count[0])
    np.testing.assert_allclose(pooled.mean[0], one.mean[0], rtol=1e-14, atol=1e-14)
    np.testing.assert_allclose(pooled.variance()[0], one.variance()[0], rtol=1e-9, atol=1e-30)


@pytest.mark.parametrize("start", [1e9, 1e15])
def test_variance_far_from_zero(start):
    """A column near 1e9, or 1e15, keeps its variance to the last digit, fed at once, by row and in any tree."""
    values = start + np.array([1.0, 2, 3, 11, 13])
    codes = np.array([0, 0, 0, 1, 1])
    shards = [moments_of(codes[i : i + 1], values[i : i + 1]) for i in range(5)]
    one_by_one = Moments(2, 1, False)
    for i in range(5):
        update(one_by_one, codes[i : i + 1], [values[i : i + 1]])
    tree = added(added(shards[4], shards[1]), added(added(shards[2], shards[0]), shards[3]))
    for moments in (moments_of(codes, values), one_by_one, tree):
        assert moments.count.ravel().tolist() == [3, 2]
        assert moments.mean.ravel().tolist() == [start + 2, start + 12]
        assert moments.variance().ravel() == pytest.approx([2 / 3, 1], rel=1e-15)


def test_variance_of_nanoseconds():
    """Timestamps of 1.7e18 nanoseconds, as int64."""
    moments = moments_of([0, 0, 0], 1_700_000_000_000_000_000 + np.array([0, 1024, 2048]))
    assert moments.variance()[0, 0] == pytest.approx(2 / 3 * 2**20, rel=1e-15)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_an_empty_part_may_come_first(order):
    """A class that some shards lack has the same bits in every order; two empty sides stay empty."""
    parts = [moments_of([1, 1, 1], [7.0, 8, 9]), moments_of([0, 0], [2.0, 4]), Moments(2, 1, False)]
    total = Moments(2, 1, False)
    for i in order:
        total.merge(parts[i], np.arange(2))
    assert (total.count[0, 0], total.mean[0, 0], total.variance()[0, 0]) == (2, 3.0, 1.0)
    assert bits(total) == bits(added(parts[0], parts[1]))
    assert bits(added(parts[2], parts[2])) == bits(Moments(2, 1, False))


@pytest.mark.parametrize("value", [1e200, 1e308, -1.7e308])
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_single_huge_value_has_variance_0(value, order):
    """The square of a huge value is never taken, so a single one does not overflow."""
    parts = [moments_of([1, 1, 1], [7.0, 8, 9]), moments_of([0], [value]), Moments(2, 1, False)]
    total = Moments(2, 1, False)
    for i in order:
        total.merge(parts[i], np.arange(2))
    assert (total.count[0, 0], total.mean[0, 0], total.variance()[0, 0]) == (1, value, 0.0)


def test_squares_that_overflow_name_the_column_and_change_nothing():
    """Two huge values of either sign are refused, in one batch and between two, and the statistic stays."""
    with pytest.raises(DataError, match="squared deviations fit in a float64, got an overflow - column 1"):
        moments_of([0, 0], [1.0, 2], [1e200, -1e200])
    running = moments_of([0, 1], [1.0, 2], [1e200, 5])
    before = bits(running)
    with pytest.raises(DataError, match="got an overflow - column 1"):
        running.merge(moments_of([0, 1], [1.0, 2], [-1e200, 5]), np.arange(2))
    with pytest.raises(DataError, match="got an overflow - column 1"):
        running.merge(moments_of([0], [1.0], [-1e308], n_classes=1), np.array([0]))
    assert bits(running) == before
    with pytest.raises(DataError, match="got an overflow - column 1"):
        running.pooled()


def test_narrow_types_are_widened_first():
    """float32 and float16 columns have the mean and variance of their values, not of their type."""
    single = moments_of(np.zeros(5, int), np.array([16777216, 1, 1, 1, 1], np.float32), n_classes=1)
    assert (single.mean[0, 0], single.variance()[0, 0]) == (3355444.0, 45035990904996.0)
    half = moments_of([0, 0], np.array([60000, 40000], np.float16), n_classes=1)
    assert (half.mean[0, 0], half.variance()[0, 0]) == (50000.0, 100000000.0)


def test_counts_go_beyond_32_bits_and_beyond_doubles():
    """Counts are integers: 3 rows doubled 31 times, and 2^53 rows and one more."""
    total = moments_of([0, 0, 1], [1.0, 2, 3])
    for _ in range(31):
        total = added(total, total)
    assert total.count.ravel().tolist() == [4294967296, 2147483648]
    for _ in range(21):
        total = added(total, total)
    assert added(total, moments_of([0], [1.0])).count[0, 0] == 2**53 + 1


def test_raw_variances_do_not_depend_on_the_batches():
    """Batches of unlike scale leave the variances of all rows, in either order and at once."""
    batches = [([0, 0, 1, 1], [1.0, 3, 2, 2]), ([2, 2, 2], [0.0, 2e6, 1e6]), ([0, 2], [2.0, 1e7])]
    for order in ([0, 1], [1, 0]):
        running = Moments(3, 1, False)
        for i in order:
            update(running, batches[i][0], [batches[i][1]])
        assert running.variance().ravel() == pytest.approx([1, 0, 2e12 / 3], rel=1e-14)
        assert running.pooled().variance()[0, 0] == pytest.approx(25999952000062 / 49, rel=1e-14)
        update(running, batches[2][0], [batches[2][1]])
        assert running.variance()[0, 0] == pytest.approx(2 / 3, rel=1e-14)


def test_one_row_a_batch():
    """Four rows one by one are one batch of four."""
    rows = [(1.0, 5.0, 0), (3.0, 5.0, 0), (10.0, 5.0, 1), (14.0, 9.0, 1)]
    running = Moments(2, 2, False)
    for x, y, c in rows:
        update(running, [c], [[x], [y]])
    assert running.mean.tolist() == [[2, 5], [12, 7]]
    assert running.variance().tolist() == [[1, 0], [4, 4]]
    assert running.pooled().variance().tolist() == [[27.5, 3]]


def test_null_and_nan_are_missing():
    """Both are skipped in their own column, and a class without a cell has mean and variance 0, never NaN."""
    values = np.array([1.0, 0, 3, np.nan, 10, 14, 0, 0])
    valid = np.array([1, 0, 1, 1, 1, 1, 0, 0], bool)
    moments = moments_of([0] * 4 + [1] * 4, Column(values, valid), n_classes=3)
    assert moments.count.ravel().tolist() == [2, 2, 0]
    assert moments.mean.ravel().tolist() == [2, 12, 0]
    assert moments.variance().ravel().tolist() == [1, 4, 0]
    nothing = moments_of([0, 1], [np.nan, np.nan])
    assert bits(nothing) == bits(Moments(2, 1, False))


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_an_infinity_is_refused_with_its_place(value):
    """An infinite cell is an error with column and row, unless it is null or the schema calls it missing."""
    values = np.array([1.0, 2, value, 4])
    with pytest.raises(DataError, match=rf"Expected a finite number, got {value} - column 1, row 2"):
        moments_of([0, 0, 0, 0], [1.0, 2, 3, 4], values)
    null = moments_of([0, 0, 0, 0], Column(values, np.array([1, 1, 0, 1], bool)))
    assert null.mean[0, 0] == pytest.approx(7 / 3)
    skipped = update(Moments(1, 1, False), [0, 0, 0, 0], [values], infinite="missing")
    assert bits(skipped) == bits(update(Moments(1, 1, False), [0, 0, 0], [values[[0, 1, 3]]]))


def test_a_far_pivot_costs_no_digits_of_the_sum():
    """A first row far away makes the running mean a poor pivot, which the sum's own variance outweighs."""
    rng = np.random.default_rng(0)
    values = np.concatenate([[0.0], 1e9 + rng.normal(size=4_000)])
    running = Moments(1, 1, False)
    for part in (values[:1], values[1:]):
        update(running, np.zeros(len(part), int), [part])
    numbers = [Fraction(float(value)) for value in values]
    mean = sum(numbers) / len(numbers)
    variance = sum((x - mean) ** 2 for x in numbers) / len(numbers)
    assert running.variance()[0, 0] == pytest.approx(float(variance), rel=1e-11)


def test_a_long_stream_of_single_rows_keeps_its_digits():
    """Twenty thousand merges of one row near 1e9 lose nothing that shows."""
    values = 1e9 + np.random.default_rng(1).normal(size=20_000)
    running, one = Moments(1, 1, False), Moments(1, 1, False)
    one.count = np.ones((1, 1), np.int64)
    for value in values:
        one.mean = np.full((1, 1), value)
        running.merge(one, np.array([0]))
    assert running.variance()[0, 0] == pytest.approx(np.var(values - 1e9), rel=1e-12)


def test_batches_without_rows_or_columns_are_empty():
    """Nothing in, nothing out."""
    assert bits(Moments.of(Groups(np.zeros(0, int), 2), [Column(np.zeros(0))])) == bits(Moments(2, 1, False))
    assert Moments.of(Groups(np.zeros(3, int), 1), []).n_features == 0
    assert Moments(0, 2, False).pooled().variance().tolist() == [[0, 0]]


def test_other_features_or_weights_do_not_merge():
    """Statistics of different blocks are refused with both sides named."""
    with pytest.raises(MergeError, match=r"Expected moments of 1 features .* got 2 features"):
        Moments(1, 1, False).merge(Moments(1, 2, False), np.array([0]))
    with pytest.raises(MergeError, match=r"weights=False, .*weights=True"):
        Moments(1, 1, False).merge(Moments(1, 1, True), np.array([0]))


@pytest.mark.parametrize(
    ("name", "array", "problem"),
    [
        ("mean", None, "Expected an array 'mean', got only"),
        ("mean", np.zeros((2, 3)), "like the others, got float64 of shape"),
        ("count", np.zeros((2, 1)), "Expected 'count' to be int64"),
        ("count", np.full((2, 1), -1), "at least 0 in 'count', got -1"),
        ("mean_tail", np.full((2, 1), np.nan), "finite numbers in 'mean_tail'"),
        ("sum_of_squared_deviations", np.full((2, 1), -0.5), "at least 0 in .*, got -0.5"),
    ],
)
def test_arrays_that_cannot_be_are_refused(name, array, problem):
    """A file that holds what no statistic holds is refused with the array and the reason."""
    arrays = {**moments_of([0, 1], [1.0, 2]).arrays(), name: array}
    if array is None:
        del arrays[name]
    with pytest.raises(FileFormatError, match=problem):
        Moments.from_arrays(arrays)


def test_nbytes_is_the_memory_of_the_arrays():
    """Five arrays of eight bytes a cell with weights, four without."""
    assert Moments(2, 3, True).nbytes == 5 * 48
    assert Moments(2, 3, False).nbytes == 4 * 48
