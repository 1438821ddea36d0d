"""The figures of fields-closure: training curves, orders in η, errors of frozen masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dynagram.report import Axis, Line, panels
from dynagram.report._export import Chart
from dynagram.theory.fields import AnchoredRun
from dynagram_experiments.fields.closure.runs import (
    DISTANCES,
    EXACT_UP_TO,
    STEP_SIZES,
    OneLayer,
    OneStep,
)

_LAWS = {"r": "residual r", "u": "activations u", "b": "conjugate fields b"}


def figures(
    closed: Sequence[OneLayer],
    laws: Sequence[OneStep],
    frozen: Mapping[tuple[int, str], list[AnchoredRun]],
) -> dict[str, Chart]:
    """One chart per file name."""
    return {
        "one-layer-training": panels(
            {
                f"{readout} readout; lines: weights, rings: fields": {
                    f"η = {run.eta:g}": _curve(run) for run in closed if run.readout == readout
                }
                for readout in dict.fromkeys(run.readout for run in closed)
            },
            Axis("step", "symlog", ticks=(0, 1, 10, 100, 1000), domain=(0, 1000), format="d"),
            Axis("training loss", "log", ticks=(1e-4, 1e-3, 1e-2, 0.1, 1)),
        ),
        "order-in-eta": panels(
            {
                title: {
                    f"L = {step.L}": Line(STEP_SIZES, step.errors[name].tolist())
                    for step in laws
                    if EXACT_UP_TO[name] < step.L
                }
                for name, title in _LAWS.items()
            },
            Axis("η", "log", ticks=(1e-6, 1e-5, 1e-4), format="~e"),
            Axis("error / change, one step", "log", ticks=(1e-7, 1e-6, 1e-5, 1e-4), format="~e"),
            columns=3,
            width=220,
        ),
        "frozen-masks": panels(
            {f"L = {L}": _errors(L, frozen) for L in dict.fromkeys(L for L, _ in frozen)},
            Axis("steps from the anchor", "log", ticks=DISTANCES),
            Axis("error of r, relative to r at the anchor", "log", ticks=(1e-3, 1e-2, 0.1, 1)),
        ),
    }


def _curve(run: OneLayer) -> Line:
    """The loss of the weights, and that of the fields on top of it."""
    steps = np.unique(np.round(np.geomspace(1, len(run.losses), 30)).astype(int)) - 1
    return Line(steps.tolist(), run.losses[steps].tolist(), rings=run.field_losses[steps].tolist())


def _errors(L: int, frozen: Mapping[tuple[int, str], list[AnchoredRun]]) -> dict[str, Line]:
    names = {"weights": "weights carried", "fields": "fields carried", "kernel": "kernel frozen"}
    lines = {}
    for carried, shown in names.items():
        windows = [_windows(frozen[L, carried], "residual_error", k) for k in DISTANCES]
        lines[shown] = _line(windows)
    change = [_windows(frozen[L, "kernel"], "residual_change", k) for k in DISTANCES]
    return lines | {"what r itself moves": _line(change)}


def _windows(runs: Sequence[AnchoredRun], name: str, distance: int) -> np.ndarray:
    return np.concatenate([getattr(run, name)[run.at(distance)] for run in runs])


def _line(windows: Sequence[np.ndarray]) -> Line:
    return Line(DISTANCES, [float(np.mean(w)) for w in windows])
