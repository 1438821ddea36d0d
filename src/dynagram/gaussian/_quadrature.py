"""One-variable Gaussian averages ⟨f(z)⟩_K, accurate by construction.

Smooth activations use the trapezoid rule in t = z/√K, whose error falls exponentially with the
step; kinked ones, and users' functions that vary over more than one length, use composite
Gauss-Legendre panels whose edges lie on the kinks and wherever these functions ask for one.
Gauss-Hermite is not used: it needs hundreds of nodes for tanh at large K and never converges at a
kink. Errors: docs/derivations/gaussian-averages.md (D7.4), (D7.17).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.activations._resolution import panels_of
from dynagram.errors import AccuracyError, InvalidValueError

# Beyond 12.5 standard deviations e^{-t²/4}, which bounds h_k(t)φ(t) for every k, is below 1e-17.
REACH = 12.5
SMALLEST_VARIANCE = 1e-280  # stands for K = 0: keeps the two sides of a kink at 0 apart
UNDERFLOW = 1e-120  # averages below this come from SMALLEST_VARIANCE and mean zero
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(20)
_GAUSSIAN_EDGES = np.array([0.3, 0.8, 1.6, 2.6, 4.0, 5.5, 7.5, 10.0])
_FEATURE_EDGES = np.array([0.0, 0.5, 1.0, 2.0, 4.0, 8.0])
_MOST_NODES = 2.0**22  # 32 MB an array and a tenth of a second a function
_FINEST_UNIFORM = 2.0**-3  # below this length panels are cheaper than a uniform step
_STEEPEST_UNIFORM = 1e4  # |σ''|/|σ| that no such step resolves: bends over less than 0.01
_FINEST_STEP = 2.0**-8  # of the spectrum of a function: a tenth of the finest uniform step


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

    One row serves every K (rows = 1) unless σ has a kink or feature away from 0, whose place in t
    depends on K (rows = n), see `shares_nodes`. `refine` > 1 makes the rule finer by that factor.
    Cost: 200-800 nodes a row at K ~ 1, growing like √K for smooth σ; some thousands for functions
    with narrow features.

    >>> from dynagram.activations import activation
    >>> t, w = standard_nodes(activation("tanh"), np.array([1.0]))
    >>> round(float(np.sum(w * np.tanh(t) ** 2)), 12)
    0.394294490398
    """
    root = np.sqrt(np.maximum(K, SMALLEST_VARIANCE))
    reach = REACH + factors * sigma.growth * float(root.max(initial=0.0))
    require_reach(sigma, reach * float(root.max(initial=0.0)))
    panels = panels_of(sigma)
    if panels is not None and not shares_nodes(sigma):
        edges = panels.within(reach * float(root.max(initial=0.0)))
        if factors > 4:  # panels are made for four
            edges = np.sort(np.concatenate([edges, 0.5 * (edges[1:] + edges[:-1])]))
        return panel_rule(edges[None, :] / root[:, None], None, reach, refine)
    scale = feature_scale(sigma) / refine
    if panels is not None and factors > 4:
        scale /= 2.0
    if sigma.is_smooth:
        step = min(0.125 / refine, 0.3 * scale / float(root.max(initial=1e-300)))
        require_nodes(sigma, 2.0 * reach / step, root)
        half = math.ceil(reach / step)
        t = step * np.arange(-half, half + 1)[None, :]
        return t, step * normal_density(t)
    if all(kink.location == 0.0 for kink in sigma.kinks):
        root = root.max(keepdims=True) * np.ones(1)
    return _kink_panels(sigma, root, reach, scale, refine)


def shares_nodes(sigma: Activation) -> bool:
    """Whether one set of nodes in t serves every K: σ varies over one length, kinked at most at 0.

    A function that is not known must have shown it: see `uniform_scale`.
    """
    if panels_of(sigma) is None:
        return all(kink.location == 0.0 for kink in sigma.kinks)
    return sigma.is_smooth and uniform_scale(sigma) is not None


def require_reach(sigma: Activation, reach: float) -> None:
    """Refuse averages that look at a function of a user farther out than it could be resolved."""
    panels = panels_of(sigma)
    if panels is not None and reach > panels.reach:
        raise AccuracyError(
            f"activation {sigma.name!r} is not resolved near z = {panels.obstacle:.6g}, and "
            f"averages here reach to |z| = {reach:.4g}: take smaller variances, or declare its "
            "kinks"
        )


def require_nodes(sigma: Activation, nodes: float, root: np.ndarray) -> None:
    """Refuse a variance over which a grid as fine as the function would not end."""
    if nodes > _MOST_NODES:
        raise AccuracyError(
            f"a variance of {float(root.max()) ** 2:.3g} is too large for averages of "
            f"{sigma.name!r}, which would need {nodes:.1e} nodes: lower C_b, C_W, the skips or the "
            "inputs"
        )


def product_rule(
    factors: Sequence[tuple[Activation, float]], reach: float = REACH
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Nodes t and weights w with Σ w Π f_i(s_i t) ≈ ⟨Π f_i(s_i t)⟩ over a standard normal t.

    `factors` lists the functions f_i and their scales s_i, which may be negative.
    """
    edges, scales = [], []
    for f, root in factors:
        require_reach(f, reach * abs(root))
        panels = panels_of(f)
        if panels is not None:
            edges.append(panels.within(reach * abs(root)) / root)
            continue
        edges.append(np.array([kink.location for kink in f.kinks]) / root)
        scales.append(feature_scale(f) / max(abs(root), 1e-140))
    every = np.concatenate(edges)
    return panel_rule(every if every.size else np.zeros(1), min(scales, default=None), reach)


def panel_rule(
    edges: Float[np.ndarray, "*rows e"], scale: float | None, reach: float, refine: float = 1.0
) -> tuple[Float[np.ndarray, "*rows m"], Float[np.ndarray, "*rows m"]]:
    """Composite Gauss-Legendre rule for φ(t)·f(t) with f broken at `edges`, row by row.

    Around every edge the panels grow geometrically from `scale`, the length over which f varies;
    without it the edges say all there is to know of f. The Gaussian itself is resolved by fixed
    panels out to ±`reach`.
    """
    gaussian = np.concatenate([-_GAUSSIAN_EDGES, [0.0], _GAUSSIAN_EDGES])
    outer = np.arange(-reach, reach + 1e-9, 2.5 / refine)
    grading = np.zeros(1)
    if scale is not None:
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

    Found by halving until ⟨(σ^(p))²⟩_K, p = 0, 1, 2, no longer change at K = 1 and K = 100; for
    functions that are not known by `uniform_scale`.
    """
    if panels_of(sigma) is not None:
        scale = uniform_scale(sigma) if sigma.is_smooth else None
        if scale is None:
            raise AccuracyError(
                f"activation {sigma.name!r} varies over lengths too different for a uniform grid"
            )
        return scale
    scale = 1.0
    previous = _probe(sigma, scale, (1.0, 100.0))
    while scale > 2.0**-12:
        finer = _probe(sigma, scale / 2, (1.0, 100.0))
        if _agree(finer, previous):
            return scale
        scale, previous = scale / 2, finer
    raise AccuracyError(
        f"activation {sigma.name!r} varies too fast for quadrature: "
        "declare its kinks, or rescale its argument"
    )


@functools.lru_cache(maxsize=256)
def uniform_scale(sigma: Activation) -> float | None:
    """`feature_scale` of a smooth function that is not known, or None if it has no single one.

    The trapezoid rule of that step has to agree with the rule on the panels of the function,
    which knows where it varies, on ⟨(σ^(p))²⟩ and ⟨(σ^(p))⁴⟩: two rules that share no node. And
    the frequencies of these have to die out towards those that a step takes for others: a fast
    wave may be summed rightly with one step and wrongly with the next finer one.
    """
    panels = panels_of(sigma)
    assert panels is not None
    reach = panels.reach / (REACH + 4 * sigma.growth)
    if reach < 1.0 or panels.steepness > _STEEPEST_UNIFORM:
        return None
    variances = (1.0,) if sigma.growth else tuple(K for K in (1.0, 25.0, 100.0) if reach**2 >= K)
    expected = np.concatenate([_panel_probe(sigma, K) for K in variances])
    frequency, share = _spectrum(sigma, variances)
    scale = 1.0
    while scale >= _FINEST_UNIFORM:
        if _dies_out(frequency, share, scale) and _agree(
            expected, _probe(sigma, scale, variances, (2, 4))
        ):
            return scale
        scale /= 2
    return None


def _spectrum(sigma: Activation, variances: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies ω and the largest |⟨f e^{iω'z}⟩_K|/⟨|f|⟩_K at any ω' ≥ ω, f = (σ^(p))², (σ^(p))⁴.

    A trapezoid rule of step h in z is wrong by the sum of these over ω = 2πk/h, k = ±1, ±2, …
    """
    frequency, share = np.arange(0.0, math.pi / _FINEST_STEP, 0.25), np.zeros(1)
    for variance in variances:
        root = math.sqrt(variance)
        half = math.ceil((REACH + 4 * sigma.growth * root) * root / _FINEST_STEP)
        z = _FINEST_STEP * np.arange(-half, half)
        values = [sigma.values(z, p) for p in range(3)]
        at = 2.0 * math.pi * np.arange(half + 1) / (2 * half * _FINEST_STEP)
        for value in values:
            for power in (2, 4):
                f = normal_density(z / root) * value**power
                size = np.abs(np.fft.rfft(f)) / (np.abs(f).sum() + 1e-290)
                beyond = np.maximum.accumulate(size[::-1])[::-1]
                share = np.maximum(share, np.interp(frequency, at, beyond))
    return frequency, share


def _dies_out(frequency: np.ndarray, share: np.ndarray, scale: float) -> bool:
    """Whether steps up to 0.3 `scale` are exact, and coarser ones as wrong as they look.

    Two rules of one step, shifted by half of it, differ by odd multiples k of 2π/h and are wrong
    alike by even ones, which must not be more than e^{−60 (0.3 scale)/h}: what `grid_nodes` allows.
    """
    finest = 2.0 * math.pi / (0.3 * scale)
    coarser = np.linspace(0.19, 1.0, 100)  # of the frequency of a step: as far as grids go
    hidden = np.interp(2.0 * coarser * finest, frequency, share)
    exact = np.interp(finest, frequency, share) <= 1e-12
    return bool(exact and np.all(hidden <= 1e3 * np.exp(-60.0 * coarser) + 1e-12))


def _agree(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.all(np.abs(one - other) <= 2e-13 * np.abs(one) + 1e-290))


def _panel_probe(sigma: Activation, variance: float) -> np.ndarray:
    root = math.sqrt(variance)
    t, w = product_rule([(sigma, root)], REACH + 4 * sigma.growth * root)
    return _probe_averages(sigma, root * t, w, (2, 4))


def _probe_averages(
    sigma: Activation, z: np.ndarray, w: np.ndarray, powers: tuple[int, ...]
) -> np.ndarray:
    values = [sigma.values(z, p) for p in range(3)]
    return np.array([np.sum(w * value**power) for power in powers for value in values])


def _probe(
    sigma: Activation, scale: float, variances: tuple[float, ...], powers: tuple[int, ...] = (2,)
) -> np.ndarray:
    results = []
    for variance in variances if sigma.growth == 0.0 else (1.0,):
        root = np.array([math.sqrt(variance)])
        reach = REACH + max(powers) * sigma.growth * root[0]
        if sigma.is_smooth:
            step = min(0.125, 0.3 * scale / root[0])
            half = math.ceil(reach / step)
            t = step * np.arange(-half, half + 1)[None, :]
            w = step * normal_density(t)
        else:
            t, w = _kink_panels(sigma, root, reach, scale, 1.0)
        results.append(_probe_averages(sigma, root[0] * t, w, powers))
    return np.concatenate(results)
