"""Where a function is a polynomial to rounding: panels of the z axis, found by trying.

Quadrature is as good as what it assumes of σ. Panels are halved until σ, σ', σ'' and their squares
agree with their interpolation from 20 Gauss nodes on a dense set of places that no rule of
quadrature uses, one at random in each stratum. Whatever fills a stratum is seen: what is at least
3.1·10⁻⁵ wide for |z| ≤ 8, 1.3·10⁻⁴ for |z| ≤ 20, |z|/30000 beyond; below, it is a matter of luck.
Derivation: docs/derivations/gaussian-averages.md (D7.17).
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._precision import float64
from dynagram.activations._core import Activation, ScalarFunction
from dynagram.activations._panels import FEWEST_PLACES, NODES, WEIGHTS, Panels, spread, strata

_BULK, _FARTHEST, _RATIO = 20.0, 2.0e5, 1.25
_PLACES_NEAR, _PLACES_FAR = 1024, 4096  # where a half of a panel is tried first, per whole
_FINE_NEAR, _FINE, _FINE_FAR = (
    2.0**-16,
    2.0**-14,
    2.0**-16,
)  # their spacing in the end; far: per |z|
_NEAR, _LEAST_SCALE = 8.0, 1e-4
_TOLERANCE = 1e-10  # of interpolation: Gauss's rule on the same nodes has the square of it
_SHORTEST = 1e-9
_MOST = 2048
_CHUNK, _AT_ONCE = 2**15, 2**18


def find_panels(sigma: Activation) -> Panels:
    """Halve panels, from length 1 (growing by a quarter beyond |z| = 20), until each is resolved.

    Cost: about 4·10⁶ values of σ, σ' and σ'' and one compilation, half a second in all.
    """
    left, right = _first_panels(sigma)
    far = np.maximum(np.abs(left), np.abs(right)) > _BULK + 1.0
    few, tried = np.where(far, _PLACES_FAR, _PLACES_NEAR), _enough(left, right)
    error, size = _trial(sigma, left, right, tried)
    distances, scales = _running_scales(_inner(left, right), size)
    panels = Panels(np.empty(0), _FARTHEST, (), distances, scales)
    # Near 0 a function may be small beside what it is made of, whose rounding is no feature.
    least = np.maximum(_LEAST_SCALE * panels.scale(np.array([_NEAR])), 1e-290)
    accepted, singular, reach = np.empty((0, 2)), [], _FARTHEST
    while left.size:
        scale = np.maximum(panels.scale(0.5 * (left + right)), least)
        relative = _relative(error, size, scale)
        length, inner = right - left, _inner(left, right)
        short = length < _SHORTEST * np.maximum(1.0, inner)
        enough = _enough(left, right)
        (closer,) = np.nonzero((relative <= _TOLERANCE) & (enough > tried))
        if closer.size:
            error, size[:, closer] = _trial(sigma, left[closer], right[closer], enough[closer])
            relative[closer] = _relative(error, size[:, closer], scale[:, closer])
        finite = np.all(np.isfinite(size), axis=0)
        endless = ~finite & (short | ~_somewhere_finite(sigma, left, right, finite))
        # At the end of the halving a mild singularity no longer counts in any average.
        fine = finite & ((relative <= _TOLERANCE) | (short & (relative * length <= 1e-13)))
        accepted = np.concatenate([accepted, np.stack([left, right], axis=1)[fine]])
        singular += [*zip(left[short & ~fine], right[short & ~fine], strict=True)]
        split = ~fine & ~short & ~endless
        reach = min(
            reach,
            float(np.min(inner[endless], initial=math.inf)),
            _affordable(_inner(*accepted.T), inner[split]),
        )
        accepted, split = accepted[_inner(*accepted.T) < reach], split & (inner < reach)
        middle = 0.5 * (left[split] + right[split])
        left = np.concatenate([left[split], middle])
        right = np.concatenate([middle, right[split]])
        tried = few = np.maximum(np.tile(few[split], 2) // 2, FEWEST_PLACES)
        if left.size:
            error, size = _trial(sigma, left, right, tried)
    reach = min([reach, *(float(min(abs(a), abs(b))) for a, b in singular)])
    edges = np.unique(accepted)
    return Panels(
        edges[np.abs(edges) <= max(reach, 1.0)],
        reach,
        tuple((float(a), float(b)) for a, b in sorted(singular)),
        distances,
        scales,
    )


def _somewhere_finite(
    sigma: Activation, left: np.ndarray, right: np.ndarray, finite: np.ndarray
) -> np.ndarray:
    """Which panels are finite at one of their nodes: it is theirs to say where that ends."""
    found = finite.copy()
    (doubtful,) = np.nonzero(~finite)
    if doubtful.size:
        values = _values(sigma.function, spread(left[doubtful], right[doubtful], NODES))
        found[doubtful] = np.any(np.all(np.isfinite(values), axis=0), axis=-1)
    return found


def _affordable(accepted: np.ndarray, split: np.ndarray) -> float:
    """The distance up to which accepted panels, and two for each to be split, are not too many."""
    inner = np.concatenate([accepted, split])
    order = np.argsort(inner)
    count = np.cumsum(np.where(order < accepted.size, 1, 2))
    too_many = np.flatnonzero(count > _MOST)
    return float(inner[order[too_many[0]]]) if too_many.size else math.inf


def _enough(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """How many places a panel must have been tried at; powers of two, for few of them to differ."""
    length, inner = right - left, _inner(left, right)
    spacing = np.where(inner < _NEAR, _FINE_NEAR, _FINE)
    spacing = np.where(inner > _BULK, _FINE_FAR * inner, spacing)
    return 2 ** np.ceil(np.log2(np.maximum(length / spacing, FEWEST_PLACES))).astype(int)


def _relative(error: np.ndarray, size: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The worst error of each panel on the scale of its surroundings."""
    share = np.where(np.isfinite(size), size, 0.0) / scale
    return np.max(np.maximum(error[0] * share, error[1] * share**2), axis=0)


@functools.lru_cache(maxsize=256)
def panels_of(sigma: Activation) -> Panels | None:
    """The panels of an activation, found once; None for a known one, which has one length scale.

    **Arguments:**

    - `sigma`: an `Activation`.

    **Returns:** its `Panels`, or None.
    """
    if sigma.known:
        return None
    return find_panels(sigma) if sigma.panels is None else sigma.panels


def _first_panels(sigma: Activation) -> tuple[np.ndarray, np.ndarray]:
    # Off the whole numbers, where people put kinks: an edge there would hide them.
    near = np.arange(-_BULK, _BULK + 1.0) + 0.1 / math.pi
    steps = np.arange(1, 1 + math.ceil(math.log(_FARTHEST / _BULK, _RATIO)))
    far = (_BULK + 0.1 / math.pi) * _RATIO**steps
    kinks = np.array([kink.location for kink in sigma.kinks])
    edges = np.unique(np.concatenate([-far, near, far, kinks]))
    edges = edges[
        np.concatenate([[True], np.diff(edges) > 1e-12 * np.maximum(1.0, np.abs(edges[1:]))])
    ]
    return edges[:-1], edges[1:]


def _inner(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The smallest |z| of a panel."""
    return np.where(left * right > 0.0, np.minimum(np.abs(left), np.abs(right)), 0.0)


def _running_scales(inner: np.ndarray, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(inner)
    finite = np.where(np.isfinite(size), size, 0.0)[:, order]
    return inner[order], np.maximum.accumulate(finite, axis=1)


def _trial(
    sigma: Activation, left: np.ndarray, right: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of interpolation of σ, σ', σ'' and of their squares, and the moduli.

    Squares, because averages hold products of up to four: the nodes of a panel integrate exactly
    what interpolates a square, squared.
    """
    error, size = np.empty((2, 3, left.size)), np.empty((3, left.size))
    for count in np.unique(places):
        inside, matrix = strata(int(count)), _interpolation(int(count))
        (all_here,) = np.nonzero(places == count)
        for here in np.array_split(all_here, -(-all_here.size * int(count) // _AT_ONCE)):
            z = spread(left[here], right[here], np.concatenate([NODES, inside]))
            values = _values(sigma.function, z)
            with np.errstate(invalid="ignore", over="ignore"):
                size[:, here] = np.abs(values).max(axis=-1)
                values /= np.maximum(size[:, here], 1e-290)[..., None]
                for power in (1, 2):
                    known, there = np.split(values**power, [NODES.size], axis=-1)
                    error[power - 1, :, here] = np.abs(there - known @ matrix.T).max(axis=-1).T
    # Where σ is not finite no error is: the panel is given up for its size.
    return np.where(np.isfinite(error), error, 1.0), np.where(np.isnan(size), np.inf, size)


def false_slope(sigma: Activation, panels: Panels) -> float | None:
    """Where, nearest to 0, σ or σ' does not change by the integral of what JAX calls its slope.

    None for an honest function. One with a `stop_gradient` or a derivative of its own has a slope
    that gradients follow and Gaussian averages, integrated by parts, do not.

    **Arguments:**

    - `sigma`: an `Activation`.
    - `panels`: its panels.

    **Returns:** the place, or None.
    """
    left, right = panels.edges[:-1], panels.edges[1:]
    long = (right - left > 1e-3) & (_inner(left, right) < _BULK)
    left, right = left[long], right[long]
    values = _values(sigma.function, spread(left, right, NODES))
    half = 0.5 * (right - left)
    change = values[:2] - values[:2, :, :1]
    integral = half[:, None] * (values[1:] @ _integration().T)
    scale = panels.scale(0.5 * (left + right))
    allowed = 1e-6 * (scale[:2] + half * scale[1:])
    wrong = np.any(np.abs(change - integral).max(axis=-1) > allowed, axis=0)
    middle = 0.5 * (left + right)[wrong]
    return float(middle[np.argmin(np.abs(middle))]) if middle.size else None


@functools.cache
def _integration() -> np.ndarray:
    """From values at the nodes to the integrals of the polynomial from the first node to each."""
    legendre = np.polynomial.legendre
    degrees = np.arange(NODES.size)
    projection = (degrees + 0.5)[:, None] * legendre.legvander(NODES, NODES.size - 1).T * WEIGHTS
    integrals = legendre.legvander(NODES, NODES.size) @ legendre.legint(np.eye(NODES.size))
    return (integrals - integrals[0]) @ projection


@functools.cache
def _interpolation(count: int) -> np.ndarray:
    """From values at the nodes to the polynomial's values at the places."""
    legendre = np.polynomial.legendre.legvander
    degrees = np.arange(NODES.size)
    projection = (degrees + 0.5)[:, None] * legendre(NODES, NODES.size - 1).T * WEIGHTS
    return legendre(strata(count), NODES.size - 1) @ projection


@float64
def _values(function: ScalarFunction, z: np.ndarray) -> np.ndarray:
    """σ, σ', σ'' at any places, stacked."""
    flat = z.reshape(-1)
    padded = np.zeros(-(-flat.size // _CHUNK) * _CHUNK)
    padded[: flat.size] = flat
    compiled = _compiled(function)
    parts = [np.asarray(compiled(part)) for part in padded.reshape(-1, _CHUNK)]
    return np.concatenate(parts, axis=1)[:, : flat.size].reshape(3, *z.shape)


@functools.lru_cache(maxsize=128)
def _compiled(function: ScalarFunction):
    def first(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(function, (z,), (jnp.ones_like(z),))

    def second(z: jax.Array) -> jax.Array:
        (value, slope), (_, curvature) = jax.jvp(first, (z,), (jnp.ones_like(z),))
        return jnp.stack([value, slope, curvature])

    return jax.jit(jax.vmap(second, out_axes=1))
