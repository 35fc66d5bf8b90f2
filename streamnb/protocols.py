"""The shapes that the rooms of the house share; the page to read first.

A *source* is cut into *shards* by the data alone. An *engine* maps a task over the shards and hands the results
back in shard order. A *statistic* is what one block of columns leaves behind of its rows, and it adds up. A
*family* turns a statistic into a frozen *likelihood*: smoothing and logarithms appear there and nowhere else.

    source -> shards -> batches -> statistic (+ statistic ...) -> family.finish -> likelihood

The class is axis 0 of every array of a statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BATCH_ROWS",
    "Codes",
    "Column",
    "Engine",
    "Flags",
    "Floats",
    "Likelihood",
    "Shard",
    "Source",
    "Statistic",
]

Floats: TypeAlias = NDArray[np.float64]
Codes: TypeAlias = NDArray[np.int32]
Flags: TypeAlias = NDArray[np.bool_]

BATCH_ROWS = 65_536
"""Rows of a batch where nothing else is said; `Schema.batch_rows` says what suits a table."""

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Column:
    """One feature of one batch, as NumPy.

    `values` has shape (n_rows,) and any real dtype; where `valid` is False the value is missing and what stands in
    `values` means nothing. `valid` is None when every cell is there. NaN among the values is missing as well.
    """

    values: NDArray[Any]
    valid: Flags | None = None


class Statistic(Protocol):
    """What a block of columns leaves behind of its rows, per class; it adds up.

    Laws: an empty statistic is neutral; merge is commutative to the bit and associative (to rounding for moments);
    merge leaves `other` as it was and shares no memory with it.
    """

    n_classes: int

    def grow(self, index: NDArray[np.intp], n_classes: int) -> None:
        """Make room for new classes: the old class i becomes class index[i] of n_classes."""

    def merge(self, other: Self, index: NDArray[np.intp]) -> None:
        """Add another statistic, whose class i is class index[i] here; on an error self is unchanged."""

    def copy(self) -> Self:
        """Return an equal statistic that shares no memory with this one."""

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays that a state file holds, by name."""


class Likelihood(Protocol):
    """Frozen: log p(block | class)."""

    def add_to(self, out: Floats, block: Any) -> None:
        """Add the log likelihood of each row of the block under each class to `out`, (n_rows, n_classes)."""


class Shard(Protocol):
    """A small, picklable, named cut of a source, opened by the worker that reads it.

    `id` names the data (not the reader) and is the same on every run over the same data. `rows` is None when only
    reading tells; `size` is in bytes, for progress.
    """

    @property
    def id(self) -> str:
        """The identity of the data in this shard."""

    @property
    def rows(self) -> int | None:
        """How many rows, when known beforehand."""

    @property
    def size(self) -> int:
        """How many bytes, for progress; 0 when unknown."""

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, cut every `rows` rows counted from the start of the shard.

        Counted, and not as a reader hands them out: results never depend on a reader.
        """

    def place(self, row: int) -> str:
        """Say where a row of this shard stands: file, row group, row of the file."""


class Source(Protocol):
    """Data that can be cut into shards; the cut depends on the data alone."""

    @property
    def schema(self) -> pa.Schema:
        """The columns and their widened types over all files."""

    def shards(self) -> Iterable[Shard]:
        """Cut the source; the order is part of the contract."""


class Engine(Protocol):
    """An ordered map: results come back in the order of the shards, whatever finished first."""

    def map(self, task: Callable[[A], B], shards: Iterable[A]) -> Iterator[B]:
        """Apply the task to every shard; closing the iterator stops the work."""
