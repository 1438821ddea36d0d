"""Residual networks (Appendix B): kernels, vertices, criticality, balance of blocks with skips."""

from dynagram.theory.skips._blocks import balanced_skip as balanced_skip
from dynagram.theory.skips._blocks import balanced_strength as balanced_strength
from dynagram.theory.skips._blocks import next_signal as next_signal
from dynagram.theory.skips._flow import ResidualFlow as ResidualFlow
from dynagram.theory.skips._flow import residual_flow as residual_flow
from dynagram.theory.skips._frozen import ResidualKernels as ResidualKernels
from dynagram.theory.skips._frozen import ResidualPoint as ResidualPoint
from dynagram.theory.skips._frozen import residual_critical as residual_critical
from dynagram.theory.skips._frozen import residual_kernels as residual_kernels
from dynagram.theory.skips._frozen import residual_susceptibilities as residual_susceptibilities
from dynagram.theory.skips._predict import ResidualPrediction as ResidualPrediction
from dynagram.theory.skips._predict import predict_residual as predict_residual
from dynagram.theory.skips._slope import vertex_slope as vertex_slope
