"""Arrow in, NumPy out: the only room that knows both.

A batch becomes label codes, weights and blocks of columns, without copies where Arrow's buffers allow it. Encoding
never changes a state, so a batch that is refused here has not been counted in part.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamnb.errors import DataError, SchemaError
from streamnb.protocols import Codes, Column, Flags, Floats
from streamnb.schema import Schema
from streamnb.textcolumn import TextColumn
from streamnb.vocabulary import Vocabulary, category_type, plain_type

__all__ = [
    "Blocks",
    "CategoryColumn",
    "Intake",
    "Training",
    "encode_features",
    "encode_few",
    "encode_training",
    "weights",
]


@dataclass(frozen=True, slots=True)
class CategoryColumn:
    """One categorical column: distinct values in any order (some may be unused), and codes into them.

    `codes` has shape (n_rows,); -1 is a missing cell. A value may stand twice: codes are looked up by value.
    """

    values: pa.Array
    codes: Codes


@dataclass(frozen=True, slots=True)
class Blocks:
    """The feature columns of one batch by kind, in the order of the schema; a matrix of numbers has NaN for missing."""

    n_rows: int
    numeric: Sequence[Column] | Floats
    categorical: Sequence[CategoryColumn]
    binary: Sequence[Column]
    counts: Sequence[Column]
    text: Sequence[TextColumn] = ()


@dataclass(frozen=True, slots=True)
class Training:
    """One batch made ready to be counted: the rows that have a label and a weight above 0.

    `labels` are the labels of these rows, distinct and sorted, `codes` index them,
    `kept` gives each row's number in the batch (None: all).
    """

    labels: pa.Array
    codes: Codes
    weight: Floats | None
    blocks: Blocks
    kept: NDArray[np.intp] | None
    rows_without_label: int


class Intake:
    """The way in for data of any kind: checked against a schema, cut to its `batch_rows` and to the columns wanted.

    The last schema that passed is remembered, so that a stream of small batches is checked once.
    """

    def __init__(self, schema: Schema, columns: Sequence[str]) -> None:
        self.schema, self.columns = schema, columns
        self._passed: tuple[pa.Schema, list[int] | None] | None = None

    def batches(self, data: Any) -> Iterator[pa.RecordBatch]:
        """Yield what anything that exports Arrow holds.

        Raises:
            SchemaError: not Arrow data, or columns and types that do not fit the schema.
        """
        if isinstance(data, pa.RecordBatch):
            arrow_schema, batches = data.schema, (data,)
        else:
            batches = _reader(data)
            arrow_schema = batches.schema
        index, rows = self._index(arrow_schema), self.schema.batch_rows
        for batch in batches:
            selected = batch if index is None else batch.select(index)
            if selected.num_rows <= rows:
                yield selected
            else:
                yield from (selected.slice(i, rows) for i in range(0, selected.num_rows, rows))

    def _index(self, arrow_schema: pa.Schema) -> list[int] | None:
        """Where the columns stand; None when the data has just these, in this order."""
        passed = self._passed
        if passed is None or not passed[0].equals(arrow_schema):
            self.schema.check(arrow_schema, self.columns)
            index = [arrow_schema.get_field_index(name) for name in self.columns]
            passed = (arrow_schema, None if index == list(range(len(arrow_schema))) else index)
            self._passed = passed
        return passed[1]


def _reader(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.Table):
        return data.to_reader()
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        # A pandas column of mixed objects has no Arrow type.
        raise SchemaError(f"Expected data that exports Arrow, got {type(data).__name__}: {error}") from None
    raise SchemaError(
        "Expected a RecordBatch, Table, DataFrame or anything else that exports Arrow, "
        f"got {type(data).__module__}.{type(data).__qualname__}"
    )


def encode_training(batch: pa.RecordBatch, schema: Schema) -> Training:
    """Encode a batch for counting; rows without a label are left out and counted, rows of weight 0 are no rows.

    Raises:
        DataError: a weight that is missing, negative or not finite; a binary cell that is not 0/1.
    """
    label = batch.column(schema.label)
    encoded = _categories(label, plain_type(label.type))
    codes, labels = encoded.codes, encoded.values
    keep = codes >= 0
    without_label = len(codes) - int(np.count_nonzero(keep))
    weight = None
    if schema.weight is not None:
        weight = weights(batch.column(schema.weight), schema.weight, keep)
        without_label -= int(np.count_nonzero(~keep & (weight == 0)))
        keep &= weight > 0
    kept = None
    if not keep.all():
        kept = np.flatnonzero(keep)
        codes = codes[kept]
        weight = None if weight is None else weight[kept]
    labels, codes = _sorted_and_used(labels, codes)
    return Training(labels, codes, weight, encode_features(batch, schema, kept), kept, without_label)


def _sorted_and_used(values: pa.Array, codes: Codes) -> tuple[pa.Array, Codes]:
    """Return the values that codes name, distinct and sorted, and the codes into them."""
    used = np.bincount(codes, minlength=len(values)) > 0
    vocabulary = Vocabulary.of(values if used.all() else values.filter(pa.array(used)))
    if vocabulary.values.equals(values):
        return values, codes
    return vocabulary.values, vocabulary.index(values)[codes]


def encode_features(batch: pa.RecordBatch, schema: Schema, kept: NDArray[np.intp] | None = None) -> Blocks:
    """Encode the feature columns; `kept` picks rows.

    Raises:
        DataError: a binary cell that is not 0/1 where the schema gives no threshold.
    """
    # All columns at once: asking a batch for each by its name takes longer than encoding one row of it.
    column = dict(zip(batch.schema.names, batch.columns, strict=True)).__getitem__
    numeric = [_numbers(column(name), kept) for name in schema.numeric]
    counts = [_numbers(column(name), kept) for name in schema.counts]
    binary = [_zero_or_one(_numbers(column(name), kept), schema, name, kept) for name in schema.binary]
    categorical = []
    for name in schema.categorical:
        encoded = _categories(column(name), category_type(column(name).type))
        codes = encoded.codes if kept is None else encoded.codes[kept]
        categorical.append(CategoryColumn(encoded.values, codes))
    text = []
    for name in schema.text:
        documents = column(name) if kept is None else column(name).take(pa.array(kept))
        text.append(TextColumn(documents, schema.text_options[name]))
    n_rows = batch.num_rows if kept is None else len(kept)
    return Blocks(n_rows, numeric, categorical, binary, counts, text)


def encode_few(
    batch: pa.RecordBatch, schema: Schema, vocabularies: Sequence[Vocabulary]
) -> tuple[Blocks, list[Codes]] | None:
    """Encode the features of a few rows, all numbers at once and categories through a dict; None where that can't be.

    For columns one by one takes longer than all the rest of a prediction of one row. The batch has the features of
    the schema in its order. Codes are -1 for a missing cell and -2 for a category that the vocabulary has not.
    """
    if schema.text or not batch.num_rows:
        return None
    n = len(schema.numeric)
    try:
        numeric = _matrix(batch, range(n))
    except pa.ArrowException:  # some are no plain numbers, say decimals: to ask every column of every row costs more
        numeric = np.empty((n, batch.num_rows))
        plain = [i for i in range(n) if batch.schema.field(i).type.id in PLAIN]
        numeric[plain] = _matrix(batch, plain)
        for i in set(range(n)).difference(plain):
            one = _numbers(batch.column(i), None)
            numeric[i] = one.values if one.valid is None else np.where(one.valid, one.values, np.nan)
    codes = []
    for i, vocabulary in enumerate(vocabularies, n):
        found = vocabulary.find(batch.column(i))
        if found is None:
            return None
        codes.append(np.array(found, np.int32))
    n += len(vocabularies)
    binary = [
        _zero_or_one(_numbers(batch.column(n + i), None), schema, name, None) for i, name in enumerate(schema.binary)
    ]
    n += len(binary)
    counts = [_numbers(batch.column(n + i), None) for i in range(len(schema.counts))]
    return Blocks(batch.num_rows, numeric, (), binary, counts), codes


def _matrix(batch: pa.RecordBatch, columns: Sequence[int]) -> Floats:
    """Return columns of plain numbers as float64, (n_columns, n_rows), NaN where a cell is missing."""
    if not columns:
        return np.zeros((0, batch.num_rows))
    numbers = batch if len(columns) == batch.num_columns else batch.select(columns)
    matrix: Floats = numbers.to_tensor(null_to_nan=True, row_major=True).to_numpy().T.astype(np.float64, copy=False)
    return matrix


def weights(column: pa.Array, name: str, keep: Flags | None = None) -> Floats:
    """Return row weights as float64 (n_rows,); only the rows of `keep` must have one, others may have NaN.

    Raises:
        DataError: a weight that is missing, negative or not finite, with its row.
    """
    numbers = _numbers(column, None)
    weight = np.asarray(numbers.values, np.float64)
    absent = np.isnan(weight) if numbers.valid is None else ~numbers.valid | np.isnan(weight)
    bad = absent | (weight < 0) | np.isinf(weight)
    if keep is not None:
        bad &= keep
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        got = "none" if absent[row] else str(weight[row])
        raise DataError(f"Expected a weight of at least 0, got {got}", column=name, row=row)
    return weight if numbers.valid is None else np.where(absent, np.nan, weight)


def _valid(array: pa.Array) -> Flags | None:
    """Unpack the validity bits; None when nothing is null."""
    if not array.null_count:
        return None
    return _bits(array.buffers()[0], array.offset, len(array))


def _bits(buffer: pa.Buffer, offset: int, length: int) -> Flags:
    first, last = offset // 8, (offset + length + 7) // 8
    packed = np.frombuffer(buffer, np.uint8, last - first, first)
    return np.unpackbits(packed, bitorder="little")[offset % 8 : offset % 8 + length].view(np.bool_)


EXACT_INTEGERS = 2**53
EXACT_DIGITS = 15
"""Up to here a double holds every integer."""

# By Arrow type id, because asking a type what it is costs more than all the rest for a batch of one row.
PLAIN = {
    dtype.id: pa.array([], dtype).to_numpy().dtype  # to_pandas_dtype would need pandas in some versions
    for dtype in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
    )
}


def _numbers(array: pa.Array, kept: NDArray[np.intp] | None) -> Column:
    plain = PLAIN.get(array.type.id)
    length = len(array)
    if plain is None:
        column = _other_numbers(array)
    elif not length:
        column = Column(np.zeros(0, plain))
    else:
        validity, data = array.buffers()
        offset = array.offset
        values = np.frombuffer(data, plain, length, offset * plain.itemsize)
        column = Column(values, _bits(validity, offset, length) if array.null_count else None)
    if kept is None:
        return column
    return Column(column.values[kept], None if column.valid is None else column.valid[kept])


def _other_numbers(array: pa.Array) -> Column:
    """Numbers that are not a plain buffer of them: booleans, decimals, dictionaries of numbers, nothing but nulls."""
    dtype = array.type
    if pa.types.is_dictionary(dtype):
        return _numbers(array.dictionary_decode(), None)
    if pa.types.is_null(dtype):
        return Column(np.zeros(len(array)), np.zeros(len(array), np.bool_))
    if pa.types.is_boolean(dtype):
        bits = _bits(array.buffers()[1], array.offset, len(array)) if len(array) else np.zeros(0, np.bool_)
        return Column(bits.view(np.uint8), _valid(array))
    if pa.types.is_decimal128(dtype) and 0 <= dtype.scale <= 22 and len(array):
        return _decimals(array)
    return _numbers(array.cast(pa.float64()), None)


def _decimals(array: pa.Array) -> Column:
    """Decimals of up to 22 places: one division of two exact doubles, which rounds each as Python reads its text.

    Arrow's cast is five times slower and often one unit in the last place off. It serves where the digits are more
    than a double holds; value by value, so that what becomes of one does not depend on its neighbours.
    """
    dtype, valid = array.type, _valid(array)
    words = np.frombuffer(array.buffers()[1], "<i8", 2 * len(array), 16 * array.offset).reshape(-1, 2)
    low, high = words[:, 0], words[:, 1]
    values = low / 10.0**dtype.scale
    if dtype.precision > EXACT_DIGITS:
        large = ((low >> 63) != high) | (low > EXACT_INTEGERS) | (low < -EXACT_INTEGERS)
        if valid is not None:
            large &= valid
        if large.any():
            place = np.flatnonzero(large)
            values[place] = array.take(pa.array(place)).cast(pa.float64()).to_numpy()
    return Column(values, valid)


def _zero_or_one(column: Column, schema: Schema, name: str, kept: NDArray[np.intp] | None) -> Column:
    """Return the column as 0 and 1 in uint8; NaN is missing, and so is ±inf where the schema says so."""
    values, valid, threshold = column.values, column.valid, schema.threshold(name)
    if values.dtype.kind == "f":
        finite = np.isfinite(values)
        if not finite.all():
            infinite = np.isinf(values) if valid is None else np.isinf(values) & valid
            if schema.infinite == "error" and infinite.any():
                row = int(np.flatnonzero(infinite)[0])
                raise DataError(
                    f"Expected a finite number, got {values[row]}",
                    column=name,
                    row=row if kept is None else int(kept[row]),
                )
            valid = finite if valid is None else valid & finite
    ones = values > (0 if threshold is None else threshold)
    if threshold is None and values.dtype != np.bool_:
        wrong = ones != values if valid is None else (ones != values) & valid
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise DataError(
                f"Expected 0 or 1, got {values[row]}; binarize= gives a threshold",
                column=name,
                row=row if kept is None else int(kept[row]),
            )
    return Column(ones.view(np.uint8), valid)


def _categories(array: pa.Array, target: pa.DataType) -> CategoryColumn:
    """Return distinct values of the target type and codes into them; null and NaN are missing."""
    if pa.types.is_null(array.type):
        return CategoryColumn(pa.array([], target), np.full(len(array), -1, np.int32))
    if pa.types.is_integer(array.type):
        narrow = _narrow_integers(array, target)
        if narrow is not None:
            return narrow
    if not pa.types.is_dictionary(array.type):
        plain = plain_type(array.type)
        if pa.types.is_float16(array.type) or pa.types.is_decimal(array.type):
            array = array.cast(plain)  # these have no kernel of their own
        array = array.dictionary_encode()
    indices, values = array.indices, array.dictionary
    codes = np.asarray(_numbers(indices, None).values, np.int32)
    valid = _valid(indices)
    if valid is not None:
        codes = np.where(valid, codes, np.int32(-1))
    values = _plain(values, target)
    if pa.types.is_floating(target):
        values = pc.add(values, pa.scalar(0.0, target))  # -0.0 and 0.0 are one category
    missing = pc.is_null(values, nan_is_null=True)
    if missing.true_count:
        # The place of a missing value in the dictionary goes: codes shift to the values that remain.
        there = ~_numbers(missing, None).values.view(np.bool_)
        place = np.where(there, np.cumsum(there) - 1, -1).astype(np.int32)
        codes = np.where(codes >= 0, place[codes], np.int32(-1))
        values = values.filter(pa.array(there))
    return CategoryColumn(values, codes)


def _narrow_integers(array: pa.Array, target: pa.DataType) -> CategoryColumn | None:
    """Encode integers that lie close together by subtraction, several times faster than by hashing."""
    column = _numbers(array, None)
    values, valid = column.values, column.valid
    present = values if valid is None else values[valid]
    if not len(present):
        return None
    low, high = int(present.min()), int(present.max())
    if high - low >= min(len(values), 1 << 16):
        return None
    # Unsigned, because the difference of two int8 may not fit an int8; it wraps around to the right place.
    codes = (values - values.dtype.type(low)).view(f"u{values.itemsize}").astype(np.int32)
    if valid is not None:
        codes = np.where(valid, codes, np.int32(-1))
    values_between = pa.array(np.arange(low, high + 1, dtype=values.dtype)).cast(target)
    return CategoryColumn(values_between, codes)


def _plain(values: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type == target:
        return values
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())  # views have no direct cast to the short layout
    return values.cast(target)
