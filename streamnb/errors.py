"""Every error that streamnb raises on purpose, drawn once.

    StreamNBError
    ├── SchemaError        (ValueError)   the schema is wrong, or does not meet the data
    ├── DataError          (ValueError)   a value in the data cannot be counted or scored
    ├── MergeError         (ValueError)   two states that do not add up
    ├── EmptyStateError    (ValueError)   a question that needs rows, asked of a state without any
    ├── FileFormatError    (ValueError)   a state or model file that is refused
    ├── SourceError        (OSError)      a data file that is absent, damaged or changed
    ├── EngineError        (RuntimeError) an engine that lost a part of its results
    ├── FencedError        (OSError)      another process has taken over what this one wanted to write
    └── MissingExtraError  (ImportError)  an optional package that is not installed

A message says what was expected, what came and where: "Expected X, got Y - column 'age', part-003.parquet".
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "DataError",
    "EmptyStateError",
    "EngineError",
    "FencedError",
    "FileFormatError",
    "ManyCategoriesWarning",
    "MergeError",
    "MissingExtraError",
    "SchemaError",
    "SkippedWarning",
    "SourceError",
    "StreamNBError",
    "near_misses",
]


class StreamNBError(Exception):
    """The base of all errors that streamnb raises on purpose."""


class SchemaError(StreamNBError, ValueError):
    """The schema contradicts itself, or the data has not the columns and types that it names."""


class DataError(StreamNBError, ValueError):
    """A value in the data cannot be counted or scored.

    `column` and `row` (0-based, within the batch handed in) say where; `at` adds what only an outer layer knows.
    """

    def __init__(self, problem: str, *, column: str | int | None = None, row: int | None = None) -> None:
        self.problem = problem
        self.column = column
        self.row = row
        super().__init__(problem)

    def __str__(self) -> str:
        place = [] if self.column is None else [f"column {self.column!r}"]
        place += [] if self.row is None else [f"row {self.row}"]
        return f"{self.problem} - {', '.join(place)}" if place else self.problem

    def at(self, *, column: str | None = None, row: int | None = None, place: str | None = None) -> DataError:
        """Return the same error with a better known place: a column's name, a row of the file, the file."""
        problem = self.problem if place is None else f"{self.problem} ({place})"
        return DataError(
            problem,
            column=self.column if column is None else column,
            row=self.row if row is None else row,
        )


class MergeError(StreamNBError, ValueError):
    """Two states count different things; the message names the first difference."""


class EmptyStateError(StreamNBError, ValueError):
    """A state without rows cannot be finished."""


class FileFormatError(StreamNBError, ValueError):
    """A state or model file is not one, is damaged, or is of an unknown format."""


class SourceError(StreamNBError, OSError):
    """A data file is absent, damaged, or changed since it was planned or counted."""


class EngineError(StreamNBError, RuntimeError):
    """An engine on other machines lost a part of the results on the way; nothing is returned rather than too little."""


class FencedError(StreamNBError, OSError):
    """Another process has taken over what this one wanted to write; what it wrote stays."""


class MissingExtraError(StreamNBError, ImportError):
    """An optional package is not installed; the message gives the command that installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; install it with: pip install 'streamnb[{extra}]'")


class ManyCategoriesWarning(UserWarning):
    """A categorical column has so many distinct values for its rows that it is likely an id."""


class SkippedWarning(UserWarning):
    """A damaged file, or a part of one, was left out because `on_error="skip"` asked for it."""


def near_misses(name: str, names: Iterable[str]) -> str:
    """Return a hint that offers the names closest to an absent one, or nothing.

    >>> near_misses("petal_lenght", ["petal_length", "site"])
    "; did you mean 'petal_length'?"
    """
    close = get_close_matches(name, list(names), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
