"""`dynagram compare`: do two files of tensors agree within their error bars?"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from dynagram.cli._archives import Archive, read_archive
from dynagram.cli._options import Json
from dynagram.cli._output import console, narrow_table, print_json, print_list, short
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.results._comparison import Comparison
else:
    Comparison = object  # imported when the command runs, so that --help stays quick

# A measured mean holds all orders: its prediction is completed by the 1/n term where there is one.
_CORRECTIONS = {"K": "G1", "Theta": "H1"}


@dataclass(frozen=True, eq=False)
class Row:
    """One letter: what was compared, on which layers, and how it came out.

    `relative_difference` is the root mean square of the differences over that of the values.
    """

    label: str
    layers: tuple[int, ...]
    result: Comparison
    relative_difference: float


def compare(
    first: Annotated[Path, typer.Argument(help="A .npz file of predict or simulate.")],
    second: Annotated[Path, typer.Argument(help="Another one, of the same network and inputs.")],
    limit: Annotated[float, typer.Option(help="Largest |z| that counts as agreement.")] = 4.0,
    as_json: Json = False,
) -> None:
    """Compare two files entry by entry: z = (second − first)/error, errors of both combined.

    Exit code 0: every |z| is within the limit; 1: some is not; 2: the files cannot be compared.
    """
    if not (math.isfinite(limit) and limit > 0):
        raise InvalidValueError("--limit", limit, "expected a number > 0")
    one, two = read_archive(first), read_archive(second)
    _require_the_same(one, two)
    rows = _rows(one, two)
    notes = _notes(one, two, rows)
    agree = all(row.result.ok(limit) for row in rows)
    if as_json:
        print_json(_summary(rows, notes, limit, agree))
    else:
        _print(rows, notes, limit, agree)
    raise typer.Exit(0 if agree else 1)


def _require_the_same(one: Archive, two: Archive) -> None:
    if one.spec != two.spec:
        left, right = (tomllib.loads(spec).get("network", {}) for spec in (one.spec, two.spec))
        keys = [k for k in {**left, **right} if left.get(k) != right.get(k)]
        differences = ", ".join(f"{k} {left.get(k)} and {right.get(k)}" for k in keys)
        raise InvalidValueError("files", differences, "two different networks cannot be compared")
    if one.x.shape != two.x.shape:
        raise InvalidValueError("files", (one.x.shape, two.x.shape), "inputs of different shape")
    if not np.array_equal(one.x, two.x):
        row = int(np.argwhere(one.x != two.x)[0][0])
        raise InvalidValueError("files", f"sample {row}", "the inputs of the two files differ")


def _rows(one: Archive, two: Archive) -> list[Row]:
    from dynagram.results._comparison import compare as compare_arrays
    from dynagram.results._estimate import Estimate

    rows = []
    for name in (name for name in one.tensors if name in two.tensors):
        layers = tuple(layer for layer in one.layers[name] if layer in two.layers[name])
        if not layers:
            continue
        label, other = name, "prediction"
        values: list[tuple[np.ndarray, np.ndarray]] = []
        for archive, partner in ((one, two), (two, one)):
            value, error = archive.tensors[name], archive.error(name)
            if archive.kind != partner.kind and archive.kind == other:
                label, value, error = _with_correction(archive, name)
            where = [archive.layers[name].index(layer) for layer in layers]
            values.append((value[where], error[where]))
        (a, a_error), (b, b_error) = values
        result = compare_arrays(a, Estimate(b, b_error, 1), prediction_error=a_error, name=label)
        size = float(np.linalg.norm(a))
        relative = float(np.linalg.norm(b - a)) / size if size > 0 else 0.0
        rows.append(Row(label, layers, result, relative))
    if not rows:
        have = " and ".join(",".join(archive.tensors) for archive in (one, two))
        raise InvalidValueError("files", have, "no tensor of the same layer in both")
    return rows


def _with_correction(archive: Archive, name: str) -> tuple[str, np.ndarray, np.ndarray]:
    """K + G1/n for K and Θ + H1/n for Θ, where the prediction holds the second term."""
    value, error, extra = archive.tensors[name], archive.error(name), _CORRECTIONS.get(name)
    if extra is None or archive.layers.get(extra) != archive.layers[name]:
        return name, value, error
    n = archive.fan_in(name)
    return f"{name} + {extra}/n", value + archive.tensors[extra] / n, archive.error(extra) / n


def _notes(one: Archive, two: Archive, rows: list[Row]) -> list[str]:
    """What a prediction leaves out, where it is compared with a simulation."""
    if one.kind == two.kind:
        return []
    prediction, simulation = (one, two) if one.kind == "prediction" else (two, one)
    notes = [
        f"the simulation ({simulation.about.get('members', '?')} networks) contains all orders in "
        "1/n: at small width a residual of the next order is expected, and it halves when the "
        "widths double"
    ]
    labels = [row.label for row in rows]
    if frozen := [name for name in _CORRECTIONS if name in labels]:
        asked = ", ".join(_CORRECTIONS[name] for name in frozen)
        notes.append(f"{', '.join(frozen)}: order ∞; predict {asked} as well to reach order 1/n")
    if kept := [label for label in labels if label not in _CORRECTIONS]:
        notes.append(f"{', '.join(kept)}: order 1/n")
    numbers = prediction.about.get("numbers", {})
    sizes = {
        "leading_correction": "the 1/n correction of the kernel at the output is {} of it",
        "next_order_of_V": "expected residual for one input at the output: {} of V",
        "next_order_of_G": "expected residual of the mean metric: {} of K",
    }
    notes += [
        words.format(f"{100 * numbers[name]:.2g} %")
        for name, words in sizes.items()
        if numbers.get(name) is not None
    ]
    if (fluctuation := numbers.get("ntk_fluctuation")) is not None:
        notes.append(
            f"the NTK fluctuates by {100 * fluctuation:.2g} % between draws: expect residuals of "
            f"about its square, {100 * fluctuation**2:.2g} %, in Theta to U, more in small entries"
        )
    return notes


def _summary(rows: list[Row], notes: list[str], limit: float, agree: bool) -> dict[str, Any]:
    return {
        "agree": agree,
        "limit": limit,
        "tensors": {
            row.label: {
                "layers": row.layers,
                "entries": int(np.sum(~row.result.exact)),
                "exact_entries": int(np.sum(row.result.exact)),
                "exact_mismatches": row.result.exact_mismatches,
                "worst_z": row.result.worst_z,
                "worst_layer": row.layers[row.result.worst_index[0]],
                "worst_samples": row.result.worst_index[1:],
                "fraction_within_3": row.result.fraction_within_3,
                "chi2_per_entry": row.result.chi2_per_entry,
                "relative_difference": row.relative_difference,
                "agree": row.result.ok(limit),
            }
            for row in rows
        },
        "notes": notes,
    }


def _print(rows: list[Row], notes: list[str], limit: float, agree: bool) -> None:
    out = console()
    headings = (
        "tensor",
        "entries",
        "worst z",
        "worst at",
        "≤ 3σ",
        "χ²/entry",
        "differ by",
        "",
    )
    table = narrow_table(*headings)
    for column in table.columns[1:7]:
        column.justify = "right"
    for row in rows:
        result = row.result
        noisy, exact = int(np.sum(~result.exact)), int(np.sum(result.exact))
        index, *samples = result.worst_index
        table.add_row(
            row.label,
            f"{noisy} + {exact}" if exact else str(noisy),
            "exact" if math.isinf(result.worst_z) else f"{result.worst_z:+.2f}",
            f"{row.layers[index]}:{','.join(map(str, samples))}",
            f"{100 * result.fraction_within_3:.0f} %",
            short(result.chi2_per_entry, 3),
            f"{100 * row.relative_difference:.2g} %",
            "agree" if result.ok(limit) else "differ",
        )
    out.print(table)
    out.print(
        "\nz = (second − first)/error. Entries: with error bar + exact; they are correlated. Worst "
        "at layer:samples. Differ by: root mean square of the difference over that of the values."
    )
    print_list(out, notes)
    words = "all within" if agree else "not all within"
    out.print(f"[bold]{words} {limit:g} standard errors[/bold]")
