"""Nearly-kernel regression as a scikit-learn estimator (11.126)-(11.142)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.integrations.sklearn._base import Regressor, check_is_fitted
from dynagram.networks import checked_number
from dynagram.theory.minimal_models._nearly_kernel import NearlyKernelFit, fit_nearly_kernel

# New samples whose meta kernel with all training samples is held at a time.
_NUMBERS_AT_ONCE = 2**23


class NearlyKernelRegressor(Regressor):
    """Kernel regression whose features learn: z = Wφ + (ε/2) WWψ, trained to first order in ε.

    **Arguments:**

    - `kernel`: a name known to `sklearn.metrics.pairwise.pairwise_kernels` ("rbf", "linear",
        "poly", "laplacian", …), or a function of two arrays of samples giving their kernel matrix.
    - `gamma`, `kernel_params`: of a named kernel.
    - `meta_kernel`: "product" for μ_012 = ε k_01 k_02 (ψ_ij = φ_iφ_j), or a function of three
        arrays of samples giving φ_1ψ_0φ_2 as (N_0, N_1, N_2).
    - `epsilon`: the strength of the meta features; 0 is kernel regression.
    - `solution`, `eta`: as in `fit_nearly_kernel`.
    - `regularisation`: added to the diagonal of the kernel.

    Fitted: `X_fit_`, `fit_` (a `NearlyKernelFit`, with `minimum_norm` set when the kernel is
    singular) and `nonlinearity_`, the largest quadratic term on the training samples over the
    largest target: first order in ε needs it well below 1. The "product" meta kernel costs N² per
    output, a function N³.

    >>> X = np.linspace(-1.0, 1.0, 20)[:, None]
    >>> model = NearlyKernelRegressor(gamma=2.0, epsilon=0.2, regularisation=1e-6)
    >>> round(model.fit(X, np.sin(3 * X[:, 0])).score(X, np.sin(3 * X[:, 0])), 4)
    1.0
    >>> round(model.nonlinearity_, 2)
    0.1
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        meta_kernel: Any = "product",
        epsilon: Any = 0.1,
        solution: Any = "ridge",
        regularisation: Any = 1e-3,
        eta: Any = None,
        gamma: Any = None,
        kernel_params: Any = None,
    ):
        self.kernel = kernel
        self.meta_kernel = meta_kernel
        self.epsilon = epsilon
        self.solution = solution
        self.regularisation = regularisation
        self.eta = eta
        self.gamma = gamma
        self.kernel_params = kernel_params

    def fit(self, X: Any, y: Any) -> NearlyKernelRegressor:
        """Train on X (samples, features) and y (samples,) or (samples, outputs)."""
        inputs, targets = self._training_data(X, y)
        _checked_epsilon(self.epsilon)
        if self.meta_kernel != "product" and not callable(self.meta_kernel):
            allowed = "expected 'product' or a function of three arrays of samples"
            raise InvalidTypeError("meta_kernel", self.meta_kernel, allowed)
        self.X_fit_ = inputs
        kernel = self._kernel(inputs, inputs)
        self.fit_: NearlyKernelFit = fit_nearly_kernel(
            0.5 * (kernel + kernel.T),
            targets,
            solution=self.solution,
            eta=self.eta,
            regularisation=float(self.regularisation),
        )
        self._square_ = np.einsum("ac,acj->aj", kernel, self.fit_.Z_A)
        quadratic, self._bend_ = self._bend(inputs, kernel)
        largest = float(np.max(np.abs(targets)))
        self.nonlinearity_ = float(np.max(np.abs(quadratic))) / largest if largest else 0.0
        return self

    def predict(self, X: Any) -> Float[np.ndarray, "b *outputs"]:
        """Outputs at X, of the shape of y."""
        inputs = self._new_data(X)
        kernel = self._kernel(inputs, self.X_fit_)
        _, bend = self._bend(inputs, kernel)
        return self._shaped(self.fit_.predict(kernel, self._bend_, bend))

    def effective_kernel(self, X: Any, Z: Any) -> Float[np.ndarray, "outputs b c"]:
        """k^E(X, Z) after training, one matrix per output: the kernel that was learned (11.138)."""
        check_is_fitted(self)
        first, second = self._new_data(X), self._new_data(Z)
        kernel, dual = self._kernel(first, second), self.fit_.dual
        if callable(self.meta_kernel):
            one = np.einsum("bca,aj->jbc", self._meta(first, second, self.X_fit_), dual)
            two = np.einsum("cba,aj->jbc", self._meta(second, first, self.X_fit_), dual)
            return kernel[None] + one + two
        # μ_12a c_a = ε k_12 (k_1·c): the kernel is scaled by 1 + ε(z_1 + z_2) of order ε⁰.
        one, two = (self._kernel(part, self.X_fit_) @ dual for part in (first, second))
        return kernel[None] * (1.0 + self.epsilon * (one.T[:, :, None] + two.T[:, None, :]))

    def _kernel(self, X: np.ndarray, Z: np.ndarray) -> Float[np.ndarray, "b c"]:
        from sklearn.metrics.pairwise import pairwise_kernels

        if callable(self.kernel):
            found = np.asarray(self.kernel(X, Z), dtype=np.float64)
            if found.shape != (X.shape[0], Z.shape[0]):
                allowed = f"expected {(X.shape[0], Z.shape[0])} from kernel(X, Z)"
                raise InvalidValueError("shape of the kernel", found.shape, allowed)
            return found
        params = dict(self.kernel_params or {})
        if self.gamma is not None:
            params["gamma"] = self.gamma
        return pairwise_kernels(X, Z, metric=self.kernel, **params)

    def _meta(self, first: np.ndarray, second: np.ndarray, third: np.ndarray) -> np.ndarray:
        function: Callable[..., Any] = self.meta_kernel
        return self.epsilon * np.asarray(function(first, second, third), dtype=np.float64)

    def _bend(
        self, X: np.ndarray, kernel: np.ndarray
    ) -> tuple[Float[np.ndarray, "b outputs"], Float[np.ndarray, "b outputs"]]:
        """`quadratic_term` and `bend` at X; `kernel` is that of X with the training set."""
        if not callable(self.meta_kernel):
            # Z_B is ½ c c, so that its part is ½ (k c)²; μ_1b2 Z_A^12 = k_b1 Σ_2 k_12 Z_A^12.
            quadratic = 0.5 * self.epsilon * (kernel @ self.fit_.dual) ** 2
            return quadratic, quadratic + self.epsilon * (kernel @ self._square_)
        train, quadratic, bend = self.X_fit_, [], []
        block = max(1, _NUMBERS_AT_ONCE // train.shape[0] ** 2)
        for start in range(0, X.shape[0], block):
            part = X[start : start + block]
            first = self._meta(part, train, train)
            quadratic.append(self.fit_.quadratic_term(first))
            bend.append(self.fit_.bend(first, self._meta(train, part, train)))
        return np.concatenate(quadratic), np.concatenate(bend)


def _checked_epsilon(epsilon: object) -> None:
    size = abs(epsilon) if isinstance(epsilon, int | float | np.floating) else epsilon
    checked_number("epsilon", size, "expected a finite number")
