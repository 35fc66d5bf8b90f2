"""How far one partition of a topic is counted, and what was met on the way; it stands in the partition's state file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from streamnb.errors import FileFormatError

__all__ = ["SKIPS", "Position", "Window", "further"]

SKIPS = ("tombstone", "malformed", "bad value", "no label", "too late", "no timestamp", "duplicate")
"""Why a message, or a row of one, is not counted."""


@dataclass(frozen=True, slots=True)
class Window:
    """How long rows count, and in what steps they leave, in milliseconds; a multiple of the step."""

    size: int
    slide: int

    def __post_init__(self) -> None:
        if self.slide <= 0 or self.size <= 0 or self.size % self.slide:
            raise ValueError(f"Expected a window that is a multiple of its slide, got {self.size} and {self.slide} ms")

    def slice_of(self, timestamp: int) -> int:
        """Return the start of the slide that a time (ms since 1970) falls into."""
        return timestamp - timestamp % self.slide

    def is_live(self, start: int, newest: int) -> bool:
        """Whether the slide that starts then still counts when the newest slide starts at `newest`."""
        return start > newest - self.size


@dataclass(slots=True)
class Position:
    """Where one partition stands.

    - `next`: the offset of the next message to count; all before it are counted, or skipped and counted as such.
    - `generation`: which owner wrote it; each new owner takes a higher number.
    - `messages`, `rows`: how many were counted; `skipped`: how many were not, by kind.
    - `gaps`: offsets that hold no message (compaction, transactions); `lost`: those that expired before they were read.
    - `newest`: with a window, the start of its newest slide. `evaluation`: sums of test-then-train.
    """

    topic: str
    partition: int
    next: int
    generation: int = 0
    topic_id: str = ""
    messages: int = 0
    rows: int = 0
    gaps: int = 0
    lost: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    window: Window | None = None
    newest: int | None = None
    evaluation: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """The name of the partition as a shard."""
        return f"kafka:{self.topic}/{self.partition}"

    @property
    def place(self) -> str:
        """The partition as messages name it."""
        return f"{self.topic}/{self.partition}"

    def shard(self, start: int | None) -> str:
        """Return the name of what is counted of it: all, or the slide that starts then (ms since 1970)."""
        return self.name if start is None else f"{self.name}@{start}"

    def skip(self, kind: str, number: int = 1) -> None:
        """Count what is left out."""
        if number:
            self.skipped[kind] = self.skipped.get(kind, 0) + number

    def to_plain(self) -> dict[str, Any]:
        """Return it as data that JSON can write; what is not there is left out."""
        return {key: value for key, value in asdict(self).items() if value is not None and value != ""}

    @classmethod
    def from_plain(cls, given: Mapping[str, Any]) -> Position:
        """Return what `to_plain` gave.

        Raises:
            FileFormatError: it was something else.

        >>> at = Position("orders", 3, next=7, window=Window(60_000, 10_000))
        >>> Position.from_plain(at.to_plain()) == at
        True
        """
        try:
            window = given.get("window")
            found = cls(**{**given, "window": None if window is None else Window(**window)})
            if not isinstance(found.next, int) or not isinstance(found.partition, int) or found.next < 0:
                raise ValueError(f"offset {found.next!r} of partition {found.partition!r}")
        except (TypeError, ValueError) as error:
            raise FileFormatError(f"Expected the position of a partition, got something else: {error}") from None
        return found


def further(mine: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the positions of both; of one stream the further one."""

    def order(position: dict[str, Any]) -> tuple[int, str]:
        return position.get("next", 0), json.dumps(position, sort_keys=True)

    both = [*mine.items(), *theirs.items()]
    return dict(sorted(dict(sorted(both, key=lambda each: order(each[1]))).items()))
