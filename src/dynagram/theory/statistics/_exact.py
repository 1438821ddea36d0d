"""Networks solved exactly at any width: deep linear ones (3.45)-(3.57), scale-invariant ones.

With C_b = 0 and one input, each layer multiplies the metric Ĝ by an independent random factor
C_W/n Σ_j σ(u_j)², u standard normal: the moments G_2m = E[Ĝ^m] multiply too, and no expansion in
1/n is needed. The 2m-point correlator of preactivations is G_2m times the sum over pairings of
neurons (3.44), its connected part the m-th cumulant of Ĝ times the same sum. Linear networks are
also solved for the four-point function of any inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._one_input import ActivationLike, even_slope, required_slopes
from dynagram.gaussian._wick import cumulants_from_moments, moments_from_cumulants
from dynagram.networks import MLP, check_inputs
from dynagram.networks._checks import require_plain


@dataclass(frozen=True, eq=False)
class ExactMetric:
    """G_2m = E[Ĝ^m] and the cumulants κ_m of Ĝ, m = 1..count, of each layer and input, exact.

    `moments[..., m − 1]` is G_2m of `network`; `cumulants[..., 1]` is G_4 − G_2² (3.28),
    `cumulants[..., 2]` is G_6 − 3G_2G_4 + 2G_2³ (3.57).
    """

    network: MLP
    moments: Float[np.ndarray, "layer sample m"]
    cumulants: Float[np.ndarray, "layer sample m"]


@dataclass(frozen=True, eq=False)
class DoubleScaling:
    """The limit n, L → ∞ at fixed r = L/n, in units of G_2: moments, cumulants, lognormal law.

    `ratio` is r; `moments[m − 1]` and `cumulants[m − 1]` are of order m. log(Ĝ/G_2) is normal with
    mean `log_mean` and variance `log_variance`: the typical signal shrinks although its mean does
    not.
    """

    ratio: float
    moments: Float[np.ndarray, " m"]
    cumulants: Float[np.ndarray, " m"]
    log_mean: float
    log_variance: float


def width_factors(activation: ActivationLike, width: int, count: int) -> Float[np.ndarray, " m"]:
    """c_2m(n) for m = 1..count: what a layer of n neurons does to G_2m, per C_W^m (3.45), (3.46).

    The moments of a mean of n independent σ(u)². Linear: Π_{s<m}(1 + 2s/n); in general c_2 = A_2
    and c_4 = A_2² + (3A_4 − A_2²)/n with A_2k = (a₊^2k + a₋^2k)/2.

    >>> width_factors("linear", 4, 3)             # 1, 1 + 2/n, 1 + 6/n + 8/n²
    array([1. , 1.5, 3. ])
    >>> width_factors("relu", 10, 2)              # 1/2, (1 + 5/n)/4
    array([0.5  , 0.375])
    """
    pair = required_slopes(activation)
    if width < 1:
        raise InvalidValueError("width", width, "a width must be an integer ≥ 1")
    with localcontext(prec=_digits([width], _checked_count(count))):
        factors = _unit_factors(pair, width, count)
        return _as_floats([factors], "c_2m")[0] * even_slope(pair, 2) ** np.arange(1, count + 1)


def exact_metric(network: MLP, x: object, count: int) -> ExactMetric:
    """Moments and cumulants of Ĝ^(ℓ) up to order `count`, for each row of `x` by itself (3.47).

    Sums in 30 or more decimal digits, so that the small cumulants of wide networks are accurate to
    rounding. Cost: count² per layer.

    **Arguments:**

    - `network`: an `MLP` without skips, with scale-invariant σ and C_b = 0, of any widths.
    - `x`: the inputs, (samples, n_0).
    - `count`: the highest order m of moments and cumulants.

    **Returns:** an `ExactMetric`.

    >>> net = MLP([3, 10, 10, 1], "linear", C_b=0.0, C_W=1.0)
    >>> exact_metric(net, np.ones((1, 3)), 2).moments[:, 0, 1]      # (1 + 2/n)^(ℓ−1)
    array([1.  , 1.2 , 1.44])
    """
    pair = _checked_slopes(network)
    inputs = check_inputs(x, network.widths[0])
    count = _checked_count(count)
    hidden = network.widths[1:-1]
    with localcontext(prec=_digits(hidden, count)):
        rows = [[Decimal(1)] * count]
        for width in hidden:
            factors = _unit_factors(pair, width, count)
            rows.append([row * factor for row, factor in zip(rows[-1], factors, strict=True)])
        moments = _as_floats(rows, "G_2m/G_2^m")
        cumulants = _as_floats([cumulants_from_moments(row) for row in rows], "κ_m/G_2^m")
    with np.errstate(over="ignore", invalid="ignore"):
        power = _two_point(network, pair, inputs)[:, :, None] ** np.arange(1, count + 1)
        result = moments[:, None, :] * power, cumulants[:, None, :] * power
    if not all(np.all(np.isfinite(part)) for part in result):
        raise NonFiniteError(f"moments of order {count} leave float64: lower C_W, count or depth")
    return ExactMetric(network, *result)


def mean_square_variance(network: MLP, x: object) -> Float[np.ndarray, "layer sample"]:
    """Var of O^(ℓ) = (1/n_ℓ) Σ_j z_j² for each row of `x`: (2/n_ℓ) G_4 + G_4 − G_2² (3.33).

    Exact at any widths; n_L counts the output's neurons.

    **Arguments:**

    - `network`: an `MLP` without skips, with scale-invariant σ and C_b = 0.
    - `x`: the inputs, (samples, n_0).

    **Returns:** the variance, (layer, sample).

    >>> net = MLP([2, 100, 100, 100], "linear", C_b=0.0, C_W=1.0)
    >>> mean_square_variance(net, np.ones((1, 2)))[:, 0].round(6)    # 2ℓ/n and more
    array([0.02    , 0.0404  , 0.061208])
    """
    exact = exact_metric(network, x, 2)
    widths = np.array(network.widths[1:])[:, None]
    return 2.0 / widths * exact.moments[..., 1] + exact.cumulants[..., 1]


def linear_four_point(network: MLP, x: object) -> Float[np.ndarray, "layer a b c d"]:
    """M^(ℓ)_(ab)(cd) = E[Ĝ_ab Ĝ_cd] of a deep linear network, any inputs, exact at any widths.

    E[z z z z] = δ_12δ_34 M_(12)(34) + δ_13δ_24 M_(13)(24) + δ_14δ_23 M_(14)(23). The totally
    symmetric part of G_ab G_cd grows by 1 + 2/n per layer, the rest shrinks by 1 − 1/n. The
    vertex V of (4.76) is n_{ℓ−1}(M − GG), at all orders in 1/n.

    **Arguments:**

    - `network`: a linear `MLP` without skips, C_b = 0.
    - `x`: the inputs, (samples, n_0).

    **Returns:** M, (layer, a, b, c, d).

    >>> net = MLP([2, 10, 1], "linear", C_b=0.0, C_W=1.0)
    >>> M = linear_four_point(net, np.sqrt(2) * np.eye(2))[1]
    >>> M[0, 0, 0, 0].round(6), M[0, 0, 1, 1].round(6), M[0, 1, 0, 1].round(6)
    (np.float64(1.2), np.float64(1.0), np.float64(0.1))
    """
    pair = _checked_slopes(network, linear=True)
    inputs = check_inputs(x, network.widths[0])
    gram = inputs @ inputs.T / network.widths[0]
    split = np.einsum("ab,cd->abcd", gram, gram)
    symmetric = (split + split.transpose(0, 2, 1, 3) + split.transpose(0, 3, 2, 1)) / 3.0
    hidden = np.array(network.widths[1:-1], dtype=np.float64)
    grows, shrinks = (
        np.concatenate([[1.0], np.cumprod(1.0 + c / hidden)])[:, None, None, None, None]
        for c in (2.0, -1.0)
    )
    gain = (_gains(network, pair) ** 2)[:, None, None, None, None]
    return gain * (grows * symmetric + shrinks * (split - symmetric))


def log_metric(
    network: MLP,
) -> tuple[Float[np.ndarray, " layer"], Float[np.ndarray, " layer"]]:
    """Mean and variance of log(Ĝ^(ℓ)/G_2^(ℓ)) of a deep linear network, one input, exact.

    Each layer below adds ψ(n/2) − log(n/2) ≈ −1/n to the mean and ψ'(n/2) ≈ 2/n to the variance.
    Kinked σ have no such law: with probability 2⁻ⁿ a layer is silent and the logarithm −∞.

    **Arguments:**

    - `network`: a linear `MLP` without skips, C_b = 0.

    **Returns:** the means and the variances, one per layer.

    >>> net = MLP([1] + [200] * 99 + [1], "linear", C_b=0.0, C_W=1.0)
    >>> mean, variance = log_metric(net)
    >>> mean[-1].round(5), variance[-1].round(5)                     # near −r, 2r with r = ½
    (np.float64(-0.49582), np.float64(0.99497))
    """
    from scipy.special import polygamma, psi

    _checked_slopes(network, linear=True)
    half = 0.5 * np.array(network.widths[1:-1], dtype=np.float64)
    steps = psi(half) - np.log(half), polygamma(1, half)
    mean, variance = (np.concatenate([[0.0], np.cumsum(step)]) for step in steps)
    return mean, variance


def double_scaling(activation: ActivationLike, ratio: float, count: int) -> DoubleScaling:
    """n, L → ∞ at r = `ratio` = L/n: G_2m → e^{S m(m−1) r/2} G_2^m (3.53)-(3.57), Ĝ lognormal.

    S = 3A_4/A_2² − 1: 2 for linear networks, 5 for ReLU. The limits do not commute: n → ∞ first
    gives 1, L → ∞ first diverges (3.49)-(3.51). Holds while m² is small against n.

    **Arguments:**

    - `activation`: a scale-invariant σ: a name, a callable or an `Activation`.
    - `ratio`: r = L/n ≥ 0; at unequal widths Σ 1/n_ℓ.
    - `count`: the highest order m of moments and cumulants.

    **Returns:** a `DoubleScaling`.

    >>> double_scaling("linear", 0.5, 3).moments.round(6)             # 1, e^{2r}, e^{6r}
    array([ 1.      ,  2.718282, 20.085537])
    """
    pair = required_slopes(activation)
    if not (math.isfinite(ratio) and ratio >= 0):
        raise InvalidValueError("ratio", ratio, "depth over width must be finite and ≥ 0")
    count = _checked_count(count)
    slope = 3.0 * even_slope(pair, 4) / even_slope(pair, 2) ** 2 - 1.0
    # κ_m is of order r^(m−1): as many digits cancel.
    with localcontext(prec=_digits([1.0 / ratio if ratio else 1.0], count)):
        exponents = [Decimal(slope) * m * (m - 1) / 2 * Decimal(ratio) for m in range(1, count + 1)]
        moments = [exponent.exp() for exponent in exponents]
        moments, cumulants = _as_floats([moments, cumulants_from_moments(moments)], "G_2m/G_2^m")
    return DoubleScaling(ratio, moments, cumulants, -0.5 * slope * ratio, slope * ratio)


def _unit_factors(pair: tuple[float, float], width: int, count: int) -> list[Decimal]:
    """E[(mean of n values y)^m] for y = σ(u)²/A_2, through cumulants, which just divide by n."""
    plus, minus = (Decimal(abs(slope)) for slope in pair)
    mean = (plus**2 + minus**2) / 2
    moments, double_factorial = [], Decimal(1)
    for m in range(1, count + 1):
        double_factorial *= 2 * m - 1
        moments.append(double_factorial * (plus ** (2 * m) + minus ** (2 * m)) / 2 / mean**m)
    cumulants = cumulants_from_moments(moments)
    return moments_from_cumulants(
        [cumulant / Decimal(width) ** m for m, cumulant in enumerate(cumulants)]
    )


def _digits(widths: Sequence[int | float], count: int) -> int:
    """Decimal digits: κ_m is smaller than G_2^m by up to n^(m−1)."""
    return 40 + count * math.ceil(math.log10(max([10.0, *widths])))


def _as_floats(rows: list[list[Decimal]], name: str) -> Float[np.ndarray, "row m"]:
    values = np.array([[float(entry) for entry in row] for row in rows])
    if not np.all(np.isfinite(values)):
        raise NonFiniteError(f"{name} leaves float64: the network is too deep for its width")
    return values


def _gains(network: MLP, pair: tuple[float, float]) -> Float[np.ndarray, " layer"]:
    """G_2^(ℓ)/(x·x/n_0): C_W of the first layer, then C_W A_2 per layer (3.15)."""
    factors = np.array(network.C_W) * even_slope(pair, 2)
    factors[0] = network.C_W[0]
    return np.cumprod(factors)


def _two_point(
    network: MLP, pair: tuple[float, float], inputs: np.ndarray
) -> Float[np.ndarray, "layer sample"]:
    squares = np.sum(inputs * inputs, axis=1) / network.widths[0]
    return _gains(network, pair)[:, None] * squares[None, :]


def _checked_slopes(network: MLP, *, linear: bool = False) -> tuple[float, float]:
    """(a₊, a₋) of a network without biases whose σ is scale-invariant, or linear."""
    require_plain(network, "exact solutions")
    pair = required_slopes(network.activation)
    if linear and pair[0] != pair[1]:
        raise InvalidValueError(
            "activation", network.activation.name, "this formula holds for linear networks only"
        )
    if any(network.C_b):
        raise InvalidValueError("C_b", network.C_b, "exact solutions need C_b = 0 in every layer")
    return pair


def _checked_count(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidValueError("count", count, "expected an integer ≥ 1")
    return count
