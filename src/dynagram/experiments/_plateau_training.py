"""Networks put on a plateau, and many of them trained at once until they leave it.

The members of a group share their shapes; activation, bottleneck, data and target differ.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dynagram.activations import activation

ACTIVATIONS = ("tanh", "erf", "sin", "gelu", "swish")
BLOCK = 200  # steps between two looks at whether all members have left


@dataclass(frozen=True, eq=False)
class Plateau:
    """One network with small layers, what it trains on, and what the forecaster may see."""

    name: str
    layers: tuple[int, ...]
    scale: float
    weights: list[np.ndarray]
    train: tuple[np.ndarray, np.ndarray]
    seen: tuple[np.ndarray, np.ndarray]


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

    The first r layers are small, in a third of the draws r layers anywhere. Training and the
    forecaster's batch are independent draws from the same population.
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

    def batch(count: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.normal(size=(count, inputs))
        sigma = activation(name)
        return x, (sigma.values(x @ directions) - sigma.values(np.zeros(1))) @ strengths[:, None]

    layers = tuple(int(i) + 1 for i in np.sort(small))
    return Plateau(name, layers, eps, weights, batch(samples), batch(1024))


def measured_escapes(
    members: list[Plateau],
    levels: np.ndarray,
    *,
    learning_rate: float,
    most_steps: int,
    momentum: float = 0.0,
) -> np.ndarray:
    """Steps of full-batch gradient descent until each member's loss is at its level; inf if never.

    All members must have layers of the same shapes and as many samples.
    """
    weights = [
        jnp.asarray(np.stack([m.weights[i] for m in members]), jnp.float32)
        for i in range(len(members[0].weights))
    ]
    x, y = (jnp.asarray(np.stack([m.train[i] for m in members]), jnp.float32) for i in (0, 1))
    which = jnp.asarray([ACTIVATIONS.index(m.name) for m in members])
    state = (weights, [jnp.zeros_like(w) for w in weights])
    found = np.full(len(members), np.inf)
    goal = jnp.asarray(levels, jnp.float32)
    for start in range(0, most_steps, BLOCK):
        state, below = _block(state, which, x, y, goal, learning_rate, momentum)
        first = np.asarray(below)
        arrived = (first < BLOCK) & ~np.isfinite(found)
        found[arrived] = start + first[arrived]
        if np.all(np.isfinite(found)):
            break
    return found


@functools.partial(jax.jit, donate_argnums=0)
def _block(state, which, x, y, goal, learning_rate, momentum):
    """BLOCK steps; the first of them at whose start the loss was at its goal, else BLOCK."""

    def loss(weights, kind, x, y):
        h = x
        for w in weights[:-1]:
            h = jax.lax.switch(kind, [activation(name) for name in ACTIVATIONS], h @ w.T)
        return 0.5 * jnp.mean(jnp.sum((h @ weights[-1].T - y) ** 2, axis=1))

    gradient = jax.vmap(jax.value_and_grad(loss))

    def step(carry, index):
        weights, velocity, first = carry
        value, slopes = gradient(weights, which, x, y)
        first = jnp.where((value <= goal) & (first == BLOCK), index, first)
        velocity = [momentum * v - learning_rate * g for v, g in zip(velocity, slopes, strict=True)]
        weights = [w + v for w, v in zip(weights, velocity, strict=True)]
        return (weights, velocity, first), None

    start = (*state, jnp.full(len(which), BLOCK))
    (weights, velocity, first), _ = jax.lax.scan(step, start, jnp.arange(BLOCK))
    return (weights, velocity), first
