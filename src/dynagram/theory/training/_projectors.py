"""Algorithm projectors of trained networks (∞.107)-(∞.153), as scalars in the eigenbasis.

With the training NTK H = Σ h_a e_a e_aᵀ, a projector with 2k sample indices is diagonal:
Z^{1..k,k+1..2k} = Σ Z(a, b, …) e_a^1 e_b^2 … e_a^{k+1} e_b^{k+2} …, so that N_A² or N_A³ numbers
stand for it. At the end of training only Z_A, Z_IA, Z_IIA and Z_IIB depend on the algorithm: Z_B
and Z_IB act on symmetric tensors, and their symmetric parts are ½/(h_a h_b) and
−1/(6 h_a h_b h_c) for all. At a finite time they are sums over the steps so far of products of up
to three free errors, hence divided differences of one function, `Decay`. Derivation:
docs/derivations/trained-outputs.md (D1.4)-(D1.9).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.theory.training._decay import Decay

Vector = Float[np.ndarray, " a"]
Pairs = Float[np.ndarray, "a b"]
Triples = Float[np.ndarray, "a b c"]


@dataclass(frozen=True, eq=False)
class Projectors:
    """The scalars of one algorithm; the first axis is the slot of the output predicted.

    It has one entry where all outputs share the scalars, as bracketed test outputs do, and one
    per direction for training outputs at finite times. `kept` is what is left of an initial
    output. `response` f(h) multiplies the shift of the mean NTK, `variance` = −f[h_a, h_b] the
    variance of the NTK. Z_B and Z_IB are symmetric.
    """

    kept: Float[np.ndarray, " row"]
    response: Float[np.ndarray, "row a"]
    variance: Float[np.ndarray, "row a b"]
    Z_A: Float[np.ndarray, "row a b"]
    Z_B: Float[np.ndarray, "row a b"]
    Z_IA: Float[np.ndarray, "row a b c"]
    Z_IB: Float[np.ndarray, "row a b c"]
    Z_IIA: Float[np.ndarray, "row a b c"]
    Z_IIB: Float[np.ndarray, "row a b c"]


@dataclass(frozen=True, eq=False)
class Inverting:
    """X_II, X_III (∞.107)-(∞.110) and Y_1 to Y_4 (∞.135)-(∞.140) of gradient descent."""

    X_II: Pairs
    X_III: Triples
    Y_1: Triples
    Y_2: Pairs
    Y_3: Triples
    Y_4: Triples


def inverting_tensors(h: Vector, eta: float) -> Inverting:
    """X and Y for gradient descent at step `eta`; `eta` = 0 is gradient flow.

    >>> found = inverting_tensors(np.array([2.0]), 0.0)
    >>> found.X_II.item(), found.Y_2.item(), round(found.Y_3.item(), 9)    # 1/2h, 1/2h², 1/6h³
    (0.25, 0.125, 0.020833333)
    """
    a, b, c = h[:, None, None], h[None, :, None], h[None, None, :]
    X_II = 1.0 / (a + b - eta * a * b)[:, :, 0]
    X_III = 1.0 / (a + b + c - eta * (a * b + b * c + c * a) + eta**2 * a * b * c)
    # The differences in the definitions are written out, so that nothing cancels:
    # x₂(a,b) − x₃ = c (1 − ηa)(1 − ηb) x₂(a,b) x₃ and 1/a − x₃ = (1 − ηa) x₃/(a x₂(b,c)).
    kept = (1.0 - eta * a) * (1.0 - eta * b)
    Y_1 = X_II[:, :, None] * X_III * kept
    Y_2 = (1.0 - eta * h[:, None]) / h[:, None] * X_II
    Y_3 = (1.0 - eta * a) / a * Y_1
    Y_4 = (1.0 - eta * a) / a * X_III
    return Inverting(X_II, X_III, Y_1, Y_2, Y_3, Y_4)


def projectors(h: Vector, decay: Decay, start: Float[np.ndarray, " row"]) -> Projectors:
    """The projectors at a moment, for rows whose own rate is `start`, and `h` > 0.

    At the end training directions are where their targets are: only brackets, of rate 0, are asked.
    """
    return end_projectors(h, decay) if decay.at_end else finite_time_projectors(h, decay, start)


def end_projectors(h: Vector, decay: Decay) -> Projectors:
    """The projectors of brackets at the end of training (∞.142)-(∞.153).

    >>> flow = end_projectors(np.array([1.0]), Decay.flow(np.inf))
    >>> [round(float(z.item()), 4) for z in (flow.Z_A, flow.Z_IA, flow.Z_IIA, flow.Z_IIB)]
    [0.5, -0.1667, -0.1667, -0.5]
    """
    response, variance = 1.0 / h, 1.0 / (h[:, None] * h)
    Z_B = 0.5 * variance
    Z_IB = -variance[:, :, None] / (6.0 * h)
    if decay.leaps:
        Z_A, none = np.zeros_like(Z_B), np.zeros_like(Z_IB)
        Z_IA, Z_IIA, Z_IIB = none, none, none
    else:
        eta = decay.eta
        y = inverting_tensors(h, eta)
        Z_A, Z_IA, Z_IIA = y.Y_2, -y.Y_3 - 0.5 * eta * y.Y_4, -y.Y_3
        # Y_3^{213546} ties a to the second place; Y_3^{132465} exchanges the last two.
        Z_IIB = -y.Y_3 - y.Y_3.transpose(1, 0, 2) - y.Y_3.transpose(0, 2, 1) - eta * (y.Y_4 + y.Y_1)
    kept = np.asarray(1.0)  # of a bracketed test output nothing is lost
    scalars = (kept, response, variance, Z_A, Z_B, Z_IA, Z_IB, Z_IIA, Z_IIB)
    return Projectors(*(values[None] for values in scalars))


def finite_time_projectors(
    h: Float[np.ndarray, " a"], decay: Decay, start: Float[np.ndarray, " row"]
) -> Projectors:
    """The projectors at a finite time, for rows whose own rate is `start`.

    Bracketed test outputs have the rate 0: nothing pulls them back. Training directions have
    their h, and forces on them decay (∞.121), (∞.124). With e(s) the free error of a direction,
    a = (1 − e)/h (∞.92) and b_ab = x₂(a, b)(1 − e_a e_b), forces are the products in (∞.102),
    (∞.117) and (∞.119).
    """
    eta = decay.eta
    a, b, c = h[:, None, None], h[None, :, None], h[None, None, :]
    rates = {"a": a, "b": b, "c": c}

    def rate(errors: str) -> np.ndarray:
        """σ of a product of errors: 1 − ησ = Π(1 − ηh)."""
        total = np.zeros((1, 1, 1))
        for letter in errors:
            total = total + rates[letter] - eta * total * rates[letter]
        return total

    def summed(*terms: tuple[str, np.ndarray | float]) -> np.ndarray:
        """η Σ_s of products of errors times their coefficients, as felt by every row."""
        own = start[:, None, None, None]
        return sum(
            (-decay(own, rate(errors)[None]) * factor for errors, factor in terms),
            start=np.zeros((1, 1, 1, 1)),
        )

    x = 1.0 / rate("bc")
    pull = summed(("a", 1.0 / b), ("ab", -1.0 / b))  # a_b e_a
    both = summed(("ab", 1.0))  # e_a e_b
    drift = summed(("a", (1.0 / b - x) / c), ("ab", -1.0 / (b * c)), ("abc", x / c))
    square = summed(("a", x), ("abc", -x))  # b_bc e_a; drift is (a_b − b_bc) e_a/h_c
    late = summed(("ab", 1.0 / c), ("abc", -1.0 / c))  # a_c e_a e_b
    every = summed(("abc", 1.0))  # e_a e_b e_c
    Z_IA = -drift - 0.5 * eta * square
    Z_IB = Z_IA - 0.5 * eta * late - eta**2 / 6.0 * every
    # The second ddNTK also meets the drift of e_b along a and c, and of e_a along c and b.
    Z_IIB = -drift - drift.transpose(0, 2, 1, 3) - drift.transpose(0, 1, 3, 2)
    Z_IIB = Z_IIB - eta * (square + late)
    return Projectors(
        kept=decay(start),
        response=-decay(start[:, None], h[None, :]),
        variance=decay(start[:, None, None], h[None, :, None], h[None, None, :]),
        Z_A=pull[..., 0],
        Z_B=_symmetric((pull + 0.5 * eta * both)[..., 0]),
        Z_IA=Z_IA,
        Z_IB=_symmetric(Z_IB),
        Z_IIA=-drift,
        Z_IIB=Z_IIB,
    )


def _symmetric(values: np.ndarray) -> np.ndarray:
    """The mean over all orders of the axes behind the first."""
    orders = list(itertools.permutations(range(1, values.ndim)))
    return sum((values.transpose(0, *order) for order in orders), start=0.0 * values) / len(orders)
