"""Large starts: how far the small-scale laws reach, and what takes their place.

The theory of escape is one of small scales; the paper leaves large ones to future work. Two
questions with numbers: up to which scale are the laws of the symmetric ansatz good to ten per
cent; and for random networks, He-normal times ε in every layer, from which ε on is the time to half
of the loss that of the kernel at the start (a network that hardly moves), not that of the
deep-linear surrogate (one that leaves a plateau)?
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import numpy as np

from dynagram.networks import Model
from dynagram.observables.tangents import ntk
from dynagram.results import Estimate
from dynagram.theory.saddle import (
    SymmetricNetwork,
    leading_escape_time,
    next_to_leading_escape_time,
    reduced_escape_times,
)
from dynagram.theory.saddle._chain import Chain
from dynagram.theory.saddle._surrogate import surrogate_escape
from dynagram.theory.saddle._tasks import LinearTask
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Part, Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.saddle._plateaus import Plateau, measured_escape, whitened_inputs

NAME = "saddle-large-start"
# The ansatz: escape at X_1 = 0.3 from a balanced start.
THRESHOLD, WIDTH, DEPTHS = 0.3, 64, (4, 5)
ACTIVATIONS = ("tanh", "gelu")
ANSATZ_SCALES = np.geomspace(0.005, 0.25, 18)
TOLERANCE = 0.1
# Random networks: tanh, depth 4, width 64, 8 inputs, one teacher direction.
SCALES = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
SEEDS, DEPTH, INPUTS, SAMPLES = 5, 4, 8, 256


def _rate(scale: float) -> float:
    """Small enough at every scale for tens of steps: times are compared, not steps."""
    return 0.005 * min(1.0, (0.4 / scale) ** 2)


def _run(settings: Settings) -> Result:
    seeds = 4 * SEEDS if settings.full else SEEDS
    makers: dict[str, Any] = {
        f"laws, {name}, L = {L}": functools.partial(_laws, name, L)
        for name in ACTIVATIONS
        for L in DEPTHS
    }
    for scale in SCALES:
        makers[f"random, {scale:g}"] = functools.partial(_random, settings.seed, scale, seeds)
    parts = finish_parts(settings, NAME, makers)
    laws = Table.joined(part for key, part in parts.items() if key.startswith("laws"))
    table = Table.joined(part for key, part in parts.items() if key.startswith("random"))
    return Result(
        (*_reach_statements(laws), *_random_statements(table)),
        {"laws": laws.columns(), "random_networks": table.columns()},
        draw_if_possible(lambda: _figures(laws, table)),
        (
            f"{seeds} networks at every ε: tanh, {DEPTH} layers of {WIDTH}, {SAMPLES} inputs in "
            f"{INPUTS} dimensions, full-batch descent. Both predictions use the "
            "weights at the start alone.",
        ),
    )


def _laws(name: str, L: int) -> Part:
    """Escape times of the exact flow over those of the two laws, for balanced starts."""
    networks = [
        SymmetricNetwork.balanced(name, depth=L, width=WIDTH, scale=float(scale))
        for scale in ANSATZ_SCALES
    ]
    times = reduced_escape_times(networks, THRESHOLD)
    laws = {
        "leading": [leading_escape_time(network, THRESHOLD) for network in networks],
        "next_to_leading": [
            next_to_leading_escape_time(network, THRESHOLD) for network in networks
        ],
    }
    rows = len(networks)
    return {
        "activation": np.array([name] * rows),
        "L": np.full(rows, L),
        "epsilon": ANSATZ_SCALES,
        "ode": times,
        **{key: np.array(values) for key, values in laws.items()},
    }


def _random(seed: int, scale: float, seeds: int) -> Part:
    """Time η × steps to half of the first loss: descent, surrogate, kernel at the start."""
    rows = []
    for index in range(seeds):
        rng = np.random.default_rng([seed, round(1000 * scale), index])
        sizes = [INPUTS, *[WIDTH] * (DEPTH - 1), 1]
        weights = [
            scale * rng.normal(size=(sizes[i + 1], sizes[i])) * math.sqrt(2.0 / sizes[i])
            for i in range(DEPTH)
        ]
        x = whitened_inputs(rng, SAMPLES, INPUTS)
        y = np.tanh(x[:, :1])
        model = Model.of_matrices(weights, "tanh")
        start = np.asarray(model(x)) - y
        loss = 0.5 * float(np.mean(start**2))
        member = Plateau("tanh", tuple(range(1, DEPTH + 1)), scale, weights, (x, y), (x, y))
        rate = _rate(scale)
        steps = measured_escape(member, 0.5 * loss, learning_rate=rate, most_steps=200_000)
        rows.append(
            {
                "scale": scale,
                "seed": index,
                "loss": loss,
                "descent": rate * steps,
                "surrogate": _surrogate_time(x, y, weights),
                "kernel": _kernel_time(model, x, start[:, 0]),
            }
        )
    return dict(Table.of_rows(rows))


def _surrogate_time(x: np.ndarray, y: np.ndarray, weights: list[np.ndarray]) -> float:
    task = LinearTask.of(x, y)
    product = np.linalg.multi_dot(weights[::-1])
    level = 0.5 * task.loss(product)
    return surrogate_escape(task, Chain.linear(weights), [level]).times[0]


def _kernel_time(model: Model, x: np.ndarray, residual: np.ndarray) -> float:
    """When |exp(−Kt/M) r|² is half of |r|², K the tangent kernel at the start."""
    with jax.enable_x64(True):
        K = np.asarray(ntk(model.in_float64(), x))[:, :, 0, 0] / len(x)
    values, vectors = np.linalg.eigh(K)
    shares = (vectors.T @ residual) ** 2 / float(residual @ residual)
    low, high = 0.0, 1.0
    while _left(values, shares, high) > 0.5:
        low, high = high, 2.0 * high
        if high > 1e12:
            return math.inf
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _left(values, shares, middle) > 0.5 else (low, middle)
    return high


def _left(values: np.ndarray, shares: np.ndarray, t: float) -> float:
    return float(np.sum(shares * np.exp(-2.0 * np.maximum(values, 0.0) * t)))


def _reach(laws: Table, name: str, L: int, law: str) -> float:
    """The largest ε up to which the law is good to the tolerance; 0 if nowhere."""
    where = {"activation": name, "L": L}
    errors = np.abs(laws.each(law, **where) / laws.each("ode", **where) - 1.0)
    good = np.cumprod(np.nan_to_num(errors, nan=np.inf) < TOLERANCE).astype(bool)
    return float(laws.each("epsilon", **where)[good][-1]) if good.any() else 0.0


def _reach_statements(laws: Table) -> list[Statement]:
    statements = []
    for name in ACTIVATIONS:
        for L in DEPTHS:
            first, second = (_reach(laws, name, L, law) for law in ("leading", "next_to_leading"))
            statements.append(
                Statement(
                    f"{name}, L = {L}: the next order extends the reach of the leading law "
                    f"(errors below {100 * TOLERANCE:g} %)",
                    second > first,
                    f"leading up to ε = {first:.3f}, next to leading up to ε = {second:.3f}, "
                    f"escape at X_1 = {THRESHOLD}",
                )
            )
    return statements


def _errors(table: Table, law: str, scale: float) -> Estimate:
    """Mean and spread of log10(predicted/measured) over the networks."""
    ratio = table.each(law, scale=scale) / table.each("descent", scale=scale)
    return Estimate.of_samples(np.log10(ratio))


def _random_statements(table: Table) -> list[Statement]:
    told = {
        law: {scale: _errors(table, law, scale) for scale in SCALES}
        for law in ("surrogate", "kernel")
    }
    small, large = SCALES[0], SCALES[-1]
    better = [
        scale
        for scale in SCALES
        if abs(told["kernel"][scale].value) < abs(told["surrogate"][scale].value)
    ]
    crossing = better[0] if better else math.nan
    lasting = bool(better) and better == [scale for scale in SCALES if scale >= crossing]
    return [
        Statement(
            f"ε = {small:g}: the surrogate is within 0.1 in log10, the kernel off by more than 0.5",
            bool(abs(told["surrogate"][small].value) < 0.1 and told["kernel"][small].value > 0.5),
            f"log10(predicted/measured): surrogate {told['surrogate'][small]:.3f}, kernel "
            f"{told['kernel'][small]:.3f}",
        ),
        Statement(
            f"ε = {large:g}: the kernel at the start is within 0.1 in log10, the surrogate is not",
            bool(abs(told["kernel"][large].value) < 0.1 < abs(told["surrogate"][large].value)),
            f"log10(predicted/measured): surrogate {told['surrogate'][large]:.3f}, kernel "
            f"{told['kernel'][large]:.3f}",
        ),
        Statement(
            "There is one crossing: below it the surrogate is nearer, above it the kernel",
            lasting,
            f"the kernel is nearer from ε = {crossing:g} on; kernel "
            + ", ".join(f"{told['kernel'][s].value:+.2f}" for s in SCALES)
            + "; surrogate "
            + ", ".join(f"{told['surrogate'][s].value:+.2f}" for s in SCALES)
            + " at ε = "
            + ", ".join(f"{s:g}" for s in SCALES),
        ),
    ]


def _figures(laws: Table, table: Table) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    reach = {}
    for name in ACTIVATIONS:
        for law in ("leading", "next_to_leading"):
            where = {"activation": name, "L": DEPTHS[0]}
            ratio = laws.each(law, **where) / laws.each("ode", **where)
            fine = np.isfinite(ratio)
            epsilon = laws.each("epsilon", **where)[fine]
            reach[f"{name}, {law.replace('_', ' ')}"] = Line(epsilon, ratio[fine])
    times = {
        law: Line.through({s: Estimate.of_samples(table.each(law, scale=s)) for s in SCALES})
        for law in ("descent", "surrogate", "kernel")
    }
    return {
        "reach-of-the-laws": line_chart(
            reach, Axis("initial scale ε", "log"), Axis("law over exact flow, L = 4")
        ),
        "random-networks": line_chart(
            times,
            Axis("scale ε of all layers", "log"),
            Axis("time η × steps to half of the loss", "log"),
        ),
    }


EXPERIMENT = Experiment(
    name=NAME,
    summary="how far the laws of small starts reach, and what takes their place at large ones",
    source="Rawal & DeWeese, section 6 (future work)",
    run=_run,
)
