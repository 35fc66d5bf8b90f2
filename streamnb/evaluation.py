"""How good a model is, over a whole source, in one pass."""

from __future__ import annotations

from functools import partial
from typing import Any

from streamnb.encode import weights
from streamnb.engines import get_engine
from streamnb.errors import DataError, SchemaError, StreamNBError
from streamnb.predictor import Predictor
from streamnb.progress import ProgressOption, reporting
from streamnb.protocols import Engine
from streamnb.report import Averages, Confusion, Report
from streamnb.score import Piece, pieces, predictor_of
from streamnb.sources import open_source
from streamnb.state import State

__all__ = ["Averages", "Confusion", "Report", "evaluate"]


def evaluate(
    model: Predictor | State,
    source: Any,
    *,
    weighted: bool | None = None,
    workers: int | None = None,
    engine: str | Engine = "threads",
    progress: ProgressOption = None,
) -> Report:
    """Score a source that has the label column and return the report; rows without a label are counted and left out.

    Row weights count if the schema has a weight column and the source has it too, or as `weighted` says. Reports of
    parts of the data merge, as states do.

    Raises:
        SchemaError: the label or a feature column is absent or of a wrong type.
        DataError: a value that cannot be scored, with its column, file and row.

    >>> import pyarrow as pa
    >>> from streamnb import Schema, State
    >>> rows = pa.table({"y": ["a", "a", "b", "b"], "x": [1.0, 3.0, 10.0, 14.0]})
    >>> state = State(Schema(label="y", numeric=["x"]))
    >>> state.update(rows)
    >>> evaluate(state.finish(), rows).accuracy
    1.0
    """
    model = predictor_of(model)
    opened = open_source(source)
    schema = model.schema
    if weighted is None:
        weighted = schema.weight is not None and schema.weight in opened.schema.names
    if weighted and schema.weight is None:
        raise SchemaError("Expected a weight column in the model's schema for weighted=True, got none")
    weight = schema.weight if weighted else None
    columns = [schema.label, *schema.features, *([] if weight is None else [weight])]
    opened.check(columns)  # file by file, so that an error names the file
    schema.check(opened.schema, columns)
    total_size = sum(shard.size for shard in opened.shards()) if progress else 0
    report = Report(model.classes)
    results = get_engine(engine, workers).map(partial(_reported, model, weight), pieces(opened, columns))
    with reporting(progress, total_size) as advance:
        for part, size in results:
            report.merge(part)
            advance(part.rows + part.rows_without_label, size)
    return report


def _reported(model: Predictor, weight: str | None, piece: Piece) -> tuple[Report, int]:
    report = Report(model.classes)
    batch = piece.batch
    try:
        truth = batch.column(model.schema.label)
        each = None if weight is None else weights(batch.column(weight), weight)
        report.update(truth, model.predict_proba(batch.select(list(model.schema.features))), each)
    except DataError as error:
        raise piece.placed(error) from None
    except StreamNBError as error:
        raise type(error)(f"{error} - {piece.shard.place(piece.first)}") from None
    return report, piece.size
