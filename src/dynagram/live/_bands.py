"""A measured number beside what it should be: its expected value, its band, how far off it is.

Mean squares and gradients are products of many factors, so their logarithm is what is nearly
normal; similarities are taken as artanh ρ. A band of 95 % holds ±1.96 standard deviations of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

THEORY = "theory"
MONTE_CARLO = "Monte Carlo"
FAMILY = 1e-4  # probability that a healthy network is called wrong, all its checks together
_INSIDE = 0.95


@dataclass(frozen=True)
class Band:
    """The distribution of a number between draws, after its transformation.

    **Arguments:**

    - `expected`: the mean of the number itself.
    - `centre`, `spread`: of its logarithm or artanh.
    - `degrees`: of freedom behind `spread`, None where it is known.
    - `source`: "theory" at order 1/n, or "Monte Carlo".
    - `signed`: whether it is a similarity.
    """

    expected: float
    centre: float
    spread: float
    degrees: int | None
    source: str
    signed: bool = False

    @property
    def low(self) -> float:
        """Below it are 2.5 % of all draws."""
        return self._back(-self._quantile(0.5 + _INSIDE / 2))

    @property
    def high(self) -> float:
        """Above it are 2.5 % of all draws."""
        return self._back(self._quantile(0.5 + _INSIDE / 2))

    def z(self, measured: float) -> float:
        """How many standard deviations of a normal distribution a number is off."""
        if not np.isfinite(measured) or (measured <= 0.0 and not self.signed):
            return float("inf") if not measured <= 0.0 else float("-inf")
        off = _transform(measured, self.signed) - self.centre
        if self.spread == 0.0:
            return 0.0 if abs(off) < 1e-9 else float(np.copysign(np.inf, off))
        t = off / self.spread
        if self.degrees is None:
            return float(t)
        tail = float(stats.t.logsf(abs(t), self.degrees))
        return float(np.copysign(_from_log_tail(tail), t))

    def _quantile(self, p: float) -> float:
        return float(stats.norm.ppf(p) if self.degrees is None else stats.t.ppf(p, self.degrees))

    def _back(self, t: float) -> float:
        value = self.centre + t * self.spread
        return float(np.tanh(value)) if self.signed else float(np.exp(value))


def _from_log_tail(log_tail: float) -> float:
    """z of a normal distribution with this tail; far out by its leading term."""
    if log_tail > -600:
        return float(-stats.norm.ppf(np.exp(log_tail)))
    return float(np.sqrt(-2.0 * log_tail))


def _transform(value: Any, signed: bool) -> Any:
    if signed:
        return np.arctanh(np.clip(value, -1 + 1e-15, 1 - 1e-15))
    return np.log(value)


def band_of_theory(mean: float, std: float, *, signed: bool = False) -> Band:
    """The band of a number with this mean and standard deviation.

    >>> band = band_of_theory(1.0, 0.1)
    >>> round(band.low, 3), round(band.high, 3), round(band.z(1.2), 2)
    (0.818, 1.209, 1.88)
    """
    if signed:
        slope = max(1.0 - mean**2, 1e-12)
        return Band(mean, float(_transform(mean, True)), std / slope, None, THEORY, True)
    variance = float(np.log1p((std / mean) ** 2))
    return Band(mean, float(np.log(mean) - variance / 2), variance**0.5, None, THEORY)


def band_of_draws(draws: np.ndarray, *, signed: bool = False) -> Band | None:
    """The band of the next draw, from others; None where they are no positive numbers."""
    if not np.all(np.isfinite(draws)) or (not signed and np.any(draws <= 0.0)):
        return None
    values, count = _transform(draws, signed), len(draws)
    spread = float(values.std(ddof=1)) * (1.0 + 1.0 / count) ** 0.5
    return Band(float(draws.mean()), float(values.mean()), spread, count - 1, MONTE_CARLO, signed)


def family_threshold(checks: int) -> float:
    """|z| beyond which one of so many checks makes a network wrong.

    >>> round(family_threshold(1), 2), round(family_threshold(100), 2)
    (3.89, 4.89)
    """
    return float(-stats.norm.ppf(FAMILY / (2.0 * max(checks, 1))))
