"""The figures of fields-coactivation: co-activation, metrics, layer shares, spectra."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dynagram.observables.spectra._spectra import WeightSpectrum
from dynagram.report._export import Chart
from dynagram_experiments._coactivation_runs import STEPS, Runs
from dynagram_experiments._field_charts import Axis, Line, panels

# Of the first seed; weights with permuted entries look like untrained ones.
_SHOWN = ("untrained", "trained")
_STEPS_AXIS = Axis("step", "symlog", ticks=STEPS, domain=(0, STEPS[-1]), format="d")


def figures(runs: Mapping[str, Runs]) -> dict[str, Chart]:
    """One chart per file name."""
    deep = {name: found for name, found in runs.items() if found.case.L > 1}
    ranks, ratios = (
        panels(
            {
                _title(found): {
                    f"{kind} class": _line(found, f"{quantity} {kind}")
                    for kind in ("same", "different")
                }
                for found in deep.values()
            },
            _STEPS_AXIS,
            Axis(title, zero=level is None),
            level=level,
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
            {_title(found): _levels(found) for found in runs.values()},
            _STEPS_AXIS,
            Axis("co-activation A, last layer"),
            columns=3,
            width=250,
            height=170,
        ),
        "gap-by-layer": panels(
            {
                _title(found): {
                    f"layer {layer}": _line(found, f"gap {layer}")
                    for layer in range(1, found.case.L + 1)
                }
                for found in deep.values()
            },
            _STEPS_AXIS,
            Axis("same − different"),
            columns=3,
            width=250,
            height=170,
        ),
        "effective-rank": ranks,
        "effective-rank-ratio": ratios,
        "kernel-shares": panels(
            {
                _title(found): {
                    f"layer {layer}": _line(found, f"share {layer}")
                    for layer in range(1, found.case.L + 1)
                }
                for found in deep.values()
            },
            _STEPS_AXIS,
            Axis("share of tr K", domain=(0.0, 1.0)),
            columns=3,
            width=250,
            height=170,
        ),
        "spectra": panels(
            {
                f"W{found.case.L}, {_title(found)}": {
                    which: _survival(found.spectra[which][-1][0]) for which in _SHOWN
                }
                for found in runs.values()
                if found.case.task == "parity"
            },
            Axis("eigenvalue λ of the weight Gram matrix", "log", ticks=(0.01, 0.1, 1, 10, 100)),
            Axis("share of eigenvalues above λ", "log", ticks=(0.003, 0.01, 0.03, 0.1, 0.3, 1)),
        ),
    }


def _title(found: Runs) -> str:
    case = found.case
    low, high = (f"{target:g}" for target in case.targets)
    return f"{case.task}, L = {case.L}, {case.readout} readout, targets {low} and {high}"


def _levels(found: Runs) -> dict[str, Line]:
    last = found.case.L
    names = {"upper": "both higher target", "lower": "both lower target", "different": "different"}
    return {shown: _line(found, f"{name} {last}") for name, shown in names.items()}


def _line(found: Runs, quantity: str) -> Line:
    values = [found.at(quantity, step) for step in STEPS]
    return Line(STEPS, [v.mean for v in values], [v.error for v in values])


def _survival(spectrum: WeightSpectrum) -> Line:
    """λ against the share of eigenvalues at least as large; a power law is a straight line."""
    values = spectrum.eigenvalues[spectrum.eigenvalues > 0.01]
    share = 1.0 - np.arange(values.size) / values.size
    return Line(values.tolist(), share.tolist())
