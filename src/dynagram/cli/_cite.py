"""`dynagram cite`: how to cite dynagram, and the works whose theory it implements."""

from __future__ import annotations

from typing import Annotated

import typer

from dynagram.cli._options import Json


def cite(
    about: Annotated[
        str | None,
        typer.Argument(help="What was used: predict, train, measure, forecast, fields, advise."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print the references behind a result, as BibTeX."""
    from dynagram.cli._output import print_json
    from dynagram.results._citations import citations

    entries = citations(about)
    if as_json:
        print_json({"references": [vars(entry) for entry in entries]})
    else:
        print("\n\n".join(entry.bibtex for entry in entries))
