"""Figure 5.2: sigmoid and softplus cannot be tuned to criticality."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagram.activations import activation
from dynagram.theory.criticality import critical_points, criticality_curves
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.book._criticality import ratio_panel, ratio_table

NAME = "book-fig5-2"
ACTIVATIONS = ("sigmoid", "softplus")
KERNELS = np.concatenate([[1e-6], np.linspace(0.01, 3.0, 150)])


def _run(settings: Settings) -> Result:  # noqa: ARG001
    columns = ratio_table(ACTIVATIONS, KERNELS)
    sigmoid, softplus = (np.array(columns[name]) for name in ACTIVATIONS)
    curves = criticality_curves("sigmoid", KERNELS[:1])
    C_W, C_b = float(curves.perpendicular_C_W[0]), float(curves.perpendicular_C_b[0])
    shifted = [critical_points(f"{name}({float(activation(name).taylor(0)[0])!r})")
               for name in ACTIVATIONS]  # fmt: skip
    statements = (
        Statement(
            "sigmoid: (5.73) is met as K* → 0, where C_b would have to be negative (5.74)",
            bool(abs(sigmoid[0] - 1) < 1e-4 and np.all(sigmoid[1:] > 1) and C_b < 0),
            f"ratio {sigmoid[0]:.6f} at K* = {KERNELS[0]:g} with C_W = {C_W:.4f}, C_b = {C_b:.4f}",
        ),
        Statement(
            "softplus: (5.73) is met nowhere",
            bool(np.all(np.abs(softplus - 1) > 0.05)),
            f"ratio from {softplus.min():.4f} to {softplus.max():.4f} for K* up to {KERNELS[-1]:g}",
        ),
        Statement(
            "`critical_points` finds none for either",
            not any(critical_points(name) for name in ACTIVATIONS),
            ", ".join(f"{name}: {len(critical_points(name))}" for name in ACTIVATIONS),
        ),
        Statement(
            "shifted to pass through the origin (5.76) they have one at K* = 0",
            all(any(point.K_star == 0.0 for point in points) for points in shifted),
            "; ".join(
                f"{name} − σ(0): " + ", ".join(f"K* = {p.K_star:.4g}" for p in points)
                for name, points in zip(ACTIVATIONS, shifted, strict=True)
            ),
        ),
    )

    def figure() -> dict[str, Any]:
        from dynagram.report import side_by_side

        charts = [ratio_panel(columns, name, [], shown=(0.0, 2.2)) for name in ACTIVATIONS]
        return {"figure5_2": side_by_side(charts)}

    return Result(statements, {"figure5_2": columns}, draw_if_possible(figure))


EXPERIMENT = Experiment(
    name=NAME,
    summary="sigmoid and softplus have no critical initialisation; shifted by σ(0) they have",
    source="The Principles of Deep Learning Theory, figure 5.2",
    run=_run,
)
