"""Files that appear whole or not at all: written under a temporary name beside the target, then renamed."""

from __future__ import annotations

import errno
import glob
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from streamnb.errors import SourceError

try:
    import fcntl
except ImportError:  # Windows: an open file cannot be removed there, so no lock is needed
    fcntl = None  # type: ignore[assignment]

__all__ = ["open_atomically", "refuse_input_as_output", "write_bytes_atomically"]

_DATA_SUFFIXES = (".parquet", ".parq", ".pq")
_LEFTOVER_SECONDS = 3600.0
_WRITE_ERRORS = {errno.ENOSPC, errno.EFBIG, errno.EROFS, getattr(errno, "EDQUOT", errno.ENOSPC)}


def write_bytes_atomically(path: str | os.PathLike[str], data: Any) -> None:
    """Make `path` hold `data` (bytes or a buffer), durably; who reads it finds the old content or the new.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "a.bin"
    >>> write_bytes_atomically(target, b"whole")
    >>> target.read_bytes()
    b'whole'
    """
    with open_atomically(path) as stream:
        try:
            stream.write(memoryview(data))
        except OSError as error:
            raise _cannot_write(Path(path), error) from None


@contextmanager
def open_atomically(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a stream whose bytes become the content of `path` if the block ends well, and vanish if it raises.

    A link stays a link, and its target is replaced; a replaced file keeps its permissions; a new one honours
    the umask. A pipe or device (`/dev/stdout`) is written straight. SourceError if `path` cannot be written.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise SourceError(f"Cannot write {path}: it is a folder")
        straight = path.exists() and not path.is_file()
        target = Path(os.path.realpath(path))
        if target.is_file() and not os.access(target, os.W_OK):
            raise SourceError(f"Cannot write {path}: the file is read-only")
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
        stream: BinaryIO = path.open("wb") if straight else temporary.open("xb")
    except SourceError:
        raise
    except OSError as error:
        raise _cannot_write(path, error) from None
    if straight:
        with stream:
            yield stream
        return

    try:
        with stream:
            _lock(stream)
            with suppress(OSError):  # no target yet, or a file system without permissions
                temporary.chmod(stat.S_IMODE(target.stat().st_mode))
            yield stream
            # What fails from here on is ours to name, whatever the reason; the caller's own errors pass as they are.
            with _named(path):
                stream.flush()
                os.fsync(stream.fileno())
        with _named(path):
            temporary.replace(target)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno in _WRITE_ERRORS:
            raise _cannot_write(path, error) from None
        raise
    _sync_folder(target.parent)
    _remove_leftovers(target)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _cannot_write(path, error) from None


def _cannot_write(path: Path, error: OSError) -> SourceError:
    reason = error.strerror or str(error)
    if error.errno == errno.ENOENT:
        reason = f"the folder {path.parent} does not exist"
    return SourceError(f"Cannot write {path}: {reason}")


def _sync_folder(folder: Path) -> None:
    """Make a rename in the folder survive a power cut, where the system can."""
    with suppress(OSError):  # Windows, and some network file systems, cannot
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _lock(stream: BinaryIO) -> bool:
    """Lock a temporary file for as long as its writer lives; False if another one holds it."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_leftovers(target: Path) -> None:
    """Remove what killed writers of the same target left behind.

    Only files that nobody holds locked, and that are old: a young one may belong to a writer that has opened
    it and not yet locked it.
    """
    pattern = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{16}\.tmp")
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if pattern.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > _LEFTOVER_SECONDS:
                with suppress(OSError), Path(entry.path).open("rb") as stream:
                    if _lock(stream):
                        Path(entry.path).unlink()


def refuse_input_as_output(output: str | os.PathLike[str], sources: Any) -> None:
    """Refuse an output that is one of the inputs: a path, a file of a glob, or a Parquet file of a folder.

    It would be read while it is written, or lose what it held, or be read as data the next time. Sources that are no
    paths of this machine are passed over.

    Raises:
        SourceError: naming the output and the input.
    """
    target = os.path.realpath(output)
    for source in sources if isinstance(sources, list | tuple) else [sources]:
        if not isinstance(source, str | Path) or "://" in str(source):
            continue
        given = os.path.expanduser(source)  # noqa: PTH111 - the source may be a glob, which is no path
        real = os.path.realpath(given)
        inside = Path(target).is_relative_to(real) and Path(target).suffix in _DATA_SUFFIXES
        # As many files as a glob names: it is listed once more when it is read.
        named = real == target or target in map(os.path.realpath, glob.iglob(str(given), recursive=True))  # noqa: PTH207
        if named or inside:
            raise SourceError(f"Expected an output apart from the input, got {output}, which is in {source}")
