"""Loop gains and growth matrices near the origin: the Schur-Perron criterion (Prop. 24), and J.

J = [[−A, B], [C, −D]] with A, D diagonal > 0 and B, C ≥ 0 is a Metzler matrix: its spectral
abscissa is a real eigenvalue, positive exactly when ρ(D⁻¹CA⁻¹B) > 1. The growth matrix of the
block flow is of another kind: symmetric, with couplings already inside the diagonal part, so that
it always has a positive eigenvalue; its top eigenvector is the direction of fastest growth.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.theory.saddle._blocks import BlockNetwork
from dynagram.theory.saddle._flow import Coordinates, Problem, velocity


@dataclass(frozen=True)
class LoopGain:
    """The criterion and what it decides.

    `gain` = ρ(D⁻¹CA⁻¹B); `eigenvalue` is the largest real part of J's spectrum, itself a real
    eigenvalue, with the non-negative eigenvector `vector`; `unstable` says gain > 1.
    """

    gain: float
    eigenvalue: float
    vector: Float[np.ndarray, " twice"]

    @property
    def unstable(self) -> bool:
        """Whether J has an eigenvalue with positive real part."""
        return self.gain > 1.0


def loop_gain(
    A: Float[np.ndarray, " n"],
    B: Float[np.ndarray, "n m"],
    C: Float[np.ndarray, "m n"],
    D: Float[np.ndarray, " m"],
) -> LoopGain:
    """Schur-Perron criterion for J = [[−diag A, B], [C, −diag D]].

    Enlarging B, C or the matrix itself can only raise the eigenvalue (Theorem 25).

    **Arguments:**

    - `A`, `D`: decay rates > 0, (n,) and (m,).
    - `B`, `C`: couplings ≥ 0, (n, m) and (m, n).

    **Returns:** a `LoopGain`: the gain, and the largest eigenvalue of J with its eigenvector.

    >>> one = np.ones(1)
    >>> found = loop_gain(one, 3 * one[:, None], one[:, None], one)
    >>> found.gain, round(found.eigenvalue, 6)
    (3.0, 0.732051)
    """
    for name, values in (("A", A), ("D", D)):
        if not np.all(values > 0):
            raise InvalidValueError(name, values.tolist(), "decay rates must be > 0")
    for name, values in (("B", B), ("C", C)):
        if not np.all(values >= 0):
            raise InvalidValueError(name, values.tolist(), "couplings must be ≥ 0")
    M = (C / D[:, None]) @ (B / A[:, None])
    J = np.block([[-np.diag(A), B], [C, -np.diag(D)]])
    eigenvalue, vector = _top(J)
    return LoopGain(float(np.max(np.abs(np.linalg.eigvals(M)))), eigenvalue, vector)


def _top(J: np.ndarray) -> tuple[float, np.ndarray]:
    """The eigenvalue of largest real part, and its eigenvector, signed by its largest entry."""
    values, vectors = np.linalg.eig(J)
    top = int(np.argmax(np.real(values)))
    vector = np.real(vectors[:, top])
    return float(np.real(values[top])), vector * np.sign(vector[np.argmax(np.abs(vector))])


@dataclass(frozen=True)
class Growth:
    """J = ∂(dx/dt)/∂x over the moving coordinates, its largest eigenvalue and eigenvector.

    `matrix` is J; `direction` is the eigenvector as `Coordinates`, 0 in the frozen entries. At a
    small balanced state f is homogeneous, J x = (L−1) dx/dt: growth ends in finite time, and the
    eigenvalue is no escape rate (no factor log(1/ε) in the escape time).
    """

    matrix: Float[np.ndarray, "n n"]
    eigenvalue: float
    direction: Coordinates


@float64
def fastest_growth(network: BlockNetwork, state: Coordinates) -> Growth:
    """The growth matrix of the block flow at `state`, within the network's closure.

    Cost: one derivative of the gradient per coordinate.

    **Arguments:**

    - `network`: a `BlockNetwork`.
    - `state`: its `Coordinates`.

    **Returns:** a `Growth`: the matrix, its largest eigenvalue and the direction belonging to it.

    >>> betas = (1, 0.3, 0.08)
    >>> network = BlockNetwork("tanh", depth=4, betas=betas, block_size=20, spacing=0.42)
    >>> found = fastest_growth(network.closed(()), network.aligned(0.05))
    >>> found.matrix.shape, round(found.eigenvalue / (network.K * 0.05**2), 5)
    ((12, 12), 2.98475)
    """
    problem = network.problem()
    point = Coordinates(*(jnp.asarray(part) for part in state))
    start, unravel = ravel_pytree(point)
    moving = np.flatnonzero(np.concatenate([part.reshape(-1) for part in problem.metric]))
    J = np.asarray(_columns(network.activation, problem, point)).T[np.ix_(moving, moving)]
    vector = np.zeros(start.size)
    eigenvalue, vector[moving] = _top(J)
    return Growth(J, eigenvalue, jax.tree.map(np.asarray, unravel(jnp.asarray(vector))))


@functools.partial(jax.jit, static_argnums=0)
def _columns(
    sigma: Activation, problem: Problem, point: Coordinates
) -> Float[Array, "coordinates coordinates"]:
    """Row i: the derivative of the velocity along coordinate i."""
    start, unravel = ravel_pytree(point)

    def flat(x: Array) -> Array:
        return ravel_pytree(velocity(sigma, problem, unravel(x)))[0]

    # One direction after the other: together they would hold all nodes for all coordinates.
    return jax.lax.map(lambda way: jax.jvp(flat, (start,), (way,))[1], jnp.eye(start.size))
