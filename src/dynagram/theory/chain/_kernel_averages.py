"""Activations on lists of pairs of positions: ⟨σσ⟩ and ⟨σ'σ'⟩ for blocks of inputs.

The values at one pair of positions and all pairs of two blocks of inputs are one square tile, so
that the compiled passes of `kernel_step` do the work: closed forms, or Mehler's series.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.activations._core import padded_size
from dynagram.gaussian._closed_forms import closed_kernel
from dynagram.gaussian._kernel_map import kernel_step
from dynagram.gaussian._kernel_tiles import KernelStep, Tiling
from dynagram.gaussian._scalar import moment
from dynagram.theory.chain._kernel_program import Affine, Average
from dynagram.theory.chain._position_pairs import PositionPairs

Tiles = Float[np.ndarray, "pair *inputs"]
_COINCIDENT = 1e-13  # 1 − ρ below this is rounding of identical signals
_TILE_NUMBERS = 2**18  # of one pass
_ROW_NUMBERS = 2**15  # rows of a pass with a series, each of many coefficients
_FEW_NUMBERS = 2**12  # that cost nothing
_LONG_ROW = 8  # rows of tiles that fill vector registers, whose loops are fast
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

    @cached_property
    def samples_of_entries(self) -> tuple[jax.Array, jax.Array]:
        """The two samples of every entry of every tile, one long list: no loop over small tiles."""
        inside, shape = np.arange(self.tile), (self.block_rows.size, self.tile, self.tile)
        left = self.tile * self.block_rows[:, None, None] + inside[:, None]
        right = self.tile * self.block_columns[:, None, None] + inside[None, :]
        lists = (np.broadcast_to(samples, shape).reshape(-1) for samples in (left, right))
        one, two = (jnp.asarray(samples.astype(np.int32)) for samples in lists)
        return one, two


def average_cross(
    step: Average,
    values: Values,
    left: Float[np.ndarray, "position left"],
    right: Float[np.ndarray, "position right"],
) -> Values:
    """The average between two blocks of as many inputs; `left`, `right` their variances."""
    variance = np.concatenate([left, right])
    parts = _cross_parts(step.lists.cross, left.shape[1], closed_kernel(step.sigma) is None)
    return _by_parts(step, parts, variance, values)


@lru_cache(maxsize=64)
def _cross_parts(pairs: PositionPairs, tile: int, has_rows: bool) -> list[Part]:
    blocks = 2 * pairs.positions
    return _parts(pairs.first, pairs.positions + pairs.second, tile, blocks, has_rows)


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
    flat = variance.reshape(-1, 1)
    parts = _parts(rows, columns, 1, flat.size, closed_kernel(step.sigma) is None)
    made = _by_parts(step, parts, flat, single)
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
    then = _compiled_plain if step.gate is None else _compiled_gated
    one, two = then(value, slope, K, tangent, _numbers(step))
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


class Part(NamedTuple):
    """Some of the tiles, taken in one pass."""

    which: slice | np.ndarray
    places: Places


def _parts(
    rows: np.ndarray, columns: np.ndarray, tile: int, blocks: int, has_rows: bool
) -> list[Part]:
    """Tiles at block `rows` and `columns` in parts of one size, so that one shape compiles.

    The last part may overlap the one before; few tiles are padded to a power of two by repetition.
    """
    size, samples = rows.size, tile << max(blocks - 1, 0).bit_length()
    if size * tile**2 <= _FEW_NUMBERS:
        some = np.minimum(np.arange(1 << max(size - 1, 0).bit_length()), size - 1)
        return [Part(some, Places(samples, tile, rows[some], columns[some]))]
    most = max(1, min(_TILE_NUMBERS // tile**2, size))
    if has_rows:
        most = max(1, min(_ROW_NUMBERS // tile, most))
    length = -(-size // -(-size // most))
    parts = []
    for start in range(0, size, length):
        some = slice(min(start, size - length), min(start, size - length) + length)
        parts.append(Part(some, Places(samples, tile, rows[some], columns[some])))
    return parts


def _by_parts(step: Average, parts: list[Part], variance: np.ndarray, values: Values) -> Values:
    """The average on tiles, some at a time."""
    extra = parts[0].places.blocks - variance.shape[0]
    variance = np.concatenate([variance, np.repeat(variance[-1:], extra, axis=0)])
    average = _closed_average(step.sigma, step.gate is not None) or _series_average
    nothing, numbers = np.zeros((1, 1, 1)), _numbers(step)
    if len(parts) == 1 and isinstance(parts[0].which, slice):  # nothing to copy
        tangent = nothing if values.Theta is None else values.Theta
        made = average(step, parts[0].places, variance, values.K, tangent, numbers)
        return Values(*(np.ascontiguousarray(array) for array in made))
    K, Theta = np.empty_like(values.K), np.empty_like(values.K)
    for which, places in parts:
        tangent = nothing if values.Theta is None else values.Theta[which]
        K[which], Theta[which] = average(step, places, variance, values.K[which], tangent, numbers)
    return Values(K, Theta)


def _numbers(step: Average) -> np.ndarray:
    return np.array([*step.affine, *(step.gate or ())])


@lru_cache(maxsize=64)
def _closed_average(sigma: Activation, is_gated: bool):
    """K and Θ after an average that is known in closed form, one compiled pass; else None."""
    kernel = closed_kernel(sigma)
    if kernel is None:
        return None

    @jax.jit
    def run(
        variance: jax.Array, gram: jax.Array, Theta: jax.Array, numbers: jax.Array,
        rows: jax.Array, columns: jax.Array,
    ) -> jax.Array:  # fmt: skip
        scaled, variance = (
            (numbers[4] * gram, numbers[4] * variance) if is_gated else (gram, variance)
        )
        prepared = (jnp.sqrt(variance), *kernel.prepare(variance))
        root_left, *left = (number[rows] for number in prepared)
        root_right, *right = (number[columns] for number in prepared)
        if variance.ndim == 2:
            root_left, *left = (number[:, :, None] for number in (root_left, *left))
            root_right, *right = (number[:, None, :] for number in (root_right, *right))
        if not sigma.is_smooth:  # signals that are one up to rounding must be so exactly
            limit = root_left * root_right
            scaled = jnp.where(scaled >= (1.0 - _COINCIDENT) * limit, limit, scaled)
        slope = kernel.slope(left, right, scaled)
        value = kernel.value(left, right, scaled, slope)
        # As one array of complex numbers: of two arrays the compiler makes two loops, each with
        # the costly angle.
        return jax.lax.complex(
            *(_gated if is_gated else _plain)(value, slope, gram, Theta, numbers)
        )

    def average(step: Average, places: Places, variance, K, Theta, numbers):
        del step
        if places.tile % _LONG_ROW == 0:
            made = run(variance, K, Theta, numbers, *places.places)
        else:  # long vectors: the compiler makes slow loops of small tiles
            vectors = (array.reshape(-1) for array in (variance, K, Theta))
            made = run(*vectors, numbers, *places.samples_of_entries)
        joined = np.asarray(made).reshape(K.shape)
        return np.real(joined), np.imag(joined)

    return average


def _series_average(
    step: Average,
    places: Places,
    variance: Float[np.ndarray, "block tile"],
    K: Tiles,
    Theta: np.ndarray,
    numbers: np.ndarray,
) -> tuple[jax.Array, jax.Array]:
    """K and Θ after an average by Mehler's series."""
    gram, (rows, columns) = jnp.asarray(K), places.places
    C_W = 1.0 if step.gate is None else step.gate[0]
    blocks = C_W * variance
    coincident, scaled = _separated(blocks, C_W * gram, rows, columns)
    then = _plain_step if step.gate is None else _gated_step
    extra = gram, jnp.asarray(Theta), jnp.asarray(numbers), coincident, rows
    return kernel_step(step.sigma, places, blocks.reshape(-1), scaled, then, *extra)


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
    value: jax.Array, slope: jax.Array, gram: jax.Array, Theta: jax.Array, numbers: jax.Array
) -> tuple[jax.Array, jax.Array]:
    del gram
    return _affine(value, _tangent(slope, Theta), numbers)


def _gated(
    value: jax.Array, slope: jax.Array, gram: jax.Array, Theta: jax.Array, numbers: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """σ(h) g with independent h and g: K = ⟨σσ⟩R, R the covariance of g."""
    C_W, C_gate, lambda_W, lambda_gate = (numbers[4 + i] for i in range(4))
    R = C_gate * gram
    tangent = _tangent(slope, R * (lambda_W * gram + C_W * Theta))
    tangent = tangent + value * (lambda_gate * gram + C_gate * Theta)
    return _affine(value * R, tangent, numbers)


_compiled_plain, _compiled_gated = jax.jit(_plain), jax.jit(_gated)


def _affine(K: jax.Array, Theta: jax.Array, numbers: jax.Array) -> tuple[jax.Array, jax.Array]:
    C_W, C_b, lambda_W, lambda_b = (numbers[i] for i in range(len(Affine._fields)))
    return C_b + C_W * K, lambda_b + lambda_W * K + C_W * Theta


def _with_diagonal(
    step: KernelStep, coincident: jax.Array, rows: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """⟨σσ⟩ and ⟨σ'σ'⟩, of one variable where two signals are one."""

    def put(diagonal, values: jax.Array) -> jax.Array:
        blocks = jnp.asarray(diagonal).reshape(-1, values.shape[1])
        return jnp.where(coincident, blocks[rows][:, :, None], values)

    return put(step.value_diagonal, step.value), put(step.slope_diagonal, step.slope)


def _plain_step(step, gram, Theta, numbers, coincident, rows):
    return _plain(*_with_diagonal(step, coincident, rows), gram, Theta, numbers)


def _gated_step(step, gram, Theta, numbers, coincident, rows):
    return _gated(*_with_diagonal(step, coincident, rows), gram, Theta, numbers)
