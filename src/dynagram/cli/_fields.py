"""`dynagram fields`: which classes share units, layer by layer, over checkpoints of a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from dynagram.cli._models import Batch, LayerNames, Skip
from dynagram.cli._options import ActivationName, Json
from dynagram.cli._output import console, narrow_table, per_layer, print_json, print_list
from dynagram.errors import InvalidValueError

if TYPE_CHECKING:
    from dynagram.data import Data
    from dynagram.observables.fields._sharing import Sharing
else:
    Data = Sharing = object  # imported when the command runs, so that --help stays quick

# A single real target with at most so many values is taken for classes.
_MOST_CLASSES = 20

Checkpoints = Annotated[
    list[Path],
    typer.Argument(help="Weights of one network, in order of time: .npz, .safetensors, PyTorch."),
]


def fields(
    weights: Checkpoints,
    data: Batch,
    activation: ActivationName,
    layers: LayerNames = None,
    skip: Skip = None,
    samples: Annotated[
        int, typer.Option(min=4, help="At most so many samples, drawn at random; all pairs count.")
    ] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples and the shuffled labels.")] = 0,
    as_json: Json = False,
) -> None:
    """Say which classes share units, layer by layer, at each of several checkpoints.

    Co-activation is the share of units on for both of two samples (for a smooth activation, the
    mean product of slopes); the gap between same and different classes comes with that of shuffled
    labels.
    """
    from dynagram.data._files import as_data, load_batch
    from dynagram.networks._weights import load_weights
    from dynagram.observables.fields import unit_sharing

    batch = load_batch(data, "--data")
    names = None if layers is None else [name.strip() for name in layers.split(",")]
    blocks = None if skip is None else per_layer("--skip", skip, "block")
    seen: list[Sharing] = []
    for path in weights:
        model = load_weights(
            path, activation, inputs=batch["x"].shape[1], layers=names, skip=blocks
        )
        problem = as_data(batch, model.network.output_size)
        labels = _labels(problem)
        chosen = np.arange(len(labels))
        if len(labels) > samples:
            chosen = np.random.default_rng(seed).permutation(len(labels))[:samples]
        seen.append(unit_sharing(model, problem.x[chosen], labels[chosen], seed=seed))
        if len(seen[-1].shared) != len(seen[0].shared):
            count, first = len(seen[-1].shared), len(seen[0].shared)
            allowed = f"{first} hidden layers, as in {weights[0].name}"
            raise InvalidValueError(f"hidden layers of {path.name}", count, f"expected {allowed}")
    if as_json:
        pairs = zip(weights, seen, strict=True)
        print_json({"checkpoints": [{"file": str(p), **s.to_dict()} for p, s in pairs]})
    else:
        _print([path.name for path in weights], seen)


def _labels(problem: Data) -> np.ndarray:
    """The class of every sample."""
    if problem.classes is not None:
        is_single = problem.outputs == 1  # one output stands for two classes
        column = problem.y[:, 0].astype(int) if is_single else np.argmax(problem.y, axis=1)
        return problem.classes[column]
    values = np.unique(problem.y)
    if problem.y.shape[1] == 1 and len(values) <= _MOST_CLASSES:
        return problem.y[:, 0]
    allowed = f"classes: whole numbers, or one number with at most {_MOST_CLASSES} values"
    raise InvalidValueError("y of --data", f"{len(values)} real values", allowed)


def _print(names: list[str], seen: list[Sharing]) -> None:
    out, last = console(), seen[-1]
    out.print("Co-activation of samples of one class and of two, and the gap between them")
    table = narrow_table("layer", "checkpoint", "same", "different", "gap", "shuffled", "kernel")
    for layer in range(1, len(last.shared) + 1):
        for name, sharing in zip(names, seen, strict=True):
            contrast, index = sharing.contrast, layer - 1
            table.add_row(
                str(layer), name,
                f"{contrast.same[index]:.3f}", f"{contrast.different[index]:.3f}",
                f"{contrast.gap[index]:+.3f}", f"±{contrast.gap_deviation[index]:.3f}",
                f"{100 * sharing.kernel_shares[index]:.1f} %",
            )  # fmt: skip
    out.print(table)
    out.print()
    out.print(f"Who shares most with whom at {names[-1]}, relative to what either class uses")
    table = narrow_table("class", *(f"layer {k + 1}" for k in range(len(last.shared))))
    nearest = [last.nearest(layer) for layer in range(1, len(last.shared) + 1)]
    for row in zip(*nearest, strict=True):
        cells = [f"{_word(other)} ({share:.2f})" for _, other, share in row]
        table.add_row(_word(row[0][0]), *cells)
    out.print(table)
    print_list(out, _notes(seen))


def _notes(seen: list[Sharing]) -> list[str]:
    first, last = seen[0].contrast, seen[-1].contrast
    layer = int(np.argmax(last.gap))
    words = [f"The classes are most apart in layer {layer + 1}: gap {last.gap[layer]:+.3f}."]
    if len(seen) > 1:
        change = last.gap - first.gap
        told = ", ".join(f"{value:+.3f}" for value in change)
        words.append(f"From the first checkpoint to the last the gap changes by {told}.")
    return words


def _word(label: Any) -> str:
    return f"{label:g}" if isinstance(label, float) else str(label)
