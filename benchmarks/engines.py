"""`python -m benchmarks.engines`: the same counting on Spark, Dask and Ray, beside Spark ML and beside our threads.

Sessions and clusters are started before the clock; every race is run in turn, and the best round counts. All of it on
the cores of this machine, so it shows what an engine costs, not what a cluster brings.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import streamnb as snb

FEATURES = [f"x{i}" for i in range(16)]
SCHEMAS = {
    "gaussian": snb.Schema(label="y", numeric=FEATURES),
    "multinomial": snb.Schema(label="y", counts=FEATURES),
}
SPARK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.log.level": "FATAL",
}


def tables(folder: Path, rows: int) -> None:
    """Write eight files of counts in float32, which both models can take."""
    draw = np.random.default_rng(0)
    for i in range(8):
        n = rows // 8
        y = draw.integers(0, 3, n)
        columns = {name: draw.poisson(2.0 + y * (j % 3)).astype("f4") for j, name in enumerate(FEATURES)}
        pq.write_table(pa.table({"y": y.astype("i4"), **columns}), folder / f"part-{i}.parquet")


def race(name: str, rounds: int, runners: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Run each in turn, once without the clock; print and return the best seconds of each."""
    best = dict.fromkeys(runners, float("inf"))
    for i in range(rounds + 1):
        for runner, run in runners.items():
            begin = time.perf_counter()
            run()
            if i:
                best[runner] = min(best[runner], time.perf_counter() - begin)
    first = next(iter(best.values()))
    for runner, seconds in best.items():
        print(f"{name:12} {runner:32} {seconds:7.3f} s   {seconds / first:6.2f} x")
    return best


def spark_races(folder: Path, rounds: int, cores: int) -> None:
    """Count a DataFrame against Spark ML, and the files against our threads."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.ml.classification import NaiveBayes
    from pyspark.ml.feature import VectorAssembler
    from pyspark.sql import SparkSession

    from streamnb.engines import spark

    builder = SparkSession.builder.master(f"local[{cores}]")
    for key, value in SPARK.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    frame = session.read.parquet(str(folder))
    vectors = VectorAssembler(inputCols=FEATURES, outputCol="features").transform(frame)
    for model, schema in SCHEMAS.items():
        theirs = NaiveBayes(modelType=model, labelCol="y", featuresCol="features")

        def ours(schema: snb.Schema = schema) -> snb.State:
            return spark.fit(frame, schema)

        def spark_ml(theirs: Any = theirs) -> Any:
            return theirs.fit(vectors)

        check(ours(), spark_ml(), model)
        race(model, rounds, {"streamnb on the DataFrame": ours, "Spark ML NaiveBayes": spark_ml})
    schema = SCHEMAS["gaussian"]
    race(
        "files",
        rounds,
        {
            "threads": lambda: snb.fit(folder, schema=schema, workers=cores),
            "spark": lambda: snb.fit(folder, schema=schema, engine="spark", session=session),
        },
    )
    session.stop()


def check(state: snb.State, theirs: Any, model: str) -> None:
    """Hold our means, or sums, against Spark ML's parameters: what is raced must be the same."""
    theta = theirs.theta.toArray()
    if model == "gaussian":
        mine = state.total.numeric.mean
    else:
        sums = state.total.counts.total
        mine = np.log((sums + 1.0) / (sums.sum(axis=1, keepdims=True) + sums.shape[1]))
    order = np.argsort(theta[:, 2])  # Spark orders the classes by how often they come
    np.testing.assert_allclose(mine[np.argsort(mine[:, 2])], theta[order], rtol=1e-6)


def dask_race(folder: Path, rounds: int, cores: int) -> None:
    """The files on Dask, against our threads."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=cores, threads_per_worker=1, dashboard_address=None, host="127.0.0.1"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        schema = SCHEMAS["gaussian"]
        race(
            "files",
            rounds,
            {
                "threads": lambda: snb.fit(folder, schema=schema, workers=cores),
                "dask": lambda: snb.fit(folder, schema=schema, engine="dask", client=client),
            },
        )


def ray_race(folder: Path, rounds: int, cores: int) -> None:
    """The files on Ray, against our threads."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.init(num_cpus=cores, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    schema = SCHEMAS["gaussian"]
    race(
        "files",
        rounds,
        {
            "threads": lambda: snb.fit(folder, schema=schema, workers=cores),
            "ray": lambda: snb.fit(folder, schema=schema, engine="ray"),
        },
    )
    ray.shutdown()


RACES = {"spark": spark_races, "dask": dask_race, "ray": ray_race}


def main() -> None:
    """Run the races that the command line names, by default all."""
    command = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    command.add_argument("names", nargs="*", metavar="engine", help=f"by default all: {', '.join(RACES)}")
    command.add_argument("--rows", type=int, default=8_000_000)
    command.add_argument("--repeat", type=int, default=3)
    command.add_argument("--cores", type=int, default=2)
    options = command.parse_args()
    unknown = set(options.names) - set(RACES)
    if unknown:
        command.error(f"Expected engines among {', '.join(RACES)}, got {', '.join(sorted(unknown))}")
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # of the engines, about pandas
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamnb-engines-")))
        tables(folder, options.rows)
        for name in options.names or RACES:
            RACES[name](folder, options.repeat, options.cores)


if __name__ == "__main__":
    main()
