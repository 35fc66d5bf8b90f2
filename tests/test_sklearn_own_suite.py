"""scikit-learn's own tests of naive Bayes, read from the installed package, with only their import changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import streamnb.sklearn

# The suite gives some alphas that are too small without expecting the warning.
pytestmark = [
    pytest.mark.filterwarnings("default:alpha too small:UserWarning"),
    pytest.mark.may_skip,  # its array-API cases ask for libraries of other array types
]

OLD_IMPORT, NEW_IMPORT = "\nfrom sklearn.naive_bayes import (", "\nfrom streamnb.sklearn import ("


def own_suite() -> ModuleType:
    """Return scikit-learn's test module, made to test our estimators."""
    spec = find_spec("sklearn.tests.test_naive_bayes")
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    assert source.count(OLD_IMPORT) == 1
    module = ModuleType("sklearn_naive_bayes_suite")
    module.__file__ = spec.origin
    exec(compile(source.replace(OLD_IMPORT, NEW_IMPORT), spec.origin, "exec"), vars(module))
    return module


def collectable(test: Callable[..., None]) -> Callable[..., None]:
    """Return a test whose parameters stand in lists: generators of them make pytest warn while it collects."""
    test.pytestmark = [  # type: ignore[attr-defined]
        pytest.mark.parametrize(mark.args[0], list(mark.args[1]), **mark.kwargs).mark
        if mark.name == "parametrize"
        else mark
        for mark in getattr(test, "pytestmark", [])
    ]
    return test


SUITE = own_suite()
# pytest collects what stands here under a name that begins with test.
globals().update({name: collectable(value) for name, value in vars(SUITE).items() if name.startswith("test_")})


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def global_dtype(request: pytest.FixtureRequest) -> type:
    """The types of floats that the suite runs with; its own fixture leaves float32 out unless asked for."""
    return request.param


@pytest.fixture(params=[int(seed) for seed in os.environ.get("SKLEARN_TESTS_GLOBAL_RANDOM_SEED", "42").split()])
def global_random_seed(request: pytest.FixtureRequest) -> int:
    """The seed of the suite's random data, as scikit-learn's own fixture gives it."""
    return request.param


def test_the_suite_tests_our_estimators() -> None:
    """The five names in the suite are ours."""
    for name in ("BernoulliNB", "CategoricalNB", "ComplementNB", "GaussianNB", "MultinomialNB"):
        assert getattr(SUITE, name) is getattr(streamnb.sklearn, name)
