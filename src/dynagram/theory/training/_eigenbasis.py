"""The training frame: eigenvectors of the training NTK, and test outputs minus what training fixes.

Order 1/n of a trained network needs every tensor in two kinds of slots only: training samples,
contracted with functions of the training NTK Θ̃, and test samples in the bracket
⟦X_β⟧ = X_β − Θ_βA Θ̃⁻¹ X_A. One matrix per axis brings all slots into that form: its first rows
are the eigenvectors of √w Θ̃ √w (w: multiplicities), the others the brackets. Derivation:
docs/derivations/trained-outputs.md (D1.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from dynagram._arrays import SameArray, array_namespace
from dynagram._precision import float64
from dynagram.errors import InvalidValueError

# Eigenvalues below this fraction of the largest are rounding errors of Θ.
SINGULAR = 1e-13


@dataclass(frozen=True, eq=False)
class Eigenbasis:
    """The one diagonalisation of √w Θ̃ √w, and the frame made of it.

    `h` are the eigenvalues, smallest first; `basis` maps a function on the training samples to the
    eigendirections: it contains √w. `Theta` is the NTK on training and test samples, training
    first.
    """

    h: Float[np.ndarray, " direction"]
    basis: Float[np.ndarray, "direction train"]
    Theta: Float[np.ndarray, "sample sample"]
    weights: Float[np.ndarray, " train"]

    @classmethod
    def of(
        cls, Theta: Float[np.ndarray, "sample sample"], weights: Float[np.ndarray, " train"]
    ) -> Eigenbasis:
        """Diagonalise the training block of an NTK: N_A³.

        >>> frame = Eigenbasis.of(np.array([[2.0, 1.0], [1.0, 2.0]]), np.ones(1))
        >>> frame.h, np.abs(frame.rows)
        (array([2.]), array([[1. , 0. ],
               [0.5, 1. ]]))
        """
        n, root = weights.size, np.sqrt(weights)
        h, vectors = np.linalg.eigh(root[:, None] * Theta[:n, :n] * root)
        return cls(h, vectors.T * root, Theta, weights)

    @property
    def directions(self) -> int:
        """The number of training directions: the first rows."""
        return self.h.size

    @property
    def alive(self) -> Bool[np.ndarray, " direction"]:
        """The directions that training moves; the others have an eigenvalue of rounding."""
        return self.h > SINGULAR * self.h[-1]

    @property
    def inverse(self) -> Float[np.ndarray, "train direction"]:
        """From eigendirections back to functions on the training samples."""
        return self.basis.T / self.weights[:, None]

    @cached_property
    def rows(self) -> Float[np.ndarray, "row sample"]:
        """From samples (training, then test) to (eigendirections, bracketed tests)."""
        self.require_full_rank()
        n, rows = self.directions, np.eye(self.Theta.shape[0])
        rows[:n, :n] = self.basis
        # Θ_βA Θ̃⁻¹ = Θ_βA √w E h⁻¹ Eᵀ √w
        rows[n:, :n] = -(self.Theta[n:, :n] @ self.basis.T / self.h) @ self.basis
        return rows

    @cached_property
    def back(self) -> Float[np.ndarray, "sample row"]:
        """The inverse of `rows`: brackets get their Θ_β Θ̃⁻¹ z_A back."""
        self.require_full_rank()
        n, back = self.directions, np.eye(self.Theta.shape[0])
        back[:n, :n] = self.inverse
        back[n:, :n] = self.Theta[n:, :n] @ self.basis.T / self.h
        return back

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

    def require_full_rank(self) -> None:
        """Refuse training inputs that the network cannot tell apart, by name."""
        if self.alive[0]:
            return
        # basis = Eᵀ√w: the samples of which the smallest eigenvector consists.
        involved = np.argsort(-np.abs(self.basis[0] / np.sqrt(self.weights)))[:2]
        samples = " and ".join(str(int(i)) for i in sorted(involved))
        raise InvalidValueError(
            "x",
            f"smallest/largest eigenvalue of the NTK {self.h[0]:.2g}/{self.h[-1]:.2g}",
            f"the training NTK is rank deficient, most of all along training inputs {samples}: the "
            "network cannot tell them apart or they are linearly dependent for it; drop one, or "
            'let biases train (lambda_b > 0). With order="infinite" a minimum-norm answer exists',
        )
