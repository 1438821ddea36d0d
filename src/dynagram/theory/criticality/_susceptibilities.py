"""The helper functions of one scalar K: g, χ∥, χ⊥, h, j and the ratio R (book §5.2, §5.4).

All are elementwise over an array of variances K; K = 0 means the limit K → 0⁺. g carries no
C_W, the others do. The difference χ∥ − χ⊥ = C_W⟨σσ''⟩_K, so criticality is ⟨σσ''⟩_K = 0.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.activations import activation as resolve
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._one_input import (
    ActivationLike,
    joint_average,
    power_average,
    slope_average,
    slopes,
)
from dynagram.gaussian._quadrature import check_variance


def mean_square(
    activation: ActivationLike, K: Float[np.ndarray, "*shape"] | float, *, derivative: int = 0
) -> Float[np.ndarray, "*shape"]:
    """g(K) = ⟨σ²⟩_K (5.49), or its derivative: g' (5.50), g'' (in 5.111), up to the fourth.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K`: kernels of one input, a number or an array of any shape.
    - `derivative`: how often to differentiate by K, 0 to 4.

    **Returns:** g or its derivative, of the shape of `K`.

    >>> round(float(mean_square("tanh", 1.0)), 12)
    0.394294490398
    """
    if not 0 <= derivative <= 4:
        raise InvalidValueError("derivative", derivative, "expected 0 to 4")
    return power_average(resolve(activation), check_variance(K), 2, derivative)


def parallel_susceptibility(
    activation: ActivationLike, K: Float[np.ndarray, "*shape"] | float, C_W: float
) -> Float[np.ndarray, "*shape"]:
    """χ∥(K) = C_W g'(K): growth per layer of a difference of norms (5.10), (5.50).

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K`: kernels of one input, a number or an array of any shape.
    - `C_W`: weight variance times fan-in.

    **Returns:** χ∥, of the shape of `K`.

    >>> round(float(parallel_susceptibility("tanh", 1.0, 1.0)), 12)
    0.18179768814
    """
    return np.asarray(C_W * mean_square(activation, K, derivative=1))


def perpendicular_susceptibility(
    activation: ActivationLike, K: Float[np.ndarray, "*shape"] | float, C_W: float
) -> Float[np.ndarray, "*shape"]:
    """χ⊥(K) = C_W⟨σ'²⟩_K: growth per layer of a squared distance at equal norm (5.51).

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K`: kernels of one input, a number or an array of any shape.
    - `C_W`: weight variance times fan-in.

    **Returns:** χ⊥, of the shape of `K`.

    >>> round(float(perpendicular_susceptibility("tanh", 1.0, 1.0)), 12)
    0.464402902448
    """
    return np.asarray(C_W * slope_average(resolve(activation), check_variance(K)))


def perpendicular_source(
    activation: ActivationLike, K: Float[np.ndarray, "*shape"] | float, C_W: float
) -> Float[np.ndarray, "*shape"]:
    """h(K) = ½ dχ⊥/dK: what a difference of norms adds to the squared distance (5.52).

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K`: kernels of one input, a number or an array of any shape.
    - `C_W`: weight variance times fan-in.

    **Returns:** h, of the shape of `K`.

    >>> round(float(perpendicular_source("tanh", 1.0, 1.0)), 12)
    -0.089148137443
    """
    sigma, K = resolve(activation), check_variance(K)
    return np.asarray(0.5 * C_W * slope_average(sigma, K, derivative=1))


def metric_source(
    activation: ActivationLike, K: Float[np.ndarray, "*shape"] | float, C_W: float
) -> Float[np.ndarray, "*shape"]:
    """j(K) = 4K²C_W g''(K): what fluctuations add to the mean metric (5.111).

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K`: kernels of one input, a number or an array of any shape.
    - `C_W`: weight variance times fan-in.

    **Returns:** j, of the shape of `K`.

    >>> round(float(metric_source("tanh", 1.0, 1.0)), 12)
    -0.685173793509
    """
    sigma, K = resolve(activation), check_variance(K)
    # K²g'' → 0 also at a kink, where g'' itself diverges as K → 0.
    bend = power_average(sigma, np.where(K > 0.0, K, 1.0), 2, 2)
    return np.asarray(4.0 * C_W * K**2 * bend)


def curvature_average(
    activation: ActivationLike, K: Float[np.ndarray, "*shape"] | float
) -> Float[np.ndarray, "*shape"]:
    """⟨σσ''⟩_K = (χ∥ − χ⊥)/C_W: zero exactly where (5.73) holds, and free of its denominator.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K`: kernels of one input, a number or an array of any shape.

    **Returns:** ⟨σσ''⟩, of the shape of `K`.

    >>> round(float(curvature_average("sin", 1.0)), 12)
    -0.432332358382
    """
    sigma, K = resolve(activation), check_variance(K)
    if slopes(sigma) is not None:
        return np.zeros(K.shape)
    return joint_average(sigma, K, (0, 2))


def susceptibility_ratio(
    activation: ActivationLike, K: Float[np.ndarray, "*shape"] | float
) -> Float[np.ndarray, "*shape"]:
    """R(K) = χ⊥/χ∥, the left side of (5.73); 1 at criticality, negative for cos.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.
    - `K`: kernels of one input, a number or an array of any shape.

    **Returns:** R, of the shape of `K`.

    >>> round(float(susceptibility_ratio("tanh", 1.0)), 9)
    2.554503895
    """
    sigma, K = resolve(activation), check_variance(K)
    numerator, denominator = slope_average(sigma, K), power_average(sigma, K, 2, 1)
    if np.any(denominator == 0.0):
        where = float(K[denominator == 0.0].flat[0])
        raise NonFiniteError(f"χ⊥/χ∥ of {sigma.name} at K = {where:g}: χ∥ is zero there")
    return np.asarray(numerator / denominator)
