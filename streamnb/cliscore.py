"""The command `score`: predict from topic to topic."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from streamnb.cliapp import app, example
from streamnb.clifiles import note
from streamnb.clifollow import Bootstrap, Client, MessageFormats, client_options

__all__ = ["score"]

LOG_SECONDS = 10.0


@app.command(
    epilog=example(
        "streamnb score --bootstrap localhost:9092 --in visits --out visits-scored --model model.snb --proba"
    )
)
def score(
    bootstrap: Bootstrap,
    source: Annotated[str, typer.Option("--in", metavar="TOPIC", help="The topic to read.")],
    target: Annotated[str, typer.Option("--out", metavar="TOPIC", help="The topic of the answers.")],
    model: Annotated[Path, typer.Option(help="A model file; read anew whenever it has changed.")],
    message_format: Annotated[
        MessageFormats, typer.Option("--format", help="A JSON object, or an Arrow IPC stream, a message.")
    ] = MessageFormats.json,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of each class.")] = False,
    group: Annotated[str, typer.Option(help="The consumer group, whose offsets are the position.")] = "streamnb-score",
    at_least_once: Annotated[
        bool, typer.Option("--at-least-once", help="For a broker without transactions; answers may come twice.")
    ] = False,
    max_messages: Annotated[int | None, typer.Option(min=1, help="Stop after so many messages.")] = None,
    client: Client = None,
) -> None:
    """Predict from topic to topic, exactly once.

    Each message is answered by one with the same key, headers and time. SIGTERM and Ctrl-C stop it between batches.
    """
    from streamnb.scoretopic import score_topic

    said_at = 0.0

    def report(event: str, **details: Any) -> None:
        nonlocal said_at
        now = time.monotonic()
        if event != "scored" or now - said_at >= LOG_SECONDS:
            said_at = now
            line = {"time": round(time.time(), 3), "event": event, **details}
            note(" ".join(f"{v}" for v in (event, *details.values())) if sys.stderr.isatty() else json.dumps(line))

    done = score_topic(
        bootstrap,
        source,
        target,
        model,
        message_format=message_format.value,
        proba=proba,
        group=group,
        exactly_once=not at_least_once,
        max_messages=max_messages,
        client=client_options(client),
        progress=report,
    )
    note(f"{done:,} messages {source} -> {target}")
