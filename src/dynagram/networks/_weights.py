"""Weights of a user's own network, from .npz, .safetensors or a PyTorch state dict, in layer order.

What is wanted is a chain of dense layers: matrices (out, in), or (in, out) as Flax and Keras store
them, with a bias each or none. Names and order are taken from the file where the shapes allow it,
and every guess is written down in `notes`; what is no such chain is refused with its shapes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks._weight_files import read_tensors

if TYPE_CHECKING:
    from dynagram.networks import MLP, Params

_KINDS = {"weight": "W", "weights": "W", "W": "W", "w": "W", "kernel": "W"}
_KINDS |= {"bias": "b", "biases": "b", "b": "b"}
_NAME = re.compile(
    r"(?:(?P<stem>.*)[._/:-])?(?P<kind>weights?|kernel|bias(?:es)?|[Wwb])[._/:-]?(?P<number>\d*)"
)


@dataclass(frozen=True, eq=False)
class Weights:
    """A chain of dense layers: W[ℓ-1] is (n_ℓ, n_{ℓ-1}), b[ℓ-1] is (n_ℓ,), zero where `biased` is
    False; `names` are those of the weight matrices; `notes` say what had to be guessed."""

    names: tuple[str, ...]
    W: tuple[Float[np.ndarray, "_ _"], ...]
    b: tuple[Float[np.ndarray, " _"], ...]
    biased: tuple[bool, ...]
    notes: tuple[str, ...] = ()

    @property
    def widths(self) -> tuple[int, ...]:
        """(n_0, …, n_L)."""
        return (self.W[0].shape[1], *(W.shape[0] for W in self.W))

    def network(self, activation: Any) -> MLP:
        """The network with these widths, every parameter at learning rate 1.

        In the library's convention weights move at λ_W/n_{ℓ-1}, so λ_W is the fan-in.
        """
        from dynagram.networks import MLP

        rates = [float(biased) for biased in self.biased]
        fan_in = [float(n) for n in self.widths[:-1]]
        return MLP(self.widths, activation, 0.0, 1.0, lambda_b=rates, lambda_W=fan_in)

    def params(self) -> Params:
        """The parameters as `MLP.apply` wants them."""
        import jax.numpy as jnp

        from dynagram.networks import Layer

        pairs = zip(self.b, self.W, strict=True)
        return tuple(Layer(jnp.asarray(b), jnp.asarray(W)) for b, W in pairs)


def load_weights(
    path: str | Path, *, inputs: int | None = None, layers: Sequence[str] | None = None
) -> Weights:
    """Read a file and put its layers in order.

    `inputs`, the number of input features, helps where the shapes leave a choice. `layers` names
    the weight matrices in order and overrules every guess.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "net.npz"
    ...     np.savez(file, W2=np.ones((1, 3)), b1=np.zeros(3), W1=np.ones((3, 2)))
    ...     found = load_weights(file)
    >>> found.names, found.widths, found.biased
    (('W1', 'W2'), (2, 3, 1), (True, False))
    """
    return chain(read_tensors(Path(path)), inputs=inputs, layers=layers)


def chain(
    tensors: Mapping[str, np.ndarray],
    *,
    inputs: int | None = None,
    layers: Sequence[str] | None = None,
) -> Weights:
    """Named arrays as an ordered chain of dense layers; `load_weights` says what is what.

    >>> chain({"b": np.zeros(3), "W": np.ones((3, 2))}).names
    ('W',)
    """
    found = _sorted_out(tensors)
    if layers is not None:
        by_name = {matrix.name: matrix for matrix in found}
        if unknown := [name for name in layers if name not in by_name]:
            raise InvalidValueError("layers", unknown, f"the matrices are {', '.join(by_name)}")
        given = [by_name[name] for name in layers]
        for transposed in _layouts(given):
            if _fits(given, transposed, inputs):
                return _weights(given, transposed, ())
        raise InvalidValueError("layers", list(layers), f"do not fit: {_shapes(given, inputs)}")
    natural = sorted(found, key=lambda matrix: _natural(matrix.name))
    # Names that differ in their numbers alone say the order; other names leave it to the file.
    numbered = len({re.sub(r"\d+", "", matrix.name) for matrix in found}) == 1
    orders = [natural, found] if numbered else [found, natural]
    for transposed in _layouts(found):
        fitting = [order for order in orders if _fits(order, transposed, inputs)]
        if fitting:
            return _weights(fitting[0], transposed, _notes_on(fitting, transposed, inputs))
        if (order := _only_chain(found, transposed, inputs)) is not None:
            names = ", ".join(matrix.name for matrix in order)
            return _weights(order, transposed, (f"layers ordered by their shapes: {names}",))
    raise InvalidValueError(
        "weights", _shapes(found, inputs), "no chain of dense layers; name them in order"
    )


# --- names ------------------------------------------------------------------------------------


class _Matrix(NamedTuple):
    name: str
    values: np.ndarray
    bias: np.ndarray | None
    stored_transposed: bool  # by convention of the name, not by what fits


def _sorted_out(tensors: Mapping[str, np.ndarray]) -> list[_Matrix]:
    """The matrices in the file's order, each with its bias; refused when anything is left over."""
    matrices: dict[tuple[str, str], str] = {}
    biases: dict[tuple[str, str], np.ndarray] = {}
    previous: tuple[str, str] | None = None
    for name, values in tensors.items():
        kind, key = _parsed(name)
        values = _checked(name, values)
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


def _parsed(name: str) -> tuple[str, tuple[str, str]]:
    """W, b or nothing, and what identifies the layer: stem and number."""
    match = _NAME.fullmatch(name)
    if match is None:
        return "", (name, "")
    return _KINDS[match["kind"]], (match["stem"] or "", match["number"])


def _checked(name: str, values: np.ndarray) -> np.ndarray:
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


def _natural(name: str) -> list[tuple[int, str | int]]:
    """Sorts layer10 behind layer9."""
    parts = re.split(r"(\d+)", name)
    return [(1, int(part)) if part.isdigit() else (0, part) for part in parts]


# --- order ------------------------------------------------------------------------------------


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
    found = [list(order) for order in orders if _fits(order, transposed, inputs)]
    return found[0] if len(found) == 1 else None


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


def _weights(order: Sequence[_Matrix], transposed: bool, notes: tuple[str, ...]) -> Weights:
    W = [matrix.values.T if transposed else matrix.values for matrix in order]
    b = [
        np.zeros(w.shape[0]) if m.bias is None else m.bias.astype(np.float64)
        for m, w in zip(order, W, strict=True)
    ]
    names, biased = zip(*((m.name, m.bias is not None) for m in order), strict=True)
    return Weights(names, tuple(np.ascontiguousarray(w) for w in W), tuple(b), biased, notes)


def _shapes(matrices: Sequence[_Matrix], inputs: int | None) -> str:
    listed = ", ".join(f"{m.name} {m.values.shape}" for m in matrices)
    return listed if inputs is None else f"{listed} for {inputs} inputs"
