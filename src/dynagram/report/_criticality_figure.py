"""Where an initialisation lies in its phase plane, and what depth does to signals there."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagram.networks import MLP
from dynagram.report._export import alt
from dynagram.report._figures import flow
from dynagram.report._phase import phase_figure
from dynagram.theory._initialisation import Initialisation
from dynagram.theory.criticality._laws import kernel_law
from dynagram.theory.criticality._one_input import single_input


def criticality_figure(start: Initialisation, depth: int = 100) -> Any:
    """The phase plane beside the flow of K over `depth` layers, an altair chart."""
    points = {}
    if start.points:
        points["critical"] = (start.points[0].C_W, start.points[0].C_b)
    if start.given is not None:
        points["yours"] = (start.given[1], start.given[0])
    charts = [phase_figure(start.sigma, points, width=400)]
    if variances := start.given or start.critical:
        C_b, C_W = variances
        layers = np.arange(1, depth + 1)
        starts = np.array([0.3, 1.0, 3.0])
        K = single_input(MLP([1] * (layers.size + 1), start.sigma, C_b, C_W), starts).K
        series = {f"starting at K = {k:g}": K[:, i] for i, k in enumerate(starts)}
        law = None
        if start.given is None and start.points[0].K_star == 0 and start.points[0].exponents.p_0:
            law = ("law at large depth", kernel_law(start.points[0], layers.astype(np.float64)))
        charts.append(
            flow(layers, series, y_title="kernel K (signal variance)", law=law, log=True, width=400)
        )
    return alt.hconcat(*charts).resolve_scale(color="independent", strokeDash="independent")
