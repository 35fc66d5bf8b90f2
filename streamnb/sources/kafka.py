"""A Kafka topic as a source: which partitions are ours, where reading goes on, and what is delivered.

This room moves messages. Where a partition is read from is said by an *owner*, who keeps that together with what was
made of the messages; the broker's own committed offsets are written for monitoring and never read from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol

from streamnb.errors import MissingExtraError, SourceError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

__all__ = [
    "Assignment",
    "Delivery",
    "OffsetGoneError",
    "Owner",
    "TopicReader",
    "ends_of",
    "open_consumer",
    "peek",
    "producer",
    "topic_id",
]

Assignment = Literal["cooperative", "eager", "server"]
"""How a group shares partitions: step by step, all at once, or by the broker's own protocol (Kafka 4)."""

_ANSWER_SECONDS = 15.0
_BATCH_BYTES = 16 << 20
_MOST_MESSAGES = 20_000

# The client's own log; what matters in it reaches the caller as an error or an event.
_log = logging.getLogger("streamnb.kafka")
_log.addHandler(logging.NullHandler())


@dataclass(slots=True)
class Delivery:
    """What came of one partition in one go, in the order of its offsets; a value of None is a tombstone.

    `end` is where the partition ended when it was reached, else None. Offsets may leave gaps.
    """

    partition: int
    messages: list[Message] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    end: int | None = None


class Owner(Protocol):
    """Who keeps the positions; called while partitions change hands, before reading goes on."""

    def take(self, partition: int) -> int:
        """Begin with a partition; return the offset to read from."""

    def give(self, partitions: Sequence[int]) -> None:
        """Save partitions that another reader will get, and let go of them."""

    def lose(self, partitions: Sequence[int]) -> None:
        """Let go of partitions that another reader may have already."""


class TopicReader:
    """One member of a consumer group on one topic.

    `say` is given the name of an event and its details ("broker_away", "assigned" ...).

    Raises:
        MissingExtraError: the client is not installed.
        SourceError: no broker answers, or it has no such topic.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        owner: Owner,
        *,
        assignment: Assignment = "cooperative",
        options: Mapping[str, Any] | None = None,
        say: Callable[..., None] = lambda *_, **__: None,
    ) -> None:
        if assignment not in ("cooperative", "eager", "server"):
            raise ValueError(f"Expected assignment='cooperative', 'eager' or 'server', got {assignment!r}")
        self.topic, self._owner, self._say, self._away = topic, owner, say, False
        self._incremental = assignment != "eager"
        self._fresh: set[int] = set()
        self._failure: BaseException | None = None
        self._size = 256.0  # bytes of a message, a running mean
        settings: dict[str, Any] = {"group.id": group, "enable.partition.eof": True, "error_cb": self._on_error}
        if assignment == "server":
            settings["group.protocol"] = "consumer"
        else:
            strategy = "cooperative-sticky" if assignment == "cooperative" else "range"
            settings["partition.assignment.strategy"] = strategy
        self.consumer = _consumer(bootstrap, settings | dict(options or {}))
        self.partitions = _partitions(self.consumer, bootstrap, topic)
        self.consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def poll(self, seconds: float, most: int | None = None) -> list[Delivery]:
        """Return what arrives within some seconds, at most about 16 MB, and at most `most` messages.

        Raises:
            SourceError: the broker no longer has the offset to go on from, or has an error that does not pass.
        """
        from confluent_kafka import KafkaError

        self._fresh.clear()
        number = max(1, min(_MOST_MESSAGES, int(_BATCH_BYTES / self._size), most or _MOST_MESSAGES))
        arrived = self.consumer.consume(number, seconds)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        found: dict[int, Delivery] = {}
        for message in arrived:
            error = message.error()
            partition: int = message.partition()  # type: ignore[assignment]
            if error is None:
                delivery = found.get(partition)
                if delivery is None:
                    delivery = found[partition] = Delivery(partition)
                delivery.messages.append(message)
                delivery.offsets.append(message.offset())  # type: ignore[arg-type]
                delivery.values.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                found.setdefault(partition, Delivery(partition)).end = message.offset()
            else:
                self._raise_unless_it_passes(error, partition)
        if found and self._away:
            self._away = False
            self._say("broker_back")
        for partition in self._fresh & found.keys():
            # These may have been fetched before the partition changed hands, from another offset than the owner's.
            self.seek(partition, self._owner.take(partition))
            del found[partition]
        deliveries = list(found.values())
        self._measure(deliveries)
        return deliveries

    def commit(self, offsets: Mapping[int, int]) -> None:
        """Tell the broker how far we are, for monitoring; it may fail without harm."""
        from confluent_kafka import KafkaException

        if offsets:
            with suppress(KafkaException):
                self.consumer.commit(offsets=self._at(offsets), asynchronous=True)

    def committed(self, partition: int) -> int | None:
        """Return the offset that the broker holds for the group, or None."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            found = self.consumer.committed([TopicPartition(self.topic, partition)], _ANSWER_SECONDS)[0]
        except KafkaException as error:
            raise SourceError(f"Expected the committed offset of {self.topic}/{partition}, got {error}") from None
        return found.offset if found.offset >= 0 else None

    def bounds(self, partition: int) -> tuple[int, int]:
        """Return the first offset that the broker still has, and the one after the last."""
        return _bounds(self.consumer, self.topic, partition)

    def lag(self, offsets: Mapping[int, int]) -> dict[int, int]:
        """Return how many offsets stand between these and the ends that were seen last; asks nobody."""
        from confluent_kafka import KafkaException, TopicPartition

        found = {}
        for partition, offset in offsets.items():
            with suppress(KafkaException):
                bounds = self.consumer.get_watermark_offsets(TopicPartition(self.topic, partition), cached=True)
                if bounds is not None and bounds[1] >= 0:
                    found[partition] = max(0, bounds[1] - offset)
        return found

    def seek(self, partition: int, offset: int) -> None:
        """Read on from another offset."""
        from confluent_kafka import KafkaException

        for place in self._at({partition: offset}):
            # It fails where reading has not begun; it then begins at the offset that was assigned.
            with suppress(KafkaException):
                self.consumer.seek(place)

    def restart(self, partition: int, offsets: Mapping[int, int]) -> None:
        """Read on from another offset where reading has stopped; `offsets` has all partitions that are ours."""
        if self._incremental:
            place = self._at({partition: offsets[partition]})
            self.consumer.incremental_unassign(place)
            self.consumer.incremental_assign(place)
        else:
            self.consumer.assign(self._at(offsets))

    def drop(self, partition: int) -> None:
        """Read no further in a partition that is still assigned."""
        from confluent_kafka import KafkaException, TopicPartition

        with suppress(KafkaException):
            self.consumer.pause([TopicPartition(self.topic, partition)])

    def close(self) -> None:
        """Leave the group; the owner is asked to save what it holds first."""
        self.consumer.close()
        if self._failure is not None:
            raise self._failure

    # Changing hands -------------------------------------------------------------------------------------------------
    # Exceptions must not leave these callbacks: the client would go on half way. `poll` raises them.

    def _on_assign(self, consumer: Consumer, assigned: list[Any]) -> None:
        from confluent_kafka import KafkaException

        try:
            offsets = {each.partition: self._owner.take(each.partition) for each in assigned}
        except BaseException as error:
            self._failure = self._failure or error
            return
        self._fresh.update(offsets)
        places = self._at(offsets)
        if self._incremental:
            consumer.incremental_assign(places)
        else:
            consumer.assign(places)
        with suppress(KafkaException):
            consumer.resume(places)  # a partition that was dropped before may be ours again
        self._say("assigned", partitions=sorted(offsets))

    def _on_revoke(self, _: Consumer, revoked: list[Any]) -> None:
        self._let_go(self._owner.give, revoked, "revoked")

    def _on_lost(self, _: Consumer, lost: list[Any]) -> None:
        self._let_go(self._owner.lose, lost, "lost")

    def _let_go(self, how: Callable[[Sequence[int]], None], those: list[Any], word: str) -> None:
        partitions = sorted(each.partition for each in those)
        self._fresh.difference_update(partitions)
        try:
            how(partitions)
        except BaseException as error:
            self._failure = self._failure or error
        self._say(word, partitions=partitions)

    def _at(self, offsets: Mapping[int, int]) -> list[Any]:
        from confluent_kafka import TopicPartition

        return [TopicPartition(self.topic, partition, offset) for partition, offset in offsets.items()]

    # Errors ---------------------------------------------------------------------------------------------------------

    def _on_error(self, error: KafkaError) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._ALL_BROKERS_DOWN and not self._away:
            self._away = True
            self._say("broker_away", reason=error.str())
        elif error.fatal():
            self._failure = self._failure or SourceError(f"Expected the broker to serve, got: {error.str()}")

    def _raise_unless_it_passes(self, error: KafkaError, partition: int) -> None:
        from confluent_kafka import KafkaError

        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise OffsetGoneError(partition, error.str())
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            raise SourceError(f"Expected topic {self.topic!r}, got: {error.str()}")
        if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            raise SourceError(f"Expected the right to read {self.topic!r}, got: {error.str()}")
        self._say("broker_error", reason=error.str())

    def _measure(self, deliveries: Iterable[Delivery]) -> None:
        """Follow the size of messages, so that a batch has about so many bytes."""
        for delivery in deliveries:
            values = [value for value in delivery.values[:8] if value]
            for value in values:
                self._size += (len(value) + 64 - self._size) / 16


class OffsetGoneError(SourceError):
    """The broker has no such offset: the topic was truncated, made anew, or its oldest messages have expired."""

    def __init__(self, partition: int, reason: str) -> None:
        super().__init__(reason)
        self.partition = partition


def ends_of(reader: TopicReader) -> dict[int, int]:
    """Return where each partition of the topic ends now."""
    return {partition: reader.bounds(partition)[1] for partition in reader.partitions}


def topic_id(bootstrap: str, topic: str, options: Mapping[str, Any] | None = None) -> str:
    """Return the broker's id of a topic, which another topic of the same name has not; "" if it tells none."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient

    admin = AdminClient(_settings(bootstrap) | _of_connection(options))
    # Brokers older than the request, and small ones, answer with an error of any kind.
    with suppress(Exception):
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_SECONDS)[topic].result()
        found = str(described.topic_id)
        return "" if set(found) <= set("A") else found
    return ""


def peek(bootstrap: str, topic: str, most: int, options: Mapping[str, Any] | None = None) -> list[bytes]:
    """Return the values of up to `most` of the first messages of a topic, in no group; fewer if it holds fewer.

    Raises:
        SourceError: no broker answers, or it has no such topic.
    """
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    settings = {"group.id": "streamnb-peek", "enable.partition.eof": True, **_of_connection(options)}
    consumer = _consumer(bootstrap, settings)
    try:
        partitions = _partitions(consumer, bootstrap, topic)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
        found: list[bytes] = []
        left = set(partitions)
        # One at a time: asking for many waits for that many.
        while left and len(found) < most:
            message = consumer.poll(0.5 if found else 5.0)
            if message is None:
                break
            if message.error() is not None:
                left.discard(message.partition() or 0)
                continue
            value = message.value()
            if isinstance(value, bytes):
                found.append(value)
        return found
    finally:
        consumer.close()


def open_consumer(bootstrap: str, topic: str, settings: Mapping[str, Any], *, reset: str = "error") -> Consumer:
    """Return a consumer that commits nothing by itself, for a topic that is there.

    Raises:
        SourceError: no broker answers, or it has no such topic.
    """
    consumer = _consumer(bootstrap, settings, reset)
    try:
        _partitions(consumer, bootstrap, topic)
    except SourceError:
        consumer.close()
        raise
    return consumer


def producer(bootstrap: str, options: Mapping[str, Any] | None = None, **settings: Any) -> Producer:
    """Return a producer that neither loses nor doubles messages while it lives."""
    _need_client()
    from confluent_kafka import Producer

    return Producer({**_settings(bootstrap), "enable.idempotence": True, **settings, **_of_connection(options)})


def _consumer(bootstrap: str, settings: Mapping[str, Any], reset: str = "error") -> Consumer:
    _need_client()
    from confluent_kafka import Consumer, KafkaException

    fixed: dict[str, Any] = {
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": reset,
    }
    defaults: dict[str, Any] = {"isolation.level": "read_committed", "queued.max.messages.kbytes": 32 << 10}
    for key in fixed.keys() & settings.keys():
        raise ValueError(f"Expected client options that leave positions to the state, got {key}={settings[key]!r}")
    try:
        return Consumer({**_settings(bootstrap), **defaults, **settings, **fixed})
    except KafkaException as error:
        raise ValueError(f"Expected options that the Kafka client knows, got: {error.args[0].str()}") from None


def _settings(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "client.id": "streamnb", "logger": _log}


def _of_connection(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The options that are about reaching the broker, which every kind of client takes."""
    wanted = ("security.", "sasl.", "ssl.", "socket.", "broker.", "reconnect.", "client.", "enable.ssl.")
    return {key: value for key, value in (options or {}).items() if key.startswith(wanted)}


def _partitions(consumer: Consumer, bootstrap: str, topic: str) -> list[int]:
    from confluent_kafka import KafkaException

    try:
        found = consumer.list_topics(topic, _ANSWER_SECONDS).topics[topic]
    except KafkaException as error:
        raise SourceError(f"Expected a Kafka broker at {bootstrap}, got none: {error.args[0].str()}") from None
    if found.error is not None:
        raise SourceError(f"Expected topic {topic!r} at {bootstrap}, got: {found.error.str()}")
    return sorted(found.partitions)


def _bounds(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    from confluent_kafka import KafkaException, TopicPartition

    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, partition), _ANSWER_SECONDS)
    except KafkaException as error:
        raise SourceError(f"Expected the offsets of {topic}/{partition}, got: {error.args[0].str()}") from None
    if found is None:
        raise SourceError(f"Expected the offsets of {topic}/{partition}, got no answer")
    return found


def _need_client() -> None:
    if find_spec("confluent_kafka") is None:
        raise MissingExtraError("confluent-kafka", "kafka")
