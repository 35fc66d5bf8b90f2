"""A text column of a batch, whatever it holds, to tokens.

A column holds documents (strings, which `text` cuts), tokens already (lists of strings or integers), or sparse counts
(maps, or lists of structs of a token and a number).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamnb.errors import DataError
from streamnb.protocols import Codes, Flags
from streamnb.text import Text, Tokens, check_utf8, content_kind, ngrams, offsets_of, split
from streamnb.vocabulary import is_text

__all__ = ["TextColumn"]

CHUNK_BYTES = 1 << 23
"""Bytes of text, or eight times the tokens of lists, that are cut at once: long documents do not fill the memory."""


class TextColumn:
    """A text column of one batch, not yet cut into tokens.

    `present` (n_rows,) is False where the cell is null, or None where none is.
    """

    def __init__(self, array: pa.Array, text: Text) -> None:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        self.text, self._kind = text, content_kind(array.type)
        self.present: Flags | None = None
        if array.null_count:
            self.present = np.asarray(array.is_valid())
        self._array = _laid_out(array)

    def __len__(self) -> int:
        return len(self._array)

    def chunks(self) -> Iterator[tuple[int, Tokens]]:
        """Cut the documents, some at a time, and yield the first row of each lot beside its tokens.

        Raises:
            DataError: text that is not UTF-8; a count that is negative or not finite, with its row.
        """
        offsets = offsets_of(self._array)
        size = 1 if self._kind == "documents" else 8
        first = 0
        while first < len(self):
            limit = int(offsets[first]) + CHUNK_BYTES // size
            stop = max(int(np.searchsorted(offsets, limit, "right")) - 1, first + 1)
            try:
                yield first, self._cut(self._array.slice(first, stop - first))
            except DataError as error:
                raise (error if error.row is None else error.at(row=first + error.row)) from None
            first = stop

    def _cut(self, array: pa.Array) -> Tokens:
        text = self.text
        if self._kind == "counts":
            return _without(_counted(array), text.stop_words)
        tokens = _listed(array) if self._kind == "tokens" else split(array, text)
        tokens = _without(tokens, text.stop_words)
        if text.ngrams == (1, 1):
            return tokens
        return ngrams(tokens, *text.ngrams, "" if text.tokens == "chars" and self._kind == "documents" else " ")


def _laid_out(array: pa.Array) -> pa.Array:
    """Return the column with offsets and one child or buffer, and nothing in its null cells."""
    dtype = array.type
    if pa.types.is_null(dtype):
        return pa.repeat(pa.scalar("", pa.large_string()), len(array))
    if is_text(dtype):
        if pa.types.is_string_view(dtype):
            array = array.cast(pa.large_string())
        return array.fill_null("") if array.null_count else array
    if pa.types.is_map(dtype) or pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return array
    if pa.types.is_list_view(dtype) or pa.types.is_large_list_view(dtype):
        # Arrow's own cast of views to lists gives offsets that do not fit (seen in 26.0).
        lengths = np.asarray(pc.list_value_length(array).fill_null(0)).astype(np.int64)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]))
        missing = None if not array.null_count else array.is_null()
        return pa.LargeListArray.from_arrays(offsets, array.flatten(), mask=missing)
    return array.cast(pa.large_list(dtype.value_type))


# Lists and maps ------------------------------------------------------------------------------------------------------


def _children(array: pa.Array) -> tuple[Codes, pa.Array]:
    """Return the row of each element of lists, and the elements; null lists have none."""
    offsets = offsets_of(array)
    lengths = np.diff(offsets)
    child = (
        array.values
        if not pa.types.is_map(array.type)
        else pa.StructArray.from_arrays([array.keys, array.items], ["token", "count"])
    )
    child = child.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    rows = np.repeat(np.arange(len(array), dtype=np.int32), lengths)
    if array.null_count:
        there = np.asarray(array.is_valid())[rows]
        if not there.all():
            rows, child = rows[there], child.filter(pa.array(there))
    return rows, child


def _named(values: pa.Array) -> tuple[pa.Array, Codes, Flags | None]:
    """Return distinct tokens as strings, codes into them, and which cells are not null (None: all)."""
    valid = np.asarray(values.is_valid()) if values.null_count else None
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not len(values) or pa.types.is_null(values.type):
        return pa.array([], pa.large_string()), np.zeros(len(values), np.int32), np.zeros(len(values), np.bool_)
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    coded = values.dictionary_encode()
    check_utf8(coded.dictionary)
    return coded.dictionary.cast(pa.large_string()), np.asarray(coded.indices.fill_null(0)), valid


def _listed(array: pa.Array) -> Tokens:
    rows, child = _children(array)
    values, codes, valid = _named(child)
    if valid is not None:
        rows, codes = rows[valid], codes[valid]
    return Tokens(len(array), values, rows, codes)


def _counted(array: pa.Array) -> Tokens:
    rows, child = _children(array)
    tokens, numbers = child.flatten()
    values, codes, valid = _named(tokens)
    dtype = numbers.type
    target = pa.int64() if pa.types.is_integer(dtype) and not pa.types.is_uint64(dtype) else pa.float64()
    counts = np.asarray(numbers.cast(target, safe=False).fill_null(0))
    wrong = (counts < 0) | ~(np.isfinite(counts) | np.isnan(counts))
    if wrong.any():
        place = int(wrong.argmax())
        raise DataError(f"Expected a finite count of at least 0, got {counts[place]}", row=int(rows[place]))
    kept = counts > 0  # zero, null and NaN are no token
    if valid is not None:
        kept &= valid
    return _kept(Tokens(len(array), values, rows, codes, counts), kept)


def _without(tokens: Tokens, stop_words: Sequence[str]) -> Tokens:
    if not stop_words:
        return tokens
    stopped = np.asarray(pc.is_in(tokens.values, value_set=pa.array(stop_words, pa.large_string())))
    return _kept(tokens, ~stopped[tokens.codes]) if stopped.any() else tokens


def _kept(tokens: Tokens, kept: Flags) -> Tokens:
    """Return some of the tokens, and only the values that they have: a value names a bucket, if it is the smallest."""
    codes = tokens.codes[kept]
    used = np.bincount(codes, minlength=len(tokens.values)) > 0
    codes = (np.cumsum(used, dtype=np.int32) - np.int32(1))[codes]
    counts = None if tokens.counts is None else tokens.counts[kept]
    return Tokens(tokens.n_rows, tokens.values.filter(pa.array(used)), tokens.rows[kept], codes, counts)
