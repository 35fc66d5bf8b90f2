"""Explanations of the first rows of a source, as plain data and as text for a person."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from streamnb.errors import DataError
from streamnb.explain import explain
from streamnb.predictor import Predictor
from streamnb.score import pieces
from streamnb.showtext import Table, many, name_of, render
from streamnb.sources import open_source

__all__ = ["explained_rows", "explanation_text"]


def explained_rows(
    model: Predictor, source: Any, rows: int, *, label: Any = None, against: Any = None, top: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield what `explain` says of the first rows of a source, as data that JSON can write.

    Of each row: its number, the answer and its probability, the label where the source has it, the two classes, the
    log odds of one against the other, the prior's part, the `top` contributions that weigh most, and the sum of the
    others. A number that is not finite is None.

    Raises:
        SchemaError, DataError: as `predict`.
        ValueError: as `explain`.
    """
    opened = open_source(source)
    features = list(model.schema.features)
    model.schema.check(opened.schema, features)
    known = model.schema.label if model.schema.label in opened.schema.names else None
    columns = features if known is None else [*features, known]
    opened.check(columns)
    done = 0
    for piece in pieces(opened, columns):
        batch = piece.batch.slice(0, rows - done)
        try:
            found = explain(model, batch, label, against)
            answers, probabilities = model.predict_with_proba(batch)
        except DataError as error:
            raise piece.placed(error) from None
        truth = None if known is None else batch.column(known).to_pylist()
        entries = _by_row(found, batch.num_rows)
        for i, (answer, own) in enumerate(zip(answers.to_pylist(), entries, strict=True)):
            yield {
                "row": done + i,
                "prediction": _plain(answer),
                "probability": _plain(float(probabilities[i].max())),
                **({} if truth is None else {"label": _plain(truth[i])}),
                **_explanation(own, top),
            }
        done += batch.num_rows
        if done >= rows:
            return


def _by_row(found: pa.Table, rows: int) -> list[list[dict[str, Any]]]:
    entries: list[list[dict[str, Any]]] = [[] for _ in range(rows)]
    for entry in found.to_pylist():
        entries[entry["row"]].append(entry)
    return entries


def _explanation(entries: Sequence[Mapping[str, Any]], top: int | None) -> dict[str, Any]:
    """The entries of one row, the prior first; those beyond `top` are added up."""
    prior, *cells = entries
    shown, rest = (cells, []) if top is None else (cells[:top], cells[top:])
    return {
        "for": _plain(prior["for"]),
        "against": _plain(prior["against"]),
        "log_odds": _plain(_sum(entries)),
        "prior": _plain(prior["contribution"]),
        "contributions": [
            {key: _plain(entry[key]) for key in ("feature", "block", "value", "contribution")} for entry in shown
        ],
        "others": {"number": len(rest), "contribution": _plain(_sum(rest))},
    }


def _sum(entries: Sequence[Mapping[str, Any]]) -> float:
    return sum((entry["contribution"] for entry in entries), 0.0)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def explanation_text(found: Mapping[str, Any], *, terminal: bool | None = None) -> str:
    """Return what `explained_rows` says of a row, for a person; `terminal` None asks the standard output.

    >>> pair = {"for": "a", "against": "b", "log_odds": 1.0, "prior": 0.5}
    >>> cells = [{"feature": "site", "block": "categorical", "value": "north", "contribution": 0.5}]
    >>> row = {"row": 0, "prediction": "a", "probability": 0.731, **pair, "contributions": cells}
    >>> print(explanation_text({**row, "others": {"number": 0, "contribution": 0.0}}, terminal=False))
    row 0: a, probability 0.7310; a against b, log odds +1.000
    <BLANKLINE>
    feature  value  log odds
    site     north    +0.500
    (prior)           +0.500
    """
    truth = f", label {name_of(found['label'])}" if "label" in found else ""
    title = (
        f"row {found['row']:,}: {name_of(found['prediction'])}, probability {_number(found['probability'])}{truth}; "
        f"{name_of(found['for'])} against {name_of(found['against'])}, log odds {_signed(found['log_odds'])}"
    )
    lines = [[name_of(cell["feature"]), _value(cell), _signed(cell["contribution"])] for cell in found["contributions"]]
    if found["others"]["number"]:
        lines.append([f"({many(found['others']['number'], 'other')})", "", _signed(found["others"]["contribution"])])
    lines.append(["(prior)", "", _signed(found["prior"])])
    return render([title, Table(["feature", "value", "log odds"], lines)], terminal=terminal)


def _value(cell: Mapping[str, Any]) -> str:
    if cell["value"] is None:
        return "(missing)"
    # Six digits are enough to read; whole numbers stay whole.
    is_fraction = cell["block"] in ("numeric", "counts") and "." in cell["value"]
    return f"{float(cell['value']):.6g}" if is_fraction else name_of(cell["value"])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _signed(value: float | None) -> str:
    return "infinite" if value is None else f"{value:+.3f}"
