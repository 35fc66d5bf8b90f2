"""Weights and sums of features per class and feature, and weights of categories, that add up without rounding."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.counts import refuse_negative
from streamnb.densetable import DenseTable
from streamnb.errors import FileFormatError
from streamnb.exactsums import ExactSums
from streamnb.kernels import SPARSE, Groups, is_everything
from streamnb.kernels_exact import implementation
from streamnb.measure import cells_present
from streamnb.protocols import Codes, Column, Flags, Floats

__all__ = ["ExactCategoryCounts", "ExactFeatureSums", "ExactTable", "exact_weights", "finite_column"]

WHOLE = 2.0**53
"""Sums of whole numbers up to this are exact as floats."""


def exact_weights(groups: Groups, there: Flags | None = None) -> ExactSums:
    """Return the weights of each class, (n_classes,), of the rows that are `there`; without weights, their number."""
    codes = groups.codes if there is None else np.where(there, groups.codes, np.int32(-1))
    if groups.weight is None:
        return ExactSums.of(np.bincount(codes[codes >= 0], minlength=groups.n_classes))
    return implementation().products(codes, groups.n_classes, [groups.weight])


def finite_column(column: Column, place: int, infinite: str) -> tuple[Floats, Flags | None]:
    """Return a column as float64 with 0 in each missing cell, and which cells are there (None: all).

    Raises:
        DataError: ±inf, unless `infinite` is "missing", with column `place` and row.
    """
    values = np.asarray(column.values, np.float64)
    present = cells_present(values, column.valid, place, infinite)
    if present is None or present.all():
        return values, None
    return np.where(present, values, 0.0), present


class ExactTable(DenseTable):
    """Exact sums of a block of columns, each (n_classes, n_features), and the `count` (int64) of the cells present.

    The sums are `NAMES`, and the weight if rows have weights. Nothing is changed in place, only replaced.
    """

    NAMES: ClassVar[tuple[str, ...]] = ()
    SIGNED: ClassVar[tuple[str, ...]] = ()

    def __init__(self, n_classes: int, n_features: int, weighted: bool = False) -> None:
        shape = (n_classes, n_features)
        self.weighted = weighted
        self.count: NDArray[np.int64] = np.zeros(shape, np.int64)
        names = (*(("weight",) if weighted else ()), *self.NAMES)
        self.sums: Mapping[str, ExactSums] = {name: ExactSums(shape) for name in names}

    @property
    def sum_of_weights(self) -> Floats:
        """The weights of the cells present, rounded to the nearest float; without weights, their count."""
        return self.sums["weight"].rounded() if self.weighted else self.count.astype(np.float64)

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return self.count.nbytes + sum(sums.nbytes for sums in self.sums.values())

    def merge(self, other: Self, index: NDArray[np.intp]) -> None:
        """Add another table, whose class i is class index[i] here.

        Raises:
            MergeError: another number of features, or only one side has weights.
        """
        self._combine(other, index, 1)

    def subtract(self, other: Self, index: NDArray[np.intp]) -> None:
        """Take another table away, whose class i is class index[i] here; `wrong_column` tells if it was never in."""
        self._combine(other, index, -1)

    def wrong_column(self) -> tuple[int, int] | None:
        """Return class and column of the first cell that no rows could give, for too much was subtracted."""
        wrong = self.count < 0
        for name, sums in self.sums.items():
            signs = sums.signs()
            wrong |= (self.count == 0) & (signs != 0)
            if name not in self.SIGNED:
                wrong |= signs < 0
        if not wrong.any():
            return None
        i, j = np.argwhere(wrong)[0]
        return int(i), int(j)

    def grow(self, index: NDArray[np.intp], n_classes: int) -> None:
        """Make room for new classes: the old class i becomes class index[i] of n_classes."""
        shape = (n_classes, self.n_features)
        count = np.zeros(shape, np.int64)
        count[index] = self.count
        self.count, self.sums = count, {name: sums.scattered(index, shape) for name, sums in self.sums.items()}

    def only(self, classes: NDArray[np.intp]) -> Self:
        """Return the table of some classes, in the order given."""
        return self._at((classes,))

    def in_order(self, order: Sequence[int]) -> Self:
        """Return the table with its columns in another order: column order[j] becomes column j."""
        return self._at((slice(None), list(order)))

    def copy(self) -> Self:
        """Return an equal table; what is shared is never changed in place."""
        return copy.copy(self)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a state file holds, by name."""
        held: dict[str, NDArray[Any]] = {"count": self.count}
        for name, sums in self.sums.items():
            held |= {f"{name}.{key}": array for key, array in sums.arrays().items()}
        return held

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the table that `arrays` came from; it has weights if they are there.

        Raises:
            FileFormatError: an array is absent, or of another shape or type, or has a value that cannot be.
        """
        table = cls(0, 0, "weight.digits" in arrays)
        count = np.array(arrays["count"])
        sums = {name: ExactSums.from_arrays(_below(arrays, name)) for name in table.sums}
        if count.ndim != 2 or count.dtype != np.int64 or any(each.shape != count.shape for each in sums.values()):
            raise FileFormatError("Expected exact sums with two axes, like their counts, got others")
        table.count, table.sums = count, sums
        wrong = table.wrong_column()
        if wrong is not None:
            raise FileFormatError(
                f"Expected sums that rows could give, got others in class {wrong[0]}, column {wrong[1]}"
            )
        return table

    def _combine(self, other: Self, index: NDArray[np.intp], sign: int) -> None:
        self.check_alike(other, "sums")
        count = self.count.copy()
        count[index] += sign * other.count
        places = slice(None) if is_everything(index, self.n_classes) else index
        self.sums = {name: sums.plus(other.sums[name], places, sign) for name, sums in self.sums.items()}
        self.count = count

    def _at(self, places: Any) -> Self:
        some = copy.copy(self)
        some.count = np.ascontiguousarray(self.count[places])
        some.sums = {name: sums.at(places) for name, sums in self.sums.items()}
        return some

    def _with(self, count: NDArray[np.int64], **sums: ExactSums) -> Self:
        self.count, self.sums = count, {name: sums[name] for name in self.sums}
        return self


def _below(arrays: Mapping[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    return {key.removeprefix(f"{name}."): array for key, array in arrays.items() if key.startswith(f"{name}.")}


def counted_cells(groups: Groups, present: Sequence[Flags | None]) -> tuple[NDArray[np.int64], ExactSums | None]:
    """Return the number and, if rows have weights, the weight of the cells present: both (n_classes, n_columns)."""
    n = groups.n_classes
    count = np.empty((n, len(present)), np.int64)
    weights: list[ExactSums] = []
    for j, there in enumerate(present):
        count[:, j] = groups.rows if there is None else np.bincount(groups.codes[there], minlength=n)
    if groups.weight is None:
        return count, None
    whole = exact_weights(groups)
    weights = [whole if there is None else exact_weights(groups, there) for there in present]
    return count, side_by_side(weights, n)


def side_by_side(columns: Sequence[ExactSums], n_classes: int) -> ExactSums:
    """Return sums (n_classes, n_columns) of columns of (n_classes,) each."""
    total = ExactSums((n_classes, len(columns)))
    if not columns:
        return total
    low = min(each.low for each in columns)
    high = max(each.low + len(each.planes) for each in columns)
    planes = np.zeros((high - low, *total.shape), np.int64)
    for j, each in enumerate(columns):
        planes[each.low - low : each.low - low + len(each.planes), :, j] = each.planes
    return ExactSums.around(planes, low)


class ExactFeatureSums(ExactTable):
    """The sums of a block of columns that are never negative, as `counts.FeatureSums`, without rounding.

    >>> import numpy as np
    >>> tenths = Column(np.full(10, 0.1))
    >>> ExactFeatureSums.of(Groups(np.zeros(10, np.int32), n_classes=1), [tenths]).total.item()
    1.0
    """

    NAMES = ("total",)

    @property
    def total(self) -> Floats:
        """The sums of weight × value, rounded to the nearest float."""
        return self.sums["total"].rounded()

    @classmethod
    def of(cls, groups: Groups, block: Sequence[Column], *, infinite: str = "error") -> Self:
        """Return the sums of one batch.

        Raises:
            DataError: a negative value; ±inf, unless `infinite` is "missing": with column and row.
        """
        sums = cls(groups.n_classes, len(block), groups.weight is not None)
        if not len(groups) or not block:
            return sums
        for j, column in enumerate(block):
            refuse_negative(column, j)
        columns = [finite_column(column, j, infinite) for j, column in enumerate(block)]
        count, weight = counted_cells(groups, [there for _, there in columns])
        totals = side_by_side([_total(groups, values) for values, _ in columns], groups.n_classes)
        return sums._with(count, total=totals, **({} if weight is None else {"weight": weight}))


def _total(groups: Groups, values: Floats) -> ExactSums:
    if groups.weight is not None:
        return implementation().products(groups.codes, groups.n_classes, [groups.weight, values])
    if values.max(initial=0.0) <= WHOLE / len(values) and (values == np.rint(values)).all():
        return ExactSums.of(np.bincount(groups.codes, values, groups.n_classes).astype(np.int64))
    return implementation().products(groups.codes, groups.n_classes, [values])


class ExactCategoryCounts:
    """The counts of one categorical column whose rows have weights, as `counts.CategoryCounts`, without rounding.

    - `rows` (int64) and `weights` (ExactSums): of each class and category, (n_classes, n_categories).
    """

    weighted = True

    def __init__(self, n_classes: int, n_categories: int) -> None:
        shape = (n_classes, n_categories)
        self.rows: NDArray[np.int64] = np.zeros(shape, np.int64)
        self.weights = ExactSums(shape)

    @property
    def n_classes(self) -> int:
        """The length of axis 0."""
        return len(self.rows)

    @property
    def n_categories(self) -> int:
        """The length of axis 1."""
        return int(self.rows.shape[1])

    @property
    def counts(self) -> Floats:
        """The weights, rounded to the nearest float."""
        return self.weights.rounded()

    @property
    def present(self) -> NDArray[np.int64]:
        """The rows of each class in which the cell was there: shape (n_classes,)."""
        return np.asarray(self.rows.sum(axis=1))

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return self.rows.nbytes + self.weights.nbytes

    def add(self, groups: Groups, codes: Codes, index: NDArray[np.intp], categories: NDArray[np.intp]) -> None:
        """Count a batch, as `counts.CategoryCounts.add` does."""
        if groups.weight is None:
            raise ValueError("expected rows with weights, got none")
        there = np.flatnonzero(codes >= 0)
        if not len(there):
            return
        where = index[groups.codes[there]] * self.n_categories + categories[codes[there]]
        if self.rows.size <= SPARSE * len(there):
            self.rows = self.rows + np.bincount(where, minlength=self.rows.size).reshape(self.rows.shape)
            more = implementation().products(where, self.rows.size, [groups.weight[there]])
            self.weights = self.weights + more.reshaped(self.rows.shape)
            return
        cells, place = np.unique(where, return_inverse=True)
        rows = self.rows.reshape(-1).copy()
        rows[cells] += np.bincount(place, minlength=len(cells))
        self.rows = rows.reshape(self.rows.shape)
        more = implementation().products(place, len(cells), [groups.weight[there]])
        self.weights = self.weights.plus(more, np.divmod(cells, self.n_categories))

    def merge(self, other: Self, index: NDArray[np.intp], categories: NDArray[np.intp]) -> None:
        """Add another's counts: its class i is class index[i] here, its category j is category categories[j]."""
        self._combine(other, index, categories, 1)

    def subtract(self, other: Self, index: NDArray[np.intp], categories: NDArray[np.intp]) -> None:
        """Take another's counts away, whose classes and categories are as in `merge`."""
        self._combine(other, index, categories, -1)

    def wrong_cell(self) -> tuple[int, int] | None:
        """Return class and category of the first cell that no rows could give, for too much was subtracted."""
        signs = self.weights.signs()
        wrong = (self.rows < 0) | (signs < 0) | ((self.rows == 0) & (signs != 0))
        return (int(np.argwhere(wrong)[0, 0]), int(np.argwhere(wrong)[0, 1])) if wrong.any() else None

    def grow(self, index: NDArray[np.intp], n_classes: int) -> None:
        """Make room for new classes: the old class i becomes class index[i] of n_classes."""
        self._scatter(np.ix_(index, np.arange(self.n_categories)), (n_classes, self.n_categories))

    def grow_categories(self, index: NDArray[np.intp], n_categories: int) -> None:
        """Make room for new categories: the old category j becomes category index[j] of n_categories."""
        self._scatter(np.ix_(np.arange(self.n_classes), index), (self.n_classes, n_categories))

    def only(self, classes: NDArray[Any], categories: NDArray[Any]) -> Self:
        """Return the counts of some classes and categories."""
        some = copy.copy(self)
        places = np.ix_(classes, categories)
        some.rows, some.weights = self.rows[places], self.weights.at(places)
        return some

    def copy(self) -> Self:
        """Return equal counts; what is shared is never changed in place."""
        return copy.copy(self)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a state file holds, by name."""
        return {"rows": self.rows} | {f"weight.{key}": array for key, array in self.weights.arrays().items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the counts that `arrays` came from.

        Raises:
            FileFormatError: an array is absent, or of another shape or type, or has a value that cannot be.
        """
        counts = cls(0, 0)
        counts.rows, counts.weights = np.array(arrays["rows"]), ExactSums.from_arrays(_below(arrays, "weight"))
        if counts.rows.dtype != np.int64 or counts.rows.ndim != 2 or counts.weights.shape != counts.rows.shape:
            raise FileFormatError("Expected weights of categories with two axes, like their rows, got others")
        if counts.wrong_cell() is not None:
            raise FileFormatError("Expected weights of categories that rows could give, got others")
        return counts

    def _combine(self, other: Self, index: NDArray[np.intp], categories: NDArray[np.intp], sign: int) -> None:
        places = np.ix_(index, categories)
        rows = self.rows.copy()
        rows[places] += sign * other.rows
        self.rows, self.weights = rows, self.weights.plus(other.weights, places, sign)

    def _scatter(self, places: tuple[NDArray[np.intp], ...], shape: tuple[int, int]) -> None:
        rows = np.zeros(shape, np.int64)
        rows[places] = self.rows
        self.rows, self.weights = rows, self.weights.scattered(places, shape)
