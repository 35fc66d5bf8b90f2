"""The command line itself, before it has commands."""

from __future__ import annotations

from typing import Annotated

import typer

from streamnb.clierrors import Commands

__all__ = ["app", "example"]

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: it starts faster, and reads the same in a pipe
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def example(*lines: str) -> str:
    """Return the last paragraph of a command's help; the mark keeps its lines as they are."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def _print_version(wanted: bool) -> None:
    if wanted:
        from streamnb import __version__

        typer.echo(f"streamnb {__version__}")
        raise typer.Exit


@app.callback()
def streamnb(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", envvar="STREAMNB_DEBUG", help="Show the traceback of an error.")
    ] = False,
) -> None:
    """Naive Bayes for tables larger than memory: one pass, exact merging, scikit-learn's numbers.

    Results go to stdout, progress and notes to stderr. Exit code 0; 1 with one line that says what is wrong; 2 for
    wrong usage. `streamnb COMMAND --help` explains a command.
    """
