"""Small Parquet files, and what is read of them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def read(source, columns) -> pa.Table:
    """All rows of a source as one table, plain strings for codes."""
    batches = [batch for shard in source.shards() for batch in shard.batches(columns)]
    if not batches:
        return pa.table({name: [] for name in columns})
    tables = [pa.table({name: plain(batch.column(name)) for name in columns}) for batch in batches]
    return pa.concat_tables(tables)


def plain(array: pa.Array) -> pa.Array:
    """The values themselves, where a reader gave codes."""
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def write(path: Path, columns, **options) -> Path:
    """Write one Parquet file and return its path."""
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return path


def numbers(rows: int) -> pa.Table:
    """A label, two numbers and a string, some of them missing."""
    random = np.random.default_rng(7)
    return pa.table(
        {
            "y": pa.array(random.choice(["aa", "b", "ccc"], rows)),
            "x": random.normal(size=rows),
            "n": pa.array(random.integers(0, 99, rows).astype(np.int16), mask=random.random(rows) < 0.1),
            "s": pa.array([None if i % 7 == 0 else f"s{i % 50}" for i in range(rows)]),
        }
    )


def values(source, column="x") -> list:
    """One column of all rows; the source is asked to check it first, as training does."""
    source.check([column])
    return read(source, [column])[column].to_pylist()


def part(path: Path, x=(1, 2, 3), **columns) -> Path:
    """Write a file with a column x, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write(path, {"x": list(x), **columns})
