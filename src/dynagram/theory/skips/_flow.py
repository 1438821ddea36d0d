"""One input through the blocks of a residual network: K, χ∥, χ⊥, V, G^{1} of every layer.

V as printed (B.26): V' = C_W²(⟨σ⁴⟩ − ⟨σ²⟩²) + χ∥²V + 4γ²(χ∥ − γ²)K². It keeps the component p = 2
of `response` only, which is exact for linear σ and wrong by tens of per cent for ReLU-like ones.
Corrected, with W = n Var K̂ the fluctuation of the common variance of a layer:

    W' = χ∥²W + C_W²(⟨σ⁴⟩ − ⟨σ²⟩²) + 2C_W χ∥ Σ_p s_p φ_p,      V = W + 2√2 K φ_2,
    G^{1}' = χ∥G^{1} + C_W[½g''V + Σ_{p≠2} b_p φ_p],  b_p the components of ½(σ²)''.

Derivation: docs/derivations/residual-vertex.md (D2.5)-(D2.9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.activations import activation as resolve
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._one_input import power_average, slope_average
from dynagram.networks import ActivationLike, PerLayer, checked_number, checked_real, per_layer
from dynagram.networks._checks import as_list
from dynagram.theory.skips._response import (
    COMPONENTS,
    bend_components,
    respond,
    square_components,
)

Vertex = Literal["corrected", "published"]
VERTICES: tuple[Vertex, ...] = ("corrected", "published")


@dataclass(frozen=True, eq=False)
class ResidualFlow:
    """One input's statistics in layers ℓ = 1..L (index 0 ↔ ℓ = 1); 1/n tensors multiply 1/n.

    `vertex` tells which recursion made V. `chi_parallel` and `chi_perpendicular` are those of the
    steps ℓ → ℓ+1, γ² included. With the corrected vertex there are also G^{1} (the book has none),
    the fluctuation W of the common variance, and φ_p, p = 0 …, in `response`; T = n E[z_i²z_k],
    i ≠ k, is the odd cumulant that plain networks do not have.
    """

    vertex: Vertex
    skip: tuple[float, ...]
    K: Float[np.ndarray, " layer"]
    V: Float[np.ndarray, " layer"]
    chi_parallel: Float[np.ndarray, " step"]
    chi_perpendicular: Float[np.ndarray, " step"]
    G1: Float[np.ndarray, " layer"] | None = None
    W: Float[np.ndarray, " layer"] | None = None
    response: Float[np.ndarray, "layer p"] | None = None

    @property
    def T(self) -> Float[np.ndarray, " layer"]:
        """n E[z_i z_i z_k] for i ≠ k: √K φ_1."""
        if self.response is None:
            raise InvalidValueError("vertex", self.vertex, "the book takes odd cumulants to be 0")
        return np.sqrt(self.K) * self.response[:, 1]


def residual_flow(
    activation: ActivationLike,
    K1: float,
    depth: int,
    *,
    C_b: PerLayer,
    C_W: PerLayer,
    skip: PerLayer,
    vertex: str = "corrected",
) -> ResidualFlow:
    """K, V, G^{1} and susceptibilities of layers 1..`depth` of equal width, from K^(1) = `K1`.

    C_b and C_W take one number or one per layer, entry ℓ making layer ℓ (the first is already in
    `K1`); `skip` one number for all steps, or one per step ℓ → ℓ+1. Cost: about a millisecond per
    layer; the response is kept to 256 components.

    >>> flow = residual_flow("relu", 1.0, 4, C_b=0.0, C_W=1.5, skip=0.5)
    >>> flow.V.round(4), flow.G1.round(4), flow.T.round(4)
    (array([ 0.    ,  3.5625,  8.6179, 14.3969]),
     array([0.    , 0.    , 0.3426, 0.8623]),
     array([0.    , 0.5984, 0.8976, 1.0472]))
    >>> residual_flow("relu", 1.0, 4, C_b=0.0, C_W=1.5, skip=0.5, vertex="published").V
    array([ 0.    ,  3.5625,  7.125 , 10.6875])
    """
    sigma, first = resolve(activation), checked_number("K1", K1, "a variance must be ≥ 0")
    if depth < 1:
        raise InvalidValueError("depth", depth, "expected an integer ≥ 1")
    kept = checked_vertex(vertex)
    gammas = _per_step(skip, depth - 1)
    variances = [
        np.array(per_layer(name, value, depth, "a variance must be ≥ 0"))
        for name, value in (("C_b", C_b), ("C_W", C_W))
    ]
    b, w = (values[1:] for values in variances)
    K = _kernel(sigma, first, b, w, gammas)
    g1 = power_average(sigma, K[:-1], 2, 1)
    chi = gammas**2 + w * g1
    perpendicular = np.asarray(gammas**2 + w * slope_average(sigma, K[:-1]))
    spread = power_average(sigma, K[:-1], 4) - power_average(sigma, K[:-1], 2) ** 2
    common = {"vertex": kept, "skip": tuple(gammas.tolist()), "K": K}
    common |= {"chi_parallel": chi, "chi_perpendicular": perpendicular}
    if kept == "published":
        V = np.zeros(depth)
        for i in range(depth - 1):
            mixed = 4.0 * gammas[i] ** 2 * w[i] * g1[i] * K[i] ** 2
            V[i + 1] = w[i] ** 2 * spread[i] + chi[i] ** 2 * V[i] + mixed
        return _checked(ResidualFlow(**common, V=V))
    s = square_components(sigma, K[:-1])
    bend, s = bend_components(s, K[:-1]), s[:COMPONENTS]
    safe = np.where(K[:-1] > 0.0, K[:-1], 1.0)
    g2 = power_average(sigma, safe, 2, 2) * (K[:-1] > 0.0)
    phi, W, G1, V = np.zeros((depth, COMPONENTS)), np.zeros(depth), np.zeros(depth), np.zeros(depth)
    others = np.arange(COMPONENTS) != 2
    for i in range(depth - 1):
        overlap = s[1:, i] @ phi[i, 1:]
        W[i + 1] = chi[i] ** 2 * W[i] + w[i] ** 2 * spread[i] + 2.0 * w[i] * chi[i] * overlap
        shift = 0.5 * g2[i] * V[i] + bend[others, i] @ phi[i, others]
        G1[i + 1] = chi[i] * G1[i] + w[i] * shift
        phi[i + 1] = respond(
            phi[i, :, None, None], s[:, i : i + 1], K[i : i + 1, None], K[i + 1 : i + 2],
            C_W=w[i], chi=chi[i : i + 1], skip=gammas[i],
        )[:, 0, 0]  # fmt: skip
        V[i + 1] = W[i + 1] + 2.0 * np.sqrt(2.0) * K[i + 1] * phi[i + 1, 2]
    return _checked(ResidualFlow(**common, V=V, G1=G1, W=W, response=phi))


def checked_vertex(vertex: str) -> Vertex:
    """`vertex`, which must be "corrected" or "published"."""
    for known in VERTICES:
        if vertex == known:
            return known
    raise InvalidValueError("vertex", vertex, f"expected {' or '.join(VERTICES)}")


def _per_step(skip: object, steps: int) -> np.ndarray:
    values = as_list(skip)
    if values is None:
        return np.full(steps, checked_real("skip", skip))
    if len(values) != steps:
        expected = f"one number, or one per step: {steps} expected, {len(values)} given"
        raise InvalidValueError("skip", values, expected)
    return np.array([checked_real("skip", value) for value in values])


def _kernel(
    sigma: Activation, first: float, b: np.ndarray, w: np.ndarray, gammas: np.ndarray
) -> np.ndarray:
    """K' = C_b + C_W g(K) + γ²K (B.12)."""
    K = np.empty(gammas.size + 1)
    K[0] = first
    for i in range(gammas.size):
        K[i + 1] = (
            b[i] + w[i] * float(power_average(sigma, np.array(K[i]), 2)) + gammas[i] ** 2 * K[i]
        )
        if not K[i + 1] < 1e200:
            raise NonFiniteError(
                f"the kernel K of {sigma.name} overflows at layer {i + 2}: use fewer blocks, or "
                "C_b and C_W with χ∥ = 1, such as those of residual_critical"
            )
    return K


def _checked(flow: ResidualFlow) -> ResidualFlow:
    for name in ("V", "G1"):
        values = getattr(flow, name)
        if values is not None and not np.all(np.isfinite(values)):
            layer = 1 + int(np.argmin(np.isfinite(values)))
            raise NonFiniteError(f"{name} leaves float64 at layer {layer}: initialise critically")
    return flow
