"""The flow of a block-symmetric network in its own coordinates, solved to a crossing or densely.

Coordinates: A_1 (K × inputs), A_ℓ (K × K, 2 ≤ ℓ ≤ L−1), a (outputs × K); forward c_1 = A_1 g,
c_ℓ = A_ℓ σ(c_{ℓ−1}), f = √N_B a σ(c_{L−1}); loss ½E|f − y|². K = 1 is the scalar chain (3)-(5).
With blocks of unequal sizes n_a, A_ℓ[a,b] acts as √(n_b/n_a) A_ℓ[a,b] and a[b] as √n_b a[b].
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Float

from dynagram.activations import Activation
from dynagram.errors import AccuracyError, InvalidValueError
from dynagram.gaussian._normal_grid import gaussian_grid
from dynagram.gaussian._quadrature import shares_nodes, standard_nodes

Quantity = Literal["scale", "loss", "linear", "cubic"]

RELATIVE_TOLERANCE = 1e-12
_MOST_STEPS = 100_000


class Coordinates(NamedTuple):
    """`A1`, the matrix A_1; `A`, the stack of A_2 … A_{L−1}; and `a`."""

    A1: Float[Array | np.ndarray, "blocks inputs"]
    A: Float[Array | np.ndarray, "hidden blocks blocks"]
    a: Float[Array | np.ndarray, "outputs blocks"]


class Problem(NamedTuple):
    """What the flow depends on besides its coordinates.

    Nodes `g` with weights `w` and targets `y`, `gain` = √n_a of every block (one number if they
    are equal), and `metric`: how fast each coordinate follows its gradient (0 freezes it).
    """

    g: Float[Array | np.ndarray, "nodes inputs"]
    w: Float[Array | np.ndarray, " nodes"]
    y: Float[Array | np.ndarray, "nodes outputs"]
    gain: Float[Array | np.ndarray, "1 sizes"]
    metric: Coordinates


class Crossing(NamedTuple):
    """Which number to watch: X_{1,k}, the loss, or a learned fraction of mode k (from 0)."""

    quantity: Quantity
    mode: int = 0


def output(
    sigma: Activation,
    gain: Float[Array, "1 sizes"],
    x: Coordinates,
    inputs: Float[Array, "n inputs"],
) -> Float[Array, "n outputs"]:
    """f for the rows of `inputs`, whatever they are: quadrature nodes or a batch of data."""
    signal = sigma(inputs @ x.A1.T)
    for layer in x.A:
        signal = sigma(signal @ (layer * (gain / gain.T)).T)
    return signal @ (gain * x.a).T


def loss(sigma: Activation, problem: Problem, x: Coordinates) -> Float[Array, ""]:
    """½ E|f − y|² on the nodes of the problem."""
    residual = output(sigma, jnp.asarray(problem.gain), x, jnp.asarray(problem.g)) - problem.y
    return 0.5 * jnp.sum(problem.w * jnp.sum(residual * residual, axis=1))


def velocity(sigma: Activation, problem: Problem, x: Coordinates) -> Coordinates:
    """dx/dt = −metric · ∂𝓛/∂x in reduced time."""
    gradient = jax.grad(lambda point: loss(sigma, problem, point))(x)
    return jax.tree.map(lambda m, g: -m * g, problem.metric, gradient)


def watched(sigma: Activation, problem: Problem, crossing: Crossing, x: Coordinates) -> Array:
    """The number `crossing` looks at.

    "linear" is s_k = E[f g_k]/E[y g_k], the learned fraction of the linear part of mode k, and
    "cubic" the same with He_3(g_k): the part that only a block turned to v_k can learn.
    """
    mode = crossing.mode
    if crossing.quantity == "scale":
        return jnp.asarray(x.A1)[mode, mode]
    if crossing.quantity == "loss":
        return loss(sigma, problem, x)
    g = jnp.asarray(problem.g)[:, mode]
    probe = problem.w * (g if crossing.quantity == "linear" else g**3 - 3.0 * g)
    f = output(sigma, jnp.asarray(problem.gain), x, jnp.asarray(problem.g))
    # With one output per mode, mode k is learned by output k; a single output carries all modes.
    channel = mode if f.shape[1] > 1 else 0
    return jnp.sum(probe * f[:, channel]) / jnp.sum(probe * jnp.asarray(problem.y)[:, channel])


@functools.lru_cache(maxsize=32)
def gaussian_nodes(
    sigma: Activation, modes: int, spacing: float = 0.33
) -> tuple[Float[np.ndarray, "nodes modes"], Float[np.ndarray, " nodes"]]:
    """Nodes and weights of N(0, I) for the flows: the rule of `gaussian` for one mode, else a grid.

    For odd σ the loss is even in g, and half of the grid carries all of it.
    """
    if modes == 1:
        if not (sigma.known or shares_nodes(sigma)):
            reason = "a kink away from 0, or a narrow feature, moves with the scale of the weights"
            raise InvalidValueError("activation", sigma.name, reason)
        t, w = standard_nodes(sigma, np.ones(1))
        return t[0][:, None], w[0]
    g, w = gaussian_grid(sigma, modes, spacing)
    if sigma.parity == "odd":
        g, w = g[g[:, 0] >= 0], w[g[:, 0] >= 0]
        w = np.where(g[:, 0] > 0, 2.0, 1.0) * w
    return g, w


# --- solving ----------------------------------------------------------------------------------


class Arrival(NamedTuple):
    """When a flow crosses its level, and where it then is."""

    time: Float[Array | np.ndarray, "..."]
    state: Coordinates


def arrive(
    sigma: Activation,
    problem: Problem,
    start: Coordinates,
    crossing: Crossing,
    level: float,
    *,
    t_max: float,
    rtol: float = RELATIVE_TOLERANCE,
) -> Arrival:
    """The first time the watched number reaches `level`, by an event of the solver (Dopri8).

    `start` may carry a leading axis of initial states, solved side by side. Raises where the level
    is not reached by `t_max`.
    """
    solve = _arrive_many if np.ndim(start.A1) == 3 else _arrive
    time, state, value = solve(
        sigma, crossing, problem, _as_jax(start), jnp.asarray(level), jnp.asarray(t_max), rtol
    )
    missed = ~np.asarray(reached(value, jnp.asarray(level)))
    if np.any(missed):
        when, stands = (float(np.asarray(part)[missed].flat[0]) for part in (time, value))
        work = "" if when >= t_max else ", after all the steps the solver is allowed"
        raise InvalidValueError(
            "threshold",
            float(level),
            f"not reached by reduced time {when:.4g}{work}; the {crossing.quantity} is then "
            f"{stands:.4g}",
        )
    return Arrival(np.asarray(time), jax.tree.map(np.asarray, state))


def cross(
    rate: Callable[[Coordinates], Coordinates],
    value: Callable[[Coordinates], Array],
    start: Coordinates,
    level: Array,
    t_max: Array,
    rtol: float | Array,
) -> tuple[Array, Coordinates, Array]:
    """Time, state and value where `value` of dx/dt = rate(x) first meets `level`; traceable.

    Solved on a clock τ with dt/dτ = |x|/|dx/dt|, on which growth is exponential: time itself, which
    a blow-up squeezes below rounding, is one more integral. Ends at `t_max` at the latest.
    """

    def rates(_tau: Any, y: tuple[Coordinates, Array], _args: Any) -> tuple[Coordinates, Array]:
        speed = rate(y[0])
        growth = jnp.sqrt(_square(speed) / _square(y[0]))
        slow = 1.0 / (growth + 1.0 / t_max)
        return jax.tree.map(lambda part: slow * part, speed), slow

    def meets(t: Any, y: tuple[Coordinates, Array], args: Any, **_: Any) -> Array:
        del t, args  # the solver passes them by name
        return value(y[0]) - level

    def late(t: Any, y: tuple[Coordinates, Array], args: Any, **_: Any) -> Array:
        del t, args
        return y[1] >= t_max

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(rates),
        diffrax.Dopri8(),
        0.0,
        jnp.inf,
        None,
        (start, jnp.zeros_like(t_max)),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol),
        event=diffrax.Event((meets, late), optimistix.Newton(rtol=1e-13, atol=1e-13)),
        max_steps=_MOST_STEPS if start.A1.shape[0] == 1 else _MOST_STEPS // 5,
        throw=False,
    )
    assert solution.ys is not None
    end, time = jax.tree.map(lambda part: part[-1], solution.ys)
    return time, end, value(end)


def _square(x: Coordinates) -> Array:
    return sum((jnp.sum(part * part) for part in x), start=jnp.zeros((), x.A1.dtype))


def reached(value: Array, level: Array) -> Array:
    """Whether a flow that has ended stands at its level."""
    return jnp.abs(value - level) < 1e-9 * jnp.abs(level)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _arrive(
    sigma: Activation,
    crossing: Crossing,
    problem: Problem,
    start: Coordinates,
    level: Array,
    t_max: Array,
    rtol: float | Array,
) -> tuple[Array, Coordinates, Array]:
    return cross(
        lambda x: velocity(sigma, problem, x),
        lambda x: watched(sigma, problem, crossing, x),
        start,
        level,
        t_max,
        rtol,
    )


@functools.partial(jax.jit, static_argnums=(0, 1))
def _arrive_many(
    sigma: Activation,
    crossing: Crossing,
    problem: Problem,
    start: Coordinates,
    level: Array,
    t_max: Array,
    rtol: float | Array,
) -> tuple[Array, Coordinates, Array]:
    def one(point: Coordinates) -> tuple[Array, Coordinates, Array]:
        return _arrive(sigma, crossing, problem, point, level, t_max, rtol)

    return jax.vmap(one)(start)


def follow(
    sigma: Activation,
    problem: Problem,
    start: Coordinates,
    times: Float[np.ndarray, " times"],
    *,
    rtol: float = RELATIVE_TOLERANCE,
) -> Coordinates:
    """The state at each of `times` ≥ 0, in increasing order; the leading axis counts them."""
    states, finished = _follow(sigma, problem, _as_jax(start), jnp.asarray(times), rtol)
    if not bool(finished):
        raise AccuracyError(
            f"the flow needs more than {_MOST_STEPS} steps to reach time {float(times[-1]):.4g}"
        )
    return jax.tree.map(np.asarray, states)


@functools.partial(jax.jit, static_argnums=0)
def _follow(
    sigma: Activation, problem: Problem, start: Coordinates, times: Array, rtol: float | Array
) -> tuple[Coordinates, Array]:
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda _t, y, _args: velocity(sigma, problem, y)),
        diffrax.Dopri8(),
        0.0,
        times[-1],
        None,
        start,
        saveat=diffrax.SaveAt(ts=times),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-2 * rtol),
        max_steps=_MOST_STEPS,
        throw=False,
    )
    assert solution.ys is not None
    return solution.ys, solution.result == diffrax.RESULTS.successful


def _as_jax(x: Coordinates) -> Coordinates:
    return Coordinates(*(jnp.asarray(part, dtype=jnp.float64) for part in x))
