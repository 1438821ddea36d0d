"""`dynagram compare`: do two saved results agree within their error bars?"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from dynagram.cli._options import Json, Trust
from dynagram.cli._output import console, print_json, print_list
from dynagram.errors import InvalidValueError

_LEGEND = (
    "\nz = (second − first)/error. Entries: with error bar + exact; they are correlated. Worst at "
    "layer:samples. Differ by: root mean square of the difference over that of the values."
)


def compare(
    first: Annotated[Path, typer.Argument(help="A .npz file of predict, simulate or train.")],
    second: Annotated[Path, typer.Argument(help="Another one, of the same network and inputs.")],
    limit: Annotated[float, typer.Option(help="Largest |z| that counts as agreement.")] = 4.0,
    trust: Trust = None,  # noqa: ARG001 (heard by its callback)
    as_json: Json = False,
) -> None:
    """Compare two files entry by entry: z = (second − first)/error, errors of both combined.

    Exit code 0: every |z| is within the limit; 1: some is not; 2: the files cannot be compared.
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
        words = "all within" if agree else "not all within"
        out.print(f"[bold]{words} {limit:g} standard errors[/bold]")
    raise typer.Exit(0 if agree else 1)
