"""The figures of fields-coactivation: co-activation, metrics, layer shares, spectra."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynagram.report import Axis, Line, panels
from dynagram.report._export import Chart
from dynagram_experiments.fields.coactivation.runs import STEPS, Runs

# Of the first seed; weights with permuted entries look like untrained ones.
_SHOWN = ("untrained", "trained")
_STEPS_AXIS = Axis("step", "symlog", ticks=STEPS, domain=(0, STEPS[-1]), format="d")


def figures(runs: Mapping[str, Runs]) -> dict[str, Chart]:
    """One chart per file name."""
    deep = {name: of_case for name, of_case in runs.items() if of_case.case.L > 1}
    ranks, ratios = (
        panels(
            {
                _title(of_case): {
                    f"{kind} class": _line(of_case, f"{quantity} {kind}")
                    for kind in ("same", "different")
                }
                for of_case in deep.values()
            },
            _STEPS_AXIS,
            Axis(title, zero=level is None, guides={} if level is None else {"": level}),
            columns=3,
            width=250,
            height=170,
        )
        for quantity, title, level in (
            ("rank", "effective rank of the last G", None),
            ("rank ratio", "rank of G / random rows", 1.0),
        )
    )
    return {
        "coactivation": panels(
            {_title(of_case): _levels(of_case) for of_case in runs.values()},
            _STEPS_AXIS,
            Axis("co-activation A, last layer", zero=True),
            columns=3,
            width=250,
            height=170,
        ),
        "gap-by-layer": panels(
            {
                _title(of_case): {
                    f"layer {layer}": _line(of_case, f"gap {layer}")
                    for layer in range(1, of_case.case.L + 1)
                }
                for of_case in deep.values()
            },
            _STEPS_AXIS,
            Axis("same − different", zero=True),
            columns=3,
            width=250,
            height=170,
        ),
        "effective-rank": ranks,
        "effective-rank-ratio": ratios,
        "kernel-shares": panels(
            {
                _title(of_case): {
                    f"layer {layer}": _line(of_case, f"share {layer}")
                    for layer in range(1, of_case.case.L + 1)
                }
                for of_case in deep.values()
            },
            _STEPS_AXIS,
            Axis("share of tr K", domain=(0.0, 1.0)),
            columns=3,
            width=250,
            height=170,
        ),
        "spectra": panels(
            {
                f"W{of_case.case.L}, {_title(of_case)}": {
                    which: _survival(of_case.eigenvalues[which]) for which in _SHOWN
                }
                for of_case in runs.values()
                if of_case.case.task == "parity"
            },
            Axis("eigenvalue λ of the weight Gram matrix", "log", ticks=(0.01, 0.1, 1, 10, 100)),
            Axis("share of eigenvalues above λ", "log", ticks=(0.003, 0.01, 0.03, 0.1, 0.3, 1)),
        ),
    }


def _title(of_case: Runs) -> str:
    case = of_case.case
    low, high = (f"{target:g}" for target in case.targets)
    return f"{case.task}, L = {case.L}, {case.readout} readout, targets {low} and {high}"


def _levels(of_case: Runs) -> dict[str, Line]:
    last = of_case.case.L
    names = {"upper": "both higher target", "lower": "both lower target", "different": "different"}
    return {shown: _line(of_case, f"{name} {last}") for name, shown in names.items()}


def _line(of_case: Runs, quantity: str) -> Line:
    return Line.through({step: of_case.at(quantity, step) for step in STEPS}, sigmas=1.0)


def _survival(eigenvalues: np.ndarray) -> Line:
    """λ against the share of eigenvalues at least as large; a power law is a straight line."""
    values = eigenvalues[eigenvalues > 0.01]
    return Line(values, 1.0 - np.arange(values.size) / values.size)
