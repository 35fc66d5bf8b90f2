"""The tables that are raced over: seeded, made once, and kept in one folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["Table", "Tables", "mixed_batch", "numeric_batch"]

FILES = 4
GROUP_ROWS = 250_000
LABEL = "label"
OUTCOMES = np.array(["approved", "declined", "disputed", "fraud", "refunded", "reversed"])
OUTCOME_SHARES = [0.62, 0.2, 0.08, 0.02, 0.05, 0.03]
CATEGORIES = {"channel": 5, "country": 40, "device": 300, "product": 2_500, "merchant": 20_000}
CENTS = {"amount": 60.0, "shipping": 5.0, "tax": 9.0, "discount": 3.0}
DECIMALS = {"balance": 900.0, "limit": 4_000.0}
SMALL = {"quantity": (1, 12, "int8"), "hour": (0, 24, "int8"), "age": (18, 95, "int16"), "visits": (0, 900, "int32")}

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Table:
    """Parquet files with a label, and the names of the columns to learn from."""

    paths: tuple[str, ...]
    rows: int
    numeric: tuple[str, ...]
    categorical: tuple[str, ...] = ()

    @property
    def values(self) -> int:
        """The number of feature cells."""
        return self.rows * (len(self.numeric) + len(self.categorical))

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(Path(path).stat().st_size for path in self.paths)


def numeric_batch(seed: list[int], rows: int, features: int, classes: int, dtype: str) -> pa.RecordBatch:
    """Normal columns whose mean depends on the class; the label is int32."""
    means = np.random.default_rng(classes).normal(0, 2, (features, classes))
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, classes, rows, dtype=np.int32)
    columns: dict[str, Any] = {LABEL: codes}
    for j in range(features):
        columns[f"x{j}"] = (rng.standard_normal(rows) + means[j, codes]).astype(dtype)
    return pa.record_batch(columns)


def mixed_batch(seed: list[int], rows: int) -> pa.RecordBatch:
    """Make a table as shops have them: skewed strings, prices in cents, decimals, small integers, 3 to 5 % nulls."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(len(OUTCOMES), rows, p=OUTCOME_SHARES)
    columns: dict[str, pa.Array] = {LABEL: pa.array(OUTCOMES).take(pa.array(codes))}

    def holes() -> Any:
        return rng.random(rows) < rng.uniform(0.03, 0.05)

    for name, size in CATEGORIES.items():
        shares = 1 / np.arange(1, size + 1) ** 1.1
        # Each class prefers other values, all classes share the skew.
        drawn = (rng.choice(size, rows, p=shares / shares.sum()) + codes) % size
        columns[name] = pa.array([f"{name}-{i}" for i in range(size)]).take(pa.array(drawn, mask=holes()))
    for name, scale in CENTS.items():
        columns[name] = pa.array(np.round(rng.gamma(2.0, scale / 2 * (1 + codes / 5)), 2), mask=holes())
    for name, scale in DECIMALS.items():
        cents = np.round(rng.normal(scale, scale, rows) * 100).astype(np.int64)
        columns[name] = _decimals(cents, holes())
    for name, (low, high, dtype) in SMALL.items():
        columns[name] = pa.array(rng.integers(low, high, rows).astype(dtype), mask=holes())
    return pa.record_batch(columns)


def _decimals(cents: Any, mask: Any) -> pa.Array:
    """Return decimal128(12, 2): each value is its cents as a 16-byte integer, the upper half repeating the sign."""
    whole = np.stack([cents, cents >> 63], axis=1)
    validity = np.packbits(~mask, bitorder="little")
    return pa.Array.from_buffers(pa.decimal128(12, 2), len(cents), [pa.py_buffer(validity), pa.py_buffer(whole)])


class Tables:
    """A folder of tables; each is made when it is first asked for, whole or not at all."""

    def __init__(self, folder: Path, factor: float) -> None:
        self.folder = folder
        self.factor = factor

    def rows(self, at_full_size: int) -> int:
        """Return so many rows at the size that was asked for; even the smallest has a few of every class."""
        return max(800, round(at_full_size * self.factor))

    def numeric(self, *, classes: int = 10, features: int = 20, dtype: str = "float64") -> Table:
        """Return table (a), or its like with other classes, columns or numbers; as many values in each."""
        rows = self.rows(8_000_000 * 20 // features)
        names = tuple(f"x{j}" for j in range(features))
        # A wide table has fewer rows in a group: writers aim at about 128 MB.
        group = GROUP_ROWS if features <= 100 else 16_000_000 // features

        def batch(seed: list[int], n: int) -> pa.RecordBatch:
            return numeric_batch(seed, n, features, classes, dtype)

        return self._made(f"numeric-{rows}x{features}-{classes}-{dtype}", rows, batch, group, "snappy", names)

    def mixed(self) -> Table:
        """Return table (b), the realistic one."""
        rows = self.rows(4_000_000)
        numbers = (*CENTS, *DECIMALS, *SMALL)
        table = self._made(f"mixed-{rows}", rows, mixed_batch, GROUP_ROWS, "zstd", numbers)
        return replace(table, categorical=tuple(CATEGORIES))

    def linked(self, table: Table, copies: int) -> Table:
        """Return a table so many times as long: hard links cost no disk, and each name is a file of its own."""
        folder = Path(table.paths[0]).parent
        target = self.folder / f"{folder.name}-links-{copies}"
        target.mkdir(exist_ok=True)
        paths = []
        for copy in range(copies):
            for path in map(Path, table.paths):
                link = target / f"{copy:03d}-{path.name}"
                if not link.exists():
                    link.hardlink_to(path)
                paths.append(str(link))
        return replace(table, paths=tuple(paths), rows=table.rows * copies)

    def regrouped(self, table: Table, group_rows: int, copies: int = 1) -> Table:
        """Return the table in one file, so many times over, with row groups of so many rows."""
        source = Path(table.paths[0]).parent.name
        path = self.folder / f"{source}-one-file-{group_rows}x{copies}.parquet"
        if not path.exists():
            self._require_disk(table.size * copies)
            part = path.with_suffix(".part")
            with pq.ParquetWriter(part, pq.read_schema(table.paths[0])) as writer:
                for _ in range(copies):
                    pieces: list[pa.Table] = []
                    for name in table.paths:
                        pieces.append(pq.read_table(name))
                        if sum(piece.num_rows for piece in pieces) >= group_rows:
                            writer.write_table(pa.concat_tables(pieces), row_group_size=group_rows)
                            pieces = []
                    if pieces:
                        writer.write_table(pa.concat_tables(pieces), row_group_size=group_rows)
            part.rename(path)
        return replace(table, paths=(str(path),), rows=table.rows * copies)

    def _made(
        self,
        name: str,
        rows: int,
        batch: Callable[[list[int], int], pa.RecordBatch],
        group_rows: int,
        compression: str,
        numeric: tuple[str, ...],
    ) -> Table:
        folder = self.folder / name
        if not folder.exists():
            self._require_disk(rows * len(numeric) * 9)
            part = self.folder / f"{name}.part-{os.getpid()}"
            part.mkdir(parents=True)
            for i in range(FILES):
                left = rows * (i + 1) // FILES - rows * i // FILES
                schema = batch([i, 0], 1).schema
                with pq.ParquetWriter(part / f"part-{i}.parquet", schema, compression=compression) as writer:
                    for group in range(-(-left // group_rows)):
                        writer.write_batch(batch([i, group], min(group_rows, left - group * group_rows)))
            part.rename(folder)
        return Table(tuple(str(folder / f"part-{i}.parquet") for i in range(FILES)), rows, numeric)

    def _require_disk(self, size: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < size + (1 << 30):
            raise OSError(
                f"Expected {size / 1e9:.1f} GB and one to spare in {self.folder}, got {free / 1e9:.1f} GB free"
            )
