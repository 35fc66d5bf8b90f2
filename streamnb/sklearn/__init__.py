"""scikit-learn's five naive Bayes estimators over streamnb's counts: change one import, keep the rest.

They take scikit-learn's parameters, show its attributes and raise its errors; `partial_fit` gives what `fit` gives,
for any cut of the rows. Each says in its docstring where it differs. On top: `estimator.state_` and `from_state` lead
to a `State` and back, `merge` adds what another estimator has counted, `predictor_` is a `Predictor`; `to_sklearn`
and `from_sklearn` turn a `Predictor` of one family into a fitted estimator of scikit-learn itself, and back.

>>> from streamnb.sklearn import GaussianNB
>>> north = GaussianNB().fit([[1.0], [3.0]], ["low", "low"])
>>> south = GaussianNB().fit([[10.0], [14.0]], ["high", "high"])
>>> north.merge(south).predict([[2.0], [13.0]]).tolist()
['low', 'high']
"""

from __future__ import annotations

from importlib.util import find_spec

from streamnb.errors import MissingExtraError

# Looked for before it is imported: one that is there but broken must show its own error.
if find_spec("sklearn") is None:
    raise MissingExtraError("scikit-learn", "sklearn")

from streamnb.sklearn.categorical import CategoricalNB
from streamnb.sklearn.convert import from_sklearn, to_sklearn
from streamnb.sklearn.discrete import BernoulliNB, ComplementNB, MultinomialNB
from streamnb.sklearn.gaussian import GaussianNB

__all__ = [
    "BernoulliNB",
    "CategoricalNB",
    "ComplementNB",
    "GaussianNB",
    "MultinomialNB",
    "from_sklearn",
    "to_sklearn",
]
