"""Bands of the beginning for any PyTorch model: the same quantities on the model drawn again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.live._torch_layers import unwrapped
from dynagram.watch._band import Band
from dynagram.watch._context import Context, Memory
from dynagram.watch._measure import measure_quantities
from dynagram.watch._record import Key
from dynagram.watch._registry import QUANTITIES
from dynagram.watch._torch_recorder import TorchRecorder

# What a draw of the weights decides; the rest belongs to the training or has a null of its own.
DRAWN = ("weight_norm", "activation", "gradient", "similarity", "kernel_share", "dead")


def redrawn_bands(
    fresh: Callable[[], Any],
    probe: Any,
    loss: Any,
    samples: int,
    draws: int,
    layers: Sequence[str],
    quantities: Sequence[str],
) -> dict[Key, Band]:
    """95 % ranges of one more draw, from `draws` models that `fresh` makes.

    The range is mean ± t·s·√(1 + 1/draws), t of Student with draws − 1 degrees of freedom: that of
    a new value from the same distribution, if it is normal. Positive quantities are taken by their
    logarithm, parts of a whole by log p/(1 − p). Random numbers of the training are left as they
    are. Cost: `draws` records.
    """
    from scipy.stats import t as student

    names = [name for name in quantities if name in DRAWN]
    numbers: dict[Key, list[float]] = {}
    with torch.random.fork_rng():
        for number in range(draws):
            torch.manual_seed(7919 * number + 1)
            model = fresh()
            if not isinstance(model, torch.nn.Module):
                allowed = "expected a function that returns a torch.nn.Module"
                raise InvalidTypeError("fresh", type(model).__name__, allowed)
            recorder = TorchRecorder(unwrapped(model), probe, loss, samples)
            if recorder.names != list(layers):
                allowed = "makes a model with other layers than the one that is watched"
                raise InvalidValueError("fresh", type(model).__name__, allowed)
            values, _, _ = measure_quantities(Context(recorder.look(), Memory(), 0), names, None)
            for key, value in values.items():
                numbers.setdefault(key, []).append(value)
    factor = float(student.ppf(0.975, draws - 1)) * np.sqrt(1.0 + 1.0 / draws)
    return {
        key: _band(key, np.array(drawn), factor)
        for key, drawn in numbers.items()
        if len(drawn) == draws and np.all(np.isfinite(drawn))
    }


def _band(key: Key, drawn: np.ndarray, factor: float) -> Band:
    forward, back = _scale(QUANTITIES[key[0]].name, drawn)
    seen = forward(drawn)
    middle, width = float(np.mean(seen)), factor * float(np.std(seen, ddof=1))
    # Numbers that all draws share, such as the first layer's similarity: rounding, not a range.
    width = max(width, 1e-5 * abs(middle))
    return Band(float(back(middle)), float(back(middle - width)), float(back(middle + width)),
                "redrawn")  # fmt: skip


def _scale(name: str, drawn: np.ndarray) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Where the quantity is nearly normal, and the way back."""
    if name in ("weight_norm", "activation", "gradient") and np.all(drawn > 0):
        return np.log, np.exp
    if name == "kernel_share" and np.all((drawn > 0) & (drawn < 1)):
        return lambda p: np.log(p / (1 - p)), lambda q: 1 / (1 + np.exp(-q))
    return lambda value: value, lambda value: value
