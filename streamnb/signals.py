"""SIGTERM and Ctrl-C as a wish to stop, which work that must be saved looks at in its own time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["stopping"]


@contextmanager
def stopping(event: threading.Event) -> Iterator[threading.Event]:
    """Set the event on SIGTERM and on Ctrl-C; the second time, they end the process as ever."""
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def stop(number: int, _: Any) -> None:
        event.set()
        signal.signal(number, before[signal.Signals(number)] or signal.SIG_DFL)

    for number in before:
        signal.signal(number, stop)
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
