"""Parquet files as a source: everything about them is known, and checked, before the first row is counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Literal

import polars as pl
import pyarrow as pa

from streamnb.errors import SchemaError, SourceError, near_misses
from streamnb.protocols import BATCH_ROWS
from streamnb.sources.batching import recut, sizes_of
from streamnb.sources.files import DataFile
from streamnb.sources.footer import Footer, cut, read_footer
from streamnb.sources.readers import arrow_batches, for_polars, polars_batches
from streamnb.sources.types import canonical, widen

__all__ = ["ParquetShard", "ParquetSource"]

FOOTER_THREADS = 8


@dataclass(frozen=True, slots=True)
class ParquetShard:
    """Consecutive row groups of one file.

    `group_rows` are the rows of the shard's groups, `first_group` and `first_row` say where it begins in the file,
    `types` are the types of the columns over all files.
    """

    file: DataFile
    footer_fingerprint: str
    schema: pa.Schema
    types: Mapping[str, pa.DataType]
    first_group: int
    first_row: int
    group_rows: tuple[int, ...]
    file_rows: int
    reader: Literal["auto", "arrow"] = "auto"
    verify_checksums: bool = False

    @property
    def id(self) -> str:
        """The file, the range of rows, and the fingerprint of the file's footer."""
        return f"{self.file.name}[{self.first_row}:{self.first_row + self.rows}]@{self.footer_fingerprint}"

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(self.group_rows)

    @property
    def size(self) -> int:
        """The shard's share of the file's bytes."""
        return self.file.size * self.rows // self.file_rows

    def place(self, row: int) -> str:
        """Say where a row of the shard stands: "part-003.parquet, row group 2, row 123456" (of the file)."""
        ends = list(accumulate(self.group_rows))
        group = next((i for i, end in enumerate(ends) if row < end), len(ends) - 1)
        return f"{self.file.label}, row group {self.first_group + group}, row {self.first_row + row}"

    def batches(self, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """Yield exactly these columns in batches of up to `rows` rows, strings perhaps as dictionary codes.

        Raises:
            SourceError: a file that has changed since it was planned, or a page that cannot be read; what was
                yielded before is then not to be counted.
            SchemaError: a column that the file has not.
        """
        self._check_columns(columns)
        self.file.check_unchanged()
        done = 0
        with closing(self._batches(columns, rows)) as batches:
            while True:
                try:
                    batch = next(batches, None)
                except (OSError, pa.ArrowException, pl.exceptions.PolarsError, ValueError) as error:
                    raise self._unreadable(done, (str(error).splitlines() or [type(error).__name__])[0]) from error
                if batch is None:
                    break
                yield batch
                done += batch.num_rows
        if done != self.rows:
            # Polars ends its stream in silence when one of its threads panics over a damaged page.
            raise self._unreadable(min(done, self.rows - 1), f"the reader gave {done} of {self.rows} rows")
        self.file.check_unchanged()

    def _check_columns(self, columns: Sequence[str]) -> None:
        there = {*self.schema.names, *dict(self.file.hive)}
        for name in columns:
            if name not in there:
                raise _missing(name, sorted(there), self.file)
            if name not in self.types:
                raise SchemaError(f"Expected a column {name!r} of one type in all files - {self.file.name}")

    def _unreadable(self, row: int, problem: str) -> SourceError:
        place = self.place(min(row, self.rows - 1))
        return SourceError(
            f"Expected a readable Parquet file, got a damaged one: {problem} - {self.file.name} ({place})"
        )

    def _batches(self, columns: Sequence[str], rows: int) -> Generator[pa.RecordBatch]:
        there = set(self.schema.names)
        sizes = list(sizes_of(self.group_rows, rows))
        own = [name for name in dict.fromkeys(columns) if name in there]
        constant = {
            name: _constant(value, self.types[name], min(self.rows, rows))
            for name, value in self.file.hive
            if name in columns and name not in own
        }
        with ExitStack() as stack:
            readers: list[Iterable[pa.RecordBatch]] = []
            numbers = [] if self.reader == "arrow" else for_polars(self.file, self.schema, own, self.rows)
            if numbers:
                fast = recut(
                    polars_batches(self.file, self.first_row, self.rows, self._types(numbers), rows), sizes=sizes
                )
                stack.enter_context(closing(fast))
                try:
                    readers.append(chain([next(fast)], fast))
                except (StopIteration, pa.ArrowException, OSError, pl.exceptions.PolarsError):
                    numbers = []  # PyArrow has the last word on a file that Polars does not read
            others = [name for name in own if name not in numbers]
            if others:
                groups = range(self.first_group, self.first_group + len(self.group_rows))
                slow = recut(
                    arrow_batches(
                        self.file, list(groups), self._types(others), rows, verify_checksums=self.verify_checksums
                    ),
                    sizes=sizes,
                )
                readers.append(slow)
                stack.enter_context(closing(slow))
            if not own:
                readers.append(_row_counts(sizes))
            for parts in zip(*readers, strict=True):
                found = {name: part.column(name) for part in parts for name in part.schema.names} if own else {}
                found |= {name: array.slice(0, parts[0].num_rows) for name, array in constant.items()}
                yield pa.RecordBatch.from_arrays([found[name] for name in columns], names=list(columns))

    def _types(self, names: Sequence[str]) -> dict[str, pa.DataType]:
        return {name: self.types[name] for name in names}


def _row_counts(sizes: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Where every column comes from the path, only the numbers of rows are left to yield."""
    for size in sizes:
        yield pa.RecordBatch.from_arrays([pa.nulls(size)], names=[""])


def _constant(value: str | None, dtype: pa.DataType, rows: int) -> pa.Array:
    """A column from the path: one value, as codes where it is a string."""
    if value is None:
        return pa.nulls(rows, dtype)
    if not pa.types.is_string(dtype):
        return pa.repeat(pa.scalar(float(value), pa.float64()).cast(dtype), rows)
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), rows), pa.array([value]))


def _missing(name: str, names: Sequence[str], file: DataFile) -> SchemaError:
    return SchemaError(f"Expected a column {name!r}, got none{near_misses(name, names)} - {file.name}")


@dataclass(frozen=True, slots=True)
class _Planned:
    file: DataFile
    footer: Footer

    def type_of(self, name: str, hive_numeric: frozenset[str]) -> pa.DataType | None:
        """The type of a column here: the file's own, else the path's, else None."""
        index = self.footer.schema.get_all_field_indices(name)
        if index:
            return self.footer.schema.field(index[0]).type
        if any(key == name for key, _ in self.file.hive):
            return pa.float64() if name in hive_numeric else pa.string()
        return None


class ParquetSource:
    """Parquet files, their columns matched by name and their types widened over all files.

    The footers are read here; `skipped` lists (path, reason) of the files left out with `on_error="skip"`.

    Raises:
        SourceError: a file that cannot be read, unless it is skipped; no file left.
    """

    def __init__(
        self,
        files: Sequence[DataFile],
        *,
        on_error: Literal["raise", "skip"] = "raise",
        reader: Literal["auto", "arrow"] = "auto",
        verify_checksums: bool = False,
        hive_numeric: frozenset[str] = frozenset(),
    ) -> None:
        self.on_error = on_error
        self.reader: Literal["auto", "arrow"] = "arrow" if verify_checksums else reader
        self.verify_checksums = verify_checksums
        self.hive_numeric = hive_numeric
        self.skipped: list[tuple[str, str]] = []
        schemas: dict[pa.Schema, pa.Schema] = {}
        self._planned: list[_Planned] = []
        # A file that two globs match is one file; pools hand results back in the order of the files.
        distinct = list({file.name: file for file in files}.values())
        with ThreadPoolExecutor(FOOTER_THREADS) as pool:
            for file, footer in zip(distinct, pool.map(self._footer, distinct), strict=True):
                if isinstance(footer, SourceError):
                    self._skip(file, footer)
                else:
                    # Equal schemas are kept once: a hundred thousand files have a handful of them.
                    shared = schemas.setdefault(footer.schema, footer.schema)
                    self._planned.append(_Planned(file, Footer(footer.groups, shared, footer.fingerprint)))
        self._check_any_left()

    def _footer(self, file: DataFile) -> Footer | SourceError:
        try:
            footer = read_footer(file)
            for key, value in file.hive:
                if key in self.hive_numeric and key not in footer.schema.names:
                    _check_number(key, value, file)
        except SourceError as error:
            if self.on_error == "raise":
                raise
            return error
        return footer

    def _skip(self, file: DataFile, reason: Exception) -> None:
        if self.on_error == "raise":
            raise reason
        self.skipped.append((file.name, str(reason)))

    def _check_any_left(self) -> None:
        if not self._planned:
            reason = self.skipped[0][1] if self.skipped else "no files were given"
            raise SourceError(f"Expected a readable file, got none among {len(self.skipped)}; the first: {reason}")

    @property
    def files(self) -> list[str]:
        """The paths of the files that are to be read, in order."""
        return [planned.file.name for planned in self._planned]

    @property
    def schema(self) -> pa.Schema:
        """The columns that every file has, with their widened types; what only some files have is left out.

        Raises:
            SchemaError: a column whose types have nothing in common, naming both files.
        """
        kinds = self._kinds()
        first = kinds[0]
        names = dict.fromkeys([*first.footer.schema.names, *dict(first.file.hive)])
        shared = [name for name in names if all(kind.type_of(name, self.hive_numeric) is not None for kind in kinds)]
        return pa.schema([(name, self._widened(name, kinds, _raise)) for name in shared])

    @property
    def partial(self) -> dict[str, str]:
        """The columns that only some files have, each with the first file that lacks it."""
        kinds = self._kinds()
        names = dict.fromkeys(name for k in kinds for name in [*k.footer.schema.names, *dict(k.file.hive)])
        lacking = ((n, next((k for k in kinds if k.type_of(n, self.hive_numeric) is None), None)) for n in names)
        return {name: kind.file.name for name, kind in lacking if kind is not None}

    def check(self, columns: Sequence[str]) -> None:
        """Check that every file has these columns, each once and of types that go together.

        With `on_error="skip"` the files that do not are left out and listed in `skipped`.

        Raises:
            SchemaError: naming the file, the column and what there is instead.
        """
        kinds = self._kinds()
        bad: dict[int, SchemaError] = {}
        for kind in kinds:
            own = Counter(kind.footer.schema.names)
            names = [*own, *dict(kind.file.hive)]
            for name in columns:
                if own[name] > 1:
                    bad.setdefault(
                        id(kind), SchemaError(f"Expected one column {name!r}, got several - {kind.file.name}")
                    )
                elif name not in own and name not in dict(kind.file.hive):
                    bad.setdefault(id(kind), _missing(name, names, kind.file))
        for name in columns:
            sound = [kind for kind in kinds if id(kind) not in bad]
            self._widened(name, sound, lambda kind, error: bad.setdefault(id(kind), error))
        if bad:
            self._leave_out({self._key(kind): bad[id(kind)] for kind in kinds if id(kind) in bad})

    def shards(self) -> Iterator[ParquetShard]:
        """Cut each file into runs of row groups, by the file alone."""
        kinds = self._kinds()
        conflicts: set[str] = set()
        names = {name for kind in kinds for name in [*kind.footer.schema.names, *dict(kind.file.hive)]}
        types = {}
        for name in sorted(names):
            dtype = self._widened(name, kinds, lambda _, error, name=name: conflicts.add(name))  # type: ignore[misc]
            if name not in conflicts:
                types[name] = dtype
        for planned in self._planned:
            groups = planned.footer.groups
            starts = [0, *accumulate(group.rows for group in groups)]
            for run in cut(groups):
                yield ParquetShard(
                    planned.file,
                    planned.footer.fingerprint,
                    planned.footer.schema,
                    types,
                    run.start,
                    starts[run.start],
                    tuple(groups[i].rows for i in run),
                    starts[-1],
                    self.reader,
                    self.verify_checksums,
                )

    def _key(self, planned: _Planned) -> tuple[int, frozenset[str]]:
        return id(planned.footer.schema), frozenset(dict(planned.file.hive))

    def _kinds(self) -> list[_Planned]:
        """The first file of each distinct schema: all that is said of it holds for the files like it."""
        kinds: dict[tuple[int, frozenset[str]], _Planned] = {}
        for planned in self._planned:
            kinds.setdefault(self._key(planned), planned)
        return list(kinds.values())

    def _widened(
        self, name: str, kinds: Sequence[_Planned], on_conflict: Callable[[_Planned, SchemaError], object]
    ) -> pa.DataType:
        """Return the column's type over all kinds of files; report each kind that does not go with the earlier ones."""
        total, source = pa.null(), kinds[0] if kinds else None
        for kind in kinds:
            dtype = kind.type_of(name, self.hive_numeric)
            if dtype is None:
                continue
            wider = widen(total, dtype)
            if wider is None and source is not None:
                on_conflict(
                    kind,
                    SchemaError(
                        f"Expected types of column {name!r} that go together, "
                        f"got {total} in {source.file.name} and {canonical(dtype)} in {kind.file.name}"
                    ),
                )
                continue
            if wider != total:
                total, source = wider, kind
        return total

    def _leave_out(self, reasons: Mapping[tuple[int, frozenset[str]], SchemaError]) -> None:
        kept = []
        names = {self._key(kind): kind.file.name for kind in self._kinds()}
        for planned in self._planned:
            reason = reasons.get(self._key(planned))
            if reason is None:
                kept.append(planned)
            else:
                # The reason was found at the first file of the kind; it holds for this one.
                first = names[self._key(planned)]
                self._skip(planned.file, SchemaError(str(reason).replace(first, planned.file.name)))
        self._planned = kept
        self._check_any_left()


def _raise(_: _Planned, error: SchemaError) -> object:
    raise error


def _check_number(key: str, value: str | None, file: DataFile) -> None:
    try:
        float(value or "nan")
    except ValueError:
        raise SourceError(f"Expected a number in {key}=..., got {value!r} - {file.name}") from None
