"""Ensembles of networks at initialisation: samples, and the job that measures tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import load_on_demand

if TYPE_CHECKING:
    from dynagram.ensembles.initial._blocks import TunedBlocks as TunedBlocks
    from dynagram.ensembles.initial._blocks import measure_signal as measure_signal
    from dynagram.ensembles.initial._blocks import tune_blocks as tune_blocks
    from dynagram.ensembles.initial._job import TensorJob as TensorJob
    from dynagram.ensembles.initial._sample import sample_metrics as sample_metrics
    from dynagram.ensembles.initial._tangent_members import sample_tangents as sample_tangents

__all__ = [
    "TensorJob",
    "TunedBlocks",
    "measure_signal",
    "sample_metrics",
    "sample_tangents",
    "tune_blocks",
]

__getattr__, __dir__ = load_on_demand(
    __name__,
    {
        "TensorJob": "_job",
        "TunedBlocks": "_blocks",
        "measure_signal": "_blocks",
        "sample_metrics": "_sample",
        "sample_tangents": "_tangent_members",
        "tune_blocks": "_blocks",
    },
)
