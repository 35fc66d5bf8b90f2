"""Totals of categories: one table of all features, and of each row one cell in the part of each feature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamnb.counts import CategoryCounts
from streamnb.errors import SchemaError
from streamnb.protocols import Floats
from streamnb.sklearn.totals import Rows, Totals, cut, scattered
from streamnb.sufficient import SufficientStatistics
from streamnb.vocabulary import Vocabulary

__all__ = ["Categorised"]


class Categorised(Totals):
    """Counts of categories 0 to width − 1 of each feature.

    `counts` (sum of widths, n_classes) has the rows, or their weights, feature by feature; once rows have weights,
    `unweighted` of the same shape has the rows.
    """

    block = "categorical"

    def __init__(self, n_classes: int, n_features: int) -> None:
        super().__init__(n_classes, n_features)
        self.widths: Rows = np.zeros(n_features, np.intp)
        self.counts: Floats = np.zeros((0, n_classes))
        self.unweighted: Floats | None = None

    @property
    def offsets(self) -> Rows:
        """Where the categories of each feature begin, (n_features,)."""
        ends: Rows = np.cumsum(self.widths)
        return ends - self.widths

    def tables(self) -> list[Floats]:
        """Return the counts of each feature, (n_classes, width): views."""
        return self._by_feature(self.counts)

    def finish(self, family: Any, columns: Sequence[Any]) -> Any:
        """Return one table of log probabilities for each feature."""
        held = CategoryCounts(0, 0)
        finished = []
        for column, table in zip(columns, self.tables(), strict=True):
            held.counts = table
            finished.append(family.finish(held, column))
        return finished

    def widen(self, widths: Rows) -> None:
        """Make room for more categories."""
        wider = np.maximum(self.widths, widths)
        if (wider == self.widths).all():
            return
        kept = np.arange(len(self.counts)) + np.repeat(np.cumsum(wider) - wider - self.offsets, self.widths)
        self.widths = wider
        self.counts = scattered(self.counts, kept, int(wider.sum()))
        if self.unweighted is not None:
            self.unweighted = scattered(self.unweighted, kept, int(wider.sum()))

    def _add(self, x: Any, codes: Rows, weight: Floats | None) -> None:
        self.widen(x.max(axis=0) + 1)
        offsets, n_classes = self.offsets, self.n_classes
        for here in cut(len(codes), self.n_features):
            places = x[here] + offsets
            places *= n_classes
            places += codes[here, None]
            places = places.reshape(-1)
            np.add.at(
                self.counts.reshape(-1), places, 1.0 if weight is None else np.repeat(weight[here], self.n_features)
            )
            if self.unweighted is not None:
                np.add.at(self.unweighted.reshape(-1), places, 1.0)

    def _weigh(self) -> None:
        self.unweighted = self.counts.copy()

    def _grow(self, index: Rows, n_classes: int) -> None:
        self.counts = scattered(self.counts.T, index, n_classes).T.copy()
        if self.unweighted is not None:
            self.unweighted = scattered(self.unweighted.T, index, n_classes).T.copy()

    def _fill(self, held: SufficientStatistics) -> None:
        rows = self._by_feature(self.counts if self.unweighted is None else self.unweighted)
        for name, table, number in zip(held.schema.categorical, self.tables(), rows, strict=True):
            held.categories[name] = Vocabulary(pa.array(np.arange(table.shape[1])))
            whole = number.astype(np.int64)
            arrays: dict[str, NDArray[Any]] = {"counts": table, "rows": whole}
            if self.unweighted is None:
                arrays = {"counts": whole}
            held.categorical[name] = CategoryCounts.from_arrays(arrays)

    def _take(self, held: SufficientStatistics) -> None:
        values = []
        for name, vocabulary in held.categories.items():
            got = vocabulary.type
            whole = pa.types.is_integer(got) or pa.types.is_null(got)
            if not whole or pc.any(pc.less(vocabulary.values.cast(pa.int64()), 0)).as_py():
                raise SchemaError(f"Expected categories 0, 1, 2, ..., got values of type {got} - column {name!r}")
            values.append(np.asarray(vocabulary.values.cast(pa.int64())))
        self.widen(np.array([int(each.max()) + 1 if len(each) else 0 for each in values], np.intp))
        if self.weight is not None:
            self._weigh()
        rows = self.tables() if self.unweighted is None else self._by_feature(self.unweighted)
        for table, number, each, counts in zip(self.tables(), rows, values, held.categorical.values(), strict=True):
            number[:, each] = counts.rows
            table[:, each] = counts.counts

    def _by_feature(self, array: Floats) -> list[Floats]:
        return [part.T for part in np.split(array, np.cumsum(self.widths)[:-1])]
