"""Losses that theory knows by name, told from what a user passes."""

from __future__ import annotations

from typing import Any

import numpy as np

_NAMES = {"MSELoss": "mean", "mse_loss": "mean",
          "CrossEntropyLoss": "cross-entropy", "cross_entropy": "cross-entropy"}  # fmt: skip


def loss_name(loss: Any, y: np.ndarray | None) -> str | None:
    """ "mean", "cross-entropy", or None for any other loss and without targets.

    **Arguments:**

    - `loss`: None for the usual one of the targets, or a function or module of torch.nn.
    - `y`: targets, classes or reals.

    >>> loss_name(None, np.zeros(3)), loss_name(None, np.zeros(3, int)), loss_name(max, np.zeros(3))
    ('mean', 'cross-entropy', None)
    """
    if y is None:
        return None
    usual = "mean" if y.dtype.kind == "f" else "cross-entropy"
    if loss is None:
        return usual
    about = loss if hasattr(loss, "__name__") else type(loss)
    if not str(getattr(about, "__module__", "")).startswith("torch.nn"):
        return None
    plain = (getattr(loss, "reduction", "mean") == "mean" and getattr(loss, "weight", None) is None
             and getattr(loss, "label_smoothing", 0.0) == 0.0)  # fmt: skip
    name = _NAMES.get(about.__name__)
    return name if plain and name == usual else None
