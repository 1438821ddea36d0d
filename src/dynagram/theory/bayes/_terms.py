"""The order-1/n terms of Bayesian inference, as sums of contractions linear in G^{1} and V.

All at the output layer, in the units of 1/n_{L−1}: log evidence, posterior mean and covariance
as the closed forms that follow from (6.79)-(6.88) and (4.108) after everything is expressed in
(K, G^{1}, V), which do not run with the number of neurons. Derived by expanding the exact mixture
over Ĝ, p(y, z) = E Π_i N(y_i, z_i; 0, Ĝ), to first order in 1/n.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.theory.bayes._solve import TrainingKernel


@dataclass(frozen=True, eq=False)
class Term:
    """weight · einsum(subscripts, tensor, factors…), `tensor` one of the order-1/n blocks."""

    weight: float
    subscripts: str
    tensor: str
    factors: tuple[np.ndarray, ...]

    def value(self, blocks: Mapping[str, np.ndarray]) -> np.ndarray:
        """The term for given blocks of G^{1} and V."""
        return np.asarray(self.weight * self._contracted(blocks[self.tensor], self.factors))

    def bound(self, errors: Mapping[str, np.ndarray]) -> np.ndarray:
        """The most it can be off when every entry of the tensor is off by `errors`."""
        sizes = tuple(np.abs(factor) for factor in self.factors)
        return np.asarray(abs(self.weight) * self._contracted(errors[self.tensor], sizes))

    def _contracted(self, tensor: np.ndarray, factors: tuple[np.ndarray, ...]) -> np.ndarray:
        return np.asarray(np.einsum(self.subscripts, tensor, *factors, optimize=True))


@dataclass(frozen=True, eq=False)
class Coefficient:
    """The coefficient of 1/n_{L−1} in some quantity, and a bound on its numerical error.

    `size` adds up the magnitudes of its terms: what the coefficient would be if they did not
    cancel, as those of the next order need not.
    """

    value: Float[np.ndarray, "*shape"]
    error: Float[np.ndarray, "*shape"]
    size: Float[np.ndarray, "*shape"]

    @classmethod
    def total(cls, parts: Iterable[Coefficient]) -> Coefficient:
        """The sum of several: values, error bounds and magnitudes add up."""
        listed = [(part.value, part.error, part.size) for part in parts]
        value, error, size = (np.asarray(sum(column)) for column in zip(*listed, strict=True))
        return cls(value, error, size)

    def expanded(self, outputs: Float[np.ndarray, "1 n_L 1 n_L"]) -> Coefficient:
        """A coefficient of (sample, sample) for every pair of outputs."""
        parts = (part[:, None, :, None] * outputs for part in (self.value, self.error, self.size))
        return Coefficient(*parts)


def evaluate(
    terms: Sequence[Term], blocks: Mapping[str, np.ndarray], errors: Mapping[str, np.ndarray]
) -> Coefficient:
    """The sum of the terms, the sum of their error bounds and that of their magnitudes."""
    values = [(term.value(blocks), term.bound(errors)) for term in terms]
    return Coefficient.total(Coefficient(v, bound, np.asarray(np.abs(v))) for v, bound in values)


@dataclass(frozen=True, eq=False)
class Dual:
    """What the targets and the training kernel give: y^a = K̃^{ab} y_b, M^{ab}, K̃^{ab}.

    M^{ab} = Σ_i y_i^a y_i^b − n_L K̃^{ab} is the source of every effect of finite width: twice the
    derivative of the log evidence by the kernel (6.99).
    """

    y: Float[np.ndarray, "a outputs"]
    inverse: Float[np.ndarray, "a a"]
    square: Float[np.ndarray, "a a"]
    M: Float[np.ndarray, "a a"]

    @classmethod
    def of(cls, kernel: TrainingKernel, y: Float[np.ndarray, "a outputs"]) -> Dual:
        """From the factorised training kernel and the targets."""
        dual, inverse = kernel.solve(y), kernel.inverse
        square = dual @ dual.T
        return cls(dual, inverse, square, square - y.shape[1] * inverse)


def blocks_of(
    G1: Float[np.ndarray, "d d"], V: Float[np.ndarray, "d d d d"], train: int
) -> dict[str, np.ndarray]:
    """The blocks that the terms use; the first `train` samples are the training set A of D."""
    A = slice(0, train)
    return {
        "G1_AA": G1[A, A], "G1_DA": G1[:, A], "G1_DD": G1,
        "V_AAAA": V[A, A, A, A], "V_DAAA": V[:, A, A, A],
        "V_DDAA": V[:, :, A, A], "V_DADA": V[:, A, :, A],
    }  # fmt: skip


def evidence_terms(dual: Dual) -> list[Term]:
    """½ G^{1}M + ⅛ V[MM − 4 K̃ yy + 2 n_L K̃K̃], all on the training samples."""
    outputs = dual.y.shape[1]
    return [
        Term(0.5, "ab,ab->", "G1_AA", (dual.M,)),
        Term(0.125, "abcd,ab,cd->", "V_AAAA", (dual.M, dual.M)),
        Term(-0.5, "abcd,bc,ad->", "V_AAAA", (dual.inverse, dual.square)),
        Term(0.25 * outputs, "abcd,ac,bd->", "V_AAAA", (dual.inverse, dual.inverse)),
    ]


def mean_terms(dual: Dual, P: Float[np.ndarray, "test d"]) -> list[Term]:
    """P{G^{1}y + ½ V_(δ1)(23) y^1 M^23 − V_(δ1)(23) K̃^12 y^3}, of shape (test, outputs)."""
    return [
        Term(1.0, "da,td,ai->ti", "G1_DA", (P, dual.y)),
        Term(0.5, "dabc,td,ai,bc->ti", "V_DAAA", (P, dual.y, dual.M)),
        Term(-1.0, "dabc,td,ab,ci->ti", "V_DAAA", (P, dual.inverse, dual.y)),
    ]


def covariance_terms(dual: Dual, P: Float[np.ndarray, "test d"]) -> list[Term]:
    """The part of the covariance on one output: PP{G^{1} + ½ VM − V_(δ1)(δ'2) K̃^12}."""
    return [
        Term(1.0, "de,td,ue->tu", "G1_DD", (P, P)),
        Term(0.5, "deab,td,ue,ab->tu", "V_DDAA", (P, P, dual.M)),
        Term(-1.0, "daeb,td,ue,ab->tu", "V_DADA", (P, P, dual.inverse)),
    ]


def wiring_terms(dual: Dual, P: Float[np.ndarray, "test d"]) -> list[Term]:
    """The part that connects outputs i and j: PP V_(δ1)(δ'2) y_i^1 y_j^2 (6.89)."""
    return [Term(1.0, "daeb,td,ue,ai,bj->tiuj", "V_DADA", (P, P, dual.y, dual.y))]
