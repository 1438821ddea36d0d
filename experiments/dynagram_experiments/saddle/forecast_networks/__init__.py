"""Forecasts of networks that were not used for calibration: several outputs, biases, other losses.

The forecaster sees a part of what the networks train on. Its constants were fitted to networks with
one output, without biases, on a squared error (saddle-forecast-calibration).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Part, Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.saddle.forecast_networks.runs import (
    GROUPS,
    HEALTHY,
    LATER,
    OF_EACH_GROUP,
    STEPS,
    recognise_healthy,
    run_between,
    run_group,
)

NAME = "saddle-forecast-networks"
_FULL = 4  # times as many networks
_SHARE, _AT_ONCE = 0.6, 10
_NEVER = 9.0  # the error of log10(steps) where training did not arrive
_CURVED = ("gelu", "swish", "softplus")


def _run(settings: Settings) -> Result:
    count = OF_EACH_GROUP * (_FULL if settings.full else 1)
    makers: dict[str, Any] = {
        name: functools.partial(run_group, settings.seed, name, count) for name in GROUPS
    }
    makers |= {
        f"between: {name}": functools.partial(run_between, settings.seed, name) for name in GROUPS
    }
    makers["healthy"] = functools.partial(recognise_healthy, settings.seed)
    plan = {"groups": list(GROUPS), "count": count, "steps": STEPS}
    parts = finish_parts(settings, NAME, makers, plan)
    table = Table.joined(parts[name] for name in GROUPS)
    between = Table.joined(parts[f"between: {name}"] for name in GROUPS)
    both = Table.joined((table, between))
    return Result(
        (*judge(table), judge_refusals(both), _healthy(parts["healthy"])),
        {"forecasts": table.columns(), "between": between.columns()},
        draw_if_possible(lambda: _figures(table)),
    )


def judge(columns: Mapping[str, np.ndarray]) -> list[Statement]:
    """Accuracy, coverage, refusals and the later stages of a table of networks."""
    on = columns["plateau"]
    measured, predicted = columns["measured"][on], columns["forecast"][on]
    error = np.abs(np.log10(predicted / measured))
    error = np.where(np.isfinite(error), error, np.inf)
    median, decile = float(np.median(error)), float(np.quantile(error, 0.9))
    inside = (columns["low"][on] <= measured) & (measured <= columns["high"][on])
    coverage, spread = float(np.mean(inside)), math.sqrt(0.09 / len(inside))
    is_digits = np.array(["digits" in str(name) for name in columns["group"][on]])
    curved = np.array([str(name).startswith(_CURVED) for name in columns["group"][on]])
    second, _ = _later(columns, ["second"])
    later, covered = _later(columns, list(LATER.values()))
    share = float(np.mean(covered)) if covered.size else math.nan
    chance = math.sqrt(0.09 / max(covered.size, 1))
    return [
        Statement(
            "of at least 41 plateaus, digits among them, half are forecast within 0.05 of "
            "log10(steps)",
            len(error) >= 41 and bool(is_digits.any()) and median <= 0.05,
            f"median {median:.3f}, 90 % {decile:.3f}, worst {error.max():.3f} over {len(error)} "
            f"networks with {measured.min():.0f} to {measured.max():.0f} steps; "
            f"{int(is_digits.sum())} of digits: median {np.median(error[is_digits]):.3f}",
        ),
        Statement(
            "the 90 % interval contains 85 to 95 % of the measured steps",
            0.85 <= coverage <= 0.95,
            f"{coverage:.1%} ± {spread:.1%} of {len(inside)}",
        ),
        Statement(
            "half of those with σ''(0) ≠ 0 (gelu, swish, softplus) are forecast within 0.03",
            bool(curved.any()) and float(np.median(error[curved])) <= 0.03,
            f"median {np.median(error[curved]):.3f}, worst {error[curved].max():.3f} of "
            f"{int(curved.sum())}",
        ),
        Statement(
            "second stages that are forecast come within a factor 1.25 in nine of ten cases",
            bool(second.size) and float(np.quantile(second, 0.9)) <= math.log10(1.25),
            f"|log10| median {np.median(second):.3f}, 90 % {np.quantile(second, 0.9):.3f} of "
            f"{second.size}"
            if second.size
            else "none",
        ),
        Statement(
            "the 90 % intervals of second and third stages contain 85 to 95 % of them, give or "
            "take two standard errors",
            0.85 - 2 * chance <= share <= 0.95 + 2 * chance,
            f"{share:.1%} ± {chance:.1%} of {later.size}, with |log10| median "
            f"{np.median(later):.3f}, 90 % {np.quantile(later, 0.9):.3f}"
            if later.size
            else "none",
        ),
    ]


def _later(
    columns: Mapping[str, np.ndarray], words: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """|log10| errors of later stages, and which are inside their interval.

    A stage that training did not reach counts where it was due before the end.
    """
    errors, inside = [], []
    for word in words:
        step, low, high, time = (
            columns[f"{word}_{part}"] for part in ("forecast", "low", "high", "measured")
        )
        rows = np.isfinite(step) & (np.isfinite(time) | (high < columns["steps"]))
        error = np.abs(np.log10(step[rows]) - np.log10(time[rows]))
        errors.append(np.where(np.isfinite(error), error, _NEVER))
        inside.append((low[rows] <= time[rows]) & (time[rows] <= high[rows]))
    return np.concatenate(errors), np.concatenate(inside)


def judge_refusals(columns: Mapping[str, np.ndarray]) -> Statement:
    """Whether the curves of refused networks have no plateau.

    From when the loss is near that of the plateau, a tenth of the fall takes a share of the time to
    the half, of which both sides know the limit 0.5 to a tenth: the forecaster from a part of the
    data, the curve in whole steps. What is half-way after ten steps has no plateau either.
    """
    refused = ~columns["plateau"]
    share, reasons = columns["early_share"][refused], columns["reason"][refused]
    wrong = (share >= _SHARE) & (columns["measured"][refused] > _AT_ONCE)
    counted = {
        word: int(np.sum([word in str(reason) for reason in reasons]))
        for word in ("already falling", "signal is not small", "output is not small")
    }
    return Statement(
        "refused networks have no plateau, in at least 95 %: a tenth of the fall takes less than "
        "0.6 of the time to the half, or they are half-way within ten steps",
        bool(refused.any()) and float(np.mean(~wrong)) >= 0.95,
        f"{int(np.sum(~wrong))} of {int(refused.sum())}: "
        + ", ".join(f"{number} as “{word}”" for word, number in counted.items()),
    )


def _healthy(part: Part) -> Statement:
    networks, refused, wrong = HEALTHY * len(GROUPS), int(part["refused"]), str(part["wrong"])
    return Statement(
        "networks of ordinary scale are recognised in at least 95 %",
        refused >= 0.95 * networks,
        f"{refused} of {networks}" + (f"; wrong: {wrong}" if wrong else ""),
    )


def _figures(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    on = columns["plateau"]
    cloud = {
        str(name): Line(columns["measured"][at], columns["forecast"][at])
        for name in GROUPS
        for at in [on & (columns["group"] == name)]
        if at.any()
    }
    x, y = Axis("measured escape step", "log"), Axis("forecast escape step", "log")
    return {"networks": line_chart({}, x, y, points=cloud, diagonal=True, height=400)}


EXPERIMENT = Experiment(
    name=NAME,
    summary="forecasts of networks with several outputs, biases and other losses",
    source="dynagram's own",
    run=_run,
)
