"""`python -m benchmarks [names...]`: run the races and print their tables."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

NAMES = (
    "numeric",
    "mixed",
    "categorical",
    "classes",
    "shapes",
    "predict",
    "cells",
    "text",
    "sklearn",
    "memory",
    "merge",
    "exact",
    "startup",
)
NEEDED = ("duckdb", "river", "sklearn")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    command = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    command.add_argument("names", nargs="*", metavar="name", help=f"cases to run, by default all: {', '.join(NAMES)}")
    command.add_argument("--rows", type=int, default=8_000_000, help="rows of table (a); the others go with it")
    command.add_argument("--scale", type=float, default=1.0, help="multiplies every size")
    command.add_argument(
        "--repeat", type=int, default=5, help="rounds that count, after one that does not; 0: that one only"
    )
    command.add_argument("--cores", type=int, default=2, help="cores that everyone may use")
    command.add_argument("--data", type=Path, help="folder for the tables, kept; by default a temporary one")
    command.add_argument("--keep", action="store_true", help="keep the temporary folder")
    command.add_argument("--large", action="store_true", help="measure memory on a single file of 10 GB too")
    command.add_argument("--json", type=Path, help="write every run to this file")
    command.add_argument("--markdown", type=Path, help="put the tables between the marks of this page")
    return command


def main(arguments: list[str] | None = None) -> None:
    """Run the cases that the command line names."""
    command = parser()
    options = command.parse_args(arguments)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        command.error(f"Expected cases among {', '.join(NAMES)}, got {', '.join(unknown)}")
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        command.error(f"Expected the peers, got no {', '.join(missing)}; pip install 'streamnb[benchmark]'")
    # Before anything that starts threads is imported: Polars and DuckDB count the cores then.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])

    from benchmarks.cases import CASES, Bench
    from benchmarks.data import Tables
    from benchmarks.measure import Subprocess
    from benchmarks.report import provenance, rendered, replaced, summary

    about = provenance()
    results = {}
    with ExitStack() as stack:
        folder = options.data or Path(tempfile.mkdtemp(prefix="streamnb-benchmarks-"))
        folder.mkdir(parents=True, exist_ok=True)
        if options.data is None and not options.keep:
            stack.callback(shutil.rmtree, folder)
        plain = stack.enter_context(Subprocess({"STREAMNB_JIT": "0"}))
        factor = options.rows / 8_000_000 * options.scale
        bench = Bench(Tables(folder, factor), options.repeat, options.cores, options.large, plain)
        print(f"Tables in {folder}", file=sys.stderr)
        for name in options.names or NAMES:
            started = time.perf_counter()
            print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
            results[name] = CASES[name](bench)
            print(f"{time.perf_counter() - started:.0f} s", file=sys.stderr)
            print("\n".join(map(rendered, results[name])), flush=True)
            # After each case: hours of figures are not lost when a later one fails.
            if options.json:
                options.json.write_text(json.dumps(about.report(vars(options), results), indent=1, default=str) + "\n")
            if options.markdown:
                options.markdown.write_text(replaced(options.markdown.read_text(), {name: results[name]}, about))
    print(summary(chain.from_iterable(results.values())))
    print(about.line)


if __name__ == "__main__":
    main()
