"""Charts of any numbers: named lines and points with error bars, one panel or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dynagram.report._export import Chart, alt
from dynagram.report._figures import HEIGHT, WIDTH, chart_rows, distinguished
from dynagram.report._theme import REFERENCE
from dynagram.results._estimate import Estimate

# Room at both ends of an axis, so that no mark sits on the frame; the legend's entries in a row.
_MARGIN = 0.04
_LEGEND_COLUMNS = 4
LONGEST_LEGEND = 12
# Lines of fewer values than this show where their values are.
_FEW = 120

Numbers = Sequence[float | int] | np.ndarray


@dataclass(frozen=True)
class Axis:
    """One axis of a chart.

    **Arguments:**

    - `title`: what is along it, with its unit; in lines, where it is long.
    - `scale`: "linear", "log" or "symlog".
    - `ticks`: where ticks are wanted; None leaves them to the chart.
    - `domain`: the range shown; None takes that of all values and bars, with room around them.
    - `format`: of the tick labels, as in d3.
    - `zero`: whether values that are all ≥ 0 are shown from 0 on.
    - `guides`: levels to be marked by a dashed line across the panel, by label.
    """

    title: str
    scale: str = "linear"
    ticks: Numbers | None = None
    domain: tuple[float | int, float | int] | None = None
    format: str = ""
    zero: bool = False
    guides: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Line:
    """One named series.

    **Arguments:**

    - `x`, `y`: its places and values; what is not finite is a gap.
    - `error`: half the lengths of its error bars.
    - `rings`: another way to get the same values, drawn as rings at the same places.
    - `band`: the lower and upper ends of a shaded range behind it.
    """

    x: Numbers
    y: Numbers
    error: Numbers | None = None
    rings: Numbers | None = None
    band: tuple[Numbers, Numbers] | None = None

    @classmethod
    def through(cls, estimates: Mapping[Any, Estimate], sigmas: float = 2.0) -> Line:
        """The line through estimates by place, with bars of ± `sigmas` standard errors."""
        values = [float(estimate.value) for estimate in estimates.values()]
        errors = [sigmas * float(estimate.standard_error) for estimate in estimates.values()]
        return cls(list(estimates), values, errors)


def line_chart(
    lines: Mapping[str, Line],
    x: Axis,
    y: Axis,
    *,
    points: Mapping[str, Line] | None = None,
    diagonal: bool = False,
    title: str = "",
    width: int = WIDTH,
    height: int = HEIGHT,
    names: Sequence[str] | None = None,
    ordered: bool = False,
) -> Chart:
    """Named lines and clouds of points in one panel.

    Names are told apart by colour and by dash or, where there are only points, by shape; a name
    among both lines and points has one colour. Colours of names in an order run along it.

    **Arguments:**

    - `lines`: the series drawn as lines, by name.
    - `x`, `y`: the axes.
    - `points`: the series drawn as points, by name.
    - `diagonal`: adds y = x, for predicted against measured.
    - `title`, `width`, `height`: of the panel; sizes in pixels.
    - `names`: all names of the legend, where it is shared with other panels.
    - `ordered`: whether the names of lines are an order, such as that of layers; more of them than
        a legend can hold are named where one points at them.

    **Returns:** the chart, for `save`.

    >>> a = Line([1.0, 2.0], [2.0, 3.0], error=[0.1, 0.1])
    >>> chart = line_chart({"a": a}, Axis("x"), Axis("y"), points={"a": Line([1.0], [2.1])})
    >>> [layer["mark"]["type"] for layer in chart.to_dict()["layer"]]
    ['line', 'rule', 'point']
    """
    points = points or {}
    shown = [*lines.values(), *points.values()]
    x = replace(x, domain=x.domain or _domain(x, shown, along_x=True))
    y = replace(y, domain=y.domain or _domain(y, shown, along_x=False))
    names = list(names or dict.fromkeys([*lines, *points]))
    across = alt.X("x:Q", title=x.title, scale=_scale(x), axis=_ticks(x))
    layers = [*_guides(x, y), *([_diagonal(x, y, across)] if diagonal else [])]
    colour = distinguished(alt.Color, "name", names, lines=bool(lines), columns=_LEGEND_COLUMNS)
    dash = distinguished(alt.StrokeDash, "name", names, lines=True, columns=_LEGEND_COLUMNS)
    told = {} if ordered else {"strokeDash": dash}
    colour = _along(names) if ordered else colour
    if lines:
        few = sum(len(line.x) for line in lines.values()) < _FEW
        plain = not points and all(line.rings is None for line in lines.values())
        dots = alt.OverlayMarkDef(size=26) if few and plain else False
        layers += _marks(lines, across, y, colour, line=told, dots=dots)
    if points:
        shape = distinguished(alt.Shape, "name", names, columns=_LEGEND_COLUMNS)
        layers += _marks(points, across, y, colour, shape=None if lines else shape)
    extra = {"title": title} if title else {}
    return alt.layer(*layers).properties(width=width, height=height, **extra)


def panels(
    lines: Mapping[str, Mapping[str, Line]],
    x: Axis,
    y: Axis,
    *,
    columns: int = 2,
    width: int = 300,
    height: int = 200,
) -> Chart:
    """One panel of lines per title, with the same axes, scales and names.

    **Arguments:**

    - `lines`: by the title of the panel, the lines by name.
    - `x`, `y`: the axes of every panel.
    - `columns`: how many panels are side by side.
    - `width`, `height`: of one panel, in pixels.

    **Returns:** the chart, for `save`.

    >>> line = Line([1.0, 2.0], [2.0, 3.0])
    >>> chart = panels({"left": {"a": line}, "right": {"a": line}}, Axis("x"), Axis("y"))
    >>> [panel["title"] for panel in chart.to_dict()["vconcat"][0]["hconcat"]]
    ['left', 'right']
    """
    shown = [line for panel in lines.values() for line in panel.values()]
    y = replace(y, domain=y.domain or _domain(y, shown, along_x=False))
    names = list(dict.fromkeys(name for panel in lines.values() for name in panel))
    made = [
        line_chart(panel, x, y, title=title, width=width, height=height, names=names)
        for title, panel in lines.items()
    ]
    return side_by_side(made, columns=columns)


def side_by_side(charts: Sequence[Chart], *, columns: int = 2) -> Chart:
    """Charts in rows of `columns`.

    **Arguments:**

    - `charts`: what is shown, row by row.
    - `columns`: how many are in a row.

    **Returns:** one chart of all.
    """
    rows = [charts[i : i + columns] for i in range(0, len(charts), columns)]
    return alt.vconcat(*(alt.hconcat(*row, spacing=28) for row in rows), spacing=22)


def coloured_points(
    clouds: Mapping[str, tuple[np.ndarray, np.ndarray]], *, colour_title: str, size: int = 230
) -> Chart:
    """Clouds of points in the plane, each coloured by one number per point.

    **Arguments:**

    - `clouds`: by the title of the panel, points (many, 2) and numbers (many,).
    - `colour_title`: what the numbers are.
    - `size`: of a panel, in pixels.

    **Returns:** the panels in a row.

    >>> chart = coloured_points({"a": (np.eye(2), np.ones(2))}, colour_title="y")
    >>> len(chart.to_dict()["hconcat"])
    1
    """
    shown: dict[str, Any] = {"scale": alt.Scale(zero=False), "axis": alt.Axis(tickCount=4)}
    x, y = alt.X("x:Q", title=None, **shown), alt.Y("y:Q", title=None, **shown)
    legend = alt.Legend(orient="right", gradientLength=180)
    scale = alt.Scale(scheme="viridis")
    colour = alt.Color("value:Q", title=colour_title, scale=scale, legend=legend)
    charts = [
        alt.Chart(chart_rows(x=points[:, 0], y=points[:, 1], value=numbers), title=title)
        .mark_circle(size=14, opacity=0.8)
        .encode(x=x, y=y, color=colour)
        .properties(width=size, height=size)
        for title, (points, numbers) in clouds.items()
    ]
    return alt.hconcat(*charts)


def _marks(
    series: Mapping[str, Line],
    x: Any,
    y: Axis,
    colour: Any,
    *,
    line: Mapping[str, Any] | None = None,
    dots: Any = False,
    shape: Any = None,
) -> list[Any]:
    """Lines (if `line` tells how they differ) or points; bands, bars, rings where there are any."""
    place = {"title": _title(y), "scale": _scale(y), "axis": _ticks(y)}
    base = alt.Chart(_rows(series)).encode(x=x, color=colour)
    layers = []
    if any(entry.band is not None for entry in series.values()):
        shaded = base.mark_area(opacity=0.14, clip=True, interpolate="step-after")
        layers.append(shaded.encode(y=alt.Y("from:Q", **place), y2="to:Q"))
    if line is not None:
        drawn = base.mark_line(clip=True, point=dots)
        layers += [drawn.encode(y=alt.Y("y:Q", **place), order="order:Q", **line)]
    else:
        drawn = base.mark_point(size=45, opacity=0.8, clip=True)
        layers += [drawn.encode(y=alt.Y("y:Q", **place), **({"shape": shape} if shape else {}))]
    if any(entry.error is not None for entry in series.values()):
        bars = base.mark_rule(strokeWidth=1.5, clip=True)
        layers.append(bars.encode(y=alt.Y("low:Q", **place), y2="high:Q"))
    if any(entry.rings is not None for entry in series.values()):
        rings = base.mark_point(filled=False, size=36, clip=True)
        layers.append(rings.encode(y=alt.Y("ring:Q", **place)))
    return layers


def _title(axis: Axis) -> str | list[str]:
    return axis.title.split("\n") if "\n" in axis.title else axis.title


def _rows(series: Mapping[str, Line]) -> Any:
    def joined(columns: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(columns) if columns else np.zeros(0)

    def gaps(line: Line, values: Numbers | None) -> np.ndarray:
        return np.full(len(line.x), np.nan) if values is None else np.asarray(values, dtype=float)

    lines = list(series.values())
    columns: dict[str, Any] = {
        "name": [name for name, line in series.items() for _ in line.x],
        "order": [index for line in lines for index in range(len(line.x))],
        "x": joined([np.asarray(line.x, dtype=float) for line in lines]),
        "y": joined([np.asarray(line.y, dtype=float) for line in lines]),
    }
    if any(line.error is not None for line in lines):
        error = joined([gaps(line, line.error) for line in lines])
        columns |= {"low": columns["y"] - error, "high": columns["y"] + error}
    if any(line.rings is not None for line in lines):
        columns["ring"] = joined([gaps(line, line.rings) for line in lines])
    if any(line.band is not None for line in lines):
        bands = [line.band or (None, None) for line in lines]
        for index, name in enumerate(("from", "to")):
            ends = [gaps(line, band[index]) for line, band in zip(lines, bands, strict=True)]
            columns[name] = joined(ends)
    return chart_rows(**columns)


def _along(names: Sequence[str]) -> Any:
    """Colours in order; a legend where it is short."""
    legend = alt.Legend(orient="bottom", symbolType="stroke", symbolSize=250, symbolOpacity=1,
                        columns=_LEGEND_COLUMNS)  # fmt: skip
    shown = legend if len(names) <= LONGEST_LEGEND else None
    return alt.Color("name:O", title=None, scale=alt.Scale(domain=list(names)), legend=shown)


def _domain(axis: Axis, shown: Sequence[Line], *, along_x: bool) -> tuple[float, float]:
    """What holds all values and bars, with room around them."""
    values = [np.asarray(line.x if along_x else line.y, dtype=float) for line in shown]
    errors = [0.0 if along_x or line.error is None else np.asarray(line.error) for line in shown]
    ends = [value + sign * e for value, e in zip(values, errors, strict=True) for sign in (-1, 1)]
    seen = np.concatenate([*ends, np.array(list(axis.guides.values()))])
    seen = seen[np.isfinite(seen)]
    if axis.scale == "log":
        low, high = float(seen[seen > 0].min()), float(seen.max())
        margin = max((high / low) ** _MARGIN, 1.05)
        return low / margin, high * margin
    low, high = float(seen.min()), float(seen.max())
    margin = _MARGIN * ((high - low) or abs(high) or 1.0)
    if axis.zero and low >= 0.0:
        return 0.0, high + margin
    return low - margin, high + margin


def _scale(axis: Axis) -> Any:
    assert axis.domain is not None
    kind: Any = axis.scale
    return alt.Scale(type=kind, nice=False, domain=[float(end) for end in axis.domain])


def _ticks(axis: Axis) -> Any:
    kind = axis.format or ("~g" if axis.scale == "log" else "")
    options: dict[str, Any] = {"format": kind} if kind else {}
    if axis.ticks is not None:
        return alt.Axis(values=[float(tick) for tick in axis.ticks], **options)
    if axis.scale == "log":
        options["values"] = _decades(axis)
    return alt.Axis(tickCount=6, **options)


def _decades(axis: Axis) -> list[float]:
    """Powers of ten, or 1, 2, 5 and their multiples where there are few of them."""
    assert axis.domain is not None
    low, high = (float(end) for end in axis.domain)
    steps = (1,) if high / low > 10**2.5 else (1, 2, 5)
    decades = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def _guides(x: Axis, y: Axis) -> list[Any]:
    """A dashed line for every level to be marked, with its label at its lower or left end."""
    layers: list[Any] = []
    for axis, channel, name in ((y, alt.Y, "y"), (x, alt.X, "x")):
        if not axis.guides:
            continue
        rows = chart_rows(label=list(axis.guides), place=list(axis.guides.values()))
        at: Any = channel("place:Q", title=axis.title, scale=_scale(axis), axis=_ticks(axis))
        rule = alt.Chart(rows).mark_rule(color=REFERENCE, strokeDash=[4, 4])
        text = alt.Chart(rows).mark_text(align="left", dx=6, dy=-7)
        other = {"x": alt.value(0)} if name == "y" else {"y": alt.value("height")}
        layers += [rule.encode(**{name: at}), text.encode(text="label:N", **{name: at}, **other)]
    return layers


def _diagonal(x: Axis, y: Axis, across: Any) -> Any:
    assert x.domain is not None
    assert y.domain is not None
    ends = [max(x.domain[0], y.domain[0]), min(x.domain[1], y.domain[1])]
    up = alt.Y("y:Q", title=y.title, scale=_scale(y), axis=_ticks(y))
    marks = alt.Chart(chart_rows(x=ends, y=ends)).mark_line(color=REFERENCE, strokeDash=[4, 4])
    return marks.encode(x=across, y=up)
