"""Rows that are no files: frames in memory, lazy queries, streams that can be read once.

Their shards have the id "": they carry no identity, so a shard that is counted twice is not noticed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import polars as pl
import polars.selectors as cs
import pyarrow as pa

from streamnb.errors import SchemaError, SourceError, StreamNBError, near_misses
from streamnb.protocols import BATCH_ROWS
from streamnb.sources.batching import conformed, recut
from streamnb.sources.types import canonical_schema

__all__ = ["FrameShard", "FrameSource", "StreamShard", "StreamSource", "check_names", "lazy_source"]

SHARD_ROWS = 1_000_000
_END = "streamnb: end of the query"
_WITHOUT_ARROW = (pl.Int128, pl.UInt128)
"""Polars reads integers beyond 64 bits as these, of which Arrow knows nothing."""


def check_names(columns: Sequence[str], names: Sequence[str], where: str) -> None:
    """Check that each column is among the names exactly once.

    Raises:
        SchemaError: naming the column, its near misses and where.
    """
    there = Counter(names)  # one pass: tables may have ten thousand columns
    for name in columns:
        if there[name] > 1:
            raise SchemaError(f"Expected one column {name!r}, got {there[name]} - {where}")
        if name not in there:
            raise SchemaError(f"Expected a column {name!r}, got none{near_misses(name, names)} - {where}")


def _selected(reader: pa.RecordBatchReader, types: Mapping[str, pa.DataType]) -> Generator[pa.RecordBatch]:
    with closing(reader):
        for batch in reader:
            yield conformed(batch, types)


def _types(schema: pa.Schema, columns: Sequence[str]) -> dict[str, pa.DataType]:
    return {name: schema.field(name).type for name in columns}


@dataclass(frozen=True)
class FrameShard:
    """A slice of a table in memory."""

    frame: Any
    schema: pa.Schema
    first: int
    rows: int
    size: int
    id: str = ""

    def place(self, row: int) -> str:
        """Say where a row stands in the table."""
        return f"row {self.first + row} of the {_kind(self.frame)}"

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield these columns in batches of `rows` rows."""
        check_names(columns, self.schema.names, _kind(self.frame))
        piece = self.frame.slice(self.first, self.rows)
        if isinstance(piece, pl.DataFrame):
            # Slice and select first: only these rows and columns are turned into Arrow.
            reader = pa.RecordBatchReader.from_stream(piece.select(cs.by_name(*columns)))
        else:
            reader = piece.to_reader()
        yield from recut(_selected(reader, _types(self.schema, columns)), rows)


class FrameSource:
    """A pa.Table or a Polars DataFrame; any number of passes."""

    def __init__(self, frame: pa.Table | pl.DataFrame) -> None:
        self.frame = frame
        self.skipped: list[tuple[str, str]] = []
        self.schema = canonical_schema(frame.schema if isinstance(frame, pa.Table) else _schema_of(frame.clear()))

    def check(self, columns: Sequence[str]) -> None:
        """Check that the table has each of these columns once."""
        check_names(columns, self.schema.names, _kind(self.frame))

    def shards(self) -> Iterator[FrameShard]:
        """Cut the table every million rows."""
        rows = len(self.frame)
        size = self.frame.nbytes if isinstance(self.frame, pa.Table) else self.frame.estimated_size()
        for first in range(0, rows, SHARD_ROWS):
            count = min(SHARD_ROWS, rows - first)
            yield FrameShard(self.frame, self.schema, first, count, int(size) * count // rows)


@dataclass(frozen=True, eq=False)
class StreamShard:
    """All rows of a stream: they come in one order, so there is one shard."""

    source: StreamSource
    id: str = ""
    rows: None = None
    size: int = 0

    def place(self, row: int) -> str:
        """Say where a row stands in the stream."""
        return f"row {row} of the {self.source.kind}"

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield these columns in batches of `rows` rows, as the stream gives them.

        Raises:
            SourceError: a stream that was read before and gives its rows only once, or that fails on the way.
        """
        yield from self.source.batches(columns, rows)


class StreamSource:
    """A stream of record batches.

    `open_stream(columns)` starts a pass and gives at least these columns. `again` says whether there can be a second
    one: streams that cannot be read twice mostly end in silence, and a model of no rows would be the result.
    Without `schema` the first pass is opened to learn the columns, and kept.
    """

    def __init__(
        self,
        open_stream: Callable[[Sequence[str]], pa.RecordBatchReader],
        *,
        again: bool,
        kind: str,
        schema: Callable[[], pa.Schema] | None = None,
    ) -> None:
        self.kind = kind
        self.skipped: list[tuple[str, str]] = []
        self._open = open_stream
        self._again = again
        self._lock = Lock()
        self._first: pa.RecordBatchReader | None = None
        self._schema_of = schema
        self._schema: pa.Schema | None = None
        self._passes = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns of the stream; reading them takes no rows."""
        with self._lock:
            if self._schema is None:
                with self._errors():
                    if self._schema_of is not None:
                        self._schema = canonical_schema(self._schema_of())
                    else:
                        self._first = self._open(())
                        self._schema = canonical_schema(self._first.schema)
            return self._schema

    def check(self, columns: Sequence[str]) -> None:
        """Check that the stream has each of these columns once."""
        check_names(columns, self.schema.names, self.kind)

    def shards(self) -> Iterator[StreamShard]:
        """Yield the one shard; its rows are not touched before they are asked for."""
        yield StreamShard(self)

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Generator[pa.RecordBatch]:
        """Start a pass and yield its rows in order, in batches of `rows` rows."""
        self.check(columns)
        types = _types(self.schema, columns)
        with closing(recut(_selected(self._reader(columns), types), rows)) as batches:
            while True:
                with self._errors():
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch

    def _reader(self, columns: Sequence[str]) -> pa.RecordBatchReader:
        with self._lock:
            self._passes += 1
            if self._passes > 1 and not self._again:
                raise SourceError(
                    f"Expected a source for a second pass, got a {self.kind} that was read before; "
                    "give a path, a LazyFrame or a table instead, or a new stream for each pass"
                )
            if self._first is not None:
                reader, self._first = self._first, None
                return reader
            with self._errors():
                return self._open(columns)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except StreamNBError:
            raise
        except (pa.ArrowException, OSError, TypeError, pl.exceptions.PolarsError) as error:
            raise SourceError(f"Expected a stream of Arrow data, got a {self.kind} that fails: {error}") from error


def lazy_source(query: pl.LazyFrame) -> StreamSource:
    """A Polars query, run in batches and anew for each pass, with only the columns that are asked for."""
    return StreamSource(
        lambda columns: _collected(query, columns),
        schema=lambda: _schema_of(query.collect_schema().to_frame()),
        again=True,
        kind="Polars LazyFrame",
    )


def _collected(query: pl.LazyFrame, columns: Sequence[str]) -> pa.RecordBatchReader:
    query = query.select(cs.by_name(*columns))
    # A thread of Polars that panics ends the stream in silence. One row after the last tells the end from a loss.
    nulls = [pl.Series(name, [None], dtype) for name, dtype in query.collect_schema().items()]
    end = pl.LazyFrame([*nulls, pl.Series(_END, [True])])
    query = pl.concat([query.with_columns(pl.lit(False).alias(_END)), end])
    stream = query.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True, lazy=True)
    reader = pa.RecordBatchReader.from_stream(stream)
    schema = reader.schema.remove(len(columns))
    return pa.RecordBatchReader.from_batches(schema, _up_to_the_end(reader))


def _up_to_the_end(reader: pa.RecordBatchReader) -> Generator[pa.RecordBatch]:
    ended = False
    with closing(reader):
        for batch in reader:
            ended = bool(batch.num_rows) and bool(batch.column(_END)[-1].as_py())
            columns = batch.remove_column(batch.num_columns - 1)
            yield columns.slice(0, batch.num_rows - 1) if ended else columns
    if not ended:
        raise SourceError("Expected a Polars query that runs to its end, got one that stopped on the way")


def _schema_of(frame: pl.DataFrame) -> pa.Schema:
    for name, dtype in frame.schema.items():
        if dtype in _WITHOUT_ARROW:
            hint = f"cast it with pl.col({name!r}).cast(pl.Float64), or leave it out with .drop({name!r})"
            raise SchemaError(
                f"Expected a type that Arrow has, got {dtype} - column {name!r} of a Polars frame; {hint}"
            )
    return pa.RecordBatchReader.from_stream(frame).schema


def _kind(data: Any) -> str:
    return f"{type(data).__module__.partition('.')[0]} {type(data).__name__}"
