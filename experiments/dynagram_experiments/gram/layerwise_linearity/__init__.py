"""Target linearity layer by layer, before and after training on digits, and its surrogates.

MLP 64–256×4–10, ReLU, Adam 1e-3, batches of 64, 30 epochs. Linearity is that of a ridge read-out
fitted on the training features and scored on the test set. Before training it falls from the first
hidden layer on; training makes it rise with depth and, behind the first layer, with time.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import jax
import numpy as np

from dynagram.data import Data, digits
from dynagram.networks import MLP, Params
from dynagram.observables.gram._linearity import held_out_linearity, one_hot, target_linearity
from dynagram.observables.gram._surrogate import target_surrogate
from dynagram.results import Estimate
from dynagram.training import Optax, Training
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.gram._training import (
    Split,
    accuracy,
    features,
    plain_rates,
    record_training,
    split,
)

NAME = "gram-layerwise-linearity"
WIDTH, HIDDEN, BATCH = 256, 4, 64
EPOCHS, EPOCHS_OF_SGD = (0, 2, 8, 30), (0, 10, 30, 100)
SEEDS = 5
FEATURES = ("x", "h1", "h2", "h3", "h4", "logits")
ADAM = "Adam 1e-3"


def _run(settings: Settings) -> Result:
    seeds = [1000 * settings.seed + k for k in range(8 if settings.full else SEEDS)]
    rules = {ADAM: (Optax("adam", 1e-3), EPOCHS)}
    if settings.full:
        rules["SGD 0.02"] = (Optax("momentum", 0.02, momentum=0.8), EPOCHS_OF_SGD)
        rules["SGD 5e-4"] = (Optax("momentum", 5e-4, momentum=0.8), EPOCHS_OF_SGD)
    makers = {
        f"{name}, seed {seed}": functools.partial(_trained, name, rule, epochs, seed)
        for name, (rule, epochs) in rules.items()
        for seed in seeds
    }
    table = Table.joined(finish_parts(settings, NAME, makers, {"epochs": EPOCHS}).values())
    adam = _Adam(table)
    return Result(
        statements=_statements(adam),
        tables={"linearity": table.columns()},
        figures=draw_if_possible(lambda: _figures(adam)),
        notes=_notes(adam, seeds),
    )


def _trained(name: str, rule: Optax, epochs: tuple[int, ...], seed: int) -> Table:
    """One network, measured layer by layer on the way."""
    widths = [64, *[WIDTH] * HIDDEN, 10]
    network = MLP(widths, "relu", C_b=0.0, C_W=2.0, **plain_rates(widths))
    parts = split(digits(), seed)
    steps = [epoch * (len(parts.x) // BATCH) for epoch in epochs]
    how = Training(
        rule, loss="cross-entropy", steps=steps[-1], batch=BATCH, record=steps, dtype="float32"
    )
    start = network.draw(jax.random.key(seed), np.float32)
    data = Data(parts.x, one_hot(parts.labels, 10))
    recorded = record_training(network, start, data, how, seed=seed)
    return Table.of_rows(
        {"optimiser": name, "seed": seed, "epoch": epoch} | row
        for epoch, params in zip(epochs, recorded, strict=True)
        for row in _measured(network, params, parts, seed, with_shuffled=epoch == 0)
    )


def _measured(
    network: MLP, params: Params, parts: Split, seed: int, *, with_shuffled: bool
) -> list[dict[str, Any]]:
    y, y_test = one_hot(parts.labels, 10), one_hot(parts.labels_test, 10)
    h, h_test = (features(network, params, x) for x in (parts.x, parts.x_test))
    shuffled = np.random.default_rng(seed).permutation(len(y))
    rows = []
    for index, name in enumerate(FEATURES):
        linear = held_out_linearity(h[index], y, h_test[index], y_test, seed=seed)
        row: dict[str, Any] = {
            "features": name,
            "linearity": linear.score,
            "null": linear.null.mean,
            "in_sample": target_linearity(h[index], y).score,
            "accuracy": accuracy(h_test[-1], parts.labels_test),
        }
        surrogate = None
        if index <= HIDDEN:
            W = np.asarray(params[index].W, dtype=np.float64)
            surrogate = target_surrogate(W, h[index], y)
        row["alignment"] = surrogate.alignment.value if surrogate else float("nan")
        row["surrogate"] = surrogate.value if surrogate else float("nan")
        row |= {"shuffled": float("nan"), "shuffled_in_sample": float("nan")}
        if with_shuffled:
            nothing = held_out_linearity(h[index], y[shuffled], h_test[index], y_test, seed=seed)
            fitted = target_linearity(h[index], y[shuffled])
            row["shuffled"] = nothing.score
            row["shuffled_in_sample"] = fitted.above_null
        rows.append(row)
    return rows


class _Adam:
    """Means over seeds of the rows trained by Adam."""

    def __init__(self, table: Table):
        self.table = table
        self.seeds = sorted({int(seed) for seed in table.each("seed", optimiser=ADAM)})

    def each(self, quantity: str, epoch: int, name: str) -> np.ndarray:
        """One number per seed."""
        return self.table.each(quantity, optimiser=ADAM, epoch=epoch, features=name)

    def mean(self, quantity: str, epoch: int, name: str) -> Estimate:
        return Estimate.of_samples(self.each(quantity, epoch, name))

    def listed(self, quantity: str, epoch: int, names: tuple[str, ...] = FEATURES[1:5]) -> str:
        return ", ".join(f"{self.mean(quantity, epoch, name):.3f}" for name in names)

    def steps(self, quantity: str, epoch: int, names: tuple[str, ...]) -> list[Estimate]:
        """Paired increments from one layer to the next."""
        each = [self.each(quantity, epoch, name) for name in names]
        return [Estimate.of_samples(b - a) for a, b in itertools.pairwise(each)]

    def gain(self, quantity: str, name: str) -> Estimate:
        """Paired change in training."""
        end, start = (self.each(quantity, epoch, name) for epoch in (EPOCHS[-1], 0))
        return Estimate.of_samples(end - start)


def _statements(adam: _Adam) -> tuple[Statement, ...]:
    end = EPOCHS[-1]
    hidden, layers = FEATURES[1:5], FEATURES[:5]
    untrained = adam.steps("linearity", 0, hidden)
    trained = adam.steps("linearity", end, hidden)
    gains = {name: adam.gain("linearity", name) for name in hidden}
    alignment = adam.steps("alignment", end, layers)
    aligned = {name: adam.gain("alignment", name) for name in layers}
    nothing = np.array([float(adam.mean("shuffled", 0, name).value) for name in layers])
    # Deviations from p/(M−1) in units of the null's own, so that their mean has 1/√seeds.
    in_sample = [float(adam.mean("shuffled_in_sample", 0, name).value) for name in layers]
    allowed = 3.0 / math.sqrt(len(adam.seeds))
    return (
        Statement(
            "Untrained, linearity falls from h1 on, each step by 2 standard errors",
            all(step.value < -2 * step.standard_error for step in untrained),
            f"h1–h4: {adam.listed('linearity', 0)} (x: {adam.mean('linearity', 0, 'x'):.3f})",
        ),
        Statement(
            "Trained, it rises along the hidden layers, each step by 2 standard errors",
            all(step.value > 2 * step.standard_error for step in trained),
            f"h1–h4: {adam.listed('linearity', end)}; steps "
            + ", ".join(f"{step:.3f}" for step in trained),
        ),
        Statement(
            "Training raises it in h2, h3 and h4, by 3 standard errors",
            all(gains[name].value > 3 * gains[name].standard_error for name in hidden[1:]),
            "; ".join(f"{name} {gain:.3f}" for name, gain in gains.items()),
        ),
        Statement(
            "Kernel–target alignment follows: it rises with the layer and, in W2 to W5, in time",
            all(step.value > 0 for step in alignment)
            and all(aligned[name].value > 3 * aligned[name].standard_error for name in layers[1:]),
            f"W1–W5: {adam.listed('alignment', 0, layers)} → "
            f"{adam.listed('alignment', end, layers)}",
        ),
        Statement(
            "Shuffled labels are at the null in every layer: ridge within (−0.02, 0.005), in "
            "sample p/(M−1) within 3 standard errors",
            bool(np.all((nothing > -0.02) & (nothing < 0.005)))
            and all(abs(score) < allowed for score in in_sample),
            f"x, h1–h4: ridge {', '.join(f'{v:.4f}' for v in nothing)}; in sample, deviations "
            f"above the null {', '.join(f'{v:+.2f}' for v in in_sample)} (allowed ±{allowed:.2f})",
        ),
    )


def _notes(adam: _Adam, seeds: list[int]) -> tuple[str, ...]:
    end = EPOCHS[-1]
    layers = FEATURES[:5]
    return (
        f"Digits, {HIDDEN} hidden layers of {WIDTH}, ReLU, {ADAM}, batches of {BATCH}, {end} "
        "epochs.",
        f"{len(seeds)} seeds from {seeds[0]}; test accuracy {adam.mean('accuracy', end, 'x'):.3f}.",
        f"The logits do not continue the rise, {adam.mean('linearity', end, 'logits'):.3f}: they "
        "hold only nine directions.",
        f"The norm-normalised surrogate rises in time but not monotonically with the layer: W1–W5 "
        f"{adam.listed('surrogate', 0, layers)} → {adam.listed('surrogate', end, layers)}.",
        f"In sample, on the training set: {adam.listed('in_sample', 0)} → "
        f"{adam.listed('in_sample', end)}, null 0.18 for 256 features of 1438 samples.",
    )


def _figures(adam: _Adam) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    def lines(quantity: str, first: int) -> dict[str, Line]:
        places = list(enumerate(FEATURES[:5], start=first))
        return {
            f"epoch {epoch}": Line.through(
                {place: adam.mean(quantity, epoch, name) for place, name in places}
            )
            for epoch in EPOCHS
        }

    null = float(adam.mean("null", 0, "h1").value)
    return {
        "layerwise_linearity": line_chart(
            lines("linearity", 0),
            Axis("features h of layer (0: inputs)", ticks=range(5)),
            Axis("target linearity on the test set, ridge, ± 2 s.e."),
            title=f"null {null:.3f}, {len(adam.seeds)} seeds",
        ),
        "layerwise_alignment": line_chart(
            lines("alignment", 1),
            Axis("weights W of layer", ticks=range(1, 6)),
            Axis("kernel–target alignment, ± 2 s.e."),
        ),
    }


EXPERIMENT = Experiment(
    name=NAME,
    summary="target linearity along the layers of an MLP, before and after training on digits",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
