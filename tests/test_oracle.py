"""scikit-learn as the oracle: five families, four data sets, through shuffled Parquet files and through merges.

How two models are compared. A joint log probability is a sum of many terms of one sign and different sizes, of which
float64 keeps 16 digits of the *largest*; so joint log probabilities are compared relative to the largest of a row. A
posterior is an exponential of their difference: what is an absolute error there is a relative one here. So posteriors
are compared relative to themselves, within the larger of the tolerance and of what the rounding of those sums leaves
(digits under a Gaussian with pixels that never change: log probabilities of −1e9, of which 1e-7 is rounding, in
scikit-learn as much as here). Posteriors below 1e-290 count as 0: exp keeps no digits there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from sklearn import datasets, naive_bayes

import streamnb as snb

ROUNDING = 2.0**-53
GAUSSIAN, COUNTS = 1e-9, 1e-12

LOADERS = {
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
    "breast_cancer": datasets.load_breast_cancer,
    "digits": datasets.load_digits,
}


class Data(NamedTuple):
    """A data set: the matrix (n_rows, n_features), its labels as strings, the names of its columns."""

    x: NDArray[Any]
    labels: NDArray[Any]
    names: list[str]

    def table(self, **more: Any) -> pa.Table:
        """Return the data as a table; a feature of whole numbers comes as such."""
        columns = {name: self.x[:, j] for j, name in enumerate(self.names)}
        return pa.table({**columns, "label": self.labels, **more})


@lru_cache
def numbers(name: str) -> Data:
    """Return a data set as scikit-learn has it."""
    bunch = LOADERS[name]()
    x = np.ascontiguousarray(bunch.data, np.float64)
    labels = np.array([f"class {value}" for value in bunch.target])
    return Data(x, labels, [f"x{j}" for j in range(x.shape[1])])


@lru_cache
def levels(name: str) -> Data:
    """Return a data set as whole numbers from 0: digits as it is, the others cut at their own quintiles."""
    data = numbers(name)
    if name == "digits":
        return data._replace(x=data.x.astype(np.int64))
    edges = np.quantile(data.x, [0.2, 0.4, 0.6, 0.8], axis=0)
    x = np.stack([np.searchsorted(np.unique(edges[:, j]), data.x[:, j]) for j in range(data.x.shape[1])], axis=1)
    return data._replace(x=x)


def tolerance_of(limit: float, joint: NDArray[Any]) -> float:
    """Return the tolerance for posteriors whose joint log probabilities are these."""
    return max(limit, 64 * ROUNDING * float(np.abs(joint).max()))


def assert_same_scores(
    model: snb.Predictor, table: pa.Table, joint: NDArray[Any], log_proba: NDArray[Any], limit: float
) -> None:
    """Hold a model's scores against an oracle's joint log probabilities and log posteriors, (n_rows, n_classes)."""
    mine = model.predict_joint_log_proba(table)
    scale = np.maximum(np.abs(joint).max(axis=1, keepdims=True), 1.0)
    wrong = np.argwhere(~(np.abs(mine - joint) <= limit * scale))
    assert not len(wrong), f"row {wrong[0][0]}: joint {mine[tuple(wrong[0])]!r} against {joint[tuple(wrong[0])]!r}"
    tolerance = tolerance_of(limit, joint)
    assert np.allclose(model.predict_proba(table), np.exp(log_proba), rtol=tolerance, atol=1e-290)
    assert np.allclose(model.predict_log_proba(table), log_proba, rtol=limit, atol=tolerance)


def logsumexp(joint: NDArray[Any]) -> NDArray[Any]:
    """Return the logarithm of the sum over the classes, (n_rows, 1)."""
    return np.logaddexp.reduce(joint, axis=1)[:, None]


def joint_from_counts(oracle: naive_bayes.BernoulliNB, matrix: NDArray[Any]) -> NDArray[Any]:
    """Return the joint log probabilities that a Bernoulli oracle's own counts give, (n_rows, n_classes)."""
    ones, rows = oracle.feature_count_, oracle.class_count_[:, None]
    x = matrix if oracle.binarize is None else (matrix > oracle.binarize).astype(float)
    whole = rows + 2.0 * oracle.alpha
    one, zero = np.log((ones + oracle.alpha) / whole), np.log((rows - ones + oracle.alpha) / whole)
    return oracle.class_log_prior_ + x @ one.T + (1.0 - x) @ zero.T


def assert_same(
    model: snb.Predictor, oracle: Any, data: Data, limit: float, matrix: NDArray[Any] | None = None
) -> None:
    """Hold a model against a fitted scikit-learn classifier on the rows of a data set: scores, labels and priors."""
    matrix = data.x if matrix is None else matrix
    assert model.classes.to_pylist() == oracle.classes_.tolist()
    if isinstance(oracle, naive_bayes.BernoulliNB):
        # scikit-learn takes log(1 − p) from log p, and loses three digits of it where p is near 0.
        joint = joint_from_counts(oracle, matrix)
        assert_same_scores(model, data.table(), joint, joint - logsumexp(joint), limit)
        limit = 10 * limit
    assert_same_scores(
        model, data.table(), oracle.predict_joint_log_proba(matrix), oracle.predict_log_proba(matrix), limit
    )
    assert model.predict(data.table()).to_pylist() == oracle.predict(matrix).tolist()
    prior = oracle.class_prior_ if hasattr(oracle, "class_prior_") else np.exp(oracle.class_log_prior_)
    assert np.allclose(np.exp(model.class_log_prior), prior, rtol=1e-12)


def in_files(folder: Path, table: pa.Table, seed: int = 7, files: int = 5) -> str:
    """Write the rows, shuffled, to some Parquet files of unequal length; return the glob of them."""
    order = np.random.default_rng(seed).permutation(len(table))
    cuts = [len(table) * i * i // files**2 for i in range(files + 1)]
    for i in range(files):
        part = table.take(pa.array(order[cuts[i] : cuts[i + 1]]))
        pq.write_table(part, folder / f"part-{i}.parquet", row_group_size=53)
    return str(folder / "*.parquet")


def balanced(states: list[snb.State]) -> snb.State:
    """Merge halves, and halves of halves."""
    if len(states) == 1:
        return states[0]
    half = len(states) // 2
    return balanced(states[:half]) + balanced(states[half:])


def chained(states: list[snb.State]) -> snb.State:
    """Merge left to right."""
    total = states[0].copy()
    for state in states[1:]:
        total.merge(state)
    return total


TREES: dict[str, Callable[[list[snb.State]], snb.State]] = {
    "left to right": chained,
    "right to left": lambda states: chained(states[::-1]),
    "balanced": balanced,
}


def sharded(schema: snb.Schema, table: pa.Table, shards: int = 7, seed: int = 3) -> list[snb.State]:
    """Return states of shuffled, unequal shards, each updated by several batches."""
    order = np.random.default_rng(seed).permutation(len(table))
    cuts = np.sort(np.random.default_rng(seed).integers(0, len(table), shards - 1))
    states = []
    for part in np.split(order, cuts):
        state = snb.State(schema)
        for piece in np.array_split(part, 3):
            state.update(table.take(pa.array(piece, pa.int64())))
        states.append(state)
    return states


FAMILIES = ["gaussian", "multinomial", "complement", "complement norm", "bernoulli", "categorical"]


class Case(NamedTuple):
    """One family over one data set: how it is counted, finished, and what the oracle is."""

    data: Data
    schema: snb.Schema
    finish: Mapping[str, Any]
    oracle: Any
    limit: float


def case(family: str, name: str) -> Case:
    """Return the case of a family on a data set, with the oracle fitted on all rows at once."""
    data = numbers(name) if family == "gaussian" else levels(name)
    kind = {"gaussian": "numeric", "bernoulli": "binary", "categorical": "categorical"}.get(family, "counts")
    threshold = {"binarize": 2.0} if family == "bernoulli" else {}
    schema = snb.Schema(label="label", **{kind: data.names}, **threshold)
    width = int(data.x.max()) + 1
    finish, oracle = {
        "gaussian": (snb.Gaussian(), naive_bayes.GaussianNB()),
        "multinomial": (snb.Multinomial(alpha=0.1), naive_bayes.MultinomialNB(alpha=0.1)),
        "complement": (snb.Complement(), naive_bayes.ComplementNB()),
        "complement norm": (snb.Complement(norm=True), naive_bayes.ComplementNB(norm=True)),
        "bernoulli": (snb.Bernoulli(alpha=0.1), naive_bayes.BernoulliNB(alpha=0.1, binarize=2.0)),
        "categorical": (
            snb.Categorical(alpha=0.1, min_categories=width),
            naive_bayes.CategoricalNB(alpha=0.1, min_categories=width),
        ),
    }[family]
    limit = GAUSSIAN if family == "gaussian" else COUNTS
    return Case(data, schema, {kind: finish}, oracle.fit(data.x, data.labels), limit)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_shuffled_files_give_what_scikit_learn_gives(family: str, name: str, tmp_path: Path) -> None:
    """Five shuffled Parquet files, read by `fit`, give scikit-learn's model of the whole table."""
    each = case(family, name)
    state = snb.fit(in_files(tmp_path, each.data.table()), schema=each.schema, workers=2)
    assert state.n_rows == len(each.data.labels)
    assert_same(state.finish(**each.finish), each.oracle, each.data, each.limit)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("family", FAMILIES)
def test_merged_shards_give_what_scikit_learn_gives(family: str, name: str) -> None:
    """Seven shards merged left to right, right to left and as a balanced tree give scikit-learn's model."""
    each = case(family, name)
    states = sharded(each.schema, each.data.table())
    for merge in TREES.values():
        assert_same(merge(states).finish(**each.finish), each.oracle, each.data, each.limit)


ORACLES: dict[str, tuple[Any, Any]] = {
    "multinomial": (snb.Multinomial, naive_bayes.MultinomialNB),
    "complement": (snb.Complement, naive_bayes.ComplementNB),
    "complement norm": (
        lambda alpha: snb.Complement(alpha, norm=True),
        lambda alpha, **more: naive_bayes.ComplementNB(alpha=alpha, norm=True, **more),
    ),
    "bernoulli": (snb.Bernoulli, lambda alpha, **more: naive_bayes.BernoulliNB(alpha=alpha, binarize=None, **more)),
    "categorical": (
        lambda alpha: snb.Categorical(alpha, min_categories=5),
        lambda alpha, **more: naive_bayes.CategoricalNB(alpha=alpha, min_categories=5, **more),
    ),
}


def small_counts(family: str) -> tuple[Data, snb.Schema]:
    """Return the breast cancer data in levels (0/1 for Bernoulli) and the schema of a family."""
    data = levels("breast_cancer")
    kind = {"bernoulli": "binary", "categorical": "categorical"}.get(family, "counts")
    if family == "bernoulli":
        data = data._replace(x=(data.x > 2).astype(np.int64))
    return data, snb.Schema(label="label", **{kind: data.names})


def counted(schema: snb.Schema, table: pa.Table) -> snb.State:
    """Return the state of a table."""
    state = snb.State(schema)
    state.update(table)
    return state


def block(schema: snb.Schema) -> str:
    """Return the one kind of feature that a schema has."""
    return next(kind for kind in ("numeric", "categorical", "binary", "counts") if getattr(schema, kind))


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 1.0, 3.5])
@pytest.mark.parametrize("family", ORACLES)
def test_smoothing(family: str, alpha: float) -> None:
    """Every α gives scikit-learn's numbers, and one state serves them all."""
    data, schema = small_counts(family)
    mine, oracle = ORACLES[family]
    model = counted(schema, data.table()).finish(**{block(schema): mine(alpha)})
    assert_same(model, oracle(alpha=alpha).fit(data.x, data.labels), data, COUNTS)


@pytest.mark.parametrize("family", ["multinomial", "complement", "complement norm", "bernoulli"])
def test_smoothing_by_feature(family: str) -> None:
    """α may be one number per column, as a list or by name (which scikit-learn's Bernoulli accepts and fails on)."""
    data, schema = small_counts(family)
    mine, oracle = ORACLES[family]
    if family == "bernoulli":
        oracle = BernoulliByFeature
    alpha = np.linspace(0.1, 2.0, data.x.shape[1])
    state, reference = counted(schema, data.table()), oracle(alpha=alpha).fit(data.x, data.labels)
    by_name = dict(zip(reversed(data.names), alpha[::-1].tolist(), strict=True))
    for given in (alpha, alpha.tolist(), by_name):
        assert_same(state.finish(**{block(schema): mine(given)}), reference, data, COUNTS)


class BernoulliByFeature:
    """BernoulliNB one column at a time, each with its own α."""

    def __init__(self, alpha: NDArray[Any]) -> None:
        self.alpha = alpha

    def fit(self, x: NDArray[Any], labels: NDArray[Any]) -> Any:
        """Fit one model per column."""
        self.models = [
            naive_bayes.BernoulliNB(alpha=alpha, binarize=None).fit(x[:, j : j + 1], labels)
            for j, alpha in enumerate(self.alpha)
        ]
        self.classes_, self.class_log_prior_ = self.models[0].classes_, self.models[0].class_log_prior_
        return self

    def predict_joint_log_proba(self, x: NDArray[Any]) -> NDArray[Any]:
        """Add the columns' joint log probabilities, with the prior once."""
        joint = sum(
            joint_from_counts(model, x[:, j : j + 1]) - self.class_log_prior_ for j, model in enumerate(self.models)
        )
        return np.asarray(joint) + self.class_log_prior_

    def predict_log_proba(self, x: NDArray[Any]) -> NDArray[Any]:
        """Normalise."""
        joint = self.predict_joint_log_proba(x)
        return joint - logsumexp(joint)

    def predict(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the label of the highest score."""
        return self.classes_[self.predict_joint_log_proba(x).argmax(axis=1)]


@pytest.mark.parametrize("family", ORACLES)
def test_priors(family: str) -> None:
    """A uniform and a given prior are scikit-learn's `fit_prior=False` and `class_prior=`."""
    data, schema = small_counts(family)
    mine, oracle = ORACLES[family]
    state = counted(schema, data.table())
    model = state.finish(**{block(schema): mine(1.0)}, class_prior="uniform")
    assert_same(model, oracle(alpha=1.0, fit_prior=False).fit(data.x, data.labels), data, COUNTS)
    given = {"class 0": 0.9, "class 1": 0.1}
    model = state.finish(**{block(schema): mine(1.0)}, class_prior=given)
    assert_same(model, oracle(alpha=1.0, class_prior=[0.9, 0.1]).fit(data.x, data.labels), data, COUNTS)


def weights(n_rows: int) -> NDArray[Any]:
    """Return weights of very different size; some are 0."""
    generator = np.random.default_rng(11)
    return np.where(generator.random(n_rows) < 0.1, 0.0, generator.lognormal(0.0, 1.5, n_rows))


@pytest.mark.parametrize("family", ORACLES)
def test_sample_weights_of_count_models(family: str) -> None:
    """Row weights are scikit-learn's `sample_weight`, at once and merged."""
    data, schema = small_counts(family)
    schema = snb.Schema(label="label", weight="w", **{block(schema): data.names})
    mine, oracle = ORACLES[family]
    weight = weights(len(data.labels))
    reference = oracle(alpha=0.5).fit(data.x, data.labels, sample_weight=weight)
    table = data.table(w=weight)
    for state in (counted(schema, table), balanced(sharded(schema, table))):
        assert_same(state.finish(**{block(schema): mine(0.5)}), reference, data, COUNTS)


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer"])
def test_sample_weights_of_the_gaussian(name: str) -> None:
    """Weighted moments are scikit-learn's; its ε, which forgets the weights, is handed over as an absolute one."""
    data = numbers(name)
    weight = weights(len(data.labels))
    oracle = naive_bayes.GaussianNB().fit(data.x, data.labels, sample_weight=weight)
    schema = snb.Schema(label="label", numeric=data.names, weight="w")
    table = data.table(w=weight)
    for state in (counted(schema, table), balanced(sharded(schema, table))):
        model = state.finish(numeric=snb.Gaussian(epsilon=oracle.epsilon_))
        assert_same(model, oracle, data, GAUSSIAN)


@pytest.mark.parametrize("var_smoothing", [0.0, 1e-9, 1e-2])
@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer"])
def test_variance_smoothing_of_the_gaussian(name: str, var_smoothing: float) -> None:
    """ε is scikit-learn's `var_smoothing`, with priors as it takes them."""
    data = numbers(name)
    classes = np.unique(data.labels)
    state = counted(snb.Schema(label="label", numeric=data.names), data.table())
    prior = np.arange(1.0, len(classes) + 1) / np.arange(1.0, len(classes) + 1).sum()
    oracle = naive_bayes.GaussianNB(var_smoothing=var_smoothing, priors=prior).fit(data.x, data.labels)
    model = state.finish(
        numeric=snb.Gaussian(var_smoothing=var_smoothing),
        class_prior=dict(zip(classes.tolist(), prior, strict=True)),
    )
    assert_same(model, oracle, data, GAUSSIAN)


@pytest.mark.parametrize("threshold", [0.0, 3.0, 7.5])
def test_binarize(threshold: float) -> None:
    """A threshold in the schema is scikit-learn's `binarize`: above it is 1, at prediction too."""
    data = levels("digits")
    schema = snb.Schema(label="label", binary=data.names, binarize=threshold)
    oracle = naive_bayes.BernoulliNB(binarize=threshold).fit(data.x, data.labels)
    assert_same(counted(schema, data.table()).finish(), oracle, data, COUNTS)


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits"])
def test_integer_labels_keep_their_type(name: str) -> None:
    """Labels that are integers give the same model, and come back as integers of the same width."""
    data = numbers(name)
    target = np.array([int(label.removeprefix("class ")) for label in data.labels], np.int16)
    model = counted(snb.Schema(label="label", numeric=data.names), data._replace(labels=target).table()).finish()
    oracle = naive_bayes.GaussianNB().fit(data.x, target)
    assert model.classes.type == pa.int16()
    assert_same(model, oracle, data, GAUSSIAN)


def test_a_far_column_keeps_scikit_learns_accuracy() -> None:
    """Iris moved to 1e9 and moved back (exactly) is what scikit-learn says of the digits that are left."""
    data = numbers("iris")
    far = data._replace(x=data.x + 2.0**30)
    near = far.x - 2.0**30
    oracle = naive_bayes.GaussianNB().fit(near, data.labels)
    for merge in TREES.values():
        model = merge(sharded(snb.Schema(label="label", numeric=data.names), far.table())).finish()
        assert_same(model, oracle, far, GAUSSIAN, near)


# --- mixed columns ----------------------------------------------------------------------------------------------------


def mixed(n_rows: int = 600, seed: int = 5) -> dict[str, Any]:
    """Return made-up rows of all kinds of column, of three classes."""
    generator = np.random.default_rng(seed)
    y = generator.choice(["a", "b", "c"], n_rows, p=[0.6, 0.3, 0.1])
    shift = np.select([y == "a", y == "b"], [0.0, 1.0], 2.5)
    return {
        "y": y,
        "height": 170 + 8 * shift + generator.normal(0, 6, n_rows),
        "mass": (60 + 5 * shift + generator.normal(0, 9, n_rows)).astype(np.float32),
        "town": generator.choice(["x", "y", "z"], n_rows),
        "zone": (generator.integers(0, 3, n_rows) + (y == "c")).astype(np.int8),
        "flag": generator.random(n_rows) < 0.2 + 0.2 * shift,
        "bees": generator.poisson(2 + shift),
        "flies": generator.poisson(3, n_rows),
        "w": generator.integers(1, 4, n_rows).astype(float),
    }


MIXED = snb.Schema(
    label="y",
    numeric=["height", "mass"],
    categorical=["town", "zone"],
    binary=["flag"],
    counts=["bees", "flies"],
    weight="w",
)


def product_by_hand(rows: Mapping[str, Any], gone: Mapping[str, NDArray[Any]], complement: bool) -> NDArray[Any]:
    """Return joint log probabilities (n_rows, n_classes) of the mixed model by plain NumPy on plain arrays.

    `gone` flags the cells that are missing, by column. Written from the formulas, without a look at the library.
    """
    y, w = rows["y"], rows["w"]
    classes = ["a", "b", "c"]
    there = {name: ~gone.get(name, np.zeros(len(y), bool)) for name in rows}
    joint = np.zeros((len(y), 3))

    def weighted_variance(x: NDArray[Any], weight: NDArray[Any]) -> tuple[float, float]:
        mean = (weight * x).sum() / weight.sum()
        return mean, (weight * (x - mean) ** 2).sum() / weight.sum()

    wide = {name: rows[name].astype(float) for name in ("height", "mass", "flag", "bees", "flies")}
    epsilon = 1e-9 * max(weighted_variance(wide[name][there[name]], w[there[name]])[1] for name in ("height", "mass"))
    for c, label in enumerate(classes):
        mine = y == label
        joint[:, c] += np.log(w[mine].sum() / w.sum())
        for name in ("height", "mass"):
            rest = mine & there[name]
            mean, variance = weighted_variance(wide[name][rest], w[rest])
            variance += epsilon
            density = -0.5 * np.log(2 * np.pi * variance) - 0.5 * (wide[name] - mean) ** 2 / variance
            joint[:, c] += np.where(there[name], density, 0.0)
        for name in ("town", "zone"):
            rest = mine & there[name]
            values = np.unique(rows[name][there[name]])
            for value in values:
                hit = rows[name] == value
                p = (w[rest & hit].sum() + 0.5) / (w[rest].sum() + 0.5 * len(values))
                joint[:, c] += np.where(there[name] & hit, np.log(p), 0.0)
        rest = mine & there["flag"]
        p = (w[rest & rows["flag"]].sum() + 1.0) / (w[rest].sum() + 2.0)
        joint[:, c] += np.where(there["flag"], np.where(rows["flag"], np.log(p), np.log(1 - p)), 0.0)
        pool = ~mine if complement else mine
        sums = np.array([(w * wide[name])[pool & there[name]].sum() + 1.0 for name in ("bees", "flies")])
        score = np.log(sums / sums.sum()) * (-1.0 if complement else 1.0)
        for name, each in zip(("bees", "flies"), score, strict=True):
            joint[:, c] += np.where(there[name], wide[name] * each, 0.0)
    return joint


@pytest.mark.parametrize("complement", [False, True])
@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_a_mixed_model_is_the_product_of_its_blocks(missing: float, complement: bool, tmp_path: Path) -> None:
    """Four kinds of column, weights and missing cells: prior once, times each block, by hand and from files."""
    rows = mixed()
    generator = np.random.default_rng(1)
    gone = {name: generator.random(len(rows["y"])) < missing for name in MIXED.features}
    table = pa.table({name: pa.array(rows[name], mask=gone.get(name)) for name in rows})
    joint = product_by_hand(rows, gone, complement)
    counts = snb.Complement() if complement else snb.Multinomial()
    log_proba = joint - logsumexp(joint)
    for state in (
        counted(MIXED, table),
        balanced(sharded(MIXED, table)),
        snb.fit(in_files(tmp_path, table), schema=MIXED),
    ):
        model = state.finish(categorical=snb.Categorical(alpha=0.5), counts=counts)
        assert_same_scores(model, table, joint, log_proba, GAUSSIAN)
        labels = np.array(["a", "b", "c"])[joint.argmax(axis=1)]
        assert model.predict(table).to_pylist() == labels.tolist()


def test_missing_cells_are_left_out_of_training_and_scoring() -> None:
    """Per column, what scikit-learn learns from the rows that have the cell; a row scores what its cells say."""
    data = numbers("iris")
    generator = np.random.default_rng(2)
    gone = generator.random(data.x.shape) < 0.2
    columns = {name: pa.array(data.x[:, j], mask=gone[:, j]) for j, name in enumerate(data.names)}
    table = pa.table({**columns, "label": data.labels})
    model = counted(snb.Schema(label="label", numeric=data.names), table).finish(numeric=snb.Gaussian(epsilon=1e-6))
    joint = np.tile(model.class_log_prior, (len(data.labels), 1))
    for j in range(data.x.shape[1]):
        rest = ~gone[:, j]
        one = naive_bayes.GaussianNB(var_smoothing=0.0).fit(data.x[rest, j : j + 1], data.labels[rest])
        variance = one.var_ + 1e-6
        density = -0.5 * np.log(2 * np.pi * variance.T) - 0.5 * (data.x[:, j : j + 1] - one.theta_.T) ** 2 / variance.T
        joint += np.where(rest[:, None], density, 0.0)
    log_proba = joint - logsumexp(joint)
    assert_same_scores(model, table, joint, log_proba, GAUSSIAN)
