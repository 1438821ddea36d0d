"""Bands of the beginning for models that are networks of ours, the same that `check` uses."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from dynagram.live._bands import THEORY
from dynagram.live._bands import Band as LiveBand
from dynagram.live._cropping import crop
from dynagram.live._expectation import expect_stages
from dynagram.live._live import read_live
from dynagram.live._redraw import looks_uniform
from dynagram.live._stages import NUMBERS, measure_stages
from dynagram.networks.blocks import Conv, Dense
from dynagram.watch._band import FAMILY, Band, Origin
from dynagram.watch._context import Context, Memory
from dynagram.watch._layer_quantities import Reading, activation, gradient, similarity
from dynagram.watch._look import Look
from dynagram.watch._record import Key

_SAMPLES = 8
# What is watched, how it is measured, and what theory says something about.
_PAIRS = (
    ("activation", activation, NUMBERS[0]),
    ("similarity", similarity, NUMBERS[1]),
    ("gradient", gradient, NUMBERS[3]),
)


def birth_bands(model: Any, x: Any, look: Look, params: Any = None) -> tuple[dict[Key, Band], str]:
    """What dense and convolutional layers of a draw of these weights should show, or why nothing.

    Mean squares, and cosines of tokens, from theory at order 1/n where it is affordable, else from
    networks drawn again, on some samples of the probe. A gradient of the loss is held against that
    of the first output. Expectation and range are moved by as much as the watched number differs
    from the one that they are about, so that a number is outside if that one is.
    """
    live = read_live(model, x[:_SAMPLES], params=params)
    read = live.recognised
    if read is None:
        return {}, f"no theory of ours applies: {live.reason}"
    network, values, rows = crop(read)
    places = {(w.block, *w.place): w for w in read.weights}
    uniform = {place for place, weight in places.items() if looks_uniform(weight.values)}
    expected, _, _ = expect_stages(network, rows, 0, uniform)
    measured = measure_stages(network, values, rows)
    names = {w.name: w.block for w in read.weights if w.letter == "W"}
    context = Context(look, Memory(), 0)
    matched: dict[Key, tuple[LiveBand, float, float]] = {}
    for index, layer in enumerate(look.layers):
        number = names.get(layer.name, names.get(f"{layer.name}.weight"))
        if number is None or not isinstance(read.network.blocks[number], Dense | Conv):
            continue
        if layer.outputs is None:
            continue
        for name, measure, about in _PAIRS:
            reading: Reading = measure(context, index)
            band, seen = expected.get((number, about)), float(measured.numbers[about][number])
            if reading is None or band is None or not np.isfinite(seen):
                continue
            if band.signed or (seen > 0 and reading[0] > 0):
                matched[name, layer.name] = band, seen, reading[0]
    beyond = 1.0 - FAMILY / (2 * max(len(matched), 1))
    return {key: _band(*numbers, beyond) for key, numbers in matched.items()}, ""


def _band(band: LiveBand, seen: float, watched: float, beyond: float) -> Band:
    """The band of a number `seen`, moved to where another is `watched`, with its range of alarm."""
    forward, back = (np.arctanh, np.tanh) if band.signed else (np.log, np.exp)
    shift = float(forward(watched) - forward(seen))

    def end(p: float) -> float:
        t = stats.norm.ppf(p) if band.degrees is None else stats.t.ppf(p, band.degrees)
        return float(back(band.centre + shift + t * band.spread))

    origin: Origin = "theory" if band.source == THEORY else "redrawn"
    middle = float(back(forward(band.expected) + shift))
    return Band(middle, end(0.025), end(0.975), origin, (end(1.0 - beyond), end(beyond)))
