"""The runs of fields-closure: fields against weights, one step against its laws, frozen masks."""

from __future__ import annotations

import itertools
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dynagram._precision import float64
from dynagram.networks import Layer, Model
from dynagram.observables.fields._overlaps import activation_overlaps, collective_kernel
from dynagram.observables.fields._state import fields
from dynagram.observables.tangents._ntk import function_ntk
from dynagram.theory.fields import (
    AnchoredRun,
    activation_updates,
    anchored_run,
    conjugate_updates,
    descend,
    output_update,
    simulate_one_layer,
)
from dynagram.theory.fields._anchored import CARRIED
from dynagram.theory.fields._descent import gradient_step
from dynagram_experiments.fields._tasks import RATES, Task, he_network, zero_or_one

# One hidden layer: the middle rate is a usual one, the last lies above M/λ_max(K) at the start.
ONE_LAYER_RATES = (0.3, 3.0, 30.0)
READOUTS = {"mean": (0.0, 1.0), "signed": (-1.0, 1.0)}
STEP_SIZES = (1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
DEPTHS = (1, 2, 3, 4, 5)
DISTANCES = (1, 5, 20, 100)
# Without a flip the law of each field is exact up to this depth: b of the last layer never moves.
EXACT_UP_TO = {"r": 1, "u": 1, "b": 2}


def targets(task: Task, readout: str) -> np.ndarray:
    """The lower and the upper target of each readout, by class."""
    low, high = READOUTS[readout]
    return np.where(task.labels == 1, high, low)


@dataclass(frozen=True, eq=False)
class OneLayer:
    """Fields and weights after training: differences relative to the largest entry, flips."""

    readout: str
    eta: float
    field_losses: np.ndarray
    losses: np.ndarray
    difference: float
    unseen_difference: float
    masks_apart: int
    flips: int
    residual: np.ndarray

    @property
    def loss_difference(self) -> float:
        """Largest relative difference of the two training curves."""
        return float(np.max(np.abs(self.field_losses / self.losses - 1.0)))


def one_layer(task: Task, readout: str, eta: float, seed: int, steps: int, dtype: str) -> OneLayer:
    """Train the same network by fields alone and by its weights."""
    model = he_network(1, seed, n_0=task.x.shape[1], readout=readout, dtype=dtype)
    y = targets(task, readout)
    start, unseen = (fields(model, x) for x in (task.x, task.unseen))
    by_fields = simulate_one_layer(start, y, eta=eta, steps=steps, unseen=unseen)
    truth = descend(model, task.x, y, eta=eta, steps=steps)
    end, other = (fields(truth.model, x) for x in (task.x, task.unseen))
    apart = [
        float(np.max(np.abs(np.maximum(v, 0.0) - state.u[1])) / np.max(state.u[1]))
        for v, state in ((by_fields.v, end), (by_fields.unseen_v, other))
    ]
    masks = sum(
        int(np.sum((v > 0) != (state.v[0] > 0)))
        for v, state in ((by_fields.v, end), (by_fields.unseen_v, other))
    )
    residual = end.output.astype(np.float64) - y
    flips = int(truth.flips.sum())
    return OneLayer(
        readout, eta, by_fields.losses, truth.losses, apart[0], apart[1], masks, flips, residual
    )


def all_one_layer(task: Task, seed: int, steps: int) -> list[OneLayer]:
    """Both readouts at three rates, two runs at a time."""
    asked = list(itertools.product(READOUTS, ONE_LAYER_RATES))
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda c: one_layer(task, c[0], c[1], seed, steps, "<f8"), asked))


def activations_only(
    task: Task, readout: str, eta: float, seed: int, steps: int
) -> tuple[np.ndarray, float]:
    """(50) as it stands, with masks read off u: residual and loss at the end.

    A unit whose u reaches 0 has lost the sign of its v and stays out for that sample.
    """
    model = he_network(1, seed, n_0=task.x.shape[1], readout=readout)
    start, y = fields(model, task.x), targets(task, readout)
    c, u = start.b[0][0], np.array(start.u[1])
    coupling = -2.0 * eta / len(y) * activation_overlaps(start)[0]
    for _ in range(steps):
        masks = u > 0
        residual = u @ c / c.size - y
        u = np.maximum(u + masks * (coupling @ (masks * c * residual[:, None])), 0.0)
    residual = u @ c / c.size - y
    return residual, float(np.mean(residual**2))


@dataclass(frozen=True, eq=False)
class OneStep:
    """Errors of the laws after one step at each of STEP_SIZES, over the size of the change.

    `r`, `u` and `b` (all layers together) are ‖wrong‖/‖change‖; nan where a mask flipped.
    `kernel` is the largest difference of K from the Gram matrix of the Jacobian.
    """

    L: int
    r: np.ndarray
    u: np.ndarray
    b: np.ndarray
    kernel: float

    @property
    def errors(self) -> dict[str, np.ndarray]:
        """By the field whose law it is."""
        return {"r": self.r, "u": self.u, "b": self.b}

    def order(self, name: str) -> float:
        """The slope of log error against log η, plus one: 2 for a first-order law."""
        seen = np.isfinite(self.errors[name])
        sizes, errors = np.array(STEP_SIZES)[seen], self.errors[name][seen]
        return 1.0 + float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def one_step(task: Task, L: int, seed: int, *, width: int = 32, samples: int = 8) -> OneStep:
    """The laws against one step of gradient descent, and K against automatic differentiation."""
    model = he_network(L, seed, n_0=task.x.shape[1], width=width)
    x, y = task.x[:samples], targets(task, "mean")[:samples]
    before = fields(model, x)
    r = before.output - y
    errors: dict[str, list[float]] = {"r": [], "u": [], "b": []}
    for eta in STEP_SIZES:
        after = fields(gradient_step(model, x, y, eta)[0], x)
        pairs = zip(before.v, after.v, strict=True)
        flipped = any(np.any((old > 0) != (new > 0)) for old, new in pairs)
        laws = {
            "r": ([after.output - before.output], [output_update(before, r, eta)]),
            "u": (_changes(before.u[1:], after.u[1:]), activation_updates(before, r, eta)),
            "b": (_changes(before.b[:-1], after.b[:-1]), conjugate_updates(before, r, eta)[:-1]),
        }
        for name, (changes, predicted) in laws.items():
            size = _norm(changes)
            wrong = _norm([c - p for c, p in zip(changes, predicted, strict=True)])
            errors[name].append(np.nan if flipped or size == 0.0 else wrong / size)
    K = collective_kernel(before)
    apart = np.max(np.abs(K - _jacobian_gram(model, x))) / np.max(np.abs(K))
    return OneStep(L, **{name: np.array(e) for name, e in errors.items()}, kernel=float(apart))


def anchored(
    L: int, carried: str, seed: int, *, width: int, samples: int, steps: int
) -> AnchoredRun:
    """Predictions with frozen masks from an anchor every 100 steps, unseen digits carried along."""
    task = zero_or_one(samples, seed)
    model = he_network(L, seed, n_0=task.x.shape[1], width=width)
    y = targets(task, "mean")
    sets = {"x": task.x, "y": y, "unseen": task.unseen[:100]}
    # Half the rate of the wider networks: n_0/N is larger here, and with it λ_max(K).
    eta = RATES[L] * width / 256
    return anchored_run(model, **sets, eta=eta, steps=steps, every=DISTANCES[-1], carried=carried)


def all_anchored(
    L: int, seeds: list[int], *, width: int, samples: int, steps: int
) -> list[AnchoredRun]:
    """For every kind of prediction one run per seed, two at a time."""
    size = {"width": width, "samples": samples, "steps": steps}
    with ThreadPoolExecutor(2) as pool:
        cases = itertools.product(CARRIED, seeds)
        return list(pool.map(lambda case: anchored(L, *case, **size), cases))


def unreachable_targets(samples: int, seed: int, steps: int) -> dict[str, Any]:
    """Targets ±1 with a mean of ReLUs: the loss at the end, the share of −1, and a warning seen."""
    task = zero_or_one(samples, seed)
    network = he_network(2, seed, n_0=task.x.shape[1], width=128, dtype="<f4")
    y = targets(task, "signed")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = descend(network, task.x, y, eta=0.5, steps=steps)
    warned = any("cannot fit" in str(warning.message) for warning in caught)
    return {"loss": float(run.losses[-1]), "share": float(np.mean(y < 0)), "warned": warned}


def _changes(before: tuple, after: tuple) -> list[np.ndarray]:
    return [new - old for old, new in zip(before, after, strict=True)]


def _norm(parts: list[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(part**2) for part in parts)))


@float64
def _jacobian_gram(model: Model, x: np.ndarray) -> np.ndarray:
    """JJᵀ over the hidden weights, by automatic differentiation of the network's own `apply`."""
    network, params = model.network, model.params
    weights = tuple(jax.numpy.asarray(layer.W) for layer in params[:-1])

    def output(hidden: Any, inputs: Any) -> jax.Array:
        layers = [Layer(b, W) for (b, _), W in zip(params, hidden, strict=False)]
        return network.apply((*layers, params[-1]), inputs)

    return np.asarray(function_ntk(output, weights, x))[:, :, 0, 0]
