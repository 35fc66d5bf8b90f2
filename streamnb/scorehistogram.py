"""Histograms of scores: what ranking and calibration metrics need of the rows, in a fixed space that adds up."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamnb.protocols import Flags, Floats

__all__ = ["ConfidenceHistogram", "OddsHistogram"]


class OddsHistogram:
    """How the log odds of a two-class model fall, for the rows of either class; gives the area under the ROC curve.

    Naive Bayes pushes probabilities towards 0 and 1, so the bins divide the log odds, from −750 to 750, where the
    smallest float64 lies: 6e-5 wide near even odds and 0.6 % of the log odds further out. Rows of one bin count
    as ties, so the area is off by at most half the share of pairs that fall in one bin: below 1e-3 unless most
    rows crowd together. Rows of exactly equal score are ties in the exact area as well.
    """

    BINS = 4096
    FINEST = 0.01  # log odds up to which the bins are of equal width
    LARGEST = float(np.arcsinh(750.0 / FINEST))

    def __init__(self) -> None:
        self.weight: Floats = np.zeros((2, self.BINS))  # rows of the first class, rows of the second

    def update(self, second: Flags, probabilities: Floats, weight: Floats | None) -> None:
        """Add rows: whether each is of the second class, and its probabilities (n_rows, 2)."""
        with np.errstate(divide="ignore", over="ignore"):  # a probability of 0 belongs in an outermost bin
            log_odds = np.log(probabilities[:, 1] / probabilities[:, 0])
        place = np.arcsinh(log_odds / self.FINEST) * (self.BINS / 2 / self.LARGEST) + self.BINS / 2
        bins = np.clip(place, 0, self.BINS - 1).astype(np.intp)
        flat = np.bincount(second * self.BINS + bins, weight, minlength=2 * self.BINS)
        self.weight += flat.reshape(2, self.BINS)

    def merge(self, other: OddsHistogram) -> None:
        """Add another histogram; it stays as it was."""
        self.weight += other.weight

    def area(self) -> float | None:
        """Return the probability that a row of the second class scores above one of the first; None without both.

        >>> odds = OddsHistogram()
        >>> odds.update(np.array([False, True, True]), np.array([[0.9, 0.1], [0.8, 0.2], [0.95, 0.05]]), None)
        >>> odds.area()
        0.5
        """
        first, second = self.weight
        pairs = float(first.sum() * second.sum())
        if pairs == 0.0:
            return None
        below = np.cumsum(first) - first / 2  # a tie is half a win
        return float(second @ below) / pairs


class ConfidenceHistogram:
    """How often the model was right, by the probability it gave its answer.

    `BINS` equal bins over 0 to 1, each closed on the left (the last on both sides); coarser ones are sums of them.
    """

    BINS = 720

    def __init__(self) -> None:
        self.weight: Floats = np.zeros(self.BINS)
        self.confidence: Floats = np.zeros(self.BINS)  # sums, so that the mean of a bin is exact
        self.hits: Floats = np.zeros(self.BINS)

    def update(self, confidence: Floats, hit: Flags, weight: Floats | None) -> None:
        """Add rows: the largest probability of each, and whether that class was the true one."""
        bins = np.minimum((confidence * self.BINS).astype(np.intp), self.BINS - 1)
        weight = np.ones(len(bins)) if weight is None else weight
        self.weight += np.bincount(bins, weight, minlength=self.BINS)
        self.confidence += np.bincount(bins, weight * confidence, minlength=self.BINS)
        self.hits += np.bincount(bins, weight * hit, minlength=self.BINS)

    def merge(self, other: ConfidenceHistogram) -> None:
        """Add another histogram; it stays as it was."""
        self.weight += other.weight
        self.confidence += other.confidence
        self.hits += other.hits

    def curve(self, bins: int) -> tuple[Floats, Floats, Floats]:
        """Return weight, mean confidence and accuracy of the bins that hold rows; each (n_filled,).

        Raises:
            ValueError: `bins` does not divide 720.
        """
        if bins < 1 or self.BINS % bins:
            raise ValueError(f"Expected a number of bins that divides {self.BINS}, got {bins}")
        parts: list[NDArray[np.float64]] = [
            each.reshape(bins, -1).sum(axis=1) for each in (self.weight, self.confidence, self.hits)
        ]
        filled = parts[0] > 0
        weight, confidence, hits = (part[filled] for part in parts)
        return weight, confidence / weight, hits / weight

    def error(self, bins: int) -> float:
        """Return the expected calibration error: the mean gap between confidence and accuracy of a bin.

        Guo et al. 2017, "On calibration of modern neural networks".
        """
        weight, confidence, accuracy = self.curve(bins)
        return float(weight @ np.abs(confidence - accuracy) / weight.sum())
