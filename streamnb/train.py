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
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from streamnb.engines import get_engine, raise_if_stopped
from streamnb.errors import DataError, ManyCategoriesWarning, SchemaError, SkippedWarning, SourceError, StreamNBError
from streamnb.parts import Part, Plan, added_up, digest
from streamnb.progress import ProgressOption, reporting
from streamnb.protocols import Engine, Folding, Shard
from streamnb.schema import Schema
from streamnb.sources import OpenSource, open_source
from streamnb.spans import Span, push, slice_of
from streamnb.state import State
from streamnb.sufficient import SufficientStatistics

__all__ = ["accumulate", "distinct_shards", "fit", "inferred_schema"]

LIKELY_ID_CATEGORIES = 1000
"""A categorical column with more values than this, and less than two rows to each, is likely an id."""

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
    try:
        statistics.leave_shard()
    except DataError as error:
        raise error.at(place=shard.place(0)) from None
    return Counted(shard, statistics, digest(statistics), rows)


@dataclass(slots=True)
class Node:
    """What came of a stretch of shards: the statistics of those with a name, and of those without one."""

    span: Span
    ledger: dict[str, str]
    statistics: SufficientStatistics | None
    anonymous: SufficientStatistics | None
    skipped: list[str]
    rows: int
    size: int

    def add(self, later: Node) -> Node:
        """Add the stretch that follows, in place; return this node."""
        self.span = Span(self.span.first, later.span.last)
        self.ledger |= later.ledger
        self.statistics = _sum(self.statistics, later.statistics)
        self.anonymous = _sum(self.anonymous, later.anonymous)
        self.skipped += later.skipped
        self.rows, self.size = self.rows + later.rows, self.size + later.size
        return self


def _sum(mine: SufficientStatistics | None, later: SufficientStatistics | None) -> SufficientStatistics | None:
    if mine is not None and later is not None:
        mine.merge(later)
    return later if mine is None else mine


def count_one(schema: Schema, on_error: str, placed: tuple[int, Shard]) -> list[Node]:
    """Count one shard, given with its place in the run; the task that an engine maps."""
    place, shard = placed
    counted = accumulate(schema, on_error, shard)
    node = Node(Span(place, place + 1), {}, None, None, [], counted.rows, shard.size)
    if counted.statistics is None:
        node.skipped.append(counted.skipped)
    elif shard.id:
        node.ledger, node.statistics = {shard.id: counted.digest}, counted.statistics
    else:
        node.anonymous = counted.statistics
    return [node]


def join_nodes(shards: int, stretches: Iterable[list[Node]]) -> list[Node]:
    """Join the nodes of stretches that follow each other, where they are neighbours in the tree over the shards."""
    nodes: list[Node] = []
    for node in (node for stretch in stretches for node in stretch):
        push(nodes, node, shards, Node.add)
    return nodes


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
    shard: tuple[int, int] | None = None,
    session: Any = None,
    client: Any = None,
    **infer: Any,
) -> State:
    """Count a whole source in one pass, with memory that does not grow with its length.

    `source` is a path, glob, folder, list, URI, PyArrow dataset, Polars LazyFrame or anything with an Arrow stream.
    Either `schema`, or `label` and what `Schema.infer` takes (`weight`, `exclude`, `categorical` ...).

    - `workers`: threads, by default one per core; the result does not depend on it.
    - `engine`: "threads"; or "spark" (with its `session`), "dask" (with its `client`) or "ray", whose workers read the
      files themselves; or an object with a method `map`. The same files give the same bytes on all of them.
    - `progress`: True for a bar on a terminal, or a callable that is given a `Progress` after each shard.
    - `checkpoint`: a state file, written every few seconds and at the end; with `resume` a run goes on from it.
    - `on_error`: "skip" leaves out damaged files, and damaged shards of files, with a `SkippedWarning` each; nothing
      of what is skipped is counted.
    - `verify_checksums`: check the page checksums of Parquet files that have them (a slower reader).
    - `shard`: (i, n) counts the i-th of n parts of the files, i from 1 to n. The n states, merged in any order, are
      the state of the whole to the byte; until then `State.gaps` says which are missing.

    Raises:
        SchemaError, DataError, SourceError: naming the column, file, row group and row.

    Warns:
        ManyCategoriesWarning: a categorical column that looks like an id, with the number of its values.

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
    run = _Run(schema, distinct_shards(opened.shards()), Path(checkpoint) if checkpoint is not None else None, shard)
    left = run.begin(resume=resume, on_error=on_error)
    total_size = sum(each.size for _, each in run.shards)
    chosen = get_engine(engine, workers, session=session, client=client)
    count, join = partial(count_one, schema, on_error), partial(join_nodes, run.plan.shards)
    results = chosen.fold(count, join, left) if isinstance(chosen, Folding) else chosen.map(count, left)
    with reporting(progress, total_size, done=total_size - sum(each.size for _, each in left)) as advance:
        try:
            for nodes in results:
                for node in nodes:
                    rows, size = node.rows, node.size
                    run.take(node)
                    advance(rows, size)
        finally:
            close = getattr(results, "close", None)
            if close is not None:
                close()
            run.save()
    state = run.state()
    for problem in likely_ids(state):
        warnings.warn(ManyCategoriesWarning(problem), stacklevel=2)
    return state


def likely_ids(state: State) -> list[str]:
    """Say which categorical columns have so many values for their cells that they are likely ids."""
    found = []
    for name, counts in state.total.categorical.items() if state.schema.categorical else ():
        distinct, cells = len(state.total.categories[name]), int(counts.present.sum())
        if distinct > LIKELY_ID_CATEGORIES and 2 * distinct > cells:
            found.append(
                f"categorical column {name!r} has {distinct:,} distinct values in {cells:,} rows, as an id has: it "
                "tells nothing of new rows; leave it out, or let max_categories= (--max-categories) stop at a number"
            )
    return found


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


def distinct_shards(shards: Iterable[Shard]) -> list[Shard]:
    """Return each shard once: one that is listed twice (a file under two globs) is the same data."""
    seen: set[str] = set()
    distinct = []
    for shard in shards:
        if not shard.id or shard.id not in seen:
            distinct.append(shard)
            seen.add(shard.id)
    return distinct


class _Run:
    """One pass in progress: its shards with their places in the whole, what was counted of them, the checkpoint."""

    def __init__(
        self, schema: Schema, shards: Sequence[Shard], checkpoint: Path | None, divided: tuple[int, int] | None
    ) -> None:
        self.schema, self.checkpoint = schema, checkpoint
        if (divided is not None or checkpoint is not None) and any(not each.id for each in shards):
            option = "checkpoint" if divided is None else "shard"
            raise SourceError(f"Expected files for {option}=, got a stream, which cannot be read from the middle")
        i, n = (1, 1) if divided is None else _checked(divided)
        fingerprint = blake2b("\n".join(each.id for each in shards).encode(), digest_size=12).hexdigest()
        self.plan = Plan(fingerprint, len(shards), n)
        self.span = slice_of(len(shards), i, n)
        self.shards = list(enumerate(shards))[self.span.first : self.span.last]
        self.nodes: list[Node] = []
        self.anonymous = SufficientStatistics(schema)  # of shards without a name, which no ledger must cover
        self.saved_at = time.monotonic()
        self.unsaved = True

    def begin(self, *, resume: bool, on_error: str) -> Sequence[tuple[int, Shard]]:
        """Return the shards that are still to be counted, after the checkpoint's if there is one to resume."""
        if self.checkpoint is None:
            if resume:
                raise ValueError("Expected checkpoint= with resume=True, got none")
            return self.shards
        if not self.checkpoint.exists():
            return self.shards
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
        self.unsaved = False
        reached = max((part.span.last for part in held.parts if part.plan == self.plan), default=0)
        left = _after(held.ledger, self.shards, reached, on_error)
        places = {each.id: place for place, each in self.shards}
        for part in held.parts:
            counted = [places[name] for name in part.ledger]
            span = part.span
            if part.plan != self.plan:  # of a run over other files, which go before those of this one
                span = Span(min(counted, default=0), max(counted, default=0) + 1)
            if counted or part.plan == self.plan:
                self.nodes.append(Node(span, dict(part.ledger), part.statistics, None, [], 0, 0))
        self.nodes.sort(key=lambda node: node.span)
        return left

    def take(self, node: Node) -> None:
        """Add what came of some shards; they arrive in order."""
        for reason in node.skipped:
            warnings.warn(SkippedWarning(reason), stacklevel=3)
        node.skipped = []
        if node.anonymous is not None:
            self.anonymous.merge(node.anonymous)
            node.anonymous = None
        push(self.nodes, node, self.plan.shards, Node.add)
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
        """What was counted so far, as a state."""
        whole = Span(0, self.plan.shards)
        at_the_end = self.span == whole and self.nodes and self.nodes[-1].span.last == self.plan.shards
        parts = []
        for node in self.nodes:
            statistics = SufficientStatistics(self.schema) if node.statistics is None else node.statistics
            parts.append(Part(dict(node.ledger), statistics, self.plan, node.span))
        if at_the_end and len(parts) > 1:  # gone on over files that were added since: no node ends where they begin
            parts = [Part({k: v for part in parts for k, v in part.ledger.items()}, added_up(parts), self.plan, whole)]
        state = State.of_parts(self.schema, parts)
        state.merge(State.of_shards(self.schema, self.anonymous, {}))
        return state


def _checked(divided: tuple[int, int]) -> tuple[int, int]:
    i, n = divided
    if not 1 <= i <= n:
        raise ValueError(f"Expected shard=(i, n) with i from 1 to n, got ({i}, {n})")
    return i, n


def _after(
    ledger: dict[str, str], shards: Sequence[tuple[int, Shard]], reached: int, on_error: str
) -> Sequence[tuple[int, Shard]]:
    """Return the shards after those in the ledger and the place reached; they must be the same data, in the same order.

    Raises:
        SourceError: a file that was counted has changed or gone, or a new one stands before it.
    """
    planned = {shard.id for _, shard in shards}
    names = {_file(shard.id) for _, shard in shards}
    for counted in ledger:
        if counted not in planned:
            name = _file(counted)
            change = "changed" if name in names else "gone"
            raise SourceError(f"Expected the data of the checkpoint, got a file that is {change} since: {name}")
    last = max((i + 1 for i, (place, shard) in enumerate(shards) if shard.id in ledger or place < reached), default=0)
    for _, shard in shards[:last]:
        if shard.id not in ledger:
            reason = f"Expected the data of the checkpoint, got a file that was not counted then: {_file(shard.id)}"
            if on_error == "raise":
                raise SourceError(reason)
            warnings.warn(SkippedWarning(reason), stacklevel=4)  # it was skipped then, or has come since
    return shards[last:]


def _file(shard_id: str) -> str:
    """The file of a shard, from its id: file[first row:last row]@fingerprint."""
    return shard_id.rpartition("@")[0].rpartition("[")[0]
