"""What a person writes after an option of the command line, as values: lists, numbers by name, priors."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Data",
    "Infinite",
    "Model",
    "Names",
    "OnError",
    "Output",
    "StateFile",
    "Unseen",
    "Workers",
    "class_prior",
    "i_of_n",
    "items",
    "labels_of",
    "number_or_numbers",
]

Data = Annotated[
    list[str], typer.Argument(metavar="DATA...", help="Files, globs, folders or object-store URIs.", show_default=False)
]
Output = Annotated[Path, typer.Option("--output", "-o", help="The file to write.", show_default=False)]
Workers = Annotated[int | None, typer.Option(min=1, help="Threads; one per core if not given.")]
Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model, or a state (finished with the defaults).", show_default=False)
]
StateFile = Annotated[Path, typer.Argument(metavar="STATE", help="A state file.", show_default=False)]
Names = list[str] | None


class OnError(StrEnum):
    """What happens to a damaged file."""

    raise_ = "raise"
    skip = "skip"


class Infinite(StrEnum):
    """What happens to ±inf among the features."""

    error = "error"
    missing = "missing"


class Unseen(StrEnum):
    """What a category adds that training never saw."""

    ignore = "ignore"
    smooth = "smooth"
    error = "error"


def items(given: Iterable[str] | None) -> list[str]:
    """Return the items of comma-separated lists, one after the other; a name with a comma stands in quotes.

    >>> items(['age, height', '"weight, kg"'])
    ['age', 'height', 'weight, kg']
    """
    rows = csv.reader(given or (), skipinitialspace=True)
    return [item for row in rows for item in row if item]


def i_of_n(text: str | None) -> tuple[int, int] | None:
    """Return "3/8" as two numbers, the first from 1 to the second; None stays None.

    Raises:
        typer.BadParameter: anything else.

    >>> i_of_n("3/8")
    (3, 8)
    """
    if text is None:
        return None
    i, slash, n = text.partition("/")
    if not (slash and i.strip().isdecimal() and n.strip().isdecimal() and 1 <= int(i) <= int(n)):
        raise typer.BadParameter(f"expected I/N with I from 1 to N, such as 3/8, got {text!r}", param_hint="--shard")
    return int(i), int(n)


def number_or_numbers(text: str | None, option: str) -> Any:
    """Return "0.5" as a number, "0.5,1" as a list and "a=0.5,b=1" as a mapping by name; None stays None.

    Raises:
        typer.BadParameter: anything else.

    >>> number_or_numbers("0.5", "--alpha"), number_or_numbers("a=0.5,b=1", "--alpha")
    (0.5, {'a': 0.5, 'b': 1.0})
    """
    if text is None:
        return None
    parts = items([text])
    if any("=" in part for part in parts):
        return _by_name(parts, option)
    numbers = [_number(part, option) for part in parts]
    if not numbers:
        raise typer.BadParameter(f"expected a number, got {text!r}", param_hint=option)
    return numbers[0] if len(numbers) == 1 else numbers


def class_prior(text: str, classes: pa.Array) -> Any:
    """Return "empirical" or "uniform" as they are, and "a=0.7,b=0.3" by label, in the labels' own type.

    Raises:
        typer.BadParameter: another word, or no number after a label.
        ValueError: a label that cannot be one of the classes' type.

    >>> import pyarrow as pa
    >>> class_prior("1=0.7,2=0.3", pa.array([1, 2]))
    {1: 0.7, 2: 0.3}
    """
    if text in ("empirical", "uniform"):
        return text
    if "=" not in text:
        raise typer.BadParameter(
            f"expected empirical, uniform or probabilities like a=0.7,b=0.3, got {text!r}", param_hint="--prior"
        )
    given = _by_name(items([text]), "--prior")
    return dict(zip(labels_of(list(given), classes, "--prior"), given.values(), strict=True))


def labels_of(names: Sequence[str], classes: pa.Array, option: str) -> list[Any]:
    """Return the labels that these names are the text of.

    Raises:
        ValueError: a name that cannot be one of the classes' type.

    >>> import pyarrow as pa
    >>> labels_of(["2"], pa.array([1, 2]), "--label")
    [2]
    """
    import pyarrow as pa

    # A label as it is shown is always understood, whatever its type; another spelling must cast to the type.
    shown = {str(label): label for label in classes.to_pylist()}
    labels = []
    for name in names:
        if name in shown:
            labels.append(shown[name])
            continue
        try:
            labels.append(pa.array([name], pa.string()).cast(classes.type)[0].as_py())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise ValueError(f"Expected labels of type {classes.type} in {option}, got {name!r}") from None
    return labels


def _by_name(parts: Iterable[str], option: str) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for part in parts:
        name, equals, number = part.rpartition("=")
        if not equals:
            raise typer.BadParameter(f"expected name=number, got {part!r}", param_hint=option)
        if name in numbers:
            raise typer.BadParameter(f"expected each name once, got {name!r} twice", param_hint=option)
        numbers[name] = _number(number, option)
    return numbers


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"expected a number, got {text!r}", param_hint=option) from None
