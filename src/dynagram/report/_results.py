"""Charts of results: tensors through the layers, outputs over samples, inputs or time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.report._export import Chart, alt
from dynagram.report._figures import HEIGHT, WIDTH, chart_rows, distinguished, layer_scale, log_ticks
from dynagram.report._theme import REFERENCE
from dynagram.results._letters import LETTERS
from dynagram.results._outputs import Outputs
from dynagram.results._tensors import CORRECTIONS, Tensors

_PANEL, _ROW = 380, 28
_MOST_SERIES = 6  # as many colours as the palette has
_MEAN = ", measured mean"
_POWERS = {"∞": 0, "1/n": 1, "1/n²": 2}


@dataclass(frozen=True)
class _Line:
    """One quantity against the layers, with errors; `dashed` where it completes another."""

    layers: Sequence[int]
    values: np.ndarray
    errors: np.ndarray
    dashed: bool = False


def tensor_flow(tensors: Tensors) -> Chart:
    """The tensors of a network through its layers, averaged over samples.

    Side by side: the variance of a preactivation, K and K + G1/n; the relative variance between
    draws V/(nK²); the NTK, Θ and Θ + H1/n; and what else is there as an effect, divided by n.
    Bars are two errors long to either side.

    **Arguments:**

    - `tensors`: a prediction or a measurement.

    **Returns:** an altair chart.

    >>> from dynagram.networks import MLP
    >>> net = MLP([2, 8, 8, 1], "linear", C_b=0.0, C_W=1.0)
    >>> K = np.ones((3, 1, 1))
    >>> T = Tensors(net, np.ones((1, 2)), "∞", {"K": K}, {}, {"K": (1, 2, 3)}, None)
    >>> len(tensor_flow(T).to_dict()["concat"])
    1
    """
    panels = []
    for name, title in (("K", "variance of a preactivation"), ("Theta", "tangent kernel")):
        if name in tensors:
            panels.append((title, _with_correction(tensors, name)))
    if "V" in tensors and "K" in tensors:
        line = _relative_vertex(tensors)
        if line is not None:
            panels.insert(1, ("relative variance between draws", {"V/(nK²)": line}))
    shown = {"K", "Theta", *(CORRECTIONS[name] for name in CORRECTIONS if name in tensors)}
    shown |= {"V"} if "K" in tensors else set()
    if rest := {name: _effect(tensors, name) for name in tensors if name not in shown}:
        names = {name: name + ("", "/n", "/n²")[_POWERS[LETTERS[name].order]] for name in rest}
        panels.append(("effect at these widths", {names[name]: rest[name] for name in rest}))
    charts = [_panel(lines, title) for title, lines in panels if not _is_at_one_layer(lines)]
    charts += [_strip(lines, title) for title, lines in panels if _is_at_one_layer(lines)]
    whole = alt.concat(*charts, columns=2)
    return whole.resolve_scale(color="independent", strokeDash="independent")


def _with_correction(tensors: Tensors, name: str) -> dict[str, _Line]:
    measured = tensors.order == "measured"
    first = name + (_MEAN if measured else ", infinite width")
    lines = {first: _line(tensors, name, tensors[name], tensors.error(name))}
    label, values, errors = tensors.completed(name)
    if label != name:
        lines[f"{label}, these widths"] = _line(tensors, name, values, errors, dashed=True)
    return lines


def _relative_vertex(tensors: Tensors) -> _Line | None:
    """V/(nK²) of the inputs that have a signal: zero ones without biases have none."""
    K = np.einsum("laa->la", tensors["K"])
    alive = K[0] > 0
    if not np.any(alive):
        return None
    fan_in = np.array(tensors.network.widths[:-1], dtype=np.float64)[:, None]
    scale = fan_in * K[:, alive] ** 2
    V, error = (np.einsum("laaaa->la", a)[:, alive] for a in (tensors["V"], tensors.error("V")))
    return _Line(tensors.layers["V"], (V / scale).mean(axis=1), (error / scale).mean(axis=1))


def _effect(tensors: Tensors, name: str) -> _Line:
    """A tensor divided by the power of n that belongs to its order."""
    power = _POWERS[LETTERS[name].order]
    n = np.array([tensors.network.widths[layer - 1] for layer in tensors.layers[name]], dtype=float)
    scale = (n**-power).reshape(-1, *[1] * (tensors[name].ndim - 1))
    return _line(tensors, name, scale * tensors[name], scale * tensors.error(name))


def _line(
    tensors: Tensors, name: str, values: np.ndarray, errors: np.ndarray, *, dashed: bool = False
) -> _Line:
    pattern = f"l{'a' * (values.ndim - 1)}->la"
    mean, error = (np.einsum(pattern, array).mean(axis=1) for array in (values, errors))
    return _Line(tensors.layers[name], mean, error, dashed)


def _panel(lines: Mapping[str, _Line], title: str) -> Chart:
    """Lines through the layers; points and bars of two errors where there are errors."""
    names = list(lines)
    data = chart_rows(
        series=[name for name in names for _ in lines[name].layers],
        layer=np.concatenate([lines[name].layers for name in names]),
        value=np.concatenate([lines[name].values for name in names]),
        low=np.concatenate([lines[name].values - 2 * lines[name].errors for name in names]),
        high=np.concatenate([lines[name].values + 2 * lines[name].errors for name in names]),
    )
    # Colours begin anew after six series: dashes tell the second six from the first.
    dashes = [
        [6, 4] if lines[name].dashed or index >= _MOST_SERIES else [1, 0]
        for index, name in enumerate(names)
    ]
    layers = np.concatenate([lines[name].layers for name in names])
    x, axis = layer_scale(layers), alt.Axis(format="~g", tickCount=6)
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=False), axis=axis)
    colour = distinguished(alt.Color, "series", names, lines=True)
    dash = distinguished(alt.StrokeDash, "series", names, lines=True, range=dashes)
    tips = ["series:N", "layer:Q", alt.Tooltip("value:Q", format=".5g")]
    base = alt.Chart(data).encode(x=x, color=colour)
    marks = [
        base.mark_line().encode(y=y, strokeDash=dash),
        base.mark_rule(strokeWidth=1.6).encode(y=alt.Y("low:Q", title=title), y2="high:Q"),
        base.mark_point(filled=True, size=30, opacity=1).encode(y=y, tooltip=tips),
    ]
    return alt.layer(*marks).properties(width=_PANEL, height=HEIGHT)


def _is_at_one_layer(lines: Mapping[str, _Line]) -> bool:
    return all(len(line.layers) == 1 for line in lines.values())


def _strip(lines: Mapping[str, _Line], title: str) -> Chart:
    """What is known of one layer only: a row per quantity, with bars of two errors."""
    layer = next(iter(lines.values())).layers[0]
    values = np.concatenate([line.values for line in lines.values()])
    errors = np.concatenate([line.errors for line in lines.values()])
    low, high = values - 2 * errors, values + 2 * errors
    names = [name.removesuffix(_MEAN) for name in lines]
    data = chart_rows(series=names, value=values, low=low, high=high)
    axis = alt.Axis(format="~g", tickCount=6)
    x = {"title": f"{title}, layer {layer}", "scale": alt.Scale(zero=False), "axis": axis}
    colour = alt.Color("series:N", legend=None, sort=names)
    base = alt.Chart(data).encode(y=alt.Y("series:N", title=None, sort=names), color=colour)
    tips = ["series:N", alt.Tooltip("value:Q", format=".5g")]
    marks = [
        base.mark_rule(strokeWidth=1.6).encode(x=alt.X("low:Q", **x), x2="high:Q"),
        base.mark_point(filled=True, size=45, opacity=1).encode(
            x=alt.X("value:Q", **x), tooltip=tips
        ),
    ]
    return alt.layer(*marks).properties(width=_PANEL, height=_ROW * len(lines))


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
    return _bands(series, alt.X("x:Q", title="time τ", **_time_scale(times)), {})


def _time_scale(times: np.ndarray) -> dict[str, Any]:
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
