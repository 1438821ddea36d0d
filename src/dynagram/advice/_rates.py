"""Learning rates from the curvature of one network on its data, layer by layer.

Gradient descent: every layer is to have the same share in what is learned (the equivalence
principle of section 9.4). Squared gradients grow by χ per layer on the way back, so layer ℓ of L
gets the rate η χ^{−(L−ℓ)}; then η = 2/λ_max of the Gauss-Newton matrix in these units, the end of
linear stability. With momentum β half of it. Adam steps along the signs of the gradient, which
knows no sizes: one rate for all layers, the step to the minimum of the loss along them,
Σ|g|/sᵀGs. The weights that see the inputs step in units of those. Why these, with the measurements:
docs/derivations/advice.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.advice._initialise import layer_point
from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import Model
from dynagram.networks._checks import checked_integer
from dynagram.networks._mlp import Layer
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
    """What to give an optimizer: one learning rate per layer.

    `optimizer` one of `OPTIMIZERS`; `layers` the rates of the weights of ℓ = 1..L for the loss as
    it is named, `biases` those of the biases, which differ in the first layer alone, by the units
    of the inputs, `inputs`; `momentum` β, 0 for none; `curvature` the numbers they come from, in
    units in which all rates are one.
    """

    optimizer: str
    loss: str
    layers: tuple[float, ...]
    biases: tuple[float, ...]
    inputs: float
    momentum: float
    curvature: Curvature

    @property
    def tree(self) -> tuple[Layer, ...]:
        """The rates in the places of the parameters of a `Model`."""
        pairs: Any = zip(self.biases, self.layers, strict=True)
        return tuple(Layer(b, W) for b, W in pairs)


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
    widths, is_adam = model.network.widths, optimizer.startswith("adam")
    chi = 1.0 if is_adam else layer_point(model.network, budget).amplification
    shares = layer_shares(chi, model.network.skip_of_layers)
    inputs = input_share(float(np.mean(data.x**2)), widths[0], widths[1], is_adam=is_adam)
    both = np.stack([shares, shares])
    both[1, 0] *= inputs
    # Drawn, not the first ones: files are often sorted by class.
    chosen = np.sort(np.random.default_rng(0).permutation(len(data.x))[:samples])
    # Along signs of the gradient a step is the rate itself, along the gradient its square root.
    here = linearise(model, data.x[chosen], both**2 if is_adam else both)
    curvature = measure_curvature(here, name, data.y[chosen])
    step = curvature.sign_step if is_adam else curvature.stable_step
    biases, layers = rate_fraction(optimizer, samples < len(data.x)) * step * both
    momentum = 0.9 if optimizer != "sgd" else 0.0
    return Rates(
        optimizer, name, tuple(layers.tolist()), tuple(biases.tolist()), inputs, momentum, curvature
    )


def rate_fraction(optimizer: str, is_noisy: bool) -> float:
    """What part of the measured step to take; less where steps see a part of the data."""
    return _FRACTION[optimizer] * (_NOISY[optimizer] if is_noisy else 1.0)


def input_share(mean_square: float, n_in: int, n_out: int, *, is_adam: bool) -> float:
    """What the units of the inputs make of the rate of the weights that see them.

    Inputs c times as large, with weights c times as small, are the same network; its weights move
    as they did if their rate is divided by c², that of Adam by c. Likewise where k columns say the
    same, by k. More inputs than units in the first layer are taken as such columns.

    **Arguments:**

    - `mean_square`: ⟨x²⟩ over inputs and their components.
    - `n_in`, `n_out`: inputs and outputs of the first layer.
    - `is_adam`: whether steps go along signs.

    **Returns:** min(1, n_out/n_in) divided by ⟨x²⟩, or by its root.
    """
    unit = math.sqrt(mean_square) if is_adam else mean_square
    return min(1.0, n_out / n_in) / unit if unit > 0.0 else 1.0


def layer_shares(chi: float, skips: Sequence[float]) -> Float[np.ndarray, " L"]:
    """χ^{−(L−ℓ)}, ℓ = 1..L: what makes the layers learn alike; no factor where a skip leads past.

    **Arguments:**

    - `chi`: χ of the operating point.
    - `skips`: γ of every layer.

    **Returns:** (L,), the last one 1.

    >>> layer_shares(2.0, [0.0] * 4).tolist(), layer_shares(2.0, [0.0, 1.0, 1.0, 0.0]).tolist()
    ([0.125, 0.25, 0.5, 1.0], [0.5, 0.5, 0.5, 1.0])
    """
    growth = np.where(np.array(skips[1:]) != 0.0, 1.0, chi)  # what layer ℓ + 1 passes back to ℓ
    return 1.0 / np.concatenate([np.cumprod(growth[::-1])[::-1], [1.0]])
