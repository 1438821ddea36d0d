"""fields-coactivation: what training does to masks, pullback metrics and weight spectra on digits.

The source (Nordio, arXiv:2606.09744v3) leaves its numerical section empty and expects, in its
discussion, that same-class inputs come to share units while others part, that the metrics
concentrate, and that WᵀW inherits heavy tails. Each is measured here beside its null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dynagram_experiments import Experiment, Result, Settings
from dynagram_experiments._coactivation_runs import STEPS, Case, Runs, run_case
from dynagram_experiments._coactivation_statements import (
    CONTROL,
    DEEP,
    END,
    MEAN,
    PARITY,
    SHALLOW,
    SIGNED,
    beyond,
    exponent,
    statements,
)
from dynagram_experiments._fields_digits import WIDTH

CASES = (
    Case(MEAN, "0 vs 1", 2),
    Case(SIGNED, "0 vs 1", 2, "signed", (-1.0, 1.0)),
    Case(CONTROL, "0 vs 1", 2, "mean", (1.0, 2.0)),
    Case(DEEP, "0 vs 1", 3),
    Case(PARITY, "parity", 2),
    Case(SHALLOW, "parity", 1),
)
FULL_CASES = (
    Case("L = 3, signed", "0 vs 1", 3, "signed", (-1.0, 1.0)),
    Case("L = 4, mean", "0 vs 1", 4),
    Case("parity, L = 3, mean", "parity", 3),
)


def run(settings: Settings) -> Result:
    """Train, measure, judge."""
    seeds = [1000 * settings.seed + i for i in range(10 if settings.full else 5)]
    cases = CASES + (FULL_CASES if settings.full else ())
    # Statistics over seeds need no more digits than float32 has; it halves the time.
    dtype = "<f8" if settings.full else "<f4"
    runs = {case.name: run_case(case, seeds, dtype) for case in cases}
    from dynagram_experiments._coactivation_figures import figures

    return Result(
        statements=statements(runs),
        tables={"measures": _measures(runs), "tails": _tail_table(runs)},
        figures=figures(runs),
        notes=(
            f"{len(seeds)} seeds, each with its own images and weights; ± is one standard error "
            f"over them. N = {WIDTH}, {END} steps of full-batch gradient descent, "
            f"{'double' if settings.full else 'single'} precision.",
            "How far weights moved, ‖ΔW‖/‖W‖: "
            + "; ".join(f"{name}: {_moved(found)}" for name, found in runs.items())
            + ". The heavy tail is where they moved most; nothing here shows a cause.",
        ),
    )


def _moved(found: Runs) -> str:
    layers = range(1, found.case.L + 1)
    return ", ".join(f"{found.at(f'moved {layer}', END).mean:.2f}" for layer in layers)


def _measures(runs: Mapping[str, Runs]) -> dict[str, list[Any]]:
    rows = [
        (name, step, quantity, value.mean, value.error)
        for name, found in runs.items()
        for quantity in found.numbers
        for step in STEPS
        for value in [found.at(quantity, step)]
    ]
    keys = ("case", "step", "quantity", "mean", "standard_error")
    return {key: [row[i] for row in rows] for i, key in enumerate(keys)}


def _tail_table(runs: Mapping[str, Runs]) -> dict[str, list[Any]]:
    rows = [
        (name, which, layer, s.verdict, exponent(s), s.tail.tail if s.tail else None,
         s.tail.p_value if s.tail else None, s.random_exponent, s.spikes, beyond(s), s.distance,
         s.distance_null.mean if s.distance_null else None)
        for name, found in runs.items()
        for which, layers in found.spectra.items()
        for layer, spectra in enumerate(layers, start=1)
        for s in spectra
    ]  # fmt: skip
    keys = ("case", "weights", "layer", "verdict", "alpha", "in_tail", "p_value", "random_alpha",
            "spikes", "largest_over_edge", "distance", "random_distance")  # fmt: skip
    return {key: [row[i] for row in rows] for i, key in enumerate(keys)}


EXPERIMENT = Experiment(
    name="fields-coactivation",
    summary="who shares units with whom as digits are learnt; pullback metrics and weight tails",
    source="arXiv:2606.09744v3, §9 and §10.3",
    run=run,
)
