"""fields-coactivation: what training does to masks, pullback metrics and weight spectra on digits.

The source (Nordio, arXiv:2606.09744v3) leaves its numerical section empty and expects, in its
discussion, that same-class inputs come to share units while others part, that the metrics
concentrate, and that WᵀW inherits heavy tails. Each is measured here beside its null.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from dynagram_experiments import Experiment, Result, Settings
from dynagram_experiments._parts import Part, Table, finish_parts
from dynagram_experiments._records import draw_if_possible
from dynagram_experiments.fields._tasks import WIDTH
from dynagram_experiments.fields.coactivation.runs import STEPS, Case, Runs, run_case
from dynagram_experiments.fields.coactivation.statements import (
    CONTROL,
    DEEP,
    END,
    MEAN,
    PARITY,
    SHALLOW,
    SIGNED,
    statements,
)

NAME = "fields-coactivation"
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


def _run(settings: Settings) -> Result:
    seeds = [1000 * settings.seed + i for i in range(10 if settings.full else 5)]
    cases = CASES + (FULL_CASES if settings.full else ())
    # Statistics over seeds need no more digits than float32 has; it halves the time.
    dtype = "<f8" if settings.full else "<f4"
    makers = {case.name: functools.partial(_part, case, seeds, dtype) for case in cases}
    parts = finish_parts(settings, NAME, makers, {"steps": STEPS})
    runs = {case.name: Runs.of_part(case, parts[case.name]) for case in cases}
    return Result(
        statements=statements(runs),
        tables={"measures": _measures(runs), "tails": _tail_table(runs)},
        figures=draw_if_possible(lambda: _figures(runs)),
        notes=(
            f"{len(seeds)} seeds, each with its own images and weights; ± is one standard error "
            f"over them. N = {WIDTH}, {END} steps of full-batch gradient descent, "
            f"{'double' if settings.full else 'single'} precision.",
            "How far weights moved, ‖ΔW‖/‖W‖: "
            + "; ".join(f"{name}: {_moved(of_case)}" for name, of_case in runs.items())
            + ". The heavy tail is where they moved most; nothing here shows a cause.",
        ),
    )


def _part(case: Case, seeds: list[int], dtype: str) -> Part:
    return run_case(case, seeds, dtype).part()


def _moved(runs: Runs) -> str:
    layers = range(1, runs.case.L + 1)
    return ", ".join(f"{float(runs.at(f'moved {layer}', END).value):.2f}" for layer in layers)


def _measures(runs: Mapping[str, Runs]) -> dict[str, list[Any]]:
    return Table.of_rows(
        {
            "case": name,
            "step": step,
            "quantity": quantity,
            "mean": float(estimate.value),
            "standard_error": float(estimate.standard_error),
        }
        for name, of_case in runs.items()
        for quantity in of_case.numbers
        for step in STEPS
        for estimate in [of_case.at(quantity, step)]
    ).columns()


def _tail_table(runs: Mapping[str, Runs]) -> dict[str, list[Any]]:
    """One row per weight matrix; an empty place where there is no fit."""
    columns: dict[str, list[Any]] = {
        "case": [name for name, r in runs.items() for _ in r.tails["layer"]]
    }
    for name, values in Table.joined(r.tails for r in runs.values()).items():
        whole = name in ("in_tail", "spikes")
        columns[name] = [
            value if isinstance(value, str | int) else None if np.isnan(value)
            else int(value) if whole else value
            for value in values.tolist()
        ]  # fmt: skip
    return columns


def _figures(runs: Mapping[str, Runs]) -> dict[str, Any]:
    from dynagram_experiments.fields.coactivation.figures import figures

    return figures(runs)


EXPERIMENT = Experiment(
    name=NAME,
    summary="who shares units with whom as digits are learnt; pullback metrics and weight tails",
    source="arXiv:2606.09744v3, §9 and §10.3",
    run=_run,
)
