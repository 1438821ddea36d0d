"""Forecast against training: escape steps of many random networks, intervals, counterfactuals."""

from __future__ import annotations

import math

import numpy as np

from dynagram.activations import activation
from dynagram.experiments import Experiment, Result, Settings, Statement
from dynagram.experiments._plateau_training import Plateau, draw_plateau, measured_escapes
from dynagram.theory.saddle.forecast import Forecast, forecast

LEARNING_RATE = 0.05


def _run(settings: Settings) -> Result:
    depths = range(3, 9)
    widths, per, samples, most = (
        ((32, 64, 128, 256), 9, 2048, 20_000) if settings.full else ((32,), 5, 512, 3000)
    )
    members: list[Plateau] = []
    forecasts: list[Forecast] = []
    measured: list[float] = []
    for depth in depths:
        for width in widths:
            rng = np.random.default_rng([settings.seed, depth, width])
            group = _forecastable(rng, depth, width, per, samples, most)
            levels = np.array([answer.escape_loss for _, answer in group])
            drawn = [member for member, _ in group]
            measured += measured_escapes(
                drawn, levels, learning_rate=LEARNING_RATE, most_steps=most
            ).tolist()
            members += drawn
            forecasts += [answer for _, answer in group]
    changed = _counterfactuals(members, forecasts, most)
    return _judged(members, forecasts, np.array(measured), changed, _recognised(settings.seed))


def _forecastable(
    rng: np.random.Generator, depth: int, width: int, count: int, samples: int, most: int
) -> list[tuple[Plateau, Forecast]]:
    """Plateaus that training can follow to their end: the forecast is below half of the budget."""
    found: list[tuple[Plateau, Forecast]] = []
    while len(found) < count:
        member = draw_plateau(rng, depth, width, samples=samples)
        answer = forecast(member.weights, member.seen, member.name, LEARNING_RATE)
        if answer.plateau and (answer.escape_step or math.inf) < most / 2:
            found.append((member, answer))
    return found


def _counterfactuals(
    members: list[Plateau], forecasts: list[Forecast], most: int
) -> list[tuple[float, float]]:
    """(forecast, measured) steps of twelve networks after the rescaling that helps most."""
    found = []
    every = max(len(members) // 12, 1)
    for member, answer in zip(members[::every], forecasts[::every], strict=True):
        best = min(answer.counterfactuals, key=lambda entry: entry.escape_step)
        weights = list(member.weights)
        weights[best.layer - 1] = best.factor * weights[best.layer - 1]
        moved = Plateau(
            member.name, member.layers, member.scale, weights, member.train, member.seen
        )
        steps = measured_escapes(
            [moved],
            np.array([answer.escape_loss]),
            learning_rate=LEARNING_RATE,
            most_steps=most,
        )
        found.append((best.escape_step, float(steps[0])))
    return found


def _recognised(seed: int) -> tuple[int, int, list[str]]:
    """How many of a mixed set are told apart: small networks, and five kinds on no plateau."""
    rng = np.random.default_rng([seed, 99])
    right, shown, wrong = 0, 0, []
    for _ in range(20):
        member = draw_plateau(rng, int(rng.integers(4, 7)), 32, scale=0.08, name="tanh")
        answer = forecast(member.weights, member.seen, member.name, LEARNING_RATE)
        shown, right = shown + 1, right + answer.plateau
        if not answer.plateau:
            wrong.append(f"small network: {answer.reasons[0]}")
    for kind in ("ordinary", "large", "relu", "no signal", "learnt"):
        for _ in range(12):
            weights, batch, name = _no_plateau(rng, kind)
            answer = forecast(weights, batch, name, LEARNING_RATE)
            shown, right = shown + 1, right + (not answer.plateau)
            if answer.plateau:
                wrong.append(kind)
    return right, shown, wrong


def _no_plateau(
    rng: np.random.Generator, kind: str
) -> tuple[list[np.ndarray], tuple[np.ndarray, np.ndarray], str]:
    depth, width = int(rng.integers(3, 7)), int(rng.choice([32, 64]))
    scale = {"ordinary": 1.0, "large": 2.0, "learnt": 1.0}.get(kind, 0.1)
    member = draw_plateau(rng, depth, width, scale=scale)
    x, y = member.seen
    if kind == "relu":
        return member.weights, (x, np.maximum(x[:, :1], 0.0)), "relu"
    if kind == "no signal":
        return member.weights, (x, rng.normal(size=y.shape)), member.name
    if kind == "learnt":  # the readout fitted by least squares: most of the loss is gone
        h = x
        for layer in member.weights[:-1]:
            h = activation(member.name).values(h @ layer.T)
        readout = np.linalg.lstsq(h, y, rcond=None)[0].T
        return [*member.weights[:-1], readout], (x, y), member.name
    return member.weights, (x, y), member.name


def _judged(
    members: list[Plateau],
    forecasts: list[Forecast],
    measured: np.ndarray,
    changed: list[tuple[float, float]],
    recognised: tuple[int, int, list[str]],
) -> Result:
    from dynagram.report.charts import xy_chart

    predicted = np.array([answer.escape_step or math.nan for answer in forecasts])
    intervals = np.array([answer.interval or (math.nan, math.nan) for answer in forecasts])
    error = np.abs(np.log10(predicted / measured))
    inside = (intervals[:, 0] <= measured) & (measured <= intervals[:, 1])
    coverage, spread = float(np.mean(inside)), math.sqrt(0.09 / len(inside))
    after = np.abs(np.log10([p / m for p, m in changed]))
    right, shown, wrong = recognised
    median, decile = float(np.median(error)), float(np.quantile(error, 0.9))
    statements = (
        Statement(
            "half of the forecasts are within 0.06 of log10(steps), nine tenths within 0.2",
            median <= 0.06 and decile <= 0.2,
            f"median {median:.3f}, 90 % {decile:.3f}, worst {error.max():.3f} over {len(error)} "
            f"networks with {measured.min():.0f} to {measured.max():.0f} steps",
        ),
        Statement(
            "the 90 % interval contains 85 to 95 % of the measured steps",
            0.85 - spread <= coverage <= 0.95 + spread,
            f"{coverage:.1%} ± {spread:.1%} of {len(inside)}",
        ),
        Statement(
            "the forecast after rescaling one layer is confirmed by training",
            float(np.median(after)) <= 0.06 and float(after.max()) <= 0.3,
            f"|log10| median {np.median(after):.3f}, worst {after.max():.3f} of {len(after)}",
        ),
        Statement(
            "networks that are not on a small-signal plateau are told apart in at least 95 %",
            right >= 0.95 * shown,
            f"{right} of {shown} right" + (f"; wrong: {', '.join(wrong)}" if wrong else ""),
        ),
    )
    names = sorted({member.name for member in members})
    where = {name: np.array([m.name == name for m in members]) for name in names}
    cloud = {name: (measured[at], predicted[at]) for name, at in where.items()}
    chart = xy_chart(
        cloud, x_title="measured escape step", y_title="forecast escape step",
        log_x=True, log_y=True, diagonal=True, height=400,
    )  # fmt: skip
    table = {
        "activation": [m.name for m in members],
        "depth": [len(m.weights) for m in members],
        "width": [m.weights[0].shape[0] for m in members],
        "bottleneck": [" ".join(map(str, m.layers)) for m in members],
        "scale": [m.scale for m in members],
        "forecast": predicted.tolist(),
        "low": intervals[:, 0].tolist(),
        "high": intervals[:, 1].tolist(),
        "measured": measured.tolist(),
    }
    return Result(statements, {"forecasts": table}, {"calibration": chart})


EXPERIMENT = Experiment(
    name="saddle-forecast-calibration",
    summary="forecast against measured escape steps of random networks",
    source="dynagram's own, on the setting of Rawal & DeWeese, figure 4",
    run=_run,
)
