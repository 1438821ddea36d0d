"""The staircase target x₁ + x₁x₂ + x₁x₂x₃ + x₁x₂x₃x₄: narrow networks move features, wide are lazy.

Ten Gaussian inputs, 1000 points, MLP 10–n–n–1, ReLU, full-batch gradient descent in NTK
parameterisation: every weight is of variance C_W/fan-in and moves at the rate η C_W/fan-in, so that
all widths train alike. Rate 0.1 on the mean squared error, 1000 steps.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import numpy as np

from dynagram.data import Data
from dynagram.networks import MLP
from dynagram.observables.gram._linearity import held_out_linearity, target_linearity
from dynagram.results import Estimate
from dynagram.training import GradientDescent, Training
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.gram._training import features, record_training

NAME = "gram-staircase"
INPUTS, SAMPLES, RATE = 10, 1000, 0.1
CHECKPOINTS = (0, 100, 300, 1000)
WIDTHS, WIDTHS_IN_FULL = (32, 128), (32, 128, 512, 1024)
SEEDS = 4


def staircase(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian inputs and Σ_k x₁⋯x_k for k = 1..4."""
    x = np.random.default_rng(seed).standard_normal((samples, INPUTS))
    return x, np.cumprod(x[:, :4], axis=1).sum(axis=1, keepdims=True)


def alignment_of_kernels(first: np.ndarray, second: np.ndarray) -> float:
    """CKA: the cosine of the centred kernels of two sets of features."""
    a, b = (values - values.mean(axis=0) for values in (first, second))
    shared = np.linalg.norm(a.T @ b) ** 2
    return float(shared / np.linalg.norm(a.T @ a) / np.linalg.norm(b.T @ b))


def _run(settings: Settings) -> Result:
    widths = WIDTHS_IN_FULL if settings.full else WIDTHS
    seeds = [1000 * settings.seed + k for k in range(SEEDS)]
    makers = {
        f"width {width}, seed {seed}": functools.partial(_trained, width, seed)
        for width in widths
        for seed in seeds
    }
    table = Table.joined(finish_parts(settings, NAME, makers, {"steps": CHECKPOINTS}).values())

    def linearity(width: int, step: int) -> str:
        return f"{table.mean('linearity', width=width, step=step):.3f}"

    return Result(
        statements=_statements(table, widths),
        tables={"staircase": table.columns()},
        figures=draw_if_possible(lambda: _figures(table, widths)),
        notes=(
            f"{SAMPLES} points in {INPUTS} dimensions, two hidden layers, ReLU, full-batch "
            f"descent, {CHECKPOINTS[-1]} steps at rate {RATE:g}; {len(seeds)} seeds from "
            f"{seeds[0]}.",
            "Only the change of the linearity measures laziness: its final level rises with width, "
            "because more random features fit more: "
            + "; ".join(
                f"width {n}: {linearity(n, 0)} → {linearity(n, CHECKPOINTS[-1])} (null "
                f"{float(table.mean('null', width=n, step=0).value):.2f})"
                for n in widths
            )
            + ".",
        ),
    )


def _trained(width: int, seed: int) -> Table:
    """One network trained with its learning-rate tensor, measured on the way."""
    # The output layer has C_W = 1: nothing rectifies it.
    scale = [2.0, 2.0, 1.0]
    network = MLP(
        [INPUTS, width, width, 1], "relu", C_b=0.0, C_W=scale, lambda_b=1.0, lambda_W=scale
    )
    x, y = staircase(SAMPLES, seed)
    x_test, y_test = staircase(SAMPLES, seed + 500_000)
    how = Training(
        GradientDescent(RATE),
        loss="mean", steps=CHECKPOINTS[-1], record=CHECKPOINTS, dtype="float32",
    )  # fmt: skip
    start = network.draw(jax.random.key(seed), np.float32)
    recorded = record_training(network, start, Data(x, y), how, seed=seed)
    before = features(network, recorded[0], x)[2]
    rows = []
    for step, params in zip(CHECKPOINTS, recorded, strict=True):
        h, h_test = (features(network, params, inputs) for inputs in (x, x_test))
        linear = target_linearity(h[2], y)
        rows.append(
            {
                "width": width,
                "seed": seed,
                "step": step,
                "loss": float(np.mean((h[-1] - y) ** 2) / np.var(y)),
                "moved": float(np.linalg.norm(h[2] - before) / np.linalg.norm(before)),
                "unlike": 1.0 - alignment_of_kernels(h[2], before),
                "linearity": linear.score,
                "null": linear.null.mean,
                "held_out": held_out_linearity(h[2], y, h_test[2], y_test).score,
            }
        )
    return Table.of_rows(rows)


def _statements(table: Table, widths: tuple[int, ...]) -> tuple[Statement, ...]:
    end = CHECKPOINTS[-1]

    def each(name: str, step: int) -> dict[int, np.ndarray]:
        return {n: table.each(name, width=n, step=step) for n in widths}

    def falls(values: dict[int, np.ndarray]) -> bool:
        """Each width below the one before, by 2 standard errors of the paired difference."""
        for narrow, wide in itertools.pairwise(widths):
            drop = Estimate.of_samples(values[narrow] - values[wide])
            if drop.value <= 2 * drop.standard_error:
                return False
        return True

    def shown(values: dict[int, np.ndarray]) -> str:
        return ", ".join(f"width {n}: {Estimate.of_samples(v):.3f}" for n, v in values.items())

    moved, unlike, loss = (each(name, end) for name in ("moved", "unlike", "loss"))
    gain, held_out = (
        {n: each(name, end)[n] - each(name, 0)[n] for n in widths}
        for name in ("linearity", "held_out")
    )
    levels = [float(values.mean()) for values in loss.values()]
    return (
        Statement(
            "All widths train alike: final loss over variance within 0.1 of each other",
            max(levels) - min(levels) < 0.1,
            shown(loss),
        ),
        Statement(
            "The features h2 move less the wider the network: relative change falls, by 2 s.e.",
            falls(moved),
            shown(moved),
        ),
        Statement(
            "So does their kernel: 1 − CKA with the start falls, by 2 standard errors",
            falls(unlike),
            shown(unlike),
        ),
        Statement(
            "So does the gain of target linearity, in sample and held out, by 2 standard errors",
            falls(gain) and falls(held_out),
            f"in sample {shown(gain)}; held out {shown(held_out)}",
        ),
    )


def _figures(table: Table, widths: tuple[int, ...]) -> dict[str, Any]:
    from dynagram.report import Axis, Line, line_chart

    def changes(quantity: str, width: int) -> Line:
        """Since the start, seed by seed."""
        start = table.each(quantity, width=width, step=0)
        return Line.through(
            {
                s: Estimate.of_samples(table.each(quantity, width=width, step=s) - start)
                for s in CHECKPOINTS
            }
        )

    titles = {
        "staircase_movement": ("moved", "relative change of the features h2, ± 2 s.e."),
        "staircase_linearity": ("held_out", "gain of held-out linearity of h2, ± 2 s.e."),
    }
    return {
        stem: line_chart(
            {f"width {n}": changes(quantity, n) for n in widths}, Axis("step"), Axis(title)
        )
        for stem, (quantity, title) in titles.items()
    }


EXPERIMENT = Experiment(
    name=NAME,
    summary="how much features move on the staircase target, by width",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
