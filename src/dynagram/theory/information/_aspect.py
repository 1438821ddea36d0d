"""Depth against width: the aspect ratio r* where the information of two output halves peaks.

At the output x = V/(nG²) → ν r with r = L/n (A.68), and I of (A.67) has its maximum at
x* = 4/(20 + 3m_1 + 3m_2), so r* = x*/ν (A.72); with skips ν depends on γ (B.36). The maximum
belongs to the truncated series (the exact information grows without end): r* is the scale where
the 1/n expansion stops being useful, not a law of nature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.networks import ActivationLike
from dynagram.theory.information._finite import mutual_information
from dynagram.theory.skips._flow import ResidualFlow, Vertex, checked_vertex
from dynagram.theory.skips._slope import vertex_slope


@dataclass(frozen=True)
class AspectRatio:
    """r*, the slope ν behind it, and the truncated information there, in nats.

    `r_star` = `x_star`/`nu` for σ called `activation`, the `skip` γ and the `vertex` recursion;
    `information` is I at r*. `resummed` is log(1 + x*)/ν, where x itself (exactly e^{νr} − 1 in
    deep scale-invariant networks) reaches x*: how soft the number is.
    """

    activation: str
    skip: float
    vertex: Vertex
    nu: float
    x_star: float
    r_star: float
    information: float

    @property
    def resummed(self) -> float:
        """log(1 + x*)/ν."""
        return math.log1p(self.x_star) / self.nu


def optimal_aspect_ratio(
    activation: ActivationLike,
    outputs: int,
    *,
    skip: float = 0.0,
    vertex: str = "corrected",
) -> AspectRatio:
    """r* = 4/((20 + 3n_L) ν(γ)) for two halves of n_L = `outputs` (A.73), (A.74), (B.36).

    **Arguments:**

    - `activation`: σ: a name, a callable or an `Activation`.
    - `outputs`: n_L. One output counts like (20 + 3·1), the formula's own continuation: halves need
        n_L ≥ 2.
    - `skip`: γ of the blocks.
    - `vertex`: the recursion whose ν(γ) is used: "corrected", or "published" for (B.26) as printed.

    **Returns:** an `AspectRatio`.

    >>> best = optimal_aspect_ratio("relu", 10)
    >>> round(best.r_star, 6), round(best.information, 9)
    (0.016, 0.006666667)
    >>> round(optimal_aspect_ratio("relu", 10, skip=0.9).r_star, 5)
    0.03155
    >>> round(optimal_aspect_ratio("relu", 10, skip=0.9, vertex="published").r_star, 5)
    0.10049
    """
    kept, x = checked_vertex(vertex), optimal_variance(outputs / 2, outputs / 2)
    nu = vertex_slope(activation, skip, vertex=kept)
    peak = (outputs / (20.0 + 3.0 * outputs)) ** 2 / 6.0
    name = getattr(activation, "name", None) or str(activation)
    return AspectRatio(name, float(skip), kept, nu, x, x / nu, peak)


def optimal_variance(first: float | int, second: float | int) -> float:
    """x* = 4/(20 + 3m_1 + 3m_2), the maximum of (A.67).

    **Arguments:**

    - `first`, `second`: m_1 and m_2 > 0, the sizes of the two groups of neurons; they may be
        fractions, as the halves of an odd number.

    **Returns:** x*.

    >>> round(optimal_variance(1, 1), 6)
    0.153846
    """
    if first <= 0 or second <= 0:
        raise InvalidValueError("sizes of groups", (first, second), "expected numbers > 0")
    return 4.0 / (20.0 + 3.0 * first + 3.0 * second)


def optimal_skip(
    activation: ActivationLike, ratio: float, outputs: int, *, vertex: str = "corrected"
) -> float:
    """γ* ≥ 0 for which r* is this L/n = `ratio` (B.37); 0 where r ≤ r*(0), as skips do harm there.

    Where ν(γ) is not monotone (ReLU, corrected) the largest solution is meant: the one on the
    branch on which skips reduce fluctuations. Set C_b and C_W by `residual_critical` with it.

    **Arguments:**

    - `activation`: σ: a name, a callable or an `Activation`.
    - `ratio`: r = L/n > 0.
    - `outputs`: n_L, of which two halves are compared.
    - `vertex`: the recursion whose ν(γ) is used: "corrected", or "published" for (B.26) as printed.

    **Returns:** γ*.

    >>> [round(optimal_skip("relu", 0.1, 10, vertex=v), 6) for v in ("published", "corrected")]
    [0.899505, 0.971744]
    """
    from scipy.optimize import brentq

    kept = checked_vertex(vertex)
    if not (math.isfinite(ratio) and ratio > 0.0):
        raise InvalidValueError("ratio", ratio, "L/n must be > 0")
    target = optimal_variance(outputs / 2, outputs / 2) / ratio

    def excess(gamma: float) -> float:
        return vertex_slope(activation, gamma, vertex=kept) - target

    if excess(0.0) <= 0.0:
        return 0.0
    # From γ = 1 downwards, where ν → 0: the first place that exceeds the target.
    rest = 2.0 ** -np.arange(1.0, 34.0)
    inside = next(delta for delta in rest if excess(1.0 - delta) < 0.0)
    for delta in np.arange(2.0, 1.0 / inside + 1.0) * inside:
        gamma = max(1.0 - float(delta), 0.0)
        if excess(gamma) >= 0.0:
            root: Any = brentq(excess, gamma, gamma + inside, xtol=1e-15)
            return float(root)
    return 0.0


def truncated_information(ratio: float, nu: float, *, first: int, second: int) -> float:
    """I of (A.71) at L/n = `ratio`: (A.67) with x = ν r. Negative beyond 1.5 r*.

    **Arguments:**

    - `ratio`: r = L/n.
    - `nu`: ν, the slope of x in r.
    - `first`, `second`: m_1 and m_2, the sizes of the two groups of outputs.

    **Returns:** I in nats.

    >>> round(truncated_information(0.016, 5.0, first=5, second=5), 9)
    0.006666667
    """
    return float(mutual_information(nu * ratio, first=first, second=second))


def residual_information(flow: ResidualFlow, *, fan_in: int, first: int, second: int) -> np.ndarray:
    """I between neurons of each layer of a residual network, leading order, one input.

    (m_1m_2/n²)[V²/(8K⁴) + Σ_{p≠2} φ_p²/(2K²)]: with a skip, neurons also share the part of the
    response that V does not see. It stays O(1) with depth while V grows.

    **Arguments:**

    - `flow`: a `ResidualFlow` with the corrected vertex, from `residual_flow`.
    - `fan_in`: n, the width of the layer below.
    - `first`, `second`: m_1 and m_2, the sizes of the two groups of neurons.

    **Returns:** I in nats, one per layer; 0 where K is 0.

    >>> from dynagram.networks import MLP
    >>> from dynagram.theory.skips import residual_flow
    >>> flow = residual_flow(MLP([1, 1, 1, 1], "relu", C_b=0.0, C_W=1.5, skip=0.5), 1.0)
    >>> float(residual_information(flow, fan_in=1, first=1, second=1)[1].round(4))
    1.7673
    """
    if flow.response is None:
        raise InvalidValueError("vertex", flow.vertex, "the corrected flow is needed")
    others = np.delete(flow.response, [0, 2], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        size = flow.V**2 / (8.0 * flow.K**4) + np.sum(others**2, axis=1) / (2.0 * flow.K**2)
    return first * second / fan_in**2 * np.where(flow.K > 0.0, size, 0.0)
