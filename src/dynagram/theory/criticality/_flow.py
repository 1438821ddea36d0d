"""The single-input kernel through the layers, K' = C_b + C_W g(K) (5.4), fast at any depth.

Only this recursion is sequential: every other single-input quantity is an average at a known K.
It runs as a compiled scan on fixed quadrature nodes, block by block, with the nodes made finer
when K outgrows them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._one_input import power_average, slopes
from dynagram.gaussian._quadrature import SMALLEST_VARIANCE, UNDERFLOW, shares_nodes, standard_nodes

# Beyond this the rule for a smooth σ needs a million nodes, and the flow has exploded anyway.
LARGEST_KERNEL = 1e8
_WORK_PER_BLOCK = 2**22
_LONGEST_BLOCK = 256
_SHALLOW = 8


def per_layer(
    name: str, value: float | Sequence[float] | Float[np.ndarray, " layer"], depth: int
) -> Float[np.ndarray, " layer"]:
    """A hyperparameter as one number per layer ℓ = 1..depth; a scalar is repeated.

    >>> per_layer("C_b", 0.5, 2)
    array([0.5, 0.5])
    """
    array = np.asarray(value, dtype=np.float64)
    if array.shape not in ((), (depth,)):
        raise InvalidValueError(
            name, f"shape {array.shape}", f"expected one number or {depth}, one per layer"
        )
    if not np.all(np.isfinite(array)):
        raise InvalidValueError(name, value, "expected finite numbers")
    return np.broadcast_to(array, (depth,))


def check_depth(depth: int) -> int:
    """`depth`, refused unless it is a positive whole number of layers."""
    if depth < 1:
        raise InvalidValueError("depth", depth, "expected at least one layer")
    return depth


def kernel_flow(
    sigma: Activation,
    K1: Float[np.ndarray, " sample"],
    C_b: Float[np.ndarray, " layer"],
    C_W: Float[np.ndarray, " layer"],
) -> Float[np.ndarray, "layer sample"]:
    """K^(ℓ), ℓ = 1..L, from K^(1) (5.4); C[ℓ] makes layer ℓ, so the first entries go unused.

    Raises `NonFiniteError`, naming the layer, when K explodes. Cost: one pass over 200-800 nodes
    per layer and sample, about 4 μs at one sample.

    >>> from dynagram.activations import activation
    >>> K = kernel_flow(activation("tanh"), np.array([1.0]), np.zeros(3), np.ones(3))
    >>> K[:, 0].round(12)
    array([1.        , 0.39429449, 0.23645041])
    """
    if slopes(sigma) is not None or not shares_nodes(sigma) or C_b.size <= _SHALLOW:
        return _layer_by_layer(sigma, K1, C_b, C_W)
    rows, done = [K1], 1
    while done < C_b.size:
        current = rows[-1]
        _refuse_explosion(sigma, current, done)
        ceiling = 4.0 ** math.ceil(math.log(max(float(current.max(initial=1.0)), 1.0), 4) + 1e-9)
        t, w = standard_nodes(sigma, np.array([ceiling]), factors=2)
        length = _block_length(C_b.size - done, t.size * max(K1.size, 1))
        stop = min(done + length, C_b.size)
        padding = (0, done + length - stop)
        block = _scan(
            sigma,
            current,
            np.pad(C_b[done:stop], padding),
            np.pad(C_W[done:stop], padding),
            t[0],
            w[0],
        )[: stop - done]
        # A row is right when the one it came from was within reach of the nodes.
        inputs = np.concatenate([current[None, :], block[:-1]]).max(axis=1, initial=0.0)
        within = inputs <= ceiling
        good = block.shape[0] if within.all() else int(np.argmin(within))
        rows += list(block[:good])
        done += good
    _refuse_explosion(sigma, rows[-1], done)
    return np.stack(rows)


def _layer_by_layer(
    sigma: Activation, K1: np.ndarray, C_b: np.ndarray, C_W: np.ndarray
) -> np.ndarray:
    """Without fixed nodes and without compilation.

    Where σ is scale-invariant, where what it does away from 0 moves the nodes with K, and for few
    layers, which take less time than the compiler.
    """
    limited = slopes(sigma) is None
    rows = [K1]
    with np.errstate(over="ignore"):
        for layer in range(1, C_b.size):
            _refuse_explosion(sigma, rows[-1], layer, limited=limited)
            rows.append(C_b[layer] + C_W[layer] * power_average(sigma, rows[-1], 2))
    _refuse_explosion(sigma, rows[-1], C_b.size, limited=limited)
    return np.stack(rows)


def _refuse_explosion(
    sigma: Activation, K: np.ndarray, layer: int, *, limited: bool = True
) -> None:
    largest = LARGEST_KERNEL if limited else float(np.finfo(np.float64).max)
    if sigma.growth > 0.0:
        largest = min(largest, 300.0 / sigma.growth**2)
    if not np.all(largest >= K):  # so that NaN is refused too
        raise NonFiniteError(
            f"K of {sigma.name} reaches {float(K.max()):.3g} at layer {layer} and explodes: "
            "lower C_W, C_b or the depth"
        )


def _block_length(remaining: int, work_per_layer: int) -> int:
    """A power of two, so that few shapes are compiled."""
    affordable = max(1, min(_LONGEST_BLOCK, _WORK_PER_BLOCK // work_per_layer, remaining))
    return 1 << (affordable - 1).bit_length()


@float64
def _scan(
    sigma: Activation,
    K: np.ndarray,
    C_b: np.ndarray,
    C_W: np.ndarray,
    t: np.ndarray,
    w: np.ndarray,
) -> np.ndarray:
    return np.asarray(_compiled_scan(sigma, K, C_b, C_W, t, w))


@functools.partial(jax.jit, static_argnums=0)
def _compiled_scan(
    sigma: Activation,
    K: jax.Array,
    C_b: jax.Array,
    C_W: jax.Array,
    t: jax.Array,
    w: jax.Array,
) -> jax.Array:
    def step(K: jax.Array, variances: tuple[jax.Array, jax.Array]):
        root = jnp.sqrt(jnp.maximum(K, SMALLEST_VARIANCE))
        g = sigma(root[:, None] * t[None, :]) ** 2 @ w
        g = jnp.where(g < UNDERFLOW, 0.0, g)  # what stands for K = 0 must leave no trace
        following = variances[0] + variances[1] * g
        return following, following

    return jax.lax.scan(step, K, (C_b, C_W))[1]
