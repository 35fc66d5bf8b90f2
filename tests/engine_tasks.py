"""What the tests of the engines run on workers: importable there, as tests themselves are not."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamnb as snb

SCHEMA = snb.Schema(
    label="y", numeric=["x", "far"], categorical=["site"], binary=["flag"], counts=["n"], text=["words"], weight="w"
)


def rows(seed: int, n: int) -> pa.Table:
    """Rows of every kind of column: missing cells and labels, classes and categories that only some files have."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "y": pa.array(draw.choice(["a", "b"] if seed % 5 else ["b", "late"], n), mask=draw.random(n) < 0.02),
            "x": pa.array(draw.normal(size=n), mask=draw.random(n) < 0.1),
            "far": 1e9 + draw.normal(size=n),
            "site": draw.choice(["north", "south", f"only {seed}"], n),
            "flag": draw.random(n) < 0.5,
            "n": draw.poisson(2.0, n),
            "words": [" ".join(draw.choice(["free", "money", "noon", f"w{seed}"], 3)) for _ in range(n)],
            "w": draw.integers(1, 5, n) / 4,
        }
    )


def write(folder: Path, files: int = 12) -> Path:
    """Write a folder of files of uneven length."""
    folder.mkdir()
    for i in range(files):
        pq.write_table(rows(i, 100 + 20 * i), folder / f"part-{i:02}.parquet")
    return folder


def plain_loop(folder: Path, schema: snb.Schema = SCHEMA) -> snb.State:
    """What every engine is held against: one state, updated with one file after the other."""
    state = snb.State(schema)
    for path in sorted(folder.glob("*.parquet")):
        state.update(pq.read_table(path))
    return state


def square(number: int) -> int:
    """A task whose last shards are done first."""
    time.sleep(0.01 * (number % 3 == 0))
    return number * number


def failing(number: int) -> int:
    """A task that fails at two of its shards."""
    if number == 3:
        time.sleep(0.2)
    if number in (3, 4):
        raise snb.DataError(f"Expected an even mood, got {number}", column="mood", row=number)
    return number


def first_time(marker: Path) -> bool:
    """Whether this is asked for the first time, over all processes of this machine."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def kill_worker() -> None:
    """End this process as the kernel would: nothing is flushed, nobody is told."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_executor() -> None:
    """Kill the Java process that started this Python process."""
    pid = os.getpid()
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
            os.kill(pid, signal.SIGKILL)
            time.sleep(3)
            kill_worker()
    raise AssertionError("no Java process above this one")


LINGER_SECONDS = 240


def linger() -> None:
    """Be slow, as a worker on a bad machine is."""
    time.sleep(LINGER_SECONDS)


@dataclass(frozen=True)
class Once:
    """A task that counts its shard and then, the first time a certain shard is done, meets with an accident."""

    task: Callable[[Any], Any]
    accident: Callable[[], None]
    marker: Path
    place: int

    def __call__(self, placed: Any) -> Any:
        """Do the task, then perhaps die."""
        result = self.task(placed)
        if placed[0] == self.place and first_time(self.marker):
            self.accident()
        return result


@dataclass(frozen=True)
class Unlucky:
    """An engine one of whose tasks meets with an accident."""

    engine: Any
    accident: Callable[[], None]
    marker: Path
    place: int = 5

    def map(self, task: Callable[[Any], Any], shards: Iterable[Any]) -> Iterator[Any]:
        """As the engine's own."""
        return self.engine.map(Once(task, self.accident, self.marker, self.place), shards)

    def fold(self, task: Callable[[Any], Any], join: Callable[[Any], Any], shards: Iterable[Any]) -> Iterator[Any]:
        """As the engine's own."""
        return self.engine.fold(Once(task, self.accident, self.marker, self.place), join, shards)


@dataclass(frozen=True)
class UnluckyCounting:
    """An accumulator that meets with an accident once, when it has counted a batch."""

    counting: Any
    accident: Callable[[], None]
    marker: Path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.counting, name)

    def add(self, state: Any, rows: Any) -> Any:
        """Count, and perhaps die."""
        self.counting.add(state, rows)
        if first_time(self.marker):
            self.accident()
        return state
