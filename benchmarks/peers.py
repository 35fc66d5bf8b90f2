"""What streamnb is measured against. Each function does its whole task from the files, unless it says otherwise.

A peer is imported where it is used: where memory is measured, a process holds the one that it runs and no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.data import LABEL, Table

__all__ = [
    "arrow_decode",
    "duckdb_counts",
    "duckdb_moments",
    "polars_counts",
    "polars_moments",
    "polars_sum",
    "polars_sum_and_bytes",
    "river_learn",
    "river_one_row",
    "sklearn_fit",
    "sklearn_matrix",
    "sklearn_predict",
]

SKLEARN_ROWS = 65_536
ARROW_BUFFER = 1 << 20


def polars_sum(table: Table) -> pl.DataFrame:
    """Add up every numeric column: reading, and the least that can be done with what is read."""
    return _scan(table).select(pl.col(table.numeric).sum()).collect(engine="streaming")


def polars_sum_and_bytes(table: Table) -> pl.DataFrame:
    """Add up every numeric column, and the byte lengths of every string column."""
    sums = [pl.col(table.numeric).sum(), pl.col(table.categorical).str.len_bytes().sum()]
    return _scan(table).select(sums).collect(engine="streaming")


def polars_moments(table: Table) -> pl.DataFrame:
    """Mean and variance of every numeric column per class, in one query."""
    means = [pl.col(table.numeric).mean().name.suffix("_mean"), pl.col(table.numeric).var(ddof=0).name.suffix("_var")]
    return _scan(table).group_by(LABEL).agg(means).collect(engine="streaming")


def polars_counts(table: Table) -> list[pl.DataFrame]:
    """Count the values of each string column per class: a query for each column."""
    queries = [_scan(table).group_by(LABEL, name).len() for name in table.categorical]
    return [query.collect(engine="streaming") for query in queries]


def duckdb_moments(table: Table) -> list[Any]:
    """Mean and variance of every numeric column per class, in one query."""
    columns = ", ".join(f"avg({name}), var_pop({name})" for name in table.numeric)
    return _query(f"SELECT {LABEL}, {columns} FROM {_files(table)} GROUP BY {LABEL}")


def duckdb_counts(table: Table) -> list[Any]:
    """Count the values of each string column per class: a query for each column."""
    return [
        _query(f"SELECT {LABEL}, {name}, count(*) FROM {_files(table)} GROUP BY {LABEL}, {name}")
        for name in table.categorical
    ]


def arrow_decode(table: Table) -> int:
    """Decode the numeric columns and the label in one thread, and nothing more."""
    return sum(batch.num_rows for batch in _arrow_batches(table))


def sklearn_fit(table: Table) -> Any:
    """Learn batch by batch, as scikit-learn can from a table that is larger than memory."""
    from sklearn.naive_bayes import GaussianNB

    model = GaussianNB()
    classes = np.unique(pq.read_table(table.paths[0], columns=[LABEL])[LABEL])
    for batch in _arrow_batches(table):
        labels = np.asarray(batch.column(LABEL))
        model.partial_fit(sklearn_matrix(batch.select(table.numeric)), labels, classes=classes)
    return model


def sklearn_matrix(rows: pa.RecordBatch | pa.Table) -> Any:
    """Return rows as the matrix that scikit-learn wants."""
    return np.column_stack(rows.columns)


def sklearn_predict(model: Any, matrix: Any) -> None:
    """Predict some thousands of rows at a time, which suits scikit-learn better than all at once."""
    for first in range(0, len(matrix), SKLEARN_ROWS):
        model.predict(matrix[first : first + SKLEARN_ROWS])


def river_learn(rows: Sequence[dict[str, float]], labels: Sequence[Any]) -> Any:
    """Learn rows that are in memory as dictionaries, one by one."""
    from river.naive_bayes import GaussianNB

    model = GaussianNB()
    for row, label in zip(rows, labels, strict=True):
        model.learn_one(row, label)
    return model


def river_one_row(model: Any, row: dict[str, float], times: int) -> None:
    """Predict a single row, over and over."""
    for _ in range(times):
        model.predict_one(row)


def _scan(table: Table) -> pl.LazyFrame:
    return pl.scan_parquet(list(table.paths))


def _files(table: Table) -> str:
    return f"read_parquet({list(table.paths)})"


def _query(text: str) -> list[Any]:
    import duckdb

    with duckdb.connect() as connection:
        return connection.sql(text).fetchall()


def _arrow_batches(table: Table) -> Iterator[Any]:
    for path in table.paths:
        with pq.ParquetFile(path, buffer_size=ARROW_BUFFER) as file:
            yield from file.iter_batches(SKLEARN_ROWS, columns=[LABEL, *table.numeric])
