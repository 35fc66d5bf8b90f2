"""`fit`: the same bytes for any schedule, any crash and any resume; and errors that say where."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from strategies import assert_agree

import streamnb as snb
from streamnb import train
from streamnb.progress import Progress
from streamnb.sources import open_source
from streamnb.sufficient import SufficientStatistics

SCHEMA = snb.Schema(label="y", numeric=["far", "near"], categorical=["site"], binary=["flag"], counts=["bees"])


def rows(seed: int, n: int = 500) -> pa.Table:
    """Make rows of every kind of column: values far from 0, missing cells, labels that are missing."""
    rng = np.random.default_rng(seed)
    label = rng.choice(["a", "b", "c"] if seed % 3 else ["a", "d"], n)
    missing = rng.random(n) < 0.1
    return pa.table(
        {
            "far": pa.array(1e9 + rng.normal(size=n), mask=missing),
            "near": rng.normal(size=n),
            "site": pa.array(rng.choice(["north", "south", f"only in {seed}"], n), mask=np.roll(missing, 1)),
            "flag": rng.random(n) < 0.4,
            "bees": rng.poisson(3.0, n),
            "y": pa.array(label, mask=rng.random(n) < 0.02),
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a dozen files, two of them in several row groups."""
    data = tmp_path / "data"
    data.mkdir()
    for i in range(12):
        pq.write_table(rows(i), data / f"part-{i:02}.parquet", row_group_size=200 if i in (3, 7) else 500)
    return data


class Backwards:
    """An engine that counts the last shard first, as a fast reader of late shards would."""

    def map(self, task: Callable[[Any], Any], shards: Iterable[Any]) -> Iterator[Any]:
        """Apply the task from the last shard to the first, and hand the results back in order."""
        listed = list(shards)
        return iter([task(shard) for shard in reversed(listed)][::-1])


# The same bytes -----------------------------------------------------------------------------------------------------


def test_workers_and_schedules_do_not_change_a_byte(folder: Path) -> None:
    """One, two or four workers, an engine that works backwards, either reader: the bytes are the same."""
    expected = snb.fit(folder, schema=SCHEMA, workers=1).to_bytes()
    for workers in (2, 4):
        assert snb.fit(folder, schema=SCHEMA, workers=workers).to_bytes() == expected
    assert snb.fit(folder, schema=SCHEMA, engine=Backwards()).to_bytes() == expected
    assert snb.fit(folder, schema=SCHEMA, verify_checksums=True).to_bytes() == expected


def test_both_readers_give_the_same_bytes_for_large_files(tmp_path: Path) -> None:
    """Files large enough for Polars give the bytes that PyArrow alone gives."""
    rng = np.random.default_rng(0)
    n = 200_000
    table = pa.table({"y": rng.integers(3, size=n), "x": rng.normal(size=n), "z": rng.normal(size=n).astype("f4")})
    pq.write_table(table, tmp_path / "large.parquet", row_group_size=70_001)
    fast = snb.fit(tmp_path / "large.parquet", label="y", workers=2)
    assert fast.to_bytes() == snb.fit(tmp_path / "large.parquet", label="y", verify_checksums=True).to_bytes()


def test_paths_of_any_form_give_the_same_bytes(folder: Path) -> None:
    """A folder, a glob and a list of files are the same source."""
    expected = snb.fit(folder, schema=SCHEMA).to_bytes()
    assert snb.fit(f"{folder}/part-*.parquet", schema=SCHEMA).to_bytes() == expected
    assert snb.fit(sorted(folder.iterdir()), schema=SCHEMA).to_bytes() == expected


def test_a_fit_is_the_plain_loop(folder: Path) -> None:
    """Counting each shard batch by batch and merging in order gives the same state, ledger and all."""
    total = snb.State(SCHEMA)
    for shard in open_source(folder).shards():
        part = snb.State(SCHEMA, shard=shard.id)
        for batch in shard.batches(SCHEMA.columns, SCHEMA.batch_rows):
            part.update(batch)
        total.merge(part)
    fitted = snb.fit(folder, schema=SCHEMA)
    assert fitted.digest() == total.digest()
    assert fitted.ledger == total.ledger
    # And so a shard that was counted by hand and one that was fitted are the same shard.
    fitted.merge(total)
    assert fitted.digest() == total.digest()


def test_a_fit_agrees_with_all_rows_in_one_batch(folder: Path) -> None:
    """The files together give what one update with all their rows gives."""
    state = snb.State(SCHEMA)
    state.update(pa.concat_tables([pq.read_table(path) for path in sorted(folder.iterdir())]))
    assert_agree(snb.fit(folder, schema=SCHEMA), state, moments=1e-9)


def test_merging_the_same_fit_twice_counts_once(folder: Path) -> None:
    """A state knows the shards in it; a repeated fit of the same files adds nothing."""
    state = snb.fit(folder, schema=SCHEMA)
    expected = state.to_bytes()
    state.merge(snb.fit(folder, schema=SCHEMA, workers=1))
    assert state.to_bytes() == expected
    assert (state + state).n_rows == state.n_rows


def test_fits_of_disjoint_files_add_up(folder: Path) -> None:
    """Two fits over two halves, merged in either order, are the fit over all: counts exactly, moments to 1e-12."""
    files = sorted(folder.iterdir())
    one, two = (snb.fit(half, schema=SCHEMA) for half in (files[:5], files[5:]))
    whole = snb.fit(files, schema=SCHEMA)
    assert_agree(one + two, whole, moments=1e-12)
    assert (one + two).to_bytes() == (two + one).to_bytes()
    assert (one + two).ledger == whole.ledger


def test_overlapping_fits_are_refused(folder: Path) -> None:
    """Two states that share a file, and each hold others too, cannot be told apart: an error, not a double count."""
    files = sorted(folder.iterdir())
    one, two = snb.fit(files[:3], schema=SCHEMA), snb.fit(files[2:5], schema=SCHEMA)
    with pytest.raises(snb.MergeError, match=r"part-02\.parquet.* in two that also hold others"):
        one.merge(two)


def test_a_file_listed_twice_counts_once(folder: Path) -> None:
    """The same file by its name, under a glob and through a link in the path is one file."""
    name = folder / "part-00.parquet"
    once = snb.fit(name, schema=SCHEMA).to_bytes()
    assert snb.fit([name, str(name), f"{folder}/*-00.parquet"], schema=SCHEMA).to_bytes() == once
    assert snb.fit([name, folder / ".." / "data" / "part-00.parquet"], schema=SCHEMA).to_bytes() == once


def test_rows_of_a_table_beside_files_are_not_lost_in_a_merge(folder: Path) -> None:
    """Rows without a name are added each time, whatever named files stand beside them."""
    name = folder / "part-00.parquet"
    states = [snb.fit([name, rows(seed)], schema=SCHEMA) for seed in (20, 21)]
    expected = snb.fit([pq.read_table(name), rows(20), rows(21)], schema=SCHEMA)
    assert_agree(states[0] + states[1], expected)


# Checkpoints --------------------------------------------------------------------------------------------------------

DRIVER = """
import sys, time
import streamnb as snb
from streamnb import train
from streamnb.cli import main

train.CHECKPOINT_SECONDS = 0.0      # after each shard, so that a kill often falls into the writing
count, seconds = train.accumulate, float(sys.argv.pop(1))

def slowly(schema, on_error, shard):
    time.sleep(seconds)
    counted = count(schema, on_error, shard)
    print(shard.id, flush=True)
    return counted

train.accumulate = slowly
main()
"""
OPTIONS = ["--label", "y", "--numeric", "far,near", "--categorical", "site", "--binary", "flag", "--counts", "bees"]


def start(folder: Path, checkpoint: Path, output: Path, *more: str, seconds: float) -> subprocess.Popen[str]:
    """Start a fit on the command line that says on stdout which shard it has counted."""
    command = [sys.executable, "-c", DRIVER, str(seconds), "fit", str(folder), *OPTIONS, "-o", str(output)]
    return subprocess.Popen(
        [*command, "--checkpoint", str(checkpoint), "--workers", "2", *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(train.__file__).parent.parent,
    )


def wait_for(run: subprocess.Popen[str], shards: int) -> None:
    """Return when a run has counted so many shards."""
    assert run.stdout is not None
    for _ in range(shards):
        assert run.stdout.readline(), run.stderr.read() if run.stderr else ""


def test_killed_again_and_again_a_run_ends_with_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    """SIGKILL at several moments, then resume: the state is that of an undisturbed run, to the byte."""
    checkpoint, output = tmp_path / "run.snb", tmp_path / "state.snb"
    moments = random.Random(7)
    kills = 0
    while kills < 3:
        run = start(folder, checkpoint, output, "--resume", seconds=0.005)
        wait_for(run, moments.randint(1, 4))
        time.sleep(moments.random() * 0.02)
        run.kill()
        run.communicate()
        assert run.returncode in (0, -signal.SIGKILL)
        if run.returncode == 0:
            break
        kills += 1
        if checkpoint.exists():
            held = snb.State.load(checkpoint)  # whole at any moment
            assert sorted(held.ledger) == list(held.ledger)
    assert kills >= 2
    resumed = snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, resume=True)
    expected = snb.fit(folder, schema=SCHEMA, workers=1)
    assert resumed.to_bytes() == expected.to_bytes()
    assert checkpoint.read_bytes() == expected.to_bytes()
    # What a kill in the middle of writing leaves has a name of its own, and goes with a later writing.
    left = {path.name for path in tmp_path.iterdir()} - {"data", "run.snb", "state.snb"}
    assert all(re.fullmatch(r"\.run\.snb\.[0-9a-f]{16}\.tmp", name) for name in left)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_interrupt_leaves_a_checkpoint(folder: Path, tmp_path: Path, workers: str) -> None:
    """Ctrl-C ends a run with one line and a checkpoint that loads; no thread prints a traceback."""
    checkpoint, output = tmp_path / "run.snb", tmp_path / "state.snb"
    run = start(folder, checkpoint, output, "--workers", workers, seconds=0.05)
    wait_for(run, 4)
    os.kill(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 1
    assert errors.splitlines() == [
        f"error: interrupted; {checkpoint} holds what was counted, the same line with --resume goes on from it"
    ]
    assert not output.exists()
    held = snb.State.load(checkpoint)
    # Four shards were begun: each worker may hold one, and one more may wait to be merged.
    assert 3 - int(workers) <= len(held.ledger) < 12
    resumed = snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, resume=True)
    assert resumed == snb.fit(folder, schema=SCHEMA)


class Interrupting:
    """A progress function that stops a run after some shards, as Ctrl-C would."""

    def __init__(self, shards: int) -> None:
        self.left = shards

    def __call__(self, progress: Progress) -> None:
        """Count down."""
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def interrupted(folder: Path, checkpoint: Path, shards: int = 6) -> None:
    """Leave a checkpoint of the first shards."""
    with pytest.raises(KeyboardInterrupt):
        snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, progress=Interrupting(shards), workers=2)
    assert len(snb.State.load(checkpoint).ledger) == shards


def test_a_resume_counts_only_what_is_left(folder: Path, tmp_path: Path) -> None:
    """What the checkpoint holds is not read again; and resuming a finished run reads nothing."""
    checkpoint = tmp_path / "run.snb"
    interrupted(folder, checkpoint)
    seen: list[Progress] = []
    state = snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, resume=True, progress=seen.append)
    assert len(seen) == 6
    assert (seen[-1].rows, seen[-1].size) == (3000, seen[-1].total_size)
    assert state == snb.fit(folder, schema=SCHEMA)
    again = snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, resume=True, progress=seen.append)
    assert len(seen) == 6
    assert again == state == snb.State.load(checkpoint)


def test_resume_without_a_checkpoint_yet_starts_anew(folder: Path, tmp_path: Path) -> None:
    """The same line can be given from the first start on."""
    state = snb.fit(folder, schema=SCHEMA, checkpoint=tmp_path / "run.snb", resume=True)
    assert state == snb.fit(folder, schema=SCHEMA)
    with pytest.raises(ValueError, match="Expected checkpoint= with resume=True, got none"):
        snb.fit(folder, schema=SCHEMA, resume=True)


def test_a_checkpoint_that_is_there_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    """Without resume a checkpoint is refused before a row is counted, and stays as it is."""
    checkpoint = tmp_path / "run.snb"
    interrupted(folder, checkpoint)
    before = checkpoint.read_bytes()
    with pytest.raises(snb.SourceError, match=r"Expected no checkpoint yet, got .*run\.snb; go on .* resume=True"):
        snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint)
    assert checkpoint.read_bytes() == before


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (snb.Schema("y", numeric=["far", "near"], categorical=["site"], counts=["bees"]), "column 'flag'"),
        (snb.Schema("y", numeric=["near"], categorical=["site"], binary=["flag"], counts=["bees"]), "column 'far'"),
        (snb.Schema(**{**SCHEMA.__dict__, "infinite": "missing"}), "infinite='missing'"),
        (snb.Schema(**{**SCHEMA.__dict__, "numeric": ["near", "far"]}), "Expected the schema of the checkpoint"),
    ],
)
def test_a_resume_with_another_schema_is_refused(folder: Path, tmp_path: Path, other: snb.Schema, message: str) -> None:
    """A checkpoint of other columns, options or another order of columns is not gone on from."""
    checkpoint = tmp_path / "run.snb"
    interrupted(folder, checkpoint)
    with pytest.raises((snb.SchemaError, snb.MergeError), match=message):
        snb.fit(folder, schema=other, checkpoint=checkpoint, resume=True)


def test_a_checkpoint_of_anything_else_is_refused(folder: Path, tmp_path: Path) -> None:
    """A file that is no state is refused as one, before a row is counted."""
    (tmp_path / "run.snb").write_bytes(b"something else")
    with pytest.raises(snb.FileFormatError, match=r"run\.snb"):
        snb.fit(folder, schema=SCHEMA, checkpoint=tmp_path / "run.snb", resume=True)


@pytest.mark.parametrize("n", [500, 300], ids=["other values", "other rows"])
def test_a_changed_file_ends_a_resume(folder: Path, tmp_path: Path, n: int) -> None:
    """A file that was counted and has changed since is named."""
    checkpoint = tmp_path / "run.snb"
    interrupted(folder, checkpoint)
    pq.write_table(rows(99, n), folder / "part-02.parquet")
    with pytest.raises(snb.SourceError, match=r"got a file that is changed since: .*part-02\.parquet"):
        snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, resume=True)


def test_a_removed_file_ends_a_resume(folder: Path, tmp_path: Path) -> None:
    """A file that was counted and is gone is named."""
    checkpoint = tmp_path / "run.snb"
    interrupted(folder, checkpoint)
    (folder / "part-02.parquet").unlink()
    with pytest.raises(snb.SourceError, match=r"got a file that is gone since: .*part-02\.parquet"):
        snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, resume=True)


def test_an_added_file_ends_a_resume_only_where_it_would_change_the_order(folder: Path, tmp_path: Path) -> None:
    """A new file before what was counted is named; one that comes after is simply counted."""
    checkpoint = tmp_path / "run.snb"
    interrupted(folder, checkpoint)
    pq.write_table(rows(77), folder / "part-99.parquet")
    kept = checkpoint.read_bytes()
    state = snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, resume=True)
    assert state == snb.fit(folder, schema=SCHEMA)
    checkpoint.write_bytes(kept)
    pq.write_table(rows(78), folder / "part-02-b.parquet")
    with pytest.raises(snb.SourceError, match=r"got a file that was not counted then: .*part-02-b\.parquet"):
        snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, resume=True)


def test_a_stream_has_no_checkpoint(tmp_path: Path) -> None:
    """A stream cannot be read from the middle, and the message says so."""
    with pytest.raises(snb.SourceError, match="got a stream, which cannot be read from the middle"):
        snb.fit(rows(1), schema=SCHEMA, checkpoint=tmp_path / "run.snb")


def test_an_error_on_the_way_leaves_what_was_counted(folder: Path, tmp_path: Path) -> None:
    """After an error in a late file the checkpoint holds the shards before it; mended, the run goes on."""
    late = folder / "part-10.parquet"
    good = pq.read_table(late)
    pq.write_table(good.set_column(1, "near", pa.array([float("inf")] * 500)), late)
    with pytest.raises(snb.DataError, match=r"part-10\.parquet"):
        snb.fit(folder, schema=SCHEMA, checkpoint=tmp_path / "run.snb", workers=2)
    assert len(snb.State.load(tmp_path / "run.snb").ledger) == 10
    pq.write_table(good, late)
    assert snb.fit(folder, schema=SCHEMA, checkpoint=tmp_path / "run.snb", resume=True) == snb.fit(
        folder, schema=SCHEMA
    )


def test_the_checkpoint_is_written_on_the_way(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint grows while the run goes on, not only at its end."""
    monkeypatch.setattr(train, "CHECKPOINT_SECONDS", 0.0)
    lengths = []

    def look(_: Progress) -> None:
        lengths.append(len(snb.State.load(tmp_path / "run.snb").ledger))

    snb.fit(folder, schema=SCHEMA, checkpoint=tmp_path / "run.snb", progress=look)
    assert lengths == list(range(1, 13))


# Damage -------------------------------------------------------------------------------------------------------------


def damage(path: Path, at: float) -> None:
    """Overwrite some bytes in a file's pages, about `at` (0 to 1) of the way; the footer stays whole."""
    content = bytearray(path.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little") + 8
    middle = int((len(content) - footer) * at)
    content[middle : middle + 200] = b"\xff" * 200
    path.write_bytes(content)


def test_a_damaged_file_is_skipped_whole(tmp_path: Path) -> None:
    """With on_error="skip" a file that breaks in its third batch is reported, and none of its rows are counted."""
    rng = np.random.default_rng(1)
    for name in ("a", "b", "c"):
        n = 150_000
        table = pa.table({"y": rng.choice(["u", "v"], n), "x": rng.normal(size=n)})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=65_536, write_page_checksum=True)
    expected = snb.fit([tmp_path / "a.parquet", tmp_path / "c.parquet"], label="y", verify_checksums=True)
    damage(tmp_path / "b.parquet", at=0.9)
    with pytest.raises(snb.SourceError, match=r"damaged one: .*b\.parquet.*row group 2"):
        snb.fit(tmp_path, label="y", verify_checksums=True)
    with pytest.warns(snb.SkippedWarning, match=r"damaged one: .*b\.parquet.*row group 2") as caught:
        state = snb.fit(tmp_path, label="y", verify_checksums=True, on_error="skip", workers=2)
    assert len(caught) == 1
    assert state.to_bytes() == expected.to_bytes()


def test_a_file_cut_short_is_skipped(folder: Path) -> None:
    """A file without its end is reported before anything is counted."""
    whole = (folder / "part-05.parquet").read_bytes()
    (folder / "part-05.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(snb.SourceError, match=r"without a footer.*part-05\.parquet"):
        snb.fit(folder, schema=SCHEMA)
    with pytest.warns(snb.SkippedWarning, match=r"part-05\.parquet"):
        state = snb.fit(folder, schema=SCHEMA, on_error="skip")
    others = [path for path in sorted(folder.iterdir()) if path.name != "part-05.parquet"]
    assert state == snb.fit(others, schema=SCHEMA)


def test_a_skipped_file_stays_skipped_over_a_resume(folder: Path, tmp_path: Path) -> None:
    """A run with a skipped file among the counted ones can be resumed, and ends as the undisturbed one."""
    (folder / "part-02.parquet").write_bytes(b"PAR1 nothing of the kind PAR1")
    checkpoint = tmp_path / "run.snb"
    with pytest.raises(KeyboardInterrupt), pytest.warns(snb.SkippedWarning):
        snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, progress=Interrupting(5), on_error="skip")
    with pytest.warns(snb.SkippedWarning, match=r"part-02\.parquet"):
        state = snb.fit(folder, schema=SCHEMA, checkpoint=checkpoint, resume=True, on_error="skip")
    assert len(state.ledger) == 11
    others = [path for path in sorted(folder.iterdir()) if path.name != "part-02.parquet"]
    assert state == snb.fit(others, schema=SCHEMA)


def test_what_was_skipped_is_reported_again_by_a_resume(folder: Path, tmp_path: Path) -> None:
    """A file that stands among the counted ones and is not counted is never left out in silence."""
    checkpoint = tmp_path / "run.snb"
    table = pq.read_table(folder / "part-02.parquet")
    pq.write_table(table, folder / "part-02.parquet", write_page_checksum=True)
    damage(folder / "part-02.parquet", at=0.5)
    options: dict[str, Any] = {"schema": SCHEMA, "checkpoint": checkpoint, "on_error": "skip"}
    with pytest.raises(KeyboardInterrupt), pytest.warns(snb.SkippedWarning, match=r"damaged.*part-02\.parquet"):
        snb.fit(folder, progress=Interrupting(6), verify_checksums=True, **options)
    with pytest.warns(snb.SkippedWarning, match=r"not counted then: .*part-02\.parquet"):
        state = snb.fit(folder, resume=True, verify_checksums=True, **options)
    others = [path for path in sorted(folder.iterdir()) if path.name != "part-02.parquet"]
    assert state == snb.fit(others, schema=SCHEMA)


def test_skipping_is_for_damage_not_for_values(folder: Path) -> None:
    """A value that makes no sense is an error also with on_error="skip"; other words are refused."""
    table = rows(1).set_column(1, "near", pa.array([float("-inf")] * 500))
    pq.write_table(table, folder / "part-01.parquet")
    with pytest.raises(snb.DataError, match=r"-inf.*part-01\.parquet"):
        snb.fit(folder, schema=SCHEMA, on_error="skip")
    with pytest.raises(ValueError, match="Expected on_error='raise' or 'skip', got 'ignore'"):
        snb.fit(folder, schema=SCHEMA, on_error="ignore")  # type: ignore[arg-type]


def test_a_file_that_changes_during_the_run_is_an_error(folder: Path) -> None:
    """Rows of two versions of a file never mix: a file that was planned and has changed is named."""

    def rewrite(progress: Progress) -> None:
        if progress.rows == 500:
            pq.write_table(rows(55, 501), folder / "part-11.parquet")

    with pytest.raises(snb.SourceError, match=r"changed since - .*part-11\.parquet"):
        snb.fit(folder, schema=SCHEMA, progress=rewrite, workers=1)


# Where an error is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("x", float("inf"), r"Expected a finite number, got inf \(.*b\.parquet, row group 2, row 2345\) - column 'x'"),
        ("bees", -1.0, r"got -1.*b\.parquet, row group 2, row 2345\) - column 'bees'"),
        ("flag", 7.0, r"Expected 0 or 1, got 7.*b\.parquet, row group 2, row 2345\) - column 'flag'"),
        ("w", -0.5, r"Expected a weight of at least 0, got -0\.5 \(.*b\.parquet, row group 2, row 2345\) - column 'w'"),
    ],
)
def test_an_error_names_file_row_group_row_and_column(tmp_path: Path, column: str, value: float, message: str) -> None:
    """A value in the third row group of the second file is found by what the message says."""
    n = 3000
    columns = {"x": np.zeros(n), "bees": np.ones(n), "flag": np.zeros(n), "w": np.ones(n)}
    pq.write_table(pa.table({**columns, "y": ["u"] * n}), tmp_path / "a.parquet")
    columns[column][2345] = value
    # Rows without a label before it must not shift the row that is named.
    label = pa.array(["u"] * n, mask=np.arange(n) % 7 == 1)
    pq.write_table(pa.table({**columns, "y": label}), tmp_path / "b.parquet", row_group_size=1000)
    schema = snb.Schema("y", numeric=["x"], counts=["bees"], binary=["flag"], weight="w")
    with pytest.raises(snb.DataError, match=message):
        snb.fit(tmp_path, schema=schema)


def test_an_error_in_a_late_batch_names_its_row(tmp_path: Path) -> None:
    """Rows are counted through the batches of a shard, and through the shards of a file."""
    n = 200_000
    x = np.zeros(n)
    x[150_000] = np.inf
    table = pa.table({"y": np.zeros(n, np.int8), "x": x})
    pq.write_table(table, tmp_path / "late.parquet", row_group_size=60_000)
    with pytest.raises(snb.DataError, match=r"late\.parquet, row group 2, row 150000\)"):
        snb.fit(tmp_path / "late.parquet", label="y")
    with pytest.raises(snb.DataError, match=r"row 150000 of the pyarrow Table\)"):
        snb.fit(table, label="y")


def test_a_column_that_a_file_lacks_is_named(folder: Path) -> None:
    """The message gives the column, the file, and the names that come close."""
    lacking = rows(4).rename_columns(["far", "neer", "site", "flag", "bees", "y"])
    pq.write_table(lacking, folder / "part-04.parquet")
    with pytest.raises(snb.SchemaError, match=r"column 'near'.*did you mean 'neer'\?.*part-04\.parquet|near"):
        snb.fit(folder, schema=SCHEMA)


def test_labels_of_another_type_in_a_late_file_are_named(folder: Path) -> None:
    """Files whose labels do not go together are refused before anything is counted."""
    table = rows(4)
    pq.write_table(table.set_column(5, "y", pa.array([1] * 500)), folder / "part-04.parquet")
    with pytest.raises(snb.SchemaError, match=r"column 'y'.*string.*int64.*part-04\.parquet"):
        snb.fit(folder, schema=SCHEMA)


def test_what_to_count_is_said_once() -> None:
    """Either schema= or label= with options, not both and not neither."""
    with pytest.raises(snb.SchemaError, match="Expected schema= or label=, got neither"):
        snb.fit(rows(1))
    with pytest.raises(snb.SchemaError, match="got both: label, exclude"):
        snb.fit(rows(1), label="y", schema=SCHEMA, exclude=["far"])


# Sources ------------------------------------------------------------------------------------------------------------


def test_progress_grows(folder: Path) -> None:
    """A progress function sees rows and bytes that only grow, up to all of them."""
    seen: list[Progress] = []
    snb.fit(folder, schema=SCHEMA, progress=seen.append, workers=4)
    assert [progress.rows for progress in seen] == [500 * i for i in range(1, 13)]
    sizes = [progress.size for progress in seen]
    assert sizes == sorted(sizes)
    assert sizes[-1] == seen[-1].total_size == sum(path.stat().st_size for path in folder.iterdir())
    assert all(progress.rows_per_second > 0 for progress in seen)


def test_a_stream_is_read_once() -> None:
    """Record batches that cannot be read twice are counted in one pass."""
    table = pa.concat_tables([rows(i) for i in range(4)])
    stream = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=77))
    state = snb.fit(stream, schema=SCHEMA)
    assert state == snb.fit(table, schema=SCHEMA)
    # What has been read is gone; a state without rows says so when it is finished.
    with pytest.raises(snb.EmptyStateError, match="got a state without training rows"):
        snb.fit(stream, schema=SCHEMA).finish()


def _lazy(folder: Path) -> Any:
    return pl.scan_parquet(folder / "*.parquet")


def _dataset(folder: Path) -> Any:
    return ds.dataset(folder)


def _filtered(folder: Path) -> Any:
    return ds.dataset(folder).filter(ds.field("near") > -1e9)


def _relation(folder: Path) -> Any:
    return duckdb.sql(f"select * from read_parquet('{folder}/*.parquet')")


def _frame(folder: Path) -> Any:
    return pl.read_parquet(folder / "*.parquet")


def _pandas(folder: Path) -> Any:
    return pl.read_parquet(folder / "*.parquet").to_pandas()


def _tables(folder: Path) -> Any:
    return [pq.read_table(path) for path in sorted(folder.iterdir())]


@pytest.mark.parametrize("source", [_lazy, _dataset, _filtered, _relation, _frame, _pandas, _tables])
def test_every_kind_of_source_gives_the_same_rows(folder: Path, source: Callable[[Path], Any]) -> None:
    """A lazy query, a dataset, a relation, frames and lists of tables count what the files count."""
    assert_agree(snb.fit(source(folder), schema=SCHEMA), snb.fit(folder, schema=SCHEMA), moments=1e-9)


def test_a_query_is_a_source(folder: Path) -> None:
    """Columns that a query derives are columns."""
    query = pl.scan_parquet(folder / "*.parquet").with_columns(wide=pl.col("near") * 10).filter(pl.col("flag"))
    state = snb.fit(query, label="y", exclude=["flag", "far"], counts=["bees"])
    assert state.schema.numeric == ("near", "wide")
    assert state.n_rows == query.filter(pl.col("y").is_not_null()).collect().height


def test_hive_folders_are_columns(tmp_path: Path) -> None:
    """Folders key=value become categorical columns, or numbers where the schema asks for them."""
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        table = pa.table({"y": ["a", "b"] * 20, "x": np.arange(40.0)})
        pq.write_table(table, tmp_path / f"year={year}" / "part.parquet")
    assert snb.fit(tmp_path, label="y").schema.categorical == ("year",)
    numeric = snb.fit(tmp_path, label="y", numeric=["year"])
    means = {row["class"]: row["mean"] for row in numeric.to_table().to_pylist() if row["feature"] == "year"}
    assert means == {"a": 2023.5, "b": 2023.5}


def test_an_empty_file_adds_nothing(folder: Path) -> None:
    """A file without rows is legal anywhere; files without any row leave an empty state."""
    expected = snb.fit(folder, schema=SCHEMA)
    pq.write_table(rows(1).slice(0, 0), folder / "part-03-empty.parquet")
    assert_agree(snb.fit(folder, schema=SCHEMA), expected, moments=0.0)
    empty = snb.fit(folder / "part-03-empty.parquet", schema=SCHEMA)
    assert empty.n_rows == 0
    with pytest.raises(snb.EmptyStateError):
        empty.finish()


def test_a_column_that_a_file_lacks_is_never_dropped_in_silence(tmp_path: Path) -> None:
    """What is counted is chosen by types only where every file has the column; else the file is named."""
    pq.write_table(pa.table({"y": ["a", "b"], "x": [1.0, 2.0], "z": [1.0, 2.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": ["a", "b"], "x": [1.0, 2.0]}), tmp_path / "b.parquet")
    for source in (tmp_path, [pl.read_parquet(tmp_path / f"{name}.parquet") for name in "ab"]):
        with pytest.raises(
            snb.SchemaError, match=r"column 'z' in every file.*(b\.parquet|source 1); .*exclude=\['z'\]"
        ):
            snb.fit(source, label="y")
        state = snb.fit(source, label="y", exclude=["z"])
        assert state.schema.features == ("x",)
        assert state.n_rows == 4


# Resources ----------------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow holds as much for sixteen row groups as for two: batches come and go."""
    rng = np.random.default_rng(0)
    group = pa.table({"y": rng.integers(4, size=131_072), **{f"x{i}": rng.normal(size=131_072) for i in range(4)}})
    held: list[int] = []
    update = SufficientStatistics.update

    def watched(self: SufficientStatistics, batch: pa.RecordBatch) -> None:
        held.append(pa.total_allocated_bytes())
        update(self, batch)

    monkeypatch.setattr(SufficientStatistics, "update", watched)
    peaks = []
    for groups in (2, 16):
        path = tmp_path / f"{groups}.parquet"
        with pq.ParquetWriter(path, group.schema) as writer:
            for _ in range(groups):
                writer.write_table(group)
        held.clear()
        before = pa.total_allocated_bytes()
        state = snb.fit(path, label="y", workers=1)
        assert state.n_rows == groups * 131_072
        assert len(held) == groups
        peaks.append(max(held) - before)
    assert peaks[1] <= 1.5 * peaks[0] + (8 << 20)
    assert peaks[1] < 32 << 20


def test_no_thread_is_left(folder: Path) -> None:
    """After a fit, and after one that failed, no worker thread is left."""
    before = threading.active_count()
    snb.fit(folder, schema=SCHEMA, workers=4)
    pq.write_table(rows(1).set_column(1, "near", pa.array([float("inf")] * 500)), folder / "part-01.parquet")
    with pytest.raises(snb.DataError):
        snb.fit(folder, schema=SCHEMA, workers=4)
    assert [thread for thread in threading.enumerate() if thread.name.startswith("streamnb")] == []
    assert threading.active_count() <= before + 1


def test_no_warning_without_reason(folder: Path) -> None:
    """A sound run is silent."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        snb.fit(folder, schema=SCHEMA, on_error="skip")
    assert caught == []
