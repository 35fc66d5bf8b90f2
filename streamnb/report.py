"""The evaluation report: it adds up like a state, batch by batch and shard by shard."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from streamnb.describe import METRICS, describe
from streamnb.errors import DataError, EmptyStateError, MergeError, SchemaError
from streamnb.protocols import Floats
from streamnb.scorehistogram import ConfidenceHistogram, OddsHistogram

__all__ = ["Averages", "Confusion", "Report"]

# Beyond this many classes a confusion matrix is no longer kept (2000 classes: 32 MB); all else is.
MOST_CONFUSED = 2000
# The distinct unknown labels that are named: the first in sorted order, a choice that merging cannot change.
MOST_NAMED = 20
CALIBRATION_BINS = 15
CLIP = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Averages:
    """Precision, recall and F1, averaged over the classes that occur in truth or prediction."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each class (row) was taken for each class (column).

    `counts` is (n_classes, n_classes), `unknown` (n_classes,) the rows whose label the model does not know.
    """

    classes: pa.Array
    counts: NDArray[Any]
    unknown: NDArray[Any]

    def to_table(self) -> pa.Table:
        """Return a table with a column `truth` and, for each predicted class, a column of counts."""
        names = [str(label) for label in self.classes.to_pylist()]
        return pa.table([self.classes, *map(pa.array, self.counts.T)], names=["truth", *names])


class Report:
    """Counts of right and wrong answers; it adds up, and every metric is read from it.

    The answer is the most probable class, ties going to the first in sorted order. The metrics are those of
    `sklearn.metrics`. A row without a label (null, NaN) is only counted in `rows_without_label`, a row of weight 0
    not at all. A label that the model does not know is an error: together, such rows form one more class that is
    never predicted, and `unknown_labels` names them. Asked of a report without rows, a metric raises
    EmptyStateError. Laws: an empty report is neutral, merge is commutative, and any cut of the rows gives equal
    counts and, but for rounding, equal sums.

    >>> report = Report(pa.array(["a", "b"]))
    >>> report.update(pa.array(["a", "b", "b"]), np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]))
    >>> report.accuracy, report.recall.tolist()
    (0.6666666666666666, [1.0, 0.5])
    """

    def __init__(self, classes: pa.Array) -> None:
        n_classes = len(classes)
        if n_classes == 0 or classes.null_count:
            raise ValueError(f"Expected classes without nulls, got {n_classes} with {classes.null_count} nulls")
        self.classes = classes
        self.rows = 0
        self.rows_without_label = 0
        self._weighted = False
        self._support: Floats = np.zeros(n_classes + 1)  # the last is of unknown labels
        self._predicted: Floats = np.zeros(n_classes)
        self._hits: Floats = np.zeros(n_classes)
        self._log_loss = 0.0
        self._squared_error = 0.0
        self._confidence = ConfidenceHistogram()
        self._odds = OddsHistogram() if n_classes == 2 else None
        self._confusion: Floats | None = None
        if n_classes <= MOST_CONFUSED:
            self._confusion = np.zeros((n_classes + 1, n_classes))
        self._unknown: Counter[Any] = Counter()

    # Adding up ------------------------------------------------------------------------------------------------------

    def update(self, truth: pa.Array, probabilities: ArrayLike, weight: ArrayLike | None = None) -> None:
        """Add rows: their labels, probabilities (n_rows, n_classes) and weights (n_rows,); on an error, nothing.

        Raises:
            SchemaError: the labels are of another type than the classes.
            DataError: shapes differ, a row's probabilities are below 0 or do not sum to 1, or a weight is
                negative or not finite.
        """
        truth, codes, keep = self._codes(truth)
        p = self._checked(probabilities, len(codes))
        w: Floats | None = None
        if weight is not None:
            w = np.asarray(weight, dtype=np.float64)
            if w.shape != codes.shape:
                raise DataError(f"Expected {len(codes)} weights, got shape {w.shape}")
            if not (np.isfinite(w) & (w >= 0)).all():
                row = int(np.argmin(np.isfinite(w) & (w >= 0)))
                raise DataError(f"Expected a finite weight of at least 0, got {w[row]}", row=row)
        without_label = len(keep) - int(keep.sum()) if w is None else int((~keep & (w > 0)).sum())
        if w is not None:
            keep &= w > 0
        if not keep.all():
            truth, codes, p = truth.filter(pa.array(keep)), codes[keep], p[keep]
            w = None if w is None else w[keep]

        n_classes, rows = len(self.classes), np.arange(len(codes))
        known = codes >= 0
        answer = p.argmax(axis=1)
        hit = answer == codes
        of_truth = np.where(known, p[rows, np.where(known, codes, 0)], 0.0)
        row_of = np.where(known, codes, n_classes)
        loss = -np.log(np.clip(of_truth, CLIP, 1.0 - CLIP))
        squared = np.maximum(np.vecdot(p, p) - 2.0 * of_truth + 1.0, 0.0)

        self.rows += len(codes)
        self.rows_without_label += without_label
        self._weighted |= w is not None
        self._support += np.bincount(row_of, w, minlength=n_classes + 1)
        self._predicted += np.bincount(answer, w, minlength=n_classes)
        self._hits += np.bincount(answer[hit], None if w is None else w[hit], minlength=n_classes)
        self._log_loss += float(loss.sum() if w is None else w @ loss)
        self._squared_error += float(squared.sum() if w is None else w @ squared)
        self._confidence.update(p[rows, answer], hit, w)
        if self._odds is not None:
            self._odds.update(codes[known] == 1, p[known], None if w is None else w[known])
        if self._confusion is not None:
            np.add.at(self._confusion.reshape(-1), row_of * n_classes + answer, 1.0 if w is None else w)
        if not known.all():
            strangers = truth.filter(pa.array(~known)).dictionary_encode()
            counts = np.bincount(np.asarray(strangers.indices), None if w is None else w[~known])
            self._name(dict(zip(strangers.dictionary.to_pylist(), counts.tolist(), strict=True)))

    def merge(self, other: Report) -> None:
        """Add another report; it stays as it was. MergeError if it is on other classes."""
        if other.classes.type != self.classes.type:
            raise MergeError(f"Expected a report on {self.classes.type} labels, got {other.classes.type}")
        if not other.classes.equals(self.classes):
            mine, theirs = set(self.classes.to_pylist()), set(other.classes.to_pylist())
            odd = min(mine ^ theirs, default=None)
            side = "the other" if odd in mine else "this"
            raise MergeError(f"Expected a report on the same classes, but {side} one has no class {odd!r}")
        self.rows += other.rows
        self.rows_without_label += other.rows_without_label
        self._weighted |= other._weighted
        self._support += other._support
        self._predicted += other._predicted
        self._hits += other._hits
        self._log_loss += other._log_loss
        self._squared_error += other._squared_error
        self._confidence.merge(other._confidence)
        if self._odds is not None and other._odds is not None:
            self._odds.merge(other._odds)
        if self._confusion is not None and other._confusion is not None:
            self._confusion += other._confusion
        self._name(dict(other._unknown))

    def __add__(self, other: Report) -> Report:
        total = Report(self.classes)
        total.merge(self)
        total.merge(other)
        return total

    def _codes(self, truth: pa.Array) -> tuple[pa.Array, NDArray[np.intp], NDArray[np.bool_]]:
        """Return the labels in the classes' plain type, their codes (−1 is unknown) and which are there."""
        if isinstance(truth, pa.ChunkedArray):
            truth = truth.combine_chunks()
        if pa.types.is_dictionary(truth.type):
            truth = truth.dictionary_decode()
        kind = _plain(self.classes.type)
        if truth.type != kind:
            if not any(same(truth.type) and same(kind) for same in _KIN) and not pa.types.is_null(truth.type):
                raise SchemaError(f"Expected labels of type {self.classes.type}, got {truth.type}")
            try:
                truth = truth.cast(kind)
            except pa.ArrowInvalid as error:
                raise SchemaError(f"Expected labels of type {self.classes.type}: {error}") from None
        codes = pc.index_in(truth, value_set=self.classes.cast(kind)).fill_null(-1)
        keep = pc.invert(truth.is_null(nan_is_null=True))
        return truth, np.asarray(codes).astype(np.intp), np.array(keep)

    def _checked(self, probabilities: ArrayLike, n_rows: int) -> Floats:
        p = np.asarray(probabilities, dtype=np.float64)
        n_classes = len(self.classes)
        if p.shape != (n_rows, n_classes):
            raise DataError(f"Expected probabilities of shape {(n_rows, n_classes)}, got {p.shape}")
        total = p @ np.ones(n_classes)
        if not (np.abs(total - 1.0) <= 1e-3).all() or (p.size and p.min() < 0):
            row = int(np.argmin((np.abs(total - 1.0) <= 1e-3) & (p >= 0).all(axis=1)))
            raise DataError(f"Expected probabilities of at least 0 that sum to 1, got {p[row].tolist()[:5]}", row=row)
        return p

    def _name(self, counts: dict[Any, float]) -> None:
        self._unknown.update(counts)
        for label in sorted(self._unknown)[MOST_NAMED:]:
            del self._unknown[label]

    # Reading --------------------------------------------------------------------------------------------------------

    def _rows_needed(self) -> None:
        if self.rows == 0:
            left_out = f" ({self.rows_without_label:,} rows without a label)" if self.rows_without_label else ""
            raise EmptyStateError(f"There are no labelled rows to evaluate{left_out}")

    def _count(self, counts: NDArray[Any]) -> NDArray[Any]:
        """Return a copy of counts: integers, unless rows were weighted."""
        return counts.copy() if self._weighted else counts.astype(np.int64)

    @property
    def weight(self) -> float:
        """The sum of the weights of the labelled rows, or their number if there were no weights."""
        return float(self._support.sum())

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        self._rows_needed()
        return float(self._hits.sum()) / self.weight

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that have rows."""
        self._rows_needed()
        return float(np.append(self.recall, 0.0)[self._support > 0].mean())

    @property
    def log_loss(self) -> float:
        """The mean of −ln(probability of the true class), which is held within 2.2e-16 of 0 and 1."""
        self._rows_needed()
        return self._log_loss / self.weight

    @property
    def brier_score(self) -> float:
        """The mean squared error of the probabilities, summed over the classes, and halved if they are two."""
        self._rows_needed()
        return self._squared_error / self.weight * (0.5 if len(self.classes) <= 2 else 1.0)

    @property
    def roc_auc(self) -> float | None:
        """The area under the ROC curve of the second class, to about 1e-3; None unless there are two classes."""
        self._rows_needed()
        return None if self._odds is None else self._odds.area()

    @property
    def expected_calibration_error(self) -> float:
        """The mean gap between confidence and accuracy, over 15 equal bins of the confidence."""
        self._rows_needed()
        return self._confidence.error(CALIBRATION_BINS)

    @property
    def support(self) -> NDArray[Any]:
        """Rows of each class, (n_classes,)."""
        return self._count(self._support[:-1])

    @property
    def precision(self) -> Floats:
        """Of the rows answered with a class, the share that is of it, (n_classes,); 0 where there are none."""
        self._rows_needed()
        return _share(self._hits, self._predicted)

    @property
    def recall(self) -> Floats:
        """Of the rows of a class, the share answered with it, (n_classes,); 0 where there are none."""
        self._rows_needed()
        return _share(self._hits, self._support[:-1])

    @property
    def f1(self) -> Floats:
        """The harmonic mean of precision and recall, (n_classes,); 0 where both are 0."""
        self._rows_needed()
        return _share(2.0 * self._hits, self._predicted + self._support[:-1])

    @property
    def macro_average(self) -> Averages:
        """Every class that occurs in truth or answers counts the same."""
        return self._average(((self._support > 0) | (np.append(self._predicted, 0.0) > 0)).astype(np.float64))

    @property
    def weighted_average(self) -> Averages:
        """Every class counts by its rows."""
        return self._average(self._support)

    def _average(self, shares: Floats) -> Averages:
        # The class of the unknown labels has a share, and 0 in each metric.
        means = [float(shares[:-1] @ each / shares.sum()) for each in (self.precision, self.recall, self.f1)]
        return Averages(*means)

    @property
    def has_confusion(self) -> bool:
        """Whether a confusion matrix is kept: up to 2000 classes."""
        return self._confusion is not None

    @property
    def confusion(self) -> Confusion:
        """How often each class was taken for each class; DataError beyond 2000 classes."""
        if self._confusion is None:
            raise DataError(f"Expected at most {MOST_CONFUSED} classes for a confusion matrix, got {len(self.classes)}")
        counts = self._count(self._confusion)
        return Confusion(self.classes, counts[:-1], counts[-1])

    @property
    def unknown_labels(self) -> dict[Any, float]:
        """The first 20 labels, in sorted order, that the model does not know, and how often each came."""
        return {label: self._unknown[label] for label in sorted(self._unknown)}

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON knows it; without labelled rows, metrics are None.

        The confusion matrix is left out beyond 100 classes.
        """
        n_classes, filled = len(self.classes), self.rows > 0
        labels = [_json_label(label) for label in self.classes.to_pylist()]
        per_class = [self.precision, self.recall, self.f1] if filled else [np.full(n_classes, None)] * 3
        columns = [each.tolist() for each in (*per_class, self.support)]
        names = ("class", "precision", "recall", "f1", "support")
        return {
            "rows": self.rows,
            "rows_without_label": self.rows_without_label,
            "weight": self.weight,
            **{name: getattr(self, name) if filled else None for name in METRICS},
            "macro_average": asdict(self.macro_average) if filled else None,
            "weighted_average": asdict(self.weighted_average) if filled else None,
            "classes": [dict(zip(names, row, strict=True)) for row in zip(labels, *columns, strict=True)],
            "confusion": self.confusion.counts.tolist() if n_classes <= 100 else None,
            "unknown_rows": self._count(self._support[-1:]).tolist()[0],
            "unknown_labels": [[_json_label(label), count] for label, count in self.unknown_labels.items()],
        }

    def __repr__(self) -> str:
        return f"Report({len(self.classes)} classes, {self.rows:,} rows)"

    def __str__(self) -> str:
        return describe(self)


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0)


def _json_label(label: Any) -> Any:
    return label if isinstance(label, str | int) else str(label)


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type to look labels up in: Arrow has no look-up for views."""
    return {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}.get(kind, kind)


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view())


_KIN = (_is_text, _is_bytes, pa.types.is_integer, pa.types.is_floating)
