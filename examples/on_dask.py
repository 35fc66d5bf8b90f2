"""A Dask cluster counts the files of a folder: the state has the bytes of a run on one machine."""

import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import streamnb as snb


def main() -> None:
    """Write a few files, count them on two workers, and let the workers write predictions."""
    from distributed import Client, LocalCluster

    folder = Path(tempfile.mkdtemp())
    (folder / "data").mkdir()
    rng = np.random.default_rng(0)
    for i in range(12):
        y = rng.integers(0, 2, 5_000)
        pl.DataFrame({"y": y, "x": rng.normal(y * 2.0)}).write_parquet(folder / "data" / f"part-{i:02}.parquet")

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
    with cluster, Client(cluster) as client:
        state = snb.fit(folder / "data", label="y", engine="dask", client=client)
        model = state.finish()
        rows = snb.predict(model, folder / "data", folder / "scored", keep=["y"], engine="dask", client=client)

    scored = pl.read_parquet(folder / "scored" / "*.parquet")
    print(f"{state.n_rows} rows counted, {rows} scored into {len(list((folder / 'scored').iterdir()))} files")
    print(f"accuracy {(scored['y'] == scored['prediction']).mean():.3f}")
    print("the bytes of one machine:", state == snb.fit(folder / "data", label="y"))


if __name__ == "__main__":  # Dask's workers import this file
    main()
