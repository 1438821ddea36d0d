"""Figure 3: escape times of five activations fall on one curve when multiplied by K."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

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
from dynagram_experiments._saddle_sgd import (
    coordinate_loss,
    crossing,
    descend,
    mean_and_error,
    population_descent,
    stacked,
    widened,
)

DEPTH, WIDTH, INPUTS, THRESHOLD = 4, 64, 16, 0.5
SCALES = np.geomspace(3e-3, 1e-1, 14)
# Where SGD is affordable: class C escapes later at the same scale.
TRAINED = {"B": (0.03, 0.055, 0.1), "C": (0.1, 0.178, 0.316)}
ACTIVATIONS = ("tanh", "erf", "sin", "gelu", "swish")
SEEDS, BATCH = 5, 1024


def _run(settings: Settings) -> Result:
    eta, between = (0.05, 40) if settings.full else (2.0, 2)
    rows: dict[str, list[Any]] = {
        name: []
        for name in ("activation", "kind", "epsilon", "time", "error", "universal", "expected")
    }
    statements, runs = [], []
    for name in ACTIVATIONS:
        kind = _network(name, 0.1).activation_class
        networks = [_network(name, e) for e in SCALES]
        times = reduced_escape_times(networks, THRESHOLD)
        following = [next_to_leading_escape_time(n, THRESHOLD) for n in networks]
        for network, time, law in zip(networks, times, following, strict=True):
            _add(rows, name, "ODE", network, float(time), 0.0, law)
        statements.append(_collapse(name, networks, times, following))
        trained = [_network(name, e) for e in TRAINED[kind.label]]
        flow = reduced_escape_times(trained, THRESHOLD)
        for network, time in zip(trained, flow, strict=True):
            if network.scales[0] > 1.01 * SCALES[-1]:
                law = next_to_leading_escape_time(network, THRESHOLD)
                _add(rows, name, "ODE", network, float(time), 0.0, law)
        found, expected = _sgd(trained, float(flow.max()), eta, between, settings.seed)
        mean, error = mean_and_error(found)
        for index, network in enumerate(trained):
            _add(rows, name, "SGD", network, mean[index], error[index], float(expected[index]))
        runs.append((name, mean, error, expected, flow))
    statements.append(_agreement(runs))
    notes = (
        f"SGD: {SEEDS} runs per scale, batch {BATCH}, η = {eta:g}, on block coordinates, which on "
        "this manifold is SGD on the full network (saddle-fig1 checks it).",
        _published_coefficient(),
    )
    return Result(tuple(statements), {"figure3": rows}, _figures(rows), notes)


def _network(name: str, epsilon: float) -> SymmetricNetwork:
    return SymmetricNetwork.balanced(name, depth=DEPTH, width=WIDTH, scale=epsilon)


def _add(
    rows: dict[str, list[Any]],
    name: str,
    kind: str,
    network: SymmetricNetwork,
    time: float,
    error: float,
    expected: float,
) -> None:
    entry = (
        name,
        kind,
        network.scales[0],
        time,
        error,
        universal_time(network, THRESHOLD, time),
        expected,
    )
    for column, value in zip(rows.values(), entry, strict=True):
        column.append(value)


def _collapse(
    name: str, networks: list[SymmetricNetwork], times: np.ndarray, following: list[float]
) -> Statement:
    off, law = (
        np.array(
            [
                universal_time(n, THRESHOLD, float(t)) - 1.0
                for n, t in zip(networks, ts, strict=True)
            ]
        )
        for ts in (times, following)
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
    found = np.stack(
        [crossing(times, run.T, THRESHOLD) for run in recorded.values.transpose(1, 2, 0)]
    )
    expected = []
    for network in networks:
        start = coordinates(network.scales)
        path = population_descent(sigma, scalar_problem(network), start, step, between, records)
        expected.append(float(crossing(times, np.asarray(path.A1)[:, :, 0], THRESHOLD)[0]))
    return found, np.array(expected)


def _agreement(runs: list[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]) -> Statement:
    scores = np.concatenate([(mean - expected) / error for _, mean, error, expected, _ in runs])
    offset = np.concatenate([mean / flow - 1 for _, mean, _, _, flow in runs])
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
    found = (universal_time(network, THRESHOLD, time) - 1.0) / SCALES[0]
    published = -2.0 * 3.0 * (2.0 * kind.a_q) ** 2 / (2.0 * kind.alpha * kind.h)
    return (
        f"gelu leaves the curve as {found:.2f} ε; the published coefficient γ_C would make it "
        f"{published:.2f} ε."
    )


def _figures(rows: dict[str, list[Any]]) -> dict[str, Any]:
    from dynagram.report._charts import xy_chart

    figures = {}
    for stem, column, title in (
        ("figure3a", "time", "escape time t (lines: ODE; points: SGD)"),
        ("figure3b", "universal", "K t over its leading law (lines: ODE; points: SGD)"),
    ):
        lines, points = {}, {}
        for name in ACTIVATIONS:
            for series, kind in ((lines, "ODE"), (points, "SGD")):
                keep = [
                    i
                    for i, (a, k) in enumerate(zip(rows["activation"], rows["kind"], strict=True))
                    if (a, k) == (name, kind)
                ]
                series[name] = (
                    [rows["epsilon"][i] for i in keep],
                    [rows[column][i] for i in keep],
                )
        figures[stem] = xy_chart(
            points,
            lines,
            x_title="initial scale ε",
            y_title=title,
            log_x=True,
            log_y=column == "time",
            height=340,
        )
    return figures


EXPERIMENT = Experiment(
    name="saddle-fig3",
    summary="escape times of different activations collapse on the clock K t",
    source="Rawal & DeWeese, figure 3",
    run=_run,
)
