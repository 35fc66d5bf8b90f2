"""What the five estimators share: rows in, totals kept, probabilities out. Finishing waits until it is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, _fit_context
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from streamnb.errors import DataError, EmptyStateError, MergeError, SchemaError
from streamnb.families import class_log_prior, log_normalize, probabilities
from streamnb.predictor import Predictor, winners
from streamnb.protocols import Floats
from streamnb.schema import BLOCKS, Schema
from streamnb.sklearn.labels import Labels, arrow_labels, declared, distinct, numpy_labels, places, union
from streamnb.sklearn.scores import Scores, joint
from streamnb.sklearn.totals import Totals
from streamnb.state import State

__all__ = ["BaseNB", "Fitted", "free_name", "plain_names"]


class Fitted:
    """Totals, and how they are to be finished: frozen numbers appear when they are first asked for."""

    def __init__(self, totals: Totals, family: Any, prior: Floats | str, columns: Sequence[Any]) -> None:
        self.totals, self.family, self.prior, self.columns = totals, family, prior, columns
        self.scores: Scores | None = None

    @cached_property
    def likelihood(self) -> Any:
        """What the family makes of the totals."""
        return self.totals.finish(self.family, self.columns)

    @cached_property
    def class_log_prior(self) -> Floats:
        """The log prior of each class, (n_classes,)."""
        if not isinstance(self.prior, str):
            with np.errstate(divide="ignore"):
                return np.log(self.prior)
        return class_log_prior(self.totals.class_count, self.prior, pa.nulls(0))  # type: ignore[arg-type]

    def __reduce__(self) -> Any:
        # What is worked out is not carried along: it follows from the rest.
        return Fitted, (self.totals, self.family, self.prior, self.columns)


class BaseNB(ClassifierMixin, BaseEstimator):
    """The way in and out that all five share."""

    _totals: ClassVar[type[Totals]]
    _sparse: ClassVar[bool] = False
    _parameter_constraints: ClassVar[dict[str, Any]] = {"new_classes": [StrOptions({"error", "learn"})]}

    new_classes: str

    # Training -------------------------------------------------------------------------------------------------------

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows; what was learnt before is forgotten.

        Args:
            X: array-like of shape (n_rows, n_features), or a pandas, Polars or Arrow table.
            y: the label of each row.
            sample_weight: the weight of each row, at least 0; weight 2 is the row twice, and weight 0 no row.

        Raises:
            ValueError: what scikit-learn refuses; a negative weight or count.
        """
        x, y = self._checked(X, y, reset=True)
        classes, codes = distinct(y)
        weight = _weights(sample_weight, x)
        self._forget()
        self.classes_ = classes
        return self._count(self._totals(len(classes), x.shape[1]), x, codes, weight)

    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from more rows; any cut of the rows into batches gives the estimator that `fit` gives.

        Args:
            X: as in `fit`.
            y: as in `fit`.
            classes: all labels that may come; needed at the first call unless `new_classes="learn"`.
            sample_weight: as in `fit`.

        Raises:
            ValueError: a label that is none of the classes (unless `new_classes="learn"`); nothing is counted then.
        """
        known = getattr(self, "classes_", None)
        learns = self.new_classes == "learn"
        if known is None and classes is None and not learns:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if classes is not None:
            wanted = declared(classes)
            if known is not None and not learns and not np.array_equal(known, wanted):
                raise ValueError(
                    f"`classes={classes!r}` is not the same as on last call to partial_fit, was: {known!r}"
                )
            known = wanted if known is None else union(known, wanted)
        x, y = self._checked(X, y, reset=not hasattr(self, "_fitted"))
        values, codes = distinct(y)
        if known is None:
            known = values
        place = places(values, known)
        if (place < 0).any():
            if not learns:
                raise ValueError(
                    f"The target label(s) {values[place < 0]} in y do not exist in the initial classes {known}; "
                    "new_classes='learn' takes them in"
                )
            known = union(known, values)
            place = places(values, known)
        weight = _weights(sample_weight, x)
        totals = self._fitted.totals if hasattr(self, "_fitted") else self._totals(len(known), x.shape[1])
        return self._count(totals, x, place[codes], weight, known)

    def _count(
        self, totals: Totals, x: Any, codes: NDArray[np.intp], weight: Floats | None, classes: Labels | None = None
    ) -> Self:
        """Count rows, of which the classes may be more than before; wrong parameters are refused first."""
        classes = self.classes_ if classes is None else classes
        ready = self._ready(len(classes))
        if totals.n_classes != len(classes):
            totals.grow(places(self.classes_, classes), len(classes))
        self.classes_ = classes
        try:
            totals.add(x, codes, weight)
        except DataError as error:
            raise self._named(error) from None
        if not hasattr(self, "_fitted"):
            self._dtype = x.dtype if x.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        self._fitted = self._finishing(totals, ready)
        return self

    def _finishing(self, totals: Totals, ready: tuple[Any, Floats | str, Sequence[Any]]) -> Fitted:
        return Fitted(totals, *ready)

    def _ready(self, n_classes: int) -> tuple[Any, Floats | str, Sequence[Any]]:
        """What finishing needs: the family, the prior and the names of the columns; wrong parameters are refused."""
        names = getattr(self, "feature_names_in_", None)
        columns = range(self.n_features_in_) if names is None else list(names)
        return self._family(), self._prior(n_classes), columns

    def _forget(self) -> None:
        for name in ("_fitted", "_schema"):
            self.__dict__.pop(name, None)

    def _named(self, error: DataError) -> DataError:
        names = getattr(self, "feature_names_in_", None)
        named = isinstance(error.column, int) and names is not None
        return error.at(column=str(names[error.column])) if named else error  # type: ignore[index]

    def _checked(self, *given: Any, reset: bool) -> Any:
        """What scikit-learn makes of X, or of X and y, checked in its ways."""
        X, *y = given
        if isinstance(X, pa.RecordBatch):
            X = pa.Table.from_batches([X])  # whose names scikit-learn knows to keep
        found = validate_data(self, X, *y, reset=reset, **self._validation())
        return (self._counted(found[0]), found[1]) if y else self._counted(found)

    def _validation(self) -> dict[str, Any]:
        return {"accept_sparse": "csr"} if self._sparse else {}

    def _counted(self, x: Any) -> Any:
        """The cells as they are counted."""
        return x

    def _family(self) -> Any:
        raise NotImplementedError

    def _prior(self, n_classes: int) -> Floats | str:
        raise NotImplementedError

    # Prediction -----------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each row, (n_rows,); the first in sorted order where some are equal."""
        x, prior = self._asked(X)
        found = np.empty(x.shape[0], np.int32)
        for rows, scores in joint(self._scores, x, prior):
            found[rows] = winners(scores, self._fitted.class_log_prior)
        return np.asarray(self.classes_[found])

    def predict_proba(self, X: Any) -> Floats:
        """Return the posterior of each class, float64 (n_rows, n_classes), in the order of `classes_`."""
        return self._rows(X, lambda scores: probabilities(scores, self._fitted.class_log_prior))

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of `predict_proba`, without underflow; float64 (n_rows, n_classes)."""
        return self._rows(X, lambda scores: log_normalize(scores, self._fitted.class_log_prior))

    def predict_joint_log_proba(self, X: Any) -> Floats:
        """Return log P(class) + log p(row | class), not normalised; float64 (n_rows, n_classes)."""
        return self._rows(X, lambda scores: scores)

    def _rows(self, X: Any, present: Any) -> Floats:
        x, prior = self._asked(X)
        found = np.empty((x.shape[0], len(self.classes_)))
        for rows, scores in joint(self._scores, x, prior):
            found[rows] = present(scores).T
        return found

    def _asked(self, X: Any) -> tuple[Any, Floats | None]:
        check_is_fitted(self)
        x = self._checked(X, reset=False)
        return x, self._fitted.class_log_prior if self._takes_prior() else None

    def _takes_prior(self) -> bool:
        return True

    @property
    def _scores(self) -> Scores:
        fitted = self._fitted
        if fitted.scores is None:
            fitted.scores = self._scores_of(fitted.likelihood)
        return fitted.scores

    def _scores_of(self, likelihood: Any) -> Scores:
        raise NotImplementedError

    # State ----------------------------------------------------------------------------------------------------------

    @property
    def class_count_(self) -> Floats:
        """The rows of each class, or their weights; (n_classes,)."""
        return self._learnt.totals.class_count

    @property
    def state_(self) -> State:
        """A `State` of all that was counted: to save without pickle, to merge, to finish in other ways."""
        return self._state(self._learnt.totals, self._schema_of_state())

    @property
    def predictor_(self) -> Predictor:
        """A `Predictor` that answers as this estimator does."""
        fitted, total = self._learnt, self.state_.total
        return Predictor.finish(total, {self._totals.block: fitted.family}, fitted.class_log_prior.copy())

    @classmethod
    def from_state(cls, state: State, **parameters: Any) -> Self:
        """Return a fitted estimator that goes on from a state of this family's columns only.

        Args:
            state: stays as it is; whichever shards it was counted from, the estimator's own state is anonymous.
            parameters: those of the constructor.

        Raises:
            SchemaError: the state has columns of another kind.
            EmptyStateError: the state has no rows.
        """
        schema, total, block = state.schema, state.total, cls._totals.block
        for kind in BLOCKS:
            if kind != block and getattr(schema, kind):
                raise SchemaError(f"Expected {block} columns only, got {kind} column {getattr(schema, kind)[0]!r}")
        new = cls(**cls._parameters_of(schema, parameters))
        new._validate_params()
        if not len(total.classes):
            raise EmptyStateError("Expected rows to go on from, got a state without training rows")
        new.classes_ = numpy_labels(total.classes.values)
        new.n_features_in_ = len(schema.features)
        if list(schema.features) != plain_names(len(schema.features)):
            new.feature_names_in_ = np.array(schema.features, dtype=object)
        new._schema, new._dtype = schema, np.dtype(np.float64)
        new._fitted = new._finishing(cls._totals.of(total), new._ready(len(new.classes_)))
        return new

    def merge(self, other: Self | State) -> Self:
        """Add what another estimator of this kind, or a state, has counted; it stays as it was.

        Columns are aligned by name if both sides have names; classes that only one side has are taken in.

        Raises:
            MergeError: they count different things; the message names the first difference.
        """
        theirs: Any = self.from_state(other) if isinstance(other, State) else other
        if type(theirs) is not type(self):
            raise MergeError(f"Expected a {type(self).__name__} or a State, got {type(other).__name__}")
        mine, yours = self._learnt.totals.copy(), theirs._learnt.totals.copy()
        if mine.n_features != yours.n_features:
            raise MergeError(f"Expected {mine.n_features} features on both sides, got {yours.n_features}")
        if mine.weight is not None or yours.weight is not None:
            mine.weigh()
            yours.weigh()
        left, right = self._schema_of_state(mine), theirs._schema_of_state(yours)
        if not (hasattr(self, "feature_names_in_") and hasattr(theirs, "feature_names_in_")):
            aligned: dict[str, Any] = {self._totals.block: left.features}
            right = dataclasses.replace(right, **aligned)
        right = dataclasses.replace(right, label=left.label, weight=left.weight, classes=left.classes)
        total = self._state(mine, left)
        total.merge(theirs._state(yours, right))
        classes = union(self.classes_, theirs.classes_)
        self._fitted = self._finishing(self._totals.of(total.total), self._ready(len(classes)))
        self.classes_ = classes
        return self

    @classmethod
    def _parameters_of(cls, schema: Schema, given: dict[str, Any]) -> dict[str, Any]:
        return given

    @property
    def _learnt(self) -> Fitted:
        check_is_fitted(self)
        return self._fitted

    def _state(self, totals: Totals, schema: Schema) -> State:
        return State.of_shards(schema, totals.statistics(schema, arrow_labels(self.classes_)), {})

    def _schema_of_state(self, totals: Totals | None = None) -> Schema:
        """The schema of the state this came from, or one with plain names."""
        weighted = (self._fitted.totals if totals is None else totals).weight is not None
        schema: Schema | None = getattr(self, "_schema", None)
        if schema is None:
            names = getattr(self, "feature_names_in_", None)
            features = plain_names(self.n_features_in_) if names is None else [str(name) for name in names]
            options: dict[str, Any] = {self._totals.block: features, **self._schema_options()}
            schema = Schema(free_name("y", features), **options)
        if weighted and schema.weight is None:
            return dataclasses.replace(schema, weight=free_name("sample_weight", [*schema.features, schema.label]))
        return schema

    def _schema_options(self) -> dict[str, Any]:
        return {}

    # scikit-learn's own questions -----------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")


def _weights(sample_weight: Any, x: Any) -> Floats | None:
    if sample_weight is None:
        return None
    return np.asarray(_check_sample_weight(sample_weight, x, dtype=np.float64, ensure_non_negative=True))


def plain_names(n_features: int) -> list[str]:
    """Return names for the columns of an array."""
    return [f"x{i}" for i in range(n_features)]


def free_name(name: str, taken: Sequence[str]) -> str:
    """Return the name, with underscores behind it until it is not taken."""
    while name in taken:
        name += "_"
    return name
