"""The runs on the swiss roll: training, the Gram law in every step, virtual points, long runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagram.data import Data, swiss_roll
from dynagram.networks import MLP, Layer, Params
from dynagram.observables.gram._linearity import target_linearity
from dynagram.observables.gram._virtual_covariance import GramTracker, gram_law
from dynagram.training import GradientDescent, Training
from dynagram_experiments.gram._training import plain_rates, record_training

SAMPLES, WIDTH, RATE, STEPS = 1000, 32, 0.05, 100
LONG_RUN = 3000


def roll(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The roll's plane, scaled to [0, 1]², and the position along it, scaled to [0, 1]."""
    points = swiss_roll(SAMPLES, seed=seed).x[:, [0, 2]]
    position = np.hypot(points[:, 0], points[:, 1])
    scaled = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    return scaled, ((position - position.min()) / np.ptp(position))[:, None]


def scales() -> tuple[int, ...]:
    """Virtual points are drawn with their displacements times these."""
    return 0, 1, SAMPLES, 10 * SAMPLES


def network() -> MLP:
    """2–n–n–1, ReLU, one rate for all parameters but the first biases, which stay at zero."""
    widths = [2, WIDTH, WIDTH, 1]
    rates = plain_rates(widths) | {"lambda_b": [0.0, 1.0, 1.0]}
    return MLP(widths, "relu", C_b=0.0, C_W=1.0, **rates)


def draw(seed: int) -> Params:
    """Uniform within ±1/√fan-in; the first biases are zero."""
    rng = np.random.default_rng(seed)
    sizes = list(itertools.pairwise((2, WIDTH, WIDTH, 1)))
    W = [rng.uniform(-1, 1, (n_out, n_in)) / np.sqrt(n_in) for n_in, n_out in sizes]
    b = [rng.uniform(-1, 1, n_out) / np.sqrt(n_in) for n_in, n_out in sizes]
    b[0][:] = 0.0
    return tuple(Layer(*pair) for pair in zip(b, W, strict=True))  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, eq=False)
class Signals:
    """Features h entering each layer, δ = ∂𝓛/∂z after it, and the outputs; 𝓛 the mean square."""

    h: Sequence[np.ndarray]
    delta: Sequence[np.ndarray]
    outputs: np.ndarray

    @classmethod
    def of(cls, params: Params, x: np.ndarray, y: np.ndarray) -> Signals:
        """Forward and back through the network."""
        h, z = [x], []
        for layer in params:
            z.append(h[-1] @ np.asarray(layer.W).T + layer.b)
            h.append(np.maximum(z[-1], 0.0))
        delta = [2.0 * (z[-1] - y) / len(x)]
        for k in (2, 1):
            delta.insert(0, (delta[0] @ np.asarray(params[k].W)) * (z[k - 1] > 0))
        return cls(h[:3], delta, z[-1])


def task(seed: int, *, shuffled: bool) -> tuple[np.ndarray, np.ndarray]:
    """The roll with its targets, or with the same targets in another order."""
    x, y = roll(seed)
    order = np.random.default_rng(seed + 10_000).permutation(len(y)) if shuffled else slice(None)
    return x, y[order]


def follow_gram(
    seed: int, *, shuffled: bool = False, eta: float = RATE, steps: int | None = None
) -> dict[str, Any]:
    """Train, and follow the virtual covariance of every layer from step to step."""
    steps = STEPS if steps is None else steps
    x, y = task(seed, shuffled=shuffled)
    how = Training(GradientDescent(eta), loss="mean", steps=steps, record=range(steps + 1))
    path = record_training(network(), draw(seed + 1), Data(x, y), how, seed=seed)
    trackers = [GramTracker(np.asarray(layer.W)) for layer in path[0]]
    moved, law_error = np.zeros_like(x), 0.0
    for before, after in itertools.pairwise(path):
        seen = Signals.of(before, x, y)
        for k, tracker in enumerate(trackers):
            W, new = np.asarray(before[k].W), np.asarray(after[k].W)
            h, delta, g = seen.h[k], seen.delta[k], seen.delta[k] @ W
            tracker.add(h, g)
            tracker.step(eta)
            law = gram_law(W, delta.T @ h, h, g, eta).total
            wrong = np.linalg.norm(law - (new.T @ new - W.T @ W))
            law_error = max(law_error, float(wrong / np.linalg.norm(W.T @ W)))
        moved -= eta * seen.delta[0] @ np.asarray(before[0].W)
    records = [t.record(np.asarray(layer.W)) for t, layer in zip(trackers, path[-1], strict=True)]
    return {
        "law_error": law_error,
        "cosines": [record.cosine.value for record in records],
        "remainders": [record.remainder for record in records],
        "displacement": moved,
        "linearity": [target_linearity(x + scale * moved, y).score for scale in scales()],
        "loss": _relative_loss(path[-1], x, y),
        "x": x,
        "y": y,
    }


def long_loss(seed: int, *, shuffled: bool) -> float:
    """Loss over variance after a long run."""
    x, y = task(seed, shuffled=shuffled)
    how = Training(GradientDescent(4 * RATE), loss="mean", steps=LONG_RUN)
    end = record_training(network(), draw(seed + 1), Data(x, y), how, seed=seed)[-1]
    return _relative_loss(end, x, y)


def _relative_loss(params: Params, x: np.ndarray, y: np.ndarray) -> float:
    """Mean squared error over the variance of the targets."""
    return float(np.mean((Signals.of(params, x, y).outputs - y) ** 2) / np.var(y))
