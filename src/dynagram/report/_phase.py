"""The phase plane of an activation: where χ∥ = 1 and χ⊥ = 1 lie, as in Fig. 5.1 of the book."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.activations import activation as resolve
from dynagram.report._export import Chart
from dynagram.report._figures import WIDTH, phase_plane
from dynagram.theory.criticality import criticality_curves, parallel_susceptibility

# Spelled out: few fonts have the signs ∥ and ⊥.
PERPENDICULAR = "χ perpendicular = 1: directions kept"
PARALLEL = "χ parallel = 1: norms kept"
BOTH = "χ parallel = χ perpendicular = 1"

Curve = tuple[Float[np.ndarray, " _"], Float[np.ndarray, " _"]]
_K_STAR = np.geomspace(1e-4, 1e3, 200)


def phase_figure(
    activation: str | Activation,
    points: Mapping[str, tuple[float, float]],
    *,
    width: int = WIDTH,
) -> Chart:
    """The phase plane around labelled `points` (C_W, C_b), with ranges that show them all.

    **Arguments:**

    - `activation`: a name or an `Activation`.
    - `points`: maps a label to (C_W, C_b); without any, the curves below C_b = 0 are shown.
    - `width`: of the chart in pixels.

    **Returns:** a chart.

    >>> chart = phase_figure("tanh", {"critical": (1.0, 0.0)})
    >>> chart.to_dict()["layer"][0]["encoding"]["y"]["scale"]["domain"]
    [-0.009, 0.15]
    """
    sigma = resolve(activation)
    curves = _curves(sigma)
    C_W, C_b = [p[0] for p in points.values()], [p[1] for p in points.values()]
    if not points:  # no critical point: show where the curves are instead, below C_b = 0
        C_W, C_b = [float(min(np.min(along) for along, _ in curves.values() if along.size))], [0.0]
    left, right = 0.5 * min(C_W), 1.8 * max(C_W)
    top = max(0.15 * max(C_W), 1.8 * max(C_b))
    # Biases have no negative variance: only as much below 0 as a mark on the line needs.
    bottom = -0.06 * top if points else _lowest(curves, right)
    if sigma.is_scale_invariant:
        curves = {BOTH: (curves[BOTH][0], np.array([bottom, top]))}
    near = {name: _near(curve, (left, right), (bottom, top)) for name, curve in curves.items()}
    return phase_plane(near, points, C_W=(left, right), C_b=(bottom, top), width=width)


def _curves(sigma: Activation) -> dict[str, Curve]:
    if sigma.is_scale_invariant:
        # χ = C_W A₂ does not depend on K: one vertical line (5.62).
        critical = float(criticality_curves(sigma, np.ones(1)).parallel_C_W[0])
        return {BOTH: (np.full(2, critical), np.zeros(2))}
    # Averages of exponentially growing activations leave float64 early.
    K = _K_STAR if sigma.growth == 0.0 else _K_STAR[10.0 / sigma.growth**2 > _K_STAR]
    # cos and sin at large K: g' underflows, and no C_W makes χ∥ = 1.
    K = K[parallel_susceptibility(sigma, K, 1.0) != 0.0]
    found = criticality_curves(sigma, K)
    possible = found.parallel_C_W > 0
    return {
        PERPENDICULAR: (found.perpendicular_C_W, found.perpendicular_C_b),
        PARALLEL: (found.parallel_C_W[possible], found.parallel_C_b[possible]),
    }


def _lowest(curves: dict[str, Curve], right: float) -> float:
    values = [up[along < right] for along, up in curves.values()]
    return 1.1 * float(np.min(np.concatenate(values), initial=-0.1))


def _near(curve: Curve, C_W: tuple[float, float], C_b: tuple[float, float]) -> Curve:
    """The curve without what lies far outside the picture and would only swell the page."""
    x, y = curve
    reach = 1.5 * (C_W[1] - C_W[0])
    near = np.abs(x - 0.5 * (C_W[0] + C_W[1])) < reach
    height = 10.0 * max(abs(C_b[0]), abs(C_b[1]))
    return x[near], np.clip(y[near], -height, height)
