"""Parts of a state taken out of it again: whole shards by their names, or rows from wherever they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamnb.errors import MergeError
from streamnb.parts import Part, sorted_parts
from streamnb.subtraction import difference
from streamnb.sufficient import SufficientStatistics

__all__ = ["withdrawn"]


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
    return sorted_parts(remaining)


def _ledger(parts: Iterable[Part]) -> dict[str, str]:
    return {key: value for part in parts for key, value in part.ledger.items()}


def _total(parts: Sequence[Part]) -> SufficientStatistics:
    total = parts[0].statistics.copy()
    for part in parts[1:]:
        total.merge(part.statistics)
    return total
