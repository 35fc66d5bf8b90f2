"""Followers are killed, paused, added and removed at seeded moments; at the end every row is counted once.

python -m pytest tests/test_follow_faults.py                          # a short run
STREAMNB_FAULTS=200 python -m pytest -s tests/test_follow_faults.py   # 200 moments, 400,000 rows; minutes
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from kafka_tools import SESSION, Follower, events, make_topic, needs_kafka, produce

import streamnb as snb

MOMENTS = int(os.environ.get("STREAMNB_FAULTS", "14"))
PARTITIONS = 4
PAUSE = 2 * SESSION / 1000
"""Seconds of a pause: twice the session timeout, so that a paused follower is presumed dead."""


def row_of(number: int, generator: random.Random) -> dict[str, Any]:
    """Return one row; values near 1e6 show in the moments what is counted twice or not at all."""
    return {
        "y": generator.choice("abc"),
        "n": 1e6 + generator.gauss(number % 7, 1.0),
        "c": generator.choice(["red", "green", None]),
        "f": generator.random() < 0.3,
    }


def log_of(rows: int, seed: int) -> tuple[list[list[Any]], pa.Table, dict[str, int]]:
    """Return the messages of each partition, the rows among them, and how many are skipped by kind."""
    generator = random.Random(seed)
    partitions: list[list[Any]] = [[] for _ in range(PARTITIONS)]
    good, skipped = [], {"malformed": 0, "tombstone": 0, "bad value": 0}
    for i in range(rows):
        row = row_of(i, generator)
        message: Any = row
        if i % 997 == 500:
            message, kind = b'{"y": "a", "n": ', "malformed"
        elif i % 1501 == 500:
            message, kind = None, "tombstone"
        elif i % 1999 == 500:
            message, kind = {**row, "n": "many"}, "bad value"
        else:
            kind = ""
            good.append(row)
        if kind:
            skipped[kind] += 1
        partitions[generator.randrange(PARTITIONS)].append(message)
    types = pa.schema([("y", pa.string()), ("n", pa.float64()), ("c", pa.string()), ("f", pa.bool_())])
    return partitions, pa.Table.from_pylist(good, types), skipped


@needs_kafka
@pytest.mark.parametrize("assignment", ["cooperative", "eager"])
def test_every_row_is_counted_once(kafka: str, tmp_path: Path, assignment: str) -> None:
    """The merged state equals the plain fit of the log: counts exactly, moments to 1e-12."""
    seed = 20 + len(assignment)
    generator = random.Random(seed)
    partitions, table, skipped = log_of(2000 * MOMENTS, seed)
    topic = make_topic(kafka, PARTITIONS)
    options = ["--save-every", "300ms", "--group", topic, "--assignment", assignment]
    options += ["--numeric", "n", "--categorical", "c", "--binary", "f"]

    def start() -> Follower:
        return Follower(kafka, topic, tmp_path, *options)

    for number, messages in enumerate(partitions):
        produce(kafka, topic, messages[:50], number)
    running, paused, ended, did = [start(), start()], {}, [], {"kill": 0, "pause": 0, "add": 0, "remove": 0}
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [each.kill() for each in [*running, *paused, *ended]])
        for moment in range(MOMENTS):
            for number, messages in enumerate(partitions):
                first, last = (50 + (len(messages) - 50) * k // MOMENTS for k in (moment, moment + 1))
                produce(kafka, topic, messages[first:last], number)
            time.sleep(generator.uniform(0.1, 0.9))
            for each, since in list(paused.items()):
                if time.monotonic() - since >= PAUSE:
                    each.send(signal.SIGCONT)
                    running.append(each)
                    del paused[each]
            choices = ["kill", "pause", "remove"] if len(running) > 1 else ["kill", "pause"] if running else []
            choices += ["add", "add"] if len(running) + len(paused) < 4 else []
            what = generator.choice(choices or ["add"])
            did[what] += 1
            if what == "add":
                running.append(start())
                continue
            victim = running.pop(generator.randrange(len(running)))
            if what == "kill":
                victim.kill()
                running.append(start())
            elif what == "pause":
                victim.send(signal.SIGSTOP)
                paused[victim] = time.monotonic()
            else:
                victim.send(signal.SIGTERM)
                ended.append(victim)
        # A follower that was paused too long comes back while others own its partitions.
        time.sleep(max([0.0, *(PAUSE - (time.monotonic() - since) for since in paused.values())]))
        for each in paused:
            each.send(signal.SIGCONT)
        time.sleep(1.0)
        for each in [*running, *paused]:
            each.send(signal.SIGTERM)
        logs = []
        for each in [*running, *paused, *ended]:
            code, log = each.wait()
            assert code == 0 or (code == -signal.SIGTERM and not log), log[-2000:]  # ended before it began
            logs.append(log)
        code, log = Follower(kafka, topic, tmp_path, *options, "--until-end").wait(120)
        assert code == 0, log[-2000:]

    state = snb.State.load(tmp_path)
    plain = snb.State(state.schema)
    plain.update(table)
    mine, right = state.total, plain.total
    fenced = sum(event["event"] == "fenced" for log in logs for event in events(log))
    sys.stdout.write(
        f"\n{assignment}: {MOMENTS} moments {did}, {fenced} saves fenced, {state.n_rows:,} of {plain.n_rows:,} rows\n"
    )
    assert state.classes.equals(plain.classes)
    assert mine.rows.tolist() == right.rows.tolist()
    assert np.array_equal(mine.numeric.count, right.numeric.count)
    assert np.array_equal(mine.binary.total, right.binary.total)
    assert mine.categories["c"] == right.categories["c"]
    assert np.array_equal(mine.categorical["c"].counts, right.categorical["c"].counts)
    np.testing.assert_allclose(mine.numeric.mean, right.numeric.mean, rtol=1e-12)
    np.testing.assert_allclose(mine.numeric.variance(), right.numeric.variance(), rtol=1e-12)
    positions = state.positions.values()
    assert {kind: sum(each["skipped"].get(kind, 0) for each in positions) for kind in skipped} == skipped
    assert [state.positions[f"kafka:{topic}/{i}"]["next"] for i in range(PARTITIONS)] == [*map(len, partitions)]
