"""Label noise: the training set becomes linear whatever its labels, the test set does not.

Digits, MLP with four hidden layers of 128, ReLU, Adam 1e-3, batches of 64. A label is replaced by a
random one with probability 0.25, 0.75 or 0.9. Linearity of the last hidden layer: in sample on the
noisy training labels, and on clean test labels with the read-out fitted on the noisy ones.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from dynagram.data import Data, digits
from dynagram.networks import MLP, Params
from dynagram.observables.gram._linearity import held_out_linearity, one_hot, target_linearity
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

NAME = "gram-random-labels"
WIDTH, WIDTH_OF_SOURCE, HIDDEN, BATCH = 128, 256, 4, 64
NOISE = (0.25, 0.75, 0.9)
EPOCHS = (0, 3, 10, 30, 100)
SEEDS = 4


def _run(settings: Settings) -> Result:
    width = WIDTH_OF_SOURCE if settings.full else WIDTH
    seeds = [1000 * settings.seed + k for k in range(8 if settings.full else SEEDS)]
    makers = {
        f"noise {noise:g}, seed {seed}": functools.partial(_trained, width, noise, seed)
        for noise in NOISE
        for seed in seeds
    }
    table = Table.joined(finish_parts(settings, NAME, makers, {"epochs": EPOCHS}).values())

    def at(noise: float, epoch: int, quantity: str) -> str:
        return f"{table.mean(quantity, noise=noise, epoch=epoch):.3f}"

    end = EPOCHS[-1]
    return Result(
        statements=_statements(table),
        tables={"random_labels": table.columns()},
        figures=draw_if_possible(lambda: _figures(table)),
        notes=(
            f"Digits, {HIDDEN} hidden layers of {width}, ReLU, Adam 1e-3, batches of {BATCH}, "
            f"looked at after {', '.join(map(str, EPOCHS))} epochs; {len(seeds)} seeds from "
            f"{seeds[0]}. Test accuracy at the end: "
            + ", ".join(f"{n:g}: {at(n, end, 'accuracy')}" for n in NOISE)
            + ".",
            "With a read-out fitted anew on half of the clean test labels, start → end: "
            + ", ".join(f"{n:g}: {at(n, 0, 'refitted')} → {at(n, end, 'refitted')}" for n in NOISE)
            + ".",
        ),
    )


def _trained(width: int, noise: float, seed: int) -> Table:
    """One network trained on labels with noise, measured on the way."""
    widths = [64, *[width] * HIDDEN, 10]
    network = MLP(widths, "relu", C_b=0.0, C_W=2.0, **plain_rates(widths))
    parts = split(digits(), seed)
    rng = np.random.default_rng(seed + 7)
    replaced = rng.random(len(parts.labels)) < noise
    labels = np.where(replaced, rng.integers(0, 10, len(parts.labels)), parts.labels)
    steps = [epoch * (len(labels) // BATCH) for epoch in EPOCHS]
    how = Training(
        Optax("adam", 1e-3),
        loss="cross-entropy", steps=steps[-1], batch=BATCH, record=steps, dtype="float32",
    )  # fmt: skip
    start = network.draw(jax.random.key(seed), np.float32)
    data = Data(parts.x, one_hot(labels, 10))
    recorded = record_training(network, start, data, how, seed=seed)
    return Table.of_rows(
        {"noise": noise, "seed": seed, "epoch": epoch} | _measured(network, params, parts, labels)
        for epoch, params in zip(EPOCHS, recorded, strict=True)
    )


def _measured(network: MLP, params: Params, parts: Split, labels: np.ndarray) -> dict[str, float]:
    y, y_test = one_hot(labels, 10), one_hot(parts.labels_test, 10)
    h, h_test = (features(network, params, x) for x in (parts.x, parts.x_test))
    fitted = target_linearity(h[-2], y)
    half = len(y_test) // 2
    again = held_out_linearity(h_test[-2][:half], y_test[:half], h_test[-2][half:], y_test[half:])
    return {
        "train": fitted.score,
        "train_null": fitted.null.mean,
        "test": held_out_linearity(h[-2], y, h_test[-2], y_test).score,
        "refitted": again.score,
        "accuracy": accuracy(h_test[-1], parts.labels_test),
    }


def _statements(table: Table) -> tuple[Statement, ...]:
    end = EPOCHS[-1]

    def each(noise: float, epoch: int, quantity: str) -> np.ndarray:
        return table.each(quantity, noise=noise, epoch=epoch)

    def path(noise: float, quantity: str) -> str:
        means = [table.mean(quantity, noise=noise, epoch=epoch) for epoch in EPOCHS]
        return " → ".join(f"{mean:.3f}" for mean in means)

    gains, falls = (
        {n: Estimate.of_samples(each(n, end, name) - each(n, 0, name)) for n in NOISE}
        for name in ("train", "test")
    )
    curve = np.array([each(0.25, epoch, "test") for epoch in EPOCHS])
    peak = 1 + int(np.argmax(curve[1:-1].mean(axis=1)))
    up, down = (
        Estimate.of_samples(curve[peak] - curve[0]),
        Estimate.of_samples(curve[peak] - curve[-1]),
    )
    start, null = each(0.9, 0, "train"), each(0.9, 0, "train_null")
    above = Estimate.of_samples(start - null)
    return (
        Statement(
            "The training set becomes more linear in its labels at every noise: gain above 0.2",
            all(gain.value > 0.2 for gain in gains.values()),
            "; ".join(f"{n:g}: {gain:.3f}" for n, gain in gains.items()),
        ),
        Statement(
            "On clean test labels linearity ends below its start at 75 % and 90 % noise, by 3 s.e.",
            all(falls[n].value < -3 * falls[n].standard_error for n in (0.75, 0.9)),
            f"75 %: {path(0.75, 'test')}, change {falls[0.75]:.3f}; 90 %: "
            f"{path(0.9, 'test')}, change {falls[0.9]:.3f}",
        ),
        Statement(
            "At 25 % it first rises and then falls back: its maximum exceeds both ends, by 2 s.e.",
            bool(up.value > 2 * up.standard_error and down.value > 2 * down.standard_error),
            f"25 %: {path(0.25, 'test')}; maximum at epoch {EPOCHS[peak]}, above the ends by "
            f"{up:.3f} and {down:.3f}",
        ),
        Statement(
            "At 90 % the untrained training score is within 0.02 of its null: few labels are true",
            bool(abs(above.value) < 0.02),
            f"{Estimate.of_samples(start):.3f}, null {Estimate.of_samples(null):.3f}, difference "
            f"{above:.3f}",
        ),
    )


def _figures(table: Table) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    def chart(quantity: str, title: str) -> Any:
        lines = {
            f"{100 * n:.0f} % random labels": Line.through(
                {epoch: table.mean(quantity, noise=n, epoch=epoch) for epoch in EPOCHS}
            )
            for n in NOISE
        }
        return line_chart(lines, Axis("epoch"), Axis(f"{title}, ± 2 s.e."), width=380)

    return {
        "random_labels_train": chart("train", "linearity of h4 on noisy training labels"),
        "random_labels_test": chart("test", "linearity of h4 on clean test labels"),
    }


EXPERIMENT = Experiment(
    name=NAME,
    summary="target linearity of the training and the test set under label noise",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
