"""Text columns: cut as scikit-learn cuts them, counted, merged in any order, scored as its pipelines."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.naive_bayes import BernoulliNB, ComplementNB, MultinomialNB
from sklearn.pipeline import make_pipeline

import streamnb as snb
from streamnb.text import content_kind
from streamnb.textcolumn import TextColumn
from streamnb.tokentable import Lexicon, buckets_of

DOCUMENTS = [
    "Hello, World! foo_bar a bc",
    "",
    "ΑΣ.Α ΟΔΟΣ straße İstanbul naïve café हिन्दी 中文 字",
    "  x  yy\tzz\u00a0qq\x1cww ",
    "ﬁne Kelvin \u212aK K\u030c o\u0308l ´x",
    "Don't  stop\n\n now  É é ½ x² ⅷ ١٢",
]
"""Unicode that is cut differently by ASCII, by simple lower case, or by another notion of a word."""


def cut(documents: Any, **options: Any) -> list[list[str]]:
    """The tokens of each document, in order of their rows."""
    array = documents if isinstance(documents, pa.Array) else pa.array(documents)
    found: list[list[str]] = [[] for _ in range(len(array))]
    for first, tokens in TextColumn(array, snb.Text("body", **options)).chunks():
        values = tokens.values.to_pylist()
        assert len(set(values)) == len(values)
        for row, code in zip(tokens.rows, tokens.codes, strict=True):
            found[first + row].append(values[code])
    return found


WAYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"lowercase": False}, {"lowercase": False}),
    ({"strip_accents": True}, {"strip_accents": "unicode"}),
    ({"tokens": "whitespace"}, {"token_pattern": r"\S+"}),
    ({"ngrams": (1, 3)}, {"ngram_range": (1, 3)}),
    ({"ngrams": (2, 2), "stop_words": ["foo_bar", "now"]}, {"ngram_range": (2, 2), "stop_words": ["foo_bar", "now"]}),
    ({"tokens": "chars", "ngrams": (1, 3)}, {"analyzer": "char", "ngram_range": (1, 3)}),
    (
        {"tokens": "chars", "ngrams": (2, 4), "strip_accents": True, "lowercase": False},
        {"analyzer": "char", "ngram_range": (2, 4), "strip_accents": "unicode", "lowercase": False},
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), WAYS)
@pytest.mark.parametrize("chunk", [1 << 23, 16])
@pytest.mark.parametrize("jit", ["0", "1"])
def test_tokens_are_scikit_learns(
    ours: dict[str, Any], theirs: dict[str, Any], chunk: int, jit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every option cuts as the vectorizer's option does, compiled or not, also when few bytes are cut at a time."""
    monkeypatch.setenv("STREAMNB_JIT", jit)
    monkeypatch.setattr("streamnb.textcolumn.CHUNK_BYTES", chunk)
    analyze = CountVectorizer(**theirs).build_analyzer()
    for found, document in zip(cut(DOCUMENTS, **ours), DOCUMENTS, strict=True):
        assert sorted(found) == sorted(analyze(document))


alphabet = st.sampled_from(
    ["a", "B", "é", "É", "ß", "Σ", "σ", "İ", "ﬁ", "字", "_", "7", " ", "  ", "\n", ".", "'", "\u0301", "😀"]
)


@pytest.mark.parametrize("jit", ["0", "1"])
@given(documents=st.lists(st.lists(alphabet, max_size=12).map("".join), max_size=5))
@settings(max_examples=200)
def test_words_of_any_text_are_scikit_learns(jit: str, documents: list[str]) -> None:
    """Words of drawn documents are cut as by the default pattern, compiled or not."""
    analyze = CountVectorizer().build_analyzer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STREAMNB_JIT", jit)
        assert cut(pa.array(documents, pa.string())) == [analyze(document) for document in documents]


def test_many_distinct_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled cutter makes room when a batch has more distinct words than it thought."""
    kernels = pytest.importorskip("streamnb.kernels_jit")
    monkeypatch.setattr(kernels, "SLOTS", 2)
    words = [f"word{i}" for i in range(500)]
    assert cut([" ".join(words), " ".join(reversed(words))]) == [words, words[::-1]]


@pytest.mark.parametrize(
    "layout", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
)
def test_every_layout_of_strings(layout: pa.DataType) -> None:
    """Strings are cut alike in every layout, with nulls, and from the middle of a column."""
    array = pa.array(["dropped row", "some words", None, "", "more words"]).cast(layout).slice(1)
    assert cut(array) == [["some", "words"], [], [], ["more", "words"]]


def test_columns_of_tokens_and_of_counts() -> None:
    """Lists are tokens already, integers by their digits; maps and pairs are counts; nulls and zeros are nothing."""
    lists = pa.array([["Dropped"], ["A b", "a"], None, [], ["x", None]])
    assert cut(lists.slice(1)) == [["A b", "a"], [], [], ["x"]]
    assert cut(lists.slice(1).cast(pa.large_list(pa.string()))) == [["A b", "a"], [], [], ["x"]]
    assert cut(pa.array([[7, 12], [12]])) == [["7", "12"], ["12"]]
    assert cut(pa.array([[7, 12]], pa.list_(pa.int16(), 2))) == [["7", "12"]]
    assert cut(pa.array([["a b", "c"], ["a", "b c"]]), ngrams=(2, 2)) == [["a b c"], ["a b c"]]
    map_type = pa.map_(pa.string(), pa.int32())
    column = TextColumn(pa.array([[("a", 2)], None, [("b", 1), ("c", 0), ("d", None)]], map_type), snb.Text("body"))
    ((first, tokens),) = column.chunks()
    assert first == 0
    assert [tokens.values[int(code)].as_py() for code in tokens.codes] == ["a", "b"]
    assert (tokens.rows.tolist(), tokens.counts.tolist()) == ([0, 2], [2, 1])  # type: ignore[union-attr]
    pairs = pa.array([[{"token": 5, "count": 1.5}], [{"token": 5, "count": float("nan")}]])
    ((_, tokens),) = TextColumn(pairs, snb.Text("body")).chunks()
    assert (tokens.values.to_pylist(), tokens.counts.tolist()) == (["5"], [1.5])  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [-1.0, float("inf")])
def test_impossible_counts_are_refused(count: float) -> None:
    """A negative or infinite count is an error with column and row, at training and at prediction."""
    types = pa.map_(pa.string(), pa.float64())
    good = pa.table({"y": ["a", "b"], "body": pa.array([[("x", 1.0)], [("z", 1.0)]], types)})
    bad = pa.table({"y": ["a", "b"], "body": pa.array([[("x", 1.0)], [("x", count)]], types)})
    state = snb.State(snb.Schema(label="y", text=["body"]))
    state.update(good)
    before = state.to_bytes()
    message = f"Expected a finite count of at least 0, got {count} - column 'body', row 1"
    with pytest.raises(snb.DataError, match=re.escape(message)):
        state.update(bad)
    assert state.to_bytes() == before
    with pytest.raises(snb.DataError, match=re.escape(message)):
        state.finish().predict(bad)


def test_bytes_that_are_no_text_are_refused() -> None:
    """A string column that holds other bytes than UTF-8 is an error that names the column."""
    offsets, data = pa.py_buffer(np.array([0, 4], np.int32)), pa.py_buffer(b"ab\xff\xfe")
    broken = pa.Array.from_buffers(pa.string(), 1, [None, offsets, data])
    with pytest.raises(snb.DataError, match="Expected text in UTF-8, got bytes that are not - column 'body'"):
        snb.State(snb.Schema(label="y", text=["body"])).update(pa.table({"y": ["a"], "body": broken}))


@pytest.mark.parametrize("options", [{"tokens": "chars"}, {"tokens": "whitespace"}, {"strip_accents": True}])
@pytest.mark.parametrize("holds", ["documents", "capital sigma", "lists", "counts"])
def test_not_utf8_in_any_layout(options: dict[str, Any], holds: str) -> None:
    """Bytes that are not UTF-8 are refused before Polars, or a token's name, would rely on them."""
    data = b"\xce\xa3\xffabc" if holds == "capital sigma" else b"ab\xffdef"
    offsets = np.array([0, 3, 6], np.int32)
    cells = pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    if holds == "lists":
        cells = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), cells)
    elif holds == "counts":
        cells = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), cells, pa.array([1, 2]))
    state = snb.State(snb.Schema(label="y", text=[snb.Text("body", **options)]))
    with pytest.raises(snb.DataError, match="Expected text in UTF-8, got bytes that are not - column 'body'"):
        state.update(pa.table({"y": ["a", "b"], "body": cells}))
    assert state.n_rows == 0


@pytest.mark.parametrize("tokens", ["words", "whitespace"])
def test_a_document_is_cut_alike_whatever_stands_beside_it(tokens: str) -> None:
    """A capital sigma in one document changes nothing in another; capitals that NFKD makes are kept by both."""
    documents = ["Foo\u2122 bar \u2116 5", "\u039f\u0394\u039f\u03a3 \u2122\u03a3", "\U0001d518ab \u210cello"]
    options: dict[str, Any] = {"tokens": tokens, "strip_accents": True}
    together = cut(documents, **options)
    assert together == [cut([document], **options)[0] for document in documents]
    pattern = {"words": r"(?u)\b\w\w+\b", "whitespace": r"\S+"}[tokens]
    analyzer = CountVectorizer(strip_accents="unicode", token_pattern=pattern).build_analyzer()
    assert together == [analyzer(document) for document in documents]


@pytest.mark.parametrize("dtype", [pa.list_view(pa.string()), pa.large_list_view(pa.large_string())])
def test_list_views_are_lists(dtype: pa.DataType) -> None:
    """Views of lists, whole or a slice, with nulls or without, count as lists do."""
    rows = [["a", "b"], None, [], ["b", None], ["c"]]
    for cells in (rows, rows[3:], [["a", "b"], ["b"]]):
        for view in (pa.array(cells, dtype), pa.array([["x"], *cells, ["z"]], dtype)[1:-1]):
            states = [snb.State(snb.Schema(label="y", text=["body"])) for _ in range(2)]
            for state, body in zip(states, (view, pa.array(cells, pa.list_(pa.string()))), strict=True):
                state.update(pa.table({"y": ["u", "v", "u", "v", "u"][: len(body)], "body": body}))
            assert states[0] == states[1]


# The schema ----------------------------------------------------------------------------------------------------------


def test_a_schema_with_text_is_plain_json() -> None:
    """Names and options survive JSON; what has its default is left out."""
    text = snb.Text("subject", ngrams=(1, 2), stop_words=["the", "a", "the"], buckets=1024)
    schema = snb.Schema(label="y", text=["body", text])
    assert schema.text == ("body", "subject")
    assert schema.columns == ("y", "body", "subject")
    assert schema.text_options["subject"].stop_words == ("a", "the")
    assert schema.to_json() == (
        '{"label": "y", "text": ["body", '
        '{"column": "subject", "ngrams": [1, 2], "stop_words": ["a", "the"], "buckets": 1024}], "infinite": "error"}'
    )
    assert snb.Schema.from_json(schema.to_json()) == schema
    assert snb.Schema(label="y", text=["body"]) != snb.Schema(label="y", text=[snb.Text("body", lowercase=False)])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tokens": "lines"}, "Expected tokens= to be one of 'words', 'whitespace', 'chars', got 'lines'"),
        ({"ngrams": (2, 1)}, "Expected ngrams= to be the fewest and the most, from 1 to 8, got (2, 1)"),
        ({"ngrams": 2}, "Expected ngrams= to be the fewest and the most"),
        ({"stop_words": "the"}, "Expected stop_words= to be a list of strings, got 'the'"),
        ({"normalize": "l3"}, "Expected normalize= to be one of None, 'l1', 'l2', got 'l3'"),
        ({"buckets": 0}, "Expected buckets= to be a number from 1 to 2147483647, or None, got 0 - column 'body'"),
        ({"lowercase": 1}, "Expected lowercase= to be True or False, got 1"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], problem: str) -> None:
    """Each option says what it takes."""
    with pytest.raises(snb.SchemaError, match=re.escape(problem)):
        snb.Text("body", **options)


def test_unknown_options_offer_the_near_ones() -> None:
    """Options in JSON are held against those that there are."""
    with pytest.raises(snb.SchemaError, match=r"got 'ngram'; did you mean 'ngrams'\?"):
        snb.Schema(label="y", text=[{"column": "body", "ngram": [1, 2]}])


def test_types_that_are_no_text_are_refused() -> None:
    """Numbers are no text, and counts have no neighbours."""
    schema = snb.Schema(label="y", text=[snb.Text("body", ngrams=(1, 2))])
    wanted = "Expected a string, a list of strings or integers, or a map of counts for text column 'body', got double"
    with pytest.raises(snb.SchemaError, match=wanted):
        schema.check(pa.schema({"y": pa.string(), "body": pa.float64()}))
    with pytest.raises(snb.SchemaError, match="Expected documents or lists for ngrams= of text column 'body'"):
        schema.check(pa.schema({"y": pa.string(), "body": pa.map_(pa.string(), pa.int32())}))
    assert content_kind(pa.list_(pa.float32())) is None


# scikit-learn's pipelines ---------------------------------------------------------------------------------------------

draw = np.random.default_rng(1)
WORDS = np.array([*(f"w{i}" for i in range(60)), "é", "Straße", "naïve", "字字"])


def documents_of(words: np.ndarray, n: int) -> list[str]:
    """Documents of up to eleven words, some of them empty."""
    return [" ".join(draw.choice(words, draw.integers(0, 12))) for _ in range(n)]


TRAINING, LABELS = documents_of(WORDS, 300), draw.choice(["a", "b", "c"], 300)
TABLE = pa.table({"y": LABELS, "body": TRAINING})
HELD_OUT = documents_of(np.array([*WORDS, "new1", "new2"]), 60)

PIPELINES: dict[str, tuple[dict[str, Any], Any, list[Any]]] = {
    "counts": ({}, snb.Multinomial(), [CountVectorizer(), MultinomialNB()]),
    "idf": (
        {"document_frequency": True},
        snb.Multinomial(alpha=0.1, idf=True),
        [CountVectorizer(), TfidfTransformer(norm=None), MultinomialNB(alpha=0.1)],
    ),
    "sublinear idf, complement with norm": (
        {"document_frequency": True, "sublinear": True},
        snb.Complement(alpha=0.1, idf=True, norm=True),
        [CountVectorizer(), TfidfTransformer(norm=None, sublinear_tf=True), ComplementNB(alpha=0.1, norm=True)],
    ),
    "l2 of sublinear bigrams, complement": (
        {"sublinear": True, "normalize": "l2", "ngrams": (1, 2)},
        snb.Complement(),
        [
            CountVectorizer(ngram_range=(1, 2)),
            TfidfTransformer(norm="l2", sublinear_tf=True, use_idf=False),
            ComplementNB(),
        ],
    ),
    "l1": (
        {"normalize": "l1"},
        snb.Multinomial(alpha=2.0),
        [CountVectorizer(), TfidfTransformer(norm="l1", use_idf=False), MultinomialNB(alpha=2.0)],
    ),
    "presence": (
        {"document_frequency": True},
        snb.Bernoulli(alpha=0.5),
        [CountVectorizer(binary=True), BernoulliNB(alpha=0.5)],
    ),
    "presence with idf and l2, which it has no use of": (
        {"document_frequency": True, "normalize": "l2"},
        snb.Bernoulli(idf=True),
        [CountVectorizer(), TfidfTransformer(), BernoulliNB()],
    ),
    "chars": (
        {"tokens": "chars", "ngrams": (1, 3)},
        snb.Multinomial(),
        [CountVectorizer(analyzer="char", ngram_range=(1, 3)), MultinomialNB()],
    ),
}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("table_cells", [1 << 23, 0])
def test_equal_to_the_pipeline(name: str, table_cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Joint log probabilities are the pipeline's to 1e-9, from small batches and through files, dense and sparse."""
    monkeypatch.setattr("streamnb.tokenscores.TABLE_CELLS", table_cells)
    options, family, steps = PIPELINES[name]
    state = snb.State(snb.Schema(label="y", text=[snb.Text("body", **options)]))
    for first in range(0, len(TRAINING), 37):
        state.update(TABLE.slice(first, 37))
    model = snb.State.from_bytes(state.to_bytes()).finish(text=family)
    again = snb.Predictor.from_bytes(model.to_bytes())
    assert again == model
    pipeline = make_pipeline(*steps).fit(TRAINING, LABELS)
    expected = pipeline[-1].predict_joint_log_proba(pipeline[:-1].transform(HELD_OUT))
    assert np.abs(again.predict_joint_log_proba(pa.table({"body": HELD_OUT})) - expected).max() < 1e-9
    assert model.predict(pa.table({"body": HELD_OUT})).to_pylist() == pipeline.predict(HELD_OUT).tolist()


def test_pruned_as_the_vectorizer_prunes() -> None:
    """`max_tokens` keeps the most frequent tokens, as max_features does, and `min_count` leaves out the rare."""
    state = snb.State(snb.Schema(label="y", text=["body"]))
    state.update(pa.table({"y": ["a", "a", "b"], "body": ["xx xx yy", "xx zz", "yy yy yy ww"]}))
    names = {
        most: state.finish(text=snb.Multinomial(max_tokens=most)).text["body"][0].names.to_pylist()
        for most in (1, 2, 3)
    }
    assert names == {1: ["yy"], 2: ["xx", "yy"], 3: ["ww", "xx", "yy"]}
    common = state.finish(text=snb.Multinomial(min_count=2))
    assert common.text["body"][0].names.to_pylist() == ["xx", "yy"]
    pipeline = make_pipeline(CountVectorizer(max_features=2), MultinomialNB())
    pipeline.fit(["xx xx yy", "xx zz", "yy yy yy ww"], ["a", "a", "b"])
    test = ["xx", "yy zz ww", "vv"]
    assert common.predict_proba(pa.table({"body": test})) == pytest.approx(pipeline.predict_proba(test), abs=1e-12)
    assert state.finish().text["body"][0].names.to_pylist() == ["ww", "xx", "yy", "zz"]


def test_hashed_without_collisions_scores_as_exact() -> None:
    """In buckets enough, hashing changes nothing but the order of the tokens."""
    exact, hashed = (snb.State(snb.Schema(label="y", text=[snb.Text("body", buckets=n)])) for n in (None, 1 << 30))
    for state in (exact, hashed):
        state.update(TABLE)
    batch = pa.table({"body": HELD_OUT})
    difference = exact.finish().predict_log_proba(batch) - hashed.finish().predict_log_proba(batch)
    assert np.abs(difference).max() < 1e-11


def test_tokens_of_one_bucket_count_as_one() -> None:
    """With one bucket every word is the same token, whose documents are counted once, named by the smallest."""
    text = snb.Text("body", buckets=1, document_frequency=True)
    state = snb.State(snb.Schema(label="y", text=[text]))
    state.update(pa.table({"y": ["a", "b"], "body": ["rain wind sun", "wind"]}))
    table = state.total.text["body"]
    assert table.names.to_pylist() == ["rain"]
    assert table.counts.total.tolist() == [3, 1]
    assert table.counts.documents.tolist() == [1, 1]  # type: ignore[union-attr]


# Cases and edges -----------------------------------------------------------------------------------------------------


def rain() -> snb.Predictor:
    """Multinomial over the words of ("rain wind", 0) and ("sun", 1)."""
    state = snb.State(snb.Schema(label="y", text=["body"]))
    state.update(pa.table({"y": [0, 1], "body": ["rain wind", "sun"]}))
    return state.finish()


def test_predicting_never_grows_the_vocabulary() -> None:
    """Unknown words are ignored, and a thousand of them change nothing."""
    model = rain()
    before = model.to_bytes()
    ask = pa.table({"body": ["rain", "rain foo"]})
    assert model.predict_proba(ask)[:, 0] == pytest.approx([8 / 13, 8 / 13], abs=1e-15)
    model.predict(pa.table({"body": [f"word{i}" for i in range(1000)]}))
    assert model.predict_proba(ask)[0, 0] == pytest.approx(8 / 13, abs=1e-15)
    assert len(model.text["body"][0]) == 3
    assert model.to_bytes() == before


def test_empty_and_null_documents() -> None:
    """They score as the prior, and are counted: rows, documents without a token, and missing cells."""
    state = snb.State(snb.Schema(label="y", text=["body"]))
    state.update(pa.table({"y": ["a", "a", "a", "b"], "body": ["xx yy", "", None, "!"]}))
    table = state.total.text["body"]
    assert state.n_rows == 4
    assert state.missing() == {"body": {"a": 1, "b": 0}}
    assert table.empty.tolist() == [1, 1]
    found = state.finish().predict_proba(pa.table({"body": ["", None, "?? unknown"]}))
    assert found == pytest.approx(np.tile([0.75, 0.25], (3, 1)))


def test_a_null_document_says_nothing_to_bernoulli() -> None:
    """An empty document says that every word is absent; a null one says nothing and is no document."""
    text = snb.Text("body", document_frequency=True)
    state = snb.State(snb.Schema(label="y", text=[text]))
    state.update(pa.table({"y": ["a", "a", "a", "b"], "body": ["xx", None, "xx", "yy"]}))
    found = state.finish(text=snb.Bernoulli()).predict_proba(pa.table({"body": [None, ""]}))
    a, b = 0.75 * (1 - 3 / 4) * (1 - 1 / 4), 0.25 * (1 - 1 / 3) * (1 - 2 / 3)
    assert found[0] == pytest.approx([0.75, 0.25])
    assert found[1] == pytest.approx([a / (a + b), b / (a + b)])


def test_families_say_what_they_need() -> None:
    """Document frequencies are counted when asked for, smoothing is one number above 0, and options are for text."""
    state = snb.State(snb.Schema(label="y", text=["body"], counts=["n"]))
    state.update(pa.table({"y": ["a", "b"], "body": ["xx", "yy"], "n": [1, 2]}))
    for family in (snb.Bernoulli(), snb.Multinomial(idf=True), snb.Complement(idf=True)):
        with pytest.raises(
            snb.DataError, match=r"give the schema Text\(..., document_frequency=True\) - column 'body'"
        ):
            state.finish(text=family)
    with pytest.raises(ValueError, match=re.escape("Expected one number for alpha= of text column 'body', got [1, 2]")):
        state.finish(text=snb.Multinomial(alpha=[1, 2]))
    with pytest.raises(ValueError, match="Expected alpha= above 0 for text column 'body', got 0"):
        state.finish(text=snb.Multinomial(alpha=0))
    with pytest.raises(ValueError, match="Expected idf= for text=, got idf=True for counts="):
        state.finish(counts=snb.Multinomial(idf=True))
    with pytest.raises(ValueError, match="Expected max_tokens to be a number of at least 1, or None, got 0"):
        state.finish(text=snb.Multinomial(max_tokens=0))
    with pytest.raises(TypeError, match="Expected Multinomial or Complement or Bernoulli for text=, got Gaussian"):
        state.finish(text=snb.Gaussian())  # type: ignore[arg-type]


def test_text_beside_other_blocks() -> None:
    """Blocks add up: the joint score is that of the text plus that of the numbers."""
    table = TABLE.append_column("x", pa.array(np.arange(300) % 7, pa.float64()))
    both, text, numeric = (
        snb.Schema(label="y", **kinds)
        for kinds in ({"text": ["body"], "numeric": ["x"]}, {"text": ["body"]}, {"numeric": ["x"]})
    )
    joint = []
    for schema in (both, text, numeric):
        state = snb.State(schema)
        state.update(table)
        model = state.finish()
        joint.append(model.predict_joint_log_proba(table) - model.class_log_prior)
    assert joint[0] == pytest.approx(joint[1] + joint[2])


# Laws ----------------------------------------------------------------------------------------------------------------

word = st.sampled_from(["aa", "bb", "cc", "dd ee", "字字", "Bb!", ""])
row = st.tuples(st.sampled_from(["k", "l", "m", None]), st.none() | st.lists(word, max_size=4).map(" ".join))
KINDS = {
    "exact": snb.Text("body", document_frequency=True),
    "hashed": snb.Text("body", buckets=3),
    "bigrams": snb.Text("body", ngrams=(1, 2)),
    "normalized": snb.Text("body", normalize="l2"),
}


def state_of(rows: list[tuple[str | None, str | None]], kind: str) -> snb.State:
    """The state of some rows."""
    state = snb.State(snb.Schema(label="y", text=[KINDS[kind]]))
    columns = {name: pa.array([each[i] for each in rows], pa.string()) for i, name in enumerate(("y", "body"))}
    state.update(pa.table(columns))
    return state


@pytest.mark.parametrize("kind", KINDS)
@given(a=st.lists(row, max_size=6), b=st.lists(row, max_size=6), c=st.lists(row, max_size=6))
def test_states_of_text_add_up(kind: str, a: Any, b: Any, c: Any) -> None:
    """Empty is neutral, merge commutes to the bit, and whole counts do not depend on how rows are cut."""
    x, y, z = (state_of(rows, kind) for rows in (a, b, c))
    frozen = [each.to_bytes() for each in (x, y, z)]
    assert x + y == y + x
    assert x + snb.State(x.schema) == x == snb.State(x.schema) + x
    if kind != "normalized":
        assert (x + y) + z == x + (y + z) == state_of([*a, *b, *c], kind) == state_of([*c, *b, *a], kind)
    assert [each.to_bytes() for each in (x, y, z)] == frozen
    total = x + y
    assert snb.State.from_bytes(total.to_bytes()).to_bytes() == total.to_bytes()


@given(parts=st.lists(st.lists(row, max_size=4), max_size=8), least=st.integers(0, 6), looked_at=st.integers(0, 7))
def test_sums_do_not_depend_on_when_they_are_taken(parts: Any, least: int, looked_at: int) -> None:
    """Normalised counts are rounded; when waiting pieces are added up must not show in their last bits."""
    plain, hasty = (snb.State(snb.Schema(label="y", text=[KINDS["normalized"]])) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        for i, rows in enumerate(parts):
            plain.merge(state_of(rows, "normalized"))
            patch.setattr("streamnb.tokentable.LEAST_PENDING", least)
            hasty.merge(state_of(rows, "normalized"))
            patch.undo()
            if i == looked_at:
                hasty = snb.State.from_bytes(hasty.to_bytes())
    assert plain == hasty


@given(a=st.lists(row, min_size=1, max_size=6), b=st.lists(row, max_size=6))
def test_exemplars_are_the_smallest_token_in_any_order(a: Any, b: Any) -> None:
    """A bucket is named by the smallest of all tokens that were counted in it."""
    total = (state_of(a, "hashed") + state_of(b, "hashed")).total.text["body"]
    words = [w for label, text in [*a, *b] if label and text for w in CountVectorizer().build_analyzer()(text)]
    smallest: dict[int, str] = {}
    for each in sorted(words, key=str.encode, reverse=True):
        smallest[int(buckets_of(pa.array([each], pa.large_string()), 3)[0])] = each
    assert total.buckets is not None
    assert dict(zip(total.buckets.tolist(), total.names.to_pylist(), strict=True)) == smallest


def test_a_long_exemplar_is_cut_short() -> None:
    """A bucket keeps 64 characters of its name, whatever stands in the text."""
    state = snb.State(snb.Schema(label="y", text=[snb.Text("body", buckets=4)]))
    state.update(pa.table({"y": ["a"], "body": ["字" * 100]}))
    assert state.total.text["body"].names.to_pylist() == ["字" * 64]


def test_merging_other_options_is_refused() -> None:
    """States that cut their text differently do not add up; the message names the first difference."""
    one, other = (snb.State(snb.Schema(label="y", text=[snb.Text("body", ngrams=n)])) for n in ((1, 1), (1, 2)))
    with pytest.raises(
        snb.MergeError, match=re.escape("Expected ngrams=(1, 1) for text column 'body', got ngrams=(1, 2)")
    ):
        one.merge(other)


def test_the_same_bytes_for_any_number_of_workers(tmp_path: Any) -> None:
    """Shards merge in order: one worker, two, and a plain loop give one state, rounded sums included."""
    for i in range(5):
        pq.write_table(TABLE.slice(i * 60, 60), tmp_path / f"{i}.parquet")
    for text in (snb.Text("body", normalize="l2", document_frequency=True), snb.Text("body", buckets=16)):
        schema = snb.Schema(label="y", text=[text])
        one, two = (snb.fit(tmp_path, schema=schema, workers=n) for n in (1, 2))
        assert one == two
        plain = snb.State(schema)
        for i in range(5):
            plain.update(pq.read_table(tmp_path / f"{i}.parquet"))
        assert plain.digest() == one.digest()


def test_shards_stay_small() -> None:
    """A part holds the pairs that it met, not classes times buckets."""
    schema = snb.Schema(label="y", text=[snb.Text("body", buckets=1 << 20)], classes=list(range(500)))
    parts = [snb.State(schema, shard=str(i)) for i in range(50)]
    for i, part in enumerate(parts):
        part.update(pa.table({"y": [i], "body": [f"word{i} common"]}))
    total = snb.State(schema)
    for part in parts:
        total.merge(part)
    assert total.total.text["body"].counts.nbytes < 100 * 32
    assert sum(len(part.to_bytes()) for part in parts) < 50 * 16384


def test_the_tidy_table_has_tokens() -> None:
    """`to_table` has a row for each class and token that occur together."""
    state = snb.State(snb.Schema(label="y", text=[snb.Text("body", document_frequency=True)]))
    state.update(pa.table({"y": ["a", "b"], "body": ["xx xx yy", "yy"]}))
    rows = [r for r in state.to_table().to_pylist() if r["block"] == "text"]
    assert [(r["category"], r["class"], r["total"], r["count"]) for r in rows] == [
        ("xx", "a", 2.0, 1),
        ("yy", "a", 1.0, 1),
        ("yy", "b", 1.0, 1),
    ]


def test_the_tidy_table_has_counts_past_what_a_float_holds() -> None:
    """A total above 2**53 is rounded in the table; the state keeps it whole."""
    state = snb.State(snb.Schema(label="y", text=["body"]))
    counts = pa.array([[("xx", 2**53)], [("xx", 1)]], pa.map_(pa.string(), pa.int64()))
    state.update(pa.table({"y": ["a", "a"], "body": counts}))
    assert state.total.text["body"].counts.total.tolist() == [2**53 + 1]
    assert state.to_table().to_pylist()[-1]["total"] == float(2**53)


@pytest.mark.parametrize("family", [snb.Multinomial, snb.Complement])
def test_the_smallest_alpha(family: Any) -> None:
    """An alpha so small that counts divided by it overflow still tells the classes apart."""
    state = snb.State(snb.Schema(label="y", text=["body"]))
    state.update(pa.table({"y": ["a", "b"], "body": ["aa bb aa", "bb cc"]}))
    model = state.finish(text=family(alpha=1e-310))
    assert np.isfinite(model.predict_joint_log_proba(pa.table({"body": ["aa bb"]}))).all()
    np.testing.assert_allclose(model.predict_proba(pa.table({"body": ["aa bb", "cc"]})), [[1, 0], [0, 1]], atol=1e-9)


def test_names_of_one_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two names of one 64-bit hash are looked up by name."""
    monkeypatch.setattr("streamnb.tokentable._hashes", lambda values: np.zeros(len(values), np.uint64))
    lexicon = Lexicon(pa.array(["rain", "sun"], pa.large_string()))
    assert lexicon.place(pa.array(["sun", "fog", "rain"], pa.large_string())).tolist() == [1, -1, 0]
