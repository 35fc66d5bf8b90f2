"""The options of the command line that are about text, and what they mean."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "Buckets",
    "DocumentFrequency",
    "Idf",
    "KeepCase",
    "MaxTokens",
    "MinCount",
    "Ngrams",
    "Normalize",
    "StopWords",
    "StripAccents",
    "Sublinear",
    "TextAlpha",
    "TextFamily",
    "TextNames",
    "TextTokens",
    "family_of_text",
    "text_columns",
]


class Cut(StrEnum):
    """What a token of a document is."""

    words = "words"
    whitespace = "whitespace"
    chars = "chars"


class Norm(StrEnum):
    """What the token weights of one document are divided by."""

    l1 = "l1"
    l2 = "l2"


class Family(StrEnum):
    """How tokens are modelled."""

    multinomial = "multinomial"
    complement = "complement"
    bernoulli = "bernoulli"


TextNames = Annotated[
    list[str] | None,
    typer.Option(metavar="NAMES", help="Columns of text, or of lists of tokens, or of maps from token to count."),
]
TextTokens = Annotated[Cut | None, typer.Option(help="What a token of --text is.  [default: words]")]
Ngrams = Annotated[
    str | None, typer.Option(metavar="N[,M]", help="Neighbouring tokens as one, from N to M of them.  [default: 1]")
]
StopWords = Annotated[Path | None, typer.Option(help="A file of tokens to leave out, one a line.")]
KeepCase = Annotated[bool, typer.Option("--keep-case", help="Do not turn text into lower case.")]
StripAccents = Annotated[bool, typer.Option("--strip-accents", help="Take the accents off letters.")]
Buckets = Annotated[int | None, typer.Option(min=1, help="Count tokens by hash in so many buckets: bounded memory.")]
Sublinear = Annotated[bool, typer.Option("--sublinear", help="1 + log of a token's count in a document.")]
Normalize = Annotated[Norm | None, typer.Option(help="Scale each document to this length.")]
DocumentFrequency = Annotated[
    bool, typer.Option("--document-frequency", help="Count documents too: for bernoulli and --idf at finish.")
]

TextFamily = Annotated[Family | None, typer.Option(help="Family of the text columns.  [default: multinomial]")]
TextAlpha = Annotated[float | None, typer.Option(help="Smoothing of text columns.")]
Idf = Annotated[bool, typer.Option("--idf", help="Weigh tokens of text by inverse document frequency.")]
MinCount = Annotated[float | None, typer.Option(min=0, help="Leave out tokens that were counted less often.")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Keep only the most frequent tokens of a column.")]


def text_columns(
    names: Sequence[str],
    *,
    tokens: Cut | None,
    ngrams: str | None,
    stop_words: Path | None,
    keep_case: bool,
    strip_accents: bool,
    buckets: int | None,
    sublinear: bool,
    normalize: Norm | None,
    document_frequency: bool,
) -> list[Any]:
    """Return the text columns of a schema, all with the same options; options without a column are wrong usage."""
    options = {
        "tokens": None if tokens is None else tokens.value,
        "ngrams": None if ngrams is None else _from_to(ngrams),
        "stop_words": stop_words,
        "lowercase": False if keep_case else None,
        "strip_accents": strip_accents or None,
        "buckets": buckets,
        "sublinear": sublinear or None,
        "normalize": None if normalize is None else normalize.value,
        "document_frequency": document_frequency or None,
    }
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if given and not names:
        option = {"tokens": "text-tokens", "lowercase": "keep-case"}.get(next(iter(given)), next(iter(given)))
        raise typer.BadParameter("it belongs to --text", param_hint=f"--{option.replace('_', '-')}")
    if not names:
        return []
    if stop_words is not None:
        try:
            lines = stop_words.read_text(encoding="utf-8-sig").splitlines()  # a byte order mark is part of no word
        except UnicodeDecodeError:
            raise typer.BadParameter(f"expected a file in UTF-8: {stop_words}", param_hint="--stop-words") from None
        given["stop_words"] = [line.strip() for line in lines if line.strip()]

    from streamnb.text import Text

    return [Text(name, **given) for name in names]


def _from_to(text: str) -> tuple[int, int]:
    """Return "2" as (2, 2) and "1,2" as (1, 2)."""
    numbers = text.split(",")
    if len(numbers) > 2 or not all(number.strip().isdecimal() for number in numbers):
        raise typer.BadParameter(f"expected one number or two, like 1,2, got {text!r}", param_hint="--ngrams")
    return int(numbers[0]), int(numbers[-1])


def family_of_text(
    family: Family | None, alpha: float, *, norm: bool, idf: bool, min_count: float | None, max_tokens: int | None
) -> Any:
    """Return the family of the text columns; `norm` goes with a complement only."""
    from streamnb.families import Bernoulli, Complement, Multinomial

    pruning: dict[str, Any] = {"idf": idf, "min_count": min_count or 0.0, "max_tokens": max_tokens}
    if family is Family.complement:
        return Complement(alpha, norm, **pruning)
    return (Bernoulli if family is Family.bernoulli else Multinomial)(alpha, **pruning)
