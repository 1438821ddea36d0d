"""Losses of a network's outputs z (N, n_L) against targets y: squared error and cross-entropy.

"mse" is the book's ½ Σ_i Σ_a (z_i;a − y_i;a)² (7.2), a sum; "mse-mean" the mean of (z − y)² over
samples and outputs. "cross-entropy" is −Σ_a Σ_i y_i;a log softmax(z_a)_i, and its mean over a.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram.errors import InvalidTypeError, InvalidValueError

LOSSES = ("mse", "mse-mean", "cross-entropy", "cross-entropy-mean")


def loss_value(
    loss: str, z: Float[Array, "samples n_L"], y: Float[Array, "samples n_L"]
) -> Float[Array, ""]:
    """The loss called `loss` of the outputs `z`; traceable.

    >>> z, y = jnp.array([[1.0, 3.0]]), jnp.array([[0.0, 1.0]])
    >>> [round(float(loss_value(name, z, y)), 4) for name in LOSSES]
    [2.5, 2.5, 0.1269, 0.1269]
    """
    if loss == "mse":
        return 0.5 * jnp.sum((z - y) ** 2)
    if loss == "mse-mean":
        return jnp.mean((z - y) ** 2)
    total = -jnp.sum(y * jax.nn.log_softmax(z, axis=1))
    return total / z.shape[0] if loss == "cross-entropy-mean" else total


def checked_targets(loss: str, y: Any, samples: int, n_L: int) -> Float[np.ndarray, "samples n_L"]:
    """`y` as float64 (N, n_L); classes 0, 1, … of a cross-entropy become one-hot rows."""
    try:
        raw = np.asarray(y)
    except (TypeError, ValueError):
        raw = np.array("")
    if raw.dtype.kind not in "biuf":
        raise InvalidTypeError("y", type(y).__name__, "expected a rectangular array of reals")
    targets = raw.astype(np.float64)
    entropy = loss.startswith("cross-entropy")
    if entropy and targets.ndim == 1 and raw.dtype.kind in "iu" and targets.size == samples:
        if raw.min() < 0 or raw.max() >= n_L:
            classes = (int(raw.min()), int(raw.max()))
            raise InvalidValueError("classes in y", classes, f"expected 0 to {n_L - 1}")
        return np.eye(n_L)[raw]
    if targets.shape != (samples, n_L):
        also = " or integer classes (samples,)" if entropy else ""
        raise InvalidValueError("shape of y", targets.shape, f"expected {(samples, n_L)}{also}")
    if not np.all(np.isfinite(targets)):
        raise InvalidValueError("y", "not finite", "every target must be finite")
    if entropy and not (
        np.all(targets >= 0) and np.allclose(targets.sum(axis=1), 1.0, rtol=0, atol=1e-6)
    ):
        raise InvalidValueError("y", "rows", "rows must be probabilities that sum to 1")
    return targets
