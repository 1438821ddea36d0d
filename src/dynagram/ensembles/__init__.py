"""Ensembles of concrete networks: drawn, trained, measured, with standard errors.

`simulate` measures tensors at initialisation, `train` trains many networks at once. Every ensemble
is a job of the one engine, which cuts it into seeded chunks, stores, resumes and distributes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.ensembles._exact_posterior import exact_posterior as exact_posterior
    from dynagram.ensembles._runs import open_run as open_run
    from dynagram.ensembles._runs import resume_run as resume_run
    from dynagram.ensembles._simulate import simulate as simulate
    from dynagram.ensembles._train import train as train

__all__ = [
    "exact_posterior",
    "open_run",
    "resume_run",
    "simulate",
    "train",
]

__getattr__, __dir__ = load_on_demand(
    __name__,
    {
        "exact_posterior": "_exact_posterior",
        "open_run": "_runs",
        "resume_run": "_runs",
        "simulate": "_simulate",
        "train": "_train",
    },
)
