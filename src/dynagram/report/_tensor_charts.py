"""Charts of tensors: their way through the layers, and chosen entries beside an ensemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dynagram.report._export import Chart, alt
from dynagram.report._figures import (
    HEIGHT,
    chart_rows,
    distinguished,
    layer_scale,
    theory_and_ensemble,
)
from dynagram.results._letters import LETTERS
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
    fan_in = _fan_in(tensors, "V")[:, None]
    scale = fan_in * K[:, alive] ** 2
    V, error = (np.einsum("laaaa->la", a)[:, alive] for a in (tensors["V"], tensors.error("V")))
    return _Line(tensors.layers["V"], (V / scale).mean(axis=1), (error / scale).mean(axis=1))


def _fan_in(tensors: Tensors, name: str) -> np.ndarray:
    """n_{ℓ−1} of the layers in which a tensor is known."""
    return np.array([tensors.network.fan_in(layer) for layer in tensors.layers[name]], dtype=float)


def _effect(tensors: Tensors, name: str) -> _Line:
    """A tensor divided by the power of n that belongs to its order."""
    power = _POWERS[LETTERS[name].order]
    n = _fan_in(tensors, name)
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


def entries_chart(
    predicted: Tensors, measured: Tensors, name: str, entries: Sequence[str], *, y_title: str
) -> Chart:
    """Some entries of a tensor in all layers: lines predicted, points measured, residuals below.

    **Arguments:**

    - `predicted`, `measured`: of the same network and inputs, both with `name` and K.
    - `name`: a letter; V is divided by n and the kernels, so that it is a relative variance.
    - `entries`: words of samples called A, B, C, …, such as "AABB" for (0, 0, 1, 1).
    - `y_title`: what the vertical axis shows.

    **Returns:** an altair chart.
    """
    theory, points, errors = {}, {}, {}
    for entry in entries:
        index = tuple(ord(letter) - ord("A") for letter in entry)
        at = (slice(None), *index)
        scale = _relative_scale(predicted, index) if name == "V" else 1.0
        label = f"({entry[:2]})({entry[2:]})" if len(entry) == 4 else entry
        theory[label] = predicted[name][at] / scale
        points[label] = measured[name][at] / scale
        errors[label] = measured.error(name)[at] / scale
    layers = np.array(predicted.layers[name])
    return theory_and_ensemble(layers, theory, points, errors, y_title=y_title)


def _relative_scale(tensors: Tensors, samples: tuple[int, ...]) -> np.ndarray:
    """n √(K_aa K_bb K_cc K_dd) of every layer."""
    kernels = np.prod([tensors["K"][:, a, a] for a in samples], axis=0)
    return _fan_in(tensors, "K") * np.sqrt(kernels)
