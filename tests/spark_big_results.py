"""Run by test_spark.py in a process of its own, as the heap of a driver is set when it starts: results that are large.

Prints what came of Spark's own `collect` with one row a result, and of the engine.
"""

import json
import sys
from typing import Any

import pyarrow as pa
from engine_fixtures import spark_session

from streamnb import EngineError
from streamnb.engines.spark import Spark

SIZE = int(sys.argv[1]) << 20


def large(number: int) -> bytes:
    """A result of some megabytes."""
    return bytes([number]) * SIZE


def whole(batches: Any) -> Any:
    """The same in one row."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield pa.record_batch({"content": pa.array([large(number)], pa.binary())})


def main() -> None:
    """Ask for two large results, both ways."""
    from pyspark import cloudpickle

    import __main__

    cloudpickle.register_pickle_by_value(__main__)
    session = spark_session("local[2]", **{"spark.driver.memory": sys.argv[2], "spark.driver.maxResultSize": "0"})
    said: dict[str, Any] = {}
    try:
        said["raw"] = len(session.range(0, 2, 1, 2).mapInArrow(whole, "content binary").collect())
    except Exception as error:  # whatever it is: it was not silent
        said["raw"] = type(error).__name__
    try:
        said["ours"] = [len(each) for each in Spark(session).map(large, range(2))]
    except EngineError as error:
        said["ours"] = str(error)
    except Exception as error:
        said["ours"] = f"{type(error).__name__}: {error}"
    sys.stdout.write(json.dumps(said) + "\n")
    session.stop()


if __name__ == "__main__":
    main()
