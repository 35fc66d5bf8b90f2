"""Taking rows out of statistics that were counted with them: what is left never saw them, or an error says why not."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from streamnb.counts import CategoryCounts, FeatureSums
from streamnb.errors import MergeError
from streamnb.exactcounts import ExactTable
from streamnb.exactsums import ExactSums
from streamnb.kinds import DENSE
from streamnb.sufficient import SufficientStatistics
from streamnb.vocabulary import Index, Vocabulary
from streamnb.weights import added, chosen

__all__ = ["difference"]

WHOLE = 2.0**53
"""Whole numbers up to this are exact as floats."""

WAYS_OUT = "train with Schema(..., exact=True) (--exact), or merge the states of the shards that remain"


def difference(statistics: SufficientStatistics, gone: SufficientStatistics) -> SufficientStatistics:
    """Return statistics without the rows of others; both stay as they were.

    Classes, categories and tokens that no row has any more are gone as well.

    Raises:
        MergeError: they count different things, or hold sums that were rounded; or `gone` has more of a class,
            feature, category or token than was counted, which the message names.
    """
    statistics.check_alike(gone)
    _refuse_rounded(statistics, gone)
    left = statistics.copy()
    place = left.classes.index(gone.classes.values).astype(np.intp)
    for label, at in zip(gone.classes.values.to_pylist(), place, strict=True):
        if at < 0:
            _refuse(f"rows of class {label!r}, of which none were counted")
    labels = left.classes.values.to_pylist()
    left.rows[place] -= gone.rows
    if (left.rows < 0).any():
        _refuse(f"more rows of class {labels[int((left.rows < 0).argmax())]!r} than were counted")
    left.rows_without_label -= gone.rows_without_label
    if left.rows_without_label < 0:
        _refuse("more rows without a label than were counted")
    if left.sum_of_weights is not None and gone.sum_of_weights is not None:
        left.sum_of_weights = added(left.sum_of_weights, gone.sum_of_weights, place, -1)
        _check_weights(left, labels)
    for block in DENSE:
        _subtract_dense(left, gone, block, place, labels)
    for name in left.categorical:
        _subtract_categories(left, gone, name, place, labels)
    for name, table in left.text.items():
        wrong = table.subtract(gone.text[name], place)
        if wrong is not None:
            _refuse(f"token {wrong[1]!r} more often in class {labels[wrong[0]]!r} than it was counted", name)
        held = np.bincount(table.counts.classes, minlength=len(labels)) > 0
        if (table.present > left.rows).any() or (held & (table.present == 0)).any():
            _refuse("fewer documents than rows, which do not fit what was counted", name)
    _forget_empty_classes(left)
    return left


def _refuse(what: str, column: str | None = None) -> NoReturn:
    place = "" if column is None else f" - column {column!r}"
    raise MergeError(f"Expected only rows that were counted, got {what}{place}")


def _refuse_rounded(*both: SufficientStatistics) -> None:
    """Refuse statistics of which a difference would keep a rest."""
    schema = both[0].schema
    if schema.exact:
        return

    def refuse(what: str) -> NoReturn:
        raise MergeError(f"Expected exact sums to subtract from, got {what}; {WAYS_OUT}")

    if schema.numeric:
        refuse(f"rounded moments (numeric column {schema.numeric[0]!r})")
    if schema.weight is not None:
        refuse(f"rounded sums of weights (weight column {schema.weight!r})")
    for statistics in both:
        totals = statistics.counts.total
        if totals.size and not ((totals == np.rint(totals)) & (totals < WHOLE)).all():
            refuse(f"rounded sums of fractions (counts column {schema.counts[0]!r})")
        for name, table in statistics.text.items():
            if table.counts.total.dtype.kind == "f" and len(table.counts):
                refuse(f"rounded sums of what tokens count (text column {name!r})")
            if schema.text_options[name].buckets is not None:
                refuse(f"buckets that show the smallest of their tokens (text column {name!r})")


def _check_weights(left: SufficientStatistics, labels: list[Any]) -> None:
    if isinstance(left.sum_of_weights, ExactSums):
        signs = left.sum_of_weights.signs()
        wrong = (signs < 0) | ((left.rows == 0) != (signs == 0))
        if wrong.any():
            _refuse(f"other weights of class {labels[int(wrong.argmax())]!r} than were counted")


def _subtract_dense(
    left: SufficientStatistics, gone: SufficientStatistics, block: str, place: Index, labels: list[Any]
) -> None:
    columns = getattr(left.schema, block)
    statistic, other = getattr(left, block), gone._ordered(block, columns)
    wrong: tuple[int, int] | None
    if isinstance(statistic, ExactTable):
        statistic.subtract(other, place)
        wrong = statistic.wrong_column()
    elif isinstance(statistic, FeatureSums):
        count, total = statistic.count.copy(), statistic.total.copy()
        count[place] -= other.count
        total[place] -= other.total
        statistic = FeatureSums.around({"count": count, "total": total})
        setattr(left, block, statistic)
        wrong = _first((count < 0) | (total < 0) | ((count == 0) & (total != 0)))
    else:
        return  # moments that round are refused unless there is no column
    if wrong is None:
        wrong = _first(statistic.count > left.rows[:, None])
    if wrong is not None:
        _refuse(f"other rows of class {labels[wrong[0]]!r} than were counted", columns[wrong[1]])


def _subtract_categories(
    left: SufficientStatistics, gone: SufficientStatistics, name: str, place: Index, labels: list[Any]
) -> None:
    vocabulary, other = left.categories[name], gone.categories[name]
    union, _, there = vocabulary.union(other, widen=True)
    if len(union) > len(vocabulary):
        known = set(vocabulary.values.to_pylist())
        strange = next(value for value in other.values.to_pylist() if value not in known)
        _refuse(f"category {strange!r}, which was not counted", name)
    counts = left.categorical[name]
    if isinstance(counts, CategoryCounts):
        counts.counts[np.ix_(place, there)] -= gone.categorical[name].counts
        wrong = _first(counts.counts < 0)
    else:
        counts.subtract(gone.categorical[name], place, there)
        wrong = counts.wrong_cell()
    if wrong is not None:
        value = vocabulary.values[wrong[1]].as_py()
        _refuse(f"category {value!r} more often in class {labels[wrong[0]]!r} than it was counted", name)
    if (counts.present > left.rows).any():
        _refuse("fewer cells than rows, which do not fit what was counted", name)


def _first(wrong: NDArray[np.bool_]) -> tuple[int, int] | None:
    if not wrong.any():
        return None
    i, j = np.argwhere(wrong)[0]
    return int(i), int(j)


def _forget_empty_classes(left: SufficientStatistics) -> None:
    """Leave out classes without rows, and categories that no class has."""
    kept = np.flatnonzero(left.rows)
    left.classes = Vocabulary(left.classes.values.take(kept))
    left.rows = left.rows[kept]
    if left.sum_of_weights is not None:
        left.sum_of_weights = chosen(left.sum_of_weights, kept)
    for block in DENSE:
        setattr(left, block, getattr(left, block).only(kept))
    for name, counts in left.categorical.items():
        used = np.flatnonzero(counts.rows.any(axis=0))
        left.categories[name] = Vocabulary(left.categories[name].values.take(used))
        left.categorical[name] = counts.only(kept, used)
    for table in left.text.values():
        table.keep_classes(kept)
