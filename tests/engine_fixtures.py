"""Sessions and clusters for the tests of the engines: small, on this machine alone, and ended with the tests."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from streamnb.engines import get_engine

TESTS = Path(__file__).parent
ENGINES = ("threads", "spark", "dask", "ray")
NEEDS = {"threads": "pyarrow", "spark": "pyspark", "dask": "distributed", "ray": "ray"}

SPARK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "FATAL",
}


def need(engine: str) -> None:
    """Skip the test where the engine's package, or Java, is not there."""
    if find_spec(NEEDS[engine]) is None:
        pytest.skip(f"{NEEDS[engine]} is not installed: pip install 'streamnb[{engine}]'")
    if engine == "spark" and shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17, and there is no java on the PATH")


def environment() -> dict[str, str]:
    """What workers need to know: the Python that has the packages, where streamnb and these tests are, loopback."""
    paths = [str(TESTS.parent), str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@contextmanager
def started(engine: str, tmp: Path) -> Iterator[dict[str, Any]]:
    """Start what the engine needs; yield the options that name it to `streamnb.fit`."""
    need(engine)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        for name, value in environment().items():
            patch.setenv(name, value)
        warnings.simplefilter("ignore", ResourceWarning)
        if engine == "threads":
            yield {"engine": "threads", "workers": 2}
        elif engine == "spark":
            patch.setenv("SPARK_LOCAL_DIRS", str(tmp))
            session = spark_session("local[2,4]", **{"spark.sql.warehouse.dir": str(tmp / "warehouse")})
            yield {"engine": "spark", "session": session}
            session.stop()
        elif engine == "dask":
            import distributed

            with (
                distributed.LocalCluster(
                    n_workers=2,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    host="127.0.0.1",
                    local_directory=str(tmp),
                ) as cluster,
                distributed.Client(cluster) as client,
            ):
                yield {"engine": "dask", "client": client}
        else:
            import ray

            ray.init(
                num_cpus=2,
                include_dashboard=False,
                object_store_memory=100 << 20,
                log_to_driver=False,
                _node_ip_address="127.0.0.1",
            )
            yield {"engine": "ray"}
            ray.shutdown()


def spark_session(master: str, **more: str) -> Any:
    """Start a Spark session."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("streamnb")
    for name, value in {**SPARK, **more}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def made(options: dict[str, Any]) -> Any:
    """The engine of these options."""
    return get_engine(
        options["engine"],
        options.get("workers"),
        session=options.get("session"),
        client=options.get("client"),
    )
