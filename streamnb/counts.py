"""What adds up by itself: sums of features per class, and counts of categories per class."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.densetable import FloatTable, checked_arrays
from streamnb.errors import DataError, MergeError
from streamnb.kernels import Groups, add_table, implementation
from streamnb.measure import measure
from streamnb.protocols import Codes, Column, Floats

__all__ = ["CategoryCounts", "FeatureSums", "refuse_negative"]


class FeatureSums(FloatTable):
    """The sums of a block of columns that are never negative; every array has shape (n_classes, n_features).

    - `count` (int64): the cells present, and `sum_of_weights`: their weights.
    - `total`: the sum of weight × value; for 0/1 columns, the weight of the ones.

    The arrays are never changed in place, only replaced: `copy.copy` of a statistic stays as it is.

    >>> import numpy as np
    >>> from streamnb.kernels import Groups
    >>> from streamnb.protocols import Column
    >>> visits = Column(np.array([2, 3, 0, 7]), valid=np.array([True, True, True, False]))
    >>> sums = FeatureSums.of(Groups(np.array([0, 0, 1, 1]), n_classes=2), [visits])
    >>> sums.total.ravel(), sums.count.ravel()
    (array([5., 0.]), array([2, 1]))
    """

    def __init__(self, n_classes: int, n_features: int, weighted: bool = False) -> None:
        shape = (n_classes, n_features)
        self.weighted = weighted
        self.count: NDArray[np.int64] = np.zeros(shape, np.int64)
        self._weight: Floats | None = np.zeros(shape) if weighted else None
        self.total: Floats = np.zeros(shape)

    @classmethod
    def of(cls, groups: Groups, block: Sequence[Column], *, infinite: str = "error") -> Self:
        """Return the sums of one batch.

        Raises:
            DataError: a negative value; ±inf, unless `infinite` is "missing": with column and row. Or a sum that
                overflows, with column.
        """
        sums = cls(groups.n_classes, len(block), groups.weight is not None)
        if not len(groups) or not block:
            return sums
        for j, column in enumerate(block):
            refuse_negative(column, j)
        with np.errstate(all="ignore"):
            found, _ = measure(implementation(), groups, block, 0, None, infinite)
        whole = np.ascontiguousarray
        sums._put(whole(found.number.T), whole(found.weight.T), whole(found.deviation.T))
        return sums

    @classmethod
    def around(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return a statistic that has these very arrays, as `arrays` names them: not copied and not checked."""
        sums = cls(0, 0, "sum_of_weights" in arrays)
        sums._take(arrays)
        return sums

    def merge(self, other: Self, index: NDArray[np.intp]) -> None:
        """Add another statistic, whose class i is class index[i] here; on an error self is unchanged.

        Raises:
            DataError: a sum that overflows, with the column.
            MergeError: another number of features, or only one side has weights.
        """
        self.check_alike(other, "sums")
        count, weight, total = self.count.copy(), self.sum_of_weights.copy(), self.total.copy()
        with np.errstate(all="ignore"):
            count[index] += other.count
            weight[index] += other.sum_of_weights
            total[index] += other.total
        self._put(count, weight, total)

    def only(self, classes: NDArray[np.intp]) -> Self:
        """Return the sums of some classes, in the order given."""
        return self.around({name: array[classes] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a state file holds, by name: the statistic's own, not copies."""
        held: dict[str, NDArray[Any]] = {"count": self.count}
        if self._weight is not None:
            held["sum_of_weights"] = self._weight
        return held | {"total": self.total}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the statistic that `arrays` came from; it has weights if they are there.

        Raises:
            FileFormatError: an array is absent, or of another shape or type, or has a value that cannot be.
        """
        sums = cls(0, 0, "sum_of_weights" in arrays)
        sums._take(checked_arrays(arrays, sums.arrays()))
        return sums

    def _take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.count, self.total = arrays["count"], arrays["total"]
        self._weight = arrays["sum_of_weights"] if self.weighted else None

    def _put(self, count: NDArray[np.int64], weight: Floats, total: Floats) -> None:
        """Replace all arrays, unless one of them holds what no statistic may hold."""
        wrong = ~(np.isfinite(total) & np.isfinite(weight))
        if wrong.any():
            raise DataError(
                "Expected counts whose sum fits in a float64, got an overflow",
                column=int(wrong.any(axis=0).argmax()),
            )
        self.count, self.total = count, total
        self._weight = weight if self.weighted else None


def refuse_negative(column: Column, place: int) -> None:
    """Refuse a negative value; `place` is the number of the column in its block.

    Raises:
        DataError: with column and row.
    """
    values = column.values
    # Not "min < 0": a NaN anywhere makes the minimum NaN.
    if values.dtype.kind in "if" and not values.min() >= 0:
        negative = values < 0
        if values.dtype.kind == "f":
            negative &= np.isfinite(values)  # −inf is refused, or missing, like +inf
        if column.valid is not None:
            negative &= column.valid
        if negative.any():
            row = int(negative.argmax())
            raise DataError(f"Expected a count of at least 0, got {float(values[row])}", column=place, row=row)


class CategoryCounts:
    """The counts of one categorical column; both arrays have shape (n_classes, n_categories).

    - `counts`: the rows of each class and category (int64) or, when `weighted`, their weights (float64).
    - `rows` (int64): the rows, with weights or without.

    `add` and `merge` change the arrays in place: neither can fail.

    >>> import numpy as np
    >>> from streamnb.kernels import Groups
    >>> sites = np.array([0, 1, 1, -1], np.int32)  # -1 is missing
    >>> CategoryCounts.of(Groups(np.array([0, 0, 1, 1]), n_classes=2), sites, n_categories=2).counts
    array([[1, 1],
           [0, 1]])
    """

    def __init__(self, n_classes: int, n_categories: int, weighted: bool = False) -> None:
        self.weighted = weighted
        shape = (n_classes, n_categories)
        self.counts: NDArray[Any] = np.zeros(shape, np.float64 if weighted else np.int64)
        self._rows: NDArray[np.int64] | None = np.zeros(shape, np.int64) if weighted else None

    @property
    def n_classes(self) -> int:
        """The length of axis 0."""
        return len(self.counts)

    @property
    def n_categories(self) -> int:
        """The length of axis 1."""
        return int(self.counts.shape[1])

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows of each class and category; without weights, these are the counts."""
        return self.counts if self._rows is None else self._rows

    @property
    def present(self) -> NDArray[np.int64]:
        """The rows of each class in which the cell was there: shape (n_classes,)."""
        return np.asarray(self.rows.sum(axis=1))

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return sum(array.nbytes for array in self.arrays().values())

    @classmethod
    def of(cls, groups: Groups, codes: Codes, n_categories: int) -> Self:
        """Return the counts of one batch; `codes` (n_rows,) are below n_categories, and -1 where missing."""
        counts = cls(groups.n_classes, n_categories, groups.weight is not None)
        counts.add(groups, codes, np.arange(groups.n_classes), np.arange(n_categories))
        return counts

    def add(self, groups: Groups, codes: Codes, index: NDArray[np.intp], categories: NDArray[np.intp]) -> None:
        """Count a batch whose class i is class index[i] here, and whose category j is category categories[j].

        Two codes may stand for one category; a code that no row uses may have -1.

        Raises:
            ValueError: a code outside of `categories`.
        """
        if not len(codes):
            return
        if codes.min() < -1 or codes.max() >= len(categories):
            raise ValueError(f"expected codes from -1 to {len(categories) - 1}, got others")
        tally = implementation().tally
        tally(groups, codes, index, categories, self.counts)
        if self._rows is not None:
            tally(groups, codes, index, categories, self._rows)

    def merge(self, other: Self, index: NDArray[np.intp], categories: NDArray[np.intp]) -> None:
        """Add another's counts: its class i is class index[i] here, its category j is category categories[j].

        Raises:
            MergeError: only one side has weights.
        """
        if self.weighted != other.weighted:
            raise MergeError(f"Expected category counts with weights={self.weighted}, got weights={other.weighted}")
        for name, array in self.arrays().items():
            add_table(array, other.arrays()[name], index, categories)

    def grow(self, index: NDArray[np.intp], n_classes: int) -> None:
        """Make room for new classes: the old class i becomes class index[i] of n_classes."""
        self._grow(np.ix_(index, np.arange(self.n_categories)), n_classes, self.n_categories)

    def grow_categories(self, index: NDArray[np.intp], n_categories: int) -> None:
        """Make room for new categories: the old category j becomes category index[j] of n_categories."""
        self._grow(np.ix_(np.arange(self.n_classes), index), self.n_classes, n_categories)

    def only(self, classes: NDArray[Any], categories: NDArray[Any]) -> Self:
        """Return the counts of some classes and categories, in the order given."""
        kept = {name: array[np.ix_(classes, categories)] for name, array in self.arrays().items()}
        return self.from_arrays(kept)

    def copy(self) -> Self:
        """Return equal counts that share no memory with these."""
        return copy.deepcopy(self)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a state file holds, by name: the statistic's own, not copies."""
        return {"counts": self.counts} if self._rows is None else {"counts": self.counts, "rows": self._rows}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the counts that `arrays` came from; they are weighted if the rows are there beside them.

        Raises:
            FileFormatError: an array is absent, or of another shape or type, or has a value that cannot be.
        """
        counts = cls(0, 0, "rows" in arrays)
        counts._take(checked_arrays(arrays, counts.arrays()))
        return counts

    def _take(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.counts = arrays["counts"]
        self._rows = arrays["rows"] if self.weighted else None

    def _grow(self, places: tuple[NDArray[np.intp], ...], n_classes: int, n_categories: int) -> None:
        grown = type(self)(n_classes, n_categories, self.weighted)
        arrays = grown.arrays()
        for name, array in self.arrays().items():
            arrays[name][places] = array
        self._take(arrays)
