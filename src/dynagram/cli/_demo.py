"""`dynagram demo`: an offline HTML report about the default network's initialisation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dynagram.cli._options import Members
from dynagram.errors import InvalidValueError


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the report.")] = Path(
        "dynagram-report"
    ),
    members: Members = 20_000,
    seed: Annotated[int, typer.Option(help="Of the ensemble.")] = 0,
) -> None:
    """Write a report that shows theory and an ensemble of networks side by side."""
    from dynagram.cli._output import progress_bar
    from dynagram.report._initialisation import default_network, initialisation_report
    from dynagram.results._files import write_atomically

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValueError("--output", str(output), "cannot be made a folder") from error
    network, x = default_network()
    with progress_bar("drawing networks") as progress:
        text = initialisation_report(network, x, members=members, seed=seed, progress=progress)
    page = write_atomically(output / "index.html", text.encode())
    size = len(text.encode())
    note = "" if size < 2_000_000 else f" ({size / 1e6:.1f} MB)"
    print(f"The report is in {page}{note}. Open it in a browser; it needs no network.")
