"""The predictor: a frozen model, scored block of rows by block of rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamnb import statefile
from streamnb.encode import Blocks, CategoryColumn, Intake, encode_features, encode_few
from streamnb.errors import DataError
from streamnb.families import TEXT_OPTIONS, Bernoulli, Complement, log_normalize, probabilities
from streamnb.likelihoods import Discrete, Gaussians, Table, dense, without_missing
from streamnb.protocols import Codes, Floats
from streamnb.schema import Schema
from streamnb.sufficient import SufficientStatistics
from streamnb.textcolumn import TextColumn
from streamnb.tokenscores import TokenRows, TokenScores
from streamnb.tokentable import Lexicon
from streamnb.vocabulary import Vocabulary

__all__ = ["Predictor", "winners"]

LEAST = {"numeric": None, "binary": None, "counts": 0.0}
"""The blocks that are scored as matrices, and the least value that a cell may have."""

BLOCK_ROWS = 8192
"""Rows scored at a time: enough that threads seldom wait for the interpreter, few enough to stay in a core's cache."""

BLOCK_SCORES = 1 << 20
"""Scores of a block: with more classes than 128, fewer rows."""

LEAST_BLOCK_ROWS = 128

FEW_ROWS = 16
"""Up to so many rows, what is done once for each column takes longer than what is done for each row."""


class Predictor:
    """A finished model: it answers, and never changes. Made by `State.finish` or `Predictor.load`.

    - `classes`: Arrow array (n_classes,), sorted, of the label's own type.
    - `class_log_prior`: NumPy float64 (n_classes,).
    - `families`: what each block was finished with, as plain data.

    A missing cell is left out of its row's score. Ties go to the first class in sorted order. A row that is
    impossible under every class (only without smoothing) gets the prior. Complement blocks alone take no prior.

    >>> from streamnb import Schema, State
    >>> state = State(Schema(label="y", numeric=["x"]))
    >>> state.update(pa.table({"y": ["a", "a", "b", "b"], "x": [1.0, 3.0, 10.0, 14.0]}))
    >>> model = state.finish()
    >>> model.predict(pa.table({"x": [2.0, None, 13.0]})).to_pylist()
    ['a', 'a', 'b']
    """

    def __init__(
        self,
        schema: Schema,
        classes: pa.Array,
        class_log_prior: Floats,
        families: Mapping[str, Any],
        *,
        numeric: Gaussians | None = None,
        categorical: Mapping[str, tuple[Vocabulary, Table]] | None = None,
        binary: Discrete | None = None,
        counts: Discrete | None = None,
        text: Mapping[str, tuple[Lexicon, TokenScores]] | None = None,
    ) -> None:
        """Assemble a predictor from its likelihoods; `State.finish` and `load` do this."""
        self.schema = schema
        self.classes = classes
        self.class_log_prior = class_log_prior
        self.class_log_prior.flags.writeable = False
        self.families = families
        self.numeric, self.binary, self.counts = numeric, binary, counts
        self.categorical = dict(categorical or {})
        self.text = dict(text or {})
        only_complement = {block["family"] for block in families.values()} == {Complement.__name__}
        self._intake = Intake(schema, schema.features)
        self._takes_prior = not (only_complement and len(classes) > 1)

    @classmethod
    def finish(cls, total: SufficientStatistics, families: Mapping[str, Any], log_prior: Floats) -> Predictor:
        """Freeze statistics: each block's family turns its statistic into a likelihood."""
        schema = total.schema
        likelihoods: dict[str, Any] = {}
        for block in ("numeric", "binary", "counts"):
            columns = getattr(schema, block)
            if columns:
                likelihoods[block] = families[block].finish(getattr(total, block), columns)
        if schema.categorical:
            families["categorical"].check(schema.categorical)
        likelihoods["categorical"] = {
            name: (total.categories[name], families["categorical"].finish(counts, name))
            for name, counts in total.categorical.items()
        }
        likelihoods["text"] = {
            name: families["text"].finish_text(table, total.class_weight) for name, table in total.text.items()
        }
        used = {
            block: {
                "family": type(family).__name__,
                **{k: _plain(v) for k, v in vars(family).items() if block == "text" or k not in TEXT_OPTIONS},
            }
            for block, family in families.items()
            if getattr(schema, block)
        }
        return cls(schema, total.classes.values, log_prior, used, **likelihoods)

    # Scoring --------------------------------------------------------------------------------------------------------

    def predict(self, data: Any) -> pa.Array:
        """Return the most probable label of each row, an Arrow array (n_rows,) of the label's type.

        Raises:
            SchemaError: a feature column is absent or of a wrong type.
            DataError: an infinite number, a negative count, or an unseen category where the family says "error".
        """
        found = [winners(joint, self.class_log_prior) for joint in self._joint(data)]
        winner = found[0] if len(found) == 1 else np.concatenate([np.zeros(0, np.int32), *found])
        if len(winner) == 1:
            return self.classes.slice(int(winner[0]), 1)  # ten times faster than taking one
        return self.classes.take(pa.array(winner))

    def predict_proba(self, data: Any) -> Floats:
        """Return the posterior of each class, float64 (n_rows, n_classes), in the order of `classes`."""
        return self._rows(data, lambda joint: probabilities(joint, self.class_log_prior))

    def predict_with_proba(self, data: Any) -> tuple[pa.Array, Floats]:
        """Return what `predict` and `predict_proba` return, for the work of one of them."""
        joints = list(self._joint(data))
        winner = np.concatenate([np.zeros(0, np.int32), *(winners(joint, self.class_log_prior) for joint in joints)])
        each = [probabilities(joint, self.class_log_prior).T for joint in joints]
        return self.classes.take(pa.array(winner)), np.concatenate([np.zeros((0, len(self.classes))), *each])

    def predict_log_proba(self, data: Any) -> Floats:
        """Return the logarithm of `predict_proba`, without underflow; float64 (n_rows, n_classes)."""
        return self._rows(data, lambda joint: log_normalize(joint, self.class_log_prior))

    def predict_joint_log_proba(self, data: Any) -> Floats:
        """Return log P(class) + log p(row | class), not normalised; float64 (n_rows, n_classes)."""
        return self._rows(data, lambda joint: joint)

    # Explaining -----------------------------------------------------------------------------------------------------

    def explain(self, data: Any, label: Any = None, against: Any = None) -> pa.Table:
        """Return what each feature of each row says for one class and against another; see `explain.py`."""
        from streamnb.explain import explain

        return explain(self, data, label, against)

    def top_features(self, label: Any, n: int = 20) -> pa.Table:
        """Return the (feature, value) pairs that speak most for a class; see `topfeatures.py`."""
        from streamnb.topfeatures import top_features

        return top_features(self, label, n)

    def _rows(self, data: Any, present: Callable[[Floats], Floats]) -> Floats:
        parts = [present(joint).T for joint in self._joint(data)]
        if not parts:
            return np.zeros((0, len(self.classes)))
        return np.ascontiguousarray(parts[0] if len(parts) == 1 else np.concatenate(parts))

    def _joint(self, data: Any) -> Iterator[Floats]:
        """Yield joint log probabilities (n_classes, n_rows), a block of rows at a time."""
        seen, rows = 0, min(BLOCK_ROWS, max(LEAST_BLOCK_ROWS, BLOCK_SCORES // max(len(self.classes), 1)))
        for batch in self._intake.batches(data):
            try:
                blocks, codes = self._encoded(batch)
                found = [self._placed(name, column) for name, column in zip(self.schema.text, blocks.text, strict=True)]
                for first in range(0, blocks.n_rows, rows):
                    yield self._score(blocks, codes, found, first, min(first + rows, blocks.n_rows))
            except DataError as error:
                raise (error if error.row is None else error.at(row=seen + error.row)) from None
            seen += batch.num_rows

    def _encoded(self, batch: pa.RecordBatch) -> tuple[Blocks, list[Codes]]:
        if batch.num_rows <= FEW_ROWS:
            few = encode_few(batch, self.schema, [vocabulary for vocabulary, _ in self.categorical.values()])
            if few is not None and not self._refused(few[1]):
                return few
        blocks = encode_features(batch, self.schema)
        columns = zip(self.schema.categorical, blocks.categorical, strict=True)
        return blocks, [self._codes(name, column) for name, column in columns]

    def _refused(self, codes: list[Codes]) -> bool:
        """Whether a category was never seen where that is an error."""
        return any(
            table.unseen is None and (code == -2).any()
            for (_, table), code in zip(self.categorical.values(), codes, strict=True)
        )

    def _score(self, blocks: Blocks, codes: list[Codes], found: list[TokenRows], first: int, stop: int) -> Floats:
        """Joint log probabilities of some rows; they are looked at closely only where a score is not finite."""
        out = np.empty((len(self.classes), stop - first))
        here = [each.between(first, stop) for each in found]
        # A value too far out for its square is impossible under every class: −inf, and the prior decides.
        with np.errstate(over="ignore", invalid="ignore"):
            self._add_all(out, blocks, codes, here, first, stop, careful=False)
            if not np.isfinite(out.sum()):
                self._add_all(out, blocks, codes, here, first, stop, careful=True)
                # What is certain to one block and impossible to another (∞ − ∞) is impossible.
                np.copyto(out, -np.inf, where=np.isnan(out))
        return out

    def _add_all(
        self,
        out: Floats,
        blocks: Blocks,
        codes: list[Codes],
        found: list[TokenRows],
        first: int,
        stop: int,
        *,
        careful: bool,
    ) -> None:
        out[:] = self.class_log_prior[:, None] if self._takes_prior else 0.0
        for block, least in LEAST.items():
            likelihood = getattr(self, block)
            if likelihood is None:
                continue
            try:
                values, present = dense(getattr(blocks, block), first, stop, least=least)
                if careful:
                    values, present = without_missing(values, present, first, infinite=self.schema.infinite)
            except DataError as error:
                raise error.at(column=getattr(self.schema, block)[error.column]) from None
            likelihood.add_to(out, values, present)
        for (_, table), code in zip(self.categorical.values(), codes, strict=True):
            table.add_to(out, code[first:stop])
        for (_, scores), tokens in zip(self.text.values(), found, strict=True):
            scores.add_to(out, tokens)

    def _codes(self, name: str, column: CategoryColumn) -> Codes:
        """Codes into the training's categories: −1 missing, −2 never seen in training."""
        vocabulary, table = self.categorical[name]
        place = vocabulary.lookup(column.values)
        lookup = np.append(np.where(place < 0, np.int32(-2), place), np.int32(-1))
        codes: Codes = lookup[column.codes]
        if table.unseen is None and (codes == -2).any():
            row = int(np.flatnonzero(codes == -2)[0])
            got = column.values[int(column.codes[row])].as_py()
            raise DataError(f"Expected a category seen in training, got {got!r}", column=name, row=row)
        return codes

    def _placed(self, name: str, column: TextColumn) -> TokenRows:
        """The tokens of documents that training knows; others are left out, and nothing is learnt of them."""
        lexicon, scores = self.text[name]
        text = column.text
        parts = []
        try:
            for first, tokens in column.chunks():
                code = lexicon.place(tokens.values)[tokens.codes]
                rows, counts, known = tokens.rows, tokens.counts, code >= 0
                if not known.all():
                    rows, code = rows[known], code[known]
                    counts = None if counts is None else counts[known]
                found = scores.rows_of(
                    rows, code, counts, tokens.n_rows, sublinear=text.sublinear, normalize=text.normalize
                )
                parts.append((found.rows + np.int32(first), found.tokens, found.values))
        except DataError as error:
            raise error.at(column=name) from None
        if not parts:
            parts.append((np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0)))
        rows, code, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        return TokenRows(rows, code, values, column.present)

    # Files ----------------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Return the content of a model file; equal predictors give equal bytes."""
        return statefile.dumps("predictor", *self._content())

    @classmethod
    def from_bytes(cls, data: bytes) -> Predictor:
        """Return the predictor that `to_bytes` wrote.

        Raises:
            FileFormatError: the bytes are not a predictor.
        """
        return cls._from_contents(statefile.loads(data), "bytes")

    def save(self, path: str | Path) -> None:
        """Write the predictor to a file: whole or, after a crash, not at all."""
        statefile.write(path, "predictor", *self._content())

    @classmethod
    def load(cls, path: str | Path) -> Predictor:
        """Read a model file; everything is checked and nothing in it is executed.

        Raises:
            FileFormatError: not a model file, damaged, or of an unknown format.
            SourceError: the file is not there.
        """
        return cls._from_contents(statefile.read(path, kind="predictor"), str(path))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Predictor) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]  # compared by value

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        # Engines ship predictors between processes in the form of the file, which is checked on arrival.
        return Predictor.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"<Predictor of {len(self.classes)} classes, {len(self.schema.features)} features>"

    def _content(self) -> tuple[dict[str, Any], dict[str, Any]]:
        header = {"schema": json.loads(self.schema.to_json()), "families": self.families}
        arrays: dict[str, Any] = {"classes": self.classes, "class_log_prior": self.class_log_prior}
        for block in ("numeric", "binary", "counts"):
            likelihood = getattr(self, block)
            if likelihood is not None:
                arrays |= {f"{block}.{name}": array for name, array in likelihood.arrays().items()}
        for i, (vocabulary, table) in enumerate(self.categorical.values()):
            arrays[f"categorical.{i}.values"] = vocabulary.values
            arrays |= {f"categorical.{i}.{name}": array for name, array in table.arrays().items()}
        for i, (lexicon, scores) in enumerate(self.text.values()):
            arrays[f"text.{i}.names"] = lexicon.names
            if lexicon.buckets is not None:
                arrays[f"text.{i}.buckets"] = lexicon.buckets
            arrays |= {f"text.{i}.{name}": array for name, array in scores.arrays().items()}
        return header, arrays

    @classmethod
    def _from_contents(cls, contents: statefile.Contents, where: str) -> Predictor:
        try:
            schema, arrays = Schema.from_json(contents.header["schema"]), contents.arrays
            classes = arrays["classes"]
            n = len(classes)

            def likelihood(kind: Any, prefix: str, features: int) -> Any:
                own = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
                for name, array in own.items():
                    if name == "values":
                        continue
                    shape = (n,) if name == "unseen" else (n, features)
                    if array.shape != shape:
                        raise ValueError(f"{prefix}{name} has shape {array.shape}, not {shape}")
                    if np.isnan(array).any() or (name == "variance" and not (array > 0).all()):
                        raise ValueError(f"{prefix}{name} holds a value that cannot be")
                return kind(**{name: array for name, array in own.items() if name != "values"})

            kinds = {"numeric": Gaussians, "binary": Discrete, "counts": Discrete}
            found: dict[str, Any] = {
                block: likelihood(kind, f"{block}.", len(getattr(schema, block)))
                for block, kind in kinds.items()
                if getattr(schema, block)
            }
            found["categorical"] = {}
            for i, name in enumerate(schema.categorical):
                values = arrays[f"categorical.{i}.values"]
                if len(values) and Vocabulary.of(values) != Vocabulary(values):
                    raise ValueError("categories are not distinct and sorted")
                found["categorical"][name] = (
                    Vocabulary(values),
                    likelihood(Table, f"categorical.{i}.", len(values)),
                )
            found["text"] = {}
            for i, name in enumerate(schema.text):
                own = {k.removeprefix(f"text.{i}."): v for k, v in arrays.items() if k.startswith(f"text.{i}.")}
                presence = contents.header["families"]["text"]["family"] == Bernoulli.__name__
                lexicon = Lexicon.from_arrays(own, schema.text_options[name].buckets)
                scores = TokenScores.from_arrays(own, n, len(lexicon), presence=presence)
                found["text"][name] = (lexicon, scores)
            log_prior = arrays["class_log_prior"]
            if log_prior.shape != (n,) or np.isnan(log_prior).any() or Vocabulary.of(classes) != Vocabulary(classes):
                raise ValueError("classes and priors do not match")
            return cls(schema, classes, arrays["class_log_prior"], contents.header["families"], **found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise statefile.contradiction("model", error, where) from None


def winners(joint: Floats, log_prior: Floats) -> Codes:
    """Return the first class with the highest score of each row; the likeliest beforehand where all are impossible.

    `joint` is (n_classes, n_rows).
    """
    winner: Codes
    if len(joint) > joint.shape[1]:
        winner, top = joint.argmax(axis=0).astype(np.int32), joint.max(axis=0)
    else:
        # Over many rows argmax across them takes several times longer than a comparison for each class.
        winner, top = np.zeros(joint.shape[1], np.int32), joint[0].copy()
        for c in range(1, len(joint)):
            np.putmask(winner, joint[c] > top, c)
            np.maximum(top, joint[c], out=top)
    impossible = np.isneginf(top)
    if impossible.any():
        winner[impossible] = np.argmax(log_prior)
    return winner


def _plain(value: Any) -> Any:
    """Family parameters as JSON: vectors and mappings as lists and objects."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, str | int | float | bool | None) else [_plain(item) for item in value]
