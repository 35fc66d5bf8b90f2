"""Messages become Arrow in batches: one JSON object a message, or one Arrow IPC stream (many rows) a message.

A batch decodes as a whole or not at all, so that nothing is counted of a message that is not what it should be; `sift`
then says which messages are to blame.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from streamnb.errors import SourceError

__all__ = ["ArrowMessages", "Decoder", "Fault", "JsonMessages", "MessageFormat", "types_in_json"]

MessageFormat = Literal["json", "arrow"]
Fault = tuple[int, str, str]
"""A message that is to blame: its place in the batch, the kind of fault, and the reason."""


class Decoder(Protocol):
    """From the values of messages to rows."""

    def decode(self, values: Sequence[bytes]) -> list[pa.Table]:
        """Return the rows of all messages, in order; SourceError if any message is not what it should be."""

    def sift(self, values: Sequence[bytes]) -> list[Fault]:
        """Return the messages that are malformed; others may have values of a wrong type all the same."""


class JsonMessages:
    """One JSON object a message, with values of the types given; keys that are not asked for are passed over.

    A number is no string and a string no number; NaN and Infinity are not JSON. An absent key is null.

    >>> rows = JsonMessages(pa.schema({"y": pa.string(), "n": pa.float64()}))
    >>> rows.decode([b'{"y":"a","n":2,"z":[]}', b'{"n":3}'])[0].to_pylist()
    [{'y': 'a', 'n': 2.0}, {'y': None, 'n': 3.0}]
    >>> rows.sift([b'{"y":"a","n":', b"{}"])
    [(0, 'malformed', 'Expecting value: line 1 column 14 (char 13)')]
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._parse = pa.json.ParseOptions(schema, newlines_in_values=True, unexpected_field_behavior="ignore")
        self._floats = [i for i, column in enumerate(schema) if pa.types.is_floating(column.type)]

    def decode(self, values: Sequence[bytes]) -> list[pa.Table]:
        """Return the rows, one for each message, in one table.

        Raises:
            SourceError: some message is malformed, or has a value of another type.
        """
        # A message that begins with { and ends with } and stands in text that is JSON from end to end, is closed at
        # its end; so as many objects as messages means one in each.
        if not _all_in_braces(values):
            values = [value.strip(b" \t\r\n") for value in values]  # white space is allowed, and rare
            if not _all_in_braces(values):
                raise SourceError("Expected a JSON object in each message, got something else")
        body = b"\n".join(values)
        if b"NaN" in body or b"Infinity" in body:
            self._refuse_tokens(values)
        try:
            body.decode()  # Arrow looks only into the strings that are asked for
            read = pa.json.ReadOptions(use_threads=False, block_size=max(1 << 16, len(body) + 1))
            table = pa.json.read_json(pa.BufferReader(body), read_options=read, parse_options=self._parse)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise SourceError(f"Expected JSON of the schema's types, got: {error}") from None
        if table.num_rows != len(values):
            raise SourceError(f"Expected {len(values)} JSON objects, got {table.num_rows}")
        for i in self._floats:
            if not pc.all(pc.is_finite(table.column(i)), min_count=0).as_py():
                raise SourceError(f"Expected finite numbers, got others - column {table.schema.names[i]!r}")
        return [table]

    def sift(self, values: Sequence[bytes]) -> list[Fault]:
        """Return the messages that are no JSON object."""
        faults: list[Fault] = []
        for i, value in enumerate(values):
            try:
                found = json.loads(value.decode(), parse_constant=_refuse_constant)
                if not isinstance(found, dict):
                    faults.append((i, "malformed", f"Expected a JSON object, got {type(found).__name__}"))
            except (ValueError, RecursionError) as error:
                # A bare NaN is a value that cannot be, in an object that is one.
                kind = "bad value" if isinstance(error, _ConstantError) else "malformed"
                faults.append((i, kind, str(error)))
        return faults

    @staticmethod
    def _refuse_tokens(values: Sequence[bytes]) -> None:
        for value in values:
            if b"NaN" in value or b"Infinity" in value:
                try:
                    json.loads(value.decode(), parse_constant=_refuse_constant)
                except (ValueError, RecursionError) as error:
                    raise SourceError(f"Expected JSON, got: {error}") from None


class ArrowMessages:
    """One Arrow IPC stream a message, of any number of rows; only the columns given are looked at.

    >>> table = pa.table({"y": ["a", "b"], "n": [1.0, 2.0]})
    >>> sink = pa.BufferOutputStream()
    >>> with pa.ipc.new_stream(sink, table.schema) as writer:
    ...     writer.write_table(table)
    >>> [rows.num_rows for rows in ArrowMessages(["y", "n"]).decode([sink.getvalue().to_pybytes()] * 3)]
    [6]
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)

    def decode(self, values: Sequence[bytes]) -> list[pa.Table]:
        """Return the rows of all messages; those of like schema, one after the other, in one table.

        Raises:
            SourceError: some message is no Arrow IPC stream, is damaged, or lacks a column.
        """
        runs: list[list[pa.Table]] = []
        for value in values:
            table = self._read(value)
            if runs and runs[-1][0].schema.equals(table.schema):
                runs[-1].append(table)
            else:
                runs.append([table])
        return [pa.concat_tables(run).combine_chunks() for run in runs]

    def sift(self, values: Sequence[bytes]) -> list[Fault]:
        """Return the messages that are no Arrow IPC stream with these columns."""
        faults: list[Fault] = []
        for i, value in enumerate(values):
            try:
                self._read(value)
            except SourceError as error:
                faults.append((i, "malformed", str(error)))
        return faults

    def _read(self, value: bytes) -> pa.Table:
        try:
            with pa.ipc.open_stream(value) as stream:
                table = stream.read_all()
            table = table.select([name for name in self.columns if name in table.schema.names])
            # Bytes from elsewhere: an offset that points outside a buffer would be read outside of it.
            table.validate(full=True)
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            reason = str(error).strip().split("\n")[0]
            raise SourceError(f"Expected an Arrow IPC stream, got: {reason}") from None
        return table.replace_schema_metadata(None)


def types_in_json(values: Iterable[bytes]) -> dict[str, pa.DataType]:
    """Return the type that most values of each key have, over messages that are JSON objects; null says nothing.

    >>> types_in_json([b'{"y":"a","n":2}', b'{"y":"b","n":2.5,"f":true}', b"broken"])
    {'y': DataType(string), 'n': DataType(double), 'f': DataType(bool)}
    """
    seen: dict[str, Counter[pa.DataType]] = {}
    for value in values:
        try:
            found = json.loads(value, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            for key, each in found.items():
                dtype = _type_of(each)
                if dtype is not None:
                    seen.setdefault(key, Counter())[dtype] += 1
    types = {}
    for key, counts in seen.items():
        if counts[pa.float64()] and counts[pa.int64()]:
            counts[pa.float64()] += counts.pop(pa.int64())  # 2 among 2.5 is a number as well
        types[key] = counts.most_common(1)[0][0]
    return types


def _all_in_braces(values: Sequence[bytes]) -> bool:
    return all(value[:1] == b"{" and value[-1:] == b"}" for value in values)


def _type_of(value: Any) -> pa.DataType | None:
    # bool before int: True is an int to Python.
    for kind, dtype in ((str, pa.string()), (bool, pa.bool_()), (int, pa.int64()), (float, pa.float64())):
        if isinstance(value, kind):
            return dtype
    if isinstance(value, list) and value and all(isinstance(each, str) for each in value):
        return pa.list_(pa.string())
    if isinstance(value, Mapping):
        return pa.struct([])
    return None


class _ConstantError(ValueError):
    """A bare NaN or Infinity, which Python's reader would take."""


def _refuse_constant(token: str) -> NoReturn:
    raise _ConstantError(f"{token} is not JSON")
