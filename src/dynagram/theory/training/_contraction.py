"""Tensors of the output layer contracted in the training frame: what mean and covariance share.

All sums over training samples are sums over eigendirections a, b, c, because the projectors tie
their indices in pairs. What multiplies a target once (`linear_coefficients`) or three times
(`cubic_coefficients`) serves the mean, with y, and the covariance, with one y replaced by the
correlation κ of an initial training output with an initial test output. Derivation:
docs/derivations/trained-outputs.md (D1.10)-(D1.15).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._arrays import Array
from dynagram._precision import float64
from dynagram.theory.training._eigenbasis import Eigenbasis
from dynagram.theory.training._projectors import Projectors

Tensors = Mapping[str, Float[Array, "..."]]
Linear = Float[np.ndarray, "row direction"]
Cubic = Float[np.ndarray, "row a b c"]


@dataclass(frozen=True, eq=False)
class Slots:
    """Tensors in the frame, of which blocks are picked slot by slot.

    `row` says which outputs are predicted: "t", the bracketed test samples, or "*", the training
    directions before them, which finite times need.
    """

    tensors: Tensors
    frame: Eigenbasis
    row: str = "t"

    @classmethod
    def of(cls, tensors: Tensors, frame: Eigenbasis, row: str = "t") -> Slots:
        """Bring every tensor into the frame, one matrix product per axis."""
        return cls({name: frame.turn(values) for name, values in tensors.items()}, frame, row)

    @float64
    def __call__(self, name: str, pattern: str) -> Float[np.ndarray, "..."]:
        """The block of a tensor with "a", training, or "t", predicted, in each slot."""
        block = self.tensors[name][self.frame.split(pattern.replace("t", self.row))]
        return np.asarray(block)


def linear_coefficients(slots: Slots, z: Projectors, outputs: int) -> dict[str, Linear]:
    """c of the terms −c·y of the mean: m^ΔNTK (∞.162, sign corrected) and m^dNTK (∞.163).

    In the first 1 = 2 = a and 3 = b, in the second 1 = 3 = a and 2 = 4 = b.
    """
    n = float(outputs)
    A, B = slots("A", "taaa"), slots("B", "taaa")
    variance = np.einsum("taab,tab->tb", A + B, z.variance)
    variance += n * np.einsum("tbaa,tab->tb", B, z.variance)
    P, Q = slots("P", "taaa"), slots("Q", "taaa")
    P_1, Q_1, Q_2 = slots("P", "ataa"), slots("Q", "ataa"), slots("Q", "aata")
    moved = (
        np.einsum("taba,tab->tb", P + Q, 2.0 * z.Z_B)
        + n * np.einsum("tbaa,tab->tb", Q, 2.0 * z.Z_B)
        + np.einsum("atba,tab->tb", n * P_1 + Q_1, z.Z_A)
        + np.einsum("abta,tab->tb", Q_2, z.Z_A)
        + np.einsum("atbb,tab->ta", P_1 + n * Q_1, z.Z_A)
        + np.einsum("abtb,tab->ta", Q_2, z.Z_A)
    )
    return {"ΔNTK": variance, "dNTK": moved}


def cubic_coefficients(slots: Slots, z: Projectors) -> dict[str, Cubic]:
    """c of the terms −c^{abc} W^{abc} of the mean: m^ddI (∞.164) and m^ddII (∞.165, corrected).

    A projector Z^{123,564} meets W in the order (c, a, b): its third index is tied to slot 4. With
    directions renamed so that all meet W^{abc} these are (D1.12), (D1.13).
    """
    first = (
        3.0 * np.einsum("tabc,tabc->tabc", slots("R", "taaa"), z.Z_IB)
        + np.einsum("atbc,tabc->tabc", slots("R", "ataa"), z.Z_IA)
        + np.einsum("abct,tabc->tcab", slots("R", "aaat"), z.Z_IA)
        + np.einsum("actb,tabc->tbca", slots("R", "aata"), z.Z_IA)
    )
    second = (
        np.einsum("tabc,tabc->tabc", slots("S", "taaa"), z.Z_IIB)
        + np.einsum("tabc,tcab->tabc", slots("T", "taaa"), z.Z_IIB)
        + np.einsum("tabc,tbca->tabc", slots("U", "taaa"), z.Z_IIB)
        + np.einsum("abtc,tabc->tcab", slots("S", "aata"), z.Z_IIA)
        + np.einsum("atcb,tabc->tabc", slots("T", "ataa"), z.Z_IIA)
        + np.einsum("acbt,tabc->tbca", slots("U", "aaat"), z.Z_IIA)
    )
    return {"ddI": first, "ddII": second}
