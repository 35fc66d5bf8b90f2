"""The columns of one batch, measured: which cells are there, from which pivot, four at a time where that is faster.

Here the kernels meet data that may be anything; they themselves are told which cells to sum, and do no more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import DataError
from streamnb.kernels import Groups, Kernels, Sums
from streamnb.protocols import Column, Flags, Floats

__all__ = ["cells_present", "measure"]

PROBE = 256
"""Values looked at first for NaN: a column that holds NaN mostly shows one early, and is then summed once only."""


def measure(
    kernels: Kernels,
    groups: Groups,
    block: Sequence[Column],
    place: int,
    pivot: Floats | None,
    infinite: str,
) -> tuple[Sums, Floats]:
    """Return the sums of some columns and the pivots that they were taken from: arrays (n_columns, n_classes).

    Where `pivot` is NaN the first value of the class in the batch serves: deviations of a constant are then exactly
    0. Missing values and infinities are looked for only when the sums turn out not to be finite: cells are rarely
    either. NumPy's warnings must be off.

    Raises:
        DataError: an infinite value, unless `infinite` is "missing"; or sums beyond float64. `place` is the number
            of the first column.
    """
    shape = (len(block), groups.n_classes)
    sums = Sums(np.empty(shape, np.int64), *np.empty((3, *shape)))
    used = np.zeros(shape)
    left = set(range(len(block)))
    if kernels.four is not None:
        known = pivot is None or not np.isnan(pivot).any()
        for four in _fours(block):
            present = [_early_flags(block[j]) for j in four]
            # Neighbours mostly: a slice costs a fraction of a list of places.
            here: Any = slice(four[0], four[0] + 4) if four[3] - four[0] == 3 else four
            if pivot is None:
                start = used[here]
            elif known:
                start = pivot[here]
            else:
                start = np.empty((4, groups.n_classes))
                for i, j in enumerate(four):
                    start[i] = _pivots(groups, block[j].values, present[i], pivot[j])
            found = kernels.four(groups, [block[j].values for j in four], present, start)
            if _finite(found, None if pivot is None else start):
                used[here] = start
                for array, part in zip(sums, found, strict=True):
                    array[here] = part
                left.difference_update(four)
    for j in sorted(left):
        found, used[j] = _measure_one(
            kernels, groups, block[j], place + j, None if pivot is None else pivot[j], infinite
        )
        for array, part in zip(sums, found, strict=True):
            array[j] = part
    return sums, used


def _fours(block: Sequence[Column]) -> Iterator[list[int]]:
    """Yield the numbers of four columns at a time, of one type where that can be; up to three are left over."""
    alike: dict[np.dtype[Any], list[int]] = {}
    for j, column in enumerate(block):
        alike.setdefault(column.values.dtype, []).append(j)
    left: list[int] = []
    for columns in alike.values():
        whole = len(columns) - len(columns) % 4
        yield from (columns[low : low + 4] for low in range(0, whole, 4))
        left += columns[whole:]
    yield from (left[low : low + 4] for low in range(0, len(left) - 3, 4))


def _early_flags(column: Column) -> Flags | None:
    """Return which cells are present, as far as the flags and the first values tell; None: all of them."""
    values, valid = column.values, column.valid
    if values.dtype.kind == "f" and math.isnan(np.add.reduce(values[:PROBE])):
        number: Flags = np.equal(values, values)  # NaN is not; one pass, where "not isnan" takes two
        return number if valid is None else valid & number
    return valid


def _measure_one(
    kernels: Kernels, groups: Groups, column: Column, place: int, pivot: Floats | None, infinite: str
) -> tuple[Sums, Floats]:
    values, present = column.values, _early_flags(column)
    used = _pivots(groups, values, present, pivot)
    sums = kernels.sums(groups, values, present, used)
    if not _finite(sums, used):
        present = cells_present(values, column.valid, place, infinite)
        used = _pivots(groups, values, present, pivot)
        sums = kernels.sums(groups, values, present, used)
        if not _finite(sums, used):
            what = "counts whose sum fits" if used is None else "values whose squared deviations fit"
            raise DataError(f"Expected {what} in a float64, got an overflow", column=place)
    return sums, np.zeros(groups.n_classes) if used is None else used


def _finite(sums: Sums, pivot: Floats | None) -> bool:
    checked = (sums.deviation, sums.weight) if pivot is None else (sums.deviation, sums.square, sums.weight)
    # NaN and infinity carry over to a total, in less time than a look at each.
    return all(np.isfinite(array.sum()) or np.isfinite(array).all() for array in checked)


def _pivots(groups: Groups, values: NDArray[Any], present: Flags | None, pivot: Floats | None) -> Floats | None:
    if pivot is None:
        return None
    unknown = np.isnan(pivot)
    if not unknown.any():
        return pivot
    first = groups.first
    if present is not None:
        if not present.any():
            return np.zeros(groups.n_classes)
        if not present[first[unknown]].all():
            first = groups.first_of(present)
    # A class without a value gets some other class's pivot or 0, which then plays no part.
    own = values[first].astype(np.float64)
    return np.where(unknown, np.where(np.isfinite(own), own, 0.0), pivot)


def cells_present(values: NDArray[Any], valid: Flags | None, place: int, infinite: str) -> Flags | None:
    """Return which cells hold a number, after a look at every one of them; None may stand for all.

    Raises:
        DataError: an infinite value, unless `infinite` is "missing", with column `place` and row.
    """
    if values.dtype.kind != "f":
        return valid
    number: Flags
    if infinite == "missing":
        number = np.isfinite(values)
    else:
        unbounded = np.isinf(values) if valid is None else np.isinf(values) & valid
        if unbounded.any():
            row = int(unbounded.argmax())
            raise DataError(f"Expected a finite number, got {float(values[row])}", column=place, row=row)
        number = ~np.isnan(values)
    return number if valid is None else number & valid
