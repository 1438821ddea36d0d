"""Infinite width: the kernel K (4.118) and the frozen NTK Θ (8.63 ff.) of a network, all layers.

K^(1) = C_b + C_W x·x/n_0, K^(ℓ+1) = C_b + C_W⟨σσ⟩_K + γ²K^(ℓ); Θ^(1) = λ_b + λ_W x·x/n_0,
Θ^(ℓ+1) = λ_b + λ_W⟨σσ⟩_K + (C_W⟨σ'σ'⟩_K + γ²)Θ^(ℓ), with the skip γ of the block (B.11), 0 in a
plain network. Both are exact at infinite width; the book has no Θ of networks with skips.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64, on_host
from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.gaussian._kernel_map import closed_layers, has_closed_step, kernel_step
from dynagram.gaussian._kernel_tiles import KernelStep, Tiling
from dynagram.networks import MLP, Chain, Network, check_inputs
from dynagram.theory.chain._kernels import chain_kernels

# Products of four kernels must stay inside float64 too.
_LARGEST = 1e200
_SMALL = 1024  # samples: compiling for an accelerator would take longer than the kernels do


@dataclass(frozen=True)
class FrozenKernels:
    """K and Θ of the layers in `layers` (ℓ = 1..L), stacked in that order; order "∞".

    Θ is infinite on the diagonal when σ jumps: it does not exist then. The errors are those of
    sampled attention heads, one standard deviation; None in networks without attention.
    """

    layers: tuple[int, ...]
    K: Float[np.ndarray, "layer a b"]
    Theta: Float[np.ndarray, "layer a b"]
    K_error: Float[np.ndarray, "layer a b"] | None = None
    Theta_error: Float[np.ndarray, "layer a b"] | None = None


@float64
def frozen_kernels(network: Network, x: object, *, layers: str = "all") -> FrozenKernels:
    """K^(ℓ)_ab and Θ^(ℓ)_ab of any network, with or without skips (4.118), (8.63), (B.11).

    Accurate to about 12 digits for any activation. Cost per layer: one fused pass over the
    N(N+1)/2 pairs. Memory: about six half-matrices, plus two matrices per layer kept; with
    `layers="last"` N = 4096 stays below 2 GB. Of networks of blocks: `chain_kernels`.

    **Arguments:**

    - `network`: an `MLP`, or a `Chain` of blocks, of which only the output is given.
    - `x`: inputs (N, n_0), one per row.
    - `layers`: "all", or "last" for the output alone.

    **Returns:** `FrozenKernels`, K and Θ stacked over layers.

    >>> import numpy as np
    >>> net = MLP([2, 8, 8, 1], "relu", C_b=0.0, C_W=2.0)
    >>> frozen_kernels(net, np.eye(2), layers="last").K[0].round(6)
    array([[1.      , 0.493731],
           [0.493731, 1.      ]])
    >>> net = MLP([2, 8, 8, 8, 1], "relu", C_b=0.0, C_W=[2.0, 1.5, 1.5, 2.0], skip=0.5)
    >>> frozen_kernels(net, np.eye(2), layers="last").K[0].round(6)
    array([[1.     , 0.54084],
           [0.54084, 1.     ]])
    """
    if layers not in ("all", "last"):
        raise InvalidValueError("layers", layers, "expected 'all' or 'last'")
    if isinstance(network, Chain):
        made = chain_kernels(network, check_inputs(x, network.input_size))
        arrays = (made.K, made.Theta, made.K_error, made.Theta_error)
        stacked = (None if array is None else array[None] for array in arrays)
        return FrozenKernels((network.depth,), *stacked)  # pyright: ignore[reportArgumentType]
    if not isinstance(network, MLP):
        raise InvalidTypeError("network", type(network).__name__, "expected an MLP or a Chain")
    inputs = check_inputs(x, network.widths[0])
    with on_host() if inputs.shape[0] <= _SMALL else nullcontext():
        return _mlp_kernels(network, inputs, layers)


def _mlp_kernels(
    network: MLP, inputs: Float[np.ndarray, "sample n_0"], layers: str
) -> FrozenKernels:
    tiling = Tiling.of(inputs.shape[0])
    scaled = inputs / np.sqrt(network.widths[0])
    values, skips = _hyperparameters(network), network.skip_of_layers
    closed = has_closed_step(network.activation)
    first, states = 1, []
    if closed and layers == "last" and not network.has_skips:
        state = closed_layers(network.activation, tiling, _first, _next, scaled, values)
        first = network.depth
    else:
        state = _first(*tiling.gram(scaled), values[0])
    for layer in range(first, network.depth + 1):
        if not closed:  # a series cannot start from a variance that is not finite
            _require_finite(network, state)
        if layers == "all" or layer == network.depth:
            states.append((layer, state))
        if layer < network.depth:
            state = kernel_step(
                network.activation, tiling, state.diagonal, state.K,
                _next_with_skip if skips[layer] else _next, state, values[layer],
            )  # fmt: skip
    if closed:
        _require_finite(network, state)
    shape = (len(states), inputs.shape[0], inputs.shape[0])
    all_K, all_theta = np.empty(shape), np.empty(shape)
    for index, (_, state) in enumerate(states):
        tiling.write(all_K[index], state.K, state.diagonal)
        tiling.write(all_theta[index], state.Theta, state.Theta_diagonal)
    return FrozenKernels(tuple(layer for layer, _ in states), all_K, all_theta)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _State:
    """One layer's K and Θ in tiles, their padded diagonals, and where they first overflowed.

    `overflow` holds the first layer at which K and Θ left the range, 0 for none: it is kept on the
    device, because looking at every layer from outside would cost as much as computing it.
    """

    K: jax.Array
    Theta: jax.Array
    diagonal: jax.Array
    Theta_diagonal: jax.Array
    overflow: jax.Array


def _hyperparameters(network: MLP) -> np.ndarray:
    """C_b, C_W, λ_b, λ_W, ℓ and γ² of every layer, shape (L, 6)."""
    layers = range(1, network.depth + 1)
    rows = [network.C_b, network.C_W, network.lambda_b, network.lambda_W, layers]
    return np.array([*rows, np.square(network.skip_of_layers)]).T


@jax.jit
def _first(gram: jax.Array, squares: jax.Array, values: jax.Array) -> _State:
    """Layer 1 from x·x/n_0, off and on the diagonal."""
    C_b, C_W, lambda_b, lambda_W, _ = (values[i] for i in range(5))
    ends = C_b + C_W * squares, lambda_b + lambda_W * squares
    none = jnp.zeros(2)
    return _State(
        C_b + C_W * gram, lambda_b + lambda_W * gram, *ends, _overflow(none, *ends, values[4])
    )


def _next(step: KernelStep, state: _State, values: jax.Array) -> _State:
    """The layer after `state`, from the averages over it."""
    C_b, C_W, lambda_b, lambda_W, layer = (values[i] for i in range(5))

    def tangent(value: jax.Array, slope: jax.Array, theta: jax.Array) -> jax.Array:
        return lambda_b + lambda_W * value + C_W * slope * theta

    K = C_b + C_W * step.value
    Theta = tangent(step.value, step.slope, state.Theta)
    diagonal = jnp.asarray(C_b + C_W * step.value_diagonal)
    Theta_diagonal = tangent(
        jnp.asarray(step.value_diagonal), jnp.asarray(step.slope_diagonal), state.Theta_diagonal
    )
    overflow = _overflow(state.overflow, diagonal, Theta_diagonal, layer)
    return _State(K, Theta, diagonal, Theta_diagonal, overflow)


def _next_with_skip(step: KernelStep, state: _State, values: jax.Array) -> _State:
    """`_next` and what the skip carries on; apart, so that a plain layer pays nothing for it."""
    plain, square = _next(step, state, values), values[5]
    diagonal = plain.diagonal + square * state.diagonal
    Theta_diagonal = plain.Theta_diagonal + square * state.Theta_diagonal
    return _State(
        plain.K + square * state.K,
        plain.Theta + square * state.Theta,
        diagonal,
        Theta_diagonal,
        _overflow(state.overflow, diagonal, Theta_diagonal, values[4]),
    )


def _overflow(
    before: jax.Array, diagonal: jax.Array, Theta_diagonal: jax.Array, layer: jax.Array
) -> jax.Array:
    fine = jnp.stack([jnp.all(jnp.abs(diagonal) < _LARGEST), jnp.all(jnp.isfinite(Theta_diagonal))])
    return jnp.where((before == 0) & ~fine, layer, before)


def _require_finite(network: MLP, state: _State) -> None:
    in_K, in_Theta = (int(layer) for layer in np.asarray(state.overflow))
    if in_K:
        what, layer = "the kernel K", in_K
    elif in_Theta and not network.activation.jumps:
        what, layer = "the NTK", in_Theta
    else:
        return
    if network.has_skips:
        raise NonFiniteError(
            f"{what} overflows at layer {layer} of {network.depth}: it grows exponentially with "
            "depth; use fewer blocks, or C_b, C_W and γ with χ∥ = 1, such as MLP.critical"
        )
    raise NonFiniteError(
        f"{what} overflows at layer {layer} of {network.depth}: C_W = {network.C_W[layer - 1]:g} "
        f"is above critical for {network.activation.name}, so it grows exponentially with depth; "
        f"use fewer layers or the values of `dynagram critical {network.activation.name}`"
    )
