"""A few small steps of training, and how much each layer's own step changes what comes out of it.

What a layer gives changes by ΔW x where its own weights move, and by what earlier layers do. Only
the first tells whose rate is wrong, so every layer is moved alone; the output changes by all of
them. Steps are so small that changes are proportional to the rates, and the loss ½(f − y)² has one
output f of one sample: products of different samples or outputs are √n where n is meant, and blur
powers at widths that one can afford.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

STEPS = 3
_SMALL = {"sgd": 1e-4, "adam": 1e-6}  # the largest rate at the smallest size
_BETAS, _EPSILON = (0.9, 0.999), 1e-12

_TARGET = 10.0  # larger than f, whose scatter would be in every step
OUTPUTS = "outputs"


@dataclass(frozen=True, eq=False)
class Probe:
    """One pass: signals by layer, f, gradients, and the layer of a parameter.

    f is the first output at the last position of the last sample.
    """

    signals: dict[str, np.ndarray]
    output: float
    slopes: dict[str, np.ndarray]
    owners: dict[str, str]


@dataclass(frozen=True)
class Rule:
    """How parameters move: "sgd" or "adam", and the rate of every parameter."""

    kind: str
    rates: dict[str, float] = field(default_factory=dict)

    def scaled(self, largest: float) -> Rule:
        """The same proportions, so small that the largest of a reference is `_SMALL`."""
        factor = _SMALL[self.kind] / largest
        return Rule(self.kind, {name: rate * factor for name, rate in self.rates.items()})


def own_changes(
    probe: Callable[[Mapping[str, np.ndarray], float | None], Probe],
    values: Mapping[str, np.ndarray],
    rule: Rule,
) -> dict[str, float]:
    """The mean square of what the own steps of every layer change in it, and of f.

    **Arguments:**

    - `probe`: signals and gradients at given parameters.
    - `values`: parameters at the start.
    - `rule`: rates, small.

    **Returns:** by the name of the layer; `OUTPUTS` for f. Cost: `STEPS` passes forth and
    back, and one forth for every layer.
    """
    start = probe(values, None)
    moved = _moved(probe, values, rule)
    layers: dict[str, dict[str, np.ndarray]] = {}
    for name, layer in start.owners.items():
        layers.setdefault(layer, {})[name] = moved[name]
    changes = {}
    for layer, changed in layers.items():
        if layer in start.signals:
            alone = probe({**values, **changed}, None).signals[layer]
            changes[layer] = _square(alone - start.signals[layer])
    changes[OUTPUTS] = (probe(moved, None).output - start.output) ** 2
    return changes


def _square(change: np.ndarray) -> float:
    return float(np.mean(change**2))


def _moved(
    probe: Callable[[Mapping[str, np.ndarray], float | None], Probe],
    values: Mapping[str, np.ndarray], rule: Rule,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Parameters after `STEPS` steps."""
    now = {name: np.array(v, dtype=np.float64) for name, v in values.items()}
    first = {name: np.zeros_like(v) for name, v in now.items()}
    second = {name: np.zeros_like(v) for name, v in now.items()}
    for step in range(1, STEPS + 1):
        slopes = probe(now, _TARGET).slopes
        for name, slope in slopes.items():
            direction = slope
            if rule.kind == "adam":
                a, b = _BETAS
                first[name] = a * first[name] + (1 - a) * slope
                second[name] = b * second[name] + (1 - b) * slope**2
                root = np.sqrt(second[name] / (1 - b**step))
                direction = first[name] / (1 - a**step) / (root + _EPSILON)
            now[name] = now[name] - rule.rates.get(name, 0.0) * direction
    return now
