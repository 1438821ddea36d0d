"""A network at birth as a figure: stream, token similarity and gradients along its depth."""

from __future__ import annotations

import numpy as np

from dynagram.networks.blocks import Residual
from dynagram.report._charts import Axis, Line, line_chart, side_by_side
from dynagram.report._export import Chart
from dynagram.theory.chain import Birth, Examination

GIVEN = "as given"
_SIGMAS = 2.0


def birth_chart(found: Examination, *, width: int = 300, height: int = 200) -> Chart:
    """Mean square, token similarity and squared gradients, block by block, with other scalings.

    Bars of the network as given are two standard deviations between networks of its width; the
    other scalings are lines at infinite width.

    **Arguments:**

    - `found`: of `dynagram.theory.chain.examine`.
    - `width`, `height`: of a panel, in pixels.

    **Returns:** the chart, for `save`.
    """
    names = [GIVEN, *(scaling.name for scaling in found.scalings[1:])]
    panels = []
    for title, scale, given, others in (
        ("mean square of the signal", "log", _mean_squares(found.birth), "mean_squares"),
        ("token similarity", "linear", _similarities(found.birth), "similarities"),
        ("squared gradient of a block", "log", _gradients(found.birth), "gradients"),
    ):
        if given is None:
            continue
        lines = {GIVEN: given}
        for scaling in found.scalings[1:]:
            values = getattr(scaling, others)
            if values is not None:
                lines[scaling.name] = _along(found.birth, values)
        x, y = Axis("block"), Axis("", scale=scale)
        panels.append(line_chart(lines, x, y, title=title, width=width, height=height, names=names))
    return side_by_side(panels, columns=len(panels))


def _streams(birth: Birth) -> list[int]:
    """Stages that are drawn: of residual networks the stream, else what weights give."""
    blocks = birth.network.blocks
    residual = [i for i, block in enumerate(blocks) if isinstance(block, Residual)]
    if residual:
        return [*([residual[0] - 1] if residual[0] else []), *residual]
    return [i for i, stage in enumerate(birth.stages) if stage.weights]


def _mean_squares(birth: Birth) -> Line:
    places = _streams(birth)
    stages = [birth.stages[i] for i in places]
    return Line(
        [i + 1 for i in places],
        [stage.mean_square for stage in stages],
        [_SIGMAS * stage.mean_square_std for stage in stages],
    )


def _similarities(birth: Birth) -> Line | None:
    known = [(i, birth.stages[i]) for i in _streams(birth)]
    known = [(i, stage) for i, stage in known if stage.similarity is not None]
    if not known:
        return None
    return Line(
        [i + 1 for i, _ in known],
        [stage.similarity or 0.0 for _, stage in known],
        [_SIGMAS * (stage.similarity_std or 0.0) for _, stage in known],
    )


def _gradients(birth: Birth) -> Line:
    places = [i for i in _streams(birth) if birth.stages[i].weights]
    places = [i for i in places if birth.stages[i].name.startswith("residual")] or places
    stages = [birth.stages[i] for i in places]
    spreads = [np.nan if s.gradient_std is None else _SIGMAS * s.gradient_std for s in stages]
    error = None if np.all(np.isnan(spreads)) else np.nan_to_num(spreads)
    return Line([i + 1 for i in places], [stage.gradient for stage in stages], error)


def _along(birth: Birth, values: tuple[float, ...]) -> Line:
    """Values of another scaling at the places of the same blocks."""
    places = [i + 1 for i in _streams(birth)][-len(values) :]
    return Line(places[: len(values)], list(values))
