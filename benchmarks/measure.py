"""Races (contenders take turns, so that a slow minute hits all of them alike) and peaks of memory."""

from __future__ import annotations

import gc
import importlib
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

__all__ = [
    "Check",
    "Contender",
    "Result",
    "Row",
    "Subprocess",
    "at_least",
    "at_most",
    "peak",
    "race",
    "run_command",
]

SAMPLE_SECONDS = 0.002
ROOT = Path(__file__).parent.parent
PYTHON = sys.executable


@dataclass(frozen=True)
class Contender:
    """Something to be timed: `run` is called with nothing, its seconds times `per` are shown in `unit`.

    `place` is the process in which it runs; None is this one.
    """

    name: str
    run: Callable[[], object]
    unit: str = "s"
    per: float = 1.0
    place: Subprocess | None = None


@dataclass(frozen=True)
class Row:
    """One line of a table: what each run took, in `unit`, and the processor seconds (median) where they are known."""

    name: str
    unit: str
    runs: tuple[float, ...]
    cpu: float | None = None
    note: str = ""

    @property
    def median(self) -> float:
        """The middle of the runs."""
        return statistics.median(self.runs)

    def over(self, other: Row) -> float:
        """Return how many times the other this takes: the median over rounds, as both ran in each."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.runs, other.runs, strict=True))


@dataclass(frozen=True)
class Check:
    """A budget, and what was measured."""

    what: str
    measured: float
    limit: float
    at_most: bool
    unit: str = "×"

    @property
    def ok(self) -> bool:
        """Whether the budget was met."""
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


def at_most(what: str, measured: float, limit: float, unit: str = "×") -> Check:
    """Return a budget that is kept by staying below."""
    return Check(what, measured, limit, True, unit)


def at_least(what: str, measured: float, limit: float, unit: str = "×") -> Check:
    """Return a budget that is kept by being so many times faster."""
    return Check(what, measured, limit, False, unit)


@dataclass(frozen=True)
class Result:
    """One table: its rows, their reference (the name of a row, or none), and the budgets it decides."""

    title: str
    rows: Sequence[Row]
    reference: str = ""
    checks: Sequence[Check] = ()
    note: str = field(default="")


class Subprocess:
    """A process of its own, with settings in its environment; it stays, so that its caches are warm."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), _settle, (dict(environment or {}),))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function there and wait for what it returns; both must pickle."""
        return self._pool.submit(function, *arguments).result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()


def _settle(environment: Mapping[str, str]) -> None:
    os.environ.update(environment)


def clock(run: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds and processor seconds of one call; those of all its threads."""
    gc.collect()
    started, cpu = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - started, time.process_time() - cpu


def race(contenders: Sequence[Contender], repeat: int) -> dict[str, Row]:
    """Run all contenders in turn, `repeat` times after a first round that does not count, and return rows by name.

    With `repeat` 0 the first round is the only one, and counts. The order moves on by one each round: no contender
    always follows the same one.
    """
    gc.collect()
    gc.freeze()  # what is there already is not gone through before each run
    timings: dict[str, list[tuple[float, float]]] = {contender.name: [] for contender in contenders}
    for turn in range(repeat + 1):
        first = turn % len(contenders)
        for contender in (*contenders[first:], *contenders[:first]):
            timing = contender.place.call(clock, contender.run) if contender.place else clock(contender.run)
            if turn or not repeat:
                timings[contender.name].append(timing)
    rows = {}
    for contender in contenders:
        runs = tuple(seconds * contender.per for seconds, _ in timings[contender.name])
        cpu = statistics.median(cpu for _, cpu in timings[contender.name]) if contender.unit == "s" else None
        cpu = None if cpu is None else cpu * contender.per
        rows[contender.name] = Row(contender.name, contender.unit, runs, cpu)
    return rows


def peak(name: str, run: Callable[[], object], imports: Iterable[str], note: str = "", repeat: int = 1) -> Row:
    """Return the peaks of anonymous memory of a call, each in a fresh process, in MB above what the imports take."""
    found = []
    for _ in range(repeat):
        with Subprocess() as process:
            found.append(process.call(_peak, run, tuple(imports)))
    megabytes, seconds = zip(*found, strict=True)
    return Row(name, "MB", megabytes, note=f"{statistics.median(seconds):.1f} s{note}")


def _peak(run: Callable[[], object], imports: tuple[str, ...]) -> tuple[float, float]:
    for name in imports:
        importlib.import_module(name)
    gc.collect()
    before = _anonymous_kilobytes()
    highest = before
    done = threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(SAMPLE_SECONDS):
            highest = max(highest, _anonymous_kilobytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    started = time.perf_counter()
    run()
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    return (max(highest, _anonymous_kilobytes()) - before) * 1024 / 1e6, seconds


def _anonymous_kilobytes() -> int:
    """RssAnon: what the process itself holds, without the pages of files that the system may drop."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0])


def run_command(command: Sequence[str]) -> None:
    """Run a command to its end, without its output."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": str(ROOT)})
