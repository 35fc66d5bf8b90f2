"""Hostile and merely messy tables: each is counted right, or refused with one line that says where.

Read the tables `DRIFT`, `SHAPES`, `EDGES` and `DAMAGE` as: what it is called, what the data is, what comes of it.
Outcomes are `Counted`, the rows that must be in the state, or `Refused`, what the one line must say; where a line is
refused the command line exits with 1 and the state file that stood at the output stands there still, byte for byte.

`fit` on the command line takes Parquet. CSV and Arrow IPC come in through Polars or PyArrow, as frames, lazy frames
and datasets; named as paths they are refused with the line that opens them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import streamnb as snb
from streamnb.cli import app


@dataclass(frozen=True)
class Counted:
    """The values of x of each class that must have been counted; None is a missing cell."""

    rows: Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Refused:
    """Pieces that the message must hold."""

    says: tuple[str, ...]

    def __init__(self, *says: str) -> None:
        object.__setattr__(self, "says", says)


Outcome = Counted | Refused


def two(x: Any, **others: Any) -> pa.Table:
    """Two rows, of the classes a and b."""
    return pa.table({"y": ["a", "b"], "x": x, **others})


PLAIN = two(pa.array([1.0, 2.0]))


def ab(a: Sequence[Any], b: Sequence[Any]) -> Counted:
    """Return the outcome of two classes."""
    return Counted({"a": a, "b": b})


# The second file of three, the others being PLAIN: its name, its table, what comes of all three.
NUMBERS: list[tuple[str, pa.Table, Outcome]] = [
    ("narrower float", two(pa.array([5, 6], pa.float32())), ab([1, 5, 1], [2, 6, 2])),
    ("half float", two(pa.array(np.array([5, 6], np.float16))), ab([1, 5, 1], [2, 6, 2])),
    ("int for float", two(pa.array([5, 6], pa.int64())), ab([1, 5, 1], [2, 6, 2])),
    ("small int for float", two(pa.array([5, -6], pa.int8())), ab([1, 5, 1], [2, -6, 2])),
    ("unsigned for float", two(pa.array([5, 2**64 - 1], pa.uint64())), ab([1, 5, 1], [2, 2.0**64, 2])),
    ("decimal for float", two(pa.array(["5.5", "6.25"]).cast(pa.decimal128(9, 2))), ab([1, 5.5, 1], [2, 6.25, 2])),
    ("string for number", two(["5", "6"]), Refused("'x'", "part-1", "string", "double")),
    ("bool for number", two([True, False]), Refused("'x'", "part-1", "bool", "double")),
    ("time for number", two(pa.array([5, 6], pa.timestamp("s"))), Refused("'x'", "part-1", "timestamp", "double")),
    ("struct for number", two([{"v": 1.0}, {"v": 2.0}]), Refused("'x'", "part-1", "struct", "double")),
    ("list for number", two([[1.0], [2.0]]), Refused("'x'", "part-1", "list", "double")),
    ("all null", two(pa.nulls(2, pa.float64())), ab([1, None, 1], [2, None, 2])),
    ("all null, no type", two(pa.nulls(2)), ab([1, None, 1], [2, None, 2])),
    ("column gone", pa.table({"y": ["a", "b"]}), Refused("'x'", "part-1", "none")),
    ("column renamed", pa.table({"y": ["a", "b"], "xx": [1.0, 2.0]}), Refused("'x'", "part-1", "none", "'xx'")),
    ("column in capitals", pa.table({"y": ["a", "b"], "X": [1.0, 2.0]}), Refused("'x'", "part-1", "none")),
    ("reordered", pa.table({"x": [5.0, 6.0], "y": ["a", "b"]}), ab([1, 5, 1], [2, 6, 2])),
    ("one more column", two([5.0, 6.0], z=["no", "yes"]), ab([1, 5, 1], [2, 6, 2])),
    (
        "column doubled",
        pa.table([["a", "b"], [1.0, 2.0], [3.0, 4.0]], names=["y", "x", "x"]),
        Refused("'x'", "part-1", "several"),
    ),
    ("no rows", PLAIN.slice(0, 0), ab([1, 1], [2, 2])),
]
LABELS: list[tuple[str, pa.Table, Outcome]] = [
    ("label as dictionary", PLAIN.set_column(0, "y", PLAIN["y"].dictionary_encode()), ab([1, 1, 1], [2, 2, 2])),
    ("label as large string", PLAIN.set_column(0, "y", PLAIN["y"].cast("large_string")), ab([1, 1, 1], [2, 2, 2])),
    ("label all null", PLAIN.set_column(0, "y", pa.nulls(2, pa.string())), ab([1, 1], [2, 2])),
    ("label all null, no type", PLAIN.set_column(0, "y", pa.nulls(2)), ab([1, 1], [2, 2])),
    ("label as number", PLAIN.set_column(0, "y", pa.array([1, 2])), Refused("'y'", "part-1", "int64", "string")),
    ("label nested", PLAIN.set_column(0, "y", pa.array([["a"], ["b"]])), Refused("'y'", "part-1", "list", "string")),
]
DRIFT = NUMBERS + LABELS


def parquet(folder: Path, tables: Sequence[pa.Table], **options: Any) -> str:
    """Write the tables as Parquet files of a folder; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, table in enumerate(tables):
        pq.write_table(table, folder / f"part-{i}.parquet", **options)
    return str(folder)


def ipc(folder: Path, tables: Sequence[pa.Table]) -> list[str]:
    """Write the tables as Arrow IPC files; return their paths."""
    for i, table in enumerate(tables):
        pyarrow.feather.write_feather(table, folder / f"part-{i}.arrow")
    return [str(folder / f"part-{i}.arrow") for i in range(len(tables))]


def check_counted(state: snb.State, outcome: Counted) -> None:
    """Hold the moments of x against sums in plain Python."""
    assert state.n_rows == sum(map(len, outcome.rows.values()))
    found = {row["class"]: row for row in state.to_table().to_pylist() if row["feature"] == "x"}
    assert found.keys() == outcome.rows.keys()
    for name, cells in outcome.rows.items():
        values = [float(cell) for cell in cells if cell is not None and not math.isnan(cell)]
        assert found[name]["count"] == len(values)
        if values:
            mean = math.fsum(values) / len(values)
            assert found[name]["mean"] == pytest.approx(mean, rel=1e-14, abs=0)


def fit_line(data: str, tmp_path: Path, *options: str) -> tuple[int, str]:
    """Run the command over a state that is there; return its exit code and its last line, the state being kept."""
    old = snb.State(snb.Schema(label="y", numeric=["x"]))
    old.update(PLAIN)
    output = tmp_path / "state.snb"
    old.save(output)
    before = output.read_bytes()
    result = CliRunner().invoke(app, ["fit", data, "--label", "y", *(options or ("--numeric", "x")), "-o", str(output)])
    lines = [line for line in result.stderr.splitlines() if line.startswith("error:")]
    if result.exit_code:
        assert len(lines) == 1
        assert "Traceback" not in result.output
        assert output.read_bytes() == before
        assert sorted(path.name for path in tmp_path.iterdir() if path.name.endswith((".tmp", ".snb"))) == ["state.snb"]
    return result.exit_code, lines[0] if lines else ""


@pytest.mark.parametrize(("second", "outcome"), [d[1:] for d in DRIFT], ids=[d[0] for d in DRIFT])
def test_drift_between_parquet_files(second: pa.Table, outcome: Outcome, tmp_path: Path) -> None:
    """What the second of three files does to a folder."""
    data = parquet(tmp_path / "data", [PLAIN, second, PLAIN])
    if isinstance(outcome, Counted):
        check_counted(snb.fit(data, schema=snb.Schema(label="y", numeric=["x"])), outcome)
        return
    code, line = fit_line(data, tmp_path)
    assert code == 1
    for piece in outcome.says:
        assert piece in line, line


def from_lazy_ipc(folder: Path, tables: Sequence[pa.Table]) -> Any:
    """Arrow IPC files as lazy frames."""
    return [pl.scan_ipc(path) for path in ipc(folder, tables)]


def from_readers(folder: Path, tables: Sequence[pa.Table]) -> Any:
    """Arrow IPC files as tables."""
    return [pa.ipc.open_file(path).read_all() for path in ipc(folder, tables)]


def from_lazy_csv(folder: Path, tables: Sequence[pa.Table]) -> Any:
    """CSV files as lazy frames."""
    for i, table in enumerate(tables):
        pl.from_arrow(table).write_csv(folder / f"part-{i}.csv")  # type: ignore[union-attr]
    return [pl.scan_csv(folder / f"part-{i}.csv") for i in range(len(tables))]


# What CSV cannot say: types are guessed from the text, and equal names are renamed by its reader.
NOT_IN_CSV = {
    "unsigned for float",  # a type of Polars alone; see the test of it
    "string for number",
    "time for number",
    "struct for number",
    "list for number",
    "column doubled",
    "label nested",
    # Read as text, for nothing tells their type.
    "all null",
    "all null, no type",
    "label all null",
    "label all null, no type",
    "no rows",
}
FORMS: list[tuple[str, Callable[[Path, Sequence[pa.Table]], Any], set[str]]] = [
    ("IPC, lazily", from_lazy_ipc, {"column doubled"}),  # no frame of Polars has it
    ("IPC, tables", from_readers, set()),
    ("CSV, lazily", from_lazy_csv, NOT_IN_CSV),
]
CHAINED = [(form, make, *case) for form, make, without in FORMS for case in DRIFT if case[0] not in without]


@pytest.mark.parametrize(
    ("make", "second", "outcome"), [(c[1], c[3], c[4]) for c in CHAINED], ids=[f"{c[0]}: {c[2]}" for c in CHAINED]
)
def test_drift_between_tables(
    make: Callable[[Path, Sequence[pa.Table]], Any], second: pa.Table, outcome: Outcome, tmp_path: Path
) -> None:
    """The same drift between frames and lazy frames in a list: the place is the table's number, counted from 0."""
    source = make(tmp_path, [PLAIN, second, PLAIN])
    schema = snb.Schema(label="y", numeric=["x"])
    if isinstance(outcome, Counted):
        check_counted(snb.fit(source, schema=schema), outcome)
        return
    with pytest.raises(snb.errors.StreamNBError) as caught:
        snb.fit(source, schema=schema)
    line = str(caught.value)
    assert "\n" not in line
    assert outcome.says[0] in line
    assert "source 1" in line, line


@pytest.mark.parametrize("ending", ["csv", "tsv", "arrow", "feather", "ipc", "json", "ndjson"])
def test_other_formats_by_path_are_refused_with_the_way_in(ending: str, tmp_path: Path) -> None:
    """The line says how Polars opens such a file."""
    path = tmp_path / f"rows.{ending}"
    path.write_text("y,x\na,1\n")
    code, line = fit_line(str(path), tmp_path)
    assert code == 1
    assert "pl." in line
    assert str(path) in line


TIMES = [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")] + [pa.timestamp("us", "UTC"), pa.date32(), pa.date64()]


def kind_of_time(dtype: pa.DataType) -> str:
    """A day is no moment, and a moment of a zone is not one of no zone."""
    if not pa.types.is_timestamp(dtype):
        return "day"
    return "moment" if dtype.tz is None else "moment of a zone"


@pytest.mark.parametrize("second", TIMES, ids=str)
@pytest.mark.parametrize("first", TIMES, ids=str)
def test_labels_of_other_units_of_time(first: pa.DataType, second: pa.DataType, tmp_path: Path) -> None:
    """A label that is a time in two units counts as one class for one moment, or is refused with both types."""
    moments = pa.array([0, 86_400], pa.timestamp("s"))
    tables = [pa.table({"y": moments.cast(unit), "x": [1.0, 2.0]}) for unit in (first, second)]
    data = parquet(tmp_path / "data", tables)
    schema = snb.Schema(label="y", numeric=["x"])
    if kind_of_time(first) != kind_of_time(second):
        with pytest.raises(snb.errors.SchemaError, match=r"'y'.*part-1"):
            snb.fit(data, schema=schema)
        return
    state = snb.fit(data, schema=schema)
    assert state.n_rows == 4
    assert len(state.classes) == 2


@pytest.mark.parametrize(
    "make", [lambda f: f, lambda f: f.lazy(), lambda f: [f.lazy(), PLAIN]], ids=["", "lazy", "list"]
)
def test_integers_beyond_arrow_name_their_column(make: Callable[[pl.DataFrame], Any]) -> None:
    """Polars reads a CSV of integers beyond 64 bits as a type that no other program has."""
    frame = pl.read_csv(f"y,x\na,{2**64}\nb,1\n".encode())
    assert frame["x"].dtype == pl.Int128
    with pytest.raises(snb.errors.SchemaError, match=r"a type that Arrow has, got Int128 - column 'x'.*cast it with"):
        snb.fit(make(frame), schema=snb.Schema(label="y", numeric=["x"]))


# --- shapes: how many files, rows, columns, classes; and what they are called ---


def test_files_without_rows_first_last_and_between(tmp_path: Path) -> None:
    """A file without rows adds nothing, wherever it stands."""
    empty = PLAIN.slice(0, 0)
    for name, tables in {"first": [empty, PLAIN], "last": [PLAIN, empty], "between": [PLAIN, empty, PLAIN]}.items():
        rows = len(tables) - 1
        data = parquet(tmp_path / name, tables)
        check_counted(snb.fit(data, schema=snb.Schema(label="y", numeric=["x"])), ab([1] * rows, [2] * rows))


def test_row_groups_without_rows(tmp_path: Path) -> None:
    """Nor does a row group without rows."""
    path = tmp_path / "data.parquet"
    with pq.ParquetWriter(path, PLAIN.schema) as writer:
        for table in (PLAIN.slice(0, 0), PLAIN, PLAIN.slice(0, 0), PLAIN, PLAIN.slice(0, 0)):
            writer.write_table(table)
    assert pq.ParquetFile(path).num_row_groups == 5
    check_counted(snb.fit(path, schema=snb.Schema(label="y", numeric=["x"])), ab([1, 1], [2, 2]))


def test_only_files_without_rows_give_the_empty_state(tmp_path: Path) -> None:
    """There is nothing to count and nothing wrong; a model of nothing is refused."""
    data = parquet(tmp_path / "data", [PLAIN.slice(0, 0)] * 2)
    state = snb.fit(data, schema=snb.Schema(label="y", numeric=["x"]))
    assert state.n_rows == 0
    with pytest.raises(snb.errors.EmptyStateError):
        state.finish()


def test_many_small_files(tmp_path: Path) -> None:
    """A thousand files of two rows: one state, each file once; ten thousand take ten times as long."""
    (tmp_path / "data").mkdir()
    one = tmp_path / "data" / "part-0000.parquet"
    pq.write_table(PLAIN, one)
    content = one.read_bytes()
    for i in range(1, 1000):
        (tmp_path / "data" / f"part-{i:04}.parquet").write_bytes(content)
    state = snb.fit(tmp_path / "data", schema=snb.Schema(label="y", numeric=["x"]))
    check_counted(state, ab([1] * 1000, [2] * 1000))
    assert len(state.ledger) == 1000


def test_ten_thousand_columns(tmp_path: Path) -> None:
    """Nothing but the reading itself grows with their number; no list is searched for each name."""
    names = [f"x{i}" for i in range(10_000)]
    values = np.arange(40_000.0).reshape(10_000, 4)
    table = pa.table({"y": ["a", "a", "b", "b"], **dict(zip(names, values, strict=True))})
    path = Path(parquet(tmp_path / "data", [table]))
    for source in (path, table):
        state = snb.fit(source, label="y")
        model = state.finish()
        assert len(state.schema.numeric) == 10_000
        found = {(row["feature"], row["class"]): row["mean"] for row in state.to_table().to_pylist()}
        assert all(found[name, "a"] == v[:2].mean() for name, v in zip(names, values, strict=True))
        assert model.predict(table).to_pylist() == ["a", "a", "b", "b"]


NAMES = [
    "a.b",
    "a b",
    " ",
    "",
    "😀",
    "é",
    "e\u0301",
    "^x.*$",
    "*",
    "a,b",
    "a=b",
    "'",
    '"',
    "\\",
    "line\nbreak",
    "\x1b[31m",
    "prediction",
    "proba_a",
    "class",
    "feature",
    "__index_level_0__",
    "0",
    "row",
    "x" * 1_000_000,
]


@pytest.mark.parametrize("rows", [2, 200_000], ids=["few rows", "many rows"])  # the reader depends on it
@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:20]))
def test_odd_names_of_columns(name: str, rows: int, tmp_path: Path) -> None:
    """A name is a name: as feature and as label, read from a file, saved, loaded and scored."""
    y = np.tile(["a", "b"], rows // 2)
    x = np.tile([1.0, 2.0], rows // 2)
    table = pa.table({"y": y, name: x})
    data = Path(parquet(tmp_path / "data", [table]))
    state = snb.fit(data, schema=snb.Schema(label="y", numeric=[name]))
    assert state.n_rows == rows
    state.save(tmp_path / "state.snb")
    model = snb.State.load(tmp_path / "state.snb").finish()
    model.save(tmp_path / "model.snb")
    assert snb.predict(snb.Predictor.load(tmp_path / "model.snb"), data, tmp_path / "scored.parquet") == rows
    assert pq.read_table(tmp_path / "scored.parquet")["prediction"].to_pylist() == y.tolist()
    assert snb.fit(pa.table({name: y, "other": x}), label=name).n_rows == rows


def test_odd_names_reach_no_terminal(tmp_path: Path) -> None:
    """An error about a name with control codes, or of a million characters, is one readable line."""
    for i, name in enumerate(["\x1b[31mred\x07\x9b", "x" * 1_000_000, "line\nbreak\rback"]):
        (tmp_path / str(i)).mkdir()
        data = parquet(tmp_path / str(i) / "data", [pa.table({"y": ["a"], name: ["text"]})])
        (tmp_path / str(i) / "schema.json").write_text(snb.Schema(label="y", numeric=[name]).to_json())
        code, line = fit_schema(data, tmp_path / str(i))
        assert code == 1
        assert "string" in line or "cut" in line
        assert line.isprintable()
        assert len(line) < 1000


def fit_schema(data: str, folder: Path) -> tuple[int, str]:
    """Run the command with the schema of a file; return its exit code and what it printed."""
    arguments = ["fit", data, "--schema", str(folder / "schema.json"), "-o", str(folder / "state.snb")]
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output.rstrip("\n")


def test_a_hundred_thousand_classes(tmp_path: Path) -> None:
    """A label that is in truth an id costs memory by its classes, once, and no time beyond that."""
    n = 100_000
    labels = np.char.add("id-", np.arange(n).astype(str))
    table = pa.table({"y": np.concatenate([labels, labels]), "x": np.arange(2.0 * n)})
    state = snb.fit(parquet(tmp_path / "data", [table]), schema=snb.Schema(label="y", numeric=["x"]))
    assert len(state.classes) == n
    assert state.n_rows == 2 * n
    state.save(tmp_path / "state.snb")
    assert snb.State.load(tmp_path / "state.snb") == state
    assert state.finish().predict(table.slice(7, 1)).to_pylist()[0] in set(labels)


# --- the edges of the types ---

LARGEST = 1.7976931348623157e308
EDGES: list[tuple[str, pa.Array, Outcome]] = [
    ("subnormal", pa.array([5e-324, -5e-324]), ab([5e-324], [-5e-324])),
    ("smallest normal", pa.array([2.2250738585072014e-308, 0.0]), ab([2.2250738585072014e-308], [0.0])),
    ("large", pa.array([1e153, 1.0]), ab([1e153], [1.0])),
    ("minus zero", pa.array([-0.0, 0.0]), ab([0.0], [0.0])),
    ("NaN", pa.array([math.nan, 2.0]), ab([math.nan], [2.0])),
    (
        "NaN with a payload",
        pa.array(np.array([0x7FF8DEADBEEF0001, 0xFFF0000000000001], "u8").view("f8")),
        ab([None], [None]),
    ),
    ("infinity", pa.array([math.inf, 2.0]), Refused("'x'", "part-0", "row group 0", "row 0", "inf")),
    ("minus infinity", pa.array([1.0, -math.inf]), Refused("'x'", "part-0", "row group 0", "row 1", "inf")),
    ("int8", pa.array([-128, 127], pa.int8()), ab([-128], [127])),
    ("int16", pa.array([-(2**15), 2**15 - 1], pa.int16()), ab([-(2**15)], [2**15 - 1])),
    ("int32", pa.array([-(2**31), 2**31 - 1], pa.int32()), ab([-(2**31)], [2**31 - 1])),
    ("int64", pa.array([-(2**63), 2**63 - 1]), ab([-(2.0**63)], [2.0**63])),
    ("uint64", pa.array([0, 2**64 - 1], pa.uint64()), ab([0], [2.0**64])),
    ("float32", pa.array(np.array([3.4028235e38, 1e-45], "f4")), ab([float(np.float32(3.4028235e38))], [2.0**-149])),
    ("float16", pa.array(np.array([65504, 6e-8], "f2")), ab([65504], [2.0**-24])),
    ("decimal128", pa.array(["9" * 38, "-" + "9" * 38]).cast(pa.decimal128(38, 0)), ab([1e38], [-1e38])),
    ("decimal256", pa.array(["9" * 76, "-" + "9" * 76]).cast(pa.decimal256(76, 0)), ab([1e76], [-1e76])),
]


@pytest.mark.parametrize("exact", [False, True], ids=["", "exact"])
@pytest.mark.parametrize(("x", "outcome"), [e[1:] for e in EDGES], ids=[e[0] for e in EDGES])
def test_edges_of_the_types(x: pa.Array, outcome: Outcome, exact: bool, tmp_path: Path) -> None:
    """Each value is counted as it is, or its row is named."""
    data = parquet(tmp_path / "data", [two(x)])
    schema = snb.Schema(label="y", numeric=["x"], exact=exact)
    if isinstance(outcome, Counted):
        check_counted(snb.fit(data, schema=schema), outcome)
        return
    code, line = fit_line(data, tmp_path)
    assert code == 1
    for piece in outcome.says:
        assert piece in line, line


def test_the_largest_float_has_a_mean_and_no_variance(tmp_path: Path) -> None:
    """Its distance from 1, squared, is beyond all floats: that is said where the two classes meet, at finish."""
    data = parquet(tmp_path / "data", [two([LARGEST, 1.0])])
    state = snb.fit(data, schema=snb.Schema(label="y", numeric=["x"]))
    check_counted(state, ab([LARGEST], [1.0]))
    with pytest.raises(snb.errors.DataError, match="squared deviations fit in a float64, got an overflow - column 'x'"):
        state.finish()
    state.save(tmp_path / "large.snb")
    result = CliRunner().invoke(app, ["show", str(tmp_path / "large.snb")])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: Expected values whose squared deviations fit")
    assert "column 'x'" in result.stderr
    exact = snb.fit(data, schema=snb.Schema(label="y", numeric=["x"], exact=True))
    with pytest.raises(snb.errors.DataError, match="variance fits in a float64, got an overflow - column 'x'"):
        exact.finish()


@pytest.mark.parametrize("dtype", [pa.int64(), pa.uint64(), pa.int8(), pa.float64(), pa.bool_(), pa.string()], ids=str)
def test_edges_as_labels_and_categories(dtype: pa.DataType, tmp_path: Path) -> None:
    """Every value is its own class and category, at the ends of its type as well; -0.0 and 0.0 are one."""
    edges: dict[Any, list[Any]] = {
        pa.int64(): [-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1],
        pa.uint64(): [0, 1, 2**63, 2**64 - 1],
        pa.int8(): [-128, -1, 0, 127],
        pa.float64(): [-LARGEST, -5e-324, 0.0, LARGEST],
        pa.bool_(): [False, True],
        pa.string(): ["", " ", "a\0b", "\U0010ffff"],
    }
    values = pa.array(edges[dtype], dtype)
    data = parquet(tmp_path / "data", [pa.table({"y": values, "c": values})] * 2)
    kind = {"numeric": ["c"]} if dtype == pa.float64() else {"categorical": ["c"]}
    state = snb.fit(data, schema=snb.Schema(label="y", **kind))
    assert state.classes.to_pylist() == sorted(edges[dtype])
    state.save(tmp_path / "state.snb")
    loaded = snb.State.load(tmp_path / "state.snb")
    assert loaded == state
    if dtype != pa.float64():
        cells = [row for row in loaded.to_table().to_pylist() if row["feature"] == "c" and row["count"]]
        assert sorted(row["count"] for row in cells) == [2] * len(values)
        assert loaded.finish().predict(pa.table({"c": values})).to_pylist() == values.to_pylist()


# --- damaged pages ---


@pytest.mark.parametrize("checked", [True, False], ids=["checksums", "no checksums"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("rows", [300, 200_000], ids=["few rows", "many rows"])
def test_damaged_pages(rows: int, compression: str, checked: bool, tmp_path: Path) -> None:
    """With checksums every flip in a page is found; without, it is found or it was counted as what is there.

    Nothing else can be had of a format without checksums; but no flip may lose rows in silence, or crash.
    """
    draw = np.random.default_rng(5)
    table = pa.table({"y": draw.choice(["a", "b"], rows), "x": draw.normal(size=rows)})
    data = tmp_path / "data"
    parquet(
        data,
        [table],
        compression=compression,
        write_page_checksum=checked,
        row_group_size=rows // 2,
        use_dictionary=["y"],
    )
    path = data / "part-0.parquet"
    sound = path.read_bytes()
    end = pq.ParquetFile(path).metadata.row_group(1).column(1)
    stop = end.data_page_offset + end.total_compressed_size
    schema = snb.Schema(label="y", numeric=["x"])
    right = snb.fit(data, schema=schema)
    refused = 0
    for position in draw.integers(4, stop, 12):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << draw.integers(0, 8)
        path.write_bytes(damaged)
        try:
            state = snb.fit(data, schema=schema, verify_checksums=checked)
        except snb.errors.StreamNBError as error:
            refused += 1
            line = str(error)
            assert "part-0.parquet" in line, line
            assert re.search("row group|footer|column", line), line
            assert "\n" not in line
            assert len(line) < 2000
        else:
            assert state.n_rows + state.rows_without_label == rows
            if checked:
                assert state.to_table().equals(right.to_table())
    assert not checked or refused > 6


# --- a category that is in truth an id ---

IDS = pa.table({"y": ["a", "b"] * 1000, "c": [f"id-{i}" for i in range(2000)]})


def test_an_id_among_the_categories_is_warned_of(tmp_path: Path) -> None:
    """With the number of its values, and the option that stops at a number."""
    data = parquet(tmp_path / "data", [IDS])
    with pytest.warns(snb.errors.ManyCategoriesWarning, match=r"'c' has 2,000 distinct values in 2,000 rows.*max_cat"):
        state = snb.fit(data, schema=snb.Schema(label="y", categorical=["c"]))
    assert state.n_rows == 2000
    result = CliRunner().invoke(app, ["fit", data, "--label", "y", "-o", str(tmp_path / "state.snb")])
    assert result.exit_code == 0
    assert "warning: categorical column 'c' has 2,000 distinct values" in result.stderr


def test_a_cap_on_categories_is_held_everywhere(tmp_path: Path) -> None:
    """By update, merge, fit and the command line, at one more than the cap; nothing is half counted."""
    schema = snb.Schema(label="y", categorical=["c"], max_categories=1500)
    says = r"Expected at most 1,500 distinct values \(max_categories\), got 1,501; is the column an id\?.* - column 'c'"
    state = snb.State(schema)
    state.update(IDS.slice(0, 1500))
    state.update(IDS.slice(0, 10))
    before = state.to_bytes()
    one_more = snb.State(schema)
    one_more.update(IDS.slice(1500, 1))
    for verb, argument in ((state.update, IDS.slice(1500, 1)), (state.merge, one_more)):
        with pytest.raises(snb.errors.DataError, match=says):
            verb(argument)
        assert state.to_bytes() == before
    assert snb.State.from_bytes(before) == state

    data = parquet(tmp_path / "data", [IDS.slice(0, 1501)])
    with pytest.raises(snb.errors.DataError, match=says):
        snb.fit(data, schema=schema)
    code, line = fit_line(data, tmp_path, "--categorical", "c", "--max-categories", "1500")
    assert code == 1
    assert re.search(says, line)
    assert "part-0.parquet" in line
    # Values of a dictionary that no row has are none of the column.
    unused = IDS.set_column(1, "c", IDS["c"].dictionary_encode()).slice(0, 100)
    small = snb.Schema(label="y", categorical=["c"], max_categories=100)
    assert snb.fit(parquet(tmp_path / "unused", [unused]), schema=small).n_rows == 100
    assert snb.fit(unused, schema=small).n_rows == 100
    for wrong in (0, -1, True, 1.5, "9"):
        with pytest.raises(snb.errors.SchemaError, match="max_categories"):
            snb.Schema(label="y", categorical=["c"], max_categories=wrong)
