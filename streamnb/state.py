"""The state: the rows counted so far, and which shards they came from; it adds up.

A state holds *parts*. What `update` counts goes into its own part; what a merge brings from named shards stays a
part beside it, so that a shard that arrives twice (a retry, a speculative task, an overlapping partial merge) is
counted once. The whole is always the merge of the parts in the order of their shards' names, whatever order they
arrived in.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamnb import statefile
from streamnb.encode import Intake
from streamnb.errors import DataError, EmptyStateError, MergeError
from streamnb.families import (
    Bernoulli,
    Categorical,
    ClassPrior,
    Complement,
    Gaussian,
    Multinomial,
    class_log_prior,
    families_of,
)
from streamnb.overflow import refuse_overflow
from streamnb.parts import Part, added_up, digest, gaps, joined, sorted_parts, with_part
from streamnb.position import further
from streamnb.predictor import Predictor
from streamnb.schema import Schema
from streamnb.statecontent import described, positions_of, restored, shard_of
from streamnb.sufficient import SufficientStatistics
from streamnb.tidy import tidy_table
from streamnb.vocabulary import as_labels
from streamnb.withdrawal import withdrawn

__all__ = ["State"]


class State:
    """The counts of a schema: empty at first, updated by batches, merged with other states, finished at any time.

    With `shard`, everything that `update` counts belongs to the shard of that name, and merging counts each shard
    once; without it a state is anonymous and merging it twice counts it twice. `positions` says of each stream that
    was followed how far it is counted, as plain data that goes with the state into files and merges.

    >>> schema = Schema(label="y", numeric=["x"])
    >>> state = State(schema)
    >>> state.update(pa.table({"y": ["a", "a", "b"], "x": [1.0, 3.0, 5.0]}))
    >>> state.n_rows
    3
    >>> state.finish().classes.to_pylist()
    ['a', 'b']
    """

    def __init__(self, schema: Schema, *, shard: str | None = None) -> None:
        if not isinstance(schema, Schema):
            raise TypeError(f"Expected a Schema, got {type(schema).__name__}")
        self.schema = schema
        self.shard = shard
        self._intake = Intake(schema, schema.columns)
        self._own = SufficientStatistics(schema)
        self._parts: list[Part] = []
        self._total: SufficientStatistics | None = None
        self._arrived: SufficientStatistics | None = None
        self.positions: dict[str, dict[str, Any]] = {}

    @classmethod
    def of_shards(cls, schema: Schema, statistics: SufficientStatistics, ledger: Mapping[str, str]) -> State:
        """Return a state of statistics that were counted elsewhere, and the shards (id to digest) in them."""
        if ledger:
            return cls.of_parts(schema, [Part(dict(ledger), statistics)])
        state = cls(schema)
        state._own = statistics
        return state

    @classmethod
    def of_parts(cls, schema: Schema, parts: Sequence[Part]) -> State:
        """Return a state of disjoint parts that were counted elsewhere."""
        state = cls(schema)
        state._parts = sorted_parts(joined(parts))
        return state

    # The four verbs -------------------------------------------------------------------------------------------------

    def update(self, data: Any) -> None:
        """Count a RecordBatch, Table, Polars or pandas frame, or anything else that exports Arrow.

        Either all rows are counted or, on an error, none.

        Raises:
            SchemaError: a column is absent, doubled, or of a type that cannot be what the schema says.
            DataError: a value that cannot be counted, with its column and row.
            MergeError: the labels have another type than before.
        """
        if self.shard is not None and any(self.shard in part.ledger for part in self._parts):
            raise MergeError(f"Expected a shard that is still open, got {self.shard!r}, already merged as a whole")
        batches = self._intake.batches(data)
        first = next(batches, None)
        if first is None:
            return
        second = next(batches, None)
        if second is None and not self._parts:
            self._own.update(first)
            return
        # Several batches are counted apart and added once, so that a bad last batch leaves nothing behind.
        counted = SufficientStatistics(self.schema)
        n_rows = 0
        for batch in itertools.chain((first,), () if second is None else (second,), batches):
            try:
                counted.update(batch)
            except DataError as error:
                raise (error if error.row is None else error.at(row=n_rows + error.row)) from None
            n_rows += batch.num_rows
        if self._parts:
            self._in_any_order().merge(counted)  # rows that do not go with the parts are refused here
        self._own.merge(counted)
        self._total = None

    def merge(self, other: State) -> None:
        """Add another state; it stays as it was, and nothing of it is shared. Columns are aligned by name.

        Laws: a state without rows changes nothing; the order of merges does not matter (for moments up to
        rounding, and exactly between two states); a shard that both hold is counted once.

        Raises:
            MergeError: the states count different things, or hold different counts of one shard, or overlap in a
                shard that cannot be told apart from others merged with it.
            DataError: a sum that overflows, with the column.
        """
        if not isinstance(other, State):
            raise TypeError(f"Expected a State, got {type(other).__name__}")
        positions = further(self.positions, other.positions)
        mine, theirs, named = self._open_part(), list(other._parts), other._open_part()
        if self.shard is None and named is None and not self._parts and not theirs:
            self._own.merge(other._own)
            self.positions = positions
            return
        self._in_any_order().check_alike(other._in_any_order())
        anonymous = named is None and not other._own.is_empty()
        if anonymous and self.shard is not None:
            # Anonymous rows must not enter a named shard, whose digest says what it holds.
            raise MergeError(
                f"Expected states of named shards, got an anonymous one beside shard {self.shard!r}; "
                "name it with State(schema, shard=...), or merge into an anonymous state"
            )
        parts, still_open = list(self._parts), mine
        for part in theirs if named is None else [*theirs, named]:
            parts, still_open = with_part(parts, still_open, part)
        if not parts:
            self._own.merge(other._own)
            self.positions = positions
            return
        arrived = {id(part) for part in self._parts}
        late = [part.statistics for part in parts if id(part) not in arrived]
        replaced = still_open is not mine or len(parts) != len(arrived) + len(late)
        self._add_up(parts, late + ([other._own] if anonymous else []), anew=replaced)
        if anonymous:
            self._own.merge(other._own)
        if still_open is not mine:
            self._own = SufficientStatistics(self.schema)  # a part that came holds this shard and others
        self._parts = sorted_parts(joined(parts))
        self.positions = positions
        self._total = None

    def _in_any_order(self) -> SufficientStatistics:
        """All rows merged as they arrived: what others are held against. `total` is what is handed out."""
        if not self._parts:
            return self._own
        if self._arrived is None:
            self._arrived = self.total.copy()
        return self._arrived

    def _add_up(self, parts: Sequence[Part], late: Sequence[SufficientStatistics], *, anew: bool) -> None:
        """Bring the sum in any order up to date; a sum that overflows is refused before anything else changes."""
        if anew:
            total = SufficientStatistics(self.schema)
            late = [part.statistics for part in parts] + ([self._own] if self.shard is None else [])
        else:
            total = self._in_any_order() if self._parts else self._own.copy()
        self._arrived = None
        for statistics in late:
            total.merge(statistics)
        self._arrived = total

    def __add__(self, other: State) -> State:
        """Return a new state with the rows of both."""
        if not isinstance(other, State):
            return NotImplemented
        total = self.copy()
        if total.shard is not None:
            total = State(self.schema)
            total.merge(self)
        total.merge(other)
        return total

    def subtract(self, other: State) -> None:
        """Take another state's rows out again, as if they had never been counted; it stays as it was.

        Counts can always be subtracted, moments and weights only where the schema is `exact`. Shards that both hold
        by name go with their names; other rows leave an anonymous state, for its shards are no longer what their
        digests say. Laws, to the bit: (a + b) − b equals a, and a − a is empty.

        Raises:
            MergeError: the states count different things, or cannot be subtracted, or the other holds rows that this
                one never saw; the message names them, and nothing is changed.

        >>> schema = Schema(label="y", numeric=["x"], exact=True)
        >>> everyone, one = State(schema), State(schema)
        >>> everyone.update(pa.table({"y": ["a", "a", "b"], "x": [0.1, 0.2, 0.3]}))
        >>> one.update(pa.table({"y": ["b"], "x": [0.3]}))
        >>> everyone.subtract(one)
        >>> everyone.classes.to_pylist()
        ['a']
        """
        if not isinstance(other, State):
            raise TypeError(f"Expected a State, got {type(other).__name__}")
        self._in_any_order().check_alike(other._in_any_order())
        nothing = SufficientStatistics(self.schema)
        mine, theirs = (each._own if each.shard is None else nothing for each in (self, other))
        self._parts, self._own = withdrawn(self._named_parts(), mine, other._named_parts(), theirs)
        self.positions = {name: at for name, at in self.positions.items() if name not in other.positions}
        self.shard = self._total = self._arrived = None

    def __sub__(self, other: State) -> State:
        """Return a new state without the rows of the other."""
        if not isinstance(other, State):
            return NotImplemented
        rest = self.copy()
        rest.subtract(other)
        return rest

    def anonymous(self) -> State:
        """Return a state of the same rows that does not know the names of their shards.

        The bytes of an exact state without names depend on its rows alone; but a shard that comes twice counts twice.
        """
        return State.of_shards(self.schema, self.total.copy(), {})

    def finish(
        self,
        *,
        numeric: Gaussian | None = None,
        categorical: Categorical | None = None,
        binary: Bernoulli | None = None,
        counts: Multinomial | Complement | None = None,
        text: Multinomial | Complement | Bernoulli | None = None,
        class_prior: ClassPrior = "empirical",
        prior_alpha: float = 0.0,
    ) -> Predictor:
        """Return a frozen predictor; the state stays as it is, and other smoothings cost no second read.

        `class_prior` is "empirical", "uniform" or {label: probability}; `prior_alpha` is added to each class's
        weight before the empirical prior is taken.

        Raises:
            EmptyStateError: there are no rows.
            DataError: a variance of zero without smoothing.

        >>> state = State(Schema(label="y", numeric=["x"]))
        >>> state.update(pa.table({"y": ["a", "a", "b", "b"], "x": [1.0, 3.0, 10.0, 14.0]}))
        >>> state.finish(numeric=Gaussian(var_smoothing=0.0)).predict(pa.table({"x": [2.5, 11.0]})).to_pylist()
        ['a', 'b']
        """
        given = {"numeric": numeric, "categorical": categorical, "binary": binary, "counts": counts, "text": text}
        families = families_of(given)
        total = self._with_declared_classes()
        log_prior = class_log_prior(total.class_weight, class_prior, total.classes.values, prior_alpha)
        return Predictor.finish(total, families, log_prior)

    # Reading --------------------------------------------------------------------------------------------------------

    @property
    def total(self) -> SufficientStatistics:
        """The statistics of all rows: the parts merged in the order of their shards, then the anonymous rows."""
        if not self._parts:
            return self._own
        if self._total is None:
            own = self._open_part()
            total = SufficientStatistics(self.schema)  # with its order of columns
            total.merge(added_up([*self._parts, *([] if own is None else [own])]))
            if own is None:
                total.merge(self._own)
            self._total = total
        return self._total

    @property
    def classes(self) -> pa.Array:
        """The labels seen so far, sorted, of the label's own type."""
        return self.total.classes.values

    @property
    def n_rows(self) -> int:
        """The rows counted; rows without a label and rows of weight 0 are not among them."""
        return int(self.total.rows.sum())

    @property
    def rows_without_label(self) -> int:
        """The rows that were left out because their label was missing."""
        return self.total.rows_without_label

    @property
    def ledger(self) -> dict[str, str]:
        """The shards counted here: id to digest of the counts."""
        return {key: value for part in self._named_parts() for key, value in part.ledger.items()}

    @property
    def parts(self) -> Sequence[Part]:
        """The parts that came from named shards, in the order of their names; they are not to be changed."""
        return tuple(self._parts)

    @property
    def gaps(self) -> list[str]:
        """What is missing of runs that were divided or interrupted, a sentence for each: "7 of 8 shards; missing 3"."""
        return gaps(self._parts)

    def missing(self) -> dict[str, dict[Any, int]]:
        """Return the number of missing cells by feature column and class."""
        labels = self.classes.to_pylist()
        return {name: dict(zip(labels, each.tolist(), strict=True)) for name, each in self.total.missing().items()}

    def to_table(self) -> pa.Table:
        """Return the content as a tidy Arrow table: one row per class and feature (and category).

        Columns: block, feature, category, class, count (cells present), weight, mean, variance, total.

        >>> state = State(Schema(label="y", numeric=["x"]))
        >>> state.update(pa.table({"y": ["a", "a"], "x": [1.0, 3.0]}))
        >>> state.to_table().to_pylist()[-1]["mean"]
        2.0
        """
        refuse_overflow(self.total)
        return tidy_table(self.total)

    def copy(self) -> State:
        """Return an equal state that shares no memory with this one."""
        twin = State(self.schema, shard=self.shard)
        twin._own = self._own.copy()
        twin._parts = list(self._parts)  # parts are never changed, only replaced
        twin._arrived = None if self._arrived is None else self._arrived.copy()
        twin.positions = dict(self.positions)  # nor are positions
        return twin

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, State):
            return False
        if self.schema.exact and other.schema.exact:
            # Names of shards are no rows: they say how the rows came, on which an exact state does not depend.
            return self.schema == other.schema and self.digest() == other.digest()
        return self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # a state changes

    def __repr__(self) -> str:
        return f"<State of {self.n_rows} rows, {len(self.classes)} classes, {len(self.schema.features)} features>"

    # Files ----------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the content of a state file; equal states give equal bytes."""
        return statefile.dumps("state", *self._content())

    @classmethod
    def from_bytes(cls, data: bytes) -> State:
        """Return the state that `to_bytes` wrote.

        Raises:
            FileFormatError: the bytes are not a state.
        """
        return cls._from_contents(statefile.loads(data), "bytes")

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        # Engines ship states between processes in the form of the file, which is checked on arrival.
        return State.from_bytes, (self.to_bytes(),)

    def save(self, path: str | Path) -> None:
        """Write the state to a file: whole or, after a crash, not at all."""
        statefile.write(path, "state", *self._content())

    @classmethod
    def load(cls, path: str | Path) -> State:
        """Read a state file, or the sum of a folder that `follow` keeps, at any time; nothing in it is executed.

        Raises:
            FileFormatError: not a state file, damaged, or of an unknown format.
            SourceError: the file is not there.
        """
        if "://" in str(path) or Path(path).is_dir():
            from streamnb.statefolder import load_folder  # which is made of states

            return load_folder(path)
        return cls._from_contents(statefile.read(path, kind="state"), str(path))

    def digest(self) -> str:
        """Return a short fingerprint of the counts, equal for equal counts; of an exact state, for equal rows."""
        return digest(self.total)

    def _content(self) -> tuple[dict[str, Any], dict[str, Any]]:
        parts, arrays = described([Part({}, self._own), *self._parts])
        header = {"schema": json.loads(self.schema.to_json()), "shard": self.shard, "parts": parts}
        return header | ({"positions": self.positions} if self.positions else {}), arrays

    @classmethod
    def _from_contents(cls, contents: statefile.Contents, where: str) -> State:
        try:
            header = contents.header
            state = cls(Schema.from_json(header["schema"]), shard=shard_of(header))
            parts = restored(header["parts"], contents.arrays)
            for part in parts:
                state._own.check_alike(part.statistics)
            state._own, state._parts = parts[0].statistics, parts[1:]
            state.positions = positions_of(header)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise statefile.contradiction("state", error, where) from None
        return state

    def _named_parts(self) -> list[Part]:
        return [*self._parts, *filter(None, [self._open_part()])]

    # Parts ----------------------------------------------------------------------------------------------------------

    def _open_part(self) -> Part | None:
        """What `update` counted, as a part, if this state has a shard's name and has counted anything."""
        if self.shard is None or self._own.is_empty():
            return None
        return Part({self.shard: digest(self._own)}, self._own.copy())

    def _with_declared_classes(self) -> SufficientStatistics:
        total = self.total
        if not total.rows.sum():
            raise EmptyStateError("Expected rows to finish from, got a state without training rows")
        refuse_overflow(total)
        if not self.schema.classes:
            return total
        declared = as_labels(self.schema.classes, total.classes.type)
        if bool(pc.all(pc.is_in(declared, value_set=total.classes.values)).as_py()):
            return total
        grown = total.copy()
        grown.grow_classes(declared)
        return grown
