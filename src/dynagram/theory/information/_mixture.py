"""Exact entropy and information of neurons that share a random variance: Gaussian scale mixtures.

One input, a plain layer (or the output of a residual network): given Ĝ the neurons are N(0, Ĝ).
Their joint density depends on |z| only, so entropies are integrals over a radius. With q the
Gaussian of the same mean variance, S = (m/2) log 2πeG − KL(p‖q), and the integrand of KL is
positive: no digits are lost at small x.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.results._estimate import Estimate

_STEP = 0.02  # of the radius, logarithmic: the trapezoid rule is exact to rounding
_NEGLIGIBLE = 46.0  # e^-46 = 1e-20
_CHUNK = 2**20


@dataclass(frozen=True, eq=False)
class ScaleMixture:
    """A distribution of Ĝ as `values` with `weights` that add up to 1.

    **Arguments:**

    - `values`: variances > 0, the places of the distribution.
    - `weights`: their probabilities ≥ 0, of the same shape.

    >>> exact = ScaleMixture.lognormal(4 / 26)
    >>> round(exact.mutual_information(1, 1), 6)
    0.001791
    """

    values: Float[np.ndarray, " node"]
    weights: Float[np.ndarray, " node"]

    def __post_init__(self) -> None:
        good = np.all(np.isfinite(self.values)) and np.all(self.values > 0.0)
        if self.values.shape != self.weights.shape or not good or np.any(self.weights < 0.0):
            raise InvalidValueError("values", self.values.shape, "expected variances > 0, weighted")
        if abs(float(np.sum(self.weights)) - 1.0) > 1e-9:
            raise InvalidValueError("sum of weights", float(np.sum(self.weights)), "expected 1")

    @classmethod
    def lognormal(cls, x: float, *, G: float = 1.0) -> ScaleMixture:
        """Mean G, relative variance x: deep scale-invariant networks, whose Ĝ is a product."""
        _check_variance(x)
        spread = math.log1p(x)
        u = np.arange(-90, 91) * 0.1
        weights = np.exp(-0.5 * u * u)
        values = np.exp(math.sqrt(spread) * u - 0.5 * spread)
        return cls._normalised(G * values, weights)

    @classmethod
    def gamma(cls, x: float, *, G: float = 1.0) -> ScaleMixture:
        """Shape 1/x, mean G: exact for one hidden layer of n = 2/x linear neurons."""
        _check_variance(x)
        y, log_weights = _gamma_grid(1.0 / x, 1.0 / x)
        return cls._normalised(G * np.exp(y), np.exp(log_weights - log_weights.max()))

    @classmethod
    def inverse_gamma(cls, x: float, *, G: float = 1.0) -> ScaleMixture:
        """1/Ĝ gamma-distributed with shape 2 + 1/x, mean G: a Student density for the neurons."""
        _check_variance(x)
        shape = 2.0 + 1.0 / x
        # The second moment of Ĝ falls as slowly as e^{y/x}.
        y, log_weights = _gamma_grid(shape, 1.0 / x)
        values = G * (shape - 1.0) / shape * np.exp(-y)
        return cls._normalised(values, np.exp(log_weights - log_weights.max()))

    @classmethod
    def two_point(cls, x: float, *, G: float = 1.0) -> ScaleMixture:
        """G(1 ± √x) with equal weights, x < 1."""
        _check_variance(x)
        if x >= 1.0:
            raise InvalidValueError("x", x, "two equal points have x < 1")
        root = math.sqrt(x)
        return cls(G * np.array([1.0 - root, 1.0 + root]), np.array([0.5, 0.5]))

    @classmethod
    def _normalised(cls, values: np.ndarray, weights: np.ndarray) -> ScaleMixture:
        keep = weights > 1e-100 * weights.max()
        return cls(values[keep], weights[keep] / np.sum(weights[keep]))

    @property
    def mean(self) -> float:
        """G = E Ĝ."""
        return float(self.weights @ self.values)

    @property
    def relative_variance(self) -> float:
        """x = Var Ĝ/G²."""
        return float(self.weights @ (self.values / self.mean - 1.0) ** 2)

    def entropy(self, neurons: int) -> float:
        """S of `neurons` neurons, in nats.

        >>> round(ScaleMixture.two_point(1e-12).entropy(1), 9)     # ½ log 2πe
        1.418938533
        """
        gaussian = 0.5 * neurons * math.log(2.0 * math.pi * math.e * self.mean)
        return gaussian - self.divergence(neurons)

    def mutual_information(self, first: int, second: int) -> float:
        """I between two groups of neurons: monotone in x, with no maximum.

        >>> round(ScaleMixture.gamma(0.01).mutual_information(1, 1), 9)
        1.1995e-05
        """
        together = self.divergence(first + second)
        return together - self.divergence(first) - self.divergence(second)

    def tripartite_information(self, first: int, second: int, third: int) -> float:
        """I_3 of three groups (A.24): positive, what they know is redundant."""
        sizes = (first, second, third)
        pairs = sum(self.divergence(sum(sizes) - size) for size in sizes)
        return pairs - sum(map(self.divergence, sizes)) - self.divergence(sum(sizes))

    def divergence(self, neurons: int) -> float:
        """KL(p‖q) from the Gaussian of the same variance, ≈ (m² + 2m)/16 x².

        Cost: a few thousand radii times the nodes of the mixture.
        """
        if neurons < 1:
            raise InvalidValueError("neurons", neurons, "expected at least one neuron")
        g, m = self.values / self.mean, neurons
        low = 0.5 * math.log(min(1.0, float(g.min()))) - _NEGLIGIBLE / m
        high = 0.5 * math.log(max(1.0, float(g.max())) * (2.0 * _NEGLIGIBLE + 4.0 * m))
        y = np.arange(low, high + _STEP, _STEP)
        measure = math.log(2.0) - 0.5 * m * math.log(2.0) - math.lgamma(0.5 * m) + m * y
        rows = max(1, _CHUNK // g.size)
        total = 0.0
        for start in range(0, y.size, rows):
            part = slice(start, start + rows)
            half = 0.5 * np.exp(2.0 * y[part])
            total += float(np.sum(self._integrand(g, m, half, measure[part])))
        return _STEP * total

    def _integrand(
        self, g: np.ndarray, m: int, half: np.ndarray, measure: np.ndarray
    ) -> np.ndarray:
        """p log(p/q) − p + q at r²/2 = `half`, p = Σ w g^{−m/2} e^{−r²/2g} times e^`measure`."""
        exponent = -0.5 * m * np.log(g) - half[:, None] / g
        largest = exponent.max(axis=1)
        log_p = largest + np.log(np.exp(exponent - largest[:, None]) @ self.weights)
        log_ratio = log_p + half
        q = np.exp(measure - half)
        small = np.abs(log_ratio) < 0.3
        # Where p and q nearly agree, their difference is summed as such.
        delta = np.zeros_like(half)
        near = np.minimum(exponent[small] + half[small, None], 30.0)
        delta[small] = np.expm1(near) @ self.weights
        close = q * ((1.0 + delta) * np.log1p(delta) - delta)
        away = np.exp(measure + log_p) * (log_ratio - 1.0) + q
        return np.where(small, close, away)


def sampled_information(
    metrics: Float[np.ndarray, " member"], *, first: int, second: int, batches: int = 16
) -> Estimate:
    """I between neurons of a real layer from samples of its Ĝ, with a delete-one-batch error.

    The mixture over the samples is used as it is; its bias is below the standard error.

    **Arguments:**

    - `metrics`: samples of Ĝ, one per network; at least four per batch.
    - `first`, `second`: m_1 and m_2, the sizes of the two groups of neurons.
    - `batches`: into how many parts the samples are split for the error.

    **Returns:** an `Estimate` of I in nats.

    >>> metrics = np.random.default_rng(0).gamma(50.0, 0.02, size=1000)      # x = 0.02
    >>> found = sampled_information(metrics, first=1, second=1, batches=8)
    >>> bool(abs(found.value - 4.6e-5) < 3 * found.standard_error)
    True
    """
    if metrics.size < 4 * batches:
        raise InvalidValueError("number of metrics", metrics.size, f"at least {4 * batches} needed")

    def information(values: np.ndarray) -> float:
        mixture = ScaleMixture(values, np.full(values.size, 1.0 / values.size))
        return mixture.mutual_information(first, second)

    parts = np.array_split(np.arange(metrics.size), batches)
    without = np.array([information(np.delete(metrics, part)) for part in parts])
    error = math.sqrt((batches - 1) * float(np.mean((without - without.mean()) ** 2)))
    return Estimate(np.array(information(metrics)), np.array(error), int(metrics.size))


def _check_variance(x: float) -> None:
    if not (math.isfinite(x) and x > 0.0):
        raise InvalidValueError("x", x, "the relative variance must be > 0")


def _gamma_grid(shape: float, slowest: float) -> tuple[np.ndarray, np.ndarray]:
    """y = log g and the logarithm of its density's weights, g of mean 1 with this shape.

    `slowest` is the rate at which what is averaged falls towards y → −∞.
    """
    width = 1.0 / math.sqrt(shape)
    y = np.arange(-12.0 * width - _NEGLIGIBLE / slowest, min(12.0 * width, 5.0), 0.1 * width)
    return y, shape * (y - np.expm1(y))
