"""The posterior of parameters: prior (6.6), likelihoods (6.10), (6.11), and its maximum (6.19).

−log p(y | θ) is a loss (6.16): the squared error for Gaussian noise (6.17), the cross-entropy for
the softmax likelihood. −log p(θ) is a weight decay Σ a θ² with a = 1/(2C_b) and n_{ℓ−1}/(2C_W), so
that the most probable parameters are those of a regularised training (6.22), and the most likely
ones (6.20) those of a plain one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram._precision import float64
from dynagram.data import Data
from dynagram.errors import AccuracyError, InvalidTypeError
from dynagram.networks import MLP, Layer, Model, Params
from dynagram.networks._checks import checked_choice, checked_number
from dynagram.observables.tangents._signals import check_differentiable
from dynagram.training._losses import check_loss_targets

LIKELIHOODS = ("gaussian", "softmax")
_TOLERANCE = 1e-9


def prior_decay(network: MLP) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """a of biases and of weights, layer by layer: −log p(θ) = Σ a θ² + constant (6.22).

    **Arguments:**

    - `network`: an `MLP`.

    **Returns:** (a_b, a_W), to be passed to `weight_decay_drift`; infinite where a variance is 0
    and the parameter cannot move.

    >>> prior_decay(MLP([2, 8, 1], "relu", C_b=0.5, C_W=2.0))
    ((1.0, 1.0), (0.5, 2.0))
    """
    biases = tuple(math.inf if C == 0.0 else 0.5 / C for C in network.C_b)
    fan_in = network.widths[:-1]
    return biases, tuple(0.5 * n / C for n, C in zip(fan_in, network.C_W, strict=True))


@float64
def log_likelihood(
    model: Model, data: Data, *, likelihood: str = "gaussian", noise: float = 1.0
) -> float:
    """log p(y_A | θ), minus the loss (6.16): (6.10), (6.17) for noise, (6.11) for classes.

    **Arguments:**

    - `model`: the network and its weights, θ.
    - `data`: training inputs and targets, probabilities of classes for "softmax".
    - `likelihood`: "gaussian", outputs seen with noise, or "softmax", classes drawn from the
        softmax of the outputs.
    - `noise`: the variance σ² of the Gaussian one, > 0.

    **Returns:** a number: a sum over samples and outputs, not a mean.

    >>> model = MLP([2, 3, 2], "tanh", C_b=0.0, C_W=1.0).init(seed=0)
    >>> data = Data.of_classes([[0.0, 0.0]], [1], outputs=2)
    >>> round(log_likelihood(model, data, likelihood="softmax"), 6)        # two equal outputs
    -0.693147
    """
    score = _likelihood(model, data, likelihood, noise)
    return float(score(jnp.asarray(model.in_float64()(data.x))))


@dataclass(frozen=True, eq=False)
class MostProbable:
    """Parameters at a maximum of the posterior (or of the likelihood), and how it was reached.

    `log_density` is log p(y | θ) + log p(θ), without the second for the likelihood alone;
    `gradient` the largest slope left, in units of the prior's standard deviations.
    """

    model: Model
    log_density: float
    gradient: float
    steps: int


@float64
def most_probable(
    model: Model,
    data: Data,
    *,
    likelihood: str = "gaussian",
    noise: float = 1.0,
    prior: bool = True,
    max_steps: int = 20_000,
) -> MostProbable:
    """The parameters that maximise p(θ | y) (6.19), or p(y | θ) (6.20), from those of `model` on.

    A local maximum: wide networks have many, of which the start chooses one. Parameters are
    measured in standard deviations of the prior, whatever the learning rates; L-BFGS.

    **Arguments:**

    - `model`: where to start; drawn from an `MLP`, whose C_b and C_W are the prior.
    - `data`, `likelihood`, `noise`: as in `log_likelihood`.
    - `prior`: False leaves the prior out: the most likely parameters.
    - `max_steps`: more are refused.

    **Returns:** `MostProbable`. Cost: one gradient per step, tens to thousands of them.

    >>> model = MLP([1, 1], "linear", C_b=0.0, C_W=1.0).init(seed=0)       # z = w x
    >>> found = most_probable(model, Data([[1.0]], [3.0]), noise=0.5)
    >>> round(float(found.model.params[0].W[0, 0]), 6)                   # y/(1 + σ²)
    2.0
    """
    from scipy.optimize import minimize

    network = model.network
    if not isinstance(network, MLP):
        allowed = "the prior needs C_b and C_W: expected a network drawn from an MLP"
        raise InvalidTypeError("network of model", network, allowed)
    check_differentiable(network, 1, "the gradient of the likelihood")
    score, stds = _likelihood(model, data, likelihood, noise), _deviations(network)
    start = [
        np.asarray(leaf, dtype=np.float64) / np.where(std > 0.0, std, 1.0)
        for leaf, std in zip(jax.tree.leaves(model.params), stds, strict=True)
    ]
    ends, x = np.cumsum([part.size for part in start]), jnp.asarray(data.x)

    def params(flat: Array) -> Params:
        pieces = jnp.split(flat, ends[:-1])
        leaves = [
            std * piece.reshape(part.shape)
            for piece, part, std in zip(pieces, start, stds, strict=True)
        ]
        return tuple(Layer(*leaves[i : i + 2]) for i in range(0, len(leaves), 2))

    @jax.jit
    def loss(flat: Array) -> Array:
        value = -score(network.apply(params(flat), x))
        return value + 0.5 * jnp.sum(flat**2) if prior else value

    slope = jax.jit(jax.value_and_grad(loss))

    def both(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = slope(jnp.asarray(flat))
        return float(value), np.asarray(gradient)

    found = minimize(
        both, np.concatenate([part.reshape(-1) for part in start]), jac=True, method="L-BFGS-B",
        options={"maxiter": max_steps, "maxfun": 2 * max_steps, "ftol": 0.0, "gtol": _TOLERANCE,
                 "maxcor": 50},
    )  # fmt: skip
    value, gradient = both(found.x)
    left = float(np.max(np.abs(gradient)))
    if not left < math.sqrt(_TOLERANCE) * max(1.0, abs(value)):
        raise AccuracyError(
            f"no maximum after {found.nit} steps, the slope is still {left:.2g}: allow more "
            "`max_steps`, or the likelihood has no maximum (hard labels without a prior)"
        )
    constant = _log_normalisation(network) if prior else 0.0
    best = Model(network, jax.tree.map(np.asarray, params(jnp.asarray(found.x))))
    return MostProbable(best, -value + constant, left, int(found.nit))


def _likelihood(model: Model, data: Data, likelihood: str, noise: float):
    """log p(y | z) as a function of the outputs z."""
    checked_choice("likelihood", likelihood, LIKELIHOODS)
    data.check(model.network)
    y = jnp.asarray(data.y)
    if likelihood == "softmax":
        check_loss_targets("cross-entropy", data.y)
        return lambda z: jnp.sum(y * jax.nn.log_softmax(z, axis=1))
    variance = checked_number("noise", noise, "a variance must be > 0", positive=True)
    constant = 0.5 * data.y.size * math.log(2.0 * math.pi * variance)
    return lambda z: -0.5 * jnp.sum((z - y) ** 2) / variance - constant


def _deviations(network: MLP) -> list[float]:
    """Standard deviations of the prior, biases and weights of the layers in turn."""
    stds: list[float] = []
    for C_b, C_W, n in zip(network.C_b, network.C_W, network.widths[:-1], strict=True):
        stds += [math.sqrt(C_b), math.sqrt(C_W / n)]
    return stds


def _log_normalisation(network: MLP) -> float:
    """log p(θ) at θ = 0; parameters without variance do not count."""
    total = 0.0
    stds = iter(_deviations(network))
    for n_in, n_out in zip(network.widths[:-1], network.widths[1:], strict=True):
        for count in (n_out, n_out * n_in):
            std = next(stds)
            if std > 0.0:
                total -= count * (math.log(std) + 0.5 * math.log(2.0 * math.pi))
    return total
