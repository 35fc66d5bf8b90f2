"""Frozen likelihoods of text: what each token adds to the score of each class, kept sparse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.protocols import Codes, Flags, Floats
from streamnb.tokens import per_document, term_frequencies

__all__ = ["TokenRows", "TokenScores"]

TABLE_CELLS = 1 << 23
"""Classes × tokens up to which all scores are laid out in a table (64 MiB) for scoring."""

FEW_CLASSES = 8
"""Up to so many classes, the scores of rows are added up class by class."""

ENTRIES = 1 << 20
"""Entries that are added to the scores of rows at once."""


class TokenRows(NamedTuple):
    """The known tokens of some rows, by row; one that stands twice in a row may have two entries, whose values add up.

    `rows`, `tokens` (int32) and `values` (float64) have shape (n_entries,); `present` (n_rows,) says which documents
    are not null, None meaning all.
    """

    rows: Codes
    tokens: Codes
    values: Floats
    present: Flags | None = None

    def between(self, first: int, stop: int) -> TokenRows:
        """Return the rows [first, stop), numbered from 0."""
        low, high = np.searchsorted(self.rows, np.array([first, stop], np.int32))  # another type copies all rows
        present = None if self.present is None else self.present[first:stop]
        return TokenRows(self.rows[low:high] - np.int32(first), self.tokens[low:high], self.values[low:high], present)


class TokenScores:
    """What one unit of token i adds for class c: scale_c · (by_class_c + by_token_i + delta_ci).

    `by_class` and `scale` have shape (n_classes,), `by_token` (n_tokens,). `delta` (n_entries,) is there for the pairs
    that training met, whose tokens ascend and, for one token, whose classes do; for all others it is 0. `bias`
    (n_classes,) is what a document that is not null adds by itself. `factor` (n_tokens,) multiplies a token's count:
    the inverse document frequency. With `presence`, a token counts once for each document.
    """

    def __init__(
        self,
        *,
        tokens: Codes,
        classes: Codes,
        delta: Floats,
        by_class: Floats,
        by_token: Floats,
        scale: Floats,
        bias: Floats,
        factor: Floats | None = None,
        presence: bool = False,
    ) -> None:
        self.tokens, self.classes, self.delta = tokens, classes, delta
        self.by_class, self.by_token, self.scale, self.bias = by_class, by_token, scale, bias
        self.factor, self.presence = factor, presence
        self.n_classes, self.n_tokens = len(by_class), len(by_token)
        self._starts = np.searchsorted(tokens, np.arange(self.n_tokens + 1))
        self._table: Floats | None = None
        if self.n_classes * self.n_tokens <= TABLE_CELLS:
            # Few classes: a row of scores for each class. Many: a row for each token.
            every = self.units(np.arange(self.n_tokens))
            self._table = every if self.n_classes <= FEW_CLASSES else np.ascontiguousarray(every.T)

    def units(self, tokens: NDArray[np.integer[Any]]) -> Floats:
        """Return what one unit of some tokens adds for each class: float64 (n_classes, n_given)."""
        entry, place = self._entries(tokens)
        scores: Floats = self.by_class[:, None] + self.by_token[tokens]
        scores[self.classes[entry], place] += self.delta[entry]
        scores *= self.scale[:, None]
        return scores

    def of_class(self, c: int) -> Floats:
        """Return what one unit of each token adds for one class: float64 (n_tokens,)."""
        scores: Floats = self.by_class[c] + self.by_token
        here = self.classes == c
        scores[self.tokens[here]] += self.delta[here]
        scores *= self.scale[c]
        return scores

    def rows_of(
        self,
        rows: Codes,
        tokens: Codes,
        counts: NDArray[Any] | None,
        n_rows: int,
        *,
        sublinear: bool = False,
        normalize: str | None = None,
    ) -> TokenRows:
        """Return what counts of the known tokens of some documents, by row, are worth.

        Raises:
            DataError: a count below 1 with `sublinear`.
        """
        if self.presence or sublinear or normalize:
            rows, tokens, counts = per_document(rows, tokens, counts, self.n_tokens)
        if self.presence:
            return TokenRows(rows, tokens, np.ones(len(rows)))
        if counts is None:
            values = np.ones(len(rows)) if self.factor is None else self.factor[tokens]
            return TokenRows(rows, tokens, values)
        counts = term_frequencies(rows, counts, n_rows, sublinear=sublinear, normalize=normalize)
        values = counts.astype(np.float64) if self.factor is None else counts * self.factor[tokens]
        return TokenRows(rows, tokens, values)

    def add_to(self, out: Floats, found: TokenRows) -> None:
        """Add each row's score under each class to `out`, (n_classes, n_rows)."""
        if self.presence:
            out += self.bias[:, None] if found.present is None else self.bias[:, None] * found.present
        if not len(found.rows):
            return
        if self._table is None:
            self._add_sparse(out, found)
        elif self.n_classes <= FEW_CLASSES:
            n = out.shape[1]
            for c in range(self.n_classes):
                out[c] += np.bincount(found.rows, self._table[c].take(found.tokens) * found.values, n)
        else:
            begins = np.flatnonzero(np.diff(found.rows, prepend=-1))
            each = self._table.take(found.tokens, axis=0)
            each *= found.values[:, None]
            out[:, found.rows[begins]] += np.add.reduceat(each, begins, axis=0).T

    def _add_sparse(self, out: Floats, found: TokenRows) -> None:
        """Add what tokens are worth everywhere, then what differs where training met class and token together."""
        n = out.shape[1]
        size = np.bincount(found.rows, found.values, n)
        everywhere = np.bincount(found.rows, self.by_token[found.tokens] * found.values, n)
        for c in range(self.n_classes):  # class by class, for `out` may be large
            out[c] += self.scale[c] * (everywhere + self.by_class[c] * size)
        flat = out.reshape(-1)
        number = np.diff(self._starts)[found.tokens]
        cuts = np.searchsorted(np.cumsum(number), np.arange(ENTRIES, int(number.sum()), ENTRIES), "right")
        for low, high in zip([0, *cuts], [*cuts, len(number)], strict=True):
            entry, place = self._entries(found.tokens[low:high])
            place += low
            classes = self.classes[entry]
            value = self.delta[entry] * self.scale[classes] * found.values[place]
            np.add.at(flat, classes.astype(np.int64) * n + found.rows[place], value)

    def _entries(self, tokens: NDArray[np.integer[Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the entries of some tokens, one token after another, and which of the given tokens each is of."""
        first = self._starts[tokens]
        number = self._starts[np.asarray(tokens) + 1] - first
        place = np.repeat(np.arange(len(number)), number)
        entry = np.arange(len(place)) + np.repeat(first - (np.cumsum(number) - number), number)
        return entry, place

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """What a model file holds."""
        held: dict[str, NDArray[Any]] = {
            "tokens": self.tokens,
            "classes": self.classes,
            "delta": self.delta,
            "by_class": self.by_class,
            "by_token": self.by_token,
            "scale": self.scale,
            "bias": self.bias,
        }
        return held if self.factor is None else held | {"factor": self.factor}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], n_classes: int, n_tokens: int, *, presence: bool) -> TokenScores:
        """Return the scores that `arrays` came from.

        Raises:
            KeyError, ValueError: an array is absent, or contradicts the others.
        """
        held = {name: arrays[name] for name in ("tokens", "classes", "delta", "by_class", "by_token", "scale", "bias")}
        held["factor"] = arrays.get("factor")
        tokens, classes = held["tokens"], held["classes"]
        lengths = {
            "by_class": n_classes,
            "scale": n_classes,
            "bias": n_classes,
            "by_token": n_tokens,
            "factor": n_tokens,
        }
        for name, array in held.items():
            kind = "int32" if name in ("tokens", "classes") else "float64"
            if array is not None and (array.shape != (lengths.get(name, len(tokens)),) or array.dtype != kind):
                raise ValueError(f"{name} of tokens has shape {array.shape} and type {array.dtype}")
        keys = tokens * np.int64(n_classes) + classes
        if len(keys) and (keys[0] < 0 or classes.min() < 0 or classes.max() >= n_classes or tokens[-1] >= n_tokens):
            raise ValueError("a token or a class that is none")
        if (np.diff(keys) <= 0).any():
            raise ValueError("classes and tokens are not once and in order")
        return cls(**held, presence=presence)
