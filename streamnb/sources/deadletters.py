"""Messages that could not be counted, copied to a topic of their own with the reason in their headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamnb.errors import SourceError
from streamnb.sources.kafka import producer

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["DeadLetters"]

_FLUSH_SECONDS = 10.0


class DeadLetters:
    """Copies of bad messages: value, key and headers as they were, and five headers more.

    The new headers are `streamnb.kind`, `streamnb.reason`, `streamnb.topic`, `streamnb.partition` and
    `streamnb.offset`. A message whose follower dies before it is saved is met and copied once more.

    Raises:
        ValueError: the dead letters would go to the topic that is read.
    """

    def __init__(self, bootstrap: str, topic: str, letters: str, options: Mapping[str, Any] | None) -> None:
        if letters == topic:
            raise ValueError(f"Expected another topic for dead letters, got {topic!r}, which is the one that is read")
        self.topic = letters
        # Without a limit of time: while the broker is away they wait.
        self._producer = producer(bootstrap, options, **{"message.timeout.ms": 0})
        self._failed: str = ""

    def send(self, message: Message, kind: str, reason: str) -> None:
        """Copy one message; it is there after `flush`."""
        headers = [*(message.headers() or [])]
        more = {
            "kind": kind,
            "reason": reason[:500],
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
        }
        headers += [(f"streamnb.{key}", str(value).encode()) for key, value in more.items()]
        copy: dict[str, Any] = {"value": message.value(), "key": message.key(), "headers": headers}
        while True:
            try:
                self._producer.produce(self.topic, on_delivery=self._delivered, **copy)
                break
            except BufferError:
                self._producer.poll(0.5)
        self._producer.poll(0)

    def flush(self) -> bool:
        """Wait until all copies are on the broker; False if some are still on their way after a while.

        Raises:
            SourceError: the broker has refused some.
        """
        left = self._producer.flush(_FLUSH_SECONDS)
        if self._failed:
            raise SourceError(f"Expected topic {self.topic!r} to take dead letters, got: {self._failed}")
        return left == 0

    def close(self) -> None:
        """Let go of the broker; copies that are not there are given up, as what they are copies of is not saved."""
        self._producer.purge()
        self._producer.close()

    def _delivered(self, error: Any, _: Message) -> None:
        if error is not None:
            self._failed = error.str()
