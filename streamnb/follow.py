"""`follow`: a topic is counted for as long as it lasts, each row once, whatever dies in between.

    topic -> partitions -> messages -> rows -> statistics of the partition
                                                    |
        DIR/topic-0.g1-....snb   counts and next offset, written together; only then is the broker told

A partition is read on from the offset in its file and from nowhere else. What was counted and not yet saved dies with
the process that counted it, and is read again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Literal

from streamnb.errors import FencedError, SchemaError, SourceError
from streamnb.followed import BadMessage, Messages, Partition
from streamnb.following import PEEKED, Plan, settle
from streamnb.position import Position, Window
from streamnb.predictor import Predictor
from streamnb.publishing import Publisher
from streamnb.rolling import Rolling
from streamnb.schema import Schema
from streamnb.signals import stopping
from streamnb.sources.deadletters import DeadLetters
from streamnb.sources.kafka import Assignment, Delivery, OffsetGoneError, TopicReader, ends_of, peek, topic_id
from streamnb.sources.messages import MessageFormat
from streamnb.state import State
from streamnb.statefolder import FileName, StateFolder
from streamnb.sufficient import SufficientStatistics

__all__ = ["Following", "follow"]

Start = Literal["beginning", "end"]
POLL_SECONDS = 0.2
MOST_THREADS = 4
FENCED_SECONDS = 60.0
"""How long a partition may be ours to the broker and another follower's in the folder, before that is an error."""


@dataclass(frozen=True)
class Following:
    """How far a follower is: what it counted since it started, and what it holds now.

    `lag` and `next` are by partition; `skipped` by kind, since the partitions began; `event` says why it is told.
    """

    event: str
    seconds: float
    rows: int
    rows_per_second: float
    next: Mapping[int, int] = field(default_factory=dict)
    lag: Mapping[int, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    evaluation: Mapping[str, Any] | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def follow(
    bootstrap: str,
    topic: str,
    label: str | None = None,
    *,
    state: str | os.PathLike[str],
    schema: Schema | None = None,
    types: Mapping[str, str] | None = None,
    message_format: MessageFormat = "json",
    group: str = "streamnb",
    start: Start | None = None,
    until_end: bool = False,
    max_rows: int | None = None,
    save_seconds: float = 10.0,
    save_rows: int = 5_000_000,
    strict: bool = False,
    dead_letters: str | None = None,
    lost: Literal["refuse", "accept"] = "refuse",
    evaluate: int | None = None,
    window: Window | None = None,
    publish: str | os.PathLike[str] | None = None,
    publish_seconds: float = 60.0,
    assignment: Assignment = "cooperative",
    client: Mapping[str, Any] | None = None,
    progress: Callable[[Following], None] | None = None,
    stop: threading.Event | None = None,
    **infer: Any,
) -> State:
    """Count a Kafka topic into a folder of state files, and return their sum; every message once.

    Several followers of one `group` and one folder share the partitions. It ends when `stop` is set, on SIGTERM or
    Ctrl-C (after saving), with `until_end` at the offsets that were the ends when it began, or after `max_rows` (of
    Arrow messages, at the end of the one that reaches them).

    - `state`: the folder, or a URI. Its files decide where reading goes on; `start` says where a partition begins that
      has none. If it has none, but the broker has an offset of the group, `start` must be given.
    - `schema`, or `label` and what `Schema.infer` takes; `types`: of JSON values by column ("string", "int64",
      "double", "bool", "list"), by default as in the first messages.
    - `message_format`: "json", one object a message, or "arrow", one IPC stream of rows a message.
    - `save_seconds`, `save_rows`: how often files are written (seconds; rows of one follower).
    - `strict`: stop at the first bad message. Otherwise it is skipped and counted by kind, and copied to the topic
      `dead_letters`, if that is given, with the reason in its headers.
    - `lost`: what to do when messages expired before they were read.
    - `evaluate`: predict each batch before it is counted; the rows over which to report beside all.
    - `window`: only the messages of the last while count.
    - `publish`: a model file, written anew every `publish_seconds` while something is new.
    - `client`: further options of the client, by librdkafka's names.
    - `progress`: is given a `Following` every second and at each event.

    Raises:
        SourceError: no broker or topic; the topic no longer has the state's offset; the folder follows another topic.
        SchemaError: columns do not fit.
        DataError: `strict` met a message that cannot be counted; what stood before it is saved.
    """
    if schema is not None and infer:
        raise SchemaError(f"Expected schema= or label= with options, got both: {', '.join(infer)}")
    if schema is None and label is None:
        raise SchemaError("Expected schema= or label=, got neither")
    if start not in (None, "beginning", "end"):
        raise ValueError(f"Expected start='beginning' or 'end', got {start!r}")
    if message_format not in ("json", "arrow"):
        raise ValueError(f"Expected message_format='json' or 'arrow', got {message_format!r}")
    if lost not in ("refuse", "accept"):
        raise ValueError(f"Expected lost='refuse' or 'accept', got {lost!r}")
    folder = StateFolder(state)
    folder.make()
    plan = settle(
        folder, topic, message_format, schema, label, infer, types or {}, window,
        lambda: peek(bootstrap, topic, PEEKED, client),
    )  # fmt: skip
    letters = None if dead_letters is None else DeadLetters(bootstrap, topic, dead_letters, client)
    run = _Run(plan, folder, start, strict, letters, evaluate, lost, topic_id(bootstrap, topic, client), progress)
    with stopping(stop or threading.Event()) as stopped:
        run.read(bootstrap, group, assignment, client)
        try:
            publisher = None if publish is None else Publisher(folder, publish, publish_seconds)
            run.loop(stopped, until_end, max_rows, save_seconds, save_rows, publisher)
        finally:
            run.tell("stopping")
            run.close()
    run.tell("ended")
    try:
        return State.load(folder.path)
    except SourceError:
        return State(plan.schema)  # it was given no partition


class _Run:
    """One follower at work: the partitions that it owns, and the folder in which it saves them."""

    reader: TopicReader

    def __init__(
        self,
        plan: Plan,
        folder: StateFolder,
        start: Start | None,
        strict: bool,
        letters: DeadLetters | None,
        evaluate: int | None,
        lost: str,
        topic_id: str,
        progress: Callable[[Following], None] | None,
    ) -> None:
        self.plan, self.folder, self.start, self.strict, self.letters = plan, folder, start, strict, letters
        self.evaluate, self.lost, self.topic_id, self.progress = evaluate, lost, topic_id, progress
        self.decoder = plan.decoder()
        self.label_type = plan.types.get(plan.schema.label) if plan.format == "arrow" else None
        self.pool = ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS), "streamnb-follow")
        self.held: dict[int, Partition] = {}
        self.names: dict[int, FileName] = {}
        self.fenced: dict[int, float] = {}
        self.rows = self.unsaved = 0
        self.began = self.saved_at = time.monotonic()
        self.told_at, self.told_rows = self.began, 0

    def read(self, bootstrap: str, group: str, assignment: Assignment, client: Mapping[str, Any] | None) -> None:
        """Join the group."""
        self.reader = TopicReader(
            bootstrap, self.plan.topic, group, self, assignment=assignment, options=client, say=self.tell
        )

    def loop(
        self,
        stop: threading.Event,
        until_end: bool,
        max_rows: int | None,
        save_seconds: float,
        save_rows: int,
        publisher: Publisher | None,
    ) -> None:
        """Count until it is time to stop."""
        ends = ends_of(self.reader) if until_end else None
        while not stop.is_set():
            left = None if max_rows is None else max_rows - self.rows
            if left is not None and left <= 0:
                break
            try:
                # An Arrow message may hold any number of rows: one at a time, not to go past them by far.
                deliveries = self.reader.poll(POLL_SECONDS, 1 if left and self.plan.format == "arrow" else left)
            except OffsetGoneError as error:
                self._gone(error)
                continue
            try:
                model = self.model() if self.evaluate and any(each.values for each in deliveries) else None
                self.count_all(deliveries, model)
            except BadMessage:
                self.save(list(self.held))
                raise
            now = time.monotonic()
            if now - self.saved_at >= save_seconds or self.unsaved >= save_rows:
                self.save(list(self.held))
                self.tell("saved")
                self._check_fenced(now)
            if publisher is not None and publisher.due():
                self.save(list(self.held))
                publisher.publish()
                self.tell("published", path=str(publisher.path))
            if now - self.told_at >= 1.0:
                self.tell("counting")
            if ends is not None and self._reached(ends):
                break

    def count_all(self, deliveries: Sequence[Delivery], model: Predictor | None) -> None:
        """Count what came of several partitions, on all cores; they have nothing in common."""
        futures = [self.pool.submit(self.count, delivery, model) for delivery in deliveries]
        try:
            wait(futures)
        finally:
            # Also when a second Ctrl-C breaks off the waiting: nothing is saved while it is counted.
            for future in futures:
                future.cancel()
            wait(futures)
        rows = sum(future.result() for future in futures if future.exception() is None)
        self.rows += rows
        self.unsaved += rows
        for future in futures:
            future.result()

    def count(self, delivery: Delivery, model: Predictor | None) -> int:
        """Count what came of one partition, if it is ours; return the rows."""
        partition = self.held.get(delivery.partition)
        if partition is None:
            return 0
        timestamps: Sequence[int] = ()
        if self.plan.window is not None:
            timestamps = [message.timestamp()[1] for message in delivery.messages]
        given = Messages(delivery.offsets, delivery.values, timestamps)

        def reject(place: int, kind: str, reason: str) -> None:
            if self.letters is not None:
                self.letters.send(delivery.messages[place], kind, reason)

        rows = partition.take(given, model, reject) if given.offsets else 0
        if delivery.end is not None:
            partition.move_to(delivery.end)
        return rows

    def model(self) -> Predictor | None:
        """Return what is known so far, finished with the defaults; None before the first row."""
        total = SufficientStatistics(self.plan.schema)
        for partition in self.held.values():
            total.merge(partition.total())
        return State.of_shards(self.plan.schema, total, {}).finish() if total.rows.sum() else None

    # Changing hands (the reader calls these) ------------------------------------------------------------------------

    def take(self, partition: int) -> int:
        """Begin with a partition: load its file, write it under our own name, and return its offset."""
        if partition in self.held:
            return self.held[partition].position.next
        self.fenced.pop(partition, None)
        name, state = self.folder.claim(self.plan.topic, partition)
        position = self._first(partition) if state is None else self._of(state, partition)
        position.generation, position.topic_id = name.generation, self.topic_id
        position.window = self.plan.window
        rolling = Rolling.from_plain(position.evaluation, self.evaluate) if self.evaluate else None
        held = Partition(self.plan.schema, position, self.decoder, self.label_type, self.strict, rolling)
        if state is not None:
            held.restore(state)
        self.held[partition], self.names[partition] = held, name
        self.folder.save(name, held.state())
        held.dirty = False
        return position.next

    def give(self, partitions: Sequence[int]) -> None:
        """Save partitions and let go of them."""
        try:
            self.save(partitions)
        finally:
            self.lose(partitions)

    def lose(self, partitions: Sequence[int]) -> None:
        """Let go of partitions as they are: another may have them, and what is not saved is read again there."""
        for partition in partitions:
            self.held.pop(partition, None)
            self.names.pop(partition, None)
            self.fenced.pop(partition, None)

    def save(self, partitions: Sequence[int]) -> None:
        """Write what is new to the files; then, that it is durable, tell the broker."""
        if self.letters is not None and not self.letters.flush():
            # Not counted as left out before the copy is there; the next save tries again.
            self.tell("dead_letters_waiting")
            return
        done = {}
        for number in partitions:
            held = self.held.get(number)
            if held is None or not held.dirty or not held.sound:
                continue
            try:
                self.folder.save(self.names[number], held.state())
            except FencedError as error:
                self.tell("fenced", partition=number, reason=str(error))
                self.lose([number])
                self.fenced[number] = time.monotonic()
                self.reader.drop(number)
                continue
            held.dirty = False
            done[number] = held.position.next
        self.reader.commit(done)
        self.saved_at, self.unsaved = time.monotonic(), 0

    def close(self) -> None:
        """Save everything and leave the group."""
        try:
            self.save(list(self.held))
        finally:
            self.pool.shutdown()
            self.reader.close()
            if self.letters is not None:
                self.letters.close()

    def _first(self, partition: int) -> Position:
        """Where a partition begins that has no file."""
        first, end = self.reader.bounds(partition)
        if self.start is None:
            committed = self.reader.committed(partition)
            if committed is not None:
                raise SourceError(
                    f"Expected a state of {self.plan.topic}/{partition} in {self.folder.path}, got none, but the group "
                    f"has committed offset {committed}; say where to begin with start='beginning' or 'end' "
                    "(--from beginning, --from end)"
                )
        return Position(self.plan.topic, partition, end if self.start == "end" else first)

    def _of(self, state: State, partition: int) -> Position:
        """Where the file of a partition stands, which must be of this topic and not beyond it."""
        found = [Position.from_plain(each) for each in state.positions.values()]
        place = f"{self.plan.topic}/{partition}"
        if len(found) != 1 or (found[0].topic, found[0].partition) != (self.plan.topic, partition):
            raise SourceError(f"Expected the state of {place} in {self.folder.path}, got one of something else")
        state.total.check_alike(SufficientStatistics(self.plan.schema))
        position = found[0]
        if self.topic_id and position.topic_id and self.topic_id != position.topic_id:
            first, end = self.reader.bounds(partition)
            raise SourceError(
                f"Expected the topic that was followed up to offset {position.next}, got another of the same name, "
                f"which has offsets {first} to {end} - {place}; follow it into another folder"
            )
        return position

    def _gone(self, error: OffsetGoneError) -> None:
        """Refuse to go on where the broker no longer has the offset, or accept what is lost."""
        held = self.held.get(error.partition)
        if held is None:
            return
        position = held.position
        first, end = self.reader.bounds(error.partition)
        if first > position.next and self.lost == "accept":
            self.tell("lost", partition=error.partition, messages=first - position.next)
            held.lose_until(first)
            self.reader.restart(error.partition, {number: each.position.next for number, each in self.held.items()})
            return
        if first > position.next:
            raise SourceError(
                f"Expected to go on from offset {position.next}, got {first} as the oldest that the broker still has - "
                f"{position.place}; go on without the {first - position.next} in between with lost='accept' "
                "(--lost accept)"
            )
        raise SourceError(
            f"Expected to go on from offset {position.next}, got a topic that ends at {end} - {position.place}; it was "
            "truncated or made anew, and part of what was counted is no longer there: follow it into another folder"
        )

    # Stopping and telling -------------------------------------------------------------------------------------------

    def _reached(self, ends: Mapping[int, int]) -> bool:
        """Whether every partition stands at its end: ours here, others' in their files."""
        if any(held.position.next < ends.get(number, 0) for number, held in self.held.items()):
            return False
        others = [number for number, end in ends.items() if number not in self.held and end > 0]
        if not others:
            return True
        self.save(list(self.held))  # they may be waiting for ours
        newest = self.folder.newest()
        for number in others:
            if number not in newest:
                return False
            try:
                state = self.folder.read(newest[number])
            except SourceError:
                return False  # it is changing hands
            if next(iter(state.positions.values()))["next"] < ends[number]:
                return False
        return True

    def _check_fenced(self, now: float) -> None:
        for partition, since in self.fenced.items():
            if now - since > FENCED_SECONDS:
                raise FencedError(
                    f"Expected to be alone with partition {partition} in {self.folder.path}, got another follower that "
                    "writes it; followers that share a folder must be of one group"
                )

    def tell(self, event: str, **details: Any) -> None:
        """Report how far it is."""
        if self.progress is None:
            return
        now = time.monotonic()
        since = now - self.told_at
        rate = (self.rows - self.told_rows) / since if since > 0.2 else 0.0
        if event == "counting":
            self.told_at, self.told_rows = now, self.rows
        at = {number: held.position.next for number, held in sorted(self.held.items())}
        skipped: dict[str, int] = {}
        rolling = Rolling(self.evaluate) if self.evaluate else None
        for held in self.held.values():
            for kind, number in held.position.skipped.items():
                skipped[kind] = skipped.get(kind, 0) + number
            if rolling is not None and held.evaluation is not None:
                rolling.merge(held.evaluation)
        lag = self.reader.lag(at) if hasattr(self, "reader") and event in ("counting", "saved", "stopping") else {}
        evaluation = None if rolling is None or not rolling.total.rows else rolling.report()
        self.progress(Following(event, now - self.began, self.rows, rate, at, lag, skipped, evaluation, details))
