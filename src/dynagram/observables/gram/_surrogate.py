"""The surrogate of target linearity: what the metric WᵀW makes of the features.

The surrogate is tr(Ycᵀ H 𝒢 Hᵀ Yc)/C, with centred targets Yc of C columns, over ‖H Wᵀ‖²
(Cha et al., arXiv:2605.06258). With centred features too, and divided by the norms of the kernel
Hc 𝒢 Hcᵀ and of YcYcᵀ, it is the kernel–target alignment. The first compares a layer with itself in
time, and counts the mean feature as noise; the second also compares layers with each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.observables._nulls import Alignment, Spectrum, normalised, rotation_overlap
from dynagram.observables.gram._factor import FeatureFactor, as_factor


@dataclass(frozen=True)
class Surrogate:
    """How well a layer's metric makes the targets linear in its features.

    **Arguments:**

    - `value`: tr(Ycᵀ H 𝒢 Hᵀ Yc)/(C ‖HWᵀ‖²), extensive in the samples.
    - `alignment`: the cosine of Hc 𝒢 Hcᵀ and YcYcᵀ, whose mean over shuffled targets,
        tr tr/((M−1)‖ ‖‖ ‖), is exact.
    """

    value: float
    alignment: Alignment


def target_surrogate(
    W: Float[np.ndarray, "n_out n_in"],
    h: np.ndarray | FeatureFactor,
    y: np.ndarray | None = None,
) -> Surrogate:
    """Surrogate and kernel–target alignment of the layer with weights W and input features `h`.

    The kernel on the samples is never formed: all is in (n_out, n_out) and (n_out, C) products. The
    null's deviation is exact up to relative order 1/M.

    **Arguments:**

    - `W`: weights of the layer.
    - `h`, `y`: its input features and the targets, as for `target_linearity`.

    **Returns:** `Surrogate`.

    >>> h = np.random.default_rng(0).normal(size=(400, 4))
    >>> y = h[:, :1]
    >>> seeing, blind = np.array([[1.0, 0, 0, 0]]), np.array([[0, 1.0, 0, 0]])
    >>> [round(target_surrogate(W, h, y).alignment.value, 2) for W in (seeing, blind)]
    [1.0, 0.0]
    """
    factor = as_factor(h, y)
    if W.shape[1] != factor.features:
        raise InvalidValueError("shape of W", W.shape, f"expected (n_out, {factor.features})")
    W = np.asarray(W, dtype=np.float64)
    passed_on = factor.centred_features @ W.T
    mean = W @ factor.feature_mean
    targets = factor.centred_targets
    shared = float(np.sum((passed_on.T @ targets) ** 2))
    kernel = _kernel(passed_on, factor.samples)
    wanted = _kernel(targets, factor.samples)
    norm = (kernel.square * wanted.square) ** 0.5
    null = rotation_overlap(kernel, wanted)
    alignment = normalised(shared, null, norm, "the kernel of the layer or of the targets")
    size = kernel.trace + factor.samples * float(mean @ mean)
    return Surrogate(shared / (factor.targets * size), alignment)


def _kernel(values: np.ndarray, samples: int) -> Spectrum:
    """Trace and norm of values·valuesᵀ on the samples' M−1 centred directions."""
    gram = values.T @ values
    return Spectrum(samples - 1, float(np.trace(gram)), float(np.sum(gram**2)))
