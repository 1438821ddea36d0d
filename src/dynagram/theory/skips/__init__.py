"""Networks with skips (Appendix B): vertices, one-input flows, criticality, balance of blocks."""

from dynagram.theory.skips._blocks import (
    balanced_skip,
    balanced_strength,
    next_signal,
)
from dynagram.theory.skips._critical import residual_critical, residual_susceptibilities
from dynagram.theory.skips._flow import (
    ResidualFlow,
    residual_flow,
)
from dynagram.theory.skips._slope import (
    vertex_slope,
)

__all__ = [
    "ResidualFlow",
    "balanced_skip",
    "balanced_strength",
    "next_signal",
    "residual_critical",
    "residual_flow",
    "residual_susceptibilities",
    "vertex_slope",
]
