"""What both estimators share: the scikit-learn base classes and the checking of X and y."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.errors import MissingExtraError

try:
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise MissingExtraError("scikit-learn", "sklearn") from error


class Regressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """A regressor of one or several outputs; y may be (samples,) or (samples, outputs)."""

    n_features_in_: int
    single_output_: bool

    def _training_data(
        self, X: Any, y: Any
    ) -> tuple[Float[np.ndarray, "a features"], Float[np.ndarray, "a outputs"]]:
        inputs, targets = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True
        )
        inputs, targets = np.asarray(inputs), np.asarray(targets, dtype=np.float64)
        self.single_output_ = targets.ndim == 1
        return inputs, targets.reshape(inputs.shape[0], -1)

    def _new_data(self, X: Any) -> Float[np.ndarray, "b features"]:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, dtype=np.float64, reset=False))

    def _shaped(self, outputs: Float[np.ndarray, "b outputs"]) -> Float[np.ndarray, "b *outputs"]:
        return outputs[:, 0] if self.single_output_ else outputs
