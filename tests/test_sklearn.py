"""streamnb.sklearn: scikit-learn's checks and machinery, its numbers where it is right, and ours where it is not."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import sklearn.naive_bayes as upstream
from hypothesis import given
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import streamnb as snb
import streamnb.sklearn as ours
from streamnb.errors import DataError, EmptyStateError, MergeError, SchemaError
from streamnb.sklearn import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from streamnb.sklearn.labels import declared, distinct

ALL = [GaussianNB, MultinomialNB, ComplementNB, BernoulliNB, CategoricalNB]
DISCRETE = ALL[1:]
COUNTED = [MultinomialNB, ComplementNB, BernoulliNB]
name_of = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
discrete_of = pytest.mark.parametrize("kind", DISCRETE, ids=lambda kind: kind.__name__)
counted_of = pytest.mark.parametrize("kind", COUNTED, ids=lambda kind: kind.__name__)


def rows(seed: int = 0, n: int = 90, classes: int = 3) -> tuple[Any, Any]:
    """Return small whole numbers, which any of the five can learn, and labels that have to do with them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    return rng.poisson(1 + y[:, None] * np.array([0.0, 1.0, 0.5, 2.0])), y


def peer(kind: type) -> Any:
    """Return scikit-learn's class of the same name."""
    return getattr(upstream, kind.__name__)


# scikit-learn's own machinery ---------------------------------------------------------------------------------------


@pytest.mark.may_skip  # the array-API check wants SciPy told so before it is imported
@parametrize_with_checks([kind() for kind in ALL] + [kind(new_classes="learn") for kind in ALL])
def test_check_estimator(estimator: Any, check: Callable[[Any], None]) -> None:
    """scikit-learn's check_estimator passes."""
    check(estimator)


@name_of
def test_it_works_in_the_tools_of_model_selection(kind: Any) -> None:
    """Pipelines, grid search, cross-validation and calibration take the estimators."""
    X, y = rows(n=600)
    assert cross_val_score(kind(), X, y, cv=3).mean() > 0.4
    smoothing = {"var_smoothing": [1e-9, 1e-2]} if kind is GaussianNB else {"alpha": [0.5, 2.0]}
    search = GridSearchCV(kind(), smoothing, cv=3).fit(X, y)
    assert search.predict(X).shape == y.shape
    calibrated = CalibratedClassifierCV(kind(), cv=3).fit(X, y)
    np.testing.assert_allclose(calibrated.predict_proba(X).sum(axis=1), 1.0)


def test_set_output_keeps_names_through_a_pipeline() -> None:
    """With set_output("pandas"), the estimator at the end of a pipeline sees the names."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    pipeline = make_pipeline(StandardScaler(), GaussianNB()).set_output(transform="pandas").fit(X, y)
    assert list(pipeline[-1].feature_names_in_) == list(X.columns)
    assert pipeline.score(X, y) > 0.9


def test_sample_weight_is_routed() -> None:
    """Metadata routing carries sample_weight into fit and partial_fit."""
    X, y = rows()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        routed = make_pipeline(scaler, GaussianNB().set_fit_request(sample_weight=True))
        routed.fit(X, y, sample_weight=weight)
    direct = GaussianNB().fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    np.testing.assert_array_equal(routed[-1].theta_, direct.theta_)


@name_of
def test_clones_and_pickles(kind: Any) -> None:
    """A clone has the parameters and nothing learnt; a pickle and a deep copy have both, and learn on apart."""
    X, y = rows()
    fitted = kind(new_classes="learn").fit(X, y)
    expected = fitted.predict_proba(X)
    assert clone(fitted).get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        clone(fitted).predict(X)
    for twin in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        np.testing.assert_array_equal(twin.predict_proba(X), expected)
        twin.partial_fit(X + 1, y)
        np.testing.assert_array_equal(fitted.predict_proba(X), expected)


@name_of
@pytest.mark.parametrize("attribute", ["class_count_", "state_", "predictor_"])
def test_what_is_learnt_is_not_there_before(kind: Any, attribute: str) -> None:
    """Attributes of a fitted estimator are absent from one that is not, for hasattr too."""
    assert not hasattr(kind(), attribute)
    with pytest.raises(NotFittedError):
        getattr(kind(), attribute)


def test_parameters_are_checked_as_in_scikit_learn() -> None:
    """A wrong parameter gives scikit-learn's error, with our own parameters too."""
    with pytest.raises(ValueError, match="'var_smoothing' parameter of GaussianNB must be a float in the range"):
        GaussianNB(var_smoothing=-1.0).fit([[0.0]], [0])
    with pytest.raises(ValueError, match="'new_classes' parameter of MultinomialNB must be a str among"):
        MultinomialNB(new_classes="maybe").fit([[0.0]], [0])


def test_without_scikit_learn_the_extra_is_named() -> None:
    """Where scikit-learn is not installed, the import says what to install."""
    code = "import sys; sys.modules['sklearn'] = None; import streamnb.sklearn"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent
    )
    assert "MissingExtraError: scikit-learn is not installed; install it with: pip install 'streamnb[sklearn]'" in (
        found.stderr
    )


# Input --------------------------------------------------------------------------------------------------------------

FRAMES: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda X: pd.DataFrame(X, columns=list("abcd")),
    "polars": lambda X: pl.DataFrame(X, schema=list("abcd")),
    "table": lambda X: pa.table({name: X[:, j] for j, name in enumerate("abcd")}),
    "record batch": lambda X: pa.record_batch({name: X[:, j] for j, name in enumerate("abcd")}),
}
ARRAYS: dict[str, Callable[[Any], Any]] = {
    "list": lambda X: X.tolist(),
    "Fortran order": np.asfortranarray,
    "every other column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "float32": lambda X: X.astype(np.float32),
    "int16": lambda X: X.astype(np.int16),
    "read-only": lambda X: np.frombuffer(X.tobytes(), X.dtype).reshape(X.shape),
}
SPARSE: dict[str, Callable[[Any], Any]] = {
    "csr_matrix": sp.csr_matrix,
    "csr_array": sp.csr_array,
    "csc_matrix": sp.csc_matrix,
    "csc_array": sp.csc_array,
}


@name_of
@pytest.mark.parametrize("made", FRAMES)
def test_tables_keep_their_names(kind: Any, made: str) -> None:
    """The names of a table's columns are kept, and a table with other names is refused."""
    X, y = rows()
    table = FRAMES[made](X)
    fitted = kind().fit(table, y)
    assert fitted.feature_names_in_.tolist() == list("abcd")
    np.testing.assert_allclose(fitted.predict_proba(table), kind().fit(X, y).predict_proba(X))
    assert fitted.state_.schema.features == ("a", "b", "c", "d")
    names = dict(zip("abcd", "abdc", strict=True))
    turned = FRAMES["table"](X).rename_columns([names[name] for name in "abcd"])
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(turned)


@name_of
@pytest.mark.parametrize("made", ARRAYS)
def test_arrays_of_any_layout(kind: Any, made: str) -> None:
    """Layout and type of an array make no difference."""
    X, y = rows()
    expected = kind().fit(X, y).predict_log_proba(X)
    given_ = ARRAYS[made](X)
    np.testing.assert_allclose(kind().fit(given_, y).predict_log_proba(given_), expected, atol=1e-10)


@counted_of
@pytest.mark.parametrize("made", SPARSE)
@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_is_as_dense(kind: Any, made: str, weighted: bool) -> None:
    """Sparse rows give what the same rows give when dense."""
    X, y = rows()
    weight = np.random.default_rng(1).integers(0, 3, len(y)) if weighted else None
    fitted, dense = kind().fit(SPARSE[made](X), y, weight), kind().fit(X, y, weight)
    np.testing.assert_array_equal(fitted.feature_count_, dense.feature_count_)
    np.testing.assert_allclose(fitted.predict_log_proba(SPARSE[made](X)), dense.predict_log_proba(X), atol=1e-12)


@counted_of
def test_sparse_is_never_made_dense(kind: Any) -> None:
    """Half a million columns are no matter: dense, these rows would take 40 GB."""
    words = sp.random_array((10_000, 1 << 19), density=1e-5, format="csr", rng=np.random.default_rng(0))
    y = np.arange(10_000) % 2
    fitted = kind().fit(words, y).partial_fit(words, y)
    assert fitted.predict_proba(words).shape == (10_000, 2)


def test_a_sparse_cell_in_two_pieces_is_one() -> None:
    """Stored twice, a cell is the sum of both, also before it is compared with a threshold."""
    twice = sp.csr_array((np.array([0.3, 0.3, 0.3]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2))
    fitted = BernoulliNB(binarize=0.5).fit(twice, [0])
    assert fitted.feature_count_.tolist() == [[1.0, 0.0]]
    assert twice.nnz == 3


@pytest.mark.parametrize("kind", [GaussianNB, CategoricalNB])
def test_sparse_is_refused_where_scikit_learn_refuses_it(kind: Any) -> None:
    """Gaussian and categorical rows are dense."""
    X, y = rows()
    with pytest.raises(TypeError, match="Sparse data was passed"):
        kind().fit(sp.csr_array(X), y)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "classes",
    [np.array(["a\0x", "a\0y", "b"]), np.array([2**63, 2**63 + 1, 2**64 - 1], np.uint64)],
    ids=["NUL", "uint64"],
)
def test_labels_that_c_would_cut(kind: Any, classes: Any) -> None:
    """Text with a NUL inside, and integers past 2**63, are labels as any other."""
    X, y = np.array([[0, 1], [2, 0], [1, 3], [0, 2], [3, 0], [1, 1]]), np.array([0, 1, 2, 0, 1, 2])
    for codes in (y, y % 2):  # the largest integers apart, and side by side
        fitted = kind().fit(X, classes[codes])
        np.testing.assert_array_equal(fitted.classes_, classes[: codes.max() + 1])
        assert fitted.classes_.dtype == classes.dtype
        expected = kind().fit(X, codes)
        np.testing.assert_array_equal(fitted.predict(X), classes[expected.predict(X)])
        again = kind.from_state(fitted.state_)
        np.testing.assert_array_equal(again.classes_, fitted.classes_)
        np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


@pytest.mark.parametrize(
    "labels",
    [
        ["b", "a", "c"],
        np.array(["b", "a", "ü"], object),
        [True, False, True],
        [7, -70_000, 1 << 40],
        np.array([2, 0, 1], np.int8),
        np.array([200, 0, 1], np.uint8),
        np.array([2.0, 0.0, 1.0], np.float32),
        np.array(["2001-01-01", "1999-01-01", "2000-01-01"], "datetime64[D]"),
        pa.array(["x", "y", "z"]),
        pd.Series(["x", "y", "z"], dtype="category"),
    ],
    ids=str,
)
def test_labels_of_any_type(labels: Any) -> None:
    """Labels come back in their own type, and in the state in its Arrow type."""
    X = np.array([[0.0], [10.0], [20.0]])
    fitted = GaussianNB(var_smoothing=0.1).fit(X, labels)
    expected = np.asarray(labels)
    np.testing.assert_array_equal(fitted.predict(X), expected)
    assert fitted.classes_.dtype == expected.dtype
    again = GaussianNB.from_state(fitted.state_)
    assert again.predict(X).tolist() == expected.tolist()


@given(st.lists(st.integers(-3, 3), min_size=1), st.sampled_from(["int64", "int8", "float64", "str", "object", "bool"]))
def test_labels_are_told_apart_as_numpy_does(values: list[int], dtype: str) -> None:
    """Distinct labels and codes are those of np.unique, whatever the way to them."""
    y = np.array([str(v) for v in values], object) if dtype == "object" else np.array(values).astype(dtype)
    found, codes = distinct(y)
    expected, expected_codes = np.unique(y, return_inverse=True)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(codes, expected_codes)
    assert found.dtype == expected.dtype


def test_text_among_numbers_is_no_list_of_classes() -> None:
    """Classes are of one type."""
    with pytest.raises(ValueError, match="Mix of label input types"):
        declared([1, "a"])


# The numbers of scikit-learn, where it is right ---------------------------------------------------------------------


@name_of
@pytest.mark.parametrize("weighted", [False, True])
def test_fit_agrees_with_scikit_learn(kind: Any, weighted: bool) -> None:
    """What fit learns are scikit-learn's attributes and probabilities."""
    X, y = rows()
    weight = np.random.default_rng(1).integers(0, 4, len(y)).astype(float) if weighted else None
    mine, theirs = kind().fit(X, y, weight), peer(kind)().fit(X, y, weight)
    shown = [name for name in vars(theirs) if name.endswith("_")]
    assert len(shown) > 5
    for name in shown:
        ours_, theirs_ = getattr(mine, name), getattr(theirs, name)
        # scikit-learn's epsilon leaves weights aside.
        tolerance = 1e-7 if weighted else 1e-12
        for one, other in zip(*[each if isinstance(each, list) else [each] for each in (ours_, theirs_)], strict=True):
            np.testing.assert_allclose(one, other, rtol=1.0 if name == "epsilon_" and weighted else tolerance)
    for method in ("predict", "predict_proba", "predict_log_proba", "predict_joint_log_proba"):
        np.testing.assert_allclose(getattr(mine, method)(X), getattr(theirs, method)(X), rtol=1e-7, atol=1e-9)


@name_of
def test_many_rows_and_features(kind: Any) -> None:
    """Rows beyond one batch, and more features than rows of a block, give scikit-learn's probabilities too."""
    for shape in ((150_000, 3), (40, 3_000)):
        rng = np.random.default_rng(3)
        X, y = rng.poisson(2.0, shape), rng.integers(0, 4, shape[0])
        X[y == 2, 1] += 1
        mine, theirs = kind().fit(X, y), peer(kind)().fit(X, y)
        some = slice(0, 3000)
        np.testing.assert_allclose(mine.predict_joint_log_proba(X[some]), theirs.predict_joint_log_proba(X[some]), 1e-9)


@pytest.mark.parametrize("parameters", [{"norm": True}, {"norm": False, "alpha": [0.5, 1.0, 2.0, 0.0]}])
def test_complement_agrees(parameters: dict[str, Any]) -> None:
    """The option norm and an alpha per feature are scikit-learn's."""
    X, y = rows()
    mine, theirs = ComplementNB(**parameters).fit(X, y), upstream.ComplementNB(**parameters).fit(X, y)
    np.testing.assert_allclose(mine.predict_joint_log_proba(X), theirs.predict_joint_log_proba(X))


@discrete_of
@pytest.mark.parametrize("prior", [{"fit_prior": False}, {"class_prior": [0.2, 0.3, 0.5]}, {"class_prior": [2, 3, 5]}])
def test_priors_agree(kind: Any, prior: dict[str, Any]) -> None:
    """A uniform prior and a given one are scikit-learn's, also when they do not sum to 1."""
    X, y = rows()
    mine, theirs = kind(**prior).fit(X, y), peer(kind)(**prior).fit(X, y)
    np.testing.assert_allclose(mine.predict_joint_log_proba(X), theirs.predict_joint_log_proba(X))


@discrete_of
def test_negative_priors_are_refused(kind: Any) -> None:
    """The logarithm of a negative prior is no score."""
    with pytest.raises(ValueError, match="Expected class_prior of at least 0, got -1"):
        kind(class_prior=[-1, 1, 1]).fit(*rows())


# Where scikit-learn is not right ------------------------------------------------------------------------------------


@st.composite
def cuts(draw: st.DrawFn) -> list[int]:
    """Return places to cut 90 rows at."""
    return sorted(draw(st.sets(st.integers(1, 89), max_size=6)))


@name_of
@given(cut=cuts(), weighted=st.booleans(), seed=st.integers(0, 5))
def test_partial_fit_is_fit_for_any_batches(kind: Any, cut: list[int], weighted: bool, seed: int) -> None:
    """However the rows are cut, partial_fit leads to the attributes and the probabilities of fit."""
    X, y = rows(seed)
    if kind is GaussianNB:
        X = X * np.array([1.0, 100.0, 0.01, 1.0])[None] * (1 + np.arange(90)[:, None] // 30)
    weight = np.random.default_rng(seed).uniform(0.1, 2.0, len(y)) if weighted else None
    whole, parts = kind().fit(X, y, weight), kind()
    for first, stop in zip([0, *cut], [*cut, 90], strict=True):
        some = None if weight is None else weight[first:stop]
        parts.partial_fit(X[first:stop], y[first:stop], classes=[0, 1, 2], sample_weight=some)
    np.testing.assert_allclose(parts.class_count_, whole.class_count_)
    np.testing.assert_allclose(parts.predict_joint_log_proba(X), whole.predict_joint_log_proba(X), rtol=1e-9)
    if kind is GaussianNB:
        np.testing.assert_allclose(parts.epsilon_, whole.epsilon_)


@name_of
def test_weights_may_come_late(kind: Any) -> None:
    """Rows without weights have weight 1, before and after rows with weights."""
    X, y = rows()
    weight = np.where(np.arange(90) // 30 == 1, 2.0, 1.0)
    whole = kind().fit(X, y, weight)
    parts = kind().partial_fit(X[:30], y[:30], classes=[0, 1, 2])
    parts.partial_fit(X[30:60], y[30:60], sample_weight=weight[30:60]).partial_fit(X[60:], y[60:])
    np.testing.assert_allclose(parts.predict_joint_log_proba(X), whole.predict_joint_log_proba(X), rtol=1e-9)


def test_no_variance_at_all_is_an_error_in_the_estimators_own_words() -> None:
    """What to do is said by the parameters that an estimator has; a second row that differs is a remedy."""
    stream = GaussianNB().partial_fit([[1.0, 2.0]], ["a"], classes=["a", "b"])
    with pytest.raises(DataError, match=r"got 0 .*; there must be rows in which some feature varies - column 0"):
        stream.predict([[1.0, 2.0]])
    assert stream.partial_fit([[5.0, 2.0]], ["b"]).predict([[4.0, 2.0]]).tolist() == ["b"]
    constant = GaussianNB(var_smoothing=0).fit([[1.0, 2.0], [1.0, 3.0]], ["a", "a"])
    with pytest.raises(DataError, match=r"got 0 .*; give var_smoothing above 0 or leave the feature out - column 0"):
        constant.predict([[1.0, 2.0]])


def test_batches_of_one_row_give_no_nan() -> None:
    """A constant column and batches of one row: scikit-learn's smoothing is then 0, and 0/0 is NaN."""
    X, y = np.array([[1.0, 0.0], [1.0, 3.0], [1.0, 10.0], [1.0, 14.0]]), [0, 0, 1, 1]
    theirs, mine = upstream.GaussianNB(), GaussianNB()
    for x, label in zip(X, y, strict=True):
        theirs.partial_fit(x[None], [label], classes=[0, 1])
        mine.partial_fit(x[None], [label], classes=[0, 1])
    with np.errstate(all="ignore"):
        assert np.isnan(theirs.predict_proba(X)).all()
    np.testing.assert_allclose(mine.predict_proba(X), GaussianNB().fit(X, y).predict_proba(X))


def test_no_variance_at_all_is_an_error_that_names_the_feature() -> None:
    """Without variance and without smoothing there is no density."""
    fitted = GaussianNB(var_smoothing=0.0).fit(pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [1.0, 1.0, 1.0]}), [0, 0, 0])
    assert fitted.var_[0, 1] == 0.0
    with pytest.raises(DataError, match=r"Expected a variance above 0, got 0 .* column 'b'"):
        fitted.predict(pd.DataFrame({"a": [1.0], "b": [1.0]}))


@pytest.mark.parametrize("kind", [MultinomialNB, BernoulliNB, CategoricalNB, ComplementNB], ids=lambda k: k.__name__)
@pytest.mark.parametrize("made", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_no_smoothing_gives_no_nan(kind: Any, made: Any) -> None:
    """With alpha 0, what no class can have shown gets the prior, and nothing becomes NaN."""
    if kind is CategoricalNB and made is sp.csr_array:
        return
    X, y = np.array([[2, 0, 0], [1, 0, 0], [0, 2, 0]]), [0, 0, 1]
    fitted = kind(alpha=0.0).fit(made(X), y)
    new = made(np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0], [1, 1, 1]]))
    found = fitted.predict_proba(new)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert not np.isnan(fitted.predict_log_proba(new)).any()
    assert fitted.predict(new)[1] == 0
    assert kind is CategoricalNB or fitted.predict(new)[2] == 1
    if kind in (MultinomialNB, BernoulliNB):
        np.testing.assert_allclose(found[0], [2 / 3, 1 / 3])
    if kind in COUNTED:
        dense = new.toarray() if sp.issparse(new) else new
        np.testing.assert_allclose(found, kind(alpha=0.0).fit(X, y).predict_proba(dense))


@name_of
@pytest.mark.parametrize("classes", [[0, 1], [0, 1, 2]])
def test_an_unknown_label_is_refused_and_nothing_counted(kind: Any, classes: list[int]) -> None:
    """partial_fit neither counts the row as the first class nor drops it; it says which label it does not know."""
    X, y = rows(classes=len(classes))
    fitted = kind().partial_fit(X, y, classes=classes)
    before = fitted.state_
    with pytest.raises(ValueError, match=r"The target label\(s\) \[7\] in y do not exist in the initial classes"):
        fitted.partial_fit(X[:2], [0, 7])
    with pytest.raises(ValueError, match="in y do not exist in the initial classes"):
        fitted.partial_fit(X[:2], ["0", "1"])
    assert fitted.state_ == before


@name_of
def test_labels_are_learnt_as_they_come(kind: Any) -> None:
    """With new_classes="learn", classes need not be given, and the order of their arrival does not matter."""
    X, y = rows()
    order = np.argsort(-y, kind="stable")
    fitted = kind(new_classes="learn")
    for row in np.split(order, [20, 50]):
        fitted.partial_fit(X[row], y[row])
    assert fitted.classes_.tolist() == [0, 1, 2]
    whole = kind().fit(X[order], y[order])
    np.testing.assert_allclose(fitted.predict_joint_log_proba(X), whole.predict_joint_log_proba(X), rtol=1e-9)
    with pytest.raises(MergeError, match="Expected labels of type int64, got <U1"):
        fitted.partial_fit(X[:1], ["a"])


@name_of
def test_a_class_without_rows_is_never_predicted(kind: Any) -> None:
    """A class that is declared and has no rows has prior 0, without a warning."""
    X, y = rows()
    fitted = kind().partial_fit(X, y, classes=[0, 1, 2, 3])
    assert fitted.predict_proba(X).shape == (90, 4)
    if kind is not ComplementNB:  # whose scores take no prior
        assert (fitted.predict_proba(X)[:, 3] == 0).all()
        assert 3 not in fitted.predict(X)


def test_a_prior_without_rows_does_not_win_at_the_origin() -> None:
    """A class that has a prior and no rows borrows mean and variance of all; scikit-learn has it at 0, sharply."""
    X, y = np.array([[5.0], [6.0], [9.0], [10.0]]), [0, 0, 1, 1]
    parameters = {"priors": [0.4, 0.4, 0.2]}
    theirs = upstream.GaussianNB(**parameters).partial_fit(X, y, classes=[0, 1, 2])
    assert theirs.predict([[0.0]]).tolist() == [2]
    mine = GaussianNB(**parameters).partial_fit(X, y, classes=[0, 1, 2])
    np.testing.assert_allclose(mine.theta_[2], X.mean())
    assert mine.predict_proba([[7.5]])[0, 2] > 0.1


def test_a_category_that_training_never_saw() -> None:
    """It contributes nothing, or what smoothing leaves for it, or is refused; scikit-learn has an IndexError."""
    X, y = np.array([[0, 0], [0, 1], [1, 1], [1, 1]]), [0, 0, 1, 1]
    new = np.array([[0, 9]])
    with pytest.raises(IndexError):
        upstream.CategoricalNB().fit(X, y).predict(new)
    ignored = CategoricalNB().fit(X, y).predict_joint_log_proba(new)
    np.testing.assert_allclose(ignored, np.log([[0.5 * 3 / 4, 0.5 * 1 / 4]]))
    smoothed = CategoricalNB(unseen="smooth").fit(X, y).predict_joint_log_proba(new)
    np.testing.assert_allclose(smoothed, np.log([[0.5 * 3 / 5 / 5, 0.5 * 1 / 5 / 5]]))
    refusing = CategoricalNB(unseen="error").fit(pd.DataFrame(X, columns=["a", "b"]), y)
    with pytest.raises(DataError, match="Expected a category below 2, as in training, got 9 - column 'b', row 1"):
        refusing.predict(pd.DataFrame([[0, 0], [0, 9]], columns=["a", "b"]))


def test_categories_of_all_batches_are_counted() -> None:
    """n_categories_ is that of all batches, where scikit-learn keeps that of the last."""
    fitted = CategoricalNB(min_categories=[2, 1]).partial_fit([[3, 0]], [0], classes=[0, 1])
    fitted.partial_fit([[0, 0]], [1])
    assert fitted.n_categories_.tolist() == [4, 1]
    assert [table.shape for table in fitted.feature_log_prob_] == [(2, 4), (2, 1)]
    with pytest.raises(ValueError, match=r"'min_categories' should have integral type\. Got float64 instead\."):
        CategoricalNB(min_categories=[1.5, 2.0]).fit([[0, 0]], [0])


@pytest.mark.parametrize("kind", [MultinomialNB, ComplementNB, CategoricalNB], ids=lambda kind: kind.__name__)
def test_a_negative_count_is_refused_at_prediction(kind: Any) -> None:
    """As at training, with scikit-learn's words."""
    X, y = rows()
    with pytest.raises(ValueError, match=rf"Negative values in data passed to {kind.__name__} \(input X\)"):
        kind().fit(X, y).predict(-1 - X)


def test_cells_that_are_not_binary_are_refused() -> None:
    """With binarize=None, 7 is neither there nor absent; scikit-learn counts it 7 times."""
    with pytest.raises(ValueError, match="Expected cells of 0 or 1 because of binarize=None, got 7"):
        BernoulliNB(binarize=None).fit([[0, 7], [1, 0]], [0, 1])
    assert BernoulliNB(binarize=None).fit([[0, 1], [1, 0]], [0, 1]).predict([[0, 1]]).tolist() == [0]


def test_float32_input_is_summed_in_64_bits() -> None:
    """Near 1e8 the variance of float32 rows is right, and so is what it predicts; shown in float32."""
    rng = np.random.default_rng(0)
    X = (1e8 + 64 * rng.integers(0, 8, (1000, 2))).astype(np.float32)
    y = np.arange(1000) % 2
    fitted = GaussianNB().fit(X, y)
    assert fitted.var_.dtype == fitted.theta_.dtype == fitted.class_prior_.dtype == np.float32
    exact = np.var(X[y == 0].astype(np.float64), axis=0)
    np.testing.assert_allclose(fitted.var_[0], exact, rtol=1e-6)
    np.testing.assert_allclose(fitted.state_.total.numeric.variance()[0], exact, rtol=1e-12)
    assert fitted.predict_proba(X).dtype == np.float64


def test_class_counts_go_past_two_to_the_24th() -> None:
    """One row more is one row more, where a float32 has none left."""
    X = np.array([[1.0], [2.0]], np.float32)
    fitted = GaussianNB().fit(X, [0, 1], sample_weight=[2.0**24, 1.0])
    for _ in range(3):
        fitted.partial_fit(X[:1], [0])
    assert fitted.class_count_.tolist() == [2.0**24 + 3, 1.0]


def test_a_negative_weight_is_refused() -> None:
    """Weights are at least 0."""
    X, y = rows()
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        GaussianNB().fit(X, y, sample_weight=-np.ones(len(y)))


def test_many_classes_are_no_warning() -> None:
    """scikit-learn warns of fifty classes that they look like a regression."""
    y = np.arange(200) % 50
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GaussianNB().partial_fit(y[:, None] + np.linspace(0, 1, 200)[:, None], y, classes=range(50))


def test_the_helper_that_scikit_learns_tests_call() -> None:
    """_update_mean_variance adds rows to a mean and variance."""
    X, _ = rows()
    weight = np.arange(1.0, 31.0)
    for some, n_past in ((None, 60), (weight, 60)):
        mean, variance = GaussianNB._update_mean_variance(n_past, X[:60].mean(0), X[:60].var(0), X[60:], some)
        each = np.concatenate([np.ones(60), np.ones(30) if some is None else some])
        np.testing.assert_allclose(mean, np.average(X, axis=0, weights=each))
        np.testing.assert_allclose(variance, np.average((X - mean) ** 2, axis=0, weights=each))


def test_squares_that_overflow() -> None:
    """In training they are an error that names the feature and counts nothing; in prediction the prior decides."""
    X, y = np.array([[1.0, 2.0], [2.0, 3.0], [4.0, 5.0]]), [0, 0, 1]
    fitted = GaussianNB().fit(pd.DataFrame(X, columns=["a", "b"]), y)
    before = fitted.state_
    huge = pd.DataFrame({"a": [0.0, 0.0], "b": [1e200, -1e200]})
    with pytest.raises(DataError, match="squared deviations fit in a float64, got an overflow - column 'b'"):
        fitted.partial_fit(huge, [0, 0])
    assert fitted.state_ == before
    np.testing.assert_allclose(fitted.predict_proba(huge), [[2 / 3, 1 / 3]] * 2)


def test_sums_that_overflow() -> None:
    """Counts beyond a float64 are an error that names the feature."""
    fitted = MultinomialNB().fit(pd.DataFrame({"a": [1e308, 1e308], "b": [1.0, 1.0]}), [0, 0])
    with pytest.raises(DataError, match="Expected counts whose sum fits in a float64, got an overflow"):
        fitted.predict(pd.DataFrame({"a": [1.0], "b": [1.0]}))


# State and predictor ------------------------------------------------------------------------------------------------

BLOCK = {
    GaussianNB: "numeric",
    MultinomialNB: "counts",
    ComplementNB: "counts",
    BernoulliNB: "binary",
    CategoricalNB: "categorical",
}
FAMILY: dict[Any, Any] = {
    GaussianNB: snb.Gaussian(),
    MultinomialNB: snb.Multinomial(),
    ComplementNB: snb.Complement(),
    BernoulliNB: snb.Bernoulli(),
    CategoricalNB: snb.Categorical(),
}


def counted(kind: Any, X: Any, y: Any, weight: Any = None) -> snb.State:
    """Return a state that has counted the same rows from a table."""
    options: dict[str, Any] = {BLOCK[kind]: ["x0", "x1", "x2", "x3"]}
    columns = {f"x{j}": X[:, j] for j in range(4)} | {"y": y}
    if kind is BernoulliNB:
        options["binarize"] = 0.0
    if weight is not None:
        options["weight"], columns["sample_weight"] = "sample_weight", weight
    state = snb.State(snb.Schema("y", **options))
    state.update(pa.table(columns))
    return state


@name_of
@pytest.mark.parametrize("weighted", [False, True])
def test_the_state_is_that_of_the_same_rows(kind: Any, weighted: bool) -> None:
    """state_ is what a State counts in a table of the same rows: equal schema, equal counts."""
    X, y = rows()
    X = np.minimum(X, 4)  # with larger numbers some category between others has no rows, which only state_ lists
    weight = np.random.default_rng(2).integers(0, 3, len(y)).astype(float) if weighted else None
    state, direct = kind().fit(X, y, weight).state_, counted(kind, X, y, weight)
    assert state.schema == direct.schema
    assert state.classes.equals(direct.classes)
    assert state.n_rows == direct.n_rows
    mine, theirs = state.total.arrays(), direct.total.arrays()
    assert list(mine) == list(theirs)
    for name, array in mine.items():
        if isinstance(array, np.ndarray) and name != "numeric.mean_tail":
            np.testing.assert_allclose(array, theirs[name], rtol=1e-12)
    assert snb.State.from_bytes(state.to_bytes()) == state


@name_of
def test_a_state_goes_on_as_an_estimator(kind: Any) -> None:
    """from_state gives the estimator of the same rows, which learns on."""
    X, y = rows()
    whole = kind().fit(X, y)
    resumed = kind.from_state(counted(kind, X[:40], y[:40]))
    assert not hasattr(resumed, "feature_names_in_")
    resumed.partial_fit(X[40:], y[40:])
    np.testing.assert_allclose(resumed.predict_joint_log_proba(X), whole.predict_joint_log_proba(X), rtol=1e-9)
    assert resumed.state_.schema == whole.state_.schema


def test_a_state_with_missing_cells_goes_on() -> None:
    """Cells that were missing stay missing: the estimator finishes to what the state finishes to."""
    table = pa.table(
        {
            "y": ["a", "a", "b", "b"],
            "u": [1.0, None, 5.0, 7.0],
            "v": [0.0, 3.0, None, 1.0],
        }
    )
    for kind in (GaussianNB, MultinomialNB, ComplementNB, BernoulliNB):
        options: dict[str, Any] = {BLOCK[kind]: ["u", "v"]}
        state = snb.State(snb.Schema("y", **options, **({"binarize": 2.0} if kind is BernoulliNB else {})))
        state.update(table)
        resumed = kind.from_state(state)
        assert resumed.state_ == state
        more = pd.DataFrame({"u": [1.5, 6.0], "v": [2.0, 2.5]})
        resumed.partial_fit(more, ["a", "b"])
        state.update(pa.table({"y": ["a", "b"], "u": more["u"], "v": more["v"]}))
        model = state.finish(**{BLOCK[kind]: FAMILY[kind]})
        np.testing.assert_allclose(
            resumed.predict_joint_log_proba(more), model.predict_joint_log_proba(pa.table(more)), rtol=1e-12
        )


def test_a_state_with_missing_cells_takes_in_classes() -> None:
    """A late class has its own cells present, beside the missing ones of before."""
    state = snb.State(snb.Schema("y", binary=["u", "v"]))
    state.update(pa.table({"y": ["a", "b"], "u": [1, None], "v": [0, 1]}))
    resumed = BernoulliNB.from_state(state, new_classes="learn")
    resumed.partial_fit(pd.DataFrame({"u": [1, 0], "v": [1, 0]}), ["aa", "b"])
    state.update(pa.table({"y": ["aa", "b"], "u": [1, 0], "v": [1, 0]}))
    assert resumed.state_ == state


def test_states_that_are_none_of_an_estimator() -> None:
    """from_state says what is in the way."""
    mixed = snb.State(snb.Schema("y", numeric=["a"], categorical=["b"]))
    with pytest.raises(SchemaError, match="Expected numeric columns only, got categorical column 'b'"):
        GaussianNB.from_state(mixed)
    with pytest.raises(EmptyStateError, match="Expected rows to go on from"):
        GaussianNB.from_state(snb.State(snb.Schema("y", numeric=["a"])))
    towns = snb.State(snb.Schema("y", categorical=["town"]))
    towns.update(pa.table({"y": [0, 1], "town": ["Ulm", "Bonn"]}))
    with pytest.raises(
        SchemaError, match=r"Expected categories 0, 1, 2, \.\.\., got values of type string - column 'town"
    ):
        CategoricalNB.from_state(towns)
    ones = snb.State(snb.Schema("y", binary=["a", "b"], binarize={"a": 1.0}))
    with pytest.raises(SchemaError, match="Expected one binarize threshold for all columns"):
        BernoulliNB.from_state(ones)
    with pytest.raises(SchemaError, match=r"Expected binarize=None, as the state was counted, got 1\.0"):
        BernoulliNB.from_state(snb.State(snb.Schema("y", binary=["a"])), binarize=1.0)


@name_of
@pytest.mark.parametrize("weighted", [False, True])
def test_merging_is_learning_all_rows(kind: Any, weighted: bool) -> None:
    """Estimators fitted apart, on other classes, merge to the one fitted on all rows; the other stays as it was."""
    X, y = rows()
    weight = np.where(np.arange(90) < 45, 1.0, 2.0) if weighted else None
    order = np.argsort(y, kind="stable")
    first, second = order[:45], order[45:]
    left = kind().fit(X[first], y[first])
    right = kind().fit(X[second], y[second], None if weight is None else np.full(45, 2.0))
    before = right.state_
    left.merge(right)
    assert right.state_ == before
    full = None if weight is None else np.where(np.isin(np.arange(90), second), 2.0, 1.0)
    whole = kind().fit(X, y, full)
    np.testing.assert_allclose(left.predict_joint_log_proba(X), whole.predict_joint_log_proba(X), rtol=1e-9)
    assert left.classes_.tolist() == [0, 1, 2]
    from_state = kind().fit(X[first], y[first]).merge(right.state_)
    np.testing.assert_array_equal(from_state.predict_proba(X), left.predict_proba(X))


def test_merging_aligns_columns_by_name() -> None:
    """Where both sides have names the order of columns does not matter; where one has none they stand as they are."""
    X, y = rows()
    frame = FRAMES["pandas"](X)
    whole = MultinomialNB().fit(frame, y)
    left, right = MultinomialNB().fit(frame[:40], y[:40]), MultinomialNB().fit(frame[list("dcba")][40:], y[40:])
    np.testing.assert_array_equal(left.merge(right).feature_count_, whole.feature_count_)
    unnamed = MultinomialNB().fit(X[40:], y[40:])
    np.testing.assert_array_equal(
        MultinomialNB().fit(frame[:40], y[:40]).merge(unnamed).feature_count_, whole.feature_count_
    )


def test_merges_that_do_not_add_up() -> None:
    """The message names the first difference, and nothing changes."""
    X, y = rows()
    fitted = MultinomialNB().fit(FRAMES["pandas"](X), y)
    before = fitted.state_
    with pytest.raises(MergeError, match="Expected a MultinomialNB or a State, got GaussianNB"):
        fitted.merge(GaussianNB().fit(X, y))
    with pytest.raises(MergeError, match="Expected 4 features on both sides, got 3"):
        fitted.merge(MultinomialNB().fit(X[:, :3], y))
    with pytest.raises(MergeError, match="Expected counts column 'd' in both states"):
        fitted.merge(MultinomialNB().fit(FRAMES["pandas"](X).rename(columns={"d": "e"}), y))
    with pytest.raises(MergeError, match="Expected values of type int64, got string"):
        fitted.merge(MultinomialNB().fit(X, y.astype(str)))
    with pytest.raises(ValueError, match="Number of priors must match number of classes"):
        MultinomialNB(class_prior=[0.5, 0.5]).fit(X[y < 2], y[y < 2]).merge(MultinomialNB().fit(X, y))
    with pytest.raises(MergeError, match="binarize"):
        BernoulliNB().fit(X, y).merge(BernoulliNB(binarize=1.0).fit(X, y))
    assert fitted.state_ == before


def test_names_of_a_state_make_room_for_those_of_features() -> None:
    """A feature named y leaves the label another name."""
    X, y = rows()
    table = pd.DataFrame(X, columns=["y", "y_", "sample_weight", "a"])
    schema = GaussianNB().fit(table, y, np.ones(len(y))).state_.schema
    assert (schema.label, schema.weight) == ("y__", "sample_weight_")


@name_of
def test_the_predictor_answers_as_the_estimator(kind: Any) -> None:
    """predictor_ gives the same probabilities and labels from a table."""
    X, y = rows()
    fitted = kind(**({} if kind is GaussianNB else {"alpha": 0.3})).fit(X, y)
    model, table = fitted.predictor_, pa.table({f"x{j}": X[:, j] for j in range(4)})
    np.testing.assert_allclose(model.predict_proba(table), fitted.predict_proba(X), rtol=1e-10)
    assert model.predict(table).to_pylist() == fitted.predict(X).tolist()
    assert snb.Predictor.from_bytes(model.to_bytes()) == model


# scikit-learn's models and back -------------------------------------------------------------------------------------


@name_of
@pytest.mark.parametrize("named", [False, True])
def test_there_and_back_with_equal_probabilities(kind: Any, named: bool) -> None:
    """A fitted model of scikit-learn becomes a predictor and a model of scikit-learn again; all answer alike."""
    X, y = rows()
    given_ = FRAMES["pandas"](X) if named else X
    labels = np.array(["low", "mid", "high"])[y]
    model = peer(kind)().fit(given_, labels)
    predictor = ours.from_sklearn(model)
    table = pa.table({name: X[:, j] for j, name in enumerate("abcd" if named else ["x0", "x1", "x2", "x3"])})
    np.testing.assert_allclose(predictor.predict_log_proba(table), model.predict_log_proba(given_), atol=1e-10)
    assert predictor.predict(table).to_pylist() == model.predict(given_).tolist()
    again = ours.to_sklearn(snb.Predictor.from_bytes(predictor.to_bytes()))
    assert type(again) is peer(kind)
    np.testing.assert_allclose(again.predict_log_proba(given_), model.predict_log_proba(given_), atol=1e-10)
    assert again.predict(given_).tolist() == model.predict(given_).tolist()
    assert hasattr(again, "feature_names_in_") == named


@name_of
def test_our_states_become_models_of_scikit_learn(kind: Any) -> None:
    """A state that was counted from tables, finished, answers as a model of scikit-learn."""
    X, y = rows()
    model = counted(kind, X, y).finish(**{BLOCK[kind]: FAMILY[kind]})
    written = ours.to_sklearn(model)
    table = pa.table({f"x{j}": X[:, j] for j in range(4)})
    np.testing.assert_allclose(written.predict_log_proba(X), model.predict_log_proba(table), atol=1e-10)
    assert ours.from_sklearn(kind().fit(X, y)).classes.equals(model.classes)


def test_smoothing_by_feature_is_carried() -> None:
    """An alpha per feature is carried both ways, whether given as a list or by name."""
    X, y = rows()
    model = upstream.MultinomialNB(alpha=np.array([1.0, 2.0, 0.5, 1.0])).fit(X, y)
    assert ours.to_sklearn(ours.from_sklearn(model)).alpha.tolist() == [1.0, 2.0, 0.5, 1.0]
    state = counted(MultinomialNB, X, y)
    by_name = state.finish(counts=snb.Multinomial({"x0": 1.0, "x1": 2.0, "x2": 0.5, "x3": 1.0}))
    assert ours.to_sklearn(by_name).alpha.tolist() == [1.0, 2.0, 0.5, 1.0]


def test_a_number_between_the_categories() -> None:
    """Where training skipped a category, the model of scikit-learn scores it as the predictor does."""
    state = snb.State(snb.Schema("y", categorical=["c"]))
    state.update(pa.table({"y": [0, 0, 1], "c": [0, 2, 2]}))
    for unseen in ("ignore", "smooth"):
        model = state.finish(categorical=snb.Categorical(unseen=unseen))  # type: ignore[arg-type]
        np.testing.assert_allclose(
            ours.to_sklearn(model).predict_proba(pd.DataFrame({"c": [0, 1, 2]})),
            model.predict_proba(pa.table({"c": [0, 1, 2]})),
        )
    with pytest.raises(ValueError, match="Expected categories without gaps for unseen='error' - column 'c'"):
        ours.to_sklearn(state.finish(categorical=snb.Categorical(unseen="error")))


def test_what_cannot_be_converted() -> None:
    """Both directions say what is in the way."""
    with pytest.raises(TypeError, match="Expected a fitted naive Bayes estimator of scikit-learn, got StandardScaler"):
        ours.from_sklearn(StandardScaler())
    with pytest.raises(NotFittedError):
        ours.from_sklearn(upstream.GaussianNB())
    flat = upstream.GaussianNB(var_smoothing=0.0).fit([[1.0], [1.0]], [0, 1])
    with pytest.raises(ValueError, match=r"Expected variances above 0, got 0\.0"):
        ours.from_sklearn(flat)
    with np.errstate(all="ignore"):
        empty = upstream.MultinomialNB(alpha=0.0).partial_fit([[1, 0], [0, 0]], [0, 1], classes=[0, 1])
    with pytest.raises(ValueError, match="Expected numbers in feature_log_prob_, got NaN"):
        ours.from_sklearn(empty)
    mixed = snb.State(snb.Schema("y", numeric=["a"], categorical=["b"]))
    mixed.update(pa.table({"y": [0, 1], "a": [1.0, 2.0], "b": ["u", "v"]}))
    with pytest.raises(SchemaError, match="Expected columns of one kind that scikit-learn knows, got numeric and cat"):
        ours.to_sklearn(mixed.finish())
    with pytest.raises(ValueError, match="Expected finite log probabilities, got infinite ones"):
        ours.to_sklearn(MultinomialNB(alpha=0.0).fit([[1, 0], [0, 1]], [0, 1]).predictor_)
    towns = snb.State(snb.Schema("y", categorical=["town"]))
    towns.update(pa.table({"y": [0, 1], "town": ["Ulm", "Bonn"]}))
    with pytest.raises(ValueError, match=r"Expected categories 0, 1, 2, \.\.\., got values of string - column 'town'"):
        ours.to_sklearn(towns.finish())
    ones = snb.State(snb.Schema("y", binary=["a", "b"], binarize={"a": 1.0}))
    ones.update(pa.table({"y": [0, 1], "a": [1.0, 2.0], "b": [0, 1]}))
    with pytest.raises(ValueError, match="Expected one binarize threshold for all columns"):
        ours.to_sklearn(ones.finish())
    absent = snb.State(snb.Schema("y", numeric=["a", "b"]))
    absent.update(pa.table({"y": [0, 1], "a": [1.0, 2.0], "b": pa.nulls(2, pa.float64())}))
    with pytest.raises(ValueError, match="Expected a value of each column in training"):
        ours.to_sklearn(absent.finish())
