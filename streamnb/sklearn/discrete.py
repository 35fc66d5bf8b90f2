"""The estimators of counts and of features that are there or not, and what they share with that of categories."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_non_negative

from streamnb.errors import DataError, SchemaError
from streamnb.families import Bernoulli, Complement, Multinomial
from streamnb.protocols import Floats
from streamnb.schema import Schema
from streamnb.sklearn.base import BaseNB
from streamnb.sklearn.scores import DiscreteScores, Scores
from streamnb.sklearn.totals import Counts, Ones

__all__ = ["BaseDiscreteNB", "BernoulliNB", "ComplementNB", "MultinomialNB"]

SMALLEST_ALPHA = 1e-10


class BaseDiscreteNB(BaseNB):
    """What the four estimators of counts share: smoothing by `alpha`, and the prior of each class."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **BaseNB._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="left"), "array-like"],
        "fit_prior": ["boolean"],
        "class_prior": ["array-like", None],
        "force_alpha": ["boolean"],
    }

    alpha: Any
    force_alpha: bool
    fit_prior: bool
    class_prior: Any

    @property
    def class_log_prior_(self) -> Floats:
        """The logarithm of the prior of each class, (n_classes,)."""
        return self._learnt.class_log_prior

    def _check_alpha(self) -> Any:
        """The smoothing, a number or one per feature; too small a one is raised unless `force_alpha`."""
        alpha: Any = self.alpha if isinstance(self.alpha, Real) else np.asarray(self.alpha)
        if isinstance(alpha, np.ndarray):
            if alpha.shape[0] != self.n_features_in_:
                raise ValueError(
                    "When alpha is an array, it should contains `n_features`. "
                    f"Got {alpha.shape[0]} elements instead of {self.n_features_in_}."
                )
            if np.min(alpha) < 0:
                raise ValueError("All values in alpha must be greater than 0.")
        if np.min(alpha) < SMALLEST_ALPHA and not self.force_alpha:
            warnings.warn(
                f"alpha too small will result in numeric errors, setting alpha = {SMALLEST_ALPHA:.1e}. "
                "Use `force_alpha=True` to keep alpha unchanged.",
                stacklevel=2,
            )
            return np.maximum(alpha, SMALLEST_ALPHA)
        return alpha

    def _smoothing(self) -> Any:
        alpha = self._check_alpha()
        return alpha.tolist() if isinstance(alpha, np.ndarray) else float(alpha)

    def _prior(self, n_classes: int) -> Floats | str:
        if self.class_prior is None:
            return "empirical" if self.fit_prior else "uniform"
        prior = np.asarray(self.class_prior, np.float64)
        if len(prior) != n_classes:
            raise ValueError("Number of priors must match number of classes.")
        if not (prior >= 0).all():
            raise ValueError(f"Expected class_prior of at least 0, got {prior.min()}")
        return prior

    def _scores_of(self, likelihood: Any) -> Scores:
        return DiscreteScores(likelihood)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._sparse
        tags.classifier_tags.poor_score = True
        return tags


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
