"""An evaluation report as text, for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from streamnb.report import Report

__all__ = ["METRICS", "describe"]

MOST_SHOWN = 25
METRICS = (
    "accuracy",
    "balanced_accuracy",
    "log_loss",
    "brier_score",
    "roc_auc",
    "expected_calibration_error",
)


def describe(report: Report) -> str:
    """Return a compact table for a person, of the `MOST_SHOWN` classes with the most rows."""
    aside = f" and {report.rows_without_label:,} without a label" if report.rows_without_label else ""
    if report.rows == 0:
        return f"0 labelled rows{aside}"
    values = [(name, getattr(report, name)) for name in METRICS]
    lines = [f"{report.rows:,} labelled rows{aside}"]
    lines += [f"  {name.replace('_', ' '):<28}{value:.4f}" for name, value in values if value is not None]

    support = report.support
    shown = np.sort(np.argsort(-support, kind="stable")[:MOST_SHOWN])
    labels = [str(label) for label in report.classes.take(pa.array(shown)).to_pylist()]
    width = min(max(map(len, [*labels, "weighted average"])), 40)
    lines += ["", f"{'class':<{width}}  precision  recall      f1  {'support':>12}  most often taken for"]
    counts = report.confusion.counts if report.has_confusion else None
    for index, label in zip(shown, labels, strict=True):
        metrics = (report.precision[index], report.recall[index], report.f1[index])
        row = _row(label, width, metrics, support[index])
        if counts is not None:
            others = np.where(np.arange(len(support)) == index, 0, counts[index])
            taken = int(others.argmax())
            if others[taken] > 0:
                row += f"  {report.classes[taken].as_py()} ({others[taken] / support[index]:.1%})"
        lines.append(row)
    if len(shown) < len(support):
        lines.append(f"... and {len(support) - len(shown):,} more classes")
    for name, average in (("macro", report.macro_average), ("weighted", report.weighted_average)):
        metrics = (average.precision, average.recall, average.f1)
        lines.append(_row(f"{name} average", width, metrics, report.weight))
    if report.unknown_labels:
        named = ", ".join(repr(label) for label in report.unknown_labels)
        unknown = report.weight - float(support.sum())
        lines += ["", f"{unknown:,g} rows have a label that the model does not know: {named}"]
    return "\n".join(lines)


def _row(label: str, width: int, metrics: tuple[float, float, float], support: float) -> str:
    precision, recall, f1 = metrics
    amount = f"{support:,.0f}" if float(support).is_integer() else f"{support:,.2f}"
    return f"{label[:width]:<{width}}  {precision:9.4f}  {recall:6.4f}  {f1:6.4f}  {amount:>12}"
