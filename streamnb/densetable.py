"""What the statistics of a block have in common: tables of class by feature, beside a count of the cells present."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import FileFormatError, MergeError
from streamnb.protocols import Floats

__all__ = ["DenseTable", "FloatTable", "checked_arrays"]


class DenseTable:
    """A table of class by feature: `count` (int64) are the cells present; rows have weights if `weighted`."""

    count: NDArray[np.int64]
    weighted: bool

    @property
    def n_classes(self) -> int:
        """The length of axis 0."""
        return len(self.count)

    @property
    def n_features(self) -> int:
        """The length of axis 1."""
        return int(self.count.shape[1])

    def check_alike(self, other: Self, what: str) -> None:
        """Refuse a table of other features, or with weights where this one has none; `what` names both.

        Raises:
            MergeError: another number of features, or only one side has weights.
        """
        if self.n_features != other.n_features or self.weighted != other.weighted:
            raise MergeError(
                f"Expected {what} of {self.n_features} features with weights={self.weighted}, "
                f"got {other.n_features} features with weights={other.weighted}"
            )


class FloatTable(DenseTable, ABC):
    """A table of arrays of floats, which are never changed in place, only replaced."""

    _weight: Floats | None

    @abstractmethod
    def __init__(self, n_classes: int, n_features: int, weighted: bool = False) -> None: ...

    @abstractmethod
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a state file holds, by name: the statistic's own, not copies."""

    @abstractmethod
    def _take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Hold these very arrays, as `arrays` names them."""

    @property
    def sum_of_weights(self) -> Floats:
        """The weights of the cells present; without weights, their count as float64."""
        return self.count.astype(np.float64) if self._weight is None else self._weight

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return sum(array.nbytes for array in self.arrays().values())

    def grow(self, index: NDArray[np.intp], n_classes: int) -> None:
        """Make room for new classes: the old class i becomes class index[i] of n_classes."""
        grown = type(self)(n_classes, self.n_features, self.weighted)
        arrays = grown.arrays()
        for name, array in self.arrays().items():
            arrays[name][index] = array
        self._take(arrays)

    def copy(self) -> Self:
        """Return an equal statistic that shares no memory with this one."""
        return copy.deepcopy(self)


def checked_arrays(
    arrays: Mapping[str, NDArray[Any]], like: Mapping[str, NDArray[Any]], signed: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Return copies of the arrays named in `like`, of the same types, all of one shape (two axes).

    Raises:
        FileFormatError: an array is absent, or of another shape or type, not finite, or negative and not `signed`.
    """
    checked: dict[str, NDArray[Any]] = {}
    for name, example in like.items():
        if name not in arrays:
            raise FileFormatError(f"Expected an array {name!r}, got only {sorted(arrays)}")
        array = np.asarray(arrays[name])
        shape = next((other.shape for other in checked.values()), array.shape)
        if array.ndim != 2 or array.shape != shape or array.dtype != example.dtype:
            raise FileFormatError(
                f"Expected {name!r} to be {example.dtype} with two axes like the others, "
                f"got {array.dtype} of shape {array.shape}"
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise FileFormatError(f"Expected finite numbers in {name!r}, got NaN or infinity")
        if name not in signed and (array < 0).any():
            raise FileFormatError(f"Expected numbers of at least 0 in {name!r}, got {array.min()}")
        checked[name] = np.array(array, order="C")
    return checked
