"""Engines: an ordered map over shards, by name; each is one small file that is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from streamnb.engines.stopping import raise_if_stopped
from streamnb.protocols import Engine

__all__ = ["get_engine", "raise_if_stopped"]

_ENGINES = {
    "threads": ("streamnb.engines.threads", "Threads", "workers"),
    "spark": ("streamnb.engines.spark", "Spark", "session"),
    "dask": ("streamnb.engines.dask", "Dask", "client"),
    "ray": ("streamnb.engines.ray", "Ray", ""),
}
"""By name: the module, the class in it, and the one option that it takes."""


def get_engine(engine: str | Engine, workers: int | None = None, *, session: Any = None, client: Any = None) -> Engine:
    """Return the engine of a name, or the one that is given.

    `workers` belongs to "threads", `session` to "spark", `client` to "dask".

    Raises:
        ValueError: no engine of that name, an option that it does not take, or fewer workers than 1.
        MissingExtraError: the package that the engine drives is not installed.

    >>> list(get_engine("threads", 2).map(abs, [-1, -2, -3]))
    [1, 2, 3]
    """
    options = {"session": session, "client": client}
    if not isinstance(engine, str):
        if not callable(getattr(engine, "map", None)):
            raise ValueError(f"Expected an engine, which has a method map, got {type(engine).__name__}")
        _refuse_others(options, "", type(engine).__name__)
        return engine
    if engine not in _ENGINES:
        raise ValueError(f"Expected an engine among {', '.join(map(repr, _ENGINES))}, got {engine!r}")
    module, name, option = _ENGINES[engine]
    _refuse_others(options if option == "workers" else {**options, "workers": workers}, option, engine)
    make: Any = getattr(import_module(module), name)
    return cast("Engine", make({**options, "workers": workers}[option]) if option else make())


def _refuse_others(options: dict[str, Any], own: str, engine: str) -> None:
    for name, value in options.items():
        if value is not None and name != own:
            raise ValueError(f"Expected {name}= with the engine that takes it, got it with {engine!r}")
