"""Following a topic, against consuming and decoding the same messages without learning.

`python -m benchmarks.follow` prints the table and exits with 1 when the budget is missed; `--quick` takes a tenth of
the rows. Both join a group and read four partitions to their ends; joining is part of the time. The broker is Apache
Kafka on the same machine, and takes its share of the two cores. What it does not show: a network, and large models.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import streamnb as snb
from benchmarks.measure import Contender, Result, at_least, race
from benchmarks.report import rendered
from streamnb.localbroker import broker
from streamnb.sources.kafka import TopicReader, ends_of
from streamnb.sources.messages import ArrowMessages, Decoder, JsonMessages

__all__ = ["main"]

ROWS = {"json": 500_000, "arrow": 4_000_000}
"""Enough that joining the group, half a second or so, is a small part of the time."""

PARTITIONS, ROWS_OF_A_MESSAGE = 4, 1_000
NUMBERS = [f"n{i}" for i in range(8)]
SCHEMA = snb.Schema(label="y", numeric=NUMBERS, categorical=["site", "kind"], binary=["known"])


def table(rows: int) -> pa.Table:
    """Return rows of three classes: eight numbers, two strings and a flag."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {"y": np.array(["browse", "buy", "leave"])[rng.integers(0, 3, rows)]}
    columns |= {name: rng.normal(size=rows).round(4) for name in NUMBERS}
    columns["site"] = np.array(["north", "south", "east", "west"])[rng.integers(0, 4, rows)]
    columns["kind"] = np.array([f"kind-{i}" for i in range(20)])[rng.integers(0, 20, rows)]
    columns["known"] = rng.random(rows) < 0.3
    return pa.table(columns)


def as_json(data: pa.Table) -> Iterator[bytes]:
    """Yield a message for each row."""
    for batch in data.to_batches(10_000):
        for row in batch.to_pylist():
            yield json.dumps(row, separators=(",", ":")).encode()


def as_arrow(data: pa.Table) -> Iterator[bytes]:
    """Yield a message for each thousand rows."""
    for batch in data.to_batches(ROWS_OF_A_MESSAGE):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        yield sink.getvalue().to_pybytes()


def produce(address: str, topic: str, messages: Iterator[bytes]) -> None:
    """Make a topic and fill it."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "compression.type": "lz4"})
    for i, message in enumerate(messages):
        while True:
            try:
                producer.produce(topic, message, partition=i % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


class Everything:
    """Reads every partition from its beginning, and keeps nothing."""

    def take(self, _: int) -> int:
        """Begin at 0."""
        return 0

    def give(self, partitions: Sequence[int]) -> None:
        """Nothing to save."""

    def lose(self, partitions: Sequence[int]) -> None:
        """Nothing to lose."""


def consume_and_decode(address: str, topic: str, decoder: Decoder, rows: int) -> None:
    """Read a topic to its end into Arrow, and throw it away."""
    reader = TopicReader(address, topic, uuid.uuid4().hex, Everything())
    ends, at, decoded = ends_of(reader), dict.fromkeys(range(PARTITIONS), 0), 0
    while any(at[partition] < end for partition, end in ends.items()):
        for delivery in reader.poll(0.2):
            values = [value for value in delivery.values if value is not None]
            if values:
                decoded += sum(part.num_rows for part in decoder.decode(values))
                at[delivery.partition] = delivery.offsets[-1] + 1
    reader.close()
    assert decoded == rows, f"Expected {rows} rows, got {decoded}"


def follow(address: str, topic: str, message_format: Any, rows: int) -> None:
    """Count a topic to its end."""
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"message_format": message_format, "group": uuid.uuid4().hex, "until_end": True}
        state = snb.follow(address, topic, schema=SCHEMA, state=folder, **options)
        assert state.n_rows == rows, f"Expected {rows} rows, got {state.n_rows}"


def main(arguments: list[str]) -> int:
    """Run the race for both formats; return 1 if a budget is missed."""
    logging.disable()
    quick = "--quick" in arguments
    repeat = 1 if quick else 3
    sample = table(1).schema
    types = pa.schema([(name, sample.field(name).type) for name in SCHEMA.columns])
    kept = True
    with broker() as address:
        for message_format, messages in (("json", as_json), ("arrow", as_arrow)):
            decoder: Decoder = JsonMessages(types) if message_format == "json" else ArrowMessages(SCHEMA.columns)
            rows = ROWS[message_format] // (10 if quick else 1)
            produce(address, message_format, messages(table(rows)))
            reading = partial(consume_and_decode, address, message_format, decoder, rows)
            following = partial(follow, address, message_format, message_format, rows)
            contenders = [
                Contender("consume and decode", reading, "ns/row", 1e9 / rows),
                Contender("follow", following, "ns/row", 1e9 / rows),
            ]
            runs = race(contenders, repeat)
            rate = runs["consume and decode"].over(runs["follow"])
            check = at_least("rate of following / of consuming and decoding", rate, 0.7)
            title = f"Following {rows:,} rows in {PARTITIONS} partitions, {message_format}"
            print(rendered(Result(title, list(runs.values()), checks=[check])), flush=True)
            kept = kept and check.ok
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
