"""⟨σ_aσ_b⟩ and ⟨σ'_aσ'_b⟩ for whole kernel matrices by Mehler's series, any activation.

With A_k(a) = E[σ(√K_aa x) h_k(x)], ⟨σ_aσ_b⟩ = Σ_k A_k(a) A_k(b) ρ_ab^k. Horner's rule runs as one
fused pass over each tile: the sum over Hermite orders stays in registers, so the cost is
arithmetic and not memory traffic. Pairs on which the series has not converged (nearly collinear
inputs and a kinked activation) are recomputed one by one with `two_point`. Derivation:
docs/derivations/gaussian-averages.md (D7.8), (D7.9).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._precision import IN_HASTE, float64
from dynagram.activations import Activation
from dynagram.gaussian._hermite import hermite_functions, hermite_table
from dynagram.gaussian._kernel_tiles import Index, KernelStep, Tiling
from dynagram.gaussian._quadrature import SMALLEST_VARIANCE, UNDERFLOW, shares_nodes, standard_nodes
from dynagram.gaussian._scalar import moment
from dynagram.gaussian._two_point import two_point

T = TypeVar("T")

_CHUNK = 16  # Hermite terms unrolled in one compiled pass
_FUSED_TERMS = (16, 32)
_FEW = 64  # samples for which compiling costs more than terms that are not needed, or slow code
_TERMS = (48, 64, 96, 128)
_TOLERANCE = 1e-13
_NODE_BLOCK = 32  # node counts are padded to multiples of this: few compiled shapes


@dataclass(frozen=True)
class _Table:
    """Hermite coefficients of one parity, and what they leave out.

    `missing` is the largest relative energy 1 − ΣA_k²/⟨σ²⟩ (or its analogue for σ') beyond the
    last order: Cauchy-Schwarz bounds the series' relative error by missing·|ρ|^last.
    """

    coefficients: jax.Array
    value_diagonal: np.ndarray
    slope_diagonal: np.ndarray
    missing: float
    last: int

    def error(self, rho: float) -> float:
        """Relative error of the series for correlations up to `rho`."""
        return self.missing * rho**self.last


def series_step(
    sigma: Activation,
    tiling: Tiling,
    variance: Index,
    tiles: jax.Array,
    then: Callable[..., T],
    extra: tuple[Any, ...],
) -> T:
    """`then` of ⟨σσ⟩ and ⟨σ'σ'⟩ by Mehler's series; see `kernel_map.kernel_step`."""
    safe = np.maximum(np.asarray(variance), SMALLEST_VARIANCE)
    if not sigma.jumps and shares_nodes(sigma):
        stride, offset = _stride(sigma.parity)
        few = tiling.samples <= _FEW
        for terms in _FUSED_TERMS[-1:] if few else _FUSED_TERMS:
            found, quality = _fused_pass(sigma, then, in_haste=few)(
                safe, tiles, *_nodes(sigma, _exponent(safe), terms), *tiling.places,
                tiling.samples, extra,
            )  # fmt: skip
            missing, largest = np.asarray(quality)
            if missing * largest ** (stride * terms + offset) <= _TOLERANCE:
                return found
    return _compiled(then)(_long_step(sigma, tiling, np.asarray(variance), safe, tiles), *extra)


@functools.lru_cache(maxsize=128)
def _compiled(then: Callable[..., Any]):
    return jax.jit(then)


@functools.lru_cache(maxsize=128)
def _fused_pass(sigma: Activation, then: Callable[..., Any], *, in_haste: bool):
    """Coefficients, series and `then` in one compiled pass, for few terms, and their quality."""

    @functools.partial(jax.jit, compiler_options=IN_HASTE if in_haste else None)
    def run(
        variance: Index, tiles: jax.Array, t: jax.Array, w: jax.Array, h: jax.Array,
        i: Index, j: Index, samples: int | jax.Array, extra: tuple[Any, ...],
    ):  # fmt: skip
        v = jnp.asarray(variance)
        mean, slopes, value_diagonal, slope_diagonal = _node_values(sigma)(v, t, w)
        table, missing = _project(
            h, mean, slopes, v, value_diagonal, slope_diagonal, parity=sigma.parity
        )
        blocked = v.reshape(-1, tiles.shape[1])
        rho, largest = _correlation(blocked, tiles, i, j, samples)
        value, slope = _horner_steps(
            jnp.zeros_like(rho), jnp.zeros_like(rho), rho,
            table.reshape(table.shape[0], *blocked.shape), blocked, 0, i, j,
            parity=sigma.parity, lowest=True,
        )  # fmt: skip
        step = KernelStep(value, slope, _cleaned(value_diagonal), slope_diagonal)
        return then(step, *extra), jnp.stack([missing, largest])

    return run


def _long_step(
    sigma: Activation,
    tiling: Tiling,
    variance: np.ndarray,
    safe: np.ndarray,
    tiles: jax.Array,
) -> KernelStep:
    """Many terms, a chunk of them at a time; pairs that still miss the tolerance one by one."""
    (rows, columns), samples = tiling.places, tiling.samples
    padded = jnp.asarray(safe.reshape(tiling.blocks, tiling.tile))
    rho, largest = _correlation(padded, tiles, rows, columns, samples)
    table = _table(sigma, safe, float(largest))
    blocked = table.coefficients.reshape(-1, tiling.blocks, tiling.tile)
    value, slope = jnp.zeros_like(rho), jnp.zeros_like(rho)
    for start in range(blocked.shape[0] - _CHUNK, -1, -_CHUNK):
        value, slope = _horner(
            value, slope, rho, blocked[start : start + _CHUNK], padded, start, rows, columns,
            parity=sigma.parity, lowest=start == 0,
        )  # fmt: skip
    value_diagonal = _cleaned(jnp.asarray(table.value_diagonal))
    step = KernelStep(value, slope, value_diagonal, table.slope_diagonal)
    if table.error(float(largest)) <= _TOLERANCE:
        return step
    limit = (_TOLERANCE / table.missing) ** (1.0 / table.last)
    return _recompute(sigma, tiling, variance, tiles, np.abs(np.asarray(rho)) > limit, step)


def _cleaned(values: jax.Array) -> jax.Array:
    """Without the traces of what stands for a zero variance."""
    return jnp.where(values < UNDERFLOW, 0.0, values)


def _exponent(variance: np.ndarray) -> int:
    """Nodes are made for variances up to a power of four, so that few sets of them exist."""
    return max(-1, math.ceil(math.log(float(variance.max()), 4)))


def _table(sigma: Activation, variance: np.ndarray, largest: float) -> _Table:
    """As many coefficients as correlations up to `largest` need, up to 128 of one parity."""
    if sigma.jumps or not shares_nodes(sigma):
        return _general_table(sigma, variance)
    t, w, h = _nodes(sigma, _exponent(variance), _TERMS[-1])
    mean, slopes, value_diagonal, slope_diagonal = _node_values(sigma)(jnp.asarray(variance), t, w)
    if sigma.kinks:
        slope_diagonal = jnp.asarray(_kinked_slopes(sigma, variance))
    stride, offset = _stride(sigma.parity)

    def first(terms: int) -> _Table:
        coefficients, missing = _project(
            h[:terms], mean, slopes, jnp.asarray(variance), value_diagonal, slope_diagonal,
            parity=sigma.parity,
        )  # fmt: skip
        diagonals = np.asarray(value_diagonal), np.asarray(slope_diagonal)
        return _Table(coefficients, *diagonals, float(missing), stride * terms + offset)

    tables = (first(terms) for terms in _TERMS)
    return next((t for t in tables if t.error(largest) <= _TOLERANCE), None) or first(_TERMS[-1])


def _kinked_slopes(sigma: Activation, variance: np.ndarray) -> np.ndarray:
    """⟨σ'²⟩; infinite when σ jumps and σ' is a delta."""
    if sigma.jumps:
        return np.full(variance.shape, np.inf)
    return moment(sigma, variance, (1, 1))


def _stride(parity: str) -> tuple[int, int]:
    """Order of term n: stride·n + offset."""
    return (1, 0) if parity == "none" else (2, 1 if parity == "odd" else 0)


@functools.lru_cache(maxsize=128)
@float64
def _nodes(sigma: Activation, exponent: int, terms: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Nodes good for variances up to 4^exponent, weights, and w·h_{k−1}/√k of the right parity.

    A_k = √(K/k) E[σ' h_{k−1}]: from σ' the coefficients keep their digits at any K, small or not.
    """
    nodes, weights = standard_nodes(sigma, np.array([4.0**exponent]), factors=2)
    t, w = nodes[0], weights[0]
    if sigma.parity != "none":  # every integrand is even: half of the nodes do
        t, w = t[t >= 0], np.where(t > 0, 2.0, 1.0)[t >= 0] * w[t >= 0]
    extra = -t.size % _NODE_BLOCK
    t, w = np.pad(t, (0, extra)), np.pad(w, (0, extra))
    stride, offset = _stride(sigma.parity)
    orders = stride * np.arange(terms) + offset
    every = hermite_functions(t, int(orders[-1]) + 1)
    lower = np.where(orders[:, None] > 0, every[np.maximum(orders - 1, 0)], 0.0)
    h = lower * w / np.sqrt(np.maximum(orders, 1))[:, None]
    return jax.device_put(t), jax.device_put(w), jax.device_put(h)


@functools.lru_cache(maxsize=128)
def _node_values(sigma: Activation):
    @jax.jit
    def values(variance: jax.Array, t: jax.Array, w: jax.Array):
        z = jnp.sqrt(variance)[:, None] * t[None, :]
        sigma_z, slope_z = sigma(z), sigma.derivative(1)(z)
        return sigma_z @ w, slope_z, (sigma_z * sigma_z) @ w, (slope_z * slope_z) @ w

    return values


@functools.partial(jax.jit, static_argnames="parity")
def _project(
    h: jax.Array, mean: jax.Array, slopes: jax.Array, variance: jax.Array, total: jax.Array,
    slope_total: jax.Array, *, parity: str,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    coefficients = jnp.sqrt(variance)[None, :] * (h @ slopes.T)
    if parity != "odd":
        coefficients = coefficients.at[0].set(mean)
    return coefficients, _missing(coefficients, variance, total, slope_total, parity)


def _missing(
    coefficients: jax.Array, variance: jax.Array, total: jax.Array, slope_total: jax.Array,
    parity: str,
) -> jax.Array:  # fmt: skip
    """Largest relative energy of σ and σ' beyond the last coefficient (Parseval)."""
    stride, offset = _stride(parity)
    order = stride * jnp.arange(coefficients.shape[0]) + offset
    energy = coefficients**2
    value = 1.0 - jnp.sum(energy, axis=0) / jnp.maximum(total, 1e-290)
    slope_energy = jnp.sum(order[:, None] * energy, axis=0) / variance
    slope = 1.0 - slope_energy / jnp.maximum(slope_total, 1e-290)
    return jnp.max(jnp.maximum(jnp.abs(value), jnp.abs(slope)))


def _general_table(sigma: Activation, variance: np.ndarray) -> _Table:
    """Kinks or features away from zero: every variance has its own nodes."""
    stride, offset = _stride(sigma.parity)
    orders = np.arange(1, stride * _TERMS[-1] + 1)
    # From σ', as in `_nodes`: beside σ(0) what σ does at small K would be lost to rounding.
    slopes = np.sqrt(variance / orders[:, None]) * hermite_table(sigma, variance, 1, orders.size)
    table = np.concatenate([hermite_table(sigma, variance, 0, 1), slopes])
    table = table[offset::stride][: _TERMS[-1]]
    value, slope = moment(sigma, variance, (0, 0)), _kinked_slopes(sigma, variance)
    missing = _missing(
        jnp.asarray(table),
        jnp.asarray(variance),
        jnp.asarray(value),
        jnp.asarray(slope),
        sigma.parity,
    )
    return _Table(jnp.asarray(table), value, slope, float(missing), stride * _TERMS[-1] + offset)


@jax.jit
def _correlation(
    variance: jax.Array, tiles: jax.Array, i: Index, j: Index, samples: int | jax.Array
) -> tuple[jax.Array, jax.Array]:
    """ρ in tiles, and its largest modulus over the pairs a < b < samples."""
    scale = jax.lax.rsqrt(variance)
    rho = jnp.clip(tiles * scale[i][:, :, None] * scale[j][:, None, :], -1.0, 1.0)
    size = tiles.shape[1]
    a = i[:, None, None] * size + jnp.arange(size)[None, :, None]
    b = j[:, None, None] * size + jnp.arange(size)[None, None, :]
    return rho, jnp.max(jnp.where((a < b) & (b < samples), jnp.abs(rho), 0.0))


def _horner_steps(
    value: jax.Array, slope: jax.Array, rho: jax.Array, table: jax.Array, variance: jax.Array,
    start: int | jax.Array, i: Index, j: Index, *, parity: str, lowest: bool,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """One chunk of Horner steps for Σ A_kA_k ρ^k and for its derivative Σ k A_kA_k ρ^{k−1}.

    With one parity both run in ρ², and the odd factor ρ is put in at the end. σ' has the
    coefficients √(k+1) A_{k+1}/√K, hence the factor 1/√(K_aa K_bb) of the second sum.
    """
    stride, offset = _stride(parity)
    step = rho if stride == 1 else rho * rho
    left, right = table[:, i], table[:, j]
    for n in range(table.shape[0] - 1, -1, -1):
        term = left[n][:, :, None] * right[n][:, None, :]
        value = value * step + term
        if not (lowest and n == 0 and offset == 0):  # the constant term has no derivative
            slope = slope * step + (stride * (start + n) + offset) * term
    if not lowest:
        return value, slope
    scale = jax.lax.rsqrt(variance)
    slope = slope * (scale[i][:, :, None] * scale[j][:, None, :])
    if parity == "odd":
        value = value * rho
    if parity == "even":
        slope = slope * rho
    return jnp.where(jnp.abs(value) < UNDERFLOW, 0.0, value), slope


_horner = jax.jit(_horner_steps, static_argnames=("parity", "lowest"), donate_argnums=(0, 1))


def _recompute(
    sigma: Activation,
    tiling: Tiling,
    variance: np.ndarray,
    tiles: jax.Array,
    late: np.ndarray,
    step: KernelStep,
) -> KernelStep:
    """Replace the entries on which the series has not converged."""
    index, row, column = np.nonzero(late)
    a = tiling.rows[index] * tiling.tile + row
    b = tiling.columns[index] * tiling.tile + column
    keep = (a < b) & (b < tiling.samples)
    if not np.any(keep):
        return step
    index, row, column, a, b = (v[keep] for v in (index, row, column, a, b))
    covariance = np.asarray(tiles)[index, row, column]
    limit = np.sqrt(variance[a]) * np.sqrt(variance[b])
    covariance = np.clip(covariance, -limit, limit)
    value, slope = np.array(step.value), np.array(step.slope)
    value[index, row, column] = two_point(sigma, variance[a], variance[b], covariance)
    slope[index, row, column] = two_point(sigma, variance[a], variance[b], covariance, 1, 1)
    return KernelStep(
        jnp.asarray(value), jnp.asarray(slope), step.value_diagonal, step.slope_diagonal
    )
