"""The training frame: eigenvectors of the training NTK, and test outputs minus what training fixes.

Order 1/n of a trained network needs every tensor in two kinds of slots only: training samples,
contracted with functions of the training NTK Θ̃, and test samples in the bracket
⟦X_β⟧ = X_β − Θ_βA Θ̃⁻¹ X_A. One matrix per axis brings all slots into that form: its first rows
are the eigenvectors of √w Θ̃ √w (w: multiplicities), the others the brackets. Derivation:
docs/derivations/trained-outputs.md (D1.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._arrays import SameArray, array_namespace
from dynagram._precision import float64
from dynagram.errors import InvalidValueError

# Eigenvalues below this fraction of the largest are rounding errors of Θ.
SINGULAR = 1e-13


@dataclass(frozen=True, eq=False)
class Frame:
    """`rows` maps the samples (training, then test) to (eigendirections, bracketed tests).

    `h` are the eigenvalues, `basis` maps a function on the training samples to the
    eigendirections: it contains √w.
    """

    h: Float[np.ndarray, " direction"]
    basis: Float[np.ndarray, "direction train"]
    rows: Float[np.ndarray, "row sample"]

    @classmethod
    def of(
        cls, Theta: Float[np.ndarray, "sample sample"], weights: Float[np.ndarray, " train"]
    ) -> Frame:
        """The frame of an NTK on training and test samples, training first.

        >>> frame = Frame.of(np.array([[2.0, 1.0], [1.0, 2.0]]), np.ones(1))
        >>> frame.h, np.abs(frame.rows)
        (array([2.]), array([[1. , 0. ],
               [0.5, 1. ]]))
        """
        n, root = weights.size, np.sqrt(weights)
        h, vectors = np.linalg.eigh(root[:, None] * Theta[:n, :n] * root)
        _require_full_rank(h, vectors)
        basis = vectors.T * root
        rows = np.zeros_like(Theta)
        rows[:n, :n] = basis
        rows[n:, n:] = np.eye(Theta.shape[0] - n)
        # Θ_βA Θ̃⁻¹ = Θ_βA √w E h⁻¹ Eᵀ √w
        rows[n:, :n] = -(Theta[n:, :n] @ basis.T / h) @ basis
        return cls(h, basis, rows)

    @property
    def directions(self) -> int:
        """The number of training directions: the first rows."""
        return self.h.size

    @float64
    def turn(self, tensor: Float[SameArray, "..."]) -> Float[SameArray, "..."]:
        """`tensor` with every axis, each over all samples, brought into the frame."""
        for _ in range(tensor.ndim):
            # The first axis is contracted and comes back last: after all axes the order is the old.
            tensor = array_namespace(tensor).tensordot(tensor, self.rows, axes=(0, 1))
        return tensor

    def split(self, pattern: str) -> tuple[slice, ...]:
        """Slices for slots: "a" for training directions, "t" for bracketed tests, "*" for both."""
        n = self.directions
        slices = {"a": slice(0, n), "t": slice(n, None), "*": slice(None)}
        return tuple(slices[slot] for slot in pattern)


def _require_full_rank(h: np.ndarray, vectors: np.ndarray) -> None:
    if h[0] > SINGULAR * max(h[-1], 0.0):
        return
    involved = np.argsort(-np.abs(vectors[:, 0]))[:2]
    rows = " and ".join(str(int(i)) for i in sorted(involved))
    raise InvalidValueError(
        "train_x",
        f"smallest/largest eigenvalue of the NTK {h[0]:.2g}/{h[-1]:.2g}",
        f"the training NTK is rank deficient, most of all along training inputs {rows}: the "
        "network cannot tell them apart or they are linearly dependent for it; drop one, or let "
        "biases train (lambda_b > 0). At infinite width a minimum-norm answer exists",
    )
