"""Weight, Σx and Σx² per class and feature without rounding: what a Gaussian needs to know of its rows, exactly.

A sum of squares is safe here, where it would not be in floats: no digit of it is lost, so none can cancel. Mean and
variance are worked out from the integers when they are asked for, and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from streamnb.errors import DataError
from streamnb.exactcounts import ExactTable, counted_cells, finite_column, side_by_side
from streamnb.exactsums import BITS, ExactSums, quotient
from streamnb.kernels import Groups
from streamnb.kernels_exact import implementation
from streamnb.protocols import Column, Floats

__all__ = ["ExactMoments"]


class Rounded(NamedTuple):
    """Mean, what rounding took off it, variance and squared deviations, all (n_classes, n_features)."""

    mean: Floats
    mean_tail: Floats
    variance: Floats
    square: Floats


class ExactMoments(ExactTable):
    """The moments of a block of numeric columns, as `moments.Moments`, without rounding.

    - `count` (int64): the cells present, (n_classes, n_features).
    - `sums`: "sum" is Σwx and "square" Σwx² and, if rows have weights, "weight" Σw.

    >>> import numpy as np
    >>> heights = Column(np.array([1e15 + 1, 1e15 + 3, 1e15 + 8]))
    >>> moments = ExactMoments.of(Groups(np.zeros(3, np.int32), n_classes=1), [heights])
    >>> moments.mean.item() - 1e15, moments.variance().item()
    (4.0, 8.666666666666666)
    """

    NAMES = ("sum", "square")
    SIGNED = ("sum",)

    def __init__(self, n_classes: int, n_features: int, weighted: bool = False) -> None:
        super().__init__(n_classes, n_features, weighted)
        self._rounded: tuple[Mapping[str, ExactSums], Rounded] | None = None

    @classmethod
    def of(
        cls,
        groups: Groups,
        block: Sequence[Column],
        *,
        pivot: Floats | None = None,  # exact sums need no number near the mean
        infinite: str = "error",
    ) -> Self:
        """Return the moments of one batch.

        Raises:
            DataError: ±inf, unless `infinite` is "missing", with column and row.
        """
        moments = cls(groups.n_classes, len(block), groups.weight is not None)
        if not len(groups) or not block:
            return moments
        columns = [finite_column(column, j, infinite) for j, column in enumerate(block)]
        count, weight = counted_cells(groups, [there for _, there in columns])
        values = [each for each, _ in columns]
        kernels = implementation()
        if weight is None:
            one, square = kernels.powers(groups, values)
            return moments._with(count, sum=one, square=square)
        n, w = groups.n_classes, np.asarray(groups.weight)
        one = side_by_side([kernels.products(groups.codes, n, [w, x]) for x in values], n)
        square = side_by_side([kernels.products(groups.codes, n, [w, x, x]) for x in values], n)
        return moments._with(count, weight=weight, sum=one, square=square)

    @property
    def mean(self) -> Floats:
        """The means, each the float nearest to the exact one; 0 where no cell is present."""
        return self._finished.mean

    @property
    def mean_tail(self) -> Floats:
        """What rounding took off the means, rounded itself."""
        return self._finished.mean_tail

    @property
    def sum_of_squared_deviations(self) -> Floats:
        """Σw(x − mean)², each the float nearest to the exact one."""
        return self._finished.square

    def variance(self) -> Floats:
        """Return the population variance (divided by the weight), each the float nearest to the exact one.

        Raises:
            DataError: a variance beyond all floats, with the column.
        """
        return self._finished.variance

    def pooled(self) -> Self:
        """Return the moments of all classes together, with one class."""
        pooled = type(self)(1, self.n_features, self.weighted)
        if self.n_classes:
            pooled.count = self.count.sum(axis=0, keepdims=True)
            pooled.sums = {name: sums.sum().scattered(0, pooled.count.shape) for name, sums in self.sums.items()}
        return pooled

    def wrong_column(self) -> tuple[int, int] | None:
        """Return class and column of the first cell that no rows could give, for too much was subtracted."""
        wrong = super().wrong_column()
        if wrong is not None:
            return wrong
        for cell, (weight, one, square) in enumerate(self._integers()):
            if square * weight < one * one:  # no rows have a variance below 0
                return divmod(cell, self.n_features)
        return None

    @property
    def _finished(self) -> Rounded:
        if self._rounded is None or self._rounded[0] is not self.sums:
            self._rounded = self.sums, self._round()
        return self._rounded[1]

    def _integers(self) -> list[tuple[int, int, int]]:
        """Weight, Σwx and Σwx² of each cell as integers, such that no power of two stands beside square · weight."""
        one, square = self.sums["sum"].integers(), self.sums["square"].integers()
        weight = self.sums["weight"].integers() if self.weighted else self.count.ravel().tolist()
        # In (square · weight) and (one · one), Σx² and Σx are in units of their own: both are brought to one unit.
        shift = BITS * (self._unit("square") + self._unit("weight") - 2 * self._unit("sum"))
        if shift >= 0:
            square = [each << shift for each in square]
            return list(zip(weight, one, square, strict=True))
        if shift % 2:
            raise AssertionError("digits have an even number of bits")
        return list(zip(weight, [each << (-shift // 2) for each in one], square, strict=True))

    def _unit(self, name: str) -> int:
        """The number of the lowest digit of a sum; 0 for plain counts."""
        return self.sums[name].low if name in self.sums else 0

    def _round(self) -> Rounded:
        """Work the moments out from Σw, Σwx and Σwx²: mean = Σwx / Σw, variance = (Σw·Σwx² − (Σwx)²) / (Σw)²."""
        weight_unit, unit = BITS * self._unit("weight"), BITS * self._unit("sum")
        shift = BITS * (self._unit("square") + self._unit("weight") - 2 * self._unit("sum"))
        sum_unit = unit if shift >= 0 else unit - (-shift // 2)
        cells = np.zeros((4, self.n_classes * self.n_features))
        for cell, (weight, one, squares) in enumerate(self._integers()):
            if not weight:
                continue
            nearest = quotient(one, sum_unit, weight, weight_unit)
            spread = squares * weight - one * one
            cells[0, cell] = nearest
            cells[1, cell] = self._tail(nearest, one, sum_unit, weight, weight_unit)
            cells[2, cell] = quotient(spread, 2 * sum_unit, weight * weight, 2 * weight_unit)
            cells[3, cell] = quotient(spread, 2 * sum_unit, weight, weight_unit)
        mean, tail, variance, square = cells.reshape(4, self.n_classes, self.n_features)
        wrong = ~np.isfinite(variance)
        if wrong.any():
            raise DataError(
                "Expected values whose variance fits in a float64, got an overflow",
                column=int(wrong.any(axis=0).argmax()),
            )
        return Rounded(mean, tail, variance, np.minimum(square, np.finfo(np.float64).max))

    @staticmethod
    def _tail(mean: float, one: int, unit: int, weight: int, weight_unit: int) -> float:
        """Return one / weight − mean, rounded."""
        above, below = mean.as_integer_ratio()
        # one·2**unit/(weight·2**weight_unit) − above/below, over one denominator
        shift = unit - weight_unit
        left, denominator = (one << shift, weight) if shift >= 0 else (one, weight << -shift)
        return quotient(left * below - above * denominator, 0, denominator * below, 0)
