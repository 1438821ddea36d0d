"""Residual networks (Appendix B): kernels, vertices, criticality, balance of blocks with skips."""

from dynagram.theory.residual.blocks import balanced_skip as balanced_skip
from dynagram.theory.residual.blocks import balanced_strength as balanced_strength
from dynagram.theory.residual.blocks import next_signal as next_signal
from dynagram.theory.residual.flow import ResidualFlow as ResidualFlow
from dynagram.theory.residual.flow import residual_flow as residual_flow
from dynagram.theory.residual.frozen import ResidualKernels as ResidualKernels
from dynagram.theory.residual.frozen import ResidualPoint as ResidualPoint
from dynagram.theory.residual.frozen import residual_critical as residual_critical
from dynagram.theory.residual.frozen import residual_kernels as residual_kernels
from dynagram.theory.residual.frozen import residual_susceptibilities as residual_susceptibilities
from dynagram.theory.residual.predict import ResidualPrediction as ResidualPrediction
from dynagram.theory.residual.predict import predict_residual as predict_residual
from dynagram.theory.residual.slope import vertex_slope as vertex_slope
