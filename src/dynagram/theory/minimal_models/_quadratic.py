"""Quadratic models z = Wφ + (ε/2) WWψ in feature space (11.105)-(11.121), and their training.

The smallest models whose features move when they are trained: φ^E = φ + εWψ (11.107). Rows are
samples, or (sample, output) pairs when the outputs share their parameters (wiring, 11.150);
columns are outputs with parameters of their own.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.theory.minimal_models._nearly_kernel import check_solution, fit_nearly_kernel


@dataclass(frozen=True, eq=False)
class QuadraticModel:
    """Features φ_j and meta features ψ_jk = ψ_kj on some rows, and the strength ε.

    Parameters with learning rates λ_j ≠ 1 are covered by φ → √λ φ, ψ → √λ√λ ψ.

    >>> model = QuadraticModel(np.eye(2), np.ones((2, 2, 2)), epsilon=0.1)
    >>> model.outputs(np.array([[1.0], [2.0]])).ravel().round(6)      # W_j + (ε/2)(W_0 + W_1)²
    array([1.45, 2.45])
    """

    features: Float[np.ndarray, "row parameter"]
    meta_features: Float[np.ndarray, "row parameter parameter"]
    epsilon: float

    def __post_init__(self) -> None:
        psi = self.meta_features
        if not (np.all(np.isfinite(self.features)) and np.all(np.isfinite(psi))):
            raise InvalidValueError("features", "not finite", "every entry must be finite")
        if not np.allclose(psi, np.swapaxes(psi, 1, 2), rtol=1e-12, atol=0.0):
            raise InvalidValueError("meta_features", "not symmetric", "need ψ_jk = ψ_kj")

    @functools.cached_property
    def kernel(self) -> Float[np.ndarray, "row row"]:
        """k_12 = φ_1·φ_2 (11.126)."""
        return self.features @ self.features.T

    @functools.cached_property
    def meta_kernel(self) -> Float[np.ndarray, "row row row"]:
        """μ_012 = ε φ_1ψ_0φ_2 (11.130), symmetric in the last two."""
        half = np.einsum("ajk,bj->abk", self.meta_features, self.features, optimize=True)
        return self.epsilon * np.einsum("abk,ck->abc", half, self.features, optimize=True)

    def outputs(self, W: Float[np.ndarray, "parameter column"]) -> Float[np.ndarray, "row column"]:
        """z = Wφ + (ε/2) WWψ (11.109)."""
        return self.features @ W + 0.5 * self.epsilon * self._quadratic(W)

    def effective_features(
        self, W: Float[np.ndarray, "parameter column"]
    ) -> Float[np.ndarray, "column row parameter"]:
        """φ^E = dz/dW = φ + εWψ, for every column (11.107)."""
        change = np.einsum("akl,kj->jal", self.meta_features, W, optimize=True)
        return self.features[None] + self.epsilon * change

    def effective_kernel(
        self, W: Float[np.ndarray, "parameter column"]
    ) -> Float[np.ndarray, "column row row"]:
        """k^E_12 = φ^E_1·φ^E_2, for every column (11.137)."""
        features = self.effective_features(W)
        return features @ np.swapaxes(features, 1, 2)

    def around(
        self, W: Float[np.ndarray, " parameter"]
    ) -> tuple[QuadraticModel, Float[np.ndarray, " row"]]:
        """The model in terms of W' = W_total − W, and z(W): train it on y − z(W), add z(W) back.

        Exact, and the way to use every formula for a start at W ≠ 0.

        >>> model = QuadraticModel(np.eye(2), np.ones((2, 2, 2)), epsilon=0.1)
        >>> moved, z = model.around(np.array([1.0, 2.0]))
        >>> z.round(6), moved.features.round(6).tolist()
        (array([1.45, 2.45]), [[1.3, 0.3], [0.3, 1.3]])
        """
        column = W[:, None]
        moved = QuadraticModel(self.effective_features(column)[0], self.meta_features, self.epsilon)
        return moved, self.outputs(column)[:, 0]

    def _quadratic(self, W: np.ndarray) -> np.ndarray:
        half = np.einsum("akl,kj->alj", self.meta_features, W, optimize=True)
        return np.einsum("alj,lj->aj", half, W)


@dataclass(frozen=True, eq=False)
class TrainedWeights:
    """W^F (11.115), of order ε⁰, and its correction W^I (11.118) of order ε, per column."""

    free: Float[np.ndarray, "parameter column"]
    interacting: Float[np.ndarray, "parameter column"]


def trained_weights(
    model: QuadraticModel,
    y: Float[np.ndarray, "a column"],
    *,
    solution: str = "gd",
    eta: float | None = None,
) -> TrainedWeights:
    """The parameters after training on the first rows of `model`, to first order in ε.

    W^I = −Φ⁺q + Π⊥ ε Σ Z_A^12 ψ_1φ_2: the first part undoes the quadratic term q on the training
    rows inside the span of the features, the second is what training leaves outside the span.

    **Arguments:**

    - `model`: the quadratic model, its training rows first.
    - `y`: the targets (N_A, columns).
    - `solution`, `eta`: as in `fit_nearly_kernel`; not "trained-kernel", which has no parameters.

    **Returns:** `TrainedWeights`. Cost: N_A p² and an SVD.

    >>> model = QuadraticModel(np.eye(2), np.ones((2, 2, 2)), epsilon=0.1)
    >>> found = trained_weights(model, np.array([[1.0]]), solution="ridge")
    >>> found.free.ravel().round(6), found.interacting.ravel().round(6)
    (array([1., 0.]), array([-0.05,  0.1 ]))
    """
    check_solution(solution, eta, 0.0)
    if solution == "trained-kernel":
        raise InvalidValueError("solution", solution, "a kernel method without parameters")
    train = slice(0, y.shape[0])
    phi, psi = model.features[train], model.meta_features[train]
    fit = fit_nearly_kernel(phi @ phi.T, y, solution=solution, eta=eta)
    inverse = phi.T @ fit.solve(np.eye(y.shape[0]))
    free = inverse @ y
    half = np.einsum("akl,kj->alj", psi, free, optimize=True)
    quadratic = 0.5 * model.epsilon * np.einsum("alj,lj->aj", half, free)
    pushed = np.einsum("acj,akl,cl->kj", fit.Z_A, psi, phi, optimize=True)
    outside = pushed - inverse @ (phi @ pushed)
    return TrainedWeights(free, model.epsilon * outside - inverse @ quadratic)


def first_order_outputs(
    model: QuadraticModel, weights: TrainedWeights
) -> Float[np.ndarray, "row column"]:
    """z = (W^F + W^I)φ + (ε/2) W^F W^F ψ: the outputs of trained weights, to order ε (11.125).

    **Arguments:**

    - `model`: the quadratic model.
    - `weights`: those of `trained_weights`.

    **Returns:** outputs of all rows of the model (rows, columns).

    >>> model = QuadraticModel(np.eye(2), np.ones((2, 2, 2)), epsilon=0.1)
    >>> weights = trained_weights(model, np.array([[1.0]]), solution="ridge")
    >>> first_order_outputs(model, weights).ravel().round(6)
    array([1.  , 0.15])
    """
    linear = model.features @ weights.interacting
    return model.outputs(weights.free) + linear
