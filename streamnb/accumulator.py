"""Counting in the shape that other engines ask for: create, add, merge, extract, with bytes as the state in between.

Engines that run SQL, pipelines or group-bys know nothing of classes and features; they know accumulators. Each needs
a few lines over this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streamnb.schema import Schema
from streamnb.state import State

__all__ = ["Counting"]


@dataclass(frozen=True)
class Counting:
    """The accumulator of a schema; small, immutable and picklable, so that any worker may hold it.

    Laws: `merge` takes states in any order and grouping (counts exactly, moments up to rounding), leaves them as they
    are, and of none of them gives the empty state; `unpack(pack(state)) == state`.

    >>> import pyarrow as pa
    >>> counting = Counting(Schema(label="y", numeric=["x"]))
    >>> left = counting.add(counting.create(), pa.table({"y": ["a"], "x": [1.0]}))
    >>> right = counting.unpack(counting.pack(left))
    >>> counting.extract(counting.merge([left, right])).n_rows
    2
    """

    schema: Schema

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that `add` needs of its rows."""
        return tuple(self.schema.columns)

    @property
    def batch_rows(self) -> int:
        """How many rows suit one `add`."""
        return self.schema.batch_rows

    def create(self) -> State:
        """Return a new empty state."""
        return State(self.schema)

    def add(self, state: State, rows: Any) -> State:
        """Count rows (anything that exports Arrow) into the state, in place, all of them or none; return the state.

        Raises:
            SchemaError, DataError: as `State.update`.
        """
        state.update(rows)
        return state

    def merge(self, states: Iterable[State]) -> State:
        """Return a new state with the rows of all of these.

        Raises:
            MergeError: states that count different things.
        """
        total = State(self.schema)
        for state in states:
            total.merge(state)
        return total

    def extract(self, state: State) -> State:
        """Return the result: the state itself, which `finish` turns into a model."""
        return state

    def pack(self, state: State) -> bytes:
        """Return the state as bytes, which are those of a state file."""
        return state.to_bytes()

    def unpack(self, data: bytes) -> State:
        """Return the state of these bytes.

        Raises:
            FileFormatError: they are not a state, or a damaged one.
        """
        return State.from_bytes(data)
