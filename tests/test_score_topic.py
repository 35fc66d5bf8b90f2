"""From topic to topic: one answer for each message, with the newest model, also where scorers are killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_tools import QUICK, ROOT, consume, eventually, ipc, make_topic, needs_kafka, produce
from test_follow import rows_of

import streamnb as snb


def model_of(rows: list[dict[str, Any]]) -> snb.Predictor:
    """Return a model of all columns."""
    state = snb.State(snb.Schema(label="y", numeric=["n"], categorical=["c"], binary=["f"]))
    state.update(pa.Table.from_pylist(rows))
    return state.finish()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model file."""
    path = tmp_path / "model.snb"
    model_of(rows_of(2000)).save(path)
    return path


def features(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without its label."""
    return {name: value for name, value in row.items() if name != "y"}


@needs_kafka
def test_json_is_answered_message_by_message(kafka: str, model: Path) -> None:
    """With probabilities; keys, headers, times and tombstones stay, and a bad message is answered by its reason."""
    topic, target, rows = make_topic(kafka), make_topic(kafka), rows_of(40, seed=1)
    produce(kafka, topic, map(features, rows), key=b"k", headers=[("h", b"1")], timestamp=1_700_000_000_123)
    produce(kafka, topic, [None, b'{"n":', {"n": "7"}, {}])
    done = snb.score_topic(kafka, topic, target, model, proba=True, group=topic, max_messages=44)
    assert done == 44
    found = consume(kafka, target)
    answers = [None if each.value() is None else json.loads(each.value()) for each in found]
    right = snb.Predictor.load(model)
    table = pa.Table.from_pylist([features(row) for row in rows])
    assert [each["prediction"] for each in answers[:40]] == right.predict(table).to_pylist()
    assert [list(each["proba"].values()) for each in answers[:40]] == right.predict_proba(table).tolist()
    first = found[0]
    assert (first.key(), first.headers(), first.timestamp()[1]) == (b"k", [("h", b"1")], 1_700_000_000_123)
    assert answers[40] is None
    assert [each["prediction"] for each in answers[41:]] == [None, None, answers[43]["prediction"]]
    assert "error" in answers[41]
    assert "error" in answers[42]
    assert answers[43]["proba"] == pytest.approx(dict(zip("ab", right.predict_proba(pa.table(
        {"n": pa.array([None], pa.float64()), "c": pa.array([None], pa.string()), "f": pa.array([None], pa.float64())}
    ))[0], strict=True)))  # fmt: skip


@needs_kafka
def test_arrow_is_answered_by_arrow(kafka: str, model: Path) -> None:
    """One stream for each, with as many rows."""
    topic, target, rows = make_topic(kafka), make_topic(kafka), rows_of(30, seed=1)
    tables = [pa.Table.from_pylist(rows[i : i + 10]).drop_columns("y") for i in (0, 10, 20)]
    produce(kafka, topic, [ipc(tables[0]), b"x", ipc(tables[1]), ipc(tables[2])])
    snb.score_topic(kafka, topic, target, model, message_format="arrow", proba=True, group=topic, max_messages=4)
    found = [pa.ipc.open_stream(each.value()).read_all() for each in consume(kafka, target)]
    right = snb.Predictor.load(model)
    assert [each.num_rows for each in found] == [10, 0, 10, 10]
    assert found[2].column("prediction").to_pylist() == right.predict(tables[1]).to_pylist()
    assert found[2].column_names == ["prediction", "proba_a", "proba_b"]
    assert b"Arrow IPC" in found[1].schema.metadata[b"error"]


@needs_kafka
def test_a_newer_model_is_taken_without_a_restart(kafka: str, model: Path) -> None:
    """The file is replaced while the scorer runs; the answers after that are the new model's."""
    topic, target = make_topic(kafka), make_topic(kafka)
    old, rows = snb.Predictor.load(model), rows_of(400)
    new = model_of([{**row, "y": {"a": "b", "b": "a"}[row["y"]]} for row in rows])
    probe = {"n": 3.0, "c": "red", "f": True}
    produce(kafka, topic, [probe])
    stop = threading.Event()
    runs = threading.Thread(
        target=snb.score_topic, args=(kafka, topic, target, model), kwargs={"group": topic, "stop": stop}
    )
    runs.start()
    try:
        eventually(lambda: len(consume(kafka, target)) == 1)
        new.save(model)
        produce(kafka, topic, [probe])
        eventually(lambda: len(consume(kafka, target)) == 2)
    finally:
        stop.set()
        runs.join(30)
    answers = [json.loads(each.value())["prediction"] for each in consume(kafka, target)]
    table = pa.table({"n": [3.0], "c": ["red"], "f": [True]})
    assert answers == [*old.predict(table).to_pylist(), *new.predict(table).to_pylist()]
    assert answers[0] != answers[1]


@needs_kafka
def test_each_message_is_answered_once_though_scorers_are_killed(kafka: str, model: Path) -> None:
    """Two real scorers, one killed every second or so: who reads committed messages sees each key once."""
    topic, target, generator = make_topic(kafka, 2), make_topic(kafka), random.Random(3)
    rows = rows_of(6000, seed=2)
    quick = [part for key, value in QUICK.items() for part in ("--client", f"{key}={value}")]
    line = ["score", "--bootstrap", kafka, "--in", topic, "--out", target, "--model", str(model), "--group", topic]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "streamnb", *line, *quick],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )

    running = [start(), start()]
    try:
        for first in range(0, len(rows), 1000):
            for i, row in enumerate(rows[first : first + 1000], first):
                produce_one(kafka, topic, i, row)
            time.sleep(generator.uniform(0.8, 1.6))
            victim = running.pop(generator.randrange(2))
            victim.kill()
            victim.wait()
            running.append(start())
        eventually(lambda: len(consume(kafka, target)) >= len(rows), 60)
    finally:
        for each in running:
            each.terminate()
        for each in running:
            assert each.wait(30) in (0, -15)
    keys = sorted(int(each.key()) for each in consume(kafka, target))
    assert keys == list(range(len(rows)))


def produce_one(address: str, topic: str, key: int, row: dict[str, Any]) -> None:
    """Send one row under a key, without waiting for it."""
    from kafka_tools import producer_of

    producer_of(address).produce(topic, json.dumps(features(row)).encode(), key=str(key).encode(), partition=key % 2)
    producer_of(address).poll(0)


def test_what_cannot_be_scored(kafka: str, model: Path, tmp_path: Path) -> None:
    """One clear line for each."""
    topic = make_topic(kafka)
    with pytest.raises(snb.SourceError, match="There is no file"):
        snb.score_topic(kafka, topic, "out", tmp_path / "none.snb")
    with pytest.raises(ValueError, match="another topic for the answers"):
        snb.score_topic(kafka, topic, topic, model)
    with pytest.raises(snb.SourceError, match="Expected topic 'nothing-here'"):
        snb.score_topic(kafka, "nothing-here", "out", model)
