"""What figures 5.1 to 5.3 plot: the ratio χ⊥/χ∥ of (5.73), 1 where σ can be critical."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.theory.criticality import CriticalPoint, susceptibility_ratio

KERNEL = "fixed point K*"
CURVE = "χ⊥/χ∥"


def ratio_table(names: Sequence[str], K: Float[np.ndarray, " point"]) -> dict[str, list[Any]]:
    """The ratio of every activation at every K, as columns."""
    columns: dict[str, list[Any]] = {"K": K.tolist()}
    for name in names:
        columns[name] = susceptibility_ratio(name, K).tolist()
    return columns


def ratio_panel(
    columns: Mapping[str, Sequence[Any]],
    name: str,
    points: Sequence[CriticalPoint],
    *,
    shown: tuple[float, float],
    title: str | None = None,
) -> Any:
    """One panel of a figure: the ratio, the level 1, and dots where the network is critical."""
    from dynagram.report import Axis, Line, line_chart

    K, ratio = np.array(columns["K"]), np.array(columns[name])
    met = [point.K_star for point in points if point.K_star is not None]
    return line_chart(
        {CURVE: Line(K, ratio)},
        Axis(KERNEL, domain=(-0.04 * K[-1], 1.04 * K[-1])),
        Axis(f"{CURVE} (dots: critical points)" if met else CURVE, domain=shown, guides={"": 1.0}),
        points={CURVE: Line(met, np.ones(len(met)))} if met else None,
        title=title or name,
        width=300,
        height=220,
    )
