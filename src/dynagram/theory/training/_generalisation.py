"""Test error of trained networks: bias and variance at infinite width and to order 1/n.

E ½ Σ (z(T) − y)² = ½ Σ (m − y)² + ½ Σ Var, (10.52), and at order 1/n the same with
m = m^∞ + m^{1}/n and the covariance at order 1/n, expanded to that order:
docs/derivations/trained-outputs.md (D1.16).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.data._data import check_targets
from dynagram.errors import InvalidValueError
from dynagram.results._outputs import Outputs
from dynagram.theory.training._any_loss import Loss
from dynagram.training import loss_value
from dynagram.training._losses import check_loss, check_loss_targets


@dataclass(frozen=True)
class ExpectedLoss:
    """An expected loss over all test samples and outputs, split; `order` is "∞" or "1/n"."""

    order: str
    bias: float
    variance: float

    @property
    def total(self) -> float:
        """Bias and variance."""
        return self.bias + self.variance


def expected_loss(outputs: Outputs, test_y: object) -> dict[str, ExpectedLoss]:
    """The expected test loss at infinite width and, where it is predicted, to order 1/n (10.52).

    **Arguments:**

    - `outputs`: a prediction, at its last moment.
    - `test_y`: the targets of its samples.

    **Returns:** `ExpectedLoss` by order, "∞" and "1/n".

    >>> from dynagram import Data, MLP, predict_outputs
    >>> from dynagram.training import GradientFlow, Training
    >>> net = MLP([2, 64, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> data = Data(np.eye(2), [1.0, -1.0], test_x=[[1.0, 0.5]])
    >>> loss = expected_loss(predict_outputs(net, data, Training(GradientFlow())), [0.4])
    >>> [round(loss[order].total, 4) for order in ("∞", "1/n")]
    [0.0192, 0.0199]
    """
    infinite = outputs.mean_infinite
    y = check_targets(test_y, infinite.shape[0], infinite.shape[1], "test_y")
    gap = infinite - y
    bias, spread = 0.5 * np.sum(gap**2), 0.5 * np.sum(outputs.stds_infinite[-1] ** 2)
    losses = {"∞": ExpectedLoss("∞", float(bias), float(spread))}
    if outputs.order == "1/n":
        shifted = bias + np.sum(gap * outputs.mean_correction) / outputs.width
        change = np.einsum("titi->", outputs.covariance_correction) / outputs.width
        losses["1/n"] = ExpectedLoss("1/n", float(shifted), float(spread + 0.5 * change))
    return losses


def expected_cross_entropy(
    mean: Float[np.ndarray, "test outputs"],
    covariance: Float[np.ndarray, "..."],
    probabilities: Float[np.ndarray, "rows columns"],
) -> float:
    """E of −Σ p log softmax(z) to second order about the mean (10.53)-(10.55).

    The Hessian is diag(q) − q qᵀ with q = softmax(m): exact for small variances. Where one output
    varies like any other, independently, a test point adds ½ Var (1 − Σ q²).

    **Arguments:**

    - `mean`: of outputs, `Outputs.mean`.
    - `covariance`: `Outputs.covariance` (test, outputs, test, outputs), or that of any one of
        independent outputs (test, test), `Outputs.kernel_infinite`.
    - `probabilities`: the targets.

    **Returns:** the sum over test points.

    >>> mean, p = np.array([[1.0, -1.0]]), np.array([[1.0, 0.0]])
    >>> round(expected_cross_entropy(mean, np.array([[0.1]]), p), 6)
    0.137427
    >>> both = 0.1 * np.eye(2).reshape(1, 2, 1, 2)
    >>> round(expected_cross_entropy(mean, both, p), 6)
    0.137427
    """
    split = split_loss(_summed_cross_entropy, mean, covariance, probabilities)
    return split.total


@float64
def split_loss(
    loss: Loss,
    mean: Float[np.ndarray, "test outputs"],
    covariance: Float[np.ndarray, "..."],
    targets: Float[np.ndarray, "rows columns"],
) -> ExpectedLoss:
    """Bias and variance of any loss: E L(z) = L(m) + ½ Σ ∂²L Cov + … (10.55).

    **Arguments:**

    - `loss`: "half-sum", "mean", "cross-entropy", "logistic", or a JAX function L(z, y).
    - `mean`, `covariance`: as in `expected_cross_entropy`.
    - `targets`: of the test points.

    **Returns:** `ExpectedLoss`; exact for a squared error, else up to third and higher moments.
    Cost: one second derivative for each of the N_B n_L directions of the covariance.

    >>> split_loss("mean", np.array([[1.0]]), np.array([[0.5]]), np.array([[0.8]])).total
    0.54
    """
    z, y = np.asarray(mean, np.float64), np.asarray(targets, np.float64)
    if z.ndim != 2 or y.shape != z.shape:
        allowed = f"expected {z.shape}, that of the mean (test, outputs)"
        raise InvalidValueError("shape of targets", y.shape, allowed)
    matrix = _as_matrix(np.asarray(covariance, np.float64), *z.shape)
    eigenvalues, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    if isinstance(loss, str):
        check_loss_targets(check_loss(loss), y)
    value = loss if callable(loss) else partial(loss_value, loss)

    def curvature(direction: Array) -> Array:
        def slope(at: Array) -> Array:
            return jax.jvp(lambda point: value(point, jnp.asarray(y)), (at,), (direction,))[1]

        return jax.jvp(slope, (jnp.asarray(z),), (direction,))[1]

    directions = jnp.asarray(vectors.T.reshape(-1, *z.shape))
    curvatures = np.asarray(jax.lax.map(curvature, directions))
    bias = float(value(jnp.asarray(z), jnp.asarray(y)))
    return ExpectedLoss("1/n", bias, 0.5 * float(np.sum(eigenvalues * curvatures)))


def _summed_cross_entropy(z: Array, p: Array) -> Array:
    return -jnp.sum(p * jax.nn.log_softmax(z, axis=-1))


def _as_matrix(covariance: np.ndarray, samples: int, outputs: int) -> np.ndarray:
    """A covariance as (sample and output)²; refused unless its shape says what it is."""
    if covariance.shape == (samples, outputs, samples, outputs):
        return covariance.reshape(samples * outputs, samples * outputs)
    if covariance.shape == (samples, samples):
        return np.kron(covariance, np.eye(outputs))
    allowed = f"expected {(samples, outputs, samples, outputs)} or {(samples, samples)}"
    raise InvalidValueError("shape of covariance", covariance.shape, allowed)
