"""A state for each group of rows: a tenant, a country, a day; they roll up by merging."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow.compute as pc

from streamnb.engines import get_engine, raise_if_stopped
from streamnb.errors import DataError, SchemaError
from streamnb.parts import digest
from streamnb.protocols import Engine, Folding, Shard
from streamnb.schema import Schema
from streamnb.sources import decoded, open_source
from streamnb.state import State
from streamnb.sufficient import SufficientStatistics
from streamnb.train import distinct_shards, inferred_schema

__all__ = ["fit_groups"]


@dataclass(slots=True)
class Group:
    """The rows of one group so far, and the shards that they are from."""

    statistics: SufficientStatistics
    ledger: dict[str, str]


def fit_groups(
    source: Any,
    by: str,
    label: str | None = None,
    *,
    schema: Schema | None = None,
    workers: int | None = None,
    engine: str | Engine = "threads",
    session: Any = None,
    client: Any = None,
    **infer: Any,
) -> dict[Any, State]:
    """Count a source in one pass into a state for each value of a column; return them by value, in order of appearance.

    Rows without a value are the group None. The states of any groups add up: `sum` of all of them, from an empty
    state, has the counts of `fit`. Memory is that of all groups together, on each worker.

    The parameters are those of `fit`; with `label`, the column `by` is no feature.

    Raises:
        SchemaError, DataError, SourceError: as `fit`.

    >>> import pyarrow as pa
    >>> table = pa.table({"who": ["u", "v", "u"], "y": ["a", "b", "a"], "x": [1.0, 5.0, 2.0]})
    >>> states = fit_groups(table, by="who", label="y")
    >>> {key: state.n_rows for key, state in states.items()}
    {'u': 2, 'v': 1}
    >>> sum(states.values(), State(states["u"].schema)).n_rows
    3
    """
    if (schema is None) == (label is None):
        raise SchemaError("Expected schema= or label=, got both or neither")
    opened = open_source(source)
    if schema is None:
        excluded = infer.pop("exclude", ())
        excluded = [excluded] if isinstance(excluded, str) else excluded
        schema = inferred_schema(opened, str(label), exclude=[*excluded, by], **infer)
    columns = list(dict.fromkeys([*schema.columns, by]))
    opened.check(columns)
    schema.check(opened.schema)
    chosen = get_engine(engine, workers, session=session, client=client)
    count = partial(_count, schema, by, columns)
    shards = distinct_shards(opened.shards())
    results = chosen.fold(count, _join, shards) if isinstance(chosen, Folding) else chosen.map(count, shards)
    groups = _join(results)
    return {key: State.of_shards(schema, group.statistics, group.ledger) for key, group in groups.items()}


def _count(schema: Schema, by: str, columns: Sequence[str], shard: Shard) -> dict[Any, Group]:
    groups: dict[Any, Group] = {}
    done = 0
    for batch in shard.batches(columns, schema.batch_rows):
        raise_if_stopped()
        keys = pc.dictionary_encode(decoded(batch.select([by])).column(0), null_encoding="encode")
        order = pc.array_sort_indices(keys.indices)  # stable: the rows of a group keep their order
        rows, codes = batch.take(order), keys.indices.take(order)
        runs = pc.run_end_encode(codes)
        first = 0
        for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            key = keys.dictionary[code].as_py()
            if key not in groups:
                groups[key] = Group(SufficientStatistics(schema), {})
            try:
                groups[key].statistics.update(rows.slice(first, end - first).select(schema.columns))
            except DataError as error:
                row = order[first + (error.row or 0)].as_py()
                raise DataError(error.problem, column=error.column).at(place=shard.place(done + row)) from None
            first = end
        done += batch.num_rows
    if shard.id:
        for key, group in groups.items():
            group.ledger[f"{shard.id} {by}={key!r}"] = digest(group.statistics)
    return groups


def _join(results: Iterable[dict[Any, Group]]) -> dict[Any, Group]:
    total: dict[Any, Group] = {}
    for groups in results:
        for key, group in groups.items():
            if key in total:
                total[key].statistics.merge(group.statistics)
                total[key].ledger |= group.ledger
            else:
                total[key] = group
    return total
