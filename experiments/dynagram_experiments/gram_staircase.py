"""The staircase target x₁ + x₁x₂ + x₁x₂x₃ + x₁x₂x₃x₄: narrow networks move features, wide are lazy.

Ten Gaussian inputs, 1000 points, MLP 10–n–n–1, ReLU, full-batch gradient descent in NTK
parameterisation: every weight is of variance C_W/fan-in and moves at the rate η C_W/fan-in, so that
all widths train alike. Rate 0.1 on the mean squared error, 1000 steps.
"""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram.networks import MLP, Params
from dynagram.observables.gram._linearity import held_out_linearity, target_linearity
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._gram_figures import curves, if_possible
from dynagram_experiments._minibatch import Mean, features, mean_of, table_of

INPUTS, SAMPLES, RATE = 10, 1000, 0.1
CHECKPOINTS = (0, 100, 300, 1000)
WIDTHS, WIDTHS_IN_FULL = (32, 128), (32, 128, 512, 1024)
SEEDS = 4


def staircase(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian inputs and Σ_k x₁⋯x_k for k = 1..4."""
    x = np.random.default_rng(seed).standard_normal((samples, INPUTS))
    return x, np.cumprod(x[:, :4], axis=1).sum(axis=1, keepdims=True)


class Descent:
    """Full-batch gradient descent with the network's learning-rate tensor, a hundred steps at a
    time; one compilation serves all seeds."""

    def __init__(self, network: MLP):
        rates = zip(network.lambda_b, network.lambda_W, network.widths[:-1], strict=True)
        scales = [(RATE * b, RATE * W / n) for b, W, n in rates]

        def hundred(values: Params, x: Array, y: Array) -> Params:
            def step(values: Params, _: None) -> tuple[Params, None]:
                gradient = jax.grad(lambda p: jnp.mean((network.apply(p, x) - y) ** 2))(values)
                moved = [
                    layer._replace(b=layer.b - eta_b * move.b, W=layer.W - eta_W * move.W)
                    for layer, move, (eta_b, eta_W) in zip(values, gradient, scales, strict=True)
                ]
                return tuple(moved), None

            return jax.lax.scan(step, values, length=100)[0]

        self._hundred = jax.jit(hundred)

    def run(self, params: Params, x: np.ndarray, y: np.ndarray) -> list[Params]:
        """Parameters at the checkpoints."""
        x_all, y_all = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
        kept, done = [params], 0
        for stop in CHECKPOINTS[1:]:
            while done < stop:
                params, done = self._hundred(params, x_all, y_all), done + 100
            kept.append(params)
        return kept


def alignment_of_kernels(first: np.ndarray, second: np.ndarray) -> float:
    """CKA: the cosine of the centred kernels of two sets of features."""
    a, b = (values - values.mean(axis=0) for values in (first, second))
    shared = np.linalg.norm(a.T @ b) ** 2
    return float(shared / np.linalg.norm(a.T @ a) / np.linalg.norm(b.T @ b))


def _run(settings: Settings) -> Result:
    widths = WIDTHS_IN_FULL if settings.full else WIDTHS
    seeds = [1000 * settings.seed + k for k in range(SEEDS)]
    rows: list[dict[str, Any]] = []
    for width in widths:
        # The output layer has C_W = 1: nothing rectifies it.
        scale = [2.0, 2.0, 1.0]
        network = MLP(
            [INPUTS, width, width, 1], "relu", C_b=0.0, C_W=scale, lambda_b=1.0, lambda_W=scale
        )
        descent = Descent(network)
        for seed in seeds:
            x, y = staircase(SAMPLES, seed)
            x_test, y_test = staircase(SAMPLES, seed + 500_000)
            kept = descent.run(network.draw(jax.random.key(seed), np.float32), x, y)
            start = features(network, kept[0], x)[2]
            for step, params in zip(CHECKPOINTS, kept, strict=True):
                h = features(network, params, x)
                h_test = features(network, params, x_test)
                linear = target_linearity(h[2], y)
                rows.append(
                    {
                        "width": width,
                        "seed": seed,
                        "step": step,
                        "loss": float(np.mean((h[-1] - y) ** 2) / np.var(y)),
                        "moved": float(np.linalg.norm(h[2] - start) / np.linalg.norm(start)),
                        "unlike": 1.0 - alignment_of_kernels(h[2], start),
                        "linearity": linear.score,
                        "null": linear.null.mean,
                        "held_out": held_out_linearity(h[2], y, h_test[2], y_test).score,
                    }
                )
    return Result(
        statements=_statements(rows, widths),
        tables={"staircase": table_of(rows)},
        figures=if_possible(lambda: _figures(rows, widths)),
        notes=(
            f"{len(seeds)} seeds from {seeds[0]}.",
            "Only the change of the linearity measures laziness: its final level rises with width, "
            "because more random features fit more: "
            + "; ".join(
                f"width {n}: {_mean(rows, n, 0, 'linearity')} → "
                f"{_mean(rows, n, CHECKPOINTS[-1], 'linearity')} (null "
                f"{_mean(rows, n, 0, 'null').value:.2f})"
                for n in widths
            )
            + ".",
        ),
    )


def _each(rows: list[dict[str, Any]], width: int, step: int, quantity: str) -> np.ndarray:
    return np.array([r[quantity] for r in rows if r["width"] == width and r["step"] == step])


def _mean(rows: list[dict[str, Any]], width: int, step: int, quantity: str) -> Mean:
    return mean_of(_each(rows, width, step, quantity))


def _statements(rows: list[dict[str, Any]], widths: tuple[int, ...]) -> tuple[Statement, ...]:
    end = CHECKPOINTS[-1]

    def falls(values: dict[int, np.ndarray]) -> bool:
        """Each width below the one before, by 2 standard errors of the paired difference."""
        for narrow, wide in itertools.pairwise(widths):
            drop = mean_of(values[narrow] - values[wide])
            if drop.value <= 2 * drop.error:
                return False
        return True

    def shown(values: dict[int, np.ndarray]) -> str:
        return ", ".join(f"width {n}: {mean_of(v)}" for n, v in values.items())

    moved, unlike, loss = (
        {n: _each(rows, n, end, name) for n in widths} for name in ("moved", "unlike", "loss")
    )
    gain, held_out = (
        {n: _each(rows, n, end, name) - _each(rows, n, 0, name) for n in widths}
        for name in ("linearity", "held_out")
    )
    levels = [mean_of(values).value for values in loss.values()]
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


def _figures(rows: list[dict[str, Any]], widths: tuple[int, ...]) -> dict[str, Any]:
    def lines(quantity: str) -> dict[str, dict[float, Mean]]:
        """Changes since the start, seed by seed."""
        return {
            f"width {n}": {
                float(s): mean_of(_each(rows, n, s, quantity) - _each(rows, n, 0, quantity))
                for s in CHECKPOINTS
            }
            for n in widths
        }

    return {
        "staircase_movement": curves(
            lines("moved"),
            x_title="step",
            y_title="relative change of the features h2, ± 2 s.e.",
        ),
        "staircase_linearity": curves(
            lines("held_out"),
            x_title="step",
            y_title="gain of held-out linearity of h2, ± 2 s.e.",
        ),
    }


EXPERIMENT = Experiment(
    name="gram-staircase",
    summary="how much features move on the staircase target, by width",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
