"""Activations nobody would use, made at random, and their Gaussian averages by brute force.

Every term says where it bends and over which length, so that the rules here are cut there; the
code under test is told nothing. Two rules of different fineness have to agree before a number is
called true.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

_GRADES = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 14.0, 20.0])


@dataclass(frozen=True)
class Term:
    """a·shape((z − c)/w), with its derivative written out by hand."""

    shape: str
    a: float
    c: float
    w: float

    def value(self, z: Any, xp: Any) -> Any:
        u = (z - self.c) / self.w
        return (
            self.a
            * {
                "bump": lambda: xp.exp(-u * u),
                "wave": lambda: xp.sin(u),
                "smooth step": lambda: xp.tanh(u),
                "step": lambda: xp.where(u > 0, 1.0 + 0.0 * u, 0.0 * u),
                "kink": lambda: self.w * xp.where(u > 0, u, 0.0 * u),
                "triangle": lambda: xp.where(xp.abs(u) < 1, 1 - xp.abs(u), 0.0 * u),
                "clipped": lambda: self.w * xp.clip(u, -1.0, 1.0),
            }[self.shape]()
        )

    def slope(self, z: np.ndarray) -> np.ndarray:
        u = (z - self.c) / self.w
        inside = np.abs(u) < 1
        return (self.a / self.w) * {
            "bump": lambda: -2 * u * np.exp(-u * u),
            "wave": lambda: np.cos(u),
            "smooth step": lambda: 1 - np.tanh(u) ** 2,
            "step": lambda: 0.0 * u,
            "kink": lambda: self.w * (u > 0),
            "triangle": lambda: -np.sign(u) * inside,
            "clipped": lambda: self.w * inside,
        }[self.shape]()

    @property
    def breaks(self) -> np.ndarray:
        """Where a rule has to be cut for this term."""
        if self.shape == "wave":
            return np.zeros(0)
        around = np.concatenate([-_GRADES, [0.0], _GRADES]) * self.w
        return self.c + (np.array([-self.w, 0.0, self.w]) if self.sharp else around)

    @property
    def sharp(self) -> bool:
        return self.shape in ("step", "kink", "triangle", "clipped")


@dataclass(frozen=True)
class MadeUp:
    """A sum of terms, callable by JAX."""

    terms: tuple[Term, ...]

    def __call__(self, z: Any) -> Any:
        return sum(term.value(z, jnp) for term in self.terms)

    def value(self, z: np.ndarray) -> np.ndarray:
        return sum(term.value(z, np) for term in self.terms)

    def slope(self, z: np.ndarray) -> np.ndarray:
        return sum(term.slope(z) for term in self.terms)

    @property
    def jumps(self) -> bool:
        return any(term.shape == "step" for term in self.terms)

    @property
    def shortest_wave(self) -> float:
        return min([term.w for term in self.terms if term.shape == "wave"], default=math.inf)

    @property
    def breaks(self) -> np.ndarray:
        return np.concatenate([term.breaks for term in self.terms])

    def rule(
        self, root: float, *, longest: float = 0.5, reach: float = 12.0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Nodes t and lengths for integrals over z = root·t, cut at the breaks."""
        edges = np.concatenate([self.breaks / root, np.arange(-reach, reach + 0.5, 0.5)])
        edges = np.unique(edges[np.abs(edges) <= reach])
        longest = min(longest, 2.0 * self.shortest_wave / root)
        pieces = [
            np.linspace(a, b, 1 + math.ceil((b - a) / longest))[:-1]
            for a, b in itertools.pairwise(edges)
        ]
        edges = np.append(np.concatenate(pieces), edges[-1])
        nodes, weights = np.polynomial.legendre.leggauss(16)
        middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
        t = (middle[:, None] + half[:, None] * nodes).reshape(-1)
        return t, (half[:, None] * weights).reshape(-1)


def make(rng: np.random.Generator, *, sharp: bool = True) -> MadeUp:
    """One to four terms on top of a common activation; without `sharp` ones it is smooth."""
    terms = [
        Term("smooth step", 1.0, 0.0, 1.0) if not sharp or rng.uniform() < 0.5
        else Term("kink", 1.0, 0.0, 1.0)
    ]  # fmt: skip
    shapes = ["bump", "wave", "smooth step"]
    shapes += ["step", "kink", "triangle", "clipped"] if sharp else []
    for _ in range(rng.integers(1, 5)):
        shape = str(rng.choice(shapes))
        w = float(np.exp(rng.uniform(math.log(0.01), math.log(1.0))))
        c = float(rng.normal(0.0, 1.5))
        if shape == "wave":
            w = max(w, 0.03)
        if shape == "clipped":
            w = float(np.exp(rng.uniform(math.log(0.05), math.log(40.0))))
        a = float(rng.normal(0.0, 1.0) * (0.3 if shape == "wave" else 0.7))
        terms.append(Term(shape, a, c, w))
    return MadeUp(tuple(terms))


def make_steep(rng: np.random.Generator, *, sharp: bool = True) -> MadeUp:
    """One or two spikes, steps or ramps on top of what `make` gives, up to 10⁴ times as steep."""
    terms = list(make(rng, sharp=sharp).terms)[:3]
    shapes = ["bump", "smooth step", "triangle"] if sharp else ["bump", "smooth step"]
    for _ in range(rng.integers(1, 3)):
        w = float(np.exp(rng.uniform(math.log(1e-4), math.log(1e-2))))
        a = float(rng.choice([-1.0, 1.0]) * np.exp(rng.uniform(0.0, math.log(100.0))))
        shape = str(rng.choice(shapes))
        terms.append(Term(shape, a, float(rng.normal(0.0, 1.0)), w))
    return MadeUp(tuple(terms))


def averages(
    sigma: MadeUp, root: float, functions: Sequence[Callable[[np.ndarray], np.ndarray]]
) -> np.ndarray:
    """⟨f(z)⟩ of every function, over z of standard deviation `root`; two rules have to agree."""
    results = []
    for longest in (0.5, 0.3):
        t, w = sigma.rule(root, longest=longest)
        w = w * np.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi)
        results.append(np.array([np.sum(w * f(root * t)) for f in functions]))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-11, atol=1e-12)
    return results[1]


def pair_averages(
    sigma: MadeUp,
    K: np.ndarray,
    functions: Sequence[tuple[Callable[..., np.ndarray], Callable[..., np.ndarray]]],
) -> np.ndarray:
    """⟨f(z_1) g(z_2)⟩ of every pair: breaks are parallel to the axes, as in a product rule."""
    roots = np.sqrt(np.diagonal(K))
    rho = K[0, 1] / (roots[0] * roots[1])
    spread = math.sqrt(1.0 - rho**2)
    results = []
    for longest in (1.5, 1.1):
        longest = min(0.5, longest * spread)
        (t, w), (u, v) = (sigma.rule(root, longest=longest, reach=9.0) for root in roots)
        quadratic = (
            t[:, None] ** 2 - 2 * rho * t[:, None] * u[None, :] + u[None, :] ** 2
        ) / spread**2
        density = np.exp(-0.5 * quadratic) / (2.0 * math.pi * spread)
        density *= w[:, None] * v[None, :]
        results.append(
            np.array([f(roots[0] * t) @ density @ g(roots[1] * u) for f, g in functions])
        )
    np.testing.assert_allclose(results[0], results[1], rtol=1e-10, atol=1e-11)
    return results[1]
