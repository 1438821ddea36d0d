"""Bands of the beginning by theory, for models that are networks of ours."""

from __future__ import annotations

import math
from typing import Any

from scipy.stats import norm

from dynagram.live._bands import band_of_theory
from dynagram.live._live import read_live
from dynagram.networks.blocks import Dense
from dynagram.theory.chain import trace_birth
from dynagram.watch._band import Band
from dynagram.watch._look import Look
from dynagram.watch._record import Key

FAMILY = 1e-3  # probability that any number of a healthy model raises an alert
_SAMPLES = 4  # that theory at order 1/n is worked out for
_FEWEST = 16  # channels: a mean square over fewer is far from normal


def birth_bands(model: Any, x: Any, look: Look, params: Any = None) -> tuple[dict[Key, Band], str]:
    """The mean squares of dense layers that a draw of these weights should show, and why if none.

    K + G1/n ± √(V/n) for the variances that the weights have, on four samples of the probe; for the
    mean over all of them expectation and range are multiplied by the ratio of the mean squares that
    were measured, so that a number is outside if it is outside on the four.
    """
    live = read_live(model, x[: 2 * _SAMPLES], params=params)
    read = live.recognised
    if read is None:
        return {}, f"no theory of ours applies: {live.reason}"
    if read.network.in_shape.positions != 1:
        return {}, "theory is worked out for samples of one token"
    birth = trace_birth(read.network, read.rows[:_SAMPLES])
    names = {w.name: w.block for w in read.weights if w.letter == "W"}
    stages: dict[Key, tuple[float, float, float]] = {}
    for layer in look.layers:
        number = names.get(layer.name, names.get(f"{layer.name}.weight"))
        if number is None or layer.outputs is None or layer.outputs.shape[2] < _FEWEST:
            continue
        if isinstance(read.network.blocks[number], Dense):
            z = layer.outputs
            whole, few = (float((part * part).mean()) for part in (z, z[:_SAMPLES]))
            stage = birth.stages[number]
            stages["activation", layer.name] = (
                whole / few, stage.mean_square, math.hypot(stage.mean_square_std, stage.error)
            )  # fmt: skip
    beyond = float(norm.ppf(1.0 - FAMILY / (2 * max(len(stages), 1))))
    return {key: _band(*numbers, beyond) for key, numbers in stages.items()}, ""


def _band(ratio: float, mean: float, std: float, beyond: float) -> Band:
    band = band_of_theory(mean, std)
    alarm = [ratio * math.exp(band.centre + sign * beyond * band.spread) for sign in (-1.0, 1.0)]
    return Band(ratio * mean, ratio * band.low, ratio * band.high, "theory", (alarm[0], alarm[1]))
