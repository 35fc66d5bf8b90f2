"""What a state is made of: statistics, the shards that are in them, and where these stand in the run they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streamnb import statefile
from streamnb.errors import MergeError
from streamnb.spans import Span, push, slice_of
from streamnb.sufficient import SufficientStatistics

__all__ = ["Part", "Plan", "added_up", "digest", "gaps", "joined", "shard_names", "sorted_parts", "with_part"]


NOWHERE = Span(0, 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """A run that was divided: the fingerprint of its shards, their number, and among how many processes."""

    fingerprint: str
    shards: int
    slices: int


@dataclass(frozen=True, slots=True)
class Part:
    """Statistics, and the shards that are in them: shard id to the digest of what was counted there.

    While the run that they are of is not all there, `plan` and `span` say which stretch of it this is.
    """

    ledger: Mapping[str, str]
    statistics: SufficientStatistics
    plan: Plan | None = None
    span: Span = NOWHERE


def digest(statistics: SufficientStatistics) -> str:
    """Return the fingerprint that a ledger holds of a shard, equal for equal counts."""
    header = {"rows_without_label": statistics.rows_without_label}
    return statefile.fingerprint(header, statistics.arrays())[:24]


def sorted_parts(parts: Sequence[Part]) -> list[Part]:
    """Parts are disjoint, so their sorted shard names put them in one order; parts without a name come by place."""
    return sorted(parts, key=lambda part: (sorted(part.ledger), part.span))


def with_part(parts: Sequence[Part], mine: Part | None, part: Part) -> tuple[list[Part], Part | None]:
    """Add a part to disjoint parts so that every shard stands in exactly one; `mine` is the part still open."""
    held = [*parts, *([] if mine is None else [mine])]
    overlapping = [other for other in held if not part.ledger.keys().isdisjoint(other.ledger)]
    covered: set[str] = set()
    for other in overlapping:
        for key in part.ledger.keys() & other.ledger.keys():
            if part.ledger[key] != other.ledger[key]:
                raise MergeError(f"Expected equal counts under one shard, got two different states of shard {key!r}")
            covered.add(key)
    if covered == part.ledger.keys() and part.ledger:
        return list(parts), mine
    for other in overlapping:
        if not other.ledger.keys() <= part.ledger.keys():
            shard = min(part.ledger.keys() & other.ledger.keys())
            raise MergeError(
                f"Expected each shard in one state, got shard {shard!r} in two that also hold others; "
                "merge the states from which these were made"
            )
    if not part.ledger and any(_same_place(part, other) for other in parts):
        return list(parts), mine  # a stretch of which every shard was skipped, come again
    remaining = [other for other in parts if not any(other is gone for gone in overlapping)]
    if mine is not None and any(mine is gone for gone in overlapping):
        mine = None
    return [*remaining, part], mine


def joined(parts: Sequence[Part]) -> list[Part]:
    """Join what lies next to each other in its run; a run that is all there becomes one part like any other.

    The statistics that are joined are copied: parts are never changed, only replaced.
    """
    found = [part for part in parts if part.plan is None]
    for plan in dict.fromkeys(part.plan for part in parts):
        if plan is None:
            continue
        nodes: list[Part] = []
        for part in sorted((part for part in parts if part.plan == plan), key=lambda part: part.span):
            push(nodes, part, plan.shards, _join)
        if nodes[0].span == Span(0, plan.shards):
            nodes = [Part(node.ledger, node.statistics) for node in nodes]
        found += nodes
    return found


def added_up(parts: Sequence[Part]) -> SufficientStatistics:
    """Merge parts in the order of their names, as the shards of one run are merged; they stay as they are."""

    def join(left: Part, right: Part) -> Part:
        made_here = left.span.last - left.span.first > 1
        statistics = left.statistics if made_here else left.statistics.copy()
        statistics.merge(right.statistics)
        return Part({}, statistics, None, Span(left.span.first, right.span.last))

    nodes: list[Part] = []
    for i, part in enumerate(sorted_parts(parts)):
        push(nodes, Part({}, part.statistics, None, Span(i, i + 1)), len(parts), join)
    return nodes[0].statistics if len(parts) > 1 else nodes[0].statistics.copy()


def gaps(parts: Sequence[Part]) -> list[str]:
    """Return a sentence for each run of which something is missing: "7 of 8 shards; missing 3"."""
    plans = [plan for plan in dict.fromkeys(part.plan for part in parts) if plan is not None]
    found = []
    for plan in plans:
        held, missing = _slices(parts, plan)
        if plan.slices == 1:
            stretch = sum(part.span.last - part.span.first for part in parts if part.plan == plan)
            sentence = f"a run that is not at its end: {stretch:,} of its {plan.shards:,} pieces"
        else:
            more = f" and {len(missing) - 20:,} more" if len(missing) > 20 else ""
            sentence = f"{len(held):,} of {plan.slices:,} shards; missing {', '.join(map(str, missing[:20]))}{more}"
        if len(plans) > 1:  # several runs, or one whose files were not the same everywhere
            sentence += f" (of {plan.shards:,} pieces of data, fingerprint {plan.fingerprint[:6]})"
        found.append(sentence)
    return found


def shard_names(parts: Sequence[Part]) -> str:
    """Name what is there of divided runs: "shard 3 of 8"; nothing if these are whole runs."""
    plans = [plan for plan in dict.fromkeys(part.plan for part in parts) if plan is not None and plan.slices > 1]
    return ", ".join(f"shard {i} of {plan.slices}" for plan in plans for i in _slices(parts, plan)[0])


def _slices(parts: Sequence[Part], plan: Plan) -> tuple[list[int], list[int]]:
    """Which slices of a run are there, and which are not; one without any data is never missing."""
    there = {i for part in parts if part.plan == plan for i in range(part.span.first, part.span.last)}
    held: list[int] = []
    missing: list[int] = []
    for i in range(1, plan.slices + 1):
        span = slice_of(plan.shards, i, plan.slices)
        (held if there.issuperset(range(span.first, span.last)) else missing).append(i)
    return held, missing


def _join(left: Part, right: Part) -> Part:
    statistics = left.statistics.copy()
    statistics.merge(right.statistics)
    span = Span(left.span.first, right.span.last)
    return Part({**left.ledger, **right.ledger}, statistics, left.plan, span)


def _same_place(part: Part, other: Part) -> bool:
    return part.plan == other.plan and part.span.first >= other.span.first and part.span.last <= other.span.last
