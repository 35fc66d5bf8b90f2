"""Results as tables for a person, as JSON, and as part of a page."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.measure import Check, Result, Row

__all__ = ["Provenance", "provenance", "rendered", "replaced", "summary"]

PACKAGES = ("numpy", "pyarrow", "polars", "numba", "duckdb", "scikit-learn", "river")


@dataclass(frozen=True)
class Provenance:
    """Where and from what figures came."""

    commit: str
    day: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]

    @property
    def line(self) -> str:
        """The same as one line."""
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        machine = f"{self.machine['cores']} cores of {self.machine['cpu']}, {self.machine['memory_gb']} GB"
        return f"Commit {self.commit}, {self.day}; {machine}; {versions}."

    def report(self, options: Mapping[str, Any], results: Mapping[str, Sequence[Result]]) -> dict[str, Any]:
        """Return everything that was measured, for JSON."""
        return {
            "commit": self.commit,
            "day": self.day,
            "machine": self.machine,
            "versions": self.versions,
            "options": options,
            "tables": {name: [_plain(result) for result in each] for name, each in results.items()},
        }


def provenance() -> Provenance:
    """Find out the commit, the machine and the versions."""
    versions = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpu = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    machine = {
        "cpu": cpu[1] if cpu else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(memory / 1e9),
    }
    return Provenance(_commit(), date.today().isoformat(), machine, versions)


def _commit() -> str:
    try:
        commit = _git("rev-parse", "--short", "HEAD")
        return f"{commit} with changes" if _git("status", "--porcelain", "--untracked-files=no") else commit
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    folder = Path(__file__).parent
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def rendered(result: Result) -> str:
    """Return a result as Markdown that is aligned for a terminal too."""
    reference = next((row for row in result.rows if row.name == result.reference), None)
    last = "CPU" if any(row.cpu for row in result.rows) else "took" if any(row.note for row in result.rows) else ""
    lines = [["", "median", "from – to", *filter(None, [last, "ratio" if reference else ""])]]
    for row in result.rows:
        several = len(row.runs) > 1
        cells = [row.name, f"{_figure(row.median)} {row.unit}"]
        cells.append(f"{_figure(min(row.runs))} – {_figure(max(row.runs))}" if several else "")
        if last:
            cells.append(f"{_figure(row.cpu)} s" if row.cpu else row.note)
        if reference:
            cells.append(f"{row.over(reference):.2f}")
        lines.append(cells)
    text = f"### {result.title}\n\n{_table(lines)}\n"
    if result.checks:
        text += f"\n{_table([['budget', 'limit', 'measured', ''], *map(_checked, result.checks)])}\n"
    return text


def _checked(check: Check) -> list[str]:
    sign = "≤" if check.at_most else "≥"
    verdict = "ok" if check.ok else "**miss**"
    return [check.what, f"{sign} {check.limit:g}{check.unit}", f"{_figure(check.measured)}{check.unit}", verdict]


def summary(results: Iterable[Result]) -> str:
    """Say how many budgets were met, and name those that were not."""
    checks = [check for result in results for check in result.checks]
    missed = [f"{check.what} ({_figure(check.measured)}{check.unit})" for check in checks if not check.ok]
    text = f"{len(checks) - len(missed)} of {len(checks)} budgets met"
    return f"{text}; missed: {'; '.join(missed)}" if missed else text


def replaced(page: str, results: Mapping[str, Sequence[Result]], about: Provenance) -> str:
    """Return the page with new tables between the marks of each case.

    Raises:
        ValueError: the page has no marks for a case.
    """
    for name, each in results.items():
        begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        before, opened, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not opened or not closed:
            raise ValueError(f"Expected {begin.strip()} and {end} in the page, got no such marks")
        tables = "\n".join(map(rendered, each))
        page = f"{before}{begin}{tables}\n*{about.line}*\n{end}{after}"
    return page


def _figure(number: float) -> str:
    """Three digits that count, never an exponent."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.3g}" if number < 10 else f"{number:.1f}"


def _table(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    head, *rest = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return "\n".join([head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *rest])


def _plain(result: Result) -> dict[str, Any]:
    return {
        "title": result.title,
        "reference": result.reference,
        "rows": [_row(row) for row in result.rows],
        "budgets": [
            {
                "what": check.what,
                "measured": check.measured,
                "limit": check.limit,
                "at_most": check.at_most,
                "ok": check.ok,
            }
            for check in result.checks
        ],
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "unit": row.unit,
        "median": row.median,
        "runs": row.runs,
        "cpu": row.cpu,
        "note": row.note,
    }
