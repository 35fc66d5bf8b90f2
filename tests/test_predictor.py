"""The predictor: priors, smoothing, odd inputs, and what it refuses, in which words."""

from __future__ import annotations

import math
import pickle
import re
import threading
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import streamnb as snb
from streamnb import statefile

X = snb.Schema(label="y", numeric=["x"])
FULL = snb.Schema(label="y", numeric=["x"], categorical=["c"], binary=["b"], counts=["m", "n"])
TABLE = pa.table(
    {
        "y": ["a", "b", "a", "a", "b", "c"],
        "x": [1.0, 2.0, None, 4.0, 8.0, 5.0],
        "c": ["u", None, "v", "u", "w", "u"],
        "b": [True, False, True, None, True, False],
        "m": [1, 2, 3, 0, 5, None],
        "n": [4, 0, 0, 2, 1, 1],
    }
)


def counted(schema: snb.Schema, *data: Any) -> snb.State:
    """Return the state that has counted some batches."""
    state = snb.State(schema)
    for each in data:
        state.update(each)
    return state


FULL_STATE = counted(FULL, TABLE)
MODEL = FULL_STATE.finish()


def labelled(values: Any, y: str, name: str = "x") -> pa.Table:
    """Return a table of one feature and its labels."""
    return pa.table({name: values, "y": list(y)})


# --- a few rows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unseen", ["ignore", "smooth"])
def test_few_rows_are_scored_as_many_are(unseen: str) -> None:
    """A few rows have a way of their own into a predictor: every type of column and value takes it to the same end."""
    generator = np.random.default_rng(0)
    n = 400
    holes = generator.random(n) < 0.2
    columns = {
        "i": pa.array(generator.integers(-5, 5, n), pa.int8(), mask=holes),
        "f": pa.array(generator.normal(size=n).astype(np.float32)),
        "d": pa.array([None if h else Decimal(int(k)).scaleb(-2) for h, k in zip(holes, range(n), strict=True)]),
        "x": pa.array(np.where(holes, np.nan, generator.normal(size=n))),
        "s": pa.array([None if h else "abcde"[k % 5] for h, k in zip(holes, range(n), strict=True)]),
        "v": pa.array([f"w{k % 7}" for k in range(n)]).dictionary_encode(),
        "k": pa.array(generator.integers(0, 9, n), pa.uint16()),
        "t": pa.array(generator.random(n) < 0.5, mask=holes),
        "b": pa.array(generator.random(n) < 0.5, mask=holes),
        "m": pa.array(generator.integers(0, 9, n)),
    }
    names = list(columns)
    schema = snb.Schema(label="y", numeric=names[:4], categorical=names[4:8], binary=["b"], counts=["m"])
    table = pa.table({"y": generator.integers(0, 3, n), **columns})
    model = counted(schema, table.slice(0, 200)).finish(categorical=snb.Categorical(unseen=unseen))
    for names in (schema.features, schema.features[::-1]):
        features = table.select(names)
        together = model.predict_joint_log_proba(features)
        each = [model.predict_joint_log_proba(features.slice(i, 1)) for i in range(n)]
        assert_allclose(np.concatenate(each), together, rtol=1e-12)
        labels = [model.predict(features.slice(i, 1))[0].as_py() for i in range(n)]
        assert labels == model.predict(features).to_pylist()


def test_few_rows_of_other_types_in_other_threads() -> None:
    """What one thread's rows are made of has no say in how another's are read."""
    doubles = pa.table({"a": [1.0], "b": [2.0]})
    decimals = pa.table({"a": [1.0], "b": pa.array([Decimal("2.00")], pa.decimal128(5, 2))})
    schema = snb.Schema(label="y", numeric=["a", "b"])
    model = counted(schema, pa.table({"y": ["u", "v"], "a": [1.0, 3.0], "b": [2.0, 5.0]})).finish()
    expected = model.predict_proba(doubles)
    wrong: list[Any] = []

    def ask(rows: pa.Table) -> None:
        try:
            wrong.extend(found for _ in range(300) if not np.array_equal(found := model.predict_proba(rows), expected))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(rows,)) for rows in (doubles, decimals) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_few_rows_are_refused_as_many_are() -> None:
    """An unseen category and an infinite number are errors in one row too."""
    strict = FULL_STATE.finish(categorical=snb.Categorical(unseen="error"))
    row = {"x": [1.0], "c": ["new"], "b": [True], "m": [1], "n": [1]}
    with pytest.raises(snb.DataError, match=r"seen in training, got 'new' - column 'c', row 0"):
        strict.predict(pa.table(row))
    with pytest.raises(snb.DataError, match=r"finite number, got inf - column 'x', row 0"):
        MODEL.predict(pa.table(row | {"x": [math.inf]}))


# --- priors -----------------------------------------------------------------------------------------------------------


def test_priors() -> None:
    """Empirical, smoothed, uniform and given priors, in the order of the classes."""
    assert_allclose(np.exp(MODEL.class_log_prior), [3 / 6, 2 / 6, 1 / 6], rtol=1e-15)
    smoothed = FULL_STATE.finish(prior_alpha=2.0)
    assert_allclose(np.exp(smoothed.class_log_prior), [5 / 12, 4 / 12, 3 / 12], rtol=1e-15)
    uniform = FULL_STATE.finish(class_prior="uniform")
    assert_allclose(np.exp(uniform.class_log_prior), [1 / 3] * 3, rtol=1e-15)
    given = FULL_STATE.finish(class_prior={"c": 0.2, "a": 0.8, "b": 0.0})
    assert given.class_log_prior.tolist() == [math.log(0.8), -math.inf, math.log(0.2)]
    assert "b" not in given.predict(TABLE).to_pylist()
    assert given.predict_proba(TABLE)[:, 1].tolist() == [0.0] * 6


def test_priors_of_weighted_rows() -> None:
    """With weights the empirical prior is that of the weights."""
    schema = snb.Schema(label="y", numeric=["x"], weight="w")
    state = counted(schema, pa.table({"y": ["a", "a", "b"], "x": [1.0, 2.0, 3.0], "w": [0.5, 0.5, 3.0]}))
    assert_allclose(np.exp(state.finish().class_log_prior), [1 / 4, 3 / 4], rtol=1e-15)
    assert_allclose(np.exp(state.finish(prior_alpha=1.0).class_log_prior), [2 / 6, 4 / 6], rtol=1e-15)


def test_priors_by_numpy_labels() -> None:
    """The keys of a given prior may be NumPy scalars, or the labels as Python has them."""
    state = counted(X, pa.table({"y": pa.array([1, 2], pa.int16()), "x": [1.0, 2.0]}))
    for keys in ((1, 2), tuple(np.array([1, 2], np.int16)), tuple(np.arange(1, 3))):
        model = state.finish(class_prior=dict(zip(keys, [0.3, 0.7], strict=True)), numeric=snb.Gaussian(epsilon=1.0))
        assert_allclose(np.exp(model.class_log_prior), [0.3, 0.7], rtol=1e-15)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"class_prior": {"a": 0.5, "b": 0.5}}, "Expected a class_prior for each class, got none for ['c']"),
        (
            {"class_prior": {"a": 0.4, "b": 0.3, "c": 0.2, "d": 0.1}},
            "Expected a class_prior for each class, got one for ['d'], which no row has",
        ),
        ({"class_prior": {1: 0.4, 2: 0.3, 3: 0.3}}, "got none for ['a', 'b', 'c']"),
        ({"class_prior": {"a": 0.5, "b": 0.5, "c": 0.5}}, "Expected class_prior to be at least 0 and to sum to 1, got"),
        ({"class_prior": {"a": 1.5, "b": -0.5, "c": 0.0}}, "to be at least 0 and to sum to 1, got [1.5, -0.5, 0.0]"),
        ({"class_prior": {"a": math.nan, "b": 0.5, "c": 0.5}}, "to be at least 0 and to sum to 1, got [nan, 0.5, 0.5]"),
        ({"class_prior": "flat"}, "Expected class_prior='empirical', 'uniform' or a mapping, got 'flat'"),
        ({"prior_alpha": -1.0}, "Expected prior_alpha to be at least 0, got -1.0"),
        ({"prior_alpha": math.nan}, "Expected prior_alpha to be at least 0, got nan"),
    ],
)
def test_priors_that_are_none(options: dict[str, Any], text: str) -> None:
    """A prior that leaves out or invents a label, or is no distribution, is refused."""
    with pytest.raises(ValueError, match=re.escape(text)):
        FULL_STATE.finish(**options)


def test_a_mapping_of_bools_is_not_one_of_integers() -> None:
    """Python takes True for 1; the labels' type decides."""
    state = counted(X, pa.table({"y": [0, 1], "x": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="Expected a class_prior for each class"):
        state.finish(class_prior={False: 0.5, True: 0.5})
    with pytest.raises(ValueError, match="Expected a class_prior for each class"):
        state.finish(class_prior={"0": 0.5, "1": 0.5})


# --- smoothing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: snb.Gaussian(var_smoothing=-1.0), "Expected var_smoothing to be at least 0, got -1.0"),
        (lambda: snb.Gaussian(epsilon=-1.0), "Expected epsilon to be at least 0, got -1.0"),
        (lambda: snb.Gaussian(var_smoothing=math.inf), "Expected var_smoothing to be at least 0, got inf"),
        (lambda: snb.Categorical(alpha=-0.1), "Expected alpha to be at least 0, got -0.1"),
        (lambda: snb.Categorical(unseen="drop"), "Expected unseen='ignore', 'smooth' or 'error', got 'drop'"),
        (lambda: snb.Categorical(min_categories=-1), "Expected min_categories to be at least 0, got -1"),
        (lambda: snb.Multinomial(alpha=-0.1), "Expected alpha to be at least 0, got -0.1"),
        (lambda: snb.Complement(alpha=[1.0, -2.0]), "Expected alpha to be at least 0, got -2.0"),
        (lambda: snb.Bernoulli(alpha=math.nan), "Expected alpha to be at least 0, got nan"),
        (lambda: snb.Bernoulli(alpha={"b": -3.0}), "Expected alpha to be at least 0, got -3.0"),
        (lambda: snb.Multinomial(alpha=[1.0, 2.0, 3.0]), "Expected one alpha or 2, one per column, got shape (3,)"),
        (lambda: snb.Multinomial(alpha=[[1.0, 2.0]]), "Expected one alpha or 2, one per column, got shape (1, 2)"),
        (lambda: snb.Complement(alpha={"m": 1.0}), "Expected alpha for each of ['m', 'n'], got it for ['m']"),
        (lambda: snb.Categorical(min_categories={"d": 3}), "Expected min_categories for categorical columns, got 'd'"),
    ],
)
def test_smoothing_that_is_none(make: Any, text: str) -> None:
    """Negative and endless smoothing, and a vector of the wrong length, are refused by name."""
    blocks = {"Gaussian": "numeric", "Categorical": "categorical", "Bernoulli": "binary"}

    def finish() -> None:
        family = make()
        FULL_STATE.finish(**{blocks.get(type(family).__name__, "counts"): family})

    with pytest.raises(ValueError, match=re.escape(text)):
        finish()


def test_a_variance_of_zero_names_its_column() -> None:
    """Without any smoothing a constant column is an error, not a division by zero."""
    schema = snb.Schema(label="y", numeric=["fine", "flat"])
    state = counted(schema, pa.table({"y": list("aabb"), "fine": [1.0, 2.0, 3.0, 5.0], "flat": [1.0, 2.0, 3.0, 3.0]}))
    with pytest.raises(snb.DataError, match=r"Expected a variance above 0, got 0 .* give epsilon= .* column 'flat'"):
        state.finish(numeric=snb.Gaussian(var_smoothing=0.0))
    assert np.isfinite(state.finish().predict_log_proba(pa.table({"fine": [1.0], "flat": [3.0]}))).all()
    constant = counted(X, labelled([7.0] * 4, "aabb"))
    with pytest.raises(snb.DataError, match="Expected a variance above 0, got 0"):
        constant.finish()
    model = constant.finish(numeric=snb.Gaussian(epsilon=1e-9))
    assert_allclose(model.predict_proba(pa.table({"x": [7.0, 8.0]})), 0.5, rtol=1e-9)


def test_tiny_variances() -> None:
    """Variances down to the smallest float give finite scores and the right label."""
    for scale in (1e-100, 1e-150, 1e-160, 5e-324):
        model = counted(X, labelled([0.0, scale, 3 * scale, 4 * scale], "aabb")).finish(
            numeric=snb.Gaussian(epsilon=5e-324)
        )
        log_proba = model.predict_log_proba(pa.table({"x": [0.0, 4 * scale]}))
        assert not np.isnan(log_proba).any()
        if scale > 1e-150:
            assert model.predict(pa.table({"x": [0.0, 4 * scale]})).to_pylist() == ["a", "b"]


def test_alpha_by_column() -> None:
    """A mapping and a list in the order of the schema are the same."""
    by_name = FULL_STATE.finish(counts=snb.Multinomial(alpha={"n": 0.25, "m": 4.0}))
    by_place = FULL_STATE.finish(counts=snb.Multinomial(alpha=[4.0, 0.25]))
    assert_allclose(by_name.predict_log_proba(TABLE), by_place.predict_log_proba(TABLE), rtol=1e-15)
    assert not np.allclose(by_name.predict_proba(TABLE), MODEL.predict_proba(TABLE))


def test_min_categories() -> None:
    """More categories than were seen, for all columns or by name; fewer change nothing."""
    schema = snb.Schema(label="y", categorical=["c", "d"])
    table = pa.table({"y": list("aab"), "c": ["u", "u", "v"], "d": ["s", "t", "t"]})
    state = counted(schema, table)

    def score(**options: Any) -> Any:
        return state.finish(categorical=snb.Categorical(**options)).predict_joint_log_proba(table)[0, 0]

    plain = math.log(2 / 3) + math.log(3 / 4) + math.log(2 / 4)
    assert_allclose(score(), plain, rtol=1e-12)
    assert_allclose(score(min_categories=2), plain, rtol=1e-12)
    assert_allclose(score(min_categories=5), math.log(2 / 3) + math.log(3 / 7) + math.log(2 / 7), rtol=1e-12)
    assert_allclose(score(min_categories={"d": 5}), math.log(2 / 3) + math.log(3 / 4) + math.log(2 / 7), rtol=1e-12)


# --- shapes of input --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        TABLE.slice(0, 0),
        TABLE.schema.empty_table(),
        TABLE.to_batches()[0].slice(0, 0),
        pa.Table.from_batches([], schema=TABLE.schema),
        pl.DataFrame(TABLE.slice(0, 0)),
        pa.RecordBatchReader.from_batches(TABLE.schema, []),
    ],
    ids=["slice", "empty table", "empty batch", "no batches", "Polars", "stream"],
)
def test_no_rows(data: Any) -> None:
    """Without rows there are no labels, of the right type, and no probabilities, of the right shape."""
    predicted = MODEL.predict(data)
    assert (predicted.type, len(predicted)) == (pa.string(), 0)
    if isinstance(data, pa.RecordBatchReader):
        return
    for method in (MODEL.predict_proba, MODEL.predict_log_proba, MODEL.predict_joint_log_proba):
        found = method(data)
        assert (found.shape, found.dtype) == ((0, 3), np.float64)


def test_many_rows_are_each_row() -> None:
    """Rows are scored in blocks; a row's score does not depend on where it stands."""
    n = 3 * 4096 + 11
    places = np.arange(n) % 6
    many = TABLE.take(pa.array(places))
    assert_allclose(MODEL.predict_log_proba(many), MODEL.predict_log_proba(TABLE)[places], rtol=1e-12)
    assert MODEL.predict(many).equals(MODEL.predict(TABLE).take(pa.array(places)))
    chunked = pa.concat_tables([many.slice(0, 5000), many.slice(5000, 1), many.slice(5001)])
    assert_allclose(MODEL.predict_log_proba(chunked), MODEL.predict_log_proba(many), rtol=1e-12)
    assert MODEL.predict_proba(many).flags.c_contiguous


def test_only_the_features_are_needed() -> None:
    """Label and weight need not be there, other columns may be, in any order and of other numeric types."""
    schema = snb.Schema(label="y", numeric=["x"], counts=["n"], weight="w")
    train = pa.table({"y": ["a", "b"], "x": [1.0, 3.0], "n": [1, 2], "w": [1.0, 1.0]})
    model = counted(schema, train).finish(numeric=snb.Gaussian(epsilon=1.0))
    expected = model.predict_proba(train)
    other = pa.table({"more": ["z", "z"], "n": pa.array([1.0, 2.0], pa.float32()), "x": pa.array([1, 3], pa.int8())})
    assert model.predict_proba(other).tolist() == expected.tolist()
    with pytest.raises(snb.SchemaError, match="Expected a column 'x', got none of that name"):
        model.predict(other.drop_columns("x"))
    with pytest.raises(snb.SchemaError, match="Expected a number for numeric column 'x', got string"):
        model.predict(pa.table({"x": ["1"], "n": [1]}))


def test_one_class() -> None:
    """With one class the probability is 1, whatever the row."""
    model = counted(FULL, TABLE.slice(0, 1)).finish(numeric=snb.Gaussian(epsilon=1.0))
    assert model.predict_proba(TABLE).tolist() == [[1.0]] * 6
    assert model.predict_log_proba(TABLE).tolist() == [[0.0]] * 6
    assert model.predict(TABLE).to_pylist() == ["a"] * 6
    far = pa.table({"x": [1e300], "c": ["never"], "b": [False], "m": [10**9], "n": [0]})
    assert model.predict_proba(far).tolist() == [[1.0]]


def test_a_row_without_cells_gets_the_prior() -> None:
    """All cells missing, of any type: what is left is the prior."""
    gone = pa.table({name: pa.nulls(2, TABLE.schema.field(name).type) for name in FULL.features})
    assert_allclose(MODEL.predict_proba(gone), [[1 / 2, 1 / 3, 1 / 6]] * 2, rtol=1e-12)
    untyped = pa.table({name: pa.nulls(2) for name in FULL.features})
    assert_allclose(MODEL.predict_proba(untyped), [[1 / 2, 1 / 3, 1 / 6]] * 2, rtol=1e-12)


@given(gone=st.sets(st.sampled_from(FULL.features)))
def test_a_missing_cell_is_left_out(gone: set[str]) -> None:
    """A row with missing cells scores what a model of the other columns says."""
    kept = {kind: [n for n in getattr(FULL, kind) if n not in gone] for kind in ("numeric", "categorical", "binary")}
    row = TABLE.slice(4, 1)
    blanked = pa.table({n: pa.nulls(1, row.schema.field(n).type) if n in gone else row[n] for n in FULL.features})
    expected = np.array(MODEL.class_log_prior)
    for kind, names in kept.items():
        for name in names:
            one = counted(snb.Schema(label="y", **{kind: [name]}), TABLE).finish(class_prior="uniform")
            expected = expected + one.predict_joint_log_proba(row)[0] + math.log(3)
    counts = counted(snb.Schema(label="y", counts=["m", "n"]), TABLE).finish(class_prior="uniform")
    zero = {n: pa.array([0]) if n in gone else row[n] for n in ("m", "n")}  # a count of 0 adds nothing
    expected = expected + counts.predict_joint_log_proba(pa.table(zero))[0] + math.log(3)
    assert_allclose(MODEL.predict_joint_log_proba(blanked)[0], expected, rtol=1e-12)


# --- categories at prediction -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("unseen", ["ignore", "smooth"])
def test_categories_of_another_numeric_type(unseen: Any) -> None:
    """2 and 2.0 are one category; 2.5 and "2" were never seen; each row by itself."""
    state = counted(snb.Schema(label="y", categorical=["c"]), labelled(pa.array([1, 2, 2, 3], pa.int8()), "aabb", "c"))
    model = state.finish(categorical=snb.Categorical(unseen=unseen))
    score = {value: model.predict_proba(pa.table({"c": [value]}))[0].tolist() for value in (1, 2, 3, 99)}
    for column in (
        pa.array([1.0, 2.0, 2.5, 3.0]),
        pa.array([1.0, 2.0, 2.5, 3.0], pa.float32()),
        pa.array([1, 2, 2**40, 3]),
        pa.array([1, 2, 77, 3], pa.uint64()),
        pa.array([1.0, 2.0, 1e300, 3.0]),
        pa.array([1.0, 2.0, math.inf, 3.0]),
        pa.array([1, 2, 77, 3]).dictionary_encode(),
        pa.array([Decimal("1.00"), Decimal("2.00"), Decimal("2.50"), Decimal("3.00")], pa.decimal128(5, 2)),
    ):
        found = model.predict_proba(pa.table({"c": column})).tolist()
        assert found == [score[1], score[2], score[99], score[3]], column.type
    for column in (pa.array(["1", "2"]), pa.array([True, False]), pa.array([b"1", b"2"])):
        assert model.predict_proba(pa.table({"c": column})).tolist() == [score[99]] * 2, column.type


def test_categories_of_floats_looked_up_by_integers() -> None:
    """A column that held fractions in training may come as integers, and as narrower floats."""
    state = counted(snb.Schema(label="y", categorical=["c"]), labelled([1.0, 2.5, 2.0, 1.0], "aabb", "c"))
    model = state.finish()
    expected = model.predict_proba(pa.table({"c": [1.0, 2.0, 7.0]})).tolist()
    for dtype in (pa.int8(), pa.uint64(), pa.float16(), pa.float32()):
        assert model.predict_proba(pa.table({"c": pa.array([1, 2, 7]).cast(dtype)})).tolist() == expected, dtype


def test_categories_that_no_float_holds() -> None:
    """Codes beyond 2^53 are found as integers, and by no float; small codes beside them are."""
    big = 2**60 + 1
    state = counted(snb.Schema(label="y", categorical=["c"]), labelled([5, 5, big, big], "aabb", "c"))
    model = state.finish()
    assert_allclose(model.predict_proba(pa.table({"c": [5, big, big - 1]}))[:, 0], [3 / 4, 1 / 4, 1 / 2], rtol=1e-12)
    floats = pa.array([5.0, float(big), float(2**60)])
    assert_allclose(model.predict_proba(pa.table({"c": floats}))[:, 0], [3 / 4, 1 / 2, 1 / 2], rtol=1e-12)
    unsigned = pa.array([5, big, 2**64 - 1], pa.uint64())
    assert_allclose(model.predict_proba(pa.table({"c": unsigned}))[:, 0], [3 / 4, 1 / 4, 1 / 2], rtol=1e-12)


def test_boolean_categories() -> None:
    """Booleans may be categories; an integer is not one of them."""
    state = counted(snb.Schema(label="y", categorical=["c"]), labelled([True, False, True, True], "aabb", "c"))
    model = state.finish()
    assert_allclose(model.predict_proba(pa.table({"c": [True, False, None]}))[:, 0], [2 / 5, 2 / 3, 1 / 2], rtol=1e-12)
    assert_allclose(model.predict_proba(pa.table({"c": [1, 0]})), 0.5, rtol=1e-12)


def test_an_unseen_category_that_is_an_error_names_its_row() -> None:
    """The row counts from the start of what was handed in."""
    model = FULL_STATE.finish(categorical=snb.Categorical(unseen="error"))
    many = pa.concat_tables([TABLE.take(pa.array(np.zeros(70_000, np.int64))), TABLE.slice(0, 1)])
    values = pa.chunked_array([pa.array(["u"] * 70_000), pa.array(["elsewhere"])])
    with pytest.raises(
        snb.DataError, match="Expected a category seen in training, got 'elsewhere' - column 'c', row 70000"
    ) as caught:
        model.predict(many.set_column(2, "c", values))
    assert (caught.value.column, caught.value.row) == ("c", 70_000)
    again = snb.Predictor.from_bytes(model.to_bytes())
    with pytest.raises(snb.DataError, match="got 'elsewhere'"):
        again.predict(many.set_column(2, "c", values))


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("x", math.inf, "Expected a finite number, got inf - column 'x', row 3"),
        ("x", -math.inf, "Expected a finite number, got -inf - column 'x', row 3"),
        ("b", 2.0, "Expected 0 or 1, got 2.0; binarize= gives a threshold - column 'b', row 3"),
        ("b", -1.0, "Expected 0 or 1, got -1.0; binarize= gives a threshold - column 'b', row 3"),
        ("m", -1.0, "Expected a count of at least 0, got -1.0 - column 'm', row 3"),
        ("n", -1.0, "Expected a count of at least 0, got -1.0 - column 'n', row 3"),
        ("n", math.inf, "Expected a finite number, got inf - column 'n', row 3"),
        ("n", -math.inf, "Expected a finite number, got -inf - column 'n', row 3"),
    ],
)
@pytest.mark.parametrize("with_nulls", [False, True])
def test_cells_that_cannot_be_scored(column: str, value: float, text: str, with_nulls: bool) -> None:
    """What training refuses, prediction refuses in the same words, with nulls beside it or not."""
    columns: dict[str, Any] = {"x": [1.0] * 5, "c": ["u"] * 5, "b": [1.0] * 5, "m": [1.0] * 5, "n": [1.0] * 5}
    columns[column] = [1.0, None if with_nulls else 0.0, 1.0, value, 1.0]
    with pytest.raises(snb.DataError, match=re.escape(text)):
        MODEL.predict(pa.table(columns))
    with pytest.raises(snb.DataError, match=re.escape(text)):
        MODEL.predict_proba(pa.table(columns))
    with pytest.raises(snb.DataError, match=re.escape(text)):
        snb.State(FULL).update(pa.table(columns | {"y": ["a"] * 5}))


def test_what_stands_under_a_null_does_not_matter() -> None:
    """Arrow leaves the bytes below a null open: infinity, NaN and negatives there are not looked at."""
    junk = [1.0, math.inf, math.nan, -7.0]
    mask = np.array([False, True, True, True])

    def under_null(values: list[float]) -> pa.Array:
        bits = pa.py_buffer(np.packbits(~mask, bitorder="little"))
        return pa.Array.from_buffers(pa.float64(), 4, [bits, pa.py_buffer(np.array(values))])

    for kind in ("numeric", "binary", "counts"):
        schema = snb.Schema(label="y", **{kind: ["x"]})
        dirty, clean = (
            pa.table({"y": list("aaab"), "x": column}) for column in (under_null(junk), under_null([1.0] + [0.0] * 3))
        )
        state = counted(schema, dirty)
        assert state.to_bytes() == counted(schema, clean).to_bytes()
        model = state.finish(numeric=snb.Gaussian(epsilon=1.0))
        assert model.predict_proba(dirty).tolist() == model.predict_proba(clean).tolist()


# --- frozen -----------------------------------------------------------------------------------------------------------


def test_a_predictor_is_frozen() -> None:
    """Its prior cannot be written to, it is compared by value and has no hash."""
    model = FULL_STATE.finish()
    with pytest.raises(ValueError, match="read-only"):
        model.class_log_prior[0] = 0.0
    assert model == FULL_STATE.finish()
    assert model != FULL_STATE.finish(prior_alpha=1.0)
    assert model != TABLE
    with pytest.raises(TypeError, match="unhashable"):
        hash(model)
    assert repr(model) == "<Predictor of 3 classes, 5 features>"


FAMILIES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "complement": {"counts": snb.Complement(alpha=[0.5, 2.0], norm=True)},
    "no smoothing": {
        "counts": snb.Multinomial(alpha=0.0),
        "binary": snb.Bernoulli(alpha=0.0),
        "categorical": snb.Categorical(alpha=0.0, unseen="smooth", min_categories={"c": 4}),
        "numeric": snb.Gaussian(epsilon=0.5),
    },
    "by name": {"counts": snb.Complement(alpha={"m": 0.5, "n": 2.0}), "class_prior": {"a": 0.5, "b": 0.5, "c": 0.0}},
    "strict": {"categorical": snb.Categorical(unseen="error")},
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_bytes_files_and_pickles(kind: str, tmp_path: Any) -> None:
    """A model comes back equal, scores equal to the bit, and knows what it was finished with."""
    model = FULL_STATE.finish(**FAMILIES[kind])
    model.save(tmp_path / "m.snb")
    for again in (
        snb.Predictor.from_bytes(model.to_bytes()),
        snb.Predictor.load(tmp_path / "m.snb"),
        snb.Predictor.load(str(tmp_path / "m.snb")),
        pickle.loads(pickle.dumps(model)),
    ):
        assert again == model
        assert again.to_bytes() == model.to_bytes()
        assert again.schema == model.schema
        assert again.families == model.families
        assert again.classes.equals(model.classes)
        assert np.array_equal(
            again.predict_joint_log_proba(TABLE), model.predict_joint_log_proba(TABLE), equal_nan=True
        )
        assert again.predict(TABLE).equals(model.predict(TABLE))


def test_families_are_recorded() -> None:
    """What each block was finished with is there as plain data; blocks without columns are left out."""
    assert MODEL.families["numeric"] == {"family": "Gaussian", "var_smoothing": 1e-9, "epsilon": None}
    assert MODEL.families["counts"] == {"family": "Multinomial", "alpha": 1.0}
    assert set(counted(X, labelled([1.0, 2.0], "ab")).finish().families) == {"numeric"}
    vector = FULL_STATE.finish(counts=snb.Multinomial(alpha=np.array([1.0, 2.0])))
    assert vector.families["counts"]["alpha"] == [1.0, 2.0]


def test_threads_share_a_predictor() -> None:
    """Scoring from several threads at once gives what one thread gives."""
    many = TABLE.take(pa.array(np.arange(20_000) % 6))
    expected = MODEL.predict_log_proba(many)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(MODEL.predict_log_proba(many))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(each, expected) for each in found)
    assert len(found) == 4


def changed(model: snb.Predictor, name: str, make: Any) -> bytes:
    """Return the file of a model with one array changed, and a fitting checksum."""
    contents = statefile.loads(model.to_bytes())
    contents.arrays[name] = make(contents.arrays[name])
    return statefile.dumps("predictor", contents.header, contents.arrays)


CONTRADICTIONS: dict[str, tuple[str, Any]] = {
    "fewer classes": ("classes", lambda array: array.slice(1)),
    "classes twice": ("classes", lambda array: pa.array(["a", "a", "b"])),
    "classes out of order": ("classes", lambda array: pa.array(["c", "b", "a"])),
    "a shorter prior": ("class_log_prior", lambda array: array[1:]),
    "a prior of NaN": ("class_log_prior", lambda array: array * math.nan),
    "fewer means": ("numeric.mean", lambda array: array[1:]),
    "a variance below zero": ("numeric.variance", lambda array: -array),
    "more scores": ("counts.score", lambda array: np.hstack([array, array])),
    "scores of NaN": ("counts.score", lambda array: array * math.nan),
    "fewer categories": ("categorical.0.values", lambda array: array.slice(1)),
    "categories twice": ("categorical.0.values", lambda array: pa.array(["u"] * len(array))),
    "fewer scores of unseen": ("categorical.0.unseen", lambda array: array[1:]),
    "fewer scores of absence": ("binary.absence", lambda array: array[1:]),
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_model_files_that_contradict_themselves(kind: str) -> None:
    """A file whose arrays do not go together is refused, though its checksum fits."""
    name, make = CONTRADICTIONS[kind]
    with pytest.raises(snb.FileFormatError, match="Expected a model file, got one that contradicts itself"):
        snb.Predictor.from_bytes(changed(MODEL, name, make))
