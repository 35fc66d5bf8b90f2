"""The main job on real tables, through the real command line: fit, finish, evaluate, predict.

The tables come with packages that the tests need anyway: the space shuttle's radiators (river) and the passengers of
the Titanic (bokeh_sampledata). They are read where they are installed; nothing of them is kept here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from sklearn import metrics
from sklearn.naive_bayes import CategoricalNB, GaussianNB

import streamnb

ROOT = Path(streamnb.__file__).parent.parent


def streamnb_command(*arguments: str | Path) -> str:
    """Run `python -m streamnb` with these arguments and return its stdout; it must end well."""
    command = [sys.executable, "-m", "streamnb", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def probabilities(scored: Path, labels: list[int]) -> NDArray[np.float64]:
    """Return the columns proba_<label> of a scored file, (n_rows, n_classes)."""
    return pl.read_parquet(scored).select([f"proba_{label}" for label in labels]).to_numpy()


def assert_measures(report: dict[str, Any], truth: Any, proba: NDArray[np.float64]) -> None:
    """Hold every number of a report of two classes 0 and 1 against sklearn.metrics."""
    answer = proba.argmax(axis=1)
    assert report["rows"] == len(truth)
    assert report["accuracy"] == pytest.approx(metrics.accuracy_score(truth, answer), rel=1e-12)
    assert report["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(truth, answer), rel=1e-12)
    assert report["log_loss"] == pytest.approx(metrics.log_loss(truth, proba), rel=1e-9)
    assert report["brier_score"] == pytest.approx(metrics.brier_score_loss(truth, proba[:, 1]), rel=1e-9)
    assert report["roc_auc"] == pytest.approx(metrics.roc_auc_score(truth, proba[:, 1]), abs=1e-3)
    assert report["confusion"] == metrics.confusion_matrix(truth, answer).tolist()
    precision, recall, f1, support = metrics.precision_recall_fscore_support(truth, answer)
    columns = {"precision": precision, "recall": recall, "f1": f1, "support": support}
    for name, expected in columns.items():
        assert [row[name] for row in report["classes"]] == pytest.approx(expected.tolist(), rel=1e-12)
    for average in ("macro", "weighted"):
        expected = metrics.precision_recall_fscore_support(truth, answer, average=average)[:3]
        assert list(report[f"{average}_average"].values()) == pytest.approx(list(expected), rel=1e-12)


# The space shuttle --------------------------------------------------------------------------------------------------

SENSORS = [f"f{i}" for i in range(1, 10)]


@pytest.fixture(scope="module")
def shuttle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame, pl.DataFrame]:
    """Write the first 40 000 rows as four training files and the rest as one test file."""
    table = pl.read_csv(str(files("river.datasets") / "shuttle.csv.gz"))
    assert table.shape == (49_097, 10)
    folder = tmp_path_factory.mktemp("shuttle")
    (folder / "train").mkdir()
    for i in range(4):
        table.slice(10_000 * i, 10_000).write_parquet(folder / "train" / f"part-{i}.parquet", row_group_size=3000)
    table.slice(40_000).write_parquet(folder / "test.parquet")
    streamnb_command("fit", folder / "train", "--label", "anomaly", "-o", folder / "state.snb")
    streamnb_command("finish", folder / "state.snb", "-o", folder / "model.snb")
    return folder, table.head(40_000), table.slice(40_000)


def test_shuttle_predictions_are_those_of_scikit_learn(
    shuttle: tuple[Path, pl.DataFrame, pl.DataFrame],
) -> None:
    """Every probability is GaussianNB's, the kept column is the label, and 99.22 % of the answers are right."""
    folder, train, test = shuttle
    output = folder / "scored.parquet"
    streamnb_command(
        "predict", folder / "model.snb", folder / "test.parquet", "-o", output, "--proba", "--keep", "anomaly"
    )
    theirs = GaussianNB().fit(train.select(SENSORS).to_numpy(), train["anomaly"].to_numpy())
    expected = theirs.predict_proba(test.select(SENSORS).to_numpy())
    np.testing.assert_allclose(probabilities(output, [0, 1]), expected, rtol=1e-6, atol=1e-12)
    scored = pl.read_parquet(output)
    assert scored["anomaly"].equals(test["anomaly"])
    assert scored["prediction"].to_numpy().tolist() == theirs.predict(test.select(SENSORS).to_numpy()).tolist()
    assert (scored["prediction"] == scored["anomaly"]).mean() == pytest.approx(0.9922, abs=5e-5)


def test_shuttle_report_is_that_of_scikit_learn(shuttle: tuple[Path, pl.DataFrame, pl.DataFrame]) -> None:
    """What evaluate says is what sklearn.metrics says of GaussianNB's answers."""
    folder, train, test = shuttle
    report = json.loads(streamnb_command("evaluate", folder / "model.snb", folder / "test.parquet", "--json"))
    theirs = GaussianNB().fit(train.select(SENSORS).to_numpy(), train["anomaly"].to_numpy())
    assert report["accuracy"] == pytest.approx(0.9922, abs=5e-5)
    assert_measures(report, test["anomaly"].to_numpy(), theirs.predict_proba(test.select(SENSORS).to_numpy()))


def test_shuttle_parts_add_up(shuttle: tuple[Path, pl.DataFrame, pl.DataFrame]) -> None:
    """Fits of two files each, from Python and from the shell, merge to the model of the whole folder."""
    folder, _, _ = shuttle
    parts = [folder / "train" / f"part-{i}.parquet" for i in range(4)]
    streamnb.fit(parts[:2], label="anomaly", workers=1).save(folder / "a.snb")
    streamnb_command("fit", *parts[2:], "--label", "anomaly", "-o", folder / "b.snb")
    streamnb_command("merge", folder / "b.snb", folder / "a.snb", folder / "b.snb", "-o", folder / "both.snb")
    both, whole = (streamnb.State.load(folder / name) for name in ("both.snb", "state.snb"))
    assert both.n_rows == whole.n_rows == 40_000
    assert both.ledger == whole.ledger
    ours, theirs = (streamnb.evaluate(state.finish(), folder / "test.parquet") for state in (both, whole))
    assert ours.accuracy == theirs.accuracy
    assert ours.log_loss == pytest.approx(theirs.log_loss, rel=1e-9)


# The Titanic --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def titanic(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pl.DataFrame, pl.DataFrame]:
    """Write three of four passengers as training files and the fourth as test file; names are left out."""
    table = pl.read_csv(str(files("bokeh_sampledata") / "_data" / "titanic_all.csv"), null_values=["", "NA"])
    assert table.height == 1313
    assert table["age"].null_count() == 557
    table = table.drop("name")
    fourth = pl.int_range(pl.len()) % 4 == 3
    train, test = table.filter(~fourth), table.filter(fourth)
    folder = tmp_path_factory.mktemp("titanic")
    (folder / "train").mkdir()
    for i, piece in enumerate(train.iter_slices(400)):
        piece.write_parquet(folder / "train" / f"part-{i}.parquet")
    test.write_parquet(folder / "test.parquet")
    streamnb_command("fit", folder / "train", "--label", "survived", "-o", folder / "state.snb")
    streamnb_command("finish", folder / "state.snb", "-o", folder / "model.snb", "--alpha", "1.0")
    return folder, train, test


def by_hand(train: pl.DataFrame, test: pl.DataFrame) -> NDArray[np.float64]:
    """Return the posteriors of a mixed model, column by column: missing ages are left out of fit and score."""
    y = train["survived"].to_numpy()
    prior = np.log(np.bincount(y) / len(y))
    joint = np.tile(prior, (test.height, 1))
    ages = train["age"].to_numpy()
    present = ~np.isnan(ages)
    epsilon = 1e-9 * ages[present].var()
    new = test["age"].to_numpy()
    for c in (0, 1):
        mean, variance = ages[present & (y == c)].mean(), ages[present & (y == c)].var() + epsilon
        density = -0.5 * np.log(2 * np.pi * variance) - (new - mean) ** 2 / (2 * variance)
        joint[:, c] += np.where(np.isnan(new), 0.0, density)
    # The categorical half is scikit-learn's, without its prior.
    words = {name: sorted(train[name].unique()) for name in ("class", "sex")}
    codes = [np.column_stack([[words[name].index(v) for v in t[name]] for name in words]) for t in (train, test)]
    theirs = CategoricalNB(alpha=1.0).fit(codes[0], y)
    joint += theirs.predict_joint_log_proba(codes[1]) - theirs.class_log_prior_
    likelihood = np.exp(joint - joint.max(axis=1, keepdims=True))
    return np.asarray(likelihood / likelihood.sum(axis=1, keepdims=True))


def test_titanic_predictions_are_those_by_hand(titanic: tuple[Path, pl.DataFrame, pl.DataFrame]) -> None:
    """A model of ages, some missing, and of words gives the posteriors that its parts give by hand."""
    folder, train, test = titanic
    output = folder / "scored.parquet"
    streamnb_command("predict", folder / "model.snb", folder / "test.parquet", "-o", output, "--proba", "--keep-all")
    expected = by_hand(train, test)
    np.testing.assert_allclose(probabilities(output, [0, 1]), expected, rtol=1e-10)
    scored = pl.read_parquet(output)
    assert scored.columns == ["class", "age", "sex", "survived", "prediction", "proba_0", "proba_1"]
    assert scored["prediction"].to_list() == expected.argmax(axis=1).tolist()
    assert scored.select(test.columns).equals(test)


def test_titanic_report_is_that_of_scikit_learn(titanic: tuple[Path, pl.DataFrame, pl.DataFrame]) -> None:
    """What evaluate says of the mixed model is what sklearn.metrics says of the posteriors by hand."""
    folder, train, test = titanic
    report = json.loads(streamnb_command("evaluate", folder / "model.snb", folder / "test.parquet", "--json"))
    assert_measures(report, test["survived"].to_numpy(), by_hand(train, test))
    assert report["accuracy"] > 0.75


def test_titanic_state_knows_what_is_missing(titanic: tuple[Path, pl.DataFrame, pl.DataFrame]) -> None:
    """Missing ages are counted by class, and touch no other column."""
    folder, train, _ = titanic
    state = streamnb.State.load(folder / "state.snb")
    assert state.schema.numeric == ("age",)
    assert state.schema.categorical == ("class", "sex")
    missing = {label: train.filter(pl.col("survived") == label)["age"].null_count() for label in (0, 1)}
    assert state.missing() == {"age": missing, "class": {0: 0, 1: 0}, "sex": {0: 0, 1: 0}}
