"""The words of `advise`: what to do, why, what to expect, and what each sentence rests on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.advice._others import Start
from dynagram.advice._rates import Rates, rate_fraction
from dynagram.networks._mlp import Architecture
from dynagram.theory.criticality._operating_point import (
    BUDGET,
    OperatingPoint,
    operating_point,
)

# Held-out networks of benchmarks/results/advice.json on which untuned advice came within 10 % of
# the best of four tuned initialisations, and how many there were: (skips?, mini-batches?).
EVIDENCE = {
    (False, False): (40, 40),
    (False, True): (24, 26),
    (True, False): (18, 23),
    (True, True): (8, 11),
}
_UNEQUAL = 0.2  # (Σv)²/Σv² of the variances of columns over their number
_CODE = {
    "sgd": "torch.optim.SGD",
    "momentum": "torch.optim.SGD with momentum 0.9",
    "adam": "torch.optim.Adam",
    "adamw": "torch.optim.AdamW",
}


@dataclass(frozen=True)
class Sentence:
    """One line of advice, and what it rests on: theory, a measured rule, or a convention."""

    text: str
    source: str

    def __str__(self) -> str:
        return f"{self.text} [{self.source}]"


def advice_sentences(
    network: Architecture,
    point: OperatingPoint,
    rates: Rates,
    starts: tuple[Start, ...],
    x: Float[np.ndarray, "samples n_0"],
    *,
    is_stand_in: bool,
    is_noisy: bool,
) -> tuple[Sentence, ...]:
    """Advice in words.

    **Arguments:**

    - `network`: what it is for.
    - `point`, `rates`, `starts`: what was found.
    - `x`: the inputs it was found on.
    - `is_stand_in`: whether random data took the place of the user's.
    - `is_noisy`: whether a step sees a part of the data.

    **Returns:** at most ten sentences.
    """
    lines = [
        Sentence(
            "Initialise: orthogonal weights, scaled and shifted on the first batch so that every "
            f"hidden unit has mean {point.mean:.3g} and the layer variance {point.variance:.3g}; "
            "the outputs mean 0, variance 1.",
            "theory (D15.1)",
        ),
        *_depth(network, point),
        *_steps(rates, is_noisy),
        *_inputs(rates, x),
    ]
    if starts:
        ours, others = starts[-1], starts[:-1]
        worst = max(others, key=lambda s: abs(math.log(max(s.gradient, 1e-300))))
        lines.append(
            Sentence(
                f"Expect: a loss of {ours.loss:.3g} at the start, and squared weight gradients of "
                f"the first hidden layer {ours.gradient:.2g} times those of the last "
                f"({worst.name}: {worst.gradient:.2g}).",
                "measured here",
            )
        )
    won, cells = EVIDENCE[network.has_skips, is_noisy]
    kind = ("residual" if network.has_skips else "plain") + " networks"
    steps = "mini-batches" if is_noisy else "all data in a step"
    lines.append(
        Sentence(
            f"Expect: as good as the best of PyTorch's default, Kaiming, Xavier and orthogonal at "
            f"their best rates, within 10 %; so it was for {won} of {cells} {kind} with {steps}.",
            "benchmarks/advice.py, 100 steps",
        )
    )
    if is_stand_in:
        text = "These rates are for random inputs and targets: give your own data."
        lines.append(Sentence(text, "measured here"))
    return tuple(lines)


def _depth(network: Architecture, point: OperatingPoint) -> list[Sentence]:
    """The one judgement of depth: how much of its curvature each layer may use."""
    name, depth = network.activation.name, network.depth
    if network.has_skips:
        text = (
            f"Depth: beside its skip each block adds 1/{depth} of that variance, so that "
            f"{depth} layers do not multiply."
        )
        return [Sentence(text, "convention, as depth-μP")]
    free = operating_point(network.activation, 2)
    total = depth * math.log(point.amplification)
    if (point.mean, point.variance) == (free.mean, free.variance):
        text = (
            f"Depth: {depth} layers are few for {name}: squared gradients grow by "
            f"{math.exp(total):.3g} over all of them, within e^{BUDGET:g}."
        )
        return [Sentence(text, "theory (D15.2); e^4 is a measured rule")]
    growth = math.log(free.amplification)
    text = (
        f"Depth: {depth} layers are many for {name}. At mean {free.mean:.2g}, variance "
        f"{free.variance:g} they would multiply squared gradients by "
        f"{math.exp(min(depth * growth, 600)):.2g}; each is kept to "
        f"{total / depth / growth:.0%} of that growth, e^{BUDGET:g} in all. Skips would lift this."
    )
    return [Sentence(text, "theory (D15.2), (D15.3); e^4 is a measured rule")]


def _steps(rates: Rates, is_noisy: bool) -> list[Sentence]:
    fraction = rate_fraction(rates.optimizer, is_noisy)
    part = "" if fraction == 1.0 else f"{fraction:.3g} of "
    rule = "" if fraction == 1.0 else "; the fraction is a measured rule"
    how = _CODE[rates.optimizer]
    if rates.optimizer.startswith("adam"):
        return [
            Sentence(
                f"Step: {how}, rate {rates.layers[-1]:.3g} for all layers{_first(rates)}.",
                "theory (D15.5), measured here",
            ),
            Sentence(
                f"Because: it is {part}the step, {rates.curvature.sign_step:.3g}, at which the "
                "loss is lowest along the signs of the gradient, Adam's first direction.",
                f"theory (D15.5){rule}",
            ),
        ]
    first, last = rates.biases[0], rates.biases[-1]
    span = f"rate {last:.3g} for the last layer"
    if first < 0.999 * last:
        span += f", falling to {first:.3g} for the first"
    return [
        Sentence(f"Step: {how}, {span}{_first(rates)}.", "theory (D15.4), measured here"),
        Sentence(
            "Because: all layers then have the same share in learning, and it is "
            f"{part}2/λ_max = {rates.curvature.stable_step:.3g}, where descent becomes unstable.",
            f"theory (9.94), (∞.93){rule}",
        ),
    ]


def _first(rates: Rates) -> str:
    """The rate of the weights that see the inputs, where it is another one."""
    is_usual = math.isclose(rates.inputs, 1.0, rel_tol=0.05)
    return "" if is_usual else f" ({rates.layers[0]:.3g} for the weights that see the inputs)"


def _inputs(rates: Rates, x: Float[np.ndarray, "samples n_0"]) -> list[Sentence]:
    """Whether the units of the inputs mattered, and whether columns have units of their own."""
    variances = x.var(axis=0)
    lines = []
    if _first(rates):
        text = (
            f"Inputs: {x.shape[1]} of mean square {np.mean(x**2):.3g}; the weights that see them "
            f"step {rates.inputs:.3g} times as far as they else would, so that neither their units "
            "nor their number decide."
        )
        lines.append(Sentence(text, "theory (D15.6)"))
    columns = float(variances.sum() ** 2 / np.sum(variances**2))
    if columns < _UNEQUAL * x.shape[1]:
        text = (
            f"Inputs: their variance is that of {columns:.2g} of {x.shape[1]} columns; where units "
            "are the reason, standardise each column before anything else."
        )
        lines.append(Sentence(text, "convention"))
    return lines
