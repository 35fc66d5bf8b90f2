"""Topics of a test's own on a real broker, and followers that are real processes."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from streamnb.localbroker import available

ROOT = Path(__file__).parent.parent
ON_KAFKA = os.environ.get("STREAMNB_BROKER", "kafka") == "kafka" and (
    "STREAMNB_KAFKA" in os.environ or available()[:1] == ["kafka"]
)
needs_kafka = pytest.mark.skipif(not ON_KAFKA, reason="needs Apache Kafka; the small brokers lack something here")

SESSION = 1500 if ON_KAFKA else 6000
QUICK = {"session.timeout.ms": str(SESSION), "heartbeat.interval.ms": str(SESSION // 5)}
"""The client's options with which a dead follower is noticed as soon as the broker allows."""


def make_topic(address: str, partitions: int = 1, **config: str) -> str:
    """Make a topic of a name that no other test has."""
    name = f"t-{uuid.uuid4().hex[:10]}"
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
    return name


@functools.cache
def producer_of(address: str) -> Producer:
    """Return a producer that all tests share: making one takes half a second."""
    return Producer({"bootstrap.servers": address, "log_level": 0, "linger.ms": 5, "enable.idempotence": True})


def produce(address: str, topic: str, values: Iterable[Any], partition: int = 0, **each: Any) -> None:
    """Send values in order to one partition: bytes and None as they are, anything else as JSON."""
    producer = producer_of(address)
    for value in values:
        data = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        while True:
            try:
                producer.produce(topic, data, partition=partition, **each)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(60) == 0


def consume(address: str, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[Any]:
    """Return the messages of a partition from its beginning to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "none",
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    while True:
        message = consumer.poll(20)
        assert message is not None, "no end of the partition in 20 s"
        if message.error() is not None:
            break
        found.append(message)
    consumer.close()
    return found


def ipc(table: pa.Table) -> bytes:
    """Return a table as the bytes of an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


class Follower:
    """A process that runs `streamnb follow`."""

    def __init__(self, address: str, topic: str, folder: Path, *more: str, client: Mapping[str, str] = QUICK) -> None:
        options = [part for key, value in client.items() for part in ("--client", f"{key}={value}")]
        fixed = ["--bootstrap", address, "--topic", topic, "--state", str(folder), "--label", "y"]
        quiet = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        # A pipe that nobody reads would stop it in the end.
        self.log = tempfile.NamedTemporaryFile("w+", prefix="follower-")  # noqa: SIM115 - `kill` closes it
        self.process = subprocess.Popen(
            [sys.executable, "-m", "streamnb", "follow", *fixed, *options, *more],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=self.log,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | quiet,
        )

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """End it at once, as a power cut would; once more does nothing."""
        self.process.kill()
        self.process.wait()
        self.log.close()

    def said(self) -> str:
        """Return what it wrote so far."""
        return Path(self.log.name).read_text()

    def wait(self, seconds: float = 60.0) -> tuple[int, str]:
        """Return the exit code and what it wrote; kill it if it does not end."""
        try:
            self.process.wait(seconds)
            return self.process.returncode, self.said()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the follower did not end in {seconds} s: {self.said()[-2000:]}") from None
        finally:
            self.kill()


def events(log: str) -> list[dict[str, Any]]:
    """Return the lines of JSON that a follower wrote."""
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def eventually(condition: Any, seconds: float = 30.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not so in {seconds} s"
        time.sleep(0.05)
