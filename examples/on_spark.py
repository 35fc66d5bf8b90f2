"""Spark counts a folder of files, and a DataFrame; the model scores a DataFrame where its rows are.

Needs Java 17. On a cluster leave out `master` and the two settings that keep this on one machine; streamnb must be
installed where the executors run.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import streamnb as snb
from streamnb.engines import spark


def main() -> None:
    """Write a few files and take them both ways."""
    from pyspark.sql import SparkSession

    folder = Path(tempfile.mkdtemp()) / "data"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):
        y = rng.integers(0, 2, 5_000)
        pl.DataFrame({"y": y, "x": rng.normal(y * 2.0)}).write_parquet(folder / f"part-{i:02}.parquet")

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take the first python3 on the PATH
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()

    state = snb.fit(folder, label="y", engine="spark", session=session)
    print("the bytes of one machine:", state == snb.fit(folder, label="y"))

    frame = session.read.parquet(str(folder)).where("x > -1")
    part = spark.fit(frame, state.schema)
    scored = spark.predict(frame, part.finish(), keep=["y"])
    print(f"{part.n_rows} rows of the DataFrame, {scored.where('y = prediction').count()} predicted right")
    session.stop()


if __name__ == "__main__":
    main()
