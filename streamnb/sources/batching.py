"""Batches of one size, counted from the start of a shard, whatever a reader happens to hand out."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

import pyarrow as pa

from streamnb.protocols import BATCH_ROWS
from streamnb.sources.types import conform, is_bytes

__all__ = ["conformed", "decoded", "recut"]


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
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def conformed(batch: pa.RecordBatch, types: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """Return the columns of `types`, found by exact name, as these canonical types."""
    columns = [conform(batch.column(name), dtype) for name, dtype in types.items()]
    return pa.RecordBatch.from_arrays(columns, names=list(types))


def decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with strings for dictionary codes: then all batches of a source have one schema.

    >>> decoded(pa.record_batch({"x": pa.array(["a", "a"]).dictionary_encode()})).schema.field("x").type
    DataType(string)
    """
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) and is_bytes(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
