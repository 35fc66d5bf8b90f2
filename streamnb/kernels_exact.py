"""The hot loops of exact sums, in NumPy: products of floats, summed per cell without rounding.

`implementation()` gives these, or the compiled ones of `kernels_exact_jit` where Numba is there. The two give equal
sums: there is only one right answer, so it does not matter which of them ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamnb.exactsums import BITS, ExactSums
from streamnb.kernels import Groups, compiled_wanted
from streamnb.protocols import Floats

__all__ = ["ExactKernels", "implementation", "numpy_kernels"]

RUN = 2_048
"""Rows summed as floats: sums of so many products of two slices stay below 2**53 units."""

CHUNK = 32_768
"""Rows handled at a time: their slices and products stay in a core's cache."""

SLICE = 21
"""Bits of a slice of a float."""

SLICES = 3
"""Slices that cover a column; values with bits below the last are rare and go the long way."""

PASSES = 4
"""How often what is left out is cut again: each time, values are covered that are a thousand times smaller."""

FEW = 64
"""Values that are not worth a pass."""

SAFE = 400
"""Where the largest value is within 2**−SAFE and 2**SAFE, no product of slices is subnormal or overflows."""

ROWS = 1 << 20
"""The sum of a digit of so many rows is exact as a float."""

LIMB = 27
MASK, LOW = (1 << LIMB) - 1, (1 << BITS) - 1


class ProductsKernel(Protocol):
    """Sum the products of one to three factors, each (n_rows,) and finite, per cell; -1 is no cell."""

    def __call__(self, cells: NDArray[Any], n_cells: int, factors: Sequence[Floats]) -> ExactSums: ...


class PowersKernel(Protocol):
    """Sum x and x² of columns of finite numbers, each (n_rows,), per class: both (n_classes, n_columns)."""

    def __call__(self, groups: Groups, columns: Sequence[Floats]) -> tuple[ExactSums, ExactSums]: ...


class ExactKernels(NamedTuple):
    """One implementation of the hot loops."""

    name: str
    products: ProductsKernel
    powers: PowersKernel


def implementation() -> ExactKernels:
    """Return the compiled kernels where Numba can be imported and STREAMNB_JIT is not "0", else NumPy's."""
    compiled = _compiled() if compiled_wanted() else None
    return numpy_kernels if compiled is None else compiled


@cache
def _compiled() -> ExactKernels | None:
    try:
        from streamnb.kernels_exact_jit import jit_kernels
    except ImportError:
        return None
    return jit_kernels


# Any floats ---------------------------------------------------------------------------------------------------------


def _products(cells: NDArray[Any], n_cells: int, factors: Sequence[Floats]) -> ExactSums:
    """Multiply mantissas as integers, in pieces of 27 bits, and count the digits of what comes out."""
    total = ExactSums((n_cells,))
    step = min(max(1 << 15, n_cells), ROWS)
    for low in range(0, len(cells), step):
        here = slice(low, low + step)
        total = total + _products_of_some(cells[here], n_cells, [factor[here] for factor in factors])
    return total.normalised()


def _products_of_some(cells: NDArray[Any], n_cells: int, factors: Sequence[Floats]) -> ExactSums:
    there = cells >= 0
    for factor in factors:
        there &= factor != 0
    rows = np.flatnonzero(there)
    if not len(rows):
        return ExactSums((n_cells,))
    place = np.zeros(len(rows), np.int64)
    negative = np.zeros(len(rows), np.bool_)
    limbs: list[NDArray[np.int64]] = [np.ones(len(rows), np.int64)]
    for factor in factors:
        mantissa, exponent = np.frexp(factor.take(rows))
        place += exponent - 53
        negative ^= mantissa < 0
        whole = np.ldexp(np.abs(mantissa), 53).astype(np.int64)
        limbs = [whole] if len(factors) == 1 else _times(limbs, whole)
    return _counted(limbs, place, negative, cells.take(rows).astype(np.int64), n_cells)


def _times(limbs: list[NDArray[np.int64]], whole: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Multiply an integer in pieces of 27 bits, below 2**27 each, by one of 53 bits; the pieces are again so."""
    below, above = whole & MASK, whole >> LIMB
    product = []
    carry: Any = 0
    before: Any = 0
    for limb in limbs:
        column = limb * below + before + carry
        before = limb * above
        product.append(column & MASK)
        carry = column >> LIMB
    column = before + carry
    return [*product, column & MASK, column >> LIMB]


def _counted(
    limbs: Sequence[NDArray[np.int64]],
    place: NDArray[np.int64],
    negative: NDArray[np.bool_],
    cells: NDArray[np.int64],
    n_cells: int,
) -> ExactSums:
    """Sum Σ limb · 2**(place + 27 · its number) per cell, as digits of 32 bits."""
    least, most = int(place.min()), int(place.max()) + LIMB * (len(limbs) - 1)
    low, n_planes = least >> 5, (most >> 5) - (least >> 5) + 3
    digits = np.zeros(n_planes * n_cells, np.int64)
    for k, limb in enumerate(limbs):
        digit, shift = (place + LIMB * k) >> 5, (place + LIMB * k) & 31
        at = (digit - low) * n_cells + cells
        # A limb has 54 bits at most: shifted by up to 31, it lies in three digits.
        below = (limb & LOW) << shift
        above = ((limb >> BITS) << shift) + (below >> BITS)
        for j, piece in enumerate((below & LOW, above & LOW, above >> BITS)):
            signed = np.where(negative, -piece, piece).astype(np.float64)
            digits += np.bincount(at + j * n_cells, signed, len(digits)).astype(np.int64)
    return ExactSums.around(digits.reshape(n_planes, n_cells), low)


# Columns of numbers -------------------------------------------------------------------------------------------------


class _Kept:
    """Sums of runs of rows, exact as floats, that still have to be added up: value, and the cell it belongs to."""

    def __init__(self) -> None:
        self.values: list[Floats] = []
        self.cells: list[NDArray[Any]] = []

    def add(self, values: Floats, cells: NDArray[Any]) -> None:
        self.values.append(values)
        self.cells.append(cells)

    def summed(self, n_cells: int) -> ExactSums:
        if not self.values:
            return ExactSums((n_cells,))
        return _products(np.concatenate(self.cells), n_cells, [np.concatenate(self.values)])


def _powers(groups: Groups, columns: Sequence[Floats]) -> tuple[ExactSums, ExactSums]:
    """Cut x into slices of 21 bits, of which products and their sums over runs of rows are exact as floats.

    The slices count from the largest value of a chunk: where they lie on the grid does not matter, because each sum
    of a run is exact, and is put onto the grid by `_products`. Values with bits below the last slice are the small
    ones: they are cut again, by themselves.
    """
    n = groups.n_classes
    ones, squares = _Kept(), _Kept()
    segments = groups.segments
    ordered = groups.codes.take(segments.order)
    chunks = [
        (segments.order[low : low + CHUNK], *_runs(ordered[low : low + CHUNK])) for low in range(0, len(ordered), CHUNK)
    ]
    work = np.empty((SLICES + 3, min(CHUNK, len(ordered))))
    long_way: list[tuple[Floats, NDArray[Any]]] = []
    with np.errstate(under="ignore"):
        for j, column in enumerate(columns):
            rows: list[NDArray[np.intp]] = []
            for order, starts, classes in chunks:
                np.take(column, order, out=work[0, : len(order)], mode="clip")
                left = _sliced(work[:, : len(order)], starts, classes + n * j, ones, squares)
                if left is not None:
                    rows.append(order.take(left))
            if rows:
                left = np.concatenate(rows)
                x, cells = column.take(left), groups.codes.take(left) + n * j
                x, cells = _cut_again(x, cells, work, ones, squares)
                long_way.append((x, cells))
    shape = (len(columns), n)
    one, square = ones.summed(n * len(columns)), squares.summed(n * len(columns))
    if long_way:
        rest, cells = (np.concatenate(each) for each in zip(*long_way, strict=True))
        one = one + _products(cells, n * len(columns), [rest])
        square = square + _products(cells, n * len(columns), [rest, rest])
    return _turned(one, shape), _turned(square, shape)


def _turned(sums: ExactSums, shape: tuple[int, int]) -> ExactSums:
    planes = sums.normalised().planes.reshape(-1, *shape).transpose(0, 2, 1)
    return ExactSums.around(np.ascontiguousarray(planes), sums.low, 1 << BITS)


def _cut_again(
    x: Floats, cells: NDArray[Any], work: Floats, ones: _Kept, squares: _Kept
) -> tuple[Floats, NDArray[Any]]:
    """Sum what was left out, and what is left out of that; return what is too little or too wide for it."""
    for _ in range(PASSES):
        if len(x) < FEW:
            break
        rows = []
        for low in range(0, len(x), work.shape[1]):
            here = slice(low, min(low + work.shape[1], len(x)))
            part = work[:, : here.stop - low]
            part[0] = x[here]
            left = _sliced(part, *_runs(cells[here]), ones, squares)
            if left is not None:
                rows.append(low + left)
        kept = np.concatenate(rows) if rows else np.zeros(0, np.intp)
        hopeless = 8 * len(kept) > 7 * len(x)
        x, cells = x.take(kept), cells.take(kept)
        if hopeless:
            break
    return x, cells


def _runs(cells: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Cut rows into runs of one cell and at most `RUN` rows: where each begins, and its cell."""
    ends = np.append(np.flatnonzero(cells[1:] != cells[:-1]) + 1, len(cells))
    begins = np.append(0, ends[:-1])
    pieces = -(-(ends - begins) // RUN)
    within = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(begins, pieces) + within * RUN
    return starts, cells.take(starts)


def _sliced(
    work: Floats, starts: NDArray[np.intp], cells: NDArray[Any], ones: _Kept, squares: _Kept
) -> NDArray[np.intp] | None:
    """Sum the values work[0], which is overwritten like all of `work`; return which were left out, None if none."""
    rest, product, other, slices = work[0], work[1], work[2], work[3:]
    largest = max(float(rest.max()), -float(rest.min()))
    if largest == 0:
        return None
    top = int(np.frexp(largest)[1])
    if abs(top) > SAFE:
        return np.arange(len(rest))
    unit, used, left = top - SLICE + 1, 0, None
    while used < SLICES:
        # Adding 1.5 · 2**52 units rounds to whole units: at most 2**20 of them, and half a unit stays.
        magic = float(np.ldexp(1.5, 52 + unit))
        q = slices[used]
        np.add(rest, magic, out=q)
        np.subtract(q, magic, out=q)
        np.subtract(rest, q, out=rest)
        used, unit = used + 1, unit - SLICE
        if used > 1:
            more = rest != 0
            if not more.any():
                break
            if used == SLICES:
                left = np.flatnonzero(more)
                slices[:, left] = 0.0

    def keep(kept: _Kept, values: Floats, factor: float = 1.0) -> None:
        sums = np.add.reduceat(values, starts)
        kept.add(sums * factor if factor != 1.0 else sums, cells)

    keep(ones, np.add(slices[0], slices[1], out=product))
    keep(squares, np.multiply(slices[0], slices[0], out=product))
    keep(squares, np.multiply(slices[0], slices[1], out=product), 2.0)
    np.multiply(slices[1], slices[1], out=product)
    if used > 2:
        keep(ones, slices[2])
        # Both products weigh the same: 3 · 2**40 units at most, 2**53 in a run.
        np.multiply(slices[0], slices[2], out=other)
        np.add(other, other, out=other)
        np.add(product, other, out=product)
    keep(squares, product)
    if used > 2:
        keep(squares, np.multiply(slices[1], slices[2], out=product), 2.0)
        keep(squares, np.multiply(slices[2], slices[2], out=product))
    return left


numpy_kernels = ExactKernels("numpy", _products, _powers)
"""The kernels that need nothing but NumPy."""
