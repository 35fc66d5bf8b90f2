"""Test-then-train: each batch is predicted before it is counted, and the answers are added up, all and the last N."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamnb.predictor import Predictor
from streamnb.report import Report

__all__ = ["Answers", "Rolling", "answers"]


@dataclass(frozen=True, slots=True)
class Answers:
    """How some rows were answered: rows, right ones, and the sum of log loss (in nats)."""

    rows: int
    right: float
    loss: float


def answers(model: Predictor, batch: pa.RecordBatch) -> Answers:
    """Return how a model answers a batch that has the label; rows without one do not count, new labels are wrong."""
    report = Report(model.classes)
    report.update(batch.column(model.schema.label), model.predict_proba(batch.select(list(model.schema.features))))
    if not report.rows:
        return Answers(0, 0.0, 0.0)
    return Answers(report.rows, round(report.accuracy * report.rows), report.log_loss * report.rows)


class Rolling:
    """Sums since the start, and of about the last `most` rows (whole batches, as many as are needed).

    >>> rolling = Rolling(100)
    >>> for right in (10, 40, 45):
    ...     rolling.add(Answers(50, right, 20.0))
    >>> rolling.report()["accuracy"], rolling.report()["recent_accuracy"]
    (0.6333333333333333, 0.85)
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.total = Answers(0, 0.0, 0.0)
        self.recent: list[Answers] = []

    def add(self, more: Answers) -> None:
        """Add a batch."""
        if more.rows:
            self.total = _sum(self.total, more)
            self.recent.append(more)
            rows = sum(each.rows for each in self.recent)
            while rows - self.recent[0].rows >= self.most:
                rows -= self.recent.pop(0).rows

    def merge(self, other: Rolling) -> None:
        """Add another's rows since the start; its recent rows count as recent."""
        self.total = _sum(self.total, other.total)
        self.recent.extend(other.recent)

    def report(self) -> dict[str, Any]:
        """Return the rows, the accuracy and the log loss, since the start and of the last rows."""
        recent = Answers(0, 0.0, 0.0)
        for each in self.recent:
            recent = _sum(recent, each)
        found: dict[str, Any] = {"rows": self.total.rows}
        for prefix, sums in (("", self.total), ("recent_", recent)):
            if sums.rows:
                found |= {f"{prefix}accuracy": sums.right / sums.rows, f"{prefix}log_loss": sums.loss / sums.rows}
        return found | {"recent_rows": recent.rows}

    def to_plain(self) -> dict[str, Any]:
        """Return it as data that JSON can write."""
        return {"most": self.most, "total": _list(self.total), "recent": [_list(each) for each in self.recent]}

    @classmethod
    def from_plain(cls, given: Mapping[str, Any] | None, most: int) -> Rolling:
        """Return what `to_plain` gave, or an empty one; from now on with `most` rows."""
        found = cls(most)
        if given is not None:
            found.total = Answers(*given["total"])
            found.recent = [Answers(*each) for each in given["recent"]]
        return found


def _sum(one: Answers, two: Answers) -> Answers:
    return Answers(one.rows + two.rows, one.right + two.right, one.loss + two.loss)


def _list(each: Answers) -> list[float]:
    return [each.rows, each.right, each.loss]
