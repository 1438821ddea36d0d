"""Gradient flow of a group of members, dθ/dτ = −λ ∂L/∂θ, by an adaptive Runge-Kutta method.

Every member has its own step sizes. The 5(4) pair of Tsitouras keeps the estimated error of each
step below atol + rtol |θ|; steps end exactly at the recorded times. A condition of `stop` is
located in time by Newton's method on the interpolant of the step that meets it. Training to the end
is a flow without a last time that ends after the step that brings the largest error below the
tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from dynagram.ensembles.trained._batches import Batch
from dynagram.ensembles.trained._gradient import (
    Packed,
    joined,
    loss_function,
    outputs,
    packed,
    split,
    trained_rates,
    unpacked,
)
from dynagram.ensembles.trained._records import Arrays, Limits, Observe, Result
from dynagram.networks import Params
from dynagram.networks._network import Structure
from dynagram.training import GradientFlow, Training

# Relative and absolute tolerance that float32 can keep.
_FLOAT32 = (1e-4, 1e-6)


def flow(
    network: Structure,
    how: Training,
    limits: Limits,
    batch: Batch,
    observe: Observe,
    params: Params,
    arrays: Arrays,
) -> Result:
    """Move a group of members along the flow from `params`, members first; traceable."""
    trained, kept = split(jax.vmap(partial(packed, network))(params), how.fixed)
    loss = loss_function(network, how.loss, how.fixed)
    slope_of = jax.grad(loss, has_aux=True)
    factors = trained_rates(network, how.fixed)

    def member(start: Packed, resting: Packed, x: Array, y: Array) -> tuple[Any, ...]:
        def see(layers: Packed) -> dict[str, Array]:
            whole = unpacked(network, joined(layers, resting, how.fixed))
            group = jax.tree.map(lambda a: a[None], (whole, Batch(x, y)))
            return jax.tree.map(lambda a: a[0], observe(*group))

        def velocity(_: Array, layers: Packed, __: Any) -> Packed:
            slope, _z = slope_of(layers, resting, x, y)
            return jax.tree.map(
                lambda g, theta, factor: -factor * (g + how.weight_decay * theta),
                slope,
                layers,
                factors,
            )

        def error(layers: Packed) -> Array | None:
            if arrays.goals is None:
                return None
            z = outputs(network, joined(layers, resting, how.fixed), x)
            return jnp.max(jnp.abs(z - arrays.goals))

        return _solve(how, limits, velocity, see, error, start)

    seen, final, stopped, failed, error = jax.vmap(member)(trained, kept, *batch)
    whole = jax.vmap(lambda layers, resting: unpacked(network, joined(layers, resting, how.fixed)))
    return Result(seen, stopped, failed, error, whole(final, kept))


def _solve(
    how: Training,
    limits: Limits,
    velocity: Callable[..., Packed],
    see: Callable[[Packed], dict[str, Array]],
    error: Callable[[Packed], Array | None],
    start: Packed,
) -> tuple[dict[str, Array], Packed, Array, Array, Array | None]:
    import diffrax

    rtol, atol = _tolerances(how)
    finite = [moment for moment in how.recorded if math.isfinite(moment)]
    times = jnp.asarray(finite, how.dtype)
    margin = _margin(how, see)
    controller: Any = diffrax.PIDController(rtol=rtol, atol=atol)
    saved = [diffrax.SubSaveAt(t1=True)]
    if finite:
        controller = diffrax.ClipStepSizeController(controller, step_ts=times)
        saved.append(diffrax.SubSaveAt(ts=times, fn=lambda t, y, args: see(y)))  # noqa: ARG005
    solution: Any = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        diffrax.Tsit5(),
        t0=jnp.zeros((), how.dtype),
        t1=jnp.asarray(how.end, how.dtype),
        dt0=None,
        y0=start,
        saveat=diffrax.SaveAt(subs=saved),
        stepsize_controller=controller,
        event=_event(limits, margin, error, rtol),
        max_steps=limits.max_steps,
        throw=False,
    )
    final, reached = jax.tree.map(lambda a: a[0], (solution.ys[0], solution.ts[0]))
    ended = diffrax.is_event(solution.result)
    good = ended | diffrax.is_successful(solution.result)
    # The solver looks for changes of sign: what is met at the start is handled here.
    met = jnp.array(False) if margin is None else margin(start) > 0
    reached, ended = jnp.where(met, 0.0, reached), ended | met
    final = jax.tree.map(lambda a, b: jnp.where(met, a, b), start, final)
    observed = _filled(see(final), solution.ys[1] if finite else None, times, reached, how)
    left = error(final)
    if limits.tolerance is None:
        stopped = jnp.where(ended, reached, jnp.nan)
        return observed, final, stopped, jnp.where(good | met, jnp.nan, reached), left
    assert left is not None
    failed = jnp.where(jnp.isfinite(left), jnp.nan, reached)
    return observed, final, jnp.full_like(reached, jnp.nan), failed, left


def _tolerances(how: Training) -> tuple[float, float]:
    assert isinstance(how.algorithm, GradientFlow)
    rtol, atol = float(how.algorithm.rtol), float(how.algorithm.atol)
    if how.dtype == "float32":
        return max(rtol, _FLOAT32[0]), max(atol, _FLOAT32[1])
    return rtol, atol


def _margin(
    how: Training, see: Callable[[Packed], dict[str, Array]]
) -> Callable[[Packed], Array] | None:
    """Positive once one of the conditions of `stop` is met; None where there are none."""
    if not how.rules:
        return None

    def margin(layers: Packed) -> Array:
        seen, margins = see(layers), []
        for rule in how.rules:
            values = seen[rule.observable]
            margins.append(jnp.max(rule.value - values if rule.below else values - rule.value))
        return jnp.max(jnp.stack(margins))

    return margin


def _event(
    limits: Limits,
    margin: Callable[[Packed], Array] | None,
    error: Callable[[Packed], Any],
    rtol: float,
) -> Any:
    """What ends the flow before its last time."""
    import diffrax
    import optimistix

    if limits.tolerance is not None:
        tolerance = limits.tolerance
        return diffrax.Event(lambda t, y, args, **_: error(y) <= tolerance)  # noqa: ARG005
    if margin is not None:
        finder = optimistix.Newton(rtol=rtol, atol=rtol)
        return diffrax.Event(lambda t, y, args, **_: margin(y), finder)  # noqa: ARG005
    return None


def _filled(
    last: dict[str, Array],
    seen: dict[str, Array] | None,
    times: Array,
    reached: Array,
    how: Training,
) -> dict[str, Array]:
    """Observables at every moment: what was not reached repeats the last state."""
    if seen is None:
        return jax.tree.map(lambda value: value[None], last)

    def fill(values: Array, value: Array) -> Array:
        beyond = (times > reached).reshape(-1, *[1] * (values.ndim - 1))
        filled = jnp.where(beyond, value[None], values)
        return jnp.concatenate([filled, value[None]]) if how.reaches_the_end else filled

    return jax.tree.map(fill, seen, last)
