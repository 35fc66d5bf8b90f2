"""`fit`: where sources, engines and statistics meet.

    source -> shards -> (worker) batches -> statistics -> (here, in shard order) merge -> State

What is merged depends on the shards and their order alone, so the result has the same bytes for any number of
workers, and after any crash and resume.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from streamnb.engines import get_engine, raise_if_stopped
from streamnb.errors import DataError, SchemaError, SkippedWarning, SourceError, StreamNBError
from streamnb.parts import digest
from streamnb.progress import ProgressOption, reporting
from streamnb.protocols import Engine, Shard
from streamnb.schema import Schema
from streamnb.sources import OpenSource, open_source
from streamnb.state import State
from streamnb.sufficient import SufficientStatistics

__all__ = ["accumulate", "fit", "inferred_schema"]

CHECKPOINT_SECONDS = 10.0
"""Seconds between two writings of the checkpoint."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What came of one shard: its statistics and their digest, or the reason why it was skipped."""

    shard: Shard
    statistics: SufficientStatistics | None
    digest: str
    rows: int
    skipped: str = ""


def accumulate(schema: Schema, on_error: str, shard: Shard) -> Counted:
    """Count one shard from the first row to the last; equal to a plain loop of `update` over its batches."""
    statistics = SufficientStatistics(schema)
    statistics.in_shard = True
    rows = 0
    try:
        for batch in shard.batches(schema.columns, schema.batch_rows):
            raise_if_stopped()
            try:
                statistics.update(batch)
            except DataError as error:
                row = rows + (error.row or 0)
                raise DataError(error.problem, column=error.column).at(place=shard.place(row)) from None
            except StreamNBError as error:
                raise type(error)(f"{error} - {shard.place(rows)}") from None
            rows += batch.num_rows
    except SourceError as error:
        if on_error == "raise":
            raise
        return Counted(shard, None, "", 0, str(error))
    statistics.leave_shard()
    return Counted(shard, statistics, digest(statistics), rows)


def fit(
    source: Any,
    label: str | None = None,
    *,
    schema: Schema | None = None,
    workers: int | None = None,
    engine: str | Engine = "threads",
    progress: ProgressOption = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    on_error: Literal["raise", "skip"] = "raise",
    verify_checksums: bool = False,
    **infer: Any,
) -> State:
    """Count a whole source in one pass, with memory that does not grow with its length.

    `source` is a path, glob, folder, list, URI, PyArrow dataset, Polars LazyFrame or anything with an Arrow stream.
    Either `schema`, or `label` and what `Schema.infer` takes (`weight`, `exclude`, `categorical` ...).

    - `workers`: threads, by default one per core; the result does not depend on it.
    - `progress`: True for a bar on a terminal, or a callable that is given a `Progress` after each shard.
    - `checkpoint`: a state file, written every few seconds and at the end; with `resume` a run goes on from it.
    - `on_error`: "skip" leaves out damaged files, and damaged shards of files, with a `SkippedWarning` each; nothing
      of what is skipped is counted.
    - `verify_checksums`: check the page checksums of Parquet files that have them (a slower reader).

    Raises:
        SchemaError, DataError, SourceError: naming the column, file, row group and row.

    >>> import polars as pl
    >>> state = fit(pl.DataFrame({"y": ["a", "b", "a"], "x": [1.0, 5.0, 2.0]}), label="y")
    >>> state.n_rows
    3
    """
    if schema is not None and (label is not None or infer):
        raise SchemaError(f"Expected schema= or label= with options, got both: {', '.join(['label', *infer])}")
    if schema is None and label is None:
        raise SchemaError("Expected schema= or label=, got neither")
    if on_error not in ("raise", "skip"):
        raise ValueError(f"Expected on_error='raise' or 'skip', got {on_error!r}")
    numbers = schema if schema is not None else None
    opened = open_source(
        source,
        on_error=on_error,
        verify_checksums=verify_checksums,
        hive_numeric=frozenset(_number_columns(numbers, infer)),
    )
    if schema is None:
        schema = inferred_schema(opened, str(label), **infer)
    opened.check(schema.columns)  # file by file, so that an error names the file
    schema.check(opened.schema)
    skipped = [f"{reason}" for _, reason in opened.skipped]
    for reason in skipped:
        warnings.warn(SkippedWarning(reason), stacklevel=2)
    shards = _distinct(opened.shards())
    run = _Run(schema, Path(checkpoint) if checkpoint is not None else None)
    left = run.begin(shards, resume=resume, on_error=on_error)
    total_size = sum(shard.size for shard in shards)
    results = get_engine(engine, workers).map(partial(accumulate, schema, on_error), left)
    with reporting(progress, total_size, done=total_size - sum(shard.size for shard in left)) as advance:
        try:
            for counted in results:
                run.take(counted)
                advance(counted.rows, counted.shard.size)
        finally:
            close = getattr(results, "close", None)
            if close is not None:
                close()
            run.save()
    return run.state()


def inferred_schema(opened: OpenSource, label: str, *, exclude: Iterable[str] = (), **options: Any) -> Schema:
    """Return the schema that the types of a source give; see `Schema.infer`.

    Raises:
        SchemaError: besides the reasons of `Schema.infer`, a column that only some of the files have.
    """
    exclude = [exclude] if isinstance(exclude, str) else list(exclude)
    partial = getattr(opened, "partial", {})
    for name, place in partial.items():
        if name not in exclude:
            raise SchemaError(
                f"Expected a column {name!r} in every file, as in others, got none - {place}; "
                f"leave it out with exclude=[{name!r}]"
            )
    return Schema.infer(opened.schema, label, exclude=[n for n in exclude if n not in partial], **options)


def _number_columns(schema: Schema | None, infer: dict[str, Any]) -> Iterable[str]:
    """The columns that a path's key=value must give as numbers, because the schema counts them as numbers."""
    given = infer if schema is None else {kind: getattr(schema, kind) for kind in ("numeric", "binary", "counts")}
    weight = infer.get("weight") if schema is None else schema.weight
    return [*(n for k in ("numeric", "binary", "counts") for n in given.get(k, ())), *([weight] if weight else [])]


def _distinct(shards: Iterable[Shard]) -> list[Shard]:
    """A shard that is listed twice (a file under two globs) is the same data and counts once."""
    seen: set[str] = set()
    distinct = []
    for shard in shards:
        if not shard.id or shard.id not in seen:
            distinct.append(shard)
            seen.add(shard.id)
    return distinct


class _Run:
    """One pass in progress: the total so far, the shards in it, and the checkpoint file."""

    def __init__(self, schema: Schema, checkpoint: Path | None) -> None:
        self.schema, self.checkpoint = schema, checkpoint
        self.total = SufficientStatistics(schema)
        self.ledger: dict[str, str] = {}
        self.anonymous = SufficientStatistics(schema)  # of shards without a name, which no ledger must cover
        self.saved_at = time.monotonic()
        self.unsaved = True

    def begin(self, shards: Sequence[Shard], *, resume: bool, on_error: str) -> Sequence[Shard]:
        """Return the shards that are still to be counted, after the checkpoint's if there is one to resume."""
        if self.checkpoint is None:
            if resume:
                raise ValueError("Expected checkpoint= with resume=True, got none")
            return shards
        if any(not shard.id for shard in shards):
            raise SourceError("Expected files for checkpoint=, got a stream, which cannot be read from the middle")
        if not self.checkpoint.exists():
            return shards
        if not resume:
            raise SourceError(
                f"Expected no checkpoint yet, got {self.checkpoint}; "
                "go on from it with resume=True (--resume), or remove it to start anew"
            )
        held = State.load(self.checkpoint)
        state = State(self.schema)
        if held.schema != self.schema:
            state.total.check_alike(held.total)
            raise SchemaError(f"Expected the schema of the checkpoint {self.checkpoint}, got another")
        self.total, self.ledger = held.total, dict(held.ledger)
        self.unsaved = False
        return _after(self.ledger, shards, on_error)

    def take(self, counted: Counted) -> None:
        """Merge one shard's statistics; the shards arrive in order."""
        if counted.statistics is None:
            warnings.warn(SkippedWarning(counted.skipped), stacklevel=3)
            return
        if counted.shard.id:
            self.total.merge(counted.statistics)
            self.ledger[counted.shard.id] = counted.digest
        else:
            self.anonymous.merge(counted.statistics)
        self.unsaved = True
        if time.monotonic() - self.saved_at >= CHECKPOINT_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the checkpoint, if there is one and something is new."""
        if self.checkpoint is not None and self.unsaved:
            self.state().save(self.checkpoint)
            self.unsaved = False
        self.saved_at = time.monotonic()

    def state(self) -> State:
        """The total as a state."""
        state = State.of_shards(self.schema, self.total, self.ledger)
        state.merge(State.of_shards(self.schema, self.anonymous, {}))
        return state


def _after(ledger: dict[str, str], shards: Sequence[Shard], on_error: str) -> Sequence[Shard]:
    """Return the shards after those in the ledger; they must be the same data in the same order.

    Raises:
        SourceError: a file that was counted has changed or gone, or a new one stands before it.
    """
    planned = {shard.id for shard in shards}
    names = {_file(shard.id) for shard in shards}
    for counted in ledger:
        if counted not in planned:
            name = _file(counted)
            change = "changed" if name in names else "gone"
            raise SourceError(f"Expected the data of the checkpoint, got a file that is {change} since: {name}")
    position = [i for i, shard in enumerate(shards) if shard.id in ledger]
    last = position[-1] + 1 if position else 0
    for shard in shards[:last]:
        if shard.id not in ledger:
            reason = f"Expected the data of the checkpoint, got a file that was not counted then: {_file(shard.id)}"
            if on_error == "raise":
                raise SourceError(reason)
            warnings.warn(SkippedWarning(reason), stacklevel=4)  # it was skipped then, or has come since
    return shards[last:]


def _file(shard_id: str) -> str:
    """The file of a shard, from its id: file[first row:last row]@fingerprint."""
    return shard_id.rpartition("@")[0].rpartition("[")[0]
