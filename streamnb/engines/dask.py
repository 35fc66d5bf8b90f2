"""Dask: shards as futures on the workers of a cluster, joined there as a tree.

A worker that dies takes nothing along: the scheduler runs anew what only it held, and a result is handed out once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from streamnb.errors import MissingExtraError
from streamnb.spans import FAN

if TYPE_CHECKING:
    from streamnb.accumulator import Counting
    from streamnb.schema import Schema
    from streamnb.state import State

__all__ = ["Dask", "fit"]

A = TypeVar("A")
B = TypeVar("B")

AHEAD = 4
"""Shards in hand for each thread of the cluster, where results are handed out one by one."""

RESULTS = 64
"""Results that may travel to the caller; more are joined on the workers first."""


class Dask:
    """An ordered map on the workers of a Dask cluster, by default the one of the current client."""

    def __init__(self, client: Any = None) -> None:
        self.client = _current() if client is None else client

    def map(self, task: Callable[[A], B], shards: Iterable[A]) -> Generator[B]:
        """Yield task(shard) in the order of the shards, which are drawn a few ahead; closing it cancels the rest."""
        ahead = AHEAD * max(1, sum(self.client.nthreads().values()))
        waiting: deque[Any] = deque()
        try:
            for shard in shards:
                waiting.append(self._submit(task, shard))
                if len(waiting) >= ahead:
                    yield cast("B", waiting.popleft().result())
            while waiting:
                yield cast("B", waiting.popleft().result())
        finally:
            self.client.cancel(list(waiting))

    def fold(self, task: Callable[[A], B], join: Callable[[Iterable[B]], B], shards: Iterable[A]) -> Generator[B]:
        """Yield joined results in the order of the shards, few enough to travel."""
        submitted = [self._submit(task, shard) for shard in shards]
        futures = self._joined(submitted, join, RESULTS)
        del submitted  # what was joined is let go on the workers
        try:
            while futures:
                yield cast("B", futures.pop(0).result())
        finally:
            self.client.cancel(futures)

    def _joined(self, futures: Sequence[Any], join: Callable[[Iterable[B]], B], at_most: int) -> list[Any]:
        while len(futures) > at_most:
            futures = [self._submit(join, list(futures[i : i + FAN])) for i in range(0, len(futures), FAN)]
        return list(futures)

    def _submit(self, function: Callable[[Any], Any], argument: Any) -> Any:
        # A pure function would be looked up by its arguments, and a file that has changed not be read again.
        return self.client.submit(function, argument, pure=False)


def fit(frame: Any, schema: Schema, *, client: Any = None) -> State:
    """Count the rows of a dask.dataframe, each partition where it is; files are better given to `streamnb.fit`.

    Nothing is counted to find out types: the partitions are counted as they are, and each of them once.

    Raises:
        SchemaError, DataError: as `State.update`, from the first partition in order.
        MissingExtraError: Dask is not installed.
    """
    from streamnb.accumulator import Counting

    engine, counting = Dask(client), Counting(schema)
    partitions = engine.client.compute(frame[list(counting.columns)].to_delayed())
    counted = [engine.client.submit(_count, counting, each, pure=False) for each in partitions]
    del partitions
    packed = engine._joined(counted, _Merge(counting), FAN)
    del counted
    return counting.merge(counting.unpack(each) for each in engine.client.gather(packed))


class _Merge:
    """Join packed states on a worker."""

    def __init__(self, counting: Counting) -> None:
        self.counting = counting

    def __call__(self, packed: Iterable[bytes]) -> bytes:
        return self.counting.pack(self.counting.merge(map(self.counting.unpack, packed)))


def _count(counting: Counting, rows: Any) -> bytes:
    return counting.pack(counting.add(counting.create(), rows))


def _current() -> Any:
    try:
        import distributed
    except ImportError:
        raise MissingExtraError("distributed", "dask") from None
    try:
        return distributed.get_client()
    except ValueError:
        raise ValueError(
            "Expected a Dask client, got none; start one, or give client=distributed.Client(...)"
        ) from None
