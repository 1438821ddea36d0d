"""Quadratic models actually trained: gradient descent step by step, and gradient flow integrated.

The truth that the formulas of first order in ε are compared with; any ε is allowed. The loss is
½Σ(z − y)², a sum without 1/N.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.errors import AccuracyError, InvalidValueError, NonFiniteError
from dynagram.networks import checked_number
from dynagram.theory.minimal_models._quadratic import QuadraticModel

_MOST_STEPS = 1_000_000


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

    W ← W − η φ^E (z − y).

    **Arguments:**

    - `model`: the quadratic model, its training rows first.
    - `y`: the targets (N_A, columns).
    - `eta`: the step η.
    - `tolerance`: the largest |z − y| at the end.
    - `max_steps`: after which it gives up.

    **Returns:** `Trained`. Cost per step: N_A p² per column.

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


@float64
def flow(
    model: QuadraticModel, y: Float[np.ndarray, "a column"], *, time: float | None = None
) -> Trained:
    """Gradient flow dW/dt = −φ^E (z − y) from W = 0 up to `time`, by default 40/κ_min.

    **Arguments:**

    - `model`: the quadratic model, its training rows first.
    - `y`: the targets (N_A, columns).
    - `time`: how long.

    **Returns:** `Trained`; integrated by an eighth-order Runge–Kutta method to 1e-12.

    >>> model = QuadraticModel(np.eye(2), np.ones((2, 2, 2)), epsilon=0.1)
    >>> model.outputs(flow(model, np.array([[1.0]])).W).ravel().round(3)
    array([1.   , 0.093])
    """
    import diffrax

    part = _training_part(model, y)
    if time is None:
        eigenvalues = np.linalg.eigvalsh(part.kernel)
        if eigenvalues[0] <= 1e-10 * eigenvalues[-1]:
            raise InvalidValueError("time", None, "the kernel is singular: say how long to train")
        time = 40.0 / float(eigenvalues[0])
    phi, psi = jnp.asarray(part.features), jnp.asarray(part.meta_features)

    def loss(W: Array) -> Array:
        z = phi @ W + 0.5 * part.epsilon * jnp.einsum("apq,pj,qj->aj", psi, W, W)
        return 0.5 * jnp.sum((z - jnp.asarray(y)) ** 2)

    def velocity(_: Any, W: Array, __: Any) -> Array:
        return -jax.grad(loss)(W)

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity),
        diffrax.Dopri8(),
        t0=0.0,
        t1=float(time),
        dt0=None,
        y0=jnp.zeros((phi.shape[1], y.shape[1])),
        stepsize_controller=diffrax.PIDController(rtol=1e-12, atol=1e-14),
        max_steps=_MOST_STEPS,
        throw=False,
    )
    if solution.result != diffrax.RESULTS.successful:
        raise NonFiniteError(
            f"gradient flow could not be integrated up to {time:g} in {_MOST_STEPS} steps: "
            "epsilon is too large, or the kernel is nearly singular"
        )
    assert solution.ys is not None
    W = np.asarray(solution.ys[-1])
    residual = float(np.max(np.abs(part.outputs(W) - y)))
    return Trained(W, residual, int(solution.stats["num_accepted_steps"]))


def _training_part(model: QuadraticModel, y: np.ndarray) -> QuadraticModel:
    rows = slice(0, y.shape[0])
    return QuadraticModel(model.features[rows], model.meta_features[rows], model.epsilon)


def _gradient(model: QuadraticModel, W: np.ndarray, residual: np.ndarray) -> np.ndarray:
    return np.einsum("jap,aj->pj", model.effective_features(W), residual, optimize=True)
