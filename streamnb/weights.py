"""The sums of weights of classes: floats, or exact sums where a schema asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import FileFormatError
from streamnb.exactsums import ExactSums
from streamnb.protocols import Floats

__all__ = ["ClassWeights", "added", "arrays_of", "chosen", "from_arrays", "grown", "no_weights", "rounded"]

ClassWeights: TypeAlias = Floats | ExactSums
"""The sum of weights of each class, (n_classes,); never changed in place."""


def no_weights(n_classes: int, exact: bool) -> ClassWeights:
    """Return weights of 0 for each class."""
    return ExactSums((n_classes,)) if exact else np.zeros(n_classes)


def added(weights: ClassWeights, more: ClassWeights, index: NDArray[np.intp], sign: int = 1) -> ClassWeights:
    """Return weights with more added (or with `sign` −1 taken away) at `index`."""
    if isinstance(weights, ExactSums) and isinstance(more, ExactSums):
        return weights.plus(more, index, sign)
    total: Floats = np.array(weights)
    total[index] += sign * rounded(more)
    return total


def grown(weights: ClassWeights, index: NDArray[np.intp], n_classes: int) -> ClassWeights:
    """Return weights of more classes, where the old class i is class index[i]."""
    if isinstance(weights, ExactSums):
        return weights.scattered(index, (n_classes,))
    whole = np.zeros(n_classes)
    whole[index] = weights
    return whole


def chosen(weights: ClassWeights, classes: NDArray[np.intp]) -> ClassWeights:
    """Return the weights of some classes."""
    return weights.at(classes) if isinstance(weights, ExactSums) else weights[classes]


def rounded(weights: ClassWeights) -> Floats:
    """Return weights as floats."""
    return weights.rounded() if isinstance(weights, ExactSums) else weights


def arrays_of(name: str, weights: ClassWeights) -> dict[str, NDArray[Any]]:
    """Return what a state file holds of weights."""
    if isinstance(weights, ExactSums):
        return {f"{name}.{key}": array for key, array in weights.arrays().items()}
    return {name: weights}


def from_arrays(name: str, arrays: Mapping[str, Any], exact: bool) -> ClassWeights:
    """Return the weights that a state file holds.

    Raises:
        KeyError, FileFormatError: they are absent, or not as they should be.
    """
    if not exact:
        held: Floats = arrays[name]
        return held
    sums = ExactSums.from_arrays({key: arrays[f"{name}.{key}"] for key in ("low", "width", "digits")})
    if (sums.signs() < 0).any():
        raise FileFormatError(f"Expected {name} of at least 0, got another")
    return sums
