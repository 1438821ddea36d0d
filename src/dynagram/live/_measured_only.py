"""A model that is no network of ours, beside itself with its weights drawn anew."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagram.live._bands import band_of_draws, family_threshold
from dynagram.live._causes import Cause, explain_weights
from dynagram.live._expectation import DRAWS
from dynagram.live._layers import LayerNumbers
from dynagram.live._live import Live, measure_made, parameters_of, seeded
from dynagram.live._lone_layers import find_lone_layer
from dynagram.live._recipes import Recipe
from dynagram.live._redraw import redrawn
from dynagram.live._result import Check, LayerReading
from dynagram.live._signals import explain_signals, row_of_weight
from dynagram.live._stages import NUMBERS
from dynagram.live._structure import find_copies
from dynagram.live._unread_weights import (
    branch_ends,
    layer_of_size,
    read_sizes,
    sizes_beside,
    weights_of,
)

_FEWEST = 16


def check_measured(
    live: Live, recipe: Recipe | None, factory: Any, batch: Any, seed: int, causes: list[Cause],
    notes: list[str],
) -> Check:  # fmt: skip
    """Layers beside those of the same model with other weights, and weights beside a recipe."""
    measured = live.measure(None)
    draws = [_by_place(draw) for draw in _draw_again(live, factory, batch, seed)]
    weights = weights_of(live.graph)
    ends = branch_ends(live.graph)
    sizes, branches = read_sizes(ends, weights, recipe)
    sizes += sizes_beside(live.graph, recipe)
    of_layer: dict[str, list[LayerReading]] = {}
    for size in sizes:
        name = layer_of_size(size)
        of_layer.setdefault(name, []).append(row_of_weight(name, size))
    readings = []
    for place, layer in _by_place(measured).items():
        in_all = all(place in draw for draw in draws)
        for quantity, value in layer.numbers.items():
            if not np.isfinite(value):
                continue
            if not in_all:
                readings.append(LayerReading.of(layer.name, quantity, value, None))
                continue
            values = np.array([draw[place].numbers[quantity] for draw in draws])
            few = layer.channels < _FEWEST and quantity in NUMBERS[:2]
            usual = float(np.mean(np.abs(values)))
            constant = np.std(values) <= 1e-5 * usual
            band = None
            if not few and not constant:
                band = band_of_draws(values, signed=quantity == NUMBERS[1])
            readings.append(LayerReading.of(layer.name, quantity, value, band))
        readings += of_layer.pop(layer.name, [])
    readings += [reading for rest in of_layer.values() for reading in rest]
    threshold = family_threshold(sum(r.z is not None for r in readings))
    causes = [*causes, *find_copies(weights, live.frozen), *find_lone_layer(weights, ends)]
    causes += explain_weights(sizes, branches, threshold, declared=recipe is not None)
    if not causes:
        causes = explain_signals(readings, threshold, live.parameters)
    names = tuple(live.parameters)
    return Check(tuple(readings), tuple(causes), threshold, "", names, tuple(notes))


def _by_place(layers: Sequence[LayerNumbers]) -> dict[tuple[str, int], LayerNumbers]:
    """Layers by their name and how many of that name came before."""
    counts: dict[str, int] = {}
    placed = {}
    for layer in layers:
        placed[layer.name, counts.get(layer.name, 0)] = layer
        counts[layer.name] = counts.get(layer.name, 0) + 1
    return placed


def _draw_again(live: Live, factory: Any, batch: Any, seed: int) -> list[list[LayerNumbers]]:
    """The numbers of models with other weights: made anew, or drawn as these weights look."""
    if factory is not None and _has_defaults(factory):
        with seeded(seed):
            one, other = (parameters_of(factory(), batch) for _ in range(2))
            if any(not np.array_equal(one[name], other[name]) for name in one.keys() & other):
                return [measure_made(live, factory(), batch) for _ in range(DRAWS)]
    # A function that sets its own seed, as all of JAX do, makes one and the same model again.
    rng = np.random.default_rng(seed)
    return [live.measure(redrawn(live.parameters, rng)) for _ in range(DRAWS)]


def _has_defaults(factory: Any) -> bool:
    """Whether it makes a model without being told a size, as one for a scheme need not."""
    try:
        inspect.signature(factory).bind()
    except TypeError:
        return False
    except ValueError:  # one that does not tell its arguments
        return True
    return True
