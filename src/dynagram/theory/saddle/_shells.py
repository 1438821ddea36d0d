"""The escape integral shell by shell (Lemma 19): how well each shell is a power of Y.

With sorted scales s_1 ≤ … ≤ s_L and Y = X_1², the integrand of (10) on [s_j², s_{j+1}²] is

    1/√(Y Π_{ℓ≥2}(Y + s_ℓ² − s_1²)) = (1 + E_j(Y)) / (Y^{j/2} Π_{i>j} s_i)                     (36)

The lemma bounds |E_j| by C L η², η the largest ratio of neighbouring scales, uniformly on the
shell. That fails at its edges: at Y = s_j² the factor √(Y + s_j² − s_1²) is √2 s_j, whatever η, so
E_j → 1/√2 − 1. In the middle of a wide shell E_j is small, and so is the error of its integral
where the shell is wide enough to be dominated by its middle; both are reported.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


@dataclass(frozen=True, eq=False)
class Shells:
    """The shells between neighbouring scales that differ, the last one up to `end`.

    **Arguments:**

    - `layers`: j of every shell: how many layers are below it.
    - `lower`, `upper`: its edges, in units of X_1 (√Y).
    - `edge_errors`: E_j at the two edges, (shells, 2).
    - `middle_error`: E_j at the geometric middle.
    - `exact`, `power`: the integral over dY of the shell, exactly and with E_j = 0.
    """

    layers: tuple[int, ...]
    lower: Float[np.ndarray, " shells"]
    upper: Float[np.ndarray, " shells"]
    edge_errors: Float[np.ndarray, "shells 2"]
    middle_error: Float[np.ndarray, " shells"]
    exact: Float[np.ndarray, " shells"]
    power: Float[np.ndarray, " shells"]

    @property
    def integral_errors(self) -> Float[np.ndarray, " shells"]:
        """power/exact − 1 of every shell's integral."""
        return self.power / self.exact - 1.0

    @property
    def shares(self) -> Float[np.ndarray, " shells"]:
        """What part of the escape time every shell takes."""
        return self.exact / self.exact.sum()


def escape_shells(scales: Sequence[float] | np.ndarray, end: float = 1.0) -> Shells:
    """The shells of the leading escape integral and the errors of their power laws (36).

    Σ `exact`/(2K) is the leading escape time (10) to X_1 = `end` of the sorted scales.

    **Arguments:**

    - `scales`: X_1 … X_L at the start, > 0; their order does not matter.
    - `end`: where the escape ends, above the smallest scale.

    **Returns:** `Shells`.

    >>> shells = escape_shells([0.001, 0.001, 0.001, 1.0])
    >>> shells.layers, shells.edge_errors.round(3).tolist()
    ((3,), [[0.0, -0.293]])
    >>> shells.integral_errors.round(6)
    array([0.000414])
    """
    s = np.sort(np.asarray(scales, dtype=np.float64))
    if s.ndim != 1 or s.size < 2 or not (np.all(np.isfinite(s)) and s[0] > 0):
        raise InvalidValueError("scales", list(scales), "at least two numbers > 0 needed")
    if not end > s[0]:
        raise InvalidValueError("end", end, f"must be above the smallest scale, {s[0]:g}")
    edges = [float(s[0])]
    for value in (*s[1:], end):
        if edges[-1] * (1 + 1e-9) < value <= end:
            edges.append(float(value))
    layers = [int(np.sum(s <= low * (1 + 1e-9))) for low in edges[:-1]]
    lower, upper = np.array(edges[:-1]), np.array(edges[1:])

    def exact(x: np.ndarray) -> np.ndarray:
        return 1.0 / (x * np.prod(np.sqrt(x[None, :] ** 2 + (s**2 - s[0] ** 2)[1:, None]), axis=0))

    def power(x: np.ndarray, j: int) -> np.ndarray:
        return x ** -float(j) / float(np.prod(s[j:]))

    edge, middle, integrals = [], [], []
    for j, low, high in zip(layers, lower, upper, strict=True):
        seen = np.array([low, high, math.sqrt(low * high)])
        error = exact(seen) / power(seen, j) - 1.0
        edge.append(error[:2])
        middle.append(error[2])
        integrals.append([_over(exact, low, high), _over(lambda x, j=j: power(x, j), low, high)])
    whole, simple = np.array(integrals).T
    return Shells(tuple(layers), lower, upper, np.array(edge), np.array(middle), whole, simple)


def _over(integrand: Callable[[np.ndarray], np.ndarray], low: float, high: float) -> float:
    """∫ dY of a function of x = √Y from low² to high², in log x."""
    edges = np.linspace(math.log(low), math.log(high), 2 + math.ceil(4 * math.log(high / low)))
    half = 0.5 * np.diff(edges)
    x = np.exp((0.5 * (edges[1:] + edges[:-1]))[:, None] + half[:, None] * _NODES[None, :])
    w = half[:, None] * _WEIGHTS[None, :] * 2.0 * x**2
    return float(np.sum(w * integrand(x.reshape(-1)).reshape(x.shape)))
