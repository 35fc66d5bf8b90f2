"""What streamnb does in the races, as functions that pickle: some of them run in a process of their own."""

from __future__ import annotations

import tempfile
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import streamnb as snb
from benchmarks.data import LABEL, Table, numeric_batch
from streamnb.engines import get_engine
from streamnb.kernels import implementation
from streamnb.protocols import BATCH_ROWS, Shard
from streamnb.sources import open_source

__all__ = ["count_in_memory", "fit", "has_jit", "merge_all", "one_row", "predict", "read_only", "schema_of", "score"]


def has_jit() -> bool:
    """Whether the compiled kernels are the ones in use in this process."""
    return implementation().name == "numba"


def schema_of(table: Table, *, exact: bool = False) -> snb.Schema:
    """Return the schema that learns from every column."""
    return snb.Schema(label=LABEL, numeric=table.numeric, categorical=table.categorical, exact=exact)


def fit(table: Table, workers: int, *, exact: bool = False) -> snb.State:
    """Learn the whole table."""
    return snb.fit(list(table.paths), schema=schema_of(table, exact=exact), workers=workers, progress=False)


def read_only(table: Table, workers: int) -> None:
    """Read what `fit` reads, batch by batch, and count nothing."""
    task = partial(_drain, schema_of(table).columns)
    deque(get_engine("threads", workers).map(task, open_source(list(table.paths)).shards()), 0)


def _drain(columns: tuple[str, ...], shard: Shard) -> None:
    deque(shard.batches(columns, 2 * BATCH_ROWS), 0)


def count_in_memory(kind: str, rows: int) -> None:
    """Update a state with batches that are in memory already; kinds are "clean", "null", "nan" and "weight"."""
    schema = snb.Schema(
        label=LABEL, numeric=[f"x{j}" for j in range(20)], weight="weight" if kind == "weight" else None
    )
    state = snb.State(schema)
    for batch in _batches(kind, rows):
        state.update(batch)


@cache
def _batches(kind: str, rows: int) -> list[pa.RecordBatch]:
    whole = numeric_batch([1], rows, 20, 10, "float64")
    rng = np.random.default_rng(2)
    columns = {name: whole.column(name) for name in whole.schema.names}
    for name in whole.schema.names[1:]:
        holes = rng.random(rows) < 0.05
        if kind == "null":
            columns[name] = pa.array(np.asarray(columns[name]), mask=holes)
        elif kind == "nan":
            columns[name] = pa.array(np.where(holes, np.nan, columns[name]))
    columns["weight"] = pa.array(rng.uniform(0.5, 2.0, rows))
    batches: list[pa.RecordBatch] = pa.table(columns).to_batches(BATCH_ROWS)
    return batches


def predict(model: snb.Predictor, table: pa.Table, workers: int) -> None:
    """Predict every row of a table in memory, cut evenly over threads."""
    if workers == 1:
        model.predict(table)
        return
    step = -(-table.num_rows // workers)
    with ThreadPoolExecutor(workers) as pool:
        deque(pool.map(model.predict, [table.slice(i, step) for i in range(0, table.num_rows, step)]), 0)


def one_row(model: Any, row: Any, times: int) -> None:
    """Predict a single row, over and over; of any model."""
    for _ in range(times):
        model.predict(row)


def score(model: snb.Predictor, table: Table, workers: int) -> None:
    """Score the files of a table into a file."""
    with tempfile.TemporaryDirectory() as folder:
        snb.predict(model, list(table.paths), Path(folder) / "scored.parquet", workers=workers)


def merge_all(parts: list[snb.State], times: int) -> int:
    """Merge so many states, drawn in turn from those given, and return the number of rows in the total."""
    total = snb.State(parts[0].schema)
    for i in range(times):
        total.merge(parts[i % len(parts)])
    return total.n_rows
