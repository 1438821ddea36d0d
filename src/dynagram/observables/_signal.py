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

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks import ActivationLike, Layer, checked_activation

# Two neighbouring scales further apart than this separate a bottleneck from the other layers.
_GAP = 1.5


@dataclass(frozen=True, eq=False)
class LayerSignals:
    """What the layers of one network do to the signal of one batch.

    `scales` are the root-mean-square gains α‖W_l‖_F/√n_l of the layers (the last without α);
    `bottleneck` the layers (from 1) at the small scale, r of them; `gains` the mean slopes of the
    activations; `nonlinearity` the part of each activation that is no multiple of its slope:
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

    `rate` is dγ/dt and `self_interaction` S. `path_gains` are y_m = ‖A_m‖/‖A_{m−1}‖ along the
    chain A_m = W_m A_{m−1} from the direction of g, `operator_norms` the spectral norms.
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


def layer_signals(
    params: Sequence[Layer | np.ndarray],
    x: Float[np.ndarray, "samples n_0"],
    y: Float[np.ndarray, "samples outputs"],
    activation: ActivationLike,
) -> LayerSignals:
    """Scales, bottleneck, mean slopes and nonlinearity of a network on a batch: a forward pass.

    >>> x = np.linspace(-1, 1, 9)[:, None]
    >>> found = layer_signals([np.full((2, 1), 0.1), np.full((1, 2), 0.1)], x, x, "tanh")
    >>> found.bottleneck, round(found.nonlinearity[0], 3)
    ((1, 2), 0.002)
    """
    return _layer_signals(_passed(params, x, y, activation, None))


def small_signal(
    params: Sequence[Layer | np.ndarray],
    x: Float[np.ndarray, "samples n_0"],
    y: Float[np.ndarray, "samples outputs"],
    activation: ActivationLike,
    *,
    weights: Float[np.ndarray, " samples"] | None = None,
) -> SmallSignal:
    """Measure scales, bottleneck, γ, G_l, T, S, M, y_m, dγ/dt of a network on a batch.

    `params` holds a matrix (n_l, n_{l−1}) or a `Layer` per layer. `weights` are those of the
    samples, with the sum 1, in place of 1/samples: rows and weights of `gaussian_batch` give the
    values of the population. Cost: one forward and three backward passes over the batch. Memory:
    the activations of all layers.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(500, 4))
    >>> layers = [0.1 * rng.normal(size=s) / 2 for s in ((16, 4), (16, 16))]
    >>> layers.append(rng.normal(size=(1, 16)) / 4)
    >>> found = small_signal(layers, x, np.tanh(x[:, :1]), "tanh")
    >>> found.bottleneck, found.rate > 0
    ((1, 2), True)
    """
    state = _passed(params, x, y, activation, weights)
    outputs, share = state.z[-1], state.share
    linear, direction = _linear_target(x, y, share)
    learnt, moved, own = (
        _gradient(state.layers, state.u, state.slopes, share[:, None] * cotangent)
        for cotangent in (linear, y - outputs, outputs)
    )
    return SmallSignal(
        **vars(_layer_signals(state)),
        gamma=float(np.sum(share @ (outputs * linear))),
        gradients=tuple(learnt),
        rate=_paired(learnt, moved),
        self_interaction=_paired(learnt, own),
        path_gains=_path_gains(state.layers, direction),
        operator_norms=tuple(float(np.linalg.norm(layer, 2)) for layer in state.layers),
    )


def mean_slopes(
    weights: Sequence[np.ndarray],
    biases: Sequence[np.ndarray | None],
    x: Float[np.ndarray, "samples n_0"],
    activation: ActivationLike,
) -> tuple[float, ...]:
    """E[σ'(z^(ℓ))] over samples and neurons of every hidden layer: one forward pass."""
    sigma = checked_activation(activation)
    _, z = _forward(weights, biases, x, sigma)
    return tuple(float(np.mean(sigma.values(values, 1))) for values in z[:-1])


def layer_scales(weights: Sequence[np.ndarray], gains: Sequence[float]) -> tuple[float, ...]:
    """Root-mean-square gain of every layer together with the activation after it.

    >>> layer_scales([2.0 * np.eye(3), np.ones((1, 3))], [0.5])
    (1.0, 1.7320508075688772)
    """
    rms = [float(np.linalg.norm(layer)) / math.sqrt(layer.shape[0]) for layer in weights]
    return tuple(abs(gain) * value for gain, value in zip((*gains, 1.0), rms, strict=True))


def bottleneck_layers(scales: Sequence[float]) -> tuple[int, ...]:
    """The layers (from 1) below the widest gap between neighbouring scales; all without a gap.

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


def matrices(
    params: Sequence[Layer | np.ndarray],
) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """Weights and biases of a network given by matrices or `Layer`s; no bias is None."""
    weights, biases = [], []
    for layer in params:
        if isinstance(layer, Layer):
            weights.append(np.asarray(layer.W, dtype=np.float64))
            bias = np.asarray(layer.b, dtype=np.float64)
            biases.append(bias if np.any(bias) else None)
        else:
            weights.append(np.asarray(layer, dtype=np.float64))
            biases.append(None)
    return weights, biases


def check_shapes(weights: Sequence[np.ndarray], x: np.ndarray, y: np.ndarray) -> None:
    """Refuse layers that do not fit together or the batch, and numbers that are not finite."""
    if len(weights) < 2:
        raise InvalidValueError("layers", len(weights), "at least 2 needed")
    inputs = x.shape[1]
    for number, layer in enumerate(weights, start=1):
        if layer.ndim != 2 or layer.shape[1] != inputs:
            allowed = f"expected (n_{number}, {inputs})"
            raise InvalidValueError(f"shape of layer {number}", layer.shape, allowed)
        if not np.all(np.isfinite(layer)):
            raise InvalidValueError(f"layer {number}", "not finite", "finite weights needed")
        inputs = layer.shape[0]
    if y.shape != (len(x), inputs):
        raise InvalidValueError("shape of y", y.shape, f"expected ({len(x)}, {inputs})")


class _Passed(NamedTuple):
    """A forward pass: the weights, what each sample counts for, u^(0..L−1), z^(1..L), σ'(z)."""

    layers: list[np.ndarray]
    share: np.ndarray
    u: list[np.ndarray]
    z: list[np.ndarray]
    slopes: list[np.ndarray]


def _passed(
    params: Sequence[Layer | np.ndarray],
    x: np.ndarray,
    y: np.ndarray,
    activation: ActivationLike,
    weights: np.ndarray | None,
) -> _Passed:
    sigma = checked_activation(activation)
    layers, biases = matrices(params)
    check_shapes(layers, x, y)
    share = _shares(weights, len(x))
    u, z = _forward(layers, biases, x, sigma)
    return _Passed(layers, share, u, z, [sigma.values(values, 1) for values in z[:-1]])


def _layer_signals(state: _Passed) -> LayerSignals:
    gains = tuple(float(np.mean(state.share @ values)) for values in state.slopes)
    scales = layer_scales(state.layers, gains)
    return LayerSignals(
        outputs=state.z[-1],
        scales=scales,
        bottleneck=bottleneck_layers(scales),
        gains=gains,
        nonlinearity=tuple(
            _nonlinearity(values, after, gain, state.share)
            for values, after, gain in zip(state.z[:-1], state.u[1:], gains, strict=True)
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


def _forward(
    weights: Sequence[np.ndarray],
    biases: Sequence[np.ndarray | None],
    x: np.ndarray,
    sigma: Activation,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """u^(0..L−1) and z^(1..L)."""
    u, z = [x], []
    for index, (layer, bias) in enumerate(zip(weights, biases, strict=True)):
        values = u[-1] @ layer.T
        z.append(values if bias is None else values + bias)
        if index < len(weights) - 1:
            u.append(sigma.values(z[-1]))
    return u, z


def _gradient(
    weights: Sequence[np.ndarray],
    u: Sequence[np.ndarray],
    slopes: Sequence[np.ndarray],
    cotangent: np.ndarray,
) -> list[np.ndarray]:
    """Σ_samples of cotangent·∂f/∂W_l for every layer."""
    found: list[np.ndarray] = []
    for index in range(len(weights) - 1, -1, -1):
        found.insert(0, cotangent.T @ u[index])
        if index:
            cotangent = (cotangent @ weights[index]) * slopes[index - 1]
    return found


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


def _paired(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    return sum(float(np.sum(a * b)) for a, b in zip(first, second, strict=True))
