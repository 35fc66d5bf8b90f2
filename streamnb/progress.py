"""How far a long run has come: a bar on a terminal, calls to a function, or silence."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias

__all__ = ["Progress", "ProgressOption", "reporting"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands: rows and bytes done, bytes in all (0 when unknown), seconds since the start."""

    rows: int
    size: int
    total_size: int
    seconds: float

    @property
    def rows_per_second(self) -> float:
        """Rows a second since the start."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


ProgressOption: TypeAlias = bool | Callable[[Progress], None] | None
Advance: TypeAlias = Callable[[int, int], None]


@contextmanager
def reporting(option: ProgressOption, total_size: int, *, done: int = 0) -> Iterator[Advance]:
    """Yield `advance(rows, size)`, to be called as work gets done; `done` bytes were done by an earlier run.

    True draws a bar on the standard error stream if that is a terminal; a callable gets a `Progress` each time.
    """
    start = time.monotonic()
    now = Progress(0, done, total_size, 0.0)

    def step(rows: int, size: int) -> Progress:
        nonlocal now
        now = replace(now, rows=now.rows + rows, size=now.size + size, seconds=time.monotonic() - start)
        return now

    if callable(option):
        yield lambda rows, size: option(step(rows, size))
    elif option and sys.stderr.isatty():
        # Imported here: a terminal is the only place that needs it, and starting up should stay quick.
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        columns = [
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[rows]:,} rows  {task.fields[rate]:,.0f} rows/s"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        ]
        with Bar(*columns, console=Console(stderr=True), transient=False) as bar:
            task = bar.add_task("", total=total_size or None, completed=done, rows=0, rate=0.0)

            def draw(rows: int, size: int) -> None:
                at = step(rows, size)
                bar.update(task, completed=at.size, rows=at.rows, rate=at.rows_per_second)

            yield draw
    else:
        yield lambda rows, size: None
