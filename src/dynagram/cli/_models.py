"""What the commands about a user's own weights share: their options and the network they mean."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dynagram.cli._output import per_layer

if TYPE_CHECKING:
    from dynagram.data import Data
    from dynagram.networks import Model
else:
    Data = Model = object  # imported when a command runs, so that --help stays quick

WeightsFile = Annotated[
    Path, typer.Argument(help="Weights: .npz, .safetensors or a PyTorch state dict.")
]
Batch = Annotated[
    Path, typer.Option("--data", help="A .npz file with x and y, perhaps x_test and y_test.")
]
LayerNames = Annotated[
    str | None, typer.Option("--layers", help="Names of the weight matrices in order, by commas.")
]
Skip = Annotated[
    str | None,
    typer.Option(
        "--skip",
        help="γ of the blocks between hidden layers, one number or one each; 0 for a plain "
        "network. Needed where hidden layers have equal widths.",
    ),
]


def load_model(
    weights: Path, data: Path, activation: str, layers: str | None, skip: str | None
) -> tuple[Model, Data]:
    """The network of a file of weights, and the batch it is asked about."""
    from dynagram.data._files import as_data, load_batch
    from dynagram.networks._weights import load_weights

    batch = load_batch(data, "--data")
    model = load_weights(
        weights,
        activation,
        inputs=batch["x"].shape[1],
        layers=None if layers is None else [name.strip() for name in layers.split(",")],
        skip=None if skip is None else per_layer("--skip", skip, "block"),
    )
    return model, as_data(batch, model.network.output_size)
