"""How a running task hears that its engine stops: it asks, between two batches."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from threading import Event

__all__ = ["Stopped", "raise_if_stopped", "stopping_with"]


class Stopped(BaseException):
    """The engine stops, nobody waits for this task's result; not an error, so no `except Exception` may hold it."""


_event: ContextVar[Event | None] = ContextVar("streamnb_stop", default=None)


def raise_if_stopped() -> None:
    """Leave the running task if its engine is stopping; outside of an engine this does nothing.

    >>> raise_if_stopped()
    """
    event = _event.get()
    if event is not None and event.is_set():
        raise Stopped


def stopping_with(event: Event, task: Callable[..., object], *arguments: object) -> object:
    """Call the task so that `raise_if_stopped` within it follows this event."""
    token = _event.set(event)
    try:
        raise_if_stopped()
        return task(*arguments)
    finally:
        _event.reset(token)
