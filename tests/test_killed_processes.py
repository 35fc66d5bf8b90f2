"""Processes that are killed, disks that are full, writers that collide: the old file or the new one is there, whole.

The command line runs as processes and gets SIGKILL at seeded moments of its whole length, from the first import to the
last rename. After each kill the output is the old one or the new one, to the byte; the run that is let through then
ends with the bytes of an undisturbed one. STREAMNB_KILLS=200 kills each command as often.
"""

from __future__ import annotations

import errno
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamnb as snb
from streamnb import atomic

KILLS = int(os.environ.get("STREAMNB_KILLS", "3"))
ROOT = Path(__file__).parent.parent
SCHEMA = snb.Schema(label="y", numeric=["x", "z"])
LEFTOVER = re.compile(r"\.[a-z.]+\.[0-9a-f]{16}\.tmp")

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")


def rows(seed: int, n: int = 20_000) -> pa.Table:
    """Rows of two classes and two numbers."""
    draw = np.random.default_rng(seed)
    return pa.table({"y": draw.choice(["a", "b"], n), "x": draw.normal(size=n), "z": draw.normal(size=n)})


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data, two states of it and a model."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "data").mkdir()
    for i in range(6):
        pq.write_table(rows(i), folder / "data" / f"part-{i}.parquet")
    for i in (1, 2):
        snb.fit(folder / "data", schema=SCHEMA, shard=(i, 2)).save(folder / f"half-{i}.snb")
    whole = snb.fit(folder / "data", schema=SCHEMA)
    whole.save(folder / "whole.snb")
    whole.finish().save(folder / "model.snb")
    return folder


SAVE = "import sys, streamnb as snb; snb.State.load(sys.argv[1]).save(sys.argv[2])"
CLI = ["-m", "streamnb"]


@dataclass(frozen=True)
class Job:
    """A process that writes `out` (and `run.snb`, with a checkpoint) in the folder it is given."""

    name: str
    arguments: Callable[[Path, Path], list[str]]


JOBS = [
    Job(
        "fit",
        lambda given, out: [
            *(*CLI, "fit", str(given / "data"), "--label", "y", "--numeric", "x,z", "-o", str(out)),
            *("--checkpoint", str(out.with_name("run.snb")), "--resume"),
        ],
    ),
    Job("merge", lambda given, out: [*CLI, "merge", *(str(given / f"half-{i}.snb") for i in (1, 2)), "-o", str(out)]),
    Job("finish", lambda given, out: [*CLI, "finish", str(given / "whole.snb"), "-o", str(out)]),
    Job(
        "predict",
        lambda given, out: [*CLI, "predict", str(given / "model.snb"), str(given / "data"), "-o", str(out), "--proba"],
    ),
    Job("save", lambda given, out: ["-c", SAVE, str(given / "whole.snb"), str(out)]),
]


def start(arguments: list[str]) -> subprocess.Popen[bytes]:
    """Start a Python process in the project's folder."""
    return subprocess.Popen([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finished(arguments: list[str]) -> float:
    """Run a process to its end; return its seconds."""
    began = time.monotonic()
    with start(arguments) as process:
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said.decode()
    return time.monotonic() - began


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_kill_leaves_the_old_file_or_the_new(job: Job, inputs: Path, tmp_path: Path) -> None:
    """At moments over the whole run; half of them in its last fifth, where files are written."""
    suffix = "parquet" if job.name == "predict" else "snb"
    reference = tmp_path / "reference"
    reference.mkdir()
    seconds = finished(job.arguments(inputs, reference / f"out.{suffix}"))
    new = (reference / f"out.{suffix}").read_bytes()

    out = tmp_path / f"out.{suffix}"
    old = b"what stood here before"
    out.write_bytes(old)
    draw = random.Random(job.name)
    killed = tries = 0
    while killed < KILLS:
        tries += 1
        assert tries <= 20 * KILLS
        process = start(job.arguments(inputs, out))
        time.sleep(seconds * (draw.uniform(0.8, 1.0) if draw.random() < 0.5 else draw.random()))
        process.kill()
        process.communicate()
        if process.returncode:
            killed += 1
        else:
            seconds *= 0.8  # it was at its end before: the machine is less busy than it was at first
        held = out.read_bytes()
        assert held in (old, new)
        if held == new:
            out.write_bytes(old)
        checkpoint = tmp_path / "run.snb"
        if checkpoint.exists():
            assert snb.State.load(checkpoint).schema == SCHEMA
        others = {path.name for path in tmp_path.iterdir()} - {"reference", out.name, "run.snb"}
        assert all(LEFTOVER.fullmatch(name) for name in others)
    # What the dead left is ignored, and cleaned once it is old.
    for path in tmp_path.glob(".*.tmp"):
        os.utime(path, (0, 0))
    (tmp_path / f".{out.name}.{'0' * 16}.tmp").write_bytes(b"half")
    os.utime(tmp_path / f".{out.name}.{'0' * 16}.tmp", (0, 0))
    (tmp_path / "run.snb").unlink(missing_ok=True)
    finished(job.arguments(inputs, out))
    assert out.read_bytes() == new
    assert not list(tmp_path.glob(f".{out.name}.*.tmp"))


# --- what the system refuses ---


def states() -> tuple[snb.State, snb.State]:
    """Two states, the second with more rows."""
    one, two = snb.State(SCHEMA), snb.State(SCHEMA)
    one.update(rows(1, 10))
    two.update(rows(2, 20))
    return one, two


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("call", ["fsync", "write", "replace"])
def test_a_failing_disk_leaves_the_old_file(
    call: str, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state in memory is whole as well: it is saved elsewhere, or later."""
    one, two = states()
    path = tmp_path / "state.snb"
    one.save(path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as broken:
        if call == "fsync":
            broken.setattr(os, "fsync", fail)
        elif call == "replace":
            broken.setattr(Path, "replace", fail)
        else:
            broken.setattr(atomic, "memoryview", fail, raising=False)
        with pytest.raises(snb.errors.SourceError, match=re.escape(f"Cannot write {path}: {os.strerror(number)}")):
            two.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["state.snb"]  # noqa: PTH208
    two.save(path)
    assert snb.State.load(path) == two


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_checkpoint_that_cannot_be_written_ends_the_run_with_one_line(
    number: int, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And with the checkpoint before it, if there was one."""
    checkpoint = tmp_path / "run.snb"

    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(snb.errors.SourceError, match=re.escape(f"Cannot write {checkpoint}: {os.strerror(number)}")):
        snb.fit(inputs / "data", schema=SCHEMA, checkpoint=checkpoint)
    assert not os.listdir(tmp_path)  # noqa: PTH208


def test_a_read_only_folder(tmp_path: Path) -> None:
    """Nobody but root is refused by the folder's mode; root is not, and then the file is written."""
    one, _ = states()
    folder = tmp_path / "locked"
    folder.mkdir()
    one.save(folder / "state.snb")
    before = (folder / "state.snb").read_bytes()
    folder.chmod(0o555)
    try:
        if os.access(folder, os.W_OK):
            one.save(folder / "state.snb")
        else:
            with pytest.raises(snb.errors.SourceError, match="Cannot write"):
                one.save(folder / "state.snb")
        assert (folder / "state.snb").read_bytes() == before
    finally:
        folder.chmod(0o755)


def test_a_symbolic_link_stays_one(inputs: Path, tmp_path: Path) -> None:
    """The command writes what the link points to, also where nothing is there yet."""
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.snb"
    link.symlink_to(tmp_path / "real" / "state.snb")
    for _ in range(2):
        finished([*CLI, "merge", str(inputs / "half-1.snb"), str(inputs / "half-2.snb"), "-o", str(link)])
        assert link.is_symlink()
        assert os.listdir(tmp_path / "real") == ["state.snb"]  # noqa: PTH208
        assert snb.State.load(tmp_path / "real" / "state.snb") == snb.State.load(inputs / "whole.snb")


def test_processes_that_save_to_one_path(tmp_path: Path) -> None:
    """Who reads meanwhile finds the whole of one of them, at every moment."""
    path = tmp_path / "state.snb"
    sources = [tmp_path / "one.snb", tmp_path / "two.snb"]
    for state, source in zip(states(), sources, strict=True):
        state.save(source)
    whole = [source.read_bytes() for source in sources]
    path.write_bytes(whole[0])
    program = "import sys, streamnb as snb\ns = snb.State.load(sys.argv[1])\nfor _ in range(60): s.save(sys.argv[2])"
    writers = [start(["-c", program, str(source), str(path)]) for source in sources]
    seen = set()
    while any(writer.poll() is None for writer in writers):
        held = path.read_bytes()
        assert held in whole
        seen.add(held)
    for writer in writers:
        _, said = writer.communicate()
        assert writer.returncode == 0, said.decode()
    assert len(seen) == 2
    assert sorted(os.listdir(tmp_path)) == ["one.snb", "state.snb", "two.snb"]  # noqa: PTH208
