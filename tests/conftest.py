"""What every test shares: Hypothesis profiles, and the helpers of `strategies.py` by name."""

from __future__ import annotations

import os
import sys
from pathlib import Path

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
