"""Exact sums have room for any rows; a model has floats. Here is asked whether the sums fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import DataError
from streamnb.sufficient import SufficientStatistics

__all__ = ["refuse_overflow"]


def refuse_overflow(statistics: SufficientStatistics) -> None:
    """Refuse exact sums that are beyond all floats, or whose variance is; other sums were refused when counted.

    Raises:
        DataError: with the column.
    """
    schema = statistics.schema
    if not schema.exact:
        return
    _check("weights whose sum fits", statistics.class_weight[:, None], (schema.weight or "",))
    for block in ("binary", "counts"):
        _check("counts whose sum fits", getattr(statistics, block).total, getattr(schema, block))
    for name, table in statistics.text.items():
        _check("counts of tokens whose sum fits", np.asarray(table.counts.total)[:, None], (name,))
    for moments in (statistics.numeric, statistics.numeric.pooled()) if schema.numeric else ():
        try:
            moments.variance()
        except DataError as error:
            raise error.at(column=schema.numeric[error.column] if isinstance(error.column, int) else None) from None


def _check(what: str, values: NDArray[Any], columns: tuple[str, ...] | Any) -> None:
    wrong = ~np.isfinite(values).all(axis=0)
    if wrong.any():
        raise DataError(f"Expected {what} in a float64, got an overflow", column=columns[int(wrong.argmax())])
