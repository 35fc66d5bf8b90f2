"""The hot loops, in NumPy: sums of one column per class, and counts of categories per class.

`implementation()` gives these, or the compiled ones of `kernels_jit` where Numba is there; both keep one contract,
and differ at most in the last bits. Which of the two runs depends on the environment only, never on the data, so
that the same rows give the same bits in every process of a run.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from streamnb.protocols import Codes, Flags, Floats

__all__ = [
    "Groups",
    "Kernels",
    "Pieces",
    "Sums",
    "add_table",
    "compiled_wanted",
    "implementation",
    "is_everything",
    "numpy_kernels",
]

CHUNK = 32_768
"""Values handled at a time: 256 KiB, which stays in a core's own cache together with the column they come from."""

SPARSE = 4
"""A batch is counted without a table of its own when that would have more cells than this many for each row."""

FEW = 4
"""Up to one missing cell in this many is filled in; beyond it, the rows are picked instead."""


class Sums(NamedTuple):
    """What one column leaves behind of a batch, per class, over the cells that are present: each of (n_classes,).

    `number` is how many; `deviation` and `square` are the weighted sums of x − pivot and (x − pivot)²; without a
    pivot, `deviation` is the sum of x and `square` means nothing. `weight` is the number as float64 where rows have
    no weights.
    """

    number: NDArray[np.int64]
    weight: Floats
    deviation: Floats
    square: Floats


class Chunk(NamedTuple):
    """A run of rows in the order of their classes, cut to fit the cache."""

    order: NDArray[np.intp]
    weight: Floats | None
    classes: NDArray[np.intp]
    starts: NDArray[np.intp]
    lengths: NDArray[np.intp]


class Segments:
    """Rows in the order of their classes: one segment for each class that has rows, none of them empty.

    An empty segment must never reach `np.add.reduceat`, which gives it the first value of the next one.
    """

    def __init__(self, order: NDArray[np.intp], lengths: NDArray[np.intp], weight: Floats | None) -> None:
        self.order = order
        self.weight = None if weight is None else weight.take(order)
        self.rows = lengths
        self.classes = np.flatnonzero(lengths)
        self.ends = np.cumsum(lengths[self.classes])
        self.starts = self.ends - lengths[self.classes]

    @cached_property
    def weights(self) -> Floats:
        """The sum of weights of each class, (n_classes,)."""
        if self.weight is None:
            return self.rows.astype(np.float64)
        total = np.zeros(len(self.rows))
        if len(self.classes):
            total[self.classes] = np.add.reduceat(self.weight, self.starts)
        return total

    @cached_property
    def chunks(self) -> list[Chunk]:
        """The rows, cut every `CHUNK`."""
        return list(self._cut())

    def only(self, present: Flags, weight: Floats | None) -> Segments:
        """Return the segments without the rows in which `present` is False."""
        kept = np.flatnonzero(present.take(self.order))
        lengths = np.zeros_like(self.rows)
        lengths[self.classes] = np.searchsorted(kept, self.ends) - np.searchsorted(kept, self.starts)
        return Segments(self.order.take(kept), lengths, weight)

    def _cut(self) -> Iterator[Chunk]:
        for low in range(0, len(self.order), CHUNK):
            high = min(low + CHUNK, len(self.order))
            here = slice(np.searchsorted(self.ends, low, "right"), np.searchsorted(self.starts, high))
            starts = np.maximum(self.starts[here], low) - low
            lengths = np.minimum(self.ends[here], high) - low - starts
            weight = None if self.weight is None else self.weight[low:high]
            yield Chunk(self.order[low:high], weight, self.classes[here], starts, lengths)


class Groups:
    """The rows of one batch by class, shared by all columns of the batch.

    `codes` has shape (n_rows,), each at least 0 and below `n_classes`; `weight` is float64 above 0, or None.
    """

    def __init__(self, codes: NDArray[Any], n_classes: int, weight: Floats | None = None) -> None:
        self.codes: Codes = np.ascontiguousarray(codes, np.int32)
        self.n_classes = n_classes
        self.weight = None if weight is None else np.ascontiguousarray(weight, np.float64)
        self.rows: NDArray[np.int64] = np.bincount(self.codes, minlength=n_classes)
        if len(self.rows) > n_classes:
            raise ValueError(f"expected codes below {n_classes}, got {self.codes.max()}")

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def unweighted(self) -> Groups:
        """The same rows without their weights."""
        return self if self.weight is None else Groups(self.codes, self.n_classes)

    @cached_property
    def ones(self) -> NDArray[np.uint8]:
        """A flag for each row, all of them set: (n_rows,)."""
        return np.ones(len(self), np.uint8)

    @cached_property
    def weights(self) -> Floats:
        """The sum of weights of each class, (n_classes,); without weights, its rows."""
        if self.weight is None:
            return self.rows.astype(np.float64)
        return np.bincount(self.codes, self.weight, self.n_classes).astype(np.float64)

    @cached_property
    def fourfold(self) -> tuple[NDArray[np.int64], Floats]:
        """The rows and the weights of each class, four times: both (4, n_classes)."""
        return self.rows[None].repeat(4, 0), self.weights[None].repeat(4, 0)

    @cached_property
    def segments(self) -> Segments:
        """The rows in the order of their classes, and within a class in the order of the batch."""
        # NumPy sorts 16-bit integers by radix, several times faster than wider ones.
        order = np.argsort(self.codes.astype(np.uint16), kind="stable")
        if self.n_classes > 1 << 16:
            high = (self.codes >> 16).astype(np.uint16).take(order)
            order = order.take(np.argsort(high, kind="stable"))
        return Segments(order, self.rows, self.weight)

    @cached_property
    def first(self) -> NDArray[np.intp]:
        """The first row of each class, (n_classes,); 0 for a class without rows."""
        return self.first_of(None)

    def first_of(self, present: Flags | None) -> NDArray[np.intp]:
        """Return the first row of each class among those present, (n_classes,); 0 where there is none."""
        rows = np.arange(len(self)) if present is None else np.flatnonzero(present)
        first = np.zeros(self.n_classes, np.intp)
        # Of several values assigned to one place the last stays: here the lowest row.
        first[self.codes[rows[::-1]]] = rows[::-1]
        return first


class SumsKernel(Protocol):
    """Sum one column per class; `present` None means every cell, `pivot` (n_classes,) None means sums of x alone."""

    def __call__(self, groups: Groups, values: NDArray[Any], present: Flags | None, pivot: Floats | None) -> Sums: ...


class FourKernel(Protocol):
    """Sum four columns as `SumsKernel` does each, to the same bits; optional, for it is only faster.

    `pivot` and what is returned have shape (4, n_classes).
    """

    def __call__(
        self, groups: Groups, values: Sequence[NDArray[Any]], present: Sequence[Flags | None], pivot: Floats
    ) -> Sums: ...


class TallyKernel(Protocol):
    """Count the category codes of a batch into a table, in place; where the table is of floats, add the weights.

    Class i of the batch has row index[i] of the table, and code j has column categories[j]; code -1 is a missing cell.
    Two codes may have one column; a code that no row uses may have -1.
    """

    def __call__(
        self,
        groups: Groups,
        codes: Codes,
        index: NDArray[np.intp],
        categories: NDArray[np.intp],
        table: NDArray[Any],
    ) -> None: ...


class Pieces(NamedTuple):
    """Where text was cut: the row of each piece, which one it is, (n_pieces,), and where each distinct one stands."""

    rows: Codes
    codes: Codes
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]


class CutKernel(Protocol):
    """Cut bytes at spaces; optional, for `text` cuts in its own way without it."""

    def __call__(
        self,
        data: NDArray[np.uint8],
        meaning: NDArray[np.uint8],
        first: NDArray[np.int64],
        least: int,
        *,
        ascii_only: bool,
    ) -> Pieces:
        """Return the pieces of `least` bytes or more; document i is data[first[i]:first[i + 1]].

        A byte counts as meaning[byte]; `ascii_only` says that none of them is above 127.
        """


class Kernels(NamedTuple):
    """One implementation of the hot loops."""

    name: str
    sums: SumsKernel
    tally: TallyKernel
    cut: CutKernel | None = None
    four: FourKernel | None = None


def implementation() -> Kernels:
    """Return the compiled kernels where Numba can be imported and STREAMNB_JIT is not "0", else NumPy's.

    Numba is imported by the first call, not by `import streamnb`: it takes half a second.
    """
    compiled = _compiled() if compiled_wanted() else None
    return numpy_kernels if compiled is None else compiled


def compiled_wanted() -> bool:
    """Whether compiled loops may run: STREAMNB_JIT does not say 0."""
    return os.environ.get("STREAMNB_JIT") != "0"


@cache
def _compiled() -> Kernels | None:
    try:
        from streamnb.kernels_jit import jit_kernels
    except ImportError:
        return None
    return jit_kernels


class _Buffers(threading.local):
    """Work space of a thread, kept from batch to batch: fresh memory costs more than the sums made in it."""

    def __init__(self) -> None:
        self.column = np.empty(0)
        self.chunk = np.empty(CHUNK)
        self.weighted = np.empty(CHUNK)

    def widened(self, values: NDArray[Any], *, own: bool) -> Floats:
        """Return the values as float64: themselves, or a copy (always with `own`) that the next call overwrites."""
        if not own and values.dtype == np.float64 and values.flags.c_contiguous and values.flags.aligned:
            return values
        if len(self.column) < len(values):
            self.column = np.empty(len(values))
        widened = self.column[: len(values)]
        np.copyto(widened, values, casting="same_kind")
        return widened


_buffers = _Buffers()


def _lost(groups: Groups, absent: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[Any]] | None:
    """The number and weight of absent rows by class; None where too little weight is left to subtract from."""
    codes = groups.codes.take(absent)
    number = np.bincount(codes, minlength=groups.n_classes)
    if groups.weight is None:
        return number, number
    weight = np.bincount(codes, groups.weight.take(absent), groups.n_classes)
    # A difference is as exact as a sum only while most of the weight remains.
    return (number, weight) if (2.0 * weight <= groups.segments.weights).all() else None


def _sums(groups: Groups, values: NDArray[Any], present: Flags | None, pivot: Floats | None) -> Sums:
    """Sum one column per class: the rows are put in the order of their classes and each run is summed."""
    column, segments = _buffers.widened(values, own=present is not None), groups.segments
    number, total = segments.rows, segments.weights
    if present is not None:
        absent = np.flatnonzero(~present)
        lost = _lost(groups, absent) if FEW * len(absent) <= len(column) else None
        if lost is None:
            segments = segments.only(present, groups.weight)
            number, total = segments.rows, segments.weights
        else:
            # In the place of a missing cell its class's pivot stands, which adds exactly 0 to either sum.
            column[absent] = 0.0 if pivot is None else pivot.take(groups.codes.take(absent))
            number, total = number - lost[0], total - lost[1]
    deviation, square = np.zeros(groups.n_classes), np.zeros(groups.n_classes)
    for order, weight, classes, starts, lengths in segments.chunks:
        x = _buffers.chunk[: len(order)]
        # mode="clip" spares a check of every index, which would take longer than all the rest.
        np.take(column, order, out=x, mode="clip")
        if pivot is not None:
            np.subtract(x, np.repeat(pivot.take(classes), lengths), out=x)
        weighted = x if weight is None else np.multiply(x, weight, out=_buffers.weighted[: len(order)])
        deviation[classes] += np.add.reduceat(weighted, starts)
        if pivot is not None:
            square[classes] += np.add.reduceat(np.multiply(weighted, x, out=weighted), starts)
    return Sums(number, total, deviation, square)


def _tally(
    groups: Groups, codes: Codes, index: NDArray[np.intp], categories: NDArray[np.intp], table: NDArray[Any]
) -> None:
    """Count a batch by itself and add that, or each row by itself where that would be many more cells."""
    weight = groups.weight if table.dtype.kind == "f" else None
    width = len(categories) + 1  # -1, a missing cell, has a column of its own that is then left out
    if groups.n_classes * width > SPARSE * max(len(codes), 4096):
        there = np.flatnonzero(codes >= 0)
        cells = index[groups.codes[there]] * table.shape[1] + categories[codes[there]]
        np.add.at(table.reshape(-1), cells, 1 if weight is None else weight[there])
        return
    places = np.multiply(groups.codes, width, dtype=np.intp)
    places += codes
    places += 1
    batch = np.bincount(places, weight, minlength=groups.n_classes * width).reshape(groups.n_classes, width)[:, 1:]
    used = np.flatnonzero(categories >= 0)
    if len(used) < len(categories):
        batch = batch[:, used]
    if np.bincount(categories[used], minlength=1).max() <= 1:
        add_table(table, batch, index, categories[used])
    else:
        np.add.at(table, np.ix_(index, categories[used]), batch)


def add_table(table: NDArray[Any], more: NDArray[Any], index: NDArray[np.intp], columns: NDArray[np.intp]) -> None:
    """Add to some rows and columns of a table, in place; `index` and `columns` have no position twice."""
    if is_everything(columns, table.shape[1]):
        if is_everything(index, len(table)):
            table += more
        else:
            table[index] += more
    else:
        table[np.ix_(index, columns)] += more


def is_everything(index: NDArray[np.intp], length: int) -> bool:
    """Whether an index names all of so many places in their order, so that none need be looked up."""
    return len(index) == length and bool((index == np.arange(length)).all())


numpy_kernels = Kernels("numpy", _sums, _tally)
"""The kernels that need nothing but NumPy."""
