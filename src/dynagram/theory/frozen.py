"""Infinite width: the kernel K (4.118) and the frozen NTK Θ (8.63 ff.) of a network, all layers.

K^(1) = C_b + C_W x·x/n_0, K^(ℓ+1) = C_b + C_W⟨σσ⟩_K; Θ^(1) = λ_b + λ_W x·x/n_0,
Θ^(ℓ+1) = λ_b + λ_W⟨σσ⟩_K + C_W⟨σ'σ'⟩_K Θ^(ℓ). Both are exact at infinite width.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian.kernel_map import Tiling, has_closed_step, kernel_step
from dynagram.networks import MLP, check_inputs
from dynagram.precision import float64

Scalar = float | jax.Array
Vector = jax.Array | np.ndarray


@dataclass(frozen=True)
class FrozenKernels:
    """K and Θ of the layers in `layers` (ℓ = 1..L), stacked in that order; order "∞".

    Θ is infinite on the diagonal when σ jumps: it does not exist then.
    """

    layers: tuple[int, ...]
    K: Float[np.ndarray, "layer a b"]
    Theta: Float[np.ndarray, "layer a b"]


@float64
def frozen_kernels(network: MLP, x: object, *, layers: str = "all") -> FrozenKernels:
    """K^(ℓ)_ab and Θ^(ℓ)_ab for the samples in the rows of `x`.

    Accurate to about 12 digits for any activation. Cost per layer: one fused pass over the
    N(N+1)/2 pairs. Memory: about six half-matrices, plus two matrices per layer kept; with
    `layers="last"` N = 4096 stays below 2 GB.

    >>> import numpy as np
    >>> net = MLP([2, 8, 8, 1], "relu", C_b=0.0, C_W=2.0)
    >>> frozen_kernels(net, np.eye(2), layers="last").K[0].round(6)
    array([[1.      , 0.493731],
           [0.493731, 1.      ]])
    """
    if layers not in ("all", "last"):
        raise InvalidValueError("layers", layers, "expected 'all' or 'last'")
    inputs = check_inputs(x, network.widths[0])
    tiling = Tiling.of(inputs.shape[0])
    gram = tiling.gram_tiles(inputs / np.sqrt(network.widths[0]))
    gram_diagonal = np.sum(inputs * inputs, axis=1) / network.widths[0]
    K = _affine(gram, network.C_b[0], network.C_W[0])
    diagonal = network.C_b[0] + network.C_W[0] * gram_diagonal
    theta = _affine(gram, network.lambda_b[0], network.lambda_W[0])
    theta_diagonal = network.lambda_b[0] + network.lambda_W[0] * gram_diagonal
    hyperparameters = np.array([network.C_b, network.C_W, network.lambda_b, network.lambda_W]).T
    wait = has_closed_step(network.activation)
    diagonals, kept = [], []
    for layer in range(1, network.depth + 1):
        diagonals.append((diagonal, theta_diagonal))
        if not wait:  # a series cannot start from a variance that is not finite
            _require_finite(network, layer, diagonal, theta_diagonal)
        if layers == "all" or layer == network.depth:
            kept.append((layer, K, theta, diagonal, theta_diagonal))
        if layer < network.depth:
            step = kernel_step(network.activation, tiling, diagonal, K)
            K, theta, diagonal, theta_diagonal = _next(
                step.value, step.slope, theta,
                step.value_diagonal, step.slope_diagonal, theta_diagonal,
                hyperparameters[layer],
            )  # fmt: skip
    for layer, ends in enumerate(diagonals, start=1):
        if wait:
            _require_finite(network, layer, *ends)
    shape = (len(kept), inputs.shape[0], inputs.shape[0])
    all_K, all_theta = np.empty(shape), np.empty(shape)
    for index, (_, tiles, theta_tiles, end, theta_end) in enumerate(kept):
        tiling.write(all_K[index], tiles, end)
        tiling.write(all_theta[index], theta_tiles, theta_end)
    return FrozenKernels(tuple(layer for layer, *_ in kept), all_K, all_theta)


@jax.jit
def _affine(gram: jax.Array, offset: Scalar, factor: Scalar) -> jax.Array:
    return offset + factor * gram


@jax.jit
def _next(
    value: jax.Array, slope: jax.Array, theta: jax.Array,
    value_diagonal: Vector, slope_diagonal: Vector, theta_diagonal: Vector,
    hyperparameters: Vector,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """Tiles and diagonals of K and Θ in the next layer."""
    C_b, C_W, lambda_b, lambda_W = (hyperparameters[i] for i in range(4))

    def tangent(v: Vector, s: Vector, t: Vector) -> jax.Array:
        return jnp.asarray(lambda_b + lambda_W * v + C_W * s * t)

    return (
        C_b + C_W * value,
        tangent(value, slope, theta),
        jnp.asarray(C_b + C_W * value_diagonal),
        tangent(value_diagonal, slope_diagonal, theta_diagonal),
    )


def _require_finite(network: MLP, layer: int, diagonal: Vector, theta_diagonal: Vector) -> None:
    diagonal, theta_diagonal = np.asarray(diagonal), np.asarray(theta_diagonal)
    largest = 1e200  # products of four kernels must stay inside float64 too
    if np.all(np.isfinite(diagonal)) and float(np.max(np.abs(diagonal), initial=0.0)) < largest:
        if np.all(np.isfinite(theta_diagonal)) or network.activation.jumps:
            return
        what = "the NTK"
    else:
        what = "the kernel K"
    raise NonFiniteError(
        f"{what} overflows at layer {layer} of {network.depth}: C_W = {network.C_W[layer - 1]:g} "
        f"is above critical for {network.activation.name}, so it grows exponentially with depth; "
        f"use fewer layers or the values of `dynagram critical {network.activation.name}`"
    )
