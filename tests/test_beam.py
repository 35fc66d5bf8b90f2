"""Apache Beam: training as a CombineFn. Beam has an environment of its own while it needs an older PyArrow."""

from __future__ import annotations

import pyarrow as pa
import pytest
from engine_tasks import SCHEMA, rows
from strategies import assert_agree

import streamnb as snb

pytestmark = [
    pytest.mark.may_skip,  # .ci/run runs this file in Beam's environment too, where nothing may be missing
    pytest.mark.filterwarnings("ignore"),  # Beam's own
]
beam = pytest.importorskip("apache_beam", reason="Beam has an environment of its own: pip install -e '.[beam]'")


def batches() -> list[tuple[str, pa.Table]]:
    """Batches of rows, each of a tenant."""
    return [("even" if i % 2 == 0 else "odd", rows(i, 40 + i)) for i in range(9)]


def expected(*tenants: str) -> snb.State:
    """A plain loop over the batches of some tenants."""
    state = snb.State(SCHEMA)
    for tenant, batch in batches():
        if tenant in tenants:
            state.update(batch)
    return state


def test_a_pipeline_trains() -> None:
    """CombineGlobally gives the state of all batches."""
    from apache_beam.testing.util import assert_that

    from streamnb.adapters.beam import Train

    combine = Train(SCHEMA)
    parts = [combine.create_accumulator() for _ in range(3)]
    for i, (_, batch) in enumerate(batches()):
        combine.add_input(parts[i % 3], batch)
    by_hand = snb.State.from_bytes(combine.extract_output(combine.merge_accumulators(parts)))
    assert_agree(by_hand, expected("even", "odd"), moments=1e-12)
    with beam.Pipeline() as pipeline:
        states = pipeline | beam.Create(batches()) | beam.Values() | beam.CombineGlobally(combine)
        assert_that(states, _check_whole)


def _check_whole(found: list[bytes]) -> None:
    (state,) = map(snb.State.from_bytes, found)
    assert_agree(state, expected("even", "odd"), moments=1e-12)


def test_a_pipeline_trains_a_state_for_each_key() -> None:
    """CombinePerKey gives a state a tenant."""
    from apache_beam.testing.util import assert_that

    from streamnb.adapters.beam import Train

    with beam.Pipeline() as pipeline:
        states = pipeline | beam.Create(batches()) | beam.Reshuffle() | beam.CombinePerKey(Train(SCHEMA))
        assert_that(states, _check_keys)


def _check_keys(found: list[tuple[str, bytes]]) -> None:
    assert {key for key, _ in found} == {"even", "odd"}
    for key, state in found:
        assert_agree(snb.State.from_bytes(state), expected(key), moments=1e-12)
