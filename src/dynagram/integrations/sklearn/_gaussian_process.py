"""An MLP as a Gaussian process with the scikit-learn interface, infinitely wide or to order 1/n."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.integrations.sklearn._base import Regressor, check_is_fitted
from dynagram.networks import MLP
from dynagram.results import Outputs
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.bayes import log_evidence
from dynagram.training import Posterior


class NetworkProcessRegressor(Regressor):
    """Bayesian regression with an MLP: no training, every network at once (6.64), (6.66), (6.81).

    Inputs should be scaled so that (1/n_0) Σ x² is of order one; targets are centred.

    **Arguments:**

    - `activation`, `C_b`, `C_W`, `skip`: as in `MLP`.
    - `depth`: the number L of weight layers.
    - `noise`: the variance of the observation noise.
    - `jitter`: a fraction of the mean variance, added to the training kernel and reported.
    - `width`: None for infinite width; a number takes the order 1/n of hidden layers of that width
        into account (without skips), at a cost of N⁴ for N training and test samples.

    Fitted: `network_`, `X_fit_`, `y_fit_`, `y_mean_`, and `log_evidence_` of the centred targets.

    >>> X = np.linspace(-2.0, 2.0, 12)[:, None]
    >>> model = NetworkProcessRegressor("erf", C_b=0.5, C_W=1.5, noise=1e-4).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict(np.array([[0.1], [5.0]]), return_std=True)
    >>> mean.round(2), std.round(2)
    (array([0.1 , 0.46]), array([0.01, 0.18]))
    """

    def __init__(
        self,
        activation: Any = "relu",
        *,
        depth: Any = 3,
        C_b: Any = 0.1,
        C_W: Any = 2.0,
        noise: Any = 1e-2,
        jitter: Any = 0.0,
        width: Any = None,
        skip: Any = 0.0,
    ):
        self.activation = activation
        self.depth = depth
        self.C_b = C_b
        self.C_W = C_W
        self.noise = noise
        self.jitter = jitter
        self.width = width
        self.skip = skip

    def fit(self, X: Any, y: Any) -> NetworkProcessRegressor:
        """Store X (samples, features) and y, and compute the evidence of the targets."""
        inputs, targets = self._training_data(X, y)
        if isinstance(self.depth, bool) or not isinstance(self.depth, int | np.integer):
            raise InvalidValueError("depth", self.depth, "expected an integer ≥ 1")
        self.X_fit_, self.y_mean_ = inputs, targets.mean(axis=0)
        self.y_fit_ = targets - self.y_mean_
        data = Data(inputs, self.y_fit_)
        self.log_evidence_ = log_evidence(
            self.network_, data, self._inference(), order=self._order
        ).value
        return self

    @property
    def network_(self) -> MLP:
        """The network; made when asked for, since activations cannot be pickled."""
        hidden = 1 if self.width is None else self.width
        outputs = self.y_fit_.shape[1]
        widths = [self.X_fit_.shape[1], *[hidden] * (int(self.depth) - 1), outputs]
        return MLP(widths, self.activation, self.C_b, self.C_W, skip=self.skip)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Posterior mean at X; with `return_std` or `return_cov` also the spread of the function.

        The standard deviation has the shape of the mean. The covariance is (samples, samples) for
        a single output and (samples, outputs, samples, outputs) for several.
        """
        inputs = self._new_data(X)
        if return_std and return_cov:
            raise InvalidValueError("return_cov", True, "not together with return_std")
        outputs = self._posterior(inputs)
        mean = self._shaped(outputs.mean + self.y_mean_)
        if return_std:
            return mean, self._shaped(np.nan_to_num(outputs.std))
        if return_cov:
            covariance = outputs.covariance
            return mean, covariance[:, 0, :, 0] if self.single_output_ else covariance
        return mean

    def log_marginal_likelihood(self) -> float:
        """log p(y | network) of the centred training targets (6.34)."""
        check_is_fitted(self)
        return self.log_evidence_

    @property
    def _order(self) -> str:
        return "infinite" if self.width is None else "1/n"

    def _inference(self) -> Posterior:
        return Posterior(float(self.noise), float(self.jitter))

    def _posterior(self, X: np.ndarray) -> Outputs:
        data = Data(self.X_fit_, self.y_fit_, X)
        return predict_outputs(self.network_, data, self._inference(), order=self._order)
