"""Scoring a stream of rows with a frozen model, to a file, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from streamnb.atomic import open_atomically
from streamnb.engines import get_engine
from streamnb.errors import DataError, SchemaError, SourceError
from streamnb.predictor import Predictor
from streamnb.progress import ProgressOption, reporting
from streamnb.protocols import Engine, Shard, Source
from streamnb.sources import open_source

__all__ = ["Piece", "pieces", "predict", "scored"]

PREDICTION = "prediction"
PROBABILITY = "proba_"


class Piece:
    """One batch of a shard, with what is needed to say where its rows stand."""

    __slots__ = ("batch", "first", "shard")

    def __init__(self, shard: Shard, first: int, batch: pa.RecordBatch) -> None:
        self.shard, self.first, self.batch = shard, first, batch

    def placed(self, error: DataError) -> DataError:
        """Return an error about this batch with the file and row of the file."""
        return DataError(error.problem, column=error.column).at(place=self.shard.place(self.first + (error.row or 0)))

    @property
    def size(self) -> int:
        """This batch's share of the shard's bytes, for progress."""
        rows = self.shard.rows
        return self.shard.size * self.batch.num_rows // rows if rows else 0


def pieces(source: Source, columns: Sequence[str]) -> Iterator[Piece]:
    """Yield the batches of a source in order, reading no further ahead than they are asked for."""
    for shard in source.shards():
        first = 0
        for batch in shard.batches(columns):
            yield Piece(shard, first, batch)
            first += batch.num_rows


def scored(model: Predictor, keep: Sequence[str], proba: bool, piece: Piece) -> tuple[pa.RecordBatch, int]:
    """Return the kept columns, the predictions and perhaps the probabilities of one batch, and its size in bytes."""
    try:
        # One pass over the likelihoods serves both: the label is the class of the highest probability.
        probabilities = model.predict_proba(piece.batch) if proba else None
        prediction = model.predict(piece.batch)
    except DataError as error:
        raise piece.placed(error) from None
    columns = {name: piece.batch.column(name) for name in keep} | {PREDICTION: prediction}
    if probabilities is not None:
        names = [f"{PROBABILITY}{label}" for label in model.classes.to_pylist()]
        columns |= {name: pa.array(probabilities[:, i]) for i, name in enumerate(names)}
    return pa.record_batch(columns), piece.size


def predict(
    model: Predictor,
    source: Any,
    output: str | Path,
    *,
    proba: bool = False,
    keep: Sequence[str] | Literal["all"] = (),
    workers: int | None = None,
    engine: str | Engine = "threads",
    progress: ProgressOption = None,
) -> int:
    """Score a source of any length into a Parquet file (CSV if the name says so); return the number of rows.

    The file holds the columns of `keep` ("all" keeps every one), `prediction`, and with `proba` one column
    `proba_<label>` per class. It appears whole or not at all.

    Raises:
        SchemaError: the source lacks a feature, or a kept column has the name of an output column.
        SourceError: the output is one of the inputs, or cannot be written.

    >>> import tempfile
    >>> from streamnb import Schema, State
    >>> state = State(Schema(label="y", numeric=["x"]))
    >>> state.update(pa.table({"y": ["a", "a", "b", "b"], "x": [1.0, 3.0, 10.0, 14.0]}))
    >>> predict(state.finish(), pa.table({"x": [2.0, 12.0]}), Path(tempfile.mkdtemp()) / "scored.parquet")
    2
    """
    output = Path(output)
    _refuse_input_as_output(source, output)
    opened = open_source(source)
    features = model.schema.features
    model.schema.check(opened.schema, features)
    kept = list(opened.schema.names) if keep == "all" else list(keep)
    added = [PREDICTION, *(f"{PROBABILITY}{label}" for label in model.classes.to_pylist())]
    for name in kept:
        if name not in opened.schema.names:
            raise SchemaError(f"Expected a column {name!r} to keep, got none of that name")
        if name in added[: len(added) if proba else 1]:
            raise SchemaError(f"Expected kept columns beside the output's own, got {name!r} as both")
    columns = list(dict.fromkeys([*features, *kept]))
    opened.check(columns)
    shards_size = sum(shard.size for shard in opened.shards()) if callable(progress) or progress else 0
    rows = 0
    results = get_engine(engine, workers).map(partial(scored, model, kept, proba), pieces(opened, columns))
    with ExitStack() as stack:
        stream = stack.enter_context(open_atomically(output))
        advance = stack.enter_context(reporting(progress, shards_size))
        writer: Any = None
        for batch, size in results:
            if writer is None:
                writer = stack.enter_context(_writer(output, stream, batch.schema))
            writer.write(batch)
            rows += batch.num_rows
            advance(batch.num_rows, size)
        if writer is None:
            empty = _empty(model, opened.schema, kept, proba)
            with _writer(output, stream, empty.schema) as writer:
                writer.write(empty)
    return rows


def _writer(output: Path, stream: Any, schema: pa.Schema) -> Any:
    if output.suffix == ".csv":
        return pyarrow.csv.CSVWriter(stream, schema)
    return pq.ParquetWriter(stream, schema, compression="zstd")


def _empty(model: Predictor, schema: pa.Schema, kept: Sequence[str], proba: bool) -> pa.RecordBatch:
    columns = {name: pa.array([], schema.field(name).type) for name in kept}
    columns[PREDICTION] = model.classes.slice(0, 0)
    if proba:
        columns |= {f"{PROBABILITY}{label}": pa.array([], pa.float64()) for label in model.classes.to_pylist()}
    return pa.record_batch(columns)


def _refuse_input_as_output(source: Any, output: Path) -> None:
    """An output that stands among the inputs would be read while it is written, or lose the input."""
    paths = source if isinstance(source, list | tuple) else [source]
    target = Path(os.path.realpath(output))
    for path in paths:
        if not isinstance(path, str | Path):
            continue
        given = Path(os.path.realpath(path))
        if given == target or (given.is_dir() and target.parent.is_relative_to(given)):
            raise SourceError(f"Expected an output apart from the input, got {output}, which is in {path}")
