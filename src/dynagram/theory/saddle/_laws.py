"""Escape times on the symmetric ansatz in closed form: leading (10)-(11), next-to-leading, (12).

Leading: dX_ℓ/dt = K Π_{m≠ℓ} X_m keeps X_ℓ² − X_1², so that one integral gives the time. To the
next order the first activation's term a_q z^q adds c X_1^{q−1} to K, and q times that for layer 1,
with c = √N β α^{L−2} a_q h_σ^(q); then X_ℓ² − X_1² + κ X_1^{q+1} is kept, κ = 2(q−1)c/((q+1)K).
The constants printed in App. C of arXiv:2605.01288v3 are wrong; see docs/errata.md. Derivation:
docs/derivations/escape-times.md (D3.3)-(D3.6).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import checked_number
from dynagram.theory.saddle._clocks import REDUCED, Clock
from dynagram.theory.saddle._symmetric import SymmetricNetwork, checked_count, require_drive

_LARGEST = 1e150  # squares of it are numbers
_PANEL = 0.25  # in units of log X: the integrands vary over distances of order 1
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)

Integrand = Callable[[Float[np.ndarray, " s"]], Float[np.ndarray, " s"]]


def check_threshold(network: SymmetricNetwork, threshold: float) -> float:
    """`threshold` as a finite number above X_1 at the start."""
    theta = checked_number("threshold", threshold, "must be > 0", positive=True)
    if theta <= network.scales[0]:
        raise InvalidValueError(
            "threshold", theta, f"must be above X_1 at the start, {network.scales[0]:g}"
        )
    return theta


def leading_escape_time(
    network: SymmetricNetwork, threshold: float, clock: Clock = REDUCED
) -> float:
    """Time until X_1 reaches `threshold` at leading order, for any initial scales (10).

    Balanced (11): log(θ/ε)/K for L = 2, (ε^{−(L−2)} − θ^{−(L−2)})/((L−2)K) for L ≥ 3.

    **Arguments:**

    - `network`: a `SymmetricNetwork` with K > 0.
    - `threshold`: θ, above X_1 at the start.
    - `clock`: the `Clock` of the result; reduced time by default.

    **Returns:** the time, on `clock`.

    >>> network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.02)
    >>> round(leading_escape_time(network, 0.3), 3)
    256.817
    """
    theta, K = check_threshold(network, threshold), require_drive(network)
    X = np.array(network.scales)
    growth = X**2 - X[0] ** 2  # X_ℓ² = U² + growth, U = X_1

    def rate(U: np.ndarray) -> np.ndarray:
        return K * np.prod(np.sqrt(U[None, :] ** 2 + growth[1:, None]), axis=0)

    return _time(rate, X, theta) * clock.units


def next_to_leading_escape_time(
    network: SymmetricNetwork, threshold: float, clock: Clock = REDUCED
) -> float:
    """The leading time with the first nonlinear correction; nan where that has no meaning.

    That is: σ without a term a_q z^q (class A has no correction: the leading time is returned), or
    a threshold at which the correction is as large as what it corrects. For L = 3 the
    self-interaction f ∂f is of the same order and is left out. Class D: that of σ − σ(0).

    **Arguments:**

    - `network`: a `SymmetricNetwork` with K > 0.
    - `threshold`: θ, the value X_1 has to reach, above X_1 at the start.
    - `clock`: the `Clock` of the result; reduced time by default.

    **Returns:** the time, on `clock`, or nan.

    >>> network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.02)
    >>> round(next_to_leading_escape_time(network, 0.3), 3)
    257.592
    """
    theta, K = check_threshold(network, threshold), require_drive(network)
    kind = network.activation_class
    if kind.label == "A":
        return leading_escape_time(network, theta, clock)
    if kind.q is None or kind.a_q is None or kind.h_q is None:
        return math.nan
    q, root_N = kind.q, math.sqrt(network.width)
    c = root_N * network.beta * kind.alpha ** (network.depth - 2) * kind.a_q * kind.h_q
    kappa = 2.0 * (q - 1) * c / ((q + 1) * K)
    X = np.array(network.scales)
    kept = X**2 - X[0] ** 2 + kappa * X[0] ** (q + 1)
    end = np.array([theta])
    squares = end[None, :] ** 2 + kept[1:, None] - kappa * end[None, :] ** (q + 1)
    if K + q * c * theta ** (q - 1) <= 0 or np.any(squares <= 0):
        return math.nan

    def rate(U: np.ndarray) -> np.ndarray:
        squares = U[None, :] ** 2 + kept[1:, None] - kappa * U[None, :] ** (q + 1)
        return (K + q * c * U ** (q - 1)) * np.prod(np.sqrt(squares), axis=0)

    return _time(rate, X, theta) * clock.units


def critical_depth_time(network: SymmetricNetwork, clock: Clock = REDUCED) -> float:
    """The asymptotic law (12) for r layers at the smallest scale ε and the others at s_i ≫ ε.

    r ≥ 3: ε^{−(r−2)}/((r−2) K Π_{i>r} s_i); r = 2: log(1/ε)/(K Π s_i); r = 1: no power of ε, nan.
    The slope of log time in log ε is −(r−2): it counts the small layers, not the depth.

    **Arguments:**

    - `network`: a `SymmetricNetwork` with K > 0.
    - `clock`: the `Clock` of the result; reduced time by default.

    **Returns:** the time, on `clock`; nan for r = 1.

    >>> network = SymmetricNetwork("tanh", [0.01, 0.01, 0.01, 1.0, 1.0], width=64)
    >>> round(critical_depth_time(network), 3)
    20.637
    """
    K = require_drive(network)
    epsilon, r = bottleneck(network)
    others = math.prod(sorted(network.scales)[r:])
    if r == 1:
        return math.nan
    power = math.log(1.0 / epsilon) if r == 2 else epsilon ** (2 - r) / (r - 2)
    return power / (K * others) * clock.units


def bottleneck(network: SymmetricNetwork) -> tuple[float, int]:
    """The smallest scale ε and the number r of layers at it.

    **Arguments:**

    - `network`: a `SymmetricNetwork`.

    **Returns:** (ε, r).

    >>> bottleneck(SymmetricNetwork("tanh", [0.01, 0.01, 1.0, 0.01], width=8))
    (0.01, 3)
    """
    epsilon = min(network.scales)
    return epsilon, sum(math.isclose(X, epsilon) for X in network.scales)


def balanced_escape_time(K: float, depth: int, scale: float, threshold: float) -> float:
    """The balanced law (11) for a given drive constant, on the clock of that constant.

    **Arguments:**

    - `K`: the drive constant.
    - `depth`: L ≥ 2, the number of weight matrices.
    - `scale`: ε, the scale of every layer at the start.
    - `threshold`: θ, the scale to reach.

    **Returns:** the leading time, on the clock of `K`.

    >>> round(balanced_escape_time(4.845644077, 4, 0.02, 0.3), 3)
    256.817
    """
    depth = checked_count("depth", depth, least=2)
    if depth == 2:
        return math.log(threshold / scale) / K
    power = depth - 2
    with np.errstate(over="ignore"):  # a time that float64 does not hold is infinite
        return float((np.power(scale, -power) - np.power(threshold, -power)) / (power * K))


def _time(rate: Integrand, X: np.ndarray, theta: float) -> float:
    """∫ dU/rate(U) from X_1 to θ, in the logarithm of the smallest scale.

    All X_ℓ² grow by the same amount at leading order, so the integrand is steepest where the
    smallest X_ℓ is still itself: with X_min = m e^s it is smooth on the scale of 1 throughout.
    """
    smallest = float(X.min())
    if max(theta, 1.0 / smallest) > _LARGEST:
        raise NonFiniteError(
            f"scales from {smallest:g} to the threshold {theta:g}: squares leave the range of "
            "float64"
        )
    end = 0.5 * math.log1p((theta**2 - X[0] ** 2) / smallest**2)
    edges = np.linspace(0.0, end, max(2, math.ceil(end / _PANEL) + 1))
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    s = (middle[:, None] + half[:, None] * _NODES[None, :]).reshape(-1)
    w = (half[:, None] * _WEIGHTS[None, :]).reshape(-1)
    U = np.sqrt(X[0] ** 2 + smallest**2 * np.expm1(2.0 * s))
    slope = smallest**2 * np.exp(2.0 * s) / U
    with np.errstate(all="ignore"):
        time = float(np.sum(w * slope / rate(U)))
    if not math.isfinite(time):
        raise NonFiniteError(
            f"the escape time of {len(X)} layers from a scale of {smallest:g} leaves the range of "
            "float64: take larger scales, or fewer layers"
        )
    return time
