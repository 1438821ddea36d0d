"""Gradient descent as a dynamics of fields: its laws, and simulations that use no weights.

Equation numbers are those of Nordio, arXiv:2606.09744v3. The loss is (1/M) Σ_α (Ŷ^α − Y^α)² (11),
and any other, for any number of outputs, in `field_step`.
"""

from dynagram.theory.fields._anchored import AnchoredRun, anchored_run
from dynagram.theory.fields._descent import Descent, descend
from dynagram.theory.fields._laws import (
    activation_updates,
    conjugate_updates,
    local_updates,
    loss_gradient,
    output_update,
)
from dynagram.theory.fields._one_layer import simulate_one_layer
from dynagram.theory.fields._signals import field_step, output_signal, signal_gradient

__all__ = [
    "AnchoredRun",
    "Descent",
    "activation_updates",
    "anchored_run",
    "conjugate_updates",
    "descend",
    "field_step",
    "local_updates",
    "loss_gradient",
    "output_signal",
    "output_update",
    "signal_gradient",
    "simulate_one_layer",
]
