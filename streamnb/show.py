"""What is inside a state or a model, as plain data for a person or a program; `showtext.py` makes it text.

A state ranks its columns by how much they tell of the class, in bits, from the counts alone:

- categorical, binary: the mutual information of class and value, Σ p(c, v) · log₂(p(c, v) / (p(c) · p(v))).
- numeric: ½ · log₂(pooled variance / mean within-class variance), never more than the entropy of the class. It is
  the mutual information of a normal signal in normal noise; classes that differ only in spread do not show in it.
- counts: this column's part of the mutual information of class and token, Σ_c p(c, t) · log₂(p(c, t) / (p(c) · p(t))),
  where a token is one unit counted in any column of the block: bits per token, which add up over the columns.
- text: the same over the tokens of the column: bits per token.

Probabilities are shares of the weight of the cells that are present, so a table with few rows for each class and
value seems to tell more than it does.

A model says for each of its largest classes what speaks most for it, as `topfeatures.py` defines it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamnb.errors import DataError
from streamnb.families import Complement
from streamnb.overflow import refuse_overflow
from streamnb.predictor import Predictor
from streamnb.protocols import Floats
from streamnb.schema import Schema
from streamnb.state import State
from streamnb.sufficient import SufficientStatistics
from streamnb.tokens import TokenCounts
from streamnb.topfeatures import top_features_of_each

__all__ = ["describe", "telling"]

MOST_CLASSES = 20
"""Classes of a model for which it is said what speaks most for them: the most probable."""


def describe(shown: State | Predictor, top: int = 10) -> dict[str, Any]:
    """Return what a state or a predictor holds, as data that JSON can write.

    Lists with one value per class stand in the order of `classes`. `top` limits the categories of a column and the
    features that tell most, or speak most for a class; a number that is not finite is None.

    >>> state = State(Schema(label="y", numeric=["x"]))
    >>> state.update(pa.table({"y": ["a", "a", "b"], "x": [1.0, 3.0, None]}))
    >>> describe(state)["columns"]
    [{'name': 'x', 'kind': 'numeric', 'missing': 1, 'missing_share': 0.3333333333333333, \
'means': [2.0, None], 'standard_deviations': [1.0, None]}]
    """
    if not isinstance(shown, State | Predictor):
        raise TypeError(f"Expected a State or a Predictor, got {type(shown).__name__}")
    found = _of_state(shown, top) if isinstance(shown, State) else _of_predictor(shown, top)
    return {key: _plain(value) for key, value in found.items()}


def telling(statistics: SufficientStatistics) -> list[tuple[str, str, float]]:
    """Return every feature with its kind and the bits it tells of the class, the most telling first.

    >>> state = State(Schema(label="y", categorical=["site"]))
    >>> state.update(pa.table({"y": ["a", "a", "b", "b"], "site": ["north", "north", "south", "south"]}))
    >>> telling(state.total)
    [('site', 'categorical', 1.0)]
    """
    schema = statistics.schema
    found: list[tuple[str, str, float]] = []

    def add(kind: str, names: Iterable[str], bits: Iterable[float]) -> None:
        found.extend((name, kind, max(float(each), 0.0)) for name, each in zip(names, bits, strict=True))

    if schema.numeric:
        add("numeric", schema.numeric, _numeric_bits(statistics))
    for name, counts in statistics.categorical.items():
        add("categorical", [name], [_shared(np.asarray(counts.counts, np.float64)).sum()])
    if schema.binary:
        ones = statistics.binary.total
        zeros = np.maximum(statistics.binary.sum_of_weights - ones, 0.0)
        add(
            "binary",
            schema.binary,
            (_shared(np.stack(cells, axis=1)).sum() for cells in zip(ones.T, zeros.T, strict=True)),
        )
    if schema.counts:
        add("counts", schema.counts, _shared(statistics.counts.total).sum(axis=0))
    for name, table in statistics.text.items():
        add("text", [name], [_token_bits(table.counts)])
    return sorted(found, key=lambda each: -each[2])


def _numeric_bits(statistics: SufficientStatistics) -> Floats:
    moments = statistics.numeric
    weight = moments.sum_of_weights
    whole = weight.sum(axis=0)
    within = moments.sum_of_squared_deviations.sum(axis=0) / np.where(whole > 0, whole, 1.0)
    try:
        pooled = moments.pooled().variance()[0]
    except DataError as error:
        column = statistics.schema.numeric[error.column] if isinstance(error.column, int) else None
        raise error.at(column=column) from None
    share = weight / np.where(whole > 0, whole, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(share > 0, share * np.log2(share), 0.0).sum(axis=0)
        bits = 0.5 * (np.log2(pooled) - np.log2(within))
    # A constant column tells nothing, although its 0/0 is no number.
    return np.where(pooled > 0, np.minimum(bits, entropy), 0.0)


def _shared(table: Floats) -> Floats:
    """The mutual information of the axes of a table of counts, cell by cell, in bits."""
    whole = table.sum()
    if not whole > 0:
        return np.zeros_like(table)
    p = table / whole
    of_class, of_value = p.sum(axis=1, keepdims=True), p.sum(axis=0, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A quotient of quotients, because the product of two small shares may be 0.
        return np.where(p > 0, p * np.log2(p / of_class / of_value), 0.0)


def _token_bits(counts: TokenCounts) -> float:
    """The mutual information of class and token, from the pairs that were met."""
    total = counts.total.astype(np.float64)
    whole = total.sum()
    if not whole > 0:
        return 0.0
    of_class = np.bincount(counts.classes, total, counts.n_classes)
    here = total > 0
    expected = of_class[counts.classes[here]] / whole * (counts.per_token(total)[counts.tokens[here]] / whole)
    return float((total[here] / whole * np.log2(total[here] / whole / expected)).sum())


# A state ------------------------------------------------------------------------------------------------------------


def _of_state(state: State, top: int) -> dict[str, Any]:
    total, schema = state.total, state.schema
    refuse_overflow(total)
    weight = total.class_weight
    share = _ratio(weight, weight.sum())
    classes = [
        {"class": label, "rows": rows, **({"weight": heavy} if schema.weight else {}), "prior": prior}
        for label, rows, heavy, prior in zip(total.classes.values.to_pylist(), total.rows, weight, share, strict=True)
    ]
    return {
        "kind": "state",
        "rows": state.n_rows,
        "rows_without_label": state.rows_without_label,
        "shards": len(state.ledger),
        **({"exact": True, "digest": state.digest()} if schema.exact else {}),
        "label": {"column": schema.label, "type": str(total.classes.type)},
        "weight": {"column": schema.weight, "sum": weight.sum()} if schema.weight else None,
        "classes": classes,
        "columns": _columns(total, top),
        **({"positions": list(state.positions.values())} if state.positions else {}),
        "telling": [
            {"feature": name, "kind": kind, "bits": bits} for name, kind, bits in telling(total)[: max(top, 0)]
        ],
    }


def _columns(total: SufficientStatistics, top: int) -> list[dict[str, Any]]:
    schema, rows, weight = total.schema, int(total.rows.sum()), total.class_weight.sum()
    missing = total.missing()
    found: list[dict[str, Any]] = []

    def add(kind: str, name: str, **more: Any) -> None:
        gone: int | None = int(missing[name].sum())
        share = _ratio(gone, rows)
        if kind == "categorical" and schema.weight is not None:
            # Of weighted categories only the weights are held: the share is known, the number of cells is not.
            gone, share = None, _ratio(max(weight - total.categorical[name].counts.sum(), 0.0), weight)
        found.append({"name": name, "kind": kind, "missing": gone, "missing_share": share, **more})

    m = total.numeric
    means = np.where(m.count > 0, m.mean, np.nan)
    deviations = np.where(m.count > 0, np.sqrt(m.variance()), np.nan)
    for j, name in enumerate(schema.numeric):
        add("numeric", name, means=means[:, j], standard_deviations=deviations[:, j])
    for name, counts in total.categorical.items():
        add("categorical", name, **_categories(counts.counts, total.categories[name].values, top))
    ones = _ratio(total.binary.total, total.binary.sum_of_weights)
    for j, name in enumerate(schema.binary):
        add("binary", name, shares_of_ones=ones[:, j])
    for j, name in enumerate(schema.counts):
        add("counts", name, totals=total.counts.total[:, j])
    for name, table in total.text.items():
        add("text", name, empty=int(table.empty.sum()), **_tokens(table.names, table.counts, top))
    return found


def _tokens(names: pa.Array, counts: TokenCounts, top: int) -> dict[str, Any]:
    """How many tokens there are, how often any was counted in each class, and the most frequent."""
    of_token = counts.per_token(counts.total)
    order = np.argsort(-of_token, kind="stable")[: max(top, 0)]
    share = _ratio(of_token[order], of_token.sum())
    return {
        "tokens": len(names),
        "totals": np.bincount(counts.classes, counts.total, counts.n_classes),
        "top": [
            {"token": name, "count": of_token[j], "share": share[i]}
            for i, (name, j) in enumerate(zip(names.take(pa.array(order)).to_pylist(), order, strict=True))
        ],
    }


def _categories(counts: NDArray[Any], values: pa.Array, top: int) -> dict[str, Any]:
    """The most frequent categories, with their share among the cells present and in each class."""
    of_value = counts.sum(axis=0)
    order = np.argsort(-of_value, kind="stable")[: max(top, 0)]
    in_class = _ratio(counts[:, order], counts.sum(axis=1, keepdims=True))
    names = values.take(pa.array(order)).to_pylist()
    share = _ratio(of_value[order], of_value.sum())
    return {
        "categories": len(values),
        "top": [
            {"category": name, "count": of_value[j], "share": share[i], "shares": in_class[:, i]}
            for i, (name, j) in enumerate(zip(names, order, strict=True))
        ],
    }


# A predictor --------------------------------------------------------------------------------------------------------


def _of_predictor(model: Predictor, top: int) -> dict[str, Any]:
    prior = np.exp(model.class_log_prior)
    labels = model.classes.to_pylist()
    return {
        "kind": "predictor",
        "label": {"column": model.schema.label, "type": str(model.classes.type)},
        "classes": [{"class": label, "prior": share} for label, share in zip(labels, prior, strict=True)],
        "families": model.families,
        "columns": _parameters(model, model.schema, prior, top),
        "top_features": _speaking(model, prior, max(top, 0)),
    }


def _speaking(model: Predictor, prior: Floats, top: int) -> list[dict[str, Any]]:
    """The features that speak most for each of the most probable classes, the most probable first."""
    if len(prior) < 2 or not top:
        return []
    order = np.argsort(-prior, kind="stable")[:MOST_CLASSES]
    labels = model.classes.to_pylist()
    found = top_features_of_each(model, order.tolist(), top)
    return [{"class": labels[c], "features": table.to_pylist()} for c, table in zip(order, found, strict=True)]


def _parameters(model: Predictor, schema: Schema, prior: Floats, top: int) -> list[dict[str, Any]]:
    """What the families made of each column, one value per class."""
    found: list[dict[str, Any]] = []
    if model.numeric is not None:
        mean, deviation = model.numeric.mean, np.sqrt(model.numeric.variance)
        for j, name in enumerate(schema.numeric):
            # An infinite deviation marks a column that never had a value.
            parameters = {"means": mean[:, j], "standard_deviations": deviation[:, j]}
            found.append({"name": name, "kind": "numeric", **parameters})
    for name, (vocabulary, table) in model.categorical.items():
        probability = np.exp(table.score)
        overall = prior @ probability
        order = np.argsort(-overall, kind="stable")[: max(top, 0)]
        values = vocabulary.values.take(pa.array(order)).to_pylist()
        best = [
            {"category": value, "probability": overall[j], "probabilities": probability[:, j]}
            for value, j in zip(values, order, strict=True)
        ]
        unseen = None if table.unseen is None or not table.unseen.any() else np.exp(table.unseen)
        entry = {"categories": len(vocabulary.values), "top": best, "probabilities_of_unseen": unseen}
        found.append({"name": name, "kind": "categorical", **entry})
    if model.binary is not None:
        of_one = np.exp(model.binary.score)
        found += [
            {"name": name, "kind": "binary", "probabilities_of_one": of_one[:, j]}
            for j, name in enumerate(schema.binary)
        ]
    if model.counts is not None:
        # A complement's score is a weight, not the logarithm of a probability.
        complement = model.families["counts"]["family"] == Complement.__name__
        key = "weights" if complement else "probabilities"
        values = model.counts.score if complement else np.exp(model.counts.score)
        found += [{"name": name, "kind": "counts", key: values[:, j]} for j, name in enumerate(schema.counts)]
    found += [{"name": name, "kind": "text", "tokens": len(lexicon)} for name, (lexicon, _) in model.text.items()]
    return found


# Plain data ---------------------------------------------------------------------------------------------------------


def _ratio(part: Any, whole: Any) -> Any:
    """Return part / whole as float64, NaN where the whole is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(np.asarray(whole) > 0, np.divide(part, whole), np.nan)


def _plain(value: Any) -> Any:
    """Return the same as plain data; labels of a type that JSON lacks become text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "biu" or np.isfinite(value).all():
            return value.tolist()
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
