"""Four people with four machines and one shared folder: each counts a part, anyone merges.

Nothing runs between the machines; all that they share are files. The merged state has the bytes of a single run, and
until all parts are there it says which are missing.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import streamnb as snb

shared = Path(tempfile.mkdtemp())
(shared / "data").mkdir()
rng = np.random.default_rng(0)
for day in range(30):
    y = rng.integers(0, 2, 2_000)
    frame = pl.DataFrame(
        {"y": np.where(y, "late", "on time"), "wind": rng.normal(5.0 + 3.0 * y), "hour": rng.integers(0, 24, 2_000)}
    )
    frame.write_parquet(shared / "data" / f"day-{day:02}.parquet")

N = 4


def count(i: int) -> Path:
    """What person i does, on the command line; each on a machine of their own."""
    part = shared / f"part-{i}.snb"
    columns = ["--label", "y", "--numeric", "wind", "--categorical", "hour"]
    command = ["fit", str(shared / "data"), *columns, "--shard", f"{i}/{N}", "-o", str(part)]
    subprocess.run([sys.executable, "-m", "streamnb", *command], check=True, stderr=subprocess.DEVNULL)
    return part


if __name__ == "__main__":
    parts = [count(i) for i in range(1, N + 1)]
    schema = snb.State.load(parts[0]).schema

    most = snb.State(schema)
    for part in parts[:2] + parts[3:]:
        most.merge(snb.State.load(part))
    gaps = most.gaps
    print(f"{most.n_rows} rows: {gaps[0]}")

    most.merge(snb.State.load(parts[2]))
    single = snb.fit(shared / "data", schema=schema)
    same = most.to_bytes() == single.to_bytes()
    print(f"{most.n_rows} rows, the bytes of the single run: {same}")
