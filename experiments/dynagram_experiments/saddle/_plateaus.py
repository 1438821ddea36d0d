"""Networks put on a plateau, and their training until they leave it."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.activations import activation
from dynagram.networks import Model
from dynagram.training import loss_value
from dynagram_experiments._descent import steps_until

ACTIVATIONS = ("tanh", "erf", "sin", "gelu", "swish")


@dataclass(frozen=True, eq=False)
class Plateau:
    """One network with small layers, what it trains on, and what the forecaster may see."""

    name: str
    layers: tuple[int, ...]
    scale: float
    weights: list[np.ndarray]
    train: tuple[np.ndarray, np.ndarray]
    seen: tuple[np.ndarray, np.ndarray]

    @property
    def model(self) -> Model:
        """The network."""
        return Model.of_matrices(self.weights, self.name)

    def rescaled(self, layer: int, factor: float) -> Plateau:
        """The same with one layer (from 1) multiplied."""
        weights = [factor * w if i == layer else w for i, w in enumerate(self.weights, start=1)]
        return replace(self, weights=weights)


def draw_plateau(
    rng: np.random.Generator,
    depth: int,
    width: int,
    *,
    inputs: int = 16,
    samples: int = 2048,
    scale: float | None = None,
    name: str | None = None,
) -> Plateau:
    """He-normal layers, some of them times ε; a teacher with one to three directions.

    The first r layers are small, in a third of the draws r layers anywhere. The training inputs
    stand for the population N(0, I): pairs ±x with its first and second moments exactly. The
    forecaster sees 1024 independent random inputs.
    """
    name = str(rng.choice(ACTIVATIONS)) if name is None else name
    r = int(rng.integers(2, depth + 1))
    # Deeper bottlenecks last longer: their ε stays larger, so that training can follow.
    smallest = {2: 0.01, 3: 0.02, 4: 0.06, 5: 0.1, 6: 0.14, 7: 0.18, 8: 0.22}[r]
    eps = float(np.exp(rng.uniform(np.log(smallest), np.log(0.4)))) if scale is None else scale
    small = rng.choice(depth, size=r, replace=False) if rng.random() < 1 / 3 else np.arange(r)
    sizes = [inputs, *[width] * (depth - 1), 1]
    weights = [
        rng.normal(size=(sizes[i + 1], sizes[i]))
        * np.sqrt(2.0 / sizes[i])
        * (eps if i in small else 1.0)
        for i in range(depth)
    ]
    modes = int(rng.integers(1, 4))
    directions = np.linalg.qr(rng.normal(size=(inputs, modes)))[0]
    strengths = np.sort(rng.uniform(0.3, 1.0, size=modes))[::-1]

    def with_targets(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sigma = activation(name)
        return x, (sigma.values(x @ directions) - sigma.values(np.zeros(1))) @ strengths[:, None]

    train = with_targets(whitened_inputs(rng, samples, inputs))
    layers = tuple(int(i) + 1 for i in np.sort(small))
    return Plateau(name, layers, eps, weights, train, with_targets(rng.normal(size=(1024, inputs))))


def whitened_inputs(rng: np.random.Generator, samples: int, inputs: int) -> np.ndarray:
    """Gaussian inputs in pairs ±x, turned and stretched so that their second moment is 1."""
    half = rng.normal(size=(samples // 2, inputs))
    values, vectors = np.linalg.eigh(half.T @ half / len(half))
    half = (half @ vectors) / np.sqrt(values) @ vectors.T
    return np.concatenate([half, -half])


def measured_escape(
    member: Plateau,
    level: float,
    *,
    learning_rate: float,
    most_steps: int,
    momentum: float = 0.0,
) -> float:
    """Steps of full-batch gradient descent until the loss is at `level`; inf if never."""
    x, y = (jnp.asarray(part, jnp.float32) for part in member.train)
    weights = [jnp.asarray(w, jnp.float32) for w in member.weights]
    task = _Task(jnp.asarray(ACTIVATIONS.index(member.name)), x, y, level, learning_rate, momentum)
    state = (weights, [jnp.zeros_like(w) for w in weights], task)
    steps, arrived = steps_until(_momentum_step, state, most_steps)
    return float(steps) if bool(arrived) else math.inf


@functools.partial(jax.jit, static_argnames=("name", "loss", "steps", "batch", "trains_biases"))
def loss_curves(
    params: Sequence[tuple[Array, Array]],
    x: Array,
    y: Array,
    rate: float | Array,
    *,
    name: str,
    loss: str,
    steps: int,
    momentum: float | Array = 0.0,
    batch: int | None = None,
    trains_biases: bool = False,
    seed: int = 0,
) -> Array:
    """The loss before every step, (members, steps), of networks with any loss, trained together.

    `params` has W and b of every layer; these, `x` and `y` have the members first. `batch` samples
    are drawn for each step.
    """
    sigma, depth = activation(name), len(params)

    def value(params: Sequence[tuple[Array, Array]], x: Array, y: Array) -> Array:
        h = x
        for layer, (W, b) in enumerate(params, start=1):
            h = h @ W.T + (b if trains_biases else jax.lax.stop_gradient(b))[None, :]
            h = sigma(h) if layer < depth else h
        return loss_value(loss, h, y)

    def step(
        x: Array, y: Array, state: tuple[Any, Any], key: Array
    ) -> tuple[tuple[Any, Any], Array]:
        params, moving = state
        rows = slice(None) if batch is None else jax.random.choice(key, len(x), (batch,), False)
        seen, slope = jax.value_and_grad(value)(params, x[rows], y[rows])
        if batch is not None:
            seen = value(params, x, y)
        moving = jax.tree.map(lambda v, g: momentum * v - rate * g, moving, slope)
        return (jax.tree.map(jnp.add, params, moving), moving), seen

    def curve(params: Sequence[tuple[Array, Array]], x: Array, y: Array, key: Array) -> Array:
        start = (params, jax.tree.map(jnp.zeros_like, params))
        return jax.lax.scan(functools.partial(step, x, y), start, jax.random.split(key, steps))[1]

    keys = jax.random.split(jax.random.key(seed), len(params[0][0]))
    return jax.vmap(curve)(params, x, y, keys)


class _Task(NamedTuple):
    """What training is about. The activation is a number, so that one program serves all five."""

    activation: Array
    x: Array
    y: Array
    level: float | Array
    learning_rate: float | Array
    momentum: float | Array


def _momentum_step(
    state: tuple[list[Array], list[Array], _Task],
) -> tuple[tuple[list[Array], list[Array], _Task], Array]:
    """One step of descent, and whether the loss was at its level before."""
    weights, velocity, task = state

    def loss(weights: Sequence[Array]) -> Array:
        h = task.x
        for w in weights[:-1]:
            h = jax.lax.switch(task.activation, [activation(name) for name in ACTIVATIONS], h @ w.T)
        return 0.5 * jnp.mean(jnp.sum((h @ weights[-1].T - task.y) ** 2, axis=1))

    value, slopes = jax.value_and_grad(loss)(weights)
    pairs = zip(velocity, slopes, strict=True)
    velocity = [task.momentum * v - task.learning_rate * g for v, g in pairs]
    moved = [w + v for w, v in zip(weights, velocity, strict=True)]
    return (moved, velocity, task), value <= task.level
