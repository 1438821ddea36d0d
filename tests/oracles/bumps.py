"""Sums of Gaussian bumps, however narrow: every average and every tensor to any number of digits.

A bump e^{−((z − c)/w)²} is √π w times the density of a normal variable of variance w²/2 at c − z.
So an average of a product of bumps is the density at the centres of a Gaussian whose covariance is
that of the samples plus w²/2 on the diagonal. A derivative of a factor is one, with the other sign,
in its centre. All in mpmath: nothing that cancels matters.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import jaxtyping
import mpmath
import numpy as np
from mpmath import mpf

from dynagram import MLP, activation
from dynagram._pairs import pair_indices
from dynagram.gaussian._families import PairFamily
from dynagram.results._letters import closure
from dynagram.theory._recursions import _advance, _at_first_layer, written_out

_DIGITS = 60


@dataclass(frozen=True)
class Bumps:
    """Σ h e^{−((z − c)/w)²}, `terms` holding (h, c, w); callable by JAX."""

    terms: tuple[tuple[float, float, float], ...]

    def __call__(self, z: Any) -> Any:
        return sum(h * jnp.exp(-(((z - c) / w) ** 2)) for h, c, w in self.terms)

    def average(self, K: np.ndarray, slots: Sequence[tuple[int, int]]) -> mpf:
        """⟨Π σ^(p)(z_a)⟩ over N(0, K) for the (a, p) in `slots`; K of mpmath's numbers."""
        total = mpf(0)
        for chosen in itertools.product(self.terms, repeat=len(slots)):
            size = len(slots)
            covariance = mpmath.matrix(size, size)
            for i, j in itertools.product(range(size), repeat=2):
                covariance[i, j] = K[slots[i][0], slots[j][0]]
            factor = mpf((-1) ** sum(p for _, p in slots))
            for i, (h, _, w) in enumerate(chosen):
                covariance[i, i] += mpf(w) ** 2 / 2
                factor *= mpf(h) * mpmath.sqrt(mpmath.pi) * mpf(w)
            centres = [mpf(c) for _, c, _ in chosen]
            total += factor * _density(covariance, centres, tuple(p for _, p in slots))
        return total


def _density(covariance: Any, at: list[mpf], orders: tuple[int, ...]) -> mpf:
    """A derivative of the density of N(0, covariance), whose inverse is Q.

    ∂_i ∂^β p = −Σ_j Q_ij (c_j ∂^β + β_j ∂^{β−j}) p, by the rule for products.
    """
    inverse, size = covariance**-1, len(at)
    square = sum(at[i] * inverse[i, j] * at[j] for i in range(size) for j in range(size))
    norm = mpmath.sqrt((2 * mpmath.pi) ** size * mpmath.det(covariance))

    @functools.cache
    def derivative(beta: tuple[int, ...]) -> mpf:
        i = next((i for i, order in enumerate(beta) if order), None)
        if i is None:
            return mpmath.exp(-square / 2) / norm
        rest = _lower(beta, i)
        total = mpf(0)
        for j in range(size):
            inner = at[j] * derivative(rest)
            if rest[j]:
                inner += rest[j] * derivative(_lower(rest, j))
            total -= inverse[i, j] * inner
        return total

    return derivative(orders)


def _lower(beta: tuple[int, ...], i: int) -> tuple[int, ...]:
    return (*beta[:i], beta[i] - 1, *beta[i + 1 :])


class _Averages:
    """Stands for `TwoPoint` in the recursions, and gives what else a `Step` holds."""

    def __init__(self, sigma: Bumps, K: np.ndarray):
        self.function, self.K, self.samples = sigma, K, K.shape[0]
        self.sigma = activation("tanh")  # says only that σ is smooth
        self._known: dict[tuple[tuple[int, int], ...], mpf] = {}

    def of(self, *slots: tuple[int, int]) -> mpf:
        key = tuple(sorted(slots))
        if key not in self._known:
            self._known[key] = self.function.average(self.K, key)
        return self._known[key]

    def __call__(self, p: int, q: int) -> np.ndarray:
        samples = range(self.samples)
        return _objects([[self.of((a, p), (b, q)) for b in samples] for a in samples])

    def on_ray(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(a == b, 1.0, np.nan)

    def pairs(self, p: int, q: int) -> list[tuple[int, int]]:
        every = pair_indices(self.samples) if p == q else np.indices([self.samples] * 2)
        return [*zip(*(index.reshape(-1).tolist() for index in every), strict=True)]

    @functools.cache  # noqa: B019
    def family(self, p: int, q: int) -> PairFamily:
        pairs, linear, jacobian = self.pairs(p, q), [], []
        for a, b in pairs:
            first = [self.of((a, p + 1), (b, q)), self.of((a, p), (b, q + 1))]
            second = [self.of((a, p + 1), (b, q + 1)), self.of((a, p + 2), (b, q)) / 2,
                      self.of((a, p), (b, q + 2)) / 2]  # fmt: skip
            linear.append([sum(first), mpf(0)] if a == b else first)
            jacobian.append([mpf(0), sum(second), mpf(0)] if a == b else second)
        first, second = (np.array(index) for index in zip(*pairs, strict=True))
        value = _objects([self.of((a, p), (b, q)) for a, b in pairs])
        return PairFamily(p, q, first, second, value, _objects(linear), _objects(jacobian))

    def covariance(self, p: int, q: int, r: int, s: int) -> np.ndarray:
        rows = []
        for a, b in self.pairs(p, q):
            slots = [((a, p), (b, q), (c, r), (d, s)) for c, d in self.pairs(r, s)]
            rows.append(
                [self.of(*four) - self.of(*four[:2]) * self.of(*four[2:]) for four in slots]
            )
        return _objects([rows])

    def average(self, p: int, q: int, r: int, s: int) -> np.ndarray:
        samples = range(self.samples)
        return _objects([[[[[self.of((a, p), (b, q), (c, r), (d, s)) for d in samples]
                            for c in samples] for b in samples] for a in samples]])  # fmt: skip


@dataclass
class _Step:
    """What `theory._layer.Step` is, of mpmath's numbers."""

    averages: _Averages
    Theta: np.ndarray
    C_W: mpf
    lambda_W: mpf
    ratio: mpf

    def __post_init__(self):
        self.two, self.family = self.averages, self.averages.family
        self.covariance, self.average = self.averages.covariance, self.averages.average
        self.four = None


def exact_tensors(
    network: MLP, sigma: Bumps, x: np.ndarray, letters: Sequence[str]
) -> dict[str, np.ndarray]:
    """K, Θ and the tensors `letters` of all layers for distinct inputs, rounded at the very end.

    The recursions are those of the package, the averages and all of the arithmetic are not.
    """
    with mpmath.workdps(_DIGITS), _any_number():
        inputs = _objects(x.tolist())
        gram = np.einsum("ai,bi->ab", inputs, inputs) / mpf(x.shape[1])
        C_b, C_W, lambda_b, lambda_W = (
            [mpf(float(v)) for v in values]
            for values in (network.C_b, network.C_W, network.lambda_b, network.lambda_W)
        )
        K, Theta = C_b[0] + C_W[0] * gram, lambda_b[0] + lambda_W[0] * gram
        names = closure(tuple(letters))
        state = {name: values[:1].astype(object) * mpf(0)
                 for name, values in _at_first_layer(names, len(x), 1, False).items()}  # fmt: skip
        found: dict[str, list[np.ndarray]] = {name: [] for name in ("K", "Theta", *letters)}
        for layer in range(network.depth):
            for name, value in (("K", K), ("Theta", Theta)):
                found[name].append(value.astype(np.float64))
            for name in letters:
                value = state[name].astype(np.float64)[None]
                found[name].append(written_out(name, value, np.arange(len(x)))[0, 0])
            if layer + 1 == network.depth:
                break
            averages = _Averages(sigma, K)
            widths = network.widths
            ratio = mpf(widths[layer + 1]) / widths[layer] if layer else mpf(0)
            _advance(_Step(averages, Theta, C_W[layer + 1], lambda_W[layer + 1], ratio), state)
            slopes, values = averages(1, 1), averages(0, 0)
            Theta = (
                lambda_b[layer + 1] + lambda_W[layer + 1] * values + C_W[layer + 1] * slopes * Theta
            )
            K = C_b[layer + 1] + C_W[layer + 1] * values
        return {name: np.stack(values) for name, values in found.items()}


@contextlib.contextmanager
def _any_number() -> Iterator[None]:
    """The recursions take mpmath's numbers, which their annotations do not."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def _objects(values: Any) -> np.ndarray:
    """An array of mpmath's numbers."""
    array = np.array(values, dtype=object)
    return np.vectorize(mpf, otypes=[object])(array)
