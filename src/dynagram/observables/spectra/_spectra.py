"""The spectrum of WᵀW, judged against untrained weights: random, with spikes, or heavy-tailed.

A power law can be fitted to any spectrum. It is called heavy-tailed only if the spectrum is not
Marchenko–Pastur with a few spikes (judged by the distance of exactly drawn Gaussian spectra of
this size, which is far smaller than for independent numbers), the fitted law is not rejected, its
γ = 1/(α−1) is beyond what the same fit gives on Gaussian spectra, and it spans a factor of 3.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from dynagram.errors import NonFiniteError
from dynagram.observables._nulls import Null
from dynagram.observables.gram._gram import effective_rank, unfold_weights
from dynagram.observables.spectra._power_law import PowerLaw, fit_power_law
from dynagram.observables.spectra._random_matrices import (
    gaussian_eigenvalues,
    marchenko_pastur_distribution,
    marchenko_pastur_edges,
    marchenko_pastur_median,
)

Verdict = Literal["random", "spikes", "heavy-tailed", "neither", "too small"]

# Below this many eigenvalues no tail can be told from an edge.
SMALLEST_SPECTRUM = 32
_DRAWS = 40
# Draws for the null are at most this large, with the same ratio of sizes. Distances and spreads
# fall with size, so that a larger layer is judged leniently.
_LARGEST_DRAW = 512
# In deviations of the logarithm: distances of random spectra are skewed, up to 4 in 200 draws.
_NOT_RANDOM = 5.0
_BEYOND_EDGE = 5.0
_STEEPER = 3.0
_SMALLEST_SPAN = 3.0
_LARGEST_SHARE_OF_SPIKES = 0.25


@dataclass(frozen=True, eq=False)
class WeightSpectrum:
    """The eigenvalues of WᵀW with fits and a verdict.

    **Arguments:**

    - `eigenvalues`: of WᵀW, ascending, without those that are zero by shape.
    - `effective_rank`: (Σλ)²/Σλ².
    - `verdict`: "random", "spikes", "heavy-tailed", "neither" or "too small".
    - `bulk_variance`: the variance of the entries that puts the median where Marchenko–Pastur has
        it.
    - `edge`, `spikes`: the upper end of that law; the eigenvalues beyond it and its fluctuations.
    - `distance`, `distance_null`: Kolmogorov–Smirnov distance of the others from the law; that of
        Gaussian weights.
    - `tail`: the power law.
    - `index_null`: the γ = 1/(α−1) that the fit gives for Gaussian weights.

    The fits are None where the spectrum is too small or degenerate.
    """

    eigenvalues: Float[np.ndarray, " k"]
    effective_rank: float
    verdict: Verdict
    bulk_variance: float | None = None
    edge: float | None = None
    spikes: int | None = None
    distance: float | None = None
    distance_null: Null | None = None
    tail: PowerLaw | None = None
    index_null: Null | None = None

    @property
    def random_exponent(self) -> float | None:
        """The α that untrained weights of this shape give."""
        return None if self.index_null is None else 1.0 + 1.0 / self.index_null.mean

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        return _WORDS[self.verdict]


_WORDS: dict[Verdict, str] = {
    "random": "cannot be told from random weights",
    "spikes": "random bulk with eigenvalues above it",
    "heavy-tailed": "heavy-tailed: a power law that random weights do not have",
    "neither": "not random, but no power law either",
    "too small": "too few eigenvalues to judge",
}


def weight_spectrum(W: Float[np.ndarray, "n_out ..."], *, seed: int = 0) -> WeightSpectrum:
    """Eigenvalues of WᵀW with effective rank, Marchenko–Pastur and power-law fits, and a verdict.

    **Arguments:**

    - `W`: (n_out, n_in), or a convolution, which is unfolded.
    - `seed`: of the nulls, 40 exactly drawn Gaussian spectra, cached by shape.

    **Returns:** `WeightSpectrum`. Cost: the SVD of W, and for a new shape 40 tridiagonal eigenvalue
    problems (0.3 s at 512).

    >>> rng = np.random.default_rng(0)
    >>> untrained = rng.normal(size=(200, 100))
    >>> weight_spectrum(untrained).verdict
    'random'
    >>> spiked = untrained + 3.0 * np.outer(rng.normal(size=200), rng.normal(size=100))
    >>> found = weight_spectrum(spiked)
    >>> found.verdict, found.spikes
    ('spikes', 1)
    >>> weight_spectrum(rng.standard_t(1.5, size=(200, 100))).verdict
    'heavy-tailed'
    """
    matrix = unfold_weights(W)
    if not np.all(np.isfinite(matrix)):
        raise NonFiniteError("the weights are not finite: the run that made them diverged")
    eigenvalues = np.linalg.svd(matrix, compute_uv=False)[::-1] ** 2
    rank = effective_rank(eigenvalues)
    small, large = sorted(matrix.shape)
    if small < SMALLEST_SPECTRUM:
        return WeightSpectrum(eigenvalues, rank, "too small")
    ratio = small / large
    scale = float(np.median(eigenvalues)) / marchenko_pastur_median(ratio)
    positive = eigenvalues[eigenvalues > 1e-12 * eigenvalues[-1]]
    if scale <= 0 or positive.size < SMALLEST_SPECTRUM or positive[0] > 0.999 * positive[-1]:
        return WeightSpectrum(eigenvalues, rank, "neither")  # half of it zero, or all equal
    null = _null((small, large), seed)
    spikes, scale = _spikes(eigenvalues, (small, large), null)
    ratio = (small - spikes) / large
    distance = _distance(eigenvalues[: small - spikes] / scale, ratio)
    law = fit_power_law(positive, seed=seed)
    is_random = (
        math.log(distance) < null.log_distance.mean + _NOT_RANDOM * null.log_distance.deviation
    )
    if is_random and spikes <= _LARGEST_SHARE_OF_SPIKES * small:
        verdict: Verdict = "spikes" if spikes else "random"
    else:
        verdict = "heavy-tailed" if _is_heavy(law, positive, null) else "neither"
    return WeightSpectrum(
        eigenvalues=eigenvalues,
        effective_rank=rank,
        verdict=verdict,
        bulk_variance=scale / large,
        edge=marchenko_pastur_edges(ratio)[1] * scale,
        spikes=spikes,
        distance=distance,
        distance_null=null.distance,
        tail=law,
        index_null=null.index,
    )


def _spikes(values: np.ndarray, sizes: tuple[int, int], null: _Nulls) -> tuple[int, float]:
    """How many eigenvalues lie beyond the bulk's edge, and the bulk's scale N s².

    Spikes shift the median of the rest: they are taken off until their number stays.
    """
    small, large = sizes
    spikes, scale = 0, 0.0
    for _ in range(small):
        ratio = (small - spikes) / large
        rest = values[: small - spikes]
        scale = float(np.median(rest)) / marchenko_pastur_median(ratio)
        edge = marchenko_pastur_edges(small / large)[1]
        limit = max(null.largest.mean + _BEYOND_EDGE * null.largest.deviation, edge)
        found = int(np.sum(values / scale > limit))
        if found <= spikes or found > small // 2:
            break
        spikes = found
    return spikes, scale


def _is_heavy(law: PowerLaw, values: np.ndarray, null: _Nulls) -> bool:
    return (
        law.p_value is not None
        and law.p_value >= 0.1
        and null.index.score(law.index) > _STEEPER
        and float(values[-1]) / law.start >= _SMALLEST_SPAN
    )


def _distance(scaled: np.ndarray, ratio: float) -> float:
    """Kolmogorov–Smirnov distance from the law, of ascending values at unit variance."""
    expected = marchenko_pastur_distribution(scaled, ratio)
    rank = np.arange(scaled.size) / scaled.size
    return float(np.max(np.maximum(expected - rank, rank + 1.0 / scaled.size - expected)))


@dataclass(frozen=True)
class _Nulls:
    """Of Gaussian weights at the scale of the median: distance from the law, its logarithm, the
    largest eigenvalue, and the fitted γ."""

    distance: Null
    log_distance: Null
    largest: Null
    index: Null


def random_tail_index(sizes: tuple[int, int]) -> Null:
    """The γ = 1/(α−1) that `fit_power_law` gives for Gaussian weights of these sizes, in any order.

    >>> bool(0.1 < random_tail_index((64, 128)).mean < 0.6)
    True
    """
    small, large = sorted(sizes)
    return _null((small, large), 0).index


@functools.lru_cache(maxsize=64)
def _null(sizes: tuple[int, int], seed: int) -> _Nulls:
    small, large = sizes
    shrink = min(1.0, _LARGEST_DRAW / small)
    ratio = small / large
    median = marchenko_pastur_median(ratio)
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(_DRAWS):
        values = gaussian_eigenvalues((round(large * shrink), round(small * shrink)), rng)
        values = values * (median / float(np.median(values)))
        distance = _distance(values, ratio)
        index = fit_power_law(values, test=False).index
        rows.append((distance, math.log(distance), float(values[-1]), index))
    columns = np.array(rows).T
    return _Nulls(*(Null(float(np.mean(c)), float(np.std(c, ddof=1))) for c in columns))
