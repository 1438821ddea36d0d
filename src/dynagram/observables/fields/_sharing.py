"""Who shares units with whom: co-activation of classes, layer by layer, beside shuffled labels.

A^(ℓ)_αβ = a_ℓ^α·a_ℓ^β/n_ℓ is for ReLU the share of units that are active for both samples. Averaged
over pairs it says which classes use the same part of a layer. For other activations the same
with a = σ'.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from dynagram.errors import InvalidValueError
from dynagram.networks import Model
from dynagram.networks._model import takes_model
from dynagram.observables.fields._alignment import ClassContrast, class_contrast
from dynagram.observables.fields._outputs import OutputFields, output_fields
from dynagram.observables.fields._overlaps import coactivation, layer_shares, moved_overlaps


@dataclass(frozen=True, eq=False)
class Sharing:
    """Mean co-activation of every pair of classes in every hidden layer of one network.

    **Arguments:**

    - `classes`: the labels, in the order of the matrices.
    - `shared`: [ℓ-1, c, d], the mean of A_αβ over α of class c and β of class d, α ≠ β.
    - `contrast`: same class against different ones, with the spread of shuffled labels.
    - `active`: [ℓ-1, c], the mean of a_ℓ over units and samples of class c.
    - `kernel_shares`: the share of every layer (the readout last) in the trace of the tangent
        kernel of all outputs.
    """

    classes: tuple[Any, ...]
    shared: Float[np.ndarray, "layer classes classes"]
    contrast: ClassContrast
    active: Float[np.ndarray, "layer classes"]
    kernel_shares: Float[np.ndarray, " layers"]

    def nearest(self, layer: int) -> list[tuple[Any, Any, float]]:
        """For every class the other class it shares most with, relative to what either uses.

        The number is A_cd/√(A_cc A_dd): 1 where the two use the same units.
        """
        A = self.shared[layer - 1]
        own = np.sqrt(np.diag(A))
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.nan_to_num(A / np.outer(own, own))
        np.fill_diagonal(relative, -np.inf)
        best = np.argmax(relative, axis=1)
        return [
            (self.classes[c], self.classes[d], float(relative[c, d])) for c, d in enumerate(best)
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything by name, for JSON."""
        layers = range(1, len(self.shared) + 1)
        return {
            "classes": list(self.classes),
            "kernel_shares": self.kernel_shares.tolist(),
            "layers": [
                {
                    "layer": layer,
                    "same": float(self.contrast.same[layer - 1]),
                    "different": float(self.contrast.different[layer - 1]),
                    "gap": float(self.contrast.gap[layer - 1]),
                    "gap_of_shuffled_labels": float(self.contrast.gap_deviation[layer - 1]),
                    "active": self.active[layer - 1].tolist(),
                    "shared": self.shared[layer - 1].tolist(),
                    "nearest": [list(row) for row in self.nearest(layer)],
                }
                for layer in layers
            ],
        }


@takes_model
def unit_sharing(
    model: Model, x: object, labels: Shaped[np.ndarray, " samples"], *, seed: int = 0
) -> Sharing:
    """Which classes share units, in every hidden layer of a network with any number of outputs.

    **Arguments:**

    - `model`: a network without skips.
    - `x`: inputs (M, n_0), one per row.
    - `labels`: the class of every sample; every class with two samples or more.
    - `seed`: of the shuffled labels.

    **Returns:** `Sharing`. Cost: a forward and a backward pass, and M² n_ℓ per layer; memory M²
    numbers per layer.

    >>> model = Model.of_matrices([np.eye(2), np.ones((1, 2))], "relu")
    >>> x = np.array([[1.0, -1.0], [2.0, -1.0], [-1.0, 1.0], [-1.0, 2.0]])
    >>> found = unit_sharing(model, x, np.array([0, 0, 1, 1]))
    >>> found.shared[0].tolist(), round(float(found.contrast.gap[0]), 3)
    ([[0.5, 0.0], [0.0, 0.5]], 0.5)
    """
    state = output_fields(model, x)
    if labels.shape != (state.samples,):
        raise InvalidValueError("shape of labels", labels.shape, f"expected ({state.samples},)")
    names, codes = np.unique(labels, return_inverse=True)
    counts = np.bincount(codes.reshape(-1))
    if len(names) < 2 or counts.min() < 2:
        lonely = [name for name, count in zip(names.tolist(), counts, strict=True) if count < 2]
        raise InvalidValueError(
            "labels", lonely or names.tolist(), "two classes or more, of two samples or more each"
        )
    overlaps = coactivation(state.shared)
    with np.errstate(over="ignore", invalid="ignore"):  # which `layer_shares` refuses in words
        diagonals = _kernel_diagonals(state)
    return Sharing(
        tuple(names.tolist()),
        _class_means(overlaps, codes.reshape(-1), counts),
        class_contrast(overlaps, labels, seed=seed),
        np.stack([_rows(a.mean(axis=1), codes.reshape(-1), counts) for a in state.shared.a]),
        layer_shares(diagonals),
    )


def _class_means(overlaps: np.ndarray, codes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Means over pairs of samples of two classes; a sample is not paired with itself."""
    one_hot = np.eye(len(counts))[codes]
    sums = one_hot.T @ overlaps @ one_hot
    own = np.stack([one_hot.T @ np.diagonal(layer) for layer in overlaps])
    pairs = np.outer(counts, counts) - np.diag(counts)
    return (sums - np.stack([np.diag(row) for row in own])) / pairs


def _rows(values: np.ndarray, codes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return np.bincount(codes, values) / counts


def _kernel_diagonals(state: OutputFields) -> Float[np.ndarray, "layers samples samples"]:
    """The diagonal of every layer's term of the tangent kernel, summed over outputs."""
    Q = moved_overlaps(state.shared)
    diagonal = np.diagonal(Q, axis1=1, axis2=2)
    sizes = [
        np.sum([np.sum(one.z[layer] ** 2, axis=1) for one in state.each], axis=0) / state.shared.N
        for layer in range(state.shared.hidden_layers)
    ]
    sizes.append(np.full(state.samples, float(state.shared.N * len(state.each))))
    return np.stack([np.diag(q * s) for q, s in zip(diagonal, sizes, strict=True)])
