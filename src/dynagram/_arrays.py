"""NumPy and JAX arrays by the same formulas: large tensors stay where JAX computes them."""

from __future__ import annotations

from types import ModuleType
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._memory import machine_memory

Array = np.ndarray | jax.Array
# Of a function that returns the kind of array it is given.
SameArray = TypeVar("SameArray", bound=np.ndarray | jax.Array)


def array_namespace(array: Array) -> ModuleType:
    """The module whose functions take `array` without moving it: `numpy` or `jax.numpy`.

    >>> array_namespace(np.ones(1)).__name__
    'numpy'
    """
    return jnp if isinstance(array, jax.Array) else np


def memory_limit() -> int | None:
    """Bytes that large arrays may fill: of the accelerator, else of this machine; None: unknown.

    >>> limit = memory_limit()
    >>> limit is None or limit > 1e8
    True
    """
    statistics = jax.devices()[0].memory_stats()
    if statistics and "bytes_limit" in statistics:
        return statistics["bytes_limit"]
    return machine_memory()
