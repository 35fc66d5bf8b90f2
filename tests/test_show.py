"""What `describe` says of states and models, checked against plain arithmetic; and how it reads."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import mutual_info_score

from streamnb.families import Categorical, Complement
from streamnb.schema import Schema
from streamnb.show import describe, telling
from streamnb.showtext import printable, text
from streamnb.state import State

MIXED = Schema(label="y", numeric=["x"], categorical=["site"], binary=["scent"], counts=["bee", "fly"])


def counted(schema: Schema = MIXED, **columns: Any) -> State:
    """Return a state of these columns."""
    state = State(schema)
    state.update(pa.table(columns))
    return state


@pytest.fixture
def mixed() -> State:
    """Five rows of two classes, one of them without a label, with a missing cell of each kind."""
    return counted(
        y=["a", "a", "b", "b", None],
        x=[1.0, 3.0, 10.0, None, 0.0],
        site=["north", "south", "north", None, "east"],
        scent=[True, False, True, None, True],
        bee=[2, 0, 1, None, 9],
        fly=[0, 0, 3, 4, 9],
    )


# --- a state ---


def test_rows_classes_and_priors(mixed: State) -> None:
    """Rows, rows without a label, and each class with its rows and share are told."""
    found = describe(mixed)
    assert (found["kind"], found["rows"], found["rows_without_label"], found["shards"]) == ("state", 4, 1, 0)
    assert found["label"] == {"column": "y", "type": "string"}
    assert found["classes"] == [{"class": "a", "rows": 2, "prior": 0.5}, {"class": "b", "rows": 2, "prior": 0.5}]
    assert found["weight"] is None


def test_columns_of_a_state_by_kind(mixed: State) -> None:
    """Every column has its kind, its missing cells, and what its kind keeps, per class."""
    x, site, scent, bee, fly = describe(mixed)["columns"]
    assert x == {
        "name": "x",
        "kind": "numeric",
        "missing": 1,
        "missing_share": 0.25,
        "means": [2.0, 10.0],
        "standard_deviations": [1.0, 0.0],
    }
    assert (site["categories"], site["missing"]) == (2, 1)
    assert site["top"][0] == {"category": "north", "count": 2, "share": 2 / 3, "shares": [0.5, 1.0]}
    assert (scent["shares_of_ones"], scent["missing_share"]) == ([0.5, 1.0], 0.25)
    assert (bee["totals"], fly["totals"], fly["missing"]) == ([2.0, 1.0], [0.0, 7.0], 0)


def test_top_limits_categories_and_features(mixed: State) -> None:
    """`top` cuts the categories of a column and the list of features, and nothing else."""
    found = describe(mixed, top=1)
    assert len(found["columns"][1]["top"]) == len(found["telling"]) == 1
    assert len(found["columns"]) == 5
    assert describe(mixed, top=0)["telling"] == []


def test_weights_are_told() -> None:
    """With weights, classes have theirs, priors follow it, and missing categories are a share of weight."""
    schema = Schema(label="y", categorical=["site"], weight="w")
    found = describe(counted(schema, y=["a", "b", "b"], site=["n", None, "s"], w=[2.0, 1.0, 1.0]))
    assert found["weight"] == {"column": "w", "sum": 4.0}
    assert [each["weight"] for each in found["classes"]] == [2.0, 2.0]
    assert [each["prior"] for each in found["classes"]] == [0.5, 0.5]
    assert (found["columns"][0]["missing"], found["columns"][0]["missing_share"]) == (None, 0.25)
    assert "25.0%" in text(describe(counted(schema, y=["a"] * 4, site=["n", "n", "n", None], w=[1.0] * 4)))


def test_an_empty_state_is_shown() -> None:
    """A state without rows has no classes, no shares and nothing to tell, and is no error."""
    found = describe(State(MIXED))
    assert (found["rows"], found["classes"]) == (0, [])
    assert all(each["bits"] == 0.0 for each in found["telling"])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert text(found, terminal=False).startswith("A state: 0 rows, 0 classes, 5 feature columns")


@pytest.mark.parametrize(
    "labels", [[1, 2], [True, False], [1.5, 2.5], pa.array([1, 2], pa.date32()), [b"a", b"b"]], ids=str
)
def test_labels_of_any_type_become_json(labels: Any) -> None:
    """Labels that JSON lacks become text; numbers and booleans stay what they are."""
    schema = Schema(label="y", numeric=["x"])
    state = counted(schema, y=labels, x=[1.0, 2.0])
    for shown in (state, state.finish()):
        found = describe(shown)
        assert json.loads(json.dumps(found, allow_nan=False)) == found
        assert text(found, terminal=False)
    if isinstance(labels, list) and not isinstance(labels[0], bytes):
        assert [each["class"] for each in found["classes"]] == sorted(labels)


def test_only_states_and_predictors_are_described() -> None:
    """Anything else is refused by name."""
    with pytest.raises(TypeError, match="Expected a State or a Predictor, got dict"):
        describe({})  # type: ignore[arg-type]


# --- what features tell ---


@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=60))
@settings(max_examples=40, deadline=None)
def test_bits_of_categories_are_mutual_information(rows: list[tuple[int, int]]) -> None:
    """For categorical and binary columns the bits are scikit-learn's mutual information over ln 2."""
    y, site = (list(each) for each in zip(*rows, strict=True))
    schema = Schema(label="y", categorical=["site"], binary=["odd"])
    odd = [value % 2 for value in site]
    bits = {name: value for name, _, value in telling(counted(schema, y=y, site=site, odd=odd).total)}
    assert bits["site"] == pytest.approx(mutual_info_score(y, site) / math.log(2), abs=1e-9)
    assert bits["odd"] == pytest.approx(mutual_info_score(y, odd) / math.log(2), abs=1e-9)


@given(rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None)
def test_bits_of_counts_add_up_to_mutual_information(rows: list[tuple[int, int, int]]) -> None:
    """The bits of the counts columns add up to the mutual information of class and token."""
    y, bee, fly = (list(each) for each in zip(*rows, strict=True))
    state = counted(Schema(label="y", counts=["bee", "fly"]), y=y, bee=bee, fly=fly)
    tokens = [(label, name) for label, *both in rows for name, many in enumerate(both) for _ in range(many)]
    expected = mutual_info_score(*zip(*tokens, strict=True)) / math.log(2) if tokens else 0.0
    assert sum(bits for _, _, bits in telling(state.total)) == pytest.approx(expected, abs=1e-9)


def test_bits_of_numbers_follow_the_formula() -> None:
    """A numeric column tells half the logarithm of pooled over within-class variance."""
    state = counted(Schema(label="y", numeric=["x"]), y=["a", "a", "a", "b"], x=[0.0, 2.0, 1.0, 3.0])
    x = np.array([0.0, 2.0, 1.0, 3.0])
    within = (3 * x[:3].var() + 1 * 0.0) / 4
    assert telling(state.total)[0][2] == pytest.approx(0.5 * math.log2(x.var() / within))


def test_bits_of_numbers_stay_below_the_entropy_of_the_class() -> None:
    """A column that gives the class away tells its entropy, not infinity; a constant column tells nothing."""
    schema = Schema(label="y", numeric=["x", "constant", "empty"])
    columns = {"x": [0.0, 0.0, 5.0, 5.0], "constant": [7.0] * 4, "empty": pa.nulls(4, pa.float64())}
    bits = {name: value for name, _, value in telling(counted(schema, y=["a", "a", "b", "b"], **columns).total)}
    assert bits == {"x": 1.0, "constant": 0.0, "empty": 0.0}


def test_the_most_telling_feature_comes_first() -> None:
    """Features are ranked by bits, whatever their kind; equals keep the order of the schema."""
    schema = Schema(label="y", numeric=["noise"], categorical=["sure"], binary=["dull"])
    state = counted(schema, y=["a", "a", "b", "b"], noise=[1.0, 2.0, 1.0, 2.0], sure=["n", "n", "s", "s"], dull=[0] * 4)
    assert [name for name, _, _ in telling(state.total)] == ["sure", "noise", "dull"]


def test_text_columns_of_a_state() -> None:
    """A text column has its distinct tokens, what was counted of them by class, and the most frequent."""
    state = counted(Schema(label="y", text=["body"]), y=["a", "a", "b", "b"], body=["to be", "be", "", None])
    (body,) = describe(state, top=1)["columns"]
    assert body == {
        "name": "body",
        "kind": "text",
        "missing": 1,
        "missing_share": 0.25,
        "empty": 1,
        "tokens": 2,
        "totals": [3, 0],
        "top": [{"token": "be", "count": 2, "share": 2 / 3}],
    }
    assert "body  1 (25.0%)       2  be, to" in text(describe(state), terminal=False)
    (body,) = describe(state.finish())["columns"]
    assert body == {"name": "body", "kind": "text", "tokens": 2}
    assert text(describe(state.finish()), terminal=False).count("distinct tokens") == 1


@given(st.lists(st.sampled_from(["an", "be", "to"]), min_size=2, max_size=12), st.data())
@settings(max_examples=15)
def test_bits_of_text_are_mutual_information(words: list[str], data: Any) -> None:
    """What a text column tells is scikit-learn's mutual information of class and token, in bits."""
    labels = data.draw(st.lists(st.sampled_from("ab"), min_size=len(words), max_size=len(words)))
    ((_, kind, bits),) = telling(counted(Schema(label="y", text=["body"]), y=labels, body=words).total)
    assert kind == "text"
    assert bits == pytest.approx(mutual_info_score(labels, words) / math.log(2), abs=1e-12)


# --- a model ---


def test_a_model_has_its_parameters(mixed: State) -> None:
    """Classes, priors, families, and for each column what the family made of it, per class."""
    found = describe(mixed.finish(categorical=Categorical(unseen="smooth"), class_prior={"a": 0.25, "b": 0.75}))
    assert [each["prior"] for each in found["classes"]] == pytest.approx([0.25, 0.75])
    assert found["families"]["categorical"] == {
        "family": "Categorical",
        "alpha": 1.0,
        "min_categories": None,
        "unseen": "smooth",
    }
    x, site, scent, bee, fly = found["columns"]
    assert x["means"] == [2.0, 10.0]
    assert x["standard_deviations"] == pytest.approx([1.0, 0.0], abs=1e-3)
    assert site["top"][0]["category"] == "north"
    assert site["top"][0]["probabilities"] == pytest.approx([2 / 5, 2 / 4])
    assert site["probabilities_of_unseen"] == pytest.approx([1 / 5, 1 / 4])
    assert scent["probabilities_of_one"] == pytest.approx([2 / 4, 2 / 3])
    assert np.add(bee["probabilities"], fly["probabilities"]) == pytest.approx([1.0, 1.0])


def test_a_complement_has_weights(mixed: State) -> None:
    """A complement's scores are weights and are called so."""
    found = describe(mixed.finish(counts=Complement()))
    assert found["columns"][-1]["weights"] == pytest.approx([-math.log(8 / 10), -math.log(1 / 4)])
    assert "weight of a token" in text(found, terminal=False)


def test_a_model_says_what_speaks_for_its_classes(mixed: State) -> None:
    """The most probable class comes first, each with its best pairs; a model of one class has nothing to compare."""
    model = mixed.finish(class_prior={"a": 0.25, "b": 0.75})
    found = describe(model, top=3)["top_features"]
    assert [each["class"] for each in found] == ["b", "a"]
    assert found[0]["features"] == model.top_features("b", 3).to_pylist()
    assert "what speaks most for a class" in text(describe(model), terminal=False)
    alone = counted(Schema(label="y", binary=["bit"]), y=["a"], bit=[1]).finish()
    assert describe(alone)["top_features"] == []


def test_only_the_largest_classes_are_compared() -> None:
    """Of a hundred classes the twenty most probable are described, and six of them stand in the text."""
    state = counted(Schema(label="y", categorical=["c"]), y=np.arange(100), c=np.arange(100))
    found = describe(state.finish())
    assert len(found["top_features"]) == 20
    assert "of the 6 largest classes" in text(found, terminal=False).partition("what speaks most")[2]


# --- text ---


def test_text_of_a_state(mixed: State) -> None:
    """The report aligns names to the left and numbers to the right, kind by kind."""
    report = text(describe(mixed), terminal=False)
    assert report.splitlines()[:6] == [
        "A state: 4 rows, 2 classes, 5 feature columns, 0 shards",
        "label 'y', string; 1 row without a label left out",
        "",
        "class  rows  prior",
        "a         2    0.5",
        "b         2    0.5",
    ]
    assert "x        1 (25.0%)  2 ± 1  10 ± 0" in report
    assert "north 66.7%, south 33.3%" in report
    assert all(line == line.rstrip() for line in report.splitlines())


def test_wide_content_is_cut() -> None:
    """A thousand classes and two hundred columns are cut, and the report says how many more there are."""
    names = [f"x{i:03}" for i in range(200)]
    state = counted(
        Schema(label="y", numeric=names, categorical=["c"]),
        y=np.arange(1000),
        c=[f"v{i}" for i in range(1000)],
        **dict.fromkeys(names, np.arange(1000.0)),
    )
    for shown in (state, state.finish()):
        report = text(describe(shown), terminal=False)
        assert report.count("... and 980 more\n") == report.count("... and 180 more\n") == 1
        assert "of the 6 largest classes (... and 994 more)" in report
        assert "... and 995 more" in report
        assert len(report.splitlines()) < 100
        assert max(map(len, report.splitlines())) < 200


def test_names_cannot_disturb_a_terminal() -> None:
    """Line breaks and control codes in names are shown escaped, and long names are cut."""
    schema = Schema(label="y\n", categorical=["\x1b[31mred", "[bold]"])
    long = "n" * 100
    state = counted(schema, **{"y\n": ["a\tb"], "\x1b[31mred": [long], "[bold]": ["[/]"]})
    for terminal in (False, True):
        report = text(describe(state), terminal=terminal)
        assert "a\\tb" in report
        assert "\\x1b[31mred" in report
        assert "[bold]" in report
        assert "\x1b[31m" not in report
        assert long not in report
    assert printable("été ± ok") == "été ± ok"


def test_rules_only_for_a_terminal(mixed: State) -> None:
    """Control codes appear when a terminal is asked for, never otherwise; the content is the same."""
    plain, ruled = (text(describe(mixed), terminal=terminal) for terminal in (False, True))
    assert "\x1b" not in plain
    assert "─" in ruled
    assert text(describe(mixed)) == plain  # under pytest the standard output is no terminal


@pytest.mark.parametrize(
    ("value", "shown"), [(1e9 + 0.5, "1,000,000,000.5"), (1e300, "1e+300"), (0.00012345, "0.0001234"), (2.0, "2")]
)
def test_numbers_stay_readable(value: float, shown: str) -> None:
    """Large means keep their units, and tiny or huge ones get an exponent."""
    state = counted(Schema(label="y", numeric=["x"]), y=["a"], x=[value])
    assert f"{shown} ± 0" in text(describe(state), terminal=False)
