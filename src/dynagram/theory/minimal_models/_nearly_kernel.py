"""Nearly-kernel methods: quadratic models trained and used through kernels alone (11.126)-(11.142).

A quadratic model z = Wφ + (ε/2) WWψ needs its features only through the kernel k_12 = φ_1·φ_2 and
the meta kernel μ_012 = ε φ_1ψ_0φ_2, symmetric in its last two indices. To first order in ε every
way of training gives z_b = k_b c + A_b·Z_A + B_b·Z_B with c = k̃⁻¹y, the brackets
A_b[12] = μ_1b2 − k_b k̃⁻¹ μ_1·2 and B_b[12] = μ_b12 − k_b k̃⁻¹ μ_·12, and Z_B = ½ c c. They differ in
Z_A alone (all agree when there are as many features as samples).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import checked_number

SOLUTIONS = ("gd", "flow", "span", "ridge", "trained-kernel")
# Eigenvalues below this fraction of the largest are rounding.
_SINGULAR = 1e-12
# How much of the targets may lie outside the range of a singular kernel and count as rounding.
_OUTSIDE = 1e-8


@dataclass(frozen=True, eq=False)
class NearlyKernelFit:
    """A trained nearly-kernel method to first order in ε; columns of y are trained separately.

    `dual` is c = (k̃ + regularisation)⁻¹ y; `Z_A` and `Z_B` are quadratic in the targets. `rank`
    counts the eigenvalues of k̃ that were kept: if it is below the number of samples,
    `minimum_norm` is true and the answer is that of minimum norm among all that fit.
    """

    solution: str
    eta: float | None
    regularisation: float
    eigenvalues: Float[np.ndarray, " rank"]
    eigenvectors: Float[np.ndarray, "a rank"]
    dual: Float[np.ndarray, "a column"]
    Z_A: Float[np.ndarray, "a a column"]
    Z_B: Float[np.ndarray, "a a column"]

    @property
    def rank(self) -> int:
        """Eigenvalues kept."""
        return self.eigenvalues.size

    @property
    def minimum_norm(self) -> bool:
        """Whether the training kernel was singular."""
        return self.rank < self.dual.shape[0]

    def solve(self, right: Float[np.ndarray, "a column"]) -> Float[np.ndarray, "a column"]:
        """(k̃ + regularisation)⁻¹ on the range of k̃."""
        along = self.eigenvectors.T @ right
        return self.eigenvectors @ (along / self.eigenvalues[:, None])

    def bend(
        self, meta_BAA: Float[np.ndarray, "b a a"], meta_ABA: Float[np.ndarray, "a b a"]
    ) -> Float[np.ndarray, "b column"]:
        """Σ μ_b12 Z_B^12 + Σ μ_1b2 Z_A^12: what the meta features add at the samples b."""
        drift = np.einsum("abc,acj->bj", meta_ABA, self.Z_A, optimize=True)
        return self.quadratic_term(meta_BAA) + drift

    def quadratic_term(self, meta_BAA: Float[np.ndarray, "b a a"]) -> Float[np.ndarray, "b column"]:
        """Σ μ_b12 Z_B^12 = (ε/2) WWψ(x_b) of the trained model: the size of the nonlinearity."""
        return np.einsum("bac,acj->bj", meta_BAA, self.Z_B, optimize=True)

    def predict(
        self,
        kernel_BA: Float[np.ndarray, "b a"],
        bend_A: Float[np.ndarray, "a column"],
        bend_B: Float[np.ndarray, "b column"],
    ) -> Float[np.ndarray, "b column"]:
        """z_b = k_b (c − k̃⁻¹ bend_A) + bend_b, with `bend` at the training and the new samples."""
        return kernel_BA @ (self.dual - self.solve(bend_A)) + bend_B


def fit_nearly_kernel(
    kernel_AA: Float[np.ndarray, "a a"],
    y: Float[np.ndarray, "targets column"],
    *,
    solution: str = "gd",
    eta: float | None = None,
    regularisation: float = 0.0,
) -> NearlyKernelFit:
    """Train on the kernel matrix `kernel_AA` and targets `y`; no meta kernel is needed for that.

    Solutions, by the dynamics or principle they are the limit of (W starts at 0):

    - "gd": gradient descent at step `eta` on ½Σ(z − y)² (11.133)-(11.136), 0 < η < 2/κ_max;
    - "flow": its limit η → 0;
    - "span": the interpolation with W in the span of the initial features (11.132);
    - "ridge": the minimum of ½Σ(z − y)² + ½ `regularisation` ΣW², or its limit at 0;
    - "trained-kernel": the kernel method with ½(k + k^E) (11.142), expanded.

    **Arguments:**

    - `kernel_AA`: the kernel of the training samples.
    - `y`: the targets (N_A, columns).
    - `solution`: one of those above.
    - `eta`: the step η of "gd".
    - `regularisation`: that of "ridge".

    **Returns:** `NearlyKernelFit`. A singular kernel gives the minimum-norm answer, flagged, when
    the targets allow one, and is refused when they do not. Cost: N³.

    >>> kernel = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> fit = fit_nearly_kernel(kernel, np.array([[3.0], [0.0]]), solution="ridge")
    >>> fit.dual.ravel().round(6), fit.rank, fit.minimum_norm
    (array([ 2., -1.]), 2, False)
    """
    check_solution(solution, eta, regularisation)
    if kernel_AA.shape[0] != y.shape[0]:
        allowed = f"expected one row per training sample, {kernel_AA.shape[0]}"
        raise InvalidValueError("rows of y", y.shape[0], allowed)
    if not (np.all(np.isfinite(kernel_AA)) and np.all(np.isfinite(y))):
        raise InvalidValueError("kernel or y", "not finite", "every entry must be finite")
    kappa, vectors = np.linalg.eigh(kernel_AA)
    kappa = kappa + regularisation
    keep = kappa > _SINGULAR * max(kappa[-1], 0.0)
    if not np.any(keep):
        raise InvalidValueError("largest eigenvalue of the kernel", float(kappa[-1]), "must be > 0")
    _require_targets_in_range(vectors[:, ~keep], y)
    if eta is not None and eta * kappa[-1] >= 2.0:
        allowed = f"gradient descent diverges from 2/κ_max = {2.0 / kappa[-1]:.6g} on"
        raise InvalidValueError("eta", eta, allowed)
    kappa, vectors = kappa[keep], vectors[:, keep]
    along = vectors.T @ y
    dual = vectors @ (along / kappa[:, None])
    square = dual[:, None, :] * dual[None, :, :]
    Z_A = np.zeros_like(square)
    if solution in ("gd", "flow"):
        weights = descent_weights(kappa, eta or 0.0)
        modes = weights[:, :, None] * along[:, None, :] * along[None, :, :]
        Z_A = np.einsum("am,bn,mnj->abj", vectors, vectors, modes, optimize=True)
    elif solution != "span":
        Z_A = square if solution == "ridge" else 0.5 * square
    return NearlyKernelFit(
        solution, eta, regularisation, kappa, vectors, dual, Z_A, 0.5 * square
    )  # fmt: skip


def descent_weights(
    kappa: Float[np.ndarray, " mode"], eta: float
) -> Float[np.ndarray, "mode mode"]:
    """Z_A of gradient descent in the eigenbasis of k̃: (1/κ_a − η)/(κ_a + κ_b − ηκ_aκ_b).

    It is η Σ_t r_a^t (1 − r_b^t)/κ_b with r = 1 − ηκ: the residual along a, met by the weights
    grown along b (11.135), (11.136).

    >>> descent_weights(np.array([1.0, 2.0]), 0.0).round(6)
    array([[0.5     , 0.333333], [0.166667, 0.125   ]])
    """
    one, other = kappa[:, None], kappa[None, :]
    return (1.0 / one - eta) / (one + other - eta * one * other)


def nearly_kernel_prediction(
    kernel: Float[np.ndarray, "d d"],
    meta_kernel: Float[np.ndarray, "d d d"],
    y: Float[np.ndarray, "a column"],
    *,
    solution: str = "gd",
    eta: float | None = None,
    regularisation: float = 0.0,
) -> Float[np.ndarray, "d column"]:
    """Outputs on all samples of whole kernels whose first rows are the training samples.

    **Arguments:**

    - `kernel`, `meta_kernel`: k_12 and μ_012 of all samples.
    - `y`: the targets (N_A, columns) of the first N_A of them.
    - `solution`, `eta`, `regularisation`: as for `fit_nearly_kernel`.

    **Returns:** outputs (N_D, columns). Cost: N_D N_A² per column; memory as that of
    `meta_kernel`.

    >>> phi = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> kernel = phi @ phi.T
    >>> meta = 0.1 * kernel[:, :, None] * kernel[:, None, :]          # ψ_ij = φ_i φ_j
    >>> nearly_kernel_prediction(kernel, meta, np.array([[1.0], [2.0]]), solution="span").ravel()
    array([1. , 2. , 3.2])
    """
    A = slice(0, y.shape[0])
    options = {"solution": solution, "eta": eta, "regularisation": regularisation}
    fit = fit_nearly_kernel(kernel[A, A], y, **options)
    bend = fit.bend(meta_kernel[:, A, A], meta_kernel[A, :, A])
    return fit.predict(kernel[:, A], bend[A], bend)


def effective_kernel(
    kernel: Float[np.ndarray, "d d"],
    meta_kernel: Float[np.ndarray, "d d a"],
    dual: Float[np.ndarray, "a column"],
) -> Float[np.ndarray, "column d d"]:
    """k^E = k + Σ_a (μ_12a + μ_21a) c_a after training, one kernel per column (11.138).

    To first order in ε, the same for every solution. The trained kernel is ½(k + k^E) (11.140).

    **Arguments:**

    - `kernel`, `meta_kernel`: k_12 of all samples, and μ_12a with training samples in the end.
    - `dual`: c (N_A, columns), as in `NearlyKernelFit`.

    **Returns:** (columns, N_D, N_D).

    >>> one = np.ones((1, 1))
    >>> effective_kernel(2 * one, 0.1 * np.ones((1, 1, 1)), 3 * one).ravel().round(6)
    array([2.6])
    """
    change = np.einsum("dea,aj->jde", meta_kernel, dual)
    return kernel[None] + change + np.swapaxes(change, 1, 2)


def trained_kernel_prediction(
    kernel: Float[np.ndarray, "d d"],
    meta_kernel: Float[np.ndarray, "d d d"],
    y: Float[np.ndarray, "a column"],
) -> Float[np.ndarray, "d column"]:
    """k♯_ba k̃♯⁻¹ y with the trained kernel k♯ = ½(k + k^E) of each column, unexpanded (11.142).

    **Arguments:**

    - `kernel`, `meta_kernel`: k_12 and μ_012 of all samples.
    - `y`: the targets (N_A, columns) of the first N_A of them.

    **Returns:** outputs (N_D, columns).

    >>> phi = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> kernel = phi @ phi.T
    >>> meta = 0.1 * kernel[:, :, None] * kernel[:, None, :]
    >>> trained_kernel_prediction(kernel, meta, np.array([[1.0], [2.0]])).ravel().round(6)
    array([1.      , 2.      , 3.174242])
    """
    A = slice(0, y.shape[0])
    dual = fit_nearly_kernel(kernel[A, A], y, solution="span").dual
    trained = 0.5 * (kernel[None] + effective_kernel(kernel, meta_kernel[:, :, A], dual))
    columns = [
        sharp[:, A] @ fit_nearly_kernel(sharp[A, A], y[:, [j]], solution="span").dual
        for j, sharp in enumerate(trained)
    ]
    return np.concatenate(columns, axis=1)


def check_solution(solution: str, eta: float | None, regularisation: float) -> None:
    """Refuse unknown solutions and options that a solution does not have."""
    if solution not in SOLUTIONS:
        raise InvalidValueError("solution", solution, f"expected one of {', '.join(SOLUTIONS)}")
    if solution == "gd" and eta is None:
        raise InvalidValueError("eta", None, "gradient descent needs a step size; 'flow' does not")
    if solution != "gd" and eta is not None:
        raise InvalidValueError("eta", eta, f"only solution 'gd' has a step size, not {solution!r}")
    if eta is not None:
        checked_number("eta", eta, "a step size must be > 0", positive=True)
    checked_number("regularisation", regularisation, "must be ≥ 0")
    if regularisation > 0 and solution != "ridge":
        allowed = f"only solution 'ridge' is regularised, not {solution!r}"
        raise InvalidValueError("regularisation", regularisation, allowed)


def _require_targets_in_range(null: np.ndarray, y: np.ndarray) -> None:
    outside = float(np.linalg.norm(null.T @ y)) if null.size else 0.0
    if outside > _OUTSIDE * float(np.linalg.norm(y)):
        raise InvalidValueError(
            "y",
            f"{outside:.3g} outside the range of the kernel",
            f"the training kernel is singular ({null.shape[1]} directions) and no model fits these "
            "targets: repeated inputs with different targets, or more samples than features; use "
            "solution='ridge' with regularisation > 0",
        )
