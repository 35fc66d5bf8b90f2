"""`score_topic`: predict from topic to topic, with the newest model, one answer for each message."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamnb.errors import StreamNBError
from streamnb.following import PEEKED, TYPES
from streamnb.predictor import Predictor
from streamnb.publishing import PredictorFile
from streamnb.score import PREDICTION, PROBABILITY
from streamnb.signals import stopping
from streamnb.sources.kafka import peek
from streamnb.sources.messages import ArrowMessages, Decoder, JsonMessages, MessageFormat, types_in_json
from streamnb.sources.relay import Relay

__all__ = ["Scorer", "score_topic"]

POLL_SECONDS = 0.2


def score_topic(
    bootstrap: str,
    source: str,
    target: str,
    model: str | os.PathLike[str],
    *,
    message_format: MessageFormat = "json",
    proba: bool = False,
    group: str = "streamnb-score",
    exactly_once: bool = True,
    max_messages: int | None = None,
    client: Mapping[str, Any] | None = None,
    progress: Callable[..., None] = lambda *_, **__: None,
    stop: threading.Event | None = None,
) -> int:
    """Answer each message of a topic by one message of another, and return how many were answered.

    A JSON answer is `{"prediction": label}`, with `proba` also `"proba": {label: probability}`; to a message that
    cannot be scored it is `{"prediction": null, "error": reason}`. An Arrow answer is an IPC stream with a column
    `prediction`, and columns `proba_<label>`; to one that cannot be scored it has no rows, and a column `error`. Keys,
    headers and times stay, and a tombstone stays a tombstone. The model file is read anew whenever it has changed. It
    ends when `stop` is set, on SIGTERM or Ctrl-C, or after at least `max_messages`.

    Raises:
        SourceError: no model, no broker, no topic, or a broker without transactions (`exactly_once=False` does
            without, and may answer twice after a crash).
    """
    newest = PredictorFile(model)
    newest.current()
    types: dict[str, pa.DataType] = {}
    if message_format == "json":
        types = types_in_json(peek(bootstrap, source, PEEKED, client))
    relay = Relay(bootstrap, source, target, group, exactly_once=exactly_once, options=client, say=progress)
    done = 0
    scorer: Scorer | None = None
    with stopping(stop or threading.Event()) as stopped:
        try:
            while not stopped.is_set() and (max_messages is None or done < max_messages):
                messages = relay.poll(POLL_SECONDS)
                if not messages:
                    continue
                current = newest.current()
                if scorer is None or scorer.model is not current:
                    scorer = Scorer(current, message_format, proba, types)
                if relay.send(messages, scorer.answers([message.value() for message in messages])):
                    done += len(messages)
                    progress("scored", messages=done)
        finally:
            relay.close()
    return done


class Scorer:
    """Answers messages with one model.

    >>> from streamnb import Schema, State
    >>> state = State(Schema(label="y", numeric=["x"]))
    >>> state.update(pa.table({"y": ["a", "a", "b", "b"], "x": [1.0, 2.0, 10.0, 11.0]}))
    >>> Scorer(state.finish(), "json", False, {}).answers([b'{"x":1.5}', None])
    [b'{"prediction": "a"}', None]
    """

    def __init__(
        self, model: Predictor, message_format: MessageFormat, proba: bool, types: Mapping[str, pa.DataType]
    ) -> None:
        self.model, self.proba, self.format = model, proba, message_format
        self.labels = model.classes.to_pylist()
        features = model.schema.features
        self.decoder: Decoder = ArrowMessages(features)
        if message_format == "json":
            self.decoder = JsonMessages(pa.schema([(name, self._type(name, types)) for name in features]))

    def answers(self, values: Sequence[bytes | None]) -> list[bytes | None]:
        """Return the answer to each message; None to None."""
        there = [value for value in values if value is not None]
        found = iter(self._answered(there))
        return [None if value is None else next(found) for value in values]

    def _answered(self, values: Sequence[bytes]) -> list[bytes]:
        """Answer all at once; where that fails, half by half, down to the message that cannot be scored."""
        if not values:
            return []
        try:
            if self.format == "arrow":
                return [self._stream(value) for value in values]
            return self._objects(values)
        except StreamNBError as error:
            if len(values) > 1:
                middle = len(values) // 2
                return self._answered(values[:middle]) + self._answered(values[middle:])
            faults = self.decoder.sift(values)
            return [self._refusal(faults[0][2] if faults else str(error))]

    def _objects(self, values: Sequence[bytes]) -> list[bytes]:
        labels, probabilities = self._predicted(self.decoder.decode(values)[0])
        if not self.proba:
            text = {
                label: json.dumps({PREDICTION: _plain(label)}, ensure_ascii=False).encode() for label in self.labels
            }
            return [text[label] for label in labels.to_pylist()]
        names = [str(label) for label in self.labels]
        return [
            _json({PREDICTION: _plain(label), "proba": dict(zip(names, row, strict=True))})
            for label, row in zip(labels.to_pylist(), probabilities.tolist(), strict=True)
        ]

    def _stream(self, value: bytes) -> bytes:
        labels, probabilities = self._predicted(self.decoder.decode([value])[0])
        columns = {PREDICTION: labels}
        if self.proba:
            columns |= {
                f"{PROBABILITY}{label}": pa.array(np.ascontiguousarray(each))
                for label, each in zip(self.labels, probabilities.T, strict=True)
            }
        return _ipc(pa.table(columns))

    def _predicted(self, table: pa.Table) -> tuple[pa.Array, Any]:
        return self.model.predict_with_proba(table) if self.proba else (self.model.predict(table), None)

    def _refusal(self, reason: str) -> bytes:
        if self.format == "arrow":
            # The reason stands in the schema: a row would be taken for an answer.
            columns = {PREDICTION: pa.array([], self.model.classes.type), "error": pa.array([], pa.string())}
            return _ipc(pa.table(columns).replace_schema_metadata({"error": reason[:500]}))
        return json.dumps({PREDICTION: None, "error": reason[:500]}, ensure_ascii=False).encode()

    def _type(self, name: str, types: Mapping[str, pa.DataType]) -> pa.DataType:
        """The type of a field: what the model counts it as; where that leaves a choice, as in the first messages."""
        schema = self.model.schema
        if name in (*schema.numeric, *schema.counts):
            return pa.float64()
        if name in schema.categorical:
            categories = self.model.categorical[name][0].values.type
            return categories if categories in TYPES.values() else pa.string()
        found = types.get(name)
        if name in schema.binary:
            return pa.bool_() if found == pa.bool_() else pa.float64()
        return found if found in TYPES.values() else pa.string()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _plain(label: Any) -> Any:
    return label if isinstance(label, str | bool | int | float) else str(label)


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
