"""The content of the statistics as a tidy Arrow table, for people who want to query it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamnb.sufficient import SufficientStatistics
from streamnb.tokentable import TokenTable

__all__ = ["tidy_table"]


def tidy_table(statistics: SufficientStatistics) -> pa.Table:
    """Return one row per class and feature (and category); columns that say nothing of a block are null.

    Columns: block, feature, category (strings), class (the label's type), count (int64: rows, or cells present;
    null for weighted categories), weight, mean, variance, total (sum of weight · value).
    """
    classes, n = statistics.classes.values, len(statistics.classes)
    schema = pa.schema(
        [
            ("block", pa.string()),
            ("feature", pa.string()),
            ("category", pa.string()),
            ("class", classes.type),
            ("count", pa.int64()),
            ("weight", pa.float64()),
            ("mean", pa.float64()),
            ("variance", pa.float64()),
            ("total", pa.float64()),
        ]
    )

    def table(block: str, features: Sequence[str | None], **numbers: Any) -> pa.Table:
        """`numbers` have shape (n_classes, n_features); the class varies slowest."""
        cells = n * len(features)
        columns: dict[str, Any] = {
            "block": pa.repeat(pa.scalar(block), cells),
            "feature": pa.array(list(features) * n, pa.string()),
            "class": classes.take(pa.array(np.repeat(np.arange(n), len(features)))),
        }
        columns |= {name: np.ravel(values) for name, values in numbers.items() if name != "category"}
        if "category" in numbers:
            columns["category"] = pa.array(list(numbers["category"]) * n, pa.string())
        arrays = [
            pa.array(columns[f.name]).cast(f.type) if f.name in columns else pa.nulls(cells, f.type) for f in schema
        ]
        return pa.table(arrays, schema=schema)

    tables = [table("label", [None], count=statistics.rows, weight=statistics.class_weight)]
    if statistics.numeric.n_features:
        m = statistics.numeric
        with np.errstate(over="ignore"):
            totals = m.mean * m.sum_of_weights
        tables.append(
            table(
                "numeric",
                statistics.schema.numeric,
                count=m.count,
                weight=m.sum_of_weights,
                mean=m.mean,
                variance=m.variance(),
                total=totals,
            )
        )
    for name, counts in statistics.categorical.items():
        values = statistics.categories[name].values
        numbers = {"weight": np.asarray(counts.counts, np.float64)}
        if not counts.weighted:
            numbers["count"] = counts.counts
        names = [str(value) for value in values.to_pylist()]
        tables.append(table("categorical", [name] * len(names), category=names, **numbers))
    for block in ("binary", "counts"):
        s = getattr(statistics, block)
        if s.n_features:
            mean = s.total / np.where(s.sum_of_weights > 0, s.sum_of_weights, 1.0)
            tables.append(
                table(
                    block,
                    getattr(statistics.schema, block),
                    count=s.count,
                    weight=s.sum_of_weights,
                    mean=mean,
                    total=s.total,
                )
            )
    tables += [_tokens(name, text, classes, schema) for name, text in statistics.text.items()]
    return pa.concat_tables(tables)


def _tokens(column: str, text: TokenTable, classes: pa.Array, schema: pa.Schema) -> pa.Table:
    """One row for each class and token that occur together; `count` are documents, where they are counted."""
    counts, names = text.counts, text.names.cast(pa.string())
    held = {
        "block": pa.repeat(pa.scalar("text"), len(counts)),
        "feature": pa.repeat(pa.scalar(column), len(counts)),
        "category": names.take(pa.array(counts.tokens)),
        "class": classes.take(pa.array(counts.classes)),
        "total": pa.array(counts.total),
    }
    if counts.documents is not None:
        held["weight"] = pa.array(counts.documents)
        if counts.documents.dtype.kind == "i":
            held["count"] = held["weight"]
    # Whole counts past 2**53 are rounded, as numbers of the table are float64.
    arrays = [
        held[f.name].cast(f.type, safe=False) if f.name in held else pa.nulls(len(counts), f.type) for f in schema
    ]
    return pa.table(arrays, schema=schema)
