"""Grokking of x + y mod 23: target linearity of unseen pairs falls, then rises with the accuracy.

One-hot pairs, 70/30 split, MLP 46–128–128–23, ReLU, weights of variance 1/fan-in, full-batch AdamW
1e-3 (0.9, 0.98) with weight decay 2. A run without decay stays where it memorised.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from dynagram.networks import MLP
from dynagram.observables.gram._linearity import held_out_linearity, one_hot
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._gram_figures import curves, if_possible
from dynagram_experiments._minibatch import Mean, Trainer, accuracy, features, mean_of, table_of

MODULUS, WIDTH, DECAY = 23, 128, 2.0
STEPS = (0, 200, 500, 1000, 1500, 2000, 2500, 3000, 3500, 4000, 5000, 6000, 8000)
SEEDS = 3


class Pairs(NamedTuple):
    """One-hot pairs and their sums, for training and for testing."""

    x: np.ndarray
    labels: np.ndarray
    x_test: np.ndarray
    labels_test: np.ndarray


def pairs(seed: int) -> Pairs:
    """All pairs, 70 % of them for training."""
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(MODULUS), np.arange(MODULUS)))
    x = np.concatenate([np.eye(MODULUS)[a], np.eye(MODULUS)[b]], axis=1)
    labels = (a + b) % MODULUS
    order = np.random.default_rng(seed).permutation(len(labels))
    train, test = np.split(order, [round(0.7 * len(order))])
    return Pairs(x[train], labels[train], x[test], labels[test])


def _run(settings: Settings) -> Result:
    seeds = [1000 * settings.seed + k for k in range(8 if settings.full else SEEDS)]
    decays = (DECAY, 0.0, 0.3, 1.0) if settings.full else (DECAY, 0.0)
    network = MLP([2 * MODULUS, WIDTH, WIDTH, MODULUS], "relu", C_b=0.0, C_W=1.0)
    rows: list[dict[str, Any]] = []
    for decay in decays:
        optimiser = optax.adamw(1e-3, b1=0.9, b2=0.98, weight_decay=decay)
        # Without decay nothing happens after memorisation: one run, half as long.
        quick = decay == 0.0 and not settings.full
        steps = tuple(s for s in STEPS if s <= 4000) if quick else STEPS
        trainer = Trainer(network, optimiser, len(pairs(0).labels))
        for seed in seeds[:1] if quick else seeds:
            data = pairs(seed)
            start = network.draw(jax.random.key(seed), np.float32)
            kept, _ = trainer.run(start, data.x, data.labels, steps, seed)
            for step, params in zip(steps, kept, strict=True):
                about = {"decay": decay, "seed": seed, "step": step}
                rows.append(about | _measured(network, params, data))
    return Result(
        statements=_statements(rows, seeds),
        tables={"grokking": table_of(rows)},
        figures=if_possible(lambda: _figures(rows)),
        notes=(
            f"{len(seeds)} seeds from {seeds[0]}; the run without decay: one seed.",
            "Along depth there is no rise: at the end h1 "
            f"{_mean(rows, STEPS[-1], 'h1')}, h2 {_mean(rows, STEPS[-1], 'h2')}, logits "
            f"{_mean(rows, STEPS[-1], 'logits')}.",
        ),
    )


def _measured(network: MLP, params: Any, data: Pairs) -> dict[str, float]:
    y, y_test = one_hot(data.labels, MODULUS), one_hot(data.labels_test, MODULUS)
    h, h_test = (features(network, params, x) for x in (data.x, data.x_test))
    row = {
        "train_accuracy": accuracy(h[-1], data.labels),
        "test_accuracy": accuracy(h_test[-1], data.labels_test),
    }
    for name, index in (("h1", 1), ("h2", 2), ("logits", 3)):
        row[name] = held_out_linearity(h[index], y, h_test[index], y_test).score
    return row


def _of(rows: list[dict[str, Any]], step: int, quantity: str, decay: float = DECAY) -> np.ndarray:
    return np.array([r[quantity] for r in rows if r["decay"] == decay and r["step"] == step])


def _mean(rows: list[dict[str, Any]], step: int, quantity: str) -> Mean:
    return mean_of(_of(rows, step, quantity))


def _statements(rows: list[dict[str, Any]], seeds: list[int]) -> tuple[Statement, ...]:
    memorised, end = 500, STEPS[-1]
    correlations = []
    for seed in seeds:
        run = [r for r in rows if r["decay"] == DECAY and r["seed"] == seed]
        linear, correct = ([r[name] for r in run] for name in ("h2", "test_accuracy"))
        correlations.append(float(np.corrcoef(linear, correct)[0, 1]))
    still = [r for r in rows if r["decay"] == 0.0]
    last = max(r["step"] for r in still)
    final = [r for r in still if r["step"] == last]
    return (
        Statement(
            f"By step {memorised} the training pairs are memorised and no other is known",
            bool(
                _of(rows, memorised, "train_accuracy").min() > 0.99
                and _of(rows, memorised, "test_accuracy").max() < 0.2
            ),
            f"train {_mean(rows, memorised, 'train_accuracy')}, test "
            f"{_mean(rows, memorised, 'test_accuracy')}",
        ),
        Statement(
            "There linearity of unseen pairs in h2 is far below its start: below −0.2",
            bool(_of(rows, memorised, "h2").max() < -0.2),
            f"step 0: {_mean(rows, 0, 'h2')}, step {memorised}: {_mean(rows, memorised, 'h2')}",
        ),
        Statement(
            "At the end the network has grokked, test accuracy above 0.9, and linearity is above "
            "+0.2",
            _mean(rows, end, "test_accuracy").value > 0.9 and _mean(rows, end, "h2").value > 0.2,
            f"test {_mean(rows, end, 'test_accuracy')}, linearity {_mean(rows, end, 'h2')}",
        ),
        Statement(
            "Along the run linearity and test accuracy go together: correlation above 0.8",
            min(correlations) > 0.8,
            ", ".join(f"{c:.2f}" for c in correlations),
        ),
        Statement(
            "Without weight decay neither happens: test accuracy below 0.02, linearity below 0",
            all(r["test_accuracy"] < 0.02 and r["h2"] < 0 for r in final),
            f"step {last}: test {mean_or_one([r['test_accuracy'] for r in final])}, linearity "
            f"{mean_or_one([r['h2'] for r in final])}",
        ),
    )


def mean_or_one(values: list[float]) -> str:
    """A mean with its error, or a single number."""
    return str(mean_of(values)) if len(values) > 1 else f"{values[0]:.3f} (one run)"


def _figures(rows: list[dict[str, Any]]) -> dict[str, Any]:
    names = {
        "train_accuracy": "training accuracy",
        "test_accuracy": "test accuracy",
        "h2": "target linearity of h2, unseen pairs",
    }
    lines = {
        title: {float(step): _mean(rows, step, quantity) for step in STEPS}
        for quantity, title in names.items()
    }
    return {
        "grokking": curves(
            lines,
            x_title=f"step (x + y mod {MODULUS}, weight decay {DECAY:g})",
            y_title="mean over seeds ± 2 s.e.",
            title="a read-out that learnt nothing scores 0",
        )
    }


EXPERIMENT = Experiment(
    name="gram-grokking",
    summary="target linearity of unseen pairs while a network groks modular addition",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
