"""A topic on a real broker is followed: what is delivered, refused, skipped, saved and shown."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_tools import Follower, consume, events, eventually, ipc, make_topic, needs_kafka, produce
from typer.testing import CliRunner

import streamnb as snb
from streamnb.cli import app
from streamnb.localbroker import Broker


@pytest.fixture
def follower() -> Iterator[Callable[..., Follower]]:
    """Start followers that do not outlive the test."""
    started: list[Follower] = []

    def start(*arguments: Any, **options: Any) -> Follower:
        started.append(Follower(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def rows_of(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return rows of two classes, with a number, a string and a flag."""
    generator = random.Random(seed)
    return [
        {
            "y": (label := generator.choice("ab")),
            "n": generator.gauss(0.0 if label == "a" else 3.0, 1.0),
            "c": generator.choice(["red", "green"]),
            "f": generator.random() < 0.5,
        }
        for _ in range(number)
    ]


def plain(rows: list[dict[str, Any]], schema: snb.Schema) -> snb.State:
    """Return the state of a plain loop."""
    state = snb.State(schema)
    state.update(pa.Table.from_pylist(rows))
    return state


def same_counts(one: snb.State, two: snb.State) -> bool:
    """Whether two states have the same counts and, but for rounding, the same means."""
    mine, right = one.total, two.total
    return (
        mine.classes == right.classes
        and mine.rows.tolist() == right.rows.tolist()
        and mine.numeric.mean.ravel().tolist() == pytest.approx(right.numeric.mean.ravel().tolist(), rel=1e-12)
        and all((mine.categorical[name].counts == right.categorical[name].counts).all() for name in mine.categorical)
        and (mine.binary.total == right.binary.total).all()
    )


@pytest.mark.parametrize("message_format", ["json", "arrow"])
def test_a_topic_is_counted_once_however_often_it_is_followed(kafka: str, tmp_path: Path, message_format: Any) -> None:
    """From the beginning, with nothing new, and with more; by label alone, the kinds coming from the types."""
    topic, rows = make_topic(kafka, 2), rows_of(3000)

    def send(part: list[dict[str, Any]]) -> None:
        for number in (0, 1):
            mine = part[number::2]
            batches = [ipc(pa.Table.from_pylist(mine[i : i + 100])) for i in range(0, len(mine), 100)]
            produce(kafka, topic, batches if message_format == "arrow" else mine, number)

    options: dict[str, Any] = {"state": tmp_path, "until_end": True, "message_format": message_format, "group": topic}
    send(rows[:2000])
    state = snb.follow(kafka, topic, "y", **options)
    assert state.schema == snb.Schema(label="y", numeric=["n"], categorical=["c"], binary=["f"])
    assert same_counts(state, plain(rows[:2000], state.schema))
    again = snb.follow(kafka, topic, "y", **options)
    assert again.total.rows.tolist() == state.total.rows.tolist()
    send(rows[2000:])
    state = snb.follow(kafka, topic, "y", **options)
    assert same_counts(state, plain(rows, state.schema))
    assert snb.State.load(tmp_path) == state
    position = state.positions[f"kafka:{topic}/0"]
    assert (position["rows"], position["skipped"], position["gaps"]) == (1500, {}, 0)
    assert position["generation"] >= 2
    # The broker was told, for those who watch it.
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": topic, "log_level": 0})
    eventually(lambda: consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == position["next"])
    consumer.close()


def test_without_a_state_a_committed_offset_is_refused(kafka: str, tmp_path: Path) -> None:
    """Someone lost the files: the error shows the two ways out, and each leads out."""
    topic, rows = make_topic(kafka), rows_of(50)
    produce(kafka, topic, rows)
    options: dict[str, Any] = {"until_end": True, "group": topic}
    snb.follow(kafka, topic, "y", state=tmp_path / "first", **options)
    with pytest.raises(snb.SourceError, match=r"committed offset 50; .*--from beginning, --from end"):
        snb.follow(kafka, topic, "y", state=tmp_path / "second", **options)
    assert snb.follow(kafka, topic, "y", state=tmp_path / "second", start="beginning", **options).n_rows == 50
    assert snb.follow(kafka, topic, "y", state=tmp_path / "third", start="end", **options).n_rows == 0
    produce(kafka, topic, rows[:7])
    # Once there is a file, it decides, whatever is asked for.
    assert snb.follow(kafka, topic, "y", state=tmp_path / "third", start="beginning", **options).n_rows == 7


@needs_kafka
def test_a_topic_made_anew_is_refused(kafka: str, tmp_path: Path) -> None:
    """Its id tells, and where a state has none, that its end lies before the state's offset."""
    topic = make_topic(kafka)
    produce(kafka, topic, rows_of(50))
    options: dict[str, Any] = {"until_end": True, "group": topic, "state": tmp_path}
    snb.follow(kafka, topic, "y", **options)
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    produce(kafka, topic, rows_of(20))
    with pytest.raises(snb.SourceError, match=r"followed up to offset 50, got another .* offsets 0 to 20"):
        snb.follow(kafka, topic, "y", **options)
    file = next(tmp_path.glob("*.snb"))
    state = snb.State.load(file)
    del state.positions[f"kafka:{topic}/0"]["topic_id"]
    state.save(file)
    with pytest.raises(snb.SourceError, match=r"go on from offset 50, got a topic that ends at 20"):
        snb.follow(kafka, topic, "y", **options)


@needs_kafka
def test_messages_that_expired_are_refused_or_accepted(kafka: str, tmp_path: Path) -> None:
    """The oldest offset that is left lies behind the state's: both numbers, and what was lost is kept count of."""
    topic, rows = make_topic(kafka), rows_of(100)
    produce(kafka, topic, rows[:40])
    options: dict[str, Any] = {"until_end": True, "group": topic, "state": tmp_path}
    snb.follow(kafka, topic, "y", **options)
    produce(kafka, topic, rows[40:])
    admin = AdminClient({"bootstrap.servers": kafka, "log_level": 0})
    place = TopicPartition(topic, 0, 70)
    next(iter(admin.delete_records([place]).values())).result(30)
    with pytest.raises(snb.SourceError, match=r"from offset 40, got 70 .* without the 30 .*--lost accept"):
        snb.follow(kafka, topic, "y", **options)
    state = snb.follow(kafka, topic, "y", lost="accept", **options)
    assert state.n_rows == 70
    assert state.positions[f"kafka:{topic}/0"]["lost"] == 30


@needs_kafka
def test_transactions_leave_gaps_and_aborted_rows_do_not_count(kafka: str, tmp_path: Path) -> None:
    """Markers take offsets; a run to the end passes them also where they stand last."""
    topic, rows = make_topic(kafka), rows_of(30)
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for first, keep in ((0, True), (10, False), (20, True)):
        producer.begin_transaction()
        for row in rows[first : first + 10]:
            producer.produce(topic, pl.DataFrame([row]).write_ndjson().encode(), partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if keep else producer.abort_transaction(30)
    state = snb.follow(kafka, topic, "y", state=tmp_path, until_end=True, group=topic)
    position = state.positions[f"kafka:{topic}/0"]
    assert same_counts(state, plain(rows[:10] + rows[20:], state.schema))
    assert (position["next"], position["rows"], position["gaps"]) == (33, 20, 13)


def test_bad_messages_go_to_the_dead_letters(kafka: str, tmp_path: Path) -> None:
    """With key, headers and value as they were, and the reason; the rest is counted, and so are the kinds."""
    topic, letters, rows = make_topic(kafka), make_topic(kafka), rows_of(20)
    bad = [b'{"y":"a"', {"y": "a", "n": "7"}, {"n": 1}, None, b"[]"]
    produce(kafka, topic, rows)
    produce(kafka, topic, bad, key=b"k", headers=[("h", b"1")])
    produce(kafka, topic, rows)
    schema = snb.Schema(label="y", numeric=["n"])
    state = snb.follow(kafka, topic, schema=schema, state=tmp_path, until_end=True, group=topic, dead_letters=letters)
    assert state.n_rows == 40
    position = state.positions[f"kafka:{topic}/0"]
    assert position["skipped"] == {"malformed": 2, "bad value": 1, "no label": 1, "tombstone": 1}
    found = {int(dict(each.headers())["streamnb.offset"]): each for each in consume(kafka, letters)}
    assert sorted(found) == [20, 21, 22, 24]
    first, headers = found[20], dict(found[20].headers())
    assert (first.value(), first.key(), headers["h"]) == (bad[0], b"k", b"1")
    assert (headers["streamnb.kind"], headers["streamnb.topic"]) == (b"malformed", topic.encode())
    assert headers["streamnb.partition"] == b"0"
    assert headers["streamnb.reason"]
    assert dict(found[21].headers())["streamnb.kind"] == b"bad value"
    with pytest.raises(ValueError, match="another topic for dead letters"):
        snb.follow(kafka, topic, schema=schema, state=tmp_path, dead_letters=topic)


def test_strict_stops_and_says_where(kafka: str, tmp_path: Path) -> None:
    """One line on the command line; what stood before the bad message is saved, and it stops there again."""
    topic, rows = make_topic(kafka), rows_of(30)
    produce(kafka, topic, [*rows[:17], {**rows[17], "n": "many"}, *rows[18:]])
    line = ["follow", "--bootstrap", kafka, "--topic", topic, "--group", topic, "--label", "y", "--numeric", "n"]
    line += ["--state", str(tmp_path), "--until-end"]
    for _ in range(2):
        result = CliRunner().invoke(app, [*line, "--strict"])
        assert result.exit_code == 1
        last = result.stderr.splitlines()[-1]
        assert last.startswith("error: Expected a message that can be counted, got a bad value: ")
        assert last.endswith(f"- {topic}/0 at offset 17")
        state = snb.State.load(tmp_path)
        assert (state.n_rows, state.positions[f"kafka:{topic}/0"]["next"]) == (17, 17)
    assert CliRunner().invoke(app, line).exit_code == 0
    assert snb.State.load(tmp_path).n_rows == 29


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_saves_before_it_stops(kafka: str, tmp_path: Path, number: signal.Signals, follower: Any) -> None:
    """Nothing but the signal makes it save here; it exits with 0, and its log is lines of JSON."""
    topic, rows = make_topic(kafka), rows_of(500)
    produce(kafka, topic, rows)
    runs = follower(kafka, topic, tmp_path, "--group", topic, "--save-every", "1h", "--log-every", "100ms")
    eventually(lambda: any(event["rows"] == 500 for event in events(runs.said())))
    assert snb.State.load(tmp_path).n_rows == 0
    runs.send(number)
    code, log = runs.wait()
    assert code == 0, log
    assert snb.State.load(tmp_path).n_rows == 500
    assert [event["event"] for event in events(log)][-1] == "ended"
    assert log.splitlines()[-1] == f"500 rows, 2 classes -> {tmp_path}"


def test_it_stops_after_so_many_rows(kafka: str, tmp_path: Path) -> None:
    """Exactly, and goes on from there."""
    topic, rows = make_topic(kafka), rows_of(300)
    produce(kafka, topic, rows)
    state = snb.follow(kafka, topic, "y", state=tmp_path, group=topic, max_rows=123)
    assert same_counts(state, plain(rows[:123], state.schema))
    state = snb.follow(kafka, topic, "y", state=tmp_path, group=topic, until_end=True)
    assert same_counts(state, plain(rows, state.schema))


def test_another_follower_of_the_folder_takes_over(kafka: str, tmp_path: Path) -> None:
    """A follower that goes on writing, though another has its partition, is fenced: nothing counts twice."""
    topic, rows = make_topic(kafka), rows_of(200)
    produce(kafka, topic, rows[:100])
    stop, told = threading.Event(), []
    first = threading.Thread(
        target=snb.follow,
        args=(kafka, topic, "y"),
        kwargs={
            "state": tmp_path, "group": f"{topic}-1", "save_seconds": 0.1, "stop": stop,
            "progress": lambda at: told.append(at.event),
        },
    )  # fmt: skip
    first.start()
    try:
        eventually(lambda: (tmp_path / "follow.json").exists() and _rows(tmp_path) == 100)
        taken = threading.Event()
        second = snb.follow(
            kafka, topic, "y", state=tmp_path, group=f"{topic}-2", stop=taken,
            progress=lambda at: taken.set() if at.event == "assigned" else None,
        )  # fmt: skip
        assert second.n_rows == 100
        produce(kafka, topic, rows[100:])
        eventually(lambda: "fenced" in told)
        assert snb.follow(kafka, topic, "y", state=tmp_path, group=f"{topic}-2", until_end=True).n_rows == 200
    finally:
        stop.set()
        first.join(30)
    assert same_counts(snb.State.load(tmp_path), plain(rows, snb.State.load(tmp_path).schema))


def _rows(folder: Path) -> int:
    try:
        return snb.State.load(folder).n_rows
    except snb.SourceError:
        return -1


def test_the_folder_is_readable_while_it_is_written(kafka: str, tmp_path: Path, follower: Any) -> None:
    """`show`, `merge` and `finish` find whole states that only grow; a published model is handed on."""
    topic, rows = make_topic(kafka), rows_of(4000)
    folder, model = tmp_path / "state", tmp_path / "model.snb"
    produce(kafka, topic, rows[:100])
    more = ["--save-every", "50ms", "--publish", str(model), "--every", "100ms", "--evaluate", "500"]
    runs = follower(kafka, topic, folder, "--group", topic, *more)
    try:
        eventually(model.exists)
        newest, seen = snb.PredictorFile(model), [0]
        for first in range(100, 4000, 300):
            produce(kafka, topic, rows[first : first + 300])
            newest.current().predict(pl.DataFrame({"n": [1.0], "c": ["red"], "f": [True]}))
            seen.append(snb.State.load(folder).n_rows)
            time.sleep(0.05)
        assert seen == sorted(seen)
        eventually(lambda: _rows(folder) == 4000)
        shown = CliRunner().invoke(app, ["show", str(folder)])
        assert "A state: 4,000 rows" in shown.stdout
        assert [f"{topic}/0", "4,000", "4,000", "-"] in [line.split() for line in shown.stdout.splitlines()]
        merged = tmp_path / "all.snb"
        assert CliRunner().invoke(app, ["merge", str(folder), "-o", str(merged)]).exit_code == 0
        assert snb.State.load(merged).n_rows == 4000
        finished = ["finish", str(folder), "-o", str(tmp_path / "m.snb"), "--alpha", "0.5"]
        assert CliRunner().invoke(app, finished).exit_code == 0
        eventually(lambda: newest.current() == snb.State.load(folder).finish())
        assert newest.loads > 1
    finally:
        runs.send(signal.SIGTERM)
        code, log = runs.wait()
    assert code == 0, log
    evaluation = next(event for event in events(log) if event["event"] == "stopping")["evaluation"]
    kept = snb.State.load(folder).positions[f"kafka:{topic}/0"]["evaluation"]
    assert 3000 < kept["total"][0] <= 3900
    assert (evaluation["rows"], evaluation["accuracy"]) == (kept["total"][0], kept["total"][1] / kept["total"][0])
    assert evaluation["accuracy"] > 0.85
    assert 500 <= evaluation["recent_rows"] < 3900


@needs_kafka
def test_a_window_counts_by_the_time_of_messages(kafka: str, tmp_path: Path) -> None:
    """Of two days in steps of an hour, the last three hours count; a message of yesterday is too late."""
    topic, rows = make_topic(kafka), rows_of(48)
    hour = 3_600_000
    now = int(time.time() * 1000) // hour * hour - 48 * hour
    for i, row in enumerate(rows):
        produce(kafka, topic, [row], timestamp=now + i * hour)
    produce(kafka, topic, rows[:5], timestamp=now + 24 * hour)
    window = snb.Window(3 * hour, hour)
    state = snb.follow(kafka, topic, "y", state=tmp_path, group=topic, until_end=True, window=window)
    assert same_counts(state, plain(rows[45:], state.schema))
    assert state.positions[f"kafka:{topic}/0"]["skipped"] == {"too late": 5}
    produce(kafka, topic, rows[:1], timestamp=now + 48 * hour)
    state = snb.follow(kafka, topic, "y", state=tmp_path, group=topic, until_end=True, window=window)
    assert same_counts(state, plain(rows[46:] + rows[:1], state.schema))
    with pytest.raises(snb.SourceError, match="window of"):
        snb.follow(kafka, topic, "y", state=tmp_path, group=topic, until_end=True)


@needs_kafka
def test_a_broker_that_goes_away_and_comes_back(tmp_path: Path, follower: Any) -> None:
    """The follower keeps trying, says so, and loses nothing."""
    own = Broker("kafka")
    try:
        own.start()
        topic, rows = make_topic(own.address), rows_of(200)
        produce(own.address, topic, rows[:100])
        soon = {"reconnect.backoff.max.ms": "300"}
        runs = follower(own.address, topic, tmp_path, "--save-every", "100ms", client=soon)
        eventually(lambda: _rows(tmp_path) == 100)
        own.stop()
        eventually(lambda: '"broker_away"' in runs.said())
        own.start()
        produce(own.address, topic, rows[100:])
        eventually(lambda: _rows(tmp_path) == 200, 60)
        runs.send(signal.SIGTERM)
        code, log = runs.wait()
        assert code == 0, log
        assert "broker_back" in [event["event"] for event in events(log)]
        state = snb.State.load(tmp_path)
        assert same_counts(state, plain(rows, state.schema))
    finally:
        own.remove()


def test_the_demo_kills_a_follower_and_goes_on(kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what it does, and checks itself that every row is counted once."""
    monkeypatch.setenv("STREAMNB_KAFKA", kafka)
    result = CliRunner().invoke(app, ["demo", "--kafka", "--rows", "20000", "--dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "each counted once; " in result.stdout
    assert result.stdout.count("next offset") == 4


def test_what_cannot_be_followed(kafka: str, tmp_path: Path) -> None:
    """One clear line for each: no broker, no topic, no messages, another topic's folder, wrong options."""
    topic = make_topic(kafka)
    with pytest.raises(snb.SourceError, match="one JSON object, got none among the first 0"):
        snb.follow(kafka, topic, "y", state=tmp_path, until_end=True)
    produce(kafka, topic, rows_of(5))
    with pytest.raises(snb.SourceError, match=r"Expected topic 'nothing-here'"):
        snb.follow(kafka, "nothing-here", "y", state=tmp_path, until_end=True)
    with pytest.raises(snb.SchemaError, match="'why'"):
        snb.follow(kafka, topic, "why", state=tmp_path, until_end=True)
    snb.follow(kafka, topic, "y", state=tmp_path, until_end=True, group=topic)
    with pytest.raises(snb.SourceError, match="the topic of "):
        snb.follow(kafka, "other", "y", state=tmp_path, until_end=True)
    with pytest.raises(snb.SourceError, match="the schema of "):
        snb.follow(kafka, topic, schema=snb.Schema(label="y", numeric=["n"]), state=tmp_path, until_end=True)
    with pytest.raises(snb.SourceError, match="the type of 'n'"):
        snb.follow(kafka, topic, "y", state=tmp_path, until_end=True, types={"n": "string"})
    with pytest.raises(ValueError, match=r"leave positions to the state, got enable\.auto"):
        snb.follow(kafka, topic, "y", state=tmp_path, client={"enable.auto.commit": True})
    with pytest.raises(ValueError, match="options that the Kafka client knows"):
        snb.follow(kafka, topic, "y", state=tmp_path, client={"no.such.option": "1"})
    for wrong in ({"start": "middle"}, {"message_format": "xml"}, {"lost": "perhaps"}, {"assignment": "mine"}):
        with pytest.raises(ValueError, match="Expected"):
            snb.follow(kafka, topic, "y", state=tmp_path, **wrong)  # type: ignore[arg-type]
    with pytest.raises(snb.SchemaError, match="got neither"):
        snb.follow(kafka, topic, state=tmp_path)
