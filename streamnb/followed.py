"""One partition of a topic while it is followed: its counts, its position, and how messages enter both together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamnb.encode import Intake
from streamnb.errors import DataError, StreamNBError
from streamnb.parts import digest
from streamnb.position import Position
from streamnb.predictor import Predictor
from streamnb.rolling import Rolling, answers
from streamnb.schema import Schema
from streamnb.sources.messages import Decoder
from streamnb.state import State
from streamnb.sufficient import SufficientStatistics
from streamnb.vocabulary import plain_type

__all__ = ["BadMessage", "Messages", "Partition"]

Reject: TypeAlias = Callable[[int, str, str], None]
"""Is told the place of a message in its delivery, the kind of fault, and the reason."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Some messages of one partition, in the order of their offsets; a value of None is a tombstone.

    `timestamps` are in ms since 1970, -1 where there is none; only a window needs them.
    """

    offsets: Sequence[int]
    values: Sequence[bytes | None]
    timestamps: Sequence[int] = ()


class BadMessage(DataError):  # noqa: N818 - what strict reading stops at
    """A message that cannot be counted, met in strict reading; the position stands before it."""


@dataclass(slots=True)
class Partition:
    """The statistics of one partition, by slide (None: all), and how far they go.

    `take` either counts a message whole and moves past it, or skips it, says why, and moves past it.
    """

    schema: Schema
    position: Position
    decoder: Decoder
    label_type: str | None = None
    strict: bool = False
    evaluation: Rolling | None = None
    slices: dict[int | None, SufficientStatistics] = field(default_factory=dict)
    dirty: bool = True
    sound: bool = True  # False while, or because, counting was broken off: counts and position do not belong together
    _intake: Intake | None = None

    def restore(self, state: State) -> None:
        """Go on from what a file holds."""
        for part in state.parts:
            shard = next(iter(part.ledger))
            self.slices[None if self.position.window is None else int(shard.rpartition("@")[2])] = part.statistics

    def state(self) -> State:
        """Return the counts and the position as a state."""
        if self.evaluation is not None:
            self.position.evaluation = self.evaluation.to_plain()
        slices = {start: statistics for start, statistics in self.slices.items() if not statistics.is_empty()}
        found = State(self.schema)
        for start, statistics in slices.items():
            one = State.of_shards(self.schema, statistics, {self.position.shard(start): digest(statistics)})
            if len(slices) == 1:
                found = one  # spares adding up
            else:
                found.merge(one)
        found.positions = {self.position.name: self.position.to_plain()}
        return found

    def total(self) -> SufficientStatistics:
        """Return the counts of all slides that count."""
        if len(self.slices) == 1:
            return next(iter(self.slices.values()))
        total = SufficientStatistics(self.schema)
        for _, statistics in sorted(self.slices.items(), key=lambda item: item[0] or 0):
            total.merge(statistics)
        return total

    # Counting -------------------------------------------------------------------------------------------------------

    def take(self, given: Messages, model: Predictor | None = None, reject: Reject = lambda *_: None) -> int:
        """Count messages that come next; return the rows counted. With `model`, they are predicted before.

        Messages before the position were counted before; they are passed over.

        Raises:
            BadMessage: in strict reading, the first message that cannot be counted; all before it are.
        """
        position = self.position
        offsets = np.asarray(given.offsets, np.int64)
        fresh = np.flatnonzero(offsets >= position.next)
        position.skip("duplicate", len(offsets) - len(fresh))
        if not len(fresh):
            return 0
        self.dirty, self.sound = True, False
        before, rows_before = position.next, position.rows
        places = [i for i in fresh.tolist() if given.values[i] is not None]
        end, seen, stopped = int(offsets[-1]) + 1, len(fresh), None
        try:
            for start, each in self._by_slide(given, places, reject):
                self._count(given, each, start, model, reject)
        except _StopError as stop:
            stopped, end = stop, given.offsets[stop.place]
            seen = int(np.count_nonzero(offsets[fresh] < end))
            places = [place for place in places if given.offsets[place] < end]
        position.skip("tombstone", seen - len(places))
        position.gaps += end - before - seen
        position.next = end
        self.sound = True
        if stopped is not None:
            where = f"{position.place} at offset {end}"
            raise BadMessage(f"Expected a message that can be counted, got {stopped} - {where}")
        return position.rows - rows_before

    def move_to(self, offset: int) -> None:
        """Pass offsets that hold no message, up to where the partition ended."""
        if offset > self.position.next:
            self.position.gaps += offset - self.position.next
            self.position.next = offset
            self.dirty = True

    def lose_until(self, offset: int) -> None:
        """Pass messages that expired before they were read."""
        self.position.lost += offset - self.position.next
        self.position.next = offset
        self.dirty = True

    def _by_slide(self, given: Messages, places: list[int], reject: Reject) -> Iterator[tuple[int | None, list[int]]]:
        """Cut messages by the slide of their time; leave out late ones, and drop the slides that end.

        Slides may be counted in any order, but for strict reading, which must not move past the message it stops at.
        """
        window, position = self.position.window, self.position
        if window is None:
            if places:
                yield None, places
            return
        groups: dict[int, list[int]] = {}
        for place in places:
            time = given.timestamps[place]
            start = window.slice_of(time)
            newest = start if position.newest is None else max(start, position.newest)
            late = time < 0 or not window.is_live(start, newest)
            if self.strict and groups and (late or start not in groups):
                yield from groups.items()
                groups.clear()
            if time < 0:
                self._leave_out(place, "no timestamp", "Expected a message with a time, got none", reject)
            elif late:
                reason = f"Expected a message of the last {window.size} ms, got one {newest - start} ms older"
                self._leave_out(place, "too late", reason, reject)
            else:
                groups.setdefault(start, []).append(place)
                if newest != position.newest:
                    position.newest = newest
                    for old in [old for old in self.slices if not window.is_live(old or 0, newest)]:
                        del self.slices[old]
        yield from groups.items()

    def _leave_out(self, place: int, kind: str, reason: str, reject: Reject) -> None:
        self.position.skip(kind)
        reject(place, kind, reason)

    def _count(
        self, given: Messages, places: list[int], start: int | None, model: Predictor | None, reject: Reject
    ) -> None:
        """Count messages of one slide: all at once, and where that fails, without those that are to blame."""
        values: list[bytes] = [given.values[i] for i in places]  # type: ignore[misc]
        try:
            self._count_whole(values, places, start, model, reject)
            return
        except StreamNBError as error:
            problem = error
        if len(places) == 1:
            kind, reason = "bad value", str(problem)
            for _, kind, reason in self.decoder.sift(values):  # noqa: B007 - there is at most one
                pass
            self._blame(places[0], kind, reason, reject)
            return
        faults = [] if self.strict else self.decoder.sift(values)
        if faults:
            for i, kind, reason in faults:
                self._blame(places[i], kind, reason, reject)
            blamed = {i for i, _, _ in faults}
            left = [place for i, place in enumerate(places) if i not in blamed]
            if left:
                self._count(given, left, start, model, reject)
            return
        middle = len(places) // 2
        self._count(given, places[:middle], start, model, reject)
        self._count(given, places[middle:], start, model, reject)

    def _count_whole(
        self, values: list[bytes], places: list[int], start: int | None, model: Predictor | None, reject: Reject
    ) -> None:
        """Decode, predict and count messages: all of them or, on an error, none."""
        batches = [batch for table in self.decoder.decode(values) for batch in self._batches(table)]
        label = self.schema.label
        missing = [pc.is_null(batch.column(label), nan_is_null=True) for batch in batches]
        unlabelled = sum(each.true_count for each in missing)
        if unlabelled and self.strict:
            if len(values) > 1:
                raise DataError("Expected a label in every row, got none", column=label)
            raise _StopError(places[0], "a row without a label")
        window = self.position.window
        past = window is not None and not window.is_live(start or 0, self.position.newest or 0)
        held = SufficientStatistics(self.schema) if past else self.slices.get(start)
        counted = SufficientStatistics(self.schema) if held is None or len(batches) > 1 else held
        answered = []
        rows = 0
        for batch in batches:
            if model is not None:
                answered.append(answers(model, batch))
            before = int(counted.rows.sum())
            counted.update(batch)
            rows += int(counted.rows.sum()) - before
        if held is not None and counted is not held:
            held.merge(counted)
        # From here on nothing fails.
        if held is None:
            self.slices[start] = counted
        self.position.messages += len(values)
        self.position.rows += rows
        if self.evaluation is not None:
            for each in answered:
                self.evaluation.add(each)
        if unlabelled:
            self.position.skip("no label", unlabelled)
            self._reject_unlabelled(missing, places, reject)

    def _batches(self, table: pa.Table) -> list[pa.RecordBatch]:
        if self._intake is None:
            self._intake = Intake(self.schema, self.schema.columns)
        batches = list(self._intake.batches(table))
        if self.label_type is not None:
            found = plain_type(table.schema.field(self.schema.label).type)
            if str(found) != self.label_type and not pa.types.is_null(found):
                raise DataError(f"Expected labels of type {self.label_type}, got {found}", column=self.schema.label)
        return batches

    def _reject_unlabelled(self, missing: list[Any], places: list[int], reject: Reject) -> None:
        """Name the messages whose only row lacks a label; of a message of many rows the others are counted."""
        flags = [flag for each in missing for flag in each.to_pylist()]
        if len(flags) == len(places):
            for flag, place in zip(flags, places, strict=True):
                if flag:
                    reject(place, "no label", "Expected a label, got none")

    def _blame(self, place: int, kind: str, reason: str, reject: Reject) -> None:
        if self.strict:
            raise _StopError(place, f"a {kind} one: {reason}" if kind == "malformed" else f"a {kind}: {reason}")
        self._leave_out(place, kind, reason, reject)


class _StopError(Exception):
    """Strict reading stops at this message."""

    def __init__(self, place: int, what: str) -> None:
        super().__init__(what)
        self.place = place
