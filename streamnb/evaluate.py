"""How good a model is, over a whole source."""

from __future__ import annotations

from streamnb.report import Averages, Confusion, Report

__all__ = ["Averages", "Confusion", "Report"]
