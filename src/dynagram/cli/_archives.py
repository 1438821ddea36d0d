"""Files of tensors: what `dynagram predict` and `dynagram simulate` write and `compare` reads.

A .npz archive without pickled objects. Per letter: the array `<letter>` with the layers first and
the samples in the printed order, `<letter>_error` (numerical for a prediction, statistical for a
simulation; absent where the numbers are exact) and `layers_<letter>`, the values of ℓ. For all:
`kind`, `x`, `widths`, the network's TOML text `spec`, and the JSON text `about`.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.cli._output import plain, tell
from dynagram.data._files import load_arrays
from dynagram.errors import InvalidValueError

KINDS = ("prediction", "simulation")
LETTERS = ("K", "G1", "V", "Theta", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")


@dataclass(frozen=True, eq=False)
class Archive:
    """The contents of one file. `about` holds the regime, or the members and the seed."""

    kind: str
    spec: str
    widths: tuple[int, ...]
    x: Float[np.ndarray, "samples n_0"]
    tensors: dict[str, Float[np.ndarray, "layer ..."]]
    errors: dict[str, Float[np.ndarray, "layer ..."]]
    layers: dict[str, tuple[int, ...]]
    about: dict[str, Any] = field(default_factory=dict)

    def error(self, name: str) -> np.ndarray:
        """The standard errors of a letter, zero where its numbers are exact."""
        return self.errors.get(name, np.zeros_like(self.tensors[name]))

    def fan_in(self, name: str) -> np.ndarray:
        """n_{ℓ−1} of a letter's layers, ∞ for ℓ = 1, to divide its array by."""
        n = np.array(
            [np.inf if layer == 1 else self.widths[layer - 1] for layer in self.layers[name]]
        )
        return n.reshape(-1, *[1] * (self.tensors[name].ndim - 1))


def write_archive(path: Path, archive: Archive) -> None:
    """Write all of it or nothing, and say so on stderr."""
    from dynagram.results._files import write_atomically

    arrays: dict[str, Any] = {}
    for name, values in archive.tensors.items():
        arrays[name] = values
        arrays[f"layers_{name}"] = np.array(archive.layers[name])
    arrays |= {f"{name}_error": values for name, values in archive.errors.items()}
    arrays |= {
        "x": archive.x,
        "widths": np.array(archive.widths),
        "spec": np.array(archive.spec),
        "kind": np.array(archive.kind),
        "about": np.array(json.dumps(plain(archive.about), ensure_ascii=False)),
    }
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomically(path, buffer.getvalue())
    tell(f"wrote {path}: {', '.join(archive.tensors)}")


def read_archive(path: Path) -> Archive:
    """Read and check a file; nothing is unpickled and nothing named in it is imported."""
    arrays = load_arrays(path, "file")
    try:
        return _archive(arrays)
    except InvalidValueError as error:
        raise InvalidValueError("file", str(path), str(error)) from error
    except (ValueError, TypeError) as error:
        raise InvalidValueError(
            "file", str(path), "not written by dynagram predict or dynagram simulate"
        ) from error


def _archive(arrays: dict[str, np.ndarray]) -> Archive:
    if missing := [name for name in ("kind", "x", "widths", "spec") if name not in arrays]:
        raise InvalidValueError(
            "missing arrays", ", ".join(missing), "dynagram predict and simulate write them"
        )
    kind, names = str(arrays["kind"]), [name for name in LETTERS if name in arrays]
    if kind not in KINDS or not names:
        raise InvalidValueError("kind", kind, f"expected {' or '.join(KINDS)} of some tensors")
    widths = tuple(int(n) for n in arrays["widths"])
    layers: dict[str, tuple[int, ...]] = {}
    errors: dict[str, np.ndarray] = {}
    for name in names:
        samples = [arrays["x"].shape[0]] * (2 if name in ("K", "G1", "Theta", "H1") else 4)
        of_layers = arrays.get(f"layers_{name}", np.zeros(0, dtype=int))
        layers[name] = tuple(int(layer) for layer in of_layers)
        if any(not 1 <= layer < len(widths) for layer in layers[name]):
            raise InvalidValueError(
                f"layers_{name}", layers[name], f"expected 1 to {len(widths) - 1}"
            )
        if f"{name}_error" in arrays:
            errors[name] = arrays[f"{name}_error"]
        for values in (arrays[name], errors.get(name, arrays[name])):
            if values.shape != (len(layers[name]), *samples):
                raise InvalidValueError(
                    f"shape of {name}", values.shape, f"expected {(len(layers[name]), *samples)}"
                )
    about = json.loads(str(arrays["about"])) if "about" in arrays else {}
    tensors = {name: arrays[name] for name in names}
    return Archive(kind, str(arrays["spec"]), widths, arrays["x"], tensors, errors, layers, about)
