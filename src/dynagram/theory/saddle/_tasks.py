"""What an affine map Px + c can learn of a batch: its loss, and what pulls at it.

For a squared error moments of the data are enough; for other losses the samples are kept. The
gradient of the loss at the outputs, r, enters the flow through E[r] and Cov(r, x) only.
Derivation: docs/derivations/surrogate-flow.md (D4.2), (D4.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError

# Directions of Σ below this fraction of its largest eigenvalue carry no signal, only rounding.
_SMALLEST_DIRECTION = 1e-12
SAMPLED = ("cross-entropy", "logistic")


class Pull(NamedTuple):
    """E[r] of the loss's gradient r at the outputs, and Cov(r, x)."""

    mean: Float[np.ndarray, " outputs"]
    covariance: Float[np.ndarray, "outputs n_0"]


@dataclass(frozen=True, eq=False)
class LinearTask:
    """What an affine map can see of the data on a squared error, ½E|Px + c − y|².

    **Arguments:**

    - `second_moment`, `cross_moment`, `power`: E[xxᵀ], E[yxᵀ], E|y|².
    - `input_mean`, `target_mean`: E[x], E[y]; None for zero.

    >>> x = np.array([[1.0], [-1.0]])
    >>> task = LinearTask.of(x, 2.0 * x)
    >>> task.loss(np.zeros((1, 1))), round(task.minimum, 12)
    (2.0, 0.0)
    """

    second_moment: Float[np.ndarray, "n_0 n_0"]
    cross_moment: Float[np.ndarray, "outputs n_0"]
    power: float
    input_mean: Float[np.ndarray, " n_0"] = None  # pyright: ignore[reportAssignmentType]
    target_mean: Float[np.ndarray, " outputs"] = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        for name, size in (("target_mean", 0), ("input_mean", 1)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.zeros(self.cross_moment.shape[size]))

    @classmethod
    def of(
        cls,
        x: Float[np.ndarray, "samples n_0"],
        y: Float[np.ndarray, "samples outputs"],
        *,
        centred: bool = False,
    ) -> LinearTask:
        """Moments over the rows; `centred` takes the means away first."""
        if centred:
            x, y = x - x.mean(axis=0), y - y.mean(axis=0)
        samples = x.shape[0]
        power = float(np.sum(y * y)) / samples
        return cls(x.T @ x / samples, y.T @ x / samples, power, x.mean(axis=0), y.mean(axis=0))

    @property
    def centred(self) -> LinearTask:
        """The same without the means."""
        mu, nu = self.input_mean, self.target_mean
        return LinearTask(
            self.second_moment - np.outer(mu, mu),
            self.cross_moment - np.outer(nu, mu),
            self.power - float(nu @ nu),
        )

    @property
    def best_map(self) -> Float[np.ndarray, "outputs n_0"]:
        """The smallest P of least loss without a constant, C Σ⁺."""
        values, vectors = np.linalg.eigh(self.second_moment)
        alive = values > _SMALLEST_DIRECTION * max(float(values[-1]), 0.0)
        inverse = np.where(alive, 1.0 / np.where(alive, values, 1.0), 0.0)
        return ((self.cross_moment @ vectors) * inverse) @ vectors.T

    @property
    def minimum(self) -> float:
        """The least loss of a linear map: the end of the small-signal stage."""
        return max(0.5 * (self.power - float(np.sum(self.best_map * self.cross_moment))), 0.0)

    @property
    def least(self) -> float:
        """The least loss of an affine map."""
        return self.centred.minimum

    def pull(self, P: np.ndarray, c: np.ndarray | float = 0.0) -> Pull:
        """E[r] = Pμ + c − E[y] and Cov(r, x) = PΣ + cμᵀ − C − E[r]μᵀ."""
        mean = P @ self.input_mean + c - self.target_mean
        product = P @ self.second_moment - self.cross_moment
        shift = np.broadcast_to(c, mean.shape) - mean
        return Pull(mean, product + np.outer(shift, self.input_mean))

    def loss(self, P: np.ndarray, c: np.ndarray | float = 0.0) -> float:
        """½E|Px + c − y|²."""
        seen = 0.5 * float(np.sum(P * (P @ self.second_moment)))
        seen -= float(np.sum(P * self.cross_moment))
        shift = np.broadcast_to(np.asarray(c, dtype=np.float64), self.target_mean.shape)
        constant = float(shift @ (P @ self.input_mean - self.target_mean + 0.5 * shift))
        return seen + constant + 0.5 * self.power

    def best_constant(self) -> np.ndarray:
        """E[y]."""
        return self.target_mean


@dataclass(frozen=True, eq=False)
class SampleTask:
    """A cross-entropy or logistic loss of affine maps on the samples of a batch.

    Per sample and summed over outputs: −Σ_i y_i log softmax(z)_i, or Σ_i log(1 + e^{−y_i z_i}).

    >>> task = SampleTask(np.array([[1.0], [-1.0]]), np.eye(2), "cross-entropy")
    >>> round(task.loss(np.zeros((2, 1))), 6), task.pull(np.zeros((2, 1))).covariance.tolist()
    (0.693147, [[-0.5], [0.5]])
    """

    x: Float[np.ndarray, "samples n_0"]
    y: Float[np.ndarray, "samples outputs"]
    name: str

    def __post_init__(self) -> None:
        if self.name not in SAMPLED:
            raise InvalidValueError("loss", self.name, f"expected one of {', '.join(SAMPLED)}")

    @cached_property
    def input_mean(self) -> np.ndarray:
        """E[x]."""
        return self.x.mean(axis=0)

    @property
    def minimum(self) -> float:
        """Zero: samples that a plane separates have no other bound."""
        return 0.0

    @property
    def least(self) -> float:
        """Zero, as well."""
        return 0.0

    def pull(self, P: np.ndarray, c: np.ndarray | float = 0.0) -> Pull:
        """Of the samples, one by one."""
        r = output_gradient(self.name, self.x @ P.T + c, self.y)
        mean = r.mean(axis=0)
        return Pull(mean, r.T @ self.x / len(r) - np.outer(mean, self.input_mean))

    def loss(self, P: np.ndarray, c: np.ndarray | float = 0.0) -> float:
        """The mean over samples."""
        return output_loss(self.name, self.x @ P.T + c, self.y)

    def best_constant(self) -> np.ndarray:
        """The logarithms of the frequencies, or of the odds; a class that is absent counts ½."""
        edge = 0.5 / len(self.y)
        if self.name == "cross-entropy":
            return np.log(np.maximum(self.y.mean(axis=0), edge))
        share = np.clip(0.5 * (1.0 + self.y.mean(axis=0)), edge, 1.0 - edge)
        return np.log(share / (1.0 - share))


Task = LinearTask | SampleTask


def make_task(
    loss: str, x: Float[np.ndarray, "samples n_0"], y: Float[np.ndarray, "samples outputs"]
) -> Task:
    """The task of a loss by its name: moments for squared errors, samples for the others."""
    return SampleTask(x, y, loss) if loss in SAMPLED else LinearTask.of(x, y)


def output_gradient(loss: str, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """r = ∂(loss of a sample)/∂z; a squared error is ½|z − y|²."""
    if loss == "cross-entropy":
        return y.sum(axis=1, keepdims=True) * _softmax(z) - y
    if loss == "logistic":
        return -y / (1.0 + np.exp(np.minimum(y * z, 700.0)))
    return z - y


def output_loss(loss: str, z: np.ndarray, y: np.ndarray) -> float:
    """The mean over samples of the loss that `output_gradient` is the gradient of."""
    if loss == "cross-entropy":
        top = z.max(axis=1, keepdims=True)
        total = top[:, 0] + np.log(np.sum(np.exp(z - top), axis=1))
        return float(np.sum(y.sum(axis=1) * total) - np.sum(y * z)) / len(z)
    if loss == "logistic":
        return float(np.sum(np.logaddexp(0.0, -y * z))) / len(z)
    return 0.5 * float(np.sum((z - y) ** 2)) / len(z)


def output_curvature(loss: str, z: np.ndarray, y: np.ndarray, change: np.ndarray) -> float:
    """E[δᵀHδ] of changes δ of the outputs, H the second derivative of the loss of a sample."""
    if loss == "cross-entropy":  # H = diag(p) − ppᵀ
        p = _softmax(z)
        inner = np.sum(p * change, axis=1)
        return float(np.sum(p * change * change) - np.sum(inner * inner)) / len(z)
    if loss == "logistic":
        p = -y * output_gradient(loss, z, y)
        return float(np.sum(p * (1.0 - p) * change * change)) / len(z)
    return float(np.sum(change * change)) / len(z)


def _softmax(z: np.ndarray) -> np.ndarray:
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
