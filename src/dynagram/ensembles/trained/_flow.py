"""Gradient flow of a group of members, dθ/ds = −η λ ∂L/∂θ, by an adaptive Runge-Kutta method.

Every member has its own step sizes. The 5(4) pair of Tsitouras keeps the estimated error of each
step below atol + rtol |θ|; steps end exactly at the recorded times. A condition of `stop` is
located in time by Newton's method on the interpolant of the step that meets it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from dynagram.ensembles.trained._batches import Batch
from dynagram.ensembles.trained._descent import Observe, Result
from dynagram.ensembles.trained._gradient import (
    Packed,
    joined,
    loss_function,
    packed,
    split,
    trained_rates,
    unpacked,
)
from dynagram.ensembles.trained._specification import Training
from dynagram.networks import Params

MAX_SOLVER_STEPS = 100_000
# Relative and absolute tolerance; float32 cannot do better.
TOLERANCES = {"float64": (1e-6, 1e-9), "float32": (1e-4, 1e-6)}


def flow(
    network: MLP, training: Training, batch: Batch, observe: Observe, params: Params
) -> Result:
    """Move a group of members along the flow from `params`, members first; traceable."""
    trained, kept = split(jax.vmap(packed)(params), training.fixed)
    loss = loss_function(network, training.loss, training.fixed)
    factors = trained_rates(network, training.fixed)

    def whole(layers: Packed, resting: Packed) -> Params:
        return unpacked(joined(layers, resting, training.fixed))

    def member(start: Packed, resting: Packed, x: Array, y: Array) -> tuple[Any, ...]:
        def see(layers: Packed) -> dict[str, Array]:
            group = jax.tree.map(lambda a: a[None], (whole(layers, resting), Batch(x, y)))
            return jax.tree.map(lambda a: a[0], observe(*group))

        def velocity(_: Array, layers: Packed, __: Any) -> Packed:
            slope = jax.grad(loss)(layers, resting, x, y)
            return jax.tree.map(
                lambda g, theta, factor: (
                    -training.eta * factor * (g + training.weight_decay * theta)
                ),
                slope,
                layers,
                factors,
            )

        return _solve(training, velocity, see, start)

    seen, final, stopped, failed = jax.vmap(member)(trained, kept, *batch)
    return Result(seen, stopped, failed, jax.vmap(whole)(final, kept))


def _solve(
    training: Training,
    velocity: Callable[..., Packed],
    see: Callable[[Packed], dict[str, Array]],
    start: Packed,
) -> tuple[dict[str, Array], Packed, Array, Array]:
    import diffrax
    import optimistix

    options = dict(training.options)
    rtol, atol = TOLERANCES[training.dtype]
    rtol, atol = options.get("rtol", rtol), options.get("atol", atol)
    times = jnp.asarray(training.record, training.dtype)

    def margin(layers: Packed) -> Array:
        """Positive once one of the rules is met."""
        seen, margins = see(layers), []
        for rule in training.rules:
            values = seen[rule.observable]
            margins.append(jnp.max(rule.value - values if rule.below else values - rule.value))
        return jnp.max(jnp.stack(margins))

    event = None
    if training.rules:
        finder = optimistix.Newton(rtol=rtol, atol=rtol)
        event = diffrax.Event(lambda t, y, args, **_: margin(y), finder)  # noqa: ARG005
    solution: Any = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        diffrax.Tsit5(),
        t0=times[0],
        t1=times[-1],
        dt0=None,
        y0=start,
        saveat=diffrax.SaveAt(
            subs=[
                diffrax.SubSaveAt(ts=times, fn=lambda t, y, args: see(y)),  # noqa: ARG005
                diffrax.SubSaveAt(t1=True),
            ]
        ),
        stepsize_controller=diffrax.ClipStepSizeController(
            diffrax.PIDController(rtol=rtol, atol=atol), step_ts=times
        ),
        event=event,
        max_steps=int(options.get("max_solver_steps", MAX_SOLVER_STEPS)),
        throw=False,
    )
    seen, last = solution.ys
    final, reached = jax.tree.map(lambda a: a[0], (last, solution.ts[1]))
    ended = diffrax.is_event(solution.result)
    failed = jnp.where(ended | diffrax.is_successful(solution.result), jnp.nan, reached)
    # The solver looks for changes of sign: what is met at the start is handled here.
    met = margin(start) > 0 if training.rules else jnp.array(False)
    reached, ended = jnp.where(met, 0.0, reached), ended | met
    final = jax.tree.map(lambda a, b: jnp.where(met, a, b), start, final)
    # What was not reached repeats the last state, as it does in discrete training.
    frozen = see(final)

    def fill(values: Array, value: Array) -> Array:
        beyond = (times > reached).reshape(-1, *[1] * (values.ndim - 1))
        return jnp.where(beyond, value[None], values)

    filled = jax.tree.map(fill, seen, frozen)
    stopped = jnp.where(ended, reached, jnp.nan)
    return filled, final, stopped, jnp.where(met, jnp.nan, failed)
