"""`dynagram plateaus`: where a logged loss curve stood still."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dynagram.cli._options import Json
from dynagram.cli._output import console, narrow_table, print_json, short, tell
from dynagram.errors import InvalidValueError


def plateaus(
    curve: Annotated[
        Path,
        typer.Argument(
            help="Losses: .npy, or text with one number or step,loss a line; with a header such as "
            "epoch,train_loss,val_loss the training loss."
        ),
    ],
    column: Annotated[
        str | None, typer.Option(help="Which column of a table with a header.")
    ] = None,
    fall: Annotated[
        float, typer.Option(help="Largest part of the whole fall within a plateau.")
    ] = 0.05,
    contrast: Annotated[
        float, typer.Option(help="How many times longer than the next such fall it lasts.")
    ] = 3.0,
    as_json: Json = False,
) -> None:
    """Find the plateaus of a logged loss curve."""
    from dynagram.observables._plateaus import find_plateaus

    steps, losses = _load_curve(curve, column)
    stretches = find_plateaus(losses, steps, fall=fall, contrast=contrast)
    if as_json:
        print_json({"plateaus": [vars(plateau) for plateau in stretches]})
        return
    out = console()
    if not stretches:
        out.print("No plateau: the loss never stands still for long before it falls again.")
        return
    table = narrow_table("from step", "to step", "loss", "times the next fall", "")
    for plateau in stretches:
        table.add_row(
            f"{plateau.start:.0f}", f"{plateau.end:.0f}", short(plateau.level),
            short(plateau.contrast, 3), "left" if plateau.left else "the curve ends on it",
        )  # fmt: skip
    out.print(table)


def _load_curve(path: Path, column: str | None) -> tuple[np.ndarray | None, np.ndarray]:
    from dynagram.data import load_array
    from dynagram.data._files import table_header

    values, header = load_array(path, "curve"), table_header(path, "curve")
    if values.ndim == 1:
        return None, values
    if values.ndim != 2:
        allowed = "expected one column, or step and loss"
        raise InvalidValueError("shape of the curve", values.shape, allowed)
    if header and len(header) != values.shape[1]:
        allowed = f"{values.shape[1]} columns of numbers need as many names"
        raise InvalidValueError("header of the curve", header, allowed)
    if column is not None:
        if column not in header:
            known = f"its columns are {', '.join(header)}" if header else "it has no header"
            raise InvalidValueError("--column", column, known)
        if header.count(column) > 1:
            raise InvalidValueError("--column", column, "several columns have this name")
        return _steps_of(values, header), values[:, header.index(column)]
    losses = [name for name in header if "loss" in name.lower()]
    if losses:
        first = next((name for name in losses if "train" in name.lower()), losses[0])
        if len(losses) > 1:
            tell(f"reading {first}: --column takes another of {', '.join(losses)}")
        return _steps_of(values, header), values[:, header.index(first)]
    if values.shape[1] in (1, 2):
        return (values[:, 0] if values.shape[1] == 2 else None), values[:, -1]
    allowed = "more than two columns need a header with a name such as loss, or --column"
    raise InvalidValueError("shape of the curve", values.shape, allowed)


def _steps_of(values: np.ndarray, header: list[str]) -> np.ndarray | None:
    """The column of steps or epochs; without one, rows are counted."""
    for words in ("step", "iter", "epoch"):
        for index, name in enumerate(header):
            if words in name.lower() and "loss" not in name.lower():
                return values[:, index]
    return None
