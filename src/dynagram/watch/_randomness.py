"""Random numbers that others draw: kept as they are while we import and look."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def same_numbers() -> Iterator[None]:
    """Python's and NumPy's global generators go on afterwards as if nothing had been drawn.

    Importing JAX for the first time draws from NumPy's.

    >>> random.seed(0)
    >>> with same_numbers():
    ...     first = random.random()
    >>> random.random() == first
    True
    """
    states = random.getstate(), np.random.get_state()  # noqa: NPY002 - others' generator
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
