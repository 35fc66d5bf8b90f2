"""The estimator of numbers."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from streamnb.families import Gaussian
from streamnb.moments import Moments
from streamnb.protocols import Floats
from streamnb.sklearn.base import BaseNB
from streamnb.sklearn.scores import GaussianScores, Scores
from streamnb.sklearn.totals import Measured

__all__ = ["GaussianNB"]


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
