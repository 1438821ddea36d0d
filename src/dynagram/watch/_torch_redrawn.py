"""Bands of the beginning for any PyTorch model: the same quantities on the model drawn again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dynagram.errors import DynagramError, InvalidTypeError, InvalidValueError
from dynagram.live._torch_layers import unwrapped
from dynagram.watch._band import FAMILY, Band
from dynagram.watch._context import Context, Memory
from dynagram.watch._look import Look
from dynagram.watch._measure import measure_quantities, one_line
from dynagram.watch._record import Key
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
    a new value from the same distribution, if it is normal. The range of alarm is wider, so that of
    a thousand healthy models one raises any. Positive quantities are taken by their
    logarithm, parts of a whole by log p/(1 − p). Random numbers of the training are left as they
    are. Cost: `draws` records.
    """
    from scipy.stats import t as student

    names = [name for name in quantities if name in DRAWN]
    numbers: dict[Key, list[float]] = {}
    units: dict[str, int] = {}
    with torch.random.fork_rng():
        for number in range(draws):
            torch.manual_seed(7919 * number + 1)
            model = _called(fresh)
            if not isinstance(model, torch.nn.Module):
                allowed = "expected a function that returns a torch.nn.Module"
                raise InvalidTypeError("fresh", type(model).__name__, allowed)
            try:
                recorder = TorchRecorder(unwrapped(model), probe, loss, samples)
            except DynagramError as error:
                allowed = f"makes a model that cannot be watched: {error}"
                raise InvalidValueError("fresh", type(model).__name__, allowed) from error
            if recorder.names != list(layers):
                allowed = "makes a model with other layers than the one that is watched"
                raise InvalidValueError("fresh", type(model).__name__, allowed)
            look = _looked(recorder)
            values, _, _ = measure_quantities(Context(look, Memory(), 0), names, None)
            units = {layer.name: int(layer.weight.shape[0]) for layer in look.layers}
            for key, value in values.items():
                numbers.setdefault(key, []).append(value)
    usable = {
        key: np.array(drawn)
        for key, drawn in numbers.items()
        if len(drawn) == draws and np.all(np.isfinite(drawn))
    }
    tails = 0.975, 1.0 - FAMILY / (2 * max(len(usable), 1))
    factors = [float(student.ppf(p, draws - 1)) * np.sqrt(1.0 + 1.0 / draws) for p in tails]
    return {
        key: _band_of_counts(drawn, units[key[1]], tails)
        if key[0] == "dead"
        else _band(key, drawn, factors)
        for key, drawn in usable.items()
    }


def _called(fresh: Callable[[], Any]) -> Any:
    name = getattr(fresh, "__name__", type(fresh).__name__)
    try:
        return fresh()
    except Exception as error:  # before training begins the user can mend it
        raise InvalidValueError("fresh", name, f"makes no model: {one_line(error)}") from error


def _looked(recorder: TorchRecorder) -> Look:
    try:
        return recorder.look()
    except Exception as error:
        allowed = f"makes a model that cannot be looked at: {one_line(error)}"
        raise InvalidValueError("fresh", type(recorder.module).__name__, allowed) from error


def _band_of_counts(drawn: np.ndarray, units: int, tails: Sequence[float]) -> Band:
    """Of a part of the units: quantiles of the next count, given those that were seen."""
    from scipy.stats import betabinom

    dead = float(np.sum(drawn)) * units
    law = betabinom(units, dead + 0.5, len(drawn) * units - dead + 0.5)
    high, alarm = (float(law.ppf(p)) / units for p in tails)
    return Band(float(np.mean(drawn)), 0.0, high, "redrawn", (0.0, alarm))


def _band(key: Key, drawn: np.ndarray, factors: Sequence[float]) -> Band:
    forward, back = _scale(key[0], drawn)
    seen = forward(drawn)
    # Numbers that all draws share are no range but rounding.
    middle = float(np.mean(seen))
    spread = max(float(np.std(seen, ddof=1)), 1e-5 * max(abs(middle), 1.0))
    ends = [float(back(middle + sign * f * spread)) for f in factors for sign in (-1.0, 1.0)]
    return Band(float(back(middle)), ends[0], ends[1], "redrawn", (ends[2], ends[3]))


def _scale(name: str, drawn: np.ndarray) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Where the quantity is nearly normal, and the way back."""
    if name in ("weight_norm", "activation", "gradient") and np.all(drawn > 0):
        return np.log, np.exp
    if name == "kernel_share" and np.all((drawn > 0) & (drawn < 1)):
        return lambda p: np.log(p / (1 - p)), lambda q: 1 / (1 + np.exp(-q))
    return lambda value: value, lambda value: value
