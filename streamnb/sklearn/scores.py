"""Scoring rows of arrays: dense blocks in place, sparse rows without making them dense, categories as sparse rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from streamnb.errors import DataError
from streamnb.likelihoods import Discrete, Gaussians, Table
from streamnb.protocols import Floats

__all__ = ["CategoryScores", "DiscreteScores", "GaussianScores", "Scores", "joint"]

BLOCK_CELLS = 1 << 16
"""Cells of features scored at a time; with the scores they make they stay in a core's own cache."""

BLOCK_ROWS = 1024

SPARSE_SCORES = 1 << 22
"""Scores of sparse rows worked out at a time: 32 MiB."""


class Scores(Protocol):
    """log p(row | class) of rows of an array."""

    @property
    def n_classes(self) -> int:
        """How many scores a row has."""

    def of(self, x: Any) -> Floats:
        """Return the scores of some rows, (n_classes, n_rows)."""


class GaussianScores:
    """Scores of normal densities."""

    def __init__(self, likelihood: Gaussians) -> None:
        self.likelihood = likelihood
        self.n_classes = len(likelihood.mean)

    def of(self, x: NDArray[Any]) -> Floats:
        """Return the scores of dense rows; a row too far out for its square is impossible, −inf."""
        out = np.zeros((self.n_classes, len(x)))
        with np.errstate(over="ignore", invalid="ignore"):
            self.likelihood.add_to(out, x.T.astype(np.float64, copy=False), None)
            if not np.isfinite(out.sum()):
                out[np.isnan(out)] = -np.inf
        return out


class DiscreteScores:
    """Scores of counts or, for a likelihood that knows absence, of 0/1 cells; dense or sparse."""

    def __init__(self, likelihood: Discrete) -> None:
        self.likelihood = likelihood
        self.n_classes = len(likelihood.score)
        self._sparse: tuple[Floats, Floats, list[tuple[float, Floats, Floats]]] | None = None

    def of(self, x: Any) -> Floats:
        """Return the scores of rows."""
        if sp.issparse(x):
            return self._of_sparse(x)
        out = np.zeros((self.n_classes, len(x)))
        self.likelihood.add_to(out, x.T.astype(np.float64, copy=False), None)
        return out

    def _of_sparse(self, x: Any) -> Floats:
        if self._sparse is None:
            self._sparse = self._transposed()
        weights, bias, infinite = self._sparse
        scores = x @ weights
        scores += bias
        out = np.ascontiguousarray(scores.T)
        if infinite:
            # Counts of cells decide where an infinite score counts at all: 0 · (−inf) is 0.
            used = x.astype(np.float64)
            used.data = (used.data > 0).astype(np.float64)
            for sign, present, absent in infinite:
                hits = used @ (present - absent) + absent.sum(axis=0)
                out[hits.T > 0] = sign * np.inf
        return out

    def _transposed(self) -> tuple[Floats, Floats, list[tuple[float, Floats, Floats]]]:
        """What a stored cell adds (n_features, n_classes), what every row does, and where scores are infinite."""
        held = self.likelihood
        score, absence = held.score.T, held.absence
        if held.finite and absence is None:
            return np.ascontiguousarray(score), np.zeros(score.shape[1]), []
        if held.finite:
            return np.ascontiguousarray(held.difference.T), held.bias[:, 0], []
        absent = np.zeros_like(score) if absence is None else absence.T
        weights = np.ascontiguousarray(_finite(score) - _finite(absent))
        infinite = []
        for sign in (1.0, -1.0):
            one, zero = score == sign * np.inf, absent == sign * np.inf
            if one.any() or zero.any():
                infinite.append((sign, one.astype(np.float64), zero.astype(np.float64)))
        return weights, _finite(absent).sum(axis=0), infinite


class CategoryScores:
    """Scores of categories: a sparse row with one cell per feature, times all the tables, one upon the other."""

    def __init__(self, tables: Sequence[Table], columns: Sequence[Any]) -> None:
        self.columns = columns
        self.n_classes = len(tables[0].score)
        self.refuses = any(table.unseen is None for table in tables)
        # After the categories of a feature stands what a value adds that training never saw.
        unseen = [np.zeros(len(table.score)) if table.unseen is None else table.unseen for table in tables]
        parts = [np.vstack([table.score.T, last]) for table, last in zip(tables, unseen, strict=True)]
        self.stacked: Floats = np.ascontiguousarray(np.concatenate(parts))
        self.widths = np.array([table.score.shape[1] for table in tables], np.intp)
        self.offsets = np.cumsum(self.widths + 1) - self.widths - 1

    def of(self, x: NDArray[Any]) -> Floats:
        """Return the scores of rows of category numbers.

        Raises:
            DataError: a category that training never saw, where that is refused.
        """
        if self.refuses and (x >= self.widths).any():
            row, j = (int(k) for k in np.argwhere(x >= self.widths)[0])
            raise DataError(
                f"Expected a category below {self.widths[j]}, as in training, got {x[row, j]}",
                column=self.columns[j],
                row=row,
            )
        cells = np.minimum(x, self.widths) + self.offsets
        n_rows, n_features = x.shape
        first = np.arange(0, cells.size + 1, n_features)
        rows = sp.csr_array((np.ones(cells.size), cells.reshape(-1), first), (n_rows, len(self.stacked)))
        return np.ascontiguousarray((rows @ self.stacked).T)


def joint(scores: Scores, x: Any, log_prior: Floats | None) -> Iterator[tuple[slice, Floats]]:
    """Yield log p(row, class) block by block: which rows, and their scores (n_classes, n_rows)."""
    n_rows, n_features = x.shape
    step = min(BLOCK_ROWS, max(16, BLOCK_CELLS // n_features))
    if sp.issparse(x):  # cutting copies, and no block of these stays in a cache anyway
        step = max(BLOCK_ROWS, SPARSE_SCORES // scores.n_classes)
    for first in range(0, n_rows, step):
        here = slice(first, min(first + step, n_rows))
        try:
            found = scores.of(x if step >= n_rows else x[here])
        except DataError as error:
            raise (error if error.row is None else error.at(row=first + error.row)) from None
        if log_prior is not None:
            found += log_prior[:, None]
        yield here, found


def _finite(scores: Floats) -> Floats:
    return np.where(np.isinf(scores), 0.0, scores)
