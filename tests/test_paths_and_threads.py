"""What a person's terminal, a pipe, threads and other processes meet: no secrets, no control codes, no lost counts."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamnb as snb

SCHEMA = snb.Schema(label="y", numeric=["x"], categorical=["c"])


def rows(seed: int, n: int = 2000) -> pa.Table:
    """Rows of two classes, a number and a category."""
    draw = np.random.default_rng(seed)
    y = draw.choice(["a", "b"], n)
    return pa.table({"y": y, "x": draw.normal(size=n) + (y == "a"), "c": draw.choice(["p", "q", "r"], n)})


def counted(seed: int) -> bytes:
    """The state of some rows, as bytes."""
    state = snb.State(SCHEMA)
    state.update(rows(seed))
    return bytes(state.to_bytes())


URIS = [
    "foo://AKIA:sEcReT@bucket/rows",
    "foo://AKIA:sE/cReT@bucket/rows",
    "foo://bucket/rows?sig=sEcReT&x=1",
    "foo://bucket/rows?AWS_SECRET_ACCESS_KEY=sEcReT",
    "gs://AKIA:sEcReT@bucket/rows?session_token=sEcReT",
]


@pytest.mark.parametrize("uri", URIS)
def test_secrets_of_a_uri_are_not_printed(uri: str) -> None:
    """Neither in the message nor in what a traceback would show of its cause."""
    with pytest.raises(snb.errors.SourceError) as caught:
        snb.fit(uri, label="y")
    message = str(caught.value)
    assert "cReT" not in message
    assert "***" in message
    assert "bucket/rows" in message
    assert "\n" not in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_no_control_codes_in_what_is_no_terminal(tmp_path: Path) -> None:
    """Progress and errors of a process whose stderr is a file are plain text."""
    pq.write_table(rows(0), tmp_path / "rows.parquet")
    arguments = ["fit", str(tmp_path / "rows.parquet"), "--label", "y", "-o", str(tmp_path / "state.snb")]
    for extra in ([], ["--numeric", "gone"]):
        run = subprocess.run(
            [sys.executable, "-m", "streamnb", *arguments, *extra],
            capture_output=True,
            check=False,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        assert run.returncode == bool(extra)
        assert all(byte >= 32 or byte == 10 for byte in run.stdout + run.stderr)


def test_one_predictor_in_eight_threads() -> None:
    """All give the answer of one thread, and nothing in the model grows with the rows."""
    model = snb.State.from_bytes(counted(0)).finish()
    tables = [rows(seed, 1 if seed % 2 else 3000) for seed in range(40)]
    expected = [model.predict_proba(table) for table in tables]
    before = model.to_bytes()
    with ThreadPoolExecutor(8) as pool:
        for found, right in zip(pool.map(model.predict_proba, tables * 5), expected * 5, strict=True):
            assert np.array_equal(found, right)
    assert model.to_bytes() == before


def test_states_in_threads_share_nothing() -> None:
    """Eight states are counted at once, each as if it were alone."""
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(counted, range(24))) == [counted(seed) for seed in range(24)]


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_other_processes_count_the_same(way: str) -> None:
    """Also started anew; a state crosses as bytes."""
    with multiprocessing.get_context(way).Pool(2) as pool:
        states = pool.map(in_process, range(2))
    assert states == [counted(seed) for seed in range(2)]


def in_process(seed: int) -> bytes:
    """What a worker process runs."""
    return counted(seed)


def test_a_forked_process_counts_and_fits(tmp_path: Path) -> None:
    """A fork of a process that has used threads begins with none of them and does not wait for them."""
    pq.write_table(rows(0), tmp_path / "rows.parquet")
    program = """
import os, sys, streamnb as snb
schema = snb.Schema(label="y", numeric=["x"], categorical=["c"])
before = snb.fit(sys.argv[1], schema=schema).to_bytes()
child = os.fork()
if not child:
    state = snb.State.from_bytes(before)
    os._exit(0 if state.to_bytes() == before and len(state.finish().classes) == 2 else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([sys.executable, "-c", program, tmp_path / "rows.parquet"], check=True, timeout=60)


def test_a_callback_that_raises_ends_fit_cleanly(tmp_path: Path) -> None:
    """Its own error comes out, no thread stays, and the checkpoint holds what was counted."""
    (tmp_path / "data").mkdir()
    for i in range(8):
        pq.write_table(rows(i), tmp_path / "data" / f"part-{i}.parquet")
    calls = 0

    def report(_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise LookupError("of the caller")

    threads = threading.active_count()
    run = tmp_path / "run.snb"
    with pytest.raises(LookupError, match="of the caller"):
        snb.fit(tmp_path / "data", schema=SCHEMA, progress=report, checkpoint=run, workers=2)
    assert threading.active_count() <= threads
    assert len(snb.State.load(run).ledger) == 3
    resumed = snb.fit(tmp_path / "data", schema=SCHEMA, checkpoint=run, resume=True)
    assert resumed.to_bytes() == snb.fit(tmp_path / "data", schema=SCHEMA).to_bytes()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_no_files_or_threads_are_left_after_many_runs(tmp_path: Path) -> None:
    """Thirty fits, saves, loads and scores: the numbers of open files and threads do not grow."""
    path = tmp_path / "rows.parquet"
    pq.write_table(rows(0), path)

    def once() -> None:
        snb.fit(path, schema=SCHEMA).save(tmp_path / "state.snb")
        snb.predict(snb.State.load(tmp_path / "state.snb"), path, tmp_path / "scored.parquet")

    for _ in range(5):
        once()
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208
    for _ in range(30):
        once()
    gc.collect()
    after = len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208
    assert after <= before
