"""Ensembles of concrete networks: drawn, trained, measured, with standard errors.

`train` trains many networks at once; every ensemble is a job of the one engine, which cuts it into
seeded chunks, stores, resumes and distributes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import facade

if TYPE_CHECKING:
    from dynagram.ensembles._exact_posterior import exact_posterior as exact_posterior
    from dynagram.ensembles._train import train as train
    from dynagram.ensembles.engine._progress import Progress as Progress
    from dynagram.ensembles.trained._job import TrainingJob as TrainingJob

__getattr__, __dir__, __all__ = facade(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "_exact_posterior": "exact_posterior",
        "_train": "train",
        "engine._progress": "Progress",
        "trained._job": "TrainingJob",
    },
)
