"""Figure 5.3: SWISH and GELU meet the condition (5.73) twice."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagram.theory.criticality import CriticalPoint, critical_points
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.book._criticality import ratio_panel, ratio_table

NAME = "book-fig5-3"
KERNELS = np.concatenate([[1e-6], np.linspace(0.02, 20.0, 400)])
# K*, C_b and C_W of the half-stable points as printed, (5.101) and (5.104), in eight digits.
PRINTED = {
    "swish": (14.32017362, 0.55514317, 1.98800468),
    "gelu": ((3 + 17**0.5) / 2, 0.17292239, 1.98305826),
}


def _run(settings: Settings) -> Result:  # noqa: ARG001
    columns = ratio_table(list(PRINTED), KERNELS)
    points = {name: list(critical_points(name)) for name in PRINTED}
    statements = [_statement(name, points[name]) for name in PRINTED]

    def figure() -> dict[str, Any]:
        from dynagram.report import side_by_side

        charts = [
            ratio_panel(columns, name, points[name], shown=(0.86, 1.04), title=name.upper())
            for name in PRINTED
        ]
        return {"figure5_3": side_by_side(charts)}

    return Result(tuple(statements), {"figure5_3": columns}, draw_if_possible(figure))


def _statement(name: str, points: list[CriticalPoint]) -> Statement:
    printed = PRINTED[name]
    zero = [point for point in points if point.K_star == 0.0]
    others = [point for point in points if point.K_star]
    (half_stable,) = others or [None]
    found = (half_stable.K_star, half_stable.C_b, half_stable.C_W) if half_stable else (np.nan,) * 3
    worst = float(np.max(np.abs(np.array(found) - printed)))
    return Statement(
        f"{name.upper()} is critical at K* = 0, C_W = 4, and at a half-stable K* > 0, as printed",
        bool(len(zero) == 1 and abs(zero[0].C_W - 4.0) < 1e-12 and worst < 1e-8),
        "K* = {:.8f}, C_b = {:.8f}, C_W = {:.8f}".format(*found)
        + f", at most {worst:.0e} from the printed digits",
    )


EXPERIMENT = Experiment(
    name=NAME,
    summary="SWISH and GELU are critical at K* = 0 and at a half-stable point, as printed",
    source="The Principles of Deep Learning Theory, figure 5.3",
    run=_run,
)
