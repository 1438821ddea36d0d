"""Signals that vanish or explode from layer to layer, and the gain that would keep their size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dynagram.gaussian._scalar import moment
from dynagram.live._causes import Cause
from dynagram.networks import Chain
from dynagram.networks.blocks import Activate, Conv, Dense, Residual
from dynagram.results._table import short
from dynagram.theory.chain import Birth

_TOO_MUCH = 1e3  # over all hidden layers: nothing is left, or too much
_MUCH = 8.0


def find_drift(
    network: Chain,
    birth: Birth | None,
    slopes: Sequence[float],
    declared: bool,
    notes: list[str],
) -> list[Cause]:
    """Whether hidden signals, or gradients on their way back, shrink or grow too much with depth.

    Less of it becomes a note. `slopes` are the mean squares of ∂f/∂x after every block.
    """
    if declared:
        return []
    _of_matrices(network, notes)
    if birth is None:
        return []
    if any(isinstance(block, Residual) for block in network.blocks):
        _of_stream(birth, notes)
        return []
    hidden = [i for i, b in enumerate(network.blocks[:-1]) if isinstance(b, Dense | Conv)]
    if len(hidden) < 2:
        return []
    first, last = (birth.stages[i].mean_square for i in (hidden[0], hidden[-1]))
    ratio = last / first if first > 0 else 1.0
    change = max(ratio, 1.0 / max(ratio, 1e-300))
    if change < _MUCH:
        return _of_gradients([slopes[i] for i in hidden], notes)
    gain = _gain(network, hidden)
    per_layer = ratio ** (1.0 / (len(hidden) - 1))
    word = "shrink" if ratio < 1 else "grow"
    text = (
        f"mean squares {word} by a factor {short(per_layer, 2)} a layer, {short(ratio, 2)} in all"
    )
    if gain is not None:
        text += f"; W of variance {short(gain, 3)}/fan-in would keep them"
    if change < _TOO_MUCH:
        notes.append(text)
        return []
    name = "gain missing" if ratio < 1 else "gain too large"
    fix = ""
    if gain is not None:
        fix = (
            "for module in model.modules():\n"
            "    if isinstance(module, torch.nn.Linear):\n"
            f"        torch.nn.init.normal_(module.weight, std=({gain:.4g} / module.in_features)"
            " ** 0.5)"
        )
    return [Cause(name, f"{name}: {text}", (), fix)]


def _of_gradients(slopes: list[float], notes: list[str]) -> list[Cause]:
    """Signals keep their size, and gradients need not: saturated units make them explode."""
    if not slopes[0] > 0.0 or not slopes[-1] > 0.0:
        return []
    ratio = slopes[0] / slopes[-1]
    if max(ratio, 1.0 / ratio) < _MUCH**2:
        return []
    per_layer = ratio ** (1.0 / (len(slopes) - 1))
    word = "grow" if ratio > 1 else "shrink"
    text = (
        f"squared gradients {word} by a factor {short(per_layer, 2)} a layer on their way back, "
        f"{short(ratio, 2)} in all, while signals keep their size"
    )
    if ratio < _TOO_MUCH:
        notes.append(text)
        return []
    return [Cause("gradients explode", f"gradients explode: {text}: the weights are too large")]


def _of_matrices(network: Chain, notes: list[str]) -> None:
    """Two matrices with nothing in between are one."""
    pairs = zip(network.blocks[:-1], network.blocks[1:], strict=True)
    count = sum(isinstance(one, Dense) and isinstance(two, Dense) for one, two in pairs)
    if count:
        times = "once" if count == 1 else f"{count} times"
        notes.append(
            f"a dense layer follows another without an activation, {times}: the two are one matrix"
        )


def _gain(network: Chain, hidden: list[int]) -> float | None:
    """C_W that keeps a mean square of 1, for the one activation that there is."""
    sigmas = {b.activation for b in network.blocks if isinstance(b, Activate)}
    if len(sigmas) != 1 or not hidden:
        return None
    square = float(moment(sigmas.pop(), np.array([1.0]), (0, 0))[0])
    return 1.0 / square if square > 0 else None


def _of_stream(birth: Birth, notes: list[str]) -> None:
    places = [i for i, b in enumerate(birth.network.blocks) if isinstance(b, Residual)]
    if len(places) < 3 or places[0] == 0:
        return
    first, last = (birth.stages[i].mean_square for i in (places[0] - 1, places[-1]))
    if first > 0 and last / first > _MUCH:
        notes.append(
            f"the stream grows {short(last / first, 2)}-fold over {len(places)} residual blocks; "
            "if a scaling with depth is meant, declare it with expected="
        )
