"""The main job on data that it makes itself: count, merge, finish, predict, evaluate; step by step."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from streamnb.demokafka import demo_kafka
from streamnb.demotext import demo_text

if TYPE_CHECKING:
    import polars as pl

    from streamnb.state import State

__all__ = ["demo"]

FILE_ROWS = 500_000
"""Rows of one file, made at once: the memory that making takes does not grow with the rows in all."""

LABELS = ("browse", "buy", "leave")
SHARES = (0.55, 0.15, 0.30)
# What each class does, in the order of the labels.
MINUTES = ((6.0, 3.0), (9.0, 3.5), (1.5, 1.0))
BASKET = ((20.0, 15.0), (55.0, 25.0), (15.0, 12.0))
HOUR = ((15.0, 5.0), (19.0, 3.0), (14.0, 6.0))
COUNTRIES = ("Chile", "Ghana", "Japan", "Norway", "Peru")
COUNTRY = ((0.2, 0.2, 0.2, 0.2, 0.2), (0.1, 0.2, 0.4, 0.2, 0.1), (0.3, 0.2, 0.1, 0.1, 0.3))
CAME_FROM = ("mail", "search", "social", "typed")
CAME = ((0.1, 0.5, 0.3, 0.1), (0.35, 0.3, 0.05, 0.3), (0.05, 0.45, 0.45, 0.05))
KNOWN = (0.4, 0.8, 0.15)
PHONE = (0.6, 0.4, 0.75)
CLICKS = {"photos": (3.0, 4.0, 0.5), "reviews": (1.0, 3.0, 0.2), "prices": (1.5, 1.0, 0.4)}


def demo(
    rows: int,
    directory: Path | None,
    workers: int | None,
    say: Callable[[str], Any],
    *,
    text: bool = False,
    kafka: bool = False,
) -> None:
    """Make `rows` visits to a shop (`browse`, `buy` or `leave`), or documents, and learn them; `say` gets each line.

    With `kafka` the visits go through a topic of a broker that is started for it.

    The files stand in `directory`, or in a temporary folder that is removed at the end.
    """
    with ExitStack() as stack:
        if directory is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamnb-demo-")))
        else:
            folder = directory
            folder.mkdir(parents=True, exist_ok=True)
        if kafka:
            demo_kafka(rows, folder, say)
        else:
            (demo_text if text else _run)(rows, folder, workers, say)
        if directory is None:
            say(f"\nThe files were in {folder} and are gone now; --dir keeps them.")


def _run(rows: int, folder: Path, workers: int | None, say: Callable[[str], Any]) -> None:
    # Imported here, so that the first line stands on the screen before the heavy imports.
    say(f"1. Making {rows:,} visits to a shop, and {_holdout_rows(rows):,} more to be predicted, in {folder}")
    from streamnb.evaluation import evaluate
    from streamnb.score import predict
    from streamnb.show import telling
    from streamnb.state import State
    from streamnb.train import fit

    start = time.perf_counter()
    files, holdout = _make(rows, folder)
    size = sum(file.stat().st_size for file in files) / 1e6
    say(f"   {len(files)} Parquet files, {size:,.0f} MB: numbers, strings, booleans, counts, some missing")
    say(f"   {time.perf_counter() - start:.1f} s")

    say("\n2. Counting them in one pass, on all cores" if workers is None else "\n2. Counting them in one pass")
    kinds: dict[str, Any] = {"label": "visit", "counts": list(CLICKS)}
    start = time.perf_counter()
    state = fit(files, **kinds, workers=workers, progress=True)
    seconds = time.perf_counter() - start
    state.save(folder / "state.snb")
    say(f"   {state.n_rows:,} rows in {seconds:.2f} s: {state.n_rows / seconds:,.0f} rows/s")

    say("\n3. Counting each file apart, as ten people with ten files would, and adding the states up")
    merged = State(state.schema)
    for file in files:
        merged.merge(fit(file, schema=state.schema, workers=workers))
    say(f"   {_compared(state, merged)}")

    say("\n4. Turning the counts into a model, and predicting the visits that were held out")
    model = state.finish()
    model.save(folder / "model.snb")
    start = time.perf_counter()
    scored = predict(model, holdout, folder / "scored.parquet", proba=True, workers=workers)
    seconds = time.perf_counter() - start
    say(f"   {scored:,} rows scored to Parquet in {seconds:.2f} s: {scored / seconds:,.0f} rows/s")

    say("\n5. How good is it?")
    report = evaluate(model, holdout, workers=workers)
    most = max(np.asarray(state.total.class_weight)) / state.n_rows
    say(f"   accuracy {report.accuracy:.4f} (always saying the most frequent: {most:.4f})")
    say(f"   log loss {report.log_loss:.4f}, calibration error {report.expected_calibration_error:.4f}")

    say("\n6. What tells most of the visit, in bits")
    for name, kind, bits in telling(state.total)[:5]:
        say(f"   {name:<10}  {kind:<12} {bits:.3f}")


def _compared(state: State, merged: State) -> str:
    """Say how two states agree; counts must be equal, means may differ by rounding."""
    one, two = state.total, merged.total
    tables = [(one.rows, two.rows), (one.binary.total, two.binary.total), (one.counts.total, two.counts.total)]
    tables += [(one.categorical[name].counts, two.categorical[name].counts) for name in one.categorical]
    if not all(np.array_equal(a, b) for a, b in tables):
        raise AssertionError("Expected equal counts from all files at once and from each apart, got others")
    gap = float(np.max(np.abs(one.numeric.mean - two.numeric.mean) / np.abs(one.numeric.mean)))
    agreement = "the same to the last bit" if gap == 0 else f"the same to {gap:.0e}"
    return f"the same counts in all cells; means {agreement}"


# Making ------------------------------------------------------------------------------------------------------------


def _holdout_rows(rows: int) -> int:
    return min(max(rows // 20, 1000), FILE_ROWS)


def _make(rows: int, folder: Path) -> tuple[list[Path], Path]:
    """Write the files, two at a time, and return their paths, the one held out apart."""
    sizes = [min(FILE_ROWS, rows - first) for first in range(0, rows, FILE_ROWS)]
    files = [folder / f"visits-{i:03}.parquet" for i in range(len(sizes))]
    holdout = folder / "holdout.parquet"
    with ThreadPoolExecutor(2) as pool:
        jobs = list(enumerate(zip([*sizes, _holdout_rows(rows)], [*files, holdout], strict=True)))
        list(pool.map(lambda job: _visits(job[0], job[1][0]).write_parquet(job[1][1], compression="zstd"), jobs))
    return files, holdout


def _visits(seed: int, rows: int) -> pl.DataFrame:
    """Draw visits; the same seed gives the same rows."""
    import polars as pl

    draw = np.random.default_rng(seed)
    visit = np.searchsorted(np.cumsum(SHARES)[:-1], draw.random(rows, np.float32), side="right")

    def normal(spec: Any) -> Any:
        mean, deviation = np.array(spec, np.float32).T
        return draw.standard_normal(rows, np.float32) * deviation[visit] + mean[visit]

    def holes(values: Any, share: float) -> pl.Series:
        return pl.Series(values).set(pl.Series(draw.random(rows, np.float32) < share), None)

    def choice(names: tuple[str, ...], spec: Any) -> pl.Series:
        limits = np.cumsum(np.array(spec, np.float32), axis=1)[:, :-1]
        at = draw.random(rows, np.float32)
        codes = np.zeros(rows, np.uint32)
        for j in range(limits.shape[1]):
            codes += at > limits[visit, j]
        return pl.Series(names).gather(codes)

    def yes(spec: Any) -> Any:
        return draw.random(rows, np.float32) < np.array(spec, np.float32)[visit]

    return pl.DataFrame(
        {
            "visit": pl.Series(LABELS).gather(visit.astype(np.uint32)),
            "minutes": np.abs(normal(MINUTES)),
            "basket": holes(np.abs(normal(BASKET)), 0.05),
            "hour": np.clip(normal(HOUR), 0, 23).astype(np.int8),
            "country": choice(COUNTRIES, COUNTRY),
            "came_from": choice(CAME_FROM, CAME),
            "known": yes(KNOWN),
            "phone": holes(yes(PHONE), 0.02),
            # An exponential cut to whole numbers counts as well as a Poisson, and is made several times faster.
            **{
                name: (draw.standard_exponential(rows, np.float32) * np.array(mean, np.float32)[visit]).astype(np.int16)
                for name, mean in CLICKS.items()
            },
        }
    )
