"""Is the kernel aligned with the targets, the residual with its eigenvectors, masks with classes?

Each measure comes with what it gives when there is nothing to find: a direction drawn at random
for quadratic forms of a vector (mean tr A/M, exactly), shuffled labels for the contrast of classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Shaped

from dynagram.errors import InvalidValueError
from dynagram.observables._nulls import Alignment, Spectrum, normalised, rotation_overlap

# Sizes that do not match are refused by name, so they are not part of the annotations.
Kernel = Float[np.ndarray, "rows columns"]
Vector = Float[np.ndarray, " samples"]


def kernel_target_alignment(kernel: Kernel, y: Vector) -> Alignment:
    """yᵀKy/(‖K‖‖y‖²) of the centred kernel and targets; null: targets shuffled.

    **Arguments:**

    - `kernel`: (M, M), symmetric.
    - `y`: targets (M,).

    **Returns:** `Alignment`.

    >>> y = np.array([1.0, 1.0, -1.0, -1.0])
    >>> found = kernel_target_alignment(np.outer(y, y) + np.eye(4), y)
    >>> round(found.value, 3), round(found.null.mean, 3)
    (0.962, 0.449)
    """
    _check_sizes(kernel, y)
    centred_kernel = kernel - kernel.mean(axis=0)[None, :]
    centred_kernel = centred_kernel - centred_kernel.mean(axis=1)[:, None]
    centred = y - y.mean()
    # Shuffled centred targets keep to the M-1 directions orthogonal to (1, …, 1).
    spectrum = Spectrum(
        len(y) - 1, float(np.trace(centred_kernel)), float(np.sum(centred_kernel**2))
    )
    return _quadratic_form(centred_kernel, centred, spectrum, math.sqrt(spectrum.square), "y")


def residual_in_top(kernel: Kernel, residual: Vector, top: int) -> Alignment:
    """The share of ‖r‖² in the span of K's `top` leading eigenvectors; null top/M.

    **Arguments:**

    - `kernel`: (M, M), symmetric.
    - `residual`: r, (M,).
    - `top`: how many eigenvectors.

    **Returns:** `Alignment`.

    >>> found = residual_in_top(np.diag([3.0, 2.0, 1.0, 0.5]), np.array([1.0, 1.0, 1.0, 1.0]), 1)
    >>> round(found.value, 3), round(found.null.mean, 3)
    (0.25, 0.25)
    """
    _check_sizes(kernel, residual)
    if not 1 <= top <= len(residual):
        raise InvalidValueError("top", top, f"expected 1 to {len(residual)}")
    vectors = np.linalg.eigh(kernel)[1][:, -top:]
    projector = vectors @ vectors.T
    spectrum = Spectrum(len(residual), float(top), float(top))
    return _quadratic_form(projector, residual, spectrum, 1.0, "residual")


def rayleigh_quotient(kernel: Kernel, residual: Vector) -> Alignment:
    """rᵀKr/(λ_max‖r‖²): how fast the residual shrinks, against the fastest; null tr K/(M λ_max).

    **Arguments:**

    - `kernel`: (M, M), symmetric.
    - `residual`: r, (M,).

    **Returns:** `Alignment`.

    >>> found = rayleigh_quotient(np.diag([3.0, 2.0, 1.0]), np.array([1.0, 0.0, 1.0]))
    >>> round(found.value, 3), round(found.null.mean, 3)
    (0.667, 0.667)
    """
    _check_sizes(kernel, residual)
    spectrum = Spectrum(len(residual), float(np.trace(kernel)), float(np.sum(kernel**2)))
    largest = float(np.linalg.eigvalsh(kernel)[-1])
    return _quadratic_form(kernel, residual, spectrum, largest, "residual")


@dataclass(frozen=True, eq=False)
class ClassContrast:
    """Mean co-activation of pairs of one class and of two classes, per layer; `gap` = difference.

    **Arguments:**

    - `same`, `different`: means of A_αβ over pairs of one class and of two.
    - `gap_deviation`: the spread of their difference among shuffled labels, whose mean is 0.
    """

    same: Float[np.ndarray, " layer"]
    different: Float[np.ndarray, " layer"]
    gap_deviation: Float[np.ndarray, " layer"]

    @property
    def gap(self) -> Float[np.ndarray, " layer"]:
        """same − different."""
        return self.same - self.different


def class_contrast(
    overlaps: Float[np.ndarray, "layer rows columns"],
    labels: Shaped[np.ndarray, " samples"],
    *,
    shuffles: int = 100,
    seed: int = 0,
) -> ClassContrast:
    """Averages of A_αβ over pairs α ≠ β of the same class and of different classes.

    **Arguments:**

    - `overlaps`: A_αβ of every layer, from `coactivation`.
    - `labels`: the class of each sample.
    - `shuffles`, `seed`: how many shuffled labels give the spread, and their seed.

    **Returns:** `ClassContrast`. Cost: (1 + `shuffles`) passes over the overlaps.

    >>> A = np.array([[[1.0, 0.8, 0.1], [0.8, 1.0, 0.2], [0.1, 0.2, 1.0]]])
    >>> found = class_contrast(A, np.array([0, 0, 1]))
    >>> found.same.round(3).tolist(), found.different.round(3).tolist()
    ([0.8], [0.15])
    """
    if labels.shape[0] != overlaps.shape[1]:
        allowed = f"expected {overlaps.shape[1]}, one per sample"
        raise InvalidValueError("number of labels", labels.shape[0], allowed)
    codes = np.unique(labels, return_inverse=True)[1].reshape(-1)
    one_hot = np.eye(codes.max() + 1)[codes]
    pairs = float(np.sum(one_hot.sum(axis=0) ** 2)) - len(codes)
    others = float(len(codes)) ** 2 - len(codes) - pairs
    if pairs == 0 or others == 0:
        allowed = "at least two classes, one of them with two samples, needed"
        raise InvalidValueError("labels", np.unique(labels).tolist(), allowed)
    diagonal = np.trace(overlaps, axis1=1, axis2=2)
    total = overlaps.sum(axis=(1, 2)) - diagonal
    rng = np.random.default_rng(seed)
    drawn = np.stack([one_hot, *(rng.permutation(one_hot) for _ in range(shuffles))], axis=1)
    images = overlaps @ drawn.reshape(len(codes), -1)  # one product for all shuffles
    # Σ of A_αβ over α ≠ β of one class, first for the true labels, then for each shuffle
    within = np.einsum("lasc,asc->sl", images.reshape(len(overlaps), *drawn.shape), drawn)
    same, shuffled = within[0] - diagonal, within[1:] - diagonal
    gaps = shuffled / pairs - (total - shuffled) / others
    deviation = np.sqrt(np.mean(gaps**2, axis=0))
    return ClassContrast(same / pairs, (total - same) / others, deviation)


def _quadratic_form(
    matrix: np.ndarray, vector: np.ndarray, spectrum: Spectrum, norm: float, what: str
) -> Alignment:
    """xᵀAx/(norm‖x‖²) beside that of a random direction x among `spectrum.size`."""
    length = float(vector @ vector)
    null = rotation_overlap(spectrum, Spectrum(spectrum.size, length, length**2))
    return normalised(float(vector @ matrix @ vector), null, norm * length, what)


def _check_sizes(kernel: np.ndarray, vector: np.ndarray) -> None:
    if kernel.shape != (len(vector), len(vector)) or len(vector) < 2:
        allowed = f"expected ({len(vector)}, {len(vector)}), and two samples at least"
        raise InvalidValueError("shape of kernel", kernel.shape, allowed)
