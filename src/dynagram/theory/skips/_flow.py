"""One input through the layers of a network with skips: K, χ∥, χ⊥, V, G^{1} of every layer.

V as printed (B.26): V' = C_W²(⟨σ⁴⟩ − ⟨σ²⟩²) + r χ∥²V + 4γ²(χ∥ − γ²)K². It keeps the component p = 2
of `response` only, which is exact for linear σ and wrong by tens of per cent for ReLU-like ones.
Corrected, with W = n Var K̂ the fluctuation of the common variance of a layer:

    W' = r χ∥²W + C_W²(⟨σ⁴⟩ − ⟨σ²⟩²) + 2C_W χ∥ Σ_p s_p φ_p,      V = W + 2√2 K φ_2,
    G^{1}' = r χ∥G^{1} + C_W[½ r g''V + Σ_{p≠2} b_p φ_p],  b_p the components of ½(σ²)''.

r = n_ℓ/n_{ℓ−1} is not 1 only where the width changes, and no skip crosses there.
Derivation: docs/derivations/residual-vertex.md (D2.5)-(D2.9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._one_input import power_average, slope_average
from dynagram.networks import MLP, checked_number
from dynagram.theory.criticality._one_input import width_ratios
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
    """One input's statistics in layers ℓ = 1..L (index 0 ↔ ℓ = 1); 1/n tensors multiply 1/n_{ℓ−1}.

    `K` and `V` are kernel and four-point vertex of `network`; `vertex` tells which recursion made
    V. `chi_parallel` and `chi_perpendicular` are those of the steps ℓ → ℓ+1, γ² included; χ⊥ does
    not exist (None) where σ jumps. With the corrected vertex there are also `G1`, G^{1} (the book
    has none), the fluctuation W of the common variance, and φ_p, p = 0 …, in `response`.
    """

    network: MLP
    vertex: Vertex
    K: Float[np.ndarray, " layer"]
    V: Float[np.ndarray, " layer"]
    chi_parallel: Float[np.ndarray, " step"]
    chi_perpendicular: Float[np.ndarray, " step"] | None
    G1: Float[np.ndarray, " layer"] | None = None
    W: Float[np.ndarray, " layer"] | None = None
    response: Float[np.ndarray, "layer p"] | None = None

    @property
    def odd(self) -> Float[np.ndarray, " layer"]:
        """The odd cumulant n E[z_i z_i z_k], i ≠ k, which plain networks do not have: √K φ_1."""
        if self.response is None:
            raise InvalidValueError("vertex", self.vertex, "the book takes odd cumulants to be 0")
        return np.sqrt(self.K) * self.response[:, 1]


def residual_flow(network: MLP, K1: float, *, vertex: str = "corrected") -> ResidualFlow:
    """K, V, G^{1} and susceptibilities of all layers from K^(1) = `K1`, one input.

    Cost: about a millisecond per layer; the response is kept to 256 components.

    **Arguments:**

    - `network`: an `MLP`, with skips or without.
    - `K1`: the kernel of the first layer, C_b + C_W Σx²/n_0.
    - `vertex`: "corrected", or "published" for (B.26) as printed.

    **Returns:** a `ResidualFlow`.

    >>> net = MLP([1, 9, 9, 9, 9, 1], "relu", C_b=0.0, C_W=1.5, skip=0.5)
    >>> flow = residual_flow(net, 1.0)
    >>> flow.V[:4].round(4), flow.G1[:4].round(4), flow.odd[:4].round(4)
    (array([ 0.    ,  3.5625,  8.6179, 14.3969]),
     array([0.    , 0.    , 0.3426, 0.8623]),
     array([0.    , 0.5984, 0.8976, 1.0472]))
    >>> residual_flow(net, 1.0, vertex="published").V[:4]
    array([ 0.    ,  3.5625,  7.125 , 10.6875])
    """
    chosen = checked_vertex(vertex)
    steps = _Steps.of(network, checked_number("K1", K1, "a variance must be ≥ 0"))
    sigma, K = network.activation, steps.K
    perpendicular = None
    if not sigma.jumps:
        perpendicular = steps.skip**2 + steps.C_W * slope_average(sigma, K[:-1])
    made = _published(steps) if chosen == "published" else _corrected(sigma, steps)
    for name in ("V", "G1"):
        if name in made and not np.all(np.isfinite(made[name])):
            layer = 1 + int(np.argmin(np.isfinite(made[name])))
            raise NonFiniteError(f"{name} leaves float64 at layer {layer}: initialise critically")
    return ResidualFlow(network, chosen, K, made.pop("V"), steps.chi, perpendicular, **made)


@dataclass(frozen=True, eq=False)
class _Steps:
    """K of all layers, and of the steps ℓ → ℓ+1: C_W, γ, r, C_W g' = χ∥ − γ², ⟨σ⁴⟩ − ⟨σ²⟩²."""

    K: np.ndarray
    C_W: np.ndarray
    skip: np.ndarray
    ratio: np.ndarray
    block_chi: np.ndarray
    spread: np.ndarray

    @property
    def chi(self) -> np.ndarray:
        """χ∥."""
        return self.skip**2 + self.block_chi

    @classmethod
    def of(cls, network: MLP, first: float) -> _Steps:
        sigma, C_W = network.activation, np.array(network.C_W[1:])
        skip = np.array(network.skip_of_layers[1:])
        K = _kernel(sigma, first, np.array(network.C_b[1:]), C_W, skip)
        block_chi = C_W * power_average(sigma, K[:-1], 2, 1)
        spread = power_average(sigma, K[:-1], 4) - power_average(sigma, K[:-1], 2) ** 2
        return cls(K, C_W, skip, width_ratios(network.widths), block_chi, spread)


def _published(steps: _Steps) -> dict[str, np.ndarray]:
    """V of (B.26)."""
    V = np.zeros(steps.K.size)
    source = steps.C_W**2 * steps.spread
    mixed = 4.0 * steps.skip**2 * steps.block_chi * steps.K[:-1] ** 2
    for i, gain in enumerate(steps.ratio * steps.chi**2):
        V[i + 1] = source[i] + gain * V[i] + mixed[i]
    return {"V": V}


def _corrected(sigma: Activation, steps: _Steps) -> dict[str, np.ndarray]:
    """V, G^{1}, W and the response φ."""
    K, w, chi, depth = steps.K, steps.C_W, steps.chi, steps.K.size
    s = square_components(sigma, K[:-1])
    bend, s = bend_components(s, K[:-1]), s[:COMPONENTS]
    safe = np.where(K[:-1] > 0.0, K[:-1], 1.0)
    g2 = power_average(sigma, safe, 2, 2) * (K[:-1] > 0.0)
    phi, W, G1, V = np.zeros((depth, COMPONENTS)), np.zeros(depth), np.zeros(depth), np.zeros(depth)
    others = np.arange(COMPONENTS) != 2
    for i, r in enumerate(steps.ratio):
        overlap = s[1:, i] @ phi[i, 1:]
        source = w[i] ** 2 * steps.spread[i] + 2.0 * w[i] * chi[i] * overlap
        W[i + 1] = r * chi[i] ** 2 * W[i] + source
        shift = 0.5 * r * g2[i] * V[i] + bend[others, i] @ phi[i, others]
        G1[i + 1] = r * chi[i] * G1[i] + w[i] * shift
        phi[i + 1] = respond(
            phi[i, :, None, None], s[:, i : i + 1], K[i : i + 1, None], K[i + 1 : i + 2],
            C_W=w[i], chi=chi[i : i + 1], skip=steps.skip[i],
        )[:, 0, 0]  # fmt: skip
        V[i + 1] = W[i + 1] + 2.0 * np.sqrt(2.0) * K[i + 1] * phi[i + 1, 2]
    return {"V": V, "G1": G1, "W": W, "response": phi}


def checked_vertex(vertex: str) -> Vertex:
    """`vertex`, which must be "corrected" or "published"."""
    for known in VERTICES:
        if vertex == known:
            return known
    raise InvalidValueError("vertex", vertex, f"expected {' or '.join(VERTICES)}")


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
