"""Forward and backward signals of one network, and the gradients they make up (8.16)-(8.18).

With u^(0) = x, u^(ℓ) = σ(z^(ℓ)), J^(ℓ)_ij;a = dz^(L)_i;a/dz^(ℓ)_j;a and
B^(ℓ)_ij;a = dz^(L)_i;a/du^(ℓ)_j;a, so that J^(ℓ) = B^(ℓ) σ'(z^(ℓ)), output i of sample a has the
gradient dz/db^(ℓ) = J^(ℓ)_i;a and dz/dW^(ℓ) = J^(ℓ)_i;a ⊗ u^(ℓ-1)_a: two vectors per layer stand
for a matrix, and no array of the size of the parameters is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Params


class Gradients(NamedTuple):
    """Gradients of the outputs, in factors; one entry per layer ℓ = 1..L.

    `u[ℓ-1]` is u^(ℓ-1), of shape (samples, n_{ℓ-1}), `J[ℓ-1]` is J^(ℓ), of shape
    (samples, n_L, n_ℓ); the gradient of a single output lacks the axes samples and n_L.
    """

    u: tuple[Array, ...]
    J: tuple[Array, ...]


class Signals(NamedTuple):
    """All that one forward and one backward pass meet.

    `u` and `J` as in `Gradients`; `z` holds z^(1..L), `slopes` σ'(z^(1..L-1)) and `B` B^(1..L-1),
    of shape (samples, n_L, n_ℓ).
    """

    u: tuple[Array, ...]
    z: tuple[Array, ...]
    slopes: tuple[Array, ...]
    B: tuple[Array, ...]
    J: tuple[Array, ...]


# A small step: pairs (t, ∇z_k), meaning θ + Σ t λ∇z_k.
Moves = Sequence[tuple[Array, Gradients]]

# The axes over which `vmap` takes the gradients of one sample apart into those of its outputs.
OUTPUT_AXES: Any = Gradients(None, 0)  # pyright: ignore[reportArgumentType]


def check_differentiable(network: MLP, order: int, what: str) -> None:
    """Refuse a σ one of whose derivatives below `order` jumps: σ^(order) then holds a delta.

    >>> check_differentiable(MLP([2, 3, 1], "relu", C_b=0, C_W=2), 1, "the NTK")
    """
    sigma = network.activation
    for kink in sigma.kinks:
        for lower, jump in enumerate(kink.jumps[:order]):
            if jump != 0.0:
                primes = "'" * lower
                reason = f"{what} does not exist: σ{primes} jumps at z = {kink.location:g}"
                raise InvalidValueError("activation", sigma.name, reason)


def gradients(network: MLP, params: Params, x: ArrayLike, moves: Moves = ()) -> Gradients:
    """∇z^(L) for the samples in the rows of `x` at θ + Σ t λ∇z_k, `moves` holding pairs (t, ∇z_k).

    The moves are there to be differentiated by t: derivatives along λ∇z_k without arrays of the
    size of the parameters. Cost per layer: N n_ℓ n_{ℓ-1} forward, n_L times that backward.

    >>> import jax
    >>> net = MLP([1, 2, 1], "linear", C_b=0.0, C_W=1.0)
    >>> first, last = net.draw(jax.random.key(0))
    >>> J = gradients(net, (first, last), jnp.ones((1, 1))).J
    >>> [bool(jnp.all(J[0][0] == last.W)), J[1].tolist()]
    [True, [[[1.0]]]]
    """
    found = signals(network, params, x, moves)
    return Gradients(found.u, found.J)


def signals(
    network: MLP,
    params: Params,
    x: ArrayLike,
    moves: Moves = (),
    gates: Sequence[Array] | None = None,
) -> Signals:
    """One forward and one backward pass for the rows of `x`; traceable, in the params' dtype.

    `moves` as in `gradients`. `gates` replaces σ by the multiplication with fixed slopes, one
    array (samples, n_ℓ) per hidden layer: a network whose masks do not follow its weights.

    >>> import jax
    >>> net = MLP([1, 2, 1], "relu", C_b=0.0, C_W=1.0)
    >>> params = jax.tree.map(jnp.ones_like, net.draw(jax.random.key(0)))
    >>> found = signals(net, params, jnp.array([[-3.0]]))       # both hidden units are off
    >>> found.B[0].tolist(), found.J[0].tolist()
    ([[[1.0, 1.0]]], [[[0.0, 0.0]]])
    """
    if moves or gates is not None:
        z = _preactivations(network, params, x, moves, gates)
    else:
        z = network.preactivations(params, x)
    dtype, samples = z[0].dtype, z[0].shape[0]
    if gates is None:
        slope = network.activation.derivative(1)
        slopes = tuple(slope(values) for values in z[:-1])
        hidden = tuple(network.activation(values) for values in z[:-1])
    else:
        slopes = tuple(jnp.asarray(gate, dtype=dtype) for gate in gates)
        hidden = tuple(gate * values for gate, values in zip(slopes, z[:-1], strict=True))
    n_L = network.widths[-1]
    B: list[Array] = []
    J = [jnp.broadcast_to(jnp.eye(n_L, dtype=dtype), (samples, n_L, n_L))]
    for index in range(network.depth - 1, 0, -1):
        above, weights = J[0], params[index].W
        # Written as one product of matrices: batched ones over samples are far slower.
        below = (above.reshape(samples * n_L, -1) @ weights).reshape(samples, n_L, -1)
        rate = network.lambda_W[index] / network.widths[index]
        for step, way in moves:
            overlap = above @ way.J[index]
            below = below + (step * rate) * overlap[..., None] * way.u[index][None, None, :]
        B.insert(0, below)
        J.insert(0, below * slopes[index - 1][:, None, :])
    return Signals((jnp.asarray(x, dtype=dtype), *hidden), z, slopes, tuple(B), tuple(J))


def _preactivations(
    network: MLP, params: Params, x: ArrayLike, moves: Moves, gates: Sequence[Array] | None
) -> tuple[Array, ...]:
    """The preactivations at θ + Σ t λ∇z_k, with fixed slopes if `gates` are given."""
    signal = jnp.asarray(x, dtype=params[0].W.dtype)
    fields = []
    for index, layer in enumerate(params):
        z = signal @ layer.W.T + layer.b[None, :]
        rate = network.lambda_W[index] / network.widths[index]
        for step, way in moves:
            move = step * (network.lambda_b[index] + rate * (signal @ way.u[index]))
            z = z + move[:, None] * way.J[index][None, :]
        fields.append(z)
        if index < network.depth - 1:
            signal = network.activation(z) if gates is None else gates[index] * z
    return tuple(fields)
