"""Frozen likelihoods: what a family's finish leaves, ready to score blocks of rows.

Scores stand class by class, `out` has shape (n_classes, n_rows): a row of `out` is contiguous, so that sums and
maxima over the classes run over long vectors. Everything here is arithmetic on logarithms that `families.py` took.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import DataError
from streamnb.protocols import Column, Flags, Floats

__all__ = ["Discrete", "Gaussians", "Table", "dense", "without_missing"]

CANCELLATION_LIMIT = 1e3
"""Distance of a class mean from the reference, in the class's standard deviations, up to which x² may be expanded.

The expanded form loses about (distance)² · 2⁻⁵³ of a log likelihood: at 10³ that is 1e-10.
"""


ONE_THREAD = 1 << 19
"""Multiplications of a matrix product up to which OpenBLAS computes it in the calling thread. Beyond it more threads
are woken, which with other work on the same cores take many times longer than the product itself."""

FEW_ROWS = 64


def dense(
    block: Sequence[Column] | Floats, first: int, stop: int, *, least: float | None = None
) -> tuple[Floats, Flags | None]:
    """Gather rows [first, stop) of a block of columns, features as rows: the values, and which of them are present.

    Returns values of shape (n_features, n_rows), 0 where a flag says missing, and None for the flags when no column
    has any. NaN and ±inf stay as they are: they make the score NaN or infinite, and `without_missing` sorts them out.

    Raises:
        DataError: a value below `least`, with its column and row.
    """
    if isinstance(block, np.ndarray):
        values = block[:, first:stop]
        missing = np.isnan(values)
        return (np.where(missing, 0.0, values), ~missing) if missing.any() else (values, None)
    values = np.empty((len(block), stop - first))
    present: Flags | None = None
    for j, column in enumerate(block):
        values[j] = column.values[first:stop]
        if column.valid is not None:
            if present is None:
                present = np.ones(values.shape, np.bool_)
            present[j] = column.valid[first:stop]
    if present is not None:
        values[~present] = 0.0
    if least is not None and not (values >= least).all():
        below = (values < least) & np.isfinite(values)
        if below.any():
            j, i = (int(k) for k in np.argwhere(below)[0])
            raise DataError(f"Expected a count of at least {least:g}, got {values[j, i]}", column=j, row=first + i)
    return values, present


def without_missing(values: Floats, present: Flags | None, first: int, *, infinite: str) -> tuple[Floats, Flags | None]:
    """Return what `dense` gave with NaN (and ±inf, if `infinite` is "missing") made missing.

    Raises:
        DataError: ±inf, with its column and row.
    """
    finite = np.isfinite(values)
    if finite.all():
        return values, present
    if infinite == "error":
        unbounded = np.isinf(values)
        if unbounded.any():
            j, i = (int(k) for k in np.argwhere(unbounded)[0])
            raise DataError(f"Expected a finite number, got {values[j, i]}", column=j, row=first + i)
    return np.where(finite, values, 0.0), finite if present is None else present & finite


class Gaussians:
    """Independent normal densities, one per class and feature.

    `mean`, `variance` (smoothed) and `log_normalizer` = −½·ln(2π·variance) have shape (n_classes, n_features), and so
    has `mean_tail`, what rounding took off the mean. An infinite variance with normaliser 0 says that a feature tells
    nothing.
    """

    kind = "gaussian"

    def __init__(self, mean: Floats, mean_tail: Floats, variance: Floats, log_normalizer: Floats) -> None:
        self.mean, self.mean_tail = mean, mean_tail
        self.variance, self.log_normalizer = variance, log_normalizer
        weight = 1.0 / variance
        # Centred on the middle of the class means, weighted by how sharply each class sees the feature.
        total = weight.sum(axis=0)
        with np.errstate(over="ignore", invalid="ignore"):
            reference = np.where(total > 0, (weight * mean).sum(axis=0) / np.where(total > 0, total, 1.0), 0.0)
            sound = np.isfinite(reference) & np.isfinite(total)
            self.reference: Floats = np.where(sound, reference, mean[0] if len(mean) else 0.0)
            # Means far from 0 and near each other: their difference is exact, and the tail has digits to add.
            offset = (mean - self.reference) + mean_tail
            distance = np.abs(offset) * np.sqrt(weight)
            near = (distance <= CANCELLATION_LIMIT) & (weight < 1e150) & (np.abs(offset) < 1e100)
        tells = total > 0  # a feature that tells nothing is left out: 0 times the square of a huge value is not 0
        self.expanded = np.flatnonzero(near.all(axis=0) & tells)
        self.direct = np.flatnonzero(~near.all(axis=0) & tells)
        e = self.expanded
        # −½(x−μ)²/σ² with z = x − reference: z²·(−½/σ²) + z·(offset/σ²) − ½·offset²/σ²
        self.affine = np.hstack([-0.5 * weight[:, e], offset[:, e] * weight[:, e]])
        self.cell_bias = log_normalizer[:, e] - 0.5 * offset[:, e] ** 2 * weight[:, e]
        self.bias = self.cell_bias.sum(axis=1, keepdims=True)

    def add_to(self, out: Floats, values: Floats, present: Flags | None) -> None:
        """Add the log density of each row under each class; `values` (n_features, n_rows) as `dense` gives them."""
        e = self.expanded
        if len(e):
            n, m = values.shape[1], len(e)
            everything = m == len(values)
            terms = np.empty((2 * m, n))
            centred = terms[m:]
            np.subtract(values if everything else values[e], self.reference[e, None], out=centred)
            if present is None:
                out += self.bias
            else:
                there = present if everything else present[e]
                centred *= there
                out += self.cell_bias @ there.astype(np.float64)
            np.multiply(centred, centred, out=terms[:m])
            _add_matmul(out, self.affine, terms)
        for j in self.direct:
            deviation = (values[j] - self.mean[:, j, None]) - self.mean_tail[:, j, None]
            deviation *= deviation
            deviation *= -0.5 / self.variance[:, j, None]
            deviation += self.log_normalizer[:, j, None]
            if present is not None:
                deviation *= present[j]
            out += deviation

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """What a model file holds."""
        return {
            "mean": self.mean,
            "mean_tail": self.mean_tail,
            "variance": self.variance,
            "log_normalizer": self.log_normalizer,
        }


class Discrete:
    """Linear scores of counts (multinomial, complement) or of 0/1 cells (Bernoulli).

    `score` has shape (n_classes, n_features): what one unit of a feature adds. `absence`, of the same shape or None,
    is what a present 0 adds (Bernoulli). An infinite score counts only where its feature does: 0 · (−inf) is 0.
    """

    kind = "discrete"

    def __init__(self, score: Floats, absence: Floats | None = None) -> None:
        self.score, self.absence = score, absence
        self.finite = bool(np.isfinite(score).all() and (absence is None or np.isfinite(absence).all()))
        if self.finite and absence is not None:
            self.difference: Floats = score - absence
            self.bias: Floats = absence.sum(axis=1, keepdims=True)

    def add_to(self, out: Floats, values: Floats, present: Flags | None) -> None:
        """Add each row's score under each class; `values` (n_features, n_rows) as `dense` gives them."""
        if self.absence is None:
            _add_product(out, self.score, values)
        elif self.finite:
            _add_matmul(out, self.difference, values)
            out += self.bias if present is None else self.absence @ present.astype(np.float64)
        else:
            _add_product(out, self.score, values)
            _add_product(out, self.absence, (1.0 if present is None else present.astype(np.float64)) - values)

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """What a model file holds."""
        return {"score": self.score} | ({} if self.absence is None else {"absence": self.absence})


def _add_matmul(out: Floats, weights: Floats, values: Floats) -> None:
    """Add weights @ values, cut so that BLAS stays in this thread while a cut has rows enough to be worth one."""
    rows = ONE_THREAD // max(weights.size, 1)
    if rows >= values.shape[1] or rows < FEW_ROWS:
        out += weights @ values
        return
    for first in range(0, values.shape[1], rows):
        here = slice(first, first + rows)
        out[:, here] += weights @ values[:, here]


def _add_product(out: Floats, score: Floats, values: Floats) -> None:
    """Add score @ values, where an infinite score times 0 is 0."""
    infinite = np.isinf(score)
    if not infinite.any():
        _add_matmul(out, score, values)
        return
    _add_matmul(out, np.where(infinite, 0.0, score), values)
    used = (values > 0).astype(np.float64)
    for sign in (1.0, -1.0):
        hits = (infinite & (np.sign(score) == sign)).astype(np.float64) @ used
        out[hits > 0] = sign * np.inf


class Table:
    """Log probabilities of one categorical column: shape (n_classes, n_categories + 1).

    The last column is what a value that is missing (0) adds; a value that training never saw adds `unseen`,
    shape (n_classes,), or is refused when that is None.
    """

    kind = "table"

    def __init__(self, score: Floats, unseen: Floats | None = None) -> None:
        self.score, self.unseen = score, unseen
        n_classes = len(score)
        middle = np.zeros((n_classes, 1)) if unseen is None else unseen[:, None]
        # Index −2 is an unseen value, −1 a missing cell: negative codes count from the end.
        self.padded: Floats = np.hstack([score, middle, np.zeros((n_classes, 1))])

    def add_to(self, out: Floats, codes: NDArray[np.int32]) -> None:
        """Add each row's log probability; codes −1 missing, −2 never seen in training."""
        if len(codes) <= FEW_ROWS:
            out += self.padded[:, codes]
            return
        for c in range(len(out)):
            out[c] += self.padded[c].take(codes, mode="wrap")

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """What a model file holds."""
        return {"score": self.score} | ({} if self.unseen is None else {"unseen": self.unseen})
