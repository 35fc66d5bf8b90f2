"""Anything that holds rows, opened as a source of shards."""

from streamnb.protocols import BATCH_ROWS
from streamnb.sources.opening import open_source

__all__ = ["BATCH_ROWS", "open_source"]
