"""From whatever a person has to a source: the one place that asks what kind of thing it was given."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Protocol

import polars as pl
import pyarrow as pa

from streamnb.errors import SchemaError, SourceError
from streamnb.protocols import BATCH_ROWS, Shard
from streamnb.sources.files import discover
from streamnb.sources.parquet import ParquetSource
from streamnb.sources.stream import FrameSource, StreamSource, lazy_source
from streamnb.sources.types import canonical, conform, widen

__all__ = ["ChainedSource", "OpenSource", "open_source"]


class OpenSource(Protocol):
    """What `open_source` returns: a `Source` whose columns can be checked before a row is read."""

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """The files left out with on_error="skip", each with the reason; `check` may add to it."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that are there throughout, with types that hold all their values."""

    def check(self, columns: Sequence[str]) -> None:
        """Raise `SchemaError` unless each column is there, once, with types that go together."""

    def shards(self) -> Iterator[Shard]:
        """Cut the source, by the data alone."""


def open_source(
    source: Any,
    *,
    on_error: Literal["raise", "skip"] = "raise",
    reader: Literal["auto", "arrow"] = "auto",
    verify_checksums: bool = False,
    hive_numeric: frozenset[str] = frozenset(),
    filesystem: Any = None,
) -> OpenSource:
    """Open a path, glob, folder, URI, PyArrow dataset, Polars or pandas frame, Arrow stream, or a list of these.

    - `on_error`: "skip" leaves damaged files out and lists them in `skipped`.
    - `reader`: "arrow" reads Parquet with PyArrow alone; the values are the same.
    - `verify_checksums`: check the page checksums of Parquet files that have them (implies PyArrow).
    - `hive_numeric`: the `key=value` folders whose values are numbers; all others are strings.
    - `filesystem`: the `pyarrow.fs.FileSystem` in which paths are looked up.

    Raises:
        SourceError: nothing there, or a file that is damaged or of another format.

    >>> source = open_source(pa.table({"x": [1, 2, 3]}))
    >>> [batch.num_rows for shard in source.shards() for batch in shard.batches(["x"])]
    [3]
    """
    options: dict[str, Any] = {
        "on_error": on_error,
        "reader": reader,
        "verify_checksums": verify_checksums,
        "hive_numeric": frozenset(hive_numeric),
    }
    if isinstance(source, str | os.PathLike):
        return ParquetSource(discover(source, filesystem), **options)
    if isinstance(source, list | tuple):
        if not source:
            raise SourceError("Expected files or tables, got an empty list")
        if all(isinstance(item, str | os.PathLike) for item in source):
            return ParquetSource([file for item in source for file in discover(item, filesystem)], **options)
        return ChainedSource([open_source(item, **options, filesystem=filesystem) for item in source])
    return _open_rows(source, options)


def _open_rows(source: Any, options: dict[str, Any]) -> OpenSource:
    kind = f"{type(source).__module__.partition('.')[0].lstrip('_')} {type(source).__name__}"
    if isinstance(source, pl.LazyFrame):
        return lazy_source(source)
    if isinstance(source, pl.DataFrame | pa.Table):
        return FrameSource(source)
    if isinstance(source, pa.RecordBatch):
        return FrameSource(pa.Table.from_batches([source]))
    # pyarrow.dataset brings pandas, which takes half a second: it is not imported to look for what cannot be there.
    if "pyarrow._dataset" in sys.modules and isinstance(source, sys.modules["pyarrow._dataset"].Dataset):
        return _open_dataset(source, options)
    if kind == "pandas DataFrame":
        try:
            return FrameSource(pa.Table.from_pandas(source))
        except (pa.ArrowException, ValueError, TypeError) as error:
            # Columns of equal names, or of mixed objects that have no Arrow type.
            raise SchemaError(f"Expected columns that have Arrow types, got a {kind}: {error}") from None
    if isinstance(source, pa.RecordBatchReader):
        return StreamSource(lambda _: source, again=False, kind=kind)
    if hasattr(source, "__arrow_c_stream__"):
        # A DuckDB relation is a query, and runs again; of other streams nothing is known.
        again = kind == "duckdb DuckDBPyRelation"
        return StreamSource(lambda _: pa.RecordBatchReader.from_stream(source), again=again, kind=kind)
    if hasattr(source, "__arrow_c_array__"):
        return FrameSource(pa.Table.from_batches([pa.record_batch(source)]))
    raise SourceError(
        "Expected a path, glob, folder, URI, dataset, LazyFrame, frame or anything else with an Arrow stream, "
        f"got {type(source).__module__}.{type(source).__qualname__}"
    )


def _open_dataset(dataset: Any, options: dict[str, Any]) -> OpenSource:
    from streamnb.sources.dataset import dataset_source, parquet_files

    files = parquet_files(dataset)
    if not files:
        return dataset_source(dataset)
    source = ParquetSource(files, **options)
    # A dataset that was given a schema of its own is read with it; else the files' own widened types are as good.
    types = {field.name: field.type for field in source.schema} if not source.skipped else {}
    same = all(canonical(field.type) == types.get(field.name) for field in dataset.schema)
    return source if same else dataset_source(dataset)


@dataclass(frozen=True)
class ChainedShard:
    """A shard of one source among several, its columns cast to the types that hold for all of them."""

    shard: Shard
    types: dict[str, pa.DataType]

    @property
    def id(self) -> str:
        """The shard's own id."""
        return self.shard.id

    @property
    def rows(self) -> int | None:
        """The shard's own number of rows."""
        return self.shard.rows

    @property
    def size(self) -> int:
        """The shard's own size."""
        return self.shard.size

    def place(self, row: int) -> str:
        """Say where a row stands in the shard's own source."""
        return self.shard.place(row)

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the shard's batches, cast."""
        for batch in self.shard.batches(columns, rows):
            arrays = []
            for name, array in zip(columns, batch.columns, strict=True):
                try:
                    arrays.append(conform(array, self.types[name]) if name in self.types else array)
                except pa.ArrowException as error:
                    raise SchemaError(f"Expected {self.types[name]}, got {error} - column {name!r}") from None
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


class ChainedSource:
    """Several sources one after the other, their columns matched by name."""

    def __init__(self, sources: Sequence[OpenSource]) -> None:
        self._sources = sources

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """What each of the sources left out."""
        return list(chain.from_iterable(source.skipped for source in self._sources))

    @property
    def schema(self) -> pa.Schema:
        """The columns that every source has, widened.

        Raises:
            SchemaError: a column whose types have nothing in common.
        """
        schemas = [source.schema for source in self._sources]
        shared = [name for name in dict.fromkeys(schemas[0].names) if all(name in s.names for s in schemas)]
        return pa.schema([(name, self._type_of(name, schemas)) for name in shared])

    @property
    def partial(self) -> dict[str, str]:
        """The columns that only some sources have, or some files of one, each with the first that lacks it."""
        found: dict[str, str] = {}
        for source in self._sources:
            found |= getattr(source, "partial", {}) | found
        names = [source.schema.names for source in self._sources]
        for name in dict.fromkeys(chain.from_iterable(names)):
            position = next((i for i, there in enumerate(names) if name not in there), None)
            if position is not None:
                found.setdefault(name, f"source {position}")
        return found

    def check(self, columns: Sequence[str]) -> None:
        """Check each source, and the types of all of them together."""
        for position, source in enumerate(self._sources):
            try:
                source.check(columns)
            except SchemaError as error:
                raise SchemaError(f"{error} (source {position})") from None
        for name in columns:
            self._type_of(name, [source.schema for source in self._sources])

    def shards(self) -> Iterator[ChainedShard]:
        """Yield the shards of the first source, then those of the second, and so on."""
        types = {field.name: field.type for field in self.schema}
        for source in self._sources:
            for shard in source.shards():
                yield ChainedShard(shard, types)

    def _type_of(self, name: str, schemas: Sequence[pa.Schema]) -> pa.DataType:
        total = pa.null()
        for position, schema in enumerate(schemas):
            dtype = schema.field(schema.names.index(name)).type
            wider = widen(total, dtype)
            if wider is None:
                raise SchemaError(
                    f"Expected types of column {name!r} that go together, "
                    f"got {total} before and {dtype} in source {position}"
                )
            total = wider
        return total
