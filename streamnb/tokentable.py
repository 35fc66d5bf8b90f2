"""All that training keeps of a text column: the names of its tokens, and their counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamnb.errors import DataError, FileFormatError
from streamnb.exactcounts import exact_weights
from streamnb.exacttokens import ExactTokenCounts
from streamnb.kernels import Groups
from streamnb.protocols import Floats
from streamnb.text import Text, Tokens, bytes_of
from streamnb.textcolumn import TextColumn
from streamnb.tokens import TokenCounts, hash_tokens
from streamnb.weights import ClassWeights, added, arrays_of, chosen, from_arrays, grown, no_weights, rounded

__all__ = ["Lexicon", "TokenTable", "buckets_of"]

EXEMPLAR_CHARACTERS = 64
"""The characters that are kept of a bucket's exemplar: a bucket takes bounded memory, whatever stands in the text."""

LEAST_PENDING = 1 << 18
"""Entries that wait at least before they are added up; beyond it, as many as have been added up already."""


LARGEST = 2.0**63
"""Sums of whole numbers up to this fit in an int64."""


def buckets_of(values: pa.Array, n_buckets: int) -> NDArray[np.int64]:
    """Return the bucket of each token (large_string without nulls): its hash modulo the number of buckets."""
    return (_hashes(values) % np.uint64(n_buckets)).astype(np.int64)


def _hashes(values: pa.Array) -> NDArray[np.uint64]:
    return hash_tokens(*bytes_of(values))


class Lexicon:
    """The tokens that a model knows, frozen: `names` (n_tokens,) and, if counted by hash, their `buckets`.

    Without buckets, names are distinct and sorted; with them, buckets (int64) are, and a name is the smallest token
    that training met in its bucket (its first 64 characters).

    >>> lexicon = Lexicon(pa.array(["rain", "sun"], pa.large_string()))
    >>> lexicon.place(pa.array(["sun", "fog"], pa.large_string())).tolist()
    [1, -1]
    """

    def __init__(self, names: pa.Array, buckets: NDArray[np.int64] | None = None, n_buckets: int | None = None) -> None:
        self.names, self.buckets, self.n_buckets = names, buckets, n_buckets
        keys = _hashes(names) if buckets is None else buckets
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        # Two names of one hash: not to be expected, and then they are looked up by name.
        self._unique = bool((self._keys[1:] != self._keys[:-1]).all())

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], n_buckets: int | None) -> Lexicon:
        """Return the lexicon with these `names` and `buckets`.

        Raises:
            KeyError, ValueError: an array is absent, or contradicts the other.
        """
        names, buckets = arrays["names"], None
        if names.type != pa.large_string():
            raise ValueError(f"tokens are of type {names.type}")
        if n_buckets is None:
            if not names.equals(_ordered(names)[0]):
                raise ValueError("tokens are not distinct and sorted")
        else:
            buckets = arrays["buckets"]
            if not _are_buckets(buckets, len(names), n_buckets):
                raise ValueError("buckets are not distinct and sorted")
        return cls(names, buckets, n_buckets)

    def place(self, values: pa.Array) -> NDArray[np.int32]:
        """Return which token each value (large_string) is, −1 where it is none: int32 (n_values,)."""
        if not len(values) or not len(self):
            return np.full(len(values), -1, np.int32)
        if not self._unique:
            return np.asarray(pc.index_in(values, value_set=self.names).fill_null(-1), np.int32)
        wanted: NDArray[Any] = _hashes(values) if self.n_buckets is None else buckets_of(values, self.n_buckets)
        near = np.minimum(np.searchsorted(self._keys, wanted), len(self) - 1)
        place = self._order[near].astype(np.int32)
        found = self._keys[near] == wanted
        if self.buckets is None:
            candidates = np.flatnonzero(found)
            same = pc.equal(self.names.take(pa.array(place[candidates])), values.take(pa.array(candidates)))
            found[candidates] = np.asarray(same)
        return np.where(found, place, np.int32(-1))


@dataclass(frozen=True, slots=True)
class Piece:
    """Counts whose token j is names[j], in any order, each once; `buckets` (int64) if counted by hash."""

    names: pa.Array
    counts: TokenCounts
    buckets: NDArray[np.int64] | None = None


class TokenTable:
    """The tokens of a text column and their counts per class; it adds up.

    - `names` (large_string), `counts` (TokenCounts) and `buckets`: as in `Lexicon`.
    - `present` (n_classes,): the documents that are not null, `empty` those of them without a token (int64), and
      `weight` (float64) the weights of those present.

    What is added waits in a list, and is added up when there is as much of it as before: sums are taken from the left,
    so that the result does not depend on when that happens.
    """

    def __init__(self, text: Text, n_classes: int, weighted: bool = False, *, exact: bool = False) -> None:
        self.text, self.n_classes, self.exact = text, n_classes, exact
        self.present: NDArray[np.int64] = np.zeros(n_classes, np.int64)
        self.empty: NDArray[np.int64] = np.zeros(n_classes, np.int64)
        self._weight: ClassWeights | None = no_weights(n_classes, exact) if weighted else None
        self._pieces: tuple[Piece, ...] = ()
        self._folded = True
        self._sum_of_totals = 0.0

    @classmethod
    def of(cls, groups: Groups, column: TextColumn, *, exact: bool = False) -> Self:
        """Return the table of one batch.

        Raises:
            DataError: text that is not UTF-8, a count that cannot be, a sum that overflows.
        """
        weighted = groups.weight is not None
        table = cls(column.text, groups.n_classes, weighted, exact=exact)
        there = np.ones(len(groups), np.bool_) if column.present is None else column.present
        table.present = np.bincount(groups.codes[there], minlength=groups.n_classes)
        if exact and weighted:
            table._weight = exact_weights(groups, there)
        elif groups.weight is not None:
            held = np.bincount(groups.codes[there], groups.weight[there], groups.n_classes)
            table._weight = held.astype(np.float64)
        empty = there.copy()
        pieces = []
        for first, tokens in column.chunks():
            rows = slice(first, first + tokens.n_rows)
            weight = None if groups.weight is None else groups.weight[rows]
            try:
                piece = _measured(Groups(groups.codes[rows], groups.n_classes, weight), tokens, column.text, exact)
            except DataError as error:
                raise (error if error.row is None else error.at(row=first + error.row)) from None
            empty[first + tokens.rows] = False
            pieces.append(piece)
        table.empty = np.bincount(groups.codes[empty], minlength=groups.n_classes)
        table._hold(*pieces)
        return table

    @property
    def weight(self) -> Floats:
        """The weights of the documents present, per class; without weights, their number."""
        return self.present.astype(np.float64) if self._weight is None else rounded(self._weight)

    @property
    def names(self) -> pa.Array:
        """The tokens, or the exemplars of their buckets: large_string (n_tokens,)."""
        return self._whole().names

    @property
    def counts(self) -> TokenCounts:
        """The counts of the tokens."""
        return self._whole().counts

    @property
    def buckets(self) -> NDArray[np.int64] | None:
        """The buckets that hold a token, in order; None where tokens are kept by name."""
        return self._whole().buckets

    @property
    def nbytes(self) -> int:
        """The memory of names and counts, in bytes, with what still waits to be added up."""
        return sum(piece.names.nbytes + piece.counts.nbytes for piece in self._pieces)

    def merge(self, other: Self, index: NDArray[np.intp]) -> None:
        """Add another table, whose class i is class index[i] here; on an error self is unchanged.

        Raises:
            DataError: a sum that overflows.
        """
        pieces = other._pieces
        if len(pieces) > 1:
            pieces = (other._whole(),)
        n = self.n_classes
        self._hold(*(Piece(p.names, p.counts.of_classes(index, n), p.buckets) for p in pieces))
        self.present, self.empty = self.present.copy(), self.empty.copy()
        self.present[index] += other.present
        self.empty[index] += other.empty
        if self._weight is not None and other._weight is not None:
            self._weight = added(self._weight, other._weight, index)

    def grow(self, index: NDArray[np.intp], n_classes: int) -> None:
        """Make room for new classes: the old class i becomes class index[i] of n_classes."""
        old, old_empty, old_weight = self.present, self.empty, self._weight
        self.n_classes = n_classes
        self.present, self.empty = np.zeros(n_classes, np.int64), np.zeros(n_classes, np.int64)
        self.present[index], self.empty[index] = old, old_empty
        if old_weight is not None:
            self._weight = grown(old_weight, index, n_classes)
        self._pieces = tuple(Piece(p.names, p.counts.of_classes(index, n_classes), p.buckets) for p in self._pieces)

    def subtract(self, other: Self, index: NDArray[np.intp]) -> tuple[int, str | int] | None:
        """Take another table away, whose class i is class index[i] here.

        Return class and token of what cannot be: a token more often subtracted than seen.
        """
        n, theirs = self.n_classes, other._whole()
        exact = [
            Piece(p.names, ExactTokenCounts.like(p.counts), p.buckets)
            for p in (self._whole(), Piece(theirs.names, theirs.counts.of_classes(index, n), theirs.buckets))
        ]
        left = _sum(exact, n, self.text, ExactTokenCounts, (1, -1))
        wrong = left.counts.wrong() if isinstance(left.counts, ExactTokenCounts) else None
        if wrong is not None:
            at = wrong[1]
            return wrong[0], left.names[at].as_py() if left.buckets is None else int(left.buckets[at])
        if isinstance(left.counts, ExactTokenCounts) and not self.exact:
            left = Piece(left.names, left.counts.plain(), left.buckets)
            self._sum_of_totals = float(left.counts.total.sum(dtype=np.float64))
        self._pieces, self._folded = (left,) if len(left.counts) else (), True
        self.present, self.empty = self.present.copy(), self.empty.copy()
        self.present[index] -= other.present
        self.empty[index] -= other.empty
        if self._weight is not None and other._weight is not None:
            self._weight = added(self._weight, other._weight, index, -1)
        bad = (self.present < 0) | (self.empty < 0) | (self.empty > self.present)
        return (int(bad.argmax()), "") if bad.any() else None

    def keep_classes(self, kept: NDArray[np.intp]) -> None:
        """Forget all classes but some, in ascending order; the others have no documents."""
        place = np.zeros(self.n_classes, np.intp)
        place[kept] = np.arange(len(kept))
        whole = self._whole()
        self.n_classes = len(kept)
        self.present, self.empty = self.present[kept], self.empty[kept]
        if self._weight is not None:
            self._weight = chosen(self._weight, kept)
        counts = whole.counts.of_classes(place, len(kept))
        self._pieces = (Piece(whole.names, counts, whole.buckets),) if len(counts) else ()

    def copy(self) -> Self:
        """Return an equal table; arrays are shared, for none is ever changed in place."""
        twin = type(self)(self.text, self.n_classes, self._weight is not None, exact=self.exact)
        twin.merge(self, np.arange(self.n_classes))
        return twin

    def lexicon(self) -> Lexicon:
        """Return the tokens as a model knows them."""
        whole = self._whole()
        return Lexicon(whole.names, whole.buckets, self.text.buckets)

    def arrays(self) -> dict[str, NDArray[Any] | pa.Array]:
        """Return what a state file holds, by name."""
        whole = self._whole()
        held: dict[str, Any] = {"names": whole.names, "present": self.present, "empty": self.empty}
        if whole.buckets is not None:
            held["buckets"] = whole.buckets
        if self._weight is not None:
            held |= arrays_of("weight", self._weight)
        return held | whole.counts.arrays()

    @classmethod
    def from_arrays(
        cls, text: Text, arrays: Mapping[str, Any], n_classes: int, weighted: bool, *, exact: bool = False
    ) -> Self:
        """Return the table that `arrays` came from.

        Raises:
            FileFormatError: an array is absent, or contradicts the others.
        """
        names = arrays["names"]
        table = cls(text, n_classes, weighted, exact=exact)
        counts = table._kind.from_arrays(arrays, n_classes, len(names))
        buckets = None if text.buckets is None else arrays["buckets"]
        if names.type != pa.large_string() or (counts.documents is not None) != text.document_frequency:
            raise FileFormatError(f"Expected tokens as the schema has them, got others - text column {text.column!r}")
        if buckets is None:
            sound = names.equals(_ordered(names)[0])
        else:
            sound = _are_buckets(buckets, len(names), text.buckets or 0)
        if not sound:
            raise FileFormatError(f"Expected tokens once and in order, got others - text column {text.column!r}")
        table.present, table.empty = arrays["present"], arrays["empty"]
        table._weight = from_arrays("weight", arrays, exact) if weighted else None
        for name, array in (("present", table.present), ("empty", table.empty), ("weight", table.weight)):
            kind = "float64" if name == "weight" else "int64"
            if array.shape != (n_classes,) or array.dtype != kind or not (array >= 0).all():
                raise FileFormatError(f"Expected {name} of at least 0 for each class, got others")
        table._hold(Piece(names, counts, buckets))
        table._folded = True
        return table

    @property
    def _kind(self) -> type[TokenCounts]:
        return ExactTokenCounts if self.exact else TokenCounts

    def _hold(self, *pieces: Piece) -> None:
        """Add counts to those that wait, and add all up if there are many."""
        more = [piece for piece in pieces if len(piece.counts)]
        if not more:
            return
        held = (*self._pieces, *more)
        if not self.exact:
            load = self._sum_of_totals + sum(float(piece.counts.total.sum(dtype=np.float64)) for piece in more)
            whole = any(piece.counts.total.dtype.kind != "f" for piece in held)
            if not math.isfinite(load) or (whole and load >= LARGEST):
                raise DataError("Expected counts of tokens whose sum fits in 64 bits, got an overflow")
            self._sum_of_totals = load
        waiting = sum(len(piece.counts) for piece in held[1:])
        if waiting > max(len(held[0].counts), LEAST_PENDING):
            held = (_sum(held, self.n_classes, self.text, self._kind),)
            self._folded = True
        else:
            self._folded = False
        self._pieces = held

    def _whole(self) -> Piece:
        """Everything in one piece, in order."""
        if not self._folded or not self._pieces:
            whole = _sum(self._pieces, self.n_classes, self.text, self._kind)
            if self._pieces:
                self._pieces, self._folded = (whole,), True
            return whole
        return self._pieces[0]


def _are_buckets(buckets: Any, length: int, n_buckets: int) -> bool:
    """Whether the array holds different buckets in order."""
    if not isinstance(buckets, np.ndarray) or buckets.dtype != np.int64 or buckets.shape != (length,):
        return False
    return not length or bool((np.diff(buckets) > 0).all() and buckets[0] >= 0 and buckets[-1] < n_buckets)


def _measured(groups: Groups, tokens: Tokens, text: Text, exact: bool) -> Piece:
    """The counts of some documents, under the names as they come or under sorted buckets.

    Exact counts by hash keep no exemplars: the second smallest token of a bucket is not known, so none could be taken
    away. A bucket goes by its number then.
    """
    names, codes, buckets = tokens.values, tokens.codes, None
    if text.buckets is not None:
        names, place, buckets = _by_bucket(*_ordered(names), buckets_of(names, text.buckets))
        names = _numbers(buckets) if exact else pc.utf8_slice_codeunits(names, 0, EXEMPLAR_CHARACTERS)
        codes = place.astype(np.int32)[codes]
    counts = (ExactTokenCounts if exact else TokenCounts).of(
        groups,
        tokens.rows,
        codes,
        tokens.counts,
        len(names),
        documents=text.document_frequency,
        sublinear=text.sublinear,
        normalize=text.normalize,
    )
    return Piece(names, counts, buckets)


def _numbers(buckets: NDArray[np.int64]) -> pa.Array:
    """Return the numbers of buckets as names."""
    string = pa.large_string()
    return pc.binary_join_element_wise(pa.scalar("#", string), pa.array(buckets).cast(string), pa.scalar("", string))


def _ordered(names: pa.Array) -> tuple[pa.Array, NDArray[np.int64]]:
    """Return the distinct names, sorted by their UTF-8 bytes, and where each name stands among them."""
    coded = names.dictionary_encode()
    order = np.asarray(pc.sort_indices(coded.dictionary)).astype(np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return coded.dictionary.take(pa.array(order)), rank[np.asarray(coded.indices)]


def _by_bucket(
    names: pa.Array, rank: NDArray[np.int64], buckets: NDArray[np.int64]
) -> tuple[pa.Array, NDArray[np.int64], NDArray[np.int64]]:
    """Return the smallest name of each bucket, the place of each entry's bucket, and the buckets in order.

    Entry i has the name names[rank[i]], of sorted names, and stands in buckets[i].
    """
    order = np.lexsort((rank, buckets))
    ordered = buckets[order]
    begins = np.ones(len(order), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    place = np.empty(len(order), np.int64)
    place[order] = np.cumsum(begins) - 1
    return names.take(pa.array(rank[order][begins])), place, ordered[begins]


def _sum(
    pieces: Sequence[Piece], n_classes: int, text: Text, kind: type[TokenCounts], signs: Sequence[int] = ()
) -> Piece:
    """Add pieces up, from the left; those whose sign is −1 are taken away, which only exact counts know how to."""
    if not pieces:
        none = np.zeros(0, np.int64) if text.buckets is not None else None
        counts = kind(n_classes, 0, documents=text.document_frequency)
        return Piece(pa.array([], pa.large_string()), counts, none)
    names, place = _ordered(pa.concat_arrays([piece.names for piece in pieces]))
    buckets = None
    if text.buckets is not None:
        each = np.concatenate([piece.buckets for piece in pieces if piece.buckets is not None])
        names, place, buckets = _by_bucket(names, place, each)
    ends = np.cumsum([len(piece.names) for piece in pieces])[:-1]
    parts = [(piece.counts, index) for piece, index in zip(pieces, np.split(place, ends), strict=True)]
    counts = kind.joined(parts, len(names), **({"signs": signs} if signs else {}))
    # Stop words, and what no row of this state has, leave names without a count.
    used = counts.tokens[np.flatnonzero(np.diff(counts.tokens, prepend=-1))]
    if len(used) < len(names):
        counts, names = counts.only(used), names.take(pa.array(used))
        buckets = None if buckets is None else buckets[used]
    return Piece(names, counts, buckets)
