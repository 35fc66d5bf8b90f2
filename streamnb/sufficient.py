"""All that training keeps of the rows it has seen: one statistic per block, and the names of classes and categories.

It knows nothing of smoothing (that is `finish`) nor of which shards its rows came from (that is `State`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from streamnb.encode import CategoryColumn, Training, encode_training
from streamnb.errors import DataError, FileFormatError, MergeError
from streamnb.kernels import Groups
from streamnb.kinds import DENSE, Kinds
from streamnb.protocols import Floats
from streamnb.schema import BLOCKS, Schema
from streamnb.tokentable import TokenTable
from streamnb.vocabulary import Index, Vocabulary
from streamnb.weights import ClassWeights, added, arrays_of, from_arrays, grown, rounded

__all__ = ["SufficientStatistics"]


class SufficientStatistics:
    """The counts and moments of the rows seen so far; class i stands at index i of axis 0 everywhere.

    - `classes`: the labels seen, sorted; `rows` (n_classes,) int64 and `class_weight` (n_classes,) float64.
    - `numeric` (Moments), `binary` and `counts` (FeatureSums): columns in the order of the schema.
    - `categories` and `categorical`: by column, the values seen and the counts of each.
    - `text`: by column, the tokens seen and the counts of each.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        # Through one shard, a file's dictionaries are taken whole and in the order in which they come: each batch
        # finds a few more values, and the categories would be sorted and numbered anew each time.
        self.in_shard = False
        weighted = schema.weight is not None
        self.classes = Vocabulary()
        self.rows: NDArray[np.int64] = np.zeros(0, np.int64)
        self.kinds = Kinds.of(schema)
        self.sum_of_weights: ClassWeights | None = self.kinds.weights()
        self.rows_without_label = 0
        self.numeric: Any = self.kinds.dense("numeric")(0, len(schema.numeric), weighted)
        self.binary: Any = self.kinds.dense("binary")(0, len(schema.binary), weighted)
        self.counts: Any = self.kinds.dense("counts")(0, len(schema.counts), weighted)
        self.categories = {name: Vocabulary() for name in schema.categorical}
        self.categorical: dict[str, Any] = {name: self.kinds.categories() for name in schema.categorical}
        self.text = {
            name: TokenTable(schema.text_options[name], 0, weighted, exact=schema.exact) for name in schema.text
        }
        self._looked_up: dict[str, tuple[Vocabulary, pa.Array, Index]] = {}

    @property
    def class_weight(self) -> Floats:
        """The sum of weights of each class, (n_classes,); without weights, its rows."""
        return self.rows.astype(np.float64) if self.sum_of_weights is None else rounded(self.sum_of_weights)

    def is_empty(self) -> bool:
        """Whether nothing at all has been counted, not even rows without a label."""
        return not len(self.classes) and not self.rows_without_label

    def update(self, batch: pa.RecordBatch) -> None:
        """Count a batch that has the schema's columns; on an error nothing of it has been counted.

        Raises:
            DataError: a value that cannot be counted, with its column and row.
            MergeError: the label, or a category column, has another type than the rows before.
        """
        schema = self.schema
        training = encode_training(batch, schema)
        labels, codes = Vocabulary(training.labels), training.codes
        self._check_weights(training.weight)
        groups = Groups(codes, len(labels), training.weight)
        parts = self._measure(groups, training, self._pivot(labels))
        classes, old, new = self._union_of_classes(labels)
        categories = {
            name: self._union_of_categories(name, column)
            for name, column in zip(schema.categorical, training.blocks.categorical, strict=True)
        }
        if not self.in_shard:  # through a shard, a file's dictionaries may hold values that no row has
            for name, (vocabulary, _, _) in categories.items():
                self._check_cap(name, vocabulary)
        # From here on only an overflow can fail, and the dense statistics come before anything that is kept.
        self._merge_dense(parts, classes, old, new)
        rows = np.bincount(codes, minlength=len(labels))
        self.rows[new] += rows
        if self.sum_of_weights is not None:
            self.sum_of_weights = added(self.sum_of_weights, self.kinds.weights_of(groups), new)
        self.rows_without_label += training.rows_without_label
        for name, column in zip(schema.categorical, training.blocks.categorical, strict=True):
            vocabulary, mine, place = categories[name]
            self._grow_categories(name, vocabulary, mine)
            self.categorical[name].add(groups, column.codes, new, place)

    def merge(self, other: SufficientStatistics) -> None:
        """Add another's rows, aligning classes, categories and columns by name; on an error nothing is added.

        Raises:
            MergeError: they count different things; the message names the first difference.
            DataError: an overflow, or more categories than the schema allows; the message names the column.
        """
        self.check_alike(other)
        self._check_weights(other.sum_of_weights)
        classes, old, new = self._union_of_classes(other.classes)
        unions = {name: self.categories[name].union(other.categories[name], widen=True) for name in self.categories}
        for name, (vocabulary, _, _) in unions.items():
            self._check_cap(name, vocabulary)
        parts = {block: other._ordered(block, getattr(self.schema, block)) for block in DENSE}
        self._merge_dense(parts | {"text": other.text}, classes, old, new)
        self.rows[new] += other.rows
        if self.sum_of_weights is not None and other.sum_of_weights is not None:
            self.sum_of_weights = added(self.sum_of_weights, other.sum_of_weights, new)
        self.rows_without_label += other.rows_without_label
        for name, (vocabulary, mine, place) in unions.items():
            self._grow_categories(name, vocabulary, mine)
            self.categorical[name].merge(other.categorical[name], new, place)

    def check_alike(self, other: SufficientStatistics) -> None:
        """Refuse statistics that count other things than this.

        Raises:
            MergeError: the first difference: a column, its kind, the weight, or the type of the label.
        """
        mine, theirs = self.schema, other.schema
        if mine.label != theirs.label:
            raise MergeError(f"Expected states with label {mine.label!r}, got label {theirs.label!r}")
        for kind in BLOCKS:
            ours, yours = getattr(mine, kind), getattr(theirs, kind)
            if ours == yours:
                continue
            ours, yours = dict.fromkeys(ours), dict.fromkeys(yours)  # looked up by name, in their order
            for name in [*ours, *yours]:
                if name not in ours or name not in yours:
                    raise MergeError(f"Expected {kind} column {name!r} in both states, got it in one only")
        for option in ("exact", "weight", "binarize", "infinite"):
            ours, yours = getattr(mine, option), getattr(theirs, option)
            if ours != yours:
                raise MergeError(f"Expected states with {option}={ours!r}, got {option}={yours!r}")
        for name, options in mine.text_options.items():
            for option, ours in vars(options).items():
                if (yours := getattr(theirs.text_options[name], option)) != ours:
                    raise MergeError(f"Expected {option}={ours!r} for text column {name!r}, got {option}={yours!r}")
        self._union_of_classes(other.classes)
        for name, vocabulary in self.categories.items():
            try:
                vocabulary.union(other.categories[name], widen=True)
            except MergeError as error:
                raise MergeError(f"{error} - categorical column {name!r}") from None

    def grow_classes(self, values: pa.Array) -> None:
        """Make room for classes that may have no rows."""
        classes, old, _ = self._union_of_classes(Vocabulary.of(values))
        self._merge_dense({}, classes, old, np.zeros(0, np.intp))

    def copy(self) -> SufficientStatistics:
        """Return equal statistics that share no memory with these."""
        twin = SufficientStatistics(self.schema)
        twin.merge(self)
        return twin

    def missing(self) -> dict[str, NDArray[np.int64]]:
        """Return the missing cells of each feature column, per class: shape (n_classes,)."""
        found = {}
        for block in DENSE:
            present = getattr(self, block).count
            for j, name in enumerate(getattr(self.schema, block)):
                found[name] = self.rows - present[:, j]
        for name, counts in self.categorical.items():
            found[name] = self.rows - counts.present
        for name, table in self.text.items():
            found[name] = self.rows - table.present
        return {name: found[name] for name in self.schema.features}

    def arrays(self) -> dict[str, NDArray[Any] | pa.Array]:
        """Return what a state file holds, by name."""
        held: dict[str, NDArray[Any] | pa.Array] = {"classes": self.classes.values, "rows": self.rows}
        if self.sum_of_weights is not None:
            held |= arrays_of("sum_of_weights", self.sum_of_weights)
        for block in DENSE:
            if getattr(self.schema, block):
                held |= {f"{block}.{key}": array for key, array in getattr(self, block).arrays().items()}
        for i, name in enumerate(self.schema.categorical):
            held[f"categorical.{i}.values"] = self.categories[name].values
            held |= {f"categorical.{i}.{k}": array for k, array in self.categorical[name].arrays().items()}
        for i, table in enumerate(self.text.values()):
            held |= {f"text.{i}.{k}": array for k, array in table.arrays().items()}
        return held

    @classmethod
    def from_arrays(cls, schema: Schema, arrays: Mapping[str, Any], rows_without_label: int) -> SufficientStatistics:
        """Return the statistics that `arrays` came from.

        Raises:
            FileFormatError: an array is absent, or shapes and counts contradict each other.
        """
        new = cls(schema)
        weighted = schema.weight is not None
        try:
            new.classes = _checked_vocabulary(arrays["classes"])
            new.rows = arrays["rows"]
            new.sum_of_weights = from_arrays("sum_of_weights", arrays, schema.exact) if weighted else None
            for block in DENSE:
                kind = new.kinds.dense(block)
                if getattr(schema, block):
                    prefix = f"{block}."
                    own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
                    setattr(new, block, kind.from_arrays(own))
                else:
                    setattr(new, block, kind(len(new.classes), 0, weighted))
            for i, name in enumerate(schema.categorical):
                prefix = f"categorical.{i}."
                new.categories[name] = _checked_vocabulary(arrays[f"{prefix}values"])
                own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
                new.categorical[name] = new.kinds.categories(own)
            for i, name in enumerate(schema.text):
                prefix = f"text.{i}."
                own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
                new.text[name] = TokenTable.from_arrays(
                    schema.text_options[name], own, len(new.classes), weighted, exact=schema.exact
                )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise FileFormatError(f"Expected the arrays of a state, got one wrong or missing: {error}") from None
        new.rows_without_label = rows_without_label
        new._check_shapes()
        return new

    def _check_shapes(self) -> None:
        n, weighted = len(self.classes), self.schema.weight is not None
        self._require("rows", self.rows, (n,), dtype="int64")
        if self.sum_of_weights is not None:
            self._require("sum_of_weights", self.class_weight, (n,), dtype="float64")
        if not isinstance(self.rows_without_label, int) or self.rows_without_label < 0:
            raise FileFormatError(f"Expected a count of rows without label, got {self.rows_without_label!r}")
        for block in DENSE:
            statistic, features = getattr(self, block), len(getattr(self.schema, block))
            for key, array in statistic.arrays().items():
                if not key.endswith(".digits"):  # of exact sums, which know how many they are
                    signed = key in ("mean", "mean_tail") or key.endswith(".low")
                    self._require(f"{block}.{key}", array, (n, features), signed=signed)
            if statistic.weighted != weighted or (statistic.count > self.rows[:, None]).any():
                raise FileFormatError(f"Expected {block} counts of at most the rows, got more or without weights")
        for name, counts in self.categorical.items():
            for array in (counts.rows, counts.counts):
                self._require(f"categorical column {name!r}", array, (n, len(self.categories[name])))
        for name, table in self.text.items():
            if (table.present > self.rows).any() or (table.empty > table.present).any():
                raise FileFormatError(f"Expected documents of at most the rows, got more - text column {name!r}")

    @staticmethod
    def _require(
        what: str, array: Any, shape: tuple[int, ...], *, signed: bool = False, dtype: str | None = None
    ) -> None:
        if dtype is not None and array.dtype != dtype:
            raise FileFormatError(f"Expected {what} of type {dtype}, got {array.dtype}")
        if array.shape != shape:
            raise FileFormatError(f"Expected {what} of shape {shape}, got {array.shape}")
        if array.size and not signed and not (array >= 0).all():
            raise FileFormatError(f"Expected {what} of at least 0, got {array.min()}")

    def _measure(self, groups: Groups, training: Training, pivot: Floats) -> dict[str, Any]:
        """The statistics of one batch alone, but those of categories."""
        parts: dict[str, Any] = {}
        for block in DENSE:
            columns = getattr(training.blocks, block)
            options: dict[str, Any] = {"infinite": self.schema.infinite}
            if block == "numeric":
                options["pivot"] = pivot
            try:
                parts[block] = self.kinds.dense(block).of(groups, columns, **options)
            except DataError as error:
                raise self._named(error, training.kept, block) from None
        parts["text"] = {}
        for name, text in zip(self.schema.text, training.blocks.text, strict=True):
            try:
                parts["text"][name] = TokenTable.of(groups, text, exact=self.schema.exact)
            except DataError as error:
                raise self._named(error, training.kept, "text").at(column=name) from None
        return parts

    def _pivot(self, labels: Vocabulary) -> Floats:
        """The running mean of each class of the batch, NaN where there is none yet."""
        place = self.classes.index(labels.values) if self.classes.type == labels.type else np.full(len(labels), -1)
        pivot = np.full((len(labels), self.numeric.n_features), np.nan)
        if self.schema.exact:
            return pivot  # exact sums are not taken from a pivot
        known = place >= 0
        there = place[known]
        pivot[known] = np.where(self.numeric.count[there] > 0, self.numeric.mean[there], np.nan)
        return pivot

    def _named(self, error: DataError, kept: NDArray[np.intp] | None, block: str) -> DataError:
        """Return the error with the column's name and the row's number in the batch."""
        row = error.row if kept is None or error.row is None else int(kept[error.row])
        column = error.column
        if isinstance(column, int):
            column = getattr(self.schema, block)[column]
        return error.at(column=column, row=row)

    def _check_weights(self, more: ClassWeights | None) -> None:
        """Refuse weights that overflow when added to those counted; no block holds more weight than the rows do."""
        if self.sum_of_weights is None or more is None or self.schema.exact:
            return  # exact sums do not overflow; whether they fit in a float64 is asked at finish
        with np.errstate(over="ignore"):
            total = float(rounded(self.sum_of_weights).sum() + rounded(more).sum())
        if not math.isfinite(total):
            raise DataError("Expected weights whose sum fits in a float64, got an overflow", column=self.schema.weight)

    def _union_of_classes(self, labels: Vocabulary) -> tuple[Vocabulary, Index, Index]:
        try:
            return self.classes.union(labels)
        except MergeError as error:
            raise MergeError(f"{error} - label column {self.schema.label!r}") from None

    def _union_of_categories(self, name: str, column: CategoryColumn) -> tuple[Vocabulary, Index, Index]:
        """The union with the values that a column's codes use, and where each value of the column stands in it."""
        vocabulary, values = self.categories[name], column.values
        if vocabulary.type == values.type:
            place = self._place_of(name, values)
            if (place >= 0).all():
                return vocabulary, np.arange(len(vocabulary), dtype=np.intp), place
        if not self.in_shard:
            codes = column.codes
            used = np.bincount(codes[codes >= 0], minlength=len(values)) > 0
            found = values.filter(pa.array(used, pa.bool_()))
        elif vocabulary.type == values.type or not len(vocabulary):
            longer, place = vocabulary.extended(values, self._place_of(name, values))
            self._looked_up[name] = (longer, values, place)
            return longer, np.arange(len(vocabulary), dtype=np.intp), place
        else:
            found = values
        try:
            union, grown, _ = vocabulary.union(Vocabulary.of(found), widen=True)
        except MergeError as error:
            raise MergeError(f"{error} - categorical column {name!r}") from None
        if values.type != union.type and len(union):
            values = values.cast(union.type)
        return union, grown, union.index(values).astype(np.intp)

    def leave_shard(self) -> None:
        """Bring the categories in order and forget those that no row has, once all of a shard has been counted.

        Raises:
            DataError: more categories than the schema allows.
        """
        self.in_shard = False
        self._looked_up.clear()
        for name, counts in self.categorical.items():
            used = np.flatnonzero(counts.rows.any(axis=0))
            values = self.categories[name].values.take(pa.array(used))
            order = np.asarray(pc.sort_indices(values)) if len(values) else used
            self.categories[name] = Vocabulary(values.take(pa.array(order)))
            self.categorical[name] = counts.only(np.arange(counts.n_classes), used[order])
            self._check_cap(name, self.categories[name])

    def _check_cap(self, name: str, vocabulary: Vocabulary) -> None:
        cap = self.schema.max_categories
        if cap is not None and len(vocabulary) > cap:
            problem = f"Expected at most {cap:,} distinct values (max_categories), got {len(vocabulary):,}"
            raise DataError(f"{problem}; is the column an id?", column=name)

    def _place_of(self, name: str, values: pa.Array) -> Index:
        """Where values stand among a column's categories; batches of one row group bring the same dictionary."""
        vocabulary = self.categories[name]
        looked_up = self._looked_up.get(name)
        if looked_up is None or looked_up[0] is not vocabulary or not looked_up[1].equals(values):
            looked_up = (vocabulary, values, vocabulary.index(values).astype(np.intp))
            self._looked_up[name] = looked_up
        return looked_up[2]

    def _ordered(self, block: str, columns: tuple[str, ...]) -> Any:
        """The statistic of a block with its features in another schema's order."""
        statistic, mine = getattr(self, block), getattr(self.schema, block)
        if mine == columns:
            return statistic
        order = [mine.index(name) for name in columns]
        if self.schema.exact:
            return statistic.in_order(order)
        kind: Any = self.kinds.dense(block)
        return kind.from_arrays({key: array[:, order] for key, array in statistic.arrays().items()})

    def _merge_dense(self, parts: Mapping[str, Any], classes: Vocabulary, old: Index, new: Index) -> None:
        """Grow to the union of classes and add the parts: all of them or, on an overflow, none."""
        n = len(classes)
        grows = n != len(self.classes)
        before: dict[str, Any] = {block: copy.copy(getattr(self, block)) for block in DENSE}
        before["text"] = {name: copy.copy(table) for name, table in self.text.items()}
        block = name = ""
        try:
            for block in DENSE:
                statistic = getattr(self, block)
                if grows:
                    statistic.grow(old, n)
                if block in parts and getattr(self.schema, block):
                    statistic.merge(parts[block], new)
            block = "text"
            for name, table in self.text.items():
                if grows:
                    table.grow(old, n)
                if name in parts.get(block, ()):
                    table.merge(parts[block][name], new)
        except DataError as error:
            for kind, statistic in before.items():
                setattr(self, kind, statistic)
            if block == "text":
                raise error.at(column=name) from None
            raise self._named(error, None, block) from None
        self.classes = classes
        if grows:
            self.rows = _scattered(self.rows, old, n)
            if self.sum_of_weights is not None:
                self.sum_of_weights = grown(self.sum_of_weights, old, n)
            for counts in self.categorical.values():
                counts.grow(old, n)

    def _grow_categories(self, name: str, vocabulary: Vocabulary, index: Index) -> None:
        if vocabulary is not self.categories[name]:
            self.categorical[name].grow_categories(index, len(vocabulary))
            self.categories[name] = vocabulary


def _scattered(array: NDArray[Any], index: Index, length: int) -> NDArray[Any]:
    grown = np.zeros(length, array.dtype)
    grown[index] = array
    return grown


def _checked_vocabulary(values: Any) -> Vocabulary:
    vocabulary = Vocabulary(values)
    if vocabulary != Vocabulary.of(values) and len(values):
        raise ValueError("classes and categories must be distinct and sorted")
    return vocabulary
