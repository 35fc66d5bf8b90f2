"""Messages become rows in batches, and those that are not what they should be are found one by one."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_tools import ipc

import streamnb as snb
from streamnb.sources.messages import ArrowMessages, JsonMessages, types_in_json

ROWS = JsonMessages(pa.schema([("y", pa.string()), ("n", pa.float64()), ("i", pa.int64()), ("b", pa.bool_())]))


@pytest.mark.parametrize(
    ("message", "row"),
    [
        (b'{"y":"a","n":2,"i":3,"b":true}', {"y": "a", "n": 2.0, "i": 3, "b": True}),
        (b'{"z":[1,{"n":"x"}],"y":"a"}', {"y": "a", "n": None, "i": None, "b": None}),
        (b'\n {"y": "a",\n "n": 1e2}\r\n', {"y": "a", "n": 100.0, "i": None, "b": None}),
        (b'{"y":"\\u00e9 NaN \\ud83d\\ude00"}', {"y": "é NaN 😀", "n": None, "i": None, "b": None}),
        ('{"y":"é"}'.encode(), {"y": "é", "n": None, "i": None, "b": None}),
        (b'{"y":null,"n":12345678901234567890}', {"y": None, "n": 1.2345678901234567e19, "i": None, "b": None}),
        (b"{}", {"y": None, "n": None, "i": None, "b": None}),
    ],
)
def test_json_objects_become_rows(message: bytes, row: dict[str, Any]) -> None:
    """Keys in any order, others passed over, absent ones null, white space allowed."""
    assert ROWS.decode([message])[0].to_pylist() == [row]
    assert ROWS.decode([b"{}", message, b"{}"])[0].to_pylist()[1] == row
    assert ROWS.sift([message]) == []


MALFORMED = [
    b"", b" ", b"null", b"5", b"[1]", b'"y"', b'{"y":"a"', b'{"y":"a"}{"y":"b"}', b'{"y":"a"},"x":{}', b'{"y":"a",}',
    b'{"n":01}', b'{"n":.5}', b'{"n":+1}', b'{"z":nan}', b"{'y':1}", b'{"y":"\xff"}', b'{"z":"\xff"}', b'"y":"a"}',
    b'\xef\xbb\xbf{"y":"a"}', b'{"y":"a\tb"}', b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("message", MALFORMED, ids=repr)
def test_malformed_json_is_refused_and_named(message: bytes) -> None:
    """It refuses the batch, and the sieve finds just this message."""
    good = b'{"y":"a","n":1}'
    for batch in ([message], [good, message, good], [message, message]):
        with pytest.raises(snb.SourceError):
            ROWS.decode(batch)
    assert [(place, kind) for place, kind, _ in ROWS.sift([good, message, good])] == [(1, "malformed")]


@pytest.mark.parametrize(
    "message",
    [b'{"n":"7"}', b'{"n":true}', b'{"y":1}', b'{"i":1.5}', b'{"b":1}', b'{"n":NaN}', b'{"n":-Infinity}',
     b'{"n":1e400}', b'{"i":99999999999999999999}', b'{"y":["a"]}', b'{"n":{}}', b'{"z":NaN}'],
    ids=repr,
)  # fmt: skip
def test_values_of_another_type_are_refused(message: bytes) -> None:
    """Nothing is coerced, and NaN is not JSON; the sieve does not call such messages malformed."""
    with pytest.raises(snb.SourceError):
        ROWS.decode([b'{"y":"a"}', message])
    assert all(kind == "bad value" for _, kind, _ in ROWS.sift([message]))


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
fragments = st.sampled_from([b"{", b"}", b'"y":', b'"a"', b",", b"1", b"[", b"]", b"\n", b" ", b"{}", b'{"y":"a"}'])


@given(st.lists(st.lists(fragments, max_size=5).map(b"".join), min_size=1, max_size=4))
def test_a_batch_that_passes_is_one_object_a_message(messages: list[bytes]) -> None:
    """However messages are broken, they never lend their braces to each other."""
    try:
        rows = ROWS.decode(messages)[0].to_pylist()
    except snb.SourceError:
        return
    for row, message in zip(rows, messages, strict=True):
        found = json.loads(message)
        assert isinstance(found, dict)
        assert row["y"] == found.get("y")


@given(st.dictionaries(st.sampled_from(["y", "n", "x", "é"]), values, max_size=4))
def test_what_is_decoded_is_what_python_reads(message: dict[str, Any]) -> None:
    """A batch is refused or has the values that Python's reader finds."""
    try:
        row = ROWS.decode([json.dumps(message).encode()])[0].to_pylist()[0]
    except snb.SourceError:
        wrong_y = not isinstance(message.get("y", ""), str | None)
        n = message.get("n", 0.0)
        wrong_n = isinstance(n, bool) or not isinstance(n, int | float | None)
        # Arrow refuses a key that is not asked for only where it stands twice, which json.dumps does not write.
        assert wrong_y or wrong_n
        return
    assert row["y"] == message.get("y")
    n = message.get("n")
    assert row["n"] == n or math.isclose(row["n"], n, rel_tol=1e-15)


def test_arrow_streams_become_rows() -> None:
    """Messages of like schema become one table; other columns are not read."""
    one = pa.table({"y": ["a", "b"], "n": [1.0, 2.0], "z": [[1], [2]]})
    two = pa.table({"n": pa.array([3], pa.int64()), "y": ["c"]})
    rows = ArrowMessages(["y", "n"])
    tables = rows.decode([ipc(one), ipc(one), ipc(two), ipc(one.slice(0, 0))])
    assert [table.num_rows for table in tables] == [4, 1, 0]
    assert tables[0].column_names == ["y", "n"]


def test_a_damaged_arrow_stream_is_refused() -> None:
    """Cut, turned over byte by byte, or something else: an error, never a crash."""
    good = ipc(pa.table({"y": ["a", "b", "c"], "n": [1.0, 2.0, 3.0]}))
    rows = ArrowMessages(["y", "n"])
    for bad in (b"", b"{}", good[:40], good[: len(good) // 2], b"\x00" * 64):
        with pytest.raises(snb.SourceError):
            rows.decode([good, bad])
        assert [(place, kind) for place, kind, _ in rows.sift([good, bad])] == [(1, "malformed")]
    for i in range(0, len(good), 3):
        flipped = bytes([*good[:i], good[i] ^ 0xFF, *good[i + 1 :]])
        try:
            table = rows.decode([flipped])[0]
        except snb.SourceError:
            continue
        table.to_pylist()


def test_types_are_those_of_most_values() -> None:
    """Null says nothing, a whole number among others is a number, broken messages are passed over."""
    found = types_in_json([b'{"a":1,"b":null,"c":["x"]}', b'{"a":2.5,"b":"s"}', b"broken", b'{"a":3,"b":"t"}', b"[]"])
    assert found == {"a": pa.float64(), "b": pa.string(), "c": pa.list_(pa.string())}
