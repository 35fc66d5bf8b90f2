"""Exact sums against fractions: any floats, both kernels, every digit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import streamnb as snb
from streamnb.exactcounts import ExactFeatureSums
from streamnb.exactmoments import ExactMoments
from streamnb.exactsums import ExactSums, quotient
from streamnb.kernels import Groups
from streamnb.kernels_exact import ExactKernels, numpy_kernels
from streamnb.protocols import Column

try:
    from streamnb.kernels_exact_jit import jit_kernels
except ImportError:
    KERNELS = [numpy_kernels]
else:
    KERNELS = [numpy_kernels, jit_kernels]

each_kernel = pytest.mark.parametrize("kernels", KERNELS, ids=lambda kernels: kernels.name)

LARGEST, SMALLEST = 1.7976931348623157e308, 5e-324
HARD = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    1 / 3,
    LARGEST,
    -LARGEST,
    1e308,
    1e-308,
    SMALLEST,
    -SMALLEST,
    2.0**-1022,
    2.0**53 - 1,
]
HARD += [1e9 + 0.1, 1e15, 1e15 + 0.5, 2.0**31, -(2.0**31), 2.0**32 - 1, 2.0**970, 2.0**-480, 1.5 * 2.0**-537]

hard_floats = st.one_of(
    st.sampled_from(HARD),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-10, 10),
    st.integers(-5, 5).map(float),
)


def fraction_sum(values: Sequence[Any]) -> Fraction:
    """Return the sum of floats, as it is."""
    return sum((Fraction(float(value)) for value in values), Fraction(0))


def nearest(value: Fraction) -> float:
    """Return the float nearest to a fraction, and infinity beyond all of them."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@given(st.lists(hard_floats, max_size=40))
def test_a_sum_is_the_sum_of_fractions(values: list[float]) -> None:
    """Each number is kept to the last bit, and so is their sum, which rounds once to the nearest float."""
    sums = ExactSums.of(np.array(values, np.float64))
    assert sums.fractions() == [Fraction(value) for value in values]
    assert sums.rounded().tolist() == values
    total = ExactSums((1,))
    for value in values:
        total = total + ExactSums.of([value])
    assert total.fractions() == [fraction_sum(values)]
    assert total.rounded().item() == nearest(fraction_sum(values))
    assert total.signs().item() == np.sign(fraction_sum(values))


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=10))
def test_integers_of_64_bits(values: list[int]) -> None:
    """Whole numbers are kept beyond 2**53, and their sum beyond 2**63."""
    sums = ExactSums.of(np.array(values, np.int64))
    assert sums.fractions() == values
    assert sums.sum().fractions() == [sum(values)]


@given(st.lists(hard_floats, min_size=1, max_size=12), st.lists(hard_floats, min_size=1, max_size=12), st.randoms())
def test_equal_sums_have_equal_arrays(values: list[float], others: list[float], random: Any) -> None:
    """What a file holds depends on the value alone: not on the order, nor on what was added and taken away again."""
    one = ExactSums((1,))
    for value in values:
        one = one + ExactSums.of([value])
    shuffled = [*values, *others]
    random.shuffle(shuffled)
    two = ExactSums((1,))
    for value in shuffled:
        two = two + ExactSums.of([value])
    for value in others:
        two = two - ExactSums.of([value])
    assert one == two
    for name, array in one.arrays().items():
        assert array.tolist() == two.arrays()[name].tolist()
        assert array.dtype == two.arrays()[name].dtype
    assert ExactSums.from_arrays(one.arrays()) == one
    assert (one - two) == ExactSums((1,))
    assert not (one - two).arrays()["digits"].size


@given(
    whole=st.integers(2**52, 2**53 - 1),
    below=st.sampled_from([0.0, SMALLEST, -SMALLEST, 2.0**-33, -(2.0**-64)]),
    sign=st.sampled_from([1, -1]),
)
def test_rounding_of_ties(whole: int, below: float, sign: int) -> None:
    """A sum half way between two floats goes to the even one, and the least bit below it decides otherwise."""
    sums = ExactSums.of([float(sign * whole)]) + ExactSums.of([sign * 0.5]) + ExactSums.of([below])
    assert sums.rounded().item() == float(sums.fractions()[0])


def test_a_carry_of_2_to_the_60_additions() -> None:
    """Digits that are full are carried before they overflow, also when sums are added to themselves sixty times."""
    total = ExactSums.of([0.1, -1e300, SMALLEST])
    for _ in range(60):
        total = total + total
    assert total.fractions() == [Fraction(value) * 2**60 for value in (0.1, -1e300, SMALLEST)]


@pytest.mark.parametrize(
    ("above", "unit", "below", "expected"),
    [(1, 0, 3, 1 / 3), (-7, 1, 2, -7.0), (1, -1074, 2, 0.0), (3, -1074, 2, 1e-323), (1, 1024, 1, math.inf)],
)
def test_a_quotient_rounds_once(above: int, unit: int, below: int, expected: float) -> None:
    """Quotients are the nearest floats, ties to even, also among subnormal ones."""
    assert quotient(above, unit, below, 0) == expected


@st.composite
def columns(draw: st.DrawFn) -> list[float]:
    """Draw a column: mixed magnitudes, or many values of one kind, which is what the fast ways are for."""
    if draw(st.booleans()):
        return draw(st.lists(hard_floats, min_size=1, max_size=30))
    seed, n = draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, 400))
    rng = np.random.default_rng(seed)
    scale = draw(st.sampled_from([1.0, 1e9, 1e-300, 1e140, 1e300, 1e-120]))
    far = draw(st.sampled_from([0.0, 1.0, 1e3, 1e6]))
    spread = draw(st.sampled_from([0.0, 1.0, 3.0]))
    values = rng.normal(size=n) * np.exp(rng.normal(size=n) * spread)
    return ((values + far) * scale).tolist()


@each_kernel
@given(columns(), st.data())
@example([LARGEST] * 5 + [SMALLEST], None)
def test_powers_are_those_of_fractions(kernels: ExactKernels, values: list[float], data: st.DataObject | None) -> None:
    """Σx and Σx² of each class are exact, whatever the magnitudes."""
    n_classes = 1 if data is None else data.draw(st.sampled_from([1, 2, 5]))
    codes = np.arange(len(values)) * 7919 % 11 % n_classes
    one, square = kernels.powers(Groups(codes, n_classes), [np.array(values), np.array(values[::-1])])
    assert one.shape == (n_classes, 2)
    for j, column in enumerate((values, values[::-1])):
        for c in range(n_classes):
            rows = [value for value, code in zip(column, codes, strict=True) if code == c]
            assert one.fractions()[2 * c + j] == fraction_sum(rows)
            assert square.fractions()[2 * c + j] == sum((Fraction(x) ** 2 for x in rows), Fraction(0))


@each_kernel
@given(st.lists(st.tuples(st.integers(-1, 3), hard_floats, hard_floats), min_size=1, max_size=30))
def test_products_are_those_of_fractions(kernels: ExactKernels, rows: list[tuple[int, float, float]]) -> None:
    """Products of one to three factors are summed without rounding; cell −1 takes no part."""
    cells, first, second = (np.array(each) for each in zip(*rows, strict=True))
    for factors in ([first], [second, first], [second, first, first]):
        found = kernels.products(cells, 4, factors).fractions()
        for cell in range(4):
            expected = Fraction(0)
            for i in np.flatnonzero(cells == cell):
                expected += math.prod(Fraction(factor[i]) for factor in factors)
            assert found[cell] == expected


@each_kernel
def test_many_full_mantissas_in_one_cell(kernels: ExactKernels) -> None:
    """Digits of half a million rows with all bits set, in one of many cells, are summed to the last bit."""
    n, value = 1 << 19, 1.0 - 2.0**-53
    found = kernels.products(np.full(n, 7), n, [np.full(n, value)] * 3)
    assert found.at(np.array([6, 7])).fractions() == [0, n * Fraction(value) ** 3]
    one, square = kernels.powers(Groups(np.zeros(n, np.int32), 1), [np.full(n, -value)])
    assert one.fractions() == [-n * Fraction(value)]
    assert square.fractions() == [n * Fraction(value) ** 2]


@each_kernel
def test_long_columns(kernels: ExactKernels) -> None:
    """Columns of many chunks, with values that do not fit beside the largest, are summed to the last bit."""
    rng = np.random.default_rng(5)
    n = 70_001
    codes = rng.integers(0, 3, n)
    tail = rng.normal(size=n) * np.where(rng.random(n) < 0.02, 1e-9, 1.0)
    wide = np.exp(10 * rng.normal(size=n))
    one, square = kernels.powers(Groups(codes, 3), [tail, wide])
    for c in range(3):
        for j, column in enumerate((tail, wide)):
            # Integers in units of 2**-400 are added faster than fractions.
            whole = [int(Fraction(x) * 2**400) for x in column[codes == c].tolist()]
            assert one.fractions()[2 * c + j] == Fraction(sum(whole), 2**400)
            assert square.fractions()[2 * c + j] == Fraction(sum(x * x for x in whole), 2**800)


def exact_moments(rows: Sequence[float], weights: Sequence[float]) -> tuple[Fraction, Fraction]:
    """Return mean and variance as fractions."""
    whole = fraction_sum(weights)
    pairs = [(Fraction(w), Fraction(x)) for w, x in zip(weights, rows, strict=True)]
    mean = sum((w * x for w, x in pairs), Fraction(0)) / whole
    return mean, sum((w * (x - mean) ** 2 for w, x in pairs), Fraction(0)) / whole


positive = st.floats(min_value=0, exclude_min=True, allow_infinity=False)


@given(st.lists(st.tuples(hard_floats, positive), min_size=1, max_size=12), st.booleans())
def test_mean_and_variance_are_the_nearest_floats(rows: list[tuple[float, float]], weighted: bool) -> None:
    """Mean and variance are rounded once from what they are as fractions; with its tail, the mean is twice as fine."""
    values, weights = [x for x, _ in rows], [w if weighted else 1.0 for _, w in rows]
    groups = Groups(np.zeros(len(rows), np.int32), 1, np.array(weights) if weighted else None)
    moments = ExactMoments.of(groups, [Column(np.array(values))])
    mean, variance = exact_moments(values, weights)
    if nearest(variance) == math.inf:
        with pytest.raises(snb.DataError, match="overflow"):
            moments.variance()
        return
    assert moments.mean.item() == nearest(mean)
    assert moments.mean_tail.item() == nearest(mean - Fraction(nearest(mean)))
    assert moments.variance().item() == nearest(variance)
    assert moments.sum_of_weights.item() == nearest(fraction_sum(weights))


@pytest.mark.parametrize(
    ("values", "mean", "variance"),
    [
        ([1e15, 1e15 + 1, 1e15 + 2], 1e15 + 1, 2 / 3),
        ([1e308, 1e308, 1e308], 1e308, 0.0),
        ([SMALLEST, 3 * SMALLEST], 2 * SMALLEST, 0.0),
        ([-LARGEST, 0.0, LARGEST], 0.0, None),
        ([1e308, 1e-308], 5e307, None),
        ([2.0**520, 2.0**520 + 2.0**470], 2.0**520 + 2.0**469, 2.0**938),
    ],
)
def test_known_moments(values: list[float], mean: float, variance: float | None) -> None:
    """Far from 0, at the ends of the floats, and where only the variance is beyond them."""
    moments = ExactMoments.of(Groups(np.zeros(len(values), np.int32), 1), [Column(np.array(values))])
    if variance is None:
        with pytest.raises(snb.DataError, match="whose variance fits"):
            moments.variance()
        return
    assert (moments.mean.item(), moments.variance().item()) == (mean, variance)


def test_counts_of_tenths() -> None:
    """Ten tenths are one, weighted or not, whatever floats make of them."""
    tenths = np.full(10, 0.1)
    codes = np.zeros(10, np.int32)
    assert ExactFeatureSums.of(Groups(codes, 1), [Column(tenths)]).total.item() == 1.0
    weighted = ExactFeatureSums.of(Groups(codes, 1, tenths), [Column(np.ones(10))])
    assert (weighted.total.item(), weighted.sum_of_weights.item()) == (1.0, 1.0)


def test_bytes_for_typical_columns() -> None:
    """A class and feature take at most 250 bytes in a file: normal, far from 0, and of several magnitudes."""
    rng = np.random.default_rng(3)
    n = 50_000
    block = [rng.normal(size=n), 1e9 + rng.normal(size=n), np.exp(3 * rng.normal(size=n)), rng.integers(0, 100, n)]
    moments = ExactMoments.of(Groups(rng.integers(0, 10, n), 10), [Column(column) for column in block])
    assert sum(array.nbytes for array in moments.arrays().values()) / 40 <= 250


def test_damaged_digits_are_refused() -> None:
    """Sums from a file have one form: without zeros at the ends, as many digits as told, and in range."""
    arrays = ExactSums.of([1.0, 2.0**70, 0.0]).arrays()
    for name, value in (
        ("digits", np.array([0, 64], np.int32)),
        ("digits", np.array([1], np.int32)),
        ("low", np.array([0, 2, 1], np.int16)),
        ("low", np.array([0, 500, 0], np.int16)),
        ("width", np.array([1, 1, 0], np.int16)),
    ):
        with pytest.raises(snb.FileFormatError):
            ExactSums.from_arrays(arrays | {name: value})
