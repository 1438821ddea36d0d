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

from dynagram._arrays import Array, array_namespace
from dynagram.gaussian._families import PairFamily, TwoPoint
from dynagram.gaussian._four_point import MODES, Covariances, FourPoint, Product

Modes = Float[Array, "mode ..."]


class Indices:
    """Formulas written in sample indices: `at = Indices("0123")`, then `at(P, "0120")` is P_0120.

    What comes out has the axes (mode, 0, 1, 2, 3), of length one where an index is absent, so
    that terms multiply and add as they are printed. NumPy arrays come out as views.

    >>> at = Indices("012")
    >>> at(np.arange(4.0).reshape(2, 2), "20")[0, :, 0, :].tolist()
    [[0.0, 2.0], [1.0, 3.0]]
    """

    def __init__(self, order: str):
        self.order = order

    def __call__(self, tensor: Array, indices: str) -> Modes:
        """The entries of a tensor (mode, …) or of a matrix without modes at the named samples."""
        modes = "m" * (tensor.ndim - len(indices))
        letters = str.maketrans(self.order, "abcd"[: len(self.order)])
        left = "".join(index for index in self.order if index in indices)
        rule = f"{modes}{indices.translate(letters)}->{modes}{left.translate(letters)}"
        summed = array_namespace(tensor).einsum(rule, tensor)
        samples = tensor.shape[-1]
        lengths = [samples if index in indices else 1 for index in self.order]
        return summed.reshape(summed.shape[0] if modes else 1, *lengths)


@dataclass(frozen=True, eq=False)
class Step:
    """Averages at K^(ℓ), the frozen NTK Θ^(ℓ), hyperparameters of layer ℓ+1, and n_ℓ/n_{ℓ−1}.

    `ratio` is 0 for ℓ = 1, whose preactivations do not fluctuate.
    """

    averages: TwoPoint
    four: FourPoint
    covariances: dict[Product, Covariances]
    Theta: Float[Array, "a b"]
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
        modes: int = MODES,
        on_device: bool = False,
    ) -> Step:
        """Compute the four-sample averages `products` in one pass; options as in `FourPoint`."""
        four = FourPoint(averages, accuracy=accuracy, seed=seed, modes=modes, on_device=on_device)
        covariances = four.covariances(list(products)) if products else {}
        return cls(averages, four, covariances, four.placed(Theta), C_W, lambda_W, ratio)

    def two(self, p: int, q: int) -> Float[Array, "a b"]:
        """⟨σ^(p)_a σ^(q)_b⟩, where the tensors are: products of them have as many entries."""
        return self.four.placed(self.averages(p, q))

    def family(self, p: int, q: int) -> PairFamily:
        """σ^(p)_a σ^(q)_b with its derivatives in K."""
        return self.four.family(p, q)

    def covariance(self, p: int, q: int, r: int, s: int) -> Modes:
        """Cov(σ^(p)σ^(q), σ^(r)σ^(s)) on the pairs of the two families, all modes."""
        return self.covariances[(p, q), (r, s)].modes

    def average(self, p: int, q: int, r: int, s: int) -> Float[Array, "mode a b c d"]:
        """⟨σ^(p)_a σ^(q)_b σ^(r)_c σ^(s)_d⟩ for all samples, all modes."""
        f, g = self.family(p, q), self.family(r, s)
        modes = self.covariance(p, q, r, s)
        xp, samples = array_namespace(modes), self.averages.samples
        value = modes[:1] + xp.asarray(f.value)[None, :, None] * g.value[None, None, :]
        modes = xp.concatenate([value, modes[1:]])
        for axis, family in ((1, f), (2, g)):
            modes = xp.take(modes, family.matrix().reshape(-1), axis=axis)
        return modes.reshape(-1, *[samples] * 4)
