"""The part of a step that changes a layer's Gram matrix; the rest only rotates its outputs.

Steps Δ with WᵀΔ + ΔᵀW = 0 leave the Gram as it is, to first order; those orthogonal to all of them
are W S with symmetric S. With the thin SVD W = U s Vᵀ and D = UᵀΔV the second part of any step is

    U [s_i (s_i D_ij + s_j D_ji)/(s_i² + s_j²)] Vᵀ + U Uᵀ Δ (1 − V Vᵀ).

Scaling it makes a network learn features faster or slower than its optimiser would.
"""

from __future__ import annotations

from typing import Any


def feature_part(xp: Any, W: Any, step: Any) -> Any:
    """The part of `step` that moves WᵀW, for arrays of `xp` (jax.numpy or torch), (n_out, n_in).

    >>> import numpy as np
    >>> W, turn = np.eye(2), np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> feature_part(np, W, turn).tolist()                      # a rotation
    [[0.0, 0.0], [0.0, 0.0]]
    >>> feature_part(np, W, np.ones((2, 2))).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    U, s, Vt = xp.linalg.svd(W, full_matrices=False)
    seen = U.T @ step
    D = seen @ Vt.T
    squares = s[:, None] ** 2 + s[None, :] ** 2
    # Where both singular values vanish W S vanishes, too.
    safe = xp.where(squares > 0, squares, xp.ones_like(squares))
    within = s[:, None] * (s[:, None] * D + s[None, :] * D.T) / safe
    alive = xp.where(s > 1e-7 * s.max(), xp.ones_like(s), xp.zeros_like(s))
    return U @ (within @ Vt + alive[:, None] * (seen - D @ Vt))
