"""Training kernels made solvable: K_AA + (σ² + jitter)·1 by Cholesky, and what was added to it.

Observation noise σ² goes on the diagonal of the training block, never into C_b (section 6.2 with
the product over samples of (6.10)). Nothing is added silently: a kernel that is singular to its
own accuracy is refused, with the reason, unless noise or an explicit jitter makes it regular.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.data._data import find_distinct
from dynagram.errors import InvalidValueError
from dynagram.training import Posterior

# Kernels are computed to about 12 digits: smaller eigenvalues are rounding.
SINGULAR = 1e-12
SINGULAR_ARGUMENT = "smallest over largest eigenvalue of the training kernel"


@dataclass(frozen=True, eq=False)
class TrainingKernel:
    """The Cholesky factor of K_AA + (noise + jitter)·1, with what was added and the conditioning.

    `jitter` is the absolute amount on the diagonal beyond the noise, 0 unless asked for;
    `conditioning` is the smallest over the largest eigenvalue of what was factorised.
    """

    root: Float[np.ndarray, "a a"]
    noise: float
    jitter: float
    conditioning: float

    def solve(self, right: Float[np.ndarray, "a *columns"]) -> Float[np.ndarray, "a *columns"]:
        """(K_AA + …)⁻¹ applied to columns."""
        from scipy.linalg import cho_solve

        return cho_solve((self.root, True), right)

    def half_solve(self, right: Float[np.ndarray, "a *columns"]) -> Float[np.ndarray, "a *columns"]:
        """R⁻¹ applied to columns, R the Cholesky factor: covariances reduced without cancelling."""
        from scipy.linalg import solve_triangular

        return solve_triangular(self.root, right, lower=True)

    @property
    def inverse(self) -> Float[np.ndarray, "a a"]:
        """K̃^{ab}, the inverse of the training block (6.35)."""
        inverse = self.solve(np.eye(self.root.shape[0]))
        return 0.5 * (inverse + inverse.T)

    @property
    def log_determinant(self) -> float:
        """log det of what was factorised."""
        return 2.0 * float(np.sum(np.log(np.diagonal(self.root))))


def training_kernel(
    K: Float[np.ndarray, "a a"],
    posterior: Posterior,
    *,
    x: Float[np.ndarray, "a n_0"] | None = None,
    y: Float[np.ndarray, "a outputs"] | None = None,
) -> TrainingKernel:
    """Factorise K_AA + (σ² + jitter·mean K_aa)·1, with σ² the noise of `posterior`.

    Its jitter is relative to the mean variance and 0 by default; the amount added is reported.
    `x` and `y` serve the message when the kernel is singular: which inputs repeat, and whether
    their targets contradict each other. Cost: two N³ factorisations.

    >>> K, posterior = np.array([[2.0, 2.0], [2.0, 2.0]]), Posterior(noise=0.5, jitter=1e-3)
    >>> kernel = training_kernel(K, posterior)
    >>> kernel.noise, kernel.jitter, round(kernel.log_determinant, 6)
    (0.5, 0.002, 0.815367)
    """
    noise, jitter = posterior.noise, posterior.jitter
    added = jitter * float(np.mean(np.diagonal(K)))
    matrix = K + (noise + added) * np.eye(K.shape[0])
    if not np.all(np.isfinite(matrix)):
        raise InvalidValueError("kernel", "not finite", "every entry must be a finite number")
    eigenvalues = np.linalg.eigvalsh(matrix)
    if eigenvalues[-1] <= 0 or eigenvalues[0] <= SINGULAR * eigenvalues[-1]:
        raise InvalidValueError(
            SINGULAR_ARGUMENT,
            float(eigenvalues[0] / eigenvalues[-1]) if eigenvalues[-1] > 0 else 0.0,
            f"singular: {_reason(x, y)}; give noise > 0 (observation noise) or a jitter "
            "(a fraction of the mean variance, 1e-8 say)",
        )
    root = np.linalg.cholesky(matrix)
    conditioning = float(eigenvalues[0] / eigenvalues[-1])
    return TrainingKernel(root, noise, added, conditioning)


def _reason(x: np.ndarray | None, y: np.ndarray | None) -> str:
    """Why a training kernel is singular, in words."""
    if x is None:
        return "some combination of the training samples has no variance"
    first, place = find_distinct(x)
    original = first[place]
    repeats = np.flatnonzero(original != np.arange(x.shape[0]))
    if repeats.size == 0:
        return "inputs are nearly collinear, or the network is too deep or too linear to tell apart"
    if y is not None:
        conflicts = [i for i in repeats if not np.array_equal(y[i], y[original[i]])]
        if conflicts:
            i = int(conflicts[0])
            return (
                f"x[{i}] repeats x[{int(original[i])}] with other targets, which no function "
                "without noise can give"
            )
    i = int(repeats[0])
    return f"x[{i}] repeats x[{int(original[i])}]: drop it"
