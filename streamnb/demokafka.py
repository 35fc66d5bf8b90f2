"""The demo of following: a broker of its own, a topic that fills, a follower that is killed and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from streamnb.errors import SourceError, StreamNBError

__all__ = ["demo_kafka"]

PARTITIONS = 4
LABELS = np.array(["browse", "buy", "leave"])
MINUTES = np.array([6.0, 9.0, 1.5])


def demo_kafka(rows: int, folder: Path, say: Callable[[str], Any]) -> None:
    """Fill a topic with `rows` visits, follow it, kill the follower half way, and go on; `say` gets each line.

    Raises:
        StreamNBError: there is no broker to start.
    """
    from streamnb.localbroker import broker

    say("1. Starting a broker on loopback")
    start = time.perf_counter()
    with broker() as address:
        say(f"   {address}, {time.perf_counter() - start:.1f} s")
        _run(address, rows, folder / "state", say)


def _run(address: str, rows: int, folder: Path, say: Callable[[str], Any]) -> None:
    from streamnb.follow import follow
    from streamnb.state import State

    topic = f"visits-{uuid.uuid4().hex[:6]}"  # on a broker of one's own the demo may run twice
    say(f"\n2. Sending {rows:,} visits to the topic {topic}, some of them broken")
    broken = _produce(address, topic, rows)
    say(f"   {broken:,} broken ones")

    say("\n3. Following it in another process, which is killed as soon as it has saved something")
    line = ["follow", "--bootstrap", address, "--topic", topic, "--label", "visit", "--state", str(folder)]
    more = ["--group", topic, "--save-every", "100ms", "--client", "session.timeout.ms=6000"]
    # Found through the folder that this very package stands in, installed or not.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.parent), *sys.path[1:]])}
    process = subprocess.Popen(
        [sys.executable, "-m", "streamnb", *line, *more], stderr=subprocess.DEVNULL, env=environment
    )
    try:
        end = time.monotonic() + 60
        while _saved(folder) == 0:
            if time.monotonic() > end or process.poll() is not None:
                raise SourceError("Expected the follower to count something, got nothing")
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    finally:
        process.kill()
        process.wait()
    say(f"   killed with {_saved(folder):,} rows in its files")

    say("\n4. Following on from the offsets in the files, to the end")
    start = time.perf_counter()
    state = follow(address, topic, "visit", state=folder, group=topic, until_end=True)
    say(f"   {time.perf_counter() - start:.1f} s, most of it until the group has given up the one that was killed")
    counted = state.n_rows
    if counted != rows - broken:
        raise AssertionError(f"Expected {rows - broken:,} rows, got {counted:,}")
    say(f"   {counted:,} rows, each counted once; {broken:,} left out")

    say("\n5. How far each partition is counted")
    for position in State.load(folder).positions.values():
        left_out = ", ".join(f"{number} {kind}" for kind, number in position["skipped"].items())
        say(f"   partition {position['partition']}: next offset {position['next']:,}, left out: {left_out or 'none'}")
    say("\n6. What the model makes of 9 minutes")
    import pyarrow as pa

    say(f"   {state.finish().predict(pa.table({'minutes': [9.0]}))[0].as_py()}")


def _produce(address: str, topic: str, rows: int) -> int:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20})
    rng = np.random.default_rng(0)
    labels, broken = rng.integers(0, len(LABELS), rows), rng.random(rows) < 0.001
    minutes = rng.normal(MINUTES[labels], 1.0).round(3)
    for i in range(rows):
        message = json.dumps({"visit": LABELS[labels[i]], "minutes": minutes[i]})
        while True:
            try:
                producer.produce(topic, message[:-2] if broken[i] else message, partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)
    producer.close()
    return int(broken.sum())


def _saved(folder: Path) -> int:
    from streamnb.state import State

    try:
        return State.load(folder).n_rows
    except StreamNBError:
        return 0
