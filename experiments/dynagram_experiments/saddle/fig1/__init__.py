"""Figure 1: SGD on all weights of a deep tanh network against the reduced ODE of L scalars."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.networks import Architecture, Params
from dynagram.results import Estimate
from dynagram.theory.saddle import SymmetricNetwork, clock, reduced_escape_time, reduced_path
from dynagram.theory.saddle._flow import Coordinates
from dynagram.theory.saddle._reduced import coordinates, scalar_problem
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Part, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.saddle._sgd import (
    Recorded,
    coordinate_loss,
    crossing,
    descend,
    population_descent,
    stacked,
    widened,
)

NAME = "saddle-fig1"
NETWORK = SymmetricNetwork("tanh", (0.03, 0.05, 0.07, 0.09), width=64)
INPUTS, THRESHOLD, END = 16, 0.3, 60.0  # the end is a reduced time, twice the escape
RECORDS, SHOWN = 240, 24
SEEDS = 8


def _run(settings: Settings) -> Result:
    steps, batch = (120_000, 32_768) if settings.full else (6_000, 1_024)
    eta = NETWORK.width * END / steps
    steps_clock = clock("steps", width=NETWORK.width, learning_rate=eta)
    options: dict[str, Any] = {
        "batch": batch,
        "inputs": INPUTS,
        "between": steps // RECORDS,
        "records": RECORDS,
    }
    seeds = [settings.seed + index for index in range(SEEDS)]
    makers = {
        "coordinates": lambda: _coordinates(eta, seeds, options).values,
        "network": lambda: _network(eta, seeds[:1], options).values,
        # Steps of finite size lag behind the flow: SGD is compared with descent without noise.
        "descent": lambda: {"X": _descent(1.0 / steps_clock.units, options)},
    }
    parts = finish_parts(settings, NAME, makers, {"steps": steps, **options})
    scalars, network, descent = (parts[key] for key in makers)
    times = options["between"] * np.arange(RECORDS + 1.0) / steps_clock.units
    path = reduced_path(NETWORK, times)
    X, losses = scalars["X"][:, :, 0], scalars["loss"][:, :, 0]
    statements = _statements(times, X, network, descent["X"], path.X, steps)
    table: dict[str, Any] = {"t": times, "loss_ode": path.loss, "loss_sgd": losses.mean(axis=1)}
    for layer in range(NETWORK.depth):
        mean = Estimate.of_samples(X[:, :, layer].T)
        table[f"X{layer + 1}_ode"] = path.X[:, layer]
        table[f"X{layer + 1}_sgd"], table[f"X{layer + 1}_error"] = mean.value, mean.standard_error
    figures = draw_if_possible(lambda: _figures(times, path.X, path.loss, network))
    notes = (
        f"{steps} steps, batch {batch}, η = {eta:g} for W_1 and η/N for the deeper layers; points "
        "in the figure are the full network, one run.",
    )
    return Result(statements, {"figure1": table}, figures, notes)


def _statements(
    times: np.ndarray,
    X: np.ndarray,
    network: Part,
    descent: np.ndarray,
    flow: np.ndarray,
    steps: int,
) -> tuple[Statement, ...]:
    """`X` is (records, seeds, layers), `descent` and `flow` (records, layers)."""
    spread = float(np.max(network["spread"]))
    gap = float(np.max(np.abs(network["X"][:, 0, 0] - X[:, 0])))
    arrival = Estimate.of_samples(crossing(times, X[:, :, 0], THRESHOLD))
    exact = reduced_escape_time(NETWORK, THRESHOLD)
    expected = float(crossing(times, descent[:, :1], THRESHOLD)[0])
    end = times >= 1.5 * exact
    late = Estimate.of_samples(X[end].mean(axis=0))
    settled = descent[end].mean(axis=0)
    lag = float(np.max(np.abs(descent - flow)))
    in_time = abs(arrival.value - expected) < 4 * arrival.standard_error
    in_place = np.abs(late.value - settled) < 4 * late.standard_error
    return (
        Statement(
            "neurons of a layer that start alike stay alike under SGD",
            spread < 1e-6,
            f"largest difference within a layer, of X = O(1): {spread:.1e}",
        ),
        Statement(
            "the full network and its L scalars move alike on the same batches",
            gap < 2e-3,
            f"largest difference of any X_ℓ over {steps} steps in float32: {gap:.1e}",
        ),
        Statement(
            f"X_1 reaches {THRESHOLD} when the reduced flow says, at s = N t",
            bool(in_time and abs(expected / exact - 1) < 2e-3),
            f"t = {arrival:.4f} over {SEEDS} runs; reduced flow in the same steps "
            f"{expected:.4f}, in continuous time {exact:.4f}",
        ),
        Statement(
            "after the escape every X_ℓ is where the reduced flow has it",
            bool(np.all(in_place) and lag < 0.02),
            f"means over t > {1.5 * exact:.0f}: "
            + ", ".join(
                f"{v:.5f} ± {e:.5f}" for v, e in zip(late.value, late.standard_error, strict=True)
            )
            + "; reduced flow "
            + ", ".join(f"{v:.5f}" for v in settled)
            + f"; steps and continuous time differ by {lag:.4f} at most",
        ),
    )


def _coordinates(eta: float, seeds: list[int], options: dict[str, Any]) -> Recorded:
    """Runs on the L scalars (and the input components of one row), one per seed."""
    loss = coordinate_loss(NETWORK.activation, (NETWORK.beta,), NETWORK.width)
    start = widened(coordinates(NETWORK.scales), INPUTS)
    x = _inputs(options)

    def observe(state: Coordinates) -> dict[str, Array]:
        hidden = jnp.asarray(state.A)[:, 0, 0]
        X = jnp.concatenate([state.A1[0, :1], hidden, state.a[0]])
        return {"X": X, "loss": loss(state, x)}

    rates = jax.tree.map(lambda part: jnp.full_like(part, eta / NETWORK.width)[None], start)
    return descend(loss, observe, stacked([start]), rates, seeds=seeds, **options)


def _descent(step: float, options: dict[str, Any]) -> np.ndarray:
    """X_ℓ of the reduced flow in steps of reduced time, shape (records, layers)."""
    states = population_descent(
        NETWORK.activation,
        scalar_problem(NETWORK),
        coordinates(NETWORK.scales),
        step,
        options["between"],
        options["records"],
    )
    return np.concatenate([part.reshape(RECORDS + 1, -1) for part in states], axis=1)


def _network(eta: float, seeds: list[int], options: dict[str, Any]) -> Recorded:
    """Runs on all weights."""
    model = NETWORK.embedded(INPUTS)
    network, start = model.network, model.params
    N = NETWORK.width
    factors = jnp.asarray([1.0, *[N] * (NETWORK.depth - 2), math.sqrt(N)])

    def loss(params: Params, x: Array) -> Array:
        y = NETWORK.beta * network.activation(x[:, :1])
        return 0.5 * jnp.mean((network.apply(params, x) - y) ** 2)

    x = _inputs(options)

    def observe(params: Params) -> dict[str, Array]:
        # Entries that the ansatz makes equal: the columns of W_1, and all of a deeper layer.
        alike = [params[0].W, *(layer.W.reshape(-1, 1) for layer in params[1:])]
        X = jnp.stack([jnp.mean(entries[:, 0]) for entries in alike]) * factors
        ranges = jnp.stack([jnp.max(jnp.ptp(entries, axis=0)) for entries in alike]) * factors
        return {"X": X, "spread": jnp.max(ranges), "loss": loss(params, x)}

    rates = _rates(network, start, eta)
    return descend(loss, observe, stacked([start]), rates, seeds=seeds, **options)


def _rates(network: Architecture, start: Params, eta: float) -> Params:
    pairs = zip(start, network.lambda_W, network.widths[:-1], strict=True)
    return tuple(
        layer._replace(
            b=jnp.zeros_like(layer.b)[None], W=jnp.full_like(layer.W, eta * rate / n)[None]
        )
        for layer, rate, n in pairs
    )


def _inputs(options: dict[str, Any]) -> Array:
    """Fixed inputs on which losses are shown."""
    return jax.random.normal(jax.random.key(123), (8_192, options["inputs"]))


def _figures(times: np.ndarray, X: np.ndarray, losses: np.ndarray, network: Part) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    shown = slice(None, None, RECORDS // SHOWN)
    layers = range(NETWORK.depth)
    lines = {f"X_{layer + 1}": Line(times, X[:, layer]) for layer in layers}
    measured = network["X"][shown, 0, 0]
    points = {f"X_{layer + 1}": Line(times[shown], measured[:, layer]) for layer in layers}
    time = Axis("reduced time t = s/N")
    return {
        "figure1a": line_chart(
            {"loss": Line(times, losses)},
            time,
            Axis("loss (line: ODE; points: SGD)"),
            points={"loss": Line(times[shown], network["loss"][shown, 0, 0])},
        ),
        "figure1b": line_chart(lines, time, Axis("X_ℓ (lines: ODE; points: SGD)"), points=points),
    }


EXPERIMENT = Experiment(
    name=NAME,
    summary="SGD on all weights of a symmetric network follows an ODE for one scalar per layer",
    source="Rawal & DeWeese, figure 1",
    run=_run,
)
