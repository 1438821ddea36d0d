"""One-variable Gaussian averages ⟨f(z)⟩_K, accurate by construction.

Smooth activations use the trapezoid rule in t = z/√K, whose error falls exponentially with the
step; kinked ones use composite Gauss-Legendre panels whose edges lie on the kinks. Gauss-Hermite
is not used: it needs hundreds of nodes for tanh at large K and never converges at a kink.
Errors: docs/derivations/gaussian-averages.md (D7.4).
"""

from __future__ import annotations

import functools
import math

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.errors import AccuracyError, InvalidValueError

# Beyond 12.5 standard deviations e^{-t²/4}, which bounds h_k(t)φ(t) for every k, is below 1e-17.
REACH = 12.5
SMALLEST_VARIANCE = 1e-280  # stands for K = 0: keeps the two sides of a kink at 0 apart
UNDERFLOW = 1e-120  # averages below this come from SMALLEST_VARIANCE and mean zero
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(20)
_GAUSSIAN_EDGES = np.array([0.3, 0.8, 1.6, 2.6, 4.0, 5.5, 7.5, 10.0])
_FEATURE_EDGES = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0])


def normal_density(t: Float[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
    """φ(t), the standard normal density."""
    return np.asarray(np.exp(-0.5 * t * t) / math.sqrt(2.0 * math.pi))


def check_variance(K: object, name: str = "K") -> Float[np.ndarray, "*shape"]:
    """`K` as a float64 array, refused when negative or not finite."""
    variance = np.asarray(K, dtype=np.float64)
    if not np.all(np.isfinite(variance)) or np.any(variance < 0):
        bad = variance[~(np.isfinite(variance) & (variance >= 0))].flat[0]
        raise InvalidValueError(name, float(bad), "a variance must be finite and ≥ 0")
    return variance


def standard_nodes(
    sigma: Activation, K: Float[np.ndarray, " n"], *, factors: int = 4, refine: float = 1.0
) -> tuple[Float[np.ndarray, "rows m"], Float[np.ndarray, "rows m"]]:
    """Nodes t and weights w with Σ w f(√K t) ≈ ⟨f(z)⟩_K for f built of at most `factors` σ's.

    One row serves every K (rows = 1) unless σ has a kink away from 0, whose place in t depends
    on K (rows = n). `refine` > 1 makes the rule finer by that factor. Cost: 200-800 nodes a row
    at K ~ 1, growing like √K for smooth σ.

    >>> from dynagram.activations import activation
    >>> t, w = standard_nodes(activation("tanh"), np.array([1.0]))
    >>> round(float(np.sum(w * np.tanh(t) ** 2)), 12)
    0.394294490398
    """
    root = np.sqrt(np.maximum(K, SMALLEST_VARIANCE))
    reach = REACH + factors * sigma.growth * float(root.max(initial=0.0))
    scale = feature_scale(sigma) / refine
    if sigma.is_smooth:
        step = min(0.125 / refine, 0.3 * scale / float(root.max(initial=1e-300)))
        half = math.ceil(reach / step)
        t = step * np.arange(-half, half + 1)[None, :]
        return t, step * normal_density(t)
    if all(kink.location == 0.0 for kink in sigma.kinks):
        root = root.max(keepdims=True) * np.ones(1)
    return _kink_panels(sigma, root, reach, scale, refine)


def panel_rule(
    edges: Float[np.ndarray, "*rows e"], scale: float, reach: float, refine: float = 1.0
) -> tuple[Float[np.ndarray, "*rows m"], Float[np.ndarray, "*rows m"]]:
    """Composite Gauss-Legendre rule for φ(t)·f(t) with f broken at `edges`, row by row.

    Around every edge the panels grow geometrically from `scale`, the length over which f varies;
    the Gaussian itself is resolved by fixed panels out to ±`reach`.
    """
    gaussian = np.concatenate([-_GAUSSIAN_EDGES, [0.0], _GAUSSIAN_EDGES])
    outer = np.arange(-reach, reach + 1e-9, 2.5 / refine)
    grading = np.concatenate([-_FEATURE_EDGES, _FEATURE_EDGES]) * scale
    rows = edges.shape[:-1]
    fixed = np.concatenate([gaussian, outer])
    graded = (edges[..., None] + grading).reshape(*rows, -1)
    every = np.concatenate([np.broadcast_to(fixed, (*rows, fixed.size)), graded], axis=-1)
    every = np.sort(np.clip(every, -reach, reach), axis=-1)
    middle, half = 0.5 * (every[..., 1:] + every[..., :-1]), 0.5 * np.diff(every, axis=-1)
    t = (middle[..., None] + half[..., None] * _PANEL_NODES).reshape(*rows, -1)
    w = (half[..., None] * _PANEL_WEIGHTS).reshape(*rows, -1)
    keep = np.any(w > 0, axis=tuple(range(len(rows))))
    t, w = t[..., keep], w[..., keep]
    return t, w * normal_density(t)


def _kink_panels(
    sigma: Activation, root: np.ndarray, reach: float, scale: float, refine: float
) -> tuple[np.ndarray, np.ndarray]:
    kinks = np.array([kink.location for kink in sigma.kinks])
    # One scale for every row keeps the rule rectangular: the finest is right for all.
    return panel_rule(kinks[None, :] / root[:, None], scale / float(root.max()), reach, refine)


@functools.lru_cache(maxsize=256)
def feature_scale(sigma: Activation) -> float:
    """The length in z over which σ varies: steps of that size integrate it to rounding.

    Found by halving until ⟨(σ^(p))²⟩_K, p = 0, 1, 2, no longer change at K = 1 and K = 100.
    """
    scale = 1.0
    previous = _probe(sigma, scale)
    while scale > 2.0**-12:
        finer = _probe(sigma, scale / 2)
        if np.all(np.abs(finer - previous) <= 2e-13 * np.abs(finer) + 1e-290):
            return scale
        scale, previous = scale / 2, finer
    raise AccuracyError(
        f"activation {sigma.name!r} varies too fast for quadrature: "
        "declare its kinks, or rescale its argument"
    )


def _probe(sigma: Activation, scale: float) -> np.ndarray:
    results = []
    for variance in (1.0, 100.0) if sigma.growth == 0.0 else (1.0,):
        root = np.array([math.sqrt(variance)])
        reach = REACH + 2 * sigma.growth * root[0]
        if sigma.is_smooth:
            step = min(0.125, 0.3 * scale / root[0])
            half = math.ceil(reach / step)
            t = step * np.arange(-half, half + 1)[None, :]
            w = step * normal_density(t)
        else:
            t, w = _kink_panels(sigma, root, reach, scale, 1.0)
        results += [np.sum(w * sigma.values(root[0] * t, p) ** 2) for p in range(3)]
    return np.array(results)
