"""PyArrow datasets, read fragment by fragment: the scanner over all of them reads ahead without bound."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from streamnb.errors import SourceError
from streamnb.protocols import BATCH_ROWS
from streamnb.sources.batching import conformed, recut
from streamnb.sources.files import DataFile
from streamnb.sources.readers import BUFFER_BYTES
from streamnb.sources.stream import StreamSource, check_names
from streamnb.sources.types import canonical, canonical_schema

__all__ = ["DatasetSource", "FragmentShard", "dataset_source", "parquet_files"]


@dataclass(frozen=True)
class FragmentShard:
    """One fragment of a dataset, mostly one file."""

    fragment: Any
    schema: pa.Schema
    size: int = 0
    id: str = ""
    rows: None = None

    def place(self, row: int) -> str:
        """Say where a row stands in the fragment."""
        return f"{getattr(self.fragment, 'path', '') or 'fragment'}, row {row}"

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield these columns in batches of `rows` rows.

        Raises:
            SourceError: a file that cannot be read.
        """
        with closing(recut(self._scanned(columns, rows), rows)) as batches:
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    raise SourceError(f"Expected a readable file, got {error} - {self.place(0)}") from error
                if batch is None:
                    return
                yield batch

    def _scanned(self, columns: Sequence[str], rows: int) -> Generator[pa.RecordBatch]:
        types = {name: canonical(self.schema.field(name).type) for name in columns}
        batches = self.fragment.to_batches(
            schema=self.schema,
            columns=list(columns),
            batch_size=rows,
            batch_readahead=1,
            use_threads=False,
            fragment_scan_options=_unbuffered() if _is_parquet(self.fragment) else None,
        )
        for batch in batches:
            yield conformed(batch, types)


class DatasetSource:
    """A dataset as it stands, with its own types and partition columns."""

    def __init__(self, dataset: ds.Dataset) -> None:
        self.skipped: list[tuple[str, str]] = []
        self.schema = canonical_schema(dataset.schema)
        self._dataset = dataset

    def check(self, columns: Sequence[str]) -> None:
        """Check that the dataset has each of these columns once."""
        check_names(columns, self.schema.names, "PyArrow dataset")

    def shards(self) -> Iterator[FragmentShard]:
        """Yield one shard for each fragment, in the order of the dataset."""
        for fragment in self._dataset.get_fragments():
            yield FragmentShard(fragment, self._dataset.schema, _size(fragment))


def dataset_source(dataset: ds.Dataset) -> DatasetSource | StreamSource:
    """Return the dataset as a source of fragments, or as one stream if it has a filter."""
    if not _is_filtered(dataset):
        return DatasetSource(dataset)
    return StreamSource(
        lambda columns: _scanned_in_order(dataset, columns),
        schema=lambda: dataset.schema,
        again=True,
        kind="PyArrow dataset with a filter",
    )


def parquet_files(dataset: ds.Dataset) -> list[DataFile] | None:
    """Return the dataset's files if they are whole Parquet files without partitions or a filter, else None."""
    if _is_filtered(dataset) or not isinstance(dataset, ds.FileSystemDataset):
        return None
    files = []
    for fragment in dataset.get_fragments():
        # A fragment may stand for some of a file's row groups, or carry values from its path in types of its own.
        if not isinstance(fragment, ds.ParquetFileFragment) or ds.get_partition_keys(fragment.partition_expression):
            return None
        if fragment.filesystem is None or fragment.num_row_groups != fragment.metadata.num_row_groups:
            return None
        info = fragment.filesystem.get_file_info(fragment.path)
        local = isinstance(fragment.filesystem, fs.LocalFileSystem)
        files.append(
            DataFile(info.path, info.base_name, info.size, info.mtime_ns, (), None if local else fragment.filesystem)
        )
    return files


def _is_filtered(dataset: ds.Dataset) -> bool:
    return bool(getattr(dataset, "_scan_options", {}))


def _scanned_in_order(dataset: ds.Dataset, columns: Sequence[str]) -> pa.RecordBatchReader:
    # A filtered dataset does not give its fragments away. Without threads its scanner does not run ahead either.
    scanner = dataset.scanner(
        columns=list(columns),
        batch_size=BATCH_ROWS,
        batch_readahead=1,
        fragment_readahead=1,
        use_threads=False,
        fragment_scan_options=_unbuffered() if _is_parquet(dataset) else None,
    )
    return scanner.to_reader()


def _is_parquet(data: Any) -> bool:
    return isinstance(getattr(data, "format", None), ds.ParquetFileFormat)


def _unbuffered() -> ds.ParquetFragmentScanOptions:
    return ds.ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True, buffer_size=BUFFER_BYTES)


def _size(fragment: Any) -> int:
    path, filesystem = getattr(fragment, "path", None), getattr(fragment, "filesystem", None)
    return int(filesystem.get_file_info(path).size or 0) if path and filesystem is not None else 0
