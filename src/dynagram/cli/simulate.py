"""`dynagram simulate`: the tensors of a network measured on an ensemble of concrete draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from dynagram.cli.archives import LETTERS, Archive, write_archive
from dynagram.cli.common import console, narrow_table, print_json, progress_bar, short
from dynagram.cli.options import (
    ActivationName,
    BiasRate,
    BiasVariance,
    Inputs,
    Json,
    Members,
    Output,
    Tensors,
    WeightRate,
    WeightVariance,
    Widths,
    check_archive_path,
    letters,
    load_inputs,
    make_network,
)
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.ensembles.statistics import Estimate
    from dynagram.networks import MLP
else:
    Estimate = MLP = object  # imported when the command runs, so that --help stays quick

# What the library calls the measured means; the other letters are the same in both.
_ALL_LAYERS = {"K": "G", "G1": "G1", "V": "V"}
_OUTPUT_LAYER = {"Theta": "H"} | {name: name for name in LETTERS[4:]}


def simulate(
    inputs: Inputs,
    widths: Widths,
    activation: ActivationName,
    cb: BiasVariance = None,
    cw: WeightVariance = None,
    lambda_b: BiasRate = "1",
    lambda_w: WeightRate = "1",
    tensors: Tensors = "K,V,G1",
    output: Output = None,
    members: Members = 20_000,
    seed: Annotated[int, typer.Option(help="Of the ensemble.")] = 0,
    as_json: Json = False,
) -> None:
    """Draw networks and measure their tensors, with standard errors.

    K and Theta are here the measured means, which contain all orders in 1/n. K, G1 and V are
    measured in every layer, the others at the output, for which two outputs or more are needed.
    """
    check_archive_path(output)
    x = load_inputs(inputs)
    network = make_network(widths, activation, cb, cw, lambda_b, lambda_w)
    names = letters(tensors)
    if unknown := [name for name in names if name not in LETTERS]:
        raise InvalidValueError(
            "--tensors", ",".join(unknown), f"expected some of {','.join(LETTERS)}"
        )
    archive = _archive(network, x, names, members, seed)
    if output is not None:
        write_archive(output, archive)
    if as_json:
        print_json(_summary(archive))
    else:
        _print(network, archive)


def _archive(network: MLP, x: np.ndarray, names: Sequence[str], members: int, seed: int) -> Archive:
    from dynagram.networks import check_inputs

    x = check_inputs(x, network.widths[0])
    everywhere = tuple(range(1, network.depth + 1))
    found: dict[str, Estimate] = {}
    layers: dict[str, tuple[int, ...]] = {}
    if tangents := [name for name in names if name in _OUTPUT_LAYER]:
        found |= _tangents(network, x, tangents, members, seed)
        layers |= dict.fromkeys(tangents, (network.depth,))
    if kernels := [name for name in names if name in _ALL_LAYERS]:
        found |= _kernels(network, x, kernels, members, seed)
        layers |= dict.fromkeys(kernels, everywhere)
    return Archive(
        kind="simulation",
        spec=network.to_toml(),
        widths=network.widths,
        x=x,
        tensors={name: found[name].value for name in names},
        errors={name: found[name].standard_error for name in names},
        layers={name: layers[name] for name in names},
        about={"members": members, "seed": seed},
    )


def _kernels(
    network: MLP, x: np.ndarray, names: Sequence[str], members: int, seed: int
) -> dict[str, Estimate]:
    from dynagram.ensembles.initial import measure_kernels

    with progress_bar("measuring kernels", members) as progress:
        # Weights are drawn, although the metrics alone would be faster: no theory is taken for
        # granted, and the networks are those of the tangent tensors.
        ensemble = measure_kernels(
            network, x, members=members, seed=seed, sampler="weights", progress=progress,
            tensors=[_ALL_LAYERS[name] for name in names],
        )  # fmt: skip
    return {name: getattr(ensemble, _ALL_LAYERS[name]) for name in names}


def _tangents(
    network: MLP, x: np.ndarray, names: Sequence[str], members: int, seed: int
) -> dict[str, Estimate]:
    from dynagram.ensembles.statistics import Estimate
    from dynagram.ensembles.tangent import measure_tangents
    from dynagram.theory.frozen import frozen_kernels

    Theta = frozen_kernels(network, x).Theta[-1] if "H1" in names else None
    with progress_bar("measuring tangent kernels", members) as progress:
        ensemble = measure_tangents(
            network, x, members=members, seed=seed, kernel_mean=Theta, progress=progress,
            tensors=[_OUTPUT_LAYER[name] for name in names],
        )  # fmt: skip
    estimates = {name: getattr(ensemble, _OUTPUT_LAYER[name]) for name in names}
    return {
        name: Estimate(e.value[None], e.standard_error[None], e.count)
        for name, e in estimates.items()
    }


def _diagonal(values: np.ndarray) -> np.ndarray:
    """All samples equal, shape (layer, sample)."""
    return np.einsum({3: "laa->la", 5: "laaaa->la"}[values.ndim], values)


def _summary(archive: Archive) -> dict[str, Any]:
    diagonals = {
        name: [
            {"layer": layer, "value": value, "standard_error": error}
            for layer, value, error in zip(
                archive.layers[name],
                _diagonal(archive.tensors[name]),
                _diagonal(archive.errors[name]),
                strict=True,
            )
        ]
        for name in archive.tensors
    }
    samples = archive.x.shape[0]
    return {"network": archive.spec, "samples": samples, **archive.about, "diagonals": diagonals}


def _print(network: MLP, archive: Archive) -> None:
    out = console()
    out.print(str(network), markup=False)
    table = narrow_table("tensor", "layer", "estimate", "standard error")
    for column in table.columns[1:]:
        column.justify = "right"
    for row in (
        (name, index) for name in archive.tensors for index in range(len(archive.layers[name]))
    ):
        name, index = row
        value = float(_diagonal(archive.tensors[name])[index, 0])
        error = float(_diagonal(archive.errors[name])[index, 0])
        layer = archive.layers[name][index]
        table.add_row(name, str(layer), short(value), short(error, 2) if error else "exact")
    out.print(table)
    out.print()
    members, seed = archive.about["members"], archive.about["seed"]
    out.print(
        f"Entries of the first sample with itself, over {members} networks (seed {seed}), at all "
        "orders in 1/n. K and Theta are means; the others are to be divided by the fan-in n."
    )
