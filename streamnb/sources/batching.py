"""Batches of one size, counted from the start of a shard, whatever a reader happens to hand out."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import chain, repeat

import pyarrow as pa

from streamnb.protocols import BATCH_ROWS
from streamnb.sources.types import conform, is_bytes

__all__ = ["conformed", "decoded", "recut", "sizes_of"]


def recut(
    batches: Iterable[pa.RecordBatch], rows: int = BATCH_ROWS, *, sizes: Iterable[int] = ()
) -> Generator[pa.RecordBatch]:
    """Yield the same rows in batches of `sizes`, then of `rows`, the last one perhaps shorter; copies across seams.

    >>> ten = pa.record_batch({"x": list(range(10))})
    >>> [batch.num_rows for batch in recut([ten, ten], rows=8)]
    [8, 8, 4]
    """
    wanted = chain(sizes, repeat(rows))
    size = next(wanted)
    pending: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        start = 0
        while held + batch.num_rows - start >= size:
            piece = batch.slice(start, size - held)
            start += piece.num_rows
            yield _joined([*pending, piece])
            pending, held = [], 0
            size = next(wanted)
        if start < batch.num_rows:
            pending.append(batch.slice(start))
            held += batch.num_rows - start
    if pending:
        yield _joined(pending)


def sizes_of(groups: Iterable[int], rows: int) -> Iterator[int]:
    """Yield sizes of up to `rows` that end where a row group does, unless a batch were less than half full then.

    A row group has dictionaries of its own: a batch that holds the end of one and the start of another needs a third.

    >>> list(sizes_of([250, 250], 100)), list(sizes_of([30, 40, 10, 90], 100))
    ([100, 100, 50, 100, 100, 50], [70, 100])
    """
    held = 0
    for group in groups:
        held += group
        while held >= rows:
            yield rows
            held -= rows
        if 2 * held >= rows:
            yield held
            held = 0
    if held:
        yield held


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
