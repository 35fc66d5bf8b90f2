"""What speaks most for a class: the (feature, value) pairs of a model with the highest log odds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamnb.explain import difference, log_density, place_of
from streamnb.likelihoods import Gaussians
from streamnb.protocols import Floats
from streamnb.tokenscores import TokenScores

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
    - counts: one unit of each column. text: one occurrence of each token (the presence of it, for Bernoulli).

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
    """Yield what `top_features` gives for each of some classes, named by their places, for little more than one."""
    contests = list(_contests(model))
    for c in places:
        numeric = [] if model.numeric is None else [_means(model, model.numeric, c, n)]
        found = pa.concat_tables([*numeric, *(contest.best(model, c, n) for contest in contests)])
        order = np.argsort(-found["log_odds"].to_numpy(), kind="stable")[:n]
        yield found.take(pa.array(order)).combine_chunks()


class Contest:
    """The (feature, value) pairs of one kind of column, with the two classes that each fits best.

    `score(c)` is what the pairs add to the score of class c, shape (n_pairs,); `features` is one name for each pair,
    or for all of them.
    """

    def __init__(
        self,
        block: str,
        features: pa.Array | str,
        values: pa.Array | str,
        n_classes: int,
        score: Callable[[int], Floats],
    ) -> None:
        self.block, self.features, self.values, self.score = block, features, values, score
        self.first = score(0)
        self.second = np.full(len(self.first), -np.inf)
        self.which = np.zeros(len(self.first), np.int32)
        self.runner_up = np.ones(len(self.first), np.int32)
        for c in range(1, n_classes):  # class by class: the table of all classes and tokens may not fit into memory
            mine = score(c)
            ahead = mine > self.first
            self.runner_up[ahead] = self.which[ahead]
            self.which[ahead] = c
            close = ~ahead & (mine > self.second)
            self.runner_up[close] = c
            self.second = np.where(ahead, self.first, np.maximum(self.second, mine))
            self.first = np.maximum(self.first, mine)

    def best(self, model: Predictor, c: int, n: int) -> pa.Table:
        """Return the `n` pairs that say most for class c against the best of the others."""
        leads = self.which == c
        log_odds = difference(self.score(c), np.where(leads, self.second, self.first))
        against = np.where(leads, self.runner_up, self.which)
        return _best(model, self.block, self.features, self.values, log_odds, against, n)


def _contests(model: Predictor) -> Iterator[Contest]:
    n = len(model.classes)
    for name, (vocabulary, table) in model.categorical.items():
        yield Contest(
            "categorical",
            name,
            pa.array([str(value) for value in vocabulary.values.to_pylist()], pa.string()),
            n,
            table.score.__getitem__,
        )
    if model.binary is not None and model.binary.absence is not None:
        names = pa.array(model.schema.binary, pa.string())
        for value, score in (("1", model.binary.score), ("0", model.binary.absence)):
            yield Contest("binary", names, value, n, score.__getitem__)
    if model.counts is not None:
        yield Contest("counts", pa.array(model.schema.counts, pa.string()), "1", n, model.counts.score.__getitem__)
    for name, (lexicon, scores) in model.text.items():
        yield Contest("text", name, lexicon.names, n, partial(_of_tokens, scores))


def _of_tokens(scores: TokenScores, c: int) -> Floats:
    """What one occurrence of each token adds for a class."""
    each = scores.of_class(c)
    return each if scores.factor is None else each * scores.factor


def _means(model: Predictor, likelihood: Gaussians, c: int, n: int) -> pa.Table:
    """Each numeric feature at the class's own mean, against the best other class."""
    features = np.arange(likelihood.mean.shape[1])
    density = log_density(likelihood, features, likelihood.mean[c], np.arange(len(likelihood.mean))[:, None])
    own, density[c] = density[c].copy(), -np.inf
    against = density.argmax(axis=0)
    # Where all others are impossible, the class itself may come first.
    against = np.where(against == c, 1 if c == 0 else 0, against)
    other = (against, features)
    apart = (likelihood.mean[c] - likelihood.mean[other]) + (likelihood.mean_tail[c] - likelihood.mean_tail[other])
    return _best(
        model,
        "numeric",
        pa.array(model.schema.numeric, pa.string()),
        pa.array([f"{mean:.6g}" for mean in likelihood.mean[c]], pa.string()),
        difference(own, density[other]),
        against,
        n,
        apart / np.sqrt(likelihood.variance[other]),
    )


def _best(
    model: Predictor,
    block: str,
    features: pa.Array | str,
    values: pa.Array | str,
    log_odds: Floats,
    against: NDArray[Any],
    n: int,
    separation: Floats | None = None,
) -> pa.Table:
    """Return the `n` pairs of a block that say most for the class, of those that say anything."""
    order = np.flatnonzero(log_odds > 0)
    order = order[np.argsort(-log_odds[order], kind="stable")[:n]]

    def named(names: pa.Array | str) -> pa.Array:
        if isinstance(names, str):
            return pa.repeat(pa.scalar(names), len(order))
        return names.take(pa.array(order)).cast(pa.string())

    return pa.table(
        {
            "block": named(block),
            "feature": named(features),
            "value": named(values),
            "log_odds": pa.array(log_odds[order]),
            "against": model.classes.take(pa.array(against[order])),
            "separation": pa.nulls(len(order), pa.float64()) if separation is None else pa.array(separation[order]),
        }
    )
