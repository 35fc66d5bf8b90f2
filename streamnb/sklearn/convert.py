"""Fitted models of scikit-learn as predictors, and predictors as fitted models of scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import sklearn.naive_bayes as upstream
from sklearn.utils.validation import check_is_fitted

from streamnb.errors import SchemaError
from streamnb.likelihoods import Discrete, Gaussians, Table
from streamnb.predictor import Predictor
from streamnb.protocols import Floats
from streamnb.schema import BLOCKS, Schema
from streamnb.sklearn.base import BaseNB, free_name, plain_names
from streamnb.sklearn.labels import arrow_labels, numpy_labels
from streamnb.vocabulary import Vocabulary

__all__ = ["from_sklearn", "to_sklearn"]


def from_sklearn(fitted: Any, *, label: str = "y") -> Predictor:
    """Return a predictor that gives the probabilities of a fitted estimator of scikit-learn.

    Columns have the estimator's feature names, or x0, x1, ... where it has none. What training left in it of the
    rows' number is not needed and not kept. `label` names the column that predictions stand for.

    Raises:
        TypeError: not one of scikit-learn's five naive Bayes estimators (nor of ours).
        ValueError: a logarithm that is NaN, as smoothing by 0 may leave it there.

    >>> from sklearn.naive_bayes import GaussianNB
    >>> predictor = from_sklearn(GaussianNB().fit([[1.0], [3.0], [10.0], [14.0]], ["a", "a", "b", "b"]))
    >>> predictor.predict(pa.table({"x0": [2.0, 13.0]})).to_pylist()
    ['a', 'b']
    """
    if isinstance(fitted, BaseNB):
        return fitted.predictor_
    read = next((reader for kind, reader in READERS.items() if isinstance(fitted, kind)), None)
    if read is None:
        raise TypeError(f"Expected a fitted naive Bayes estimator of scikit-learn, got {type(fitted).__name__}")
    check_is_fitted(fitted)
    names = getattr(fitted, "feature_names_in_", None)
    columns = plain_names(fitted.n_features_in_) if names is None else [str(name) for name in names]
    return read(fitted, columns, free_name(label, columns))


def to_sklearn(predictor: Predictor) -> Any:
    """Return a fitted estimator of scikit-learn that gives the probabilities of a predictor of one family.

    It answers, but cannot go on learning: a predictor keeps no counts.

    Raises:
        SchemaError: the predictor has columns of several kinds.
        ValueError: something that scikit-learn's estimator cannot hold.

    >>> from streamnb import Schema, State
    >>> state = State(Schema(label="y", numeric=["x"]))
    >>> state.update(pa.table({"y": ["a", "a", "b", "b"], "x": [1.0, 3.0, 10.0, 14.0]}))
    >>> model = to_sklearn(state.finish())
    >>> model
    GaussianNB()
    """
    schema = predictor.schema
    kinds = [kind for kind in BLOCKS if getattr(schema, kind)]
    if len(kinds) != 1 or kinds[0] not in ("numeric", "categorical", "binary", "counts"):
        raise SchemaError(f"Expected columns of one kind that scikit-learn knows, got {' and '.join(kinds)}")
    written: Any = WRITERS[predictor.families[kinds[0]]["family"]](predictor, predictor.families[kinds[0]])
    written.classes_ = numpy_labels(predictor.classes)
    written.n_features_in_ = len(schema.features)
    if list(schema.features) != plain_names(len(schema.features)):
        written.feature_names_in_ = np.array(schema.features, dtype=object)
    return written


# Reading ------------------------------------------------------------------------------------------------------------


def _sound(logarithms: Any, what: str) -> Floats:
    found = np.asarray(logarithms, np.float64)
    if np.isnan(found).any():
        raise ValueError(f"Expected numbers in {what}, got NaN")
    return found


def _predictor(
    fitted: Any, schema: Schema, log_prior: Any, family: dict[str, Any], likelihood: Any, block: str
) -> Predictor:
    classes, prior = arrow_labels(fitted.classes_), _sound(log_prior, "the class prior").copy()
    return Predictor(schema, classes, prior, {block: family}, **{block: likelihood})


def _read_gaussian(fitted: Any, columns: list[str], label: str) -> Predictor:
    mean, variance = _sound(fitted.theta_, "theta_"), _sound(fitted.var_, "var_")
    if not (variance > 0).all():
        raise ValueError(f"Expected variances above 0, got {variance.min()}")
    with np.errstate(divide="ignore"):
        log_prior = np.log(np.asarray(fitted.class_prior_, np.float64))
    family = {"family": "Gaussian", "var_smoothing": float(fitted.var_smoothing), "epsilon": None}
    log_normalizer = -0.5 * np.log(2.0 * np.pi * variance)
    likelihood = Gaussians(mean, np.zeros_like(mean), variance, log_normalizer)
    return _predictor(fitted, Schema(label, numeric=columns), log_prior, family, likelihood, "numeric")


def _read_counts(fitted: Any, columns: list[str], label: str) -> Predictor:
    complement = isinstance(fitted, upstream.ComplementNB)
    family = {"family": "Complement" if complement else "Multinomial", "alpha": _plain(fitted.alpha)}
    if complement:
        family["norm"] = bool(fitted.norm)
    likelihood = Discrete(_sound(fitted.feature_log_prob_, "feature_log_prob_"))
    return _predictor(fitted, Schema(label, counts=columns), fitted.class_log_prior_, family, likelihood, "counts")


def _read_bernoulli(fitted: Any, columns: list[str], label: str) -> Predictor:
    score = _sound(fitted.feature_log_prob_, "feature_log_prob_")
    with np.errstate(divide="ignore"):
        likelihood = Discrete(score, np.log1p(-np.exp(score)))
    family = {"family": "Bernoulli", "alpha": _plain(fitted.alpha)}
    schema = Schema(label, binary=columns, binarize=fitted.binarize)
    return _predictor(fitted, schema, fitted.class_log_prior_, family, likelihood, "binary")


def _read_categorical(fitted: Any, columns: list[str], label: str) -> Predictor:
    tables = {}
    for name, scores in zip(columns, fitted.feature_log_prob_, strict=True):
        score = _sound(scores, f"feature_log_prob_ of {name!r}")
        tables[name] = (Vocabulary(pa.array(np.arange(score.shape[1]))), Table(score, np.zeros(len(score))))
    family = {"family": "Categorical", "alpha": float(fitted.alpha), "min_categories": None, "unseen": "ignore"}
    schema = Schema(label, categorical=columns)
    return _predictor(fitted, schema, fitted.class_log_prior_, family, tables, "categorical")


def _plain(alpha: Any) -> Any:
    return np.asarray(alpha).tolist()


READERS = {
    upstream.GaussianNB: _read_gaussian,
    upstream.MultinomialNB: _read_counts,
    upstream.ComplementNB: _read_counts,
    upstream.BernoulliNB: _read_bernoulli,
    upstream.CategoricalNB: _read_categorical,
}

# Writing ------------------------------------------------------------------------------------------------------------


def _alpha(family: dict[str, Any], columns: Sequence[str]) -> Any:
    alpha = family["alpha"]
    if isinstance(alpha, dict):
        alpha = [alpha[name] for name in columns]
    return np.asarray(alpha) if isinstance(alpha, list) else alpha


def _write_gaussian(predictor: Predictor, family: dict[str, Any]) -> Any:
    held = predictor.numeric
    if held is None or not np.isfinite(held.variance).all():
        raise ValueError("Expected a value of each column in training, got a column that was always missing")
    written = upstream.GaussianNB(var_smoothing=family["var_smoothing"])
    written.theta_, written.var_ = held.mean.copy(), held.variance.copy()
    written.class_prior_ = np.exp(predictor.class_log_prior)
    return written


def _write_counts(predictor: Predictor, family: dict[str, Any]) -> Any:
    alpha = _alpha(family, predictor.schema.counts)
    if family["family"] == "Complement":
        written = upstream.ComplementNB(alpha=alpha, norm=family["norm"])
    else:
        written = upstream.MultinomialNB(alpha=alpha)
    return _with_scores(written, predictor, predictor.counts)


def _write_bernoulli(predictor: Predictor, family: dict[str, Any]) -> Any:
    thresholds = {predictor.schema.threshold(name) for name in predictor.schema.binary}
    if len(thresholds) > 1:
        raise ValueError(f"Expected one binarize threshold for all columns, got {sorted(map(str, thresholds))}")
    alpha = _alpha(family, predictor.schema.binary)
    written = upstream.BernoulliNB(alpha=alpha, binarize=thresholds.pop())
    return _with_scores(written, predictor, predictor.binary)


def _with_scores(written: Any, predictor: Predictor, held: Discrete | None) -> Any:
    if held is None or not held.finite:
        raise ValueError("Expected finite log probabilities, got infinite ones; scikit-learn turns them into NaN")
    written.feature_log_prob_ = held.score.copy()
    written.class_log_prior_ = predictor.class_log_prior.copy()
    return written


def _write_categorical(predictor: Predictor, family: dict[str, Any]) -> Any:
    written = upstream.CategoricalNB(alpha=family["alpha"])
    written.feature_log_prob_ = []
    for name, (vocabulary, table) in predictor.categorical.items():
        if not pa.types.is_integer(vocabulary.type) or vocabulary.values[0].as_py() < 0:
            raise ValueError(f"Expected categories 0, 1, 2, ..., got values of {vocabulary.type} - column {name!r}")
        values = np.asarray(vocabulary.values)
        # A number in between that training never saw adds here what it adds there.
        scores = np.zeros((len(table.score), int(values.max()) + 1))
        if table.unseen is not None:
            scores += table.unseen[:, None]
        elif len(values) < scores.shape[1]:
            raise ValueError(f"Expected categories without gaps for unseen='error' - column {name!r}")
        scores[:, values] = table.score
        written.feature_log_prob_.append(scores)
    written.n_categories_ = np.array([scores.shape[1] for scores in written.feature_log_prob_])
    written.class_log_prior_ = predictor.class_log_prior.copy()
    # scikit-learn looks here for the number of classes; the counts themselves are not known.
    written.class_count_ = np.full(len(predictor.classes), np.nan)
    return written


WRITERS = {
    "Gaussian": _write_gaussian,
    "Multinomial": _write_counts,
    "Complement": _write_counts,
    "Bernoulli": _write_bernoulli,
    "Categorical": _write_categorical,
}
