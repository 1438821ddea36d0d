"""Ensembles of networks at initialisation: samples, and the job that measures tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dynagram._lazy import facade

if TYPE_CHECKING:
    from dynagram.ensembles.initial._blocks import TunedBlocks as TunedBlocks
    from dynagram.ensembles.initial._blocks import measure_signal as measure_signal
    from dynagram.ensembles.initial._blocks import tune_blocks as tune_blocks
    from dynagram.ensembles.initial._job import TensorJob as TensorJob
    from dynagram.ensembles.initial._sample import sample_metrics as sample_metrics
    from dynagram.ensembles.initial._tangent_members import sample_tangents as sample_tangents

__getattr__, __dir__, __all__ = facade(  # pyright: ignore[reportUnsupportedDunderAll]
    __name__,
    {
        "_blocks": "TunedBlocks measure_signal tune_blocks",
        "_job": "TensorJob",
        "_sample": "sample_metrics",
        "_tangent_members": "sample_tangents",
    },
)
