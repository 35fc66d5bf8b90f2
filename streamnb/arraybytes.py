"""The bytes that say what is in an Arrow array, and nothing else: no offset, no slack, no nulls.

Arrow lets equal arrays lie in memory in many ways: a slice keeps its neighbours, unused bits are arbitrary,
views share their text. State files need one way, to be equal to the byte and to have a checksum.

NumPy arrays cross here by their bytes as well: `pa.array` and `to_numpy` would import pandas where it is
installed, which takes longer than all else about a small file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["Content", "content_of", "from_content", "from_numpy", "is_scalar", "to_numpy"]

Content = list[NDArray[np.uint8]]

_OFFSETS = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}
_VIEWS = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}


def is_scalar(kind: pa.DataType) -> bool:
    """Tell whether an Arrow type is one that these functions know: a plain scalar type."""
    types = pa.types
    return bool(
        types.is_primitive(kind)
        or types.is_decimal(kind)
        or types.is_null(kind)
        or (types.is_fixed_size_binary(kind) and kind.byte_width > 0)
        or kind in _OFFSETS
        or kind in _VIEWS
    )


def content_of(array: pa.Array) -> Content:
    """Return the content of a valid array without nulls, without a copy where its memory allows.

    >>> [part.tolist() for part in content_of(pa.array([1, 2, 3], pa.uint8()).slice(1))]
    [[2, 3]]
    """
    kind = array.type
    if len(array) == 0 or pa.types.is_null(kind):
        return []
    buffers = array.buffers()
    start, stop = array.offset, array.offset + len(array)
    if kind in _VIEWS:
        # Views may name one text many times over, so that a small file would fill the memory when laid out.
        lengths = np.frombuffer(buffers[1], np.int32, 4 * stop)[4 * start :: 4]
        if int(lengths.sum(dtype=np.int64)) > 16 * len(array) + sum(each.size for each in buffers[2:] if each):
            raise ValueError("texts overlap each other")
        return content_of(array.cast(_VIEWS[kind]))
    if pa.types.is_boolean(kind):
        bits = np.unpackbits(np.frombuffer(buffers[1], np.uint8), count=stop, bitorder="little")
        return [np.packbits(bits[start:], bitorder="little")]
    if kind in _OFFSETS:
        offsets: NDArray[Any] = np.frombuffer(buffers[1], _OFFSETS[kind], stop + 1)[start:]
        text = np.frombuffer(buffers[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
        return [(offsets - offsets[0]).view(np.uint8), text]
    width = kind.bit_width // 8
    return [np.frombuffer(buffers[1], np.uint8)[start * width : stop * width]]


def from_content(kind: pa.DataType, length: int, content: Content) -> pa.Array:
    """Return the array of a type and length that has this content; it refers to the memory of `content`."""
    if length == 0:
        return pa.nulls(0, kind)
    if kind in _VIEWS:
        return from_content(_VIEWS[kind], length, content).cast(kind)
    return pa.Array.from_buffers(kind, length, [None, *map(pa.py_buffer, content)])


def from_numpy(array: NDArray[Any]) -> pa.Array:
    """Return the cells of a bool, integer or float array, in C order, as an Arrow array.

    >>> from_numpy(np.array([[True], [False]])).to_pylist()
    [True, False]
    """
    flat = np.ascontiguousarray(array, dtype=array.dtype.name).reshape(-1)
    data = np.packbits(flat, bitorder="little") if flat.dtype == np.bool_ else flat
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(data)])


def to_numpy(content: Content, dtype: str, length: int) -> NDArray[Any]:
    """Return a new, writable array of `length` cells from the content of the Arrow array of the same type.

    >>> to_numpy(content_of(pa.array([1, 2])), "int64", 2)
    array([1, 2])
    """
    if length == 0:
        return np.empty(0, dtype)
    if dtype == "bool":
        return np.unpackbits(content[0], count=length, bitorder="little").astype(np.bool_)
    return content[0].view(dtype).copy()
