"""What the estimators count of arrays: row by row as NumPy and SciPy lay them out, where columns would be slow.

Each kind of totals is one of the library's statistics in another layout, and turns into it and back without loss.
Class i of an estimator is index i; sums are float64 and are changed in place, so that a small batch costs what its
rows cost, however many features the model has.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from streamnb.counts import FeatureSums
from streamnb.errors import DataError
from streamnb.kernels import Sums
from streamnb.moments import Moments
from streamnb.protocols import BATCH_ROWS, Floats
from streamnb.schema import Schema
from streamnb.sufficient import SufficientStatistics

__all__ = ["Counts", "Measured", "Ones", "Rows", "Totals", "cut", "scattered"]

CELLS = 40_960
"""Cells of an array worked on at a time: 320 KiB as float64, which stay in a core's own cache."""

Rows = NDArray[np.intp]


class Totals(ABC):
    """The rows of each class (`rows`, int64) and their weights (`weight`, float64, None while no row had one)."""

    block: ClassVar[str]

    def __init__(self, n_classes: int, n_features: int) -> None:
        self.n_features = n_features
        self.rows: NDArray[np.int64] = np.zeros(n_classes, np.int64)
        self.weight: Floats | None = None

    @property
    def n_classes(self) -> int:
        """The length of the axis of classes."""
        return len(self.rows)

    @property
    def class_count(self) -> Floats:
        """The weight of each class, (n_classes,); its rows, without weights."""
        return self.rows.astype(np.float64) if self.weight is None else self.weight.copy()

    def add(self, x: Any, codes: Rows, weight: Floats | None) -> None:
        """Count rows, at least one: `x` (n_rows, n_features), the class of each, and its weight; 0 is no row."""
        if weight is not None:
            kept = np.flatnonzero(weight > 0)
            if len(kept) < len(weight):
                x, codes, weight = x[kept], codes[kept], weight[kept]
            self.weigh()
        elif self.weight is not None:
            weight = np.ones(len(codes))
        self._add(x, codes, weight)
        self.rows += np.bincount(codes, minlength=self.n_classes)
        if weight is not None and self.weight is not None:
            self.weight += np.bincount(codes, weight, self.n_classes)

    def weigh(self) -> None:
        """Give every row so far the weight 1, from which on rows have weights."""
        if self.weight is None:
            self.weight = self.class_count
            self._weigh()

    def grow(self, index: Rows, n_classes: int) -> None:
        """Make room for new classes: the old class i becomes class index[i] of n_classes."""
        self._grow(index, n_classes)
        self.rows = scattered(self.rows, index, n_classes)
        self.weight = None if self.weight is None else scattered(self.weight, index, n_classes)

    def copy(self) -> Self:
        """Return equal totals that share no memory with these."""
        return copy.deepcopy(self)

    def statistics(self, schema: Schema, classes: pa.Array) -> SufficientStatistics:
        """Return the same as the library's own statistics; nothing is shared."""
        held = SufficientStatistics(schema)
        held.grow_classes(classes)
        held.rows = self.rows.copy()
        held.sum_of_weights = None if self.weight is None else self.weight.copy()
        self._fill(held)
        return held

    @classmethod
    def of(cls, held: SufficientStatistics) -> Self:
        """Return totals equal to the library's statistics of one block; nothing is shared."""
        totals = cls(len(held.classes), len(held.schema.features))
        totals.rows = held.rows.copy()
        totals.weight = None if held.sum_of_weights is None else held.class_weight.copy()
        totals._take(held)
        return totals

    @abstractmethod
    def finish(self, family: Any, columns: Sequence[Any]) -> Any:
        """Return what a family makes of these totals."""

    @abstractmethod
    def _add(self, x: Any, codes: Rows, weight: Floats | None) -> None: ...

    @abstractmethod
    def _weigh(self) -> None: ...

    @abstractmethod
    def _grow(self, index: Rows, n_classes: int) -> None: ...

    @abstractmethod
    def _fill(self, held: SufficientStatistics) -> None: ...

    @abstractmethod
    def _take(self, held: SufficientStatistics) -> None: ...


class Measured(Totals):
    """Moments: weight, mean and squared deviations of each class and feature."""

    block = "numeric"

    def __init__(self, n_classes: int, n_features: int) -> None:
        super().__init__(n_classes, n_features)
        self.moments = Moments(n_classes, n_features)

    def finish(self, family: Any, columns: Sequence[Any]) -> Any:
        """Return normal densities."""
        return family.finish(self.moments, columns)

    def _add(self, x: Any, codes: Rows, weight: Floats | None) -> None:
        # Counted apart and added once: an overflow in a late row leaves nothing of the early ones behind.
        part: Measured | None = None
        for first in range(0, len(codes), BATCH_ROWS):
            here = slice(first, first + BATCH_ROWS)
            present, local = _present(codes[here], self.n_classes)
            near = self.moments if part is None else part.moments
            pivot = np.where(near.count[present] > 0, near.mean[present], np.nan)
            batch = _moments(x[here], local, None if weight is None else weight[here], pivot)
            if len(codes) <= BATCH_ROWS:
                self.moments.merge(batch, present)
                return
            if part is None:
                part = Measured(self.n_classes, self.n_features)
                part.moments = Moments(self.n_classes, self.n_features, weight is not None)
            part.moments.merge(batch, present)
        if part is not None:
            self.moments.merge(part.moments, np.arange(self.n_classes))

    def _weigh(self) -> None:
        held = self.moments.arrays() | {"sum_of_weights": self.moments.sum_of_weights}
        self.moments = Moments.from_arrays(held)

    def _grow(self, index: Rows, n_classes: int) -> None:
        self.moments.grow(index, n_classes)

    def _fill(self, held: SufficientStatistics) -> None:
        held.numeric = self.moments.copy()

    def _take(self, held: SufficientStatistics) -> None:
        self.moments = held.numeric.copy()


class Summed(Totals):
    """Sums of features: `total` (n_classes, n_features).

    `present` holds, once some state with missing cells came in, the number and the weight of the cells present,
    (n_classes, n_features) each; None while every row had every cell.
    """

    def __init__(self, n_classes: int, n_features: int) -> None:
        super().__init__(n_classes, n_features)
        self.total: Floats = np.zeros((n_classes, n_features))
        self.present: tuple[NDArray[np.int64], Floats] | None = None

    def finish(self, family: Any, columns: Sequence[Any]) -> Any:
        """Return log probabilities of a unit of each feature."""
        return family.finish(self._sums(), columns)

    def _add(self, x: Any, codes: Rows, weight: Floats | None) -> None:
        if sp.issparse(x):
            self._add_sparse(x, codes, weight)
        else:
            present, local = _present(codes, self.n_classes)
            total = np.zeros((len(present), self.n_features))
            for here in cut(len(codes), self.n_features, least=len(present)):
                total += _one_hot(local[here], None if weight is None else weight[here], len(present)) @ x[here]
            self.total[present] += total
        if self.present is not None:
            number, mass = self.present
            number += np.bincount(codes, minlength=self.n_classes)[:, None]
            mass += np.bincount(codes, weight, self.n_classes)[:, None]

    def _add_sparse(self, x: Any, codes: Rows, weight: Floats | None) -> None:
        """Add only the cells that are stored: their number, not that of the features, is what a batch costs."""
        flat, n_features = self.total.reshape(-1), self.n_features
        per_row = np.diff(x.indptr)
        for here in cut(len(codes), max(1, len(x.data) // len(codes))):
            stored = slice(x.indptr[here.start], x.indptr[here.stop])
            cells = np.repeat(codes[here] * n_features, per_row[here])
            cells += x.indices[stored]
            values = x.data[stored].astype(np.float64, copy=False)
            if weight is not None:
                values = values * np.repeat(weight[here], per_row[here])
            np.add.at(flat, cells, values)

    def _sums(self) -> FeatureSums:
        """These sums in the library's own form, sharing memory; only for reading."""
        if not np.isfinite(self.total).all():
            column = int((~np.isfinite(self.total)).any(axis=0).argmax())
            raise DataError("Expected counts whose sum fits in a float64, got an overflow", column=column)
        shape = self.total.shape
        if self.present is None:
            number = np.broadcast_to(self.rows[:, None], shape)
            mass = np.broadcast_to(self.class_count[:, None], shape)
        else:
            number, mass = self.present
        arrays: dict[str, NDArray[Any]] = {"count": number, "total": self.total}
        if self.weight is not None:
            arrays["sum_of_weights"] = mass
        return FeatureSums.around(arrays)

    def _weigh(self) -> None:
        pass

    def _grow(self, index: Rows, n_classes: int) -> None:
        self.total = scattered(self.total, index, n_classes)
        if self.present is not None:
            number, mass = self.present
            self.present = scattered(number, index, n_classes), scattered(mass, index, n_classes)

    def _fill(self, held: SufficientStatistics) -> None:
        setattr(held, self.block, FeatureSums.from_arrays(self._sums().arrays()))

    def _take(self, held: SufficientStatistics) -> None:
        sums: FeatureSums = getattr(held, self.block).copy()
        self.total = sums.total
        if (sums.count != self.rows[:, None]).any():
            self.present = sums.count, sums.sum_of_weights


class Counts(Summed):
    """Sums of counts."""

    block = "counts"


class Ones(Summed):
    """Numbers of ones."""

    block = "binary"


def cut(n_rows: int, width: int, *, least: int = 16) -> Iterator[slice]:
    """Yield slices that cut rows of so many cells into pieces of about `CELLS` cells, of `least` rows or more."""
    step = max(least, CELLS // width)
    yield from (slice(first, min(first + step, n_rows)) for first in range(0, n_rows, step))


def _present(codes: Rows, n_classes: int) -> tuple[Rows, Rows]:
    """Return the classes that have rows, and the codes as places among them."""
    present = np.flatnonzero(np.bincount(codes, minlength=n_classes))
    if len(present) == n_classes:
        return present, codes
    place = np.zeros(n_classes, np.intp)
    place[present] = np.arange(len(present))
    return present, place[codes]


def _one_hot(codes: Rows, weight: Floats | None, n_classes: int) -> Any:
    """A sparse (n_classes, n_rows) matrix with each row's weight at its class: its product sums rows by class.

    Stored by its rows of data, so that the product runs through them once, in order, and always in the same order.
    """
    n_rows = len(codes)
    values = np.ones(n_rows) if weight is None else weight
    return sp.csc_array((values, codes.astype(np.int32), np.arange(n_rows + 1, dtype=np.int32)), (n_classes, n_rows))


def _moments(x: NDArray[Any], codes: Rows, weight: Floats | None, pivot: Floats) -> Moments:
    """The moments of rows each of whose classes, 0 to len(pivot) − 1, has one; NaN in `pivot`: the first row serves."""
    n_classes, n_features = pivot.shape
    first = np.zeros(n_classes, np.intp)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    pivot = np.where(np.isnan(pivot), x[first], pivot)
    deviation, square = np.zeros(pivot.shape), np.zeros(pivot.shape)
    with np.errstate(all="ignore"):
        for here in cut(len(codes), n_features, least=n_classes):
            classes = _one_hot(codes[here], None if weight is None else weight[here], n_classes)
            x_here = np.subtract(x[here], pivot.take(codes[here], axis=0), dtype=np.float64)
            deviation += classes @ x_here
            square += classes @ np.multiply(x_here, x_here, out=x_here)
    rows = np.bincount(codes)
    mass = np.asarray(rows if weight is None else np.bincount(codes, weight), np.float64)
    number, masses = np.broadcast_to(rows[:, None], pivot.shape), np.repeat(mass[:, None], n_features, axis=1)
    return Moments.of_sums(Sums(number, masses, deviation, square), pivot, weighted=weight is not None)


def scattered(array: NDArray[Any], index: Rows, length: int) -> NDArray[Any]:
    """Return a longer array that has element i at index[i], and 0 elsewhere."""
    grown = np.zeros((length, *array.shape[1:]), array.dtype)
    grown[index] = array
    return grown
