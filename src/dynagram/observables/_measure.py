"""One network measured layer by layer on a batch of data: what `dynagram measure` prints.

Per layer ℓ, from one streamed forward and backward pass: its share of the tangent kernel's trace,
target linearity of the features it makes, how the data push its Gram matrix, the spectrum of
W^(ℓ)ᵀW^(ℓ), the imbalance ‖W^(ℓ+1)‖² − ‖W^(ℓ)‖², and units that never respond. For classes neural
collapse of the features after every hidden layer, from two further passes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from dynagram._memory import require_memory
from dynagram._precision import float64
from dynagram.data import Data
from dynagram.data._data import is_one_hot
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import Architecture, Model, Params
from dynagram.networks._model import takes_model
from dynagram.observables._collapse import Collapse, CollapseTracker
from dynagram.observables._measurement import LayerMeasurement, Measurement
from dynagram.observables._nulls import Null
from dynagram.observables.gram._factor import FeatureFactor
from dynagram.observables.gram._linearity import held_out_linearity
from dynagram.observables.gram._virtual_covariance import stationarity
from dynagram.observables.spectra._spectra import weight_spectrum
from dynagram.observables.tangents._signals import Signals, check_differentiable, network_signals
from dynagram.training._losses import (
    check_loss,
    check_loss_targets,
    loss_gradient,
    loss_value,
)

_NUMBERS_AT_ONCE = 2**23
_LARGEST_BATCH = 512


@takes_model
@float64
def measure(model: Model, data: Data, *, loss: str = "auto", seed: int = 0) -> Measurement:
    """Measure a network layer by layer on data.

    **Arguments:**

    - `model`: the network and its weights; skips are part of it.
    - `data`: inputs and targets. Target linearity is a held-out score: fitted on `x`, `y` and
        scored on `test_x`, `test_y`, or without them fitted on a random half of the samples and
        scored on the other.
    - `loss`: "half-sum", "mean" or "cross-entropy"; "auto" is the cross-entropy for classes and
        for targets that are one-hot (of a single output: the binary one) and the mean squared
        error otherwise.
    - `seed`: of the split and of the nulls.

    **Returns:** `Measurement`. Cost per sample about n_L Σ n_ℓ n_{ℓ-1}; memory 64 MB and
    (n_ℓ + C)² numbers per layer.

    >>> rng = np.random.default_rng(0)
    >>> model = Model.of_matrices([rng.normal(size=(20, 5)), rng.normal(size=(2, 20))], "relu")
    >>> x = rng.normal(size=(80, 5))
    >>> result = measure(model, Data.of_classes(x, (x[:, 0] > 0).astype(int)))
    >>> [layer.shape for layer in result.layers], result.loss_name
    ([(20, 5), (2, 20)], 'cross-entropy')
    >>> round(sum(layer.kernel_share for layer in result.layers), 9)
    1.0
    """
    model, samples = model.in_float64(), len(data.x)
    check_differentiable(model.network, 1, "the gradient of the loss")
    data.check(model.network)
    _check_memory(model, samples + len(data.test_x))
    kind = _choose_loss(data, loss)
    is_fitted = np.ones(samples, dtype=bool)
    if data.test_y is None:
        if samples < 2:
            raise InvalidValueError("samples", samples, "at least two, or x_test and y_test")
        order = np.random.default_rng(seed).permutation(samples)
        is_fitted[order[(samples + 1) // 2 :]] = False
    totals = _Totals(model.network)
    with np.errstate(over="ignore", invalid="ignore"):  # `require_range` says so in words
        for rows, passes in _stream(model, data.x):
            totals.add(passes, data.y[rows], kind, samples, is_fitted[rows])
    if data.test_y is not None:
        for rows, passes in _stream(model, data.test_x):
            totals.score(passes, data.test_y[rows])
    totals.require_range()
    has_classes = data.classes is not None or kind == "cross-entropy"
    collapses, reason = _collapses(model, data, seed) if has_classes else ((), "")
    return Measurement(
        layers=tuple(_layers(model, totals, seed)),
        input_linearity=held_out_linearity(totals.fit[0], None, totals.held_out[0], seed=seed),
        loss_name=kind,
        loss=totals.loss,
        accuracy=totals.correct / samples if has_classes else None,
        samples=samples,
        collapse=collapses,
        notes=(*model.notes, *((reason,) if reason else ()), *_note_on_loss(data, loss)),
    )


def _collapses(model: Model, data: Data, seed: int) -> tuple[tuple[Collapse, ...], str]:
    """Neural collapse of the features after every hidden layer, or why there is none."""
    y, depth = data.y, model.network.depth
    labels = np.argmax(y, axis=1) if y.shape[1] > 1 else (y[:, 0] > 0.5).astype(int)
    classes = max(y.shape[1], 2)
    counts = np.bincount(labels, minlength=classes)
    if depth < 2 or counts.min() < 2:
        few = ", ".join(str(c) for c in np.flatnonzero(counts < 2))
        return (), f"no neural collapse: fewer than two samples of class {few}" if few else ""
    trackers = [CollapseTracker(classes, n, seed=seed) for n in model.network.widths[1:-1]]
    for rows, passes in _stream(model, data.x):
        for tracker, h in zip(trackers, passes.u[1:], strict=True):
            tracker.add(np.asarray(h), labels[rows])
    W = np.asarray(model.params[-1].W, dtype=np.float64)
    has_rows = W.shape[0] == classes and bool(np.any(np.ptp(W, axis=0)))  # not all alike
    try:
        hidden = [tracker.measures() for tracker in trackers[:-1]]
        last = trackers[-1].measures(W if has_rows else None)
    except InvalidValueError as error:  # equal class means: nothing reaches the layer
        return (), f"no neural collapse: {error}"
    if has_rows:
        wrong, null = _disagreement(model, data.x, trackers[-1])
        last = replace(last, disagreement=wrong, disagreement_null=null)
    return (*hidden, last), ""


def _disagreement(model: Model, x: np.ndarray, tracker: CollapseTracker) -> tuple[float, Null]:
    """NC4, from a second look at the last hidden layer."""
    seen = []
    for rows, passes in _stream(model, x):
        decisions = np.argmax(np.asarray(passes.z[-1]), axis=1)
        count = len(x[rows])
        value, null = tracker.disagreement(np.asarray(passes.u[-1]), decisions)
        seen.append((count, value, null.mean, null.deviation))
    sizes, values, means, deviations = np.array(seen).T
    share = sizes / sizes.sum()
    return float(share @ values), Null(float(share @ means), float(share @ deviations))


def _note_on_loss(data: Data, loss: str) -> tuple[str, ...]:
    """What was taken for granted about targets that only look like classes."""
    if loss != "auto" or data.classes is not None or not is_one_hot(data.y):
        return ()
    return ('the targets are one-hot, so the loss is the cross-entropy: "mean" for squared errors',)


def _check_memory(model: Model, samples: int) -> None:
    """Two factors per layer of features, at most square, and the weights with their gradients."""
    sizes = [1 + n + model.network.output_size for n in model.network.widths]
    factors = sum(2 * min(samples, size) * size for size in sizes)
    factors += max(2 * (min(samples, size) + _LARGEST_BATCH) * size for size in sizes)
    # Scatter and class sums of collapse: 17 sets of class means beside n².
    factors += sum(n * (n + 20 * model.network.output_size) for n in model.network.widths[1:-1])
    needed = 8.0 * (factors + 4 * model.network.number_of_parameters)
    require_memory("widths", model.network.widths, needed, "measure fewer samples or inputs")


def _choose_loss(data: Data, loss: str) -> str:
    if loss == "auto":
        has_classes = data.classes is not None or is_one_hot(data.y)
        return "cross-entropy" if has_classes else "mean"
    is_single = loss == "cross-entropy" and data.outputs == 1
    check_loss_targets(loss, np.hstack([1.0 - data.y, data.y]) if is_single else data.y)
    return check_loss(loss)


def _layers(model: Model, totals: _Totals, seed: int) -> Iterator[LayerMeasurement]:
    weights = [np.asarray(layer.W, dtype=np.float64) for layer in model.params]
    norms = [float(np.sum(W**2)) for W in weights]
    whole = float(np.sum(totals.kernel))
    shares = totals.kernel / whole if whole > 0.0 else np.full(len(weights), np.nan)
    for index, W in enumerate(weights):
        gradient = totals.gradients[index]
        yield LayerMeasurement(
            layer=index + 1,
            name=model.name_of(index + 1),
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


# --- passes -----------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnums=0)
def _pass(network: Architecture, params: Params, x: ArrayLike) -> Signals:
    return network_signals(network, params, x)


def _stream(model: Model, x: np.ndarray) -> Iterator[tuple[slice, Signals]]:
    """Forward and backward passes over as many rows at a time as fit in memory."""
    network, params = model.network, model.params
    size = network.widths[-1] * sum(network.widths)
    rows = int(np.clip(_NUMBERS_AT_ONCE // size, 1, min(_LARGEST_BATCH, len(x))))
    for start in range(0, len(x), rows):
        passes = jax.tree.map(np.asarray, _pass(network, params, x[start : start + rows]))
        if not np.all(np.isfinite(passes.z[-1])):
            raise NonFiniteError("the network's output overflows: wrong activation or input scale?")
        yield slice(start, start + rows), passes


class _Totals:
    """Sums over the batches."""

    def __init__(self, network: Architecture):
        self.fit = [FeatureFactor() for _ in network.widths]
        self.held_out = [FeatureFactor() for _ in network.widths]
        self.kernel = np.zeros(network.depth)
        sizes = zip(network.widths[1:], network.widths[:-1], strict=True)
        self.gradients = [np.zeros(shape) for shape in sizes]
        self.highest = [np.full(n, -np.inf) for n in network.widths[1:]]
        self.lowest = [np.full(n, np.inf) for n in network.widths[1:]]
        self.loss = 0.0
        self.correct = 0
        # A bias that does not exist has no gradient; all that exists moves at the same rate.
        self._has_bias = [float(rate > 0.0) for rate in network.lambda_b]

    def add(
        self, passes: Signals, targets: np.ndarray, kind: str, samples: int, is_fitted: np.ndarray
    ) -> None:
        """Count a batch of the measured data."""
        features = _features(passes)
        value, residual = _loss(kind, passes.z[-1], targets)
        share = 1.0 if kind == "half-sum" else len(targets) / samples
        self.loss += share * value
        self.correct += _count_correct(kind, np.asarray(passes.z[-1]), targets)
        for index, J in enumerate(passes.J):
            h, after = features[index], features[index + 1]
            sizes = self._has_bias[index] + np.sum(h**2, axis=1)
            self.kernel[index] += float(sizes @ np.sum(J**2, axis=(1, 2)))
            delta = np.einsum("ai,aij->aj", share * residual, J)
            self.gradients[index] += delta.T @ h
            self.highest[index] = np.maximum(self.highest[index], after.max(axis=0))
            self.lowest[index] = np.minimum(self.lowest[index], after.min(axis=0))
        for index, h in enumerate(features):
            if np.any(is_fitted):
                self.fit[index].add(h[is_fitted], targets[is_fitted])
            if not np.all(is_fitted):
                self.held_out[index].add(h[~is_fitted], targets[~is_fitted])

    def require_range(self) -> None:
        """Refuse sums of squares that float64 does not hold, in which no layer has a share."""
        sums = (self.loss, self.kernel, *self.gradients)
        if not all(np.all(np.isfinite(values)) for values in sums):
            raise NonFiniteError(
                "squares of signals or gradients overflow: wrong activation, weights or inputs?"
            )

    def score(self, passes: Signals, targets: np.ndarray) -> None:
        """Count a batch of the test data, for target linearity alone."""
        for factor, h in zip(self.held_out, _features(passes), strict=True):
            factor.add(h, targets)


def _features(passes: Signals) -> list[np.ndarray]:
    """What enters every layer, and the output."""
    return [np.asarray(values) for values in (*passes.u, passes.z[-1])]


def _loss(kind: str, z: ArrayLike, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The loss of a batch and its gradient by z."""
    outputs, targets = jnp.asarray(z), jnp.asarray(y)
    is_binary = kind == "cross-entropy" and y.shape[1] == 1
    if is_binary:  # one logit z stands for the two logits 0 and z
        outputs, targets = _two_columns(outputs, 0.0), _two_columns(targets, 1.0)
    gradient = np.asarray(loss_gradient(kind, outputs, targets))
    return float(loss_value(kind, outputs, targets)), gradient[:, 1:] if is_binary else gradient


def _two_columns(values: Array, total: float) -> Array:
    first = jnp.zeros_like(values) if total == 0.0 else total - values
    return jnp.concatenate([first, values], axis=1)


def _count_correct(kind: str, z: np.ndarray, y: np.ndarray) -> int:
    if z.shape[1] > 1:
        return int(np.sum(np.argmax(z, axis=1) == np.argmax(y, axis=1)))
    threshold = 0.0 if kind == "cross-entropy" else 0.5
    return int(np.sum((z > threshold) == (y > 0.5)))
