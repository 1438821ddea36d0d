"""One network measured layer by layer on a batch of data: what `dynagram measure` prints.

Per layer ℓ, from one streamed forward and backward pass: its share of the tangent kernel's trace,
target linearity of the features it makes, how the data push its Gram matrix, the spectrum of
W^(ℓ)ᵀW^(ℓ), the imbalance ‖W^(ℓ+1)‖² − ‖W^(ℓ)‖², and units that never respond.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from dynagram._precision import float64
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import MLP, Params, check_inputs
from dynagram.networks._weights import Weights
from dynagram.observables._nulls import Alignment
from dynagram.observables.gram._factor import FeatureFactor
from dynagram.observables.gram._linearity import (
    Linearity,
    check_labels,
    held_out_linearity,
    one_hot,
)
from dynagram.observables.gram._virtual_covariance import stationarity
from dynagram.observables.spectra._spectra import WeightSpectrum, weight_spectrum
from dynagram.observables.tangents._signals import check_differentiable, gradients

Loss = Literal["auto", "cross-entropy", "mse"]
_NUMBERS_AT_ONCE = 2**23
_LARGEST_BATCH = 512


@dataclass(frozen=True, eq=False)
class LayerMeasurement:
    """Layer ℓ of a measured network.

    `kernel_share` is the share of its parameters in the trace of the tangent kernel at equal
    learning rates. `linearity` is that of the features after the layer: σ(z^(ℓ)), or z^(L).
    `alignment` is `stationarity`, None where the gradient is exactly zero; `imbalance` is
    ‖W^(ℓ+1)‖² − ‖W^(ℓ)‖², None for the last layer; `dead` counts units constant on the batch.
    """

    layer: int
    name: str
    shape: tuple[int, int]
    norm: float
    kernel_share: float
    linearity: Linearity
    alignment: Alignment | None
    spectrum: WeightSpectrum
    imbalance: float | None
    dead: int


@dataclass(frozen=True, eq=False)
class NetworkMeasurement:
    """A whole network on a batch; `accuracy` is None for regression; `notes` tell of guesses."""

    layers: tuple[LayerMeasurement, ...]
    input_linearity: Linearity
    loss_name: str
    loss: float
    accuracy: float | None
    samples: int
    notes: tuple[str, ...] = ()


@float64
def measure_network(
    weights: Weights,
    activation: Any,
    x: np.ndarray,
    y: np.ndarray,
    *,
    test: tuple[np.ndarray, np.ndarray] | None = None,
    loss: Loss = "auto",
    seed: int = 0,
) -> NetworkMeasurement:
    """Measure the network of `weights` with this activation on inputs `x` and targets `y`.

    `y` holds integer labels (cross-entropy) or reals (mean squared error); `loss` overrules that.
    Target linearity is a held-out score: fitted on (x, y) and scored on `test`, or without it
    fitted on a random half (from `seed`) and scored on the other. Cost per sample about
    n_L Σ n_ℓ n_{ℓ-1}; memory 64 MB and (n_ℓ + C)² numbers per layer.

    >>> from dynagram.networks._weights import chain
    >>> rng = np.random.default_rng(0)
    >>> net = chain({"W1": rng.normal(size=(20, 5)), "W2": rng.normal(size=(2, 20))})
    >>> x = rng.normal(size=(80, 5))
    >>> found = measure_network(net, "relu", x, (x[:, 0] > 0).astype(int))
    >>> [layer.shape for layer in found.layers], found.loss_name
    ([(20, 5), (2, 20)], 'cross-entropy')
    >>> round(sum(layer.kernel_share for layer in found.layers), 9)
    1.0
    """
    network, params = weights.network(activation), weights.params()
    check_differentiable(network, 1, "the gradient of the loss")
    task = _task(x, y, network, loss)
    x = check_inputs(x, network.widths[0])
    if test is None:
        fitted = np.zeros(len(x), dtype=bool)
        fitted[np.random.default_rng(seed).permutation(len(x))[: (len(x) + 1) // 2]] = True
    else:
        fitted = np.ones(len(x), dtype=bool)
    totals = _Totals(network)
    for rows, passed in _passes(network, params, x):
        totals.add(passed, task.targets[rows], task.kind, len(x), fitted[rows])
    if test is not None:
        task_of_test = _task(test[0], test[1], network, loss)
        x_test = check_inputs(test[0], network.widths[0], "x_test")
        for rows, passed in _passes(network, params, x_test):
            totals.score(passed, task_of_test.targets[rows])
    return NetworkMeasurement(
        layers=tuple(_layers(weights, totals, seed)),
        input_linearity=held_out_linearity(totals.fit[0], None, totals.held_out[0], seed=seed),
        loss_name=task.kind,
        loss=totals.loss,
        accuracy=totals.correct / len(x) if task.classes else None,
        samples=len(x),
        notes=weights.notes,
    )


def _layers(weights: Weights, totals: _Totals, seed: int) -> Iterator[LayerMeasurement]:
    norms = [float(np.sum(W**2)) for W in weights.W]
    shares = totals.kernel / np.sum(totals.kernel)
    for index, W in enumerate(weights.W):
        gradient = totals.gradients[index]
        yield LayerMeasurement(
            layer=index + 1,
            name=weights.names[index],
            shape=(W.shape[0], W.shape[1]),
            norm=norms[index],
            kernel_share=float(shares[index]),
            linearity=held_out_linearity(
                totals.fit[index + 1], None, totals.held_out[index + 1], seed=seed
            ),
            alignment=stationarity(W, gradient) if np.any(W.T @ gradient) else None,
            spectrum=weight_spectrum(W, seed=seed),
            imbalance=norms[index + 1] - norms[index] if index + 1 < len(norms) else None,
            dead=int(np.sum(totals.highest[index] == totals.lowest[index])),
        )


# --- data -------------------------------------------------------------------------------------


class _Task(NamedTuple):
    kind: str
    targets: np.ndarray
    classes: bool


def _task(x: np.ndarray, y: np.ndarray, network: MLP, loss: Loss) -> _Task:
    """Targets (samples, n_L) and the loss they mean."""
    y, outputs = np.asarray(y), network.widths[-1]
    if len(y) != len(x):
        raise InvalidValueError("rows of x and y", (len(x), len(y)), "one target per input needed")
    is_labels = y.ndim == 1 and y.dtype.kind in "iub"
    kind = ("cross-entropy" if is_labels else "mse") if loss == "auto" else loss
    if is_labels:
        labels = check_labels(y.astype(np.int64))
        if outputs == 1 and labels.max() <= 1:
            return _Task(kind, labels[:, None].astype(np.float64), True)
        if labels.max() >= outputs:
            allowed = f"the network has {outputs} outputs, for labels 0 to {outputs - 1}"
            raise InvalidValueError("y", int(labels.max()), allowed)
        return _Task(kind, one_hot(labels, outputs), True)
    targets = y[:, None] if y.ndim == 1 else y
    return _Task(kind, check_inputs(targets, outputs, "y"), kind == "cross-entropy")


# --- passes -----------------------------------------------------------------------------------


class _Passed(NamedTuple):
    """Features entering every layer and the output, and J^(ℓ) = ∂z^(L)/∂z^(ℓ)."""

    h: list[np.ndarray]
    J: list[np.ndarray]


@functools.partial(jax.jit, static_argnums=0)
def _pass(network: MLP, params: Params, x: ArrayLike) -> Any:
    found = gradients(network, params, x)
    return found.u, found.J


def _passes(network: MLP, params: Params, x: np.ndarray) -> Iterator[tuple[slice, _Passed]]:
    size = network.widths[-1] * sum(network.widths)
    rows = int(np.clip(_NUMBERS_AT_ONCE // size, 1, min(_LARGEST_BATCH, len(x))))
    for start in range(0, len(x), rows):
        u, J = _pass(network, params, x[start : start + rows])
        h = [np.asarray(values) for values in u]
        with np.errstate(over="ignore", invalid="ignore"):
            output = h[-1] @ np.asarray(params[-1].W).T + np.asarray(params[-1].b)
        if not np.all(np.isfinite(output)):
            raise NonFiniteError("the network's output overflows: wrong activation or input scale?")
        yield slice(start, start + rows), _Passed([*h, output], [np.asarray(v) for v in J])


class _Totals:
    """Sums over the batches."""

    def __init__(self, network: MLP):
        self.fit = [FeatureFactor() for _ in network.widths]
        self.held_out = [FeatureFactor() for _ in network.widths]
        self.kernel = np.zeros(network.depth)
        sizes = zip(network.widths[1:], network.widths[:-1], strict=True)
        self.gradients = [np.zeros(shape) for shape in sizes]
        self.highest = [np.full(n, -np.inf) for n in network.widths[1:]]
        self.lowest = [np.full(n, np.inf) for n in network.widths[1:]]
        self.loss = 0.0
        self.correct = 0
        self._rates = network.lambda_b

    def add(
        self, passed: _Passed, targets: np.ndarray, kind: str, samples: int, fitted: np.ndarray
    ) -> None:
        """Count a batch of the measured data."""
        loss, residual, correct = _loss(passed.h[-1], targets, kind)
        self.loss += loss / samples
        self.correct += correct
        for index, J in enumerate(passed.J):
            h = passed.h[index]
            sizes = self._rates[index] + np.sum(h**2, axis=1)
            self.kernel[index] += float(sizes @ np.sum(J**2, axis=(1, 2)))
            delta = np.einsum("ai,aij->aj", residual / samples, J)
            self.gradients[index] += delta.T @ h
            after = passed.h[index + 1]
            self.highest[index] = np.maximum(self.highest[index], after.max(axis=0))
            self.lowest[index] = np.minimum(self.lowest[index], after.min(axis=0))
        for index, h in enumerate(passed.h):
            if np.any(fitted):
                self.fit[index].add(h[fitted], targets[fitted])
            if not np.all(fitted):
                self.held_out[index].add(h[~fitted], targets[~fitted])

    def score(self, passed: _Passed, targets: np.ndarray) -> None:
        """Count a batch of the test data, for target linearity alone."""
        for factor, h in zip(self.held_out, passed.h, strict=True):
            factor.add(h, targets)


def _loss(z: np.ndarray, y: np.ndarray, kind: str) -> tuple[float, np.ndarray, int]:
    """Summed loss, its gradient by z, and correct decisions."""
    if kind == "mse":
        residual = (z - y) / z.shape[1]
        decided = np.argmax(z, axis=1) == np.argmax(y, axis=1) if z.shape[1] > 1 else (z > 0.5) == y
        return float(np.sum((z - y) ** 2)) / z.shape[1], 2.0 * residual, int(np.sum(decided))
    if z.shape[1] == 1:
        probability = 0.5 * (1.0 + np.tanh(0.5 * z))
        loss = float(np.sum(np.logaddexp(0.0, z) - y * z))
        return loss, probability - y, int(np.sum((z > 0) == (y > 0.5)))
    shifted = z - z.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.sum(np.exp(shifted), axis=1, keepdims=True))
    correct = int(np.sum(np.argmax(z, axis=1) == np.argmax(y, axis=1)))
    return -float(np.sum(y * logs)), np.exp(logs) * y.sum(axis=1, keepdims=True) - y, correct
