"""The benchmarks run from end to end; how fast anything is, is not a matter for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("river")
pytest.importorskip("sklearn")

ROOT = Path(__file__).parent.parent
RACES = ("numeric", "mixed", "categorical", "classes", "shapes", "predict", "cells", "exact")
PROCESSES = ("text", "sklearn", "memory", "merge", "startup")


def started(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start the benchmarks as a person would, at a size of next to nothing."""
    command = [sys.executable, "-m", "benchmarks", "--rows", "2000", "--repeat", "0", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_every_case_runs_and_reports(tmp_path: Path) -> None:
    """All cases run on tiny tables; the JSON has every run and budget, the page its tables between their marks."""
    runs = []
    for cases in (RACES, PROCESSES):  # side by side, as most of the time goes into starting processes
        folder = tmp_path / cases[0]
        folder.mkdir()
        page = "# Figures\n" + "".join(f"<!-- begin: {n} -->\nold\n<!-- end: {n} -->\nkept {n}\n" for n in cases)
        (folder / "page.md").write_text(page)
        files = ("--data", folder / "data", "--json", folder / "out.json", "--markdown", folder / "page.md")
        runs.append((cases, folder, started(*cases, *files)))
    for cases, folder, run in runs:
        printed, problems = run.communicate(timeout=300)
        assert run.returncode == 0, problems
        assert "budgets met" in printed
        check_report(json.loads((folder / "out.json").read_text()), cases)
        text = (folder / "page.md").read_text()
        assert "old" not in text
        assert all(f"<!-- end: {name} -->\nkept {name}\n" in text for name in cases)
        assert text.count("| budget") >= len(cases)


def check_report(report: dict[str, Any], cases: tuple[str, ...]) -> None:
    """Assert that every case has rows that took time, its reference among them, and budgets."""
    assert {"commit", "day", "machine", "versions", "options"} <= report.keys()
    assert tuple(report["tables"]) == cases
    for name, table in ((name, table) for name, each in report["tables"].items() for table in each):
        assert table["rows"], name
        assert all(min(row["runs"]) > 0 for row in table["rows"]), name
        assert {row["name"] for row in table["rows"]} >= {table["reference"]} - {""}, name
        assert all({"measured", "limit", "ok"} <= budget.keys() for budget in table["budgets"]), name


def test_unknown_case_is_refused() -> None:
    """A case that does not exist ends the command before anything is made."""
    run = started("nmeric")
    _, problems = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "Expected cases among numeric, mixed" in problems
    assert "got nmeric" in problems


def test_page_has_marks_for_every_case() -> None:
    """The page of results can be refreshed whole."""
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in (*RACES, *PROCESSES):
        assert text.count(f"<!-- begin: {name} -->\n") == text.count(f"<!-- end: {name} -->") == 1, name
