"""The main job on documents that it makes itself: words by Zipf's law, counted once and finished in several ways."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["demo_text"]

FILE_ROWS = 50_000
"""Documents of one file, made at once."""

LABELS = ("cooking", "money", "sport", "travel")
SHARES = (0.3, 0.2, 0.35, 0.15)
WORDS = 50_000
SPECIAL = 400
"""Words that each label uses more often than the others do; which they are is drawn."""

OWN = 0.08
"""Share of a document's words that its label chooses."""

LENGTH = 30
"""Words of a document, on average."""

SYLLABLES = ("ba", "ce", "di", "fo", "gu", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo", "zu")


def demo_text(rows: int, folder: Path, workers: int | None, say: Callable[[str], Any]) -> None:
    """Make `rows` documents in a folder, learn them, and say which words tell; `say` gets each line."""
    # Imported here, so that the first line stands on the screen before the heavy imports.
    holdout_rows = min(max(rows // 10, 500), FILE_ROWS)
    say(f"1. Making {rows:,} documents, and {holdout_rows:,} more to be predicted, in {folder}")
    from streamnb.evaluation import evaluate
    from streamnb.families import Bernoulli, Complement, Multinomial
    from streamnb.schema import Schema
    from streamnb.state import State
    from streamnb.text import Text
    from streamnb.train import fit

    start = time.perf_counter()
    sizes = [min(FILE_ROWS, rows - first) for first in range(0, rows, FILE_ROWS)]
    files = [_write(folder / f"documents-{i:03}.parquet", i + 1, size) for i, size in enumerate(sizes)]
    holdout = _write(folder / "holdout.parquet", 0, holdout_rows)
    say(f"   {len(files)} Parquet files, words by Zipf's law, four labels: {', '.join(LABELS)}")
    say(f"   {time.perf_counter() - start:.1f} s")

    say(
        "\n2. Counting the words in one pass, on all cores"
        if workers is None
        else "\n2. Counting the words in one pass"
    )
    schema = Schema(label="label", text=[Text("body", document_frequency=True)])
    start = time.perf_counter()
    state = fit(files, schema=schema, workers=workers, progress=True)
    seconds = time.perf_counter() - start
    state.save(folder / "state.snb")
    words = state.total.text["body"]
    total = int(words.counts.total.sum())
    say(f"   {state.n_rows:,} documents, {total:,} words, {len(words.names):,} of them distinct")
    say(f"   {seconds:.2f} s: {total / seconds:,.0f} words/s")

    say("\n3. Counting each file apart and adding the states up")
    merged = State(schema)
    for file in reversed(files):
        merged.merge(fit(file, schema=schema, workers=workers))
    held, expected = merged.total.arrays(), state.total.arrays()
    if held.keys() != expected.keys() or not all(_equal(held[name], expected[name]) for name in held):
        raise AssertionError("Expected equal counts from all files at once and from each apart, got others")
    say("   the same words and the same counts, whatever the order")

    say("\n4. Finishing the same counts in several ways; no second pass")
    families: dict[str, Any] = {
        "multinomial": Multinomial(),
        "complement": Complement(),
        "multinomial, alpha 0.01": Multinomial(alpha=0.01),
        "bernoulli": Bernoulli(),
        "multinomial of the 5,000 most frequent": Multinomial(max_tokens=5000),
    }
    for name, family in families.items():
        report = evaluate(state.finish(text=family), holdout, workers=workers)
        say(f"   {name:<38}  accuracy {report.accuracy:.4f}, log loss {report.log_loss:.4f}")

    say("\n5. Which words speak most for a label")
    model = state.finish(text=Multinomial(min_count=20))
    model.save(folder / "model.snb")
    for label in LABELS:
        say(f"   {label:<8}  {', '.join(model.top_features(label, 6)['value'].to_pylist())}")

    say("\n6. Why is this document what it is?")
    _explained(model, holdout, say)


def _explained(model: Any, holdout: Path, say: Callable[[str], Any]) -> None:
    import pyarrow.parquet as pq

    row = pq.read_table(holdout).slice(0, 1)
    found = model.explain(row).to_pylist()
    answer, other = found[0]["for"], found[0]["against"]
    odds = sum(entry["contribution"] for entry in found)
    say(f"   {answer} rather than {other}: log odds {odds:+.2f}; it is {row['label'][0].as_py()}")
    for entry in found[:5]:
        say(f"   {entry['contribution']:+7.2f}  {'(prior)' if entry['value'] is None else entry['value']}")
    rest = sum(entry["contribution"] for entry in found[5:])
    say(f"   {rest:+7.2f}  ({len(found[5:])} other words)")


def _equal(one: Any, two: Any) -> bool:
    return bool(np.array_equal(one, two)) if isinstance(one, np.ndarray) else bool(one.equals(two))


# Making ------------------------------------------------------------------------------------------------------------


def _write(path: Path, seed: int, rows: int) -> Path:
    """Draw documents and write them; the same seed gives the same file."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    draw = np.random.default_rng([7, seed])
    label = np.searchsorted(np.cumsum(SHARES)[:-1], draw.random(rows), side="right")
    lengths = 1 + draw.poisson(LENGTH - 1, rows)
    of_word = np.repeat(label, lengths)
    codes = _zipf(draw, len(of_word), WORDS)
    own = draw.random(len(codes)) < OWN
    special = np.random.default_rng(7).permutation(WORDS)[: len(LABELS) * SPECIAL].reshape(len(LABELS), SPECIAL)
    codes[own] = special[of_word[own], _zipf(draw, int(own.sum()), SPECIAL)]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    words = pa.ListArray.from_arrays(pa.array(offsets), pa.array(_words()).take(pa.array(codes)))
    labels = pa.array(LABELS).take(pa.array(label))
    pq.write_table(pa.table({"label": labels, "body": pc.binary_join(words, " ")}), path, compression="zstd")
    return path


def _zipf(draw: np.random.Generator, number: int, words: int) -> NDArray[np.int64]:
    """Draw words by Zipf's law: the chance of the word of rank r is about 1 / r."""
    return np.minimum((words + 1.0) ** draw.random(number), words).astype(np.int64) - 1


def _words() -> list[str]:
    """Return distinct words, the frequent ones short."""
    n = len(SYLLABLES)
    words = []
    for i in range(n, n + WORDS):
        word, left = "", i
        while left:
            left, place = divmod(left, n)
            word += SYLLABLES[place]
        words.append(word)
    return words
