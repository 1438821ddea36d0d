"""How small the signal of one network is: layer scales, bottleneck, nonlinearity, signal energy.

Along the best linear predictor g of the targets (E|g|² = 1) the network has learnt
γ = E⟨f, g⟩, with gradients G_l = ∇_{W_l}γ and T = Σ_l ‖G_l‖². For the loss ½E|f − y|²,
dγ/dt = Σ_l ⟨G_l, E[(y − f)·∇_{W_l}f]⟩ exactly; S is the part of it that f itself makes (14).
E is the mean over a batch, or, with weights, that of a population of Gaussian inputs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.errors import InvalidValueError
from dynagram.networks import Model, check_inputs
from dynagram.networks._checks import require_plain
from dynagram.networks._model import takes_model
from dynagram.observables.tangents._signals import check_differentiable

# Two neighbouring scales further apart than this separate a bottleneck from the other layers.
_GAP = 1.5


@dataclass(frozen=True, eq=False)
class LayerSignals:
    """What the layers of one network do to the signal of one batch.

    **Arguments:**

    - `outputs`: f, (samples, n_L).
    - `scales`: root-mean-square gains α‖W_l‖_F/√n_l of the layers (the last without α).
    - `bottleneck`: the layers (from 1) at the small scale, r of them.
    - `gains`: the mean slopes of the activations.
    - `nonlinearity`: the part of each activation that is no multiple of its slope,
        E|σ(z) − E σ(z) − g(z − E z)| / E|g(z − E z)|.
    """

    outputs: Float[np.ndarray, "samples outputs"]
    scales: tuple[float, ...]
    bottleneck: tuple[int, ...]
    gains: tuple[float, ...]
    nonlinearity: tuple[float, ...]

    @property
    def r(self) -> int:
        """The number of bottleneck layers: the plateau lasts Θ(ε^{−(r−2)}) for r ≥ 3."""
        return len(self.bottleneck)


@dataclass(frozen=True, eq=False)
class SmallSignal(LayerSignals):
    """The state of one network on one batch, as the theory of plateaus sees it.

    **Arguments:** those of `LayerSignals`, and

    - `gamma`: γ.
    - `gradients`: G_l.
    - `rate`, `self_interaction`: dγ/dt and S.
    - `path_gains`: y_m = ‖A_m‖/‖A_{m−1}‖ along the chain A_m = W_m A_{m−1} from the direction of g.
    - `operator_norms`: the spectral norms of the weight matrices.
    """

    gamma: float
    gradients: tuple[np.ndarray, ...]
    rate: float
    self_interaction: float
    path_gains: tuple[float, ...]
    operator_norms: tuple[float, ...]

    @property
    def gradient_energy(self) -> float:
        """T = Σ_l ‖G_l‖²: dγ/dt is h_σ β T as long as the signal is small."""
        return sum(float(np.sum(G * G)) for G in self.gradients)

    @property
    def largest_norm(self) -> float:
        """M = max ‖W_l‖_op over the bottleneck layers."""
        return max(self.operator_norms[layer - 1] for layer in self.bottleneck)


@takes_model
def layer_signals(
    model: Model,
    x: Float[np.ndarray, "samples n_0"],
    y: Float[np.ndarray, "samples outputs"],
) -> LayerSignals:
    """Scales, bottleneck, mean slopes and nonlinearity of a network on a batch.

    **Arguments:**

    - `model`: a network of at least two layers, without skips.
    - `x`, `y`: inputs (samples, n_0) and targets (samples, n_L).

    **Returns:** `LayerSignals`, in float64. Cost: a forward pass.

    >>> x = np.linspace(-1, 1, 9)[:, None]
    >>> model = Model.of_matrices([np.full((2, 1), 0.1), np.full((1, 2), 0.1)], "tanh")
    >>> state = layer_signals(model, x, x)
    >>> state.bottleneck, round(state.nonlinearity[0], 3)
    ((1, 2), 0.002)
    """
    return _layer_signals(_pass_forward(model, x, y, None))


@takes_model
@float64
def small_signal(
    model: Model,
    x: Float[np.ndarray, "samples n_0"],
    y: Float[np.ndarray, "samples outputs"],
    *,
    weights: Float[np.ndarray, " samples"] | None = None,
) -> SmallSignal:
    """Measure scales, bottleneck, γ, G_l, T, S, M, y_m, dγ/dt of a network on a batch.

    **Arguments:**

    - `model`: a network of at least two layers, without skips.
    - `x`, `y`: inputs (samples, n_0) and targets (samples, n_L).
    - `weights`: those of the samples, with the sum 1, in place of 1/samples: rows and weights of
        `gaussian_batch` give the values of the population.

    **Returns:** `SmallSignal`, in float64. Cost: one forward and three backward passes over the
    batch; memory: the activations of all layers.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(500, 4))
    >>> layers = [0.1 * rng.normal(size=s) / 2 for s in ((16, 4), (16, 16))]
    >>> model = Model.of_matrices([*layers, rng.normal(size=(1, 16)) / 4], "tanh")
    >>> state = small_signal(model, x, np.tanh(x[:, :1]))
    >>> state.bottleneck, state.rate > 0
    ((1, 2), True)
    """
    check_differentiable(model.network, 1, "the gradient of the signal")
    model = model.in_float64()
    state = _pass_forward(model, x, y, weights)
    linear, direction = _linear_target(x, y, state.share)
    outputs = state.z[-1]
    _, pull = jax.vjp(lambda params: model.network.apply(params, x), model.params)

    def pull_back(cotangent: np.ndarray) -> list[np.ndarray]:
        """Σ_samples of share·cotangent·∂f/∂W_l for every layer."""
        return [
            np.asarray(layer.W) for layer in pull(jnp.asarray(state.share[:, None] * cotangent))[0]
        ]

    learnt, moved, output_pull = (pull_back(part) for part in (linear, y - outputs, outputs))
    return SmallSignal(
        **vars(_layer_signals(state)),
        gamma=float(np.sum(state.share @ (outputs * linear))),
        gradients=tuple(learnt),
        rate=_pair(learnt, moved),
        self_interaction=_pair(learnt, output_pull),
        path_gains=_path_gains(state.weights, direction),
        operator_norms=tuple(float(np.linalg.norm(W, 2)) for W in state.weights),
    )


@takes_model
@float64
def mean_slopes(model: Model, x: Float[np.ndarray, "samples n_0"]) -> tuple[float, ...]:
    """E[σ'(z^(ℓ))] over samples and neurons of every hidden layer.

    **Arguments:**

    - `model`: the network.
    - `x`: inputs (samples, n_0).

    **Returns:** L−1 numbers. Cost: one forward pass.

    >>> model = Model.of_matrices([np.eye(2), np.ones((1, 2))], "relu")
    >>> mean_slopes(model, np.array([[1.0, -1.0]]))
    (0.5,)
    """
    z = model.in_float64().preactivations(x)
    slope = model.network.activation.values
    return tuple(float(np.mean(slope(np.asarray(values), 1))) for values in z[:-1])


def layer_scales(weights: Sequence[np.ndarray], gains: Sequence[float]) -> tuple[float, ...]:
    """Root-mean-square gain of every layer together with the activation after it.

    **Arguments:**

    - `weights`: the weight matrices W_1..W_L.
    - `gains`: mean slopes of the L−1 activations.

    **Returns:** L numbers.

    >>> layer_scales([2.0 * np.eye(3), np.ones((1, 3))], [0.5])
    (1.0, 1.7320508075688772)
    """
    rms = [float(np.linalg.norm(layer)) / math.sqrt(layer.shape[0]) for layer in weights]
    return tuple(abs(gain) * value for gain, value in zip((*gains, 1.0), rms, strict=True))


def bottleneck_layers(scales: Sequence[float]) -> tuple[int, ...]:
    """The layers below the widest gap between neighbouring scales; all where there is no gap.

    **Arguments:**

    - `scales`: one number per layer.

    **Returns:** the numbers of the layers, from 1.

    >>> bottleneck_layers([0.1, 1.2, 0.11, 1.0]), bottleneck_layers([0.1, 0.12, 0.09])
    ((1, 3), (1, 2, 3))
    """
    ordered = sorted(scales)
    if ordered[0] <= 0.0:
        return tuple(layer for layer, scale in enumerate(scales, start=1) if scale <= 0.0)
    ratios = [high / low for low, high in itertools.pairwise(ordered)]
    if not ratios or max(ratios) < _GAP:
        return tuple(range(1, len(scales) + 1))
    limit = ordered[ratios.index(max(ratios))]
    return tuple(layer for layer, scale in enumerate(scales, start=1) if scale <= limit)


class _Passed(NamedTuple):
    """A forward pass: the weights, what each sample counts for, z^(1..L), and σ, σ' of hidden z."""

    weights: list[np.ndarray]
    share: np.ndarray
    z: list[np.ndarray]
    features: list[np.ndarray]
    slopes: list[np.ndarray]


@float64
def _pass_forward(
    model: Model, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None
) -> _Passed:
    model, network = model.in_float64(), model.network
    require_plain(network, "the theory of plateaus")
    if network.depth < 2:
        raise InvalidValueError("depth", network.depth, "at least 2 layers needed")
    x = check_inputs(x, network.input_size)
    if y.shape != (len(x), network.output_size):
        allowed = f"expected ({len(x)}, {network.output_size})"
        raise InvalidValueError("shape of y", y.shape, allowed)
    share = _shares(weights, len(x))
    z = [np.asarray(values) for values in model.preactivations(x)]
    sigma = network.activation
    return _Passed(
        [np.asarray(layer.W) for layer in model.params],
        share,
        z,
        [sigma.values(values) for values in z[:-1]],
        [sigma.values(values, 1) for values in z[:-1]],
    )


def _layer_signals(state: _Passed) -> LayerSignals:
    gains = tuple(float(np.mean(state.share @ values)) for values in state.slopes)
    scales = layer_scales(state.weights, gains)
    return LayerSignals(
        outputs=state.z[-1],
        scales=scales,
        bottleneck=bottleneck_layers(scales),
        gains=gains,
        nonlinearity=tuple(
            _nonlinearity(values, after, gain, state.share)
            for values, after, gain in zip(state.z[:-1], state.features, gains, strict=True)
        ),
    )


def _shares(weights: np.ndarray | None, samples: int) -> np.ndarray:
    """What each sample counts for in a mean."""
    if weights is None:
        return np.full(samples, 1.0 / samples)
    share = np.asarray(weights, dtype=np.float64)
    if share.shape != (samples,):
        raise InvalidValueError("shape of weights", share.shape, f"expected ({samples},)")
    if not np.all(share >= 0) or not abs(float(share.sum()) - 1.0) < 1e-6:
        raise InvalidValueError(
            "weights", f"sum {share.sum():.6g}", "numbers ≥ 0 with the sum 1 needed"
        )
    return share


def _linear_target(
    x: np.ndarray, y: np.ndarray, share: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The best linear predictor of y with E|g|² = 1, and its input direction of largest weight."""
    root = np.sqrt(share)[:, None]
    solution = np.linalg.lstsq(root * x, root * y, rcond=None)[0]
    linear = x @ solution
    size = math.sqrt(float(np.sum(share @ (linear * linear))))
    if size == 0.0:
        raise InvalidValueError("y", "uncorrelated with x", "a batch with a linear signal needed")
    direction = np.linalg.svd(solution, full_matrices=False)[0][:, 0]
    return linear / size, direction


def _path_gains(weights: Sequence[np.ndarray], direction: np.ndarray) -> tuple[float, ...]:
    gains, vector = [], direction
    for layer in weights:
        after = layer @ vector
        before = float(np.linalg.norm(vector))
        gains.append(float(np.linalg.norm(after)) / before if before else 0.0)
        vector = after
    return tuple(gains)


def _nonlinearity(z: np.ndarray, after: np.ndarray, gain: float, share: np.ndarray) -> float:
    """The part of σ(z) that is no multiple of z, both without the mean of their neuron."""
    linear = gain * (z - share @ z)
    size = float(np.mean(share @ np.abs(linear)))
    rest = float(np.mean(share @ np.abs(after - share @ after - linear)))
    return rest / size if size else (math.inf if rest else 0.0)


def _pair(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    return sum(float(np.sum(a * b)) for a, b in zip(first, second, strict=True))
