"""Forward and backward signals of one network, and the gradients they make up (8.16)-(8.18).

With u^(0) = x, u^(ℓ) = σ(z^(ℓ)) and J^(ℓ)_ij;a = dz^(L)_i;a/dz^(ℓ)_j;a, output i of sample a has
the gradient dz/db^(ℓ) = J^(ℓ)_i;a and dz/dW^(ℓ) = J^(ℓ)_i;a ⊗ u^(ℓ-1)_a: two vectors per layer
stand for a matrix, and no array of the size of the parameters is needed.
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


def gradients(
    network: MLP, params: Params, x: ArrayLike, moves: Sequence[tuple[Array, Gradients]] = ()
) -> Gradients:
    """∇z^(L) for the samples in the rows of `x` at θ + Σ t λ∇z_k, `moves` holding pairs (t, ∇z_k).

    The moves are there to be differentiated by t: derivatives along λ∇z_k without arrays of the
    size of the parameters. Cost per layer: N n_ℓ n_{ℓ-1} forward, n_L times that backward.

    >>> import jax
    >>> net = MLP([1, 2, 1], "linear", C_b=0.0, C_W=1.0)
    >>> first, last = net.init(jax.random.key(0))
    >>> J = gradients(net, (first, last), jnp.ones((1, 1))).J
    >>> [bool(jnp.all(J[0][0] == last.W)), J[1].tolist()]
    [True, [[[1.0]]]]
    """
    z = network.preactivations(params, x) if not moves else _moved(network, params, x, moves)
    dtype, samples = z[0].dtype, z[0].shape[0]
    u = (jnp.asarray(x, dtype=dtype), *(network.activation(values) for values in z[:-1]))
    n_L = network.widths[-1]
    J = [jnp.broadcast_to(jnp.eye(n_L, dtype=dtype), (samples, n_L, n_L))]
    slope = network.activation.derivative(1)
    for index in range(network.depth - 1, 0, -1):
        above, weights = J[0], params[index].W
        # Written as one product of matrices: batched ones over samples are far slower.
        below = (above.reshape(samples * n_L, -1) @ weights).reshape(samples, n_L, -1)
        rate = network.lambda_W[index] / network.widths[index]
        for step, way in moves:
            overlap = above @ way.J[index]
            below = below + (step * rate) * overlap[..., None] * way.u[index][None, None, :]
        J.insert(0, below * slope(z[index - 1])[:, None, :])
    return Gradients(u, tuple(J))


def _moved(
    network: MLP, params: Params, x: ArrayLike, moves: Sequence[tuple[Array, Gradients]]
) -> tuple[Array, ...]:
    """The preactivations at θ + Σ t λ∇z_k."""
    signal = jnp.asarray(x, dtype=params[0].W.dtype)
    fields = []
    for index, layer in enumerate(params):
        z = signal @ layer.W.T + layer.b[None, :]
        rate = network.lambda_W[index] / network.widths[index]
        for step, way in moves:
            move = step * (network.lambda_b[index] + rate * (signal @ way.u[index]))
            z = z + move[:, None] * way.J[index][None, :]
        fields.append(z)
        signal = network.activation(z)
    return tuple(fields)
