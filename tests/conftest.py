"""What every test shares: Hypothesis profiles, and the helpers of `strategies.py` by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# pytest imports test files one by one (import-mode=importlib); this makes the helpers beside them importable.
sys.path.insert(0, str(Path(__file__).parent))

settings.register_profile(
    "suite",
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("thorough", settings.get_profile("suite"), max_examples=2000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under STREAMNB_CI a test that skips because something is missing has failed, unless it is marked as meant."""
    report = yield
    if report.skipped and "STREAMNB_CI" in os.environ and item.get_closest_marker("may_skip") is None:
        report.outcome = "failed"
        report.longrepr = f"skipped where nothing may be missing: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def kafka() -> Generator[str]:
    """The address of a Kafka broker: that of `STREAMNB_KAFKA`, or one started here, of the kind `STREAMNB_BROKER`."""
    pytest.importorskip("confluent_kafka", reason="needs pip install 'streamnb[kafka]'")
    from streamnb.localbroker import available, broker

    if not os.environ.get("STREAMNB_KAFKA") and not available():
        pytest.skip("needs Java and Maven, or pip install noida-db, or STREAMNB_KAFKA=host:port")
    kind: Any = os.environ.get("STREAMNB_BROKER") or None
    with broker(kind) as address:
        yield address
