"""Explanations: contributions that add up to the score, and the features that speak most for a class."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import SCHEMA, batches, states

import streamnb as snb
from streamnb.explain import EMPTY_DOCUMENT, explain
from streamnb.topfeatures import top_features

MIXED = snb.Schema(label="y", numeric=["x"], categorical=["site"], binary=["scent"], counts=["bee", "fly"])
ROWS = pa.table(
    {
        "y": ["a", "a", "a", "b", "b", "c", "c"],
        "x": [1.0, 3.0, 2.0, 10.0, 14.0, 3.0, 5.0],
        "site": ["north", "north", "south", "south", "south", "east", None],
        "scent": [True, False, True, False, False, True, None],
        "bee": [2, 0, 1, 0, 1, 5, 9],
        "fly": [0, 1, 0, 4, 3, None, 1],
    }
)


def counted(schema: snb.Schema = MIXED, rows: pa.Table = ROWS) -> snb.State:
    """Return the state of these rows."""
    state = snb.State(schema)
    state.update(rows)
    return state


def of_row(found: pa.Table, row: int) -> list[dict[str, Any]]:
    """Return the entries of one row."""
    return found.filter(pc.equal(found["row"], row)).to_pylist()


def assert_adds_up(model: snb.Predictor, data: Any, label: Any = None, against: Any = None) -> pa.Table:
    """Hold each row's contributions to the difference of its two joint log probabilities; return the table."""
    found = explain(model, data, label, against)
    joint = model.predict_joint_log_proba(data)
    labels = model.classes.to_pylist()
    sides = {key: found[key].to_pylist() for key in ("for", "against")}
    contribution, row = found["contribution"].to_numpy(), found["row"].to_numpy()
    for i in range(len(joint)):
        first, stop = np.searchsorted(row, [i, i + 1])
        pro, con = (set(side[first:stop]) for side in sides.values())
        assert len(pro) == len(con) == 1
        wanted, versus = (joint[i, labels.index(*each)] for each in (pro, con))
        size = max(abs(wanted), abs(versus), 1.0)
        assert math.fsum(contribution[first:stop]) == pytest.approx(wanted - versus, abs=1e-9 * size)
    return found


FAMILIES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "complement": {"counts": snb.Complement(), "class_prior": "uniform"},
    "complement, norm": {"counts": snb.Complement(0.1, norm=True), "numeric": snb.Gaussian(epsilon=1e-3)},
    "smooth": {"categorical": snb.Categorical(0.5, unseen="smooth"), "binary": snb.Bernoulli(0.01)},
}


@pytest.mark.parametrize("families", FAMILIES.values(), ids=FAMILIES)
@given(state=states(), batch=batches(), data=st.data())
def test_contributions_add_up(families: dict[str, Any], state: snb.State, batch: pa.RecordBatch, data: Any) -> None:
    """For every family, in every mixture and with missing cells, they sum to the difference of the joint scores."""
    assume(len(state.classes) > 1)
    model = state.finish(**{"numeric": snb.Gaussian(epsilon=0.5), **families})
    found = assert_adds_up(model, batch)
    assert found.num_rows == batch.num_rows * (1 + len(SCHEMA.features))
    for which in (0, -1):
        chosen = data.draw(st.permutations(model.classes.to_pylist()))[:2]
        assert_adds_up(model, batch, *chosen)
        assert_adds_up(model, batch, label=chosen[which])
        assert_adds_up(model, batch, against=chosen[which])


def test_the_pair_is_the_best_against_the_second_best() -> None:
    """Without labels each row explains its own answer, against the class that comes next."""
    model = counted().finish()
    found = explain(model, ROWS)
    joint = model.predict_joint_log_proba(ROWS)
    order = np.argsort(-joint, axis=1)
    labels = model.classes.to_pylist()
    for i in range(len(joint)):
        entry = of_row(found, i)[0]
        assert [entry["for"], entry["against"]] == [labels[c] for c in order[i, :2]]


def test_one_label_is_compared_with_the_best_of_the_others() -> None:
    """A label alone is held against the best other class, and an opponent alone against the best other class."""
    model = counted().finish()
    joint = model.predict_joint_log_proba(ROWS)
    rest = ["a" if a > c else "c" for a, _, c in joint]
    first = [of_row(explain(model, ROWS, "b"), i)[0] for i in range(len(rest))]
    assert [(entry["for"], entry["against"]) for entry in first] == [("b", each) for each in rest]
    first = [of_row(explain(model, ROWS, against="b"), i)[0] for i in range(len(rest))]
    assert [(entry["for"], entry["against"]) for entry in first] == [(each, "b") for each in rest]


def test_each_contribution_by_hand() -> None:
    """Every kind of column contributes its own log odds, the present 0 of a binary column as well."""
    rows = pa.table({"x": [4.0], "site": ["south"], "scent": [False], "bee": [2], "fly": [0]})
    model = counted().finish(numeric=snb.Gaussian(epsilon=1.0))
    found = {entry["feature"]: entry for entry in of_row(explain(model, rows, "a", "b"), 0)}
    assert {name: entry["value"] for name, entry in found.items()} == {
        None: None,
        "x": "4.0",
        "site": "south",
        "scent": "0",
        "bee": "2",
        "fly": "0",
    }

    def density(mean: float, variance: float) -> float:
        return -0.5 * math.log(variance) - 0.5 * (4.0 - mean) ** 2 / variance

    expected = {
        None: math.log(3 / 7) - math.log(2 / 7),
        "x": density(2.0, 2 / 3 + 1) - density(12.0, 4.0 + 1),
        "site": math.log(2 / 6) - math.log(3 / 5),
        "scent": math.log(2 / 5) - math.log(3 / 4),
        "bee": 2 * (math.log(4 / 6) - math.log(2 / 10)),
        "fly": 0.0,
    }
    for name, value in expected.items():
        assert found[name]["contribution"] == pytest.approx(value, rel=1e-12)


def test_the_table_is_tidy() -> None:
    """Rows stand in order, in each the prior first and then by weight; types are those of the documentation."""
    model = counted().finish()
    found = model.explain(ROWS)
    assert found.schema == pa.schema(
        [
            ("row", pa.int64()),
            ("block", pa.string()),
            ("feature", pa.string()),
            ("value", pa.string()),
            ("contribution", pa.float64()),
            ("for", pa.string()),
            ("against", pa.string()),
        ]
    )
    assert found["row"].to_pylist() == sorted(found["row"].to_pylist())
    for i in range(ROWS.num_rows):
        prior, *rest = of_row(found, i)
        assert (prior["block"], prior["feature"], prior["value"]) == ("prior", None, None)
        weights = [abs(entry["contribution"]) for entry in rest]
        assert weights == sorted(weights, reverse=True)
        assert {entry["feature"] for entry in rest} == set(MIXED.features)


def test_missing_cells_contribute_nothing() -> None:
    """Nulls and NaN have no value and no weight; a category that training never saw has a value and no weight."""
    rows = pa.table({"x": [math.nan], "site": ["west"], "scent": pa.nulls(1), "bee": pa.nulls(1), "fly": [None]})
    found = of_row(explain(counted().finish(), rows), 0)
    assert {entry["feature"]: entry["value"] for entry in found} == {
        None: None,
        "x": None,
        "site": "west",
        "scent": None,
        "bee": None,
        "fly": None,
    }
    assert [entry["contribution"] for entry in found[1:]] == [0.0] * 5


def test_a_row_is_a_mapping() -> None:
    """One row may be given as a mapping from column to value."""
    row = {"x": 2.0, "site": "north", "scent": None, "bee": 1, "fly": 0}
    model = counted().finish()
    assert model.explain(row).equals(model.explain(pa.RecordBatch.from_pylist([row])))


def test_rows_are_counted_through_the_batches() -> None:
    """Rows are numbered over the whole of the data, however it is cut, and so are those of errors."""
    model = counted().finish()
    many = pa.concat_tables([ROWS] * 400).combine_chunks()
    found = explain(model, many)
    assert found["row"].to_pylist() == [i for i in range(2800) for _ in range(6)]
    again = explain(model, pa.Table.from_batches(many.to_batches(max_chunksize=97)))
    assert again.equals(found)
    bad = pa.concat_tables([many, ROWS.set_column(4, "bee", pa.array([0, 0, -1, 0, 0, 0, 0]))])
    with pytest.raises(snb.DataError, match=r"at least 0, got -1\.0 - column 'bee', row 2802"):
        explain(model, bad)


def test_no_rows_give_an_empty_table() -> None:
    """An empty batch has the same columns and no rows."""
    model = counted().finish()
    found = explain(model, ROWS.slice(0, 0))
    assert found.num_rows == 0
    assert found.schema == explain(model, ROWS).schema


def test_a_complement_block_alone_takes_no_prior() -> None:
    """Where the model leaves the prior out, it contributes 0; the rest still adds up."""
    schema = snb.Schema(label="y", counts=["bee", "fly"])
    model = counted(schema).finish(counts=snb.Complement())
    found = assert_adds_up(model, ROWS)
    assert of_row(found, 0)[0]["contribution"] == 0.0


def test_without_smoothing_what_is_impossible_is_infinite() -> None:
    """What only one of two classes can have is infinite; what neither can have tells nothing."""
    schema = snb.Schema(label="y", categorical=["site"])
    model = counted(schema).finish(categorical=snb.Categorical(alpha=0.0))
    north, east = (of_row(explain(model, {"site": site}, "a", "b"), 0)[1] for site in ("north", "east"))
    assert north["contribution"] == math.inf
    assert east["contribution"] == 0.0


def test_classes_impossible_beforehand_are_compared_last() -> None:
    """A row that no class can have is decided by the prior, and so is the class it is compared with."""
    schema = snb.Schema(label="y", categorical=["site"])
    rows = pa.table({"y": ["a", "a", "b"], "site": ["n", "s", "s"]})
    state = snb.State(schema)
    state.update(rows)
    model = state.finish(categorical=snb.Categorical(alpha=0.0), class_prior={"a": 0.0, "b": 1.0})
    entry = of_row(explain(model, {"site": "n"}), 0)[0]
    assert (entry["for"], entry["against"]) == ("b", "a")


def test_a_huge_value_is_impossible_under_every_class() -> None:
    """A value whose square overflows contributes no NaN."""
    found = of_row(explain(counted().finish(), {"x": 1e300, "site": None, "scent": None, "bee": 0, "fly": 0}), 0)
    assert not any(math.isnan(entry["contribution"]) for entry in found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "d"}, r"Expected a class of the model for label= \(one of a, b, c\), got 'd'"),
        ({"against": 1}, r"Expected a class of the model for against= \(one of a, b, c\), got 1"),
        ({"label": "a", "against": "a"}, r"Expected two classes to compare, got 'a' twice"),
    ],
)
def test_wrong_labels_are_refused(options: dict[str, Any], message: str) -> None:
    """A label that the model does not know is named, with those that it knows."""
    with pytest.raises(ValueError, match=message):
        explain(counted().finish(), ROWS, **options)


def test_labels_of_other_types_stand_in_the_table() -> None:
    """Classes keep their type, and may be given as Arrow or NumPy scalars."""
    schema = snb.Schema(label="y", numeric=["x"])
    state = snb.State(schema)
    state.update(pa.table({"y": pa.array([1, 1, 2], pa.int16()), "x": [0.0, 1.0, 5.0]}))
    model = state.finish()
    found = explain(model, {"x": 1.0}, np.int16(2), pa.scalar(1))
    assert found.schema.field("for").type == pa.int16()
    assert set(found["for"].to_pylist()) == {2}
    assert top_features(model, 2)["against"].type == pa.int16()


def test_one_class_has_nothing_to_be_compared_with() -> None:
    """A model of one class is refused, by both functions."""
    state = snb.State(snb.Schema(label="y", numeric=["x"]))
    state.update(pa.table({"y": ["a", "a"], "x": [1.0, 2.0]}))
    for ask in (lambda model: model.explain({"x": 1.0}), lambda model: model.top_features("a")):
        with pytest.raises(ValueError, match="Expected a model of two classes or more to compare, got 1"):
            ask(state.finish())


# --- top features ---


@pytest.mark.parametrize("families", FAMILIES.values(), ids=FAMILIES)
def test_top_features_say_what_explain_says(families: dict[str, Any]) -> None:
    """Each pair's log odds are the least that a row with this cell contributes against any other class."""
    model = counted().finish(**families)
    for label in model.classes.to_pylist():
        others = [other for other in model.classes.to_pylist() if other != label]
        found = model.top_features(label, 100)
        assert found.num_rows > 0
        for pair in found.to_pylist():
            # The mean that is shown is rounded; one unit, one category and one flag are exact.
            numeric = pair["block"] == "numeric"
            value = pair["value"] if pair["block"] == "categorical" else float(pair["value"])
            row = {"x": None, "site": None, "scent": None, "bee": None, "fly": None, pair["feature"]: value}
            said = {
                other: next(
                    entry["contribution"]
                    for entry in of_row(explain(model, row, label, other), 0)
                    if entry["feature"] == pair["feature"]
                )
                for other in others
            }
            assert pair["log_odds"] == pytest.approx(min(said.values()), rel=1e-4 if numeric else 1e-12)
            assert said[pair["against"]] == min(said.values())


def test_top_features_stand_in_order_and_favour_the_class() -> None:
    """The most telling pair comes first, none speaks against the class, and `n` cuts the list."""
    model = counted().finish()
    found = model.top_features("a", 100)
    odds = found["log_odds"].to_pylist()
    assert odds == sorted(odds, reverse=True)
    assert min(odds) > 0
    assert model.top_features("a", 2).equals(found.slice(0, 2).combine_chunks())
    assert model.top_features("a", 0).num_rows == 0
    assert found.schema == model.top_features("a", 0).schema


def test_separation_tells_the_direction() -> None:
    """A numeric pair is the class's own mean, with its distance from the other's in that one's deviations."""
    schema = snb.Schema(label="y", numeric=["x"])
    model = counted(schema).finish(numeric=snb.Gaussian(epsilon=1.0))
    (pair,) = model.top_features("b").to_pylist()
    assert (pair["feature"], pair["value"], pair["against"]) == ("x", "12", "c")
    assert pair["separation"] == pytest.approx((12.0 - 4.0) / math.sqrt(2.0), rel=1e-12)
    expected = pair["separation"] ** 2 / 2 + math.log(math.sqrt(2.0) / math.sqrt(5.0))
    assert pair["log_odds"] == pytest.approx(expected, rel=1e-12)
    (below,) = model.top_features("a").to_pylist()
    assert below["separation"] < 0


def test_absence_may_speak_for_a_class() -> None:
    """A binary column that a class never has is a pair with the value 0."""
    model = counted(snb.Schema(label="y", binary=["scent"])).finish()
    (pair,) = model.top_features("b").to_pylist()
    assert (pair["block"], pair["feature"], pair["value"], pair["separation"]) == ("binary", "scent", "0", None)


def test_top_features_refuse_wrong_questions() -> None:
    """An unknown label offers the near misses, a negative number is refused."""
    state = snb.State(snb.Schema(label="y", numeric=["x"]))
    state.update(pa.table({"y": ["tulip", "rose"], "x": [1.0, 2.0]}))
    model = state.finish()
    with pytest.raises(ValueError, match=r"for label= \(one of rose, tulip\), got 'tulp'; did you mean 'tulip'\?"):
        model.top_features("tulp")
    with pytest.raises(ValueError, match="for label=, got None"):
        model.top_features(None)
    with pytest.raises(ValueError, match="Expected n to be at least 0, got -1"):
        model.top_features("tulip", -1)


# --- text ---

TEXTS = snb.Schema(
    label="y",
    numeric=["x"],
    text=[
        snb.Text("body", document_frequency=True),
        snb.Text("words", normalize="l2", sublinear=True, document_frequency=True),
        snb.Text("sparse", buckets=4, document_frequency=True),
    ],
)
TEXT_FAMILIES: dict[str, Any] = {
    "multinomial": snb.Multinomial(),
    "multinomial, idf": snb.Multinomial(0.1, idf=True),
    "complement": snb.Complement(),
    "complement, norm, idf": snb.Complement(0.5, norm=True, idf=True),
    "bernoulli": snb.Bernoulli(0.5),
    "pruned": snb.Multinomial(min_count=2, max_tokens=3),
}
WORDS = st.sampled_from(["free", "money", "noon", "été", "今日"])


@st.composite
def documents(draw: st.DrawFn, labels: bool = True) -> pa.Table:
    """Draw rows with documents, lists of tokens and sparse counts; some empty, some missing."""
    rows = draw(st.integers(0, 6))

    def column(cell: st.SearchStrategy[Any], dtype: pa.DataType) -> pa.Array:
        return pa.array(draw(st.lists(st.none() | cell, min_size=rows, max_size=rows)), dtype)

    words = st.lists(WORDS, max_size=5)
    counts = st.dictionaries(WORDS, st.integers(1, 3), max_size=3).map(lambda each: list(each.items()))
    columns = {
        "x": column(st.sampled_from([0.0, 1.5, -2.0]), pa.float64()),
        "body": column(words.map(" ".join), pa.string()),
        "words": column(words, pa.list_(pa.string())),
        "sparse": column(counts, pa.map_(pa.string(), pa.int64())),
    }
    return pa.table({"y": pa.array([*"abc"] * rows, pa.string()).slice(0, rows), **columns} if labels else columns)


@pytest.mark.parametrize("family", TEXT_FAMILIES.values(), ids=TEXT_FAMILIES)
@given(parts=st.lists(documents(), max_size=3), rows=documents(labels=False))
def test_contributions_of_tokens_add_up(family: Any, parts: list[pa.Table], rows: pa.Table) -> None:
    """Over text as well they sum to the difference of the scores: tokens, counts, buckets, empty and null documents."""
    state = snb.State(TEXTS)
    for part in parts:
        state.update(part)
    assume(len(state.classes) > 1)
    model = state.finish(numeric=snb.Gaussian(epsilon=1.0), text=family)
    assert_adds_up(model, rows)
    assert_adds_up(model, rows, "b")


MAIL = pa.table(
    {
        "y": ["spam", "spam", "ham", "ham"],
        "body": ["Free money, now: free!", "cash now", "meeting at noon", "money for the meeting"],
    }
)


def mail(family: Any = None) -> snb.Predictor:
    """Return a model of four short mails."""
    state = counted(snb.Schema(label="y", text=[snb.Text("body", document_frequency=True)]), MAIL)
    return state.finish() if family is None else state.finish(text=family)


def test_each_token_is_one_entry() -> None:
    """A token that stands twice counts twice in one entry; one that training never saw has none."""
    model = mail()
    prior, *tokens = of_row(explain(model, {"body": "free FREE unheard money"}, "spam", "ham"), 0)
    assert prior["contribution"] == 0.0
    assert [(entry["block"], entry["feature"], entry["value"]) for entry in tokens] == [
        ("text", "body", "free"),
        ("text", "body", "money"),
    ]
    # 6 tokens of spam and 7 of ham, 9 distinct; each with 1 more.
    assert tokens[0]["contribution"] == pytest.approx(2 * (math.log(3 / 15) - math.log(1 / 16)), rel=1e-12)
    assert tokens[1]["contribution"] == pytest.approx(math.log(2 / 15) - math.log(2 / 16), rel=1e-12)


def test_documents_without_tokens() -> None:
    """An empty document says nothing, a null one is a missing cell; to Bernoulli an empty one is an entry."""
    rows = pa.table({"body": ["", None]})
    empty, null = (of_row(explain(mail(), rows), i) for i in (0, 1))
    assert [entry["block"] for entry in empty] == ["prior"]
    assert [(entry["value"], entry["contribution"]) for entry in null] == [(None, 0.0)] * 2
    empty, null = (of_row(explain(mail(snb.Bernoulli()), rows, "spam"), i) for i in (0, 1))
    assert [entry["value"] for entry in empty] == [None, EMPTY_DOCUMENT]
    assert empty[1]["contribution"] != 0.0
    assert [entry["value"] for entry in null] == [None, None]


@pytest.mark.parametrize("family", TEXT_FAMILIES.values(), ids=TEXT_FAMILIES)
def test_top_tokens_say_what_explain_says(family: Any) -> None:
    """A token's log odds are what a document of this one token adds."""
    model = mail(family)
    for label, other in (("spam", "ham"), ("ham", "spam")):
        found = model.top_features(label).to_pylist()
        assert found
        for pair in found:
            assert (pair["block"], pair["feature"], pair["against"]) == ("text", "body", other)
            (said,) = (
                entry["contribution"]
                for entry in of_row(explain(model, {"body": pair["value"]}, label), 0)
                if entry["value"] == pair["value"]
            )
            assert said == pytest.approx(pair["log_odds"], rel=1e-12)


def test_top_tokens_of_many_classes() -> None:
    """Of many classes each token of a class is held against the one that it fits best among the others."""
    rows = pa.table({"y": [f"c{i % 40:02}" for i in range(400)], "body": [f"t{i % 90} t{i % 7}" for i in range(400)]})
    model = counted(snb.Schema(label="y", text=["body"]), rows).finish(text=snb.Complement())
    (lexicon, scores) = model.text["body"]
    every = scores.units(np.arange(len(lexicon)))
    tokens = [body.split() for body in rows["body"].to_pylist()]
    for c in (0, 17, 39):
        met = {token for row in tokens[c::40] for token in row}
        found = model.top_features(f"c{c:02}", 1000).to_pylist()
        others = np.delete(every, c, axis=0)
        odds = every[c] - others.max(axis=0)
        assert {pair["value"]: pair["log_odds"] for pair in found} == {
            name: pytest.approx(value, rel=1e-9)
            for name, value in zip(lexicon.names.to_pylist(), odds, strict=True)
            if value > 0 and name in met
        }
