"""Learning curves: losses and accuracies over time, predicted and measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.report._export import Chart, alt
from dynagram.report._figures import HEIGHT, WIDTH, chart_rows, distinguished
from dynagram.report._output_charts import time_scale
from dynagram.results._outputs import Outputs

_PANELS = (
    ("loss", ("loss", "test_loss")),
    ("fraction right", ("accuracy", "test_accuracy")),
)
_WORDS = {
    "loss": "training set", "test_loss": "test set", "accuracy": "training set",
    "test_accuracy": "test set",
}  # fmt: skip


def learning_curves_chart(predicted: Outputs, measured: Outputs | None = None) -> Chart:
    """Losses, and of classes the fraction right, over time.

    Lines are the mean over networks at the order of the prediction, with bands of one standard
    deviation between networks; dashed lines are infinite width, points measured networks with bars
    of two standard errors.

    **Arguments:**

    - `predicted`: of `predict_outputs`, at several moments.
    - `measured`: of `train` on the same data and moments, or None.

    **Returns:** an altair chart, a panel for losses and one for fractions right.
    """
    finite = [index for index, time in enumerate(predicted.times) if np.isfinite(time)]
    times = np.array([predicted.times[index] for index in finite], dtype=np.float64)
    panels = []
    for title, names in _PANELS:
        known = [name for name in names if name in predicted.estimates]
        if known and len(finite) > 1:
            panels.append(_panel(predicted, measured, known, title, times, finite))
    if not panels:
        allowed = "no learning curve: record several moments (`record`), with targets"
        raise InvalidValueError("times", list(predicted.times), allowed)
    return alt.vconcat(*panels) if len(panels) > 1 else panels[0]


def _panel(
    predicted: Outputs,
    measured: Outputs | None,
    names: list[str],
    title: str,
    times: np.ndarray,
    finite: list[int],
) -> Any:
    labels = [_WORDS[name] for name in names]
    colour = distinguished(alt.Color, "series", labels, lines=True)
    x = alt.X("x:Q", title="time τ (learning rate × steps)", **time_scale(times))
    marks: list[Any] = []

    def layer(suffix: str) -> Any:
        rows: dict[str, list[Any]] = {key: [] for key in ("series", "x", "value", "low", "high")}
        for name, label in zip(names, labels, strict=True):
            if name + suffix not in predicted.estimates:
                continue
            value = predicted.estimates[name + suffix].value[finite]
            spread = predicted.estimates.get(f"{name}_std{suffix}")
            std = np.zeros_like(value) if spread is None else spread.value[finite]
            rows["series"] += [label] * len(times)
            columns = (times, value, value - std, value + std)
            for key, column in zip(("x", "value", "low", "high"), columns, strict=True):
                rows[key] += column.tolist()
        return alt.Chart(chart_rows(**rows)).encode(x=x, color=colour)

    y = alt.Y("value:Q", title=title)
    base = layer("")
    marks.append(base.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=title), y2="high:Q"))
    marks.append(base.mark_line().encode(y=y))
    words = f"lines: order {predicted.order}"
    if any(f"{name}_std" in predicted.estimates for name in names):
        words += ", bands: ± one standard deviation between networks"
    if predicted.order != "∞":
        marks.append(layer("_infinite").mark_line(strokeDash=[6, 4]).encode(y=y))
        words += "; dashed: infinite width"
    if measured is not None and all(name in measured.estimates for name in names):
        marks += _points(measured, names, labels, x, colour, title)
        words += f"; points: {measured.members} networks"
    return alt.layer(*marks).properties(width=WIDTH, height=HEIGHT, title=words)


def _points(
    measured: Outputs, names: list[str], labels: list[str], x: Any, colour: Any, title: str
) -> list[Any]:
    times = np.array(measured.times, dtype=np.float64)
    found = [measured.estimates[name] for name in names]
    value = np.concatenate([estimate.value for estimate in found])
    error = np.concatenate([estimate.standard_error for estimate in found])
    data = chart_rows(
        series=[label for label in labels for _ in times],
        x=np.tile(times, len(names)),
        value=value,
        low=value - 2 * error,
        high=value + 2 * error,
    )
    base = alt.Chart(data).encode(x=x, color=colour)
    return [
        base.mark_rule(strokeWidth=1.6).encode(y=alt.Y("low:Q", title=title), y2="high:Q"),
        base.mark_point(opacity=1).encode(y=alt.Y("value:Q", title=title)),
    ]
