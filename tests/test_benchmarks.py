"""The benchmarks run from end to end; how fast anything is, is not a matter for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("duckdb")
pytest.importorskip("river")
pytest.importorskip("sklearn")

ROOT = Path(__file__).parent.parent
CASES = ("numeric", "mixed", "categorical", "classes", "shapes", "predict", "cells", "memory", "merge", "startup")


def benchmark(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the benchmarks as a person would, at a size of nothing."""
    command = [sys.executable, "-m", "benchmarks", "--rows", "2000", "--repeat", "1", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_every_case_runs_and_reports(tmp_path: Path) -> None:
    """All cases run on tiny tables; the JSON has every run and budget, the page its tables between their marks."""
    page = tmp_path / "page.md"
    page.write_text("# Figures\n" + "".join(f"<!-- begin: {n} -->\nold\n<!-- end: {n} -->\nkept {n}\n" for n in CASES))
    done = benchmark("--data", tmp_path / "data", "--json", tmp_path / "out.json", "--markdown", page)
    assert done.returncode == 0, done.stderr

    report = json.loads((tmp_path / "out.json").read_text())
    assert tuple(report["tables"]) == CASES
    assert {"commit", "day", "machine", "versions", "options"} <= report.keys()
    for name, table in report["tables"].items():
        assert table["rows"], name
        assert all(min(row["runs"]) > 0 for row in table["rows"]), name
        assert {row["name"] for row in table["rows"]} >= {table["reference"]} - {""}, name
        assert all({"measured", "limit", "ok"} <= budget.keys() for budget in table["budgets"]), name

    text = page.read_text()
    assert "old" not in text
    assert all(f"<!-- end: {name} -->\nkept {name}\n" in text for name in CASES)
    assert text.count("| budget") == len(CASES)
    assert "### (a) numeric: 2,000 rows" in done.stdout
    assert "budgets met" in done.stdout


def test_unknown_case_is_refused() -> None:
    """A case that does not exist ends the command before anything is made."""
    done = benchmark("nmeric")
    assert done.returncode == 2
    assert "Expected cases among numeric, mixed" in done.stderr
    assert "got nmeric" in done.stderr


def test_page_has_marks_for_every_case() -> None:
    """The page of results can be refreshed whole."""
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    for name in CASES:
        assert text.count(f"<!-- begin: {name} -->\n") == text.count(f"<!-- end: {name} -->") == 1, name
