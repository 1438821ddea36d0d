"""Standard deviations of outputs from a covariance that is known to some order only."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

_ROUNDING = 1e-14


def output_std(
    covariance: Float[np.ndarray, "test outputs test outputs"],
) -> Float[np.ndarray, "test outputs"]:
    """√ of the variances; nan where an order in 1/n makes one negative.

    At a training input everything cancels to rounding, which counts as zero.

    >>> output_std(np.array([[[[4.0]]]])), output_std(np.array([[[[-1e-16]]]]))
    (array([[2.]]), array([[0.]]))
    """
    variance = np.einsum("titi->ti", covariance)
    rounding = _ROUNDING * max(1.0, float(np.max(np.abs(variance), initial=0.0)))
    variance = np.where(np.abs(variance) <= rounding, 0.0, variance)
    return np.sqrt(np.where(variance < 0.0, np.nan, variance))
