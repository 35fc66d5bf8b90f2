"""The folder of a follower: one file for each partition, and one file that says what is followed.

    DIR/follow.json                  topic, schema, types: written once, the same for every follower
    DIR/orders-0.g3-9f86d0.snb       counts and position of partition 0, by its third owner

*Fencing*: who takes a partition over reads the newest file and writes the same content under the next generation,
before it reads any message. From then on only that file counts. An owner that was presumed dead and comes back can
write to its own old name alone, which nobody reads; and before each save it looks for a newer generation, and lets go
if there is one. So no clock, no lock and no rename decides who is right, only the names; two owners that take the same
generation at the same moment differ in the letters behind it, and the greater letters win. Whichever file is read, its
counts and its offset belong together, so no row is lost or counted twice.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs

from streamnb import statefile
from streamnb.atomic import write_bytes_atomically
from streamnb.errors import FencedError, FileFormatError, SourceError
from streamnb.position import Position
from streamnb.state import State

__all__ = ["FileName", "StateFolder", "load_folder"]

_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)\.g(?P<generation>\d+)-(?P<letters>[0-9a-f]{8})\.snb")
_ABOUT = "follow.json"
_TRIES = 20


@dataclass(frozen=True, slots=True)
class FileName:
    """The name of a partition's file, which says who may write it."""

    topic: str
    partition: int
    generation: int
    letters: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}.g{self.generation}-{self.letters}.snb"

    @property
    def rank(self) -> tuple[int, str]:
        """The greatest rank is the owner."""
        return self.generation, self.letters

    @classmethod
    def parse(cls, name: str) -> FileName | None:
        """Return the parts of a name, or None if it is no partition's file."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return cls(found["topic"], int(found["partition"]), int(found["generation"]), found["letters"])


class StateFolder:
    """A local folder, or a URI that PyArrow's file systems know (`s3://bucket/orders`)."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(path)
        self._files: _Files = _Remote(self.path) if "://" in self.path else _Local(Path(path))

    def make(self) -> None:
        """Make the folder, if it is not there."""
        self._files.make()

    def newest(self) -> dict[int, FileName]:
        """Return the file of each partition that counts."""
        found: dict[int, FileName] = {}
        for name in self._names():
            if name.partition not in found or name.rank > found[name.partition].rank:
                found[name.partition] = name
        return found

    def read(self, name: FileName) -> State:
        """Return the state in a file.

        Raises:
            SourceError: it is not there (any more).
            FileFormatError: it is damaged.
        """
        where = f"{self.path}/{name}"
        contents = statefile.loads(self._files.read(str(name)), where=where)
        if contents.kind != "state":
            raise FileFormatError(f"{where} holds a model, not a state")
        return State._from_contents(contents, where)

    def states(self) -> Iterator[tuple[FileName, State]]:
        """Yield the state of each partition, the newest at the moment it is read."""
        for partition in sorted(self.newest()):
            for _ in range(_TRIES):
                name = self.newest()[partition]
                try:
                    state = self.read(name)
                except SourceError:  # its next owner has removed it since
                    continue
                yield name, state
                break
            else:
                raise SourceError(f"Expected a file of partition {partition} that stays, got none - {self.path}")

    def claim(self, topic: str, partition: int) -> tuple[FileName, State | None]:
        """Return the name under which a new owner writes, and the state to go on from; `save` it to take over."""
        for _ in range(_TRIES):
            before = self.newest().get(partition)
            letters = secrets.token_hex(4)
            if before is None:
                return FileName(topic, partition, 1, letters), None
            try:
                state = self.read(before)
            except SourceError:
                continue
            return FileName(topic, partition, before.generation + 1, letters), state
        raise SourceError(f"Expected a file of partition {partition} that stays, got none - {self.path}")

    def save(self, name: FileName, state: State) -> None:
        """Write a partition's file, whole and durable, unless another owner has taken over.

        Raises:
            FencedError: another owner has; nothing of it was touched.
            SourceError: the file cannot be written.
        """
        others = [other for other in self._names() if other.partition == name.partition and other != name]
        newer = [other for other in others if other.rank > name.rank]
        if newer:
            raise FencedError(
                f"Expected to own partition {name.partition} as generation {name.generation}, got generation "
                f"{max(newer, key=lambda other: other.rank).generation}: another follower took it over - {self.path}"
            )
        self._files.write(str(name), state.to_bytes())
        for other in others:  # what former owners wrote counts no more
            self._files.remove(str(other))

    def describe(self, text: str) -> str:
        """Write what is followed, unless it is written already; return what is written."""
        found = self.description()
        if found is None:
            self._files.create(_ABOUT, text.encode())
            found = self.description()
        return text if found is None else found

    def description(self) -> str | None:
        """Return what is followed, or None where nothing is yet."""
        try:
            return self._files.read(_ABOUT).decode()
        except SourceError:
            return None

    def _names(self) -> list[FileName]:
        return [found for found in map(FileName.parse, self._files.names()) if found is not None]


def load_folder(path: str | os.PathLike[str]) -> State:
    """Return the sum of a follower's partitions; with a window, of the slides that still count.

    Raises:
        SourceError: there are none.
    """
    states = [state for _, state in StateFolder(path).states()]
    if not states:
        raise SourceError(f"Expected a folder that a follower keeps, got one without its files - {path}")
    positions = [Position.from_plain(each) for state in states for each in state.positions.values()]
    newest = max((position.newest for position in positions if position.newest is not None), default=None)
    total = State(states[0].schema)
    for state in states:
        for part in state.parts:
            shard = next(iter(part.ledger))
            window = next((Position.from_plain(each).window for each in state.positions.values()), None)
            start = shard.rpartition("@")[2]
            if window is None or newest is None or window.is_live(int(start), newest):
                total.merge(State.of_shards(part.statistics.schema, part.statistics, part.ledger))
        only_positions = State(state.schema)
        only_positions.positions = state.positions
        total.merge(only_positions)
    return total


class _Files(Protocol):
    """The few things that a place for files must do."""

    def make(self) -> None: ...
    def names(self) -> list[str]: ...
    def read(self, name: str) -> bytes: ...
    def write(self, name: str, data: bytes) -> None: ...
    def create(self, name: str, data: bytes) -> None: ...
    def remove(self, name: str) -> None: ...


class _Local:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SourceError(f"Cannot make the folder {self.folder}: {error.strerror}") from None

    def names(self) -> list[str]:
        try:
            return [path.name for path in self.folder.iterdir()]
        except OSError as error:
            raise SourceError(f"Cannot read the folder {self.folder}: {error.strerror}") from None

    def read(self, name: str) -> bytes:
        try:
            return (self.folder / name).read_bytes()
        except OSError as error:
            raise SourceError(f"Cannot read {self.folder / name}: {error.strerror}") from None

    def write(self, name: str, data: bytes) -> None:
        write_bytes_atomically(self.folder / name, data)

    def create(self, name: str, data: bytes) -> None:
        """Write a file that is not there; one that is stays as it is, whoever is first."""
        temporary = self.folder / f".{name}.{secrets.token_hex(8)}.new"
        write_bytes_atomically(temporary, data)
        with suppress(FileExistsError):
            os.link(temporary, self.folder / name)
        temporary.unlink()

    def remove(self, name: str) -> None:
        with suppress(OSError):
            (self.folder / name).unlink()


class _Remote:
    """An object store or a shared file system; a file appears there when its stream is closed."""

    def __init__(self, uri: str) -> None:
        try:
            self.system, self.folder = pa.fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SourceError(f"Expected a folder that PyArrow can open, got {uri}: {error}") from None
        self._renames = isinstance(self.system, pa.fs.LocalFileSystem)

    def make(self) -> None:
        self._do(lambda: self.system.create_dir(self.folder, recursive=True))

    def names(self) -> list[str]:
        chosen = pa.fs.FileSelector(self.folder, allow_not_found=True)
        return [info.base_name for info in self._do(lambda: self.system.get_file_info(chosen))]

    def read(self, name: str) -> bytes:
        def read() -> bytes:
            with self.system.open_input_file(f"{self.folder}/{name}") as stream:
                return bytes(stream.read())

        found: bytes = self._do(read)
        return found

    def write(self, name: str, data: bytes) -> None:
        if self._renames:
            write_bytes_atomically(f"{self.folder}/{name}", data)
            return

        def write() -> None:
            with self.system.open_output_stream(f"{self.folder}/{name}") as stream:
                stream.write(data)

        self._do(write)

    def create(self, name: str, data: bytes) -> None:
        """Write a file that is not there; object stores cannot tell who was first, so followers compare what stands."""
        self.write(name, data)

    def remove(self, name: str) -> None:
        with suppress(OSError, pa.ArrowException):
            self.system.delete_file(f"{self.folder}/{name}")

    def _do(self, work: Any) -> Any:
        try:
            return work()
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"Cannot reach {self.folder}: {error}") from None
