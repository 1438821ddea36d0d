"""The exact reduced ODE on the symmetric ansatz (Theorem 4): dX_ℓ/dt = −E_g[(f − βσ(g)) ∂f/∂X_ℓ].

It is the block flow with one block; expectations are those of `dynagram.gaussian`, exact to
rounding, and the solver runs at a relative tolerance of 1e-12 with an event at the threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.errors import InvalidValueError
from dynagram.theory.saddle._clocks import REDUCED, Clock
from dynagram.theory.saddle._flow import (
    Coordinates,
    Crossing,
    Problem,
    arrive,
    follow,
    gaussian_nodes,
    loss,
)
from dynagram.theory.saddle._laws import check_threshold, leading_escape_time
from dynagram.theory.saddle._symmetric import SymmetricNetwork, require_drive

# The leading law is off by a few per cent; a flow that takes this much longer will not arrive.
_PATIENCE = 20.0
_DEEPEST = 100


@dataclass(frozen=True)
class ScalarPath:
    """X_ℓ and the loss of the reduced flow at chosen times of `clock`.

    Row i of `X` is (X_1, …, X_L) at `times[i]`.
    """

    times: Float[np.ndarray, " times"]
    X: Float[np.ndarray, "times layer"]
    loss: Float[np.ndarray, " times"]
    clock: Clock


@float64
def reduced_escape_time(
    network: SymmetricNetwork, threshold: float, clock: Clock = REDUCED
) -> float:
    """When X_1 of the exact reduced flow reaches `threshold`, on `clock`.

    Cost: 60 to 100 steps of the solver, a second to compile and milliseconds to run.

    **Arguments:**

    - `network`: a `SymmetricNetwork` with K > 0.
    - `threshold`: θ, above X_1 at the start.
    - `clock`: the `Clock` of the result; reduced time by default.

    **Returns:** the time, on `clock`.

    >>> network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.02)
    >>> round(reduced_escape_time(network, 0.3), 5)
    257.68349
    """
    return float(reduced_escape_times([network], threshold)[0]) * clock.units


@float64
def reduced_escape_times(
    networks: Sequence[SymmetricNetwork], threshold: float
) -> Float[np.ndarray, " networks"]:
    """Reduced times at which X_1 reaches `threshold`, for networks that differ in scales only.

    **Arguments:**

    - `networks`: `SymmetricNetwork`s of one activation, depth, width and β, with K > 0.
    - `threshold`: θ, above X_1 of every network at the start.

    **Returns:** one reduced time per network.
    """
    first = networks[0]
    kinds = {(n.activation, n.depth, n.width, n.beta) for n in networks}
    if len(kinds) != 1:
        raise InvalidValueError("networks", len(kinds), "may differ in their scales only")
    if first.depth > _DEEPEST:
        allowed = f"at most {_DEEPEST}: the flow of more layers takes minutes to compile"
        raise InvalidValueError("depth", first.depth, allowed)
    for network in networks:
        check_threshold(network, threshold)
    starts = [coordinates(network.scales) for network in networks]
    start = Coordinates(*(np.stack(parts) for parts in zip(*starts, strict=True)))
    longest = max(leading_escape_time(network, threshold) for network in networks)
    found = arrive(
        first.activation,
        scalar_problem(first),
        start,
        Crossing("scale"),
        threshold,
        t_max=_PATIENCE * (longest + 10.0 / require_drive(first)),
    )
    return np.asarray(found.time)


@float64
def reduced_path(
    network: SymmetricNetwork,
    times: Sequence[float] | Float[np.ndarray, " times"],
    clock: Clock = REDUCED,
) -> ScalarPath:
    """X_1 … X_L and the loss at increasing `times` of `clock`.

    **Arguments:**

    - `network`: a `SymmetricNetwork`.
    - `times`: increasing times on `clock`.
    - `clock`: the `Clock` of `times`; reduced time by default.

    **Returns:** a `ScalarPath`.

    >>> network = SymmetricNetwork("tanh", [0.03, 0.05, 0.07, 0.09], width=64)
    >>> reduced_path(network, [0.0, 10.0, 20.0, 25.0, 30.0, 35.0, 40.0, 60.0]).X[-1].round(4)
    array([0.7452, 0.5801, 0.5263, 0.5116])
    """
    problem = scalar_problem(network)
    grid = np.asarray(times, dtype=np.float64)
    states = follow(network.activation, problem, coordinates(network.scales), grid / clock.units)
    X = np.concatenate([part.reshape(grid.size, -1) for part in states], axis=1)
    losses = jax.jit(jax.vmap(lambda x: loss(network.activation, problem, x)))(states)
    return ScalarPath(grid, X, np.asarray(losses), clock)


def coordinates(scales: Sequence[float]) -> Coordinates:
    """(X_1, …, X_L) as the coordinates of a single block."""
    X = np.asarray(scales, dtype=np.float64)
    return Coordinates(X[:1, None], X[1:-1, None, None], X[-1:, None])


def scalar_problem(network: SymmetricNetwork) -> Problem:
    """Nodes and targets of the reduced flow."""
    g, w = gaussian_nodes(network.activation, 1)
    y = network.beta * network.activation.values(g)
    ones = coordinates([1.0] * network.depth)
    return Problem(g, w, y, np.full((1, 1), np.sqrt(network.width)), ones)
