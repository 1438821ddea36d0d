"""Activation classes of the saddle-escape theory, A, B_q, C, D; constants α, a_q, h_σ, h_σ^(q).

With σ(z) = a_0 + αz + a_q z^q + …, the homogeneity deficit φ_σ(z) = zσ'(z) − σ(z) (1) starts as
(q−1) a_q z^q: how fast the norms of neighbouring layers drift apart near the origin (Prop. 2).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dynagram.activations import Activation
from dynagram.gaussian._quadrature import standard_nodes
from dynagram.networks import ActivationLike, checked_activation

HIGHEST_ORDER = 8  # Taylor coefficients are looked at up to here
_ZERO = 1e-10  # a Taylor coefficient below this is rounding

Label = Literal["A", "B", "C", "D", "unclassified"]


@dataclass(frozen=True)
class ActivationClass:
    """Where an activation stands, and the numbers the escape laws need.

    `label` is the class, "A" to "D" or "unclassified"; `offset` is a_0 = σ(0). `q` and `a_q` belong
    to the first nonlinear Taylor term (None where there is none up to z⁸, or where σ has a kink at
    0); `h` = E[gσ(g)] = E[σ'(g)] and `h_q` = E[(σ(g) − σ(0)) g^q] with g ~ N(0, 1). `slopes` are
    σ'(0⁻) and σ'(0⁺); `alpha` is their common value, nan for ReLU. `deficit_order` is the leading
    power of φ_σ at 0 (None: φ_σ vanishes there to order 8).
    """

    activation: Activation
    label: Label
    offset: float
    slopes: tuple[float, float]
    q: int | None
    a_q: float | None
    h: float
    h_q: float | None
    deficit_order: int | None

    @property
    def alpha(self) -> float:
        """α = σ'(0); nan where the two sides differ."""
        left, right = self.slopes
        return right if left == right else math.nan

    @property
    def name(self) -> str:
        """`A`, `B_3`, `C`, `D` or `unclassified`."""
        return f"B_{self.q}" if self.label == "B" else self.label

    def chain_drive(self, depth: int) -> float:
        """E[σ(g) c(g)], c the L − 1 activations of the scalar chain in the limit of small signals.

        This is h_σ α^{L−1} for a σ differentiable at 0, and what replaces it at a kink: ½ for ReLU.
        """
        if self.slopes[0] == self.slopes[1]:
            return self.h * self.slopes[1] ** (depth - 1)
        plus, minus = _chained(self.slopes, 1.0, depth), _chained(self.slopes, -1.0, depth)
        t, w = _nodes(self.activation)
        chain = np.where(t > 0, plus * t, -minus * t)
        return float(np.sum(w * self.activation.values(t) * chain))


def classify(activation: ActivationLike) -> ActivationClass:
    """The class of an activation (Prop. 2) with α, a_q, h_σ and h_σ^(q).

    A: φ_σ ≡ 0 (linear, ReLU). B_q: odd. C: σ(0) = 0, σ''(0) ≠ 0. D: σ(0) ≠ 0. Whatever fits none
    of them, such as z + z⁴ or an activation with a kink at 0, is "unclassified". Cost: one
    quadrature, then cached.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.

    **Returns:** an `ActivationClass`.

    >>> tanh = classify("tanh")
    >>> tanh.name, tanh.alpha, round(tanh.a_q, 6), round(tanh.h, 12), round(tanh.h_q, 12)
    ('B_3', 1.0, -0.333333, 0.605705509602, 1.453521152526)
    >>> [classify(name).name for name in ("relu", "gelu", "sigmoid", "hardtanh")]
    ['A', 'C', 'D', 'unclassified']
    """
    return _classified(checked_activation(activation))


@functools.lru_cache(maxsize=256)
def _classified(sigma: Activation) -> ActivationClass:
    # One order after the other: high derivatives are slow to compile, and few σ need them.
    (left, right), order = _coefficients(sigma, 0, 1), 1
    while order < HIGHEST_ORDER and not sigma.is_scale_invariant:
        order += 1
        left, right = np.concatenate([[left, right], _coefficients(sigma, order, order)], axis=1)
        if max(abs(left[order]), abs(right[order])) > _ZERO:
            break
    offset, slopes = _clean(right[0]), (_clean(left[1]), _clean(right[1]))
    q = _first_nonlinear_order(left, right)
    t, w = _nodes(sigma)
    values = sigma.values(t)
    return ActivationClass(
        activation=sigma,
        label=_label(sigma, offset, slopes, q),
        offset=offset,
        slopes=slopes,
        q=q,
        a_q=None if q is None else float(right[q]),
        h=float(np.sum(w * t * values)),
        h_q=None if q is None else float(np.sum(w * t**q * (values - offset))),
        deficit_order=next(
            (p for p in (0, *range(2, order + 1)) if max(abs(left[p]), abs(right[p])) > _ZERO),
            None,
        ),
    )


def _coefficients(sigma: Activation, first: int, last: int) -> np.ndarray:
    """Taylor coefficients `first` to `last` at 0, from the left in row 0, from the right in 1."""
    factorials = [math.factorial(p) for p in range(first, last + 1)]
    return sigma.one_sided(last)[:, first:] / factorials


def _nodes(sigma: Activation) -> tuple[np.ndarray, np.ndarray]:
    t, w = standard_nodes(sigma, np.ones(1))
    return t[0], w[0]


def _clean(value: float) -> float:
    return 0.0 if abs(value) < _ZERO else float(value)


def _first_nonlinear_order(left: np.ndarray, right: np.ndarray) -> int | None:
    """The lowest power beyond the first; None for a series without one, or a kink before it."""
    for order in range(1, left.size):
        size = max(abs(left[order]), abs(right[order]))
        if abs(right[order] - left[order]) > _ZERO * (1.0 + size):
            return None
        if order > 1 and size > _ZERO:
            return order
    return None


def _label(sigma: Activation, offset: float, slopes: tuple[float, float], q: int | None) -> Label:
    if sigma.is_scale_invariant:
        return "A"
    if q is None or slopes[0] == 0.0:  # a kink at 0, flat, or linear around 0 but not elsewhere
        return "unclassified"
    if offset != 0.0:
        return "D"
    if sigma.parity == "odd":
        return "B"
    return "C" if q == 2 else "unclassified"


def _chained(slopes: tuple[float, float], value: float, depth: int) -> float:
    """The piecewise-linear part of σ at 0, applied L − 1 times."""
    for _ in range(depth - 1):
        value = value * (slopes[1] if value > 0 else slopes[0])
    return value
