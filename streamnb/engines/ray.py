"""Ray: shards as tasks on the workers of a cluster, joined there as a tree; a task whose worker dies is run again."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar, cast

from streamnb.errors import MissingExtraError
from streamnb.spans import FAN

__all__ = ["Ray"]

A = TypeVar("A")
B = TypeVar("B")

AHEAD = 4
"""Shards in hand for each core of the cluster, where results are handed out one by one."""

RESULTS = 64
"""Results that may travel to the caller; more are joined on the workers first."""


class Ray:
    """An ordered map on the cluster that `ray.init` joined."""

    def __init__(self) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtraError("ray", "ray") from None
        if not ray.is_initialized():
            raise ValueError("Expected a running Ray, got none; call ray.init() first")
        self.ray: Any = ray

    def map(self, task: Callable[[A], B], shards: Iterable[A]) -> Generator[B]:
        """Yield task(shard) in the order of the shards, which are drawn a few ahead; closing it cancels the rest."""
        ahead = AHEAD * max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        run, shared = self._remote(_apply), self.ray.put(task)
        waiting: deque[Any] = deque()
        try:
            for shard in shards:
                waiting.append(run(shared, shard))
                if len(waiting) >= ahead:
                    yield self._result(waiting.popleft())
            while waiting:
                yield self._result(waiting.popleft())
        finally:
            self._cancel(waiting)

    def fold(self, task: Callable[[A], B], join: Callable[[Iterable[B]], B], shards: Iterable[A]) -> Generator[B]:
        """Yield joined results in the order of the shards, few enough to travel."""
        run, shared = self._remote(_apply), self.ray.put(task)
        results = [run(shared, shard) for shard in shards]
        run, shared = self._remote(_apply_to_all), self.ray.put(join)
        while len(results) > RESULTS:
            results = [run(shared, *results[i : i + FAN]) for i in range(0, len(results), FAN)]
        try:
            while results:
                yield self._result(results.pop(0))
        finally:
            self._cancel(results)

    def _remote(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return cast("Callable[..., Any]", self.ray.remote(max_retries=3)(function).remote)

    def _result(self, reference: Any) -> Any:
        try:
            return pickle.loads(self.ray.get(reference))  # written by our own tasks, a moment ago
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from None  # as the other engines raise it

    def _cancel(self, references: Iterable[Any]) -> None:
        for reference in references:
            self.ray.cancel(reference)


# Ray hands out arrays that lie in its store and cannot be written to; states are to be merged into. So results are
# packed into bytes, which nobody shares.


def _apply(task: Callable[[A], B], shard: A) -> bytes:
    return pickle.dumps(task(shard), protocol=pickle.HIGHEST_PROTOCOL)


def _apply_to_all(join: Callable[[Iterable[B]], B], *results: bytes) -> bytes:
    return pickle.dumps(join(map(pickle.loads, results)), protocol=pickle.HIGHEST_PROTOCOL)
