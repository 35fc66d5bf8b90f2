"""The report: the metrics of scikit-learn, from sums that do not depend on how the rows were cut."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as oracle

import streamnb as snb
from streamnb.errors import DataError, EmptyStateError, MergeError, SchemaError
from streamnb.evaluation import Report
from streamnb.report import MOST_NAMED
from streamnb.scorehistogram import ConfidenceHistogram, OddsHistogram


def rows(seed: int, n_rows: int, n_classes: int, sharpness: float = 2.0) -> tuple[Any, Any]:
    """Return codes and probabilities of a model that is often, not always, right."""
    draw = np.random.default_rng(seed)
    codes = draw.integers(0, n_classes, n_rows)
    joint = draw.normal(0.0, 1.0, (n_rows, n_classes))
    joint[np.arange(n_rows), codes] += 1.0
    joint *= sharpness
    joint -= joint.max(axis=1, keepdims=True)
    probabilities = np.exp(joint)
    return codes, probabilities / probabilities.sum(axis=1, keepdims=True)


def names(n_classes: int) -> Any:
    """Return sorted class names as NumPy strings."""
    return np.array([f"c{index:04d}" for index in range(n_classes)])


def reported(codes: Any, probabilities: Any, weight: Any = None) -> Report:
    """Return the report of one batch, its labels being names."""
    labels = names(probabilities.shape[1])
    report = Report(pa.array(labels))
    report.update(pa.array(labels[codes]), probabilities, weight)
    return report


# --- scikit-learn's numbers ---


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
def test_metrics_are_those_of_scikit_learn(n_classes: int, weighted: bool) -> None:
    """Every metric equals its namesake in sklearn.metrics, with and without weights."""
    codes, probabilities = rows(n_classes, 3000, n_classes)
    weight = np.random.default_rng(1).integers(0, 4, 3000) / 2 if weighted else None
    report = reported(codes, probabilities, weight)
    answers = probabilities.argmax(axis=1)
    labels, options = np.arange(n_classes), {"sample_weight": weight}

    assert report.accuracy == pytest.approx(oracle.accuracy_score(codes, answers, **options))
    assert report.balanced_accuracy == pytest.approx(oracle.balanced_accuracy_score(codes, answers, **options))
    assert report.log_loss == pytest.approx(oracle.log_loss(codes, probabilities, **options))
    assert report.brier_score == pytest.approx(oracle.brier_score_loss(codes, probabilities, **options))
    matrix = oracle.confusion_matrix(codes, answers, labels=labels, **options)
    np.testing.assert_allclose(report.confusion.counts, matrix)
    found = (report.precision, report.recall, report.f1, report.support)
    expected = oracle.precision_recall_fscore_support(codes, answers, labels=labels, zero_division=0, **options)
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, two)
    for average in ("macro", "weighted"):
        values = getattr(report, f"{average}_average")
        expected = oracle.precision_recall_fscore_support(codes, answers, average=average, zero_division=0, **options)
        assert (values.precision, values.recall, values.f1) == pytest.approx(expected[:3])
    if n_classes == 2:
        area = oracle.roc_auc_score(codes, probabilities[:, 1], **options)
        assert report.roc_auc == pytest.approx(area, abs=1e-4)
    else:
        assert report.roc_auc is None


def test_the_binary_brier_score_is_that_of_the_second_class() -> None:
    """With two classes the score is the squared error of one of them, as scikit-learn has it for 1-D input."""
    codes, probabilities = rows(5, 500, 2)
    assert reported(codes, probabilities).brier_score == pytest.approx(
        oracle.brier_score_loss(codes, probabilities[:, 1])
    )


def test_certain_and_wrong_is_clipped() -> None:
    """A probability of 0 for the true class costs −ln(2.2e-16), as in scikit-learn, and not infinity."""
    probabilities = np.array([[1.0, 0.0], [1.0, 0.0]])
    report = reported(np.array([0, 1]), probabilities)
    assert report.log_loss == pytest.approx(oracle.log_loss([0, 1], probabilities))
    assert report.log_loss == pytest.approx(-np.log(np.finfo(float).eps) / 2)
    assert (report.brier_score, report.roc_auc) == (0.5, 0.5)


def test_absent_classes_count_as_in_scikit_learn() -> None:
    """A class without rows or answers has zeros, and only classes that occur enter the averages."""
    probabilities = np.eye(4)[[0, 0, 2, 0]]
    codes = np.array([0, 1, 2, 0])
    report = reported(codes, probabilities)
    answers = probabilities.argmax(axis=1)
    expected = oracle.precision_recall_fscore_support(codes, answers, average="macro", zero_division=0)
    average = report.macro_average
    assert (average.precision, average.recall, average.f1) == pytest.approx(expected[:3])
    assert report.balanced_accuracy == pytest.approx(oracle.balanced_accuracy_score(codes, answers))
    assert report.precision.tolist() == pytest.approx([2 / 3, 0, 1, 0])
    assert report.support.tolist() == [2, 1, 1, 0]
    answered_only = reported(np.array([0, 0]), np.eye(3)[[0, 1]])
    expected = oracle.precision_recall_fscore_support([0, 0], [0, 1], average="macro", zero_division=0)
    assert answered_only.macro_average.recall == pytest.approx(expected[1])
    assert answered_only.balanced_accuracy == 0.5


def test_ties_go_to_the_first_class() -> None:
    """Equal probabilities are an answer for the class that sorts first."""
    report = reported(np.array([0, 1]), np.array([[0.5, 0.5], [0.5, 0.5]]))
    assert report.confusion.counts.tolist() == [[1, 0], [1, 0]]
    assert report.roc_auc == 0.5


# --- histograms ---


@pytest.mark.parametrize("sharpness", [0.01, 1.0, 30.0, 600.0])
def test_the_area_is_right_for_timid_and_for_boastful_models(sharpness: float) -> None:
    """Scores close to even odds, and odds up to the smallest float64, are ranked alike to 1e-3."""
    draw = np.random.default_rng(3)
    codes = draw.integers(0, 2, 20_000)
    odds = draw.normal(0.0, 1.0, 20_000) * sharpness / 3 + (codes - 0.5) * sharpness / 3
    joint = np.column_stack([np.minimum(-odds, 0.0), np.minimum(odds, 0.0)])
    probabilities = np.exp(joint) / np.exp(joint).sum(axis=1, keepdims=True)
    exact = oracle.roc_auc_score(codes, odds)
    assert reported(codes, probabilities).roc_auc == pytest.approx(exact, abs=1e-3)


def test_the_area_needs_both_classes() -> None:
    """Rows of one class only have no ranking, and the area is None."""
    assert reported(np.array([0, 0]), np.array([[0.5, 0.5], [1.0, 0.0]])).roc_auc is None
    assert OddsHistogram().area() is None


def test_the_calibration_error_is_the_textbook_s() -> None:
    """The error from the fine bins equals a plain loop over 15 bins."""
    codes, probabilities = rows(9, 5000, 4)
    confidence, hit = probabilities.max(axis=1), probabilities.argmax(axis=1) == codes
    bins = np.minimum((confidence * 15).astype(int), 14)
    plain = sum(
        (bins == index).mean() * abs(hit[bins == index].mean() - confidence[bins == index].mean())
        for index in set(bins.tolist())
    )
    assert reported(codes, probabilities).expected_calibration_error == pytest.approx(plain, rel=1e-12)


def test_the_calibration_curve_can_be_as_coarse_as_one_bin() -> None:
    """Any divisor of 720 is a number of bins; another number is refused."""
    histogram = ConfidenceHistogram()
    histogram.update(np.array([1.0, 0.5, 0.6]), np.array([True, True, False]), None)
    weight, confidence, accuracy = histogram.curve(1)
    assert (weight.tolist(), confidence.tolist(), accuracy.tolist()) == ([3.0], [pytest.approx(0.7)], [2 / 3])
    with pytest.raises(ValueError, match="Expected a number of bins that divides 720, got 7"):
        histogram.curve(7)


# --- labels ---


@pytest.mark.parametrize(
    ("classes", "truth"),
    [
        (pa.array([1, 2], pa.int32()), pa.array([2, 1, None, 5], pa.int64())),
        (pa.array([False, True]), pa.array([True, False, None])),
        (pa.array([1.0, 2.0]), pa.array([2.0, 1.0, np.nan, 5.0])),
        (pa.array(["a", "b"], pa.string_view()), pa.array(["b", "a", None, "x"])),
        (pa.array(["a", "b"]), pa.array(["b", "a", None, "x"], pa.string_view())),
        (pa.array(["a", "b"], pa.large_string()), pa.array(["b", "a", None, "x"]).dictionary_encode()),
        (pa.array(["a", "b"]), pa.chunked_array([["b", "a"], [None, "x"]])),
        (pa.array([b"a", b"b"]), pa.array([b"b", b"a", None, b"x"], pa.large_binary())),
        (
            pa.array([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]),
            pa.array([datetime.date(2024, 1, 2), datetime.date(2024, 1, 1), None, datetime.date(1970, 1, 1)]),
        ),
        (
            pa.array([decimal.Decimal("1.5"), decimal.Decimal("2.5")]),
            pa.array([decimal.Decimal("2.5"), decimal.Decimal("1.5"), None, decimal.Decimal("9.5")]),
        ),
    ],
)
def test_labels_of_any_type(classes: pa.Array, truth: pa.Array) -> None:
    """Labels of any type are found among the classes; null and NaN are no label; others are unknown."""
    report = Report(classes)
    report.update(truth, np.tile([0.25, 0.75], (len(truth), 1)))
    assert report.support.tolist() == [1, 1]
    assert report.confusion.counts.tolist() == [[0, 1], [0, 1]]
    assert report.rows_without_label == 1
    assert report.rows == len(truth) - 1
    assert list(report.unknown_labels.values()) == ([1] if len(truth) == 4 else [])
    json.dumps(report.to_dict(), allow_nan=False)


def test_unknown_labels_are_errors_and_named() -> None:
    """A label that the model does not know is never right, costs the largest loss, and is named."""
    report = Report(pa.array(["a", "b"]))
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    report.update(pa.array(["a", "x", "b", "x"]), probabilities)
    codes, answers = np.array([0, 2, 1, 2]), probabilities.argmax(axis=1)
    assert report.rows == 4
    assert report.unknown_labels == {"x": 2}
    assert report.accuracy == oracle.accuracy_score(codes, answers) == 0.25
    assert report.balanced_accuracy == pytest.approx(oracle.balanced_accuracy_score(codes, answers))
    for average in ("macro", "weighted"):
        values = getattr(report, f"{average}_average")
        expected = oracle.precision_recall_fscore_support(codes, answers, average=average, zero_division=0)
        assert (values.precision, values.recall, values.f1) == pytest.approx(expected[:3])
    padded = np.column_stack([probabilities, np.zeros(4)])
    assert report.log_loss == pytest.approx(oracle.log_loss(codes, padded, labels=[0, 1, 2]))
    assert report.brier_score == pytest.approx(
        oracle.brier_score_loss(codes, padded, labels=[0, 1, 2], scale_by_half=True)
    )
    assert report.roc_auc == 1.0
    assert report.confusion.unknown.tolist() == [0, 2]
    assert "2 rows have a label that the model does not know: 'x'" in str(report)


def test_many_unknown_labels_do_not_fill_the_memory() -> None:
    """However many unknown labels there are, the first few in sorted order are named, with their full counts."""
    parts = [Report(pa.array([-1])) for _ in range(3)]
    for shift, part in enumerate(parts):
        part.update(pa.array(np.arange(1000) + shift), np.ones((1000, 1)))
    total = parts[2] + parts[0] + parts[1]
    assert total.unknown_labels == {index: min(index + 1, 3) for index in range(MOST_NAMED)}
    assert total.to_dict()["unknown_rows"] == 3000
    assert total.accuracy == 0.0


# --- what is refused ---


@pytest.mark.parametrize(
    ("truth", "probabilities", "weight", "error", "message"),
    [
        (["1"], [[1.0, 0.0]], None, SchemaError, "Expected labels of type int64, got string"),
        ([1.0], [[1.0, 0.0]], None, SchemaError, "Expected labels of type int64, got double"),
        ([0], [[1.0, 0.0, 0.0]], None, DataError, r"Expected probabilities of shape \(1, 2\), got \(1, 3\)"),
        ([0], [1.0, 0.0], None, DataError, r"Expected probabilities of shape \(1, 2\), got \(2,\)"),
        ([0, 1], [[1.0, 0.0], [0.5, 0.6]], None, DataError, r"that sum to 1, got \[0\.5, 0\.6\] - row 1"),
        ([0, 1], [[1.0, 0.0], [np.nan, 0.5]], None, DataError, r"got \[nan, 0\.5\] - row 1"),
        ([0, 1], [[1.0, 0.0], [1.5, -0.5]], None, DataError, r"got \[1\.5, -0\.5\] - row 1"),
        ([0, 1], np.eye(2), [1.0, -1.0], DataError, "Expected a finite weight of at least 0, got -1.0 - row 1"),
        ([0, 1], np.eye(2), [np.inf, 1.0], DataError, "Expected a finite weight of at least 0, got inf - row 0"),
        ([0, 1], np.eye(2), [1.0], DataError, re.escape("Expected 2 weights, got shape (1,)")),
    ],
)
def test_what_cannot_be_counted_is_refused(
    truth: Any, probabilities: Any, weight: Any, error: type[Exception], message: str
) -> None:
    """Other label types, shapes that differ and impossible numbers are refused, and nothing is counted."""
    report = Report(pa.array([0, 1]))
    with pytest.raises(error, match=message):
        report.update(pa.array(truth), probabilities, weight)
    assert report.to_dict() == Report(pa.array([0, 1])).to_dict()


def test_integers_beyond_the_classes_type_are_said() -> None:
    """A label that does not fit the classes' integer type is an error that shows it."""
    with pytest.raises(SchemaError, match="Expected labels of type int8: Integer value 300"):
        Report(pa.array([1, 2], pa.int8())).update(pa.array([300]), [[0.5, 0.5]])


def test_a_report_needs_classes() -> None:
    """No classes, or null among them, is refused."""
    with pytest.raises(ValueError, match="Expected classes without nulls, got 0 with 0 nulls"):
        Report(pa.array([], pa.string()))
    with pytest.raises(ValueError, match="got 2 with 1 nulls"):
        Report(pa.array(["a", None]))


def test_reports_on_other_classes_do_not_add_up() -> None:
    """The first class that only one side has, or the two types, are in the message, and nothing is added."""
    report = reported(np.array([0]), np.array([[1.0, 0.0]]))
    with pytest.raises(MergeError, match="but the other one has no class 'c0001'"):
        report.merge(Report(pa.array(["c0000"])))
    with pytest.raises(MergeError, match="but this one has no class 'b'"):
        report.merge(Report(pa.array(["b", "c0000", "c0001"])))
    with pytest.raises(MergeError, match="Expected a report on string labels, got int64"):
        report.merge(Report(pa.array([1])))
    assert report.rows == 1


def test_an_empty_report_says_so() -> None:
    """Without labelled rows each metric is an error, the dictionary has None, and the text says it."""
    report = Report(pa.array(["a", "b"]))
    report.update(pa.array([None, None], pa.string()), np.full((2, 2), 0.5))
    report.update(pa.array(["a"]), np.full((1, 2), 0.5), [0.0])
    report.update(pa.array([], pa.string()), np.empty((0, 2)))
    for name in (
        *("accuracy", "balanced_accuracy", "log_loss", "brier_score", "roc_auc", "expected_calibration_error"),
        *("precision", "recall", "f1", "macro_average", "weighted_average"),
    ):
        with pytest.raises(EmptyStateError, match=r"There are no labelled rows to evaluate \(2 rows without a label\)"):
            getattr(report, name)
    assert report.to_dict()["accuracy"] is None
    assert report.to_dict()["rows_without_label"] == 2
    assert str(report) == "0 labelled rows and 2 without a label"
    with pytest.raises(EmptyStateError, match=r"There are no labelled rows to evaluate$"):
        _ = Report(pa.array(["a"])).accuracy


# --- laws ---


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[pa.Array, Any, Any]]:
    """Draw a few batches of labels, known or not or null, with probabilities and perhaps weights."""
    result = []
    for _ in range(draw(st.integers(0, 4))):
        labels = draw(st.lists(st.sampled_from(["a", "b", "x", "y", None]), max_size=6))
        joint = np.random.default_rng(draw(st.integers(0, 99))).random((len(labels), 2)).round(1) + 0.05
        size = len(labels)
        weight = draw(st.none() | st.lists(st.integers(0, 3), min_size=size, max_size=size))
        result.append((pa.array(labels, pa.string()), joint / joint.sum(axis=1, keepdims=True), weight))
    return result


def total(parts: list[tuple[pa.Array, Any, Any]]) -> Report:
    """Return the report of several batches."""
    report = Report(pa.array(["a", "b"]))
    for truth, probabilities, weight in parts:
        report.update(truth, probabilities, weight)
    return report


def assert_same(one: Report, two: Report, *, exact: bool = False) -> None:
    """Compare two reports: counts exactly, sums exactly or but for rounding."""
    left, right = one.to_dict(), two.to_dict()
    for name in ("log_loss", "brier_score", "expected_calibration_error"):
        mine, theirs = left.pop(name), right.pop(name)
        assert mine == (theirs if exact or theirs is None else pytest.approx(theirs, rel=1e-12, abs=1e-15)), name
    assert left == right


@given(batches(), batches(), batches())
@settings(deadline=None, max_examples=100)
def test_reports_add_up(one: Any, two: Any, three: Any) -> None:
    """Empty is neutral, merge is commutative to the bit and associative but for rounding, others stay as they were."""
    a, b, c = total(one), total(two), total(three)
    before = pickle.dumps(b)
    empty = Report(pa.array(["a", "b"]))
    assert_same(a + empty, a, exact=True)
    assert_same(empty + a, a, exact=True)
    assert_same(a + b, b + a, exact=True)
    assert_same((a + b) + c, a + (b + c))
    assert_same(a + b + c, total([*one, *two, *three]))
    a.merge(b)
    a.update(pa.array(["a"]), [[0.5, 0.5]])
    assert pickle.dumps(b) == before
    assert_same(pickle.loads(before), b, exact=True)


@given(batches(), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_any_cut_and_order_of_the_rows_gives_the_same_report(parts: Any, size: int) -> None:
    """Smaller batches, and batches in reverse, give equal counts and equal sums but for rounding."""
    cut = [
        (truth[at : at + size], p[at : at + size], None if weight is None else weight[at : at + size])
        for truth, p, weight in parts
        for at in range(0, len(truth), size)
    ]
    assert_same(total(cut), total(parts))
    assert_same(total(cut[::-1]), total(parts))


@given(batches())
@settings(deadline=None, max_examples=40)
def test_weight_two_is_the_row_twice(parts: Any) -> None:
    """Whole weights equal repeated rows; weight 0 equals no row."""
    weighted = [(truth, p, [1] * len(truth) if weight is None else weight) for truth, p, weight in parts]
    repeated = [
        (truth.take(pa.array(np.repeat(np.arange(len(truth)), weight))), np.repeat(p, weight, axis=0), None)
        for truth, p, weight in weighted
    ]
    one, two = total(weighted).to_dict(), total(repeated).to_dict()
    for name in ("rows", "rows_without_label"):
        one.pop(name)
        two.pop(name)
    assert flat(one) == pytest.approx(flat(two))


def flat(value: Any) -> list[float]:
    """Return all numbers in a nested dictionary."""
    if isinstance(value, dict):
        return [number for each in value.values() for number in flat(each)]
    if isinstance(value, list):
        return [number for each in value for number in flat(each)]
    return [value] if isinstance(value, int | float) else []


def test_a_report_can_be_added_to_itself() -> None:
    """A report merged into itself counts every row twice."""
    report = total([(pa.array(["a", "x"]), np.array([[0.9, 0.1], [0.5, 0.5]]), None)])
    report.merge(report)
    assert (report.rows, report.accuracy, report.unknown_labels) == (4, 0.5, {"x": 2})


# --- size and faces ---


def test_a_thousand_classes() -> None:
    """With a thousand classes the confusion matrix is there, with integer counts."""
    codes, probabilities = rows(4, 2000, 1000)
    report = reported(codes, probabilities)
    answers = probabilities.argmax(axis=1)
    assert report.confusion.counts.dtype == np.int64
    np.testing.assert_array_equal(
        report.confusion.counts, oracle.confusion_matrix(codes, answers, labels=np.arange(1000))
    )
    assert report.to_dict()["confusion"] is None
    assert "... and 975 more classes" in str(report)


def test_beyond_two_thousand_classes_only_the_matrix_is_missing() -> None:
    """With 2001 classes everything but the confusion matrix is counted, and asking for it says so."""
    codes, probabilities = rows(4, 50, 2001, sharpness=9.0)
    report = reported(codes, probabilities) + reported(codes, probabilities)
    assert report.accuracy == pytest.approx((probabilities.argmax(axis=1) == codes).mean())
    with pytest.raises(DataError, match="Expected at most 2000 classes for a confusion matrix, got 2001"):
        _ = report.confusion
    assert not report.has_confusion
    assert "accuracy" in str(report)


def test_the_text_is_a_compact_table() -> None:
    """The text has the metrics, a line per class with its most frequent error, and the averages."""
    report = Report(pa.array(["setosa", "versicolor"]))
    report.update(
        pa.array(["setosa", "versicolor", "versicolor", "versicolor", None]),
        [[0.9, 0.1], [0.2, 0.8], [0.25, 0.75], [0.6, 0.4], [0.5, 0.5]],
    )
    assert str(report) == TEXT
    assert repr(report) == "Report(2 classes, 4 rows)"


TEXT = """\
4 labelled rows and 1 without a label
  accuracy                    0.7500
  balanced accuracy           0.8333
  log loss                    0.3831
  brier score                 0.1181
  roc auc                     1.0000
  expected calibration error  0.2875

class             precision  recall      f1       support  most often taken for
setosa               0.5000  1.0000  0.6667             1
versicolor           1.0000  0.6667  0.8000             3  setosa (33.3%)
macro average        0.7500  0.8333  0.7333             4
weighted average     0.8750  0.7500  0.7667             4"""


def test_the_dictionary_is_json() -> None:
    """Everything that is in the dictionary survives JSON, whole counts as integers."""
    report = Report(pa.array([1, 2]))
    report.update(pa.array([1, 2, 3]), [[0.75, 0.25], [0.75, 0.25], [0.5, 0.5]])
    content = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert content == report.to_dict()
    assert content["accuracy"] == pytest.approx(1 / 3)
    assert content["confusion"] == [[1, 0], [1, 0]]
    assert content["classes"][1] == {"class": 2, "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
    assert (content["unknown_rows"], content["unknown_labels"]) == (1, [[3, 1]])


def test_the_confusion_matrix_is_a_table() -> None:
    """The table has the true class first and one column per answer."""
    table = reported(np.array([0, 1, 1]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).confusion.to_table()
    assert table.to_pydict() == {"truth": ["c0000", "c0001"], "c0000": [1, 1], "c0001": [0, 1]}


def test_what_is_read_is_not_the_report_s_own() -> None:
    """Changing an array that was read does not change the report."""
    report = reported(np.array([0]), np.array([[1.0, 0.0]]), [0.5])
    report.support[:] = 9
    report.confusion.counts[:] = 9
    assert report.support.tolist() == [0.5, 0.0]
    assert report.confusion.counts.tolist() == [[0.5, 0.0], [0.0, 0.0]]


def test_a_state_serves_as_its_predictor(tmp_path: Path) -> None:
    """A state is finished with the defaults wherever a predictor is asked for."""
    rows = pa.table({"y": ["a", "a", "b", "b"], "x": [1.0, 3.0, 10.0, 14.0]})
    state = snb.State(snb.Schema.infer(rows, label="y"))
    state.update(rows)
    assert snb.evaluate(state, rows).to_dict() == snb.evaluate(state.finish(), rows).to_dict()
    for name in ("scored.CSV", "scored.parquet", "scored"):
        assert snb.predict(state, rows, tmp_path / name) == 4
    assert (tmp_path / "scored.CSV").read_text() == '"prediction"\n"a"\n"a"\n"b"\n"b"\n'
    with pytest.raises(snb.SourceError, match=r"end in \.parquet or \.csv, got \.json"):
        snb.predict(state, rows, tmp_path / "scored.json")
    with pytest.raises(TypeError, match="Predictor or a State, got int"):
        snb.evaluate(3, rows)  # type: ignore[arg-type]
    with pytest.raises(snb.SchemaError, match="Arrow schema or data that has one, got int"):
        snb.Schema.infer(3, label="y")


@pytest.mark.parametrize("given", ["a", [1.0, "b"], None, -1, float("nan"), 1e308])
def test_a_smoothing_that_is_none_is_named(given: Any) -> None:
    """What is wrong with a parameter is said with its name."""
    rows = pa.table({"y": ["a", "b"], "c": [1, 2], "d": [1, 2]})
    state = snb.State(snb.Schema(label="y", counts=["c", "d"]))
    state.update(rows)
    with pytest.raises(ValueError, match="Expected alpha to be"):
        state.finish(counts=snb.Multinomial(alpha=given))
    if not isinstance(given, list):
        with pytest.raises(ValueError, match="Expected var_smoothing to be"):
            snb.Gaussian(given)
