"""Labels as scikit-learn has them, in NumPy arrays: distinct values, and each row's place among them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamnb.errors import MergeError

__all__ = ["Labels", "arrow_labels", "declared", "distinct", "numpy_labels", "places", "union"]

NARROW = 1 << 16
"""Integers that span no more than this are told apart by a table, many times faster than by sorting."""

Labels = NDArray[Any]
Index = NDArray[np.intp]


def distinct(y: Labels) -> tuple[Labels, Index]:
    """Return the distinct labels in ascending order, and the place of each row's label among them.

    Raises:
        ValueError: numbers with fractions, which are no labels.

    >>> values, codes = distinct(np.array(["b", "a", "b"]))
    >>> values.tolist(), codes.tolist()
    (['a', 'b'], [1, 0, 1])
    """
    if y.dtype.kind == "b":
        values, codes = distinct(y.view(np.uint8))
        return values.astype(np.bool_), codes
    if y.dtype.kind == "f" and len(y):
        whole = y.astype(np.int64) if (np.abs(y) < 2**53).all() else None
        if (np.floor(y) != y).any():
            raise ValueError(
                f"Unknown label type: continuous. Expected labels of classes, got numbers like {y[np.floor(y) != y][0]}"
            )
        if whole is not None:
            values, codes = distinct(whole)
            return values.astype(y.dtype), codes
    if y.dtype.kind in "iu" and len(y):
        low, high = y.min(), y.max()
        if int(high) - int(low) < NARROW and int(high) < 2**63:
            shifted = (y - low).astype(np.intp) if low >= 0 else y.astype(np.int64) - int(low)
            present = np.flatnonzero(np.bincount(shifted))
            place = np.zeros(int(high) - int(low) + 1, np.intp)
            place[present] = np.arange(len(present))
            return (present + int(low)).astype(y.dtype), place[shifted]
    if y.dtype.kind in "UO" and len(y):
        found = _distinct_text(y)
        if found is not None:
            return found
    values, codes = np.unique(y, return_inverse=True)
    return values, codes.reshape(-1)


def _distinct_text(y: Labels) -> tuple[Labels, Index] | None:
    """The same for text, by hashing instead of sorting; None where that is not possible."""
    if y.dtype.kind == "O" and not all(isinstance(label, str) for label in y):
        raise ValueError(f"Unknown label type: unknown. Expected text or numbers, got objects like {y[0]!r}")
    if y.dtype.kind == "U" and _has_inner_nul(y):
        return None  # Arrow would end the text there
    try:
        encoded = pa.array(y).dictionary_encode()
    except (pa.ArrowInvalid, UnicodeError):
        return None
    values = np.array(encoded.dictionary.to_pylist(), dtype=y.dtype)
    order = np.argsort(values)
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    return values[order], place[np.asarray(encoded.indices)]


def _has_inner_nul(y: Labels) -> bool:
    """Whether any text goes on after a NUL; those at its end are NumPy's own padding."""
    if y.dtype.itemsize < 8:
        return False
    points = np.ascontiguousarray(y).view(np.uint32).reshape(len(y), -1)
    return bool(((points[:, :-1] == 0) & (points[:, 1:] != 0)).any())


def declared(classes: Any) -> Labels:
    """Return classes that are given as a list, distinct and in ascending order.

    Raises:
        ValueError: text among numbers.
    """
    values = np.asarray(classes)
    if not isinstance(classes, np.ndarray) and len({isinstance(label, str) for label in classes}) > 1:
        raise ValueError(f"Mix of label input types (string and number); got {list(classes)!r}")
    return distinct(values.reshape(-1))[0]


def places(values: Labels, classes: Labels) -> Index:
    """Return where each label stands among the classes, −1 where it does not."""
    if not len(classes) or _kind(values) != _kind(classes):
        return np.full(len(values), -1, np.intp)
    place = np.minimum(np.searchsorted(classes, values), len(classes) - 1)
    return np.where(classes[place] == values, place, -1)


def union(one: Labels, two: Labels) -> Labels:
    """Return the labels of both, distinct and in ascending order.

    Raises:
        MergeError: text and numbers, which are never one class.
    """
    if len(one) and len(two) and _kind(one) != _kind(two):
        raise MergeError(f"Expected labels of type {one.dtype}, got {two.dtype}")
    return np.union1d(one, two)


def _kind(labels: Labels) -> str:
    return {"U": "text", "O": "text", "b": "flag"}.get(labels.dtype.kind, "other")


def arrow_labels(classes: Labels) -> pa.Array:
    """Return labels as the Arrow array that a state keeps."""
    return pa.array(classes.tolist(), pa.string()) if classes.dtype.kind == "U" else pa.array(classes)


def numpy_labels(classes: pa.Array) -> Labels:
    """Return a state's labels as scikit-learn has them."""
    if pa.types.is_string(classes.type):
        return np.array(classes.to_pylist(), dtype=np.str_)
    return np.asarray(classes.to_numpy(zero_copy_only=False))
