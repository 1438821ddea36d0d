"""Scores of a comparison as a figure: their distribution beside that of chance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import ndtri

from dynagram.report._charts import Axis, Line, line_chart
from dynagram.report._export import Chart

_MOST_POINTS = 400


def scores_chart(scores: Mapping[str, np.ndarray]) -> Chart:
    """Sorted z-scores against those that so many independent normal numbers would have.

    **Arguments:**

    - `scores`: z of every entry with an error bar, by the name of what was compared.

    **Returns:** an altair chart; on the diagonal the differences are chance.

    >>> chart = scores_chart({"K": np.array([-1.0, 0.2, 0.9])})
    >>> len(chart.to_dict()["layer"])
    2
    """
    points = {}
    for name, values in scores.items():
        ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
        if not ordered.size:
            continue
        chance = ndtri((np.arange(ordered.size) + 0.5) / ordered.size)
        shown = np.unique(np.linspace(0, ordered.size - 1, _MOST_POINTS).astype(int))
        points[name] = Line(chance[shown], ordered[shown])
    x, y = Axis("expected by chance"), Axis("difference in standard errors")
    return line_chart({}, x, y, points=points or {"none": Line([0.0], [0.0])}, diagonal=True)
