"""Sums and counts add up exactly; what cannot be counted is refused with its place."""

from __future__ import annotations

import copy
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamnb import kernels
from streamnb.counts import CategoryCounts, FeatureSums
from streamnb.errors import DataError, FileFormatError, MergeError
from streamnb.kernels import Groups
from streamnb.protocols import Column

C, K = 3, 4
"""Classes and categories in the drawn tables."""

laws = settings(deadline=None, max_examples=60)


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


def sums_of(codes, *columns, n_classes=2, weight=None, infinite="error"):
    """The sums of one batch."""
    block = [c if isinstance(c, Column) else Column(np.asarray(c)) for c in columns]
    weight = None if weight is None else np.asarray(weight, float)
    return FeatureSums.of(Groups(np.asarray(codes, int), n_classes, weight), block, infinite=infinite)


def bits(statistic):
    """All of a statistic, to the bit."""
    return {name: array.tobytes() for name, array in statistic.arrays().items()}


# Whole numbers and quarters add up without rounding, so the laws of sums hold to the bit.
sum_rows = st.lists(
    st.tuples(
        st.integers(0, C - 1),
        st.sampled_from([0.0, -0.0, 1, 2.25, 1e6, np.nan]),
        st.booleans(),
        st.sampled_from([0.25, 1.0, 3.0]),
    ),
    max_size=30,
)


def fed(rows, weighted):
    """The sums of a list of rows: class, value, whether it is there, weight."""
    codes, values, valid, weight = (
        np.array([row[k] for row in rows], kind) for k, kind in enumerate((int, float, bool, float))
    )
    return sums_of(codes, Column(values, valid), n_classes=C, weight=weight if weighted else None)


def added(one, two, *index):
    """A new statistic, the sum of two."""
    total = one.copy()
    total.merge(two, *index)
    return total


@laws
@given(sum_rows, st.booleans())
def test_sums_are_exact(rows, weighted):
    """Counts, weights and totals are those of plain Python."""
    found = fed(rows, weighted)
    for c in range(C):
        own = [(x, w if weighted else 1.0) for k, x, there, w in rows if k == c and there and not np.isnan(x)]
        assert found.count[c, 0] == len(own)
        assert found.sum_of_weights[c, 0] == sum(w for _, w in own)
        assert found.total[c, 0] == sum(w * x for x, w in own)


@laws
@given(sum_rows, sum_rows, sum_rows, st.booleans())
def test_sums_add_up_in_any_way(one, two, three, weighted):
    """Empty is neutral, any order and any tree gives the bits of all rows at once, and the other side stays."""
    a, b, c = (fed(rows, weighted) for rows in (one, two, three))
    here, before, snapshot = np.arange(C), bits(b), copy.copy(a)
    held = bits(a)
    nothing = FeatureSums(C, 1, weighted)
    assert bits(added(a, nothing, here)) == bits(a) == bits(added(nothing, a, here))
    assert bits(added(a, b, here)) == bits(added(b, a, here))
    left, right = added(added(a, b, here), c, here), added(a, added(b, c, here), here)
    assert bits(left) == bits(right) == bits(fed(one + two + three, weighted))
    a.merge(b, here)
    a.merge(c, here)
    a.grow(here, C + 1)
    assert bits(b) == before
    assert bits(snapshot) == held


@laws
@given(sum_rows)
def test_weight_2_is_the_row_twice_in_sums(rows):
    """A weight of 2 gives exactly the weights and totals of the row counted twice."""
    heavy, twice = fed([(*row[:3], 2.0) for row in rows], True), fed(rows + rows, False)
    np.testing.assert_array_equal(heavy.sum_of_weights, twice.sum_of_weights)
    np.testing.assert_array_equal(heavy.total, twice.total)


def test_narrow_counts_do_not_wrap():
    """uint8 counts of 200 and 100 add up to 300."""
    assert sums_of([0, 0], np.array([200, 100], np.uint8), n_classes=1).total[0, 0] == 300.0


def test_minus_zero_is_zero_and_fractions_count():
    """−0.0 is a count of 0, and a count need not be whole."""
    found = sums_of([0, 1], [-0.0, 2.0], [0.5, 2.0])
    assert not np.signbit(found.total).any()
    assert found.total.tolist() == [[0, 0.5], [2, 2]]


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int8])
def test_a_negative_count_is_refused_with_its_place(dtype):
    """A negative count is an error with column and row; where the cell is null it means nothing."""
    values = np.array([1, 0, -1], dtype)
    with pytest.raises(DataError, match=r"Expected a count of at least 0, got -1\.0 - column 1, row 2"):
        sums_of([0, 1, 1], [1, 2, 3], values)
    assert sums_of([0, 1, 1], Column(values, values >= 0)).count.ravel().tolist() == [1, 1]


def test_a_negative_count_beside_nan_is_refused():
    """NaN is missing, and hides no negative count."""
    with pytest.raises(DataError, match=r"got -2\.5 - column 0, row 1"):
        sums_of([0, 0, 0], [np.nan, -2.5, 1.0])


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_an_infinite_count_is_refused_or_missing(value):
    """An infinite count is an error with column and row, unless the schema calls it missing."""
    with pytest.raises(DataError, match=rf"Expected a finite number, got {value} - column 0, row 1"):
        sums_of([0, 0], [1.0, value])
    assert sums_of([0, 0], [1.0, value], infinite="missing").count[0, 0] == 1


def test_sums_that_overflow_name_the_column_and_change_nothing():
    """A sum beyond float64 is refused in a batch and between two."""
    with pytest.raises(DataError, match="sum fits in a float64, got an overflow - column 1"):
        sums_of([0, 0], [1.0, 1.0], [1.7e308, 1.7e308])
    running = sums_of([0], [1.0], [1.7e308])
    before = bits(running)
    with pytest.raises(DataError, match="got an overflow - column 1"):
        running.merge(sums_of([0], [1.0], [1.7e308]), np.arange(2))
    assert bits(running) == before


def test_sums_of_a_part_are_added_at_its_classes():
    """Class i of a part is class index[i] of the sum, and growing moves classes."""
    total = sums_of([0, 1], [5, 7])
    total.merge(sums_of([0], [1], n_classes=1), np.array([1]))
    total.grow(np.array([2, 0]), 3)
    assert total.total.ravel().tolist() == [8, 0, 5]
    assert total.n_classes == 3


def test_sums_of_different_blocks_do_not_merge():
    """Another number of features, or weights on one side only, is refused."""
    with pytest.raises(MergeError, match=r"Expected sums of 1 features .* got 2 features"):
        FeatureSums(1, 1, False).merge(FeatureSums(1, 2, False), np.array([0]))
    with pytest.raises(MergeError, match=r"weights=False, .*weights=True"):
        FeatureSums(1, 1, False).merge(FeatureSums(1, 1, True), np.array([0]))


@pytest.mark.parametrize("weight", [None, [0.5, 2.0]])
def test_sums_survive_their_arrays(weight):
    """Arrays and back is equal to the bit; arrays that cannot be are refused."""
    sums = sums_of([0, 1], [5, 7], weight=weight)
    back = FeatureSums.from_arrays(sums.arrays())
    assert bits(back) == bits(sums)
    assert back.weighted == (weight is not None)
    assert back.nbytes == sums.nbytes == 16 * (2 if weight is None else 3)
    with pytest.raises(FileFormatError, match="at least 0 in 'total', got -"):
        FeatureSums.from_arrays({**sums.arrays(), "total": -sums.total})


category_rows = st.lists(
    st.tuples(st.integers(0, C - 1), st.integers(-1, K - 1), st.sampled_from([0.25, 1.0, 3.0])), max_size=40
)


def counted(rows, weighted, n_categories=K):
    """The category counts of a list of rows: class, category, weight."""
    codes, categories, weight = (
        np.array([row[k] for row in rows], kind) for k, kind in enumerate((int, np.int32, float))
    )
    groups = Groups(codes, C, weight if weighted else None)
    return CategoryCounts.of(groups, categories, n_categories)


@laws
@given(category_rows, category_rows, st.booleans())
def test_category_counts_add_up(one, two, weighted):
    """Counts are those of plain Python, empty is neutral, and merging equals counting all rows, in any order."""
    a, b = counted(one, weighted), counted(two, weighted)
    here, there, before = np.arange(C), np.arange(K), bits(b)
    expected = np.zeros((C, K))
    for c, k, w in one + two:
        if k >= 0:
            expected[c, k] += w if weighted else 1
    nothing = CategoryCounts(C, K, weighted)
    assert bits(added(a, nothing, here, there)) == bits(a) == bits(added(nothing, a, here, there))
    total = added(a, b, here, there)
    assert bits(total) == bits(added(b, a, here, there)) == bits(counted(one + two, weighted))
    np.testing.assert_array_equal(total.counts, expected)
    placed = [c for c, k, _ in one + two if k >= 0]
    np.testing.assert_array_equal(total.present, np.bincount(np.array(placed, int), minlength=C))
    total.merge(b, here, there)
    assert bits(b) == before


@laws
@given(
    category_rows,
    st.booleans(),
    st.permutations(range(C)),
    st.lists(st.integers(0, K + 1), min_size=K, max_size=K),
    st.booleans(),
)
def test_a_batch_is_added_at_its_places(rows, weighted, index, places, sparse):
    """Classes and codes of a batch go where they are told, also two codes to one category, with a table or without."""
    codes, categories, weight = (
        np.array([row[k] for row in rows], kind) for k, kind in enumerate((int, np.int32, float))
    )
    index, places = np.array(index), np.array(places)
    places[np.setdiff1d(np.arange(K), categories)] = -1  # what no row uses has no place
    found = CategoryCounts(C, K + 2, weighted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "SPARSE", 0 if sparse else 4)
        found.add(Groups(codes, C, weight if weighted else None), categories, index, places)
    expected = np.zeros((C, K + 2))
    for c, k, w in rows:
        if k >= 0:
            expected[index[c], places[k]] += w if weighted else 1
    np.testing.assert_array_equal(found.counts, expected)
    assert found.rows.sum() == (categories >= 0).sum()


def test_categories_and_classes_grow():
    """Old categories and classes move to their new places, and new ones are empty."""
    found = counted([(0, 0, 1.0), (1, 3, 1.0), (2, 3, 1.0), (2, 3, 1.0)], False)
    found.grow_categories(np.array([4, 3, 1, 0]), 5)
    found.grow(np.array([3, 0, 1]), 4)
    assert found.counts.tolist() == [[1, 0, 0, 0, 0], [2, 0, 0, 0, 0], [0] * 5, [0, 0, 0, 0, 1]]
    assert (found.n_classes, found.n_categories, found.nbytes) == (4, 5, 160)
    part = counted([(0, 0, 1.0), (1, 1, 1.0)], False, 2)
    found.merge(part, np.array([2, 1, 0]), np.array([2, 4]))
    assert found.counts.tolist() == [[1, 0, 0, 0, 0], [2, 0, 0, 0, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]


def test_a_batch_makes_no_large_table():
    """A thousand classes by twenty thousand categories are added row by row, with no table of the batch."""
    import tracemalloc

    rng = np.random.default_rng(0)
    codes, categories = rng.integers(0, 1_000, 5_000), rng.integers(-1, 20_000, 5_000).astype(np.int32)
    found = CategoryCounts(1_000, 20_000)
    groups = Groups(codes, 1_000)
    tracemalloc.start()
    found.add(groups, categories, np.arange(1_000), np.arange(20_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000
    assert found.counts.sum() == (categories >= 0).sum()


def test_codes_without_a_category_are_refused():
    """A code outside of the categories never reaches a loop that would write outside of its arrays."""
    for code in (2, -2):
        with pytest.raises(ValueError, match="expected codes from -1 to 1"):
            CategoryCounts.of(Groups(np.array([0]), 1), np.array([code], np.int32), 2)


def test_weights_do_not_merge_with_counts():
    """Category counts with weights on one side only are refused."""
    with pytest.raises(MergeError, match="weights=False, got weights=True"):
        CategoryCounts(1, 1, False).merge(CategoryCounts(1, 1, True), np.array([0]), np.array([0]))


@pytest.mark.parametrize("weighted", [False, True])
def test_category_counts_survive_their_arrays(weighted):
    """Arrays and back is equal to the bit; arrays that cannot be are refused."""
    found = counted([(0, 0, 0.25), (1, 3, 3.0)], weighted)
    back = CategoryCounts.from_arrays(found.arrays())
    assert bits(back) == bits(found)
    assert back.weighted == weighted
    with pytest.raises(FileFormatError, match="at least 0 in 'counts', got -"):
        CategoryCounts.from_arrays({**found.arrays(), "counts": -found.counts})
    with pytest.raises(FileFormatError, match="Expected an array 'counts'"):
        CategoryCounts.from_arrays({})
