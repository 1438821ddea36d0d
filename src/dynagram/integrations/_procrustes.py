"""The weights closest to the old ones among those with the Gram matrix of the new ones.

After a step W₁ → W₂, W₂' = Q W₂ with Q = argmin over orthogonal Q of ‖Q W₂ − W₁‖ = U Vᵀ, from the
SVD of W₁W₂ᵀ (Cha et al., arXiv:2605.06258). Then W₂'ᵀW₂' = W₂ᵀW₂ and ‖W₂' − W₁‖ ≤ ‖W₂ − W₁‖.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float


def rotate_back(
    before: Float[Array, "n_out n_in"], after: Float[Array, "n_out n_in"]
) -> Float[Array, "n_out n_in"]:
    """Q·after, as close to `before` as a rotation of the outputs can bring it; traceable.

    For n_out > n_in by W₁ = Q₁R₁, W₂ = Q₂R₂, R₁R₂ᵀ = u s vᵀ and W₂' = Q₁ u vᵀ R₂: an SVD of the
    smaller size only, and weights that never leave the column space of `before`. Cost: one SVD
    of min(n_out, n_in)² and, for n_out > n_in, two QR decompositions.

    >>> before = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    >>> turned = jnp.array([[0.0, -2.0], [3.0, 0.0]])
    >>> rotate_back(before, turned).round(6).tolist()
    [[3.0, 0.0], [0.0, 2.0]]
    """
    n_out, n_in = before.shape
    if n_out <= n_in:
        u, _, vt = jnp.linalg.svd(before @ after.T, full_matrices=False)
        return u @ (vt @ after)
    Q, R_before = jnp.linalg.qr(before)
    R_after = jnp.linalg.qr(after, mode="r")
    u, _, vt = jnp.linalg.svd(R_before @ R_after.T, full_matrices=False)
    return Q @ (u @ (vt @ R_after))


def gram_error(
    rotated: Float[Array, "n_out n_in"], after: Float[Array, "n_out n_in"]
) -> Float[Array, ""]:
    """‖W₂'ᵀW₂' − W₂ᵀW₂‖/‖W₂ᵀW₂‖; 0 for zero weights.

    >>> float(gram_error(jnp.eye(2), -jnp.eye(2)))
    0.0
    """
    wanted = after.T @ after
    size = jnp.linalg.norm(wanted)
    return jnp.linalg.norm(rotated.T @ rotated - wanted) / jnp.where(size > 0, size, 1.0)
