"""Grokking of x + y mod 23: target linearity of unseen pairs falls, then rises with the accuracy.

One-hot pairs, 70/30 split, MLP 46–128–128–23, ReLU, weights of variance 1/fan-in, full-batch AdamW
1e-3 (0.9, 0.98) with weight decay 2. A run without decay stays where it memorised.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from dynagram.data import Data
from dynagram.networks import MLP, Params
from dynagram.observables.gram._linearity import held_out_linearity, one_hot
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
)

NAME = "gram-grokking"
MODULUS, WIDTH, DECAY = 23, 128, 2.0
STEPS = (0, 200, 500, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 5000, 6000, 8000)
MEMORISED = 500
SEEDS = 3


def pairs(seed: int) -> Split:
    """One-hot pairs and their sums: all of them, 70 % for training."""
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(MODULUS), np.arange(MODULUS)))
    x = np.concatenate([np.eye(MODULUS)[a], np.eye(MODULUS)[b]], axis=1)
    labels = (a + b) % MODULUS
    order = np.random.default_rng(seed).permutation(len(labels))
    train, test = np.split(order, [round(0.7 * len(order))])
    return Split(x[train], labels[train], x[test], labels[test])


def _run(settings: Settings) -> Result:
    seeds = [1000 * settings.seed + k for k in range(8 if settings.full else SEEDS)]
    makers = {}
    for decay in (DECAY, 0.0, 0.3, 1.0) if settings.full else (DECAY, 0.0):
        # Without decay nothing happens after memorisation: one run, half as long.
        quick = decay == 0.0 and not settings.full
        steps = tuple(s for s in STEPS if s <= 4000) if quick else STEPS
        for seed in seeds[:1] if quick else seeds:
            key = f"decay {decay:g}, seed {seed}"
            makers[key] = functools.partial(_trained, decay, seed, steps)
    table = Table.joined(finish_parts(settings, NAME, makers).values())
    end = {"decay": DECAY, "step": STEPS[-1]}
    return Result(
        statements=_statements(table, seeds),
        tables={"grokking": table.columns()},
        figures=draw_if_possible(lambda: _figures(table)),
        notes=(
            f"x + y mod {MODULUS}, two hidden layers of {WIDTH}, ReLU, full-batch AdamW 1e-3, "
            f"{STEPS[-1]} steps; {len(seeds)} seeds from {seeds[0]}"
            + ("." if settings.full else "; the run without decay: one seed, half as long."),
            "Along depth there is no rise: at the end h1 "
            f"{table.mean('h1', **end):.3f}, h2 {table.mean('h2', **end):.3f}, logits "
            f"{table.mean('logits', **end):.3f}.",
        ),
    )


def _trained(decay: float, seed: int, steps: tuple[int, ...]) -> Table:
    """One network, measured on the way."""
    widths = [2 * MODULUS, WIDTH, WIDTH, MODULUS]
    network = MLP(widths, "relu", C_b=0.0, C_W=1.0, **plain_rates(widths))
    data = pairs(seed)
    how = Training(
        Optax("optax:adamw", 1e-3, b1=0.9, b2=0.98, weight_decay=decay),
        loss="cross-entropy", steps=steps[-1], record=steps, dtype="float32",
    )  # fmt: skip
    start = network.draw(jax.random.key(seed), np.float32)
    targets = Data(data.x, one_hot(data.labels, MODULUS))
    recorded = record_training(network, start, targets, how, seed=seed)
    return Table.of_rows(
        {"decay": decay, "seed": seed, "step": step} | _measured(network, params, data)
        for step, params in zip(steps, recorded, strict=True)
    )


def _measured(network: MLP, params: Params, data: Split) -> dict[str, float]:
    y, y_test = one_hot(data.labels, MODULUS), one_hot(data.labels_test, MODULUS)
    h, h_test = (features(network, params, x) for x in (data.x, data.x_test))
    row = {
        "train_accuracy": accuracy(h[-1], data.labels),
        "test_accuracy": accuracy(h_test[-1], data.labels_test),
    }
    for name, index in (("h1", 1), ("h2", 2), ("logits", 3)):
        row[name] = held_out_linearity(h[index], y, h_test[index], y_test).score
    return row


def _statements(table: Table, seeds: list[int]) -> tuple[Statement, ...]:
    def each(quantity: str, step: int) -> np.ndarray:
        return table.each(quantity, decay=DECAY, step=step)

    def mean(quantity: str, step: int) -> Estimate:
        return table.mean(quantity, decay=DECAY, step=step)

    start, end = 0, STEPS[-1]
    correlations = []
    for seed in seeds:
        names = ("h2", "test_accuracy")
        linear, accurate = (table.each(name, decay=DECAY, seed=seed) for name in names)
        correlations.append(float(np.corrcoef(linear, accurate)[0, 1]))
    last = int(table.each("step", decay=0.0).max())
    still = {name: table.each(name, decay=0.0, step=last) for name in ("test_accuracy", "h2")}
    return (
        Statement(
            f"By step {MEMORISED} the training pairs are memorised (above 0.99 in every run) and "
            "others are not known (below 0.2)",
            bool(
                each("train_accuracy", MEMORISED).min() > 0.99
                and each("test_accuracy", MEMORISED).max() < 0.2
            ),
            f"train at least {each('train_accuracy', MEMORISED).min():.3f}, test at most "
            f"{each('test_accuracy', MEMORISED).max():.3f}; means "
            f"{mean('train_accuracy', MEMORISED):.3f} and {mean('test_accuracy', MEMORISED):.3f}",
        ),
        Statement(
            "There linearity of unseen pairs in h2 is far below its start: below −0.2 in every run",
            bool(each("h2", MEMORISED).max() < -0.2),
            f"step {MEMORISED}: at most {each('h2', MEMORISED).max():.3f}, mean "
            f"{mean('h2', MEMORISED):.3f}; step 0: {mean('h2', start):.3f}",
        ),
        Statement(
            "At the end the network has grokked, test accuracy above 0.9, and linearity is above "
            "+0.2",
            bool(mean("test_accuracy", end).value > 0.9 and mean("h2", end).value > 0.2),
            f"test {mean('test_accuracy', end):.3f}, linearity {mean('h2', end):.3f}",
        ),
        Statement(
            "Along the run linearity and test accuracy go together: correlation above 0.8",
            min(correlations) > 0.8,
            ", ".join(f"{c:.2f}" for c in correlations),
        ),
        Statement(
            "Without weight decay neither happens: test accuracy below 0.02, linearity below 0",
            bool(still["test_accuracy"].max() < 0.02 and still["h2"].max() < 0.0),
            f"step {last}: test at most {still['test_accuracy'].max():.3f}, linearity at most "
            f"{still['h2'].max():.3f} ({len(still['h2'])} run(s))",
        ),
    )


def _figures(table: Table) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    names = {
        "train_accuracy": "training accuracy",
        "test_accuracy": "test accuracy",
        "h2": "target linearity of h2, unseen pairs",
    }
    lines = {
        title: Line.through({s: table.mean(quantity, decay=DECAY, step=s) for s in STEPS})
        for quantity, title in names.items()
    }
    return {
        "grokking": line_chart(
            lines,
            Axis(f"step (x + y mod {MODULUS}, weight decay {DECAY:g})"),
            Axis("mean over seeds ± 2 s.e."),
            title="a read-out that learnt nothing scores 0",
        )
    }


EXPERIMENT = Experiment(
    name=NAME,
    summary="target linearity of unseen pairs while a network groks modular addition",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
