"""Plain charts for experiments: named lines and point clouds on linear or logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynagram.report._export import Chart, alt
from dynagram.report._figures import HEIGHT, WIDTH, chart_rows, distinguished
from dynagram.report._theme import REFERENCE

Series = Mapping[str, tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]]


def xy_chart(
    points: Series | None = None,
    lines: Series | None = None,
    *,
    x_title: str,
    y_title: str,
    log_x: bool = False,
    log_y: bool = False,
    diagonal: bool = False,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Chart:
    """Named point clouds and lines; `diagonal` adds y = x for predicted against measured.

    Names are told apart by colour and by shape or dash; a name in both shares its colour.

    >>> a = [1.0, 2.0], [2.0, 3.0]
    >>> chart = xy_chart({"a": a}, {"a": a}, x_title="x", y_title="y")
    >>> len(chart.to_dict()["layer"])
    2
    """
    points, lines = points or {}, lines or {}
    names = list(dict.fromkeys([*points, *lines]))
    x = alt.X("x:Q", title=x_title, scale=_scale(log_x), axis=alt.Axis(tickCount=6))
    y = alt.Y("y:Q", title=y_title, scale=_scale(log_y), axis=alt.Axis(tickCount=6))
    layers: list[Any] = []
    if diagonal:
        ends = _ends(points, lines)
        rows = chart_rows(x=ends, y=ends)
        layers.append(
            alt.Chart(rows).mark_line(color=REFERENCE, strokeDash=[4, 4]).encode(x=x, y=y)
        )
    if lines:
        marks = alt.Chart(_rows(lines)).mark_line(clip=True)
        colour = distinguished(alt.Color, "name", names, lines=True)
        dash = distinguished(alt.StrokeDash, "name", names, lines=True)
        layers.append(marks.encode(x=x, y=y, order="order:Q", color=colour, strokeDash=dash))
    if points:
        marks = alt.Chart(_rows(points)).mark_point(filled=True, size=45, opacity=0.8)
        colour = distinguished(alt.Color, "name", names, lines=bool(lines))
        shape = distinguished(alt.Shape, "name", names)
        encoded = {"color": colour} if lines else {"color": colour, "shape": shape}
        layers.append(marks.encode(x=x, y=y, **encoded))
    return alt.layer(*layers).properties(width=width, height=height)


def _scale(log: bool) -> Any:
    return alt.Scale(type="log", nice=False, padding=12) if log else alt.Scale(zero=False)


def _rows(series: Series) -> Any:
    return chart_rows(
        name=[name for name, (along, _) in series.items() for _ in along],
        order=[index for along, _ in series.values() for index in range(len(along))],
        x=np.concatenate([np.asarray(along, dtype=float) for along, _ in series.values()]),
        y=np.concatenate([np.asarray(up, dtype=float) for _, up in series.values()]),
    )


def _ends(*groups: Series) -> np.ndarray:
    values = [np.asarray(part, dtype=float) for g in groups for pair in g.values() for part in pair]
    joined = np.concatenate(values)
    joined = joined[np.isfinite(joined)]
    return np.array([joined.min(), joined.max()])
