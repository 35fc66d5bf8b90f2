"""DataFusion: training as an aggregate function, so that a SELECT gives a state, or with GROUP BY one a group.

context.register_udaf(training_function(schema, table.schema))
context.sql("SELECT tenant, train(y, x, site) AS state FROM t GROUP BY tenant")
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from streamnb.accumulator import Counting
from streamnb.errors import MissingExtraError
from streamnb.schema import Schema

try:
    from datafusion import Accumulator, udaf
except ImportError:
    raise MissingExtraError("datafusion", "datafusion") from None

__all__ = ["training_function"]


class Training(Accumulator):
    """A state that takes the columns of its schema, in their order; between workers it is the bytes of a file."""

    def __init__(self, counting: Counting) -> None:
        self.counting = counting
        self.held = counting.create()

    def update(self, *values: pa.Array) -> None:
        """Count some rows, given as one array for each column."""
        self.counting.add(self.held, pa.record_batch(list(values), names=list(self.counting.columns)))

    def state(self) -> list[pa.Scalar]:
        """Return what another one merges."""
        return [self.evaluate()]

    def merge(self, states: list[pa.Array]) -> None:
        """Add the states of others."""
        others = [self.counting.unpack(each) for each in states[0].to_pylist()]
        self.held = self.counting.merge([self.held, *others])

    def evaluate(self) -> pa.Scalar:
        """Return the state as bytes, for `State.from_bytes`."""
        return pa.scalar(self.counting.pack(self.held), pa.large_binary())


def training_function(schema: Schema, types: pa.Schema, name: str = "train") -> Any:
    """Return an aggregate function whose arguments are `schema.columns`, in that order, with their types in `types`.

    A value that cannot be counted ends the query with its message.

    >>> import datafusion
    >>> from streamnb.state import State
    >>> table = pa.table({"y": ["a", "b", "a"], "x": [1.0, 2.0, 3.0]})
    >>> schema = Schema(label="y", numeric=["x"])
    >>> context = datafusion.SessionContext()
    >>> context.register_record_batches("t", [table.to_batches()])
    >>> context.register_udaf(training_function(schema, table.schema))
    >>> (found,) = context.sql("SELECT train(y, x) AS state FROM t").to_pydict()["state"]
    >>> State.from_bytes(found).n_rows
    3
    """
    counting = Counting(schema)
    arguments = [types.field(column).type for column in counting.columns]
    blob = pa.large_binary()
    return udaf(lambda: Training(counting), arguments, blob, [blob], "immutable", name)
