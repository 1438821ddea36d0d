"""What a watch has recorded, as figures: one quantity over the steps, with ranges and alerts."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Int

from dynagram.errors import InvalidValueError
from dynagram.report._charts import Axis, Line, line_chart
from dynagram.report._export import Chart, alt
from dynagram.report._figures import HEIGHT, WIDTH, chart_rows
from dynagram.report._theme import REFERENCE
from dynagram.watch import QUANTITIES, Alert, Band, History
from dynagram.watch._band import Origin

_POINTS = 400  # of a line
_ALL_POINTS = 6000  # of the lines of one chart: a page has a dozen of them
_OWN_RANGES = 4  # layers up to which each shows its own
_DECADES = 1.5  # of values from which on an axis is logarithmic
_TITLE = 36  # letters of the title of an axis, as many as stand beside a panel
_ALERT = "#D7263D"
_FLOOR = {"linearity": -1.0}  # far worse than a constant says no more than worse
_ROOM = 1.0  # of the spread of values: how far ranges may stretch an axis beyond them

Changes = Sequence[tuple[int, Band | None]]


def history_chart(
    history: History, quantity: str = "loss", *, width: int = WIDTH, height: int = HEIGHT
) -> Chart:
    """One quantity over the steps: a line, or one for every layer, with ranges and alerts.

    Up to four layers show their own ranges, more of them one that holds all. Of long runs the
    highest and the lowest of every stretch of records are drawn, so that no spike is lost.

    **Arguments:**

    - `history`: of `read_watch`.
    - `quantity`: a name of `QUANTITIES`.
    - `width`, `height`: of the panel, in pixels.

    **Returns:** an altair chart.

    >>> from dynagram.watch import Band
    >>> values, range = {"loss": np.array([2.0, 1.0])}, Band(None, 0.0, 3.0)
    >>> steps, seconds, ranges = np.array([0, 10]), np.zeros(2), {("loss", ""): ((0, range),)}
    >>> history = History(("0",), steps, seconds, seconds, values, ranges, (), (), 0)
    >>> [layer["mark"]["type"] for layer in history_chart(history).to_dict()["layer"]]
    ['area', 'line']
    """
    lines = _lines(history, quantity)
    if not lines:
        recorded = [name for name in history.values if _lines(history, name)]
        allowed = f"nothing is recorded of it; there are {', '.join(recorded) or 'no records'}"
        raise InvalidValueError("quantity", quantity, allowed)
    title = "\n".join(textwrap.wrap(QUANTITIES[quantity].plain, _TITLE))
    y = _axis(lines, title, _FLOOR.get(quantity, -np.inf))
    assert y.domain is not None
    lines = {name: _within(line, *y.domain) for name, line in lines.items()}
    of_layers = QUANTITIES[quantity].of_layer
    hull = _hull(lines) if len(lines) > _OWN_RANGES else None
    shown = {n: Line(line.x, line.y) for n, line in lines.items()} if hull else lines
    names = list(history.layers) if of_layers else None
    chart = line_chart(
        shown, Axis("step"), y, width=width, height=height, names=names, ordered=of_layers
    )
    marks = _alerts(history, quantity, lines)
    parts = [*([_area(hull)] if hull else []), chart, *([marks] if marks is not None else [])]
    return chart if len(parts) == 1 else alt.layer(*parts)


def origins(history: History, quantity: str) -> tuple[Origin, ...]:
    """Where the ranges of a quantity come from, each once."""
    found: dict[Origin, None] = {
        band.origin: None
        for key, changes in history.ranges.items()
        if key[0] == quantity
        for _, band in changes
        if band is not None
    }
    return tuple(found)


def _lines(history: History, quantity: str) -> dict[str, Line]:
    if quantity not in history.values:
        return {}
    table = history.values[quantity]
    columns = (
        {"measured": table} if table.ndim == 1 else dict(zip(history.layers, table.T, strict=True))
    )
    points = max(8, min(_POINTS, _ALL_POINTS // len(columns)))
    lines = {}
    for name, column in columns.items():
        known = np.flatnonzero(np.isfinite(column))
        if not known.size:
            continue
        places = known[extremes(column[known], points)]
        steps = history.steps[places]
        changes = history.ranges.get((quantity, name if table.ndim == 2 else ""), ())
        lines[name] = Line(steps, column[places], band=_band_at(changes, steps))
    return lines


def extremes(values: Float[np.ndarray, " n"], points: int) -> Int[np.ndarray, " kept"]:
    """Places of at most so many values that look like all of them, first and last included.

    >>> extremes(np.array([0.0, 0.0, 9.0, 0.0, 0.0, 0.0, -1.0, 0.0]), 6).tolist()
    [0, 2, 4, 6, 7]
    """
    if len(values) <= points:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), (points - 2) // 2 + 1).astype(int)
    kept = {0, len(values) - 1}
    for start, end in itertools.pairwise(edges):
        kept |= {
            start + int(np.argmin(values[start:end])),
            start + int(np.argmax(values[start:end])),
        }
    return np.array(sorted(kept))


def _band_at(changes: Changes, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """The range that held at every step; not a number where there was none."""
    if not changes:
        return None
    since = np.array([step for step, _ in changes])
    none = np.nan, np.nan
    ends = np.array([none, *((b.low, b.high) if b else none for _, b in changes)])
    at = ends[np.searchsorted(since, steps, side="right")]
    return at[:, 0], at[:, 1]


def _within(line: Line, low: float, high: float) -> Line:
    """The same line with the ends of its range inside the panel: a logarithmic axis has no 0."""
    if line.band is None:
        return line
    return replace(line, band=tuple(np.clip(end, low, high) for end in line.band))


def _hull(lines: dict[str, Line]) -> Line | None:
    """From the lowest to the highest of all ranges, at every step of a line that has one."""
    banded = [line for line in lines.values() if line.band is not None]
    if not banded:
        return None
    steps = np.unique(np.concatenate([np.asarray(line.x) for line in banded]))
    low, high = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
    for line in banded:
        assert line.band is not None
        at = np.clip(np.searchsorted(line.x, steps, side="right") - 1, 0, None)
        low = np.fmin(low, np.asarray(line.band[0])[at])
        high = np.fmax(high, np.asarray(line.band[1])[at])
    return Line(steps, np.full(len(steps), np.nan), band=(low, high))


def _axis(lines: dict[str, Line], title: str, floor: float) -> Axis:
    """As far as values go, and a part of the ranges beyond: a limit far away says less."""
    values = np.concatenate([np.asarray(line.y, dtype=float) for line in lines.values()])
    values = np.maximum(values, floor)
    ends = [np.concatenate(line.band) for line in lines.values() if line.band is not None]
    limits = np.concatenate([*ends, values])
    limits = limits[np.isfinite(limits)]
    is_log = values.min() > 0 and np.log10(values.max() / values.min()) > _DECADES
    if is_log:
        values, limits = np.log10(values), np.log10(limits[limits > 0])
    low, high = float(values.min()), float(values.max())
    room = _ROOM * (high - low)
    room = room or (0.3 if is_log else 0.5 * abs(high) or 1.0)
    low, high = max(low - room, min(low, limits.min())), min(high + room, max(high, limits.max()))
    margin = 0.04 * (high - low) or 0.5 * room
    low, high = low - margin, high + margin
    return (
        Axis(title, "log", domain=(10**low, 10**high))
        if is_log
        else Axis(title, domain=(low, high))
    )


def _area(hull: Line) -> Chart:
    assert hull.band is not None
    rows = chart_rows(x=hull.x, low=hull.band[0], high=hull.band[1])
    mark = alt.Chart(rows).mark_area(color=REFERENCE, opacity=0.18, clip=True, tooltip=False)
    return mark.encode(x="x:Q", y="low:Q", y2="high:Q")


def _alerts(history: History, quantity: str, lines: dict[str, Line]) -> Chart | None:
    """A triangle where a number left its range; its sentence is shown where one points at it."""
    found = [(a, _value_at(history, a)) for a in history.alerts if a.quantity == quantity]
    found = [
        (a, value) for a, value in found if value is not None and (a.layer or "measured") in lines
    ]
    if not found:
        return None
    rows = chart_rows(
        step=[a.step for a, _ in found],
        value=[value for _, value in found],
        said=[a.sentence for a, _ in found],
    )
    mark = alt.Chart(rows).mark_point(
        shape="triangle-up", filled=True, size=70, opacity=1, color=_ALERT
    )
    return mark.encode(x="step:Q", y="value:Q", tooltip=["said:N"])


def _value_at(history: History, alert: Alert) -> float | None:
    place = int(np.searchsorted(history.steps, alert.step))
    if place == len(history.steps) or alert.quantity not in history.values:
        return None
    table = history.values[alert.quantity]
    if table.ndim == 2 and alert.layer not in history.layers:
        return None
    value = table[place] if table.ndim == 1 else table[place, history.layers.index(alert.layer)]
    return float(value) if np.isfinite(value) else None
