"""Learning rates from the curvature of one network on its data, layer by layer.

Gradient descent: every layer is to have the same share in what is learned (the equivalence
principle of section 9.4). Squared gradients grow by χ per layer on the way back, so layer ℓ of L
gets the rate η χ^{−(L−ℓ)}; then η = 2/λ_max of the Gauss-Newton matrix in these units, the end of
linear stability. With momentum β half of it. Adam steps along the signs of the gradient, which
knows no sizes: one rate for all layers, the step to the minimum of the loss along them,
Σ|g|/sᵀGs. Why these, with the measurements: docs/derivations/advice.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynagram.advice._initialise import layer_point
from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import Model
from dynagram.networks._checks import checked_integer
from dynagram.observables._curvature import Curvature, measure_curvature
from dynagram.observables._linearisation import linearise
from dynagram.theory.criticality._operating_point import BUDGET
from dynagram.training._losses import check_loss, check_loss_targets

OPTIMIZERS = ("sgd", "momentum", "adam", "adamw")
# Of 2/λ_max, or of the sign step, with all data in a step, and what noise of mini-batches leaves
# of that: measured rules, docs/derivations/advice.md.
_FRACTION = {"sgd": 1.0, "momentum": 0.5, "adam": 1.0, "adamw": 1.0}
_NOISY = {"sgd": 1.0, "momentum": 0.35, "adam": 0.6, "adamw": 0.6}


@dataclass(frozen=True)
class Rates:
    """What to give an optimizer: one learning rate per layer, for weights and biases alike.

    `optimizer` one of `OPTIMIZERS`; `layers` the rates of ℓ = 1..L for the loss as it is named;
    `momentum` β, 0 for none; `curvature` the numbers they come from, in the units of `shares`,
    the factors between the layers.
    """

    optimizer: str
    loss: str
    layers: tuple[float, ...]
    momentum: float
    shares: tuple[float, ...]
    curvature: Curvature


def advise_rates(
    model: Model,
    data: Data,
    *,
    loss: str = "mean",
    optimizer: str = "sgd",
    batch: int | None = None,
    budget: float = BUDGET,
) -> Rates:
    """Learning rates for a model set up by `initialise`, measured on a batch.

    **Arguments:**

    - `model`: a network with its weights.
    - `data`: what is trained on, or a good part of it.
    - `loss`: a name of `dynagram.training.LOSSES`, or module:function.
    - `optimizer`: "sgd", "momentum" (β = 0.9), "adam" or "adamw" with their usual constants.
    - `batch`: samples in a step; by default all. Measured is on as many, drawn from `data`.
    - `budget`: with which the model was set up.

    **Returns:** `Rates`. Cost: that of about 100 gradients of the batch.

    >>> from dynagram.advice import initialise
    >>> from dynagram.networks import MLP
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(40, 6))
    >>> data = Data(x, np.sin(x[:, :1]))
    >>> model = initialise(MLP.critical([6, *[32] * 4, 1], "tanh"), x)
    >>> rates = advise_rates(model, data)
    >>> rates.optimizer, len(rates.layers), rates.layers[0] < rates.layers[-1]
    ('sgd', 5, True)
    """
    name = check_loss(loss)
    check_loss_targets(name, data.y)
    if optimizer not in OPTIMIZERS:
        raise InvalidValueError("optimizer", optimizer, f"expected one of {', '.join(OPTIMIZERS)}")
    samples = len(data.x) if batch is None else checked_integer("batch", batch, 1)
    network, is_adam = model.network, optimizer.startswith("adam")
    shares = np.ones(network.depth) if is_adam else layer_shares(model, budget)
    # Drawn, not the first ones: files are often sorted by class.
    chosen = np.sort(np.random.default_rng(0).permutation(len(data.x))[:samples])
    here = linearise(model, data.x[chosen], shares)
    curvature = measure_curvature(here, name, data.y[chosen])
    step = curvature.sign_step if is_adam else curvature.stable_step
    rates = tuple((rate_fraction(optimizer, samples < len(data.x)) * step * shares).tolist())
    momentum = 0.9 if optimizer != "sgd" else 0.0
    return Rates(optimizer, name, rates, momentum, tuple(shares.tolist()), curvature)


def rate_fraction(optimizer: str, is_noisy: bool) -> float:
    """What part of the measured step to take; less where steps see a part of the data."""
    return _FRACTION[optimizer] * (_NOISY[optimizer] if is_noisy else 1.0)


def layer_shares(model: Model, budget: float = BUDGET) -> np.ndarray:
    """χ^{−(L−ℓ)}, ℓ = 1..L: what makes the layers learn alike; no factor where a skip leads past.

    **Arguments:**

    - `model`: a network set up by `initialise`.
    - `budget`: with which it was.

    **Returns:** (L,), the last one 1.
    """
    skips = np.array(model.network.skip_of_layers) != 0.0
    chi = layer_point(model.network, budget).amplification
    growth = np.where(skips, 1.0, chi)
    growth[0] = 1.0  # what a layer passes back to the one below it
    below = np.concatenate([growth[1:], [1.0]])
    return 1.0 / np.cumprod(below[::-1])[::-1]
