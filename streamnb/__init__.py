"""Naive Bayes for tables larger than memory: one pass, exact merging, scikit-learn's numbers.

Three nouns: `Schema` (what is counted), `State` (the counts), `Predictor` (frozen).
Four verbs: empty (`State(schema)`), `update`, `merge`, `finish`. `fit` does the first three over a whole source.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamnb.errors import (
        DataError,
        EmptyStateError,
        EngineError,
        FencedError,
        FileFormatError,
        MergeError,
        MissingExtraError,
        SchemaError,
        SkippedWarning,
        SourceError,
        StreamNBError,
    )
    from streamnb.evaluation import Report, evaluate
    from streamnb.families import Bernoulli, Categorical, Complement, Gaussian, Multinomial
    from streamnb.follow import Following, follow
    from streamnb.groups import fit_groups
    from streamnb.position import Window
    from streamnb.predictor import Predictor
    from streamnb.progress import Progress
    from streamnb.publishing import PredictorFile
    from streamnb.schema import Schema
    from streamnb.score import predict
    from streamnb.scoretopic import score_topic
    from streamnb.state import State
    from streamnb.text import Text
    from streamnb.train import fit

__version__ = "0.1.0"

# Where each public name lives. They are imported at first use: the command's --help needs none of them.
_ROOMS = {
    "errors": (
        "DataError",
        "EmptyStateError",
        "EngineError",
        "FencedError",
        "FileFormatError",
        "MergeError",
        "MissingExtraError",
        "SchemaError",
        "SkippedWarning",
        "SourceError",
        "StreamNBError",
    ),
    "evaluation": ("Report", "evaluate"),
    "families": ("Bernoulli", "Categorical", "Complement", "Gaussian", "Multinomial"),
    "groups": ("fit_groups",),
    "follow": ("Following", "follow"),
    "position": ("Window",),
    "predictor": ("Predictor",),
    "progress": ("Progress",),
    "publishing": ("PredictorFile",),
    "schema": ("Schema",),
    "score": ("predict",),
    "scoretopic": ("score_topic",),
    "state": ("State",),
    "text": ("Text",),
    "train": ("fit",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = [
    "Bernoulli",
    "Categorical",
    "Complement",
    "DataError",
    "EmptyStateError",
    "EngineError",
    "FencedError",
    "FileFormatError",
    "Following",
    "Gaussian",
    "MergeError",
    "MissingExtraError",
    "Multinomial",
    "Predictor",
    "PredictorFile",
    "Progress",
    "Report",
    "Schema",
    "SchemaError",
    "SkippedWarning",
    "SourceError",
    "State",
    "StreamNBError",
    "Text",
    "Window",
    "evaluate",
    "fit",
    "fit_groups",
    "follow",
    "predict",
    "score_topic",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'streamnb' has no attribute {name!r}")
    value = getattr(import_module(f"streamnb.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
