"""What is counted: which column is the label, and which statistic each other column feeds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from streamnb.errors import SchemaError, near_misses
from streamnb.protocols import BATCH_ROWS
from streamnb.text import Text, content_kind
from streamnb.vocabulary import is_text, plain_type

__all__ = ["BLOCKS", "Schema"]

BLOCKS = ("numeric", "categorical", "binary", "counts", "text")

BATCH_CELLS = 1 << 23
"""Cells of a batch: doubles of 64 MiB."""

LEAST_BATCH_ROWS = 1024
"""The kinds of feature column, in the order in which a state keeps them."""


@dataclass(frozen=True)
class Schema:
    """What is counted: the label, the feature columns by kind, and the weight.

    - `numeric`: per class weight, mean and squared deviations, for Gaussian.
    - `categorical`: per class counts of each value (strings, integers, booleans), for Categorical.
    - `binary`: per class number of ones (bool or 0/1; `binarize` gives a threshold, one or one per column, above
      which any number is 1), for Bernoulli.
    - `counts`: per class sums of non-negative numbers, all columns one block, for Multinomial or Complement.
    - `text`: tokens of documents, or of lists, per class, for Multinomial, Complement or Bernoulli; a name, or `Text`
      with options. Afterwards `text` has the names, and `text_options` the options by name.
    - `weight`: the column of row weights, at least 0.
    - `infinite`: "error" refuses ±inf among the features, "missing" treats it as a missing cell.
    - `classes`: labels that exist even if no row has them; others may still appear at any time.
    - `max_categories`: more distinct values than this in one categorical column are an error; None is no cap.
    - `exact`: add up without rounding, so that a state depends on its rows alone and rows can be taken out again.

    Raises:
        SchemaError: no feature, or a name that stands twice.

    >>> schema = Schema(label="species", numeric=["petal_length", "petal_width"], categorical=["site"])
    >>> schema.columns
    ('species', 'petal_length', 'petal_width', 'site')
    >>> Schema.from_json(schema.to_json()) == schema
    True
    """

    label: str
    numeric: Sequence[str] = ()
    categorical: Sequence[str] = ()
    binary: Sequence[str] = ()
    counts: Sequence[str] = ()
    text: Sequence[Any] = ()
    weight: str | None = None
    binarize: float | Mapping[str, float] | None = None
    infinite: Literal["error", "missing"] = "error"
    classes: Sequence[bool | int | float | str] = ()
    exact: bool = False
    max_categories: int | None = None
    text_options: Mapping[str, Text] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for kind in (*BLOCKS, "classes"):
            object.__setattr__(self, kind, _listed(getattr(self, kind), kind))
        texts = [self._text(given) for given in self.text]
        object.__setattr__(self, "text", tuple(each.column for each in texts))
        object.__setattr__(self, "text_options", {each.column: each for each in texts})
        if not isinstance(self.label, str):
            raise SchemaError(f"Expected the name of a column for label=, got {self.label!r}")
        if self.weight is not None and not isinstance(self.weight, str):
            raise SchemaError(f"Expected the name of a column for weight=, got {self.weight!r}")
        if not isinstance(self.exact, bool):
            raise SchemaError(f"Expected exact=True or False, got {self.exact!r}")
        cap = self.max_categories
        if cap is not None and (not isinstance(cap, int) or isinstance(cap, bool) or cap < 1):
            raise SchemaError(f"Expected an integer of at least 1 for max_categories=, got {cap!r}")
        if self.infinite not in ("error", "missing"):
            raise SchemaError(f"Expected infinite='error' or 'missing', got {self.infinite!r}")
        for name in self.features:
            if not isinstance(name, str):
                raise SchemaError(f"Expected names of columns, got {name!r}")
        if not self.features:
            raise SchemaError("Expected at least one feature column, got none")
        self._check_names_are_distinct()
        self._check_binarize()
        if self.classes and len({type(value) for value in self.classes}) > 1:
            raise SchemaError(f"Expected classes= of one type, got {list(self.classes)!r}")

    def _text(self, given: Any) -> Text:
        if isinstance(given, Text):
            return given
        if isinstance(given, Mapping):
            known = [each.name for each in fields(Text)]
            for key in given:
                if key not in known:
                    raise SchemaError(f"Expected the options of a text column, got {key!r}{near_misses(key, known)}")
            if "column" not in given:
                raise SchemaError("Expected the name of a text column among its options, got none")
            return Text(**given)
        return self.text_options.get(given) or Text(given)

    def _check_names_are_distinct(self) -> None:
        role: dict[str, str] = {self.label: "label"}
        named = [(name, kind) for kind in BLOCKS for name in getattr(self, kind)]
        for name, kind in named + ([(self.weight, "weight")] if self.weight is not None else []):
            if name in role:
                raise SchemaError(f"Expected each column in one place, got {name!r} as {role[name]} and as {kind}")
            role[name] = kind

    def _check_binarize(self) -> None:
        given = self.binarize
        if isinstance(given, Mapping):
            for name in given:
                if name not in self.binary:
                    hint = near_misses(name, self.binary)
                    raise SchemaError(f"Expected binarize= for binary columns, got {name!r}{hint}")
            object.__setattr__(self, "binarize", {name: _finite(given[name], "binarize") for name in sorted(given)})
        elif given is not None:
            object.__setattr__(self, "binarize", _finite(given, "binarize"))

    @property
    def features(self) -> tuple[str, ...]:
        """The feature columns, kind by kind."""
        return (*self.numeric, *self.categorical, *self.binary, *self.counts, *self.text)

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column that training reads: label, features, weight."""
        return (self.label, *self.features, *(() if self.weight is None else (self.weight,)))

    @cached_property
    def batch_rows(self) -> int:
        """How many rows are counted at a time: the fewer, the wider the table, and a function of the schema alone.

        >>> Schema(label="y", numeric=["a", "b"]).batch_rows, Schema(label="y", numeric=map(str, range(500))).batch_rows
        (131072, 16384)
        """
        most = BATCH_ROWS if self.text else 2 * BATCH_ROWS
        rows = BATCH_CELLS // len(self.columns)
        return min(most, max(LEAST_BATCH_ROWS, 1 << max(rows.bit_length() - 1, 0)))

    def threshold(self, column: str) -> float | None:
        """Return the threshold above which a binary column counts as 1; None where it must be 0/1 already."""
        return self.binarize.get(column) if isinstance(self.binarize, Mapping) else self.binarize

    def check(self, arrow_schema: pa.Schema, columns: Sequence[str] | None = None) -> None:
        """Hold the data's columns against this schema.

        Raises:
            SchemaError: a column is absent, stands twice, or has a type that its kind cannot hold.

        >>> Schema(label="y", numeric=["age"]).check(pa.schema({"y": pa.string(), "age": pa.timestamp("s")}))
        Traceback (most recent call last):
        streamnb.errors.SchemaError: Expected a number for numeric column 'age', got timestamp[s]
        """
        kinds = {name: kind for kind in BLOCKS for name in getattr(self, kind)}
        for name in self.columns if columns is None else columns:
            found = arrow_schema.get_all_field_indices(name)
            if not found:
                hint = near_misses(name, arrow_schema.names)
                raise SchemaError(f"Expected a column {name!r}, got none of that name{hint}")
            if len(found) > 1:
                raise SchemaError(f"Expected one column {name!r}, got {len(found)} of that name")
            self._check_type(name, kinds.get(name, "weight"), plain_type(arrow_schema.field(found[0]).type))

    def _check_type(self, name: str, kind: str, dtype: pa.DataType) -> None:
        if pa.types.is_null(dtype):
            return
        if name == self.label:
            if pa.types.is_nested(dtype) or pa.types.is_interval(dtype):
                raise SchemaError(f"Expected a scalar type for label column {name!r}, got {dtype}")
            return
        if kind == "text":
            self._check_text(name, dtype)
            return
        number = is_number(dtype)
        fits = {
            "numeric": number,
            "categorical": is_category(dtype) or number,
            "binary": number or pa.types.is_boolean(dtype),
            "counts": number,
            "weight": number,
        }[kind]
        if not fits:
            wanted = {"categorical": "a string, an integer or a boolean", "binary": "a boolean or 0/1"}
            hint = "; a boolean belongs in binary=" if pa.types.is_boolean(dtype) else ""
            hint = f"; a {dtype} belongs in categorical=" if is_category(dtype) and not hint else hint
            raise SchemaError(f"Expected {wanted.get(kind, 'a number')} for {kind} column {name!r}, got {dtype}{hint}")

    def _check_text(self, name: str, dtype: pa.DataType) -> None:
        kind = content_kind(dtype)
        if kind is None:
            wanted = "a string, a list of strings or integers, or a map of counts"
            raise SchemaError(f"Expected {wanted} for text column {name!r}, got {dtype}")
        if kind == "counts" and self.text_options[name].ngrams != (1, 1):
            raise SchemaError(f"Expected documents or lists for ngrams= of text column {name!r}, got counts: {dtype}")

    @classmethod
    def infer(
        cls,
        arrow_schema: Any,
        label: str,
        *,
        weight: str | None = None,
        exclude: Iterable[str] = (),
        **options: Any,
    ) -> Schema:
        """Return a schema from the types: numbers numeric, strings and dictionaries categorical, booleans binary.

        `arrow_schema` is an Arrow schema, or data that has one: a table, a frame, a dataset.
        A kind given by name (`categorical=["zip_code"]`) takes its columns out of the guess; `exclude` leaves
        columns out; other options are those of `Schema`.

        Raises:
            SchemaError: the label is absent, or a column of another type is neither excluded nor placed.

        >>> Schema.infer(pa.schema({"y": pa.string(), "age": pa.float32(), "town": pa.string()}), label="y").numeric
        ('age',)
        """
        arrow_schema = _schema_of(arrow_schema)
        exclude = _listed(exclude, "exclude")
        for name in (label, *exclude, *(() if weight is None else (weight,))):
            if name not in arrow_schema.names:
                hint = near_misses(name, arrow_schema.names)
                raise SchemaError(f"Expected a column {name!r}, got none of that name{hint}")
        placed = {kind: list(_listed(options.pop(kind, ()), kind)) for kind in BLOCKS}
        taken = {label, weight, *exclude, *(_name(each) for names in placed.values() for each in names)}
        for column in arrow_schema:
            if column.name in taken:
                continue
            dtype = plain_type(column.type)
            if pa.types.is_boolean(dtype):
                placed["binary"].append(column.name)
            elif is_number(dtype) and not pa.types.is_dictionary(column.type):
                placed["numeric"].append(column.name)
            elif is_text(dtype) or pa.types.is_dictionary(column.type):
                placed["categorical"].append(column.name)
            else:
                raise SchemaError(
                    f"Expected a number, string or boolean, got {dtype} - column {column.name!r}; "
                    f"leave it out with exclude=[{column.name!r}]"
                )
        chosen: dict[str, Any] = {**placed, **options}
        return cls(label=label, weight=weight, **chosen)

    def to_json(self) -> str:
        """Return the schema as one line of JSON; what has its default is left out."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "text_options"}
        given["text"] = [self.text_options[name].plain() for name in self.text]
        given["exact"] = self.exact or None
        return json.dumps({k: v for k, v in given.items() if v not in ((), [], None)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | Mapping[str, Any]) -> Schema:
        """Return the schema that `to_json` wrote, or that a person wrote in the same form.

        Raises:
            SchemaError: not a JSON object, or an unknown key.
        """
        try:
            given = json.loads(text) if isinstance(text, str) else dict(text)
        except json.JSONDecodeError as error:
            raise SchemaError(f"Expected a schema as JSON, got text that is none: {error}") from None
        if not isinstance(given, dict) or "label" not in given:
            raise SchemaError("Expected a JSON object with a label, got none")
        known = [f.name for f in fields(cls) if f.name != "text_options"]
        for key in given:
            if key not in known:
                raise SchemaError(f"Expected the keys of a schema, got {key!r}{near_misses(key, known)}")
        return cls(**given)


def _name(given: Any) -> Any:
    """The column of a text column with options."""
    if isinstance(given, Text):
        return given.column
    return given.get("column") if isinstance(given, Mapping) else given


def _listed(given: Any, option: str) -> tuple[Any, ...]:
    """Return the names as a tuple; a bare string would be taken letter by letter."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SchemaError(f"Expected a list for {option}=, got {given!r}")
    return tuple(given)


def _finite(given: Any, option: str) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise SchemaError(f"Expected a number for {option}=, got {given!r}")
    return number


def is_number(dtype: pa.DataType) -> bool:
    """Whether the type holds plain numbers: integers, floats and decimals of any width."""
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def is_category(dtype: pa.DataType) -> bool:
    """Whether the type holds names rather than numbers."""
    return bool(is_text(dtype) or pa.types.is_binary(dtype) or pa.types.is_boolean(dtype))


def _schema_of(data: Any) -> pa.Schema:
    if isinstance(data, pa.Schema):
        return data
    if isinstance(getattr(data, "schema", None), pa.Schema):
        return data.schema
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).schema
        return pa.schema(data)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(
            f"Expected an Arrow schema or data that has one, got {type(data).__name__}: {error}"
        ) from None
