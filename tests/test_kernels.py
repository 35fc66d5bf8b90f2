"""Both kernels keep one contract: the compiled loops must find what NumPy's find, and both what plain Python does."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamnb import kernels
from streamnb.errors import DataError
from streamnb.kernels import CHUNK, Groups, Kernels, Sums, implementation, numpy_kernels
from streamnb.measure import measure
from streamnb.protocols import Column

REAL = [
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
]


@pytest.fixture(params=["numpy", "numba"], scope="module")
def kernel(request: pytest.FixtureRequest) -> Kernels:
    """Each implementation in turn."""
    if request.param == "numpy":
        return numpy_kernels
    pytest.importorskip("numba")
    from streamnb.kernels_jit import jit_kernels

    return jit_kernels


def plain_sums(codes, values, present, weight, pivot):
    """The sums of one column in exact arithmetic: per class, number, weight, deviation and square."""
    sums = [[Fraction(0)] * 4 for _ in range(len(pivot))]
    for i, c in enumerate(codes):
        if present is None or present[i]:
            w = Fraction(1 if weight is None else float(weight[i]))
            d = Fraction(float(values[i])) - Fraction(float(pivot[c]))
            for k, term in enumerate((Fraction(1), w, w * d, w * d * d)):
                sums[c][k] += term
    return [np.array([float(row[k]) for row in sums]) for k in range(4)]


def assert_sums(found, expected):
    """Assert that sums agree to rounding."""
    number, weight, deviation, square = expected
    np.testing.assert_array_equal(found.number, number)
    assert found.number.dtype == np.int64
    np.testing.assert_allclose(found.weight, weight, rtol=1e-13)
    scale = np.sqrt(weight * square) + 1e-300
    np.testing.assert_allclose(found.deviation / scale, deviation / scale, atol=1e-12)
    np.testing.assert_allclose(found.square, square, rtol=1e-12)


@pytest.mark.parametrize("n_classes", [1, 3, 300])
@pytest.mark.parametrize("missing", [None, 0.05, 0.6, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_match_exact_arithmetic(kernel, n_classes, missing, weighted):
    """Number, weight, deviations and squares of each class are those of exact arithmetic."""
    rng = np.random.default_rng(n_classes)
    n_rows = 1_003
    codes = rng.integers(0, n_classes, n_rows)
    values = rng.normal(7, 2, n_rows)
    pivot = rng.normal(7, 1, n_classes)
    present = None if missing is None else rng.random(n_rows) >= missing
    weight = rng.random(n_rows) + 0.5 if weighted else None
    if present is not None:
        values[~present] = rng.choice([np.nan, np.inf, 1e300], n_rows)[~present]
    with np.errstate(all="ignore"):
        found = kernel.sums(Groups(codes, n_classes, weight), values, present, pivot)
    assert_sums(found, plain_sums(codes, values, present, weight, pivot))


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("layout", ["plain", "strided", "read-only", "swapped", "unaligned"])
def test_every_real_type_and_layout_is_widened_first(kernel, dtype, layout):
    """Any real type gives the sums of its values as float64, however they lie in memory."""
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2 if dtype == "bool" else 100, 500).astype(dtype)
    codes = rng.integers(0, 4, 500)
    pivot = np.full(4, 40.0)
    same = values
    if layout == "strided":
        same = np.repeat(values, 3)[::3]
    elif layout == "read-only":
        same = np.frombuffer(values.tobytes(), values.dtype)
    elif layout == "swapped":
        same = values.astype(values.dtype.newbyteorder())
    elif layout == "unaligned":
        same = np.frombuffer(b"x" + values.tobytes(), values.dtype, offset=1)
    found = kernel.sums(Groups(codes, 4), same, None, pivot)
    assert_sums(found, plain_sums(codes, values.astype(np.float64), None, None, pivot))


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("weighted", [False, True])
def test_many_chunks_and_classes_without_rows(kernel, missing, weighted):
    """Batches of several chunks add up, and a class without rows has sums of 0 wherever it stands."""
    rng = np.random.default_rng(2)
    n_rows = 2 * CHUNK + 17
    codes = rng.choice([1, 2, 5, 6], n_rows)
    values = rng.normal(size=n_rows)
    weight = rng.random(n_rows) if weighted else None
    present = rng.random(n_rows) >= missing if missing else None
    pivot = np.linspace(-1, 1, 8)
    found = kernel.sums(Groups(codes, 8, weight), values, present, pivot)
    kept = np.ones(n_rows, bool) if present is None else present
    w = np.ones(n_rows) if weight is None else weight
    for c in range(8):
        mine = (codes == c) & kept
        d = values[mine] - pivot[c]
        assert found.number[c] == mine.sum()
        assert found.weight[c] == pytest.approx(w[mine].sum(), rel=1e-12)
        assert found.deviation[c] == pytest.approx((w[mine] * d).sum(), rel=1e-9, abs=1e-9)
        assert found.square[c] == pytest.approx((w[mine] * d * d).sum(), rel=1e-12)


def test_sums_without_a_pivot_are_those_of_the_values(kernel):
    """Without a pivot the deviation is the sum of the values, exactly so for whole numbers."""
    rng = np.random.default_rng(3)
    codes, values = rng.integers(0, 5, 4_000), rng.integers(0, 1_000_000, 4_000)
    found = kernel.sums(Groups(codes, 5), values, values % 7 > 0, None)
    kept = values % 7 > 0
    expected = np.bincount(codes[kept], values[kept], 5)
    np.testing.assert_array_equal(found.deviation, expected)


def test_a_weight_far_above_the_rest_may_be_missing(kernel):
    """The weight that remains is summed, not left over from a subtraction that loses it."""
    weight = np.ones(100)
    weight[0] = 1e20
    present = np.arange(100) > 0
    found = kernel.sums(Groups(np.zeros(100, int), 1, weight), np.ones(100), present, np.ones(1))
    assert found.weight[0] == 99.0


def test_more_classes_than_a_short_code_holds(kernel):
    """Rows are put in the order of 100 000 classes."""
    codes = np.random.default_rng(4).permutation(100_000)
    found = kernel.sums(Groups(codes, 100_000), codes.astype(float), None, np.zeros(100_000))
    np.testing.assert_array_equal(found.deviation, np.arange(100_000))


def test_the_same_rows_give_the_same_bits(kernel):
    """A kernel is deterministic, from whichever thread it is called."""
    rng = np.random.default_rng(5)
    groups = Groups(rng.integers(0, 9, 50_000), 9)
    columns = [rng.normal(size=50_000) for _ in range(16)]
    pivot = np.zeros(9)

    def bits(values):
        return b"".join(array.tobytes() for array in kernel.sums(groups, values, None, pivot))

    alone = [bits(values) for values in columns]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(bits, columns)) == alone


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_codes_are_counted_in_place(kernel, weighted, wide):
    """Each pair of class and category gets its rows, or their weights; codes may share a column, -1 is nowhere."""
    rng = np.random.default_rng(6)
    codes, categories = rng.integers(0, 4, 999), rng.integers(-1, 6, 999).astype(np.int32)
    weight = rng.integers(1, 5, 999) / 4 if weighted else None
    columns = np.full(20_000 if wide else 8, -1)
    columns[:7] = [3, 0, 3, 8, 5, 1, 2]
    index = np.array([2, 0, 1, 4, 3])
    table = np.full((6, 9), 10.0 if weighted else 10)
    expected = table.copy()
    for i in range(999):
        if categories[i] >= 0:
            expected[index[codes[i]], columns[categories[i]]] += 1 if weight is None else weight[i]
    kernel.tally(Groups(codes, 5, weight), categories, index, columns, table)
    np.testing.assert_array_equal(table, expected)
    assert table.dtype == (np.float64 if weighted else np.int64)
    rows = np.zeros((6, 9), np.int64)
    kernel.tally(Groups(codes, 5, weight), categories, index, columns, rows)
    assert rows.sum() == (categories >= 0).sum()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1.0, 2.5, np.nan]), st.booleans()), max_size=40))
def test_measure_skips_missing_cells_alone(kernel, rows):
    """Null and NaN are both missing, and a class's pivot is its first cell that is not."""
    codes = np.array([row[0] for row in rows], int)
    values = np.array([row[1] for row in rows])
    valid = np.array([row[2] for row in rows], bool)
    groups = Groups(codes, 4)
    with np.errstate(all="ignore"):
        block, pivot = measure(kernel, groups, [Column(values, valid)], 0, np.full((1, 4), np.nan), "error")
    sums, pivot = Sums._make(array[0] for array in block), pivot[0]
    there = valid & ~np.isnan(values)
    np.testing.assert_array_equal(sums.number, np.bincount(codes[there], minlength=4))
    for c in range(4):
        own = values[there & (codes == c)]
        if len(own):
            assert pivot[c] == own[0]
            assert sums.deviation[c] == (own - own[0]).sum()


def test_a_late_nan_is_found(kernel):
    """NaN is found wherever it stands, also where the first look does not reach."""
    values = np.ones(2_000)
    values[1_900] = np.nan
    with np.errstate(all="ignore"):
        sums, _ = measure(kernel, Groups(np.zeros(2_000, int), 1), [Column(values)], 0, np.zeros((1, 1)), "error")
    assert sums.number[0, 0] == sums.square[0, 0] == 1_999


def test_codes_outside_of_the_classes_are_refused():
    """A code that is no class never reaches a loop that would write outside of its arrays."""
    with pytest.raises(ValueError, match="expected codes below 2, got 2"):
        Groups(np.array([0, 2]), 2)
    with pytest.raises(ValueError, match="negative"):
        Groups(np.array([0, -1]), 2)


def test_overflow_names_the_column(kernel):
    """Squares beyond float64 are an error, not an infinity in a statistic."""
    column = Column(np.array([1e200, -1e200]))
    with np.errstate(all="ignore"), pytest.raises(DataError, match=r"squared deviations fit.* - column 3"):
        measure(kernel, Groups(np.zeros(2, int), 1), [column], 3, np.full((1, 1), np.nan), "error")


@pytest.mark.parametrize("n_classes", [3, 300])
@pytest.mark.parametrize("missing", [None, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("pivoted", [False, True])
def test_a_column_has_the_same_bits_alone_and_among_others(kernel, n_classes, missing, weighted, pivoted):
    """Columns are summed four at a time where they can be: nothing in a column may depend on its neighbours."""
    rng = np.random.default_rng(n_classes)
    n_rows = 1_003
    weight = rng.random(n_rows) + 0.5 if weighted else None
    groups = Groups(rng.integers(0, n_classes, n_rows), n_classes, weight)
    block = []
    for j, dtype in enumerate(["f8", "i4", "f8", "f4", "f8", "i4", "f8", "i4", "u2", "i4", "f8", "f8"]):
        valid = None if missing is None or j == 4 else rng.random(n_rows) >= missing
        block.append(Column((rng.normal(7, 2, n_rows) * 100).clip(0).astype(dtype), valid))
    late = block[6].values.copy()
    late[-1] = np.nan
    block[6] = Column(late, block[6].valid)
    pivot = np.full((len(block), n_classes), np.nan) if pivoted else None
    with np.errstate(all="ignore"):
        together = measure(kernel, groups, block, 0, pivot, "error")
        for j, column in enumerate(block):
            alone = measure(kernel, groups, [column], j, None if pivot is None else pivot[j : j + 1], "error")
            np.testing.assert_array_equal(together[1][j], alone[1][0])
            for whole, part in zip(together[0][: 4 if pivoted else 3], alone[0], strict=False):
                assert whole[j].tobytes() == part[0].tobytes()
            if j not in (0, 3, 5, 6):
                continue  # exact arithmetic is slow: one column of each type, and one with a late NaN
            present = ~np.isnan(column.values) if column.valid is None else column.valid & ~np.isnan(column.values)
            expected = plain_sums(groups.codes, column.values.astype(float), present, weight, alone[1][0])
            np.testing.assert_allclose(together[0].deviation[j], expected[2], rtol=1e-9, atol=1e-6)


def test_streamnb_jit_0_chooses_numpy(monkeypatch):
    """The environment decides which kernels run."""
    monkeypatch.setenv("STREAMNB_JIT", "0")
    assert implementation() is numpy_kernels
    monkeypatch.delenv("STREAMNB_JIT")
    pytest.importorskip("numba")
    assert implementation().name == "numba"


def test_without_numba_numpy_serves(monkeypatch):
    """Numba is optional: where it cannot be imported NumPy does the work."""
    monkeypatch.delenv("STREAMNB_JIT", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "streamnb.kernels_jit", raising=False)
    kernels._compiled.cache_clear()
    try:
        assert implementation() is numpy_kernels
    finally:
        kernels._compiled.cache_clear()


def test_the_import_does_not_load_numba():
    """Numba takes half a second to import, so it waits for the first batch."""
    code = "import sys, streamnb.moments, streamnb.counts; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_where_no_folder_can_be_written_loops_are_compiled_anew(monkeypatch):
    """A cache that cannot be kept is no reason to fail."""
    numba = pytest.importorskip("numba")
    from streamnb import kernels_jit

    compile_now = numba.njit

    def read_only(*args, cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return compile_now(*args, **options)

    monkeypatch.setattr(numba, "njit", read_only)
    count = kernels_jit.compiled(kernels_jit._tally_all)
    table = np.zeros((1, 2), np.int64)
    count(np.zeros(3, np.int32), np.zeros(3, np.int32), np.zeros(1, np.intp), np.ones(1, np.intp), table)
    assert table.tolist() == [[0, 3]]
