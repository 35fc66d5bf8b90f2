"""Counts of tokens per class, sparse: memory follows the pairs of a class and a token that occur, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import DataError, FileFormatError
from streamnb.kernels import Groups
from streamnb.protocols import Codes, Floats

__all__ = ["TokenCounts", "hash_tokens", "per_document", "term_frequencies"]

Numbers = NDArray[Any]

DENSE_CELLS = 4
"""A batch is counted in a table when that has at most this many cells for each of its tokens."""

EXACT = 2.0**53
"""Sums of whole numbers up to this are exact in float64."""

GOLDEN, FIRST, SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def hash_tokens(offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the hash of each token; token i is data[offsets[i]:offsets[i + 1]] in UTF-8.

    With mix(z) the finaliser of SplitMix64 (z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27;
    z *= 0x94D049BB133111EB; z ^= z >> 31), G = 0x9E3779B97F4A7C15 and all arithmetic modulo 2⁶⁴: the bytes, padded with
    zeros to a multiple of 8, are little-endian words w₀, w₁, ..., and the hash is
    mix(length + Σᵢ mix(wᵢ + (i + 1)·G)). The same on every machine and in every release.

    >>> hash_tokens(np.array([0, 3, 3]), np.frombuffer(b"sun", np.uint8)).tolist()
    [2119326018765665552, 0]
    """
    lengths = np.diff(offsets)
    words = (lengths + 7) // 8
    ends = np.cumsum(words)
    begins = ends - words
    padded = np.zeros(8 * int(ends[-1]) if len(ends) else 0, np.uint8)
    text = data[offsets[0] : offsets[-1]] if len(lengths) else data[:0]
    padded[np.arange(len(text)) + np.repeat(8 * begins - (offsets[:-1] - offsets[0]), lengths)] = text
    place = (np.arange(len(padded) // 8) - np.repeat(begins, words) + 1).astype(np.uint64)
    mixed = _mix(padded.view("<u8").astype(np.uint64) + place * GOLDEN)
    total = np.zeros(len(lengths), np.uint64)
    some = words > 0
    if len(mixed):
        total[some] = np.add.reduceat(mixed, begins[some])
    return _mix(total + lengths.astype(np.uint64))


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * FIRST
    z = (z ^ (z >> np.uint64(27))) * SECOND
    return z ^ (z >> np.uint64(31))


def per_document(rows: Codes, codes: Codes, counts: Numbers | None, width: int) -> tuple[Codes, Codes, Numbers]:
    """Return each token of a document once, in order of row and code, and how often it stands there.

    `rows` and `codes` (below `width`) have shape (n_tokens,), and so have `counts`, where None means once each.
    """
    keys = rows.astype(np.int64) * width + codes
    keys, (number,) = _added_up(keys, [counts])
    row, code = np.divmod(keys, max(width, 1))
    return row.astype(np.int32), code.astype(np.int32), number


def term_frequencies(rows: Codes, counts: Numbers, n_rows: int, *, sublinear: bool, normalize: str | None) -> Numbers:
    """Return what each token of a document counts, where `counts` has each token once: damped, then normalised.

    Raises:
        DataError: a count below 1, of which the logarithm would be negative, with its row.
    """
    if sublinear:
        low = counts < 1
        if low.any():
            i = int(low.argmax())
            raise DataError(f"Expected counts of at least 1 for sublinear=True, got {counts[i]}", row=int(rows[i]))
        counts = 1.0 + np.log(counts)
    if normalize is None:
        return counts
    size = np.bincount(rows, counts if normalize == "l1" else np.square(counts, dtype=np.float64), n_rows)
    if normalize == "l2":
        size = np.sqrt(size)
    return counts / size[rows]


def _added_up(keys: NDArray[np.int64], columns: Sequence[Numbers | None]) -> tuple[NDArray[np.int64], list[Numbers]]:
    """Return the distinct keys in order, and for each column the sum of its numbers under each (None: how many).

    Numbers are added one by one from the left, so that (a + b) + c does not depend on where the sum was interrupted.
    """
    if all(column is None for column in columns):
        ordered, order = np.sort(keys), None
    else:
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
    begins = np.empty(len(keys), np.bool_)
    begins[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    starts = np.flatnonzero(begins)
    sums: list[Numbers] = []
    for column in columns:
        if column is None:
            sums.append(np.diff(starts, append=len(keys)))
        elif not len(keys):
            sums.append(column[:0])
        elif column.dtype.kind == "f":
            sums.append(np.bincount(np.cumsum(begins) - 1, column[order], len(starts)))
        else:
            sums.append(np.add.reduceat(column[order], starts))
    return ordered[starts], sums


class TokenCounts:
    """The counts of a text column: one entry for each class and token that occur together, by token, then class.

    - `tokens`, `classes` (int32): which token, which class; `total`: how often, int64, or float64 when rows have
      weights or documents are normalised or have counts that are not whole.
    - `documents`: in how many documents (their weights, if rows have any); None where that is not counted.

    All have shape (n_entries,), are never changed in place, only replaced, and so may be shared.

    >>> rows, codes = np.array([0, 0, 1], np.int32), np.array([1, 1, 0], np.int32)
    >>> counts = TokenCounts.of(Groups(np.array([0, 1]), n_classes=2), rows, codes, None, n_tokens=2, documents=True)
    >>> counts.tokens.tolist(), counts.classes.tolist(), counts.total.tolist(), counts.documents.tolist()
    ([0, 1], [1, 0], [1, 2], [1, 1])
    """

    def __init__(self, n_classes: int, n_tokens: int, *, documents: bool = False) -> None:
        self.n_classes, self.n_tokens = n_classes, n_tokens
        self.tokens: Codes = np.zeros(0, np.int32)
        self.classes: Codes = np.zeros(0, np.int32)
        self.total: Numbers = np.zeros(0, np.int64)
        self.documents: Numbers | None = np.zeros(0, np.int64) if documents else None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return sum(array.nbytes for array in self.arrays().values())

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
            DataError: counts that the options do not allow, with the row; counts whose sum overflows.
        """
        if documents or sublinear or normalize:
            rows, codes, counts = per_document(rows, codes, counts, n_tokens)
            counts = term_frequencies(rows, counts, len(groups), sublinear=sublinear, normalize=normalize)
        keys = codes * np.int64(groups.n_classes) + groups.codes[rows]
        weight = None if groups.weight is None else groups.weight[rows]
        columns = [counts if weight is None else weight if counts is None else weight * counts]
        if documents:
            columns.append(weight)
        new = cls(groups.n_classes, n_tokens, documents=documents)
        if groups.n_classes * n_tokens <= DENSE_CELLS * max(len(keys), 4096) and not _too_large(counts):
            new._put(*_tabled(keys, columns, groups.n_classes * n_tokens))
        else:
            new._put(*_added_up(keys, columns))
        return new

    @classmethod
    def joined(cls, parts: Sequence[tuple[Self, NDArray[np.integer[Any]]]], n_tokens: int) -> Self:
        """Return the sum of counts of the same classes, from the left; token j of a part is token index[j] of the sum.

        Raises:
            DataError: a sum that overflows.
        """
        first = parts[0][0]
        new = cls(first.n_classes, n_tokens, documents=first.documents is not None)
        keys = [index[part.tokens].astype(np.int64) * first.n_classes + part.classes for part, index in parts]
        columns = [np.concatenate([part.total for part, _ in parts])]
        if first.documents is not None:
            columns.append(np.concatenate([part.documents for part, _ in parts if part.documents is not None]))
        new._put(*_added_up(np.concatenate(keys), columns))
        return new

    def merge(self, other: Self, index: NDArray[np.intp], tokens: NDArray[np.intp] | None = None) -> None:
        """Add another's counts: its class i is class index[i] here, and its token j is token tokens[j] (None: j).

        Raises:
            DataError: a sum that overflows; self is then unchanged.
        """
        theirs = other.of_classes(index, self.n_classes)
        same = np.arange(self.n_tokens)
        total = self.joined([(self, same), (theirs, same if tokens is None else tokens)], self.n_tokens)
        self._take(total.arrays())

    def of_classes(self, index: NDArray[np.intp], n_classes: int) -> Self:
        """Return the same counts where class i is class index[i] of n_classes."""
        new = copy.copy(self)
        new.grow(index, n_classes)
        return new

    def grow(self, index: NDArray[np.intp], n_classes: int) -> None:
        """Make room for new classes: the old class i becomes class index[i] of n_classes."""
        self.n_classes = n_classes
        if not np.array_equal(index, np.arange(len(index))):
            self.classes = index.astype(np.int32)[self.classes]
            if not (np.diff(index) > 0).all():
                self._sort()

    def grow_tokens(self, index: NDArray[np.intp], n_tokens: int) -> None:
        """Make room for new tokens: the old token j becomes token index[j] of n_tokens."""
        self.n_tokens = n_tokens
        self.tokens = index.astype(np.int32)[self.tokens]
        self._sort()

    def copy(self) -> Self:
        """Return equal counts that share no memory with these."""
        return copy.deepcopy(self)

    def per_token(self, values: Numbers) -> Floats:
        """Return the sum over all classes of a number for each entry: float64 (n_tokens,)."""
        return np.bincount(self.tokens, values, self.n_tokens).astype(np.float64)

    def only(self, kept: NDArray[np.integer[Any]]) -> Self:
        """Return the counts of some tokens, whose numbers ascend; token kept[j] becomes token j."""
        place = np.full(self.n_tokens, -1, np.int32)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        there = place[self.tokens] >= 0
        new = type(self)(self.n_classes, len(kept))
        new._take({name: array[there] for name, array in self.arrays().items()})
        new.tokens = place[new.tokens]
        return new

    def arrays(self) -> dict[str, Numbers]:
        """Return the arrays that a state file holds, by name: the statistic's own, not copies."""
        held = {"tokens": self.tokens, "classes": self.classes, "total": self.total}
        return held if self.documents is None else held | {"documents": self.documents}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Numbers], n_classes: int, n_tokens: int) -> Self:
        """Return the counts that `arrays` came from; documents are counted if they are there.

        Raises:
            FileFormatError: an array is absent, or of another shape or type, or has a value that cannot be.
        """
        new = cls(n_classes, n_tokens)
        try:
            new._take(arrays)
        except KeyError as error:
            raise FileFormatError(f"Expected counts of tokens with an array {error}, got none") from None
        shape = (len(new.tokens),)
        for name, array in new.arrays().items():
            types = ("int32",) if name in ("tokens", "classes") else ("int64", "float64")
            if array.shape != shape or array.dtype.name not in types:
                wanted = " or ".join(types)
                got = f"{array.dtype}, {array.shape}"
                raise FileFormatError(f"Expected {name} of type {wanted}, shape {shape}, got {got}")
            if not (np.isfinite(array) & (array >= 0)).all():
                raise FileFormatError(f"Expected {name} of at least 0, got another value")
        keys = new.tokens * np.int64(n_classes) + new.classes
        inside = (new.tokens < n_tokens).all() and (new.classes < n_classes).all()
        if not inside or (np.diff(keys) <= 0).any():
            raise FileFormatError("Expected each class and token once and in order, got others")
        return new

    def _take(self, arrays: Mapping[str, Numbers]) -> None:
        self.tokens, self.classes, self.total = arrays["tokens"], arrays["classes"], arrays["total"]
        self.documents = arrays.get("documents")

    def _put(self, keys: NDArray[np.int64], sums: Sequence[Numbers]) -> None:
        for values in sums:
            if len(values) and not (np.isfinite(values) & (values >= 0)).all():
                raise DataError("Expected counts whose sum fits in 64 bits, got an overflow")
        tokens, classes = np.divmod(keys, max(self.n_classes, 1))
        self.tokens, self.classes = tokens.astype(np.int32), classes.astype(np.int32)
        self.total = sums[0]
        self.documents = sums[1] if len(sums) > 1 else None

    def _sort(self) -> None:
        order = np.argsort(self.tokens * np.int64(self.n_classes) + self.classes)
        self._take({name: array[order] for name, array in self.arrays().items()})


def _too_large(counts: Numbers | None) -> bool:
    """Whether whole numbers might lose digits when they are added as float64, as tables do."""
    return counts is not None and counts.dtype.kind != "f" and float(counts.sum(dtype=np.float64)) >= EXACT


def _tabled(keys: NDArray[np.int64], columns: Sequence[Numbers | None], n_cells: int) -> tuple[Any, list[Numbers]]:
    """Do what `_added_up` does with a table of all cells."""
    tables = [np.bincount(keys, column, n_cells) for column in columns]
    used = np.flatnonzero(tables[0])
    sums = []
    for column, table in zip(columns, tables, strict=True):
        whole = column is None or column.dtype.kind != "f"
        sums.append(table[used].astype(np.int64) if whole else table[used])
    return used, sums
