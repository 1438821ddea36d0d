"""What one step ℓ → ℓ+1 of the finite-width recursions needs, each average computed once.

Tensors carry a leading axis of modes: the value first, then deviations whose squares add up to
the variance of its numerical error. Every recursion is linear in the tensors and in the
four-sample averages, so running it on all modes at once carries the error bars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.gaussian.families import PairFamily, TwoPoint
from dynagram.gaussian.four_point import Covariances, FourPoint, Product

Modes = Float[np.ndarray, "mode ..."]


@dataclass(frozen=True, eq=False)
class Step:
    """Averages at K^(ℓ), the frozen NTK Θ^(ℓ), hyperparameters of layer ℓ+1, and n_ℓ/n_{ℓ−1}.

    `ratio` is 0 for ℓ = 1, whose preactivations do not fluctuate.
    """

    averages: TwoPoint
    four: FourPoint
    covariances: dict[Product, Covariances]
    Theta: Float[np.ndarray, "a b"]
    C_W: float
    lambda_W: float
    ratio: float

    @classmethod
    def at(
        cls,
        averages: TwoPoint,
        Theta: Float[np.ndarray, "a b"],
        *,
        C_W: float,
        lambda_W: float,
        ratio: float,
        products: Sequence[Product],
        accuracy: float,
        seed: int,
    ) -> Step:
        """Compute the four-sample averages `products` in one pass."""
        four = FourPoint(averages, accuracy=accuracy, seed=seed)
        found = four.covariances(list(products)) if products else {}
        return cls(averages, four, found, Theta, C_W, lambda_W, ratio)

    def two(self, p: int, q: int) -> Float[np.ndarray, "a b"]:
        """⟨σ^(p)_a σ^(q)_b⟩."""
        return self.averages(p, q)

    def family(self, p: int, q: int) -> PairFamily:
        """σ^(p)_a σ^(q)_b with its derivatives in K."""
        return self.four.family(p, q)

    def covariance(self, p: int, q: int, r: int, s: int) -> Modes:
        """Cov(σ^(p)σ^(q), σ^(r)σ^(s)) on the pairs of the two families, all modes."""
        return self.covariances[(p, q), (r, s)].modes

    def average(self, p: int, q: int, r: int, s: int) -> Float[np.ndarray, "mode a b c d"]:
        """⟨σ^(p)_a σ^(q)_b σ^(r)_c σ^(s)_d⟩ for all samples, all modes."""
        f, g = self.family(p, q), self.family(r, s)
        modes = self.covariance(p, q, r, s).copy()
        modes[0] += np.outer(f.value, g.value)
        return modes[:, f.matrix()[:, :, None, None], g.matrix()[None, None, :, :]]

    def axes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Open index arrays of the four sample axes of a tensor, in its printed order."""
        n = self.averages.samples
        first, second, third, fourth = np.ogrid[:n, :n, :n, :n]
        return first, second, third, fourth
