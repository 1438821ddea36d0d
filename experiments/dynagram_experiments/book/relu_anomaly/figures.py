"""The figure of book-relu-anomaly: the change of the NTK against width and against depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynagram.results import Estimate
from dynagram_experiments._parts import Table


def draw(
    table: Table,
    names: Sequence[str],
    depth: int,
    of_depths: Mapping[int, Estimate],
    laws: Mapping[int, float],
) -> dict[str, Any]:
    """Left: the change times √n against 1/√n, a line to a at 0. Right: a and its law with depth.

    Bars are ± two standard errors.
    """
    from dynagram.report import Axis, Line, line_chart, side_by_side

    lines = {}
    for name in names:
        where = {"activation": name, "depth": depth}
        n = table.each("width", **where).astype(float)
        order = np.argsort(n)
        mean, error = (np.sqrt(n) * table.each(c, **where) for c in ("mean", "mean_error"))
        lines[name] = Line(n[order] ** -0.5, mean[order], 2.0 * error[order])
    left = line_chart(
        lines, Axis("1/√n", domain=(0.0, 0.19)), Axis("√n E[ΔH]/Θ", guides={"": 0.0}),
        title=f"L = {depth}", width=300, height=260, names=[*names, "law"],
    )  # fmt: skip
    right = line_chart(
        {"law": Line(list(laws), list(laws.values()))},
        Axis("depth L", ticks=list(laws), domain=(1.5, max(laws) + 0.5), format="d"),
        Axis("limit of √n E[ΔH]/Θ at n = ∞", guides={"": 0.0}),
        points={names[0]: Line.through(of_depths)},
        title=f"{names[0]}, against depth", width=300, height=260, names=[*names, "law"],
    )  # fmt: skip
    return {"relu_anomaly": side_by_side([left, right])}
