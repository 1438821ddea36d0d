"""Forecast against training: escape steps of many random networks, intervals, counterfactuals.

Training inputs have the second moments of the population; the forecaster sees a random batch, and
its interval has to make up for that.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Part, Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.saddle.forecast_calibration.runs import (
    KINDS,
    OF_EACH_KIND,
    PLATEAUS,
    SAMPLES,
    recognise,
    time_forecasts,
    train_group,
)

NAME = "saddle-forecast-calibration"
DEPTHS = range(3, 9)
# Width: how many networks of each depth, and the most steps that one of them may train. Of a
# laptop's minutes the wide ones would take most.
GROUPS = {32: (12, 3000), 64: (4, 2000), 128: (1, 1000)}
FULL_GROUPS = dict.fromkeys([*GROUPS, 256], (9, 20_000))


def _run(settings: Settings) -> Result:
    groups = FULL_GROUPS if settings.full else GROUPS
    makers: dict[str, Any] = {
        f"depth {depth}, width {width}": functools.partial(
            train_group, settings.seed, depth, width, *groups[width]
        )
        for width in groups
        for depth in DEPTHS
    }
    trained = list(makers)
    makers["recognition"] = functools.partial(recognise, settings.seed)
    makers["cost"] = functools.partial(time_forecasts, settings.seed)
    parts = finish_parts(settings, NAME, makers, {"groups": groups})
    table = Table.joined(parts[key] for key in trained)
    return Result(
        (*_calibration(table), _recognition(parts["recognition"]), _cost(parts["cost"])),
        {"forecasts": table.columns()},
        draw_if_possible(lambda: _figures(table)),
        (
            f"{len(table['depth'])} networks of {DEPTHS[0]} to {DEPTHS[-1]} layers, of width "
            + ", ".join(f"{width} ({count} of each depth)" for width, (count, _) in groups.items())
            + f"; {SAMPLES} samples, of which the forecaster sees none: it has 1024 others.",
        ),
    )


def _calibration(columns: Mapping[str, np.ndarray]) -> list[Statement]:
    predicted, measured = columns["forecast"], columns["measured"]
    error = np.abs(np.log10(predicted / measured))
    median, decile = float(np.median(error)), float(np.quantile(error, 0.9))
    inside = (columns["low"] <= measured) & (measured <= columns["high"])
    coverage, spread = float(np.mean(inside)), math.sqrt(0.09 / len(inside))
    again = columns["rescaled_layer"] > 0
    after = np.abs(np.log10(columns["rescaled_forecast"] / columns["rescaled_measured"]))[again]
    shorter = columns["rescaled_measured"][again] < measured[again]
    return [
        Statement(
            "half of at least 100 forecasts are within 0.06 of log10(steps), 9 in 10 within 0.2",
            len(error) >= 100 and median <= 0.06 and decile <= 0.2,
            f"median {median:.3f}, 90 % {decile:.3f}, worst {error.max():.3f} over {len(error)} "
            f"networks with {measured.min():.0f} to {measured.max():.0f} steps",
        ),
        Statement(
            "the 90 % interval contains 85 to 95 % of the measured steps",
            0.85 <= coverage <= 0.95,
            f"{coverage:.1%} ± {spread:.1%} of {len(inside)}",
        ),
        Statement(
            "the forecasts after rescaling one layer are confirmed by training at least 10 of them",
            len(after) >= 10
            and float(np.median(after)) <= 0.06
            and float(np.quantile(after, 0.9)) <= 0.2
            and bool(np.all(shorter)),
            f"|log10| median {np.median(after):.3f}, 90 % {np.quantile(after, 0.9):.3f}, worst "
            f"{after.max():.3f} of {len(after)}; shorter than before in {int(shorter.sum())}",
        ),
    ]


def _recognition(part: Part) -> Statement:
    others, wrong = OF_EACH_KIND * len(KINDS), str(part["wrong"])
    accepted, refused = int(part["accepted"]), int(part["refused"])
    return Statement(
        "networks that are not on a small-signal plateau are recognised in at least 95 %",
        refused >= 0.95 * others and accepted >= 0.95 * PLATEAUS,
        f"{refused} of {others} of seven kinds; {accepted} of {PLATEAUS} plateaus are accepted"
        + (f"; wrong: {wrong}" if wrong else ""),
    )


def _cost(part: Part) -> Statement:
    seconds, training = part["forecast"], part["training"]
    names = ("depth", "width", "forecast", "steps", "training")
    rows = zip(*(part[name] for name in names), strict=True)
    return Statement(
        "a forecast costs below 5 s and below 1 % of the training, for plateaus above 10⁵ steps",
        bool(np.all((seconds < 5.0) & (seconds < 0.01 * training))),
        "; ".join(
            f"depth {depth}, width {width}: {own:.2f} core s; {steps:.2g} steps take {long:.2g} s "
            f"({100 * own / long:.1g} %)"
            for depth, width, own, steps, long in rows
        ),
    )


def _figures(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    cloud = {
        str(name): Line(columns["measured"][at], columns["forecast"][at])
        for name in sorted(set(columns["activation"]))
        for at in [columns["activation"] == name]
    }
    x, y = Axis("measured escape step", "log"), Axis("forecast escape step", "log")
    return {"calibration": line_chart({}, x, y, points=cloud, diagonal=True, height=400)}


EXPERIMENT = Experiment(
    name=NAME,
    summary="forecast against measured escape steps of random networks",
    source="dynagram's own, on the setting of Rawal & DeWeese, figure 4",
    run=_run,
)
