"""Which statistic each block of a schema feeds: sums of floats, or exact ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from streamnb.counts import CategoryCounts, FeatureSums
from streamnb.exactcounts import ExactCategoryCounts, ExactFeatureSums, exact_weights
from streamnb.exactmoments import ExactMoments
from streamnb.kernels import Groups
from streamnb.moments import Moments
from streamnb.schema import Schema
from streamnb.weights import ClassWeights, no_weights

__all__ = ["DENSE", "DenseStatistic", "Kinds"]

DENSE = ("numeric", "binary", "counts")
"""The blocks whose statistic is a dense table of class by feature; they rebind their arrays, never change them."""

DenseStatistic: TypeAlias = type[Moments] | type[FeatureSums] | type[ExactMoments] | type[ExactFeatureSums]


@dataclass(frozen=True, slots=True)
class Kinds:
    """The statistics of a schema, and how weights of classes add up in it."""

    exact: bool
    weighted: bool

    @classmethod
    def of(cls, schema: Schema) -> Kinds:
        """Return the kinds of statistic that a schema asks for."""
        return cls(schema.exact, schema.weight is not None)

    def dense(self, block: str) -> DenseStatistic:
        """Return the statistic of a dense block."""
        if self.exact:
            return ExactMoments if block == "numeric" else ExactFeatureSums
        return Moments if block == "numeric" else FeatureSums

    def categories(self, arrays: Mapping[str, Any] | None = None) -> CategoryCounts | ExactCategoryCounts:
        """Return counts of categories: of these arrays, or none yet. Without weights they are whole numbers anyway."""
        if self.exact and self.weighted:
            return ExactCategoryCounts(0, 0) if arrays is None else ExactCategoryCounts.from_arrays(arrays)
        return CategoryCounts(0, 0, self.weighted) if arrays is None else CategoryCounts.from_arrays(arrays)

    def weights(self) -> ClassWeights | None:
        """Return the weights of no class; None where rows have none."""
        return no_weights(0, self.exact) if self.weighted else None

    def weights_of(self, groups: Groups) -> ClassWeights:
        """Return the weights of the classes of a batch."""
        return exact_weights(groups) if self.exact else groups.weights
