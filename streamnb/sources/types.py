"""One type per column over many files: matched by name, widened, never guessed.

int8 + int32 -> int32        int + float -> double        decimal + int -> a wider decimal
string + large_string + dictionary of strings -> string    null + X -> X    int + string -> no common type
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["canonical", "canonical_schema", "conform", "fixed_width", "is_bytes", "widen"]

_UNITS = ("s", "ms", "us", "ns")
_DIGITS = {1: 3, 2: 5, 4: 10, 8: 20}  # decimal digits of an integer of so many bytes


def is_bytes(dtype: pa.DataType) -> bool:
    """Whether Parquet keeps the type as a byte array that can be read as dictionary codes."""
    value = dtype.value_type if pa.types.is_dictionary(dtype) else dtype
    return _is_string(value) or (_is_binary(value) and not pa.types.is_fixed_size_binary(value))


def fixed_width(dtype: pa.DataType) -> int:
    """Return the bytes of a number that every reader gives alike (8 to 64 bits), or 0 for any other type.

    >>> fixed_width(pa.float64()), fixed_width(pa.string())
    (8, 0)
    """
    if pa.types.is_integer(dtype) or pa.types.is_float32(dtype) or pa.types.is_float64(dtype):
        return int(dtype.bit_width) // 8
    return 0


def canonical(dtype: pa.DataType) -> pa.DataType:
    """Return the type that stands for every layout of the same values.

    >>> canonical(pa.dictionary(pa.int8(), pa.large_string()))
    DataType(string)
    """
    if pa.types.is_dictionary(dtype):
        value = canonical(dtype.value_type)
        return value if _is_string(value) or _is_binary(value) else pa.dictionary(pa.int32(), value)
    if _is_string(dtype):
        return pa.string()
    if _is_binary(dtype):
        return pa.binary()
    if _is_list(dtype):
        return pa.list_(canonical(dtype.value_type))
    return dtype


def widen(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the canonical type that holds the values of both, or None where there is none.

    >>> widen(pa.int32(), pa.float32())
    DataType(double)
    >>> widen(pa.int32(), pa.string()) is None
    True
    """
    left, right = canonical(left), canonical(right)
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if pa.types.is_dictionary(left) or pa.types.is_dictionary(right):
        sides = [t.value_type if pa.types.is_dictionary(t) else t for t in (left, right)]
        value = widen(*sides)
        both = pa.types.is_dictionary(left) and pa.types.is_dictionary(right)
        return pa.dictionary(pa.int32(), value) if both and value is not None else value
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        return _wider_integer(left, right)
    if _is_real(left) and _is_real(right):
        if pa.types.is_floating(left) and pa.types.is_floating(right):
            return left if left.bit_width > right.bit_width else right
        if pa.types.is_floating(left) or pa.types.is_floating(right):
            return pa.float64()
        return _wider_decimal(left, right)
    if _is_list(left) and _is_list(right):
        value = widen(left.value_type, right.value_type)
        return None if value is None else pa.list_(value)
    return _wider_time(left, right)


def _wider_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pa.types.is_signed_integer(left) == pa.types.is_signed_integer(right):
        return left if left.bit_width > right.bit_width else right
    signed, unsigned = (left, right) if pa.types.is_signed_integer(left) else (right, left)
    if pa.types.is_uint64(unsigned):
        return pa.decimal128(20, 0)  # no integer type holds both -1 and 2^64 - 1
    width = max(signed.bit_width, 2 * unsigned.bit_width)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width]


def _wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scales = [t.scale if pa.types.is_decimal(t) else 0 for t in (left, right)]
    digits = [t.precision - t.scale if pa.types.is_decimal(t) else _DIGITS[t.bit_width // 8] for t in (left, right)]
    precision, scale = max(digits) + max(scales), max(scales)
    if precision > 76:
        return pa.float64()
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _wider_time(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Two clocks of one kind meet in the finer unit; a time with a zone and one without do not meet."""
    if pa.types.is_date(left) and pa.types.is_date(right):
        return pa.date64()
    if pa.types.is_time(left) and pa.types.is_time(right):
        unit = _finer(left, right)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if pa.types.is_duration(left) and pa.types.is_duration(right):
        return pa.duration(_finer(left, right))
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right) and (left.tz is None) == (right.tz is None):
        # Two zones name the same instants differently: UTC is the one that needs no choice.
        return pa.timestamp(_finer(left, right), left.tz if left.tz == right.tz else "UTC")
    return None


def _finer(left: pa.DataType, right: pa.DataType) -> str:
    return _UNITS[max(_UNITS.index(left.unit), _UNITS.index(right.unit))]


def _is_string(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype) or pa.types.is_string_view(dtype))


def _is_binary(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(dtype)
        or pa.types.is_large_binary(dtype)
        or pa.types.is_binary_view(dtype)
        or pa.types.is_fixed_size_binary(dtype)
    )


def _is_list(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(dtype)
        or pa.types.is_large_list(dtype)
        or pa.types.is_fixed_size_list(dtype)
        or pa.types.is_list_view(dtype)
        or pa.types.is_large_list_view(dtype)
    )


def _is_real(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def canonical_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the canonical type of each column, and without metadata."""
    return pa.schema([(field.name, canonical(field.type)) for field in schema])


def conform(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the array with values of the canonical type `target`; dictionary codes of strings stay codes.

    Codes come with 32-bit indices, so that batches with different dictionaries can be put together.

    Raises:
        pa.ArrowException: a value that the target does not hold.
    """
    dtype = array.type
    if dtype == target:
        return array
    if pa.types.is_null(dtype):
        return pa.nulls(len(array), target)
    if pa.types.is_dictionary(dtype):
        value_type = target.value_type if pa.types.is_dictionary(target) else target
        if not pa.types.is_dictionary(target) and not (_is_string(target) or _is_binary(target)):
            return conform(array.dictionary_decode(), target)
        if dtype.value_type == value_type and pa.types.is_int32(dtype.index_type):
            return array  # a cast to the same type would copy the codes
        return pa.DictionaryArray.from_arrays(
            array.indices.cast(pa.int32()), conform(array.dictionary, value_type), safe=False
        )
    if pa.types.is_dictionary(target):
        return conform(array, target.value_type).dictionary_encode()
    if pa.types.is_string_view(dtype) or pa.types.is_binary_view(dtype):
        # Views have no direct cast to the short layouts.
        array = array.cast(pa.large_string() if pa.types.is_string_view(dtype) else pa.large_binary())
    # An integer beyond 2^53 is rounded as any number of a float column is; all other casts must be exact.
    return pc.cast(array, target, safe=not pa.types.is_floating(target))
