"""Target linearity layer by layer, before and after training on digits, and its surrogates.

MLP 64–256×4–10, ReLU, Adam 1e-3, batches of 64, 30 epochs. Linearity is that of a ridge read-out
fitted on the training features and scored on the test set. Before training it falls from the first
hidden layer on; training makes it rise with depth and, behind the first layer, with time.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import numpy as np
import optax

from dynagram.data import digits
from dynagram.networks import MLP
from dynagram.observables.gram._linearity import held_out_linearity, one_hot, target_linearity
from dynagram.observables.gram._surrogate import target_surrogate
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._gram_figures import curves, if_possible
from dynagram_experiments._minibatch import (
    Mean,
    Trainer,
    accuracy,
    features,
    mean_of,
    split,
    table_of,
)

WIDTH, HIDDEN, BATCH = 256, 4, 64
EPOCHS = (0, 2, 8, 30)
SEEDS = 5
NAMES = ("x", "h1", "h2", "h3", "h4", "logits")


def _run(settings: Settings) -> Result:
    seeds = [1000 * settings.seed + k for k in range(8 if settings.full else SEEDS)]
    optimisers: dict[str, tuple[Any, tuple[int, ...]]] = {"Adam 1e-3": (optax.adam(1e-3), EPOCHS)}
    if settings.full:
        optimisers["SGD 0.02"] = (optax.sgd(0.02, momentum=0.8), (0, 10, 30, 100))
        optimisers["SGD 5e-4"] = (optax.sgd(5e-4, momentum=0.8), (0, 10, 30, 100))
    network = MLP([64, *[WIDTH] * HIDDEN, 10], "relu", C_b=0.0, C_W=2.0)
    data = digits()
    rows: list[dict[str, Any]] = []
    for name, (optimiser, epochs) in optimisers.items():
        trainer = Trainer(network, optimiser, BATCH)
        for seed in seeds:
            parts = split(data, seed)
            start = network.draw(jax.random.key(seed), np.float32)
            kept, _ = trainer.run(start, parts.x, parts.labels, epochs, seed)
            for epoch, params in zip(epochs, kept, strict=True):
                about = {"optimiser": name, "seed": seed, "epoch": epoch}
                rows += [about | row for row in _measured(network, params, parts, seed, epoch == 0)]
    found = _Found([row for row in rows if row["optimiser"] == "Adam 1e-3"])
    return Result(
        statements=_statements(found),
        tables={"linearity": table_of(rows)},
        figures=if_possible(lambda: _figures(found)),
        notes=_notes(found, seeds),
    )


def _measured(
    network: MLP, params: Any, parts: Any, seed: int, with_shuffled: bool
) -> list[dict[str, Any]]:
    y, y_test = one_hot(parts.labels, 10), one_hot(parts.labels_test, 10)
    h, h_test = (features(network, params, x) for x in (parts.x, parts.x_test))
    shuffled = np.random.default_rng(seed).permutation(len(y))
    rows = []
    for index, name in enumerate(NAMES):
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


class _Found:
    """Means over seeds of the rows of one optimiser."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.values = {(r["epoch"], r["features"], r["seed"]): r for r in rows}
        self.seeds = sorted({r["seed"] for r in rows})

    def each(self, quantity: str, epoch: int, name: str) -> np.ndarray:
        return np.array([self.values[epoch, name, seed][quantity] for seed in self.seeds])

    def mean(self, quantity: str, epoch: int, name: str) -> Mean:
        return mean_of(self.each(quantity, epoch, name))

    def listed(self, quantity: str, epoch: int, names: tuple[str, ...] = NAMES[1:5]) -> str:
        return ", ".join(str(self.mean(quantity, epoch, name)) for name in names)

    def steps(self, quantity: str, epoch: int, names: tuple[str, ...]) -> list[Mean]:
        """Paired increments from one layer to the next."""
        each = [self.each(quantity, epoch, name) for name in names]
        return [mean_of(b - a) for a, b in itertools.pairwise(each)]

    def gain(self, quantity: str, name: str) -> Mean:
        """Paired change in training."""
        return mean_of(self.each(quantity, EPOCHS[-1], name) - self.each(quantity, 0, name))


def _statements(found: _Found) -> tuple[Statement, ...]:
    end = EPOCHS[-1]
    hidden, layers = NAMES[1:5], NAMES[:5]
    untrained = found.steps("linearity", 0, hidden)
    trained = found.steps("linearity", end, hidden)
    gains = {name: found.gain("linearity", name) for name in hidden}
    alignment = found.steps("alignment", end, layers)
    aligned = {name: found.gain("alignment", name) for name in layers}
    nothing = np.array([found.mean("shuffled", 0, name).value for name in layers])
    # Deviations from p/(M−1) in units of the null's own, so that their mean has 1/√seeds.
    in_sample = [found.mean("shuffled_in_sample", 0, name).value for name in layers]
    allowed = 3.0 / math.sqrt(len(found.seeds))
    return (
        Statement(
            "Untrained, linearity falls from h1 on, each step by 2 standard errors",
            all(step.value < -2 * step.error for step in untrained),
            f"h1–h4: {found.listed('linearity', 0)} (x: {found.mean('linearity', 0, 'x')})",
        ),
        Statement(
            "Trained, it rises along the hidden layers, each step by 2 standard errors",
            all(step.value > 2 * step.error for step in trained),
            f"h1–h4: {found.listed('linearity', end)}; steps " + ", ".join(map(str, trained)),
        ),
        Statement(
            "Training raises it in h2, h3 and h4, by 3 standard errors",
            all(gains[name].value > 3 * gains[name].error for name in hidden[1:]),
            "; ".join(f"{name} {gain}" for name, gain in gains.items()),
        ),
        Statement(
            "Kernel–target alignment follows: it rises with the layer and, in W2 to W5, in time",
            all(step.value > 0 for step in alignment)
            and all(aligned[name].value > 3 * aligned[name].error for name in layers[1:]),
            f"W1–W5: {found.listed('alignment', 0, layers)} → "
            f"{found.listed('alignment', end, layers)}",
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


def _notes(found: _Found, seeds: list[int]) -> tuple[str, ...]:
    end = EPOCHS[-1]
    layers = NAMES[:5]
    return (
        f"{len(seeds)} seeds from {seeds[0]}; test accuracy {found.mean('accuracy', end, 'x')}.",
        f"The logits do not continue the rise, {found.mean('linearity', end, 'logits')}: they hold "
        "only nine directions.",
        f"The norm-normalised surrogate rises in time but not monotonically with the layer: W1–W5 "
        f"{found.listed('surrogate', 0, layers)} → {found.listed('surrogate', end, layers)}.",
        f"In sample, on the training set: {found.listed('in_sample', 0)} → "
        f"{found.listed('in_sample', end)}, null 0.18 for 256 features of 1438 samples.",
    )


def _figures(found: _Found) -> dict[str, Any]:
    def lines(quantity: str, names: tuple[str, ...], start: int) -> dict[str, dict[float, Mean]]:
        return {
            f"epoch {epoch}": {
                float(k + start): found.mean(quantity, epoch, name) for k, name in enumerate(names)
            }
            for epoch in EPOCHS
        }

    return {
        "layerwise_linearity": curves(
            lines("linearity", NAMES[:5], 0),
            x_title="features h of layer (0: inputs)",
            y_title="target linearity on the test set, ridge, ± 2 s.e.",
            ticks=range(5),
            title=f"null {found.mean('null', 0, 'h1').value:.3f}, {len(found.seeds)} seeds",
        ),
        "layerwise_alignment": curves(
            lines("alignment", NAMES[:5], 1),
            x_title="weights W of layer",
            y_title="kernel–target alignment, ± 2 s.e.",
            ticks=range(1, 6),
        ),
    }


EXPERIMENT = Experiment(
    name="gram-layerwise-linearity",
    summary="target linearity along the layers of an MLP, before and after training on digits",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
