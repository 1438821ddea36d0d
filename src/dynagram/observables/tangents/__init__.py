"""Tangent kernels of one concrete network, exact at any width: NTK, dNTK, ddNTKs and gradients."""

from dynagram.observables.tangents._ddntk import ddntk, ddntk_patterns, function_ddntk
from dynagram.observables.tangents._dntk import dntk, function_dntk
from dynagram.observables.tangents._kernel_path import kernel_path
from dynagram.observables.tangents._ntk import function_ntk, ntk, ntk_of_layers, ntk_terms
from dynagram.observables.tangents._signals import Signals, gradients, signals
from dynagram.observables.tangents._weight_decay import weight_decay_drift

__all__ = [
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
    "signals",
    "weight_decay_drift",
]
