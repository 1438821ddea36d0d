"""Gradient descent as a dynamics of fields: its laws, and simulations that use no weights.

Equation numbers are those of Nordio, arXiv:2606.09744v3. The loss is (1/M) Σ_α (Ŷ^α − Y^α)² (11).
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
from dynagram.theory.fields._one_layer import FieldRun, simulate_one_layer

__all__ = [
    "AnchoredRun",
    "Descent",
    "FieldRun",
    "activation_updates",
    "anchored_run",
    "conjugate_updates",
    "descend",
    "local_updates",
    "loss_gradient",
    "output_update",
    "simulate_one_layer",
]
