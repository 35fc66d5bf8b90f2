"""The parts of a state: statistics, and the named shards that are in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamnb import statefile
from streamnb.errors import MergeError
from streamnb.subtraction import difference
from streamnb.sufficient import SufficientStatistics

__all__ = ["Part", "digest", "order", "with_part", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Part:
    """Statistics, and the shards that are in them: shard id to the digest of what was counted there."""

    ledger: Mapping[str, str]
    statistics: SufficientStatistics


def order(part: Part) -> list[str]:
    """Return what parts are sorted by: they are disjoint, so their sorted shard names put them in one order."""
    return sorted(part.ledger)


def digest(statistics: SufficientStatistics) -> str:
    """Return the fingerprint that a ledger holds of a shard, equal for equal counts."""
    header = {"rows_without_label": statistics.rows_without_label}
    return statefile.fingerprint(header, statistics.arrays())[:24]


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
    remaining = [other for other in parts if not any(other is gone for gone in overlapping)]
    if mine is not None and any(mine is gone for gone in overlapping):
        mine = None
    return [*remaining, part], mine


def withdrawn(
    mine: Sequence[Part], own: SufficientStatistics, theirs: Sequence[Part], rows: SufficientStatistics
) -> tuple[list[Part], SufficientStatistics]:
    """Take `theirs` out of the named parts `mine`, and anonymous `rows` out of `own`; return what is left of both.

    Where none of their shards is known by name, they are rows like others. Rows can be in any part, and then what is
    left has no names: it is not what its shards' digests say, and a shard that came again would bring the rows back.

    Raises:
        MergeError: only some of their shards are known here, or have other counts, or rows were never counted.
    """
    ledger = _ledger(mine)
    unknown = [key for key in _ledger(theirs) if key not in ledger]
    if not unknown:
        left = _without(mine, theirs) if theirs else list(mine)
    elif len(unknown) == len(_ledger(theirs)):
        left, rows = list(mine), _total([*theirs, Part({}, rows)])
    else:
        raise MergeError(f"Expected shards that were counted here, got shard {min(unknown)!r}, which was not")
    if rows.is_empty():
        return left, own
    return [], difference(_total([Part({}, own), *left]), rows)


def _without(parts: Sequence[Part], gone: Sequence[Part]) -> list[Part]:
    """Take named shards out of disjoint parts, all of which have them.

    Raises:
        MergeError: one shard has different counts in the two, or more would be taken out of a part than is in it.
    """
    counted = _ledger(parts)
    for key, found in _ledger(gone).items():
        if counted[key] != found:
            raise MergeError(f"Expected equal counts under one shard, got two different states of shard {key!r}")
    remaining = list(parts)
    touched = []
    for part in gone:
        same = next((other for other in remaining if other.ledger.keys() == part.ledger.keys()), None)
        if same is not None:
            remaining.remove(same)
        else:
            touched.append(part)
    if touched:
        # What is left of the parts that hold these shards among others becomes one part.
        shards = _ledger(touched).keys()
        holding = [part for part in remaining if not shards.isdisjoint(part.ledger)]
        remaining = [part for part in remaining if shards.isdisjoint(part.ledger)]
        ledger = {key: value for key, value in _ledger(holding).items() if key not in shards}
        left = difference(_total(holding), _total(touched))
        if ledger:
            remaining.append(Part(ledger, left))
        elif not left.is_empty():
            raise MergeError(f"Expected no rows beside those of shard {min(shards)!r}, got some")
    return sorted(remaining, key=order)


def _ledger(parts: Iterable[Part]) -> dict[str, str]:
    return {key: value for part in parts for key, value in part.ledger.items()}


def _total(parts: Sequence[Part]) -> SufficientStatistics:
    total = parts[0].statistics.copy()
    for part in parts[1:]:
        total.merge(part.statistics)
    return total
