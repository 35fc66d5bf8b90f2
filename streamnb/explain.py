"""Why a model answers as it does: the share of each feature in the score of a row.

A score is a sum over features, so that every difference of two scores can be taken apart without a remainder. What
each kind of column contributes to log P(row, one class) - log P(row, another class):

- prior: the difference of the log priors (0 where the model takes none, as a complement block alone does).
- numeric: the difference of the log densities at the cell's value.
- categorical: the log odds of the cell's value; 0 for a value that training never saw, unless the family smooths it.
- binary: the log odds of a 1 or, as the case may be, of a 0.
- counts: the number times the difference of the log probabilities (multinomial) or of the weights (complement).
- text: for each distinct token its count (or weight) times that difference. For Bernoulli what an empty document
  adds stands on its own, and each token adds what its presence changes.
- a missing cell, and a token that training never saw: nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamnb.encode import encode_features
from streamnb.errors import DataError, near_misses
from streamnb.likelihoods import Gaussians, dense, without_missing
from streamnb.predictor import BLOCK_ROWS, LEAST, winners
from streamnb.protocols import Codes, Column, Flags, Floats

if TYPE_CHECKING:
    from streamnb.encode import Blocks
    from streamnb.predictor import Predictor

__all__ = ["EMPTY_DOCUMENT", "UNITS", "difference", "explain", "log_density", "place_of"]

EMPTY_DOCUMENT = "(empty document)"
"""The value of the entry that holds what a document without tokens adds (Bernoulli over text)."""

UNITS = 1 << 21
"""Scores of classes and tokens that are looked up at once."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The two classes that each row compares, as places in `classes`, shape (n_rows,)."""

    pro: Codes
    con: Codes

    def contrast(self, score: Callable[[Codes], Floats]) -> Floats:
        """Return score(pro) - score(con); what is infinite in both alike tells nothing."""
        return difference(score(self.pro), score(self.con))


@dataclass(frozen=True, slots=True)
class Entries:
    """Contributions of one column (or the prior): the rows they belong to, the values as text, the log odds."""

    block: str
    feature: str | None
    rows: NDArray[Any]
    values: Sequence[str | None]
    contribution: Floats


def explain(model: Predictor, data: Any, label: Any = None, against: Any = None) -> pa.Table:
    """Take the score of each row apart: which features speak for one class and against another, and how much.

    `data` is a batch of anything that exports Arrow, or one row as a mapping from column to value. `label` is the
    class to explain, the answer of each row if not given; `against` is the class to compare it with, the best of the
    others if not given.

    Returns a tidy table, rows in order, in each row the prior first and then what weighs most:

    - `row`: int64, counted from 0.
    - `block`: "prior" or the kind of column; `feature`: its name, null for the prior.
    - `value`: the cell as text, or the token; null for a missing cell, which contributes 0.
    - `contribution`: log odds, positive where it speaks for the class. Over a row they add up to the difference of
      `predict_joint_log_proba` between the two classes, to rounding.
    - `for`, `against`: the two classes, of the label's type.

    What is impossible under both classes alike contributes 0.

    Raises:
        ValueError: a label that the model does not know, twice the same, or a model of one class.
        SchemaError, DataError: as `predict`.

    >>> from streamnb import Schema, State
    >>> state = State(Schema(label="y", categorical=["site"], binary=["scent"]))
    >>> state.update(pa.table({"y": ["a", "a", "b"], "site": ["n", "n", "s"], "scent": [True, False, False]}))
    >>> found = explain(state.finish(), {"site": "n", "scent": None})
    >>> list(zip(found["feature"].to_pylist(), found["contribution"].to_numpy().round(3).tolist()))
    [(None, 0.693), ('site', 0.811), ('scent', 0.0)]
    """
    wanted = place_of(model, label, "label")
    versus = place_of(model, against, "against")
    if len(model.classes) < 2:
        raise ValueError(f"Expected a model of two classes or more to compare, got {len(model.classes)}")
    if wanted is not None and wanted == versus:
        raise ValueError(f"Expected two classes to compare, got {label!r} twice")
    if isinstance(data, Mapping):
        data = pa.table({str(name): [value] for name, value in data.items()})
    parts: list[pa.Table] = [_table(model, _none(model), 0)]
    seen = 0
    for batch in model._intake.batches(data):
        for first in range(0, batch.num_rows, BLOCK_ROWS):
            piece = batch.slice(first, BLOCK_ROWS)
            try:
                joint = model.predict_joint_log_proba(piece).T
                pair = _pair(joint, model.class_log_prior, wanted, versus)
                found = list(_entries(model, piece, pair))
            except DataError as error:
                raise (error if error.row is None else error.at(row=seen + error.row)) from None
            parts.append(_table(model, (found, pair), seen))
            seen += piece.num_rows
    return pa.concat_tables(parts).combine_chunks()


def place_of(model: Predictor, label: Any, option: str) -> int | None:
    """Where a label stands among the classes; None stays None."""
    if label is None:
        return None
    label = label.as_py() if isinstance(label, pa.Scalar) else label
    label = label.item() if isinstance(label, np.generic) else label
    labels = model.classes.to_pylist()
    if label not in labels:
        shown = [str(each) for each in labels]
        hint = near_misses(label, shown) if isinstance(label, str) else ""
        known = "" if len(shown) > 10 else f" (one of {', '.join(shown)})"
        raise ValueError(f"Expected a class of the model for {option}={known}, got {label!r}{hint}")
    return int(labels.index(label))


def _pair(joint: Floats, log_prior: Floats, wanted: int | None, versus: int | None) -> Pair:
    """Which two classes each row compares; `joint` is (n_classes, n_rows)."""
    rows = joint.shape[1]
    given = [None if each is None else np.full(rows, each, np.int32) for each in (wanted, versus)]
    pro, con = given
    if pro is None:
        pro = winners(joint, log_prior) if con is None else _best_but(con, joint, log_prior)
    return Pair(pro, _best_but(pro, joint, log_prior) if con is None else con)


def _best_but(taken: Codes, joint: Floats, log_prior: Floats) -> Codes:
    """The best class of each row but one; by the prior where all the others are impossible."""
    left = joint.copy()
    left[taken, np.arange(len(taken))] = -np.inf
    first, second = np.argsort(-log_prior, kind="stable")[:2].astype(np.int32)
    impossible = np.isneginf(left.max(axis=0))
    return np.where(impossible, np.where(taken == first, second, first), winners(left, log_prior)).astype(np.int32)


def _entries(model: Predictor, batch: pa.RecordBatch, pair: Pair) -> Iterator[Entries]:
    """What each column of a batch contributes; the batch has passed prediction, so that nothing is refused here."""
    rows = np.arange(batch.num_rows)
    prior = model.class_log_prior if model._takes_prior else np.zeros(len(model.classes))
    yield Entries("prior", None, rows, [None] * len(rows), pair.contrast(partial(np.take, prior)))
    blocks = encode_features(batch, model.schema)
    for block in LEAST:
        if getattr(model, block) is not None:
            yield from _matrix_entries(model, block, blocks, rows, pair)
    for (name, (_, table)), column in zip(model.categorical.items(), blocks.categorical, strict=True):
        texts = [str(value) for value in column.values.to_pylist()]
        values = [None if code < 0 else texts[code] for code in column.codes]
        contribution = pair.contrast(partial(_of_code, table.padded, model._codes(name, column)))
        yield Entries("categorical", name, rows, values, contribution)
    yield from _text_entries(model, blocks, rows, pair)


def _matrix_entries(model: Predictor, block: str, blocks: Blocks, rows: NDArray[Any], pair: Pair) -> Iterator[Entries]:
    """What the columns of a block contribute that is scored as a matrix."""
    likelihood, columns = getattr(model, block), getattr(blocks, block)
    values, present = dense(columns, 0, len(rows))
    values, present = without_missing(values, present, 0, infinite=model.schema.infinite)
    for j, name in enumerate(getattr(model.schema, block)):
        cells, there = values[j], None if present is None else present[j]
        if block == "numeric":
            contribution = pair.contrast(partial(log_density, likelihood, j, cells))
        else:
            contribution = pair.contrast(partial(_of_units, likelihood.score[:, j], cells))
            if likelihood.absence is not None:
                of_zero = pair.contrast(partial(np.take, likelihood.absence[:, j]))
                contribution = np.where(cells > 0, contribution, of_zero)
        if there is not None:
            contribution = np.where(there, contribution, 0.0)
        yield Entries(block, name, rows, _written(columns[j], there), contribution)


def _text_entries(model: Predictor, blocks: Blocks, rows: NDArray[Any], pair: Pair) -> Iterator[Entries]:
    """What each distinct token of each document contributes, and for Bernoulli the empty document."""
    for (name, (lexicon, scores)), column in zip(model.text.items(), blocks.text, strict=True):
        found = model._placed(name, column)
        # A token that stands twice in a document is one entry.
        key, inverse = np.unique(found.rows * np.int64(max(len(lexicon), 1)) + found.tokens, return_inverse=True)
        at, tokens = np.divmod(key, max(len(lexicon), 1))
        amount = np.bincount(inverse, found.values, len(key))
        contribution = np.empty(len(key))
        lot = max(UNITS // scores.n_classes, 1)
        for low in range(0, len(key), lot):
            some = slice(low, low + lot)
            units, each = scores.units(tokens[some]), np.arange(len(tokens[some]))
            own = Pair(pair.pro[at[some]], pair.con[at[some]])
            contribution[some] = own.contrast(partial(_of_code, units, each)) * amount[some]
        yield Entries("text", name, at, lexicon.names.take(pa.array(tokens)).to_pylist(), contribution)
        there = np.ones(len(rows), np.bool_) if found.present is None else found.present
        yield Entries("text", name, rows[~there], [None] * int((~there).sum()), np.zeros(int((~there).sum())))
        if scores.presence:
            of_empty = pair.contrast(partial(np.take, scores.bias))[there]
            yield Entries("text", name, rows[there], [EMPTY_DOCUMENT] * len(of_empty), of_empty)


def _of_code(padded: Floats, codes: NDArray[Any], c: Codes) -> Floats:
    """What a category or a token adds to the score of classes c."""
    score: Floats = padded[c, codes]
    return score


def _of_units(score: Floats, values: Floats, c: Codes) -> Floats:
    """A number of units times what one adds; an infinite score counts only where there is a unit."""
    return np.where(values > 0, score[c], 0.0) * values


def log_density(likelihood: Gaussians, j: int | NDArray[Any], values: Floats, c: Codes | NDArray[Any]) -> Floats:
    """The normal log density of values of features j under classes c."""
    with np.errstate(over="ignore", invalid="ignore"):
        deviation = (values - likelihood.mean[c, j]) - likelihood.mean_tail[c, j]
        density = likelihood.log_normalizer[c, j] - 0.5 * deviation**2 / likelihood.variance[c, j]
    # An infinite variance says that the feature tells nothing, however far the value.
    return np.where(np.isinf(likelihood.variance[c, j]), 0.0, density)


def difference(a: Floats, b: Floats) -> Floats:
    """Return a - b, and 0 where both are infinite alike."""
    with np.errstate(invalid="ignore"):
        return np.where(a == b, 0.0, a - b)


def _written(column: Column, present: Flags | None) -> list[str | None]:
    """The cells of a column as text; None where there is none."""
    there = np.ones(len(column.values), np.bool_) if present is None else present
    return [str(value) if here else None for value, here in zip(column.values, there, strict=True)]


def _none(model: Predictor) -> tuple[list[Entries], Pair]:
    """No rows: what gives the table its columns."""
    nobody = np.zeros(0, np.int32)
    return [Entries("prior", None, np.zeros(0, np.intp), [], np.zeros(0))], Pair(nobody, nobody)


def _table(model: Predictor, found: tuple[list[Entries], Pair], first: int) -> pa.Table:
    """One tidy table of some rows: row by row, the prior first, then by weight."""
    entries, pair = found
    rows = np.concatenate([each.rows for each in entries])
    contribution = np.concatenate([each.contribution for each in entries])
    sizes = [len(each.rows) for each in entries]
    is_prior = np.repeat([each.block == "prior" for each in entries], sizes)
    order = np.lexsort((-np.abs(contribution), ~is_prior, rows))
    which = pa.array(np.repeat(np.arange(len(entries)), sizes)[order])
    values = pa.array([value for each in entries for value in each.values], pa.string())
    rows = rows[order]
    return pa.table(
        {
            "row": pa.array(rows.astype(np.int64) + first),
            "block": pa.array([each.block for each in entries], pa.string()).take(which),
            "feature": pa.array([each.feature for each in entries], pa.string()).take(which),
            "value": values.take(pa.array(order)),
            "contribution": pa.array(contribution[order]),
            "for": model.classes.take(pa.array(pair.pro[rows])),
            "against": model.classes.take(pa.array(pair.con[rows])),
        }
    )
