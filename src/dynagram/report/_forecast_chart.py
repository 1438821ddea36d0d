"""A forecast as a figure: steps until escape, as it is and with each layer rescaled."""

from __future__ import annotations

import math

from dynagram.errors import InvalidValueError
from dynagram.report._charts import Axis, Line, line_chart
from dynagram.report._export import Chart
from dynagram.theory.saddle._forecast_record import Forecast


def forecast_chart(answer: Forecast) -> Chart:
    """Steps until the plateau ends if one layer is rescaled; dashed: as it is, with its interval.

    **Arguments:**

    - `answer`: of `dynagram.forecast`, with a plateau.

    **Returns:** an altair chart.
    """
    if answer.escape_step is None or answer.interval is None or math.isinf(answer.escape_step):
        raise InvalidValueError("forecast", "no plateau that ends", "there is nothing to draw")
    low, high = answer.interval
    guides = {"as it is": answer.escape_step, "earliest": low, "latest": high}
    layers = [entry.layer for entry in answer.counterfactuals]
    steps = [entry.escape_step for entry in answer.counterfactuals]
    factor = answer.counterfactuals[0].factor
    points = {f"one layer × {factor:g}": Line(layers, steps)}
    x = Axis("layer", ticks=layers, format="d")
    return line_chart({}, x, Axis("steps until escape", guides=guides), points=points)
