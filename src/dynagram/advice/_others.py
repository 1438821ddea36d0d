"""What usual initialisations would do to the same network on the same data."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dynagram.advice._initialise import orthogonal
from dynagram.data import Data
from dynagram.networks import Model
from dynagram.networks._mlp import Architecture, Layer
from dynagram.observables._linearisation import linearise
from dynagram.training._losses import loss_gradient, loss_value

USUAL = ("PyTorch default", "Kaiming", "Xavier", "orthogonal")


@dataclass(frozen=True)
class Start:
    """One network at its start: `signal` and `gradient` are what the depth does to their squares.

    `signal`: variance over the data in the last hidden layer over that in the first; `gradient`:
    mean square of ∂L/∂W in the first hidden-to-hidden layer over that in the last; `loss`.
    """

    name: str
    signal: float
    gradient: float
    loss: float


def compare_starts(model: Model, data: Data, loss: str, seed: int = 0) -> tuple[Start, ...]:
    """The usual initialisations of a model's architecture beside the model as it is.

    **Arguments:**

    - `model`: a network with at least three layers.
    - `data`: inputs and targets.
    - `loss`: a name of `dynagram.training.LOSSES`.
    - `seed`: of the draws.

    **Returns:** a `Start` for each of `USUAL`, then "advised". Cost: five gradients.
    """
    network = model.network
    drawn = {name: draw_usual(name, network, seed) for name in USUAL}
    return tuple(
        _start(name, Model(network, params), data, loss)
        for name, params in {**drawn, "advised": model.params}.items()
    )


def _start(name: str, model: Model, data: Data, loss: str) -> Start:
    # In float64: what is left of a signal that dies is far below the rounding of float32.
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), model.params)
    here = linearise(Model(model.network, params), data.x)
    z = jnp.asarray(here.outputs)
    y = jnp.asarray(data.y, z.dtype)
    slopes = here.pull(np.asarray(loss_gradient(loss, z, y)))
    sizes = [float(np.mean(W**2)) for _, W in slopes]
    first, last = (float(here.preactivations[i].var(axis=0).mean()) for i in (0, -2))
    return Start(
        name, _ratio(last, first), _ratio(sizes[1], sizes[-2]), float(loss_value(loss, z, y))
    )


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator > 0.0 else math.nan


def draw_usual(name: str, network: Architecture, seed: int) -> tuple[Layer, ...]:
    """Weights and biases as torch.nn.init draws them.

    **Arguments:**

    - `name`: one of `USUAL`.
    - `network`: the architecture.
    - `seed`: of the draw.

    **Returns:** one layer (b, W) for each ℓ.
    """
    rng = np.random.default_rng(seed)
    layers = []
    for n_in, n_out in itertools.pairwise(network.widths):
        b = np.zeros(n_out)
        if name == "PyTorch default":
            W, b = (
                rng.uniform(-1.0, 1.0, size=shape) / math.sqrt(n_in)
                for shape in ((n_out, n_in), (n_out,))
            )
        elif name == "orthogonal":
            W = orthogonal(rng, n_in, n_out)
        else:
            variance = 2.0 / n_in if name == "Kaiming" else 2.0 / (n_in + n_out)
            W = math.sqrt(variance) * rng.normal(size=(n_out, n_in))
        layers.append(Layer(b, W))
    return tuple(layers)
