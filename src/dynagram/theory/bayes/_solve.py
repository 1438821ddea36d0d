"""Training kernels made solvable: K_AA + (σ² + jitter)·1 by Cholesky, and what was added to it.

Observation noise σ² goes on the diagonal of the training block, never into C_b (section 6.2 with
the product over samples of (6.10)). Nothing is added silently: a kernel that is singular to its
own accuracy is refused, with the reason, unless noise or an explicit jitter makes it regular.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, check_inputs, checked_number

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
    *,
    noise: float = 0.0,
    jitter: float = 0.0,
    x: Float[np.ndarray, "a n_0"] | None = None,
    y: Float[np.ndarray, "a outputs"] | None = None,
) -> TrainingKernel:
    """Factorise K_AA + (σ² + jitter·mean K_aa)·1, with σ² = `noise`.

    `jitter` is relative to the mean variance and 0 by default; the amount added is reported.
    `x` and `y` serve the message when the kernel is singular: which inputs repeat, and whether
    their targets contradict each other. Cost: two N³ factorisations.

    >>> found = training_kernel(np.array([[2.0, 2.0], [2.0, 2.0]]), noise=0.5, jitter=1e-3)
    >>> found.noise, found.jitter, round(found.log_determinant, 6)
    (0.5, 0.002, 0.815367)
    """
    noise = checked_number("noise", noise, "a variance must be ≥ 0")
    jitter = checked_number("jitter", jitter, "must be ≥ 0, a fraction of the mean variance")
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


def check_targets(y: object, samples: int, outputs: int) -> Float[np.ndarray, "a outputs"]:
    """`y` as float64 (samples, outputs), finite; one column may come as a vector.

    >>> check_targets([1, 2], 2, 1).tolist()
    [[1.0], [2.0]]
    """
    try:
        targets = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidTypeError("y", str(y)[:60], "expected an array of reals") from error
    if targets.ndim == 1 and outputs == 1:
        targets = targets[:, None]
    if targets.shape != (samples, outputs):
        allowed = (
            f"expected ({samples}, {outputs}): one row per training sample, one column per n_L"
        )
        raise InvalidValueError("shape of y", targets.shape, allowed)
    if not np.all(np.isfinite(targets)):
        row, column = (int(i) for i in np.argwhere(~np.isfinite(targets))[0])
        raise InvalidValueError(f"y[{row}, {column}]", float(targets[row, column]), "not finite")
    return targets


def check_data(
    network: MLP, x: object, y: object
) -> tuple[Float[np.ndarray, "a n_0"], Float[np.ndarray, "a n_L"]]:
    """Training inputs (N_A, n_0) and targets (N_A, n_L) of a network, checked.

    >>> net = MLP([2, 5, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> [part.shape for part in check_data(net, [[1, 0], [0, 1]], [1, -1])]
    [(2, 2), (2, 1)]
    """
    inputs = check_inputs(x, network.widths[0])
    return inputs, check_targets(y, inputs.shape[0], network.widths[-1])


def _reason(x: np.ndarray | None, y: np.ndarray | None) -> str:
    """Why a training kernel is singular, in words."""
    if x is None:
        return "some combination of the training samples has no variance"
    _, first, inverse = np.unique(x, axis=0, return_index=True, return_inverse=True)
    original = first[inverse.reshape(-1)]
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
