"""Batches of one size, counted from the start of a shard, whatever a reader happens to hand out."""

from __future__ import annotations

from collections.abc import Generator, Iterable

import pyarrow as pa

from streamnb.protocols import BATCH_ROWS
from streamnb.sources.types import canonical, conform

__all__ = ["recut"]


def recut(batches: Iterable[pa.RecordBatch], rows: int = BATCH_ROWS) -> Generator[pa.RecordBatch]:
    """Yield the same rows in batches of exactly `rows`, the last one perhaps shorter; copies only across a seam.

    >>> ten = pa.record_batch({"x": list(range(10))})
    >>> [batch.num_rows for batch in recut([ten, ten], rows=8)]
    [8, 8, 4]
    """
    pending: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        start = 0
        while held + batch.num_rows - start >= rows:
            piece = batch.slice(start, rows - held)
            start += piece.num_rows
            yield _joined([*pending, piece])
            pending, held = [], 0
        if start < batch.num_rows:
            pending.append(batch.slice(start))
            held += batch.num_rows - start
    if pending:
        yield _joined(pending)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    if any(pa.types.is_dictionary(field.type) for field in batches[0].schema):
        batches = [_with_wide_codes(batch) for batch in batches]
    return pa.concat_batches(batches)


def _with_wide_codes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Codes of 8 bits might not number the values of two dictionaries put together."""
    columns = [
        conform(column, pa.dictionary(pa.int32(), canonical(column.type.value_type)))
        if pa.types.is_dictionary(column.type)
        else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
