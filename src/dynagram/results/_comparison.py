"""A prediction against a measurement: z-scores, worst entry, fraction within 3σ, χ² per entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from dynagram.errors import InvalidValueError
from dynagram.results._estimate import Estimate

# Two numbers without error bars agree when they do to this relative accuracy.
EXACT_AGREEMENT = 1e-9
# Errors and differences below this fraction of the numbers are rounding, not statistics.
_ROUNDING = 1e-14


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found, entry by entry (`z`, `exact`) and in summary.

    `exact` marks the entries without an error bar, which must agree to 1e-9 relative: z is 0
    where they do and ±∞ where they do not. `fraction_within_3` and `chi2_per_entry` are those of
    the other entries, 1 and 0 where there are none.
    """

    name: str
    z: Float[np.ndarray, "*shape"]
    exact: Bool[np.ndarray, "*shape"]
    worst_index: tuple[int, ...]
    worst_z: float
    fraction_within_3: float
    chi2_per_entry: float
    exact_mismatches: int

    @property
    def max_abs_z(self) -> float:
        """The largest |z|; ∞ when an entry without error bar disagrees."""
        return abs(self.worst_z)

    def ok(self, limit: float = 4.0) -> bool:
        """Whether every |z| is at most `limit` and every entry without error bar agrees."""
        return self.max_abs_z <= limit

    def __str__(self) -> str:
        label = f"{self.name}: " if self.name else ""
        place = f" at {self.worst_index}" if self.worst_index else ""
        exact = int(np.sum(self.exact))
        text = (
            f"{label}{self.z.size - exact} entries, worst z = {self.worst_z:+.2f}{place}, "
            f"{100.0 * self.fraction_within_3:.4g} % within 3σ, "
            f"χ²/entry = {self.chi2_per_entry:.2f}"
        )
        if exact == 0:
            return text
        agree = exact - self.exact_mismatches
        return f"{text}; {agree} of {exact} entries without error bar agree"


def compare(
    prediction: Float[np.ndarray, "*shape"] | float,
    estimate: Estimate,
    *,
    prediction_error: Float[np.ndarray, "*shape"] | float = 0.0,
    name: str = "",
) -> Comparison:
    """z = (measured − predicted)/error entrywise, with error² = s.e.² + `prediction_error`².

    To compare two measurements pass the value and the standard error of one of them as the
    prediction. Symmetric duplicates of an entry count as entries.

    >>> measured = Estimate(np.array([1.02, 0.49, 2.0]), np.array([0.01, 0.01, 0.0]), 1000)
    >>> result = compare(np.array([1.0, 0.5, 2.0]), measured, name="K")
    >>> print(result)
    K: 2 entries, worst z = +2.00 at (0,), 100 % within 3σ, χ²/entry = 2.50;
    1 of 1 entries without error bar agree
    >>> result.ok()
    True
    """
    predicted = np.asarray(prediction, dtype=np.float64)
    predicted_error = np.asarray(prediction_error, dtype=np.float64)
    value = np.asarray(estimate.value, dtype=np.float64)
    _check(predicted, predicted_error, value, estimate.standard_error)
    difference = value - predicted
    error = np.hypot(estimate.standard_error, predicted_error)
    size = np.maximum(np.abs(value), np.abs(predicted))
    exact = np.asarray(error <= _ROUNDING * size)
    # Entries that vanish by symmetry are left with the rounding of their neighbours' size.
    agree = np.abs(difference) <= EXACT_AGREEMENT * size + _ROUNDING * np.max(size)
    verdict = np.where(agree, 0.0, np.copysign(np.inf, difference))
    z = np.asarray(np.where(exact, verdict, difference / np.where(exact, 1.0, error)))
    worst = np.unravel_index(np.argmax(np.abs(z)), z.shape)
    noisy = z[~exact]
    return Comparison(
        name=name,
        z=z,
        exact=exact,
        worst_index=tuple(int(i) for i in worst),
        worst_z=float(z[worst]),
        fraction_within_3=float(np.mean(np.abs(noisy) <= 3.0)) if noisy.size else 1.0,
        chi2_per_entry=float(np.mean(noisy**2)) if noisy.size else 0.0,
        exact_mismatches=int(np.sum(exact & ~agree)),
    )


def _check(
    predicted: np.ndarray, predicted_error: np.ndarray, value: np.ndarray, error: np.ndarray
) -> None:
    if predicted.shape != value.shape:
        allowed = f"the estimate has shape {value.shape}"
        raise InvalidValueError("shape of prediction", predicted.shape, allowed)
    if predicted_error.shape not in ((), value.shape):
        allowed = f"expected a number or the shape {value.shape}"
        raise InvalidValueError("shape of prediction_error", predicted_error.shape, allowed)
    if value.size == 0:
        raise InvalidValueError("shape of estimate", value.shape, "at least one entry needed")
    named = {
        "prediction": predicted,
        "prediction_error": predicted_error,
        "estimate.value": value,
        "estimate.standard_error": error,
    }
    for label, numbers in named.items():
        if not np.all(np.isfinite(numbers)):
            bad = numbers[~np.isfinite(numbers)].ravel()[0]
            raise InvalidValueError(label, float(bad), "every entry must be finite")
        if label.endswith("error") and np.any(numbers < 0.0):
            raise InvalidValueError(label, float(np.min(numbers)), "an error must be ≥ 0")
