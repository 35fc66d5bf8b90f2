"""The families: how counted statistics become log likelihoods. All smoothing and all logarithms live here.

A statistic is never changed by finishing it, so one pass over the data serves any number of smoothings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from streamnb.counts import CategoryCounts, FeatureSums
from streamnb.errors import DataError, EmptyStateError, near_misses
from streamnb.likelihoods import Discrete, Gaussians, Table
from streamnb.moments import Moments
from streamnb.protocols import Floats
from streamnb.tokenfamilies import Pruned, bernoulli, complement, documents_of, multinomial, smoothing
from streamnb.tokenscores import TokenScores
from streamnb.tokentable import Lexicon, TokenTable

__all__ = [
    "TEXT_OPTIONS",
    "Alpha",
    "Bernoulli",
    "Categorical",
    "ClassPrior",
    "Complement",
    "Gaussian",
    "Multinomial",
    "class_log_prior",
    "families_of",
    "log_normalize",
    "probabilities",
]

TEXT_OPTIONS = {"idf": False, "min_count": 0.0, "max_tokens": None}
"""The parameters of families that only text has, and what they are otherwise."""

Alpha: TypeAlias = float | Sequence[float] | Mapping[str, float]
ClassPrior: TypeAlias = Literal["empirical", "uniform"] | Mapping[Any, float]


LARGEST = 1e100
"""Of any smoothing: sums of it stay far from infinity, and counts beside it have long ceased to matter."""


def _non_negative(value: float, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"Expected {name} to be a number, got {value!r}") from None
    if not (number >= 0 and math.isfinite(number)):
        raise ValueError(f"Expected {name} to be at least 0, got {value!r}")
    if number > LARGEST:
        raise ValueError(f"Expected {name} to be at most {LARGEST:g}, got {value!r}")
    return number


def _alpha(alpha: Alpha, columns: Sequence[str]) -> Floats:
    """Return one smoothing per column, shape (n_features,)."""
    if isinstance(alpha, Mapping):
        if set(alpha) != set(columns):
            raise ValueError(f"Expected alpha for each of {list(columns)}, got it for {list(alpha)}")
        alpha = [alpha[name] for name in columns]
    try:
        each = np.asarray(alpha, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"Expected alpha to be numbers, got {alpha!r}") from None
    if each.ndim > 1 or (each.ndim == 1 and len(each) != len(columns)):
        raise ValueError(f"Expected one alpha or {len(columns)}, one per column, got shape {each.shape}")
    for value in each.ravel().tolist():
        _non_negative(value, "alpha")
    return np.broadcast_to(each, (len(columns),)).copy()


def _log(values: Floats) -> Floats:
    """Natural logarithm with log 0 = −inf, without a warning."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def _ratio(part: Floats, whole: Floats, limit: float | Floats) -> Floats:
    """Return part / whole; 0/0 is the limit that the smoothed ratio has as the smoothing goes to 0."""
    empty = whole <= 0
    if not empty.any():
        return part / whole
    return np.where(empty, limit, part / np.where(empty, 1.0, whole))


@dataclass(frozen=True)
class Gaussian:
    """Normal densities from per-class mean and variance.

    The variance used is the population variance plus epsilon, where epsilon is `var_smoothing` times the largest
    variance of any numeric column over all rows, or the absolute `epsilon` when that is given. A class that never
    showed a value of a feature borrows mean and variance of all classes together.

    >>> Gaussian(var_smoothing=0.0, epsilon=0.01)
    Gaussian(var_smoothing=0.0, epsilon=0.01)
    """

    var_smoothing: float = 1e-9
    epsilon: float | None = None

    def __post_init__(self) -> None:
        _non_negative(self.var_smoothing, "var_smoothing")
        if self.epsilon is not None:
            _non_negative(self.epsilon, "epsilon")

    def epsilon_of(self, moments: Moments) -> float:
        """Return what is added to every variance."""
        if self.epsilon is not None:
            return float(self.epsilon)
        pooled = moments.pooled().variance()
        return float(self.var_smoothing * pooled.max()) if pooled.size else 0.0

    def finish(self, moments: Moments, columns: Sequence[str]) -> Gaussians:
        """Return the frozen densities.

        Raises:
            DataError: a variance of 0 with an epsilon of 0, or one of all classes together that no float holds; the
                message names the column.
        """
        try:
            pooled = moments.pooled()
            epsilon = self.epsilon_of(moments)
        except DataError as error:
            raise error.at(column=columns[error.column] if isinstance(error.column, int) else None) from None
        seen = moments.count > 0
        mean = np.where(seen, moments.mean, pooled.mean)
        tail = np.where(seen, moments.mean_tail, pooled.mean_tail)
        variance = np.where(seen, moments.variance(), pooled.variance()) + epsilon
        # The smallest normal number keeps 1/variance finite.
        variance = np.where(variance > 0, np.maximum(variance, np.finfo(np.float64).tiny), variance)
        # A column without a single value says nothing about any class.
        mute = np.broadcast_to(pooled.count == 0, variance.shape)
        flat = (variance <= 0) & ~mute
        if flat.any():
            column = columns[int(np.argwhere(flat)[0, 1])]
            raise DataError(
                "Expected a variance above 0, got 0 for some class and no smoothing; "
                "give epsilon= or leave the column out",
                column=column,
            )
        with np.errstate(divide="ignore"):
            log_normalizer = np.where(mute, 0.0, -0.5 * np.log(2.0 * np.pi * np.where(mute, 1.0, variance)))
        mean, tail = np.where(mute, 0.0, mean), np.where(mute, 0.0, tail)
        return Gaussians(mean, tail, np.where(mute, np.inf, variance), log_normalizer)


@dataclass(frozen=True)
class Multinomial:
    """θ_ci = (N_ci + α_i) / Σ_j (N_cj + α_j); `alpha` is one number, one per counts column, or by column name.

    For text only: `idf` weighs tokens by their inverse document frequency, `min_count` leaves out tokens that are
    rarer in all classes together, and `max_tokens` keeps so many of the most frequent.
    """

    alpha: Alpha = 1.0
    idf: bool = False
    min_count: float = 0.0
    max_tokens: int | None = None

    def finish(self, sums: FeatureSums, columns: Sequence[str]) -> Discrete:
        """Return the frozen log probabilities of one unit of each feature."""
        smoothed = sums.total + _alpha(self.alpha, columns)
        theta = _ratio(smoothed, smoothed.sum(axis=1, keepdims=True), 1.0 / len(columns))
        return Discrete(_log(theta))

    def finish_text(self, table: TokenTable, class_weight: Floats) -> tuple[Lexicon, TokenScores]:
        """Return the tokens of a text column and their frozen log probabilities.

        `class_weight` (n_classes,) is the sum of weights of all rows, also of those whose document is null.

        Raises:
            DataError: `idf` where the state has not counted documents.
        """
        return multinomial(_pruned(self, table, class_weight), smoothing(self.alpha, table.text.column))


@dataclass(frozen=True)
class Complement:
    """Weights −log of each feature's share among all *other* classes; `norm` divides them by their sum per class.

    Rennie et al., "Tackling the poor assumptions of naive Bayes text classifiers", ICML 2003, section 4. `idf`,
    `min_count` and `max_tokens` are for text, as in `Multinomial`.
    """

    alpha: Alpha = 1.0
    norm: bool = False
    idf: bool = False
    min_count: float = 0.0
    max_tokens: int | None = None

    def finish(self, sums: FeatureSums, columns: Sequence[str]) -> Discrete:
        """Return the frozen weights; with a single class there is no complement and every weight is 0."""
        if sums.n_classes == 1:
            return Discrete(np.zeros_like(sums.total))
        # What the other classes hold, added up rather than subtracted: x − x of rounded sums need not be 0.
        others = _sum_of_others(sums.total)
        smoothed = others + _alpha(self.alpha, columns)
        share = _ratio(smoothed, smoothed.sum(axis=1, keepdims=True), 1.0 / len(columns))
        weight = -_log(share)
        if self.norm:
            total = weight.sum(axis=1, keepdims=True)
            weight = np.where(np.isinf(weight), np.inf, weight / np.where(total > 0, total, 1.0))
        return Discrete(weight)

    def finish_text(self, table: TokenTable, class_weight: Floats) -> tuple[Lexicon, TokenScores]:
        """Return the tokens of a text column and their frozen weights; see `Multinomial.finish_text`."""
        alpha = smoothing(self.alpha, table.text.column)
        return complement(_pruned(self, table, class_weight), alpha, norm=self.norm)


def _sum_of_others(total: Floats) -> Floats:
    """For each class the sum over all other classes: sums of what stands before it and of what stands after it."""
    others = np.zeros_like(total)
    # Class by class: a cumulative sum along this axis jumps through memory, and takes ten times longer.
    for c in range(1, len(total)):
        np.add(others[c - 1], total[c - 1], out=others[c])
    after = np.zeros(total.shape[1])
    for c in range(len(total) - 1, -1, -1):
        others[c] += after
        after += total[c]
    return others


@dataclass(frozen=True)
class Bernoulli:
    """p_ci = (N_ci + α) / (n_ci + 2α), n_ci the rows of class c in which the cell was present; a 0 scores 1 − p.

    Of text, N_ci are the documents that have a token; `idf` (which presence makes no use of), `min_count` and
    `max_tokens` are for text, as in `Multinomial`.
    """

    alpha: Alpha = 1.0
    idf: bool = False
    min_count: float = 0.0
    max_tokens: int | None = None

    def finish(self, sums: FeatureSums, columns: Sequence[str]) -> Discrete:
        """Return the frozen log probabilities of a 1 and of a 0."""
        alpha = _alpha(self.alpha, columns)
        weight = sums.sum_of_weights
        rows = weight + 2.0 * alpha
        one = _ratio(sums.total + alpha, rows, 0.5)
        zero = _ratio(weight - sums.total + alpha, rows, 0.5)
        return Discrete(_log(one), _log(np.maximum(zero, 0.0)))

    def finish_text(self, table: TokenTable, class_weight: Floats) -> tuple[Lexicon, TokenScores]:
        """Return the tokens of a text column and their frozen log odds; see `Multinomial.finish_text`."""
        pruned = _pruned(self, table, class_weight)
        documents = documents_of(pruned.counts, table.text.column)
        return bernoulli(pruned, smoothing(self.alpha, table.text.column), documents, table.weight)


def families_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the family of each block, the default where None is given.

    Raises:
        TypeError: a family that is not for its block.
        ValueError: an option that only text has for another block, or a value that it cannot have.
    """
    chosen = {}
    for block, allowed in FAMILIES.items():
        family = allowed[0]() if given.get(block) is None else given[block]
        if not isinstance(family, allowed):
            names = " or ".join(kind.__name__ for kind in allowed)
            raise TypeError(f"Expected {names} for {block}=, got {type(family).__name__}")
        if isinstance(family, Multinomial | Complement | Bernoulli):
            _check_text_options(family, block)
        chosen[block] = family
    return chosen


def _check_text_options(family: Multinomial | Complement | Bernoulli, block: str) -> None:
    most = family.max_tokens
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise ValueError(f"Expected max_tokens to be a number of at least 1, or None, got {most!r}")
    _non_negative(family.min_count, "min_count")
    if block != "text":
        for option, default in TEXT_OPTIONS.items():
            if getattr(family, option) != default:
                raise ValueError(f"Expected {option}= for text=, got {option}={getattr(family, option)!r} for {block}=")


def _pruned(family: Multinomial | Complement | Bernoulli, table: TokenTable, class_weight: Floats) -> Pruned:
    return Pruned(table, class_weight, min_count=family.min_count, max_tokens=family.max_tokens, idf=family.idf)


@dataclass(frozen=True)
class Categorical:
    """P(v | c) = (N_cv + α) / (n_c + α·V), V the categories seen in any class, or `min_categories` if more.

    A value that training never saw contributes nothing (`unseen="ignore"`), or α / (n_c + α·(V + 1)) as if one
    more category stood ready (`"smooth"`), or is refused (`"error"`).
    """

    alpha: float = 1.0
    min_categories: int | Mapping[str, int] | None = None
    unseen: Literal["ignore", "smooth", "error"] = "ignore"

    def __post_init__(self) -> None:
        _non_negative(self.alpha, "alpha")
        if self.unseen not in ("ignore", "smooth", "error"):
            raise ValueError(f"Expected unseen='ignore', 'smooth' or 'error', got {self.unseen!r}")
        least = self.min_categories
        for value in least.values() if isinstance(least, Mapping) else [least or 0]:
            _non_negative(value, "min_categories")

    def check(self, columns: Sequence[str]) -> None:
        """Hold the names in the parameters against the categorical columns."""
        for name in self.min_categories if isinstance(self.min_categories, Mapping) else ():
            if name not in columns:
                raise ValueError(
                    f"Expected min_categories for categorical columns, got {name!r}{near_misses(name, columns)}"
                )

    def finish(self, counts: CategoryCounts, column: str) -> Table:
        """Return the frozen log probabilities of one column's categories."""
        least = self.min_categories
        if isinstance(least, Mapping):
            least = least.get(column)
        table = np.asarray(counts.counts, np.float64)
        width = max(table.shape[1], least or 0)
        rows = table.sum(axis=1, keepdims=True)
        spare = 1 if self.unseen == "smooth" and width == table.shape[1] else 0
        whole = rows + self.alpha * (width + spare)
        limit = 1.0 / max(width + spare, 1)
        score = _log(_ratio(table + self.alpha, whole, limit))
        if self.unseen == "error":
            return Table(score, None)
        if self.unseen == "ignore":
            return Table(score, np.zeros(len(table)))
        return Table(score, _log(_ratio(np.full_like(rows, self.alpha), whole, limit))[:, 0])


FAMILIES: dict[str, tuple[type[Any], ...]] = {
    "numeric": (Gaussian,),
    "categorical": (Categorical,),
    "binary": (Bernoulli,),
    "counts": (Multinomial, Complement),
    "text": (Multinomial, Complement, Bernoulli),
}
"""The families of each block, the default first."""


def class_log_prior(weight: Floats, prior: ClassPrior, classes: pa.Array, prior_alpha: float = 0.0) -> Floats:
    """Return the log prior of each class, shape (n_classes,).

    `weight` (n_classes,) is the sum of weights of each class (the rows, without weights). "empirical" is
    (n_c + prior_alpha) / (n + K·prior_alpha); "uniform" is 1/K; a mapping gives each label's probability.

    Raises:
        ValueError: a mapping that leaves out or invents a label, is negative, or does not sum to 1.

    >>> class_log_prior(np.array([3.0, 1.0]), "empirical", pa.array(["a", "b"])).round(4).tolist()
    [-0.2877, -1.3863]
    """
    prior_alpha = _non_negative(prior_alpha, "prior_alpha")
    n_classes = len(weight)
    if isinstance(prior, Mapping):
        labels = classes.to_pylist()
        given = {_plain_scalar(label): value for label, value in prior.items()}
        if labels and any(isinstance(label, bool) != isinstance(labels[0], bool) for label in given):
            given = {str(label): value for label, value in given.items()}  # True is no 1 here
        if set(given) != set(labels):
            absent = [label for label in labels if label not in given]
            extra = [label for label in given if label not in labels]
            difference = f"none for {absent}" if absent else f"one for {extra}, which no row has"
            raise ValueError(f"Expected a class_prior for each class, got {difference}")
        each = np.array([float(given[label]) for label in labels])
        if (each < 0).any() or not math.isclose(float(each.sum()), 1.0, rel_tol=1e-6):
            raise ValueError(f"Expected class_prior to be at least 0 and to sum to 1, got {each.tolist()}")
        return _log(each)
    if prior == "uniform":
        return np.full(n_classes, -math.log(n_classes))
    if prior != "empirical":
        raise ValueError(f"Expected class_prior='empirical', 'uniform' or a mapping, got {prior!r}")
    total = float(weight.sum()) + n_classes * prior_alpha
    if total <= 0:
        raise EmptyStateError("Expected rows to estimate the class prior from, got none")
    return _log((weight + prior_alpha) / total)


def _plain_scalar(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def log_normalize(joint: Floats, log_prior: Floats) -> Floats:
    """Return log posteriors from joint log probabilities, both of shape (n_classes, n_rows), by log-sum-exp.

    Where every class is impossible (all −inf) the posterior falls back to the prior; where some score +inf (a
    complement weight without smoothing) those share the probability evenly.
    """
    top = joint.max(axis=0)
    usual = np.isfinite(top)
    with np.errstate(divide="ignore", invalid="ignore"):
        posterior: Floats = joint - top
        posterior -= np.log(np.exp(posterior).sum(axis=0))
        if not usual.all():
            prior = log_prior - np.logaddexp.reduce(log_prior)
            for i in np.flatnonzero(~usual):
                sure = joint[:, i] == np.inf
                posterior[:, i] = np.log(sure / sure.sum()) if sure.any() else prior
    return posterior


def probabilities(joint: Floats, log_prior: Floats) -> Floats:
    """Return posteriors from joint log probabilities, both of shape (n_classes, n_rows); columns sum to 1."""
    top = joint.max(axis=0)
    posterior: Floats
    if not np.isfinite(top).all():
        posterior = np.exp(log_normalize(joint, log_prior))
        return posterior
    posterior = np.exp(joint - top)
    posterior /= posterior.sum(axis=0)
    return posterior
