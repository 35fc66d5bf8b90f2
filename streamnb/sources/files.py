"""Which files a path, glob, folder or URI stands for, in an order that depends on their names alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from streamnb.errors import SourceError

__all__ = ["DataFile", "discover"]

PARQUET_SUFFIXES = frozenset({".parquet", ".parq", ".pq"})
OTHER_FORMATS = {
    ".csv": "pl.scan_csv({0!r})",
    ".tsv": "pl.scan_csv({0!r}, separator='\\t')",
    ".json": "pl.read_json({0!r})",
    ".jsonl": "pl.scan_ndjson({0!r})",
    ".ndjson": "pl.scan_ndjson({0!r})",
    ".arrow": "pl.scan_ipc({0!r})",
    ".feather": "pl.scan_ipc({0!r})",
    ".ipc": "pl.scan_ipc({0!r})",
    ".avro": "pl.read_avro({0!r})",
    ".xlsx": "pl.read_excel({0!r})",
}
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"

_URI = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
_PASSWORD = re.compile(r"(://[^/\s:@]*):[^\s'\"]*@")
_SECRET_VALUE = re.compile(r"([?&][^=&\s]*(?:sig|secret|token|key|pass|credential)[^=&\s]*=)[^&\s'\"]*", re.IGNORECASE)
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file as it was when the source was planned.

    `filesystem` is None for this machine's files. `label` is the path below the root that was given, for messages.
    `hive` holds the (key, value) pairs of the folders between the root and the file; None is Hive's null.
    """

    path: str
    label: str
    size: int
    modified: int | None
    hive: tuple[tuple[str, str | None], ...] = ()
    filesystem: Any = None

    @property
    def name(self) -> str:
        """The absolute path, or the URI where the file is not this machine's."""
        return self.path if self.filesystem is None else f"{self.filesystem.type_name}://{self.path}"

    def open(self) -> pa.NativeFile:
        """Open the file for reading at any position."""
        return pa.OSFile(self.path) if self.filesystem is None else self.filesystem.open_input_file(self.path)

    def check_unchanged(self) -> None:
        """Raise `SourceError` if the file is not the one that was planned, by its size and time of change."""
        info = (self.filesystem or fs.LocalFileSystem()).get_file_info(self.path)
        if info.type != fs.FileType.File:
            raise SourceError(f"Expected the file that was planned, got none: it is gone - {self.name}")
        if (info.size, info.mtime_ns) != (self.size, self.modified):
            raise SourceError(f"Expected the file that was planned, got one that has changed since - {self.name}")


def discover(source: str | os.PathLike[str], filesystem: Any = None) -> list[DataFile]:
    """Return the data files that a path, glob, folder or URI stands for, sorted by their paths.

    In a folder, and for what a glob matches, files with a Parquet suffix are taken if there are any, and names that
    begin with `_` or `.` never are. Folders named `key=value` below the root become columns.

    Raises:
        SourceError: nothing there, nothing that matches, no Parquet file among what is there.
    """
    try:
        return _discovered(os.fspath(source), filesystem)
    except SourceError as error:
        raise SourceError(without_secrets(str(error))) from None  # the cause may quote the URI as well


def without_secrets(message: str) -> str:
    """Return a message as one line in which the passwords and signatures of URIs are three stars.

    >>> without_secrets("got 's3://key:secret@bucket/rows?session_token=abc&region=eu'")
    "got 's3://key:***@bucket/rows?session_token=***&region=eu'"
    """
    line = " ".join(message.split())
    return _SECRET_VALUE.sub(r"\1***", _PASSWORD.sub(r"\1:***@", line))


def _discovered(given: str, filesystem: Any) -> list[DataFile]:
    filesystem, path, pattern = _locate(given, filesystem)
    lister = filesystem or fs.LocalFileSystem()
    try:
        if pattern:
            infos = _glob(lister, path, pattern)
            if not infos:
                raise SourceError(f"Expected files that match, got none - glob {given!r}")
            folders = [info.path for info in infos if info.type == fs.FileType.Directory]
            files = _parquet_first([info for info in infos if info.type == fs.FileType.File])
            files += [info for folder in folders for info in _parquet_below(lister, folder)]
            if not files:
                raise SourceError(f"Expected Parquet files, got only folders without any - glob {given!r}")
            return [_file(info, path, filesystem) for info in _sorted(files)]
        info = lister.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise SourceError(f"Expected a file or folder, got nothing at this path - {given!r}")
        if info.type == fs.FileType.Directory:
            return [_file(info, path, filesystem) for info in _folder(lister, path, given)]
    except SourceError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"Expected files that can be listed, got {error} - {given!r}") from error
    _refuse_other_formats(path)
    return [_file(info, str(PurePosixPath(path).parent), filesystem)]


def _locate(given: str, filesystem: Any) -> tuple[Any, str, tuple[str, ...]]:
    """Return the filesystem (None: this machine's), the path without wildcards, and the parts from the first one on."""
    if not given:
        raise SourceError("Expected a path, got an empty one")
    if filesystem is None and not _URI.match(given):
        given = os.path.abspath(os.path.expanduser(given))  # noqa: PTH100, PTH111 - Path would drop a `//`
        if os.path.lexists(given):
            return None, given, ()  # a name with brackets is a name if it is there
    root, pattern = _split(given)
    if filesystem is None and _URI.match(given):
        try:
            filesystem, root = fs.FileSystem.from_uri(root)
        except (pa.ArrowException, OSError, ImportError) as error:
            raise SourceError(f"Expected a URI that PyArrow can open, got {given!r}: {error}") from None
    if filesystem is not None and filesystem.type_name == "subtree":
        root = f"{filesystem.base_path.rstrip('/')}/{root.lstrip('/')}".rstrip("/")
        filesystem = filesystem.base_fs
    if filesystem is not None and filesystem.type_name == "local":
        filesystem, root = None, os.path.abspath(root)  # noqa: PTH100
    return filesystem, root if root == "/" else root.rstrip("/"), pattern


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    parts = path.split("/")
    first = next((i for i, part in enumerate(parts) if _MAGIC.search(part)), len(parts))
    return "/".join(parts[:first]) or ("/" if path.startswith("/") else ""), tuple(parts[first:])


def _glob(lister: Any, folder: str, pattern: tuple[str, ...]) -> list[Any]:
    """Return the files and folders whose path below `folder` matches, part by part; `**` matches any depth."""
    head, rest = pattern[0], pattern[1:]
    found = []
    if head == "**" and rest:
        found += _glob(lister, folder, rest)
    for info in lister.get_file_info(fs.FileSelector(folder, allow_not_found=True)):
        name = info.base_name
        if _hidden(name) and head[:1] not in ("_", "."):
            continue
        is_folder = info.type == fs.FileType.Directory
        if head == "**":
            found += _glob(lister, info.path, pattern) if is_folder else [] if rest else [info]
        elif fnmatchcase(name, head):
            found += [info] if not rest else _glob(lister, info.path, rest) if is_folder else []
    return list({info.path: info for info in found}.values())


def _data_below(lister: Any, root: str) -> list[Any]:
    infos = lister.get_file_info(fs.FileSelector(root, recursive=True))
    return [
        info
        for info in infos
        if info.type == fs.FileType.File and not any(map(_hidden, _below(info.path, root).split("/")))
    ]


def _parquet_below(lister: Any, root: str) -> list[Any]:
    return [info for info in _data_below(lister, root) if _suffix(info.path) in PARQUET_SUFFIXES]


def _folder(lister: Any, root: str, given: str) -> list[Any]:
    everything = _data_below(lister, root)
    if not everything:
        raise SourceError(f"Expected Parquet files, got none: the folder holds no data files - {given!r}")
    files = [info for info in everything if _suffix(info.path) in PARQUET_SUFFIXES]
    if not files:
        seen = sorted({_suffix(info.path) or "names without a suffix" for info in everything})
        raise SourceError(
            f"Expected .parquet files, got only {', '.join(seen)}; a glob takes files of any suffix - folder {given!r}"
        )
    return _sorted(files)


def _parquet_first(infos: list[Any]) -> list[Any]:
    files = [info for info in infos if _suffix(info.path) in PARQUET_SUFFIXES]
    if not files:
        for info in infos:
            _refuse_other_formats(info.path)
    return files or infos


def _refuse_other_formats(path: str) -> None:
    advice = OTHER_FORMATS.get(_suffix(path))
    if advice is not None:
        raise SourceError(
            f"Expected a Parquet file, got {_suffix(path)}; give {advice.format(path)} as the source instead - {path}"
        )


def _file(info: Any, root: str, filesystem: Any) -> DataFile:
    below = _below(info.path, root)
    return DataFile(info.path, below, info.size, info.mtime_ns, tuple(_hive(below.split("/")[:-1])), filesystem)


def _hive(folders: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    for folder in folders:
        key, equals, value = folder.partition("=")
        if equals and key:
            value = unquote(value)
            yield unquote(key), None if value == HIVE_NULL else value


def _hidden(name: str) -> bool:
    """Markers and temporary files of Spark and its kind; `_key=value` is the folder of a column all the same."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _below(path: str, root: str) -> str:
    return path[len(root) :].lstrip("/") if path.startswith(root) else path


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix.lower()


def _sorted(infos: Iterable[Any]) -> list[Any]:
    return sorted({info.path: info for info in infos}.values(), key=lambda info: info.path.split("/"))
