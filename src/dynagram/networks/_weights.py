"""Weights of a user's own network, from .npz, .safetensors or a PyTorch state dict, in layer order.

What is wanted is a chain of dense layers: matrices (out, in), or (in, out) as Flax and Keras store
them, with a bias each or none. Names and order are taken from the file where the shapes allow it,
and every guess is written down in `notes`; what is no such chain is refused with its shapes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks._checks import ActivationLike, PerLayer
from dynagram.networks._model import Model
from dynagram.networks._weight_files import read_tensors

_KINDS = {"weight": "W", "weights": "W", "W": "W", "w": "W", "kernel": "W"}
_KINDS |= {"bias": "b", "biases": "b", "b": "b"}
_NAME = re.compile(
    r"(?:(?P<stem>.*)[._/:-])?(?P<kind>weights?|kernel|bias(?:es)?|[Wwb])[._/:-]?(?P<number>\d*)"
)
_ATTENTION = re.compile(
    r"(?:^|[._/])(?:\w*attn|\w*attention|[qkvo]_proj|in_proj\w*|query|key|value|qkv|Wqkv)(?:[._/]|$)"
)
_SEQUENTIAL = re.compile(r"(?:\w+\.)?(\d+)\.weight")


def load_weights(
    path: str | Path,
    activation: ActivationLike,
    *,
    inputs: int | None = None,
    layers: Sequence[str] | None = None,
    skip: PerLayer | None = None,
) -> Model:
    """Read the weights of a network from a file and put its layers in order.

    **Arguments:**

    - `path`: a .npz, .safetensors or PyTorch file; nothing in it is executed.
    - `activation`: σ of the hidden layers, which no such file says.
    - `inputs`: the number of input features; helps where the shapes leave a choice.
    - `layers`: the names of the weight matrices in order; overrules every guess.
    - `skip`: γ of the blocks ℓ = 2..L−1, as for an `MLP`: which no such file says either. Needed
        where hidden layers have equal widths, so that skips are possible, unless the names are
        those of a `torch.nn.Sequential` with activations in between; 0 for a plain network. Other
        networks are read live, by `Model.of`.

    **Returns:** a `Model` in float64, whose `names` are those of the matrices and whose `notes`
    say what had to be guessed. Every parameter has the learning rate 1; a bias that is not in the
    file is zero and does not learn.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "net.npz"
    ...     np.savez(file, W2=np.ones((1, 3)), b1=np.zeros(3), W1=np.ones((3, 2)))
    ...     model = load_weights(file, "tanh")
    >>> model.names, model.network.widths, model.network.lambda_b
    (('W1', 'W2'), (2, 3, 1), (1.0, 0.0))
    """
    return assemble_model(
        read_tensors(Path(path)), activation, inputs=inputs, layers=layers, skip=skip
    )


def assemble_model(
    tensors: Mapping[str, np.ndarray],
    activation: ActivationLike,
    *,
    inputs: int | None = None,
    layers: Sequence[str] | None = None,
    skip: PerLayer | None = None,
) -> Model:
    """Named arrays as an ordered chain of dense layers; `load_weights` says what is what.

    >>> assemble_model({"b": np.zeros(3), "W": np.ones((3, 2))}, "relu").names
    ('W',)
    """
    _refuse_attention(tensors)
    order, transposed, notes = _find_order(_sort_tensors(tensors), inputs, layers)
    if skip is None:
        _check_plain(order)
        skip = 0.0
    return Model.of_matrices(
        [matrix.values.T if transposed else matrix.values for matrix in order],
        activation,
        biases=[matrix.bias for matrix in order],
        skip=skip,
        names=[matrix.name for matrix in order],
        notes=notes,
    )


def _refuse_attention(tensors: Mapping[str, np.ndarray]) -> None:
    """Matrices of attention chain up like dense layers: their names tell them apart."""
    if heads := [name for name in tensors if _ATTENTION.search(name)]:
        allowed = (
            "of attention, which is no chain of dense layers: pass the model, Model.of(module)"
        )
        raise InvalidValueError("weights", heads[0], allowed)


def _check_plain(order: Sequence[_Matrix]) -> None:
    """Refuse hidden layers of equal widths, which may have skips that no file tells of."""
    square = [m.name for m in order[1:-1] if m.values.shape[0] == m.values.shape[1]]
    if not square:
        return
    places = [int(match[1]) for m in order if (match := _SEQUENTIAL.fullmatch(m.name))]
    if len(places) == len(order) and all(b - a > 1 for a, b in itertools.pairwise(places)):
        return  # in a row, with activations in between
    allowed = (
        f"needed: {square[0]} has equal widths, so that the network may be plain or residual, and "
        "a file does not say; 0 for plain, γ for skips, or pass the model itself, Model.of(module)"
    )
    raise InvalidValueError("skip", None, allowed)


# --- names ------------------------------------------------------------------------------------


class _Matrix(NamedTuple):
    name: str
    values: np.ndarray
    bias: np.ndarray | None
    stored_transposed: bool  # by convention of the name, not by what fits


def _sort_tensors(tensors: Mapping[str, np.ndarray]) -> list[_Matrix]:
    """The matrices in the file's order, each with its bias; refused when anything is left over."""
    matrices: dict[tuple[str, str], str] = {}
    biases: dict[tuple[str, str], np.ndarray] = {}
    previous: tuple[str, str] | None = None
    for name, values in tensors.items():
        kind, key = _parse(name)
        values = _check(name, values)
        if values.ndim == 2 and not (kind == "b" and 1 in values.shape):
            if key in matrices:
                raise InvalidValueError("weights", [matrices[key], name], "one layer, two matrices")
            matrices[key], previous = name, key
            continue
        values = values.reshape(-1)
        if kind == "":  # unnamed: the bias of the matrix just before it
            key = previous or key
        if kind == "W" or key in biases:
            allowed = "not a dense layer's (a normalisation layer?): only W h + b is understood"
            raise InvalidValueError("weights", f"{name} {values.shape}", allowed)
        biases[key] = values
    if stray := [key for key in biases if key not in matrices]:
        names = [".".join(part for part in key if part) or "b" for key in stray]
        raise InvalidValueError("weights", names, "a vector that belongs to no weight matrix")
    if not matrices:
        raise InvalidValueError("weights", list(tensors), "no weight matrix in this file")
    return [
        _Matrix(
            name,
            np.asarray(tensors[name], dtype=np.float64),
            biases.get(key),
            "kernel" in name.lower(),
        )
        for key, name in matrices.items()
    ]


def _parse(name: str) -> tuple[str, tuple[str, str]]:
    """W, b or nothing, and what identifies the layer: stem and number."""
    match = _NAME.fullmatch(name)
    if match is None:
        return "", (name, "")
    return _KINDS[match["kind"]], (match["stem"] or "", match["number"])


def _check(name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind != "f":
        allowed = f"{values.dtype} is no floating-point type (a counter of batch normalisation?)"
        raise InvalidValueError("weights", name, allowed)
    if values.ndim > 2:
        allowed = "a convolution or attention tensor: only chains of dense layers are understood"
        raise InvalidValueError("weights", f"{name} {values.shape}", allowed)
    if values.ndim == 0 or values.size == 0:
        raise InvalidValueError("weights", f"{name} {values.shape}", "expected matrices, vectors")
    if not np.all(np.isfinite(values)):
        raise NonFiniteError(f"{name} is not finite: the run that wrote it diverged")
    return values


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts layer10 behind layer9: of two numbers the longer is larger, however long."""
    digits = (part.lstrip("0") for part in re.split(r"(\d+)", name))
    return [(len(part) if part.isdigit() else 0, part) for part in digits]


# --- order ------------------------------------------------------------------------------------


def _find_order(
    matrices: list[_Matrix], inputs: int | None, layers: Sequence[str] | None
) -> tuple[list[_Matrix], bool, tuple[str, ...]]:
    """The matrices in layer order, whether they are transposed, and notes on what was guessed."""
    if layers is not None:
        by_name = {matrix.name: matrix for matrix in matrices}
        if unknown := [name for name in layers if name not in by_name]:
            raise InvalidValueError("layers", unknown, f"the matrices are {', '.join(by_name)}")
        given = [by_name[name] for name in layers]
        for transposed in _layouts(given):
            if _fits(given, transposed, inputs):
                return given, transposed, ()
        raise InvalidValueError("layers", list(layers), f"do not fit: {_shapes(given, inputs)}")
    natural = sorted(matrices, key=lambda matrix: _natural(matrix.name))
    # Names that differ in their numbers alone say the order; other names leave it to the file.
    numbered = len({re.sub(r"\d+", "", matrix.name) for matrix in matrices}) == 1
    orders = [natural, matrices] if numbered else [matrices, natural]
    for transposed in _layouts(matrices):
        fitting = [order for order in orders if _fits(order, transposed, inputs)]
        if fitting:
            return fitting[0], transposed, _notes_on(fitting, transposed, inputs)
        if (order := _only_chain(matrices, transposed, inputs)) is not None:
            names = ", ".join(matrix.name for matrix in order)
            return order, transposed, (f"layers ordered by their shapes: {names}",)
    if inputs is not None:  # a chain, but of other inputs?
        order, transposed, _ = _find_order(matrices, None, None)
        first, takes = order[0].name, _shape(order[0], transposed)[1]
        raise InvalidValueError("inputs", inputs, f"{first} takes {takes} features, not as many")
    raise InvalidValueError(
        "weights", _shapes(matrices, inputs), "no chain of dense layers; name them in order"
    )


def _layouts(matrices: Sequence[_Matrix]) -> tuple[bool, bool]:
    """Whether matrices are transposed, the likelier answer first."""
    by_name = all(matrix.stored_transposed for matrix in matrices)
    return by_name, not by_name


def _fits(order: Sequence[_Matrix], transposed: bool, inputs: int | None) -> bool:
    shapes = [_shape(matrix, transposed) for matrix in order]
    if inputs is not None and shapes[0][1] != inputs:
        return False
    if any(below[0] != above[1] for below, above in itertools.pairwise(shapes)):
        return False
    pairs = zip(order, shapes, strict=True)
    return all(m.bias is None or m.bias.size == shape[0] for m, shape in pairs)


def _shape(matrix: _Matrix, transposed: bool) -> tuple[int, int]:
    rows, columns = matrix.values.shape
    return (columns, rows) if transposed else (rows, columns)


def _only_chain(
    matrices: Sequence[_Matrix], transposed: bool, inputs: int | None
) -> list[_Matrix] | None:
    """The one order in which the shapes fit, if there is exactly one; few layers only."""
    if len(matrices) > 7:
        return None
    orders = itertools.permutations(matrices)
    fitting = [list(order) for order in orders if _fits(order, transposed, inputs)]
    return fitting[0] if len(fitting) == 1 else None


def _notes_on(
    fitting: Sequence[list[_Matrix]], transposed: bool, inputs: int | None
) -> tuple[str, ...]:
    notes, chosen = [], fitting[0]
    names = [", ".join(matrix.name for matrix in order) for order in fitting]
    if len(set(names)) > 1:
        notes.append(f"two orders of the layers fit; taken: {names[0]}")
    if transposed:
        notes.append("matrices are stored as (in, out) and were transposed")
    elif _fits(chosen, True, inputs) and all(
        m.values.shape[0] == m.values.shape[1] for m in chosen
    ):
        notes.append("all matrices are square; taken as (out, in)")
    return tuple(notes)


def _shapes(matrices: Sequence[_Matrix], inputs: int | None) -> str:
    listed = ", ".join(f"{m.name} {m.values.shape}" for m in matrices)
    return listed if inputs is None else f"{listed} for {inputs} inputs"
