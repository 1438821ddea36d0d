"""The formal balanced normal form (Theorem 16): first integrals of the reduced flow, as series.

With s = X_L and D_i = X_i² − X_L² the leading flow is ds/dt = K Π_{i<L} X_i at fixed D, and the
corrections of I_i = D_i + Σ_n J_{i,n} follow degree by degree from V(I_i) = 0,

    K Π_{j<L} X_j ∂J_n/∂s = − Σ_{m<n} V_{L+n−m}(J_m),        X_j = √(s² + D_j),

where V_d is the flow of the terms of degree d. Near the balanced ray, |D_j| < s², both sides are
series in s and D/s², which are integrated term by term. A term D^k/s (n = 2k) gives a logarithm
of s: the published statement, a power series in s with nothing in its way, keeps y = D/s² fixed
along the leading flow, which keeps D. Derivation: docs/derivations/saddle-series.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.theory.saddle._classes import HIGHEST_ORDER
from dynagram.theory.saddle._potential import Polynomial, potential_series
from dynagram.theory.saddle._symmetric import SymmetricNetwork, require_drive

# A term c s^a (log s)^b D^α is the entry (a, b, α): c.
Key = tuple[int, int, tuple[int, ...]]
Series = dict[Key, float]
Scales = Sequence[float] | Float[np.ndarray, " layer"]

_ROUNDING = 1e-12  # a sum this much smaller than its terms is rounding: kept, it would breed


@dataclass(frozen=True, eq=False)
class NormalForm:
    """First integrals I_i = X_i² − X_L² + …, i < L, of one network's reduced flow.

    **Arguments:**

    - `network`: whose flow; its scales do not enter.
    - `degree`: the highest power of the scales kept.
    - `spread`: the highest power of D/s² kept.
    - `terms`: the series of every I_i, {(a, b, α): c} for c s^a (log s)^b Π_j D_j^{α_j}.
    """

    network: SymmetricNetwork
    degree: int
    spread: int
    terms: tuple[Series, ...]

    @property
    def logarithms(self) -> tuple[int, ...]:
        """The degrees at which a logarithm of s is needed; () where powers do."""
        found = {a + 2 * sum(alpha) for series in self.terms for a, b, alpha in series if b}
        return tuple(sorted(found))

    def integrals(self, X: Scales) -> Float[np.ndarray, " layers_below"]:
        """I_1 … I_{L−1} at the scales X, which must be within |X_i² − X_L²| < X_L²."""
        scales = _checked(self.network, X)
        s, D = scales[-1], scales[:-1] ** 2 - scales[-1] ** 2
        return np.array([_value(series, s, D) for series in self.terms])

    def coordinates(self, X: Scales) -> Float[np.ndarray, " layer"]:
        """U_i = √(s² + I_i), U_L = s: the scales in which dU_i/dt = Ψ Π_{m≠i} U_m."""
        s = _checked(self.network, X)[-1]
        return np.sqrt(np.append(s**2 + self.integrals(X), s**2))

    def speed(self, X: Scales) -> float:
        """Ψ at the scales X, from the series of the flow: (dX_L/dt)/Π_{m<L} U_m; K at the origin.

        >>> network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.02)
        >>> form = normal_form(network)
        >>> round(form.speed([1e-4] * 4) / network.K, 6)
        1.0
        """
        scales = _checked(self.network, X)
        L = self.network.depth
        gamma = potential_series(self.network, self.degree + L - 2)
        last = sum(
            value * e[-1] * float(np.prod(scales ** np.array(e))) / scales[-1]
            for terms in gamma.values()
            for e, value in terms.items()
        )
        return float(last / np.prod(self.coordinates(X)[:-1]))


def normal_form(
    network: SymmetricNetwork, degree: int | None = None, *, spread: int = 3
) -> NormalForm:
    """The first integrals of the reduced flow up to a degree, on the cone around the balanced ray.

    Without corrections X_i² − X_L² drifts as s^{L+q−1} (19); with those up to degree n the drift
    of I_i is smaller by a power of s for every degree kept. A pure function of D may be added to
    any I_i: the series are made unique by leaving it out, not by themselves.

    **Arguments:**

    - `network`: a `SymmetricNetwork` with K > 0, σ(0) = 0 and no kink at 0.
    - `degree`: n, 2 to 9, the highest degree of a term of I_i; 2q by default, which holds two
        corrections (4 where σ has no nonlinear term).
    - `spread`: the highest power of D/s² kept; terms of odd σ that the teacher drives end by
        themselves.

    **Returns:** a `NormalForm`. Cost: seconds for L = 4 at the default; grows fast with degree.

    >>> network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.02)
    >>> form = normal_form(network, 4)
    >>> X = [0.050, 0.051, 0.052, 0.053]
    >>> shift = form.integrals(X) - (np.array(X[:-1]) ** 2 - X[-1] ** 2)
    >>> (1e6 * shift).round(4)                 # only layer 1 has a correction of degree q + 1
    array([4.923, 0.   , 0.   ])
    """
    K, L = require_drive(network), network.depth
    q = network.activation_class.q
    highest = (2 * q if q else 4) if degree is None else degree
    if not 2 <= highest <= HIGHEST_ORDER + 1:
        allowed = f"expected 2, that of X_i² − X_L², to {HIGHEST_ORDER + 1}"
        raise InvalidValueError("degree", highest, allowed)
    gamma = potential_series(network, highest + L - 2)
    flows = {d: _flow(terms, L, spread) for d, terms in gamma.items() if d > L}
    below = _scaled(_cone([-1] * (L - 1), 0, spread), 1.0 / K)  # 1/(K Π_{j<L} X_j)
    integrals = []
    for i in range(L - 1):
        unit = tuple(int(j == i) for j in range(L - 1))
        by_degree: dict[int, Series] = {2: {(0, 0, unit): 1.0}}
        for n in range(3, highest + 1):
            sources = (
                _derivative(J, flows[L + n - m], spread)
                for m, J in by_degree.items()
                if L + n - m in flows
            )
            if J := _integrated(_times(_scaled(_sum(*sources), -1.0), below, spread)):
                by_degree[n] = J
        integrals.append(_sum(*by_degree.values()))
    return NormalForm(network, highest, spread, tuple(integrals))


# --- the algebra of s^a (log s)^b D^α --------------------------------------------------------


def _cone(exponents: Sequence[int], last: int, spread: int) -> Series:
    """Π_{j<L} X_j^{e_j} · s^last with X_j = s √(1 + D_j/s²), to the power `spread` of D/s²."""
    count = len(exponents)
    zero = tuple([0] * count)
    total: Series = {(last + sum(exponents), 0, zero): 1.0}
    for place, e in enumerate(exponents):
        factor: Series = {}
        for k in range(spread + 1):
            value = math.prod(0.5 * e - i for i in range(k)) / math.factorial(k)
            if value:
                factor[-2 * k, 0, tuple(k if j == place else 0 for j in range(count))] = value
        total = _times(total, factor, spread)
    return total


def _flow(terms: Polynomial, L: int, spread: int) -> tuple[Series, ...]:
    """ds/dt, then dD_j/dt = 2 (X_j ∂_j − X_L ∂_L) Γ for j < L, of the terms of one degree."""
    parts: list[list[Series]] = [[] for _ in range(L)]
    for e, value in terms.items():
        cone = _cone(e[:-1], e[-1], spread)
        slope = {(a - 1, b, alpha): c for (a, b, alpha), c in cone.items()}
        parts[0].append(_scaled(slope, value * e[-1]))
        for j in range(L - 1):
            parts[j + 1].append(_scaled(cone, 2.0 * value * (e[j] - e[-1])))
    return tuple(_sum(*part) for part in parts)


def _derivative(J: Series, flow: tuple[Series, ...], spread: int) -> Series:
    """∂J/∂s ds/dt + Σ_j ∂J/∂D_j dD_j/dt."""
    slopes = [{(a - 1, b, alpha): a * c for (a, b, alpha), c in J.items()}]
    slopes += [{(a - 1, b - 1, alpha): b * c for (a, b, alpha), c in J.items()}]
    parts = [_times(_sum(*slopes), flow[0], spread)]
    for j, moved in enumerate(flow[1:]):
        lowered = {
            (a, b, tuple(k - (place == j) for place, k in enumerate(alpha))): alpha[j] * c
            for (a, b, alpha), c in J.items()
            if alpha[j]
        }
        parts.append(_times(lowered, moved, spread))
    return _sum(*parts)


def _integrated(series: Series) -> Series:
    """∫ ds, without a constant; s^{−1} gives log s."""
    items: list[tuple[Key, float]] = []
    for (a, b, alpha), c in series.items():
        if a == -1:
            items.append(((0, b + 1, alpha), c / (b + 1)))
            continue
        # ∫ s^a log^b = s^{a+1} Σ_k (−1)^k b!/(b−k)! log^{b−k}/(a+1)^{k+1}
        for k in range(b + 1):
            falling = math.prod(range(b - k + 1, b + 1))
            value = c * (-1) ** k * falling / (a + 1) ** (k + 1)
            items.append(((a + 1, b - k, alpha), value))
    return _collected(items)


def _times(first: Series, second: Series, spread: int) -> Series:
    return _collected(
        ((a + f, b + g, tuple(x + y for x, y in zip(alpha, gamma, strict=True))), c * d)
        for (a, b, alpha), c in first.items()
        for (f, g, gamma), d in second.items()
        if sum(alpha) + sum(gamma) <= spread
    )


def _sum(*series: Series) -> Series:
    return _collected(item for one in series for item in one.items())


def _collected(items: Iterable[tuple[Key, float]]) -> Series:
    total: Series = {}
    size: Series = {}
    for key, c in items:
        total[key] = total.get(key, 0.0) + c
        size[key] = size.get(key, 0.0) + abs(c)
    return {key: c for key, c in total.items() if abs(c) > _ROUNDING * size[key]}


def _scaled(series: Series, factor: float) -> Series:
    return {key: factor * c for key, c in series.items()}


def _value(series: Series, s: float, D: np.ndarray) -> float:
    log = math.log(s)
    return sum(c * s**a * log**b * float(np.prod(D ** np.array(alpha)))
               for (a, b, alpha), c in series.items())  # fmt: skip


def _checked(network: SymmetricNetwork, X: Scales) -> Float[np.ndarray, " layer"]:
    scales = np.asarray(X, dtype=np.float64)
    if scales.shape != (network.depth,) or not np.all(scales > 0):
        raise InvalidValueError("X", np.shape(X), f"expected {network.depth} numbers > 0")
    if np.max(np.abs(scales**2 / scales[-1] ** 2 - 1.0)) >= 1.0:
        raise InvalidValueError("X", scales.tolist(), "the series need |X_i² − X_L²| < X_L²")
    return scales
