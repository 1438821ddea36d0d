"""Figures of the Gram experiments: means with error bars along an axis, and coloured points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dynagram.errors import MissingExtraError
from dynagram_experiments._minibatch import Mean


def if_possible(make: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """The figures of `make`, or none where the extra `report` is not installed."""
    try:
        return make()
    except MissingExtraError:
        return {}


def curves(
    series: Mapping[str, Mapping[Any, Mean]],
    *,
    x_title: str,
    y_title: str,
    log_x: bool = False,
    log_y: bool = False,
    ticks: Sequence[Any] | None = None,
    nulls: Mapping[str, float] | None = None,
    title: str = "",
    width: int = 520,
    height: int = 280,
) -> Any:
    """One line per name through means with bars of ±2 standard errors.

    `nulls` are horizontal guides with a label each. Marks of different names are set slightly
    apart nowhere: where bars overlap, the means agree.
    """
    from dynagram.report._export import alt
    from dynagram.report._figures import chart_rows, distinguished
    from dynagram.report._theme import REFERENCE

    names = list(series)
    data = chart_rows(
        name=[name for name, line in series.items() for _ in line],
        x=[x for line in series.values() for x in line],
        y=[mean.value for line in series.values() for mean in line.values()],
        low=[mean.value - 2 * mean.error for line in series.values() for mean in line.values()],
        high=[mean.value + 2 * mean.error for line in series.values() for mean in line.values()],
    )
    marks: dict[str, Any] = {"values": list(ticks)} if ticks else {"tickCount": 6}
    axis = alt.Axis(**marks, format="~g") if log_x else alt.Axis(**marks)
    places = [x for line in series.values() for x in line]
    # Room at both ends, so that no point sits on the frame.
    low, high = min(places), max(places)
    if log_x:
        margin = (high / low) ** 0.04
        x_scale = alt.Scale(type="log", nice=False, domain=[low / margin, high * margin])
    else:
        margin = 0.04 * (high - low)
        x_scale = alt.Scale(nice=False, domain=[low - margin, high + margin])
    y_scale = alt.Scale(type="log") if log_y else alt.Scale(zero=False)
    x = alt.X("x:Q", title=x_title, scale=x_scale, axis=axis)
    decades = [10.0**k for k in range(-12, 7)]
    y_axis = alt.Axis(values=decades, format="~g") if log_y else alt.Axis(tickCount=6, format="~g")
    y = alt.Y("y:Q", title=y_title, scale=y_scale, axis=y_axis)
    base = alt.Chart(data)
    colour = distinguished(alt.Color, "name", names, lines=True)
    dash = distinguished(alt.StrokeDash, "name", names, lines=True)
    layers = [
        base.mark_line(clip=True).encode(x=x, y=y, color=colour, strokeDash=dash),
        base.mark_rule(strokeWidth=1.6, clip=True).encode(
            x=x, y=alt.Y("low:Q", title=y_title), y2="high:Q", color=colour
        ),
        base.mark_point(opacity=1, size=36).encode(x=x, y=y, color=colour),
    ]
    if nulls:
        guides = chart_rows(label=list(nulls), y=list(nulls.values()))
        rule = alt.Chart(guides).mark_rule(color=REFERENCE, strokeDash=[4, 4]).encode(y="y:Q")
        text = (
            alt.Chart(guides)
            .mark_text(align="left", dx=6, dy=-7)
            .encode(y="y:Q", x=alt.value(0), text="label:N")
        )
        layers += [rule, text]
    extra = {"title": title} if title else {}
    return alt.layer(*layers).properties(width=width, height=height, **extra)


def coloured_points(
    panels: Mapping[str, tuple[np.ndarray, np.ndarray]], *, colour_title: str, size: int = 230
) -> Any:
    """Clouds of 2-D points, one panel per title, each coloured by one number per point."""
    from dynagram.report._export import alt
    from dynagram.report._figures import chart_rows

    charts = []
    for title, (points, colour) in panels.items():
        data = chart_rows(x=points[:, 0], y=points[:, 1], value=colour)
        charts.append(
            alt.Chart(data, title=title)
            .mark_circle(size=14, opacity=0.8)
            .encode(
                x=alt.X("x:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4)),
                y=alt.Y("y:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=4)),
                color=alt.Color(
                    "value:Q",
                    title=colour_title,
                    scale=alt.Scale(scheme="viridis"),
                    legend=alt.Legend(orient="right", gradientLength=180),
                ),
            )
            .properties(width=size, height=size)
        )
    return alt.hconcat(*charts)
