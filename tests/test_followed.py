"""One partition: what is counted, what is skipped and why, and where it stands afterwards."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kafka_tools import ipc

import streamnb as snb
from streamnb.followed import BadMessage, Messages, Partition
from streamnb.position import Position, Window
from streamnb.rolling import Rolling
from streamnb.sources.messages import ArrowMessages, JsonMessages

SCHEMA = snb.Schema(label="y", numeric=["n"])
TYPES = pa.schema([("y", pa.string()), ("n", pa.float64())])


def partition(schema: snb.Schema = SCHEMA, **options: Any) -> Partition:
    """Return a partition of JSON messages that begins at offset 0."""
    decoder = JsonMessages(pa.schema([("y", pa.string()), *((name, pa.float64()) for name in schema.features)]))
    position = Position("t", 0, 0, window=options.pop("window", None))
    return Partition(schema, position, decoder, **options)


def as_json(rows: list[Any]) -> list[bytes | None]:
    """Return rows as messages; bytes and None as they are."""
    return [row if isinstance(row, bytes | None) else json.dumps(row).encode() for row in rows]


def messages(rows: list[Any], first: int = 0) -> Messages:
    """Return messages of successive offsets."""
    return Messages(range(first, first + len(rows)), as_json(rows))


def test_c21_redelivered_messages_count_once() -> None:
    """The new owner of a partition gets offsets 4 to 9 again after 6 were counted: 10 rows, not 13."""
    rows = [{"y": "ab"[k % 2], "f0": k, "f1": 1} for k in range(10)]
    schema = snb.Schema(label="y", counts=["f0", "f1"])
    first = partition(schema)
    assert first.take(messages(rows[:7])) == 7
    second = partition(schema)
    saved = snb.State.from_bytes(first.state().to_bytes())
    second.position = Position.from_plain(saved.positions["kafka:t/0"])
    second.restore(saved)
    assert second.take(messages(rows[4:], 4)) == 3
    state = second.state()
    assert state.total.rows.tolist() == [5, 5]
    assert state.total.counts.total.tolist() == [[20, 5], [25, 5]]
    assert second.position.next == 10
    assert second.position.skipped == {"duplicate": 3}
    # The same offsets in another partition are other messages.
    other = partition(schema)
    other.position.partition = 1
    other.take(messages(rows))
    state.merge(other.state())
    assert state.n_rows == 20


C22 = [
    {"y": "a", "n": 2}, None, b'{"y":"b","n":', {"y": "b", "n": 3}, {"y": None, "n": 1}, {"n": 4}, {"y": "a", "n": "7"},
    b'{"y":"a","n":NaN}',
]  # fmt: skip


def test_c22_bad_messages_are_skipped_and_counted() -> None:
    """Two rows count; a tombstone, a cut object, two without a label, two with a value that cannot be, do not."""
    taken = partition()
    rejected: list[tuple[int, str]] = []
    assert taken.take(messages(C22), None, lambda place, kind, _: rejected.append((place, kind))) == 2
    assert taken.position.skipped == {"tombstone": 1, "malformed": 1, "no label": 2, "bad value": 2}
    assert taken.position.next == 8
    state = snb.State.from_bytes(taken.state().to_bytes())
    assert dict(zip(state.classes.to_pylist(), state.total.rows.tolist(), strict=True)) == {"a": 1, "b": 1}
    assert state.total.numeric.mean.ravel().tolist() == [2.0, 3.0]
    assert state.rows_without_label == 2
    assert sorted(rejected) == [(2, "malformed"), (4, "no label"), (5, "no label"), (6, "bad value"), (7, "bad value")]
    assert state.positions["kafka:t/0"]["next"] == 8


def test_c22_strict_stops_at_the_first_bad_message() -> None:
    """All before it are counted, it and all after it are not, and the error says where it stands."""
    taken = partition(strict=True)
    with pytest.raises(BadMessage, match=r"malformed .* t/0 at offset 2"):
        taken.take(messages(C22))
    assert (taken.position.next, taken.position.rows, taken.position.skipped) == (2, 1, {"tombstone": 1})
    with pytest.raises(BadMessage, match="without a label - t/0 at offset 4"):
        taken.take(messages(C22[3:], 3))
    assert (taken.position.next, taken.position.rows) == (4, 2)


@pytest.mark.parametrize("seed", range(8))
def test_any_cut_gives_the_counts_of_a_plain_loop(seed: int) -> None:
    """However messages are delivered, good ones among bad, the state is that of the good rows."""
    generator = random.Random(seed)
    rows: list[Any] = []
    good = []
    kinds = {"malformed": 0, "bad value": 0, "tombstone": 0}
    for _ in range(400):
        row = {"y": generator.choice("abc"), "n": generator.gauss(1e6, 1)}
        kind = generator.choice([*kinds] + [""] * 20)
        bad: dict[str, Any] = {
            "malformed": generator.choice([b"", b"[]", b'{"y"']),
            "bad value": generator.choice([{**row, "n": []}, {**row, "y": 1}, b'{"y":"a","n":1e999}']),
            "tombstone": None,
        }
        rows.append(bad[kind] if kind else row)
        if kind:
            kinds[kind] += 1
        else:
            good.append(row)
    taken, at = partition(), 0
    while at < len(rows):
        again, more = generator.randrange(min(at, 5) + 1), generator.randrange(1, 120)
        taken.take(messages(rows[at - again : at + more], at - again))
        at += more
    plain = snb.State(SCHEMA)
    plain.update(pa.Table.from_pylist(good, TYPES))
    total = taken.total()
    assert total.rows.tolist() == plain.total.rows.tolist()
    np.testing.assert_allclose(total.numeric.mean, plain.total.numeric.mean, rtol=1e-12)
    skipped = {kind: taken.position.skipped.get(kind, 0) for kind in kinds}
    assert skipped == kinds
    assert taken.position.next == 400
    assert taken.position.gaps == 0


def test_gaps_and_values_that_only_counting_refuses() -> None:
    """Offsets may leave gaps; a negative count is a bad value though it is fine JSON."""
    schema = snb.Schema(label="y", counts=["f"])
    taken = partition(schema)
    rows = [{"y": "a", "f": 1}, {"y": "a", "f": -1}, {"y": "b", "f": 2}]
    assert taken.take(Messages([3, 7, 8], as_json(rows))) == 2
    assert (taken.position.next, taken.position.gaps) == (9, 6)
    assert taken.position.skipped == {"bad value": 1}
    taken.move_to(11)
    assert (taken.position.next, taken.position.gaps) == (11, 8)


def test_an_arrow_message_counts_whole_or_not_at_all() -> None:
    """One bad row of many leaves out its message, and nothing of it is counted."""
    schema = snb.Schema(label="y", binary=["f"])
    taken = Partition(schema, Position("t", 0, 0), ArrowMessages(schema.columns), label_type="string")
    good = pa.table({"y": ["a", "b", None], "f": [0, 1, 1]})
    bad = pa.table({"y": ["a", "b", "b"], "f": [0, 1, 2]})
    other = pa.table({"y": [1, 2], "f": [0, 1]})
    lacking = pa.table({"y": ["a"]})
    given = Messages(range(7), [ipc(good), ipc(bad), None, ipc(other), ipc(good), ipc(lacking), b"x"])
    assert taken.take(given) == 4
    assert taken.total().rows.tolist() == [2, 2]
    skips = {"bad value": 3, "tombstone": 1, "malformed": 1, "no label": 2}
    assert taken.position.skipped == skips


def test_a_large_arrow_message_is_cut_and_counted_whole() -> None:
    """More rows than a batch holds; the last one spoils them all."""
    schema = snb.Schema(label="y", binary=["f"])
    taken = Partition(schema, Position("t", 0, 0), ArrowMessages(schema.columns))
    flags = np.zeros(150_000, np.int8)
    table = pa.table({"y": pa.array(["a"] * len(flags)), "f": flags})
    flags[-1] = 2
    spoilt = pa.table({"y": pa.array(["a"] * len(flags)), "f": flags.copy()})
    assert taken.take(Messages([0, 1], [ipc(table.set_column(1, "f", [[0] * len(flags)])), ipc(spoilt)])) == 150_000
    assert taken.total().rows.tolist() == [150_000]


# Test-then-train ----------------------------------------------------------------------------------------------------


def test_each_batch_is_predicted_before_it_is_counted() -> None:
    """The answers are those of the model before the batch; a message that is left out is no answer."""
    taken = partition(evaluation=Rolling(100))
    taken.take(messages([{"y": "a", "n": 0}, {"y": "a", "n": 1}, {"y": "b", "n": 10}, {"y": "b", "n": 11}]))
    model = taken.state().finish()
    rows = [{"y": "a", "n": 0.5}, {"y": "a", "n": 10.5}, {"y": "c", "n": 3}, b"", {"y": None, "n": 1}]
    taken.take(messages(rows, 4), model)
    assert taken.evaluation is not None
    report = taken.evaluation.report()
    assert report["rows"] == 3
    assert report["accuracy"] == pytest.approx(1 / 3)
    kept = Rolling.from_plain(taken.state().positions["kafka:t/0"]["evaluation"], 100)
    assert kept.report() == report


# Windows ------------------------------------------------------------------------------------------------------------


def timed(rows: list[tuple[int, str]], first: int = 0) -> Messages:
    """Return messages of (time in ms, label)."""
    values = [json.dumps({"y": label, "n": 1.0}).encode() for _, label in rows]
    return Messages(range(first, first + len(rows)), values, [time for time, _ in rows])


@pytest.mark.parametrize("strict", [False, True])
def test_a_window_keeps_the_last_slides(strict: bool) -> None:
    """Rows count in the slide of their time; slides leave; late rows are counted where they belong, or as too late."""
    taken = partition(window=Window(30, 10), strict=strict)
    taken.take(timed([(5, "a"), (12, "b"), (3, "a"), (27, "c")]))  # 3 is late, and still in the window
    assert sorted(taken.slices) == [0, 10, 20]  # type: ignore[type-var]
    assert taken.total().rows.tolist() == [2, 1, 1]
    taken.take(timed([(33, "d"), (9, "a"), (15, "b")], 4))  # the slide of 9 has left when 33 came
    assert sorted(taken.slices) == [10, 20, 30]  # type: ignore[type-var]
    assert taken.state().n_rows == 4
    assert taken.position.skipped == {"too late": 1}
    saved = snb.State.from_bytes(taken.state().to_bytes())
    again = partition(window=Window(30, 10))
    again.position = Position.from_plain(saved.positions["kafka:t/0"])
    again.restore(saved)
    assert again.position.newest == 30
    again.take(timed([(100, "z"), (-1, "z")], 7))
    assert again.state().classes.to_pylist() == ["z"]
    assert again.position.skipped == {"too late": 1, "no timestamp": 1}


@pytest.mark.parametrize("seed", range(5))
def test_a_window_does_not_depend_on_how_messages_are_delivered(seed: int) -> None:
    """One by one or in any cut, the same rows are in the window and the same are too late."""
    generator = random.Random(seed)
    rows = [(max(0, 3 * i + generator.randrange(-60, 20)), generator.choice("ab")) for i in range(300)]
    one = partition(window=Window(40, 10))
    for i, row in enumerate(rows):
        one.take(timed([row], i))
    cut, at = partition(window=Window(40, 10)), 0
    while at < len(rows):
        more = generator.randrange(1, 50)
        cut.take(timed(rows[at : at + more], at))
        at += more
    assert cut.position.skipped == one.position.skipped
    assert cut.total().rows.tolist() == one.total().rows.tolist()
    assert sorted(cut.slices) == sorted(one.slices)  # type: ignore[type-var]
    newest = one.position.newest
    assert newest is not None
    # Of the rows that are in a live slide, all that were not too late when they came are counted.
    expected, last = 0, 0
    for time, _ in rows:
        last = max(last, time - time % 10)
        expected += time - time % 10 > newest - 40 and time - time % 10 > last - 40
    assert one.total().rows.sum() == expected


def test_a_window_is_a_multiple_of_its_slide() -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match="multiple of its slide"):
        Window(25, 10)
