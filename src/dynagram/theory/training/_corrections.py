"""Mean and covariance of trained outputs at order 1/n, at the end and at any time before.

z(τ) over initialisations has the mean m^∞ + m^{1}/n_{L−1} (∞.160)-(∞.165) and the covariance
δ_ij 𝒦^∞ + 𝒞/n_{L−1}. In the training frame a row has a rate r, its own h for a training direction
and 0 for the bracket of a test output, and of its initial output D(r) is left. Moments differ by
their projectors only. At the end training directions are where their targets are, and only brackets
are rows; before, all rows are computed at once, and a test output is its bracket plus Θ_β Θ̃⁻¹
times the training outputs. Derivation: docs/derivations/trained-outputs.md (D1.10), (D1.14).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.theory.training._contraction import Slots, cubic_coefficients, linear_coefficients
from dynagram.theory.training._covariance import Covariances, covariance_parts
from dynagram.theory.training._decay import Decay
from dynagram.theory.training._eigenbasis import Eigenbasis
from dynagram.theory.training._mean import Means, mean_parts
from dynagram.theory.training._projectors import Projectors, projectors
from dynagram.theory.training._tensors import OutputTensors


@dataclass(frozen=True, eq=False)
class Corrections:
    """Coefficients of 1/n_{L−1} by part on all samples, training ones first, at one moment.

    `mean_error` and `covariance_error` are numerical standard errors of the sums over parts, zero
    where every average behind them is exact.
    """

    means: Means
    covariances: Covariances
    mean_error: Float[np.ndarray, "sample outputs"]
    covariance_error: Float[np.ndarray, "sample outputs sample outputs"]

    def of(self, rows: slice) -> Corrections:
        """Those of some of the samples."""
        return Corrections(
            {name: part[rows] for name, part in self.means.items()},
            {name: part[rows, :, rows] for name, part in self.covariances.items()},
            self.mean_error[rows],
            self.covariance_error[rows, :, rows],
        )


def corrections(
    tensors: OutputTensors,
    frame: Eigenbasis,
    decays: Sequence[Decay],
    targets: Float[np.ndarray, "train outputs"],
    K: Float[np.ndarray, "sample sample"],
) -> list[Corrections]:
    """The order 1/n at every moment of `decays`; the tensors are turned into the frame once.

    Cost: N⁵ multiply-adds for every mode, and before the end N_A³ N scalars of the projectors.
    """
    scalars = [row_projectors(frame, decay) for decay in decays]
    y, K_frame = frame.basis @ targets, frame.turn(K)
    values: list[tuple[Means, Covariances]] = []
    squares: list[tuple[np.ndarray, np.ndarray]] = []
    for index, mode in enumerate(tensors.all_modes()):
        slots = Slots.of(mode, frame)
        for place, (decay, z) in enumerate(zip(decays, scalars, strict=True)):
            parts = parts_on_samples(slots, decay, z, y, K_frame)
            totals = add_parts(parts[0]), add_parts(parts[1])
            if index == 0:
                values.append(parts)
                squares.append((np.zeros_like(totals[0]), np.zeros_like(totals[1])))
                continue
            # The corrections are linear in the tensors: made of a deviation they are their own.
            for square, total in zip(squares[place], totals, strict=True):
                square += total**2
    return [
        Corrections(*parts, np.sqrt(mean), np.sqrt(covariance))
        for parts, (mean, covariance) in zip(values, squares, strict=True)
    ]


def row_projectors(frame: Eigenbasis, decay: Decay) -> Projectors:
    """Those of brackets at the end; else of every direction, then of brackets, once for each."""
    z = projectors(frame.h, decay, np.append(frame.h, 0.0))
    if decay.at_end:
        return z
    place = np.minimum(np.arange(frame.rows.shape[0]), frame.directions)
    fields = dataclasses.fields(Projectors)
    return Projectors(*(getattr(z, field.name)[place] for field in fields))


def parts_on_samples(
    slots: Slots,
    decay: Decay,
    z: Projectors,
    y: Float[np.ndarray, "direction outputs"],
    K: Float[np.ndarray, "slot slot"],
) -> tuple[Means, Covariances]:
    """The corrections on all samples; `y` and the output kernel `K` in the frame."""
    frame, n = slots.frame, slots.frame.directions
    slots = dataclasses.replace(slots, row="t" if decay.at_end else "*")
    linear, cubic = linear_coefficients(slots, z, y.shape[1]), cubic_coefficients(slots, z)
    means = mean_parts(slots, z, y, K[:n, :n], linear, cubic)
    covariances = covariance_parts(slots, z, y, K, linear, cubic)
    if decay.at_end:
        still = (n, 0)
        return (
            {name: np.pad(part, (still, (0, 0))) for name, part in means.items()},
            {
                name: np.pad(part, (still, (0, 0), still, (0, 0)))
                for name, part in covariances.items()
            },
        )
    back = frame.back
    spread = {
        name: np.einsum("ut,tisj,vs->uivj", back, part, back, optimize=True)
        for name, part in covariances.items()
    }
    return {name: back @ part for name, part in means.items()}, spread


def add_parts(parts: dict[str, np.ndarray]) -> np.ndarray:
    """The sum over parts."""
    return np.sum(list(parts.values()), axis=0)
