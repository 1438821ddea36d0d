"""What modules keep in attributes of their own: put back after a pass that is not training."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

_TABLES = ("_parameters", "_buffers", "_modules")


@contextlib.contextmanager
def same_attributes(module: nn.Module) -> Iterator[None]:
    """Afterwards every attribute of every part is the object that it was.

    So a hidden state, a counter, an auxiliary loss or a cache that `forward` sets anew is again
    that of the last training step. Generators of random numbers in attributes go on from where
    they were; lists and other objects that a pass changes are not protected.

    >>> layer = nn.Linear(2, 2)
    >>> layer.calls = 3
    >>> with same_attributes(layer):
    ...     layer.calls = 4
    >>> layer.calls
    3
    """
    parts = [p for p in module.modules() if not isinstance(p, torch.jit.ScriptModule)]
    kept = [(vars(part), dict(vars(part))) for part in parts]
    kept += [(vars(part)[name], dict(vars(part)[name])) for part in parts for name in _TABLES]
    rewinds = [
        rewind
        for part in parts
        for value in vars(part).values()
        if (rewind := _rewind(value)) is not None
    ]
    try:
        yield
    finally:
        for table, before in kept:
            if not _is_same(table, before):
                table.clear()
                table.update(before)
        for rewind in rewinds:
            rewind()


def _is_same(table: dict[str, Any], before: dict[str, Any]) -> bool:
    return len(table) == len(before) and all(
        name in table and table[name] is value for name, value in before.items()
    )


def _rewind(value: Any) -> Callable[[], Any] | None:
    """Puts a generator of random numbers back to where it is now; None for all else."""
    if isinstance(value, torch.Generator | np.random.RandomState):
        return functools.partial(value.set_state, value.get_state())
    if isinstance(value, random.Random):
        return functools.partial(value.setstate, value.getstate())
    if isinstance(value, np.random.Generator):
        return functools.partial(setattr, value.bit_generator, "state", value.bit_generator.state)
    return None
