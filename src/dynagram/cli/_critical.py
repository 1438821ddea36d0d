"""`dynagram critical`: how to initialise with this activation or architecture, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dynagram.cli._options import ArchitectureName, GradientBands, Tokens, Trust
from dynagram.cli._output import print_json
from dynagram.errors import InvalidValueError


def critical(
    activation: Annotated[
        str | None,
        typer.Argument(
            help="A name such as gelu, a name with numbers such as leaky_relu(0.2), or "
            "package.module:function for your own."
        ),
    ] = None,
    arch: ArchitectureName = None,
    cb: Annotated[float | None, typer.Option(help="Judge this bias variance C_b.")] = None,
    cw: Annotated[
        float | None, typer.Option(help="Judge this weight variance C_W (times fan-in).")
    ] = None,
    depth: Annotated[int | None, typer.Option(help="Number of layers.")] = None,
    width: Annotated[int | None, typer.Option(help="Neurons in a hidden layer.")] = None,
    tokens: Tokens = 4,
    bands: GradientBands = "cheap",
    trust: Trust = None,  # noqa: ARG001 (heard by its callback)
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw a figure: .svg, .png or .html.")
    ] = None,
) -> None:
    """How to initialise a network with this activation so that depth does it no harm, and why.

    With --arch, what depth does to a transformer, a convolutional or a residual network before it
    has learned anything: growth of the stream, similarity of tokens, gradients of every block, with
    their spread between networks, and how other scalings of its branches compare.
    """
    from dynagram.cli._critical_answer import find_out
    from dynagram.cli._critical_output import as_json, draw, print_answer

    if plot is not None:
        from dynagram.report._export import check_plot_path

        check_plot_path(plot)
    if arch is not None:
        from dynagram.cli._architecture import show_architecture

        for name, value in (("ACTIVATION", activation), ("--cb", cb), ("--cw", cw)):
            if value is not None:
                raise InvalidValueError(name, value, "--arch has its own: leave this out")
        show_architecture(arch, tokens, width, depth, bands, as_json=json, plot=plot)
        return
    if activation is None:
        raise InvalidValueError("ACTIVATION", None, "needed, unless --arch is given")
    answer = find_out(activation, cb, cw, depth, width)
    if plot is not None:
        draw(answer, depth, plot)
    if json:
        print_json(as_json(answer))
    else:
        print_answer(answer)
