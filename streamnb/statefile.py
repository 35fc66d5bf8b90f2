"""The file that holds a state or a model: an Arrow IPC file of a single row, checked whole before it is used.

    magic | schema: one large_list<T> column per array, with metadata    | one record batch, one row | footer
          |   streamnb.format    the number FORMAT                       |
          |   streamnb.kind      "state" or "predictor"                  |
          |   streamnb.header    JSON: what the owner wants to find      |
          |   streamnb.shapes    JSON: {name: [dtype, *shape]} for NumPy |
          |   streamnb.checksum  BLAKE2b of these and the arrays         |

Any Arrow reader opens it (`pa.ipc.open_file(path).read_all()`). Nothing in it is ever executed. What header
and arrays mean is the business of their owner; this room knows bytes. The same content gives the same bytes:
names are sorted, JSON is canonical, buffers hold their values and nothing around them, and neither a clock
nor a version of anything is written.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamnb.arraybytes import Content, content_of, from_content, from_numpy, is_scalar, to_numpy
from streamnb.atomic import write_bytes_atomically
from streamnb.errors import DataError, FileFormatError, SourceError

__all__ = [
    "FORMAT",
    "Contents",
    "Kind",
    "check_finite",
    "check_non_negative",
    "contradiction",
    "dumps",
    "fingerprint",
    "loads",
    "read",
    "write",
]

# The layout drawn above. A change of it, or of what _checksum covers, raises the number by one and is noted
# here; loads then keeps reading the older numbers, and a file of each stays in tests/data.
#   1  the first release
FORMAT = 1

Kind: TypeAlias = Literal["state", "predictor"]

_MAGIC = b"ARROW1\0\0"
_KINDS = ("state", "predictor")
_FIELDS = ("format", "kind", "header", "shapes", "checksum")
_INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
_DTYPES = {name: pa.from_numpy_dtype(name) for name in ["bool", *_INTEGERS, "float32", "float64"]}
# What Arrow, JSON and NumPy raise on bytes that are not what they should be.
_DAMAGE = (pa.ArrowException, ValueError, TypeError, OverflowError, OSError, RecursionError, struct.error)
_STRANGERS = {
    b"\x80": "a pickle, which is never read",
    b"PK": "a zip or NumPy archive, which is never read",
    b"\x93NUMPY": "a NumPy array file",
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "a gzip file",
}
_WRONG_KIND = {
    "state": "holds a state, not a model: load it with State.load and finish it",
    "predictor": "holds a model, not a state: load it with Predictor.load (it has no counts to add to)",
}
_LONGEST_REASON = 300
# An array without cells may still have a long axis (0 classes x 2**20 hashed tokens); beyond this it is
# absurd, and a sum over the other axis would fill the memory.
_LONGEST_EMPTY_AXIS = 2**28


@dataclass(frozen=True, eq=False, slots=True)
class Contents:
    """What a file held, once it is checked.

    `arrays` are NumPy arrays (writable) or Arrow arrays (no nulls), by name, all in their own memory; `where`
    names the file for later messages.
    """

    kind: str
    header: dict[str, Any]
    arrays: dict[str, Any]
    where: str = "bytes"


def dumps(kind: Kind, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any] | pa.Array]) -> bytes:
    """Return the bytes of a file; equal content gives equal bytes.

    The header is plain JSON. NumPy arrays are bool, integer or float of any shape; Arrow arrays are of any
    scalar type, without nulls. Raises TypeError for other types, DataError for nulls, and for NaN or infinity
    in the NumPy arrays of a state.

    >>> data = dumps("state", {"rows": 2}, {"mean": np.array([[1.0, 2.0]]), "classes": pa.array(["a"])})
    >>> loads(data).arrays["mean"]
    array([[1., 2.]])
    """
    return bytes(_serialise(kind, header, arrays))


def loads(data: bytes | pa.Buffer, *, where: str = "bytes") -> Contents:
    """Check the bytes of a file and return what they hold; FileFormatError, naming `where`, if refused.

    >>> loads(b"not a file", where="a.snb")
    Traceback (most recent call last):
        ...
    streamnb.errors.FileFormatError: a.snb is not a streamnb file: it does not begin as an Arrow file does
    """
    buffer = pa.py_buffer(data)
    try:
        return _parse(buffer, where)
    except FileFormatError:
        raise
    except _DAMAGE as error:
        _refuse_damaged(where, error)


def write(
    path: str | os.PathLike[str],
    kind: Kind,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any] | pa.Array],
) -> None:
    """Write a file whole or not at all: whoever reads it, at any moment, finds the old content or the new."""
    write_bytes_atomically(path, _serialise(kind, header, arrays))


def read(path: str | os.PathLike[str], *, kind: Kind | None = None) -> Contents:
    """Read and check a file; SourceError if it cannot be read, FileFormatError if it is refused.

    With `kind`, a file of the other kind is refused with a word on what to do. A large file that is not ours
    is refused before it is read whole.
    """
    path = Path(path)
    where = str(path)
    try:
        if path.exists() and not path.is_file():
            raise SourceError(f"Expected a file, got {'a folder' if path.is_dir() else 'a device'} - {where}")
        with path.open("rb") as stream:
            start = stream.read(16)
            length = min(int.from_bytes(start[12:], "little"), path.stat().st_size)
            try:
                _read_schema(_messages(pa.py_buffer(start + stream.read(length)), where), where)
            except FileFormatError:
                raise
            except _DAMAGE as error:
                _refuse_damaged(where, error)
            stream.seek(0)
            data = stream.read()
    except FileNotFoundError:
        raise SourceError(f"There is no file {where}") from None
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(f"Cannot read {where}: {error.strerror or error}") from None
    contents = loads(data, where=where)
    if kind is not None and contents.kind != kind:
        raise FileFormatError(f"{where} {_WRONG_KIND[contents.kind]}")
    return contents


def check_finite(contents: Contents, names: Iterable[str]) -> None:
    """Refuse a file in which one of the named arrays holds NaN or infinity."""
    for name in names:
        if not np.isfinite(contents.arrays[name]).all():
            problem = f"array {name!r} holds a value that is not finite"
            raise FileFormatError(f"{contents.where} is damaged: {problem}")


def check_non_negative(contents: Contents, names: Iterable[str]) -> None:
    """Refuse a file in which one of the named arrays holds a value below zero, or NaN."""
    for name in names:
        if not (contents.arrays[name] >= 0).all():
            raise FileFormatError(f"{contents.where} is damaged: array {name!r} holds a value below zero")


def contradiction(what: str, error: Exception, where: str) -> FileFormatError:
    """Return the error that refuses a file whose content contradicts itself; what it quotes of the file is cut."""
    reason = " ".join(str(error).split()) or type(error).__name__
    reason = reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]} ..."
    return FileFormatError(f"Expected a {what} file, got one that contradicts itself: {reason} - {where}")


# --- writing ---


def fingerprint(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any] | pa.Array]) -> str:
    """Return the checksum that a state file of this content has: of values, not of how Arrow would lay them out.

    Raises what `dumps` raises.

    >>> fingerprint({}, {"rows": np.array([1, 2])}) == fingerprint({}, {"rows": np.array([2, 1])})
    False
    """
    return _prepared("state", header, arrays)[0]["checksum"]


def _serialise(kind: str, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> pa.Buffer:
    texts, columns, contents = _prepared(kind, header, arrays)
    lists = [
        # Rebuilt from its content, for what lies around a slice must not reach the file.
        pa.LargeListArray.from_arrays(
            from_numpy(np.array([0, len(array)])), from_content(array.type, len(array), contents[name])
        )
        for name, array in columns.items()
    ]
    schema = _schema({name: array.type for name, array in columns.items()}, texts)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression=None)) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(lists, schema=schema))
    return sink.getvalue()


def _prepared(
    kind: str, header: Mapping[str, Any], arrays: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, pa.Array], dict[str, Content]]:
    """Return the texts of a file, its columns, and their bytes, once all is checked."""
    if kind not in _KINDS:
        raise ValueError(f"Expected a kind among {', '.join(_KINDS)}, got {kind!r}")
    shapes: dict[str, list[Any]] = {}
    columns: dict[str, pa.Array] = {}
    for name in sorted(arrays):
        array = arrays[name]
        if isinstance(array, np.ndarray):
            if array.dtype.name not in _DTYPES:
                raise TypeError(f"Expected bool, integer or float values, got {array.dtype} - array {name!r}")
            if kind == "state" and array.dtype.kind == "f" and not np.isfinite(array).all():
                raise DataError(f"Expected finite values in a state, got NaN or infinity - array {name!r}")
            shapes[name] = [array.dtype.name, *array.shape]
            array = from_numpy(array)
        elif not isinstance(array, pa.Array) or not is_scalar(array.type):
            got = f"Arrow type {array.type}" if isinstance(array, pa.Array) else type(array).__name__
            raise TypeError(f"Expected a NumPy or a scalar Arrow array, got {got} - array {name!r}")
        elif array.null_count:
            raise DataError(f"Expected no nulls, got {array.null_count} - array {name!r}")
        else:
            array.validate(full=True)
        columns[name] = array
    problem = _shape_problem(shapes, {name: len(array) for name, array in columns.items()})
    if problem:
        raise ValueError(problem)

    contents = {name: content_of(array) for name, array in columns.items()}
    # The header twice, because JSON turns keys into strings, and 9 < 10 sorts otherwise as "10" < "9".
    text = _canonical(json.loads(_canonical(dict(header))))
    texts = {"format": str(FORMAT), "kind": kind, "header": text, "shapes": _canonical(shapes)}
    texts["checksum"] = _checksum(texts, ((name, columns[name].type, contents[name]) for name in columns))
    return texts, columns, contents


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _schema(types: Mapping[str, pa.DataType], texts: Mapping[str, str]) -> pa.Schema:
    fields = [pa.field(name, pa.large_list(kind)) for name, kind in types.items()]
    return pa.schema(fields, metadata={f"streamnb.{field}": texts[field] for field in _FIELDS})


def _checksum(texts: Mapping[str, str], columns: Iterable[tuple[str, pa.DataType, Content]]) -> str:
    """Return the BLAKE2b of all that matters; the length goes before each part, so none lends to the next."""
    digest = hashlib.blake2b(digest_size=32)

    def add(part: bytes | memoryview) -> None:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)

    for field in ("format", "kind", "header", "shapes"):
        add(texts[field].encode())
    for name, kind, content in columns:
        add(name.encode())
        add(str(kind).encode())
        for part in content:
            add(part.data)
    return digest.hexdigest()


# --- reading ---


def _refuse_damaged(where: str, error: Exception) -> NoReturn:
    reason = str(error).strip().split("\n")[0].rstrip(".")[:_LONGEST_REASON]
    raise FileFormatError(f"{where} is damaged: {reason or type(error).__name__}") from None


def _messages(buffer: pa.Buffer, where: str) -> pa.ipc.MessageReader:
    """Open the messages between magic and footer, in order."""
    start = bytes(buffer[: len(_MAGIC)])
    if start != _MAGIC:
        known = [name for magic, name in _STRANGERS.items() if start.startswith(magic)]
        reason = f"it is {known[0]}" if known else "it does not begin as an Arrow file does"
        raise FileFormatError(f"{where} is not a streamnb file: {reason if start else 'it is empty'}")
    return pa.ipc.MessageReader.open_stream(pa.BufferReader(buffer.slice(len(_MAGIC))))


def _read_schema(messages: pa.ipc.MessageReader, where: str) -> pa.Schema:
    """Read the first message and refuse what is not ours, or of a format that this release does not know."""
    schema = pa.ipc.read_schema(_next(messages, "schema", where))
    found = (schema.metadata or {}).get(b"streamnb.format")
    if found is None:
        raise FileFormatError(f"{where} is an Arrow file, but neither a state nor a model of streamnb")
    if found != str(FORMAT).encode():
        number = found[:20].decode("ascii", "replace")
        hint = ": upgrade streamnb to read it" if number.isdigit() and int(number) > FORMAT else ""
        raise FileFormatError(f"{where} is of format {number}, and this release reads format {FORMAT}{hint}")
    return schema


def _next(messages: pa.ipc.MessageReader, kind: str, where: str) -> pa.ipc.Message:
    try:
        message = messages.read_next_message()
    except StopIteration:
        raise FileFormatError(f"{where} is damaged: its {kind} is missing") from None
    if message.type != kind:
        raise FileFormatError(f"{where} is damaged: expected a {kind}, got a {message.type}")
    return message


def _parse(buffer: pa.Buffer, where: str) -> Contents:
    def refuse(problem: str) -> NoReturn:
        raise FileFormatError(f"{where} is damaged: {problem}")

    messages = _messages(buffer, where)
    schema = _read_schema(messages, where)
    if bytes(buffer[-6:]) != _MAGIC[:6]:
        refuse("it is cut short")
    # The footer is for other readers; we go by the messages alone, so that what is checked is what is read.
    footer = pa.ipc.open_file(buffer)
    if footer.num_record_batches != 1 or not footer.schema.equals(schema, check_metadata=True):
        refuse("its footer does not match its beginning")

    metadata = {key.decode(): value.decode("ascii") for key, value in schema.metadata.items()}
    texts = {field: metadata.get(f"streamnb.{field}", "") for field in _FIELDS}
    if texts["kind"] not in _KINDS:
        refuse(f"it holds {texts['kind']!r}, which is neither a state nor a predictor")
    types: dict[str, pa.DataType] = {}
    for field in schema:
        if not pa.types.is_large_list(field.type) or not is_scalar(field.type.value_type):
            refuse(f"array {field.name!r} is of the unexpected type {field.type}")
        types[field.name] = field.type.value_type
    if list(types) != sorted(types) or not schema.equals(_schema(types, texts), check_metadata=True):
        refuse("its columns are not as streamnb writes them")

    message = _next(messages, "record batch", where)
    if _is_compressed(message.metadata):
        refuse("it is compressed, which streamnb never does")
    batch = pa.ipc.read_record_batch(message, schema)
    batch.validate(full=True)
    if types and batch.num_rows != 1:
        refuse(f"expected one row, got {batch.num_rows}")
    values: dict[str, pa.Array] = {}
    for name in types:
        column = batch.column(name)
        if column.null_count or column[0].values.null_count:  # a column of nulls could claim any length
            refuse(f"array {name!r} holds nulls")
        values[name] = column[0].values

    contents = {name: content_of(array) for name, array in values.items()}
    checksum = _checksum(texts, ((name, types[name], contents[name]) for name in types))
    if checksum != texts["checksum"]:
        refuse(f"the checksum of its content is {checksum[:12]}, and {texts['checksum'][:12]} was written")

    header, shapes = json.loads(texts["header"]), json.loads(texts["shapes"])
    canonical = _canonical(header) == texts["header"] and _canonical(shapes) == texts["shapes"]
    if not canonical or not isinstance(header, dict):
        refuse("its header is not as streamnb writes it")
    problem = _shape_problem(shapes, {name: len(array) for name, array in values.items()}, types)
    if problem:
        refuse(problem)
    arrays: dict[str, Any] = {}
    for name, array in values.items():
        if name in shapes:
            dtype, *shape = shapes[name]
            arrays[name] = to_numpy(contents[name], dtype, len(array)).reshape(shape)
        else:
            arrays[name] = from_content(types[name], len(array), [part.copy() for part in contents[name]])
    result = Contents(texts["kind"], header, arrays, where)
    if result.kind == "state":
        check_finite(result, (name for name in shapes if arrays[name].dtype.kind == "f"))
    return result


def _shape_problem(
    shapes: Any, lengths: Mapping[str, int], types: Mapping[str, pa.DataType] | None = None
) -> str | None:
    """Return what is wrong with the shapes, given how many cells each array has, or None."""
    if not isinstance(shapes, dict) or not shapes.keys() <= lengths.keys():
        return "its shapes are not those of its arrays"
    for name, entry in shapes.items():
        dtype: Any
        shape: list[Any]
        dtype, *shape = entry if isinstance(entry, list) and entry else [""]
        if dtype not in _DTYPES or (types is not None and types[name] != _DTYPES[dtype]):
            return f"array {name!r} is not of the type {dtype!r} that its shape names"
        if len(shape) > 8 or not all(type(size) is int and size >= 0 for size in shape):
            return f"array {name!r} has the impossible shape {shape}"
        cells = math.prod(shape)
        if cells != lengths[name]:
            return f"array {name!r} of shape {shape} holds {lengths[name]} values"
        if cells == 0 and max(shape) > _LONGEST_EMPTY_AXIS:
            return f"array {name!r} has the absurd shape {shape}"
    return None


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Tell whether a record batch message declares compressed buffers, before anything is decompressed.

    PyArrow has no call for it, so the flatbuffer, which it has verified, is walked: Message.header (field 2)
    is a RecordBatch, whose field 3 is `compression` (Arrow's format/Message.fbs).
    """
    view = memoryview(metadata)

    def field(table: int, number: int) -> int:
        vtable = table - struct.unpack_from("<i", view, table)[0]
        entry = 4 + 2 * number
        if entry >= struct.unpack_from("<H", view, vtable)[0]:
            return 0
        offset = struct.unpack_from("<H", view, vtable + entry)[0]
        return table + offset if offset else 0

    header = field(struct.unpack_from("<I", view, 0)[0], 2)
    return field(header + struct.unpack_from("<I", view, header)[0], 3) != 0
