"""A description of a state or a model as text: aligned columns, or tables with rules on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Table", "many", "name_of", "printable", "render", "text"]

MOST_LINES = 20
"""Lines of one table; the rest is counted."""

MOST_ACROSS = 6
"""Classes that stand side by side; the largest are chosen."""

WIDEST = 32
"""Characters of a name."""

WORDS = ("kind", "most frequent", "feature", "value", "against", "left out")
"""Headings of columns of words, which stand to the left as the first column does."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table: a heading, the cells as text, and how many rows were left out. The first column is a name."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    more: int = 0
    title: str = ""


def text(description: Mapping[str, Any], *, terminal: bool | None = None) -> str:
    """Return a readable report of what `describe` gave, with rules and bold headings only for a terminal.

    `terminal` None asks the standard output.

    >>> import pyarrow as pa
    >>> from streamnb import Schema, State
    >>> from streamnb.show import describe
    >>> state = State(Schema(label="y", numeric=["x"]))
    >>> state.update(pa.table({"y": ["a", "a", "b"], "x": [1.0, 3.0, None]}))
    >>> print(text(describe(state), terminal=False).splitlines()[0])
    A state: 3 rows, 2 classes, 1 feature column, 0 shards
    """
    return render(list(_report(description)), terminal=terminal)


def render(parts: Sequence[str | Table], *, terminal: bool | None = None) -> str:
    """Return paragraphs and tables one below the other; `terminal` as in `text`."""
    if terminal is None:
        terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    if terminal:
        return _ruled(parts)
    return "\n\n".join(part if isinstance(part, str) else _aligned(part) for part in parts)


def printable(value: Any) -> str:
    """Return a name with its line breaks and control codes escaped, so that it cannot disturb a terminal."""
    given = str(value)
    if given.isprintable():
        return given
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in given)


# What is said -------------------------------------------------------------------------------------------------------


def _report(description: Mapping[str, Any]) -> Iterator[str | Table]:
    classes, columns = description["classes"], description["columns"]
    yield _summary(description)
    header = ["class", *(key for key in ("rows", "weight", "prior") if not classes or key in classes[0])]
    cells = [[name_of(each["class"]), *(_number(each[key]) for key in header[1:])] for each in classes[:MOST_LINES]]
    yield Table(header, cells, max(len(classes) - MOST_LINES, 0))
    across = _largest(classes)
    for kind in dict.fromkeys(column["kind"] for column in columns):
        yield from _of_kind(kind, [column for column in columns if column["kind"] == kind], classes, across)
    if description.get("positions"):
        yield _followed(description["positions"])
    if description.get("telling"):
        rows = [[name_of(each["feature"]), each["kind"], f"{each['bits']:.4f}"] for each in description["telling"]]
        yield Table(
            ["feature", "kind", "bits"],
            rows[:MOST_LINES],
            max(len(rows) - MOST_LINES, 0),
            "the most telling features: information about the class, in bits (of counts and text: per token)",
        )
    if description.get("top_features"):
        yield _speaking(description["top_features"])


def _followed(positions: Sequence[Mapping[str, Any]]) -> Table:
    """How far each partition of a topic is counted."""
    rows = []
    for at in sorted(positions, key=lambda each: (str(each.get("topic")), each.get("partition", 0))):
        left_out = ", ".join(f"{number:,} {kind}" for kind, number in sorted(at.get("skipped", {}).items()))
        name = printable(f"{at.get('topic')}/{at.get('partition')}")
        rows.append([name, f"{at.get('next', 0):,}", f"{at.get('rows', 0):,}", left_out or "-"])
    header = ["partition", "next offset", "rows", "left out"]
    return Table(header, rows[:MOST_LINES], max(len(rows) - MOST_LINES, 0), "how far each partition is counted")


def _summary(description: Mapping[str, Any]) -> str:
    n_classes, columns, label = len(description["classes"]), description["columns"], description["label"]
    size = [many(n_classes, "class", "classes"), many(len(columns), "feature column")]
    if description["kind"] == "state":
        size = [many(description["rows"], "row"), *size, many(description["shards"], "shard")]
    lines = [f"A {description['kind']}: {', '.join(size)}", f"label {printable(label['column'])!r}, {label['type']}"]
    if description.get("weight"):
        weight = description["weight"]
        lines[-1] += f"; weight {printable(weight['column'])!r}, {_number(weight['sum'])} in all"
    if description.get("rows_without_label"):
        lines[-1] += f"; {many(description['rows_without_label'], 'row')} without a label left out"
    if description.get("exact"):
        lines.append(f"exact; the digest of its rows is {description['digest']}")
    for block, family in description.get("families", {}).items():
        options = ", ".join(f"{key}={_short(value)}" for key, value in family.items() if key != "family")
        lines.append(f"{block}: {family['family']}({options})")
    return "\n".join(lines)


def _speaking(classes: Sequence[Mapping[str, Any]]) -> Table:
    """What speaks most for each of the largest classes, as many lines for each as make one table of them all."""
    shown = classes[:MOST_ACROSS]
    each = 2 * MOST_LINES // max(len(shown), 1)
    rows = [
        [name_of(found["class"]), name_of(pair["feature"]), _value_of(pair), name_of(pair["against"]), _odds(pair)]
        for found in shown
        for pair in found["features"][:each]
    ]
    title = "what speaks most for a class: log odds against the other class that comes nearest"
    if len(shown) < len(classes):
        title += f", of the {len(shown)} largest classes"
    return Table(["class", "feature", "value", "against", "log odds"], rows, title=title)


def _value_of(pair: Mapping[str, Any]) -> str:
    """A value as text; of a number on which side of the other class it lies."""
    if pair["separation"] is None:
        return name_of(pair["value"])
    return f"{pair['value']}, {'above' if pair['separation'] > 0 else 'below'}"


def _odds(pair: Mapping[str, Any]) -> str:
    return "inf" if pair["log_odds"] is None else f"{pair['log_odds']:.3f}"


def _of_kind(
    kind: str, columns: Sequence[Mapping[str, Any]], classes: Sequence[Mapping[str, Any]], across: Sequence[int]
) -> Iterator[Table]:
    """The table of one kind of column: a line each, with the chosen classes side by side."""
    headings, cell = _cells(columns[0])
    aside = ["missing"] if "missing" in columns[0] else []
    rows = []
    for column in columns[:MOST_LINES]:
        missing = [_missing(column)] if aside else []
        rows.append([name_of(column["name"]), *missing, *cell(column, across)])
    title = f"{kind}: {headings}"
    if kind == "text":
        header = [kind, *aside, "tokens", *(["most frequent"] if "top" in columns[0] else [])]
    elif kind != "categorical":
        names = [name_of(classes[i]["class"]) for i in across]
        if len(across) < len(classes):
            title += f", of the {len(across)} largest classes (... and {len(classes) - len(across):,} more)"
        header = [kind, *aside, *names]
    else:
        header = [kind, *aside, "categories", "most frequent"]
    yield Table(header, rows, max(len(columns) - MOST_LINES, 0), title)


Cell = Callable[[Mapping[str, Any], Sequence[int]], list[str]]


def _cells(column: Mapping[str, Any]) -> tuple[str, Cell]:
    """What stands in the cells of a kind of column: in words, and as a function of column and classes."""
    kind = column["kind"]
    if kind == "numeric":

        def spread(column: Mapping[str, Any], across: Sequence[int]) -> list[str]:
            pairs = [(column["means"][i], column["standard_deviations"][i]) for i in across]
            return ["-" if mean is None else f"{_number(mean)} ± {_number(deviation)}" for mean, deviation in pairs]

        return "mean ± standard deviation", spread
    if kind == "categorical":

        def frequent(column: Mapping[str, Any], across: Sequence[int]) -> list[str]:
            best = [f"{name_of(each['category'])}{_share_of(each)}" for each in column["top"][:5]]
            left = column["categories"] - len(best)
            return [f"{column['categories']:,}", ", ".join(best) + (f" ... and {left:,} more" if left > 0 else "")]

        return "the most frequent categories", frequent
    if kind == "text":

        def tokens(column: Mapping[str, Any], across: Sequence[int]) -> list[str]:
            many_of_them = [f"{column['tokens']:,}"]
            if "top" in column:
                many_of_them.append(", ".join(name_of(each["token"]) for each in column["top"][:5]))
            return many_of_them

        return "distinct tokens" + (", and the most frequent" if "top" in column else ""), tokens
    key = next(key for key in PER_CLASS if key in column)
    words, show = PER_CLASS[key]
    return words, lambda column, across: [show(column[key][i]) for i in across]


def _largest(classes: Sequence[Mapping[str, Any]]) -> list[int]:
    """The classes to stand side by side: the most probable, in their own order."""
    order = sorted(range(len(classes)), key=lambda i: -(classes[i]["prior"] or 0.0))
    return sorted(order[:MOST_ACROSS])


def _missing(column: Mapping[str, Any]) -> str:
    gone, share = column["missing"], column["missing_share"]
    if gone is None:
        return _percent(share)
    return f"{gone:,} ({_percent(share)})" if gone else "0"


def _share_of(category: Mapping[str, Any]) -> str:
    return f" {_percent(category.get('share', category.get('probability')))}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return f"{value:,.0f}"
    # Large numbers keep their units: a mean near 1e9 with unit spread would otherwise show as 1e+09.
    return f"{value:,.1f}" if 1e3 <= abs(value) < 1e15 else f"{value:.4g}"


PER_CLASS: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "shares_of_ones": ("share of ones", _percent),
    "totals": ("totals", _number),
    "probabilities_of_one": ("probability of a one", _percent),
    "probabilities": ("probability of a token", _number),
    "weights": ("weight of a token", _number),
}
"""What columns with one number per class show: in words, and how it is written."""


def name_of(value: Any) -> str:
    """Return a name that neither disturbs a terminal nor is too wide for a table."""
    name = printable("null" if value is None else value)
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 3]}..."


def _short(value: Any) -> str:
    shown = printable(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def many(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun in the right form."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


# How it looks -------------------------------------------------------------------------------------------------------


def _aligned(table: Table) -> str:
    """Columns aligned by spaces: names to the left, numbers to the right."""
    left = [i == 0 or name in WORDS for i, name in enumerate(table.header)]
    rows = [table.header, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.header))]
    lines = [f"{table.title}"] if table.title else []
    for row in rows:
        cells = [
            cell.ljust(width) if is_left else cell.rjust(width)
            for cell, width, is_left in zip(row, widths, left, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    if table.more:
        lines.append(f"... and {table.more:,} more")
    return "\n".join(lines)


def _ruled(parts: Sequence[str | Table]) -> str:
    """Tables drawn by Rich, as wide as the terminal."""
    from io import StringIO

    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    console = Console(file=StringIO(), force_terminal=True, highlight=False)
    for part in parts:
        # Text, not str: Rich would read a name in square brackets as markup.
        if isinstance(part, str):
            console.print(Text(part))
            continue
        if part.title:
            console.print(Text(part.title))
        drawn = Drawn(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, name in enumerate(part.header):
            left = i == 0 or name in WORDS
            drawn.add_column(Text(name), justify="left" if left else "right", overflow="fold")
        for row in part.rows:
            drawn.add_row(*map(Text, row))
        console.print(drawn)
        if part.more:
            console.print(Text(f"... and {part.more:,} more"))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().rstrip("\n")
