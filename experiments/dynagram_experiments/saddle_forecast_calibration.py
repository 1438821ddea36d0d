"""Forecast against training: escape steps of many random networks, intervals, counterfactuals.

Training inputs have the second moments of the population; the forecaster sees a random batch, and
its interval has to make up for that. With an output folder every finished group of networks is
kept there, and a run that was stopped goes on with the next group.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dynagram.activations import activation
from dynagram.data import Data
from dynagram.networks import Model
from dynagram.theory.saddle._forecast import Forecast, forecast
from dynagram.theory.saddle._surrogate import LinearTask, surrogate_escape
from dynagram.training import GradientDescent, Training
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._kept import Kept
from dynagram_experiments._plateau_training import Plateau, draw_plateau, measured_escape

LEARNING_RATE = 0.05
DEPTHS = range(3, 9)
# Width: how many networks of each depth, and the most steps that one of them may train.
GROUPS = {32: (18, 4000), 64: (10, 3000), 128: (4, 1500), 256: (2, 800)}
FULL_GROUPS = dict.fromkeys(GROUPS, (9, 20_000))
TIMED_STEPS = 40
KINDS = ("ordinary", "large", "relu", "no signal", "learnt", "one small layer", "half-way")

Row = dict[str, Any]


def _run(settings: Settings) -> Result:
    groups = FULL_GROUPS if settings.full else GROUPS
    kept = Kept(settings.folder, "forecasts", {"seed": settings.seed, "groups": groups})
    rows: list[Row] = []
    for width in groups:
        for depth in DEPTHS:
            make = functools.partial(_trained, settings.seed, depth, width, *groups[width])
            rows += kept.part(f"depth {depth}, width {width}", make)
    columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    return Result(
        (*_calibration(columns), _recognition(settings.seed), _cost(settings.seed)),
        {"forecasts": {key: values.tolist() for key, values in columns.items()}},
        _figures(columns),
    )


def _trained(seed: int, depth: int, width: int, count: int, most: int) -> list[Row]:
    """Networks whose forecast is below half of the steps allowed, trained to their escape.

    The first of them is trained once more, after the rescaling that the forecast finds best.
    """
    rng = np.random.default_rng([seed, depth, width])
    rows: list[Row] = []
    while len(rows) < count:
        member = draw_plateau(rng, depth, width)
        answer = _forecast(member.model, member.seen)
        if answer.interval is None or not (answer.escape_step or math.inf) < most / 2:
            continue
        row = _described(member) | {
            "forecast": answer.escape_step,
            "low": answer.interval[0],
            "high": answer.interval[1],
            "measured": _measured(member, answer, most),
            "rescaled_layer": 0,
            "rescaled_forecast": math.nan,
            "rescaled_measured": math.nan,
        }
        if not rows:
            best = min(answer.counterfactuals, key=lambda entry: entry.escape_step)
            changed = member.rescaled(best.layer, best.factor)
            row["rescaled_layer"], row["rescaled_forecast"] = best.layer, best.escape_step
            row["rescaled_measured"] = _measured(changed, answer, most)
        rows.append(row)
    return rows


def _forecast(model: Model, batch: tuple[np.ndarray, np.ndarray]) -> Forecast:
    """For one output ½ mean |f − y|², which is trained, at a rate η is "mean" at η/2."""
    return forecast(model, Data(*batch), Training(GradientDescent(LEARNING_RATE / 2), loss="mean"))


def _described(member: Plateau) -> Row:
    return {
        "activation": member.name,
        "depth": len(member.weights),
        "width": member.weights[0].shape[0],
        "bottleneck": " ".join(map(str, member.layers)),
        "scale": member.scale,
    }


def _measured(member: Plateau, answer: Forecast, most: int) -> float:
    level = answer.escape_loss / 2
    return measured_escape(member, level, learning_rate=LEARNING_RATE, most_steps=most)


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
            "half of at least 200 forecasts are within 0.06 of log10(steps), 9 in 10 within 0.2",
            len(error) >= 200 and median <= 0.06 and decile <= 0.2,
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


def _recognition(seed: int) -> Statement:
    """Three or more small layers from the first on are a plateau; seven other kinds are none."""
    rng = np.random.default_rng([seed, 99])
    accepted, refused, wrong = 0, 0, []
    plateaus, others = 40, 12 * len(KINDS)
    for _ in range(plateaus):
        depth, scale = int(rng.integers(4, 7)), float(rng.uniform(0.05, 0.12))
        member = draw_plateau(rng, depth, 32, scale=scale, name="tanh")
        while len(member.layers) < 3 or 1 not in member.layers:  # not small, or no plateau: again
            member = draw_plateau(rng, depth, 32, scale=scale, name="tanh")
        answer = _forecast(member.model, member.seen)
        accepted += answer.plateau
        if not answer.plateau:
            wrong.append(f"plateau refused: {answer.reasons[0]}")
    for kind in KINDS:
        for _ in range(12):
            weights, batch, name = _no_plateau(rng, kind)
            answer = _forecast(Model.of_matrices(weights, name), batch)
            refused += not answer.plateau
            if answer.plateau:
                wrong.append(kind)
    return Statement(
        "networks that are not on a small-signal plateau are recognised in at least 95 %",
        refused >= 0.95 * others and accepted >= 0.95 * plateaus,
        f"{refused} of {others} of seven kinds; {accepted} of {plateaus} plateaus are accepted"
        + (f"; wrong: {', '.join(wrong)}" if wrong else ""),
    )


def _no_plateau(
    rng: np.random.Generator, kind: str
) -> tuple[list[np.ndarray], tuple[np.ndarray, np.ndarray], str]:
    depth, width = int(rng.integers(3, 7)), int(rng.choice([32, 64]))
    scale = {"ordinary": 1.0, "large": 2.0, "learnt": 1.0, "one small layer": 1.0}.get(kind, 0.1)
    member = draw_plateau(rng, depth, width, scale=scale)
    weights, (x, y), name = member.weights, member.seen, member.name
    if kind == "relu":
        return weights, (x, np.maximum(x[:, :1], 0.0)), "relu"
    if kind == "no signal":
        return weights, (x, rng.normal(size=y.shape)), name
    if kind == "one small layer":  # r = 1: it grows at once
        return [0.02 * weights[0], *weights[1:]], (x, y), name
    if kind == "half-way":  # where the linear surrogate has made half of its fall
        gain = float(activation(name).values(np.zeros(1), 1)[0]) ** (depth - 1)
        task = LinearTask.of(x, y)
        level = 0.5 * (0.5 * task.power + task.minimum)
        left = surrogate_escape(task, weights, gain=gain, levels=[level])
        return list(left.weights), (x, y), name
    if kind == "learnt":  # the readout fitted by least squares: most of the loss is gone
        h = x
        for layer in weights[:-1]:
            h = activation(name).values(h @ layer.T)
        return [*weights[:-1], np.linalg.lstsq(h, y, rcond=None)[0].T], (x, y), name
    return weights, (x, y), name


def _cost(seed: int) -> Statement:
    """Core seconds of a forecast and of the training it replaces, for plateaus above 10⁵ steps."""
    rng = np.random.default_rng([seed, 7])
    told, held = [], []
    for depth, width in ((4, 32), (6, 64), (8, 256)):
        scale = 0.3
        while True:  # smaller layers, longer plateaus
            member = draw_plateau(rng, depth, width, samples=1024, scale=scale, name="tanh")
            answer = _forecast(member.model, member.seen)
            if answer.plateau and (answer.escape_step or 0.0) > 1e5:
                break
            scale *= 0.85
        own, _ = _clocked(lambda m=member: _forecast(m.model, m.seen))
        few = _clocked(
            lambda m=member: measured_escape(
                m, -1.0, learning_rate=LEARNING_RATE, most_steps=TIMED_STEPS
            )
        )
        training = min(few) / TIMED_STEPS * float(answer.escape_step or 0.0)
        held.append(own < 2.0 and own < 0.01 * training)
        told.append(
            f"depth {depth}, width {width}: {own:.2f} core s; {answer.escape_step:.2g} steps "
            f"take {training:.2g} s ({100 * own / training:.1g} %)"
        )
    return Statement(
        "a forecast costs below 2 s and below 1 % of the training, for plateaus above 10⁵ steps",
        all(held),
        "; ".join(told),
    )


def _clocked(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of all cores, and of the clock on the wall: the least of three runs after a first.

    The former do not depend on what else the machine is doing.
    """
    work()
    taken = []
    for _ in range(3):
        cores, wall = time.process_time(), time.perf_counter()
        work()
        taken.append((time.process_time() - cores, time.perf_counter() - wall))
    return min(cores for cores, _ in taken), min(wall for _, wall in taken)


def _figures(columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    from dynagram.report._charts import xy_chart

    cloud = {
        str(name): (columns["measured"][at], columns["forecast"][at])
        for name in sorted(set(columns["activation"]))
        for at in [columns["activation"] == name]
    }
    chart = xy_chart(
        cloud, x_title="measured escape step", y_title="forecast escape step",
        log_x=True, log_y=True, diagonal=True, height=400,
    )  # fmt: skip
    return {"calibration": chart}


EXPERIMENT = Experiment(
    name="saddle-forecast-calibration",
    summary="forecast against measured escape steps of random networks",
    source="dynagram's own, on the setting of Rawal & DeWeese, figure 4",
    run=_run,
    continues=True,
)
