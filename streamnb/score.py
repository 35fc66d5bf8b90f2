"""Scoring a stream of rows with a frozen model, to a file, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from streamnb.atomic import open_atomically, refuse_input_as_output
from streamnb.engines import get_engine
from streamnb.errors import DataError, SchemaError, SourceError, near_misses
from streamnb.predictor import Predictor
from streamnb.progress import ProgressOption, reporting
from streamnb.protocols import Engine, Shard, Source
from streamnb.sources import decoded, open_source
from streamnb.state import State

__all__ = ["Piece", "Scores", "pieces", "predict", "scores"]

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


def scored(model: Predictor, schema: pa.Schema, piece: Piece) -> tuple[pa.RecordBatch, int]:
    """Return one batch of the output, which has the columns of `schema`, and the size in bytes of what it came from."""
    n_kept = schema.get_field_index(PREDICTION)
    with_proba = len(schema) > n_kept + 1
    try:
        if with_proba:
            prediction, probabilities = model.predict_with_proba(piece.batch)
        else:
            prediction = model.predict(piece.batch)
    except DataError as error:
        raise piece.placed(error) from None
    kept = decoded(piece.batch)
    columns = [*(kept.column(name) for name in schema.names[:n_kept]), prediction]
    if with_proba:
        columns += [pa.array(np.ascontiguousarray(each)) for each in probabilities.T]
    return pa.record_batch(columns, schema=schema), piece.size


@dataclass(frozen=True)
class Scores:
    """The scored batches of a source, in order and as they are asked for; close it to stop early."""

    schema: pa.Schema
    batches: Iterator[tuple[pa.RecordBatch, int]]
    size: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        close = getattr(self.batches, "close", None)
        if close is not None:
            close()


def scores(
    model: Predictor | State,
    source: Any,
    *,
    proba: bool = False,
    keep: Sequence[str] | Literal["all"] = (),
    workers: int | None = None,
    engine: str | Engine = "threads",
) -> Scores:
    """Score a source batch by batch, in bounded memory; the parameters are those of `predict`.

    Raises:
        SchemaError: the source lacks a feature, or a kept column has the name of an output column.
    """
    model = predictor_of(model)
    opened = open_source(source)
    features = model.schema.features
    opened.check(features)  # file by file, so that an error names the file
    model.schema.check(opened.schema, features)
    kept = list(opened.schema.names) if keep == "all" else list(dict.fromkeys(keep))
    fields = [pa.field(PREDICTION, model.classes.type)]
    if proba:
        fields += [pa.field(f"{PROBABILITY}{label}", pa.float64()) for label in model.classes.to_pylist()]
    added = {field.name for field in fields}
    for name in kept:
        if name not in opened.schema.names:
            hint = near_misses(name, opened.schema.names)
            raise SchemaError(f"Expected a column {name!r} to keep, got none of that name{hint}")
        if name in added:
            raise SchemaError(f"Expected kept columns beside the output's own, got {name!r} as both")
    columns = list(dict.fromkeys([*features, *kept]))
    opened.check(columns)
    schema = pa.schema([*(opened.schema.field(name) for name in kept), *fields])
    size = sum(shard.size for shard in opened.shards())
    return Scores(
        schema, get_engine(engine, workers).map(partial(scored, model, schema), pieces(opened, columns)), size
    )


def predictor_of(model: Predictor | State) -> Predictor:
    """Return a predictor as it is, and a state finished with the defaults.

    Raises:
        TypeError: neither of the two.
    """
    if isinstance(model, State):
        return model.finish()
    if not isinstance(model, Predictor):
        raise TypeError(f"Expected a Predictor or a State, got {type(model).__name__}")
    return model


def predict(
    model: Predictor | State,
    source: Any,
    output: str | Path,
    *,
    proba: bool = False,
    keep: Sequence[str] | Literal["all"] = (),
    workers: int | None = None,
    engine: str | Engine = "threads",
    progress: ProgressOption = None,
) -> int:
    """Score a source of any length into a Parquet file (or `.csv`); return the number of rows.

    The file holds the columns of `keep` ("all" keeps every one), `prediction`, and with `proba` one column
    `proba_<label>` per class. It appears whole or not at all.

    Raises:
        SchemaError: the source lacks a feature, or a kept column has the name of an output column.
        SourceError: the output is one of the inputs, or cannot be written, or has the name of another format.

    >>> import tempfile
    >>> from streamnb import Schema, State
    >>> state = State(Schema(label="y", numeric=["x"]))
    >>> state.update(pa.table({"y": ["a", "a", "b", "b"], "x": [1.0, 3.0, 10.0, 14.0]}))
    >>> predict(state.finish(), pa.table({"x": [2.0, 12.0]}), Path(tempfile.mkdtemp()) / "scored.parquet")
    2
    """
    output = Path(output)
    if output.suffix.lower() not in ("", ".parquet", ".pq", ".csv"):
        raise SourceError(f"Expected the output's name to end in .parquet or .csv, got {output.suffix} - {output}")
    refuse_input_as_output(output, source)
    rows = 0
    with ExitStack() as stack:
        found = stack.enter_context(scores(model, source, proba=proba, keep=keep, workers=workers, engine=engine))
        stream = stack.enter_context(open_atomically(output))
        writer = stack.enter_context(_writer(output, stream, found.schema))
        advance = stack.enter_context(reporting(progress, found.size))
        for batch, size in found.batches:
            writer.write_batch(batch)
            rows += batch.num_rows
            advance(batch.num_rows, size)
    return rows


def _writer(output: Path, stream: Any, schema: pa.Schema) -> Any:
    if output.suffix.lower() == ".csv":
        return pyarrow.csv.CSVWriter(stream, schema)  # writes the header at once
    return pq.ParquetWriter(stream, schema, compression="zstd")
