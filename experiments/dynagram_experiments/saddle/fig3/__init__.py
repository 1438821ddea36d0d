"""Figure 3: escape times of five activations fall on one curve when multiplied by K."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.results import Estimate
from dynagram.theory.saddle import (
    SymmetricNetwork,
    first_correction,
    next_to_leading_escape_time,
    reduced_escape_times,
    universal_time,
)
from dynagram.theory.saddle._flow import Coordinates
from dynagram.theory.saddle._reduced import coordinates, scalar_problem
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Part, Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.saddle._sgd import (
    coordinate_loss,
    crossing,
    descend,
    population_descent,
    stacked,
    widened,
)

NAME = "saddle-fig3"
DEPTH, WIDTH, INPUTS, THRESHOLD = 4, 64, 16, 0.5
SCALES = np.geomspace(3e-3, 1e-1, 14)
# Where SGD is affordable: class C escapes later at the same scale.
TRAINED = {"B": (0.03, 0.055, 0.1), "C": (0.1, 0.178, 0.316)}
ACTIVATIONS = ("tanh", "erf", "sin", "gelu", "swish")
SEEDS, BATCH = 5, 1024


def _run(settings: Settings) -> Result:
    eta, between = (0.05, 40) if settings.full else (2.0, 2)
    makers = {
        name: functools.partial(_escapes, name, eta, between, settings.seed) for name in ACTIVATIONS
    }
    parts = finish_parts(settings, NAME, makers, {"eta": eta, "seeds": SEEDS, "batch": BATCH})
    table = Table.joined([_table(name, part) for name, part in parts.items()])
    notes = (
        f"SGD: {SEEDS} runs per scale, batch {BATCH}, η = {eta:g}, on block coordinates, which on "
        "this manifold is SGD on the full network (saddle-fig1 checks it).",
        _published_coefficient(),
    )
    return Result(
        (*(_collapse(name, part) for name, part in parts.items()), _agreement(parts)),
        {"figure3": table.columns()},
        draw_if_possible(lambda: _figures(table)),
        notes,
    )


def _network(name: str, epsilon: float) -> SymmetricNetwork:
    return SymmetricNetwork.balanced(name, depth=DEPTH, width=WIDTH, scale=epsilon)


def _escapes(name: str, eta: float, between: int, seed: int) -> Part:
    """Escape times of one activation: of the flow and its law, of SGD, and of SGD without noise."""
    networks = [_network(name, scale) for scale in SCALES]
    trained = [_network(name, scale) for scale in TRAINED[networks[0].activation_class.label]]
    flow = reduced_escape_times(trained, THRESHOLD)
    sgd, expected = _sgd(trained, float(flow.max()), eta, between, seed)
    return {
        "flow": reduced_escape_times(networks, THRESHOLD),
        "law": np.array([next_to_leading_escape_time(n, THRESHOLD) for n in networks]),
        "trained_scales": np.array([n.scales[0] for n in trained]),
        "trained_flow": flow,
        "trained_law": np.array([next_to_leading_escape_time(n, THRESHOLD) for n in trained]),
        "sgd": sgd,
        "expected": expected,
    }


def _table(name: str, part: Part) -> Table:
    """The times of one activation: of the flow at every scale, and of SGD where it was run."""
    beyond = part["trained_scales"] > 1.01 * SCALES[-1]
    sgd = Estimate.of_samples(part["sgd"])
    flow = [
        *zip(SCALES, part["flow"], part["law"], strict=True),
        *np.stack([part[f"trained_{key}"][beyond] for key in ("scales", "flow", "law")], axis=1),
    ]
    times = zip(part["trained_scales"], sgd.value, sgd.standard_error, strict=True)
    rows = [("ODE", scale, time, 0.0, law) for scale, time, law in flow]
    pairs = zip(times, part["expected"], strict=True)
    rows += [("SGD", scale, time, error, expected) for (scale, time, error), expected in pairs]
    return Table.of_rows(
        {
            "activation": name,
            "kind": kind,
            "epsilon": float(scale),
            "time": float(time),
            "error": float(error),
            "universal": universal_time(_network(name, float(scale)), THRESHOLD, float(time)),
            "expected": float(expected),
        }
        for kind, scale, time, error, expected in rows
    )


def _collapse(name: str, part: Part) -> Statement:
    networks = [_network(name, scale) for scale in SCALES]
    off, law = (
        np.array(
            [
                universal_time(n, THRESHOLD, float(t)) - 1.0
                for n, t in zip(networks, part[key], strict=True)
            ]
        )
        for key in ("flow", "law")
    )
    power = float(np.diff(np.log(np.abs(off[:2])))[0] / np.diff(np.log(SCALES[:2]))[0])
    correction = first_correction(name, DEPTH)
    assert correction is not None
    words = f"ε^{correction.power}" + (" log(1/ε)" if correction.logarithm else "")
    slope = np.diff(np.log([correction.size(e) for e in SCALES[:2]]))[0]
    expected = float(slope / np.diff(np.log(SCALES[:2]))[0])
    if correction.logarithm:
        # The logarithm stands beside a constant: the power lies between the two.
        passed = expected - 0.02 < power < correction.power and abs(off[0]) < 5e-4
    else:
        passed = abs(power - expected) < 0.02 and abs(law[0] / off[0] - 1) < 0.03
    return Statement(
        f"{name}: K t leaves the common curve as {words}",
        bool(passed),
        f"by {100 * off[0]:+.3f} % at ε = {SCALES[0]:g} (next order: {100 * law[0]:+.3f} %), "
        f"growing as ε^{power:.3f}; {words} grows there as ε^{expected:.3f}",
    )


def _sgd(
    networks: list[SymmetricNetwork], longest: float, eta: float, between: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Escape times (seeds, scales) of SGD, and (scales,) of the same steps without noise."""
    sigma = networks[0].activation
    step = eta / WIDTH  # in reduced time
    records = math.ceil(1.1 * longest / step / between)
    loss = coordinate_loss(sigma, (1.0,), WIDTH)
    starts = stacked([widened(coordinates(network.scales), INPUTS) for network in networks])
    rates = jax.tree.map(lambda part: jnp.full_like(part, step), starts)

    def observe(state: Coordinates) -> Array:
        return jnp.asarray(state.A1)[0, 0]

    recorded = descend(
        loss, observe, starts, rates,
        seeds=[seed + index for index in range(SEEDS)],
        batch=BATCH, inputs=INPUTS, between=between, records=records,
    )  # fmt: skip
    times = recorded.steps * step
    escapes = np.stack(
        [crossing(times, run.T, THRESHOLD) for run in recorded.values.transpose(1, 2, 0)]
    )
    expected = []
    for network in networks:
        start = coordinates(network.scales)
        path = population_descent(sigma, scalar_problem(network), start, step, between, records)
        expected.append(float(crossing(times, np.asarray(path.A1)[:, :, 0], THRESHOLD)[0]))
    return escapes, np.array(expected)


def _agreement(parts: Mapping[str, Part]) -> Statement:
    means = {name: Estimate.of_samples(part["sgd"]) for name, part in parts.items()}
    scores = np.concatenate(
        [(m.value - parts[name]["expected"]) / m.standard_error for name, m in means.items()]
    )
    offset = np.concatenate(
        [m.value / parts[name]["trained_flow"] - 1 for name, m in means.items()]
    )
    worst = int(np.argmax(np.abs(scores)))
    return Statement(
        "SGD escapes when the reduced flow says, for every activation and scale",
        bool(np.all(np.abs(scores) < 4) and np.all(np.abs(offset) < 0.02)),
        f"{scores.size} means of {SEEDS} runs: largest deviation {scores[worst]:+.1f} standard "
        f"errors from the same steps without noise, {100 * np.max(np.abs(offset)):.2f} % from "
        "continuous time",
    )


def _published_coefficient() -> str:
    """What App. C of the paper would make of class C, beside what is found."""
    network = _network("gelu", SCALES[0])
    kind = network.activation_class
    assert kind.a_q is not None
    assert kind.h_q is not None
    time = float(reduced_escape_times([network], THRESHOLD)[0])
    measured = (universal_time(network, THRESHOLD, time) - 1.0) / SCALES[0]
    published = -2.0 * 3.0 * (2.0 * kind.a_q) ** 2 / (2.0 * kind.alpha * kind.h)
    return (
        f"gelu leaves the curve as {measured:.2f} ε; the published coefficient γ_C would make it "
        f"{published:.2f} ε."
    )


def _figures(table: Table) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    def series(kind: str, column: str) -> dict[str, Line]:
        chosen = {name: {"activation": name, "kind": kind} for name in ACTIVATIONS}
        return {
            name: Line(table.each("epsilon", **where), table.each(column, **where))
            for name, where in chosen.items()
        }

    titles = {
        "figure3a": ("time", "escape time t (lines: ODE; points: SGD)"),
        "figure3b": ("universal", "K t over its leading law (lines: ODE; points: SGD)"),
    }
    return {
        stem: line_chart(
            series("ODE", column),
            Axis("initial scale ε", "log"),
            Axis(title, "log" if column == "time" else "linear"),
            points=series("SGD", column),
            height=340,
        )
        for stem, (column, title) in titles.items()
    }


EXPERIMENT = Experiment(
    name=NAME,
    summary="escape times of different activations collapse on the clock K t",
    source="Rawal & DeWeese, figure 3",
    run=_run,
)
