"""Averages of steep functions: which form of a derivative loses fewer digits, and other rules.

A derivative of an average in K may stand on σ or on the Gaussian (D7.3). Of a spike of width w the
first is a difference of numbers 1/w² times as large, and worse, since σ^(p) is known at z up to
the rounding of z. What each form loses is seen by moving the nodes a little; what is lost all the
same shows in the scatter over rules that share no node. Derivation:
docs/derivations/gaussian-averages.md (D7.19), (D7.21).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from dynagram._arrays import SameArray
from dynagram.activations import Activation
from dynagram.activations._panels import NODES, WEIGHTS, spread
from dynagram.activations._resolution import panels_of
from dynagram.gaussian._quadrature import shares_nodes

_SHIFT = 4.0 * float(np.finfo(np.float64).eps)
_STEEP = 64.0  # |σ''|/|σ| beyond which derivatives of averages lose two digits and more
_CUTS = (0.5, 0.382)  # where the panels of the other rules are cut once more
_RESOLVED = 2  # the order up to which panels have looked at the derivatives of a function
_ROUGH = 1e-10  # of ∫|σ'''|, ∫|σ''''|: how much finer panels may change them
# How much larger than the scatter the error is called: rounding of some rules is small by chance.
_SCATTER = 8.0


@functools.lru_cache(maxsize=256)
def is_steep(sigma: Activation) -> bool:
    """Whether σ bends over lengths so short that averages with its derivatives lose digits.

    None of those that come with dynagram is, nor a function that varies over one length around 0.
    """
    panels = panels_of(sigma)
    return panels is not None and panels.steepness > _STEEP and not shares_nodes(sigma)


def resolved_order(sigma: Activation, order: int) -> int:
    """The order ≤ `order` of a derivative of σ that quadrature may take, the rest on the Gaussian.

    2 for a function such as |z − c|^2.5, smooth but for a σ''' or σ'''' without an integral;
    `order` for all others.
    """
    return min(order, _RESOLVED) if order > _RESOLVED and _is_rough(sigma) else order


@functools.lru_cache(maxsize=256)
def _is_rough(sigma: Activation) -> bool:
    """Whether halves of the panels of σ have other integrals of σ''' or σ'''' than the whole.

    Held against what there is up to that distance from 0. On panels that resolve σ, σ' and σ''
    Gauss's rule is exact for the next derivatives too, unless they are singular somewhere.
    """
    panels = panels_of(sigma)
    if panels is None or shares_nodes(sigma):
        return False
    left, right = panels.edges[:-1], panels.edges[1:]
    middle, outwards = 0.5 * (left + right), np.argsort(np.abs(left + right))
    for order in (_RESOLVED + 1, _RESOLVED + 2):
        whole, size = _integrals(sigma, left, right, order)
        lower = _integrals(sigma, left, middle, order)[0]
        upper = _integrals(sigma, middle, right, order)[0]
        allowed = _ROUGH * np.cumsum(size[outwards]) + 1e-290
        if not np.all(np.abs(lower + upper - whole)[outwards] <= allowed):
            return True
    return False


def _integrals(
    sigma: Activation, left: np.ndarray, right: np.ndarray, order: int
) -> tuple[np.ndarray, np.ndarray]:
    """∫σ^(p) and ∫|σ^(p)| over panels, p = `order`."""
    values, half = sigma.values(spread(left, right, NODES), order), 0.5 * (right - left)
    return half * (values @ WEIGHTS), half * (np.abs(values) @ WEIGHTS)


@functools.lru_cache(maxsize=64)
def other_rules(sigma: Activation) -> tuple[Activation, ...]:
    """The same function averaged over other nodes, for the scatter of its rounding; none if mild.

    Its panels are cut once more, at two places.
    """
    panels = panels_of(sigma)
    if panels is None or not is_steep(sigma):
        return ()
    left, right = panels.edges[:-1], panels.edges[1:]
    cuts = (np.sort(np.append(panels.edges, left + cut * (right - left))) for cut in _CUTS)
    return tuple(replace(sigma, panels=replace(panels, edges=edges)) for edges in cuts)


def scatter(
    value: Float[SameArray, "*shape"], others: Sequence[Float[SameArray, "*shape"]]
) -> list[Float[SameArray, "*shape"]]:
    """One deviation for every other rule; their squares add up to that of an error bar (D7.21)."""
    return [(_SCATTER / len(others) ** 0.5) * (other - value) for other in others]


def rounding(
    f: Callable[[np.ndarray], np.ndarray], z: Float[np.ndarray, "*shape"]
) -> Float[np.ndarray, "*shape"]:
    """How well f is known at places that are known to a few units in the last digit (D7.19)."""
    value = f(z)
    return np.abs(f(z * (1.0 + _SHIFT)) - value) + _SHIFT * np.abs(value)
