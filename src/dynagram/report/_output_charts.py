"""A chart of outputs: means with spreads over samples, over the input, or over time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.report._export import Chart, alt
from dynagram.report._figures import HEIGHT, WIDTH, chart_rows, distinguished, log_ticks
from dynagram.report._theme import REFERENCE
from dynagram.results._outputs import Outputs

_MOST_SERIES = 6  # as many colours as the palette has


def outputs_chart(outputs: Outputs) -> Chart:
    """Mean and spread of the outputs that are shown.

    At one moment over the samples, or over the input where that is one number; at several moments
    over time, for the first six samples and outputs. Bars and bands are one standard deviation
    between networks to either side; the mean at infinite width is dashed, or a tick.

    **Arguments:**

    - `outputs`: a prediction or a measurement.

    **Returns:** an altair chart.
    """
    finite = [index for index, time in enumerate(outputs.times) if math.isfinite(time)]
    if len(finite) > 1:
        return _over_time(outputs, finite)
    if outputs.inputs.shape[1] == 1:
        return _over_input(outputs)
    return _over_samples(outputs)


def _over_time(outputs: Outputs, moments: list[int]) -> Chart:
    times = np.array([outputs.times[index] for index in moments], dtype=np.float64)
    means, stds = outputs.means[moments], outputs.stds[moments]
    places = list(np.ndindex(*means.shape[1:]))[:_MOST_SERIES]
    several = means.shape[2] > 1
    names = [f"sample {s}, output {o}" if several else f"sample {s}" for s, o in places]
    series = {
        name: (times, means[:, s, o], stds[:, s, o])
        for name, (s, o) in zip(names, places, strict=True)
    }
    return _bands(series, alt.X("x:Q", title="time τ", **time_scale(times)), {})


def time_scale(times: np.ndarray) -> dict[str, Any]:
    """Logarithmic where times span decades; the start, where it is among them, keeps its place."""
    positive = times[times > 0]
    if positive.size < 2 or positive[-1] < 100 * positive[0]:
        return {"axis": alt.Axis(format="~g", tickCount=6)}
    ends, ticks = [float(times[0]), float(times[-1])], log_ticks(positive)
    if times[0] > 0:
        scale = alt.Scale(type="log", domain=ends, nice=False)
    else:
        scale = alt.Scale(type="symlog", constant=float(positive[0]), domain=ends, nice=False)
        ticks = [0.0, *ticks]
    return {"scale": scale, "axis": alt.Axis(values=ticks, labelExpr="format(datum.value, '~g')")}


def _over_input(outputs: Outputs) -> Chart:
    order = np.argsort(outputs.inputs[:, 0])
    x, means, stds = outputs.inputs[order, 0], outputs.mean[order], outputs.std[order]
    number = min(means.shape[1], _MOST_SERIES)
    names = [f"output {o}" if means.shape[1] > 1 else "mean" for o in range(number)]
    series = {name: (x, means[:, o], stds[:, o]) for o, name in enumerate(names)}
    infinite = {}
    if outputs.infinite_mean is not None and outputs.order == "1/n":
        limit = outputs.mean_infinite[order]
        infinite = {name: (x, limit[:, o]) for o, name in enumerate(names)}
    scale, ticks = alt.Scale(zero=False, nice=False), alt.Axis(format="~g", tickCount=8)
    axis = alt.X("x:Q", title="input x", scale=scale, axis=ticks)
    return _bands(series, axis, infinite)


def _bands(
    series: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
    x: Any,
    infinite: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> Chart:
    """Means as lines, spreads as bands; dashed: at infinite width."""
    names = list(series)
    data = chart_rows(
        series=[name for name in names for _ in series[name][0]],
        x=np.concatenate([along for along, _, _ in series.values()]),
        value=np.concatenate([mean for _, mean, _ in series.values()]),
        low=np.concatenate([mean - std for _, mean, std in series.values()]),
        high=np.concatenate([mean + std for _, mean, std in series.values()]),
    )
    colour = distinguished(alt.Color, "series", names, lines=True)
    base = alt.Chart(data).encode(x=x, color=colour)
    title = "lines: mean; bands: ± one standard deviation between networks"
    marks: list[Any] = [
        base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title="output"), y2="high:Q"),
        base.mark_line().encode(y=alt.Y("value:Q", title="output")),
    ]
    if infinite:
        rows = chart_rows(
            series=[name for name in infinite for _ in infinite[name][0]],
            x=np.concatenate([along for along, _ in infinite.values()]),
            value=np.concatenate([mean for _, mean in infinite.values()]),
        )
        dashed = alt.Chart(rows).mark_line(strokeDash=[6, 4]).encode(x=x, color=colour)
        marks.append(dashed.encode(y=alt.Y("value:Q", title="output")))
        title += "; dashed: mean at infinite width"
    return alt.layer(*marks).properties(width=WIDTH, height=HEIGHT, title=title)


def _over_samples(outputs: Outputs) -> Chart:
    """A point and a bar per sample, outputs side by side."""
    means, stds = outputs.mean, outputs.std
    samples, number = means.shape[0], min(means.shape[1], _MOST_SERIES)
    names = [f"output {o}" if means.shape[1] > 1 else "mean" for o in range(number)]
    shifts = 0.6 * ((np.arange(number) + 0.5) / number - 0.5)
    data = chart_rows(
        series=[name for name in names for _ in range(samples)],
        sample=np.tile(np.arange(samples), number),
        place=np.concatenate([np.arange(samples) + shift for shift in shifts]),
        value=means[:, :number].T.ravel(),
        low=(means - stds)[:, :number].T.ravel(),
        high=(means + stds)[:, :number].T.ravel(),
        infinite=_limits(outputs, number),
    )
    step = max(1, math.ceil(samples / 12))
    ticks = alt.Axis(values=list(range(0, samples, step)), format="d")
    domain = alt.Scale(domain=[-0.6, samples - 0.4], nice=False)
    x = alt.X("place:Q", title="sample", axis=ticks, scale=domain)
    title = "points: mean; bars: ± one standard deviation between networks"
    base = alt.Chart(data).encode(x=x, color=distinguished(alt.Color, "series", names))
    tips = ["series:N", "sample:Q", alt.Tooltip("value:Q", format=".5g")]
    y = alt.Y("value:Q", title="output", scale=alt.Scale(zero=False))
    marks: list[Any] = [
        base.mark_rule(strokeWidth=1.6).encode(y=alt.Y("low:Q", title="output"), y2="high:Q"),
        base.mark_point(filled=True, size=45, opacity=1).encode(y=y, tooltip=tips),
    ]
    if outputs.infinite_mean is not None and outputs.order == "1/n":
        tick = alt.Chart(data).mark_tick(color=REFERENCE, thickness=2, size=16, orient="horizontal")
        marks.insert(0, tick.encode(x=x, y=alt.Y("infinite:Q", title="output")))
        title += "; grey: mean at infinite width"
    return alt.layer(*marks).properties(width=WIDTH, height=HEIGHT, title=title)


def _limits(outputs: Outputs, number: int) -> Float[np.ndarray, " _"]:
    """The means at infinite width in the order of the rows; nan where they are not known."""
    if outputs.infinite_mean is None:
        return np.full(outputs.mean.shape[0] * number, np.nan)
    return outputs.mean_infinite[:, :number].T.ravel()
