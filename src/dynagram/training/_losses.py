"""Losses of outputs z (N, n_L) against targets y; one meaning per name, everywhere.

"half-sum" is the book's ½ Σ_i Σ_a (z_i;a − y_i;a)² (7.2), a sum; "mean" the mean of (z − y)² over
samples and outputs, as torch.nn.MSELoss; "cross-entropy" the mean over samples of
−Σ_i y_i log softmax(z)_i, as torch.nn.CrossEntropyLoss, with probabilities for targets;
"logistic" the mean of log(1 + e^{−yz}) over samples and outputs, as torch.nn.SoftMarginLoss, with
targets ±1. "module:function" is a user's own L(z, y), a JAX function of all outputs of a step.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram.errors import InvalidValueError
from dynagram.training._algorithms import import_function

LOSSES = ("half-sum", "mean", "cross-entropy", "logistic")
SQUARED = ("half-sum", "mean")
# Names that meant different things in different places.
_AMBIGUOUS = {
    "mse": '"half-sum" for ½ΣΣ(z − y)², "mean" for the mean as in torch.nn.MSELoss',
    "half": '"mean" with n_L/2 times the step size, or "half-sum" with 1/N times it',
    "book": '"half-sum", ½ΣΣ(z − y)²',
    "mse-mean": '"mean"',
    "cross-entropy-mean": '"cross-entropy", which is the mean over samples',
}


def check_loss(loss: object) -> str:
    """The name of a loss; an ambiguous one is refused with what to write instead.

    What "module:function" names is imported when the loss is first computed.

    >>> check_loss("mean")
    'mean'
    """
    if isinstance(loss, str) and (loss in LOSSES or ":" in loss.strip(":")):
        return loss
    if isinstance(loss, str) and loss in _AMBIGUOUS:
        raise InvalidValueError("loss", loss, f"write {_AMBIGUOUS[loss]}")
    allowed = f"expected one of {', '.join(LOSSES)}, or module:function"
    raise InvalidValueError("loss", loss, allowed)


def loss_value(
    loss: str, z: Float[Array, "samples n_L"], y: Float[Array, "samples n_L"]
) -> Float[Array, ""]:
    """The loss of outputs; traceable.

    **Arguments:**

    - `loss`: a name of `LOSSES`.
    - `z`, `y`: outputs and targets, a row per sample.

    **Returns:** a number.

    >>> z, y = jnp.array([[1.0, 3.0]]), jnp.array([[0.0, 1.0]])
    >>> [round(float(loss_value(name, z, y)), 4) for name in LOSSES]
    [2.5, 2.5, 0.1269, 0.3709]
    """
    if loss == "half-sum":
        return 0.5 * jnp.sum((z - y) ** 2)
    if loss == "mean":
        return jnp.mean((z - y) ** 2)
    if loss == "logistic":
        return jnp.mean(jax.nn.softplus(-y * z))
    if ":" in loss:
        return import_function("loss", loss)(z, y)
    return -jnp.sum(y * jax.nn.log_softmax(z, axis=-1)) / z.shape[0]


def loss_gradient(
    loss: str, z: Float[Array, "samples n_L"], y: Float[Array, "samples n_L"]
) -> Float[Array, "samples n_L"]:
    """∂L/∂z of a loss; traceable.

    **Arguments:**

    - `loss`: a name of `LOSSES`.
    - `z`, `y`: outputs and targets, a row per sample.

    **Returns:** as `z`.

    >>> loss_gradient("cross-entropy", jnp.zeros((1, 2)), jnp.array([[1.0, 0.0]])).tolist()
    [[-0.5, 0.5]]
    """
    if loss == "half-sum":
        return z - y
    if loss == "mean":
        return (z - y) * (2.0 / z.size)
    if loss == "logistic":
        return -y * jax.nn.sigmoid(-y * z) / z.size
    if ":" in loss:
        return jax.grad(import_function("loss", loss))(z, y)
    share = jnp.sum(y, axis=-1, keepdims=True)
    return (share * jax.nn.softmax(z, axis=-1) - y) / z.shape[0]


def loss_curvature(
    loss: str,
    z: Float[Array, "samples n_L"],
    y: Float[Array, "samples n_L"],
    change: Float[Array, "samples n_L"],
) -> Float[Array, "samples n_L"]:
    """∂²L/∂z² times a change of the outputs; traceable.

    **Arguments:**

    - `loss`: a name of `LOSSES`.
    - `z`, `y`: outputs and targets, a row per sample.
    - `change`: as `z`.

    **Returns:** as `z`.

    >>> ones = jnp.array([[1.0, 0.0]])
    >>> loss_curvature("cross-entropy", jnp.zeros((1, 2)), ones, ones).tolist()
    [[0.25, -0.25]]
    """
    if loss == "half-sum":
        return change
    if loss == "mean":
        return change * (2.0 / z.size)
    if loss == "cross-entropy":
        share = jnp.sum(y, axis=-1, keepdims=True)
        p = jax.nn.softmax(z, axis=-1)
        mean = jnp.sum(p * change, axis=-1, keepdims=True)
        return share * p * (change - mean) / z.shape[0]
    return jax.jvp(lambda outputs: loss_gradient(loss, outputs, y), (z,), (change,))[1]


def half_sum_factor(loss: str, samples: int, outputs: int) -> float:
    """L = factor · "half-sum" for a squared error; refused for other losses.

    >>> half_sum_factor("mean", 4, 2)
    0.25
    """
    if loss == "half-sum":
        return 1.0
    if loss == "mean":
        return 2.0 / (samples * outputs)
    raise InvalidValueError("loss", loss, "expected a squared error, half-sum or mean")


def check_loss_targets(loss: str, y: Float[np.ndarray, "samples n_L"]) -> None:
    """Refuse targets that `loss` cannot use: of a cross-entropy they are probabilities.

    >>> check_loss_targets("cross-entropy", np.array([[0.2, 0.8]]))
    """
    if loss == "logistic" and np.any(np.abs(y) != 1.0):
        row = int(np.argmax(np.any(np.abs(y) != 1.0, axis=1)))
        allowed = "targets of a logistic loss are 1 and −1"
        raise InvalidValueError(f"y[{row}]", np.asarray(y[row]).tolist(), allowed)
    if loss != "cross-entropy":
        return
    sums: Any = np.sum(y, axis=1)
    if np.any(y < 0.0) or np.any(np.abs(sums - 1.0) > 1e-6):
        row = int(np.argmax(np.where(np.any(y < 0.0, axis=1), np.inf, np.abs(sums - 1.0))))
        allowed = "targets of a cross-entropy are probabilities: ≥ 0, with sum 1 in every row"
        raise InvalidValueError(f"y[{row}]", np.asarray(y[row]).tolist(), allowed)
