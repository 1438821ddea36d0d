"""The covariance of fully trained outputs at order 1/n, by parts (06 §17.2; not in the book).

Cov[z_i;β(T), z_j;β'(T)] = δ_ij 𝒦^∞_ββ' + (1/n_{L−1}) 𝒞, 𝒞 = δ_ij N + E + X + Xᵀ. Parts: "H1"
(N: shifted means of metric and NTK), "zΔH", "ΔHΔH" (E), "zΔHΔH", "dNTK", "ddI", "ddII".
Different outputs are correlated only through terms quadratic in the targets.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.theory.training.contraction import Cubic, Linear, Slots
from dynagram.theory.training.mean import Targets
from dynagram.theory.training.projectors import Projectors

Covariances = dict[str, Float[np.ndarray, "test outputs test outputs"]]


def covariance_parts(
    slots: Slots,
    z: Projectors,
    y: Targets,
    K: Float[np.ndarray, "slot slot"],
    linear: dict[str, Linear],
    cubic: dict[str, Cubic],
) -> Covariances:
    """Coefficients of 1/n_{L−1}, symmetrised; `K` is the output kernel in the frame, all rows."""
    n = z.response.shape[1]
    inner, kappa = K[:n, :n], K[:n, n:]
    same = np.eye(y.shape[1])
    parts = {
        "H1": _shifted_means(slots, z, kappa, same),
        "zΔH": _twice(_output_and_kernel(slots, z, same)),
        "ΔHΔH": _kernel_twice(slots, z, y, inner, same),
        "zΔHΔH": _twice(_diagonal(linear["ΔNTK"] @ kappa, same)),
        "dNTK": _twice(_moving_kernel(slots, z, y, inner, same))
        + _twice(_diagonal(linear["dNTK"] @ kappa, same)),
    }
    parts |= {
        name: _twice(_second_differential(c, y, inner, kappa, same)) for name, c in cubic.items()
    }
    return parts


def _diagonal(matrix: np.ndarray, same: np.ndarray) -> np.ndarray:
    """δ_ij matrix_ββ' as [β, i, β', j]."""
    return np.einsum("ts,ij->tisj", matrix, same)


def _twice(X: np.ndarray) -> np.ndarray:
    """X_iβ;jβ' + X_jβ';iβ."""
    return X + X.transpose(2, 3, 0, 1)


def _shifted_means(slots: Slots, z: Projectors, kappa: np.ndarray, same: np.ndarray) -> np.ndarray:
    """N: K and Θ of the infinite-width covariance replaced by the means at order 1/n."""
    shift = -(slots("H1", "ta") * z.response) @ kappa
    return _diagonal(slots("G1", "tt") + shift + shift.T, same)


def _output_and_kernel(slots: Slots, z: Projectors, same: np.ndarray) -> np.ndarray:
    """−δ_ij Θ̃^{12} ⟦D_2δ'δ1 + F_2δδ'1 + n_L F_21δ'δ⟧."""
    inverse = z.response[0]
    found = (
        np.einsum("asta,a->ts", slots("D", "atta"), inverse)
        + np.einsum("atsa,a->ts", slots("F", "atta"), inverse)
        + same.shape[0] * np.einsum("aast,a->ts", slots("F", "aatt"), inverse)
    )
    return _diagonal(-found, same)


def _kernel_twice(
    slots: Slots, z: Projectors, y: np.ndarray, K: np.ndarray, same: np.ndarray
) -> np.ndarray:
    """E: the variance of the first-order shift by a network's own NTK."""
    v = y * z.response[0][:, None]
    q = K * z.variance[0]
    A, B, C = slots("A", "tata"), slots("B", "taat"), slots("B", "ttaa")
    diagonal = (
        np.einsum("tasb,ab->ts", A, q)
        + np.einsum("tbas,ab->ts", B, q)
        + np.einsum("tsab,ab->ts", C, same.shape[0] * q + v @ v.T)
    )
    wired = np.einsum("tasb,ai,bj->tisj", A, v, v) + np.einsum("tbas,aj,bi->tisj", B, v, v)
    return _diagonal(diagonal, same) + wired


def _moving_kernel(
    slots: Slots, z: Projectors, y: np.ndarray, K: np.ndarray, same: np.ndarray
) -> np.ndarray:
    """The terms of the dNTK in which it is correlated with the test output itself."""
    full = same.shape[0] * K + y @ y.T
    Z_A, Z_B = z.Z_A[0], z.Z_B[0]
    P_A, Q_A, Q_C = slots("P", "atat"), slots("Q", "atat"), slots("Q", "aatt")
    P_B, Q_B = slots("P", "taat"), slots("Q", "taat")
    diagonal = (
        np.einsum("atbs,ab->ts", P_A + Q_A, Z_A * K)
        + np.einsum("abts,ab->ts", Q_C, Z_A * full)
        + np.einsum("tabs,ab->ts", P_B, Z_B * full)
        + np.einsum("tabs,ab->ts", Q_B + Q_B.transpose(0, 2, 1, 3), Z_B * K)
    )
    wired = (
        np.einsum("atbs,ab,aj,bi->tisj", P_A, Z_A, y, y, optimize=True)
        + np.einsum("atbs,ab,ai,bj->tisj", Q_A, Z_A, y, y, optimize=True)
        + np.einsum("tabs,ab,ai,bj->tisj", Q_B, 2.0 * Z_B, y, y, optimize=True)
    )
    return _diagonal(diagonal, same) + wired


def _second_differential(
    c: Cubic, y: np.ndarray, K: np.ndarray, kappa: np.ndarray, same: np.ndarray
) -> np.ndarray:
    """c^{abc} W^{abc}_{i;jβ'}: one of the three initial outputs is paired with the test output.

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
