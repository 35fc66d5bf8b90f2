"""Apache Beam: a CombineFn over batches of rows.

states = batches | beam.CombineGlobally(Train(schema))           # or CombinePerKey, by tenant
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamnb.accumulator import Counting
from streamnb.errors import MissingExtraError
from streamnb.schema import Schema
from streamnb.state import State

try:
    import apache_beam as beam
except ImportError:
    raise MissingExtraError("apache-beam", "beam") from None

__all__ = ["Train"]


class Train(beam.CombineFn):  # type: ignore[misc]
    """Combine batches (RecordBatch, Table, or anything else that exports Arrow) into the bytes of a state.

    The bytes are those of a state file: write them anywhere, and read them with `State.from_bytes`.
    """

    def __init__(self, schema: Schema) -> None:
        self.counting = Counting(schema)

    def create_accumulator(self) -> State:
        """Return an empty state."""
        return self.counting.create()

    def add_input(self, accumulator: State, batch: Any) -> State:
        """Count a batch."""
        return self.counting.add(accumulator, batch)

    def merge_accumulators(self, accumulators: Iterable[State]) -> State:
        """Add states up; between workers they travel as the bytes of a state file."""
        return self.counting.merge(accumulators)

    def extract_output(self, accumulator: State) -> bytes:
        """Return the state as bytes."""
        return self.counting.pack(accumulator)
