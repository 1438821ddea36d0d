"""Power laws in the tail of a spectrum: maximum likelihood, uncertainty and goodness of fit.

Above x_min the density is p(x) ∝ x^−α; α̂ = 1 + k/Σ ln(x/x_min) from the k values there, with the
standard error (α̂−1)/√k. x_min is where the Kolmogorov–Smirnov distance between tail and fit is
smallest, and the p-value is the share of synthetic samples (body resampled, tail drawn from the
fit) that lie further from their own fit (Clauset, Shalizi and Newman, arXiv:0706.1062).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError

SMALLEST_TAIL = 10
_CANDIDATES = 64
_SYNTHETIC = 100


@dataclass(frozen=True)
class PowerLaw:
    """A fitted tail: exponent α ± its standard error, where it starts, how many values it holds.

    **Arguments:**

    - `exponent`, `error`: α and its standard error.
    - `start`, `tail`: x_min, and how many values lie above it.
    - `distance`: the Kolmogorov–Smirnov distance.
    - `p_value`: small where the tail is no power law; None if not asked for. It takes the values as
        independent, which eigenvalues are not: they repel each other, so a passed test is weak
        evidence and needs a null beside it.
    """

    exponent: float
    error: float
    start: float
    tail: int
    distance: float
    p_value: float | None = None

    @property
    def index(self) -> float:
        """γ = 1/(α−1), the mean logarithm of x/x_min: unlike α it has no long tail of its own."""
        return 1.0 / (self.exponent - 1.0)


def fit_power_law(values: Float[np.ndarray, " n"], *, test: bool = True, seed: int = 0) -> PowerLaw:
    """The best power-law tail of a sample.

    **Arguments:**

    - `values`: at least 10, positive.
    - `test`, `seed`: whether to compute the p-value, and its seed.

    **Returns:** `PowerLaw`. Cost: 64·n for the fit and 100 times that for the p-value, resolved to
    0.01.

    >>> x = (1.0 - np.random.default_rng(0).random(2000)) ** (-1 / 1.5)       # α = 2.5 from 1 on
    >>> law = fit_power_law(x)
    >>> bool(abs(law.exponent - 2.5) < 3 * law.error), bool(law.p_value > 0.1)
    (True, True)
    """
    x = np.sort(np.asarray(values, dtype=np.float64))
    if x.size < SMALLEST_TAIL or x[0] <= 0 or not np.isfinite(x[-1]):
        raise InvalidValueError(
            "values", f"{x.size} numbers", f"at least {SMALLEST_TAIL} positive, finite ones needed"
        )
    if x[0] == x[-1]:
        raise InvalidValueError("values", float(x[0]), "equal values have no tail")
    first, exponent, distance = _best(x)
    tail = x.size - first
    p_value = None
    if test:
        rng = np.random.default_rng(seed)
        further = sum(
            _best(_synthetic(x, first, exponent, rng))[2] >= distance for _ in range(_SYNTHETIC)
        )
        p_value = further / _SYNTHETIC
    error = (exponent - 1.0) / np.sqrt(tail)
    return PowerLaw(exponent, float(error), float(x[first]), tail, distance, p_value)


def _best(x: np.ndarray) -> tuple[int, float, float]:
    """Index of x_min, exponent and distance of the candidate closest to a power law."""
    n = x.size
    logs = np.log(x)
    beyond = np.cumsum(logs[::-1])[::-1]
    firsts = np.unique(np.linspace(0, n - SMALLEST_TAIL, _CANDIDATES).astype(int))
    firsts = firsts[logs[firsts] < logs[-1]]
    size = n - firsts
    slopes = size / np.maximum(beyond[firsts] - size * logs[firsts], 1e-300)  # α − 1
    index = np.arange(n)[None, :]
    above = index >= firsts[:, None]
    fitted = 1.0 - np.exp(-slopes[:, None] * np.maximum(logs[None, :] - logs[firsts][:, None], 0.0))
    rank = (index - firsts[:, None]) / size[:, None]
    step = 1.0 / size[:, None]
    gap = np.where(above, np.maximum(fitted - rank, rank + step - fitted), 0.0)
    distances = gap.max(axis=1)
    best = int(np.argmin(distances))
    return int(firsts[best]), float(1.0 + slopes[best]), float(distances[best])


def _synthetic(x: np.ndarray, first: int, exponent: float, rng: np.random.Generator) -> np.ndarray:
    """As many values: below x_min drawn from those seen, above from the fitted law."""
    n = x.size
    tail = int(rng.binomial(n, (n - first) / n))
    # A sample needs a tail to be fitted; below x_min there may be nothing to draw from.
    tail = n if first == 0 else max(tail, 1)
    drawn = x[first] * (1.0 - rng.random(tail)) ** (-1.0 / (exponent - 1.0))
    body = x[rng.integers(0, first, n - tail)] if first else np.zeros(0)
    return np.sort(np.concatenate([body, drawn]))
