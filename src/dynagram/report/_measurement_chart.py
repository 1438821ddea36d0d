"""What `measure` found as a figure: three quantities along the layers, beside their nulls."""

from __future__ import annotations

from dynagram.observables._measurement import Measurement
from dynagram.report._charts import Axis, Line, line_chart, side_by_side
from dynagram.report._export import Chart


def measurement_chart(found: Measurement, *, width: int = 260, height: int = 200) -> Chart:
    """Target linearity with its null, share of the tangent kernel, effective rank, by layer.

    **Arguments:**

    - `found`: of `dynagram.measure`.
    - `width`, `height`: of a panel, in pixels.

    **Returns:** an altair chart of three panels.
    """
    places = [layer.layer for layer in found.layers]
    linear = [found.input_linearity, *(layer.linearity for layer in found.layers)]
    bars = [2.0 * entry.null.deviation for entry in linear]
    lines = {
        "target linearity": {
            "measured": Line([0, *places], [entry.score for entry in linear]),
            "by chance": Line([0, *places], [entry.null.mean for entry in linear], bars),
        },
        "share of the tangent kernel": {
            "measured": Line(places, [layer.kernel_share for layer in found.layers])
        },
        "effective rank": {
            "measured": Line(places, [layer.spectrum.effective_rank for layer in found.layers])
        },
    }
    names, ticks = ["measured", "by chance"], [0, *places]
    charts = [
        line_chart(
            panel, Axis("layer", ticks=ticks, format="d"), Axis(""), title=title, width=width,
            height=height, names=names,
        )
        for title, panel in lines.items()
    ]  # fmt: skip
    return side_by_side(charts, columns=3)
