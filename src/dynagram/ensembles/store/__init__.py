"""Runs on disk: records, arrays, locks, and reading them back."""

from dynagram.ensembles.store._durable import RunError as RunError
from dynagram.ensembles.store._records import DamagedChunkError as DamagedChunkError

__all__ = ["DamagedChunkError", "RunError"]
