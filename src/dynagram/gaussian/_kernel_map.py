"""⟨σ_aσ_b⟩ and ⟨σ'_aσ'_b⟩ for whole kernel matrices, any activation: one layer of (4.118).

The upper triangle is cut into square tiles kept in that form from layer to layer. Closed forms
where they are known, Mehler's series elsewhere; whatever a caller makes of the averages can run in
the same compiled pass, since for a few hundred samples the calls cost as much as the arithmetic.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jaxtyping import Float, Float64

from dynagram.activations import Activation
from dynagram.gaussian._closed_forms import closed_kernel
from dynagram.gaussian._kernel_series import series_step
from dynagram.gaussian._kernel_tiles import Index, KernelStep, Tiling, gram_of_blocks

T = TypeVar("T")


def kernel_step(
    sigma: Activation,
    tiling: Tiling,
    variance: Float[Index, " padded"],
    tiles: Float64[jax.Array, "t b b"],
    then: Callable[..., T],
    *extra: Any,
) -> T:
    """`then(step, *extra)` with ⟨σσ⟩_K and ⟨σ'σ'⟩_K in the `KernelStep`; call inside float64.

    `variance` is K's diagonal, padded, `tiles` the rest of K. `then` is traced together with the
    averages (it must be one function, not a new one each call). About 12 digits. Cost: 4·m flop
    per pair for m Hermite terms (16 to 128 after parity), or one closed form. Memory: a few arrays
    of the size of the upper triangle.
    """
    if has_closed_step(sigma):
        return _closed_pass(sigma, then)(variance, tiles, *tiling.places, extra)
    return series_step(sigma, tiling, variance, tiles, then, extra)


def has_closed_step(sigma: Activation) -> bool:
    """Whether ⟨σσ⟩ and ⟨σ'σ'⟩ are both known in closed form."""
    return closed_kernel(sigma) is not None


def closed_layers(
    sigma: Activation,
    tiling: Tiling,
    first: Callable[..., T],
    then: Callable[..., T],
    x: Float[np.ndarray, "n features"],
    values: Float[np.ndarray, "layer value"],
) -> T:
    """All layers in one call: `first(tiles of x xᵀ, its diagonal, values[0])` is the state of the
    first, and `then(step, state, row)` that of the others, for the further rows of `values`.

    For closed forms only; a state holds the variances in `diagonal` and the tiles in `K`. The
    layers reuse their memory, which at a thousand samples saves a quarter of the time; at a few
    hundred every call would cost as much as a layer.
    """
    # A power of two of rows and one: few depths are compiled.
    rows = 1 + (1 << max(3, (len(values) - 2).bit_length()))
    padded = np.zeros((rows, values.shape[1]))
    padded[: len(values)] = values
    run = _closed_run(sigma, first, then)
    return run(tiling.blocks_of(x), padded, len(values), *tiling.places)


@functools.lru_cache(maxsize=64)
def _closed_run(sigma: Activation, first: Callable[..., Any], then: Callable[..., Any]):
    @jax.jit
    def run(x: Index, values: jax.Array, count: int | jax.Array, i: Index, j: Index):
        def layer(index: jax.Array, state: Any) -> Any:
            return then(_closed_step(sigma, state.diagonal, state.K, i, j), state, values[index])

        return jax.lax.fori_loop(1, count, layer, first(*gram_of_blocks(x, i, j), values[0]))

    return run


@functools.lru_cache(maxsize=64)
def _closed_pass(sigma: Activation, then: Callable[..., Any]):
    @jax.jit
    def run(variance: jax.Array, tiles: jax.Array, i: Index, j: Index, extra: tuple[Any, ...]):
        return then(_closed_step(sigma, variance, tiles, i, j), *extra)

    return run


def _closed_step(
    sigma: Activation, variance: jax.Array, tiles: jax.Array, i: Index, j: Index
) -> KernelStep:
    """Per-sample numbers and diagonals, then slope and value over the tiles.

    The barriers keep these apart: fused into one loop the compiler would take roots per pair and
    the costly angle twice.
    """
    kernel = closed_kernel(sigma)
    assert kernel is not None
    blocks = variance.reshape(-1, tiles.shape[1])
    numbers = jax.lax.optimization_barrier(kernel.prepare(blocks))
    left = tuple(n[i][:, :, None] for n in numbers)
    right = tuple(n[j][:, None, :] for n in numbers)
    slope = jax.lax.optimization_barrier(kernel.slope(left, right, tiles))
    value = jax.lax.optimization_barrier(kernel.value(left, right, tiles, slope))
    return KernelStep(value, slope, *kernel.diagonal(variance))
