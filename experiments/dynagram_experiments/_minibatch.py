"""What the Gram experiments share: a split of a data set, minibatch training, means over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array

from dynagram.data import Dataset
from dynagram.errors import NonFiniteError
from dynagram.networks import MLP, Params


class Split(NamedTuple):
    """Standardised inputs and labels for training and for testing."""

    x: np.ndarray
    labels: np.ndarray
    x_test: np.ndarray
    labels_test: np.ndarray


def split(data: Dataset, seed: int, share: float = 0.8) -> Split:
    """A random split; pixels are shifted and scaled by one mean and deviation, of the train set.

    >>> import numpy as np
    >>> parts = split(Dataset("toy", np.arange(10.0)[:, None], np.arange(10) % 2), 0)
    >>> len(parts.x), len(parts.x_test), round(float(parts.x.mean()), 9)
    (8, 2, 0.0)
    """
    order = np.random.default_rng(seed).permutation(len(data.labels))
    size = round(share * order.size)
    train, test = order[:size], order[size:]
    mean, deviation = float(data.x[train].mean()), float(data.x[train].std())
    x = (data.x - mean) / deviation
    return Split(x[train], data.labels[train], x[test], data.labels[test])


def cross_entropy(outputs: Array, labels: Array) -> Array:
    """The mean over samples."""
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(outputs, labels))


@dataclass(frozen=True, eq=False)
class Trainer:
    """Minibatch training of a network; one compiled epoch serves all seeds.

    A batch is `batch` samples drawn without repetition; what is left of an epoch is dropped.
    """

    network: MLP
    optimiser: optax.GradientTransformation
    batch: int
    loss: Callable[[Array, Array], Array] = cross_entropy

    def __post_init__(self) -> None:
        object.__setattr__(self, "_epoch", jax.jit(self._run_epoch))

    def run(
        self, params: Params, x: np.ndarray, y: np.ndarray, epochs: Sequence[int], seed: int
    ) -> tuple[list[Params], Any]:
        """Parameters after each of the increasing `epochs` (0: the start), and the last state."""
        dtype = params[0].W.dtype
        x_all = jnp.asarray(x, dtype)
        y_all = jnp.asarray(y) if np.asarray(y).dtype.kind in "iu" else jnp.asarray(y, dtype)
        state, kept, done = self.optimiser.init(params), [], 0
        rng = np.random.default_rng(seed)
        steps = len(x) // self.batch
        for stop in epochs:
            for _ in range(done, stop):
                order = rng.permutation(len(x))[: steps * self.batch].reshape(steps, self.batch)
                params, state = self._epoch(params, state, x_all, y_all, jnp.asarray(order))  # type: ignore[attr-defined]
            done = max(done, stop)
            if not bool(jnp.all(jnp.isfinite(params[-1].W))):
                raise NonFiniteError(f"training diverged before epoch {stop}: lower the rate")
            kept.append(params)
        return kept, state

    def _run_epoch(self, params: Params, state: Any, x: Array, y: Array, order: Array) -> Any:
        def step(carry: Any, rows: Array) -> tuple[Any, None]:
            params, state = carry
            gradient = jax.grad(lambda p: self.loss(self.network.apply(p, x[rows]), y[rows]))(
                params
            )
            updates, state = self.optimiser.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, state), order)[0]


def features(network: MLP, params: Params, x: np.ndarray) -> list[np.ndarray]:
    """x, h_1, …, h_{L-1} and the outputs, as float64 NumPy arrays."""
    z = network.preactivations(params, jnp.asarray(x, params[0].W.dtype))
    hidden = [network.activation(values) for values in z[:-1]]
    return [np.asarray(x), *(np.asarray(h, dtype=np.float64) for h in (*hidden, z[-1]))]


def accuracy(outputs: np.ndarray, labels: np.ndarray) -> float:
    """The share of samples whose largest output is the label's."""
    return float(np.mean(np.argmax(outputs, axis=1) == labels))


class Mean(NamedTuple):
    """A mean over seeds and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.error:.3f}"

    @property
    def sigmas(self) -> float:
        """The mean in units of its standard error."""
        return self.value / self.error if self.error > 0 else math.copysign(math.inf, self.value)


def mean_of(values: Any) -> Mean:
    """Mean and standard error of numbers, one per seed.

    >>> str(mean_of([1.0, 2.0, 3.0]))
    '2.000 ± 0.577'
    """
    array = np.asarray(values, dtype=np.float64)
    return Mean(float(array.mean()), float(array.std(ddof=1) / math.sqrt(array.size)))


def table_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns."""
    return {name: [row[name] for row in rows] for name in rows[0]}
