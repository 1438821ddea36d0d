"""How JAX computes for us: in float64 without global state, where, and compiled with what care."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Concatenate, ParamSpec, TypeVar

import jax
import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

# To `jax.jit` for what runs a few times on little: most of its time is spent in the compiler.
IN_HASTE = {"xla_backend_optimization_level": 0}


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


@functools.cache
def _host() -> Any:  # a device, None where there is none
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # JAX was told to know the accelerator only
        return None


def on_host() -> AbstractContextManager[object]:
    """JAX on the CPU, beside an accelerator too: for what is small, and waited for.

    To send a few thousand numbers to an accelerator, and to compile for it, takes longer than to
    compute them.

    >>> with on_host():
    ...     jax.numpy.ones(1).device.platform
    'cpu'
    """
    if jax.default_backend() == "cpu" or (host := _host()) is None:
        return nullcontext()
    return jax.default_device(host)


def own_precision(
    function: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], T]:
    """Run `function` in the precision of its first argument, a pytree of arrays.

    With 64-bit JAX where an array of it has 64 bits, which JAX would otherwise cut to 32.

    >>> str(own_precision(lambda tree: jax.numpy.sin(tree[0]).dtype)([np.ones(2)]))
    'float64'
    """

    @functools.wraps(function)
    def wrapped(first: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        is_double = any(leaf.dtype == np.float64 for leaf in jax.tree.leaves(first))
        with jax.enable_x64(True) if is_double else nullcontext():
            return function(first, *args, **kwargs)

    return wrapped
