"""The swiss roll: the Gram follows the virtual covariance, and what virtual points do not show.

MLP 2–32–32–1 (first layer without bias), ReLU, full-batch gradient descent on the mean squared
error, float64. With accumulated displacements −Σ η ∂𝓛/∂x the inputs become linear in the target,
but so they do for shuffled targets, because a gradient carries its own sample's error.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynagram.results import Estimate
from dynagram_experiments import Experiment, Result, Settings, Statement
from dynagram_experiments._parts import Part, Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.gram.swissroll import runs

NAME = "gram-swissroll"
SEEDS, LONG_SEEDS, RATE_SEEDS = 10, 2, 3
RATES = (0.1, 0.05, 0.025, 0.0125)
TARGETS = {"true targets": False, "shuffled targets": True}

Followed = Mapping[str, Sequence[Part]]


def _run(settings: Settings) -> Result:
    seeds = [1000 * settings.seed + k for k in range(2 * SEEDS if settings.full else SEEDS)]
    long_seeds = seeds if settings.full else seeds[:LONG_SEEDS]
    parts = finish_parts(settings, NAME, _makers(seeds, long_seeds), {"steps": runs.STEPS})
    followed = {name: [parts[f"{name}, seed {s}"] for s in seeds] for name in TARGETS}
    # One row per rate and layer.
    remainders = {
        eta: np.stack([parts[f"rate {eta:g}, seed {s}"]["remainders"] for s in seeds[:RATE_SEEDS]])
        for eta in RATES
    }
    linear = {
        name: dict(zip(runs.scales(), _columns(some, "linearity"), strict=True))
        for name, some in followed.items()
    }
    learnt = {
        name: Estimate.of_samples(
            [float(parts[f"long, {name}, seed {s}"]["loss"]) for s in long_seeds]
        )
        for name in TARGETS
    }
    true, shuffled = (
        Estimate.of_samples([float(part["loss"]) for part in followed[name]]) for name in TARGETS
    )
    table = Table.of_rows(
        {
            "targets": name,
            "scale": scale,
            "target_linearity": float(mean.value),
            "standard_error": float(mean.standard_error),
        }
        for name, line in linear.items()
        for scale, mean in line.items()
    )
    return Result(
        statements=_statements(followed, remainders, linear, learnt),
        tables={"virtual_points": table.columns()},
        figures=draw_if_possible(lambda: _figures(followed, remainders)),
        notes=(
            f"{len(seeds)} seeds from {seeds[0]}; loss over variance after {runs.STEPS} steps "
            f"{true:.3f}, shuffled {shuffled:.3f}.",
            "Displacements are drawn times M because the mean loss gives each sample a gradient of "
            f"order 1/M; undrawn (scale 1) the linearity is {linear['true targets'][1]:.3f}.",
        ),
    )


def _makers(seeds: Sequence[int], long_seeds: Sequence[int]) -> dict[str, Any]:
    makers: dict[str, Any] = {
        f"{name}, seed {seed}": lambda s=seed, o=shuffled: runs.follow_gram(s, shuffled=o)
        for name, shuffled in TARGETS.items()
        for seed in seeds
    }
    for eta, seed in itertools.product(RATES, seeds[:RATE_SEEDS]):
        steps = round(runs.RATE * runs.STEPS / eta)
        makers[f"rate {eta:g}, seed {seed}"] = lambda s=seed, e=eta, n=steps: runs.follow_gram(
            s, eta=e, steps=n
        )
    for (name, shuffled), seed in itertools.product(TARGETS.items(), long_seeds):
        makers[f"long, {name}, seed {seed}"] = lambda s=seed, o=shuffled: {
            "loss": runs.long_loss(s, shuffled=o)
        }
    return makers


def _columns(parts: Sequence[Part], name: str) -> list[Estimate]:
    """Means over the runs, entry by entry."""
    return [Estimate.of_samples(column) for column in np.stack([part[name] for part in parts]).T]


def _statements(
    followed: Followed,
    remainders: Mapping[float, np.ndarray],
    linear: Mapping[str, Mapping[int, Estimate]],
    learnt: Mapping[str, Estimate],
) -> tuple[Statement, ...]:
    both = [part for parts in followed.values() for part in parts]
    law_error = max(float(part["law_error"]) for part in both)
    cosines = np.stack([part["cosines"] for part in both])
    sizes = {eta: rows.mean(axis=0) for eta, rows in remainders.items()}
    ratios = np.array([sizes[b] / sizes[a] for a, b in itertools.pairwise(RATES)])
    true, shuffled = (linear[name] for name in TARGETS)
    zero, _, drawn, far = runs.scales()
    lines = np.stack([part["linearity"] for part in followed["shuffled targets"]])
    rise = Estimate.of_samples(lines[:, 2] - lines[:, 0])
    fitted, unfitted = (learnt[name] for name in TARGETS)
    return (
        Statement(
            "The Gram law with its remainder is exact in every step and layer (1e-12 of the Gram)",
            law_error < 1e-12,
            f"largest violation {law_error:.1e} over {len(both)} runs × {runs.STEPS} steps × 3 "
            "layers",
        ),
        Statement(
            "Σ VC follows WᵀW − W₀ᵀW₀ in every layer of every run: cosine above 0.999",
            bool(cosines.min() > 0.999),
            f"smallest of {len(both)} runs, layers 1–3: "
            + ", ".join(f"{value:.5f}" for value in cosines.min(axis=0))
            + "; means "
            + ", ".join(f"{mean:.5f}" for mean in _columns(both, "cosines")),
        ),
        Statement(
            "What it misses is of order η at fixed training time: halving η halves it (0.4 to 0.6)",
            bool(np.all((ratios > 0.4) & (ratios < 0.6))),
            "ratios per halving, layers 1–3: "
            + "; ".join(", ".join(f"{r:.3f}" for r in column) for column in ratios.T),
        ),
        Statement(
            "Virtual inputs, displacements drawn × M, become linear in the target: above 0.5 from "
            "below 0.1",
            bool(true[zero].value < 0.1 and true[drawn].value > 0.5),
            f"{true[zero]:.3f} → {true[drawn]:.3f} (× 10 M: {true[far]:.3f})",
        ),
        Statement(
            "That is no sign of learning: for shuffled targets it rises too, by 3 standard errors",
            bool(rise.value > 3 * rise.standard_error),
            f"shuffled {shuffled[zero]:.3f} → {shuffled[drawn]:.3f} (× 10 M: {shuffled[far]:.3f}); "
            f"null {2 / (runs.SAMPLES - 1):.3f}",
        ),
        Statement(
            f"Learning shows in the loss: after {runs.LONG_RUN} steps at rate {4 * runs.RATE:g} "
            "true targets are fitted, shuffled ones are not",
            bool(fitted.value < 0.1 and unfitted.value > 0.8),
            f"loss over variance {fitted:.3f} and {unfitted:.3f}",
        ),
    )


def _figures(followed: Followed, remainders: Mapping[float, np.ndarray]) -> dict[str, Any]:
    from dynagram.report import Axis, Line, coloured_points, line_chart

    true, shuffled = (followed[name][0] for name in TARGETS)
    drawn = runs.SAMPLES
    clouds = {
        "inputs": (true["x"], true["y"][:, 0]),
        "moved by −M Σ ηg": (true["x"] + drawn * true["displacement"], true["y"][:, 0]),
        "the same, shuffled targets": (
            shuffled["x"] + drawn * shuffled["displacement"], shuffled["y"][:, 0],
        ),
    }  # fmt: skip
    lines = {
        f"layer {k + 1}": Line.through(
            {eta: Estimate.of_samples(rows[:, k]) for eta, rows in remainders.items()}
        )
        for k in range(3)
    }
    return {
        "swissroll_virtual_points": coloured_points(clouds, colour_title="target"),
        "swissroll_remainder": line_chart(
            lines,
            Axis("learning rate η at η × steps = 5", "log", ticks=RATES),
            Axis("|ΔGram − Σ VC| / |ΔGram|", "log"),
        ),
    }


EXPERIMENT = Experiment(
    name=NAME,
    summary="virtual covariance and Gram on the swiss roll, with shuffled targets beside",
    source="Cha et al., arXiv:2605.06258",
    run=_run,
)
