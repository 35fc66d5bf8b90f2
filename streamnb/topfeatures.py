"""What speaks most for a class: the (feature, value) pairs of a model with the highest log odds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamnb.explain import UNITS, difference, log_density, place_of
from streamnb.likelihoods import Gaussians
from streamnb.protocols import Floats
from streamnb.tokenscores import TokenScores
from streamnb.tokentable import Lexicon

if TYPE_CHECKING:
    from streamnb.predictor import Predictor

__all__ = ["top_features", "top_features_of_each"]


def top_features(model: Predictor, label: Any, n: int = 20) -> pa.Table:
    """Return the `n` (feature, value) pairs that speak most for a class.

    What a pair says for a class is the log odds that `explain` gives it, against the class among the others that it
    fits best: the least that it says for this class whatever the other. The pairs, by kind of column:

    - numeric: the feature at the class's own mean; `separation` is the distance of this mean from the other class's,
      in that one's standard deviations, positive where it lies above. The log odds are separation² / 2 plus the
      logarithm of other deviation / own deviation, so that a class that is only narrower is seen as well.
    - categorical: each category that training saw. binary: the 1 and the 0, each a pair of its own.
    - counts: one unit of each column.
    - text: one occurrence of each token that training met in the class (its presence, for Bernoulli).

    Returns a tidy table, most telling first: `block`, `feature`, `value` (text), `log_odds` (above 0; pairs that
    speak against the class or for no class are left out), `against` (the other class, of the label's type),
    `separation` (null but for numeric).

    Raises:
        ValueError: a label that the model does not know, a model of one class, or `n` below 0.

    >>> from streamnb import Schema, State
    >>> state = State(Schema(label="y", categorical=["site"], binary=["scent"]))
    >>> state.update(pa.table({"y": ["a", "a", "b"], "site": ["n", "n", "s"], "scent": [True, False, False]}))
    >>> top_features(state.finish(), "a").select(["feature", "value", "against"]).to_pylist()
    [{'feature': 'site', 'value': 'n', 'against': 'b'}, {'feature': 'scent', 'value': '1', 'against': 'b'}]
    """
    c = place_of(model, label, "label")
    if c is None:
        raise ValueError("Expected a class of the model for label=, got None")
    if len(model.classes) < 2:
        raise ValueError(f"Expected a model of two classes or more to compare, got {len(model.classes)}")
    if n < 0:
        raise ValueError(f"Expected n to be at least 0, got {n}")
    return next(top_features_of_each(model, [c], n))


def top_features_of_each(model: Predictor, places: Sequence[int], n: int) -> Iterator[pa.Table]:
    """Yield what `top_features` gives for each of some classes, named by their places."""
    for c in places:
        found = pa.concat_tables([pairs.best(model.classes, n) for pairs in _pairs(model, c)])
        order = np.argsort(-found["log_odds"].to_numpy(), kind="stable")[:n]
        yield found.take(pa.array(order)).combine_chunks()


@dataclass(frozen=True, slots=True)
class Pairs:
    """The (feature, value) pairs of one kind of column, what each says for a class, and against which other.

    `features` and `values` (text) are one for each pair, or one for all of them.
    """

    block: str
    features: pa.Array | str
    values: pa.Array | str
    log_odds: Floats
    against: NDArray[Any]
    separation: Floats | None = None

    def best(self, classes: pa.Array, n: int) -> pa.Table:
        """Return the `n` pairs that say most, of those that say anything."""
        order = np.flatnonzero(self.log_odds > 0)
        order = order[np.argsort(-self.log_odds[order], kind="stable")[:n]]
        which = pa.array(order)

        def named(names: pa.Array | str) -> pa.Array:
            if isinstance(names, str):
                return pa.repeat(pa.scalar(names), len(order))
            return names.take(which).cast(pa.string())

        apart = self.separation
        return pa.table(
            {
                "block": named(self.block),
                "feature": named(self.features),
                "value": named(self.values),
                "log_odds": pa.array(self.log_odds[order]),
                "against": classes.take(pa.array(self.against[order])),
                "separation": pa.nulls(len(order), pa.float64()) if apart is None else pa.array(apart[order]),
            }
        )


def _pairs(model: Predictor, c: int) -> Iterator[Pairs]:
    schema = model.schema
    if model.numeric is not None:
        yield _means(model.numeric, pa.array(schema.numeric, pa.string()), c)
    for name, (vocabulary, table) in model.categorical.items():
        values = pa.array([str(value) for value in vocabulary.values.to_pylist()], pa.string())
        yield Pairs("categorical", name, values, *_over_others(table.score.copy(), c))
    if model.binary is not None and model.binary.absence is not None:
        names = pa.array(schema.binary, pa.string())
        for value, score in (("1", model.binary.score), ("0", model.binary.absence)):
            yield Pairs("binary", names, value, *_over_others(score.copy(), c))
    if model.counts is not None:
        names = pa.array(schema.counts, pa.string())
        yield Pairs("counts", names, "1", *_over_others(model.counts.score.copy(), c))
    for name, (lexicon, scores) in model.text.items():
        yield _tokens(name, lexicon, scores, c)


def _over_others(score: Floats, c: int) -> tuple[Floats, NDArray[Any]]:
    """How far the scores (n_classes, n_pairs) of a class lie above the best of the others, and which other that is.

    The scores are overwritten.
    """
    own, score[c] = score[c].copy(), -np.inf
    against = score.argmax(axis=0)
    # Where all others are impossible, the class itself may come first.
    against = np.where(against == c, 1 if c == 0 else 0, against)
    return difference(own, score[against, np.arange(score.shape[1])]), against


def _means(likelihood: Gaussians, names: pa.Array, c: int) -> Pairs:
    """Each numeric feature at the class's own mean."""
    features = np.arange(len(names))
    every_class = np.arange(len(likelihood.mean))[:, None]
    log_odds, against = _over_others(log_density(likelihood, features, likelihood.mean[c], every_class), c)
    other = (against, features)
    apart = (likelihood.mean[c] - likelihood.mean[other]) + (likelihood.mean_tail[c] - likelihood.mean_tail[other])
    means = pa.array([f"{mean:.6g}" for mean in likelihood.mean[c]], pa.string())
    return Pairs("numeric", names, means, log_odds, against, apart / np.sqrt(likelihood.variance[other]))


def _tokens(name: str, lexicon: Lexicon, scores: TokenScores, c: int) -> Pairs:
    """One occurrence of each token that training met in the class."""
    tokens = scores.tokens[scores.classes == c]
    log_odds, against = np.zeros(len(tokens)), np.zeros(len(tokens), np.intp)
    lot = max(UNITS // scores.n_classes, 1)
    for low in range(0, len(tokens), lot):  # the table of all classes and tokens may not fit into memory
        some = slice(low, low + lot)
        log_odds[some], against[some] = _over_others(scores.units(tokens[some]), c)
    if scores.factor is not None:
        log_odds *= scores.factor[tokens]
    return Pairs("text", name, lexicon.names.take(pa.array(tokens)), log_odds, against)
