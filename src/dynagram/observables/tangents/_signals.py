"""Forward and backward signals of one network, and the gradients they make up (8.16)-(8.18).

u^(0) = x, u^(ℓ) = σ(z^(ℓ)); J^(ℓ)_ij;a = dz^(L)_i;a/dz^(ℓ)_j;a; B^(ℓ)_ij;a = dz^(L)_i;a/du^(ℓ)_j;a.
With the skip γ of layer ℓ+1, B^(ℓ) = J^(ℓ+1) W^(ℓ+1) and J^(ℓ) = B^(ℓ) σ'(z^(ℓ)) + γ J^(ℓ+1).
Output i of sample a has the gradient dz/db^(ℓ) = J^(ℓ)_i;a and dz/dW^(ℓ) = J^(ℓ)_i;a ⊗ u^(ℓ-1)_a:
two vectors per layer stand for a matrix; no array of the size of the parameters is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array

from dynagram.errors import InvalidValueError
from dynagram.networks import Architecture, Model, Params
from dynagram.networks._model import takes_model
from dynagram.networks._network import Structure


class Gradients(NamedTuple):
    """Gradients of the outputs, in factors; one entry per layer ℓ = 1..L.

    **Arguments:**

    - `u`: u^(0), …, u^(L-1), of shape (samples, n_{ℓ-1}).
    - `J`: J^(1), …, J^(L), of shape (samples, n_L, n_ℓ).

    The gradient of a single output lacks the axes samples and n_L.
    """

    u: tuple[Array, ...]
    J: tuple[Array, ...]


class Signals(NamedTuple):
    """All that one forward and one backward pass meet.

    **Arguments:**

    - `u`, `J`: as in `Gradients`.
    - `z`: the preactivations z^(1), …, z^(L).
    - `slopes`: σ'(z^(1)), …, σ'(z^(L-1)).
    - `B`: B^(1), …, B^(L-1), of shape (samples, n_L, n_ℓ).
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


@takes_model
def signals(model: Model, x: ArrayLike) -> Signals:
    """One forward and one backward pass of a network.

    **Arguments:**

    - `model`: the network and its weights.
    - `x`: inputs (N, n_0), one per row.

    **Returns:** `Signals`, in the dtype of the parameters. Cost per layer: N n_ℓ n_{ℓ-1} forward,
    n_L times that backward.

    >>> from dynagram.networks import MLP
    >>> model = MLP([1, 2, 1], "linear", C_b=0.0, C_W=1.0).init(seed=0)
    >>> backward = signals(model, jnp.ones((1, 1))).J
    >>> [bool(jnp.all(backward[0][0] == model.params[1].W)), backward[1].tolist()]
    [True, [[[1.0]]]]
    """
    check_differentiable(model.network, 1, "the gradient")
    return network_signals(model.network, model.params, x)


@takes_model
def gradients(model: Model, x: ArrayLike) -> Gradients:
    """The gradients ∇z^(L) of all outputs of all samples, in factors.

    **Arguments:**

    - `model`: the network and its weights.
    - `x`: inputs (N, n_0), one per row.

    **Returns:** `Gradients`, in the dtype of the parameters; cost as for `signals`.

    >>> from dynagram.networks import MLP
    >>> model = MLP([2, 3, 1], "tanh", C_b=0.0, C_W=1.0).init(seed=0)
    >>> [J.shape for J in gradients(model, jnp.ones((5, 2))).J]
    [(5, 1, 3), (5, 1, 1)]
    """
    check_differentiable(model.network, 1, "the gradient")
    return network_gradients(model.network, model.params, x)


# --- for use inside jit and vmap ---------------------------------------------------------------


def check_differentiable(network: Structure, order: int, what: str) -> None:
    """Refuse a σ one of whose derivatives below `order` jumps: σ^(order) then holds a delta.

    >>> from dynagram.networks import MLP
    >>> check_differentiable(MLP([2, 3, 1], "relu", C_b=0, C_W=2), 1, "the NTK")
    """
    for sigma in network.activations():
        for kink in sigma.kinks:
            for lower, jump in enumerate(kink.jumps[:order]):
                if jump != 0.0:
                    primes = "'" * lower
                    reason = f"{what} does not exist: σ{primes} jumps at z = {kink.location:g}"
                    raise InvalidValueError("activation", sigma.name, reason)


def network_gradients(
    network: Architecture, params: Params, x: ArrayLike, moves: Moves = ()
) -> Gradients:
    """∇z^(L) for the samples in the rows of `x` at θ + Σ t λ∇z_k, `moves` holding pairs (t, ∇z_k).

    The moves are there to be differentiated by t: derivatives along λ∇z_k without arrays of the
    size of the parameters.
    """
    passes = network_signals(network, params, x, moves)
    return Gradients(passes.u, passes.J)


def network_signals(
    network: Architecture,
    params: Params,
    x: ArrayLike,
    moves: Moves = (),
    gates: Sequence[Array] | None = None,
) -> Signals:
    """One forward and one backward pass for the rows of `x`; traceable, in the params' dtype.

    `moves` as in `network_gradients`. `gates` replaces σ by the multiplication with fixed slopes,
    one array (samples, n_ℓ) per hidden layer: a network whose masks do not follow its weights.

    >>> import jax
    >>> from dynagram.networks import MLP
    >>> net = MLP([1, 2, 1], "relu", C_b=0.0, C_W=1.0)
    >>> params = jax.tree.map(jnp.ones_like, net.draw(jax.random.key(0)))
    >>> passes = network_signals(net, params, jnp.array([[-3.0]]))     # both hidden units are off
    >>> passes.B[0].tolist(), passes.J[0].tolist()
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
        above, weights, skip = J[0], params[index].W, network.skip_of_layers[index]
        # Written as one product of matrices: batched ones over samples are far slower.
        through = (above.reshape(samples * n_L, -1) @ weights).reshape(samples, n_L, -1)
        rate = network.lambda_W[index] / network.widths[index]
        for step, way in moves:
            overlap = above @ way.J[index]
            through = through + (step * rate) * overlap[..., None] * way.u[index][None, None, :]
        B.insert(0, through)
        below = through * slopes[index - 1][:, None, :]
        J.insert(0, below + skip * above if skip != 0.0 else below)
    return Signals((jnp.asarray(x, dtype=dtype), *hidden), z, slopes, tuple(B), tuple(J))


def _preactivations(
    network: Architecture,
    params: Params,
    x: ArrayLike,
    moves: Moves,
    gates: Sequence[Array] | None,
) -> tuple[Array, ...]:
    """The preactivations at θ + Σ t λ∇z_k, with fixed slopes if `gates` are given."""
    signal = jnp.asarray(x, dtype=params[0].W.dtype)
    layers: list[Array] = []
    for index, layer in enumerate(params):
        z = signal @ layer.W.T + layer.b[None, :]
        rate = network.lambda_W[index] / network.widths[index]
        for step, way in moves:
            move = step * (network.lambda_b[index] + rate * (signal @ way.u[index]))
            z = z + move[:, None] * way.J[index][None, :]
        if (skip := network.skip_of_layers[index]) != 0.0:
            z = z + skip * layers[-1]
        layers.append(z)
        if index < network.depth - 1:
            signal = network.activation(z) if gates is None else gates[index] * z
    return tuple(layers)
