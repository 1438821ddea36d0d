"""Figure 5.1: two ways to find the critical initialisation of tanh."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagram.theory.criticality import critical_points, criticality_curves
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.book._criticality import ratio_panel, ratio_table

NAME = "book-fig5-1"
ACTIVATION = "tanh"
# Curves start at K* = 0, where they meet.
KERNELS = np.concatenate([[1e-6], np.linspace(0.01, 6.0, 240)])


def _run(settings: Settings) -> Result:  # noqa: ARG001
    curves = criticality_curves(ACTIVATION, KERNELS)
    columns = ratio_table([ACTIVATION], KERNELS)
    plane = {
        "K": KERNELS.tolist(),
        "perpendicular_C_W": curves.perpendicular_C_W.tolist(),
        "perpendicular_C_b": curves.perpendicular_C_b.tolist(),
        "parallel_C_W": curves.parallel_C_W.tolist(),
        "parallel_C_b": curves.parallel_C_b.tolist(),
    }
    (point,) = critical_points(ACTIVATION)
    ratio = np.array(columns[ACTIVATION])
    start = [plane[name][0] for name in plane if name != "K"]
    gap = curves.parallel_C_W - curves.perpendicular_C_W
    statements = (
        Statement(
            "the lines χ⊥ = 1 and χ∥ = 1 meet at (C_W, C_b) = (1, 0), and there only",
            bool(np.allclose(start, [1, 0, 1, 0], atol=1e-4) and np.all(gap[1:] > 0)),
            f"at K* = {KERNELS[0]:g}: ({start[0]:.6f}, {start[1]:.1e}) and ({start[2]:.6f}, "
            f"{start[3]:.1e}); C_W of the lines apart by {gap[1]:.3f} at K* = {KERNELS[1]:g} and "
            f"by {gap[-1]:.1f} at {KERNELS[-1]:g}",
        ),
        Statement(
            "the left side of (5.73) reaches 1 as K* → 0 and grows with K*",
            bool(abs(ratio[0] - 1.0) < 1e-4 and np.all(np.diff(ratio) > 0)),
            f"{ratio[0]:.6f} at K* = {KERNELS[0]:g}, {ratio[-1]:.3f} at {KERNELS[-1]:g}",
        ),
        Statement(
            "`critical_points` finds that initialisation",
            (point.C_b, point.C_W, point.K_star) == (0.0, 1.0, 0.0),
            f"C_b = {point.C_b:g}, C_W = {point.C_W:g}, K* = {point.K_star:g}",
        ),
    )

    def figure() -> dict[str, Any]:
        from dynagram.report import Axis, Line, line_chart, side_by_side

        left = line_chart(
            {
                "χ⊥ = 1": Line(curves.perpendicular_C_W, curves.perpendicular_C_b),
                "χ∥ = 1": Line(curves.parallel_C_W, curves.parallel_C_b),
            },
            Axis("weight variance C_W", domain=(0.0, 5.2)),
            Axis("bias variance C_b (dot: critical point)", domain=(-1.0, 3.0)),
            points={"χ⊥ = 1": Line([point.C_W], [point.C_b])},
            title="fixed points with one susceptibility 1",
            width=300,
            height=220,
        )
        right = ratio_panel(
            columns, ACTIVATION, [point], shown=(0.0, 10.0), title="the condition (5.73)"
        )
        return {"figure5_1": side_by_side([left, right])}

    return Result(
        statements,
        {"figure5_1_plane": plane, "figure5_1_ratio": columns},
        draw_if_possible(figure),
    )


EXPERIMENT = Experiment(
    name=NAME,
    summary="two ways to the critical initialisation of tanh meet at (C_W, C_b) = (1, 0)",
    source="The Principles of Deep Learning Theory, figure 5.1",
    run=_run,
)
