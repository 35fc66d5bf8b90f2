"""Spark: DataFrames counted where they are, whatever happens to tasks and executors; large results are not lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_fixtures import TESTS, environment, need, started
from engine_tasks import LINGER_SECONDS, SCHEMA, UnluckyCounting, kill_worker, plain_loop, write
from strategies import assert_agree

import streamnb as snb
from streamnb import accumulator
from streamnb.engines import spark

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Spark on two cores, which tries a task four times."""
    with started("spark", tmp_path_factory.mktemp("spark")) as options:
        yield options["session"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dozen files."""
    return write(tmp_path_factory.mktemp("frames") / "data")


@pytest.fixture
def frame(session: Any, folder: Path) -> Any:
    """The files as a DataFrame."""
    return session.read.parquet(str(folder))


def script(name: str, *arguments: str | Path, tmp: Path) -> dict[str, Any]:
    """Run a script of the tests in a process of its own; return what it printed."""
    need("spark")
    places = {"SPARK_WORKER_DIR": str(tmp / "work"), "SPARK_LOCAL_DIRS": str(tmp)}
    run = subprocess.run(
        [sys.executable, str(TESTS / name), *map(str, arguments)],
        env={**os.environ, **environment(), **places},
        cwd=tmp,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    said: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return said


def test_a_frame_is_counted_like_a_plain_loop(frame: Any, folder: Path) -> None:
    """Counts exactly, moments to rounding; in few partitions, in many, in more than there are rows."""
    expected = plain_loop(folder)
    for partitions in (1, 3, 40):
        assert_agree(spark.fit(frame.repartition(partitions), SCHEMA), expected, moments=1e-12)
    few = frame.limit(3).repartition(9)
    assert spark.fit(few, SCHEMA).n_rows + spark.fit(few, SCHEMA).rows_without_label == 3


def test_no_rows_are_an_empty_state(frame: Any) -> None:
    """Partitions without rows, and a frame without partitions, add nothing and are not taken for a loss."""
    assert spark.fit(frame.filter("x > 1e6"), SCHEMA) == snb.State(SCHEMA)
    assert spark.fit(frame.sparkSession.createDataFrame([], frame.schema), SCHEMA) == snb.State(SCHEMA)


def test_a_killed_task_changes_nothing(
    frame: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Python worker is SIGKILLed half way through its partition; Spark counts the partition anew, and once."""
    counting, marker = accumulator.Counting, tmp_path / "killed"
    monkeypatch.setattr(accumulator, "Counting", lambda schema: UnluckyCounting(counting(schema), kill_worker, marker))
    assert_agree(spark.fit(frame.repartition(5), SCHEMA), plain_loop(folder), moments=1e-12)
    assert marker.exists()


def test_an_error_is_raised_here_and_names_the_partition(frame: Any) -> None:
    """As the error it is, without Spark's pages of traceback; a column that is absent is named before any work."""
    from pyspark.sql import functions

    bad = frame.repartition(3).withColumn("x", functions.expr("if(site = 'only 7', double('inf'), x)"))
    with pytest.raises(snb.DataError, match=r"inf.*\(partition \d\).*column 'x'") as raised:
        spark.fit(bad, SCHEMA)
    assert len(str(raised.value)) < 200
    with pytest.raises(snb.SchemaError, match=r"Expected one column 'site'.*got none; did you mean 'sites'\?"):
        spark.fit(frame.withColumnRenamed("site", "sites"), SCHEMA)


def test_columns_of_any_name(session: Any) -> None:
    """Dots, spaces and backticks are parts of names."""
    table = pa.table({"the y": ["a", "b", "a"], "x.1`": [1.0, 2.0, 4.0]})
    schema = snb.Schema(label="the y", numeric=["x.1`"])
    expected = snb.State(schema)
    expected.update(table)
    frame = session.createDataFrame(table.to_pylist())
    assert_agree(spark.fit(frame, schema), expected)
    model = expected.finish()
    assert [row[0] for row in spark.predict(frame, model).collect()] == model.predict(table).to_pylist()


def test_groups_are_a_frame_of_states(frame: Any, folder: Path) -> None:
    """One state for each value, as bytes; they roll up to the state of all rows."""
    found = spark.fit_groups(frame, SCHEMA, by="site").collect()
    states = {row["site"]: snb.State.from_bytes(bytes(row["state"])) for row in found}
    expected = snb.fit_groups(folder, by="site", schema=SCHEMA)
    assert states.keys() == expected.keys()
    for key, state in states.items():
        assert_agree(state, expected[key], moments=1e-12)
    assert_agree(sum(states.values(), snb.State(SCHEMA)), plain_loop(folder), moments=1e-12)


def test_predictions_are_a_frame(frame: Any, folder: Path, tmp_path: Path) -> None:
    """Kept columns, the prediction and probabilities: those of the model; written by Spark as any frame."""
    model = plain_loop(folder).finish()
    scored = spark.predict(frame, model, proba=True, keep=["x", "site"])
    labels = model.classes.to_pylist()
    assert scored.columns == ["x", "site", "prediction", *(f"proba_{label}" for label in labels)]
    scored.write.parquet(str(tmp_path / "scored"))
    snb.predict(model, folder, tmp_path / "here.parquet", proba=True, keep=["x", "site"])
    order = [(name, "ascending") for name in ("proba_a", "x", "site")]
    theirs = pq.read_table(tmp_path / "scored").sort_by(order)
    ours = pq.read_table(tmp_path / "here.parquet").sort_by(order)
    assert theirs["prediction"].to_pylist() == ours["prediction"].to_pylist()
    for label in labels:
        assert theirs[f"proba_{label}"].to_numpy() == pytest.approx(ours[f"proba_{label}"].to_numpy(), rel=1e-12)
    with pytest.raises(snb.SchemaError, match="got 'prediction' as both"):
        spark.predict(frame, model, keep=["prediction"])


def test_labels_keep_their_type(session: Any) -> None:
    """Integer labels are integers in the frame of predictions."""
    table = pa.table({"y": [1, 2, 1, 2], "x": [1.0, 5.0, 1.5, 6.0]})
    state = snb.State(snb.Schema(label="y", numeric=["x"]))
    state.update(table)
    answers = spark.predict(session.createDataFrame(table.to_pylist()), state.finish())
    assert answers.dtypes == [("prediction", "bigint")]
    assert sorted(row.prediction for row in answers.collect()) == [1, 1, 2, 2]


def test_a_lost_piece_is_an_error() -> None:
    """What comes back is held against what must come: a piece, a place or all of it missing is no result."""
    batches = list(spark._pieces(4, b"x" * (2 * spark.PIECE_BYTES)))
    assert [batch.column("piece")[0].as_py() for batch in batches] == [0, 1, 2]
    ((place, _),) = spark._assembled(batches[::-1])
    assert place == 4
    for lost in range(3):
        with pytest.raises(snb.EngineError, match=r"got 1 results in part; is spark\.driver\.memory too small"):
            list(spark._assembled(batches[:lost] + batches[lost + 1 :]))


class Losing:
    """A session whose job loses a row on the way, as a driver without memory does."""

    def __init__(self, session: Any, keep: slice) -> None:
        self.session, self.keep = session, keep

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def range(self, *arguments: int) -> Any:
        """The rows of the job, some of which will not come."""
        rows = self.session.range(*arguments)
        first, last, _ = self.keep.indices(rows.count())
        return rows.filter(f"id >= {first} and id < {last}")


@pytest.mark.parametrize("keep", [slice(0, -1), slice(1, None), slice(0, 0)], ids=["last", "first", "all"])
def test_lost_rows_are_an_error(session: Any, keep: slice) -> None:
    """Nothing raises in Spark when rows do not come; here it is an error that says what to do."""
    with pytest.raises(snb.EngineError, match=r"got nothing of shards \d+ to \d+.*spark\.driver\.memory"):
        list(spark.Spark(Losing(session, keep)).map(abs, range(6)))


def test_large_results_do_not_vanish(tmp_path: Path) -> None:
    """With a small heap Spark's own collect loses a row of 60 MB and says nothing; in pieces all of it comes."""
    said = script("spark_big_results.py", "60", "600m", tmp=tmp_path)
    assert said["raw"] != 2
    assert said["ours"] == [60 << 20] * 2 or isinstance(said["ours"], str)


def test_a_cluster_that_loses_workers_and_executors(folder: Path, tmp_path: Path) -> None:
    """Two executors; a Python worker and a whole executor are SIGKILLed on the way: exact each time."""
    seconds = script("spark_cluster.py", "local-cluster[2,1,1024]", folder, tmp_path, tmp=tmp_path)
    assert len(seconds) == 4


def test_a_task_that_is_overtaken_by_its_copy_counts_once(folder: Path, tmp_path: Path) -> None:
    """Two hosts with speculative execution; a task hangs when it has counted, and its copy on the other answers."""
    seconds = script("spark_cluster.py", "standalone", folder, tmp_path, tmp=tmp_path)
    assert len(seconds) == 2
    assert max(seconds.values()) < LINGER_SECONDS
