"""How the other neurons of a residual network respond to one of them, in Hermite components.

In a plain network a neuron feeds the variance of all others and is then forgotten. A skip keeps
γz of it, so that Φ(z) = n E[ΔK̂ | z_i = z], the shift of the common variance given one neuron,
does not vanish. With h_p orthonormal Hermite polynomials of z/√K, σ² = Σ s_p h_p and Φ = Σ φ_p h_p,

    φ'_p = ρ^p (C_W s_p + χ∥ φ_p),   ρ = γ √(K/K'),

and every p ≥ 1 is of the same order in 1/n. The book keeps p = 2 alone (B.24). Derivation:
docs/derivations/residual-vertex.md (D2.3), (D2.4), for several inputs (D2.14).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.activations._core import product_activation
from dynagram.gaussian._hermite import hermite_table

# Components fall like p^(-5/2) for a kinked σ, and products of two of them like p^-5.
COMPONENTS = 256


def square_components(
    sigma: Activation, K: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "p_plus_2 n"]:
    """s_p = ⟨σ² h_p⟩_K for p = 0 … COMPONENTS + 1, exactly 0 where K = 0."""
    table = hermite_table(product_activation(sigma, (0, 0)), K, 0, COMPONENTS + 2)
    table[1:, K == 0.0] = 0.0
    return table


def bend_components(
    s: Float[np.ndarray, "p_plus_2 n"], K: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "p n"]:
    """Components of ½(σ²)'': ½ √((p+1)(p+2)) s_{p+2}/K, without differentiating σ (D2.8)."""
    p = np.arange(s.shape[0] - 2)[:, None]
    safe = np.where(K > 0.0, K, 1.0)
    return 0.5 * np.sqrt((p + 1.0) * (p + 2.0)) * s[2:] / safe * (K > 0.0)


def respond(
    phi: Float[np.ndarray, "p b c"],
    s: Float[np.ndarray, "p b"],
    K: Float[np.ndarray, "b b"],
    next_variance: Float[np.ndarray, " b"],
    *,
    C_W: float,
    chi: Float[np.ndarray, " b"],
    skip: float,
) -> Float[np.ndarray, "p b c"]:
    """φ of the next layer for all pairs of inputs: Φ_bb as a function of z_c, p = 0 … (φ_0 = 0).

    `chi` is χ∥ of the step, γ² included.
    """
    root = np.sqrt(np.diagonal(K))
    norm = np.outer(root, root)
    correlation = np.divide(K, norm, out=np.zeros_like(K), where=norm > 0.0)
    next_root = np.sqrt(next_variance)
    rho = skip * np.divide(root, next_root, out=np.zeros_like(root), where=next_root > 0.0)
    p = np.arange(phi.shape[0])
    powers = correlation[None, :, :] ** p[:, None, None]
    kept = rho[None, :] ** p[:, None]
    new = kept[:, None, :] * (C_W * s[:, :, None] * powers + chi[None, :, None] * phi)
    new[0] = 0.0
    return new
