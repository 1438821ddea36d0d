"""Escape times of random deep tanh networks: of the surrogate flow, and of SGD."""

from __future__ import annotations

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.ensembles import train
from dynagram.networks import MLP, Layer, Params
from dynagram.theory.saddle._chain import Chain
from dynagram.theory.saddle._classes import classify
from dynagram.theory.saddle._surrogate import surrogate_escape
from dynagram.theory.saddle._tasks import LinearTask
from dynagram.training import GradientDescent, Training

DEPTH, WIDTH, INPUTS = 8, 128, 16
LEARNING_RATE, BATCH, THRESHOLD = 0.01, 512, 0.02
WINDOWS = {3: (0.01, 0.3), 5: (0.06, 0.5), 8: (0.15, 0.5)}
# Where the published slopes were fitted again.
THRESHOLDS = (0.05, THRESHOLD, 0.01)
SEEDS, SCALES = 5, 7
# SGD trains this many times as long as the surrogate needs; the loss on TESTED inputs is looked at
# ever more rarely, so that the step of escape is known to half a per cent.
PATIENCE, BETWEEN_LOOKS, TESTED = 4, 1.005, 4096


def _weights(
    seed: int, r: int, scale: float, index: int, *, paired: bool = False
) -> list[np.ndarray]:
    """He-normal layers, the first r times ε; unless `paired`, another network for each ε."""
    rng = np.random.default_rng([seed, r, 0 if paired else round(1e9 * scale), index])
    sizes = [INPUTS, *[WIDTH] * (DEPTH - 1), 1]
    return [
        rng.normal(size=(sizes[i + 1], sizes[i]))
        * math.sqrt(2.0 / sizes[i])
        * (scale if i < r else 1.0)
        for i in range(DEPTH)
    ]


def _population() -> LinearTask:
    """Standard normal inputs and the teacher y = tanh(x_1): E[xxᵀ] = 1, E[yx_1] = h_σ."""
    kind = classify("tanh")
    t, w = np.polynomial.hermite_e.hermegauss(120)
    power = float(np.sum(w * np.tanh(t) ** 2) / np.sum(w))
    cross = np.zeros((1, INPUTS))
    cross[0, 0] = kind.h
    return LinearTask(np.eye(INPUTS), cross, power)


def surrogate_times(seed: int, r: int, scales: np.ndarray, *, paired: bool = False) -> np.ndarray:
    """Steps, shape (scales, seeds)."""
    task = _population()

    def steps(scale: float, index: int) -> float:
        weights = _weights(seed, r, scale, index, paired=paired)
        escape = surrogate_escape(task, Chain.linear(weights), [THRESHOLD])
        return escape.times[0] / LEARNING_RATE

    return np.array([[steps(scale, index) for index in range(SEEDS)] for scale in scales])


def sgd_times(
    seed: int, r: int, scale: float, run: Path | None, *, seeds: int = SEEDS
) -> np.ndarray:
    """Steps of SGD with fresh inputs until the loss is below each of THRESHOLDS, one per seed."""
    sizes = [INPUTS, *[WIDTH] * (DEPTH - 1), 1]
    network = MLP(sizes, "tanh", C_b=0.0, C_W=2.0, lambda_b=0.0, lambda_W=sizes[:-1])
    drawn = [_weights(seed, r, scale, index) for index in range(seeds)]
    parameters = tuple(
        Layer(np.zeros((seeds, n)), np.stack(layer))  # pyright: ignore[reportArgumentType]
        for n, *layer in zip(sizes[1:], *drawn, strict=True)
    )
    most = 200 + PATIENCE * math.ceil(surrogate_times(seed, r, np.array([scale])).max())
    looks = round(math.log(most) / math.log(BETWEEN_LOOKS))
    moments = np.unique(np.rint(np.geomspace(1, most, looks)).astype(int))
    outputs = train(
        network,
        f"{__name__}:fresh_batch",
        # The loss here is ½ mean (z − y)².
        Training(
            GradientDescent(0.5 * LEARNING_RATE),
            loss="mean", steps=most, record=moments, dtype="float32",
        ),
        members=seeds,
        seed=seed,
        parameters=parameters,
        test_x=np.random.default_rng([seed, 1]).normal(size=(TESTED, INPUTS)),
        observables=[f"{__name__}:loss_on_tests"],
        run=run,
    )  # fmt: skip
    below = outputs.recorded["loss_on_tests"] < np.array(THRESHOLDS)[:, None, None]
    return np.where(below.any(axis=2), moments[below.argmax(axis=2)], np.inf)


def fresh_batch(key: Array) -> tuple[Array, Array]:
    """Inputs and targets of one step."""
    x = jax.random.normal(key, (BATCH, INPUTS))
    return x, jnp.tanh(x[:, :1])


def loss_on_tests(params: Params, x: Array) -> Array:
    """½ mean (z − y)² on fixed inputs."""
    h = x
    for layer in params[:-1]:
        h = jnp.tanh(h @ layer.W.T)
    return 0.5 * jnp.mean((h @ params[-1].W.T - jnp.tanh(x[:, :1])) ** 2)
