"""Targets that a linear read-out can be asked for: one row a sample, few columns."""

from __future__ import annotations

import numpy as np

_COLUMNS = 16
_ROWS = 256


def readable_targets(z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Features and targets, a row each.

    **Arguments:**

    - `z`: (samples, tokens, channels).
    - `y`: classes or reals, for samples or for tokens; negative classes stand for no target.

    **Returns:** features (rows, channels) and targets (rows, columns); tokens are averaged where
    targets belong to samples. More than 16 classes are mixed at random into 16 columns, which
    leaves the part of their variation that can be read off the same on average. None where the
    two do not fit.

    >>> h, t = readable_targets(np.zeros((3, 1, 5)), np.array([0, 2, 1]))
    >>> h.shape, t.tolist()
    ((3, 5), [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    """
    samples, tokens, channels = z.shape
    if y.dtype.kind == "f":
        if len(y) != samples:
            return None
        return z.mean(axis=1), y.reshape(samples, -1).astype(np.float64)
    if len(y) == samples and y.size == samples * tokens and tokens > 1:
        rows, labels = z.reshape(-1, channels), y.reshape(-1)
    elif y.size == samples:
        rows, labels = z.mean(axis=1), y.reshape(-1)
    else:
        return None
    known = np.flatnonzero(labels >= 0)
    known = known[:: max(1, len(known) // _ROWS)]
    rows, labels = rows[known], labels[known]
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) <= _COLUMNS:
        return rows, np.eye(len(classes))[codes]
    mix = np.random.default_rng(0).standard_normal((len(classes), _COLUMNS))
    return rows, mix[codes]
