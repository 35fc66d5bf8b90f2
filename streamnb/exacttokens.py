"""Counts of tokens per class that add up without rounding, whatever a token counts: weights, shares of a document."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import FileFormatError
from streamnb.exactsums import ExactSums
from streamnb.kernels import Groups
from streamnb.kernels_exact import implementation
from streamnb.protocols import Codes
from streamnb.tokens import TokenCounts, per_document, term_frequencies

__all__ = ["ExactTokenCounts"]

Numbers = NDArray[Any]

WHOLE = 2.0**53
"""Sums of whole numbers up to this are exact as floats."""


class ExactTokenCounts(TokenCounts):
    """The counts of a text column, as `tokens.TokenCounts`, of which `totals` and `in_documents` are exact.

    An entry without total and documents does not exist, so that equal counts have equal entries.

    >>> rows, codes, tenths = np.zeros(10, np.int32), np.zeros(10, np.int32), np.full(10, 0.1)
    >>> ExactTokenCounts.of(Groups(np.array([0]), n_classes=1), rows, codes, tenths, n_tokens=1).total.tolist()
    [1.0]
    """

    def __init__(self, n_classes: int, n_tokens: int, *, documents: bool = False) -> None:
        self.n_classes, self.n_tokens = n_classes, n_tokens
        self.tokens: Codes = np.zeros(0, np.int32)
        self.classes: Codes = np.zeros(0, np.int32)
        self.totals = ExactSums((0,))
        self.in_documents = ExactSums((0,)) if documents else None

    @property
    def total(self) -> Numbers:  # type: ignore[override]  # worked out from the digits, never assigned
        """How often, rounded to the nearest float."""
        return self.totals.rounded()

    @property
    def documents(self) -> Numbers | None:  # type: ignore[override]
        """In how many documents (their weights, if rows have any): int64 where all are whole numbers."""
        return None if self.in_documents is None else _plain(self.in_documents)

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        sums = [self.totals, *([] if self.in_documents is None else [self.in_documents])]
        return self.tokens.nbytes + self.classes.nbytes + sum(each.nbytes for each in sums)

    @classmethod
    def of(
        cls,
        groups: Groups,
        rows: Codes,
        codes: Codes,
        counts: Numbers | None,
        n_tokens: int,
        *,
        documents: bool = False,
        sublinear: bool = False,
        normalize: str | None = None,
    ) -> Self:
        """Return the counts of one batch; `rows`, `codes` and `counts` are as in `per_document`.

        Raises:
            DataError: counts that the options do not allow, with the row.
        """
        if groups.weight is None and not sublinear and normalize is None and _small(counts):
            return cls.like(TokenCounts.of(groups, rows, codes, counts, n_tokens, documents=documents))
        if documents or sublinear or normalize:
            rows, codes, counts = per_document(rows, codes, counts, n_tokens)
            # The length of a document is a sum of floats: in the order of its counts, not of a batch's tokens.
            order = np.lexsort((counts, rows))
            rows, codes, counts = rows[order], codes[order], counts[order]
            counts = term_frequencies(rows, counts, len(groups), sublinear=sublinear, normalize=normalize)
        keys, place = np.unique(codes * np.int64(groups.n_classes) + groups.codes[rows], return_inverse=True)
        weight = None if groups.weight is None else groups.weight[rows]
        new = cls(groups.n_classes, n_tokens, documents=documents)
        new._put(keys, _summed(place, len(keys), counts, weight), _summed(place, len(keys), None, weight))
        return new

    @classmethod
    def joined(
        cls,
        parts: Sequence[tuple[Self, NDArray[np.integer[Any]]]],
        n_tokens: int,
        signs: Sequence[int] | None = None,
    ) -> Self:
        """Return the sum of counts of the same classes; token j of a part is token index[j] of the sum.

        A part whose sign is −1 is taken away; `wrong` tells if it was never in.
        """
        first = parts[0][0]
        new = cls(first.n_classes, n_tokens, documents=first.in_documents is not None)
        keys = [index[part.tokens].astype(np.int64) * first.n_classes + part.classes for part, index in parts]
        distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
        shape = (len(distinct),)
        totals, documents = ExactSums(shape), ExactSums(shape)
        for (part, _), cells, sign in zip(
            parts, np.split(place, np.cumsum([len(each) for each in keys])[:-1]), signs or [1] * len(parts), strict=True
        ):
            totals = totals.plus(part.totals.grouped(cells, len(distinct)), slice(None), sign)
            if part.in_documents is not None:
                documents = documents.plus(part.in_documents.grouped(cells, len(distinct)), slice(None), sign)
        new._put(distinct, totals, documents)
        return new

    @classmethod
    def like(cls, counts: TokenCounts) -> Self:
        """Return counts of whole numbers as exact ones."""
        if isinstance(counts, cls):
            return counts
        new = cls(counts.n_classes, counts.n_tokens)
        new.tokens, new.classes, new.totals = counts.tokens, counts.classes, ExactSums.of(counts.total)
        new.in_documents = None if counts.documents is None else ExactSums.of(counts.documents)
        used = new._used()
        return new if used.all() else new._at(used)

    def plain(self) -> TokenCounts:
        """Return counts of whole numbers as such."""
        new = TokenCounts(self.n_classes, self.n_tokens)
        new.tokens, new.classes = self.tokens, self.classes
        new.total, new.documents = self.total.astype(np.int64), self.documents
        return new

    def wrong(self) -> tuple[int, int] | None:
        """Return class and token of the first entry that no documents could give, for too much was subtracted."""
        signs = self.totals.signs()
        wrong = signs < 0
        if self.in_documents is not None:
            held = self.in_documents.signs()
            wrong |= (held < 0) | ((held == 0) & (signs != 0))
        if not wrong.any():
            return None
        i = int(wrong.argmax())
        return int(self.classes[i]), int(self.tokens[i])

    def only(self, kept: NDArray[np.integer[Any]]) -> Self:
        """Return the counts of some tokens, whose numbers ascend; token kept[j] becomes token j."""
        place = np.full(self.n_tokens, -1, np.int32)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        there = place[self.tokens] >= 0
        new = self._at(there)
        new.n_tokens, new.tokens = len(kept), place[new.tokens]
        return new

    def arrays(self) -> dict[str, Numbers]:
        """Return the arrays that a state file holds, by name."""
        held: dict[str, Numbers] = {"tokens": self.tokens, "classes": self.classes}
        held |= {f"total.{key}": array for key, array in self.totals.arrays().items()}
        if self.in_documents is not None:
            held |= {f"documents.{key}": array for key, array in self.in_documents.arrays().items()}
        return held

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Numbers], n_classes: int, n_tokens: int) -> Self:
        """Return the counts that `arrays` came from; documents are counted if they are there.

        Raises:
            FileFormatError: an array is absent, or of another shape or type, or has a value that cannot be.
        """
        new = cls(n_classes, n_tokens, documents="documents.digits" in arrays)
        new.tokens, new.classes = arrays["tokens"], arrays["classes"]
        new.totals = ExactSums.from_arrays({key: arrays[f"total.{key}"] for key in ("low", "width", "digits")})
        if new.in_documents is not None:
            named = {key: arrays[f"documents.{key}"] for key in ("low", "width", "digits")}
            new.in_documents = ExactSums.from_arrays(named)
        shape = (len(new.tokens),)
        same = new.classes.shape == shape and new.totals.shape == shape
        same &= new.in_documents is None or new.in_documents.shape == shape
        if not same or new.tokens.dtype != np.int32 or new.classes.dtype != np.int32:
            raise FileFormatError("Expected exact counts of tokens of one length, got others")
        keys = new.tokens * np.int64(n_classes) + new.classes
        inside = ((new.tokens >= 0) & (new.tokens < n_tokens) & (new.classes >= 0) & (new.classes < n_classes)).all()
        if not inside or (np.diff(keys) <= 0).any() or new.wrong() is not None or not new._used().all():
            raise FileFormatError("Expected each class and token once, in order and counted, got others")
        return new

    def _used(self) -> NDArray[np.bool_]:
        used: NDArray[np.bool_] = self.totals.signs() != 0
        if self.in_documents is not None:
            used |= self.in_documents.signs() != 0
        return used

    def _at(self, places: Any) -> Self:
        some = copy.copy(self)
        some.tokens, some.classes, some.totals = self.tokens[places], self.classes[places], self.totals.at(places)
        some.in_documents = None if self.in_documents is None else self.in_documents.at(places)
        return some

    def _put(self, keys: NDArray[np.int64], totals: ExactSums, documents: ExactSums) -> None:  # type: ignore[override]
        tokens, classes = np.divmod(keys, max(self.n_classes, 1))
        self.tokens, self.classes, self.totals = tokens.astype(np.int32), classes.astype(np.int32), totals
        if self.in_documents is not None:
            self.in_documents = documents
        used = self._used()
        if not used.all():
            vars(self).update(vars(self._at(used)))

    def _sort(self) -> None:
        vars(self).update(vars(self._at(np.argsort(self.tokens * np.int64(self.n_classes) + self.classes))))


def _small(counts: Numbers | None) -> bool:
    """Whether counts are whole numbers whose sum is far from what 64 bits hold."""
    return counts is None or (counts.dtype.kind != "f" and float(counts.sum(dtype=np.float64)) < WHOLE)


def _summed(place: NDArray[np.intp], n_cells: int, counts: Numbers | None, weight: Numbers | None) -> ExactSums:
    """Sum weight × count at each place; None stands for 1."""
    if counts is None and weight is None:
        return ExactSums.of(np.bincount(place, minlength=n_cells))
    if weight is None and counts is not None and counts.dtype.kind != "f":
        return ExactSums.of(counts).grouped(place, n_cells)
    factors = [np.asarray(each, np.float64) for each in (weight, counts) if each is not None]
    return implementation().products(place, n_cells, factors)


def _plain(sums: ExactSums) -> Numbers:
    """The sums as int64 if all are whole numbers of at most 2**53, else rounded."""
    rounded = sums.rounded()
    if (np.abs(rounded) <= 2.0**53).all() and (rounded == np.rint(rounded)).all():
        return rounded.astype(np.int64)
    return rounded
