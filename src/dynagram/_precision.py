"""Float64 without global state: theory runs inside `float64()` and returns NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
T = TypeVar("T")


def float64(function: Callable[P, T]) -> Callable[P, T]:
    """Run `function` with 64-bit JAX arrays, leaving the caller's JAX configuration as it was.

    >>> import jax.numpy as jnp
    >>> str(float64(lambda: jnp.ones(2).dtype)())
    'float64'
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped
