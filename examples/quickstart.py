"""Two days of files, counted apart, added up, finished, and evaluated on a third.

The rows of a day are visits: minutes on the page, the country, and whether the visitor came by phone.
"""

import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import streamnb as snb


def visits(seed: int, rows: int) -> pl.DataFrame:
    """Make the rows of one day; every tenth visitor's minutes were not measured."""
    rng = np.random.default_rng(seed)
    buys = rng.random(rows) < 0.3
    minutes = np.where(buys, rng.normal(9.0, 3.0, rows), rng.normal(4.0, 2.0, rows))
    country = np.where(buys, rng.choice(["Chile", "Ghana", "Peru"], rows), rng.choice(["Ghana", "Peru"], rows))
    day = pl.DataFrame({"outcome": np.where(buys, "buys", "leaves"), "minutes": minutes, "country": country})
    return day.with_columns(
        minutes=pl.when(pl.int_range(rows) % 10 != 0).then("minutes"),
        phone=pl.Series(rng.random(rows) < np.where(buys, 0.4, 0.7)),
    )


with tempfile.TemporaryDirectory() as folder:
    data = Path(folder)
    for name, seed in [("monday", 1), ("tuesday", 2), ("wednesday", 3)]:
        visits(seed, 20_000).write_parquet(data / f"{name}.parquet")

    # One pass over each day; the kinds of columns come from their types.
    monday = snb.fit(data / "monday.parquet", label="outcome")
    monday.save(data / "monday.snb")
    tuesday = snb.fit(data / "tuesday.parquet", label="outcome")
    print(f"monday:  {monday}")

    # States add up: this is the state of both files read together.
    both = snb.State.load(data / "monday.snb") + tuesday
    print(f"both:    {both}")

    # Smoothing and priors are chosen now, and cost no second read.
    model = both.finish(categorical=snb.Categorical(alpha=0.5), class_prior="empirical")
    print(f"classes: {model.classes.to_pylist()}")

    # A missing cell is left out of its row's score; the rest of the row still counts.
    someone = pl.DataFrame({"minutes": [11.0, None], "country": ["Chile", "Ghana"], "phone": [False, True]})
    answers = model.predict(someone).to_pylist()
    probabilities = model.predict_proba(someone)
    for row, answer, each in zip(someone.rows(), answers, probabilities, strict=True):
        print(f"{row} -> {answer}, probability {each.max():.3f}")

    report = snb.evaluate(model, data / "wednesday.parquet")
    print(f"wednesday: accuracy {report.accuracy:.3f}, log loss {report.log_loss:.3f}")
