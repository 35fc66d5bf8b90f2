"""What a state file holds, as plain data and arrays: the way from the parts of a state to a file and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from streamnb.parts import Part, Plan
from streamnb.schema import Schema
from streamnb.spans import Span
from streamnb.sufficient import SufficientStatistics

__all__ = ["described", "positions_of", "restored", "shard_of"]


def described(parts: Sequence[Part]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return a description of each part, and the arrays of all of them."""
    found: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    for i, part in enumerate(parts):
        found.append(
            {
                "schema": json.loads(part.statistics.schema.to_json()),
                "ledger": dict(sorted(part.ledger.items())),
                "rows_without_label": part.statistics.rows_without_label,
            }
        )
        if part.plan is not None:
            plan, span = part.plan, part.span
            found[-1]["of"] = [plan.fingerprint, plan.shards, plan.slices, span.first, span.last]
        arrays |= {f"{i}.{name}": array for name, array in part.statistics.arrays().items()}
    return found, arrays


def restored(descriptions: Sequence[Any], arrays: dict[str, Any]) -> list[Part]:
    """Return the parts that `described` described.

    Raises:
        KeyError, TypeError, ValueError: what is described contradicts itself.
    """
    parts = []
    for i, given in enumerate(descriptions):
        prefix = f"{i}."
        own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        schema = Schema.from_json(given["schema"])
        ledger, without_label = given["ledger"], given["rows_without_label"]
        if not isinstance(ledger, dict) or not all(isinstance(digest, str) for digest in ledger.values()):
            raise ValueError("the ledger of a part does not name shards and digests")
        if type(without_label) is not int or not 0 <= without_label < 2**63:
            raise ValueError(f"a part has {without_label!r} rows without label")
        statistics = SufficientStatistics.from_arrays(schema, own, without_label)
        plan, span = _place(given.get("of"))
        parts.append(Part(ledger, statistics, plan, span))
    return parts


def shard_of(header: dict[str, Any]) -> str | None:
    """Return the name of the shard that a state is of, if it has one.

    Raises:
        ValueError: something that is no name.
    """
    name = header["shard"]
    if name is not None and not isinstance(name, str):
        raise ValueError(f"the shard's name is {name!r}")
    return name


def positions_of(header: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return how far each stream was followed.

    Raises:
        ValueError: something that is no position.
    """
    positions = header.get("positions", {})
    if not isinstance(positions, dict) or not all(isinstance(each, dict) for each in positions.values()):
        raise ValueError("the positions of streams are not by name")
    return dict(positions)


def _place(of: Sequence[Any] | None) -> tuple[Plan | None, Span]:
    """The run that a part is of, and its place there, as a file has them."""
    if of is None:
        return None, Span(0, 0)
    fingerprint, shards, slices, first, last = of
    numbers = (shards, slices, first, last)
    if not isinstance(fingerprint, str) or any(type(number) is not int for number in numbers):
        raise ValueError(f"the place of a part is {of!r}")
    if not (0 <= first < last <= shards and slices >= 1):
        raise ValueError(f"the place of a part is {first} to {last} of {shards}, of {slices}")
    return Plan(fingerprint, shards, slices), Span(first, last)
