"""`Outputs` as a table for people: one row for every moment, sample and output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dynagram.results._table import Grid, short, short_error

if TYPE_CHECKING:
    from dynagram.results._outputs import Outputs
else:
    Outputs = object  # it imports this module

_MOST_ROWS = 40
_ROUNDING = 1e-10  # of a curve: an error below is none that anybody asks for

# What gives the cell of a column at (moment, sample, output).
Column = Callable[[tuple[int, ...]], str]


def outputs_grid(outputs: Outputs) -> Grid:
    """Mean and spread of every output that is shown, at infinite width and at this width."""
    columns, in_time = _columns(outputs), len(outputs.times) > 1
    several = outputs.network.output_size > 1
    places = list(np.ndindex(outputs.means.shape))
    rows = []
    for place in places[:_MOST_ROWS]:
        moment, sample, output = place
        cells = [short(outputs.times[moment], 4)] if in_time else []
        cells += [str(sample), *([str(output)] if several else [])]
        rows.append((*cells, *(column(place) for column in columns.values())))
    headings = (*(["τ"] if in_time else []), "sample", *(["output"] if several else []), *columns)
    left = len(places) - _MOST_ROWS
    more = (f"and {left} more rows",) if left > 0 else ()
    notes = (*more, _legend(outputs), *_other_numbers(outputs), *outputs.notes)
    return Grid(headings, tuple(rows), notes)


def curves_grid(outputs: Outputs) -> Grid | None:
    """Losses and other single numbers in time, one row for every moment; None without any.

    Each stands with its error where it has one.
    """
    curves = {name: e for name, e in outputs.estimates.items() if e.value.ndim == 1}
    if not curves:
        return None
    rows = []
    rounding = {
        n: _ROUNDING * np.max(np.abs(np.nan_to_num(e.value)), initial=0.0)
        for n, e in curves.items()
    }
    for index, time in enumerate(outputs.times):
        cells = [short(time, 4)]
        for name, estimate in curves.items():
            error = float(estimate.standard_error[index])
            tail = f" ± {short(error, 2)}" if error > rounding[name] else ""
            cells.append(short(float(estimate.value[index])) + tail)
        rows.append(tuple(cells))
    headings = ("τ", *(name.replace("_infinite", ", ∞").replace("_", " ") for name in curves))
    return Grid(headings, tuple(rows), ("std: between networks.",))


def _other_numbers(outputs: Outputs) -> list[str]:
    """Sentences: observables that are one number, and training that did not come to its end."""
    notes = []
    for name, estimate in outputs.estimates.items():
        if estimate.value.ndim == 1 and outputs.order == "measured":
            value, error = float(estimate.value[-1]), float(estimate.standard_error[-1])
            notes.append(f"{name}: {short(value)} ± {short(error, 2)}.")
    if unfinished := outputs.about.get("unfinished"):
        error = short(outputs.about["largest_error"], 2)
        notes.append(f"{unfinished} trainings ended above the tolerance, the worst at {error}.")
    return notes


def _columns(outputs: Outputs) -> dict[str, Column]:
    """What gives a cell, by heading."""
    order, alone = outputs.order, outputs.of_one_network
    columns: dict[str, Column] = {}
    if outputs.infinite_mean is not None:
        columns["mean, ∞"] = _numbers(outputs.means_infinite, 5)
        if not alone:
            columns["spread, ∞"] = _numbers(outputs.stds_infinite, 3)
    if order == "∞":
        return columns
    columns[f"mean, {order}"] = _numbers(outputs.means, 5)
    if not alone:
        errors, scale = outputs.errors, float(np.max(np.abs(outputs.means), initial=0.0))
        columns["± error"] = lambda place: short_error(float(errors[place]), scale)
        if outputs.has_spread:
            columns[f"spread, {order}"] = _numbers(outputs.stds, 3)
    return columns


def _numbers(values: np.ndarray, digits: int) -> Column:
    return lambda place: short(float(values[place]), digits)


def _legend(outputs: Outputs) -> str:
    if outputs.of_one_network:
        return "mean: the output of this network; there is no spread."
    error = "± error: of the mean; " if outputs.order != "∞" else ""
    return f"{error}spread: standard deviation between networks."
