"""Digits for the fixed-readout networks of the field experiments: tasks and networks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynagram.data import digits
from dynagram.networks import Model
from dynagram.observables.fields import fixed_readout

# Learning rates below M/λ_max(K) at the start, for L = 1..4 hidden layers of 256 units.
RATES = {1: 3.0, 2: 1.0, 3: 0.3, 4: 0.1}
WIDTH = 256


@dataclass(frozen=True, eq=False)
class Task:
    """Two classes of digits, pixels shifted and scaled by one mean and one deviation.

    `x` and `labels` (0 or 1) are the training set, `unseen` and `unseen_labels` the others.
    """

    name: str
    x: np.ndarray
    labels: np.ndarray
    unseen: np.ndarray
    unseen_labels: np.ndarray


def zero_or_one(samples: int, seed: int) -> Task:
    """The digits 0 and 1: `samples` of the 360 to train on, the others unseen."""
    data = digits().subset(classes=[0, 1], seed=seed)
    return _split("0 vs 1", data.x, data.labels, samples)


def parity(samples: int, seed: int) -> Task:
    """Odd or even: `samples` of all digits to train on, 500 others unseen."""
    data = digits().subset(limit=samples + 500, seed=seed)
    return _split("parity", data.x, data.labels % 2, samples)


TASKS = {"0 vs 1": zero_or_one, "parity": parity}


def _split(name: str, x: np.ndarray, labels: np.ndarray, samples: int) -> Task:
    scaled = (x - x[:samples].mean()) / x[:samples].std()
    return Task(name, scaled[:samples], labels[:samples], scaled[samples:], labels[samples:])


def he_network(
    L: int, seed: int, *, n_0: int, width: int = WIDTH, readout: str = "mean", dtype: str = "<f8"
) -> Model:
    """W ~ N(0, 2/fan-in) for L hidden layers, and the mean or a readout of alternating signs."""
    rng = np.random.default_rng(seed)
    sizes = [(width, n_0), *[(width, width)] * (L - 1)]
    weights = [rng.standard_normal(size) * np.sqrt(2.0 / size[1]) for size in sizes]
    c = None if readout == "mean" else np.where(np.arange(width) % 2, -1.0, 1.0)
    return fixed_readout([W.astype(dtype) for W in weights], "relu", readout=c)
