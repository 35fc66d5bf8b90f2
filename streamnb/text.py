"""Documents to tokens: what may be asked of a text column, and how strings are cut.

Cutting text is the slow part of counting it, so that the fine work is done once for each distinct piece: bytes are cut
where ASCII alone says that a token ends, and only the distinct pieces go through Unicode's lower case, accents and
classes of characters, by Polars.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamnb.errors import DataError, SchemaError
from streamnb.kernels import implementation
from streamnb.protocols import Codes
from streamnb.vocabulary import is_text

__all__ = ["Text", "Tokens", "bytes_of", "check_utf8", "content_kind", "ngrams", "offsets_of", "split"]

MOST_WORDS = 8
"""The longest run of tokens that may be one n-gram."""

WORD = r"[\p{L}\p{N}_]{2,}"
"""Python's \\w (letters, numbers of every kind, underscore) two or more times: scikit-learn's `(?u)\\b\\w\\w+\\b`."""

SPACE = r"\s\x1c-\x1f"
"""What Python takes for white space: Unicode's, and four control characters."""

CAPITAL_SIGMA = "Σ".encode()
"""The one letter whose lower case depends on its neighbours, also across what ends a token."""

ASCII_SPACE = b"\t\n\v\f\r \x1c\x1d\x1e\x1f"


@dataclass(frozen=True)
class Text:
    """A text column, and how its tokens are found and counted; part of the schema, so that all shards agree.

    - `tokens`: "words" (two or more letters, digits or underscores), "whitespace" (what stands between white space) or
      "chars" (single characters, runs of white space being one). Lists and maps hold tokens already.
    - `ngrams`: the fewest and the most neighbouring tokens that are one token, joined by a space ("chars": by nothing).
    - `lowercase`, `strip_accents` (NFKD without combining characters): before documents are cut.
    - `stop_words`: tokens that are left out, before n-grams are made.
    - `sublinear`, `normalize`: of each document, before it is counted: 1 + log(count), then a sum ("l1") or Euclidean
      length ("l2") of 1.
    - `buckets`: None keeps every token by name; a number counts by hash in so many buckets, in bounded memory.
    - `document_frequency`: also count the documents that have each token, for Bernoulli and for idf.

    Raises:
        SchemaError: a value that an option cannot have.

    >>> Text("body", ngrams=(1, 2), stop_words=["the"]).ngrams
    (1, 2)
    """

    column: str
    tokens: Literal["words", "whitespace", "chars"] = "words"
    ngrams: tuple[int, int] = (1, 1)
    lowercase: bool = True
    stop_words: Sequence[str] = ()
    strip_accents: bool = False
    normalize: Literal["l1", "l2"] | None = None
    sublinear: bool = False
    buckets: int | None = None
    document_frequency: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.column, str):
            raise SchemaError(f"Expected the name of a text column, got {self.column!r}")
        for option, allowed in (("tokens", ("words", "whitespace", "chars")), ("normalize", (None, "l1", "l2"))):
            if getattr(self, option) not in allowed:
                raise self._refused(option, "one of " + ", ".join(map(repr, allowed)))
        for option in ("lowercase", "strip_accents", "sublinear", "document_frequency"):
            if not isinstance(getattr(self, option), bool):
                raise self._refused(option, "True or False")
        words = self.stop_words
        if isinstance(words, str) or not isinstance(words, Iterable) or not all(isinstance(w, str) for w in words):
            raise self._refused("stop_words", "a list of strings")
        object.__setattr__(self, "stop_words", tuple(sorted(set(words))))
        ngrams = tuple(self.ngrams) if isinstance(self.ngrams, Iterable) else ()
        if len(ngrams) != 2 or not all(type(n) is int for n in ngrams) or not 1 <= ngrams[0] <= ngrams[1] <= MOST_WORDS:
            raise self._refused("ngrams", f"the fewest and the most, from 1 to {MOST_WORDS}")
        object.__setattr__(self, "ngrams", ngrams)
        if self.buckets is not None and (type(self.buckets) is not int or not 1 <= self.buckets < 1 << 31):
            raise self._refused("buckets", f"a number from 1 to {(1 << 31) - 1}, or None")

    def _refused(self, option: str, wanted: str) -> SchemaError:
        return SchemaError(f"Expected {option}= to be {wanted}, got {getattr(self, option)!r} - column {self.column!r}")

    def plain(self) -> str | dict[str, Any]:
        """Return the options as JSON has them: the name alone where all have their defaults.

        >>> Text("body").plain(), Text("body", buckets=1024).plain()
        ('body', {'column': 'body', 'buckets': 1024})
        """
        defaults = {field.name: field.default for field in fields(self)}
        given = {name: value for name, value in asdict(self).items() if value != defaults[name]}
        if given.keys() == {"column"}:
            return self.column
        return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}


class Tokens(NamedTuple):
    """The tokens of some documents.

    `values` (large_string) are tokens in any order, and none twice; `rows` (n_tokens,), in ascending order, and `codes`
    (n_tokens,) say where each token stands and which it is; `counts` (n_tokens,) how often, None meaning once.
    """

    n_rows: int
    values: pa.Array
    rows: Codes
    codes: Codes
    counts: NDArray[Any] | None = None


def content_kind(dtype: pa.DataType) -> Literal["documents", "tokens", "counts"] | None:
    """Return what a column of this type holds, None if it cannot be text.

    >>> [content_kind(t) for t in (pa.large_string(), pa.list_(pa.int32()), pa.map_(pa.string(), pa.int8()))]
    ['documents', 'tokens', 'counts']
    """
    types = pa.types
    if types.is_dictionary(dtype):
        return "documents" if is_text(dtype.value_type) else None
    if is_text(dtype) or types.is_null(dtype):
        return "documents"
    if types.is_map(dtype):
        pair = [dtype.key_type, dtype.item_type]
    elif _is_list(dtype):
        value = dtype.value_type
        if not types.is_struct(value):
            return "tokens" if _is_token(value) or types.is_null(value) else None
        pair = [value.field(i).type for i in range(value.num_fields)]
    else:
        return None
    number = len(pair) == 2 and (types.is_integer(pair[1]) or types.is_floating(pair[1]) or types.is_decimal(pair[1]))
    return "counts" if number and _is_token(pair[0]) else None


def _is_token(dtype: pa.DataType) -> bool:
    if pa.types.is_dictionary(dtype):
        return _is_token(dtype.value_type)
    return bool(is_text(dtype) or pa.types.is_integer(dtype))


def _is_list(dtype: pa.DataType) -> bool:
    kinds = ("is_list", "is_large_list", "is_fixed_size_list", "is_list_view", "is_large_list_view")
    return any(getattr(pa.types, kind)(dtype) for kind in kinds)


def offsets_of(array: pa.Array) -> NDArray[Any]:
    """Where each cell begins in the buffer or child below it, and where the last one ends: (n_rows + 1,)."""
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_list(array.type)
    dtype = np.dtype(np.int64 if wide else np.int32)
    if not len(array):
        return np.zeros(1, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array) + 1, array.offset * dtype.itemsize)


def split(array: pa.Array, text: Text) -> Tokens:
    """Cut documents without nulls."""
    chars = text.tokens == "chars"
    data = _data(array)
    if (text.lowercase and not data.isascii() and CAPITAL_SIGMA in data) or chars:
        check_utf8(array)  # Polars takes it for granted
        array = _prepared(array, text, squeeze=chars)
        data = _data(array)
        # Once is enough: accents may leave capitals behind ("™" is "TM"), whatever documents are cut beside them.
        text = replace(text, lowercase=False, strip_accents=False)
    first = offsets_of(array).astype(np.int64)
    first -= first[0]
    if not data:
        return Tokens(len(array), pa.array([], pa.large_string()), np.zeros(0, np.int32), np.zeros(0, np.int32))
    ascii_only = data.isascii()
    compiled = None if chars else implementation().cut
    meaning = _table(text.tokens, text.lowercase)
    if compiled is None:
        read = data if chars else data.translate(meaning)
        rows, codes, pieces = _cut(np.frombuffer(read, np.uint8), first, chars=chars)
    else:
        bytes_, table = np.frombuffer(data, np.uint8), np.frombuffer(meaning, np.uint8)
        # A word has two characters, and so at least two bytes.
        least = 2 if text.tokens == "words" else 1
        rows, codes, starts, stops = compiled(bytes_, table, first, least, ascii_only=ascii_only)
        pieces = _taken(bytes_, starts, stops, table)
    distinct = pieces.cast(pa.large_string(), safe=False)
    check_utf8(distinct)
    if chars or (compiled is not None and ascii_only):
        return Tokens(len(array), distinct, rows, codes)
    return _refined(len(array), distinct, rows, codes, text)


def _cut(data: NDArray[np.uint8], first: NDArray[np.int64], *, chars: bool) -> tuple[Codes, Codes, pa.Array]:
    """Return the row of each piece of documents, which one it is, and the distinct ones (large_binary).

    A piece is a character, or else a token and the spaces after it; spaces at the start of a document are a piece too.
    """
    if chars:
        begins = (data & 0xC0) != 0x80  # all but UTF-8's continuation bytes
    else:
        space = data == ord(" ")
        begins = np.empty(len(data), np.bool_)
        np.greater(space[:-1], space[1:], out=begins[1:])
        begins[first[:-1][first[:-1] < len(data)]] = True
    starts = np.flatnonzero(begins)
    rows = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(np.searchsorted(starts, first)))
    ends = pa.py_buffer(np.append(starts, len(data)))
    pieces = pa.Array.from_buffers(pa.large_binary(), len(starts), [None, ends, pa.py_buffer(data)])
    coded = pieces.dictionary_encode()
    return rows, np.asarray(coded.indices), coded.dictionary


def _taken(
    data: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64], meaning: NDArray[np.uint8]
) -> pa.Array:
    """Return what data[starts[i]:stops[i]] means for each i, as large_binary."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(stops - starts, out=offsets[1:])
    place = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], stops - starts)
    return pa.Array.from_buffers(
        pa.large_binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(meaning[data[place]])]
    )


def check_utf8(array: pa.Array) -> None:
    """Raise DataError where strings hold bytes that are not UTF-8, which Arrow itself only finds when asked."""
    if is_text(array.type):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise DataError("Expected text in UTF-8, got bytes that are not") from None


def bytes_of(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return where each string begins, (n + 1,), and the bytes that these places are in."""
    data = array.buffers()[2] if len(array) else None
    return offsets_of(array).astype(np.int64), np.frombuffer(data or b"", np.uint8)


def _data(array: pa.Array) -> bytes:
    """The bytes of the documents, one after another."""
    offsets, data = offsets_of(array), array.buffers()[2]
    start, stop = int(offsets[0]), int(offsets[-1])
    return b"" if data is None else data.slice(start, stop - start).to_pybytes()


@functools.cache
def _table(tokens: str, lowercase: bool) -> bytes:
    """For each byte, what it counts as: a space ends a token; whatever is not ASCII is left to `_refined`."""
    table = bytearray(range(256))
    for byte in range(128):
        character = chr(byte)
        if byte in ASCII_SPACE if tokens == "whitespace" else not (character.isalnum() or character == "_"):
            table[byte] = ord(" ")
        elif lowercase:
            table[byte] = ord(character.lower())
    return bytes(table)


def _prepared(array: pa.Array, text: Text, *, squeeze: bool) -> pa.Array:
    """Return strings in lower case and without accents, as wanted; `squeeze` makes runs of white space one space."""
    import polars as pl  # here, because models without text need it nowhere

    column = pl.col("text")
    if text.lowercase:
        column = column.str.to_lowercase()
    if text.strip_accents:
        column = column.str.normalize("NFKD").str.replace_all(_combining(), "")
    if squeeze:
        column = column.str.replace_all(f"[{SPACE}]{{2,}}", " ")
    frame = pl.DataFrame({"text": pl.from_arrow(array)}).select(column)
    return _arrow(frame["text"])


def _arrow(series: Any) -> pa.Array:
    import polars as pl

    array = series.to_arrow(compat_level=pl.CompatLevel.oldest())
    return array if pa.types.is_large_string(array.type) else array.cast(pa.large_string())


@functools.cache
def _combining() -> str:
    """A class of the characters that scikit-learn takes for accents: those with a canonical combining class."""
    points = [point for point in range(sys.maxunicode + 1) if unicodedata.combining(chr(point))]
    return "[" + "".join(f"\\x{{{point:x}}}" for point in points) + "]"


def _refined(n_rows: int, distinct: pa.Array, rows: Codes, codes: Codes, text: Text) -> Tokens:
    """Find the tokens in distinct pieces, and put them where the pieces stand."""
    import polars as pl

    prepared = pl.Series(pl.from_arrow(_prepared(distinct, text, squeeze=False)))
    found = prepared.str.extract_all(WORD if text.tokens == "words" else f"[^{SPACE}]+")
    number = found.list.len().to_numpy().astype(np.int64)
    flat = _arrow(found.explode().drop_nulls().cast(pl.String))
    coded = flat.dictionary_encode()
    inner = np.asarray(coded.indices)
    last = np.cumsum(number)
    if number.max(initial=0) <= 1:
        token = np.full(len(number), -1, np.int32)
        token[number == 1] = inner
        codes = token.take(codes)
        there = codes >= 0
        if not there.all():
            rows, codes = rows[there], codes[there]
        return Tokens(n_rows, coded.dictionary, rows, codes)
    each = number[codes]
    rows = np.repeat(rows, each)
    # The tokens of a piece are neighbours in `inner`: from where they begin, as many as there are.
    shift = np.repeat((last - number)[codes] - (np.cumsum(each) - each), each)
    return Tokens(n_rows, coded.dictionary, rows, inner[shift + np.arange(len(rows))])


def ngrams(tokens: Tokens, fewest: int, most: int, joiner: str) -> Tokens:
    """Join neighbours within a document: codes are joined first, and strings once for each distinct n-gram."""
    single, rows, base = tokens.values, tokens.rows, tokens.codes.astype(np.int64)
    values, codes, start = single, base, np.arange(len(rows))
    between = pa.scalar(joiner, pa.large_string())
    found = [(values, codes, start)] if fewest == 1 else []
    for n in range(2, most + 1):
        follows = start + (n - 1) < len(rows)
        start, codes = start[follows], codes[follows]
        follows = rows[start] == rows[start + (n - 1)]
        start, codes = start[follows], codes[follows]
        pairs = pa.array(codes * len(single) + base[start + (n - 1)]).dictionary_encode()
        left, right = np.divmod(np.asarray(pairs.dictionary), max(len(single), 1))
        values = pc.binary_join_element_wise(values.take(pa.array(left)), single.take(pa.array(right)), between)
        codes = np.asarray(pairs.indices).astype(np.int64)
        if n >= fewest:
            found.append((values, codes, start))
    starts = np.cumsum([0, *(len(names) for names, _, _ in found)])
    row = np.concatenate([rows[start] for _, _, start in found])
    code = np.concatenate([codes + first for (_, codes, _), first in zip(found, starts[:-1], strict=True)])
    # Tokens of lists may hold a space, so that two n-grams look alike: they are one token.
    distinct = pa.concat_arrays([names for names, _, _ in found]).dictionary_encode()
    code = np.asarray(distinct.indices)[code]
    order = np.argsort(row, kind="stable")
    return Tokens(tokens.n_rows, distinct.dictionary, row[order], code[order])
