"""Escape-time homotopy (55): what each off-block channel does to an escape time, by the adjoint.

f_ν leads from the decoupled flow (ν = 0) to the network's closure (ν = 1). With the adjoint
ṗ = −(∂f_ν)ᵀp, p(T) = ∇h/(∇h·f_ν), the escape time changes as dT/dν = A(ν) = −∫_0^T p·∂_νf_ν dt,
and T(1) − T(0) = ∫_0^1 A dν; A splits by the coordinates in ∂_νf: that is the attribution.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.errors import AccuracyError, InvalidValueError
from dynagram.theory.saddle._blocks import BlockNetwork, block_loss, patience
from dynagram.theory.saddle._flow import (
    Coordinates,
    Crossing,
    Problem,
    Quantity,
    cross,
    reached,
    velocity,
    watched,
)
from dynagram.theory.saddle._symmetric import checked_count

Family = Literal["rate", "literal"]


@dataclass(frozen=True)
class Homotopy:
    """An escape-time shift and its parts, in reduced time.

    `start` = T(0) of the decoupled flow, `end` = T(1), `shift` the integral of A over `nodes`
    (Gauss-Legendre), to be compared with the direct difference end − start; `channels` maps
    "W1" (rotations η), "W2" (couplings C), … and "diagonal" to their parts of the shift.
    `slopes[i, c]` is A at node i by channel; `normalisation` the largest |p(0)·f − 1|.
    """

    start: float
    end: float
    shift: float
    channels: Mapping[str, float]
    nodes: Float[np.ndarray, " node"]
    slopes: Float[np.ndarray, "node channel"]
    normalisation: float


class Slope(NamedTuple):
    """T(ν), A(ν) by channel, and |p(0)·f(x_0) − 1|."""

    time: float
    channels: Float[np.ndarray, " channel"]
    normalisation: float


def escape_homotopy(
    network: BlockNetwork,
    state: Coordinates,
    level: float,
    *,
    nodes: int = 4,
    family: str = "rate",
    quantity: Quantity = "scale",
    mode: int = 1,
    rtol: float = 1e-10,
) -> Homotopy:
    """How the off-block entries of the open layers shift the escape from the decoupled time.

    Cost: two forward and, per node, one forward and one backward solve.

    **Arguments:**

    - `network`: a `BlockNetwork`; its open layers are the channels.
    - `state`: the `Coordinates` at time 0.
    - `level`, `quantity`, `mode`: what has to be reached, as in `block_escape`.
    - `nodes`: how many Gauss-Legendre nodes the integral over ν has.
    - `family`: "rate" multiplies the learning rates of the off-block entries by ν, so that T(ν)
        could be measured by training; "literal", (1−ν) P f(Px) + ν f(x), is the published one,
        whose A vanishes at ν = 0 and which needs more nodes.
    - `rtol`: relative tolerance of the solver.

    **Returns:** a `Homotopy`: both ends, the shift and its parts by channel.

    >>> network = BlockNetwork("tanh", depth=3, betas=(1, 0.3), block_size=20, spacing=0.6)
    >>> found = escape_homotopy(network, network.aligned(0.1), 0.3, nodes=4)
    >>> abs(found.shift / (found.end - found.start) - 1) < 1e-3
    True
    >>> list(found.channels)
    ['W1', 'W2']
    """
    places, weights = np.polynomial.legendre.leggauss(checked_count("nodes", nodes))
    places, weights = 0.5 * (places + 1.0), 0.5 * weights
    choice: dict[str, Any] = {"family": family, "quantity": quantity, "mode": mode, "rtol": rtol}
    found = [homotopy_slope(network, state, level, float(nu), **choice) for nu in places]
    slopes = np.stack([slope.channels for slope in found])
    parts = weights @ slopes
    ends = [homotopy_time(network, state, level, nu, **choice) for nu in (0.0, 1.0)]
    return Homotopy(
        start=ends[0],
        end=ends[1],
        shift=float(parts.sum()),
        channels=dict(zip(_names(network, family), parts.tolist(), strict=True)),
        nodes=places,
        slopes=slopes,
        normalisation=max(slope.normalisation for slope in found),
    )


@float64
def homotopy_time(
    network: BlockNetwork,
    state: Coordinates,
    level: float,
    nu: float,
    *,
    family: str = "rate",
    quantity: Quantity = "scale",
    mode: int = 1,
    rtol: float = 1e-10,
) -> float:
    """T(ν), by a forward solve alone.

    **Arguments:**

    - `network`: a `BlockNetwork`.
    - `state`: the `Coordinates` at time 0.
    - `level`, `quantity`, `mode`: what has to be reached, as in `block_escape`.
    - `nu`: ν, 0 for the decoupled flow and 1 for the network's closure.
    - `family`: "rate" or "literal", as in `escape_homotopy`.
    - `rtol`: relative tolerance of the solver.

    **Returns:** T(ν) in reduced time.
    """
    question = _question(network, state, level, family, quantity, mode)
    time, _, value = _forward(*question.static, question.arrays, jnp.asarray(nu), rtol)
    _check(value, question.arrays.level, time)
    return float(time)


@float64
def homotopy_slope(
    network: BlockNetwork,
    state: Coordinates,
    level: float,
    nu: float,
    *,
    family: str = "rate",
    quantity: Quantity = "scale",
    mode: int = 1,
    rtol: float = 1e-10,
) -> Slope:
    """T(ν) and A(ν) = dT/dν by channel, from the adjoint.

    **Arguments:**

    - `network`: a `BlockNetwork`; its open layers are the channels.
    - `state`: the `Coordinates` at time 0.
    - `level`, `quantity`, `mode`: what has to be reached, as in `block_escape`.
    - `nu`: ν, 0 for the decoupled flow and 1 for the network's closure.
    - `family`: "rate" or "literal", as in `escape_homotopy`.
    - `rtol`: relative tolerance of the solver.

    **Returns:** a `Slope`: `time` T(ν), `channels` A(ν), and `normalisation` |p(0)·f(x_0) − 1|.
    """
    question = _question(network, state, level, family, quantity, mode)
    nu_array = jnp.asarray(nu)
    time, end, value = _forward(*question.static, question.arrays, nu_array, rtol)
    _check(value, question.arrays.level, time)
    channels, product = _backward(
        *question.static, question.arrays, question.groups, nu_array, time, end, rtol
    )
    return Slope(float(time), np.asarray(channels), abs(float(product) - 1.0))


# --- how --------------------------------------------------------------------------------------


class _Arrays(NamedTuple):
    problem: Problem  # with the metric of the target closure
    diagonal: Coordinates  # 1 on the block-diagonal entries
    start: Coordinates
    level: Array
    t_max: Array


class _Question(NamedTuple):
    static: tuple[Activation, Crossing, str]
    arrays: _Arrays
    groups: tuple[Coordinates, ...]  # 1 on the entries of each channel


def _names(network: BlockNetwork, family: str) -> list[str]:
    names = [f"W{layer}" for layer in network.open_layers]
    return names if family == "rate" else [*names, "diagonal"]


def _question(
    network: BlockNetwork,
    state: Coordinates,
    level: float,
    family: str,
    quantity: Quantity,
    mode: int,
) -> _Question:
    if family not in get_args(Family):
        raise InvalidValueError("family", family, "expected 'rate' or 'literal'")
    if not 1 <= mode <= network.modes:
        raise InvalidValueError("mode", mode, f"modes are counted from 1 to {network.modes}")
    sigma, problem = network.activation, network.problem()
    start = Coordinates(*(jnp.asarray(part) for part in state))
    diagonal = _ones(network.closed(()).metric())
    groups = [
        jax.tree.map(lambda one, d: one - d, _ones(network.closed((layer,)).metric()), diagonal)
        for layer in network.open_layers
    ]
    if family == "literal":
        groups.append(diagonal)
    target = level * block_loss(network, state) if quantity == "loss" else level
    longest = patience(network.closed(()), state)
    arrays = _Arrays(problem, diagonal, start, jnp.asarray(target), jnp.asarray(longest))
    return _Question((sigma, Crossing(quantity, mode - 1), family), arrays, tuple(groups))


def _ones(metric: Coordinates) -> Coordinates:
    return jax.tree.map(lambda part: (part != 0).astype(np.float64), metric)


def _field(
    sigma: Activation, family: str, arrays: _Arrays, nu: Array, x: Coordinates
) -> Coordinates:
    """f_ν(x)."""
    P = arrays.diagonal
    whole = velocity(sigma, arrays.problem, x)
    if family == "rate":
        return jax.tree.map(lambda p, f: (p + nu * (1.0 - p)) * f, P, whole)
    alone = velocity(sigma, arrays.problem, jax.tree.map(jnp.multiply, P, x))
    return jax.tree.map(lambda p, f0, f1: (1.0 - nu) * p * f0 + nu * f1, P, alone, whole)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _forward(
    sigma: Activation,
    crossing: Crossing,
    family: str,
    arrays: _Arrays,
    nu: Array,
    rtol: float | Array,
) -> tuple[Array, Coordinates, Array]:
    return cross(
        lambda x: _field(sigma, family, arrays, nu, x),
        lambda x: watched(sigma, arrays.problem, crossing, x),
        arrays.start,
        arrays.level,
        arrays.t_max,
        rtol,
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _backward(
    sigma: Activation,
    crossing: Crossing,
    family: str,
    arrays: _Arrays,
    groups: tuple[Coordinates, ...],
    nu: Array,
    time: Array,
    end: Coordinates,
    rtol: float | Array,
) -> tuple[Array, Array]:
    """Integrates x, p and the parts of A from T back to 0: the flow contracts that way."""

    def field(x: Coordinates, at: Array = nu) -> Coordinates:
        return _field(sigma, family, arrays, at, x)

    def rates(_t: Any, y: tuple[Coordinates, Coordinates, Array], _args: Any) -> Any:
        x, p, _ = y
        f, pull = jax.vjp(field, x)
        (pulled,) = pull(p)
        # f_ν is linear in ν in both families, so this difference is the derivative.
        by_nu = jax.tree.map(jnp.subtract, field(x, jnp.asarray(1.0)), field(x, jnp.asarray(0.0)))
        weighted = jax.tree.map(jnp.multiply, p, by_nu)
        parts = jnp.stack([_inner(group, weighted) for group in groups])
        return f, jax.tree.map(jnp.negative, pulled), parts

    gradient = jax.grad(lambda x: watched(sigma, arrays.problem, crossing, x))(end)
    p_end = jax.tree.map(lambda part: part / _inner(gradient, field(end)), gradient)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(rates),
        diffrax.Dopri8(),
        time,
        0.0,
        None,
        (end, p_end, jnp.zeros(len(groups))),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol),
        max_steps=20_000,
    )
    assert solution.ys is not None
    _, p, parts = jax.tree.map(lambda part: part[-1], solution.ys)
    return parts, _inner(p, field(arrays.start))


def _inner(a: Coordinates, b: Coordinates) -> Array:
    return sum(
        (jnp.sum(x * y) for x, y in zip(a, b, strict=True)), start=jnp.zeros((), jnp.float64)
    )


def _check(value: Array, level: Array, time: Array) -> None:
    if not bool(reached(value, level)):
        raise AccuracyError(
            f"the flow does not reach the level {float(level):.4g} (it stands at "
            f"{float(value):.4g} at reduced time {float(time):.4g}): the homotopy needs an escape "
            "at every ν"
        )
