"""The covariance of trained outputs at order 1/n, by parts (not in the book).

Cov[z_i;r, z_j;s] = δ_ij D_r D_s K_rs + (1/n_{L−1}) 𝒞, 𝒞 = δ_ij N + E + X + Xᵀ, for rows r, s of the
frame. A row keeps the fraction D of its initial output: 1 in the brackets of test outputs, nothing
in training directions at the end, which are then no rows at all. Parts: "H1" (N: shifted means of
metric and NTK), "zΔH", "ΔHΔH" (E), "zΔHΔH", "dNTK", "ddI", "ddII". Different outputs are correlated
only through terms quadratic in the targets. Derivation: docs/derivations/trained-outputs.md
(D1.14), (D1.15).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.theory.training._contraction import Cubic, Linear, Slots
from dynagram.theory.training._mean import Targets
from dynagram.theory.training._projectors import Projectors

Covariances = dict[str, Float[np.ndarray, "row outputs row outputs"]]


def covariance_parts(
    slots: Slots,
    z: Projectors,
    y: Targets,
    K: Float[np.ndarray, "slot slot"],
    linear: dict[str, Linear],
    cubic: dict[str, Cubic],
) -> Covariances:
    """Coefficients of 1/n_{L−1}, symmetrised; `K` is the output kernel in the whole frame."""
    rows, n = linear["ΔNTK"].shape
    kept = np.broadcast_to(z.kept, (rows,))
    # κ: initial training outputs with what the predicted rows, the last of the frame, keep.
    inner, kappa = K[:n, :n], K[:n, K.shape[1] - rows :] * kept
    same = np.eye(y.shape[1])
    parts = {
        "H1": _shifted_means(slots, z, kept, kappa, same),
        "zΔH": _twice(_output_and_kernel(slots, z, kept, same)),
        "ΔHΔH": _kernel_twice(slots, z, y, inner, same),
        "zΔHΔH": _twice(_diagonal(linear["ΔNTK"] @ kappa, same)),
        "dNTK": _twice(_moving_kernel(slots, z, y, inner, same) * kept[:, None])
        + _twice(_diagonal(linear["dNTK"] @ kappa, same)),
    }
    parts |= {
        name: _twice(_second_differential(c, y, inner, kappa, same)) for name, c in cubic.items()
    }
    return parts


def _diagonal(matrix: np.ndarray, same: np.ndarray) -> np.ndarray:
    """δ_ij matrix_rs as [r, i, s, j]."""
    return np.einsum("ts,ij->tisj", matrix, same)


def _twice(X: np.ndarray) -> np.ndarray:
    """X_ir;js + X_js;ir."""
    return X + X.transpose(2, 3, 0, 1)


def _shifted_means(
    slots: Slots, z: Projectors, kept: np.ndarray, kappa: np.ndarray, same: np.ndarray
) -> np.ndarray:
    """N: K and Θ of the infinite-width covariance replaced by the means at order 1/n."""
    shift = -(slots("H1", "ta") * z.response) @ kappa
    return _diagonal(kept[:, None] * slots("G1", "tt") * kept + shift + shift.T, same)


def _output_and_kernel(
    slots: Slots, z: Projectors, kept: np.ndarray, same: np.ndarray
) -> np.ndarray:
    """−δ_ij f_r(a) (D_asra + F_arsa + n_L F_aasr) D_s, f = `response`."""
    found = (
        np.einsum("asta,ta->ts", slots("D", "atta"), z.response)
        + np.einsum("atsa,ta->ts", slots("F", "atta"), z.response)
        + same.shape[0] * np.einsum("aast,ta->ts", slots("F", "aatt"), z.response)
    )
    return _diagonal(-found * kept, same)


def _kernel_twice(
    slots: Slots, z: Projectors, y: np.ndarray, K: np.ndarray, same: np.ndarray
) -> np.ndarray:
    """E: the variance of the first-order shift by a network's own NTK."""
    f = z.response
    v = f[:, :, None] * y
    A, B, C = slots("A", "tata"), slots("B", "taat"), slots("B", "ttaa")
    diagonal = (
        np.einsum("tasb,ab,ta,sb->ts", A, K, f, f)
        + np.einsum("tbas,ab,ta,sb->ts", B, K, f, f)
        + np.einsum("tsab,ab,ta,sb->ts", C, same.shape[0] * K + y @ y.T, f, f)
    )
    wired = np.einsum("tasb,tai,sbj->tisj", A, v, v)
    # Here the direction a of the row t meets the output j of the other row.
    wired += np.einsum("tbas,taj,sbi->tisj", B, v, v)
    return _diagonal(diagonal, same) + wired


def _moving_kernel(
    slots: Slots, z: Projectors, y: np.ndarray, K: np.ndarray, same: np.ndarray
) -> np.ndarray:
    """The terms of the dNTK in which it is correlated with the initial output of the row s."""
    full = same.shape[0] * K + y @ y.T
    P_A, Q_A, Q_C = slots("P", "atat"), slots("Q", "atat"), slots("Q", "aatt")
    P_B, Q_B = slots("P", "taat"), slots("Q", "taat")
    Z_A, Z_B = (np.broadcast_to(Z, (P_B.shape[0], *K.shape)) for Z in (z.Z_A, z.Z_B))
    diagonal = (
        np.einsum("atbs,tab->ts", P_A + Q_A, Z_A * K)
        + np.einsum("abts,tab->ts", Q_C, Z_A * full)
        + np.einsum("tabs,tab->ts", P_B, Z_B * full)
        + np.einsum("tabs,tab->ts", Q_B + Q_B.transpose(0, 2, 1, 3), Z_B * K)
    )
    wired = (
        np.einsum("atbs,tab,aj,bi->tisj", P_A, Z_A, y, y, optimize=True)
        + np.einsum("atbs,tab,ai,bj->tisj", Q_A, Z_A, y, y, optimize=True)
        + np.einsum("tabs,tab,ai,bj->tisj", Q_B, 2.0 * Z_B, y, y, optimize=True)
    )
    return _diagonal(diagonal, same) + wired


def _second_differential(
    c: Cubic, y: np.ndarray, K: np.ndarray, kappa: np.ndarray, same: np.ndarray
) -> np.ndarray:
    """c^{abc} W^{abc}_{i;js}: one of the three initial outputs is paired with that of the row s.

    W = δ_ij κ_a (n_L K_bc + Y_bc) + κ_b (δ_ij K_ac + y_i;a y_j;c) + κ_c (δ_ij K_ab + y_i;a y_j;b).
    """
    full = same.shape[0] * K + y @ y.T
    diagonal = (
        np.einsum("tabc,bc->ta", c, full)
        + np.einsum("tabc,ac->tb", c, K)
        + np.einsum("tabc,ab->tc", c, K)
    ) @ kappa
    wired = np.einsum("tabc,bs,ai,cj->tisj", c, kappa, y, y, optimize=True) + np.einsum(
        "tabc,cs,ai,bj->tisj", c, kappa, y, y, optimize=True
    )
    return _diagonal(diagonal, same) + wired
