"""Charts of the field experiments: panels of lines with error bars, each line told by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dynagram.report._export import Chart, alt
from dynagram.report._theme import REFERENCE


@dataclass(frozen=True)
class Axis:
    """One axis: its title, kind of scale, the ticks wanted and whether 0 must be seen."""

    title: str
    scale: str = "linear"
    ticks: Sequence[float | int] | None = None
    domain: tuple[float | int, float | int] | None = None
    format: str = ""
    zero: bool = True


@dataclass(frozen=True, eq=False)
class Line:
    """One line: where, what, and (where there are any) standard errors or a second set of values.

    `dots` are drawn as rings on the same places: another way to get the same numbers.
    """

    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    dots: Sequence[float] | None = None


def panels(
    lines: Mapping[str, Mapping[str, Line]],
    x: Axis,
    y: Axis,
    *,
    columns: int = 2,
    level: float | None = None,
    width: int = 300,
    height: int = 200,
) -> Chart:
    """One panel per entry of `lines`, one line per entry of that; legend and scale are shared.

    Bars are ± one standard error; `level` is a reference line through every panel.
    """
    y = replace(y, domain=y.domain or _common(lines, y))
    names = list(dict.fromkeys(name for panel in lines.values() for name in panel))
    made = [
        _panel(title, panel, names, x, y, level, (width, height)) for title, panel in lines.items()
    ]
    rows = [made[i : i + columns] for i in range(0, len(made), columns)]
    return alt.vconcat(*(alt.hconcat(*row, spacing=28) for row in rows), spacing=22)


def _panel(
    title: str,
    lines: Mapping[str, Line],
    names: list[str],
    x: Axis,
    y: Axis,
    level: float | None,
    size: tuple[int, int],
) -> Any:
    values = [
        {"series": name, "x": _number(place), "y": _number(value), **_bar(line, index)}
        for name, line in lines.items()
        for index, (place, value) in enumerate(zip(line.x, line.y, strict=True))
    ]
    symbol = {"symbolType": "stroke", "symbolSize": 250}
    legend = alt.Legend(orient="bottom", columns=4, **symbol)
    scale = alt.Scale(domain=names)
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("x:Q", title=x.title, scale=_scale(x), axis=_ticks(x)),
        color=alt.Color("series:N", title=None, scale=scale, legend=legend),
    )
    dash = alt.StrokeDash("series:N", title=None, scale=scale, legend=legend)
    place = {"title": y.title, "scale": _scale(y), "axis": _ticks(y)}
    layers = [base.mark_line(point=_points(lines)).encode(y=alt.Y("y:Q", **place), strokeDash=dash)]
    if any(line.error is not None for line in lines.values()):
        layers.append(
            base.mark_rule(strokeWidth=1.4).encode(y=alt.Y("low:Q", **place), y2="high:Q")
        )
    if any(line.dots is not None for line in lines.values()):
        rings = base.mark_point(filled=False, size=36).encode(y=alt.Y("dots:Q", **place))
        layers.append(rings)
    if level is not None:
        rule = alt.Chart(alt.Data(values=[{"y": level}])).mark_rule(
            color=REFERENCE, strokeDash=[3, 3]
        )
        layers.insert(0, rule.encode(y=alt.Y("y:Q", **place)))
    width, height = size
    return alt.layer(*layers).properties(title=title, width=width, height=height)


def _points(lines: Mapping[str, Line]) -> Any:
    """Points on lines of a few values; not where there are many, or rings."""
    few = sum(len(line.x) for line in lines.values()) < 120
    plain = all(line.dots is None for line in lines.values())
    return alt.OverlayMarkDef(size=22) if few and plain else False


def _common(lines: Mapping[str, Mapping[str, Line]], y: Axis) -> tuple[float, float]:
    """What holds all lines and bars, with room around them."""
    shown = [line for panel in lines.values() for line in panel.values()]
    spread = [np.zeros(len(s.y)) if s.error is None else np.asarray(s.error) for s in shown]
    values = np.concatenate([np.asarray(s.y) + e for s, e in zip(shown, spread, strict=True)])
    lower = np.concatenate([np.asarray(s.y) - e for s, e in zip(shown, spread, strict=True)])
    low, high = float(np.nanmin(lower)), float(np.nanmax(values))
    if y.scale == "log":
        return low / 1.3, high * 1.3
    margin = 0.05 * (high - low)
    return (0.0 if y.zero and low >= 0 else low - margin), high + margin


def _bar(line: Line, index: int) -> dict[str, float | None]:
    row = {} if line.dots is None else {"dots": _number(line.dots[index])}
    if line.error is None:
        return row
    value, error = line.y[index], line.error[index]
    return row | {"low": _number(value - error), "high": _number(value + error)}


def _scale(axis: Axis) -> Any:
    kind: dict[str, Any] = {"type": axis.scale, "nice": False}
    if axis.domain is not None:
        kind["domain"] = list(axis.domain)
    return alt.Scale(**kind)


def _ticks(axis: Axis) -> Any:
    options: dict[str, Any] = {"format": axis.format} if axis.format else {}
    if axis.ticks is None:
        return alt.Axis(tickCount=5, **options)
    return alt.Axis(values=list(axis.ticks), **options)


def _number(value: float) -> float | None:
    """Six digits, and a gap where there is no number."""
    return float(f"{float(value):.6g}") if np.isfinite(value) else None
