"""The fully trained mean at order 1/n (∞.160)-(∞.165), by parts.

m = Θ_β Θ̃⁻¹ y + (1/n_{L−1}) Σ parts, with the parts "H1" (the mean NTK's own shift), "ΔNTK" (its
variance), "dNTK", "ddI" and "ddII", each with its bracket taken. Signs and index orders are those
of the corrected formulas (docs/errata.md): docs/derivations/trained-outputs.md (D1.10).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.theory.training._contraction import Cubic, Linear, Slots
from dynagram.theory.training._projectors import Projectors

Targets = Float[np.ndarray, "direction outputs"]
Means = dict[str, Float[np.ndarray, "row outputs"]]


def mean_parts(
    slots: Slots,
    z: Projectors,
    y: Targets,
    K: Float[np.ndarray, "direction direction"],
    linear: dict[str, Linear],
    cubic: dict[str, Cubic],
) -> Means:
    """Coefficients of 1/n_{L−1} in the trained mean; `y` and the output kernel K in the frame."""
    parts = {"H1": (slots("H1", "ta") * z.response) @ y}
    parts |= {name: -c @ y for name, c in linear.items()}
    targets = target_cubes(y, K)
    parts |= {name: -np.einsum("tabc,abci->ti", c, targets) for name, c in cubic.items()}
    return parts


def target_cubes(
    y: Targets, K: Float[np.ndarray, "direction direction"]
) -> Float[np.ndarray, "a b c outputs"]:
    """W_i^{abc} = y_i;a (Σ_j y_j;b y_j;c + n_L K_bc) + y_i;b K_ca + y_i;c K_ab (below (∞.163))."""
    outputs = y.shape[1]
    return (
        np.einsum("ai,bc->abci", y, y @ y.T + outputs * K)
        + np.einsum("bi,ca->abci", y, K)
        + np.einsum("ci,ab->abci", y, K)
    )
