"""A member's outputs, loss and gradient, laid out so that many members are fast on a CPU.

Weights are held transposed, V = Wᵀ, and every product and its derivatives are written as plain
products of row-major matrices, u V, d Vᵀ and uᵀ d with the transposes spelled out: under `vmap`
they become batched products that the compiler hands to its fast kernels, which it does not do
with the ones automatic differentiation would write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dynagram.networks import Architecture, Layer
from dynagram.networks._network import Structure
from dynagram.training import loss_value

# One (b, V) per layer, or the parameters of a block: all of them, or those that are trained.
Packed = tuple[Any, ...]


def packed(network: Structure, params: Any) -> Packed:
    """Layers (b, W) of an MLP as (b, Wᵀ); the parameters of other networks as they are."""
    if not isinstance(network, Architecture):
        return params
    return tuple((layer.b, layer.W.T) for layer in params)


def unpacked(network: Structure, layers: Packed) -> Any:
    """The inverse of `packed`."""
    if not isinstance(network, Architecture):
        return layers
    return tuple(Layer(b, V.T) for b, V in layers)


@jax.custom_vjp
def affine(u: Array, b: Array, V: Array) -> Array:
    """u V + b for u (N, n_in) and V (n_in, n_out)."""
    return u @ V + b[None, :]


def _forward(u: Array, b: Array, V: Array) -> tuple[Array, tuple[Array, Array]]:
    return affine(u, b, V), (u, V)


def _backward(saved: tuple[Array, Array], d: Array) -> tuple[Array, Array, Array]:
    u, V = saved
    return d @ V.T, jnp.sum(d, axis=0), u.T @ d


affine.defvjp(_forward, _backward)


def outputs(network: Structure, layers: Packed, x: Float[Array, "N n_0"]) -> Float[Array, "N n_L"]:
    """z^(L), as `network.apply` gives it; its gradient is fast, its forward derivative missing."""
    if not isinstance(network, Architecture):
        return network.apply(layers, x)
    signal, z = x, x
    for index, ((b, V), skip) in enumerate(zip(layers, network.skip_of_layers, strict=True)):
        below, z = z, affine(signal, b, V)
        if skip != 0.0:
            z = z + skip * below
        if index < len(layers) - 1:
            signal = network.activation(z)
    return z


def split(layers: Packed, fixed: tuple[int, ...]) -> tuple[Packed, Packed]:
    """The layers that are trained, and those numbered in `fixed`."""
    numbered = list(enumerate(layers, start=1))
    trained = tuple(layer for number, layer in numbered if number not in fixed)
    return trained, tuple(layer for number, layer in numbered if number in fixed)


def joined(trained: Packed, frozen: Packed, fixed: tuple[int, ...]) -> Packed:
    """The inverse of `split`."""
    moving, resting = iter(trained), iter(frozen)
    depth = len(trained) + len(frozen)
    return tuple(next(resting if n in fixed else moving) for n in range(1, depth + 1))


def loss_function(
    network: Structure, loss: str, fixed: tuple[int, ...]
) -> Callable[[Packed, Packed, Array, Array], tuple[Array, Array]]:
    """(trained layers, fixed layers, x, y) → loss, and the outputs it is that of."""

    def value(trained: Packed, frozen: Packed, x: Array, y: Array) -> tuple[Array, Array]:
        z = outputs(network, joined(trained, frozen, fixed), x)
        return loss_value(loss, z, y), z

    return value


def trained_rates(network: Structure, fixed: tuple[int, ...]) -> tuple[Any, ...]:
    """The learning rates (8.6) of the layers that are not in `fixed`."""
    numbered = enumerate(network.rates(), start=1)
    return tuple(pair for number, pair in numbered if number not in fixed)


def moved(layers: Packed, updates: Any, factors: tuple[Any, ...]) -> Packed:
    """θ + λ·update, leaf by leaf; a Python factor keeps the precision of the leaf."""
    return jax.tree.map(lambda theta, step, rate: theta + rate * step, layers, updates, factors)
