"""Target linearity: the R² of the best linear read-out of the targets from a layer's features.

TL(H, Y) = 1 − ‖Y − P_H Y‖²/‖Y − Ȳ‖² with an intercept (Cha et al., arXiv:2605.06258). By SVD of a
streamed QR factor, never by inverting HᵀH. On the samples it was fitted to, R² of independent
targets is p/(M−1), p the rank of the centred features: near 1 for wide layers, whatever the
targets. On other samples least squares fails at nearly dead units, so the held-out score is that
of a ridge whose penalty λ minimises the generalised cross-validation score on the fitted samples.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from dynagram.errors import InvalidValueError
from dynagram.observables._nulls import Null, Spectrum, rotation_overlap
from dynagram.observables.gram._factor import FeatureFactor, as_factor

# From where on an in-sample score says nothing: independent targets reach it too.
_TRIVIAL = 0.9
_ROUNDING = 1e-13
_PENALTIES = 60
_NULL_DRAWS = 24


class TrivialLinearityWarning(UserWarning):
    """An in-sample score that independent targets would reach as well.

    **Arguments:** the message.
    """


@dataclass(frozen=True)
class Linearity:
    """A target linearity, and what independent targets give at this size.

    **Arguments:**

    - `score`, `null`: R², and what independent targets give.
    - `rank`: that of the centred features.
    - `samples`, `scored`: how many were fitted and how many scored.
    - `trivial`: the null is above 0.9, so that the score cannot tell.
    - `penalty`: the ridge λ of a held-out score, relative to the largest squared singular value;
        infinite where the mean did best.
    """

    score: float
    null: Null
    rank: int
    samples: int
    scored: int
    trivial: bool = False
    penalty: float = 0.0

    @property
    def above_null(self) -> float:
        """How many deviations the score lies above its null."""
        return self.null.score(self.score)


def one_hot(labels: np.ndarray, classes: int | None = None) -> np.ndarray:
    """Integer labels 0..C−1 as rows of the unit matrix, (samples, C).

    **Arguments:**

    - `labels`: one integer per sample.
    - `classes`: C; the largest label and one without.

    **Returns:** (samples, C).

    >>> one_hot(np.array([0, 2]), 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    labels = check_labels(labels)
    count = int(labels.max()) + 1 if classes is None else classes
    if labels.max() >= count:
        raise InvalidValueError("labels", int(labels.max()), f"expected 0 to {count - 1}")
    return np.eye(count)[labels]


def check_labels(labels: np.ndarray) -> Int[np.ndarray, " samples"]:
    """Labels as a vector of integers ≥ 0, refused otherwise."""
    values = np.asarray(labels)
    if values.ndim != 1 or values.size == 0 or values.dtype.kind not in "iu":
        raise InvalidValueError(
            "labels", f"{values.dtype} {values.shape}", "expected a vector of integers 0..C−1"
        )
    if values.min() < 0:
        raise InvalidValueError("labels", int(values.min()), "expected integers ≥ 0")
    return values


def target_linearity(h: np.ndarray | FeatureFactor, y: np.ndarray | None = None) -> Linearity:
    """TL on the samples it is fitted to, with its null p/(M−1); warns where that is near 1.

    Directions below 1e-13 of the largest singular value count as zero, so dead and repeated units
    do no harm. The null's deviation is exact up to relative order 1/M.

    **Arguments:**

    - `h`: features (samples, n), or a `FeatureFactor` fed by batches.
    - `y`: targets (samples, C), left out with a `FeatureFactor`.

    **Returns:** `Linearity`. Cost 2·samples·n² + O(n³).

    >>> h = np.random.default_rng(0).normal(size=(200, 20))
    >>> linear = target_linearity(h, h @ np.ones(20) + 3.0)
    >>> round(linear.score, 6), round(linear.null.mean, 3), linear.rank
    (1.0, 0.101, 20)
    """
    factor = as_factor(h, y)
    U, _, _ = _svd(factor)
    targets = factor.centred_targets
    total = _variation(factor)
    # The part outside, not 1 minus the part inside: small residuals keep their digits.
    residual = targets - U @ (U.T @ targets)
    score = 1.0 - float(np.sum(residual**2)) / total
    null = _in_sample_null(factor, U.shape[1])
    trivial = null.mean > _TRIVIAL
    if trivial:
        warnings.warn(
            f"target linearity {score:.3f} of rank {U.shape[1]} features on {factor.samples} "
            f"samples is trivial: independent targets give {null.mean:.3f}; score held-out "
            "samples instead (held_out_linearity)",
            TrivialLinearityWarning,
            stacklevel=2,
        )
    return Linearity(score, null, U.shape[1], factor.samples, factor.samples, trivial)


def held_out_linearity(
    h: np.ndarray | FeatureFactor,
    y: np.ndarray | None,
    h_test: np.ndarray | FeatureFactor,
    y_test: np.ndarray | None = None,
    *,
    seed: int = 0,
) -> Linearity:
    """R² on (h_test, y_test) of the ridge read-out fitted on (h, y), λ by cross-validation.

    The reference of the R² is the mean of the scored targets, so that a read-out which learnt
    nothing is at about −(1/M + 1/m), not at 0. The null is measured: 24 sets of Gaussian targets
    with the covariance of `y` (from `seed`), fitted like `y` and scored on the true test targets.

    **Arguments:**

    - `h`, `y`: what is fitted, as for `target_linearity`.
    - `h_test`, `y_test`: what is scored, likewise.
    - `seed`: of the null.

    **Returns:** `Linearity`. Cost as for `target_linearity`, and 24·60·n·C for the null.

    >>> rng = np.random.default_rng(0)
    >>> h = rng.normal(size=(300, 40))
    >>> y = np.tanh(h[:, :3]) + 0.1 * rng.normal(size=(300, 3))
    >>> found = held_out_linearity(h[:200], y[:200], h[200:], y[200:])
    >>> bool(0.85 < found.score < 0.95), bool(abs(found.null.mean) < 0.05)
    (True, True)
    """
    fitted, scored = as_factor(h, y), as_factor(h_test, y_test)
    if (fitted.features, fitted.targets) != (scored.features, scored.targets):
        raise InvalidValueError(
            "features and targets of the test set",
            (scored.features, scored.targets),
            f"expected {(fitted.features, fitted.targets)}, as fitted",
        )
    U, s, V = _svd(fitted)
    total = _variation(scored)
    test = _TestSet(
        scored.centred_features @ V,
        (scored.feature_mean - fitted.feature_mean) @ V,
        scored.centred_targets,
        scored.target_mean,
        scored.samples,
        total,
    )
    targets = fitted.centred_targets
    _variation(fitted)
    outside = _sum_of_squares(targets) - _sum_of_squares(U.T @ targets)
    inside, beyond, shifts = _null_draws(fitted, scored.samples, s.size, seed)
    scores, penalties = _ridge_scores(
        np.concatenate([(U.T @ targets)[None], inside]),
        np.append(max(outside, 0.0), beyond),
        s,
        fitted.samples,
        np.concatenate([fitted.target_mean[None], scored.target_mean + shifts]),
        test,
    )
    null = Null(float(np.mean(scores[1:])), float(np.std(scores[1:], ddof=1)))
    rank, penalty = s.size, float(penalties[0])
    return Linearity(float(scores[0]), null, rank, fitted.samples, scored.samples, False, penalty)


# --- how --------------------------------------------------------------------------------------


def _svd(factor: FeatureFactor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, s, V of the centred features, without the directions that are rounding."""
    U, s, Vt = np.linalg.svd(factor.centred_features, full_matrices=False)
    # A constant feature leaves rounding of the size of its own norm, √M times its mean.
    means = math.sqrt(factor.samples) * float(np.max(np.abs(factor.feature_mean)))
    kept = s > _ROUNDING * max(float(np.max(s, initial=0.0)), means)
    U, s, V = U[:, kept], s[kept], Vt[kept].T
    # One sign on every machine: the draws of the null are made in these coordinates.
    signs = np.sign(V[np.argmax(np.abs(V), axis=0), np.arange(s.size)])
    return U * signs, s, V * signs


def _sum_of_squares(values: np.ndarray) -> float:
    return float(np.sum(values * values))


def _variation(factor: FeatureFactor) -> float:
    """‖Y − Ȳ‖², refused where it is rounding of the targets' own size."""
    total = _sum_of_squares(factor.centred_targets)
    if total <= factor.samples * _sum_of_squares(_ROUNDING * factor.target_mean):
        raise InvalidValueError("y", "constant", "targets that do not vary have no R²")
    return total


def _in_sample_null(factor: FeatureFactor, rank: int) -> Null:
    """tr(P B)/tr B over random rotations of the M−1 centred directions."""
    size = factor.samples - 1
    targets = factor.centred_targets
    covariance = targets.T @ targets
    kernel = Spectrum(size, float(np.trace(covariance)), _sum_of_squares(covariance))
    projector = Spectrum(size, float(rank), float(rank))
    null = rotation_overlap(projector, kernel)
    return Null(null.mean / kernel.trace, null.deviation / kernel.trace)


@dataclass(frozen=True, eq=False)
class _TestSet:
    """The scored samples in the singular coordinates of the fitted features."""

    features: np.ndarray  # centred on their own mean, in orthogonal sample coordinates
    shift: np.ndarray  # mean of the scored features minus that of the fitted ones
    targets: np.ndarray
    mean: np.ndarray
    samples: int
    total: float


def _ridge_scores(
    inside: np.ndarray,
    outside: np.ndarray,
    s: np.ndarray,
    samples: int,
    means: np.ndarray,
    test: _TestSet,
) -> tuple[np.ndarray, np.ndarray]:
    """The test R² of the ridge chosen by generalised cross-validation, and its λ/s_max².

    For several sets of targets at once, (sets, …) each: `inside` is UᵀY, `outside` the squared norm
    of Y beyond the features, `means` those of Y; GCV(λ) is the residual divided by (M − 1 − tr of
    the smoother)², λ = ∞ (the mean alone) included.
    """
    if s.size == 0:
        penalties = np.array([math.inf])
        shrink = np.zeros((1, 0))
    else:
        penalties = np.append(np.geomspace(1e-12, 1e3, _PENALTIES), math.inf)
        shrink = 1.0 / (1.0 + penalties[:, None] * (s[0] ** 2 / s**2)[None, :])
    energy = np.sum(inside**2, axis=2)
    residual = outside[:, None] + energy @ ((1.0 - shrink) ** 2).T
    freedom = samples - 1 - shrink.sum(axis=1)
    # Where the smoother uses every direction there is nothing left to validate on.
    criterion = np.where(freedom > 0.5, residual / np.maximum(freedom, 0.5) ** 2, np.inf)
    best = np.argmin(criterion, axis=1)
    weights = (shrink[best] / s)[:, :, None] * inside
    error = test.targets - test.features @ weights
    offset = test.mean - means - test.shift @ weights
    wrong = np.sum(error * error, axis=(1, 2)) + test.samples * np.sum(offset * offset, axis=1)
    return 1.0 - wrong / test.total, penalties[best]


def _null_draws(
    factor: FeatureFactor, scored: int, rank: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gaussian targets with Y's covariance, several sets of them: UᵀY, the squared norms beyond the
    features, and by how much the means of fitted and scored targets differ."""
    rng = np.random.default_rng(seed)
    targets = factor.centred_targets
    values, vectors = np.linalg.eigh(targets.T @ targets / (factor.samples - 1))
    values = np.maximum(values, 0.0)
    # The symmetric root: eigenvectors have other signs, or mix, on another machine.
    root = (np.sqrt(values) * vectors) @ vectors.T
    beyond = max(factor.samples - 1 - rank, 0)
    size_of_shift = math.sqrt(1.0 / factor.samples + 1.0 / scored)
    inside = np.empty((_NULL_DRAWS, rank, values.size))
    outside = np.empty(_NULL_DRAWS)
    shifts = np.empty((_NULL_DRAWS, values.size))
    for draw in range(_NULL_DRAWS):
        inside[draw] = rng.standard_normal((rank, values.size)) @ root
        # One χ² per eigendirection, twice a gamma variable; gamma(0) is 0.
        outside[draw] = np.sum(values * 2.0 * rng.standard_gamma(beyond / 2.0, values.size))
        shifts[draw] = size_of_shift * (root @ rng.standard_normal(values.size))
    return inside, outside, shifts
