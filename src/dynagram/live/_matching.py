"""Which of our blocks without weights turns one array into another: decided by the numbers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._precision import float64
from dynagram.activations import Activation, activation
from dynagram.live._layouts import LiveSignal, alike
from dynagram.networks.blocks import Activate, AveragePool, LayerNorm, RMSNorm, Select
from dynagram.networks.blocks._block import Block, Shape

_NAMES = (
    "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "elu", "selu", "softplus", "mish",
    "softsign", "hardtanh", "relu2", "sin", "erf", "abs",
)  # fmt: skip
_EPSILONS = (1e-5, 1e-6, 1e-8, 1e-12, 0.0)
_SAMPLE = 512


@functools.cache
def _known() -> tuple[Activation, ...]:
    known = []
    for name in _NAMES:
        try:
            known.append(activation(name))
        except ValueError:
            continue
    return tuple(known)


def match_activation(before: np.ndarray, after: np.ndarray) -> Activation | None:
    """The activation that made `after` of `before`, entry by entry; None where none did.

    >>> z = np.linspace(-2, 2, 41)
    >>> match_activation(z, np.tanh(z)).name, match_activation(z, z**3)
    ('tanh', None)
    >>> match_activation(1e9 * z, np.maximum(1e9 * z, 0)).name
    'relu'
    """
    if before.shape != after.shape or before.size < 2:
        return None
    order = np.argsort(before.ravel())
    chosen = order[np.linspace(0, order.size - 1, _SAMPLE).astype(int)]
    x, y = before.ravel()[chosen], after.ravel()[chosen]
    values = list(zip(_known(), _values(x), strict=True))
    for tolerance in (0.0, 1e-12, 1e-7):  # a small signal hardly tells functions apart
        fitting = [sigma for sigma, made in values if alike(made, y, tolerance)]
        if fitting and tolerance == 0.0:
            return fitting[0]  # the same numbers: ReLU, where a huge signal makes others of it
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
    return _leaky(x, y)


def is_activation(sigma: Activation, before: np.ndarray, after: np.ndarray) -> bool:
    """Whether an activation makes `after` of `before`, as far as a sample shows.

    >>> z = np.linspace(-9, 9, 41)
    >>> is_activation(activation("relu"), z, np.clip(z, 0, 6))
    False
    """
    chosen = np.linspace(0, before.size - 1, _SAMPLE).astype(int)
    x, y = before.ravel()[chosen], after.ravel()[chosen]
    values = {one.name: made for one, made in zip(_known(), _values(x), strict=True)}
    if sigma.name in values:
        return alike(values[sigma.name], y)
    leaky = sigma.homogeneity
    return leaky is None or alike(np.where(x > 0, leaky.plus * x, -leaky.minus * x), y)


@float64
def _values(x: np.ndarray) -> tuple[np.ndarray, ...]:
    """All known activations of `_SAMPLE` numbers."""
    return tuple(np.asarray(y) for y in _all_values(jnp.asarray(x, jnp.float64)))


@jax.jit  # one program for all: a hundred eager calls take seconds
def _all_values(x: jax.Array) -> list[jax.Array]:
    return [sigma(x) for sigma in _known()]


def _leaky(x: np.ndarray, y: np.ndarray) -> Activation | None:
    below, above = x < 0, x > 0
    if not np.any(below) or not np.any(above) or not alike(y[above], x[above]):
        return None
    slope = round(float(np.mean(y[below] / x[below])), 10)
    if not 0.0 < slope < 1.0 or not alike(y[below], slope * x[below]):
        return None
    return activation(f"leaky_relu({slope!r})")


def matching_blocks(
    signal: LiveSignal, before: np.ndarray, after: np.ndarray
) -> Iterator[tuple[Block, LiveSignal]]:
    """The blocks without weights that make the array `after` of `before`, each with its signal.

    A norm behind a norm looks like a leaky ReLU that hardly leaks: who asks takes the first that
    holds for other numbers too.
    """
    sigma, made = match_activation(before, after), signal.after(after)
    if sigma is not None and made is not None:
        yield Activate(sigma), made
    normed = _match_norm(signal, after)
    if normed is not None:
        yield normed
    pooled = _match_pool(signal, after)
    if pooled is not None:
        yield pooled


def _match_norm(signal: LiveSignal, after: np.ndarray) -> tuple[Block, LiveSignal] | None:
    made = signal.after(after)
    if made is None or made.values.shape != signal.values.shape:
        return None
    for kind in (LayerNorm, RMSNorm):
        for epsilon in (*_EPSILONS, _epsilon(kind, signal.values, made.values)):
            if epsilon is not None and alike(made.values, _normed(kind, epsilon, signal.values)):
                return kind(epsilon), made
    return None


def _epsilon(kind: Any, x: np.ndarray, y: np.ndarray) -> float | None:
    """ε of y² = x²/(mean(x²) + ε) in three digits, where it is one that a norm can have."""
    if kind is LayerNorm:
        x = x - x.mean(axis=-1, keepdims=True)
    square, made = (np.mean(v**2, axis=-1) for v in (x, y))
    if not np.all(made > 0.0):
        return None
    epsilon = float(np.median(square / made - square))
    return float(f"{epsilon:.3g}") if epsilon > 0.0 else None


def _normed(kind: Any, epsilon: float, x: np.ndarray) -> np.ndarray:
    if kind is LayerNorm:
        x = x - x.mean(axis=-1, keepdims=True)
    square = np.mean(x**2, axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return x / np.sqrt(square + epsilon)


def _match_pool(signal: LiveSignal, after: np.ndarray) -> tuple[Block, LiveSignal] | None:
    samples, positions, channels = signal.values.shape
    if positions == 1:
        return None
    shape = Shape(signal.grid, channels)
    if after.size == samples * channels:
        values = after.reshape(samples, 1, channels)
        candidates: list[Block] = [AveragePool(), Select(-1), Select(0)]
        candidates += [Select(i) for i in range(1, positions - 1)]
        for block in candidates:
            if alike(np.einsum("op,spc->soc", block.mixing(shape), signal.values), values):  # pyright: ignore[reportAttributeAccessIssue]
                return block, LiveSignal(values, (), "last")
        return None
    if signal.layout != "first" or after.shape[:2] != (samples, channels):
        return None
    grid = after.shape[2:]
    size = signal.grid[0] // max(grid[0], 1) if len(grid) == len(signal.grid) else 0
    if size < 2 or any(g != size * new for g, new in zip(signal.grid, grid, strict=True)):
        return None
    block = AveragePool(size)
    values = after.reshape(samples, channels, -1).transpose(0, 2, 1)
    if alike(np.einsum("op,spc->soc", block.mixing(shape), signal.values), values):
        return block, LiveSignal(values, grid, "first")
    return None
