"""Engines: an ordered map over shards, by name; each is one small file that is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from streamnb.engines.stopping import raise_if_stopped
from streamnb.protocols import Engine

__all__ = ["get_engine", "raise_if_stopped"]

_ENGINES = {"threads": ("streamnb.engines.threads", "Threads")}


def get_engine(engine: str | Engine, workers: int | None = None) -> Engine:
    """Return the engine of a name, or the one that is given.

    Raises:
        ValueError: no engine of that name, or fewer workers than 1.

    >>> list(get_engine("threads", 2).map(abs, [-1, -2, -3]))
    [1, 2, 3]
    """
    if not isinstance(engine, str):
        if not callable(getattr(engine, "map", None)):
            raise ValueError(f"Expected an engine, which has a method map, got {type(engine).__name__}")
        return engine
    if engine not in _ENGINES:
        raise ValueError(f"Expected an engine among {', '.join(map(repr, _ENGINES))}, got {engine!r}")
    module, name = _ENGINES[engine]
    make: Any = getattr(import_module(module), name)
    return cast("Engine", make(workers))
