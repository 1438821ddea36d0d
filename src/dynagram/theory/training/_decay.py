"""How errors shrink with time, and the divided differences of that function.

D(r) is what is left of an error of rate r: (1 − ηr)^t after t steps of gradient descent, e^{−rτ} in
gradient flow, 0 (1 for r = 0) at the end. Every formula is made of its divided differences:
f(h) = [1 − D(h)]/h is −D[0, h], time sums of products of errors are −D[0, σ], and sums propagated
by a training direction are −D[h, σ]. None of them is computed as a quotient of differences where
rates are near each other. Derivation: docs/derivations/trained-outputs.md (D1.3), (D1.5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks._checks import checked_number
from dynagram.training import GradientDescent, GradientFlow, Training, TwoStep
from dynagram.training._schedule import check_steps

# Beyond this spread of rates times τ a difference of two exponentials loses no digits.
_FAR = 1.0
_TAYLOR_ORDER = 20


@dataclass(frozen=True)
class Decay:
    """D at one moment of gradient descent (`eta`, `steps`) or of gradient flow (`eta` = 0).

    `time` is τ = η·steps, ∞ at the end of training, which the two leaps of (∞.71), (∞.77) reach
    at once: `leaps`. Rates are those of the loss ½ Σ (z − y)².
    """

    eta: float
    steps: float | int
    time: float
    leaps: bool = False

    @classmethod
    def descent(cls, eta: float, steps: float | int) -> Decay:
        """After `steps` steps of size `eta`."""
        return cls(eta, steps, eta * steps)

    @classmethod
    def flow(cls, time: float) -> Decay:
        """At the time τ of gradient flow."""
        return cls(0.0, 0, time)

    @classmethod
    def of(cls, how: Training, moment: float | int, factor: float = 1.0) -> Decay:
        """At a moment of `how`: steps, or a time of flow; ∞ is the end.

        `factor` is how many times ½ Σ (z − y)² the loss is.

        >>> Decay.of(Training(GradientDescent(0.5)), 3)
        Decay(eta=0.5, steps=3, time=1.5, leaps=False)
        """
        at_end = moment == math.inf
        if isinstance(how.algorithm, GradientDescent):
            steps = math.inf if at_end else check_steps(moment)
            return cls.descent(factor * how.algorithm.eta, steps)
        if isinstance(how.algorithm, GradientFlow):
            time = math.inf if at_end else checked_number("time", moment, "a time must be ≥ 0")
            return cls.flow(factor * time)
        if isinstance(how.algorithm, TwoStep) and at_end:
            return cls(0.0, 0, math.inf, leaps=True)
        allowed = "two-step has no moments before its end"
        if not isinstance(how.algorithm, TwoStep):
            allowed = "expected gd, flow or two-step"
        raise InvalidValueError("algorithm", how.name, allowed)

    @property
    def at_end(self) -> bool:
        """Whether nothing changes any more."""
        return math.isinf(self.time)

    def __call__(self, *rates: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."]:
        """D(r), D[r₁, r₂] or D[r₁, r₂, r₃] of broadcast rates, all ≥ 0.

        >>> decay = Decay.flow(2.0)
        >>> decay(1.0).round(9).item(), decay(1.0, 1.0).round(9).item()       # e^{−rτ}, −τ e^{−rτ}
        (0.135335283, -0.270670566)
        >>> Decay.descent(0.5, 3)(0.0, 1.0).item()             # [(1 − ½)³ − 1]/1
        -0.875
        >>> Decay.flow(math.inf)(0.0, np.array([0.5, 2.0]))    # −1/h
        array([-2. , -0.5])
        """
        arrays = np.broadcast_arrays(*(np.asarray(rate, dtype=np.float64) for rate in rates))
        # Single numbers would leave the arithmetic as scalars, not as arrays.
        rows = [np.atleast_1d(array) for array in arrays]
        if self.at_end:
            values = _of_the_end(rows)
        else:
            values = self._of_steps(rows) if self.eta else self._of_time(rows)
        return values.reshape(arrays[0].shape)

    def gain(self, h: Float[np.ndarray, " direction"]) -> Float[np.ndarray, " direction"]:
        """f(h) = [1 − D(h)]/h for h > 0, without cancellation."""
        if self.at_end:
            return 1.0 / h
        if not self.eta:
            return -np.expm1(-self.time * h) / h
        # ηh may exceed 1, where the power alternates.
        slow = self.eta * h < 1.0
        small = -np.expm1(self.steps * np.log1p(np.where(slow, -self.eta * h, 0.0)))
        return np.where(slow, small, 1.0 - (1.0 - self.eta * h) ** self.steps) / h

    def _of_steps(self, rates: list[np.ndarray] | tuple[np.ndarray, ...]) -> np.ndarray:
        """The corner of D of the triangular matrix of rates: equal ones need no special care."""
        if len(rates) == 1:
            return np.asarray((1.0 - self.eta * rates[0]) ** self.steps)
        count = len(rates)
        matrix = np.zeros((*rates[0].shape, count, count))
        for place, rate in enumerate(rates):
            matrix[..., place, place] = 1.0 - self.eta * rate
            if place + 1 < count:
                matrix[..., place, place + 1] = -self.eta
        return np.linalg.matrix_power(matrix, int(self.steps))[..., 0, -1]

    def _of_time(self, rates: list[np.ndarray] | tuple[np.ndarray, ...]) -> np.ndarray:
        """Differences of e^{−rτ}, from the smallest rate on.

        SciPy's `expm` of the triangular matrix would do, one matrix at a time: there are N_A³ N.
        """
        first, *others = np.sort(np.stack(rates), axis=0) * self.time
        spread = [other - first for other in others]
        scale = np.exp(-first) * (-self.time) ** len(others)
        if not others:
            return scale
        return scale * (_mean_decay(*spread) if len(spread) == 1 else _mean_decay_of_two(*spread))


def _of_the_end(rates: list[np.ndarray] | tuple[np.ndarray, ...]) -> np.ndarray:
    """Divided differences of the function that is 1 at 0 and 0 elsewhere; one rate may be 0."""
    zero = np.sum([rate == 0.0 for rate in rates], axis=0)
    product = np.prod([np.where(rate == 0.0, 1.0, -rate) for rate in rates], axis=0)
    return np.where(zero == 1, 1.0 / product, np.where(zero == 0, 0.0, np.nan))


def _mean_decay(x: np.ndarray) -> np.ndarray:
    """(1 − e^{−x})/x, the mean of e^{−s} over 0 < s < x."""
    return np.where(x > 0.0, -np.expm1(-x) / np.where(x > 0.0, x, 1.0), 1.0)


def _mean_decay_of_two(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The second divided difference of e^{−s} at 0 ≤ u ≤ v."""
    far = v > _FAR
    wide = np.where(far, v, 1.0)
    quotient = (_mean_decay(u) - np.exp(-u) * _mean_decay(v - u)) / wide
    # Near each other: Σ (−1)^k h_k(u, v)/(k + 2)! with h_k = v h_{k−1} + u^k.
    u, v = np.where(far, 0.0, u), np.where(far, 0.0, v)
    series, polynomial, power = np.full_like(v, 0.5), np.ones_like(v), np.ones_like(v)
    for k in range(1, _TAYLOR_ORDER + 1):
        power = power * u
        polynomial = v * polynomial + power
        series = series + (-1.0) ** k / math.factorial(k + 2) * polynomial
    return np.where(far, quotient, series)
