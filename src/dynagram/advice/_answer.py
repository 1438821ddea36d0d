"""The answer of `dynagram advise`: initialise so, step so, expect this, because."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynagram.advice._initialise import initialise, layer_point
from dynagram.advice._others import Start, compare_starts
from dynagram.advice._rates import Rates, advise_rates
from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import ActivationLike, Model
from dynagram.networks._checks import checked_integer
from dynagram.networks._mlp import Architecture
from dynagram.theory.criticality._operating_point import BUDGET, OperatingPoint, point_of

if TYPE_CHECKING:
    ArrayLike = Any
else:
    ArrayLike = object  # checked by Data, with clearer messages

_STAND_IN = 256  # samples where no data are given
_LARGEST = 2048  # samples that are measured on


@dataclass(frozen=True)
class Sentence:
    """One line of the answer, and what it rests on: theory, a measured rule, or a convention."""

    text: str
    source: str


@dataclass(frozen=True, eq=False)
class Answer:
    """How to set up and train one network.

    `model` is set up already; `rates` are those of its layers; `point` where its layers work;
    `starts` what usual initialisations do beside it; `sentences` all of it in words.
    """

    model: Model
    rates: Rates
    point: OperatingPoint
    starts: tuple[Start, ...]
    sentences: tuple[Sentence, ...]
    is_stand_in: bool


def answer(
    activation: ActivationLike,
    width: int,
    depth: int,
    *,
    outputs: int = 1,
    inputs: int | None = None,
    loss: str = "mean",
    optimizer: str = "sgd",
    x: ArrayLike = None,
    y: ArrayLike = None,
    batch: int | None = None,
    residual: bool = False,
    seed: int = 0,
) -> Answer:
    """Set up a network on data, measure its learning rates, and say why.

    **Arguments:**

    - `activation`: a registered name or a function.
    - `width`, `depth`: `depth` weight matrices, hidden layers of `width`.
    - `outputs`, `inputs`: n_L and n_0, where the data do not say.
    - `loss`: "mean" or "cross-entropy".
    - `optimizer`: a name of `dynagram.advice.OPTIMIZERS`.
    - `x`, `y`: training data; without `y` random targets, without both 256 random inputs.
    - `batch`: samples in a step; all by default.
    - `residual`: whether every hidden layer after the first is a branch beside a skip.
    - `seed`: of the weights, and of what stands in for data.

    **Returns:** `Answer`. Measured on at most 2048 samples. Cost: about 100 gradients.

    >>> found = answer("relu", 32, 12, outputs=3, loss="cross-entropy")
    >>> round(found.point.mean, 2), found.rates.optimizer, found.is_stand_in
    (0.18, 'sgd', True)
    >>> print(found.sentences[0].text[:57])
    Initialise: orthogonal weights, scaled and shifted on the
    """
    checked_integer("depth", depth, 2)
    data, is_stand_in = _data(x, y, inputs or width, outputs, loss, seed)
    widths = [data.x.shape[1], *[width] * (depth - 1), data.y.shape[1]]
    network = Architecture(widths, activation, skip=1.0 if residual and depth > 2 else 0.0)
    model = initialise(network, data.x, seed=seed)
    rates = advise_rates(model, data, loss=loss, optimizer=optimizer, batch=batch)
    point = layer_point(network)
    starts = compare_starts(model, data, loss, seed) if depth > 2 else ()
    sentences = _sentences(network, point, rates, starts, is_stand_in=is_stand_in)
    return Answer(model, rates, point, starts, sentences, is_stand_in)


def _data(
    x: object, y: object, inputs: int, outputs: int, loss: str, seed: int
) -> tuple[Data, bool]:
    rng = np.random.default_rng(seed)
    is_stand_in = x is None
    if x is None:
        if y is not None:
            raise InvalidValueError("y", "given", "x is needed as well")
        x = rng.normal(size=(_STAND_IN, inputs))
    samples = len(np.asarray(x))
    if y is None:
        y = rng.normal(size=(samples, outputs))
        if loss == "cross-entropy":
            y = np.eye(outputs)[rng.integers(outputs, size=samples)]
    data = Data(x, y)
    return Data(data.x[:_LARGEST], data.y[:_LARGEST]), is_stand_in


def _sentences(
    network: Architecture,
    point: OperatingPoint,
    rates: Rates,
    starts: tuple[Start, ...],
    *,
    is_stand_in: bool,
) -> tuple[Sentence, ...]:
    name, depth = network.activation.name, network.depth
    hidden = depth - 1
    total = point.amplification**depth
    lines = [
        Sentence(
            "Initialise: orthogonal weights, scaled and shifted on the first batch so that every "
            f"hidden unit has mean {point.mean:.3g} and the layer variance {point.variance:.3g}; "
            "the outputs mean 0, variance 1.",
            "(D15.1)",
        )
    ]
    if network.has_skips:
        lines.append(
            Sentence(
                f"Beside its skip each block adds 1/{depth} of that variance, so that {hidden} "
                "blocks do not multiply.",
                "convention, as depth-μP",
            )
        )
    else:
        plain = point_of(network.activation, 0.0, 1.0).amplification
        text = (
            f"Because: there {name} multiplies squared gradients by {point.amplification:.4g} a "
            f"layer, {total:.3g} in all; the budget is e^{BUDGET:g} = {np.exp(BUDGET):.0f}"
        )
        if (point.mean, point.variance) != (0.0, 1.0):
            text += f", and at mean 0, variance 1 it would be {plain**depth:.3g}"
        lines.append(Sentence(text + ".", "(D15.2), (D15.3); the budget is a measured rule"))
    lines += _rate_sentences(rates)
    if starts:
        ours, others = starts[-1], starts[:-1]
        worst = max(others, key=lambda s: abs(np.log(max(s.gradient, 1e-300))))
        lines.append(
            Sentence(
                f"Expect: a loss of {ours.loss:.3g} at the start, and weight gradients of the "
                f"first hidden layer {ours.gradient:.3g} times those of the last in mean square "
                f"({worst.name}: {worst.gradient:.2g}).",
                "measured here",
            )
        )
    if is_stand_in:
        lines.append(
            Sentence(
                "These rates are for random inputs and targets: give your own with --data.",
                "measured here",
            )
        )
    return tuple(lines)


def _rate_sentences(rates: Rates) -> list[Sentence]:
    how = {
        "sgd": "torch.optim.SGD",
        "momentum": "torch.optim.SGD with momentum 0.9",
        "adam": "torch.optim.Adam",
        "adamw": "torch.optim.AdamW",
    }[rates.optimizer]
    if rates.optimizer.startswith("adam"):
        return [
            Sentence(f"Step: {how}, rate {rates.layers[-1]:.3g} for all layers.", "(D15.5)"),
            Sentence(
                "Because: along the signs of the gradient, Adam's first direction, the loss is "
                f"lowest at {rates.curvature.sign_step:.3g}.",
                "(D15.5), measured here; fractions of it for batches are measured rules",
            ),
        ]
    first, last = rates.layers[0], rates.layers[-1]
    span = f"rate {last:.3g} for the last layer"
    if first < 0.999 * last:
        span += f", falling to {first:.3g} for the first"
    return [
        Sentence(f"Step: {how}, {span}.", "(D15.4)"),
        Sentence(
            "Because: then all layers have the same share in learning, and descent is stable below "
            f"2/λ_max = {rates.curvature.stable_step:.3g} of the last layer.",
            "(9.94), (∞.93), measured here; fractions of it are measured rules",
        ),
    ]
