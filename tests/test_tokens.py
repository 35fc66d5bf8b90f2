"""Counts of tokens, their hashes, and their scores, apart from any text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb.errors import DataError, FileFormatError
from streamnb.kernels import Groups
from streamnb.tokens import TokenCounts, hash_tokens, per_document, term_frequencies
from streamnb.tokenscores import TokenRows, TokenScores

MASK = (1 << 64) - 1


def hash_of(token: bytes) -> int:
    """The documented hash, a number at a time."""

    def mix(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    words = [int.from_bytes(token[i : i + 8], "little") for i in range(0, len(token), 8)]
    return mix((len(token) + sum(mix((w + (i + 1) * 0x9E3779B97F4A7C15) & MASK) for i, w in enumerate(words))) & MASK)


@given(st.lists(st.binary(max_size=40), max_size=12))
def test_the_hash_is_the_documented_one(tokens: list[bytes]) -> None:
    """The vectorised hash is the one that the docstring defines, for any lengths side by side."""
    offsets = np.cumsum([0, *map(len, tokens)])
    found = hash_tokens(offsets, np.frombuffer(b"".join(tokens), np.uint8))
    assert found.tolist() == [hash_of(token) for token in tokens]


def test_hashes_are_these_for_ever() -> None:
    """State files of hashed text depend on these very numbers."""
    data = "sun字".encode()
    assert hash_tokens(np.array([0, 3, 6]), np.frombuffer(data, np.uint8)).tolist() == [
        2119326018765665552,
        hash_of("字".encode()),
    ]


def test_hashes_of_a_slice() -> None:
    """Offsets need not begin at 0."""
    data = np.frombuffer(b"xxsun", np.uint8)
    assert hash_tokens(np.array([2, 5]), data).tolist() == [2119326018765665552]


entries = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(1, 4)), max_size=20)
LABELS = np.array([0, 2, 1, 0, 2, 1], np.int32)


def counted(drawn: list[tuple[int, int, int]], weight: np.ndarray | None = None, **options: object) -> TokenCounts:
    """The counts of (row, token, count) for six rows of three classes."""
    drawn = sorted(drawn)
    rows, codes, counts = (np.array([each[i] for each in drawn], np.int32) for i in range(3))
    groups = Groups(LABELS, 3, weight)
    return TokenCounts.of(groups, rows, codes, counts.astype(np.int64), 4, **options)  # type: ignore[arg-type]


def table(counts: TokenCounts, name: str = "total") -> np.ndarray:
    """The counts as a table of class by token."""
    cells = np.zeros((counts.n_classes, counts.n_tokens))
    cells[counts.classes, counts.tokens] = counts.arrays()[name]
    return cells


@pytest.mark.parametrize("dense", [True, False])
@given(drawn=entries)
def test_counts_are_those_of_a_loop(dense: bool, drawn: list[tuple[int, int, int]]) -> None:
    """Sums and documents are what a loop over the rows finds, by a table and by sorting."""
    total, documents = np.zeros((3, 4)), np.zeros((3, 4))
    for row, token, count in drawn:
        total[LABELS[row], token] += count
    for row, token in {(row, token) for row, token, _ in drawn}:
        documents[LABELS[row], token] += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamnb.tokens.DENSE_CELLS", 4 if dense else 0)
        counts = counted(drawn, documents=True)
    assert (table(counts) == total).all()
    assert (table(counts, "documents") == documents).all()
    assert counts.total.dtype == counts.arrays()["documents"].dtype == np.int64
    keys = counts.tokens * 3 + counts.classes
    assert (np.diff(keys) > 0).all()


@given(entries, entries, entries)
def test_merge_is_exact_in_any_order(
    a: list[tuple[int, int, int]], b: list[tuple[int, int, int]], c: list[tuple[int, int, int]]
) -> None:
    """(a + b) + c equals c + (b + a) to the bit, and the merged side stays as it was."""
    index, first, second = np.arange(3), counted(a), counted(c)
    middle = counted(b)
    before = {name: array.copy() for name, array in middle.arrays().items()}
    first.merge(middle, index)
    first.merge(counted(c), index)
    middle2 = counted(b)
    middle2.merge(counted(a), index)
    second.merge(middle2, index)
    for name, array in first.arrays().items():
        assert array.tolist() == second.arrays()[name].tolist()
    for name, array in middle.arrays().items():
        assert array.tolist() == before[name].tolist()


def test_merge_places_classes_and_tokens() -> None:
    """Class i goes to index[i] and token j to tokens[j]."""
    big = TokenCounts(4, 6)
    big.merge(counted([(0, 1, 2), (1, 3, 5)]), np.array([3, 0, 1]), np.array([5, 4, 2, 0]))
    assert [(int(t), int(c), int(n)) for t, c, n in zip(big.tokens, big.classes, big.total, strict=True)] == [
        (0, 1, 5),
        (4, 3, 2),
    ]


def test_whole_counts_beyond_float64_stay_exact() -> None:
    """Counts whose float64 sum would lose a digit are added as integers."""
    counts = TokenCounts.of(
        Groups(np.array([0, 0]), 1),
        np.array([0, 1], np.int32),
        np.array([0, 0], np.int32),
        np.array([2**53, 1]),
        1,
    )
    assert counts.total.tolist() == [2**53 + 1]


def test_a_sum_that_overflows_is_refused() -> None:
    """A sum beyond 64 bits is an error, not a negative count."""
    one = TokenCounts.of(Groups(np.array([0]), 1), np.zeros(1, np.int32), np.zeros(1, np.int32), np.array([2**62]), 1)
    with pytest.raises(DataError, match="whose sum fits in 64 bits, got an overflow"):
        one.merge(one.copy(), np.array([0]))
    assert one.total.tolist() == [2**62]


@given(entries)
def test_weight_two_is_the_row_twice(drawn: list[tuple[int, int, int]]) -> None:
    """Weights multiply counts and documents."""
    twice = counted(drawn, documents=True)
    twice.merge(counted(drawn, documents=True), np.arange(3))
    weighted = counted(drawn, np.full(6, 2.0), documents=True)
    assert (table(weighted) == table(twice)).all()
    assert (table(weighted, "documents") == table(twice, "documents")).all()


@given(entries)
def test_arrays_round_trip(drawn: list[tuple[int, int, int]]) -> None:
    """What a state file holds gives the counts back."""
    counts = counted(drawn, documents=True)
    again = TokenCounts.from_arrays(counts.arrays(), 3, 4)
    assert all((again.arrays()[name] == array).all() for name, array in counts.arrays().items())


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"total": np.array([1, -1])}, "Expected total of at least 0"),
        ({"total": np.array([1])}, "Expected total of type int64 or float64, shape"),
        ({"tokens": np.array([1, 0], np.int32)}, "once and in order"),
        ({"tokens": np.array([0, 9], np.int32)}, "once and in order"),
        ({"classes": np.array([0, 3], np.int32)}, "once and in order"),
        ({"total": None}, "array 'total', got none"),
    ],
)
def test_damaged_arrays_are_refused(change: dict[str, np.ndarray | None], problem: str) -> None:
    """Loading checks order, range, sign and shape."""
    arrays = {
        "tokens": np.array([0, 1], np.int32),
        "classes": np.array([0, 0], np.int32),
        "total": np.array([3, 4]),
    }
    changed = {name: array for name, array in (arrays | change).items() if array is not None}
    with pytest.raises(FileFormatError, match=problem):
        TokenCounts.from_arrays(changed, 3, 4)


def test_per_document_and_term_frequencies() -> None:
    """Tokens of a document are gathered, damped and normalised within it."""
    rows, codes, counts = per_document(
        np.array([0, 0, 0, 2], np.int32), np.array([1, 0, 1, 3], np.int32), None, width=4
    )
    assert rows.tolist() == [0, 0, 2]
    assert codes.tolist() == [0, 1, 3]
    assert counts.tolist() == [1, 2, 1]
    damped = term_frequencies(rows, counts, 3, sublinear=True, normalize="l2")
    size = np.hypot(1.0, 1.0 + np.log(2.0))
    assert damped == pytest.approx([1.0 / size, (1.0 + np.log(2.0)) / size, 1.0])
    assert term_frequencies(rows, counts, 3, sublinear=False, normalize="l1") == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_sublinear_needs_counts_of_one_and_more() -> None:
    """The logarithm of less than 1 would be a negative count."""
    with pytest.raises(DataError, match=r"at least 1 for sublinear=True, got 0\.5 - row 4"):
        term_frequencies(np.array([4], np.int32), np.array([0.5]), 5, sublinear=True, normalize=None)


def scores(n_classes: int, n_tokens: int, seed: int = 0) -> TokenScores:
    """Scores in which half of the pairs differ from what holds everywhere."""
    draw = np.random.default_rng(seed)
    pairs = np.flatnonzero(draw.random(n_classes * n_tokens) < 0.5)
    return TokenScores(
        tokens=(pairs // n_classes).astype(np.int32),
        classes=(pairs % n_classes).astype(np.int32),
        delta=draw.normal(size=len(pairs)),
        by_class=draw.normal(size=n_classes),
        by_token=draw.normal(size=n_tokens),
        scale=draw.uniform(0.5, 2.0, n_classes),
        bias=np.zeros(n_classes),
    )


@pytest.mark.parametrize("n_classes", [1, 3, 20])
@pytest.mark.parametrize("lots", [1 << 20, 5])
def test_sparse_scores_are_those_of_a_table(n_classes: int, lots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table (for few classes and for many) and the sparse way add the same, and so does `of_class`."""
    tabled = scores(n_classes, 30)
    monkeypatch.setattr("streamnb.tokenscores.TABLE_CELLS", 0)
    monkeypatch.setattr("streamnb.tokenscores.ENTRIES", lots)
    sparse = scores(n_classes, 30)
    draw = np.random.default_rng(1)
    rows = np.sort(draw.integers(0, 9, 40)).astype(np.int32)
    found = TokenRows(rows, draw.integers(0, 30, 40).astype(np.int32), draw.uniform(0.0, 3.0, 40))
    units = tabled.units(np.arange(30))
    assert units == pytest.approx(np.array([sparse.of_class(c) for c in range(n_classes)]))
    expected = np.zeros((n_classes, 10))
    for row, token, value in zip(found.rows, found.tokens, found.values, strict=True):
        expected[:, row] += units[:, token] * value
    for each in (tabled, sparse):
        out = np.zeros((n_classes, 10))
        each.add_to(out, found)
        assert out == pytest.approx(expected)
