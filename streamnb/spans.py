"""The order in which the shards of a run are added up: a tree that depends on their number alone.

Sums of floats depend on the order of adding, so one order is fixed. Shards are the leaves; eight neighbours in a row
are added from left to right into a node, eight nodes into a node above, and so on up to one:

    0 1 2 3 4 5 6 7   8 9 ... 15   16 17 18       shards
    [0 -------- 8)   [8 ---- 16)   [16 - 19)      nodes; the last of a level may be short
    [0 ------------------------------- 19)        the whole

One process that reads all shards keeps one unfinished node a level. Processes that read a stretch each keep the
nodes that lie within it; put together they are the same tree, and give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

__all__ = ["FAN", "Span", "joins", "push", "slice_of"]

FAN = 8
"""Children of a node: wide enough that few nodes are unfinished at a time, narrow enough to be shared out."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The shards from `first` up to but not including `last`."""

    first: int
    last: int


class Spanning(Protocol):
    """Something that was counted over a span."""

    @property
    def span(self) -> Span:
        """The shards it was counted over."""


T = TypeVar("T", bound=Spanning)


def joins(left: Span, right: Span, shards: int) -> bool:
    """Whether `right` is the next child of the unfinished node `left`, in the tree over so many shards.

    >>> joins(Span(0, 2), Span(2, 3), 19), joins(Span(5, 6), Span(6, 7), 19), joins(Span(0, 16), Span(16, 19), 19)
    (True, False, True)
    """
    if left.last != right.first:
        return False
    size, length = 1, left.last - left.first
    while size < length and size * FAN <= length:
        size *= FAN
    whole_children = length % size == 0 and left.first % (size * FAN) == 0
    return whole_children and right.last == min(right.first + size, shards)


def push(nodes: list[T], node: T, shards: int, join: Callable[[T, T], T]) -> None:
    """Put a node behind the nodes before it, and join what is next to each other in the tree.

    >>> @dataclass
    ... class Leaf:
    ...     span: Span
    ...     text: str
    >>> def join(left: Leaf, right: Leaf) -> Leaf:
    ...     return Leaf(Span(left.span.first, right.span.last), f"({left.text}{right.text})")
    >>> leaves: list[Leaf] = []
    >>> for i, letter in enumerate("abcdefghij"):
    ...     push(leaves, Leaf(Span(i, i + 1), letter), 10, join)
    >>> leaves[0].text
    '((((((((ab)c)d)e)f)g)h)(ij))'
    """
    nodes.append(node)
    while len(nodes) > 1 and joins(nodes[-2].span, nodes[-1].span, shards):
        right = nodes.pop()
        nodes[-1] = join(nodes[-1], right)


def slice_of(shards: int, i: int, n: int) -> Span:
    """Return the stretch of shards that process i of n counts (i from 1 to n); together they are all, each once.

    >>> [slice_of(10, i, 3) for i in (1, 2, 3)]
    [Span(first=0, last=3), Span(first=3, last=6), Span(first=6, last=10)]
    """
    return Span((i - 1) * shards // n, i * shards // n)
