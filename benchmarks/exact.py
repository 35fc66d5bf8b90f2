"""What exact sums cost: the fit of table (a), the bytes of a state, and merging, each beside the sums of floats."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import streamnb as snb
from benchmarks import ours, peers
from benchmarks.data import LABEL, numeric_batch
from benchmarks.measure import Contender, Result, at_least, at_most, race

if TYPE_CHECKING:
    from benchmarks.cases import Bench

__all__ = ["exact"]


def exact(bench: Bench) -> Result:
    """Exact sums over table (a), and what they cost in memory and in merging."""
    table, sklearn = bench.tables.numeric(), "scikit-learn: partial_fit over Arrow batches"
    kernels = {"compiled": None, "NumPy": bench.plain} if ours.has_jit() else {"NumPy": None}
    names = {(kernel, kind): f"{kind}, {kernel} kernel" for kernel in kernels for kind in ("floats", "exact")}
    contenders = [
        Contender(name, partial(ours.fit, table, bench.cores, exact=kind == "exact"), place=kernels[kernel])
        for (kernel, kind), name in names.items()
    ]
    contenders.append(Contender(sklearn, partial(peers.sklearn_fit, table)))
    times = max(10, round(10_000 * bench.tables.factor))
    merges = {kind: f"merging {times:,} states × 1000 columns, {kind}" for kind in ("floats", "exact")}
    for kind, name in merges.items():
        states = _states(min(20, times), exact=kind == "exact")
        contenders.append(Contender(name, partial(ours.merge_all, states, times)))
    found = race(contenders, bench.repeat)
    state = ours.fit(table, bench.cores, exact=True)
    held = sum(array.nbytes for array in state.total.numeric.arrays().values())
    size = held / (len(state.classes) * len(table.numeric))
    checks = [
        at_most("bytes for a class and feature", size, 250.0, " B"),
        at_most("merging, as against floats", found[merges["exact"]].over(found[merges["floats"]]), 4.0),
        at_least("NumPy kernel: faster than scikit-learn", found[sklearn].over(found[names["NumPy", "exact"]]), 1.3),
    ]
    if ours.has_jit():
        fit = found[names["compiled", "exact"]]
        checks += [
            at_most("fit, as against floats", fit.over(found[names["compiled", "floats"]]), 4.0),
            at_least("faster than scikit-learn", found[sklearn].over(fit), 4.0),
        ]
    title = f"Exact sums: fit of (a) with {bench.cores} workers, and 10 classes × 1000 columns merged"
    return Result(title, list(found.values()), next(iter(names.values())), checks)


def _states(number: int, *, exact: bool) -> list[snb.State]:
    schema = snb.Schema(label=LABEL, numeric=[f"x{j}" for j in range(1000)], exact=exact)
    states = []
    for i in range(number):
        states.append(snb.State(schema))
        states[-1].update(numeric_batch([i], 200, 1000, 10, "float64"))
    return states
