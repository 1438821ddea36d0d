"""Networks on plateaus, forecast and trained; networks that are on none; what a forecast costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagram.activations import activation
from dynagram.data import Data
from dynagram.networks import Model
from dynagram.theory.saddle import Forecast, forecast
from dynagram.theory.saddle._chain import Chain
from dynagram.theory.saddle._surrogate import surrogate_escape
from dynagram.theory.saddle._tasks import LinearTask
from dynagram.training import GradientDescent, Training
from dynagram_experiments._parts import Table
from dynagram_experiments.saddle._plateaus import Plateau, draw_plateau, measured_escape

LEARNING_RATE, SAMPLES = 0.05, 2048
TIMED_STEPS = 40
PLATEAUS, OF_EACH_KIND = 40, 12
KINDS = ("ordinary", "large", "relu", "no signal", "learnt", "one small layer", "half-way")

Row = dict[str, Any]


def train_group(seed: int, depth: int, width: int, count: int, most: int) -> Table:
    """Networks whose forecast is below half of the steps allowed, trained to their escape.

    The first of them is trained once more, after the rescaling that the forecast finds best.
    """
    rng = np.random.default_rng([seed, depth, width])
    rows: list[Row] = []
    while len(rows) < count:
        member = draw_plateau(rng, depth, width, samples=SAMPLES)
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
    return Table.of_rows(rows)


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


def recognise(seed: int) -> dict[str, Any]:
    """How many are told apart.

    Three or more small layers from the first on are a plateau; seven other kinds are none.
    """
    rng = np.random.default_rng([seed, 99])
    accepted, refused, wrong = 0, 0, list[str]()
    for _ in range(PLATEAUS):
        depth, scale = int(rng.integers(4, 7)), float(rng.uniform(0.05, 0.12))
        member = draw_plateau(rng, depth, 32, scale=scale, name="tanh")
        while len(member.layers) < 3 or 1 not in member.layers:  # not small, or no plateau: again
            member = draw_plateau(rng, depth, 32, scale=scale, name="tanh")
        answer = _forecast(member.model, member.seen)
        accepted += answer.plateau
        if not answer.plateau:
            wrong.append(f"plateau refused: {answer.reasons[0]}")
    for kind in KINDS:
        for _ in range(OF_EACH_KIND):
            weights, batch, name = _no_plateau(rng, kind)
            answer = _forecast(Model.of_matrices(weights, name), batch)
            refused += not answer.plateau
            if answer.plateau:
                wrong.append(kind)
    return {"accepted": accepted, "refused": refused, "wrong": ", ".join(wrong)}


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
        left = surrogate_escape(task, Chain.linear(weights, gain=gain), [level])
        return list(left.chain.weights), (x, y), name
    if kind == "learnt":  # the readout fitted by least squares: most of the loss is gone
        h = x
        for layer in weights[:-1]:
            h = activation(name).values(h @ layer.T)
        return [*weights[:-1], np.linalg.lstsq(h, y, rcond=None)[0].T], (x, y), name
    return weights, (x, y), name


def time_forecasts(seed: int) -> Table:
    """Core seconds of a forecast and of the training it replaces, for plateaus above 10⁵ steps."""
    rng = np.random.default_rng([seed, 7])
    rows: list[Row] = []
    for depth, width in ((4, 32), (6, 64), (8, 256)):
        scale = 0.3
        while True:  # smaller layers, longer plateaus
            member = draw_plateau(rng, depth, width, samples=1024, scale=scale, name="tanh")
            answer = _forecast(member.model, member.seen)
            if answer.plateau and (answer.escape_step or 0.0) > 1e5:
                break
            scale *= 0.85
        seconds, _ = _clocked(lambda m=member: _forecast(m.model, m.seen))
        few = _clocked(
            lambda m=member: measured_escape(
                m, -1.0, learning_rate=LEARNING_RATE, most_steps=TIMED_STEPS
            )
        )
        steps = float(answer.escape_step or 0.0)
        training = min(few) / TIMED_STEPS * steps
        rows.append(
            {"depth": depth, "width": width, "forecast": seconds, "steps": steps,
             "training": training}
        )  # fmt: skip
    return Table.of_rows(rows)


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
