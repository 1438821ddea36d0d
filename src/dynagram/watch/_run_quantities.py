"""What is measured of the whole network at a record."""

from __future__ import annotations

import math
import time

import numpy as np

from dynagram.watch._band import Band
from dynagram.watch._context import Context
from dynagram.watch._escape import forecast_escape
from dynagram.watch._layer_quantities import Reading
from dynagram.watch._plateau_state import STATES

_SHARE = 0.01  # of the time of a run that forecasts may take


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
    its direction stable below 2(1 + β)/η, with that of Nesterov below a part 1/(1 + 2β) of it.
    Of few samples it is above that of many, on average: the convex λ_max of a mean. Beyond the
    bound the curvature along its direction on other samples, which is not, has to be as well.
    """
    look = context.look
    if look.curvature is None:
        return None
    value = look.curvature()
    if look.eta is None or look.momentum is None or look.eta <= 0.0 or not look.is_as_trained:
        return value, None
    ahead = 1.0 + 2.0 * look.momentum if look.nesterov else 1.0
    bound = 2.0 * (1.0 + look.momentum) / (ahead * look.eta)
    is_beyond = bound < value < math.inf
    if is_beyond and look.elsewhere is not None and look.elsewhere() <= bound:
        return value, Band(None, 0.0, bound, alarm=(0.0, value))
    return value, Band(None, 0.0, bound)


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
    drift = float(np.linalg.norm(now - memory.kernel)) / size
    if memory.drift is None or memory.flow_time is None:
        return drift, None
    return drift, memory.drift.band(memory.flow_time)


def plateau(context: Context) -> Reading:
    """0 while the loss falls, 1 while it stands on a plateau, 2 when it is done."""
    state = context.state
    return None if state is None else (float(STATES.index(state)), None)


def escape(context: Context) -> Reading:
    """The step at which the loss will leave the plateau it stands on, by the forecast for MLPs.

    The forecast is made once for every plateau. As a loss may waver between standing and falling,
    no further one is made before those so far have taken less than a hundredth of the run.
    """
    memory = context.memory
    if context.state != "plateau":
        memory.escape = None
        return None
    start = time.perf_counter()
    if memory.escape is None and memory.spent <= _SHARE * (start - memory.began):
        try:
            memory.escape = forecast_escape(context.look, memory.steps[-1])
            memory.notes.append(memory.escape.sentence)
        finally:
            memory.spent += time.perf_counter() - start
    if memory.escape is None or memory.escape.step is None:
        return None
    ends = memory.escape.low, memory.escape.high
    return memory.escape.step, Band(memory.escape.step, *ends)
