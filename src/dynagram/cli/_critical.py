"""`dynagram critical ACTIVATION`: how to initialise a network with this activation, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dynagram.cli._output import print_json


def critical(
    activation: Annotated[
        str,
        typer.Argument(
            help="A name such as gelu, a name with numbers such as leaky_relu(0.2), or "
            "package.module:function for your own."
        ),
    ],
    cb: Annotated[float | None, typer.Option(help="Judge this bias variance C_b.")] = None,
    cw: Annotated[
        float | None, typer.Option(help="Judge this weight variance C_W (times fan-in).")
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Number of layers.")] = None,
    width: Annotated[int | None, typer.Option(help="Neurons in a hidden layer.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw a figure: .svg, .png or .html.")
    ] = None,
) -> None:
    """How to initialise a network with this activation so that depth does it no harm, and why."""
    from dynagram.cli._critical_answer import find_out
    from dynagram.cli._critical_output import as_json, draw, print_answer

    if plot is not None:
        from dynagram.report._export import check_plot_path

        check_plot_path(plot)
    answer = find_out(activation, cb, cw, depth, width)
    if plot is not None:
        draw(answer, depth, plot)
    if json:
        print_json(as_json(answer))
    else:
        print_answer(answer)
