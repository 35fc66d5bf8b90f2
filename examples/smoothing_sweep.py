"""Twenty settings of the smoothing from one pass over the data.

Smoothing happens when a state is finished, not while it counts. So the rows are read once, here from a stream that
cannot be read twice, and each setting costs a finish and its evaluation on the rows held out.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl
import pyarrow as pa

import streamnb as snb

SEED = 4
LABELS = np.array(["clay", "loam", "sand"])
PLANTS = 60  # many plants and few rows: here smoothing matters


def soil(rows: int, rng: np.random.Generator) -> pl.DataFrame:
    """Make samples of soil: the plant that grew there, how wet it was, and a sensor that hardly varies."""
    label = rng.integers(3, size=rows)
    plant = (rng.geometric(0.08, size=rows) + 7 * label) % PLANTS
    return pl.DataFrame(
        {
            "soil": LABELS[label],
            "plant": [f"plant {i:02}" for i in plant],
            "wet": rng.normal(1.0 - 0.5 * label, 1.0),
            "sensor": 0.001 * rng.standard_t(2, size=rows) + 0.0005 * label,
        }
    )


def batches(frame: pl.DataFrame) -> Iterator[pa.RecordBatch]:
    """Hand out the rows once, as a socket would."""
    for piece in frame.iter_slices(100):
        yield from piece.to_arrow().combine_chunks().to_batches()


rng = np.random.default_rng(SEED)
training, holdout = soil(600, rng), soil(5000, rng)
stream = pa.RecordBatchReader.from_batches(training.to_arrow().schema, batches(training))

state = snb.fit(stream, schema=snb.Schema(label="soil", numeric=["wet", "sensor"], categorical=["plant"]))
print(f"read once: {state.n_rows} rows")

losses = {}
for alpha in (0.001, 0.1, 0.5, 1.0, 10.0):
    for var_smoothing in (1e-9, 1e-6, 1e-4, 1e-1):
        model = state.finish(numeric=snb.Gaussian(var_smoothing=var_smoothing), categorical=snb.Categorical(alpha))
        losses[alpha, var_smoothing] = snb.evaluate(model, holdout).log_loss

print("log loss   var_smoothing")
print("alpha    " + "".join(f"{each:>9g}" for each in (1e-9, 1e-6, 1e-4, 1e-1)))
for alpha in (0.001, 0.1, 0.5, 1.0, 10.0):
    print(f"{alpha:<9g}" + "".join(f"{losses[alpha, each]:9.4f}" for each in (1e-9, 1e-6, 1e-4, 1e-1)))
best = min(losses, key=losses.__getitem__)
print(f"best: alpha {best[0]:g}, var_smoothing {best[1]:g}")
