"""Tangent kernels of one concrete network, exact at any width: NTK, dNTK, ddNTKs and gradients."""

from dynagram.observables.tangents._ddntk import (
    DDNTK,
    DDNTKPatterns,
    ddntk,
    ddntk_patterns,
    function_ddntk,
    output_pairs,
)
from dynagram.observables.tangents._dntk import dntk, function_dntk
from dynagram.observables.tangents._kernel_path import KernelPath, kernel_path
from dynagram.observables.tangents._ntk import function_ntk, ntk, ntk_of_layers, ntk_terms
from dynagram.observables.tangents._signals import Gradients, Signals, gradients, signals
from dynagram.observables.tangents._weight_decay import weight_decay_drift

__all__ = [
    "DDNTK",
    "DDNTKPatterns",
    "Gradients",
    "KernelPath",
    "Signals",
    "ddntk",
    "ddntk_patterns",
    "dntk",
    "function_ddntk",
    "function_dntk",
    "function_ntk",
    "gradients",
    "kernel_path",
    "ntk",
    "ntk_of_layers",
    "ntk_terms",
    "output_pairs",
    "signals",
    "weight_decay_drift",
]
