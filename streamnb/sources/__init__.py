"""Anything that holds rows, opened as a source of shards.

A source's schema gives each column one canonical type (`string` for every layout of strings). Its batches have
exactly these types, except that strings may come as dictionary codes, `dictionary<int32, string>`: `decoded` undoes it.
"""

from streamnb.protocols import BATCH_ROWS
from streamnb.sources.batching import decoded
from streamnb.sources.opening import OpenSource, open_source

__all__ = ["BATCH_ROWS", "OpenSource", "decoded", "open_source"]
