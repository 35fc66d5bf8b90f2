"""The cases: each finds its tables, holds its races, and returns rows with the budgets that they decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamnb as snb
from benchmarks import ours, peers, sklearn_front, text
from benchmarks.data import LABEL, Table, Tables, numeric_batch
from benchmarks.exact import exact
from benchmarks.measure import (
    PYTHON,
    Contender,
    Result,
    Row,
    Subprocess,
    at_least,
    at_most,
    peak,
    race,
    run_command,
)

__all__ = ["CASES", "Bench"]

FLOOR = "Polars: sum of every column (the floor)"
GROUP_BY = "Polars: group_by, mean and variance"
SKLEARN = "scikit-learn: partial_fit over Arrow batches"
RIVER_ROWS = 20_000


@dataclass(frozen=True)
class Bench:
    """What a case works with; `plain` is a process in which streamnb has its NumPy kernels."""

    tables: Tables
    repeat: int
    cores: int
    large: bool
    plain: Subprocess

    def ours(self, table: Table, workers: int, *, jit: bool, name: str = "") -> Contender:
        """Return a fit of ours as a contender."""
        kernel = "compiled" if jit else "NumPy"
        name = name or f"streamnb, {kernel} kernel, {workers} worker{'s' * (workers > 1)}"
        return Contender(name, partial(ours.fit, table, workers), place=None if jit else self.plain)

    def fits(self, table: Table) -> list[Contender]:
        """Return our fits of a table: each kernel, with one worker and with one per core; the fastest first."""
        kernels = [True, False] if ours.has_jit() else [False]
        return [self.ours(table, workers, jit=jit) for jit in kernels for workers in (self.cores, 1)]

    def reading(self, table: Table) -> Contender:
        """Return our reading without counting, which is what the rest of a fit cannot go below."""
        return Contender(f"streamnb: reading only, {self.cores} workers", partial(ours.read_only, table, self.cores))


def numeric(bench: Bench) -> Result:
    """(a) Doubles and ten classes."""
    table = bench.tables.numeric()
    slice_rows = min(RIVER_ROWS, table.rows)
    head = pq.read_table(table.paths[0]).slice(0, slice_rows)
    rows, labels = head.select(table.numeric).to_pylist(), head[LABEL].to_pylist()
    fits = bench.fits(table)
    contenders = [
        Contender(FLOOR, partial(peers.polars_sum, table)),
        *fits,
        bench.reading(table),
        Contender(GROUP_BY, partial(peers.polars_moments, table)),
        Contender("DuckDB: avg and var_pop, group by", partial(peers.duckdb_moments, table)),
        Contender("PyArrow: decode only, 1 thread", partial(peers.arrow_decode, table)),
        Contender(SKLEARN, partial(peers.sklearn_fit, table)),
        Contender(
            f"river: learn_one, extrapolated from {len(rows):,} rows in memory",
            partial(peers.river_learn, rows, labels),
            per=table.rows / len(rows),
        ),
    ]
    found = race(contenders, bench.repeat)
    best = found[fits[0].name]
    checks = [
        at_least("NumPy kernel: faster than the Polars group_by", found[GROUP_BY].over(found[fits[-2].name]), 1.1)
    ]
    if ours.has_jit():
        checks += [
            at_most("fit, as against the Polars sum", best.over(found[FLOOR]), 1.1),
            at_least("faster than the Polars group_by", found[GROUP_BY].over(best), 2.0),
            at_least("faster than scikit-learn", found[SKLEARN].over(best), 10.0),
        ]
    title = f"(a) numeric: {table.rows:,} rows × 20 doubles, 10 classes, snappy, {table.size / 1e9:.1f} GB"
    return Result(title, list(found.values()), FLOOR, checks)


def mixed(bench: Bench) -> Result:
    """(b) A realistic table, all columns at once."""
    table = bench.tables.mixed()
    floor = "Polars: sum of numbers and of byte lengths"
    fits = bench.fits(table)
    contenders = [Contender(floor, partial(peers.polars_sum_and_bytes, table)), *fits, bench.reading(table)]
    found = race(contenders, bench.repeat)
    two, one = found[fits[0].name], found[fits[1].name]
    title = (
        f"(b) realistic: {table.rows:,} rows, {len(table.numeric)} numeric and {len(table.categorical)} string "
        f"columns, 3 to 5 % nulls, string labels, zstd, {table.size / 1e9:.2f} GB"
    )
    checks = [
        at_most("fit, as against the Polars scan", two.over(found[floor]), 2.0),
        at_least(f"{bench.cores} workers faster than one", one.over(two), 1.7),
    ]
    return Result(title, list(found.values()), floor, checks)


def categorical(bench: Bench) -> Result:
    """(b) The string columns of the realistic table alone."""
    whole = bench.tables.mixed()
    table = Table(whole.paths, whole.rows, (), whole.categorical)
    floor = "Polars: group_by for each column"
    fits = bench.fits(table)
    contenders = [
        Contender(floor, partial(peers.polars_counts, table)),
        *fits,
        bench.reading(table),
        Contender("DuckDB: group by for each column", partial(peers.duckdb_counts, table)),
    ]
    found = race(contenders, bench.repeat)
    checks = [at_least("faster than the Polars group_by", found[floor].over(found[fits[0].name]), 1.5)]
    title = f"(b) categorical: the {len(table.categorical)} string columns of (b), with 5 to 20,000 values"
    return Result(title, list(found.values()), floor, checks)


def classes(bench: Bench) -> Result:
    """(c) As (a), with fewer and with many more classes."""
    contenders, names = [], {}
    for number in (10, 2, 1000):
        table = bench.tables.numeric(classes=number)
        for fit in bench.fits(table)[:: 2 if ours.has_jit() else 4]:
            kernel = "compiled" if "compiled" in fit.name else "NumPy"
            names[number, kernel] = f"{number} classes: {fit.name}"
            contenders.append(Contender(names[number, kernel], fit.run, place=fit.place))
        contenders.append(Contender(f"{number} classes: {GROUP_BY}", partial(peers.polars_moments, table)))
    found = race(contenders, bench.repeat)
    checks = [
        at_most(f"{kernel} kernel: 1000 classes, as against 10", found[names[1000, kernel]].over(found[name]), 1.3)
        for (number, kernel), name in names.items()
        if number == 10
    ]
    return Result("(c) classes: as (a), with 2, 10 and 1000 classes", list(found.values()), contenders[0].name, checks)


def shapes(bench: Bench) -> Result:
    """(d) As (a), with other numbers and other shapes, per value."""
    tables = {
        "20 doubles": bench.tables.numeric(),
        "20 float32": bench.tables.numeric(dtype="float32"),
        "500 doubles": bench.tables.numeric(features=500),
        "500 float32": bench.tables.numeric(features=500, dtype="float32"),
    }
    contenders = []
    for name, table in tables.items():
        fit = bench.fits(table)[0]
        contenders.append(Contender(f"{name}: {fit.name}", fit.run, "ns/value", 1e9 / table.values, fit.place))
        contenders.append(
            Contender(f"{name}: {FLOOR}", partial(peers.polars_sum, table), "ns/value", 1e9 / table.values)
        )
    found = list(race(contenders, bench.repeat).values())
    checks = [
        at_most(f"per value, {name} as against (a)", row.over(found[0]), 1.2)
        for name, row in zip(list(tables)[1:], found[2::2], strict=True)
    ]
    return Result("(d) shapes: as many values as (a), in float32 and in 500 columns", found, found[0].name, checks)


def predict(bench: Bench) -> Result:
    """(e) Prediction of rows in memory, and of one row."""
    contenders, checks = [], []
    tables = {
        "(a)": (bench.tables.numeric(), 1_000_000),
        "(b)": (bench.tables.mixed(), 1_000_000),
        "(c) 2 classes": (bench.tables.numeric(classes=2), 1_000_000),
        # A row has a hundred times the classes: fewer rows, or scikit-learn takes a minute for each run.
        "(c) 1000 classes": (bench.tables.numeric(classes=1000), 20_000),
        "(d) float32": (bench.tables.numeric(dtype="float32"), 1_000_000),
        "(d) 500 columns": (bench.tables.numeric(features=500), 40_000),
    }
    for name, (table, most) in tables.items():
        model = ours.fit(table, bench.cores).finish()
        rows = pq.read_table(table.paths[0], columns=[*table.numeric, *table.categorical]).slice(0, most)
        rows = rows.combine_chunks()
        per = 1e9 / rows.num_rows
        for workers in (bench.cores, 1):
            run = partial(ours.predict, model, rows, workers)
            contenders.append(Contender(f"{name}: streamnb, {workers} thread{'s' * (workers > 1)}", run, "ns/row", per))
        if not table.categorical:
            run = partial(peers.sklearn_predict, *_sklearn(table, rows.num_rows))
            contenders.append(Contender(f"{name}: scikit-learn", run, "ns/row", per))
        if name in ("(a)", "(b)"):
            contenders += _one_row(name, table, model, rows)
    model = ours.fit(tables["(a)"][0], bench.cores).finish()
    files = tables["(a)"][0]
    contenders.append(
        Contender(
            f"(a): streamnb, files into a file, {bench.cores} workers",
            partial(ours.score, model, files, bench.cores),
            "ns/row",
            1e9 / files.rows,
        )
    )
    found = race(contenders, bench.repeat)
    best = found[f"(a): streamnb, {bench.cores} threads"]
    checks = [
        at_least("(a): faster than scikit-learn", found["(a): scikit-learn"].over(best), 15.0),
        at_most("(a): one row", found["(a): one row, streamnb"].median, 50.0, " µs"),
        at_most("(b): one row", found["(b): one row, streamnb"].median, 50.0, " µs"),
    ]
    return Result("(e) prediction: rows in memory, and one row at a time", list(found.values()), "", checks)


def _sklearn(table: Table, rows: int) -> tuple[Any, Any]:
    """Return a model, and the rows as a matrix, made beforehand; what a model has learned has no part in its speed."""
    from sklearn.naive_bayes import GaussianNB

    head = pq.read_table(table.paths[0]).slice(0, rows)
    matrix = peers.sklearn_matrix(head.select(table.numeric))
    return GaussianNB().fit(matrix, np.asarray(head[LABEL])), matrix


def _one_row(name: str, table: Table, model: snb.Predictor, rows: pa.Table) -> list[Contender]:
    times = 200
    unit, per = "µs", 1e6 / times
    one = rows.slice(0, 1).to_batches()[0]
    contenders = [Contender(f"{name}: one row, streamnb", partial(ours.one_row, model, one, times), unit, per)]
    if not table.categorical:
        fitted, matrix = _sklearn(table, 1000)
        head = pq.read_table(table.paths[0]).slice(0, 1000)
        dictionaries = head.select(table.numeric).to_pylist()
        stream = peers.river_learn(dictionaries, head[LABEL].to_pylist())
        contenders += [
            Contender(f"{name}: one row, scikit-learn", partial(ours.one_row, fitted, matrix[:1], times), unit, per),
            Contender(
                f"{name}: one row, river", partial(peers.river_one_row, stream, dictionaries[0], times), unit, per
            ),
        ]
    return contenders


def cells(bench: Bench) -> Result:
    """Missing cells and weights, as against clean columns, from memory."""
    rows = bench.tables.rows(2_000_000)
    contenders, names = [], {}
    for kernel, place in {"compiled": None, "NumPy": bench.plain}.items() if ours.has_jit() else [("NumPy", None)]:
        for kind, words in {
            "clean": "clean",
            "null": "5 % null",
            "nan": "5 % NaN",
            "weight": "with weights",
        }.items():
            names[kernel, kind] = f"{kernel} kernel: {words}"
            run = partial(ours.count_in_memory, kind, rows)
            contenders.append(Contender(names[kernel, kind], run, "ns/value", 1e9 / rows / 20, place))
    found = race(contenders, bench.repeat)
    checks = [
        at_most(f"{name}, as against clean", found[name].over(found[names[kernel, "clean"]]), 1.5)
        for (kernel, kind), name in names.items()
        if kind != "clean"
    ]
    title = f"Missing cells and weights: {rows:,} rows × 20 doubles in memory, one thread"
    return Result(title, list(found.values()), contenders[0].name, checks)


def memory(bench: Bench) -> Result:
    """Peaks of anonymous memory above the imports."""
    table = bench.tables.numeric()
    imports = ["streamnb.train", "streamnb.sources", "streamnb.engines.threads", "benchmarks.ours"]
    if ours.has_jit():
        imports.append("streamnb.kernels_jit")

    # Where a peak falls is chance: it is highest when two workers decode at the same moment.
    repeat = max(1, min(bench.repeat, 3))

    def ours_peak(name: str, table: Table) -> Row:
        size = f", {table.size / 1e9:.1f} GB"
        return peak(f"streamnb: {name}", partial(ours.fit, table, bench.cores), imports, size, repeat)

    short = ours_peak("(a)", table)
    long = ours_peak("(a) twenty times, by hard links", bench.tables.linked(table, 20))
    grouped = ours_peak("(a) in one file, row groups of 1,000,000", bench.tables.regrouped(table, 1_000_000))
    rows = [short, long, grouped]
    if bench.large:
        single = bench.tables.regrouped(table, 250_000, copies=7)
        rows.append(ours_peak("(a) seven times in one file", single))
        for path in single.paths:
            Path(path).unlink()
    checks = [at_most(row.name.removeprefix("streamnb: "), max(row.runs), 400.0, " MB") for row in rows]
    checks.append(at_most("twenty times the rows, as against (a)", max(long.over(short), short.over(long)), 1.1))
    rows += [
        ours_peak("(b)", bench.tables.mixed()),
        ours_peak("(d) 500 doubles", bench.tables.numeric(features=500)),
        peak(GROUP_BY + ", (a)", partial(peers.polars_moments, table), ["benchmarks.peers"], "", repeat),
    ]
    return Result("Memory: peak of anonymous memory above the imports", rows, "", checks)


def merge(bench: Bench) -> Result:
    """Merging many states: without names, and of named shards, each of which counts once."""
    times = max(10, round(10_000 * bench.tables.factor))
    named = max(10, round(100 * bench.tables.factor))
    anonymous = partial(ours.merge_all, _states(min(20, times), 1000, named=False), times)
    contenders = [
        Contender(f"streamnb: {times:,} states × 1000 columns", anonymous),
        *(
            Contender(f"streamnb: {n:,} states of named shards × 100 columns", partial(ours.merge_all, states, n))
            for n, states in ((n, _states(n, 100, named=True)) for n in (named, 2 * named))
        ),
    ]
    many, some, twice = race(contenders, min(1, bench.repeat)).values()
    checks = [
        at_most(f"{times:,} states of 10 classes × 1000 columns", many.median, 5.0, " s"),
        at_most("twice as many named shards, as against once", twice.over(some), 2.5),
    ]
    return Result("Merging: states of 10 classes, one after the other into a total", [many, some, twice], "", checks)


def _states(number: int, columns: int, *, named: bool) -> list[snb.State]:
    schema = snb.Schema(label=LABEL, numeric=[f"x{j}" for j in range(columns)])
    states = []
    for i in range(number):
        states.append(snb.State(schema, shard=f"shard {i}" if named else None))
        states[-1].update(numeric_batch([i], 200, columns, 10, "float64"))
    return states


def startup(bench: Bench) -> Result:
    """Imports and --help, each in a process of its own."""
    names = ", ".join(snb.__all__)
    commands: dict[str, Sequence[str]] = {
        "python: start, import nothing": [PYTHON, "-c", "pass"],
        "import numpy, pyarrow, polars": [PYTHON, "-c", "import numpy, pyarrow, polars"],
        "import streamnb": [PYTHON, "-c", "import streamnb"],
        "from streamnb import every name": [PYTHON, "-c", f"from streamnb import {names}"],
        "streamnb --help": [PYTHON, "-m", "streamnb", "--help"],
    }
    contenders = [Contender(name, partial(run_command, command)) for name, command in commands.items()]
    found = race(contenders, bench.repeat)
    rows = [Row(row.name, row.unit, row.runs) for row in found.values()]  # the time is another process's
    base = found["import numpy, pyarrow, polars"]
    checks = [
        at_most("import streamnb, as against NumPy, PyArrow and Polars", found["import streamnb"].over(base), 1.2),
        at_most("every name, as against these", found["from streamnb import every name"].over(base), 1.2),
        at_most("streamnb --help", found["streamnb --help"].median, 0.3, " s"),
    ]
    return Result("Start: processes from beginning to end", rows, base.name, checks)


def _one(case: Callable[[Bench], Result]) -> Callable[[Bench], list[Result]]:
    return lambda bench: [case(bench)]


CASES: dict[str, Callable[[Bench], list[Result]]] = {
    **{case.__name__: _one(case) for case in (numeric, mixed, categorical, classes, shapes, predict, cells)},
    "text": lambda bench: text.results(bench.tables.folder, bench.tables.factor, bench.repeat),
    "sklearn": lambda bench: sklearn_front.results(bench.tables.factor, bench.repeat),
    **{case.__name__: _one(case) for case in (memory, merge, exact, startup)},
}
"""By the name that the command line takes, in the order in which they run."""
