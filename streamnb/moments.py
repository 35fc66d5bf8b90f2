"""Weight, mean and sum of squared deviations, per class and feature: what a Gaussian needs to know of its rows.

Never a raw sum of squares: deviations are taken from a number near the mean, and parts are added pairwise (Chan,
Golub and LeVeque). A mean is kept as the sum of two floats, so that a column far from 0 loses nothing however its
rows were cut: one float near 1e9 would be wrong by 1e-7, and so would the variance of batches of one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.densetable import FloatTable, checked_arrays
from streamnb.errors import DataError
from streamnb.kernels import Groups, Sums, implementation, is_everything
from streamnb.measure import measure
from streamnb.protocols import Column, Floats

__all__ = ["Moments"]

OVERFLOW = "Expected values whose squared deviations fit in a float64, got an overflow"


BLOCK = 2_048
"""Cells of a batch's statistic worked out at a time: fresh memory for all of a wide one costs more than the sums."""


class Cells(NamedTuple):
    """The moments of some cells; all arrays of one shape. The mean of a cell is mean + mean_tail."""

    number: NDArray[np.int64]
    weight: Floats
    mean: Floats
    mean_tail: Floats
    square: Floats

    def each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Cells:
        """Return what a function makes of each array."""
        return Cells._make(map(change, self))


class Moments(FloatTable):
    """The moments of a block of numeric columns; every array has shape (n_classes, n_features).

    - `count` (int64): the cells present, and `sum_of_weights`: their weights.
    - `mean`, and `mean_tail`: what rounding took off it. Both are 0 where no cell is present.
    - `sum_of_squared_deviations`: from the mean, weighted.

    The arrays are never changed in place, only replaced: `copy.copy` of a statistic stays as it is.

    >>> import numpy as np
    >>> from streamnb.kernels import Groups
    >>> from streamnb.protocols import Column
    >>> heights = Column(np.array([150.0, 170.0, 180.0, np.nan]))
    >>> moments = Moments.of(Groups(np.array([0, 0, 1, 1]), n_classes=2), [heights])
    >>> moments.mean.ravel(), moments.variance().ravel(), moments.count.ravel()
    (array([160., 180.]), array([100.,   0.]), array([2, 1]))
    """

    def __init__(self, n_classes: int, n_features: int, weighted: bool = False) -> None:
        shape = (n_classes, n_features)
        self.weighted = weighted
        self.count: NDArray[np.int64] = np.zeros(shape, np.int64)
        self._weight: Floats | None = np.zeros(shape) if weighted else None
        self.mean: Floats = np.zeros(shape)
        self.mean_tail: Floats = np.zeros(shape)
        self.sum_of_squared_deviations: Floats = np.zeros(shape)

    @classmethod
    def of(
        cls,
        groups: Groups,
        block: Sequence[Column],
        *,
        pivot: Floats | None = None,
        infinite: str = "error",
    ) -> Self:
        """Return the moments of one batch.

        `pivot` (n_classes, n_features) is a number near the mean, NaN where none is known: then the first value of
        the class serves. Give the running mean of the statistic that the result is merged into: a pivot far from
        the batch costs digits of the batch, but none of the sum, in which the distance is part of the variance.

        Raises:
            DataError: ±inf, unless `infinite` is "missing", with column and row; squares that overflow, with column.
        """
        moments = cls(groups.n_classes, len(block), groups.weight is not None)
        if not len(groups) or not block:
            return moments
        # In fours, as the compiled kernel takes them.
        whole, width = moments._cells(), 4 * max(1, BLOCK // groups.n_classes // 4)
        with np.errstate(all="ignore"):
            for low in range(0, len(block), width):
                part = _measured(groups, block[low : low + width], low, pivot, infinite)
                for array, measured in zip(whole, part, strict=True):
                    array[:, low : low + width] = measured.T
        moments._put(whole)
        return moments

    @classmethod
    def of_sums(cls, sums: Sums, pivot: Floats, *, weighted: bool) -> Self:
        """Return the moments of a batch that was summed elsewhere, row by row instead of column by column.

        `pivot` and the arrays of `sums` have shape (n_classes, n_features); they are taken over, and changed.

        Raises:
            DataError: squares that overflow, with column.
        """
        moments = cls(len(pivot), pivot.shape[1], weighted)
        with np.errstate(all="ignore"):
            cells = _cells_of(sums, pivot)
        moments._put(cells)
        return moments

    def merge(self, other: Self, index: NDArray[np.intp]) -> None:
        """Add another statistic, whose class i is class index[i] here; on an error self is unchanged.

        Laws: an empty side leaves the other as it is and merge(a, b) equals merge(b, a), both to the bit; equal
        means give that mean; merge is associative to rounding.

        Raises:
            DataError: squared deviations that overflow, with the column.
            MergeError: another number of features, or only one side has weights.
        """
        self.check_alike(other, "moments")
        mine, theirs = self._cells(), other._cells()
        if is_everything(index, self.n_classes):
            self._put(_added(mine, theirs))
            return
        merged = _added(mine.each(lambda array: array[index]), theirs)
        whole = mine.each(np.copy)
        for array, part in zip(whole, merged, strict=True):
            array[index] = part
        self._put(whole)

    def only(self, classes: NDArray[np.intp]) -> Self:
        """Return the moments of some classes, in the order given."""
        return self.from_arrays({name: array[classes] for name, array in self.arrays().items()})

    def pooled(self) -> Moments:
        """Return the moments of all classes together, with one class.

        Raises:
            DataError: squared deviations between classes that overflow, with the column.
        """
        pooled = Moments(1, self.n_features, self.weighted)
        cells = self._cells()
        # Halves are added pairwise: a thousand classes take ten steps.
        while len(cells.number) > 1:
            cells = _halved(cells)
        if len(cells.number):
            pooled._put(cells.each(np.copy))
        return pooled

    def variance(self) -> Floats:
        """Return the population variance (divided by the weight); 0 where no cell is present, never NaN."""
        weight = self.sum_of_weights
        return self.sum_of_squared_deviations / np.where(self.count == 0, 1.0, weight)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a state file holds, by name: the statistic's own, not copies."""
        held: dict[str, NDArray[Any]] = {"count": self.count}
        if self._weight is not None:
            held["sum_of_weights"] = self._weight
        held["mean"], held["mean_tail"] = self.mean, self.mean_tail
        held["sum_of_squared_deviations"] = self.sum_of_squared_deviations
        return held

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the statistic that `arrays` came from; it has weights if they are there.

        Raises:
            FileFormatError: an array is absent, or of another shape or type, or has a value that cannot be.
        """
        weighted = "sum_of_weights" in arrays
        empty = cls(0, 0, weighted)
        checked = checked_arrays(arrays, empty.arrays(), signed=("mean", "mean_tail"))
        empty._take(checked)
        return empty

    def _cells(self) -> Cells:
        return Cells(self.count, self.sum_of_weights, self.mean, self.mean_tail, self.sum_of_squared_deviations)

    def _take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.count = arrays["count"]
        self._weight = arrays["sum_of_weights"] if self.weighted else None
        self.mean, self.mean_tail = arrays["mean"], arrays["mean_tail"]
        self.sum_of_squared_deviations = arrays["sum_of_squared_deviations"]

    def _put(self, cells: Cells) -> None:
        """Replace all arrays, unless one of them holds what no statistic may hold."""
        # NaN and infinity carry over to a sum; only when that is not finite are single cells looked at.
        with np.errstate(all="ignore"):
            suspect = not np.isfinite(cells.square.sum() + cells.mean.sum() + cells.weight.sum())
        if suspect:
            wrong = ~(np.isfinite(cells.square) & np.isfinite(cells.mean) & np.isfinite(cells.weight))
            if wrong.any():
                raise DataError(OVERFLOW, column=int(wrong.any(axis=0).argmax()))
        self.count = cells.number
        self._weight = cells.weight if self.weighted else None
        self.mean, self.mean_tail, self.sum_of_squared_deviations = cells.mean, cells.mean_tail, cells.square


def _measured(groups: Groups, block: Sequence[Column], place: int, pivot: Floats | None, infinite: str) -> Cells:
    """The moments of some columns of a batch, the first of them column `place`: arrays (n_features, n_classes)."""
    if pivot is None:
        near = np.full((len(block), groups.n_classes), np.nan)
    else:
        near = np.array(pivot[:, place : place + len(block)].T, order="C")
    return _cells_of(*measure(implementation(), groups, block, place, near, infinite))


def _cells_of(sums: Sums, pivot: Floats) -> Cells:
    """The moments that sums of deviations from a pivot tell; all arrays of one shape, and changed on the way."""
    number, weight, deviation, square = sums
    empty = number == 0
    step = deviation / weight
    if empty.any():
        step[empty] = pivot[empty] = 0.0
    mean, tail = _two_sum(pivot, step)
    # In this order the product overflows only where the square does.
    square -= np.multiply(deviation, step, out=deviation)
    return Cells(number, weight, mean, tail, np.maximum(square, 0.0, out=square))


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return a + b rounded, and what the rounding took off (Knuth): their sum is a + b exactly."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _added(one: Cells, two: Cells) -> Cells:
    """Add two sets of cells pairwise (Chan); symmetric to the bit.

    The mean moves from the heavier side by δ·w/W; between equal weights from the smaller mean. So it depends on no
    order, and equal means stay as they are, which a weighted average does not ensure.
    """
    with np.errstate(all="ignore"):
        weight = one.weight + two.weight
        light, heavy = np.minimum(one.weight, two.weight), np.maximum(one.weight, two.weight)
        first = one.weight > two.weight
        tie = one.weight == two.weight
        if tie.any():
            first |= tie & ((one.mean < two.mean) | ((one.mean == two.mean) & (one.mean_tail <= two.mean_tail)))
        base, base_tail = np.where(first, one.mean, two.mean), np.where(first, one.mean_tail, two.mean_tail)
        far, far_tail = np.where(first, two.mean, one.mean), np.where(first, two.mean_tail, one.mean_tail)
        delta = (far - base) + (far_tail - base_tail)
        mean, tail = _two_sum(base, delta * (light / weight))
        mean, tail = _two_sum(mean, tail + base_tail)
        # δ enters twice with one sign, and the weights without a product that could overflow.
        square = (one.square + two.square) + delta * (delta * (light * (heavy / weight)))
    empty = (one.number == 0) | (two.number == 0)
    if empty.any():
        filled = np.where(one.number == 0, two.mean, one.mean)
        filled_tail = np.where(one.number == 0, two.mean_tail, one.mean_tail)
        mean, tail = np.where(empty, filled, mean), np.where(empty, filled_tail, tail)
        square = np.where(empty, one.square + two.square, square)
    return Cells(one.number + two.number, weight, mean, tail, square)


def _halved(cells: Cells) -> Cells:
    """Add the second half of the classes to the first; an odd one stays."""
    half = len(cells.number) // 2
    added = _added(cells.each(lambda array: array[:half]), cells.each(lambda array: array[half : 2 * half]))
    rest = cells.each(lambda array: array[2 * half :])
    return Cells._make(np.concatenate(pair) for pair in zip(added, rest, strict=True))
