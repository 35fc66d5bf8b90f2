"""The default engine: a pool of threads in this process. Decoding and counting both release the GIL."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import Any, TypeVar, cast

from streamnb.engines.stopping import stopping_with

__all__ = ["Threads", "available_cores"]

A = TypeVar("A")
B = TypeVar("B")

READ_AHEAD = 2
"""Shards in hand beyond one per worker: enough that none waits, few enough that results do not pile up."""


def available_cores() -> int:
    """Return the cores that this process may use, which in a container is fewer than the machine has."""
    if hasattr(os, "process_cpu_count"):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Threads:
    """An ordered map on `workers` threads, by default one per core; 1 works in the calling thread."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = available_cores() if workers is None else workers
        if self.workers < 1:
            raise ValueError(f"Expected at least 1 worker, got {workers}")

    def map(self, task: Callable[[A], B], shards: Iterable[A]) -> Generator[B]:
        """Yield task(shard) in the order of the shards; equal to the built-in `map`, also in its errors.

        The shards are drawn in the calling thread, at most `workers + 2` ahead of the results. Closing the iterator,
        an error or an interrupt stops the work: tasks that wait are dropped, tasks that run end at their next
        `raise_if_stopped()`, and no thread is left when this returns.

        >>> list(Threads(2).map(str, [1, 2, 3]))
        ['1', '2', '3']
        """
        if self.workers == 1:
            yield from map(task, shards)
            return
        stop = Event()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="streamnb")
        waiting: deque[Future[Any]] = deque()
        try:
            for shard in shards:
                waiting.append(pool.submit(stopping_with, stop, task, shard))
                if len(waiting) >= self.workers + READ_AHEAD:
                    yield cast("B", waiting.popleft().result())
            while waiting:
                yield cast("B", waiting.popleft().result())
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
