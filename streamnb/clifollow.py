"""The command `follow`, and how it reports: one line that changes on a terminal, lines of JSON elsewhere."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamnb.cliapp import app, example
from streamnb.clifiles import check_target, note
from streamnb.options import Infinite, Names, items, number_or_numbers

if TYPE_CHECKING:
    from streamnb.follow import Following

__all__ = ["Bootstrap", "Client", "MessageFormats", "client_options", "follow", "milliseconds", "seconds"]


class MessageFormats(StrEnum):
    """What one message holds."""

    json = "json"
    arrow = "arrow"


class From(StrEnum):
    """Where a partition begins that has no state."""

    beginning = "beginning"
    end = "end"


class Lost(StrEnum):
    """What to do when messages expired before they were read."""

    refuse = "refuse"
    accept = "accept"


class Assignments(StrEnum):
    """How a group shares partitions."""

    cooperative = "cooperative"
    eager = "eager"
    server = "server"


Bootstrap = Annotated[str, typer.Option(metavar="HOST:PORT", help="Brokers, separated by commas.")]
Client = Annotated[
    list[str] | None,
    typer.Option("--client", metavar="KEY=VALUE", help="An option of the client (librdkafka's names)."),
]


@app.command(
    epilog=example(
        "streamnb follow --bootstrap localhost:9092 --topic visits --label visit --state visits/",
        "streamnb follow --bootstrap b1:9092,b2:9092 --topic visits --label visit --state s3://models/visits \\\n"
        "      --group nb --dead-letters visits-bad --publish model.snb --every 60s --evaluate 100000",
    )
)
def follow(
    bootstrap: Bootstrap,
    topic: Annotated[str, typer.Option(help="The topic to count.")],
    state: Annotated[str, typer.Option("--state", metavar="DIR", help="The folder (or URI) of the state files.")],
    label: Annotated[str | None, typer.Option(help="The field of the classes.")] = None,
    numeric: Annotated[Names, typer.Option(metavar="NAMES", help="Numbers, modelled as normal per class.")] = None,
    categorical: Annotated[
        Names, typer.Option(metavar="NAMES", help="Strings, integers or booleans as values.")
    ] = None,
    binary: Annotated[Names, typer.Option(metavar="NAMES", help="Booleans or 0/1.")] = None,
    counts: Annotated[Names, typer.Option(metavar="NAMES", help="Counts, such as words; one block.")] = None,
    text: Annotated[Names, typer.Option(metavar="NAMES", help="Documents, or lists of tokens.")] = None,
    weight: Annotated[str | None, typer.Option(help="The field of row weights.")] = None,
    exclude: Annotated[
        Names, typer.Option(metavar="NAMES", help="Fields to leave out where kinds come from types.")
    ] = None,
    schema: Annotated[Path | None, typer.Option(help="All of this from a file of JSON instead.")] = None,
    binarize: Annotated[str | None, typer.Option(help="Threshold above which a binary field is 1.")] = None,
    infinite: Annotated[Infinite | None, typer.Option(help="Refuse ±inf, or take it as missing.")] = None,
    types: Annotated[
        Names, typer.Option(metavar="NAME=TYPE", help="Types of JSON values: string, int64, double, bool, list.")
    ] = None,
    message_format: Annotated[
        MessageFormats, typer.Option("--format", help="A JSON object, or an Arrow IPC stream, a message.")
    ] = MessageFormats.json,
    group: Annotated[str, typer.Option(help="The consumer group; its followers share the partitions.")] = "streamnb",
    start: Annotated[
        From | None, typer.Option("--from", help="Where to begin where there is no state.  [default: beginning]")
    ] = None,
    until_end: Annotated[bool, typer.Option("--until-end", help="Stop at what are the ends now.")] = False,
    max_rows: Annotated[int | None, typer.Option(min=1, help="Stop after so many rows.")] = None,
    save_every: Annotated[str, typer.Option(metavar="TIME", help="Write the files so often.")] = "10s",
    save_rows: Annotated[int, typer.Option(min=1, help="And at the latest after so many rows.")] = 5_000_000,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first bad message.")] = False,
    dead_letters: Annotated[str | None, typer.Option(metavar="TOPIC", help="Copy bad messages there.")] = None,
    lost: Annotated[Lost, typer.Option(help="When messages expired before they were read.")] = Lost.refuse,
    evaluate: Annotated[
        int | None, typer.Option(min=1, metavar="ROWS", help="Predict before counting; report all and the last ROWS.")
    ] = None,
    window: Annotated[str | None, typer.Option(metavar="TIME", help="Only the last while counts, such as 24h.")] = None,
    slide: Annotated[str | None, typer.Option(metavar="TIME", help="In steps of so much, such as 1h.")] = None,
    publish: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the newest model in this file.")] = None,
    every: Annotated[str, typer.Option(metavar="TIME", help="Write the model so often.")] = "60s",
    log_every: Annotated[str, typer.Option(metavar="TIME", help="Say how far it is so often, on no terminal.")] = "10s",
    assignment: Annotated[Assignments, typer.Option(help="How the group shares partitions.")] = Assignments.cooperative,
    client: Client = None,
) -> None:
    """Count a Kafka topic for as long as it lasts, each row once.

    The files in DIR hold counts and offsets together: after a crash, a rebalance or months, counting goes on where they
    end. SIGTERM and Ctrl-C save first. `streamnb show DIR` and `streamnb merge DIR` read them at any time.
    """
    kinds = {"numeric": numeric, "categorical": categorical, "binary": binary, "counts": counts, "text": text}
    options: dict[str, Any] = {kind: items(names) for kind, names in kinds.items() if names}
    by_type = not options
    given = {"weight": weight, "binarize": number_or_numbers(binarize, "--binarize")}
    given["infinite"] = None if infinite is None else infinite.value
    options |= {name: value for name, value in given.items() if value is not None}
    if schema is not None and (label is not None or options or exclude):
        raise typer.BadParameter("it holds the label and all fields; give it alone", param_hint="--schema")
    if schema is None and label is None:
        raise typer.BadParameter("expected --label or --schema, got neither", param_hint="--label")
    if exclude and not by_type:
        raise typer.BadParameter("it belongs to kinds that come from types", param_hint="--exclude")
    if slide is not None and window is None:
        raise typer.BadParameter("it belongs to --window", param_hint="--slide")
    if publish is not None:
        check_target(publish)

    from streamnb.follow import follow
    from streamnb.position import Window
    from streamnb.schema import Schema

    chosen = None if schema is None else Schema.from_json(schema.read_text(encoding="utf-8"))
    if chosen is None and not by_type:
        chosen, label, options = Schema(str(label), **options), None, {}
    size = None if window is None else milliseconds(window, "--window")
    report = _report_to_terminal() if sys.stderr.isatty() else _report_as_json(seconds(log_every, "--log-every"))
    counted = follow(
        bootstrap,
        topic,
        label,
        state=state,
        schema=chosen,
        types=_pairs(items(types), "--types"),
        message_format=message_format.value,
        group=group,
        start=None if start is None else start.value,
        until_end=until_end,
        max_rows=max_rows,
        save_seconds=seconds(save_every, "--save-every"),
        save_rows=save_rows,
        strict=strict,
        dead_letters=dead_letters,
        lost=lost.value,
        evaluate=evaluate,
        window=None if size is None else Window(size, size if slide is None else milliseconds(slide, "--slide")),
        publish=publish,
        publish_seconds=seconds(every, "--every"),
        assignment=assignment.value,
        client=client_options(client),
        progress=report,
        **(options | ({"exclude": items(exclude)} if exclude else {})),
    )
    note(f"{counted.n_rows:,} rows, {len(counted.classes):,} classes -> {state}")


def milliseconds(text: str, option: str) -> int:
    """Return "24h", "90s" or "500ms" as milliseconds.

    Raises:
        typer.BadParameter: anything else.

    >>> milliseconds("24h", "--window")
    86400000
    """
    unit = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?", text.strip())
    if found is None or float(found[1]) <= 0:
        raise typer.BadParameter(f"expected a time such as 500ms, 60s, 5m, 24h or 7d, got {text!r}", param_hint=option)
    return round(float(found[1]) * unit[found[2] or "s"])


def seconds(text: str, option: str) -> float:
    """Return "60s" and the like as seconds."""
    return milliseconds(text, option) / 1000


def client_options(given: list[str] | None) -> dict[str, str]:
    """Return the client's options by name."""
    return _pairs(given or [], "--client")


def _pairs(given: list[str], option: str) -> dict[str, str]:
    pairs = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"expected name=value, got {each!r}", param_hint=option)
        pairs[name] = value
    return pairs


def _report_as_json(every: float) -> Callable[[Following], None]:
    said_at = 0.0

    def report(at: Following) -> None:
        nonlocal said_at
        now = time.monotonic()
        if at.event in ("counting", "saved"):
            if now - said_at < every:
                return
            said_at = now
        line: dict[str, Any] = {"time": round(time.time(), 3), "event": at.event, **at.details, "rows": at.rows}
        line["rows_per_second"] = round(at.rows_per_second)
        maps: dict[str, Any] = {"next": at.next, "lag": at.lag, "skipped": at.skipped, "evaluation": at.evaluation}
        line |= {name: dict(value) for name, value in maps.items() if value}
        note(json.dumps(line, ensure_ascii=False))

    return report


def _report_to_terminal() -> Callable[[Following], None]:
    def report(at: Following) -> None:
        words = [f"{at.rows:,} rows", f"{at.rows_per_second:,.0f} rows/s", f"lag {sum(at.lag.values()):,}"]
        if at.skipped:
            words.append("skipped " + ", ".join(f"{number:,} {kind}" for kind, number in at.skipped.items()))
        if at.evaluation and "recent_accuracy" in at.evaluation:
            words.append(
                f"accuracy {at.evaluation['recent_accuracy']:.4f}, log loss {at.evaluation['recent_log_loss']:.4f}"
            )
        if at.event not in ("counting", "saved"):
            details = " ".join(f"{name} {value}" for name, value in at.details.items())
            note(f"\r\033[K{at.event.replace('_', ' ')} {details}")
        typer.echo(f"\r\033[K{'  '.join(words)}"[:160], err=True, nl=False)
        if at.event == "ended":
            note("")

    return report
