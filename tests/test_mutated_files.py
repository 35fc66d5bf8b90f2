"""State and model files as a stranger may send them: refused with one sentence, or exactly what was written.

Each mutation of `MUTATIONS` makes another file of a sound one, from a seed. What must hold for all of them: `load`
raises FileFormatError with one line that names the file, or gives the original to the byte (a flip in padding);
it allocates no more than a bound that is tied to the file's size; nothing else happens. Whoever computes the checksum
anew may have written what he likes, so there the content need only be sound: it saves and loads again.

STREAMNB_MUTATIONS=10000 makes as many files of each original; tests/fuzz_statefile.py goes on from here by coverage.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import tracemalloc
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamnb as snb
from streamnb import statefile
from streamnb.arraybytes import content_of
from streamnb.errors import FileFormatError

COUNT = int(os.environ.get("STREAMNB_MUTATIONS", "800"))
SPARE = 16 << 20
"""Bytes that a load may take beside what the file's size explains: a hashed table, the interpreter's own."""

PER_BYTE = 64
"""Bytes that a load may take for each byte of its file."""


def rows(seed: int) -> pa.Table:
    """Rows with every kind of column, some of them missing."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "y": draw.choice(["a", "b", "ç"], 60),
            "x": pa.array(draw.normal(size=60), mask=draw.random(60) < 0.1),
            "z": draw.normal(size=60),
            "c": draw.choice(["red", "green"], 60),
            "d": draw.integers(-3, 3, 60),
            "b": draw.random(60) < 0.5,
            "n": draw.poisson(2.0, 60),
            "m": draw.poisson(1.0, 60),
            "t": draw.choice(["one two", "two three three", ""], 60),
            "w": draw.integers(1, 4, 60) / 2,
        }
    )


KINDS: dict[str, Any] = {
    "numeric": ["x", "z"],
    "categorical": ["c", "d"],
    "binary": ["b"],
    "counts": ["n", "m"],
    "text": [snb.Text("t", document_frequency=True)],
}


@cache
def original(name: str) -> bytes:
    """A sound file: a state, one of many shards, an exact one, and models."""
    state = snb.State(snb.Schema(label="y", **KINDS, weight="w", exact=name == "exact state"))
    state.update(rows(0))
    if name == "state of shards":
        for i in range(3):
            part = snb.State(state.schema, shard=f"shard-{i}")
            part.update(rows(i))
            state.merge(part)
    if name == "model":
        return bytes(state.finish().to_bytes())
    if name == "complement model":
        return bytes(state.finish(counts=snb.Complement(), text=snb.Bernoulli()).to_bytes())
    return bytes(state.to_bytes())


ORIGINALS = ["state", "state of shards", "exact state", "model", "complement model"]


def load(name: str) -> type[snb.State] | type[snb.Predictor]:
    """The class whose files these are."""
    return snb.Predictor if "model" in name else snb.State


# --- what a stranger does to the bytes ---


def flip(data: bytearray, draw: random.Random) -> None:
    """One to four bits change."""
    for _ in range(draw.choice([1, 1, 1, 4])):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def cut(data: bytearray, draw: random.Random) -> None:
    """The end is gone."""
    del data[draw.randrange(len(data)) :]


def grow(data: bytearray, draw: random.Random) -> None:
    """Something follows the end."""
    data += draw.randbytes(draw.randrange(1, 200)) if draw.random() < 0.5 else data[-draw.randrange(1, len(data)) :]


def swap(data: bytearray, draw: random.Random) -> None:
    """Two sections of equal length change places."""
    size = draw.choice([1, 4, 8, 64, 256])
    one, two = sorted(draw.randrange(len(data) - size) for _ in range(2))
    if two - one >= size:
        data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]


def remove(data: bytearray, draw: random.Random) -> None:
    """A section is gone, and what follows moves up."""
    start = draw.randrange(len(data))
    del data[start : start + draw.choice([1, 8, 64, 512])]


def double(data: bytearray, draw: random.Random) -> None:
    """A section stands twice."""
    start = draw.randrange(len(data))
    data[start:start] = data[start : start + draw.choice([8, 64, 512])]


def absurd(data: bytearray, draw: random.Random) -> None:
    """A length, an offset or a count is out of this world."""
    size = draw.choice([4, 8])
    values = [0, -1, 1, 2**24, 2**31 - 1, -(2**31)] + ([2**40, 2**62, 2**63 - 1] if size == 8 else [])
    start = draw.randrange(len(data) - 8) // size * size
    data[start : start + size] = draw.choice(values).to_bytes(size, "little", signed=True)


def noise(data: bytearray, draw: random.Random) -> None:
    """A section is random."""
    start, size = draw.randrange(len(data)), draw.choice([1, 8, 64])
    data[start : start + size] = draw.randbytes(size)


def digits(data: bytearray, draw: random.Random) -> None:
    """A digit of the metadata is another one: shapes, counts, the format."""
    places = [i for i in range(min(len(data), 1 << 14)) if 0x30 <= data[i] <= 0x39]
    data[draw.choice(places)] = draw.choice(b"0123456789-e.")


MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [
    flip,
    flip,
    cut,
    grow,
    swap,
    remove,
    double,
    absurd,
    absurd,
    noise,
    digits,
]


def mutated(data: bytes, seed: int) -> bytes:
    """Return the file that a seed makes of a sound one."""
    draw = random.Random(seed)
    damaged = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        if len(damaged) > 600:
            draw.choice(MUTATIONS)(damaged, draw)
    return bytes(damaged)


def refusal(name: str, data: bytes) -> str | None:
    """Load bytes; return the line that refuses them, or None if they gave the original to the byte."""
    bound = SPARE + PER_BYTE * len(data)
    before = pa.total_allocated_bytes()
    tracemalloc.reset_peak()
    try:
        loaded = load(name).from_bytes(data)
    except FileFormatError as error:
        line = str(error)
        assert "\n" not in line
        assert len(line) < 1000
        assert line.startswith("bytes ")
    else:
        line = None
        assert loaded.to_bytes() == original(name)
    assert tracemalloc.get_traced_memory()[1] < bound
    assert pa.total_allocated_bytes() - before < bound
    return line


@pytest.fixture
def _traced() -> Any:
    for name in ORIGINALS:  # what is imported or compiled for the first load is none of a file's doing
        load(name).from_bytes(original(name)).to_bytes()
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("_traced")
@pytest.mark.parametrize("name", ORIGINALS)
def test_mutated_files_are_refused_or_the_original(name: str) -> None:
    """Thousands of files; nearly all are refused, and each kind of mutation is met."""
    data = original(name)
    refused = 0
    for seed in range(COUNT // 3):
        try:
            refused += refusal(name, mutated(data, seed)) is not None
        except BaseException as error:
            raise AssertionError(f"{name}, seed {seed}: {type(error).__name__}: {error}") from error
    assert refused > 0.8 * (COUNT // 3)


# --- whoever computes the checksum anew ---


def resealed(name: str, edit: Callable[[dict[str, Any], dict[str, Any]], Any]) -> bytes:
    """Return the file with its header and arrays edited, and a checksum that fits."""
    contents = statefile.loads(original(name))
    header, arrays = contents.header, dict(contents.arrays)
    edit(header, arrays)
    return bytes(statefile.dumps(contents.kind, header, arrays))  # type: ignore[arg-type]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a value of JSON."""
    found = [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        found += places(each, (*path, key))
    return found


STRANGE = [
    None,
    True,
    0,
    1,
    -1,
    2**31,
    2**63,
    10**30,
    1.5,
    -1e308,
    "",
    "x",
    "\x00",
    "é" * 1000,
    [],
    [[]],
    {},
    {"a": 1},
    ["x", "x"],
    [1] * 1000,
    {"label": "y"},
    [2**60, 2**60],
]


def edit_header(header: dict[str, Any], draw: random.Random) -> None:
    """Put something strange in one place of the header, or take the place away."""
    *way, last = draw.choice(places(header)[1:])
    there: Any = header
    for key in way:
        there = there[key]
    if draw.random() < 0.2:
        del there[last]
    else:
        there[last] = draw.choice(STRANGE)


def edit_arrays(arrays: dict[str, Any], draw: random.Random) -> None:
    """Give an array another shape, type, value or name, or take it away."""
    name = draw.choice(sorted(arrays))
    array = arrays.pop(name)
    way = draw.randrange(8)
    if way == 0:
        return
    if way == 1:
        arrays[f"{name}x"] = array
    elif way == 2:
        arrays[name] = pa.array(["x"] * len(array)) if isinstance(array, np.ndarray) else np.arange(len(array))
    elif isinstance(array, pa.Array):
        shuffled = draw.sample(range(len(array)), len(array))
        arrays[name] = array.take(pa.array(shuffled, pa.int64())) if way < 6 else array.slice(0, len(array) // 2)
    elif way == 3:
        arrays[name] = np.zeros((0, *[draw.choice([0, 2**27, 2**40])] * draw.choice([1, 2])), array.dtype)
    elif way == 4:
        arrays[name] = array.reshape(-1)[: draw.randrange(array.size + 1)]
    elif way == 5:
        arrays[name] = array.astype(draw.choice(["int8", "float32", "uint64", "bool", "int64", "float64"]))
    else:
        changed = array.copy()
        if changed.size and changed.dtype != np.bool_:
            strange = [0, 1, -1, 2**31 - 1, 2**53, 2**62] if changed.dtype.kind != "f" else [0, -1, 1e308, -0.5, 5e-324]
            with np.errstate(over="ignore"):
                changed.flat[draw.randrange(changed.size)] = np.array(draw.choice(strange)).astype(changed.dtype)
        arrays[name] = changed


@pytest.mark.parametrize("name", ORIGINALS)
def test_edited_files_with_a_fitting_checksum(name: str) -> None:
    """A content that contradicts itself is refused; one that does not is a content: it works and is saved again."""
    lines: list[str] = []
    accepted = 0
    for seed in range(COUNT // 10):
        draw = random.Random(seed)

        def edit(header: dict[str, Any], arrays: dict[str, Any], draw: random.Random = draw) -> None:
            if draw.random() < 0.5:
                edit_header(header, draw)
            else:
                edit_arrays(arrays, draw)

        try:
            data = resealed(name, edit)
        except (ValueError, TypeError, OverflowError):
            continue  # not even the writer takes it
        tracemalloc.start()
        try:
            loaded = load(name).from_bytes(data)
            peak = tracemalloc.get_traced_memory()[1]
        except FileFormatError as error:
            peak = tracemalloc.get_traced_memory()[1]
            lines.append(str(error))
        except BaseException as error:
            raise AssertionError(f"{name}, seed {seed}: {type(error).__name__}: {error}") from error
        else:
            tracemalloc.stop()
            try:
                again = loaded.to_bytes()
                assert load(name).from_bytes(again).to_bytes() == again
                if isinstance(loaded, snb.State):
                    snb.State(loaded.schema).merge(loaded)
                    loaded.finish()
                else:
                    loaded.predict(rows(1))
            except snb.errors.StreamNBError:
                pass  # an edited schema may want other columns, edited counts may overflow: said in one line
            except BaseException as error:
                raise AssertionError(f"{name}, seed {seed}, later: {type(error).__name__}: {error}") from error
            accepted += 1
        tracemalloc.stop()
        assert peak < SPARE + PER_BYTE * len(data), f"seed {seed}"
    assert len(lines) > COUNT // 40
    assert accepted
    for line in lines:
        assert "\n" not in line
        assert len(line) < 500


@pytest.mark.parametrize(
    ("key", "value"),
    [("shard", {"a": 1}), ("shard", 5), ("positions", 5), ("positions", [["a", 1]]), ("positions", {"a": 5})],
)
def test_a_header_of_other_types_is_refused(key: str, value: Any) -> None:
    """Names and positions are used only later, so their types are held when a file is read."""
    data = resealed("state", lambda header, _: header.update({key: value}))
    with pytest.raises(FileFormatError, match="contradicts itself"):
        snb.State.from_bytes(data)


# --- files that are something else ---


class Trap:
    """Unpickled, it would leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def strangers(trap: Path) -> dict[str, bytes]:
    """Files that are none of ours, some of them under our name, some of them bombs."""
    data = original("state")
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("state.snb", data)
        archive.writestr("zeros", bytes(20_000_000))
    pickled = io.BytesIO()
    np.save(pickled, np.array([Trap(trap)], object), allow_pickle=True)
    zeros = pa.array(np.zeros(2_000_000))
    lists = pa.LargeListArray.from_arrays(pa.array([0, len(zeros)], pa.int64()), zeros)
    schema = pa.schema([("x", lists.type)], metadata={f"streamnb.{key}": "1" for key in statefile._FIELDS})
    bomb = io.BytesIO()
    with pa.ipc.new_file(bomb, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_batch(pa.record_batch([lists], schema=schema))
    deep = io.BytesIO()
    nested = pa.schema([], metadata={**dict.fromkeys(_keys(), "1"), "streamnb.header": "[" * 100_000})
    with pa.ipc.new_file(deep, nested):
        pass
    return {
        "a pickle": pickle.dumps(Trap(trap)),
        "a pickle behind our beginning": data[:8] + pickle.dumps(Trap(trap)),
        "an object array": pickled.getvalue(),
        "an archive": zipped.getvalue(),
        "gzip": gzip.compress(data),
        "a bomb": bomb.getvalue(),
        "a deep header": deep.getvalue(),
        "nothing": b"",
        "text": b"y,x\na,1\n",
        "JSON": json.dumps({"streamnb.format": 1}).encode(),
        "zeros": bytes(100_000),
        "our beginning alone": data[:8],
        "our beginning many times": data[:8] * 10_000,
    }


def _keys() -> list[str]:
    return [f"streamnb.{key}" for key in statefile._FIELDS]


@pytest.mark.usefixtures("_traced")
def test_strangers_are_refused_and_never_run(tmp_path: Path) -> None:
    """Also as files, and by every way in."""
    trap = tmp_path / "trap"
    files = strangers(trap)
    assert len(files["a bomb"]) < 20_000
    for name, data in files.items():
        for loader in (snb.State, snb.Predictor):
            tracemalloc.reset_peak()
            before = pa.total_allocated_bytes()
            path = tmp_path / "stranger.snb"
            path.write_bytes(data)
            for way, argument in ((loader.load, path), (loader.from_bytes, data)):
                with pytest.raises(FileFormatError) as caught:
                    way(argument)
                assert "\n" not in str(caught.value), name
                assert len(str(caught.value)) < 500, name
            assert tracemalloc.get_traced_memory()[1] < SPARE, name
            assert pa.total_allocated_bytes() - before < SPARE, name
    assert not trap.exists()


def test_the_pickle_would_have_run(tmp_path: Path) -> None:
    """The trap above works: whoever unpickles it is caught."""
    pickle.loads(pickle.dumps(Trap(tmp_path / "trap")))
    assert (tmp_path / "trap").exists()


def test_views_and_lists_that_claim_more_than_the_file_holds() -> None:
    """Lengths come from the file, so they are held against its size before anything is laid out."""
    huge = pa.Array.from_buffers(pa.null(), 2**40, [None])
    lists = pa.Array.from_buffers(
        pa.large_list(pa.null()), 1, [None, pa.py_buffer(np.array([0, 2**40]))], children=[huge]
    )
    schema = pa.schema([("x", lists.type)], metadata=dict.fromkeys(_keys(), "1") | {"streamnb.kind": "state"})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(allow_64bit=True)) as writer:
        writer.write_batch(pa.record_batch([lists], schema=schema))
    with pytest.raises(FileFormatError):
        snb.State.from_bytes(sink.getvalue())
    assert content_of(pa.nulls(5)) == []
