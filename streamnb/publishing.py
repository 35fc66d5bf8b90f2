"""A model file that is always the newest: written by a follower, read by a scorer that is never restarted."""

from __future__ import annotations

import os
import time
from pathlib import Path

from streamnb.errors import EmptyStateError, SourceError
from streamnb.predictor import Predictor
from streamnb.statefolder import StateFolder, load_folder

__all__ = ["PredictorFile", "Publisher"]


class PredictorFile:
    """A model file that another process replaces from time to time.

    `current()` returns the newest model. It looks at the file each time, and reads it only when it has changed; a model
    that was handed out stays as it is.

    >>> import tempfile, pyarrow as pa
    >>> from streamnb import Schema, State
    >>> state = State(Schema(label="y", numeric=["x"]))
    >>> state.update(pa.table({"y": ["a", "a", "b", "b"], "x": [1.0, 2.0, 10.0, 11.0]}))
    >>> path = Path(tempfile.mkdtemp()) / "model.snb"
    >>> state.finish().save(path)
    >>> newest = PredictorFile(path)
    >>> newest.current().predict(pa.table({"x": [10.5]})).to_pylist()
    ['b']
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.loads = 0
        self._seen: tuple[int, ...] = ()
        self._model: Predictor | None = None

    def current(self) -> Predictor:
        """Return the newest model.

        Raises:
            SourceError: there has been no file yet. Once there was, an absent file leaves the last model in place.
            FileFormatError: the file holds no model.
        """
        try:
            found = self.path.stat()
        except OSError:
            if self._model is None:
                raise SourceError(f"There is no file {self.path}") from None
            return self._model
        seen = (found.st_ino, found.st_mtime_ns, found.st_size)
        if self._model is None or seen != self._seen:
            self._model, self._seen = Predictor.load(self.path), seen
            self.loads += 1
        return self._model


class Publisher:
    """Writes the model of a whole folder, with the default smoothing, every so often."""

    def __init__(self, folder: StateFolder, path: str | os.PathLike[str], seconds: float) -> None:
        if seconds <= 0:
            raise ValueError(f"Expected seconds above 0 between two models, got {seconds}")
        self.folder, self.path, self.seconds = folder, Path(path), seconds
        self._next = 0.0

    def due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() >= self._next

    def publish(self) -> None:
        """Write the model of what is saved, unless there are no rows yet."""
        self._next = time.monotonic() + self.seconds
        try:
            load_folder(self.folder.path).finish().save(self.path)
        except EmptyStateError:
            pass
        except SourceError as error:
            if "without its files" not in str(error):
                raise
