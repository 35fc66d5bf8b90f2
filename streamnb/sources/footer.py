"""What a Parquet file says of itself, read before any row is counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import pyarrow as pa
import pyarrow.parquet as pq

from streamnb.errors import SourceError
from streamnb.sources.files import DataFile

__all__ = ["Footer", "Group", "cut", "read_footer"]

SHARD_ROWS = 1_000_000
SHARD_BYTES = 48 << 20
"""Row groups are put together into shards up to these sizes (bytes: encoded, before compression)."""

LEAST_ROWS = 8_192
"""A shard of very wide rows takes this many rows all the same: opening a file has a cost of its own."""

_TAIL = 64 << 10
_MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class Group:
    """One row group: its rows, and its bytes before compression."""

    rows: int
    size: int


@dataclass(frozen=True, slots=True)
class Footer:
    """The row groups and the columns of one file; `fingerprint` changes with the size or any byte of the footer."""

    groups: tuple[Group, ...]
    schema: pa.Schema
    fingerprint: str


def read_footer(file: DataFile) -> Footer:
    """Read the end of one Parquet file.

    Raises:
        SourceError: an empty, cut, damaged or encrypted file, or one that is not Parquet.
    """
    try:
        with file.open() as stream:
            size = stream.size()
            tail = stream.read_at(min(size, _TAIL), size - min(size, _TAIL))
            length = _footer_length(tail, size, file)
            if length + 8 > len(tail):
                tail = stream.read_at(length + 8, size - length - 8)
        tail = tail[-length - 8 :]
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + tail))
        schema = metadata.schema.to_arrow_schema().remove_metadata()
        groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
        sizes = tuple(Group(group.num_rows, group.total_byte_size) for group in groups)
    except SourceError:
        raise
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise SourceError(f"Expected a Parquet file, got a damaged one: {_first_line(error)} - {file.name}") from error
    if any(group.rows < 0 for group in sizes) or sum(group.rows for group in sizes) != metadata.num_rows:
        raise SourceError(f"Expected a Parquet file, got a damaged one: its row counts disagree - {file.name}")
    fingerprint = blake2b(size.to_bytes(8, "little") + tail, digest_size=16).hexdigest()
    return Footer(sizes, schema, fingerprint)


def _footer_length(tail: bytes, size: int, file: DataFile) -> int:
    if size == 0:
        raise SourceError(f"Expected a Parquet file, got an empty one: its size is 0 bytes - {file.name}")
    if tail[-4:] == b"PARE":
        raise SourceError(f"Expected a readable Parquet file, got an encrypted one - {file.name}")
    if size < 12 or tail[-4:] != _MAGIC:
        raise SourceError(
            f"Expected a Parquet file, got one without a footer: cut short, damaged or of another format - {file.name}"
        )
    length = int.from_bytes(tail[-8:-4], "little")
    if length + 12 > size:
        raise SourceError(f"Expected a Parquet file, got a damaged one: no room for its footer - {file.name}")
    return length


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def cut(groups: Sequence[Group]) -> Iterator[range]:
    """Yield the runs of row groups that become shards; a function of the file alone.

    >>> list(cut([Group(600_000, 1), Group(300_000, 1), Group(200_000, 1), Group(0, 0)]))
    [range(0, 2), range(2, 4)]
    """
    first = rows = size = 0
    for i, group in enumerate(groups):
        full = rows + group.rows > SHARD_ROWS or (size + group.size > SHARD_BYTES and rows >= LEAST_ROWS)
        if rows and group.rows and full:
            yield range(first, i)
            first, rows, size = i, 0, 0
        rows += group.rows
        size += group.size
    if rows:
        yield range(first, len(groups))
