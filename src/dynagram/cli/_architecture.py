"""What `critical --arch` and `advise --arch` show of a network of blocks before training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dynagram.cli._output import console, print_json, print_list, tell

if TYPE_CHECKING:
    from dynagram.theory.chain import Examination
else:
    Examination = object  # imported when a command runs, so that --help stays quick

_LONGEST = 32  # rows of the table of blocks that are printed


def show_architecture(
    arch: str,
    tokens: int,
    width: int | None,
    depth: int | None,
    bands: str,
    *,
    as_json: bool,
    plot: Path | None = None,
) -> None:
    """Examine the architecture and print what was found."""
    from dynagram.networks import load_architecture
    from dynagram.theory.chain import examine

    network = load_architecture(arch, positions=tokens, width=width, depth=depth)
    plain = load_architecture(arch, positions=tokens, width=width, depth=depth, scaled=False)
    examination = examine(network, plain=plain, bands=bands)
    if plot is not None:
        from dynagram.report import birth_chart, save

        tell(f"wrote {save(birth_chart(examination), plot, title='A network at birth')}")
    if as_json:
        print_json(examination.to_dict())
    else:
        print_examination(examination)


def print_examination(examination: Examination) -> None:
    """The network, its blocks, the scalings and what stands out."""
    from dataclasses import replace

    out, grid = console(), examination.birth.summary()
    out.print(str(examination.network), markup=False)
    rows = grid.rows
    if len(rows) > _LONGEST:
        gap = ("", f"… {len(rows) - _LONGEST} more …", *[""] * (len(grid.headings) - 2))
        grid = replace(grid, rows=(*rows[: _LONGEST // 2], gap, *rows[-_LONGEST // 2 :]))
    for piece in grid.fitted(out.width):
        out.print(piece.rich())
        out.print()
    out.print(" ".join(grid.notes), markup=False)
    if examination.scalings:
        out.print()
        for piece in examination.summary().fitted(out.width):
            out.print(piece.rich())
            out.print()
    print_list(out, examination.notes)
