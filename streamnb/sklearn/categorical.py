"""The estimator of categories."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_non_negative

from streamnb.families import Categorical
from streamnb.protocols import Floats
from streamnb.sklearn.base import Fitted
from streamnb.sklearn.discrete import BaseDiscreteNB
from streamnb.sklearn.scores import CategoryScores, Scores
from streamnb.sklearn.tables import Categorised

__all__ = ["CategoricalNB"]


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
