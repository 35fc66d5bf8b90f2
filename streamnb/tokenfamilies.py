"""The families over text: token counts become sparse scores. Smoothing and logarithms of what `families` says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamnb.errors import DataError
from streamnb.protocols import Floats
from streamnb.tokens import TokenCounts
from streamnb.tokenscores import TokenScores
from streamnb.tokentable import Lexicon, TokenTable

__all__ = ["Pruned", "bernoulli", "complement", "documents_of", "multinomial", "smoothing"]


def smoothing(alpha: Any, column: str) -> float:
    """Return alpha for the tokens of a text column: one number above 0, since most tokens are absent from most classes.

    Raises:
        ValueError: several numbers, or 0.
    """
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.number):
        raise ValueError(f"Expected one number for alpha= of text column {column!r}, got {alpha!r}")
    if not (alpha > 0 and math.isfinite(alpha)):
        raise ValueError(f"Expected alpha= above 0 for text column {column!r}, got {alpha!r}")
    return float(alpha)


class Pruned:
    """The tokens of a column that a model keeps, their counts, and how rare they are.

    Tokens are counted `min_count` times or more in all classes together, and the `max_tokens` most frequent of those
    stay (of equals, the first in order). With `idf`, `factor` is scikit-learn's smooth inverse document frequency,
    ln((1 + n) / (1 + documents)) + 1 over all n rows (their weights, if rows have any).

    Raises:
        DataError: `idf` where the state has not counted documents.
    """

    def __init__(
        self, table: TokenTable, class_weight: Floats, *, min_count: float, max_tokens: int | None, idf: bool
    ) -> None:
        counts, lexicon = table.counts, table.lexicon()
        self.factor: Floats | None = None
        if min_count > 0 or max_tokens is not None:
            kept = _kept(counts.per_token(counts.total), min_count, max_tokens)
            counts = counts.only(kept)
            buckets = None if lexicon.buckets is None else lexicon.buckets[kept]
            lexicon = Lexicon(lexicon.names.take(pa.array(kept)), buckets, lexicon.n_buckets)
        self.lexicon, self.counts, self.n_classes = lexicon, counts, counts.n_classes
        if idf:
            documents = counts.per_token(documents_of(counts, table.text.column))
            self.factor = np.log((1.0 + class_weight.sum()) / (1.0 + documents)) + 1.0
        self.values: Floats = counts.total.astype(np.float64)
        if self.factor is not None:
            self.values *= self.factor[counts.tokens]

    def per_class(self, values: Floats) -> Floats:
        """Return the sum of the entries of each class: (n_classes,)."""
        return np.bincount(self.counts.classes, values, self.n_classes).astype(np.float64)

    def scores(
        self,
        delta: Floats,
        by_class: Floats,
        *,
        by_token: Floats | None = None,
        scale: Floats | None = None,
        bias: Floats | None = None,
        presence: bool = False,
    ) -> tuple[Lexicon, TokenScores]:
        """Return the frozen scores; see `TokenScores`."""
        return self.lexicon, TokenScores(
            tokens=self.counts.tokens,
            classes=self.counts.classes,
            delta=delta,
            by_class=by_class,
            by_token=np.zeros(len(self.lexicon)) if by_token is None else by_token,
            scale=np.ones(self.n_classes) if scale is None else scale,
            bias=np.zeros(self.n_classes) if bias is None else bias,
            factor=None if presence else self.factor,
            presence=presence,
        )


def documents_of(counts: TokenCounts, column: str) -> NDArray[Any]:
    """Return the documents of each entry.

    Raises:
        DataError: the state has not counted them.
    """
    if counts.documents is None:
        raise DataError(
            "Expected counts of documents for Bernoulli or idf=True, got none; "
            "give the schema Text(..., document_frequency=True)",
            column=column,
        )
    return counts.documents


def _kept(total: Floats, min_count: float, max_tokens: int | None) -> NDArray[np.intp]:
    kept = np.flatnonzero(total >= min_count)
    if max_tokens is not None and len(kept) > max_tokens:
        kept = np.sort(kept[np.argsort(-total[kept], kind="stable")[:max_tokens]])
    return kept


def multinomial(pruned: Pruned, alpha: float) -> tuple[Lexicon, TokenScores]:
    """Return ln θ_ci, θ_ci = (N_ci + α) / Σ_j (N_cj + α); N counts with idf where that is wanted."""
    whole = pruned.per_class(pruned.values) + alpha * max(len(pruned.lexicon), 1)
    with np.errstate(over="ignore"):
        ratio = pruned.values / alpha  # past the largest float64 where alpha is next to nothing
    delta = np.log1p(ratio)
    far = np.isinf(ratio)
    delta[far] = np.log(pruned.values[far]) - math.log(alpha)
    return pruned.scores(delta, math.log(alpha) - np.log(whole))


def complement(pruned: Pruned, alpha: float, *, norm: bool) -> tuple[Lexicon, TokenScores]:
    """Return −ln of each token's share among all other classes; `norm` divides by their sum per class."""
    n, counts = pruned.n_classes, pruned.counts
    if n == 1 or not len(pruned.lexicon):
        return pruned.scores(np.zeros(len(counts)), np.zeros(n), by_token=np.zeros(len(pruned.lexicon)))
    total = counts.per_token(pruned.values)
    others = np.maximum(total[counts.tokens] - pruned.values, 0.0)
    smoothed = total + alpha
    every = smoothed.sum() - pruned.per_class(pruned.values)
    by_class, by_token = np.log(every), -np.log(smoothed)
    delta = np.log(smoothed[counts.tokens]) - np.log(others + alpha)
    if not norm:
        return pruned.scores(delta, by_class, by_token=by_token)
    size = by_token.sum() + len(by_token) * by_class + pruned.per_class(delta)
    return pruned.scores(delta, by_class, by_token=by_token, scale=1.0 / np.where(size > 0, size, 1.0))


def bernoulli(pruned: Pruned, alpha: float, documents: NDArray[Any], present: Floats) -> tuple[Lexicon, TokenScores]:
    """Return ln p − ln(1 − p) of each token, p_ci = (n_ci + α) / (n_c + 2α), and Σ ln(1 − p) as the bias.

    `documents` are those that have the token, `present` (n_classes,) those that are there.
    """
    classes = pruned.counts.classes
    # Of rounded sums of weights, a token of every document may have a little more than all of them.
    absent = np.maximum(present[classes] - documents, 0.0)
    nowhere = np.log(present + alpha) - np.log(present + 2.0 * alpha)
    by_class = math.log(alpha) - np.log(present + alpha)
    delta = np.log(documents + alpha) - np.log(absent + alpha) - by_class[classes]
    bias = len(pruned.lexicon) * nowhere
    bias += pruned.per_class(np.log(absent + alpha) - np.log(present + alpha)[classes])
    return pruned.scores(delta, by_class, bias=bias, presence=True)
