"""Activations on lists of pairs of positions: ⟨σσ⟩ and ⟨σ'σ'⟩ for blocks of inputs.

The values at one pair of positions and all pairs of two blocks of inputs are one square tile, so
that the compiled passes of `kernel_step` do the work: closed forms, or Mehler's series.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation, padded_size
from dynagram.gaussian._closed_forms import closed_kernel
from dynagram.gaussian._kernel_map import has_closed_step, kernel_step
from dynagram.gaussian._kernel_tiles import KernelStep, Tiling
from dynagram.gaussian._scalar import moment
from dynagram.theory.chain._kernel_program import Affine, Average

Tiles = Float[np.ndarray, "pair *inputs"]
_COINCIDENT = 1e-13  # 1 − ρ below this is rounding of identical signals
_TILE_NUMBERS = 2**17  # of one pass, so that it stays in cache
_ROW_NUMBERS = 2**15  # rows of coefficients of one pass
_FEW_NUMBERS = 2**12  # that cost nothing
_MOMENTS = 2**12  # variances of one pass over nodes


class Values(NamedTuple):
    """K and Θ on a list of pairs of positions; Θ is None where nothing has learned yet."""

    K: Tiles
    Theta: Tiles | None

    def each(self, function: Callable[[np.ndarray], np.ndarray]) -> Values:
        """A function of K, and the same of Θ."""
        return Values(function(self.K), None if self.Theta is None else function(self.Theta))


@dataclass(frozen=True, eq=False)
class Places(Tiling):
    """Tiles at given block rows and columns of a matrix, not those of an upper triangle."""

    block_rows: np.ndarray
    block_columns: np.ndarray

    @cached_property
    def rows(self) -> np.ndarray:
        """Block row of every tile."""
        return self.block_rows

    @cached_property
    def columns(self) -> np.ndarray:
        """Block column of every tile."""
        return self.block_columns


def average_cross(
    step: Average,
    values: Values,
    left: Float[np.ndarray, "position left"],
    right: Float[np.ndarray, "position right"],
) -> Values:
    """The average between two blocks of as many inputs; `left`, `right` their variances."""
    pairs, P = step.lists.cross, step.lists.cross.positions
    variance = np.concatenate([left, right])
    return _by_parts(step, pairs.first, P + pairs.second, variance, values)


def average_same(
    step: Average,
    values: Values,
    variance: Float[np.ndarray, "position input"],
) -> Values:
    """The average of inputs with themselves, pairs (p, p') by (p, p'), exact where p = p'."""
    pairs, inputs = step.lists.same, values.K.shape[1]
    K, Theta = np.empty_like(values.K), np.empty_like(values.K)
    ends = pairs.first == pairs.second
    parts = (None if values.Theta is None else values.Theta[ends], values.K[ends])
    K[ends], Theta[ends] = _diagonal(step, variance[pairs.first[ends]], parts[1], parts[0])
    if np.all(ends):
        return Values(K, Theta)
    rows, columns = (
        (p[~ends, None] * inputs + np.arange(inputs)).reshape(-1)
        for p in (pairs.first, pairs.second)
    )
    single = values.each(lambda array: array[~ends].reshape(-1, 1, 1))
    made = _by_parts(step, rows, columns, variance.reshape(-1, 1), single)
    assert made.Theta is not None
    K[~ends], Theta[~ends] = made.K.reshape(-1, inputs), made.Theta.reshape(-1, inputs)
    return Values(K, Theta)


def _diagonal(
    step: Average, variance: np.ndarray, K: np.ndarray, Theta: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """One sample with itself: averages over one variable."""
    C_W = 1.0 if step.gate is None else step.gate[0]
    value, slope = (
        part.reshape(variance.shape) for part in _moments(step.sigma, C_W * variance.reshape(-1))
    )
    tangent = np.zeros_like(K) if Theta is None else Theta
    made = KernelStep(jnp.asarray(value), jnp.asarray(slope), value, slope)
    then = _plain if step.gate is None else _gated
    one, two = then(made, jnp.asarray(K), jnp.asarray(tangent), _numbers(step))
    return np.asarray(one), np.asarray(two)


def _moments(sigma: Activation, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """⟨σ²⟩ and ⟨σ'²⟩, the latter infinite where σ jumps."""
    closed = _closed_moments(sigma)
    if closed is not None:
        padded = np.zeros(padded_size(variance.size))
        padded[: variance.size] = variance
        value, slope = (np.asarray(part)[: variance.size] for part in closed(padded))
        return value, slope
    value, slope = np.empty_like(variance), np.full_like(variance, np.inf)
    for start in range(0, variance.size, _MOMENTS):
        part = slice(start, start + _MOMENTS)
        value[part] = moment(sigma, variance[part], (0, 0))
        if not sigma.jumps:
            slope[part] = moment(sigma, variance[part], (1, 1))
    return value, slope


@lru_cache(maxsize=64)
def _closed_moments(sigma: Activation):
    kernel = closed_kernel(sigma)
    return None if kernel is None else jax.jit(kernel.diagonal)


def _by_parts(
    step: Average, rows: np.ndarray, columns: np.ndarray, variance: np.ndarray, values: Values
) -> Values:
    """The average on tiles at block `rows` and `columns`, so many at a time that caches hold."""
    tile, size = variance.shape[1], rows.size
    blocks = 1 << max(variance.shape[0] - 1, 0).bit_length()  # few compiled shapes
    variance = np.concatenate([variance, np.repeat(variance[-1:], blocks - len(variance), axis=0)])
    K, Theta = np.empty_like(values.K), np.empty_like(values.K)
    for part in _parts(size, tile):
        places = Places(blocks * tile, tile, rows[part], columns[part])
        tangent = None if values.Theta is None else values.Theta[part]
        made = _average(step, places, variance, values.K[part], tangent)
        K[part], Theta[part] = made
    return Values(K, Theta)


def _parts(size: int, tile: int) -> Iterator[slice | np.ndarray]:
    """Parts of one length that cover `size`, so that one shape compiles.

    The last may overlap the one before; few tiles are padded to a power of two by repetition.
    """
    if size * tile**2 <= _FEW_NUMBERS:
        length = 1 << max(size - 1, 0).bit_length()
        yield np.minimum(np.arange(length), size - 1)
        return
    most = max(1, min(_TILE_NUMBERS // tile**2, _ROW_NUMBERS // tile, size))
    length = -(-size // -(-size // most))
    for start in range(0, size, length):
        yield slice(min(start, size - length), min(start, size - length) + length)


def _numbers(step: Average) -> jax.Array:
    return jnp.asarray([*step.affine, *(step.gate or ())])


def _average(
    step: Average,
    places: Places,
    variance: Float[np.ndarray, "block tile"],
    K: Tiles,
    Theta: Tiles | None,
) -> tuple[jax.Array, jax.Array]:
    """K and Θ after the average, in one compiled pass."""
    sigma, numbers = step.sigma, _numbers(step)
    tangent = jnp.zeros((1, 1, 1)) if Theta is None else jnp.asarray(Theta)
    gram, C_W = jnp.asarray(K), 1.0 if step.gate is None else step.gate[0]
    blocks = jnp.asarray(C_W * variance)
    scaled = gram if step.gate is None else C_W * gram
    extra = (gram, tangent, numbers)
    if has_closed_step(sigma) and sigma.is_smooth:
        then = _plain if step.gate is None else _gated
        return kernel_step(sigma, places, blocks.reshape(-1), scaled, then, *extra)
    rows, columns = places.places
    coincident, scaled = _separated(blocks, scaled, rows, columns)
    then = _plain_coincident if step.gate is None else _gated_coincident
    flat = np.asarray(blocks).reshape(-1)
    return kernel_step(sigma, places, flat, scaled, then, *extra, coincident, rows)


@jax.jit
def _separated(
    variance: jax.Array, tiles: jax.Array, rows: jax.Array, columns: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Where two signals are one up to rounding, and tiles with 0 there: series end sooner."""
    left, right = variance[rows][:, :, None], variance[columns][:, None, :]
    alike = (jnp.abs(left - right) <= _COINCIDENT * left) & (left > 0)
    coincident = alike & (tiles >= (1.0 - _COINCIDENT) * left)
    return coincident, jnp.where(coincident, 0.0, tiles)


def _tangent(slope: jax.Array, Theta: jax.Array) -> jax.Array:
    """⟨σ'σ'⟩Θ; what does not learn has none, even where σ jumps."""
    return jnp.where(Theta == 0.0, 0.0, slope * Theta)


def _plain(
    step: KernelStep, gram: jax.Array, Theta: jax.Array, numbers: jax.Array
) -> tuple[jax.Array, jax.Array]:
    del gram
    return _affine(step.value, _tangent(step.slope, Theta), numbers)


def _gated(
    step: KernelStep, gram: jax.Array, Theta: jax.Array, numbers: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """σ(h) g with independent h and g: K = ⟨σσ⟩R, R the covariance of g."""
    C_W, C_gate, lambda_W, lambda_gate = (numbers[4 + i] for i in range(4))
    R = C_gate * gram
    tangent = _tangent(step.slope, R * (lambda_W * gram + C_W * Theta))
    tangent = tangent + step.value * (lambda_gate * gram + C_gate * Theta)
    return _affine(step.value * R, tangent, numbers)


def _affine(K: jax.Array, Theta: jax.Array, numbers: jax.Array) -> tuple[jax.Array, jax.Array]:
    C_W, C_b, lambda_W, lambda_b = (numbers[i] for i in range(len(Affine._fields)))
    return C_b + C_W * K, lambda_b + lambda_W * K + C_W * Theta


def _with_diagonal(step: KernelStep, coincident: jax.Array, rows: jax.Array) -> KernelStep:
    """⟨σ²⟩ and ⟨σ'²⟩, known exactly, where two signals are one."""

    def put(diagonal, values: jax.Array) -> jax.Array:
        blocks = jnp.asarray(diagonal).reshape(-1, values.shape[1])
        return jnp.where(coincident, blocks[rows][:, :, None], values)

    value = put(step.value_diagonal, step.value)
    slope = put(step.slope_diagonal, step.slope)
    return KernelStep(value, slope, step.value_diagonal, step.slope_diagonal)


def _plain_coincident(step, gram, Theta, numbers, coincident, rows):
    return _plain(_with_diagonal(step, coincident, rows), gram, Theta, numbers)


def _gated_coincident(step, gram, Theta, numbers, coincident, rows):
    return _gated(_with_diagonal(step, coincident, rows), gram, Theta, numbers)
