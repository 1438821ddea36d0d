"""What is measured of the whole network at a record."""

from __future__ import annotations

import math

import numpy as np

from dynagram.observables._plateaus import find_plateaus
from dynagram.watch._band import Band
from dynagram.watch._context import Context
from dynagram.watch._layer_quantities import Reading

_POINTS = 2000  # of a loss curve that is searched for plateaus
_FEWEST = 10


def loss(context: Context) -> Reading:
    """The loss on the probe."""
    value = context.look.loss
    return None if value is None else (value, None)


def rate(context: Context) -> Reading:
    """The learning rate of the last step."""
    return None if context.look.eta is None else (context.look.eta, None)


def top_eigenvalue(context: Context) -> Reading:
    """The top eigenvalue of the tangent kernel weighted with the curvature of the loss.

    That of JᵀL''J, for a squared error the kernel's own; gradient descent with momentum β leaves
    its direction stable below 2(1 + β)/η.
    """
    look = context.look
    if look.curvature is None:
        return None
    value = look.curvature()
    if look.eta is None or look.momentum is None or look.eta <= 0.0:
        return value, None
    return value, Band(None, 0.0, 2.0 * (1.0 + look.momentum) / look.eta)


def kernel_drift(context: Context) -> Reading:
    """‖Θ_t − Θ_0‖/‖Θ_0‖ of the tangent kernel on some samples of the probe."""
    now, memory = context.kernel, context.memory
    if now is None:
        return None
    if memory.kernel is None:
        memory.kernel = now
    size = float(np.linalg.norm(memory.kernel))
    if memory.kernel.shape != now.shape or not size > 0:
        return None
    return float(np.linalg.norm(now - memory.kernel)) / size, None


def plateau(context: Context) -> Reading:
    """1 while the loss stands still, else 0: whether its curve so far ends on a plateau."""
    steps, losses = context.memory.steps, context.memory.losses
    if len(losses) < _FEWEST or not all(map(math.isfinite, losses)):
        return None
    stride = max(1, len(losses) // _POINTS)
    found = find_plateaus(
        np.array(losses[::-stride][::-1]), np.array(steps[::-stride][::-1], dtype=np.float64)
    )
    return float(bool(found) and not found[-1].left), None
