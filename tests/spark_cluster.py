"""Run by test_spark.py in a process of its own: a Spark cluster of two executors, and what may happen to them.

Prints how many seconds the counting took with each accident; a state that is not that of one thread ends it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyspark
from engine_fixtures import spark_session
from engine_tasks import SCHEMA, Unlucky, UnluckyCounting, kill_executor, kill_worker, linger, plain_loop
from strategies import assert_agree

import streamnb as snb
from streamnb import accumulator
from streamnb.engines import spark


@contextmanager
def standalone(tmp: Path) -> Iterator[str]:
    """Start a master and two workers on addresses of their own: Spark starts no copy of a task on the same host."""
    home, port = Path(pyspark.__file__).parent, free_port()
    command = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy"]
    parts = [("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")]
    for host in ("127.0.0.2", "127.0.0.3"):
        parts.append(("worker.Worker", "--host", host, "-c", "1", "-m", "1g", "--webui-port", "0"))
        parts[-1] += ("-d", str(tmp / host), f"spark://127.0.0.1:{port}")
    with ExitStack() as stack:
        for name, *arguments in parts:
            run = subprocess.Popen(
                [command[0], f"{command[1]}.{name}", *arguments],
                env={**os.environ, "SPARK_LOCAL_IP": arguments[1]},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(run.wait)
            stack.callback(run.kill)
        yield f"spark://127.0.0.1:{port}"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main(session: Any, accidents: Sequence[Callable[[], None]], folder: Path, tmp: Path) -> None:
    """Count the files and the DataFrame, with each accident."""
    single, loop = snb.fit(folder, schema=SCHEMA, workers=1), plain_loop(folder)
    engine, frame = spark.Spark(session), session.read.parquet(str(folder)).repartition(6)
    said: dict[str, Any] = {}

    def files(accident: Callable[[], None], marker: Path) -> None:
        assert snb.fit(folder, schema=SCHEMA, engine=Unlucky(engine, accident, marker)) == single

    def rows(accident: Callable[[], None], marker: Path) -> None:
        counting = accumulator.Counting
        with patch.object(accumulator, "Counting", lambda schema: UnluckyCounting(counting(schema), accident, marker)):
            assert_agree(spark.fit(frame, SCHEMA), loop, moments=1e-12)

    for count in (files, rows):
        for accident in accidents:
            name = f"{count.__name__} {accident.__name__}"
            begin = time.monotonic()
            count(accident, tmp / name)
            assert (tmp / name).exists()
            said[name] = time.monotonic() - begin
    sys.stdout.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    master, folder, tmp = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    with ExitStack() as stack:
        settings = {"spark.executorEnv.PYTHONPATH": ":".join(sys.path), "spark.executor.memory": "600m"}
        accidents = [kill_worker, kill_executor]
        if master == "standalone":
            master = stack.enter_context(standalone(tmp))
            accidents = [linger]
            settings |= {
                "spark.speculation": "true",
                "spark.speculation.interval": "100ms",
                "spark.speculation.quantile": "0.5",
                "spark.speculation.minTaskRuntime": "500ms",
            }
        session = spark_session(master, **settings)
        stack.callback(session.stop)
        main(session, accidents, folder, tmp)
