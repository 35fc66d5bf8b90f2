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
from streamnb.sources.batching import recut
from streamnb.sources.files import DataFile
from streamnb.sources.readers import BUFFER_BYTES
from streamnb.sources.stream import check_names

__all__ = ["DatasetSource", "FragmentShard", "parquet_files"]


@dataclass(frozen=True)
class FragmentShard:
    """One fragment of a dataset, mostly one file."""

    fragment: Any
    schema: pa.Schema
    filter: Any = None
    size: int = 0
    id: str = ""
    rows: None = None

    def place(self, row: int) -> str:
        """Say where a row stands, counted after the dataset's filter."""
        return f"{getattr(self.fragment, 'path', '') or 'fragment'}, row {row}"

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield these columns in batches of `BATCH_ROWS` rows.

        Raises:
            SourceError: a file that cannot be read.
        """
        with closing(recut(self._scanned(columns))) as batches:
            while True:
                try:
                    batch = next(batches, None)
                except (pa.ArrowException, OSError) as error:
                    raise SourceError(f"Expected a readable file, got {error} - {self.place(0)}") from error
                if batch is None:
                    return
                yield batch

    def _scanned(self, columns: Sequence[str]) -> Generator[pa.RecordBatch]:
        options: dict[str, Any] = {}
        if isinstance(self.fragment, ds.ParquetFileFragment):
            options["fragment_scan_options"] = ds.ParquetFragmentScanOptions(
                pre_buffer=False, use_buffered_stream=True, buffer_size=BUFFER_BYTES
            )
        yield from self.fragment.to_batches(
            schema=self.schema,
            columns=list(columns),
            filter=self.filter,
            batch_size=BATCH_ROWS,
            batch_readahead=1,
            use_threads=False,
            **options,
        )


class DatasetSource:
    """A dataset as it stands: its own types, partition columns and filter."""

    def __init__(self, dataset: ds.Dataset) -> None:
        self.skipped: list[tuple[str, str]] = []
        self.schema: pa.Schema = dataset.schema
        self._filter = _filter_of(dataset)
        self._dataset = dataset

    def check(self, columns: Sequence[str]) -> None:
        """Check that the dataset has each of these columns once."""
        check_names(columns, self.schema.names, "PyArrow dataset")

    def shards(self) -> Iterator[FragmentShard]:
        """Yield one shard for each fragment, in the order of the dataset."""
        for fragment in self._dataset.get_fragments():
            yield FragmentShard(fragment, self.schema, self._filter, _size(fragment))


def parquet_files(dataset: ds.Dataset) -> list[DataFile] | None:
    """Return the dataset's files if they are whole Parquet files without partitions or a filter, else None."""
    if not isinstance(dataset, ds.FileSystemDataset) or _filter_of(dataset) is not None:
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


def _filter_of(dataset: ds.Dataset) -> Any:
    return getattr(dataset, "_scan_options", {}).get("filter")


def _size(fragment: Any) -> int:
    path, filesystem = getattr(fragment, "path", None), getattr(fragment, "filesystem", None)
    return int(filesystem.get_file_info(path).size or 0) if path and filesystem is not None else 0
