"""Two leaps to the end of training: by the member's own NTK (∞.71), then by the frozen one (∞.77).

What they leave of the error is of order 1/n² and no lack of steps.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from dynagram.ensembles.trained._batches import Batch
from dynagram.ensembles.trained._records import Arrays, Observe, Result
from dynagram.networks import Params
from dynagram.networks._network import Structure
from dynagram.observables.tangents._ntk import any_ntk


def leap(
    network: Structure, batch: Batch, observe: Observe, params: Params, arrays: Arrays
) -> Result:
    """Move a group of members from `params`, members first, in two steps; traceable."""
    assert arrays.leap is not None
    x, y, kernel = arrays.leap
    samples, outputs = y.shape

    def pull(layers: Params, error: Callable[[Array], Array]) -> Params:
        """θ − λ Jᵀ error(z)."""
        z, back = jax.vjp(lambda p: network.apply(p, x), layers)
        way = back(error(z))[0]
        leaves, tree = jax.tree.flatten(layers)
        moves = zip(leaves, jax.tree.leaves(way), jax.tree.leaves(network.rates()), strict=True)
        return tree.unflatten([theta - rate * d for theta, d, rate in moves])

    def member(layers: Params) -> tuple[Params, Array]:
        H = any_ntk(network, layers, x).transpose(0, 2, 1, 3).reshape(samples * outputs, -1)
        layers = pull(
            layers, lambda z: jnp.linalg.solve(H, (z - y).reshape(-1)).reshape(samples, outputs)
        )
        layers = pull(layers, lambda z: jnp.linalg.solve(kernel, z - y))
        return layers, jnp.max(jnp.abs(network.apply(layers, x) - y))

    final, error = jax.vmap(member)(params)
    seen = jax.tree.map(lambda values: values[:, None], observe(final, batch))
    none = jnp.full(error.shape, jnp.nan)
    return Result(seen, none, jnp.where(jnp.isfinite(error), none, 1.0), error, final)
