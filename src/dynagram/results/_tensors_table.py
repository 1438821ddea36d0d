"""`Tensors` as a table for people: one row for every layer, the same for both kinds of result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from dynagram.results._letters import LETTERS
from dynagram.results._table import Grid, short, with_error

if TYPE_CHECKING:
    from dynagram.results._tensors import Tensors
else:
    Tensors = object  # it imports this module

# The power of n that a tensor of an order is divided by in tables, and how that is written.
_POWERS = {"∞": (0, ""), "1/n": (1, "/n"), "1/n²": (2, "/n²")}
# A diagonal below this fraction of a tensor's largest entry is what rounding leaves of a zero.
_ROUNDING = 1e-14
_VERTICES = {
    "corrected": "Vertex V: corrected, what one neuron's past does to the others is kept in full.",
    "published": "Vertex V: published, (B.25) as printed, off by tens of per cent for ReLU-like σ.",
}


def diagonal(
    values: Float[np.ndarray, "layer ..."],
) -> Float[np.ndarray, "layer sample"]:
    """The entries of a tensor with all samples equal."""
    return np.einsum(f"l{'a' * (values.ndim - 1)}->la", values)


def tensors_grid(tensors: Tensors) -> Grid:
    """Diagonal entries of every layer, averaged over samples, as effects: divided by n.

    Predictions and measurements have the same columns. The error of an average is at most the
    average of the errors, which is what stands beside it.
    """
    rows = []
    for layer in sorted({layer for layers in tensors.layers.values() for layer in layers}):
        n = tensors.network.fan_in(layer)
        rows.append((str(layer), str(n), *(_cell(tensors, name, layer) for name in tensors)))
    headings = [name + _POWERS[LETTERS[name].order][1] for name in tensors]
    return Grid(("layer", "fan-in n", *headings), tuple(rows), tuple(_notes(tensors)), keys=2)


def _cell(tensors: Tensors, name: str, layer: int) -> str:
    if layer not in tensors.layers[name]:
        return "–"
    place, values = tensors.layers[name].index(layer), tensors[name]
    power, _ = _POWERS[LETTERS[name].order]
    factor = float(tensors.network.fan_in(layer)) ** -power
    size = factor * float(np.max(np.abs(values)))
    value = factor * float(diagonal(values)[place].mean())
    error = factor * float(diagonal(tensors.error(name))[place].mean())
    return with_error(value if abs(value) > _ROUNDING * size else 0.0, error, size)


def _notes(tensors: Tensors) -> list[str]:
    samples = tensors.x.shape[0]
    averaged = f", averaged over the {samples} samples" if samples > 1 else ""
    entries = f"Diagonal entries (all samples equal){averaged}."
    if tensors.order != "measured":
        notes = [entries, "With /n: order 1/n, else infinite width. ±: numerical error."]
        return [*notes, *([_VERTICES[v]] if (v := tensors.about.get("vertex")) else [])]
    of = f"{tensors.members} networks (seed {tensors.seed})"
    notes = [entries, f"{of}, at all orders in 1/n. ±: standard error; without: exact."]
    if not tensors.about.get("complete", True):
        notes.append("The run is not finished.")
    if worst := tensors.about.get("worst"):
        error = short(worst["error"], 2)
        notes.append(f"Worst standard error: {error} of the size of {worst['tensor']}.")
    return notes
