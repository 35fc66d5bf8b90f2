"""The two readers of a Parquet file; both give the same values, each is the faster one for some types.

Polars decodes numbers of fixed width about twice as fast as PyArrow, but holds whole row groups; PyArrow hands out
strings as dictionary codes, and pages one at a time.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Any

import polars as pl
import polars.selectors as cs
import pyarrow as pa
import pyarrow.parquet as pq

from streamnb.sources.batching import conformed
from streamnb.sources.files import DataFile
from streamnb.sources.types import fixed_width, is_bytes

__all__ = ["arrow_batches", "for_polars", "polars_batches"]

BUFFER_BYTES = 1 << 20
"""PyArrow reads a column this many bytes at a time, fewer where there are many columns."""

BUFFERS_BYTES = 64 << 20
"""All buffers of one shard together; a column has 64 KiB at the least."""

POLARS_LEAST_BYTES = 1 << 20
"""A query has a cost of its own; below this many decoded bytes PyArrow is as fast."""

POLARS_MOST_BYTES = 128 << 20
"""Polars holds a shard's columns whole: above this many decoded bytes memory would grow with the row groups."""

CODED_BYTES_PER_ROW = 8
"""A column of codes takes less than this; a longer one is running text, which is not worth a dictionary."""


def for_polars(file: DataFile, schema: pa.Schema, columns: Sequence[str], rows: int) -> list[str]:
    """Return the columns that Polars is to read; which reader a column has never changes its values."""
    if file.filesystem is not None or len(set(schema.names)) < len(schema.names):
        return []  # object stores want credentials of their own, and Polars refuses equal names
    widths = {name: _polars_width(schema.field(name).type) for name in columns}
    numbers = [name for name, width in widths.items() if width]
    size = rows * sum(widths.values())
    return numbers if POLARS_LEAST_BYTES <= size <= POLARS_MOST_BYTES else []


def _polars_width(dtype: pa.DataType) -> int:
    """The bytes of a value of a type that Polars decodes faster than PyArrow does, or 0; decimals five times."""
    return 16 if pa.types.is_decimal128(dtype) else fixed_width(dtype)


def polars_batches(
    file: DataFile, first: int, rows: int, types: Mapping[str, pa.DataType], size: int
) -> Generator[pa.RecordBatch]:
    """Yield the columns of `types`, as these types, from row `first` on, in batches of about `size` rows."""
    # Exact names: pl.col would take a column called "^x.*$" for a pattern.
    query = (
        pl.scan_parquet(file.path, glob=False, hive_partitioning=False).slice(first, rows).select(cs.by_name(*types))
    )
    stream = query.collect_batches(chunk_size=size, maintain_order=True, lazy=True)
    with closing(pa.RecordBatchReader.from_stream(stream)) as reader:
        for batch in reader:
            yield conformed(batch, types)


def arrow_batches(
    file: DataFile, groups: Sequence[int], types: Mapping[str, pa.DataType], size: int, *, verify_checksums: bool
) -> Generator[pa.RecordBatch]:
    """Yield the columns of `types`, as these types, from the row groups named; strings may come as codes."""
    options: dict[str, Any] = {
        "buffer_size": max(64 << 10, min(BUFFER_BYTES, BUFFERS_BYTES // len(types))),
        "pre_buffer": False,
        "page_checksum_verification": verify_checksums,
    }
    with file.open() as stream:
        metadata = pq.read_metadata(stream)
        with pq.ParquetFile(
            stream, metadata=metadata, read_dictionary=_coded(metadata, groups, set(types)), **options
        ) as parquet:
            for batch in parquet.iter_batches(size, groups, columns=list(types), use_threads=False):
                yield conformed(batch, types)


def _coded(metadata: pq.FileMetaData, groups: Sequence[int], names: set[str]) -> list[str]:
    """The byte-array columns of `names` that the file holds as codes."""
    schema = metadata.schema.to_arrow_schema()
    wanted = {field.name for field in schema if field.name in names and is_bytes(field.type)}
    group = next((metadata.row_group(i) for i in groups if metadata.row_group(i).num_rows), None)
    if group is None or not wanted:
        return []
    chunks = [group.column(i) for i in range(group.num_columns)]
    return [
        chunk.path_in_schema
        for chunk in chunks
        if chunk.path_in_schema in wanted
        and chunk.has_dictionary_page
        and chunk.total_uncompressed_size <= CODED_BYTES_PER_ROW * group.num_rows
    ]
