"""What is followed, settled before the first message is counted: schema, types and window, the same for everyone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamnb.errors import SchemaError, SourceError, near_misses
from streamnb.position import Window
from streamnb.schema import Schema
from streamnb.sources.messages import ArrowMessages, Decoder, JsonMessages, MessageFormat, types_in_json
from streamnb.statefolder import StateFolder
from streamnb.vocabulary import plain_type

__all__ = ["PEEKED", "TYPES", "Plan", "settle"]

TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "list": pa.list_(pa.string()),
}
"""The types that a JSON value may be given, by name."""

PEEKED = 1000
"""Messages from which types are taken."""


@dataclass(frozen=True)
class Plan:
    """A topic, what is counted of it, and how its messages are read."""

    topic: str
    format: MessageFormat
    schema: Schema
    types: Mapping[str, str]
    window: Window | None

    def decoder(self) -> Decoder:
        """Return what turns messages into rows."""
        if self.format == "arrow":
            return ArrowMessages(self.schema.columns)
        return JsonMessages(pa.schema([(name, TYPES[self.types[name]]) for name in self.schema.columns]))

    def to_json(self) -> str:
        """Return it as the text of the folder's description."""
        window = None if self.window is None else [self.window.size, self.window.slide]
        about = {
            "streamnb": 1,
            "topic": self.topic,
            "format": self.format,
            "schema": json.loads(self.schema.to_json()),
            "types": dict(self.types),
            "window": window,
        }
        return json.dumps(about, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Plan:
        """Return the plan of a folder.

        Raises:
            SourceError: it is none.
        """
        try:
            about = json.loads(text)
            window = None if about["window"] is None else Window(*about["window"])
            found = cls(about["topic"], about["format"], Schema.from_json(about["schema"]), about["types"], window)
            if about["streamnb"] != 1 or found.format not in ("json", "arrow"):
                raise ValueError(f"format {about['streamnb']}")
            found.decoder()
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(f"Expected what a follower wrote, got something else: {error} - {where}") from None
        return found


def settle(
    folder: StateFolder,
    topic: str,
    message_format: MessageFormat,
    schema: Schema | None,
    label: str | None,
    options: Mapping[str, Any],
    types: Mapping[str, str],
    window: Window | None,
    peeked: Any,
) -> Plan:
    """Return what the folder says is followed, or settle it: from what is given, and from the first messages.

    `peeked` returns the values of the first messages, and is asked only where the folder says nothing yet.

    Raises:
        SchemaError: the columns do not fit the messages.
        SourceError: the folder follows something else, or the topic holds no message to take types from.
    """
    where = f"{folder.path}/follow.json"
    for name, given in types.items():
        if given not in TYPES:
            raise SchemaError(f"Expected a type among {', '.join(TYPES)}, got {given!r} for {name!r}")
    written = folder.description()
    if written is None:
        values: Sequence[bytes] = peeked()
        found = _types(message_format, values, topic)
        if schema is None:
            schema = Schema.infer(pa.schema(list(found.items())), str(label), **options)
        settled = {}
        if message_format == "json":
            settled = {name: types.get(name) or _name(name, schema, found) for name in schema.columns}
        elif schema.label in found:
            settled = {schema.label: str(plain_type(found[schema.label]))}
        written = folder.describe(Plan(topic, message_format, schema, settled, window).to_json())
    plan = Plan.from_json(written, where)
    mine: dict[str, Any] = {"topic": topic, "format": message_format, "window": window}
    mine |= {} if schema is None else {"schema": schema}
    for what, given in mine.items():
        if getattr(plan, what) != given:
            raise SourceError(f"Expected the {what} of {where}, {getattr(plan, what)!r}, got {given!r}")
    if label is not None and plan.schema.label != label:
        raise SourceError(f"Expected the label of {where}, {plan.schema.label!r}, got {label!r}")
    for name, given in types.items():
        if plan.format == "json" and plan.types.get(name) != given:
            hint = near_misses(name, plan.types)
            raise SourceError(
                f"Expected the type of {name!r} in {where}, {plan.types.get(name)!r}, got {given!r}{hint}"
            )
    return plan


def _types(message_format: MessageFormat, values: Sequence[bytes], topic: str) -> dict[str, pa.DataType]:
    if message_format == "json":
        found = types_in_json(values)
    else:
        found = {}
        for value in values:
            try:
                with pa.ipc.open_stream(value) as stream:
                    found = {column.name: column.type for column in stream.schema}
                break
            except (pa.ArrowException, OSError, ValueError):
                continue
    if not found:
        what = "JSON object" if message_format == "json" else "Arrow IPC stream"
        raise SourceError(
            f"Expected a message that is one {what}, got none among the first {len(values)} of topic {topic!r}"
        )
    return found


def _name(column: str, schema: Schema, found: Mapping[str, pa.DataType]) -> str:
    """The type of a column: what its kind needs, or what most of the first messages have."""
    if column in (*schema.numeric, *schema.counts, schema.weight):
        return "double"
    dtype = found.get(column)
    for name, known in TYPES.items():
        if dtype == known:
            return "double" if column in schema.binary and name == "int64" else name
    return "string"
