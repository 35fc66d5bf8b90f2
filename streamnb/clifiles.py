"""The files that commands read and write: checked before any work, loaded whatever they hold."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from streamnb.options import OnError
    from streamnb.predictor import Predictor
    from streamnb.schema import Schema
    from streamnb.state import State

__all__ = ["check_target", "chosen_schema", "load", "load_model", "note", "print_scores"]


def note(message: str) -> None:
    """Say something on stderr that is no result."""
    typer.echo(message, err=True)


def check_target(target: Path, sources: Sequence[str | Path] = ()) -> None:
    """Refuse, before any work, a target that cannot be written or that is what is read."""
    from streamnb.atomic import refuse_input_as_output
    from streamnb.errors import SourceError

    if not target.parent.is_dir():
        raise SourceError(f"Cannot write {target}: the folder {target.parent} does not exist")
    if target.is_dir():
        raise SourceError(f"Cannot write {target}: it is a folder")
    if str(target) == "-":
        raise SourceError("Expected the name of a file to write, got -; only predict writes to stdout")
    refuse_input_as_output(target, list(sources))


def chosen_schema(
    data: list[str],
    label: str | None,
    file: Path | None,
    options: dict[str, Any],
    exclude: list[str] | None,
    on_error: OnError,
) -> Schema:
    """Return the schema of a file, or of the options, or, where `exclude` is a list, of the types of the data too."""
    from streamnb.schema import Schema

    if file is not None:
        return Schema.from_json(file.read_text(encoding="utf-8"))
    if exclude is not None:
        return _inferred(data, str(label), options, exclude, on_error)
    return Schema(str(label), **options)


def _inferred(data: list[str], label: str, options: dict[str, Any], exclude: list[str], on_error: OnError) -> Schema:
    """Return the schema that the types of the data give; say it on stderr before the long work begins."""
    from streamnb.schema import BLOCKS
    from streamnb.sources import open_source
    from streamnb.train import inferred_schema

    found = inferred_schema(open_source(data, on_error=on_error.value), label, exclude=exclude, **options)
    for kind in BLOCKS:
        names = list(getattr(found, kind))
        if names:
            shown = ", ".join(names[:10]) + (f" ... and {len(names) - 10:,} more" if len(names) > 10 else "")
            note(f"taken as {kind}: {shown}")
    return found


def load(path: Path) -> State | Predictor:
    """Return what a file holds, a state or a model; of a follower's folder, the sum of its states."""
    from streamnb import statefile
    from streamnb.predictor import Predictor
    from streamnb.state import State

    if path.is_dir():
        return State.load(path)
    contents = statefile.read(path)
    if contents.kind == "state":
        return State._from_contents(contents, str(path))
    return Predictor._from_contents(contents, str(path))


def load_model(path: Path) -> Predictor:
    """Return the model that a file holds, or that its state gives with the defaults."""
    from streamnb.state import State

    loaded = load(path)
    return loaded.finish() if isinstance(loaded, State) else loaded


def print_scores(model: Predictor, data: list[str], proba: bool, keep: Any, workers: int | None) -> None:
    """Score to stdout as CSV, batch by batch: a reader that has enough may close the pipe."""
    import pyarrow.csv

    from streamnb.score import scores

    with scores(model, data, proba=proba, keep=keep, workers=workers) as found:
        batches = (batch for batch, _ in found.batches)
        for i, batch in enumerate(chain([found.schema.empty_table()], batches)):
            # Each batch is written whole, so that nothing is left to write when the reader has gone.
            with io.BytesIO() as text:
                pyarrow.csv.write_csv(batch, text, pyarrow.csv.WriteOptions(include_header=i == 0))
                sys.stdout.buffer.write(text.getbuffer())
            sys.stdout.buffer.flush()
