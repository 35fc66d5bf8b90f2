"""Text: documents of Zipf's words in Parquet, against scikit-learn's out-of-core recipe and against cutting alone.

`python -m benchmarks.text` prints the tables and exits with 1 when a budget is missed; `--quick` takes a tenth of the
documents. What it does not show: real text (its words are longer and rarer), n-grams, and other alphabets.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.naive_bayes import MultinomialNB

import streamnb as snb
from benchmarks.measure import Contender, Result, at_least, at_most, peak, race

__all__ = ["main", "results"]

DOCUMENTS, WORDS, VOCABULARY, FILES = 100_000, 30, 100_000, 4
BATCH = 10_000
"""Documents of one `partial_fit`: each one works through all buckets of all classes once."""

BUCKETS = 1 << 20
IMPORTS = ("streamnb.train", "streamnb.predictor", "polars")


def write_documents(folder: Path, documents: int, files: int = FILES) -> Path:
    """Write files of documents of two classes, whose words are Zipf's."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", "S1")
    words = np.array([b"".join(rng.choice(letters, n)).decode() for n in rng.integers(3, 10, VOCABULARY)])
    for i in range(files):
        n = documents // files
        rank = np.minimum(rng.zipf(1.3, (n, WORDS)) - 1, VOCABULARY - 1)
        label = rng.integers(0, 2, n)
        texts = [" ".join(row) for row in words[(rank + label[:, None]) % VOCABULARY]]
        pq.write_table(pa.table({"y": label, "body": texts}), folder / f"{i}.parquet")
    return folder


def fit(folder: Path, workers: int = 2, **options: Any) -> snb.State:
    """Count a folder."""
    return snb.fit(folder, schema=snb.Schema(label="y", text=[snb.Text("body", **options)]), workers=workers)


def scikit_learn_fit(folder: Path) -> tuple[Any, Any]:
    """Read batches, hash their words, and fit: the recipe of scikit-learn's guide for text out of core."""
    vectorizer, model = HashingVectorizer(alternate_sign=False, norm=None, n_features=BUCKETS), MultinomialNB()
    for path in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(BATCH):
            words = vectorizer.transform(batch.column("body").to_pylist())
            model.partial_fit(words, batch.column("y").to_numpy(), classes=[0, 1])
    return vectorizer, model


def cut_alone(folder: Path) -> Any:
    """Cut all documents into words by Polars' streaming engine, and count nothing but them."""
    words = pl.col("body").str.to_lowercase().str.extract_all(r"\b\w\w+\b").list.len().sum()
    return pl.scan_parquet(folder / "*.parquet").select(words).collect(engine="streaming")


def predict_ours(model: snb.Predictor, folder: Path) -> None:
    """Predict a folder, file by file."""
    for path in sorted(folder.glob("*.parquet")):
        model.predict(pq.read_table(path, columns=["body"]))


def predict_theirs(vectorizer: Any, model: Any, folder: Path) -> None:
    """Predict a folder with scikit-learn."""
    for path in sorted(folder.glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(BATCH, columns=["body"]):
            model.predict(vectorizer.transform(batch.column("body").to_pylist()))


def wide(rows: int = 200_000) -> None:
    """Fit and predict 5000 classes with 2^18 buckets, three words in a row."""
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1_000_000, (rows, 3))
    table = pa.table({"y": rng.integers(0, 5000, rows), "body": [f"w{a} w{b} w{c}" for a, b, c in words.tolist()]})
    state = snb.State(snb.Schema(label="y", text=[snb.Text("body", buckets=1 << 18)]))
    state.update(table)
    state.finish().predict(table.slice(0, 20_000))


def results(folder: Path, scale: float = 1.0, repeat: int = 5) -> list[Result]:
    """Run all races on `scale` of the documents."""
    documents = int(DOCUMENTS * scale)
    data = write_documents(folder / "text", documents)
    double = write_documents(folder / "double", 2 * documents, 2 * FILES)
    exact, hashed, theirs, alone = "streamnb, exact", "streamnb, 2^20 buckets", "scikit-learn", "Polars, cutting alone"
    fits = race(
        [
            Contender(exact, partial(fit, data)),
            Contender(hashed, partial(fit, data, buckets=BUCKETS)),
            Contender("streamnb, exact, one worker", partial(fit, data, 1)),
            Contender(alone, partial(cut_alone, data)),
            Contender(theirs, partial(scikit_learn_fit, data)),
        ],
        repeat,
    )
    found = [
        Result(
            f"Fit {documents} documents of {WORDS} words",
            list(fits.values()),
            theirs,
            [
                at_least("fit over scikit-learn", fits[theirs].over(fits[exact]), 20),
                at_most("fit over cutting alone", fits[exact].over(fits[alone]), 2),
                at_most("exact over hashed", fits[exact].over(fits[hashed]), 2),
            ],
        )
    ]
    model, (vectorizer, other) = fit(data).finish(), scikit_learn_fit(data)
    predictions = race(
        [
            Contender(exact, partial(predict_ours, model, data)),
            Contender(theirs, partial(predict_theirs, vectorizer, other, data)),
        ],
        repeat,
    )
    faster = predictions[theirs].over(predictions[exact])
    found.append(
        Result("Predict them", list(predictions.values()), theirs, [at_least("predict over scikit-learn", faster, 10)])
    )
    once = peak("hashed fit", partial(fit, data, buckets=BUCKETS), IMPORTS)
    twice = peak("hashed fit, twice the documents", partial(fit, double, buckets=BUCKETS), IMPORTS)
    many = peak("5000 classes × 2^18 buckets, fit and predict", partial(wide, int(200_000 * scale)), IMPORTS)
    checks = [
        at_most("memory of twice the documents", twice.median / once.median, 1.3),
        at_most("memory of many classes", many.median, 1000, " MB"),
    ]
    return [*found, Result("Peak memory", [once, twice, many], "", checks)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; 1 when a budget is missed."""
    quick = "--quick" in (sys.argv[1:] if arguments is None else arguments)
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for result in results(Path(folder), 0.1 if quick else 1.0, 2 if quick else 5):
            print(result.title)
            for row in result.rows:
                cpu = "" if row.cpu is None else f"  ({row.cpu:.3f} s of processor)"
                print(f"  {row.name:48}{row.median:10.3f} {row.unit}{cpu}")
            for check in result.checks:
                missed += not check.ok
                verdict = "" if check.ok else "  missed"
                limit = f"{'≤' if check.at_most else '≥'} {check.limit:g}{check.unit}"
                print(f"  {check.what:48}{check.measured:10.2f}{check.unit}  budget {limit}{verdict}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
