"""How likely the linear path of a random network is too weak: q(W) = |W_L ⋯ W_1 v| near 0.

Theorem 11 supposes |q(W)| ≥ c ε^r at the start. For Gaussian weights of variance C_W/n_{m−1} the
path A_m = W_m A_{m−1} has gains |A_m|²/|A_{m−1}|² = (C_W/n_{m−1}) χ²_{n_m}, independent of each
other: q² is a product of independent χ², whatever the direction v, and its distribution is
exact at any width. E q² = Π_m C_W n_m/n_{m−1}. For a scalar output the last factor is χ²_1, and
P(|q| < x √E q²) → C x as x → 0 with C = √(2/π) Π_{m<L} √(n_m/2) Γ((n_m−1)/2)/Γ(n_m/2): the
anti-concentration constant, which the source leaves open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, checked_number
from dynagram.networks._checks import require_plain

_PANEL = 0.5
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


@dataclass(frozen=True)
class Degeneracy:
    """The linear path of a network drawn at random.

    **Arguments:**

    - `root_mean_square`: √E q².
    - `probability`: P(|q| < level √E q²).
    - `level`: as asked.
    - `constant`: C of the law P ≈ C level for small levels; None with several outputs, where the
        probability falls faster.
    """

    root_mean_square: float
    probability: float
    level: float
    constant: float | None


def path_degeneracy(network: MLP, level: float) -> Degeneracy:
    """The probability that the linear path of a drawn network is weaker than a level (Theorem 11).

    Scales of layers, such as ε in the first r, multiply q and drop out of the probability: they
    enter through C_W. The slope α of the activations is left out, as in the source.

    **Arguments:**

    - `network`: an `MLP` without skips, its weights Gaussian.
    - `level`: the level in units of √E q², > 0.

    **Returns:** a `Degeneracy`. Cost: one integral over the characteristic function of log q².

    >>> network = MLP([16, *[128] * 7, 1], "tanh", C_b=0.0, C_W=2.0)
    >>> found = path_degeneracy(network, 0.1)
    >>> round(found.probability, 4), round(found.constant * 0.1, 4)
    (0.083, 0.0831)
    """
    require_plain(network, "the linear path")
    level = checked_number("level", level, "must be > 0", positive=True)
    sizes, gains = network.widths, network.C_W
    if not all(gain > 0 for gain in gains):
        raise InvalidValueError("C_W", gains, "a path needs weights that vary")
    mean = math.prod(c * n / m for c, m, n in zip(gains, sizes[:-1], sizes[1:], strict=True))
    return Degeneracy(
        root_mean_square=math.sqrt(mean),
        probability=_below(sizes[1:], 2.0 * math.log(level)),
        level=level,
        constant=_constant(sizes[1:]) if sizes[-1] == 1 else None,
    )


def _below(freedoms: tuple[int, ...], x: float) -> float:
    """P(Σ_m log(χ²_{n_m}/n_m) < x), by the inversion formula of Gil-Pelaez."""
    from scipy.special import loggamma

    n = np.asarray(freedoms, dtype=np.float64)

    def integrand(t: np.ndarray) -> np.ndarray:
        # E exp(it log(χ²_n/n)) = (2/n)^{it} Γ(n/2 + it)/Γ(n/2)
        phase = 1j * t[None, :] * np.log(2.0 / n)[:, None]
        logs = phase + loggamma(0.5 * n[:, None] + 1j * t[None, :]) - loggamma(0.5 * n)[:, None]
        return np.imag(np.exp(logs.sum(axis=0) - 1j * t * x)) / t

    # |Γ(½ + it)| falls as exp(−πt/2), and every wide layer only helps.
    end = 24.0 / n.size + 24.0 * math.sqrt(1.0 / float(np.sum(1.0 / n)))
    width = min(_PANEL, 4.0 / (1.0 + abs(x)))
    edges = np.linspace(0.0, min(end, 60.0), math.ceil(min(end, 60.0) / width) + 1)
    half = 0.5 * np.diff(edges)
    t = (0.5 * (edges[1:] + edges[:-1]))[:, None] + half[:, None] * _NODES[None, :]
    w = half[:, None] * _WEIGHTS[None, :]
    total = float(np.sum(w.reshape(-1) * integrand(t.reshape(-1))))
    return min(1.0, max(0.0, 0.5 - total / math.pi))


def _constant(freedoms: tuple[int, ...]) -> float:
    """E over the other gains of the density of |q| at 0, in units of √E q²."""
    total = 0.5 * math.log(2.0 / math.pi)
    for n in freedoms[:-1]:
        if n == 1:
            return math.inf  # two factors χ²_1: the density diverges as a logarithm
        total += 0.5 * math.log(0.5 * n) + math.lgamma(0.5 * (n - 1)) - math.lgamma(0.5 * n)
    return math.exp(total)
