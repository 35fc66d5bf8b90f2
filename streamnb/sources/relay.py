"""From topic to topic: each message becomes one message, exactly once where the broker has transactions.

Here the broker's committed offsets are the position: they are committed in the transaction that brings the answers, so
that readers of committed messages see each answer once, whatever dies in between.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from streamnb.errors import SourceError
from streamnb.sources.kafka import open_consumer, producer

if TYPE_CHECKING:
    from confluent_kafka import Message, TopicPartition

__all__ = ["Relay"]

_ANSWER_SECONDS = 30.0
_BATCH = 5_000


class Relay:
    """Reads one topic as a member of a group, and writes another.

    `say` is given events, as `TopicReader` gives them. With `exactly_once` False, answers may come twice after a crash.

    Raises:
        SourceError: no broker, no such topic, or a broker without transactions.
    """

    def __init__(
        self,
        bootstrap: str,
        source: str,
        target: str,
        group: str,
        *,
        exactly_once: bool = True,
        options: Mapping[str, Any] | None = None,
        say: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        from confluent_kafka import KafkaException

        if source == target:
            raise ValueError(f"Expected another topic for the answers, got {source!r}, which is the one that is read")
        self.source, self.target, self._say, self._exactly_once = source, target, say, exactly_once
        settings = {"group.id": group, "partition.assignment.strategy": "cooperative-sticky"}
        self.consumer = open_consumer(bootstrap, source, settings | dict(options or {}), reset="earliest")
        self.producer = producer(bootstrap, options, **{"linger.ms": 5} | self._transactional(group))
        if exactly_once:
            try:
                self.producer.init_transactions(_ANSWER_SECONDS)
            except KafkaException as error:
                self.consumer.close()
                raise SourceError(
                    f"Expected a broker with transactions, got: {error.args[0].str()}; --at-least-once does without"
                ) from None
        self.consumer.subscribe([source])

    def _transactional(self, group: str) -> dict[str, str]:
        # A name of its own for each process: who may commit an offset is told by the group's generation, not by it.
        # A transaction that is open when its process dies holds readers up for as long as the broker lets it live.
        if not self._exactly_once:
            return {}
        return {"transactional.id": f"streamnb-{group}-{uuid.uuid4().hex}", "transaction.timeout.ms": "10000"}

    def poll(self, seconds: float) -> list[Message]:
        """Return what arrives within some seconds."""
        from confluent_kafka import KafkaError

        found = []
        for message in self.consumer.consume(_BATCH, seconds):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
                raise SourceError(f"Expected topic {self.source!r}, got: {error.str()}")
            else:
                self._say("broker_error", reason=error.str())
        return found

    def send(self, messages: Sequence[Message], values: Sequence[bytes | None]) -> bool:
        """Write the answers to messages, with their keys, headers and times, and move past them: both or neither.

        Returns False where that failed in a way that passes: the messages then come again, here or elsewhere.

        Raises:
            SourceError: it failed for good.
        """
        from confluent_kafka import KafkaException

        try:
            if self._exactly_once:
                self.producer.begin_transaction()
            self._produce(messages, values)
            offsets = self._after(messages)
            if self._exactly_once:
                self.producer.send_offsets_to_transaction(
                    offsets, self.consumer.consumer_group_metadata(), _ANSWER_SECONDS
                )
                self.producer.commit_transaction(_ANSWER_SECONDS)
            elif self.producer.flush(_ANSWER_SECONDS):
                raise SourceError(f"Expected topic {self.target!r} to take the answers, got none in time")
            else:
                self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            reason = error.args[0]
            if reason.fatal():
                raise SourceError(f"Expected topic {self.target!r} to take the answers, got: {reason.str()}") from None
            self._say("again", reason=reason.str())
            self._go_back(messages)
            return False
        return True

    def close(self) -> None:
        """Leave the group; a transaction that is open is aborted."""
        self.consumer.close()
        self.producer.close()

    def _produce(self, messages: Sequence[Message], values: Sequence[bytes | None]) -> None:
        for message, value in zip(messages, values, strict=True):
            kept: dict[str, Any] = {"key": message.key(), "headers": message.headers() or []}
            time = message.timestamp()[1]
            if time > 0:
                kept["timestamp"] = time
            while True:
                try:
                    self.producer.produce(self.target, value, **kept)
                    break
                except BufferError:
                    self.producer.poll(0.1)
        self.producer.poll(0)

    def _after(self, messages: Sequence[Message]) -> list[TopicPartition]:
        from confluent_kafka import TopicPartition

        last = {message.partition() or 0: message.offset() or 0 for message in messages}
        return [TopicPartition(self.source, partition, offset + 1) for partition, offset in last.items()]

    def _go_back(self, messages: Sequence[Message]) -> None:
        """Abort, and read these messages again as far as their partitions are still ours."""
        from confluent_kafka import KafkaException, TopicPartition

        if self._exactly_once:
            try:
                self.producer.abort_transaction(_ANSWER_SECONDS)
            except KafkaException as error:
                raise SourceError(f"Expected to abort a transaction, got: {error.args[0].str()}") from None
        first: dict[int, int] = {}
        for message in messages:
            first.setdefault(message.partition() or 0, message.offset() or 0)
        for partition, offset in first.items():
            with suppress(KafkaException):  # it has gone to another
                self.consumer.seek(TopicPartition(self.source, partition, offset))
