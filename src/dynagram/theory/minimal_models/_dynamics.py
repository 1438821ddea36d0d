"""Quadratic models actually trained: gradient descent step by step, and gradient flow integrated.

The truth that the formulas of first order in ε are compared with; any ε is allowed. The loss is
½Σ(z − y)², a sum without 1/N.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import AccuracyError, InvalidValueError, NonFiniteError
from dynagram.networks import checked_number
from dynagram.theory.minimal_models._quadratic import QuadraticModel


@dataclass(frozen=True, eq=False)
class Trained:
    """Parameters after training, the largest residual |z − y| left, and the steps taken."""

    W: Float[np.ndarray, "parameter column"]
    residual: float
    steps: int


def descend(
    model: QuadraticModel,
    y: Float[np.ndarray, "a column"],
    *,
    eta: float,
    tolerance: float = 1e-12,
    max_steps: int = 1_000_000,
) -> Trained:
    """Gradient descent from W = 0 on the first rows until every |z − y| is below `tolerance`.

    W ← W − η φ^E (z − y). Cost per step: N_A p² per column.

    >>> model = QuadraticModel(np.eye(2), np.ones((2, 2, 2)), epsilon=0.1)
    >>> found = descend(model, np.array([[1.0]]), eta=0.5)
    >>> model.outputs(found.W).ravel().round(3), found.residual < 1e-12
    (array([1.   , 0.075]), True)
    """
    rate = checked_number("eta", eta, "a step size must be > 0", positive=True)
    if max_steps < 1:
        raise InvalidValueError("max_steps", max_steps, "expected at least one step")
    part, W = _training_part(model, y), np.zeros((model.features.shape[1], y.shape[1]))
    residual = part.outputs(W) - y
    limit = 1e6 * max(float(np.max(np.abs(y))), 1.0)
    for step in range(max_steps):
        worst = float(np.max(np.abs(residual)))
        if worst < tolerance:
            return Trained(W, worst, step)
        if not worst < limit:
            raise NonFiniteError(
                f"gradient descent diverges at step {step}: eta = {eta:g} is above 2/κ_max = "
                f"{2.0 / np.linalg.eigvalsh(part.kernel)[-1]:.4g}, or epsilon is too large"
            )
        W = W - rate * _gradient(part, W, residual)
        residual = part.outputs(W) - y
    raise AccuracyError(
        f"after {max_steps} steps |z − y| is still {np.max(np.abs(residual)):.2g}: the targets "
        "cannot be fitted, or the kernel is nearly singular"
    )


def flow(
    model: QuadraticModel, y: Float[np.ndarray, "a column"], *, time: float | None = None
) -> Trained:
    """Gradient flow dW/dt = −φ^E (z − y) from W = 0 up to `time`, by default 40/κ_min.

    Integrated by an eighth-order Runge–Kutta method to 1e-12.

    >>> model = QuadraticModel(np.eye(2), np.ones((2, 2, 2)), epsilon=0.1)
    >>> model.outputs(flow(model, np.array([[1.0]])).W).ravel().round(3)
    array([1.   , 0.093])
    """
    from scipy.integrate import solve_ivp

    part = _training_part(model, y)
    if time is None:
        eigenvalues = np.linalg.eigvalsh(part.kernel)
        if eigenvalues[0] <= 1e-10 * eigenvalues[-1]:
            raise InvalidValueError("time", None, "the kernel is singular: say how long to train")
        time = 40.0 / float(eigenvalues[0])
    shape = (model.features.shape[1], y.shape[1])

    def velocity(_: float, flat: np.ndarray) -> np.ndarray:
        W = flat.reshape(shape)
        return -_gradient(part, W, part.outputs(W) - y).reshape(-1)

    start = np.zeros(shape[0] * shape[1])
    found = solve_ivp(velocity, (0.0, time), start, method="DOP853", rtol=1e-12, atol=1e-14)
    if not found.success:
        raise NonFiniteError(f"gradient flow could not be integrated: {found.message}")
    W = found.y[:, -1].reshape(shape)
    return Trained(W, float(np.max(np.abs(part.outputs(W) - y))), found.t.size - 1)


def _training_part(model: QuadraticModel, y: np.ndarray) -> QuadraticModel:
    rows = slice(0, y.shape[0])
    return QuadraticModel(model.features[rows], model.meta_features[rows], model.epsilon)


def _gradient(model: QuadraticModel, W: np.ndarray, residual: np.ndarray) -> np.ndarray:
    return np.einsum("jap,aj->pj", model.effective_features(W), residual, optimize=True)
