"""One input through the layers: Θ, H^{1}, V, D, F, B, A, P, Q, R, S, T, U at any depth.

Book (9.6)-(9.21), (11.55)-(11.57), (∞.14)-(∞.17); H^{1} is beyond the book. Each tensor obeys
x^(ℓ+1) = gain·x^(ℓ) + source, with Gaussian averages at K^(ℓ) that are taken for all layers at
once. A tensor of layer ℓ multiplies 1/n_{ℓ-1}, so inherited parts carry r = n_ℓ/n_{ℓ-1}.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.activations._core import both_sides
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._one_input import (
    even_slope,
    joint_average,
    power_average,
    slope_average,
    slopes,
)
from dynagram.gaussian._quadrature import check_variance
from dynagram.networks import MLP
from dynagram.networks._checks import require_plain
from dynagram.theory.criticality._one_input import single_input, width_ratios

_Array = Float[np.ndarray, "layer *sample"]


@dataclass(frozen=True, eq=False)
class TangentFlow:
    """Leading-order statistics of z, NTK, dNTK and ddNTKs of every layer (index 0 ↔ ℓ = 1).

    Every component has all four sample indices equal. All but `K` and `Theta` multiply 1/n_{ℓ-1}
    and vanish at layer 1: E z² = K + G1/n, E Ĥ = Theta + H1/n, n Var Ĥ_ii = A + 2B and n Var Ĥ_ij =
    B. `V` is the four-point vertex; `D` and `F` (9.6)-(9.21) correlate z with the NTK, `P` and `Q`
    (11.55)-(11.57) z with the dNTK; `R`, `S`, `T` and `U` (∞.14)-(∞.17) are the means of the
    ddNTKs. A tensor that does not exist is None, and `missing` says why.
    """

    K: _Array
    Theta: _Array
    G1: _Array
    H1: _Array
    V: _Array
    D: _Array
    F: _Array
    B: _Array
    A: _Array
    P: _Array | None = None
    Q: _Array | None = None
    R: _Array | None = None
    S: _Array | None = None
    T: _Array | None = None
    U: _Array | None = None
    missing: tuple[str, ...] = ()


def single_input_tangents(
    network: MLP, mean_square: Float[np.ndarray, "*sample"] | float
) -> TangentFlow:
    """All tensors with coinciding inputs of all layers, from (1/n_0) Σ x² = `mean_square`.

    Cost: about 0.1 ms per layer and sample.

    **Arguments:**

    - `network`: an `MLP` without skips.
    - `mean_square`: one number or one per sample, each an input of its own.

    **Returns:** a `TangentFlow`.

    >>> net = MLP([1] * 4, "relu", C_b=0.0, C_W=2.0, lambda_b=0.7, lambda_W=1.9)
    >>> flow = single_input_tangents(net, 1.0)
    >>> flow.Theta.round(9), flow.A.round(9), flow.Q.round(9)
    (array([2.6, 5.2, 7.8]), array([  0.  ,  34.69, 163.57]), array([ 0.  ,  9.88, 39.52]))
    >>> flow.R is None, flow.missing[0]
    (True, 'R, S, T, U: relu has a kink, and ddNTKs need three derivatives of σ')
    """
    require_plain(network, "this recursion of one input")
    sigma, depth = network.activation, network.depth
    squares = check_variance(mean_square, "mean_square").reshape(-1)
    if sigma.jumps:
        raise InvalidValueError(
            "activation", sigma.name, "σ jumps, so σ' is a delta and the NTK does not exist"
        )
    C_b, C_W = np.array(network.C_b), np.array(network.C_W)
    rates = [np.array(network.lambda_b), np.array(network.lambda_W)]
    flow = single_input(network, C_b[0] + C_W[0] * squares)
    ratio = width_ratios(network.widths)[:, None]
    g = (flow.K[1:] - C_b[1:, None]) / C_W[1:, None]
    averages = _Averages.at(sigma, flow.K[:-1], g)
    with np.errstate(over="ignore", invalid="ignore"):
        fields = _tensors(averages, C_W[1:, None], ratio, rates, squares, flow.V, flow.G1)
    missing, absent = _missing(sigma)
    for name, values in fields.items():
        if name not in absent and not np.all(np.isfinite(values)):
            layer = 1 + int(np.argmin(np.isfinite(values).all(axis=1)))
            raise NonFiniteError(f"{name} of {sigma.name} leaves float64 at layer {layer}")
    fields |= {"K": flow.K, "V": flow.V, "G1": flow.G1}
    shape = (depth, *np.shape(mean_square))
    present = {n: values.reshape(shape) for n, values in fields.items() if n not in absent}
    return TangentFlow(**present, missing=missing)


@dataclass(frozen=True)
class _Averages:
    """Averages at K^(ℓ) for the steps ℓ → ℓ+1, (step, sample) each, without C_W.

    `g` ⟨σ²⟩ and `g1` its K-derivative; `s`, `s1`, `s2` the same of ⟨σ'²⟩. `m` ⟨σ²σ'²⟩, `q` ⟨σ'⁴⟩,
    `p` ⟨σσ'²σ''⟩, `c` ⟨σσ''⟩, `d` ⟨σ'σ'''⟩, `w` ⟨σ''²⟩, `t` ⟨σ'³σ'''⟩, `u` ⟨σ'²σ''²⟩. What
    only tensors need that do not exist for this σ is 0.
    """

    g: np.ndarray
    g1: np.ndarray
    s: np.ndarray
    s1: np.ndarray
    s2: np.ndarray
    m: np.ndarray
    q: np.ndarray
    p: np.ndarray
    c: np.ndarray
    d: np.ndarray
    w: np.ndarray
    t: np.ndarray
    u: np.ndarray

    @classmethod
    def at(cls, sigma: Activation, K: np.ndarray, g: np.ndarray) -> _Averages:
        zero = np.zeros(K.shape)
        pair = slopes(sigma)
        if pair is not None:  # (9.32)-(9.38), and P's averages vanish (11.66)-(11.71)
            A2, A4 = even_slope(pair, 2) + zero, even_slope(pair, 4) + zero
            return cls(g, A2, A2, zero, zero, A4 * K, A4, *(zero,) * 6)
        s = slope_average(sigma, K)
        m, q = (joint_average(sigma, K, orders) for orders in ((0, 0, 1, 1), (1, 1, 1, 1)))
        p, c = zero, zero
        if "P" not in _missing(sigma)[1]:
            p, c = (joint_average(sigma, K, orders) for orders in ((0, 1, 1, 2), (0, 2)))
        if sigma.is_smooth:
            products = ((1, 3), (2, 2), (1, 1, 1, 3), (1, 1, 2, 2))
            d, w, t, u = (joint_average(sigma, K, orders) for orders in products)
            g1, s1 = power_average(sigma, K, 2, 1), slope_average(sigma, K, 1)
            return cls(g, g1, s, s1, slope_bend(sigma, K), m, q, p, c, d, w, t, u)
        # At K = 0 nothing fluctuates: what multiplies the K-derivatives of ⟨σ'²⟩ is 0.
        positive, alive = np.where(K > 0.0, K, 1.0), K > 0.0
        g1 = power_average(sigma, K, 2, 1)
        s1, s2 = slope_average(sigma, positive, 1) * alive, slope_bend(sigma, positive) * alive
        return cls(g, g1, s, s1, s2, m, q, p, c, zero, zero, zero, zero)


def slope_bend(sigma: Activation, K: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """Second K-derivative of ⟨σ'²⟩_K; at K > 0 where σ is kinked, since it may diverge at 0.

    >>> from dynagram.activations import activation
    >>> slope_bend(activation("sin"), np.array([0.0]))
    array([2.])
    """
    return slope_average(sigma, K, 2)


def _tensors(
    a: _Averages,
    C: np.ndarray,
    r: np.ndarray,
    rates: list[np.ndarray],
    squares: np.ndarray,
    V: np.ndarray,
    G1: np.ndarray,
) -> dict[str, np.ndarray]:
    """The recursions; χ⊥ = C s, χ∥ = C g1, 2h = C s1, E_4 = V^(ℓ+1), M = C² mix (9.13)-(9.16)."""
    b, W = rates[0][1:, None], rates[1][1:, None]
    Theta = _linear(C * a.s, b + W * a.g, rates[0][0] + rates[1][0] * squares)
    th, ratio = Theta[:-1], W / C
    mix = a.m - a.g * a.s + r * a.s1 * a.g1 * V[:-1]
    C2, keep = C**2, r * (C * a.s) ** 2  # keep: χ⊥², the gain of B, A, R, S, T and U
    B = _linear(keep, C2 * a.q * th**2)
    F = _linear(r * C2 * a.g1**2, C2 * a.m * th)
    D = _linear(r * C2 * a.s * a.g1, ratio * V[1:] + C2 * th * mix)
    f, d, beta = F[:-1], D[:-1], B[:-1]
    A = _linear(
        keep,
        ratio**2 * V[1:] + 2 * W * C * th * mix
        + 2 * r * C * a.s * (W * a.g1 + C * a.s1 * th) * d
        + C2 * th**2 * (a.q - a.s**2 + r * a.s1**2 * V[:-1]),
    )  # fmt: skip
    bend = a.s1 * G1[:-1] + 0.5 * a.s2 * V[:-1]
    H1 = _linear(r * C * a.s, ratio * G1[1:] + r * C * (th * bend + a.s1 * (d + 2 * f)))
    turn = r * C2 * a.s * (a.c + a.s)
    P = _linear(turn, C2 * (a.p * th**2 + r * a.s * a.c * beta))
    Q = _linear(
        turn, C2 * a.p * th**2 + C * W * (a.m * th + r * a.g1**2 * f)
        + r * C2 * a.s1 * a.g1 * th * f,
    )  # fmt: skip
    pi, k = P[:-1], Q[:-1]
    bent, straight = W * a.c + C * th * a.d, W * a.s + C * th * a.w
    R = _linear(
        keep, C * W * a.p * th**2 + C2 * a.t * th**3
        + r * C * a.s * (bent * (beta + pi) + straight * pi),
    )  # fmt: skip
    S = _linear(keep, C * W * a.q * th**2 + C2 * a.u * th**3 + r * C * a.s * straight * beta)
    T = _linear(
        keep, 2 * C * W * a.p * th**2 + C2 * a.u * th**3 + W**2 * a.m * th
        + r * (W * a.g1 + C * th * a.s1) ** 2 * f + 2 * r * C * a.s * (bent + straight) * k,
    )  # fmt: skip
    U = _linear(keep, C2 * a.u * th**3)
    return {
        "Theta": Theta, "H1": H1, "D": D, "F": F, "B": B, "A": A,
        "P": P, "Q": Q, "R": R, "S": S, "T": T, "U": U,
    }  # fmt: skip


def _linear(gain: np.ndarray, source: np.ndarray, start: np.ndarray | float = 0.0) -> np.ndarray:
    """x^(ℓ+1) = gain·x^(ℓ) + source from x^(1) = start: (layer, sample) from (step, sample)."""
    x = np.empty((gain.shape[0] + 1, gain.shape[1]))
    x[0] = start
    for layer in range(gain.shape[0]):
        x[layer + 1] = gain[layer] * x[layer] + source[layer]
    return x


def _missing(sigma: Activation) -> tuple[tuple[str, ...], str]:
    """Sentences on the tensors that do not exist for this σ, and their letters."""
    if sigma.is_smooth:
        return (), ""
    sentence = f"R, S, T, U: {sigma.name} has a kink, and ddNTKs need three derivatives of σ"
    # A slope kink puts a delta into σσ'²σ'': harmless only where σ = 0.
    bent = [kink for kink in sigma.kinks if any(kink.jumps[:2])]
    if all(np.all(np.abs(sigma.values(both_sides(k.location))) < 1e-280) for k in bent):
        return (sentence,), "RSTU"
    ambiguous = f"P, Q: σ ≠ 0 at a kink of {sigma.name}, where ⟨σσ'²σ''⟩ has no unique value"
    return (ambiguous, sentence), "PQRSTU"
