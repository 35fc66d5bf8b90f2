"""The five estimators, with scikit-learn's parameters and attributes."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_non_negative

from streamnb.errors import DataError, SchemaError
from streamnb.families import Bernoulli, Categorical, Complement, Gaussian, Multinomial
from streamnb.moments import Moments
from streamnb.protocols import Floats
from streamnb.schema import Schema
from streamnb.sklearn.base import BaseDiscreteNB, BaseNB, Fitted
from streamnb.sklearn.scores import CategoryScores, GaussianScores, Scores
from streamnb.sklearn.totals import Categorised, Counts, Measured, Ones

__all__ = ["BernoulliNB", "CategoricalNB", "ComplementNB", "GaussianNB", "MultinomialNB"]


class GaussianNB(BaseNB):
    """Naive Bayes of numbers, each normally distributed within a class.

    Other than in scikit-learn: `partial_fit` gives what `fit` gives, however the rows are cut, because the variance
    that is added (`epsilon_`) is that of all rows seen and not of the last batch; it heeds weights. Batches of one
    row are as good as any. A label that is none of `classes` is refused, or learnt with `new_classes="learn"`, when
    `classes` need not be given. Sums are float64 for float32 input; `theta_`, `var_` and `class_prior_` are shown in
    the type of the first rows. A class without rows borrows mean and variance of all rows, so that a prior given to
    it does not make it win where no data is. A feature without any variance, with `var_smoothing=0`, is an error
    that names it, not NaN.

    Args:
        priors: the prior of each class in sorted order; None takes them from the rows.
        var_smoothing: the part of the largest variance of any feature that is added to all variances.
        new_classes: what `partial_fit` does with a label that is none of the classes: "error" or "learn".

    >>> model = GaussianNB().fit([[1.0], [3.0], [10.0], [14.0]], ["low", "low", "high", "high"])
    >>> model.predict([[2.0], [13.0]]).tolist()
    ['low', 'high']
    """

    _totals = Measured
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseNB._parameter_constraints,
        "priors": ["array-like", None],
        "var_smoothing": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, *, priors: Any = None, var_smoothing: float = 1e-9, new_classes: str = "error") -> None:
        self.priors = priors
        self.var_smoothing = var_smoothing
        self.new_classes = new_classes

    @property
    def theta_(self) -> NDArray[Any]:
        """The mean of each class and feature, (n_classes, n_features)."""
        moments = self._moments
        mean: Floats = np.where(moments.count > 0, moments.mean, moments.pooled().mean)
        return mean.astype(self._dtype)

    @property
    def var_(self) -> NDArray[Any]:
        """The variance of each class and feature, with `epsilon_` added; (n_classes, n_features)."""
        moments = self._moments
        variance: Floats = np.where(moments.count > 0, moments.variance(), moments.pooled().variance())
        return (variance + self.epsilon_).astype(self._dtype)

    @property
    def epsilon_(self) -> float:
        """What is added to each variance: `var_smoothing` times the largest variance over all rows."""
        epsilon: float = self._learnt.family.epsilon_of(self._moments)
        return epsilon

    @property
    def class_prior_(self) -> NDArray[Any]:
        """The prior of each class, (n_classes,)."""
        prior = self._learnt.prior
        if isinstance(prior, str):
            prior = self.class_count_ / self.class_count_.sum()
        return prior.astype(self._dtype)

    @property
    def _moments(self) -> Moments:
        return self._learnt.totals.moments  # type: ignore[attr-defined, no-any-return]

    def _family(self) -> Gaussian:
        return Gaussian(float(self.var_smoothing))

    def _prior(self, n_classes: int) -> Floats | str:
        if self.priors is None:
            return "empirical"
        priors = np.asarray(self.priors, np.float64)
        if len(priors) != n_classes:
            raise ValueError("Number of priors must match number of classes.")
        if not np.isclose(priors.sum(), 1.0):
            raise ValueError("The sum of the priors should be 1.")
        if (priors < 0).any():
            raise ValueError("Priors must be non-negative.")
        return priors

    def _scores_of(self, likelihood: Any) -> Scores:
        return GaussianScores(likelihood)

    @staticmethod
    def _update_mean_variance(
        n_past: float, mu: Any, var: Any, X: NDArray[Any], sample_weight: Floats | None = None
    ) -> tuple[Any, Any]:
        """Add rows to a mean and variance (Chan); not used here, but scikit-learn's own tests call it by this name."""
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        n_new = weight.sum()
        if not n_new:
            return mu, var
        mean = np.average(X, axis=0, weights=weight)
        square = n_new * np.average((X - mean) ** 2, axis=0, weights=weight)
        step = (mean - mu) * (n_new / (n_past + n_new))
        return mu + step, (n_past * var + square + n_past * (mean - mu) * step) / (n_past + n_new)


class _CountsNB(BaseDiscreteNB):
    """What the two estimators of counts share."""

    _totals = Counts
    _sparse = True

    @property
    def feature_count_(self) -> Floats:
        """The sum of each feature in each class, (n_classes, n_features)."""
        return self._learnt.totals.total  # type: ignore[attr-defined, no-any-return]

    @property
    def feature_log_prob_(self) -> Floats:
        """What one unit of a feature adds to the score of a class, (n_classes, n_features)."""
        return self._learnt.likelihood.score  # type: ignore[no-any-return]

    def _counted(self, x: Any) -> Any:
        check_non_negative(x, f"{type(self).__name__} (input X)")
        return x

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


class MultinomialNB(_CountsNB):
    """Naive Bayes of counts, such as words in documents; dense or sparse.

    Other than in scikit-learn: a negative count is refused at prediction too. A label that is none of `classes` is
    refused by `partial_fit` (where scikit-learn counts it as another, or drops it), or learnt with
    `new_classes="learn"`, when `classes` need not be given. With `alpha=0` no probability becomes NaN: what is
    impossible under every class gets the prior. Logarithms are taken when first asked for, not after each batch.

    Args:
        alpha: what is added to each count; a number, or one per feature.
        force_alpha: False raises an `alpha` below 1e-10 to that, with a warning.
        fit_prior: False makes all classes equally likely beforehand.
        class_prior: the prior of each class in sorted order; None takes them from the rows.
        new_classes: what `partial_fit` does with a label that is none of the classes: "error" or "learn".

    >>> model = MultinomialNB().fit([[3, 0], [2, 1], [0, 4]], ["ham", "ham", "spam"])
    >>> model.predict([[1, 0], [0, 1]]).tolist()
    ['ham', 'spam']
    """

    def __init__(
        self,
        *,
        alpha: Any = 1.0,
        force_alpha: bool = True,
        fit_prior: bool = True,
        class_prior: Any = None,
        new_classes: str = "error",
    ) -> None:
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.new_classes = new_classes

    def _family(self) -> Multinomial:
        return Multinomial(self._smoothing())


class ComplementNB(_CountsNB):
    """Naive Bayes of counts, by what the other classes have (Rennie et al. 2003); dense or sparse.

    Other than in scikit-learn: as `MultinomialNB`. With a single class all weights are 0, as it has no complement.

    Args:
        alpha: what is added to each count; a number, or one per feature.
        force_alpha: False raises an `alpha` below 1e-10 to that, with a warning.
        fit_prior: as in scikit-learn, plays a part only with a single class.
        class_prior: as `fit_prior`.
        norm: whether the weights of each class are divided by their sum.
        new_classes: what `partial_fit` does with a label that is none of the classes: "error" or "learn".

    >>> model = ComplementNB().fit([[3, 0], [2, 1], [0, 4]], ["ham", "ham", "spam"])
    >>> model.predict([[1, 0], [0, 1]]).tolist()
    ['ham', 'spam']
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseDiscreteNB._parameter_constraints,
        "norm": ["boolean"],
    }

    def __init__(
        self,
        *,
        alpha: Any = 1.0,
        force_alpha: bool = True,
        fit_prior: bool = True,
        class_prior: Any = None,
        norm: bool = False,
        new_classes: str = "error",
    ) -> None:
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.norm = norm
        self.new_classes = new_classes

    @property
    def feature_all_(self) -> Floats:
        """The sum of each feature over all classes, (n_features,)."""
        return np.asarray(self.feature_count_.sum(axis=0))

    def _family(self) -> Complement:
        return Complement(self._smoothing(), bool(self.norm))

    def _takes_prior(self) -> bool:
        return len(self.classes_) == 1


class BernoulliNB(BaseDiscreteNB):
    """Naive Bayes of features that are there or not; dense or sparse.

    Other than in scikit-learn: with `binarize=None`, a cell that is neither 0 nor 1 is refused (there it gives
    probabilities above 1). Unknown labels, `alpha=0` and when logarithms are taken: as `MultinomialNB`.

    Args:
        alpha: what is added to the counts of ones and of zeros; a number, or one per feature.
        force_alpha: False raises an `alpha` below 1e-10 to that, with a warning.
        binarize: the number above which a cell is 1; None says that cells are 0 and 1 already.
        fit_prior: False makes all classes equally likely beforehand.
        class_prior: the prior of each class in sorted order; None takes them from the rows.
        new_classes: what `partial_fit` does with a label that is none of the classes: "error" or "learn".

    >>> model = BernoulliNB().fit([[1, 0], [1, 1], [0, 1]], ["ham", "ham", "spam"])
    >>> model.predict([[1, 0], [0, 1]]).tolist()
    ['ham', 'spam']
    """

    _totals = Ones
    _sparse = True
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseDiscreteNB._parameter_constraints,
        "binarize": [None, Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        alpha: Any = 1.0,
        force_alpha: bool = True,
        binarize: float | None = 0.0,
        fit_prior: bool = True,
        class_prior: Any = None,
        new_classes: str = "error",
    ) -> None:
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.binarize = binarize
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.new_classes = new_classes

    @property
    def feature_count_(self) -> Floats:
        """The rows of each class in which a feature is there, or their weights; (n_classes, n_features)."""
        return self._learnt.totals.total  # type: ignore[attr-defined, no-any-return]

    @property
    def feature_log_prob_(self) -> Floats:
        """The log probability that a feature is there, (n_classes, n_features)."""
        return self._learnt.likelihood.score  # type: ignore[no-any-return]

    def _family(self) -> Bernoulli:
        return Bernoulli(self._smoothing())

    def _counted(self, x: Any) -> Any:
        if sp.issparse(x):
            if not x.has_canonical_format:
                x = x.copy()  # a cell that is stored in two pieces must be one before it is compared
                x.sum_duplicates()
            return sp.csr_array((self._ones(x.data).astype(np.float64), x.indices, x.indptr), x.shape)
        return self._ones(x)

    def _ones(self, cells: NDArray[Any]) -> NDArray[np.bool_]:
        ones: NDArray[np.bool_] = cells > (0 if self.binarize is None else self.binarize)
        if self.binarize is None and (ones != cells).any():
            wrong = cells[ones != cells][0]
            raise DataError(f"Expected cells of 0 or 1 because of binarize=None, got {wrong}")
        return ones

    def _schema_options(self) -> dict[str, Any]:
        return {"binarize": self.binarize}

    @classmethod
    def _parameters_of(cls, schema: Schema, given: dict[str, Any]) -> dict[str, Any]:
        thresholds = {schema.threshold(name) for name in schema.features}
        if len(thresholds) > 1:
            raise SchemaError(f"Expected one binarize threshold for all columns, got {sorted(map(str, thresholds))}")
        threshold = thresholds.pop()
        if given.get("binarize", threshold) != threshold:
            raise SchemaError(f"Expected binarize={threshold}, as the state was counted, got {given['binarize']}")
        return {**given, "binarize": threshold}


class CategoricalNB(BaseDiscreteNB):
    """Naive Bayes of categories, which are the whole numbers 0, 1, 2, ... in each feature.

    Other than in scikit-learn: a category that training never saw contributes nothing at prediction instead of an
    IndexError; `unseen="smooth"` gives it the smoothed mass of one more category, `unseen="error"` refuses it.
    `n_categories_` is that of all batches, not of the last. Unknown labels, `alpha=0` and when logarithms are taken:
    as `MultinomialNB`. Numbers with fractions are cut to whole ones, as there.

    Args:
        alpha: what is added to each count.
        force_alpha: False raises an `alpha` below 1e-10 to that, with a warning.
        fit_prior: False makes all classes equally likely beforehand.
        class_prior: the prior of each class in sorted order; None takes them from the rows.
        min_categories: the least number of categories, for all features or for each.
        unseen: what a category that training never saw does: "ignore", "smooth" or "error".
        new_classes: what `partial_fit` does with a label that is none of the classes: "error" or "learn".

    >>> model = CategoricalNB().fit([[0, 1], [0, 2], [1, 0]], ["oak", "oak", "elm"])
    >>> model.predict([[0, 1], [1, 9]]).tolist()
    ['oak', 'elm']
    """

    _totals = Categorised
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseDiscreteNB._parameter_constraints,
        "min_categories": [None, "array-like", Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "unseen": [StrOptions({"ignore", "smooth", "error"})],
    }

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        force_alpha: bool = True,
        fit_prior: bool = True,
        class_prior: Any = None,
        min_categories: Any = None,
        unseen: str = "ignore",
        new_classes: str = "error",
    ) -> None:
        self.alpha = alpha
        self.force_alpha = force_alpha
        self.fit_prior = fit_prior
        self.class_prior = class_prior
        self.min_categories = min_categories
        self.unseen = unseen
        self.new_classes = new_classes

    @property
    def category_count_(self) -> list[Floats]:
        """For each feature the count of each category in each class, (n_classes, n_categories)."""
        return self._wide.tables()

    @property
    def feature_log_prob_(self) -> list[Floats]:
        """For each feature the log probability of each category in each class, (n_classes, n_categories)."""
        return [table.score for table in self._learnt.likelihood]

    @property
    def n_categories_(self) -> NDArray[np.int64]:
        """The number of categories of each feature, (n_features,)."""
        return self._wide.widths.astype(np.int64)

    @property
    def _wide(self) -> Categorised:
        return self._learnt.totals  # type: ignore[return-value]

    def _family(self) -> Categorical:
        self._least_widths()
        return Categorical(self._smoothing(), unseen=self.unseen)  # type: ignore[arg-type]

    def _finishing(self, totals: Any, ready: Any) -> Fitted:
        totals.widen(self._least_widths())
        return super()._finishing(totals, ready)

    def _least_widths(self) -> NDArray[np.intp]:
        least = np.asarray(0 if self.min_categories is None else self.min_categories)
        if least.dtype.kind != "i":
            raise ValueError(f"'min_categories' should have integral type. Got {least.dtype} instead.")
        if least.ndim and least.shape != (self.n_features_in_,):
            raise ValueError(
                f"'min_categories' should have shape ({self.n_features_in_},) when an array-like is provided. "
                f"Got {least.shape} instead."
            )
        return np.broadcast_to(least.astype(np.intp), (self.n_features_in_,))

    def _validation(self) -> dict[str, Any]:
        return {"dtype": "int"}

    def _counted(self, x: Any) -> Any:
        check_non_negative(x, "CategoricalNB (input X)")
        return x

    def _scores_of(self, likelihood: Any) -> Scores:
        return CategoryScores(likelihood, self._learnt.columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = True
        tags.input_tags.positive_only = True
        return tags
