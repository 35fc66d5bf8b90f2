"""The folder of a follower: the newest generation counts, and an owner that was presumed dead overwrites nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import streamnb as snb
from streamnb.followed import Partition
from streamnb.position import Position, Window
from streamnb.sources.messages import JsonMessages
from streamnb.statefolder import FileName, StateFolder

SCHEMA = snb.Schema(label="y", numeric=["n"])


def state_of(rows: int, partition: int = 0, window: Window | None = None, newest: int | None = None) -> snb.State:
    """Return the state of a partition after so many rows."""
    position = Position("t", partition, rows, rows=rows, window=window, newest=newest)
    held = Partition(SCHEMA, position, JsonMessages(pa.schema([])))
    counted = snb.State(SCHEMA)
    counted.update(pa.table({"y": ["a"] * rows, "n": [1.0] * rows}))
    held.slices[newest] = counted.total
    return held.state()


@pytest.fixture(params=["path", "uri"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> StateFolder:
    """A folder by its path, and through PyArrow's file systems."""
    found = StateFolder(tmp_path / "d" if request.param == "path" else f"file://{tmp_path}/d")
    found.make()
    return found


def test_a_new_owner_goes_on_where_the_file_ends(folder: StateFolder) -> None:
    """Each owner takes the next generation; the files of those before go."""
    first, nothing = folder.claim("t", 0)
    assert (first.generation, nothing) == (1, None)
    folder.save(first, state_of(3))
    folder.save(first, state_of(5))
    second, state = folder.claim("t", 0)
    assert second.generation == 2
    assert state is not None
    assert state.positions["kafka:t/0"]["next"] == state.n_rows == 5
    folder.save(second, state)
    assert folder.newest() == {0: second}
    assert folder._files.names() == [str(second)]


def test_who_was_presumed_dead_cannot_overwrite(folder: StateFolder) -> None:
    """Fencing: between claim and save, and after; what the newer owner wrote stays, to the byte."""
    old, _ = folder.claim("t", 0)
    folder.save(old, state_of(3))
    new, state = folder.claim("t", 0)
    assert state is not None
    folder.save(old, state_of(4))  # not yet taken over: its own file, and the claim has read the one before
    folder.save(new, state)
    folder.save(new, state_of(6))
    with pytest.raises(snb.FencedError, match=r"partition 0 as generation 1, got generation 2"):
        folder.save(old, state_of(9))
    assert snb.State.load(folder.path).n_rows == 6
    # Even an owner that looked before and was paused until after the rename of the other: its file is not the newest.
    folder._files.write(str(old), state_of(9).to_bytes())
    assert snb.State.load(folder.path).n_rows == 6
    folder.save(new, state_of(7))
    assert [str(new)] == folder._files.names()


def test_two_that_claim_at_once(folder: StateFolder) -> None:
    """Only one of two owners of one generation goes on: that with the greater letters."""
    base, _ = folder.claim("t", 0)
    folder.save(base, state_of(3))
    one, two = sorted((folder.claim("t", 0)[0] for _ in range(2)), key=lambda name: name.rank)
    assert one.generation == two.generation == 2
    folder.save(one, state_of(3))
    folder.save(two, state_of(3))
    with pytest.raises(snb.FencedError):
        folder.save(one, state_of(4))
    folder.save(two, state_of(5))
    assert snb.State.load(folder.path).n_rows == 5


def test_partitions_add_up(folder: StateFolder) -> None:
    """The model is the merge of the partitions; other files are passed over."""
    for partition in range(3):
        name, _ = folder.claim("t", partition)
        folder.save(name, state_of(partition + 1, partition))
    folder._files.write("readme.snb", b"something else")
    assert snb.State.load(folder.path).n_rows == 6
    assert sorted(snb.State.load(folder.path).positions) == ["kafka:t/0", "kafka:t/1", "kafka:t/2"]
    with pytest.raises(snb.MergeError, match="two different states of shard 'kafka:t/0'"):
        snb.State.load(folder.path).merge(state_of(9))


def test_a_window_is_that_of_the_newest_partition(folder: StateFolder) -> None:
    """A partition that has fallen silent does not keep its old rows in the sum."""
    window = Window(30, 10)
    for partition, newest in enumerate((100, 80, 60)):
        name, _ = folder.claim("t", partition)
        folder.save(name, state_of(partition + 1, partition, window, newest))
    assert snb.State.load(folder.path).n_rows == 3


def test_a_folder_without_states(tmp_path: Path) -> None:
    """It is refused in one line."""
    with pytest.raises(snb.SourceError, match="folder that a follower keeps"):
        snb.State.load(tmp_path)
    with pytest.raises(snb.SourceError):
        StateFolder(f"nowhere://{tmp_path}")


def test_names_of_files() -> None:
    """A name says topic, partition and generation; a topic may look like one."""
    name = FileName("a-1.g2-b", 12, 3, "0123abcd")
    assert FileName.parse(str(name)) == name
    for other in ("a-1.snb", "a-1.g2.snb", "a.g1-0123abcd.snb", ".a-1.g2-0123abcd.snb.0011223344556677.tmp"):
        assert FileName.parse(other) is None


def test_positions_go_with_states() -> None:
    """They stand in the file and in copies, and of two the further one wins; a state without has the bytes of old."""
    one, two = state_of(2), state_of(3, partition=1)
    total = one + two
    assert sorted(total.positions) == ["kafka:t/0", "kafka:t/1"]
    assert (two + one) == total
    assert snb.State.from_bytes(total.to_bytes()).positions == total.positions
    assert total.copy() == total
    plain = snb.State(SCHEMA)
    assert b"positions" not in plain.to_bytes()
    near, far = snb.State(SCHEMA), snb.State(SCHEMA)
    near.positions, far.positions = {"k": {"next": 9}}, {"k": {"next": 10}}
    assert (near + far).positions == (far + near).positions == {"k": {"next": 10}}
