"""The estimators of streamnb.sklearn against scikit-learn's own, on its home ground: arrays in memory.

`python -m benchmarks.sklearn_front` prints the tables and exits with 1 when a budget is missed; `--quick` takes a
tenth of the rows. What it does not show: files, several workers, memory. Both sides check their input in the same
code of scikit-learn, which is part of every figure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn.naive_bayes as upstream

import streamnb.sklearn as ours
from benchmarks.measure import Check, Contender, Result, at_least, race

__all__ = ["main", "results"]

OURS, THEIRS = "streamnb.sklearn", "scikit-learn"


def versus(title: str, budget: float, run: Callable[[Any], object], repeat: int) -> Result:
    """Race one function of a module of estimators: ours must be `budget` times as fast as scikit-learn's."""
    rows = race([Contender(OURS, lambda: run(ours)), Contender(THEIRS, lambda: run(upstream))], repeat)
    check: Check = at_least(title, rows[THEIRS].over(rows[OURS]), budget)
    return Result(title, list(rows.values()), THEIRS, [check])


def dense(n_rows: int, n_features: int, n_classes: int) -> tuple[Any, Any]:
    """Numbers around the mean of their class."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, n_classes, n_rows)
    return rng.normal(size=(n_rows, n_features)) + rng.normal(size=(n_classes, n_features))[y], y


def sparse(n_rows: int, n_features: int, stored: int, n_classes: int) -> tuple[Any, Any]:
    """Counts of words, `stored` different ones in each row."""
    rng = np.random.default_rng(2)
    words = rng.integers(0, n_features, (n_rows, stored), dtype=np.int32)
    words.sort(axis=1)
    ends = np.arange(0, n_rows * stored + 1, stored, dtype=np.int32)
    counts = rng.integers(1, 5, words.size).astype(np.float64)
    return sp.csr_matrix((counts, words.ravel(), ends), (n_rows, n_features)), rng.integers(0, n_classes, n_rows)


def in_batches(estimator: Any, table: Any, y: Any, rows: int) -> Any:
    """Learn batch by batch, then score one row, so that whatever was put off is paid for."""
    classes = np.unique(y)
    for first in range(0, len(y), rows):
        estimator.partial_fit(table[first : first + rows], y[first : first + rows], classes=classes)
    return estimator.predict(table[:1])


def results(scale: float = 1.0, repeat: int = 3) -> list[Result]:
    """Run all races, on `scale` of the rows, and return their tables with the budgets they decide."""
    found: list[Result] = []

    def add(title: str, budget: float, run: Callable[[Any], object]) -> None:
        found.append(versus(title, budget, run, repeat))

    n = int(1_000_000 * scale)
    X, y = dense(n, 20, 10)
    add("GaussianNB.fit, 1 M × 20, 10 classes", 1, lambda nb: nb.GaussianNB().fit(X, y))
    add("GaussianNB.partial_fit, batches of 65 536", 1, lambda nb: in_batches(nb.GaussianNB(), X, y, 65_536))
    tenth, tenth_y = X[: n // 10], y[: n // 10]
    add("GaussianNB.partial_fit, batches of 1000", 1, lambda nb: in_batches(nb.GaussianNB(), tenth, tenth_y, 1000))
    counts = np.floor(np.abs(X))
    add("MultinomialNB.fit, 1 M × 20", 1, lambda nb: nb.MultinomialNB().fit(counts, y))
    add("BernoulliNB.fit, 1 M × 20", 1, lambda nb: nb.BernoulliNB().fit(X, y))
    categories = np.minimum(counts, 15).astype(np.int64)
    add("CategoricalNB.fit, 1 M × 20", 1, lambda nb: nb.CategoricalNB().fit(categories, y))

    X50, y50 = dense(n // 5, 20, 50)
    gaussian = {nb: nb.GaussianNB().fit(X50, y50) for nb in (ours, upstream)}
    add("GaussianNB.predict, 200 k × 20, 50 classes", 10, lambda nb: gaussian[nb].predict(X50))
    add("GaussianNB.predict_proba, 200 k × 20, 50 classes", 5, lambda nb: gaussian[nb].predict_proba(X50))
    codes = np.minimum(np.floor(np.abs(X50)), 15).astype(np.int64)
    categorical = {nb: nb.CategoricalNB().fit(codes, y50) for nb in (ours, upstream)}
    add("CategoricalNB.predict, 200 k × 20, 50 classes", 1, lambda nb: categorical[nb].predict(codes))

    words, topic = sparse(int(200_000 * scale), 1 << 18, 100, 20)
    add("MultinomialNB.fit, sparse 200 k × 2^18", 1, lambda nb: nb.MultinomialNB().fit(words, topic))
    some, some_topics = words[: int(30_000 * scale)], topic[: int(30_000 * scale)]
    for name in ("MultinomialNB", "ComplementNB", "BernoulliNB"):
        add(
            f"{name}.partial_fit, sparse, batches of 1000",
            8,
            lambda nb, name=name: in_batches(getattr(nb, name)(), some, some_topics, 1000),  # type: ignore[misc]
        )
    sparse_models = {nb: nb.MultinomialNB().fit(words, topic) for nb in (ours, upstream)}
    # On both sides this is one product of SciPy's, and the table of logarithms is larger than any cache.
    add("MultinomialNB.predict, sparse", 0.8, lambda nb: sparse_models[nb].predict(words))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 when a budget is missed."""
    quick = "--quick" in (sys.argv[1:] if arguments is None else arguments)
    missed = 0
    print(f"{'':55}{OURS:>18}{THEIRS:>14}{'faster':>9}{'budget':>8}")
    for result in results(0.1 if quick else 1.0):
        mine, theirs = (row.median for row in result.rows)
        (check,) = result.checks
        missed += not check.ok
        verdict = "" if check.ok else "  missed"
        print(f"{result.title:55}{mine:16.3f} s{theirs:12.3f} s{check.measured:8.1f}×{check.limit:7g}×{verdict}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
