"""`dynagram predict`: the tensors of a network at initialisation for the user's inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dynagram.cli._options import (
    BiasRate,
    BiasVariance,
    Inputs,
    Json,
    NamedActivation,
    NetworkFile,
    Output,
    Skip,
    Trust,
    WeightRate,
    WeightVariance,
    Widths,
    check_archive_path,
    letters,
    make_network,
    row_size,
)
from dynagram.cli._output import show_result, tell, working
from dynagram.data import load_array


def predict(
    inputs: Inputs,
    widths: Widths = None,
    activation: NamedActivation = None,
    network: NetworkFile = None,
    cb: BiasVariance = None,
    cw: WeightVariance = None,
    lambda_b: BiasRate = "1",
    lambda_w: WeightRate = "1",
    tensors: Annotated[
        str | None,
        typer.Option(
            "--tensors",
            help="Some of K,G1,V,Theta,H1,A,B,D,F,P,Q,R,S,T,U, separated by commas; with --skip of "
            "K,G1,V,Theta. Default: K,V,G1.",
        ),
    ] = None,
    skip: Skip = "0",
    vertex: Annotated[
        str, typer.Option(help="V of residual blocks: corrected, or published as in (B.25).")
    ] = "corrected",
    output: Output = None,
    accuracy: Annotated[
        float, typer.Option(help="Numerical error allowed in four-sample averages, relative.")
    ] = 1e-4,
    seed: Annotated[int, typer.Option(help="Of the quadrature nodes.")] = 0,
    trust: Trust = None,  # noqa: ARG001 (heard by its callback)
    as_json: Json = False,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw a figure: .svg, .png or .html.")
    ] = None,
) -> None:
    """Predict the tensors of a network at initialisation, layer by layer, for your inputs.

    K and Theta are the kernel and the NTK at infinite width; the others are of order 1/n and are
    to be divided by n. Arrays have the layer first, then the samples in the order of the book.
    With --skip the hidden layers are residual blocks z' = b + W σ(z) + γ z. With --network the
    network is that of a file, made of blocks or not; of blocks the output alone is predicted.
    """
    from dynagram.theory._predict import predict as predict_tensors

    check_archive_path(output)
    if plot is not None:
        from dynagram.report._export import check_plot_path

        check_plot_path(plot)
    x = load_array(inputs, "--inputs")
    described = make_network(
        network, row_size(x), widths, activation, cb, cw, lambda_b, lambda_w, skip
    )
    usual = "K,V" if vertex == "published" else "K,V,G1"
    names = letters(usual if tensors is None else tensors)
    with working(f"predicting {', '.join(names)}"):
        result = predict_tensors(described, x, names, vertex=vertex, accuracy=accuracy, seed=seed)
    if plot is not None:
        from dynagram.report._export import save

        tell(f"wrote {save(result.plot(), plot, title='dynagram predict')}")
    show_result(result, output, as_json=as_json)
