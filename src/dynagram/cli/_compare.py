"""`dynagram compare`: do two saved results agree within their error bars?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynagram.cli._options import Json, Trust
from dynagram.cli._output import console, print_json, print_list
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.results._agreement import Agreement
else:
    Agreement = object  # imported when the command runs, so that --help stays quick

_LEGEND = (
    "\nz = (second − first)/error. Entries: with error bar + exact; they are correlated. Worst at "
    "layer:samples. Differ by: root mean square of the difference over that of the values."
)


def compare(
    first: Annotated[Path, typer.Argument(help="A .npz file of predict, simulate or train.")],
    second: Annotated[Path, typer.Argument(help="Another one, of the same network and inputs.")],
    limit: Annotated[
        float, typer.Option(help="Largest |z| allowed to one entry; to many, more.")
    ] = 4.0,
    trust: Trust = None,  # noqa: ARG001 (heard by its callback)
    as_json: Json = False,
) -> None:
    """Compare two files entry by entry: z = (second − first)/error, errors of both combined.

    Exit code 0: they agree up to chance and to the next order in 1/n; 1: they differ; 2: the files
    cannot be compared.
    """
    from dynagram.results import compare as compare_results
    from dynagram.results import load

    if not (math.isfinite(limit) and limit > 0):
        raise InvalidValueError("--limit", limit, "expected a number > 0")
    agreement = compare_results(load(first), load(second))  # pyright: ignore
    agree = agreement.ok(limit)
    if as_json:
        print_json(agreement.to_dict(limit))
    else:
        out, grid = console(), agreement.summary(limit)
        out.print(grid.rich())
        out.print(_LEGEND)
        print_list(out, grid.notes)
        out.print(f"[bold]{_words(agreement, limit)}[/bold]")
    raise typer.Exit(0 if agree else 1)


def _words(agreement: Agreement, limit: float) -> str:
    if all(row.result.ok(limit) for row in agreement.rows):
        return f"all within {limit:g} standard errors"
    if agreement.ok(limit):
        return (
            f"agree: what is beyond {limit:g} standard errors is chance among so many entries, or "
            "the next order"
        )
    return (
        f"differ: not all within {limit:g} standard errors, chance and the next order allowed for"
    )
