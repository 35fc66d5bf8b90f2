"""What goes wrong on the command line becomes one line on stderr and an exit code; never a traceback."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

__all__ = ["Commands"]

LONGEST_MESSAGE = 600
"""Characters of an error message; some libraries put a whole schema into theirs."""


class Commands(TyperGroup):
    """Runs a command; what goes wrong becomes one line on stderr and exit code 1 (2 for wrong usage)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take `--debug` wherever it stands: people add it to the end of the line that failed."""
        if "--debug" in args:
            args = ["--debug", *(arg for arg in args if arg != "--debug")]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command of the line."""
        from streamnb.errors import ManyCategoriesWarning, SkippedWarning

        usage: tuple[Any, ...] = (typer.Exit, typer.Abort, *typer.BadParameter.__bases__)
        with warnings.catch_warnings():
            for category in (ManyCategoriesWarning, SkippedWarning):
                warnings.simplefilter("always", category)
            warnings.showwarning = _show_warning
            for name in ("stdout", "stderr"):
                if getattr(sys, name) is None:  # closed by the shell; a file opened next must not take its number
                    setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123
            for stream in (sys.stdout, sys.stderr):
                with suppress(AttributeError, ValueError):  # a label that the terminal's encoding lacks is no error
                    stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()  # a closed pipe shows itself here, not at the end of the interpreter
            except usage:
                raise
            except BrokenPipeError:
                _forget_stdout()
                raise typer.Exit(1) from None
            except KeyboardInterrupt as error:
                _fail(str(error) or "interrupted")
            except Exception as error:
                if ctx.params.get("debug"):
                    raise
                _fail(_message(error))
        return result


def _fail(message: str) -> NoReturn:
    from streamnb.showtext import printable

    line = printable(" ".join(message.split()))
    if len(line) > LONGEST_MESSAGE:
        line = f"{line[:LONGEST_MESSAGE]} ... (cut; --debug shows all of it)"
    typer.echo(f"error: {line}", err=True)
    raise typer.Exit(1) from None


def _message(error: Exception) -> str:
    from streamnb.errors import StreamNBError

    if isinstance(error, StreamNBError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, OSError | ValueError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error} (--debug shows the traceback)"


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    from streamnb.errors import SkippedWarning
    from streamnb.showtext import printable

    word = "skipped" if issubclass(category, SkippedWarning) else "warning"
    typer.echo(f"{word}: {printable(' '.join(str(message).split()))[:LONGEST_MESSAGE]}", err=True)


def _forget_stdout() -> None:
    """Let the interpreter's last flush go nowhere: the reader of the pipe has gone."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
