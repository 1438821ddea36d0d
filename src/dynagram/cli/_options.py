"""What the commands about one network share: their options, the network and inputs they mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from dynagram.cli._output import integers, per_layer
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.networks import MLP, Chain
else:
    MLP = Chain = object  # imported when a command runs, so that --help stays quick

# What may be said of a run that is continued: nothing that would change it.
WITH_RESUME = "--executor, --time-limit, --trust, -o and --json"
DEEPEST = 100_000  # layers: a few seconds of work

Inputs = Annotated[Path, typer.Option("--inputs", "-i", help="A .npy file, one input a row.")]
NetworkFile = Annotated[
    Path | None,
    typer.Option(
        "--network",
        help="A file of the network, TOML or the config.json of a model, instead of the options "
        "that describe one.",
    ),
]
NetworkTable = Annotated[
    Path | None,
    typer.Option(
        "--network",
        help="A file of the network, TOML or the config.json of a model, where the file of the "
        "problem has no table of it.",
    ),
]
ArchitectureName = Annotated[
    str | None,
    typer.Option(
        "--arch",
        "--network",
        help="gpt2, gpt2-medium, gpt2-large, gpt2-xl, llama-7b, vit-b, pre-norm, post-norm, "
        "depth-mup, residual, convnet; or a file: TOML, or the config.json of a model.",
    ),
]
Tokens = Annotated[
    int, typer.Option(help="With --arch: tokens of the sequence, or positions of a convnet.")
]
GradientBands = Annotated[
    str,
    typer.Option(
        "--bands",
        help="With --arch: blocks whose gradients get a spread: all, ends (first and last layer), "
        "none, or cheap (all of at most 16 branches without attention, else none).",
    ),
]
Widths = Annotated[str | None, typer.Option(help="n_0,…,n_L, such as 3,20,20,2.")]
NamedActivation = Annotated[
    str | None,
    typer.Option("--activation", help="A name such as tanh, or package.module:function."),
]
ActivationName = Annotated[
    str, typer.Option("--activation", help="A name such as tanh, or package.module:function.")
]
BiasVariance = Annotated[
    str | None,
    typer.Option("--cb", help="Bias variance C_b, one number or one per layer. Default: critical."),
]
WeightVariance = Annotated[
    str | None,
    typer.Option("--cw", help="Weight variance C_W (times fan-in), likewise. Default: critical."),
]
BiasRate = Annotated[
    str,
    typer.Option("--lambda-b", help="Learning rate λ_b of biases, one number or one per layer."),
]
WeightRate = Annotated[
    str, typer.Option("--lambda-w", help="Learning rate λ_W of weights (times fan-in), likewise.")
]
Skip = Annotated[
    str, typer.Option("--skip", help="Residual blocks: skip γ, one number or one per block.")
]
Tensors = Annotated[
    str,
    typer.Option(
        "--tensors",
        help="Some of K,Theta,V,G1,H1,A,B,D,F,P,Q,R,S,T,U,six_point,odd, separated by commas.",
    ),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="A .npz file for the arrays.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Run = Annotated[
    Path | None,
    typer.Option("--run", help="A folder that keeps the run; the same one goes on."),
]
Resume = Annotated[
    Path | None, typer.Option("--resume", help="Continue the run in this folder, and nothing else.")
]
ExecutorName = Annotated[
    str | None,
    typer.Option("--executor", help="process:N, dask, dask:N or tcp://host:port. Default: here."),
]
ChunkMembers = Annotated[
    int | None, typer.Option("--chunk", help="Networks per chunk. Default: about a second's work.")
]
UntilError = Annotated[
    float | None,
    typer.Option("--until-error", help="Go on until the worst relative standard error is this."),
]
TimeLimit = Annotated[
    float | None,
    typer.Option("--time-limit", help="Seconds a chunk may take on a worker of process:N or Dask."),
]


def _trust(names: list[str] | None) -> list[str] | None:
    from dynagram._trust import trust

    trust(*(names or ()))
    return names


Trust = Annotated[
    list[str] | None,
    typer.Option(
        "--trust",
        help="package.module:function that the file may name: code in it is not run otherwise.",
        callback=_trust,
    ),
]
Members = Annotated[int, typer.Option("--members", help="Networks in the ensemble.")]


def make_network(
    network: Path | None,
    input_size: int,
    widths: str | None,
    activation: str | None,
    cb: str | None,
    cw: str | None,
    lambda_b: str,
    lambda_w: str,
    skip: str = "0",
) -> MLP | Chain:
    """The network of a file, or that the options describe; a variance left out is critical.

    `input_size` is how many numbers a row of inputs has.
    """
    from dynagram.networks import MLP, load_network

    described = {"--widths": widths, "--activation": activation, "--cb": cb, "--cw": cw}
    if network is not None:
        given = [name for name, value in described.items() if value is not None]
        others = (
            ("--lambda-b", lambda_b, "1"),
            ("--lambda-w", lambda_w, "1"),
            ("--skip", skip, "0"),
        )
        given += [name for name, value, usual in others if value != usual]
        if given:
            allowed = "the file describes the network: leave this option out"
            raise InvalidValueError("--network", str(network), f"{given[0]}: {allowed}")
        return load_network(network, input_size=input_size, name="--network")
    for name in ("--widths", "--activation"):
        if described[name] is None:
            raise InvalidValueError(name, None, "needed, unless --network names a file")
    assert widths is not None
    assert activation is not None
    sizes, gammas = integers("--widths", widths), per_layer("--skip", skip, "block")
    if input_size and sizes and sizes[0] != input_size:
        allowed = f"--inputs has rows of {input_size} numbers: the first width must be {input_size}"
        raise InvalidValueError("--widths", widths, allowed)
    rates = per_layer("--lambda-b", lambda_b), per_layer("--lambda-w", lambda_w)
    C_b = None if cb is None else per_layer("--cb", cb)
    C_W = None if cw is None else per_layer("--cw", cw)
    if C_b is None or C_W is None:
        critical = MLP.critical(sizes, activation, skip=gammas)
        C_b = critical.C_b if C_b is None else C_b
        C_W = critical.C_W if C_W is None else C_W
    return MLP(sizes, activation, C_b, C_W, *rates, skip=gammas)


def row_size(x: np.ndarray) -> int:
    """Numbers in a row of inputs; what is no table is left to the checks that follow.

    >>> row_size(np.ones((5, 3)))
    3
    """
    return x.shape[1] if x.ndim == 2 else 0


def letters(text: str) -> list[str]:
    """The names in a comma-separated list, each once.

    >>> letters("K, V,K")
    ['K', 'V']
    """
    return list(dict.fromkeys(part.strip() for part in text.split(",")))


def check_archive_path(output: Path | None) -> None:
    """Refuse, before any work, an output that is not a .npz file in a folder that exists."""
    if output is None:
        return
    if output.suffix != ".npz":
        raise InvalidValueError("--output", str(output), "the file name must end in .npz")
    if not output.parent.is_dir():
        raise InvalidValueError("--output", str(output), "its folder does not exist")
