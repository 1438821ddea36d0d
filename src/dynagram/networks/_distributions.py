"""Distributions of unit variance that parameters may be drawn from, by name."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
from jaxtyping import Array

Draw = Callable[[Array, tuple[int, ...], jax.typing.DTypeLike], Array]
# The standard deviation of a normal number cut at ±2.
_CUT = 2.0
_CUT_DENSITY = math.exp(-0.5 * _CUT**2) / math.sqrt(2.0 * math.pi) / math.erf(_CUT / math.sqrt(2.0))
_CUT_STD = math.sqrt(1.0 - 2.0 * _CUT * _CUT_DENSITY)


def _uniform(key: Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike) -> Array:
    edge = math.sqrt(3.0)
    return jax.random.uniform(key, shape, dtype, -edge, edge)


def _truncated(key: Array, shape: tuple[int, ...], dtype: jax.typing.DTypeLike) -> Array:
    return jax.random.truncated_normal(key, -_CUT, _CUT, shape, dtype) / _CUT_STD


DISTRIBUTIONS: dict[str, Draw] = {
    "normal": jax.random.normal,
    "uniform": _uniform,
    "truncated-normal": _truncated,
}
# E[w⁴] − 3 of each.
KURTOSES = {
    "normal": 0.0,
    "uniform": -1.2,
    "truncated-normal": (3.0 * _CUT_STD**2 - 2.0 * _CUT**3 * _CUT_DENSITY) / _CUT_STD**4 - 3.0,
}
