"""Counting in other people's pipelines and queries: `beam.Train`, `datafusion.training_function`; a few lines each."""

__all__ = ()
