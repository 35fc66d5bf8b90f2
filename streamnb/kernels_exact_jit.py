"""The hot loops of exact sums, compiled by Numba. Import them through `kernels_exact.implementation`.

A column of numbers is read twice: for its largest and smallest magnitude, which tell the digits in use, and to be
summed. A value that fits in 62 bits below the largest is one integer X; each class sums X in 128 bits and X² in 192,
for which a processor has carries. What does not fit is cut into digits by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from streamnb.exactsums import ExactSums
from streamnb.kernels import Groups
from streamnb.kernels_exact import ExactKernels
from streamnb.kernels_jit import compiled
from streamnb.protocols import Floats

__all__ = ["jit_kernels"]

WIDE = 62
"""Bits of an integer that a value becomes."""

FRACTION = np.uint64((1 << 52) - 1)
HIDDEN = np.uint64(1 << 52)
NUMBER = np.uint64((1 << 63) - 1)
LOWER = np.int64((1 << 32) - 1)
LIMB = np.int64((1 << 27) - 1)
WORDS = 5
"""Words of 64 bits for a class: two for the sum of integers, three for that of their squares."""


def _extent_of(bits: Any) -> Any:
    """Return the largest magnitude and the smallest but 0, as bits; the smallest is less by one."""
    most, least = np.uint64(0), NUMBER
    for i in range(len(bits)):
        a = bits[i] & NUMBER
        most = max(most, a)
        least = min(least, a - np.uint64(1))
    return most, least


def _exponent(bits: Any) -> Any:
    """The power of two that a float's last bit weighs."""
    return max(np.int64((bits & NUMBER) >> np.uint64(52)), np.int64(1)) - np.int64(1075)


def _mantissa(bits: Any) -> Any:
    """The magnitude of a float, in units of its last bit."""
    fraction = np.int64(bits & FRACTION)
    return fraction if (bits & NUMBER) <= FRACTION else fraction | np.int64(HIDDEN)


_extent = compiled(_extent_of)
exponent_of = compiled(_exponent)
mantissa_of = compiled(_mantissa)


def _put_integer(planes: Any, cell: Any, low: Any, whole: Any, place: Any) -> None:
    """Add whole · 2**place, where whole is below 2**62 on either side of 0."""
    digit, shift = (place >> np.int64(5)) - low, place & np.int64(31)
    below = (whole & LOWER) << shift
    above = ((whole >> np.int64(32)) << shift) + (below >> np.int64(32))
    planes[cell, digit] += below & LOWER
    planes[cell, digit + 1] += above & LOWER
    planes[cell, digit + 2] += above >> np.int64(32)


put = compiled(_put_integer)


@intrinsic
def _count_wide(_: Any, counters: Any, at: Any, x: Any) -> Any:
    """Add an int64 to counters[at:at + 2], as one integer of 128 bits, and its square to the three after, of 192."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = builder.gep(context.make_array(signature.args[0])(context, builder, args[0]).data, [args[1]])
        second = builder.gep(first, [ir.Constant(ir.IntType(64), 2)])
        wide = builder.sext(args[2], ir.IntType(128))
        for place, bits, more in ((first, 128, wide), (second, 192, builder.mul(wide, wide))):
            held = builder.bitcast(place, ir.IntType(bits).as_pointer())
            more = builder.zext(more, ir.IntType(bits)) if bits > 128 else more
            builder.store(builder.add(builder.load(held, align=8), more), held, align=8)
        return context.get_dummy_value()

    return types.void(counters, types.uint64, types.int64), generate


count_wide: Any = _count_wide


def _sum_powers(
    codes: Any, values: Any, bits: Any, top: Any, scale: Any, low: Any, low2: Any, one: Any, square: Any
) -> None:
    """Sum x and x² into digits (n_classes, n_planes); `scale` is 2**(62 - top), or 0 where none would do."""
    n_classes = len(one)
    counters = np.zeros(n_classes * WORDS, np.uint64)
    fits = scale > 0.0
    for i in range(len(values)):
        c = np.uint64(codes[i])
        scaled = values[i] * scale
        x = np.int64(scaled)
        if np.float64(x) == scaled and fits:
            count_wide(counters, c * np.uint64(WORDS), x)
        else:
            m, e = mantissa_of(bits[i]), exponent_of(bits[i])
            put(one, c, low, m if values[i] > 0 else -m, e)
            a, b = m >> np.int64(27), m & LIMB
            put(square, c, low2, b * b, 2 * e)
            put(square, c, low2, 2 * (a * b), 2 * e + 27)
            put(square, c, low2, a * a, 2 * e + 54)
    if fits:
        unit = top - WIDE
        for j in range(n_classes):
            at = j * WORDS
            negative = np.int64(counters[at + 1]) < 0
            if negative:
                counters[at] = ~counters[at] + np.uint64(1)
                counters[at + 1] = ~counters[at + 1] + np.uint64(counters[at] == 0)
            for k in range(2 * WORDS):
                word = counters[at + k // 2]
                piece = np.int64((word >> np.uint64(32)) if k % 2 else (word & np.uint64(LOWER)))
                if piece and k < 4:
                    put(one, j, low, -piece if negative else piece, unit + 32 * k)
                elif piece:
                    put(square, j, low2, piece, 2 * unit + 32 * (k - 4))


sum_powers = compiled(_sum_powers)


def _sum_products(cells: Any, bits: Any, low: Any, planes: Any) -> None:
    """Sum products of one to three factors, `bits` (n_factors, n_rows), into digits (n_cells, n_planes)."""
    n_factors = len(bits)
    limbs = np.zeros(8, np.int64)
    for i in range(len(cells)):
        c = cells[i]
        if c < 0:
            continue
        limbs[:] = 0
        limbs[0] = 1
        sign = np.uint64(0)
        place = np.int64(0)
        for f in range(n_factors):
            b = bits[f, i]
            m = mantissa_of(b)
            place += exponent_of(b)
            sign ^= b >> np.uint64(63)
            below, above = m & LIMB, m >> np.int64(27)
            carry: Any = np.int64(0)
            before: Any = np.int64(0)
            for k in range(2 * f + 2):
                column = limbs[k] * below + before + carry
                before = limbs[k] * above
                limbs[k] = column & LIMB
                carry = column >> np.int64(27)
        for k in range(2 * n_factors):
            if limbs[k]:
                put(planes, c, low, -limbs[k] if sign else limbs[k], place + 27 * k)


sum_products = compiled(_sum_products)


def _span_of(cells: Any, bits: Any) -> Any:
    """Return the lowest and the highest place of a product's last bit; the highest is below if there is none."""
    least, most = np.int64(1 << 20), np.int64(-(1 << 20))
    for i in range(len(cells)):
        place = np.int64(0)
        some = cells[i] >= 0
        for f in range(len(bits)):
            some = some and (bits[f, i] & NUMBER) != 0
            place += exponent_of(bits[f, i])
        if some:
            least, most = min(least, place), max(most, place)
    return least, most


span = compiled(_span_of)


def _powers(groups: Groups, columns: Sequence[Floats]) -> tuple[ExactSums, ExactSums]:
    shape = (groups.n_classes, len(columns))
    found: tuple[list[tuple[int, NDArray[np.int64]]], ...] = ([], [])
    for column in columns:
        values = np.ascontiguousarray(column)
        bits = values.view(np.uint64)
        most, least = (int(each) for each in _extent(bits))
        if not most:
            for each in found:
                each.append((0, np.zeros((groups.n_classes, 0), np.int64)))
            continue
        # From the last bit of the smallest value to the first of the largest.
        last, first = max((least + 1) >> 52, 1) - 1075, max(most >> 52, 1) - 1022
        # Neither the scale itself nor the smallest value times it may leave the range of normal floats.
        fits = -900 < first < 900 and last + WIDE - first > -900
        scale = float(np.ldexp(1.0, WIDE - first)) if fits else 0.0
        last = min(last, first - WIDE) if fits else last
        lows = last >> 5, 2 * last >> 5
        # 32 bits more for the rows, and two digits because an integer lies in three.
        digits = [
            np.zeros((groups.n_classes, (above >> 5) - low + 4), np.int64)
            for low, above in zip(lows, (first, 2 * first), strict=True)
        ]
        sum_powers(groups.codes, values, bits, first, scale, *lows, *digits)
        for each, low, planes in zip(found, lows, digits, strict=True):
            each.append((low, planes))
    one, square = (_gathered(each, shape) for each in found)
    return one, square


def _gathered(columns: Sequence[tuple[int, NDArray[np.int64]]], shape: tuple[int, int]) -> ExactSums:
    """Put the digits of columns, each (n_classes, n_planes), side by side."""
    some = [(low, planes) for low, planes in columns if planes.shape[1]]
    if not some:
        return ExactSums(shape)
    lowest = min(low for low, _ in some)
    highest = max(low + planes.shape[1] for low, planes in some)
    whole = np.zeros((highest - lowest, *shape), np.int64)
    for j, (low, planes) in enumerate(columns):
        whole[low - lowest : low - lowest + planes.shape[1], :, j] = planes.T
    return ExactSums.around(whole, lowest)


def _products(cells: NDArray[Any], n_cells: int, factors: Sequence[Floats]) -> ExactSums:
    cells = np.ascontiguousarray(cells)
    bits = np.array(factors, np.float64).reshape(len(factors), len(cells)).view(np.uint64)
    least, most = (int(each) for each in span(cells, bits))
    if most < least:
        return ExactSums((n_cells,))
    low = least >> 5
    planes = np.zeros((n_cells, ((most + 54 * len(factors)) >> 5) - low + 4), np.int64)
    sum_products(cells, bits, low, planes)
    return ExactSums.around(np.ascontiguousarray(planes.T), low)


jit_kernels = ExactKernels("numba", _products, _powers)
"""The compiled kernels; each compiles at its first use, or is read from Numba's cache."""
