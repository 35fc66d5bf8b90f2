"""Spark: partitions counted by `mapInArrow`, joined on the executors, collected in pieces, and checked.

What a task returns is counted once, however often Spark runs it; nothing here works by side effects. Results travel
as rows (place, piece, of, content) of a few megabytes each. Spark's `collect` can lose rows without a word when the
driver's Java runs out of memory, and would do so with large states in one row; so every piece is numbered, and the
caller knows beforehand which places must come.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import pyarrow as pa

from streamnb.errors import DataError, EngineError, MissingExtraError, SchemaError, StreamNBError, near_misses

if TYPE_CHECKING:
    from streamnb.accumulator import Counting
    from streamnb.predictor import Predictor
    from streamnb.schema import Schema
    from streamnb.state import State

__all__ = ["Spark", "fit", "fit_groups", "predict"]

A = TypeVar("A")
B = TypeVar("B")

PIECE_BYTES = 4 << 20
"""Bytes of one row of a result: many of them fit in the driver's heap when one of the whole would not."""

AHEAD = 8
"""Shards of one job for each core, where results are handed out one by one."""

RESULTS = 32
"""Results that may travel to the driver; more are joined on the executors first."""

_ROWS = "place long, piece int, of int, content binary"
_ARROW = pa.schema([("place", pa.int64()), ("piece", pa.int32()), ("of", pa.int32()), ("content", pa.binary())])


class Spark:
    """An ordered map on the executors of a Spark session, by default the active one."""

    def __init__(self, session: Any = None) -> None:
        self.session = _active() if session is None else session

    def map(self, task: Callable[[A], B], shards: Iterable[A]) -> Iterator[B]:
        """Yield task(shard) in the order of the shards, which are drawn and done in one job for a few of each core."""
        at_once, rest = AHEAD * _cores(self.session), iter(shards)
        while items := list(islice(rest, at_once)):
            yield from self._results(_Work(task, None, items), len(items))

    def fold(self, task: Callable[[A], B], join: Callable[[Iterable[B]], B], shards: Iterable[A]) -> Iterator[B]:
        """Yield joined results in the order of the shards: joined in each partition, and again if those are many."""
        items = list(shards)
        yield from self._results(_Work(task, join, items), min(len(items), max(4 * _cores(self.session), 2)))

    def _results(self, work: _Work[Any, Any], partitions: int) -> Iterator[Any]:
        n = len(work.items)
        if not n:
            return
        with _quiet():
            rows = self.session.range(0, n, 1, partitions).mapInArrow(work, _ROWS)
            if work.join is not None and partitions > RESULTS:
                group = (rows["place"] * RESULTS / n).cast("int")
                rows = rows.repartition(RESULTS, group).mapInArrow(_Join(work.join), _ROWS)
            found = sorted(_collected(rows).items())
        reached = 0
        for first, content in found:
            last, result = pickle.loads(content)  # written by our own tasks, a moment ago
            if isinstance(result, StreamNBError):
                raise result
            if first != reached:
                raise _lost(f"nothing of shards {reached} to {first}, of {n}")
            yield result
            reached = last
        if reached != n:
            raise _lost(f"nothing of shards {reached} to {n}, of {n}")


def fit(frame: Any, schema: Schema) -> State:
    """Count the rows of a Spark DataFrame: one state a partition, merged on the executors, then here.

    Counts are exact; moments agree to rounding with those of any other order of the rows. The executors must be able
    to import streamnb. Files are better given to `streamnb.fit(..., engine="spark")`: their shards have names, and the
    result has the bytes of a run on one machine.

    Raises:
        SchemaError, DataError: as `State.update`, with the partition.
        EngineError: Spark lost a part of the result on the way to the driver.
    """
    from streamnb.accumulator import Counting

    counting = Counting(schema)
    groups = min(RESULTS, 2 * _cores(frame.sparkSession))
    _check(frame, counting.columns)
    with _quiet():
        counted = _numbered(frame, counting.columns).mapInArrow(_Count(counting), _ROWS)
        # Each of a known number of partitions answers, also one to which nothing came: what is missing is seen.
        found = _collected(counted.repartition(groups, counted["place"]).mapInArrow(_Merge(counting), _ROWS))
    if sorted(found) != list(range(groups)):
        raise _lost(f"{len(found)} of {groups} parts")
    packed = [pickle.loads(found[group]) for group in range(groups)]
    failed = [each for each in packed if isinstance(each, _Failure)]
    if failed:
        raise min(failed, key=lambda failure: failure.place).error
    return counting.merge(map(counting.unpack, packed))


def fit_groups(frame: Any, schema: Schema, by: str) -> Any:
    """Return a DataFrame of the columns `by` and `state`: for each value of a column the bytes of a state.

    Spark brings the rows of a group together (`applyInArrow`), so each group must fit into the memory of a worker.
    `State.from_bytes` reads a state, and states of groups add up.

    Raises:
        SchemaError: the frame lacks a column.
    """
    from pyspark.sql.types import BinaryType, StructField, StructType

    from streamnb.accumulator import Counting

    counting = Counting(schema)
    columns = [*counting.columns, by]
    _check(frame, columns)
    with _quiet():
        rows = _numbered(frame, columns)
        key = rows.columns[-1]
        output = StructType([StructField(by, rows.schema[key].dataType), StructField("state", BinaryType())])
        count = _CountGroup(counting, by)
        # Spark looks at the number of arguments, and of an object that can be called it would count itself.
        return rows.groupBy(key).applyInArrow(lambda value, group: count(value, group), output)


def predict(frame: Any, model: Predictor, *, proba: bool = False, keep: Sequence[str] = ()) -> Any:
    """Return a DataFrame of predictions, computed where the rows are; the model is sent to each executor once.

    Columns: those of `keep`, then `prediction`, and with `proba` one double `proba_<label>` per class.

    Raises:
        SchemaError: the frame lacks a feature, or a kept column has the name of an output column.
    """
    from pyspark.sql.pandas.types import from_arrow_schema
    from pyspark.sql.types import StructField, StructType

    added = [pa.field("prediction", model.classes.type)]
    added += [pa.field(f"proba_{label}", pa.float64()) for label in model.classes.to_pylist() if proba]
    taken = [name for name in keep if name in {field.name for field in added}]
    if taken:
        raise SchemaError(f"Expected kept columns beside the output's own, got {taken[0]!r} as both")
    kept = tuple(dict.fromkeys(keep))
    columns = list(dict.fromkeys([*model.schema.features, *kept]))
    _check(frame, columns)
    with _quiet():
        rows = _numbered(frame, columns)
        fields = [StructField(name, rows.schema[columns.index(name)].dataType) for name in kept]
        output = StructType([*fields, *from_arrow_schema(pa.schema(added)).fields])
        score = _Score(_sent(frame.sparkSession, model), columns, kept, pa.schema(added))
        return rows.mapInArrow(score, output)


# On the executors -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work(Generic[A, B]):
    """Do the shards whose numbers come in; without `join` each result for itself."""

    task: Callable[[A], B]
    join: Callable[[Iterable[B]], B] | None
    items: Sequence[A]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
        if self.join is None:
            for number in numbers:
                yield from _pieces(number, (number + 1, self._done([number])))
        elif numbers:
            yield from _pieces(numbers[0], (numbers[-1] + 1, self._done(numbers)))

    def _done(self, numbers: Sequence[int]) -> Any:
        try:
            results = (self.task(self.items[number]) for number in numbers)
            return next(results) if self.join is None else self.join(results)
        except StreamNBError as error:
            return error  # an answer: the data would be the same at a second attempt


@dataclass(frozen=True)
class _Join(Generic[B]):
    """Join the results of neighbouring partitions; of several groups that fell into one partition, each for itself."""

    join: Callable[[Iterable[B]], B]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        runs: list[list[Any]] = []  # first, last, results
        for first, content in sorted(_assembled(batches)):
            last, result = pickle.loads(content)
            if runs and runs[-1][1] == first and not isinstance(result, StreamNBError):
                runs[-1][1] = last
                runs[-1][2].append(result)
            else:
                runs.append([first, last, [result]])
        for first, last, results in runs:
            failed = isinstance(results[0], StreamNBError)
            yield from _pieces(first, (last, results[0] if failed else self.join(results)))


@dataclass(frozen=True)
class _Failure:
    """What a partition answers whose rows cannot be counted."""

    place: int
    error: StreamNBError


@dataclass(frozen=True)
class _Count:
    """Count the rows of a partition; one without rows says nothing."""

    counting: Counting

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place, state = _partition(), self.counting.create()
        try:
            for rows in _larger(batches, self.counting.batch_rows):
                self.counting.add(state, rows.rename_columns(list(self.counting.columns)))
        except DataError as error:
            yield from _pieces(place, _Failure(place, error.at(place=f"partition {place}")))
            return
        except StreamNBError as error:
            yield from _pieces(place, _Failure(place, error))
            return
        yield from _pieces(place, self.counting.pack(state))


@dataclass(frozen=True)
class _Merge:
    """Merge the states that came to this partition, of which there may be none."""

    counting: Counting

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        total = self.counting.create()
        failed: list[_Failure] = []
        for _, content in _assembled(batches):
            packed = pickle.loads(content)
            if isinstance(packed, _Failure):
                failed.append(packed)
            else:
                total.merge(self.counting.unpack(packed))
        answer = min(failed, key=lambda failure: failure.place) if failed else self.counting.pack(total)
        yield from _pieces(_partition(), answer)


@dataclass(frozen=True)
class _CountGroup:
    """Count the rows of one group."""

    counting: Counting
    by: str

    def __call__(self, key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        named = rows.select(range(rows.num_columns - 1)).rename_columns(list(self.counting.columns))
        state = self.counting.add(self.counting.create(), named)
        key_type = rows.schema.types[-1]
        content = pa.array([self.counting.pack(state)], pa.binary())
        return pa.table([pa.array([key[0].as_py()], key_type), content], names=[self.by, "state"])


@dataclass(frozen=True)
class _Score:
    """Score batches: the kept columns as they are, then what the model says."""

    model: Callable[[], Predictor]
    columns: Sequence[str]
    keep: Sequence[str]
    added: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        model = self.model()
        for numbered in batches:
            batch = numbered.rename_columns(list(self.columns))
            answers = [model.predict(batch)]
            if len(self.added) > 1:
                prediction, probabilities = model.predict_with_proba(batch)
                answers = [prediction, *(pa.array(each.copy()) for each in probabilities.T)]
            kept = [batch.column(name) for name in self.keep]
            yield pa.record_batch([*kept, *answers], names=[*self.keep, *self.added.names])


@dataclass(frozen=True)
class _Sent:
    """Something that Spark broadcasts."""

    broadcast: Any

    def __call__(self) -> Any:
        return self.broadcast.value


@dataclass(frozen=True)
class _Carried:
    """Something that goes along with the function, where there is no broadcast."""

    value: Any

    def __call__(self) -> Any:
        return self.value


def _partition() -> int:
    from pyspark import TaskContext

    return int(cast("Any", TaskContext.get()).partitionId())


def _larger(batches: Iterator[pa.RecordBatch], at_least: int) -> Iterator[pa.Table]:
    """Put Spark's batches of 10,000 rows together, or what its settings say: counting has a cost for each batch."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        if rows >= at_least:
            yield pa.Table.from_batches(held).combine_chunks()
            held, rows = [], 0
    if rows:
        yield pa.Table.from_batches(held).combine_chunks()


def _pieces(place: int, answer: object) -> Iterator[pa.RecordBatch]:
    content = pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL)
    of = max(1, -(-len(content) // PIECE_BYTES))
    for piece in range(of):
        part = content[piece * PIECE_BYTES : (piece + 1) * PIECE_BYTES]
        yield pa.record_batch([[place], [piece], [of], [part]], schema=_ARROW)


def _assembled(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    """Yield (place, content) as soon as all pieces of a place are there."""
    held: dict[int, dict[int, bytes]] = {}
    for batch in batches:
        for place, piece, of, part in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            there = held.setdefault(place, {})
            there[piece] = part
            if len(there) == of:
                yield place, b"".join(there[i] for i in range(of))
                del held[place]
    if held:
        raise _lost(f"{len(held)} results in part")


# On the driver --------------------------------------------------------------------------------------------------------


def _collected(rows: Any) -> dict[int, bytes]:
    """Bring results to the driver: place to content, each whole."""
    batches = (pa.record_batch([[each] for each in row], schema=_ARROW) for row in rows.collect())
    return dict(_assembled(batches))


def _lost(what: str) -> EngineError:
    return EngineError(
        f"Expected every result of the Spark job, got {what}; is spark.driver.memory too small for the states?"
    )


def _check(frame: Any, columns: Sequence[str]) -> None:
    for name in columns:
        if frame.columns.count(name) != 1:
            n = frame.columns.count(name) or "none"
            raise SchemaError(
                f"Expected one column {name!r} in the DataFrame, got {n}{near_misses(name, frame.columns)}"
            )


def _numbered(frame: Any, columns: Sequence[str]) -> Any:
    """Select columns under plain names: within `mapInArrow` Spark does not quote those that it is given."""
    quoted = [name.replace("`", "``") for name in columns]
    return frame.selectExpr(*(f"`{name}` AS c{i}" for i, name in enumerate(quoted)))


def _sent(session: Any, model: Any) -> Callable[[], Any]:
    context = _context(session)
    return _Carried(model) if context is None else _Sent(context.broadcast(model))


def _cores(session: Any) -> int:
    """The cores of the cluster; through Spark Connect, which does not tell, what its settings say."""
    context = _context(session)
    if context is not None:
        return int(context.defaultParallelism)
    return int(session.conf.get("spark.sql.leafNodeDefaultParallelism", None) or 8)


def _context(session: Any) -> Any:
    """The session's SparkContext, or None through Spark Connect."""
    return None if type(session).__module__.startswith("pyspark.sql.connect") else session.sparkContext


@contextmanager
def _quiet() -> Iterator[None]:
    """Spark warns of every pandas from 3 on, which is only looked for here and never used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        yield


def _active() -> Any:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("pyspark", "spark") from None
    session = SparkSession.getActiveSession()
    if session is None:
        raise ValueError("Expected a Spark session, got none active; start one, or give session=...")
    return session
