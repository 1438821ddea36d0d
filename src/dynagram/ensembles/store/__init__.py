"""Runs on disk: records, arrays, locks, and reading them back."""

from dynagram.ensembles.store._durable import RunError as RunError
from dynagram.ensembles.store._records import DamagedChunkError as DamagedChunkError
from dynagram.ensembles.store._store import RunStore as RunStore

__all__ = ["DamagedChunkError", "RunError", "RunStore"]
