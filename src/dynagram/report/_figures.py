"""The figures: phase plane, flow with depth, theory against ensemble. Arrays in, chart out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dynagram.report._export import Chart, alt
from dynagram.report._theme import REFERENCE

WIDTH, HEIGHT = 560, 280
_DIGITS = 6  # of the numbers stored in a page


def chart_rows(**columns: Sequence[Any] | np.ndarray) -> Any:
    """Chart data from equally long columns; non-finite numbers become gaps."""
    names = list(columns)
    rows = zip(*(columns[name] for name in names), strict=True)
    return alt.Data(
        values=[{n: _short(v) for n, v in zip(names, row, strict=True)} for row in rows]
    )


def _short(value: Any) -> Any:
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{float(value):.{_DIGITS}g}") if math.isfinite(value) else None
    return value


def distinguished(
    channel: Any,
    field: str,
    names: Sequence[str],
    *,
    lines: bool = False,
    columns: int | None = None,
    **options: Any,
) -> Any:
    """A channel that tells series apart; channels of one field share one legend."""
    symbol: dict[str, Any] = (
        {"symbolType": "stroke", "symbolSize": 250, "symbolOpacity": 1} if lines else {}
    )
    if columns is not None:
        symbol["columns"] = columns
    scale = alt.Scale(domain=list(names), **options)
    legend = alt.Legend(orient="bottom", **symbol)
    return channel(f"{field}:N", title=None, scale=scale, legend=legend)


def phase_plane(
    curves: Mapping[str, tuple[Float[np.ndarray, " _"], Float[np.ndarray, " _"]]],
    points: Mapping[str, tuple[float, float]],
    *,
    C_W: tuple[float, float],
    C_b: tuple[float, float],
    width: int = WIDTH,
) -> Chart:
    """Curves and labelled points in the (C_W, C_b) plane, as in Fig. 5.1 of the book.

    **Arguments:**

    - `curves`: maps a name to its (C_W, C_b) coordinates along the curve.
    - `points`: maps a label to (C_W, C_b).
    - `C_W`, `C_b`: the ranges shown, (low, high).
    - `width`: of the chart in pixels.

    **Returns:** a chart.

    >>> line = (np.array([1.0, 2.0]), np.array([0.0, 0.1]))
    >>> box = {"C_W": (0.0, 3.0), "C_b": (0.0, 1.0)}
    >>> chart = phase_plane({"χ = 1": line}, {"critical": (1.0, 0.0)}, **box)
    >>> len(chart.to_dict()["layer"])
    4
    """
    x = alt.X(
        "C_W:Q",
        title="C_W  (weight variance × fan-in)",
        scale=alt.Scale(domain=list(C_W), nice=False),
        axis=alt.Axis(tickCount=8),
    )
    y = alt.Y("C_b:Q", title="C_b  (bias variance)", scale=alt.Scale(domain=list(C_b), nice=False))
    zero = (
        alt.Chart(alt.Data(values=[{"C_b": 0}]))
        .mark_rule(color=REFERENCE, strokeDash=[2, 3])
        .encode(y=y)
    )
    data = chart_rows(
        curve=[name for name, (along, _) in curves.items() for _ in along],
        step=np.concatenate([np.arange(len(along)) for along, _ in curves.values()]),
        C_W=np.concatenate([along for along, _ in curves.values()]),
        C_b=np.concatenate([up for _, up in curves.values()]),
    )
    lines = (
        alt.Chart(data)
        .mark_line(clip=True)
        .encode(
            x=x,
            y=y,
            order="step:Q",
            color=distinguished(alt.Color, "curve", list(curves), lines=True),
            strokeDash=distinguished(alt.StrokeDash, "curve", list(curves), lines=True),
        )
    )
    marked = chart_rows(
        label=list(points),
        C_W=[p[0] for p in points.values()],
        C_b=[p[1] for p in points.values()],
    )
    base = alt.Chart(marked).encode(x=x, y=y)
    dots = base.mark_point(filled=True, size=100, opacity=1, color=REFERENCE).encode(
        shape=alt.Shape("label:N", legend=None, sort=list(points)),
        tooltip=["label:N", "C_W:Q", "C_b:Q"],
    )
    labels = base.mark_text(align="left", dx=9, dy=-9).encode(text="label:N")
    return (
        alt.layer(zero, lines, dots, labels)
        .resolve_scale(shape="independent")
        .properties(width=width, height=HEIGHT)
    )


def flow(
    layers: Int[np.ndarray, " layer"],
    series: Mapping[str, Float[np.ndarray, " layer"]],
    *,
    y_title: str,
    law: tuple[str, Float[np.ndarray, " layer"]] | None = None,
    log: bool = False,
    width: int = WIDTH,
) -> Chart:
    """Quantities against depth, one line each.

    **Arguments:**

    - `layers`: ℓ, along the horizontal axis.
    - `series`: maps a name to its values, one per layer.
    - `y_title`: what is along the vertical axis.
    - `law`: name and values of a dashed guide.
    - `log`: whether both axes are logarithmic.
    - `width`: of the chart in pixels.

    **Returns:** a chart.

    >>> layers = np.arange(1, 4)
    >>> chart = flow(layers, {"K": np.array([1.0, 0.5, 0.3])}, y_title="kernel K")
    >>> chart.to_dict()["mark"]["type"]
    'line'
    """
    curves = dict(series) if law is None else {**series, law[0]: law[1]}
    names = list(curves)
    dashes = [[1, 0] if name in series else [6, 4] for name in names]
    data = chart_rows(
        series=[name for name in names for _ in layers],
        layer=np.tile(layers, len(names)),
        value=np.concatenate(list(curves.values())),
    )
    values = np.concatenate(list(series.values()))
    values = values[np.isfinite(values)]
    y_axis = alt.Axis(format="~g", values=log_ticks(values)) if log else alt.Axis(format="~g")
    return (
        alt.Chart(data)
        .mark_line(clip=True, point=alt.OverlayMarkDef(size=18) if layers.size <= 30 else False)
        .encode(
            x=layer_scale(layers, log=log),
            y=alt.Y(
                "value:Q",
                title=y_title,
                scale=_log_scale(values) if log else alt.Scale(zero=False),
                axis=y_axis,
            ),
            color=distinguished(alt.Color, "series", names, lines=True),
            strokeDash=distinguished(alt.StrokeDash, "series", names, lines=True, range=dashes),
            tooltip=["series:N", "layer:Q", alt.Tooltip("value:Q", format=".5g")],
        )
        .properties(width=width, height=HEIGHT)
    )


def theory_and_ensemble(
    layers: Int[np.ndarray, " layer"],
    theory: Mapping[str, Float[np.ndarray, " layer"]],
    measured: Mapping[str, Float[np.ndarray, " layer"]],
    errors: Mapping[str, Float[np.ndarray, " layer"]],
    *,
    y_title: str,
) -> Chart:
    """Predicted lines and measured points with bars of ±2 standard errors; below, the residuals.

    The lower panel shows (measured − predicted)/standard error on the band ±3, because a good
    prediction hides the bars of the upper one.

    **Arguments:**

    - `layers`: ℓ, along the horizontal axis.
    - `theory`: maps a name to its predicted values, one per layer.
    - `measured`, `errors`: map the same names to measured values and their standard errors.
    - `y_title`: what is along the vertical axis of the upper panel.

    **Returns:** a chart of two panels.

    >>> layers, ones = np.arange(1, 3), np.ones(2)
    >>> chart = theory_and_ensemble(
    ...     layers, {"V": ones}, {"V": 1.1 * ones}, {"V": 0.1 * ones}, y_title="V"
    ... )
    >>> len(chart.to_dict()["vconcat"])
    2
    """
    names = list(theory)
    expected = np.concatenate([theory[name] for name in names])
    found = np.concatenate([measured[name] for name in names])
    error = np.concatenate([errors[name] for name in names])
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(error > 0, (found - expected) / error, np.nan)
    data = chart_rows(
        entry=[name for name in names for _ in layers],
        layer=np.tile(layers, len(names)),
        place=np.concatenate([layers + shift for shift in _side_by_side(len(names))]),
        theory=expected,
        measured=found,
        error=error,
        low=found - 2 * error,
        high=found + 2 * error,
        score=score,
    )
    base = alt.Chart(data).encode(color=distinguished(alt.Color, "entry", names))
    shape = distinguished(alt.Shape, "entry", names)
    tooltip = ["entry:N", "layer:Q"] + [
        alt.Tooltip(f"{name}:Q", format=".4g") for name in ("theory", "measured", "error", "score")
    ]
    x = layer_scale(layers, "place", title=None)
    axis = alt.Axis(format="~g", tickCount=6)
    upper = alt.layer(
        base.mark_line(opacity=0.8).encode(x=x, y=alt.Y("theory:Q", title=y_title, axis=axis)),
        base.mark_rule(strokeWidth=1.6).encode(x=x, y=alt.Y("low:Q", title=y_title), y2="high:Q"),
        base.mark_point(opacity=1).encode(
            x=x, y=alt.Y("measured:Q", title=y_title), shape=shape, tooltip=tooltip
        ),
    ).properties(
        width=WIDTH,
        height=HEIGHT,
        title="lines: theory; points: ensemble ± 2 standard errors (series set slightly apart)",
    )
    reach = 1.15 * float(np.nanmax(np.abs(score), initial=3.0))
    band = (
        alt.Chart(alt.Data(values=[{"low": -3, "high": 3}]))
        .mark_rect(color=REFERENCE, opacity=0.16)
        .encode(y=alt.Y("low:Q", scale=alt.Scale(domain=[-reach, reach], nice=False)), y2="high:Q")
    )
    zero = alt.Chart(alt.Data(values=[{"zero": 0}])).mark_rule(color=REFERENCE).encode(y="zero:Q")
    residuals = base.mark_point(opacity=1).encode(
        x=layer_scale(layers, "place"),
        y=alt.Y("score:Q", title="residual / s.e.", axis=alt.Axis(tickCount=4)),
        shape=shape,
        tooltip=tooltip,
    )
    lower = alt.layer(band, zero, residuals).properties(width=WIDTH, height=90)
    return alt.vconcat(upper, lower)


def _side_by_side(series: int) -> np.ndarray:
    """Small shifts of a series, line and points, so that error bars do not hide each other."""
    return 0.12 * (np.arange(series) - 0.5 * (series - 1))


def layer_scale(
    layers: np.ndarray, field: str = "layer", *, title: str | None = "layer ℓ", log: bool = False
) -> Any:
    """The horizontal axis: ticks on whole layers only."""
    first, last = int(layers.min()), int(layers.max())
    if log:
        ticks = log_ticks(layers)
        scale = alt.Scale(type="log", nice=False, domain=[first, last])
    else:
        step = max(1, math.ceil((last - first) / 10))
        ticks = list(range(first, last + 1, step))
        scale = alt.Scale(nice=False, domain=[first - 0.25, last + 0.25])
    return alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(values=ticks, format="d"))


def _log_scale(values: np.ndarray) -> Any:
    """Room above and below, so that no line runs along the frame."""
    low, high = float(values[values > 0].min()), float(values.max())
    margin = max((high / low) ** 0.05, 1.1)
    return alt.Scale(type="log", nice=False, domain=[_short(low / margin), _short(high * margin)])


def log_ticks(values: np.ndarray) -> list[float]:
    """1, 2, 5, 10, … within the data; only powers of ten when there are more than two decades."""
    positive = values[values > 0]
    low, high = math.log10(positive.min()), math.log10(positive.max())
    steps = (1,) if high - low > 2.5 else (1, 2, 5)
    decades = range(math.floor(low), math.ceil(high) + 1)
    candidates = (step * 10.0**decade for decade in decades for step in steps)
    return [v for v in candidates if positive.min() * 0.999 <= v <= positive.max() * 1.001]
