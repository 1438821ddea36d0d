"""The triangular factor of [1 | H | Y]: all that least squares of targets on features needs.

Batches are folded in one at a time by QR of the old factor stacked on the new rows, so that nothing
holds all samples and HᵀH, which has the squared condition number, is never formed. Below the
first row the factor is that of the centred matrices: Hc ≅ R_H and Yc ≅ [R_HY; R_Y] up to one
orthogonal transformation of the samples.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidTypeError, InvalidValueError


class FeatureFactor:
    """R of the QR decomposition of [1 | H | Y], over the batches given to `add`.

    Cost per batch of m rows: 2 (m + p) p² with p = 1 + features + targets; memory 16 p² bytes.

    **Arguments:** none; `FeatureFactor.of(h, y)` is the factor of one batch.

    >>> factor = FeatureFactor()
    >>> for rows in np.split(np.arange(12.0).reshape(6, 2) ** 2, 3):
    ...     factor.add(rows, rows[:, :1] - 1.0)
    >>> factor.samples, factor.features, factor.targets, factor.feature_mean.round(6).tolist()
    (6, 2, 1, [36.666667, 47.666667])
    """

    def __init__(self) -> None:
        self.samples = 0
        self.features = 0
        self.targets = 0
        self._R: np.ndarray = np.zeros((0, 0))

    @classmethod
    def of(cls, h: np.ndarray, y: np.ndarray) -> FeatureFactor:
        """The factor of one batch."""
        factor = cls()
        factor.add(h, y)
        return factor

    def add(self, h: np.ndarray, y: np.ndarray) -> None:
        """Count a batch: features (rows, n) and targets (rows, C), or (rows,) for one target."""
        h, y = _checked("h", h), _checked("y", y)
        if h.shape[0] != y.shape[0]:
            raise InvalidValueError(
                "rows of h and y", (h.shape[0], y.shape[0]), "one target per feature vector needed"
            )
        if self.samples == 0:
            self.features, self.targets = h.shape[1], y.shape[1]
            self._R = np.zeros((0, 1 + self.features + self.targets))
        if (h.shape[1], y.shape[1]) != (self.features, self.targets):
            expected = f"({self.features}, {self.targets}), as in the first batch"
            raise InvalidValueError(
                "columns of h and y", (h.shape[1], y.shape[1]), f"expected {expected}"
            )
        rows = np.concatenate([np.ones((h.shape[0], 1)), h, y], axis=1)
        self._R = np.asarray(np.linalg.qr(np.concatenate([self._R, rows]), mode="r"))
        self.samples += h.shape[0]

    @property
    def feature_mean(self) -> Float[np.ndarray, " n"]:
        """The mean of the features."""
        return self._R[0, 1 : 1 + self.features] / self._R[0, 0]

    @property
    def target_mean(self) -> Float[np.ndarray, " C"]:
        """The mean of the targets."""
        return self._R[0, 1 + self.features :] / self._R[0, 0]

    @property
    def centred_features(self) -> Float[np.ndarray, "k n"]:
        """A matrix with the Gram HcᵀHc of the centred features, with few rows."""
        return self._R[1:, 1 : 1 + self.features]

    @property
    def centred_targets(self) -> Float[np.ndarray, "k C"]:
        """The centred targets in the same orthogonal coordinates."""
        return self._R[1:, 1 + self.features :]


def as_factor(h: np.ndarray | FeatureFactor, y: np.ndarray | None) -> FeatureFactor:
    """The factor of arrays, or the factor itself when `h` is one and `y` is left out."""
    if isinstance(h, FeatureFactor):
        if y is not None:
            raise InvalidValueError("y", "given", "a FeatureFactor holds its targets already")
        if h.samples == 0:
            raise InvalidValueError("h", "empty FeatureFactor", "no batch was added")
        return h
    if y is None:
        raise InvalidValueError("y", None, "targets are needed with features")
    return FeatureFactor.of(h, y)


def _checked(name: str, values: np.ndarray) -> np.ndarray:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InvalidTypeError(name, str(array.dtype), "expected an array of reals")
    array = array.astype(np.float64)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] == 0:
        raise InvalidValueError(f"shape of {name}", np.shape(values), "expected (samples, columns)")
    if not np.all(np.isfinite(array)):
        raise InvalidValueError(name, "nan or infinite", "all entries must be finite")
    return array
