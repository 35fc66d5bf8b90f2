"""The hot loops, compiled by Numba: one pass over a column. Import it through `kernels.implementation`.

Each class has four accumulators that take turns row by row, so that equal neighbours do not wait for one another's
additions. The order of the additions is fixed by the rows alone: no fast-math, no threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from streamnb.kernels import Groups, Kernels, Pieces, Sums
from streamnb.protocols import Codes, Flags, Floats

__all__ = ["compiled", "jit_kernels"]

COMPILED = frozenset(map(np.dtype, ("float64", "float32", "int64", "int32", "int16", "uint8")))
"""Types with loops of their own; others are widened first, as each costs a second of compiling at first use."""


MANY = 256
"""Beyond this many classes each has two accumulators, not four: they then fit a core's fastest cache."""


SLOTS = 1 << 17
"""Places for distinct pieces of text at first: twice as many as a few megabytes of text mostly have."""


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loop compiled: without the interpreter's lock, in NumPy's arithmetic, kept on disk where that can be."""
    try:
        return numba.njit(nogil=True, error_model="numpy", cache=True)(function)
    except RuntimeError:
        # No folder can be written to: compile in every process anew.
        return numba.njit(nogil=True, error_model="numpy")(function)


def _sum_all(codes: Any, values: Any, pivot: Any, out: Any) -> None:
    """Sum a column without missing cells or weights into `out` (n_classes, 2): deviations and squares."""
    n_classes, n_rows = len(pivot), len(values)
    last = 3 if n_classes <= MANY else 1
    third = last - 1
    sums = np.zeros((n_classes, last + 1, 2))
    whole = n_rows - n_rows % 4
    for i in range(0, whole, 4):
        a, b, c, d = codes[i], codes[i + 1], codes[i + 2], codes[i + 3]
        p, q = values[i] - pivot[a], values[i + 1] - pivot[b]
        r, s = values[i + 2] - pivot[c], values[i + 3] - pivot[d]
        sums[a, 0, 0] += p
        sums[a, 0, 1] += p * p
        sums[b, 1, 0] += q
        sums[b, 1, 1] += q * q
        sums[c, third, 0] += r
        sums[c, third, 1] += r * r
        sums[d, last, 0] += s
        sums[d, last, 1] += s * s
    for i in range(whole, n_rows):
        a = codes[i]
        p = values[i] - pivot[a]
        sums[a, i & last, 0] += p
        sums[a, i & last, 1] += p * p
    for j in range(n_classes):
        for k in range(2):
            out[j, k] = sums[j, 0, k] + sums[j, 1, k]
            if last == 3:
                out[j, k] += sums[j, 2, k] + sums[j, 3, k]


def _sum_four(codes: Any, x: Any, y: Any, z: Any, u: Any, weight: Any, pivot: Any, out: Any) -> None:
    """Sum four whole columns at once into `out` (n_classes, 8): deviations, then squares; `weight` may be empty.

    The class of a row is looked up once for the four, and its accumulators lie side by side. Indices are unsigned:
    Numba asks of signed ones whether they count from the end.
    """
    n_classes = len(pivot) // 4
    last = 3 if n_classes <= MANY else 1
    weighted = len(weight) > 0
    lanes, one, two, three, four = np.uint64(last + 1), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    sums = np.zeros(n_classes * (last + 1) * 8)
    for i in range(len(x)):
        c = np.uint64(codes[i])
        a: Any = c * four
        p, q = x[i] - pivot[a], y[i] - pivot[a + one]
        r, s = z[i] - pivot[a + two], u[i] - pivot[a + three]
        v = weight[i] if weighted else 1.0
        vp, vq, vr, vs = v * p, v * q, v * r, v * s
        k: Any = (c * lanes + np.uint64(i & last)) * np.uint64(8)
        sums[k] += vp
        sums[k + one] += vq
        sums[k + two] += vr
        sums[k + three] += vs
        k += four
        sums[k] += vp * p
        sums[k + one] += vq * q
        sums[k + two] += vr * r
        sums[k + three] += vs * s
    _add_lanes(sums, last, out)


def _sum_four_present(
    codes: Any,
    x: Any,
    y: Any,
    z: Any,
    u: Any,
    in_x: Any,
    in_y: Any,
    in_z: Any,
    in_u: Any,
    weight: Any,
    pivot: Any,
    out: Any,
    number: Any,
) -> None:
    """Sum four columns with missing cells into `out` (n_classes, 12): deviations, squares and weights.

    `number` (n_classes, 4) gets the cells present. What a missing cell holds goes to accumulators that nobody reads: a
    branch would be guessed wrong too often.
    """
    n_classes = len(pivot) // 4
    last = 3 if n_classes <= MANY else 1
    weighted = len(weight) > 0
    lanes, one, two, three, four = np.uint64(last + 1), np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    width, high, low = np.uint64(12), np.uint64(32), np.uint64(0xFFFFFFFF)
    sums = np.zeros((n_classes + 1) * (last + 1) * 12)
    lost = np.uint64(n_classes) * lanes * width
    # Two counters share an integer: half as many additions.
    count = np.zeros(2 * n_classes, np.uint64)
    for i in range(len(x)):
        c = np.uint64(codes[i])
        a: Any = c * four
        p, q = x[i] - pivot[a], y[i] - pivot[a + one]
        r, s = z[i] - pivot[a + two], u[i] - pivot[a + three]
        v = weight[i] if weighted else 1.0
        vp, vq, vr, vs = v * p, v * q, v * r, v * s
        f, g, h, j = np.uint64(in_x[i]), np.uint64(in_y[i]), np.uint64(in_z[i]), np.uint64(in_u[i])
        count[c * two] += f | g << high
        count[c * two + one] += h | j << high
        here: Any = (c * lanes + np.uint64(i & last)) * width
        k: Any = here if f else lost
        sums[k] += vp
        sums[k + four] += vp * p
        k = (here if g else lost) + one
        sums[k] += vq
        sums[k + four] += vq * q
        k = (here if h else lost) + two
        sums[k] += vr
        sums[k + four] += vr * r
        k = (here if j else lost) + three
        sums[k] += vs
        sums[k + four] += vs * s
        if weighted:
            here += np.uint64(8)
            sums[here] += v * f
            sums[here + one] += v * g
            sums[here + two] += v * h
            sums[here + three] += v * j
    _add_lanes(sums, last, out)
    for m in range(n_classes):
        c = np.uint64(m)
        number[c, 0], number[c, 1] = count[c * two] & low, count[c * two] >> high
        number[c, 2], number[c, 3] = count[c * two + one] & low, count[c * two + one] >> high


def _add_lanes(sums: Any, last: Any, out: Any) -> None:
    """Add the accumulators that took turns."""
    n_classes, width = out.shape
    for j in range(n_classes):
        for m in range(width):
            k = j * (last + 1) * width + m
            out[j, m] = sums[k] + sums[k + width]
            if last == 3:
                out[j, m] += sums[k + 2 * width] + sums[k + 3 * width]


def _sum_present(codes: Any, values: Any, present: Any, weight: Any, pivot: Any, out: Any) -> None:
    """Sum a column into `out` (n_classes, 4): deviations, squares, cells and weights; either mask may be empty."""
    n_classes = len(pivot)
    last = 3 if n_classes <= MANY else 1
    masked, weighted = len(present) > 0, len(weight) > 0
    sums = np.zeros((n_classes + 1, last + 1, 4))
    for i in range(len(values)):
        c: Any = np.int64(codes[i])
        d = values[i] - pivot[c]
        if masked:
            # A missing cell goes to a class of its own: a branch here would be guessed wrong too often.
            c = c if present[i] != 0 else n_classes
        k = i & last
        w = weight[i] if weighted else 1.0
        e = w * d
        sums[c, k, 0] += e
        sums[c, k, 1] += e * d
        sums[c, k, 2] += 1.0
        if weighted:
            sums[c, k, 3] += w
    for j in range(n_classes):
        for k in range(4):
            out[j, k] = sums[j, 0, k] + sums[j, 1, k]
            if last == 3:
                out[j, k] += sums[j, 2, k] + sums[j, 3, k]


def _tally_all(codes: Any, categories: Any, index: Any, columns: Any, table: Any) -> None:
    for i in range(len(codes)):
        if categories[i] >= 0:
            column = columns[np.uint32(categories[i])]
            if column >= 0:
                table[index[codes[i]], np.uint64(column)] += 1


def _tally_weights(codes: Any, categories: Any, index: Any, columns: Any, table: Any, weight: Any) -> None:
    for i in range(len(codes)):
        if categories[i] >= 0:
            column = columns[np.uint32(categories[i])]
            if column >= 0:
                table[index[codes[i]], np.uint64(column)] += weight[i]


def _cut_all(
    data: Any,
    meaning: Any,
    first: Any,
    least: Any,
    ascii_only: Any,
    rows: Any,
    codes: Any,
    starts: Any,
    stops: Any,
    keys: Any,
    slots: Any,
) -> Any:
    """Cut at spaces; return the number of pieces (−1 where `slots` are half full) and of distinct ones.

    Places are unsigned, for a signed index is looked at for whether it counts from the end.
    """
    one = np.uint64(1)
    n_pieces, n_distinct = np.uint64(0), np.int64(0)
    mask = np.uint64(len(slots) - 1)
    prime = np.uint64(0x9E3779B97F4A7C15)
    for row in range(len(first) - 1):
        i, end = np.uint64(first[row]), np.uint64(first[row + 1])
        while True:
            while i < end and meaning[data[i]] == 32:
                i += one
            if i >= end:
                break
            start, key = i, np.uint64(0)
            while i < end:
                byte = meaning[data[i]]
                if byte == 32:
                    break
                # Seven bits a byte: up to nine characters of ASCII are their own key.
                key = (key << np.uint64(7) | key >> np.uint64(57)) ^ np.uint64(byte)
                i += one
            length = i - start
            if length < least:
                continue
            slot = ((key ^ (key >> np.uint64(32))) * prime >> np.uint64(29)) & mask
            sure = ascii_only and length <= np.uint64(9)
            code = np.int64(-1)
            while code < 0:
                there = np.int64(slots[slot])
                known = np.uint64(there)
                if there < 0:
                    if 2 * n_distinct >= len(slots):
                        return np.int64(-1), n_distinct
                    code = n_distinct
                    slots[slot] = code
                    starts[code], stops[code], keys[code] = start, i, key
                    n_distinct += 1
                elif keys[known] == key and np.uint64(stops[known] - starts[known]) == length:
                    place, same = np.uint64(starts[known]), length if sure else np.uint64(0)
                    while same < length and meaning[data[place + same]] == meaning[data[start + same]]:
                        same += one
                    if same == length:
                        code = there
                slot = (slot + one) & mask
            rows[n_pieces], codes[n_pieces] = row, code
            n_pieces += one
    return np.int64(n_pieces), n_distinct


_add_lanes = compiled(_add_lanes)
_sum_all_jit = compiled(_sum_all)
_sum_four_jit: Any = compiled(_sum_four)
_sum_four_present_jit: Any = compiled(_sum_four_present)
_sum_present_jit = compiled(_sum_present)
_tally_all_jit = compiled(_tally_all)
_tally_weights_jit = compiled(_tally_weights)
_cut_all_jit: Any = compiled(_cut_all)

_NO_FLAGS = np.zeros(0, np.uint8)
_NO_WEIGHT = np.zeros(0)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view: Arrow's buffers are read-only, and to Numba that makes a type of its own."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def _places(codes: Codes) -> NDArray[np.uint32]:
    """Return codes as unsigned: Numba else asks of each whether it is negative and counts from the end."""
    return _frozen(codes).view(np.uint32)


def _column(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values as one of the compiled types, in one piece."""
    dtype, flags = values.dtype, values.flags
    if dtype in COMPILED and flags.c_contiguous and flags.aligned:
        return _frozen(values)
    if dtype == np.bool_:
        return _column(values.view(np.uint8))
    return _frozen(values.astype(dtype if dtype in COMPILED else np.float64))


def _sums(groups: Groups, values: NDArray[Any], present: Flags | None, pivot: Floats | None) -> Sums:
    codes, column = _places(groups.codes), _column(values)
    start = np.zeros(groups.n_classes) if pivot is None else pivot
    if present is None and groups.weight is None:
        pair = np.empty((groups.n_classes, 2))
        _sum_all_jit(codes, column, _frozen(start), pair)
        return Sums(groups.rows, groups.rows.astype(np.float64), pair[:, 0], pair[:, 1])
    flags = _NO_FLAGS if present is None else np.ascontiguousarray(present).view(np.uint8)
    weight = _NO_WEIGHT if groups.weight is None else groups.weight
    four = np.empty((groups.n_classes, 4))
    _sum_present_jit(codes, column, _frozen(flags), _frozen(weight), _frozen(start), four)
    if present is None:
        return Sums(groups.rows, groups.weights, four[:, 0], four[:, 1])
    count = four[:, 2].astype(np.int64)
    return Sums(count, four[:, 2 if groups.weight is None else 3], four[:, 0], four[:, 1])


def _four(groups: Groups, values: Sequence[NDArray[Any]], present: Sequence[Flags | None], pivot: Floats) -> Sums:
    codes, columns = _places(groups.codes), [_column(column) for column in values]
    dtype = columns[0].dtype
    if any(column.dtype != dtype for column in columns):
        # Loops are compiled for four of one type; widening a column takes a fraction of summing it alone.
        columns = [_frozen(column.astype(np.float64)) for column in columns]
    start = _frozen(np.ascontiguousarray(pivot.T).reshape(-1))
    weight = _frozen(_NO_WEIGHT if groups.weight is None else groups.weight)
    if all(flags is None for flags in present):
        pair = np.empty((groups.n_classes, 8))
        _sum_four_jit(codes, *columns, weight, start, pair)
        return Sums(*groups.fourfold, pair[:, :4].T, pair[:, 4:].T)
    everything = groups.ones
    flags = [_frozen(everything if one is None else np.ascontiguousarray(one).view(np.uint8)) for one in present]
    three, number = np.empty((groups.n_classes, 12)), np.empty((groups.n_classes, 4), np.int64)
    _sum_four_present_jit(codes, *columns, *flags, weight, start, three, number)
    total = number.T.astype(np.float64) if groups.weight is None else three[:, 8:].T
    return Sums(number.T, total, three[:, :4].T, three[:, 4:8].T)


def _tally(
    groups: Groups, codes: Codes, index: NDArray[np.intp], categories: NDArray[np.intp], table: NDArray[Any]
) -> None:
    given = (
        _places(groups.codes),
        _frozen(np.ascontiguousarray(codes, np.int32)),
        _frozen(np.ascontiguousarray(index, np.intp)).view(np.uintp),
        _frozen(np.ascontiguousarray(categories, np.intp)),
        table,
    )
    if table.dtype.kind == "f" and groups.weight is not None:
        _tally_weights_jit(*given, _frozen(groups.weight))
    else:
        _tally_all_jit(*given)


def _cut(
    data: NDArray[np.uint8], meaning: NDArray[np.uint8], first: NDArray[np.int64], least: int, *, ascii_only: bool
) -> Pieces:
    most = len(data) // 2 + 1  # a piece and a space; documents may touch without one
    most += len(first)
    rows, codes = np.empty(most, np.int32), np.empty(most, np.int32)
    size = SLOTS
    while True:
        slots = np.full(size, -1, np.int32)
        starts, stops = np.empty(size // 2, np.int64), np.empty(size // 2, np.int64)
        given = (_frozen(data), _frozen(meaning), _frozen(first), np.uint64(least), ascii_only)
        n, distinct = _cut_all_jit(*given, rows, codes, starts, stops, np.empty(size // 2, np.uint64), slots)
        if n >= 0:
            return Pieces(rows[:n], codes[:n], starts[:distinct], stops[:distinct])
        size *= 8


jit_kernels = Kernels("numba", _sums, _tally, _cut, _four)
"""The kernels compiled by Numba; each loop is compiled at its first use, and kept on disk where that is possible."""
