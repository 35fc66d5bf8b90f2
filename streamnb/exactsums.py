"""Sums of floats that are exact: integers on a fixed grid of powers of two, as wide as the numbers need.

    digit     ...    2      1      0     -1     -2    ...
    weighs       2**64  2**32  2**0  2**-32  2**-64

A float64 is an integer times a power of two, and so is a product of some of them; their sum is kept in digits of
32 bits. No addition rounds, so a sum depends on what was added and not on the order, and subtraction undoes it.
The grid is the same for all sums everywhere: digits are added without looking at what they are digits of.

Digits are held in int64 and may grow beyond 32 bits; carries wait until there is no room or the value is asked for.
After Neal, "Fast exact summation using small and large superaccumulators", 2015.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import FileFormatError
from streamnb.protocols import Floats

__all__ = ["BITS", "Digits", "ExactSums", "quotient"]

BITS = 32
"""Bits of a digit."""

HALF, BASE = 1 << (BITS - 1), 1 << BITS
FULL = 1 << 62
"""What no digit may reach."""

FARTHEST = 128
"""No sum of products of three floats has a digit beyond this number on either side, whatever their number."""

Places = Any


class Digits(NamedTuple):
    """What a kernel leaves: `planes` (n_planes, n_cells) int64, of which the first is digit `low`; below 2**60 each."""

    low: int
    planes: NDArray[np.int64]


class ExactSums:
    """Exact sums, one for each cell of a shape; `planes` (n_planes, *shape) are their digits, from digit `low` up.

    Planes are never changed in place, only replaced: `copy.copy` of sums stays as it is.

    >>> tenths = ExactSums.of([0.1] * 10)
    >>> sum([0.1] * 10), tenths.sum().rounded().item()
    (0.9999999999999999, 1.0)
    >>> (tenths - tenths) == ExactSums((10,))
    True
    """

    __slots__ = ("_bound", "_normal", "low", "planes")

    def __init__(self, shape: tuple[int, ...]) -> None:
        """Make sums of nothing."""
        self.low = 0
        self.planes: NDArray[np.int64] = np.zeros((0, *shape), np.int64)
        self._bound = 0
        self._normal = True

    @classmethod
    def around(cls, planes: NDArray[np.int64], low: int, bound: int = 1 << 60) -> Self:
        """Return the sums with these very digits, each of which is at most `bound` on either side of 0."""
        sums = cls(planes.shape[1:])
        sums.planes, sums.low, sums._bound, sums._normal = planes, low, bound, False
        return sums.normalised()

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[Any]) -> Self:
        """Return sums of one number each: finite floats, or integers that fit in an int64."""
        numbers = np.asarray(values)
        if numbers.dtype.kind in "iub":
            return cls.around(numbers.astype(np.int64)[None], 0, 1 << 63)
        mantissa, exponent = np.frexp(np.asarray(numbers, np.float64))
        whole = np.ldexp(mantissa, 53).astype(np.int64)
        place = np.where(whole == 0, 0, exponent - 53)
        if not (whole != 0).any():
            return cls(numbers.shape)
        digit, shift = place >> 5, (place & 31).astype(np.int64)
        digit = np.where(whole == 0, digit[whole != 0].min(), digit)
        low = int(digit.min())
        below = (whole & (BASE - 1)) << shift
        above = ((whole >> BITS) << shift) + (below >> BITS)
        planes = np.zeros((int(digit.max()) - low + 2, numbers.size), np.int64)
        here, cells = (digit - low).ravel(), np.arange(numbers.size)
        planes[here, cells] = (below & (BASE - 1)).ravel()
        planes[here + 1, cells] = above.ravel()
        return cls.around(planes.reshape(-1, *numbers.shape), low)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the cells."""
        return self.planes.shape[1:]

    @property
    def nbytes(self) -> int:
        """The memory of the digits, in bytes."""
        return self.planes.nbytes

    def __add__(self, other: ExactSums) -> ExactSums:
        """Return the sums of both, of one shape."""
        return self._combined(other, 1, None)

    def __sub__(self, other: ExactSums) -> ExactSums:
        """Return the sums that give these when the other's are added."""
        return self._combined(other, -1, None)

    def plus(self, other: ExactSums, places: Places, sign: int = 1) -> ExactSums:
        """Return these sums with the other's added (or with `sign` −1 taken away) at `places`, an index of cells.

        No cell may stand twice in `places`.
        """
        return self._combined(other, sign, places)

    def scattered(self, places: Places, shape: tuple[int, ...]) -> ExactSums:
        """Return sums of another shape, of which the cells at `places` are these and the others 0."""
        grown = copy.copy(self)
        grown.planes = np.zeros((len(self.planes), *shape), np.int64)
        grown.planes[:, *_listed(places)] = self.planes
        return grown

    def at(self, places: Places) -> ExactSums:
        """Return the sums of some cells: what an array gives at this index."""
        some = copy.copy(self)
        some.planes = np.ascontiguousarray(self.planes[:, *_listed(places)])
        return some

    def reshaped(self, shape: tuple[int, ...]) -> ExactSums:
        """Return the same sums in another shape, in the order of the cells."""
        other = copy.copy(self)
        other.planes = self.planes.reshape(len(self.planes), *shape)
        return other

    def sum(self, axis: int = 0) -> ExactSums:
        """Return the sums along one axis of the cells."""
        normal = self.normalised()
        total = copy.copy(normal)
        total.planes = np.asarray(normal.planes.sum(axis=axis + 1))
        total._bound = HALF * max(self.shape[axis], 1)
        total._normal = False
        return total.normalised()

    def grouped(self, places: NDArray[np.intp], n_cells: int) -> ExactSums:
        """Return the sums of the cells of one axis that share a place: (n_cells,)."""
        planes = np.zeros((len(self.planes), n_cells), np.int64)
        for total, plane in zip(planes, self.normalised().planes, strict=True):
            np.add.at(total, places, plane)
        return type(self).around(planes, self.low, HALF * max(len(places), 1))

    def normalised(self) -> Self:
        """Carry: afterwards each digit is at least −2**31 and below 2**31, which is one way only for each sum."""
        if self._normal:
            return self
        planes = self.planes
        done: list[NDArray[np.int64]] = []
        carry = np.zeros(self.shape, np.int64)
        for plane in planes:
            # The digit itself is not yet rounded when the carry comes: together they stay below 2**63.
            above = (plane >> BITS) + ((carry + (plane & (BASE - 1)) + HALF) >> BITS)
            done.append(carry + plane - (above << BITS))
            carry = above
        while carry.any():
            above = (carry + HALF) >> BITS
            done.append(carry - (above << BITS))
            carry = above
        self.planes = np.array(done, np.int64).reshape(len(done), *self.shape)
        self._bound, self._normal = HALF, True
        return self

    def signs(self) -> NDArray[np.int8]:
        """Return −1, 0 or 1 for each sum."""
        signs = np.zeros(self.shape, np.int8)
        for plane in self.normalised().planes:
            np.copyto(signs, np.sign(plane).astype(np.int8), where=plane != 0)
        return signs

    def rounded(self) -> Floats:
        """Return the nearest float64 of each sum, ties to even; ±inf beyond all of them."""
        planes = self._flat()
        n_planes, n_cells = planes.shape
        if not planes.any():
            return np.zeros(self.shape)
        # The sign of all digits below each, and three digits of nothing below the lowest.
        below = np.zeros((n_planes + 3, n_cells), np.int8)
        for k, plane in enumerate(planes):
            below[k + 3] = np.where(plane != 0, np.sign(plane), below[k + 2])
        digits = np.concatenate([np.zeros((3, n_cells), np.int64), planes])
        cells = np.arange(n_cells)
        top = 3 + np.where((planes != 0).any(axis=0), n_planes - 1 - (planes[::-1] != 0).argmax(axis=0), 0)
        # The first 62 bits as one integer; where anything is below them, the last one is made odd.
        whole = (digits[top, cells] << BITS) + digits[top - 1, cells]
        length = np.frexp(np.abs(whole).astype(np.float64))[1]
        shift = np.clip(62 - length, 0, BITS - 1).astype(np.int64)
        third = digits[top - 2, cells]
        whole = (whole << shift) + (third >> (BITS - shift))
        left = third & ((np.int64(1) << (BITS - shift)) - 1)
        rest = np.where(left != 0, 1, below[top - 3, cells])
        whole += np.where(whole & 1, 0, rest)
        place = BITS * (self.low + top - 4) - shift
        with np.errstate(over="ignore", under="ignore"):
            rounded = np.ldexp(whole.astype(np.float64), place.astype(np.int32))
        hard = (np.abs(digits[top, cells]) >= HALF >> 1) | (np.abs(rounded) < 1e-290) & (whole != 0)
        if hard.any():
            unit = BITS * self.low
            rounded[hard] = [quotient(each, unit, 1, 0) for each in self._whole(planes[:, hard])]
        nearest: Floats = rounded.reshape(self.shape)
        return nearest

    def integers(self) -> list[int]:
        """Return each sum as an integer, in units of 2**(32 · low), in the order of the cells."""
        return self._whole(self._flat())

    def fractions(self) -> list[Fraction]:
        """Return each sum as a fraction, in the order of the cells.

        >>> ExactSums.of([0.75, -3.0]).fractions()
        [Fraction(3, 4), Fraction(-3, 1)]
        """
        unit = Fraction(2) ** (BITS * self.low)
        return [whole * unit for whole in self.integers()]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExactSums) or self.shape != other.shape:
            return False
        return not (self - other).normalised().planes.any()

    __hash__ = None  # type: ignore[assignment]  # compared by value, never a key

    def __repr__(self) -> str:
        return f"<ExactSums of shape {self.shape}>"

    # Files ----------------------------------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a state file holds: only digits in use, so that equal sums give equal arrays.

        `low` (int16, of the shape) is the place of the lowest digit that is not 0 and `width` (uint8) how many digits
        there are up to the highest; `digits` (int32) are these, cell by cell.
        """
        planes = self._flat()
        used = planes != 0
        some = used.any(axis=0)
        first = used.argmax(axis=0) if len(used) else np.zeros(planes.shape[1], np.intp)
        last = len(used) - 1 - used[::-1].argmax(axis=0) if len(used) else first
        k = np.arange(len(planes))[:, None]
        inside = (k >= first) & (k <= last) & some
        return {
            "low": np.where(some, first + self.low, 0).astype(np.int16).reshape(self.shape),
            "width": np.where(some, last - first + 1, 0).astype(np.uint8).reshape(self.shape),
            "digits": planes.T[inside.T].astype(np.int32),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the sums that `arrays` came from.

        Raises:
            FileFormatError: an array is absent, or of another type, or not as `arrays` gives them.
        """
        for name, dtype in (("low", "int16"), ("width", "uint8"), ("digits", "int32")):
            if name not in arrays or arrays[name].dtype != dtype:
                raise FileFormatError(f"Expected exact sums with an array {name!r} of {dtype}, got another or none")
        low, width, digits = (np.asarray(arrays[name]) for name in ("low", "width", "digits"))
        if low.shape != width.shape or digits.shape != (int(width.sum(dtype=np.int64)),):
            raise FileFormatError("Expected as many digits as the sums are wide, got others")
        some = width > 0
        sums = cls(low.shape)
        if not some.any():
            if low.any():
                raise FileFormatError("Expected sums of nothing to have no place, got others")
            return sums
        top = low.astype(np.int64) + width
        if (np.abs(low) > FARTHEST).any() or (top > FARTHEST).any() or low[~some].any():
            raise FileFormatError("Expected digits within the range of floats, got others")
        ends = np.cumsum(width.ravel(), dtype=np.int64)[some.ravel()]
        begins = ends - width[some]
        if not (digits[begins].all() and digits[ends - 1].all()):
            raise FileFormatError("Expected exact sums without leading or trailing zeros, got others")
        sums.low = int(low[some].min())
        planes = np.zeros((int(top[some].max()) - sums.low, low.size), np.int64)
        cells = np.repeat(np.arange(low.size), width.ravel())
        within = np.arange(len(digits)) - np.repeat(begins, width[some])
        planes[within + low.ravel()[cells] - sums.low, cells] = digits
        sums.planes, sums._bound = planes.reshape(-1, *low.shape), HALF
        return sums

    @staticmethod
    def _whole(planes: NDArray[np.int64]) -> list[int]:
        whole = [0] * planes.shape[1]
        for plane in planes[::-1].tolist():
            whole = [(above << BITS) + digit for above, digit in zip(whole, plane, strict=True)]
        return whole

    def _flat(self) -> NDArray[np.int64]:
        """The digits, carried, of the cells in order: (n_planes, n_cells)."""
        planes = self.normalised().planes
        return planes.reshape(len(planes), math.prod(self.shape))

    def _combined(self, other: ExactSums, sign: int, places: Places) -> ExactSums:
        if self._bound + other._bound >= FULL:
            self.normalised()
            other.normalised()
        if not len(other.planes):
            return copy.copy(self)
        low = other.low if not len(self.planes) else min(self.low, other.low)
        high = max(self.low + len(self.planes) if len(self.planes) else low, other.low + len(other.planes))
        total = copy.copy(self)
        total.low, total._bound, total._normal = low, self._bound + other._bound, False
        begin = self.low - low if len(self.planes) else 0
        if (begin, high - low) == (0, len(self.planes)):
            planes = self.planes.copy()
        else:
            planes = np.zeros((high - low, *self.shape), np.int64)
            planes[begin : begin + len(self.planes)] = self.planes
        window = planes[other.low - low : other.low - low + len(other.planes)]
        if places is None:
            (np.add if sign > 0 else np.subtract)(window, other.planes, out=window)
        elif sign > 0:
            window[:, *_listed(places)] += other.planes
        else:
            window[:, *_listed(places)] -= other.planes
        total.planes = planes
        return total


def _listed(places: Places) -> tuple[Any, ...]:
    return places if isinstance(places, tuple) else (places,)


def quotient(above: int, above_unit: int, below: int, below_unit: int) -> float:
    """Return (above · 2**above_unit) / (below · 2**below_unit), rounded once, to the nearest; ±inf if it overflows.

    Python divides integers of any length with one rounding, to even, also where the quotient is subnormal.

    >>> quotient(1, 0, 3, 0), quotient(1, -1074, 2, 0), quotient(3, 2000, 1, 0)
    (0.3333333333333333, 0.0, inf)
    """
    shift = above_unit - below_unit
    if shift >= 0:
        above <<= shift
    else:
        below <<= -shift
    try:
        return above / below
    except OverflowError:
        return float("inf") if (above > 0) == (below > 0) else float("-inf")
