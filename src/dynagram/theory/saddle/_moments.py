"""The row-moment hierarchy of two layers (Theorem 25): how moments of the rows move each other.

Rows w_i v of W_1, output weights a_i; while the output is small dw/dt = β a Σ_p p a_p h_p w^{p−1}
and da/dt = β Σ_p a_p h_p w^p, with σ(z) = Σ a_p z^p and h_p = E[σ(g) g^p]. So the moments
m_{p,r} = ⟨w^p a^r⟩ over the rows obey the linear hierarchy

    dm_{p,r}/dt = β Σ_j a_j h_j (p j m_{p+j−2, r+1} + r m_{p+j, r−1}),

which couples the degree p + r to itself (j = 1) and to higher ones (j > 1), never to lower ones:
it closes for linear σ only. The theorem supposes more than that: its matrix has decay rates on the
diagonal, non-negative couplings, and is irreducible and compact. This one is block triangular, its
block of degree n has the largest eigenvalue n λ_1, λ_1 = β h_σ α, so that truncations have Perron
roots λ_1 < 2 λ_1 < 3 λ_1 < … without a limit; and the mean of the rows, which escapes, grows with
λ_1 at every truncation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import ActivationLike, checked_activation, checked_number
from dynagram.theory.saddle._classes import HIGHEST_ORDER
from dynagram.theory.saddle._potential import taylor_drives
from dynagram.theory.saddle._stability import loop_gain
from dynagram.theory.saddle._symmetric import checked_count


@dataclass(frozen=True, eq=False)
class RowMoments:
    """dm/dt = J m for the moments ⟨w^p a^r⟩ of degree 1 to `degree`.

    **Arguments:**

    - `powers`: (p, r) of every row and column of J.
    - `matrix`: J, truncated: couplings to higher degrees are dropped.
    """

    powers: tuple[tuple[int, int], ...]
    matrix: Float[np.ndarray, "moments moments"]

    @property
    def degrees(self) -> Float[np.ndarray, " moments"]:
        """p + r."""
        return np.array([p + r for p, r in self.powers], dtype=np.float64)

    def root(self, degree: int) -> float:
        """λ_n: the largest real part of the spectrum of the truncation to `degree` and below."""
        kept = self.degrees <= degree
        return float(np.max(np.real(np.linalg.eigvals(self.matrix[np.ix_(kept, kept)]))))

    def moments(
        self, w: Float[np.ndarray, " rows"], a: Float[np.ndarray, " rows"]
    ) -> Float[np.ndarray, " moments"]:
        """m_{p,r} = ⟨w^p a^r⟩ of given rows."""
        return np.array([np.mean(w**p * a**r) for p, r in self.powers])


def row_moments(activation: ActivationLike, degree: int, beta: float = 1.0) -> RowMoments:
    """The hierarchy of row moments of a two-layer network, truncated at a degree.

    **Arguments:**

    - `activation`: σ with σ(0) = 0, without a kink at 0.
    - `degree`: the highest p + r kept, 1 to 8, the highest derivative of σ at hand.
    - `beta`: β > 0, the teacher's amplitude.

    **Returns:** `RowMoments`.

    >>> hierarchy = row_moments("tanh", 4)
    >>> [round(hierarchy.root(n) / hierarchy.root(1), 6) for n in (1, 2, 3, 4)]
    [1.0, 2.0, 3.0, 4.0]
    """
    sigma = checked_activation(activation)
    degree = checked_count("degree", degree)
    beta = checked_number("beta", beta, "must be > 0", positive=True)
    if degree > HIGHEST_ORDER:
        raise InvalidValueError("degree", degree, f"expected 1 to {HIGHEST_ORDER}")
    taylor, drives = taylor_drives(sigma, degree)
    if taylor[0] != 0.0 or len(sigma.kinks) or sigma.jumps:
        reason = "the hierarchy needs σ(0) = 0 and no kink"
        raise InvalidValueError("activation", sigma.name, reason)
    powers = [(n - r, r) for n in range(1, degree + 1) for r in range(n + 1)]
    place = {pair: index for index, pair in enumerate(powers)}
    J = np.zeros((len(powers), len(powers)))
    for (p, r), row in place.items():
        for j in range(1, degree + 1):
            drive = beta * taylor[j] * drives[j]
            for target, value in (((p + j - 2, r + 1), p * j), ((p + j, r - 1), r)):
                if target in place:
                    J[row, place[target]] += drive * value
    return RowMoments(tuple(powers), J)


def truncation_roots(
    A: Float[np.ndarray, " n"],
    B: Float[np.ndarray, "n m"],
    C: Float[np.ndarray, "m n"],
    D: Float[np.ndarray, " m"],
    sizes: Sequence[int],
) -> Float[np.ndarray, " truncations"]:
    """Perron roots of nested truncations of [[−A, B], [C, −D]] (61): non-decreasing.

    Strictly increasing where every truncation couples to what is added (Theorem 25), which is the
    case for B, C > 0.

    **Arguments:**

    - `A`, `D`: decay rates > 0, (n,) and (m,).
    - `B`, `C`: couplings ≥ 0, (n, m) and (m, n).
    - `sizes`: how many of the first rows of either part are kept, increasing, 1 to min(n, m).

    **Returns:** the largest eigenvalue of every truncation.

    >>> rng = np.random.default_rng(0)
    >>> B, C = rng.uniform(0.5, 1.0, (2, 5, 5)) / np.arange(1, 6) ** 2
    >>> roots = truncation_roots(np.ones(5), B, C, np.ones(5), [1, 2, 3, 4, 5])
    >>> bool(np.all(np.diff(roots) > 0))
    True
    """
    limit = min(len(A), len(D))
    if list(sizes) != sorted(set(sizes)) or not sizes or sizes[0] < 1 or sizes[-1] > limit:
        raise InvalidValueError("sizes", list(sizes), f"expected increasing numbers, 1 to {limit}")
    return np.array([loop_gain(A[:k], B[:k, :k], C[:k, :k], D[:k]).eigenvalue for k in sizes])
