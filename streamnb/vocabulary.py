"""Distinct values in sorted order: the classes of a state, the categories of a column.

Values stay Arrow, because only Arrow keeps a label's own type (a date, a decimal, a time with its zone) exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamnb.errors import MergeError

__all__ = ["Index", "Vocabulary", "as_labels", "is_text", "plain_type", "wider_type"]

Index: TypeAlias = NDArray[np.intp]


def is_text(dtype: pa.DataType) -> bool:
    """Whether the type is one of Arrow's layouts of a string."""
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype))


def plain_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type of the values, whatever their layout: a dictionary or a view of strings holds strings.

    >>> plain_type(pa.dictionary(pa.int8(), pa.large_string()))
    DataType(string)
    """
    if pa.types.is_dictionary(dtype):
        return plain_type(dtype.value_type)
    if is_text(dtype):
        return pa.string()
    if pa.types.is_large_binary(dtype) or pa.types.is_binary_view(dtype) or pa.types.is_fixed_size_binary(dtype):
        return pa.binary()
    if pa.types.is_float16(dtype):
        return pa.float32()  # Arrow has no look-up kernel for half floats; the values are the same
    if pa.types.is_decimal32(dtype) or pa.types.is_decimal64(dtype):
        return pa.decimal128(dtype.precision, dtype.scale)  # nor for the narrow decimals
    return dtype


def category_type(dtype: pa.DataType) -> pa.DataType:
    """Return the one type in which a column's categories are kept: equal numbers of any width are one category."""
    dtype = plain_type(dtype)
    if pa.types.is_integer(dtype) and not pa.types.is_uint64(dtype):
        return pa.int64()
    if pa.types.is_floating(dtype):
        return pa.float64()
    if pa.types.is_decimal(dtype):
        return pa.decimal128(38, dtype.scale) if dtype.precision <= 38 else dtype
    return dtype


def as_labels(declared: Sequence[Any], dtype: pa.DataType) -> pa.Array:
    """Return declared classes as labels of a type. Arrow would cast 1 to "1" and back, which are different labels."""
    types = pa.types
    fits = {
        bool: types.is_boolean(dtype),
        int: types.is_integer(dtype) or types.is_floating(dtype) or types.is_decimal(dtype),
        float: types.is_floating(dtype) or types.is_decimal(dtype),
        str: types.is_string(dtype) or types.is_binary(dtype) or types.is_temporal(dtype),
    }
    if fits.get(type(declared[0]), False):
        try:
            return pa.array(declared).cast(dtype)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            pass
    raise MergeError(f"Expected declared classes of type {dtype}, got {list(declared)}")


def wider_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type that holds the categories of both, or None where there is none (a number and a string).

    >>> wider_type(pa.int64(), pa.float64())
    DataType(double)
    """
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    kinds = {_kind(left), _kind(right)}
    if kinds == {"integer"}:
        return pa.decimal128(38, 0)  # int64 beside uint64
    if kinds <= {"integer", "float"}:
        return pa.float64()
    if kinds <= {"integer", "decimal"}:
        return pa.decimal128(38, max(getattr(left, "scale", 0), getattr(right, "scale", 0)))
    return None


def _kind(dtype: pa.DataType) -> str:
    if pa.types.is_integer(dtype):
        return "integer"
    if pa.types.is_floating(dtype):
        return "float"
    return "decimal" if pa.types.is_decimal(dtype) else str(dtype)


DICTIONARY = pa.dictionary(pa.int8(), pa.string()).id

LIKE_PYTHON = {
    **{dtype.id: "text" for dtype in (pa.string(), pa.large_string(), pa.string_view())},
    **{dtype.id: "integer" for dtype in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{dtype.id: "integer" for dtype in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    **{dtype.id: "float" for dtype in (pa.float32(), pa.float64())},
}
"""Types whose values are equal in Arrow where they are in Python, by Arrow type id; alike only within a kind."""


class Vocabulary:
    """Distinct values of one type, sorted, without null; frozen.

    >>> vocabulary = Vocabulary.of(pa.array(["b", "a", "b"]))
    >>> vocabulary.values.to_pylist()
    ['a', 'b']
    """

    __slots__ = ("_kind", "_places", "values")

    def __init__(self, values: pa.Array | None = None) -> None:
        """Wrap values that are already distinct and sorted; no values, of whatever type, are the empty vocabulary."""
        self.values: pa.Array = values if values is not None and len(values) else pa.nulls(0)
        self._places: dict[Any, int] | None = None
        self._kind = ""

    @classmethod
    def of(cls, values: pa.Array) -> Vocabulary:
        """Return the vocabulary of values in any order, repeated or not; nulls are left out."""
        distinct = values.unique().drop_null()
        # Without a value there is no type either: a column that is all null in one shard fits any other.
        return cls(sort(distinct)) if len(distinct) else cls()

    @property
    def type(self) -> pa.DataType:
        """The type of the values; `null` while the vocabulary has never met any."""
        return self.values.type

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.type == other.type and bool(self.values.equals(other.values))

    __hash__ = None  # type: ignore[assignment]  # compared by value, never a key

    def index(self, values: pa.Array) -> NDArray[np.int32]:
        """Return where each value stands, -1 for a value that is not there; shape (n_values,), int32."""
        if not len(self) or not len(values):
            return np.full(len(values), -1, np.int32)
        found = pc.index_in(values, value_set=self.values)
        return np.asarray(found.fill_null(-1), np.int32) if found.null_count else found.to_numpy()

    def find(self, values: pa.Array) -> list[int] | None:
        """Return where each of a few values stands, as `lookup`, through a dict that is built once.

        Null and NaN are -1, a value that is not there is -2. None where Python's equality is not Arrow's: then `lookup`
        serves, which hashes all of the vocabulary anew at each call.

        >>> Vocabulary.of(pa.array(["a", "b"])).find(pa.array(["b", None, "c"]))
        [1, -1, -2]
        """
        dtype = values.type
        if dtype.id == DICTIONARY:
            dtype = dtype.value_type
        places = self._places
        if places is None:
            places = self._places = {value: i for i, value in enumerate(self.values.to_pylist())}
            self._kind = LIKE_PYTHON.get(self.type.id, "")
        if not self._kind or LIKE_PYTHON.get(dtype.id) != self._kind:
            return None
        return [-1 if v is None or v != v else places.get(v, -2) for v in values.to_pylist()]

    def lookup(self, values: pa.Array) -> NDArray[np.int32]:
        """Return where each value stands, as `index`, but values of another numeric type are found by what they are.

        >>> Vocabulary.of(pa.array([1, 2])).lookup(pa.array([2.0, 2.5])).tolist()
        [1, -1]
        """
        if values.type == self.type:
            return self.index(values)
        wider = wider_type(self.type, values.type)
        if wider is None or not len(self) or not len(values):
            return np.full(len(values), -1, np.int32)
        found = pc.index_in(_exactly(values, wider), value_set=_exactly(self.values, wider), skip_nulls=True)
        return np.asarray(found.fill_null(-1), np.int32)

    def union(self, other: Vocabulary, *, widen: bool = False) -> tuple[Vocabulary, Index, Index]:
        """Return the union, and where this one's and the other's values stand in it.

        Types must be equal, unless `widen` allows the wider of two numeric types.

        Raises:
            MergeError: the types differ; the message shows both.

        >>> union, old, new = Vocabulary.of(pa.array(["a", "c"])).union(Vocabulary.of(pa.array(["b", "c"])))
        >>> union.values.to_pylist(), old.tolist(), new.tolist()
        (['a', 'b', 'c'], [0, 2], [1, 2])
        """
        mine, theirs = self._same_type(other, widen=widen)
        unchanged = np.arange(len(mine), dtype=np.intp)
        if mine.equals(theirs):  # as in most merges; no table of hashes is made
            return (self if mine is self.values else Vocabulary(mine)), unchanged, unchanged
        place = Vocabulary(mine).index(theirs)
        if (place >= 0).all():
            return (self if mine is self.values else Vocabulary(mine)), unchanged, place.astype(np.intp)
        late = theirs.filter(pa.array(place < 0))
        union = Vocabulary(sort(pa.concat_arrays([mine, late])) if len(mine) else theirs)
        return union, union.index(mine).astype(np.intp), union.index(theirs).astype(np.intp)

    def extended(self, values: pa.Array, place: Index) -> tuple[Vocabulary, Index]:
        """Return this one with the values that it lacks at its end, in no order, and where each value stands in it.

        For a while of counting only: sorting and numbering anew, each time a few values come, would take most of it.
        `values` has this one's type and no null; `place` is `index(values)`.
        """
        late = values.filter(pa.array(place < 0))
        longer = Vocabulary(pa.concat_arrays([self.values, late.unique()]) if len(self) else late.unique())
        where = place.copy()
        where[place < 0] = len(self) + Vocabulary(longer.values.slice(len(self))).index(late)
        return longer, where

    def _same_type(self, other: Vocabulary, *, widen: bool) -> tuple[pa.Array, pa.Array]:
        if self.type == other.type:
            return self.values, other.values
        if not len(self):
            return pa.array([], other.type), other.values
        if not len(other):
            return self.values, pa.array([], self.type)
        wider = wider_type(self.type, other.type) if widen else None
        if wider is not None:
            try:
                return self.values.cast(wider), other.values.cast(wider)
            except pa.ArrowInvalid:  # an integer past 2**53 beside floats would lose its last digits
                pass
        raise MergeError(f"Expected values of type {self.type}, got {other.type}")


def _exactly(values: pa.Array, wider: pa.DataType) -> pa.Array:
    """Return numbers in a wider type; null where it cannot hold them exactly, which is equal to nothing there."""
    if pa.types.is_floating(wider) and pa.types.is_integer(values.type):
        limit = 2**53
        inside = pc.less_equal(values, pa.scalar(limit, values.type))
        if not pa.types.is_uint64(values.type):
            inside = pc.and_(inside, pc.greater_equal(values, pa.scalar(-limit, values.type)))
        values = pc.if_else(inside, values, pa.scalar(None, values.type))
    return values.cast(wider)


def sort(values: pa.Array) -> pa.Array:
    """Return the values in ascending order (false before true, strings by code point)."""
    return values.take(pc.sort_indices(values))
