"""Runs divided by hand: n processes with a shared folder give, once merged, the bytes of the one that does all."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import streamnb as snb
from streamnb.cli import app
from streamnb.spans import FAN, Span, push, slice_of

SCHEMA = snb.Schema(
    label="y", numeric=["x", "far"], categorical=["site"], binary=["flag"], counts=["n"], text=["words"], weight="w"
)
FILES = 21


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of uneven length, with every kind of column, missing cells and classes that only some files have."""
    folder = tmp_path_factory.mktemp("shared") / "data"
    folder.mkdir()
    for i in range(FILES):
        draw = np.random.default_rng(i)
        n = 50 + 10 * i
        table = pa.table(
            {
                "y": draw.choice(["a", "b"] if i % 5 else ["b", "late"], n),
                "x": pa.array(draw.normal(size=n), mask=draw.random(n) < 0.1),
                "far": 1e9 + draw.normal(size=n),
                "site": draw.choice(["north", "south", f"only {i}"], n),
                "flag": draw.random(n) < 0.5,
                "n": draw.poisson(2.0, n),
                "words": [" ".join(draw.choice(["free", "money", "noon", f"w{i}"], 3)) for _ in range(n)],
                "w": draw.uniform(0.1, 2.0, n),
            }
        )
        pq.write_table(table, folder / f"part-{i:02}.parquet")
    return folder


@pytest.fixture(scope="module")
def whole(folder: Path) -> bytes:
    """The single run."""
    return snb.fit(folder, schema=SCHEMA).to_bytes()


# The tree -----------------------------------------------------------------------------------------------------------


@dataclass
class Leaf:
    """Something whose sum shows the order of adding."""

    span: Span
    text: str


def added(left: Leaf, right: Leaf) -> Leaf:
    """A sum that is neither commutative nor associative."""
    return Leaf(Span(left.span.first, right.span.last), f"({left.text}+{right.text})")


def reduced(shards: int, stretch: Span) -> list[Leaf]:
    """What one process holds in the end that adds up this stretch."""
    nodes: list[Leaf] = []
    for i in range(stretch.first, stretch.last):
        push(nodes, Leaf(Span(i, i + 1), str(i)), shards, added)
    return nodes


def tree(shards: int) -> str:
    """The sum by levels, as the picture in `spans` has it."""
    level = [str(i) for i in range(shards)]
    while len(level) > 1:
        groups = [level[i : i + FAN] for i in range(0, len(level), FAN)]
        level = []
        for first, *others in groups:
            total = first
            for other in others:
                total = f"({total}+{other})"
            level.append(total)
    return level[0]


@pytest.mark.parametrize("shards", [*range(1, 40), 63, 64, 65, 72, 73, 511, 512, 513, 700])
def test_the_order_of_adding_is_the_tree(shards: int) -> None:
    """One process that goes through all shards has one node in the end, and at most one unfinished node a level."""
    (node,) = reduced(shards, Span(0, shards))
    assert node.text == tree(shards)
    assert node.span == Span(0, shards)
    nodes: list[Leaf] = []
    for i in range(shards):
        push(nodes, Leaf(Span(i, i + 1), ""), shards, added)
        assert len(nodes) <= 4


@given(st.integers(1, 300), st.integers(1, 40), st.randoms(use_true_random=False))
def test_stretches_put_together_are_the_tree(shards: int, n: int, order: random.Random) -> None:
    """However the shards are shared out and in whatever order the stretches come, it is the same sum in the end."""
    cuts = [slice_of(shards, i, n) for i in range(1, n + 1)]
    assert [i for cut in cuts for i in range(cut.first, cut.last)] == list(range(shards))
    order.shuffle(cuts)
    held: list[Leaf] = []
    for cut in cuts:
        held += reduced(shards, cut)
        nodes: list[Leaf] = []
        for node in sorted(held, key=lambda node: node.span):
            push(nodes, node, shards, added)
        held = nodes
    assert [node.text for node in held] == [tree(shards)]


# States -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 8, FILES, 30])
def test_shards_merge_to_the_bytes_of_the_single_run(folder: Path, whole: bytes, n: int) -> None:
    """In any order, through files, merged one by one or in groups first; also where some shards have no data."""
    states = [snb.State.from_bytes(snb.fit(folder, schema=SCHEMA, shard=(i, n)).to_bytes()) for i in range(1, n + 1)]
    assert sum(state.n_rows for state in states) == snb.State.from_bytes(whole).n_rows
    for seed in range(3):
        order = list(states)
        random.Random(seed).shuffle(order)
        total, others = snb.State(SCHEMA), snb.State(SCHEMA)
        for i, state in enumerate(order):
            (total if i % 3 else others).merge(state)
        total.merge(others)
        assert total.to_bytes() == whole
        assert total.gaps == []


def test_a_missing_shard_is_said_and_a_doubled_one_counts_once(folder: Path, whole: bytes) -> None:
    """The state itself knows what it lacks, and a shard that comes twice changes nothing."""
    parts = [snb.fit(folder, schema=SCHEMA, shard=(i, 8)) for i in range(1, 9)]
    total = snb.State(SCHEMA)
    for i in (8, 1, 6, 2, 4, 7, 5):
        total.merge(parts[i - 1])
    assert total.gaps == ["7 of 8 shards; missing 3"]
    before = total.to_bytes()
    total.merge(parts[3])
    assert total.to_bytes() == before
    assert snb.State.from_bytes(before).gaps == total.gaps
    total.merge(parts[2])
    total.merge(parts[2])
    assert total.to_bytes() == whole


def test_what_is_there_can_be_used(folder: Path) -> None:
    """A state with gaps is a state: it has the rows of its files, and finishes."""
    state = snb.fit(folder, schema=SCHEMA, shard=(2, 3))
    assert state.n_rows == sum(50 + 10 * i for i in range(7, 14))
    assert state.finish().classes.to_pylist() == ["a", "b", "late"]


def test_shards_of_other_data_are_said(folder: Path, tmp_path: Path) -> None:
    """A file that came between two of the runs is another division: both are said to be in part."""
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    first = snb.fit(data, schema=SCHEMA, shard=(1, 2))
    shutil.copy(data / "part-20.parquet", data / "part-21.parquet")
    total = first + snb.fit(data, schema=SCHEMA, shard=(2, 2))
    assert len(total.gaps) == 2
    assert all("1 of 2 shards; missing" in gap for gap in total.gaps)
    assert "(of 21 pieces of data, fingerprint" in "".join(total.gaps)


def test_two_divided_runs_are_kept_apart(folder: Path, tmp_path: Path) -> None:
    """Monday's shards and Tuesday's may come mixed; the whole is that of the two single runs."""
    tuesday = tmp_path / "tuesday"
    shutil.copytree(folder, tuesday)
    runs = {path: [snb.fit(path, schema=SCHEMA, shard=(i, 3)) for i in (1, 2, 3)] for path in (folder, tuesday)}
    total = snb.State(SCHEMA)
    for pair in zip(*runs.values(), strict=True):
        for state in pair:
            total.merge(state)
    assert total == snb.fit(folder, schema=SCHEMA) + snb.fit(tuesday, schema=SCHEMA)


def test_a_killed_shard_goes_on_from_its_checkpoint(folder: Path, tmp_path: Path, whole: bytes) -> None:
    """A run that stops on the way goes on and gives the same shard; its checkpoint says how far it came."""

    def stop(progress: snb.progress.Progress) -> None:
        if progress.rows > 700:
            raise KeyboardInterrupt

    checkpoint = tmp_path / "run.snb"
    total = snb.fit(folder, schema=SCHEMA, shard=(1, 2))
    with pytest.raises(KeyboardInterrupt):
        snb.fit(folder, schema=SCHEMA, shard=(2, 2), checkpoint=checkpoint, progress=stop)
    held = snb.State.load(checkpoint)
    assert 0 < held.n_rows < total.n_rows
    assert held.gaps == ["0 of 2 shards; missing 1, 2"]
    total.merge(snb.fit(folder, schema=SCHEMA, shard=(2, 2), checkpoint=checkpoint, resume=True))
    assert total.to_bytes() == whole


def test_the_checkpoint_of_a_whole_run_says_that_it_is_not_at_its_end(folder: Path, tmp_path: Path) -> None:
    """Whoever loads it in the middle is told."""

    def stop(_: snb.progress.Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        snb.fit(folder, schema=SCHEMA, workers=1, checkpoint=tmp_path / "run.snb", progress=stop)
    assert snb.State.load(tmp_path / "run.snb").gaps == ["a run that is not at its end: 1 of its 21 pieces"]


def test_a_skipped_file_is_no_missing_shard(folder: Path, tmp_path: Path) -> None:
    """What on_error="skip" left out was said then; shard by shard it gives the bytes of the single run that skips."""
    data = tmp_path / "data"
    shutil.copytree(folder, data)
    for name in ("part-05.parquet", "part-20.parquet"):
        path = data / name
        table = pq.read_table(path)
        pq.write_table(table, path, write_page_checksum=True, compression="none")
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 0xFF
        path.write_bytes(content)
    options = {"schema": SCHEMA, "on_error": "skip", "verify_checksums": True}
    with pytest.warns(snb.SkippedWarning, match=r"part-(05|20)\.parquet"):
        single = snb.fit(data, **options)
    with pytest.warns(snb.SkippedWarning, match=r"part-(05|20)\.parquet"):
        total = sum((snb.fit(data, shard=(i, FILES), **options) for i in range(1, FILES + 1)), snb.State(SCHEMA))
    assert len(single.ledger) == FILES - 2
    assert total == single


@pytest.mark.parametrize("divided", [(0, 3), (4, 3), (-1, 3)])
def test_a_shard_out_of_range_is_refused(folder: Path, divided: tuple[int, int]) -> None:
    """They are numbered from 1 to n."""
    with pytest.raises(ValueError, match=r"Expected shard=\(i, n\) with i from 1 to n, got"):
        snb.fit(folder, schema=SCHEMA, shard=divided)


def test_a_stream_has_no_shards() -> None:
    """Rows without a name cannot be told apart at the merge."""
    with pytest.raises(snb.SourceError, match="Expected files for shard=, got a stream"):
        snb.fit(pl.DataFrame({"y": ["a"], "x": [1.0]}), label="y", shard=(1, 2))


@pytest.mark.parametrize(
    "of",
    [["f", 8, 2, 3, 3], ["f", 8, 2, 5, 9], ["f", 8, 0, 0, 1], [7, 8, 2, 0, 1], ["f", 8, 2, 0], ["f", 8.0, 2, 0, 1]],
)
def test_a_file_with_an_impossible_place_is_refused(folder: Path, of: list[object]) -> None:
    """A stretch beyond the run, or of the wrong types, is a damaged file."""
    from streamnb import statefile

    state = snb.fit(folder, schema=SCHEMA, shard=(1, 2))
    header, arrays = state._content()
    header["parts"][1]["of"] = of
    with pytest.raises(snb.FileFormatError, match="contradicts itself"):
        snb.State.from_bytes(statefile.dumps("state", header, arrays))


# The command line ---------------------------------------------------------------------------------------------------


def test_the_command_line_divides_and_merges(folder: Path, tmp_path: Path) -> None:
    """Processes with only a shared folder; merge says what is missing and what is doubled, and ends with the bytes."""
    columns = ["--label", "y", "--numeric", "x,far", "--categorical", "site"]

    def run(*arguments: str | Path, code: int = 0) -> str:
        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == code, result.output
        return result.output

    run("fit", folder, *columns, "-o", tmp_path / "whole.snb")
    files = [tmp_path / f"{i}.snb" for i in range(1, 9)]
    for i, file in enumerate(files, 1):
        run("fit", folder, *columns, "--shard", f"{i}/8", "-o", file)
    said = run("merge", *(files[:2] + files[3:]), files[4], "-o", tmp_path / "part.snb")
    assert "note: 7 of 8 shards; missing 3\n" in said
    assert f"note: shard 5 of 8 came before, counted once - {files[4]}" in said
    assert "missing 3" in run("finish", tmp_path / "part.snb", "-o", tmp_path / "model.snb")
    said = run("merge", tmp_path / "part.snb", files[2], "-o", tmp_path / "all.snb")
    assert "missing" not in said
    assert (tmp_path / "all.snb").read_bytes() == (tmp_path / "whole.snb").read_bytes()
    assert "expected I/N with I from 1 to N" in run("fit", folder, *columns, "--shard", "9/8", "-o", "x", code=2)
