"""The reduced loss as a polynomial of the scales: what the formal expansions are made of.

On the symmetric ansatz dX_ℓ/dt = ∂Γ/∂X_ℓ with Γ = β E[σ(g) f] − ½ E[f²] (4). Putting the Taylor
series of σ into f = √N X_L σ(X_{L−1} σ(… σ(X_1 g))) (Lemma 15) makes Γ a polynomial in X_1 … X_L,
with h_p = E[σ(g) g^p] and the moments of g in its coefficients. A power X_1^p always comes with
g^p, so the exponents of the scales are all there is to carry.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

import numpy as np

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.gaussian._quadrature import standard_nodes
from dynagram.theory.saddle._classes import HIGHEST_ORDER
from dynagram.theory.saddle._symmetric import SymmetricNetwork

Exponents = tuple[int, ...]
Polynomial = dict[Exponents, float]

_SMALLEST = 1e-14  # Taylor coefficients below this are rounding


def potential_series(network: SymmetricNetwork, degree: int) -> dict[int, Polynomial]:
    """Γ by total degree: {d: {(e_1, …, e_L): coefficient of Π X_ℓ^{e_ℓ}}}, L ≤ d ≤ `degree`.

    The leading term is K Π X_ℓ. Cost: one Taylor series of σ to the order degree − L + 1, cached.

    **Arguments:**

    - `network`: a `SymmetricNetwork` with σ(0) = 0 and no kink at 0; its scales are not used.
    - `degree`: the highest total degree kept, L to L + 7, what eight derivatives of σ reach.

    **Returns:** the polynomial, by degree; degrees without a term are left out.

    >>> network = SymmetricNetwork.balanced("tanh", depth=3, width=4, scale=0.1)
    >>> terms = potential_series(network, 5)
    >>> sorted(terms), round(terms[3][1, 1, 1] / network.K, 12)
    ([3, 5], 1.0)
    >>> round(terms[5][3, 1, 1], 6)                      # √N β α^{L−2} a_q h_σ^(q)
    -0.969014
    """
    kind, L = network.activation_class, network.depth
    if kind.offset != 0.0 or math.isnan(kind.alpha):
        reason = "the series needs σ(0) = 0 and no kink at 0"
        raise InvalidValueError("activation", network.activation.name, reason)
    if not L <= degree < L + HIGHEST_ORDER:
        raise InvalidValueError("degree", degree, f"expected {L} to {L + HIGHEST_ORDER - 1}")
    taylor, drives = taylor_drives(network.activation, degree - L + 1)
    root = math.sqrt(network.width)
    chain: Polynomial = {(1, *[0] * (L - 1)): 1.0}
    for layer in range(1, L):
        # f has one factor X_m of every later layer at least: nothing above this can come back.
        after = _composed(taylor, chain, degree - (L - layer))
        chain = {_raised(e, layer): value for e, value in after.items()}
    gamma: Polynomial = {e: root * network.beta * drives[e[0]] * v for e, v in chain.items()}
    for e, v in _product(chain, chain, degree).items():
        gamma[e] = gamma.get(e, 0.0) - 0.5 * network.width * _normal_moment(e[0]) * v
    graded: dict[int, Polynomial] = {}
    for e, value in gamma.items():
        if value != 0.0:
            graded.setdefault(sum(e), {})[e] = value
    return dict(sorted(graded.items()))


@functools.lru_cache(maxsize=32)
def taylor_drives(sigma: Activation, order: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Taylor coefficients a_0 … a_order of σ at 0, and h_p = E[σ(g) g^p] for the same p."""
    derivatives = sigma.one_sided(order)[1]
    taylor = [float(d) / math.factorial(p) for p, d in enumerate(derivatives)]
    t, w = standard_nodes(sigma, np.ones(1))
    values = w[0] * sigma.values(t[0])
    drives = [float(np.sum(values * t[0] ** p)) for p in range(order + 1)]
    return tuple(a if abs(a) > _SMALLEST else 0.0 for a in taylor), tuple(drives)


def _composed(taylor: Iterable[float], inner: Polynomial, degree: int) -> Polynomial:
    """Σ_p a_p inner^p up to `degree`."""
    total: Polynomial = {}
    power: Polynomial = {tuple([0] * len(next(iter(inner)))): 1.0}
    for p, a in enumerate(taylor):
        if p:
            power = _product(power, inner, degree)
        if a != 0.0:
            for e, value in power.items():
                total[e] = total.get(e, 0.0) + a * value
    return {e: v for e, v in total.items() if sum(e) <= degree}


def _product(first: Polynomial, second: Polynomial, degree: int) -> Polynomial:
    total: Polynomial = {}
    for e, v in first.items():
        for f, w in second.items():
            if sum(e) + sum(f) <= degree:
                both = tuple(a + b for a, b in zip(e, f, strict=True))
                total[both] = total.get(both, 0.0) + v * w
    return total


def _raised(exponents: Exponents, place: int) -> Exponents:
    return (*exponents[:place], exponents[place] + 1, *exponents[place + 1 :])


def _normal_moment(p: int) -> float:
    """E[g^p]."""
    return 0.0 if p % 2 else float(math.prod(range(1, p, 2)))
