"""The TOML file of a training problem: tables [network], [data] and [training] or [posterior].

    [network]                  # as MLP.from_toml reads it
    widths = [4, 32, 32, 2]
    activation = "tanh"
    C_b = 0.0
    C_W = 1.0
    [data]
    train_x = "x.npy"          # (N_A, n_0); paths are relative to the TOML file
    train_y = "y.npy"          # (N_A, n_L)
    test_x = "t.npy"           # (N_B, n_0); test_y may be given too
    [training]                 # as Training.from_toml reads it; [posterior] with a noise instead
    algorithm = "gd"           # "gd" with eta, "flow", "two-step", "adam", …
    eta = 0.1
    loss = "half-sum"          # ½ Σ (z − y)²; or "mean"
    steps = 100                # a `time` τ for "flow"; without either, to the end
    record = [1, 10, 100]      # moments that are looked at; left out: the last

Few numbers can stand in the file: train_x = [[0.5, 1.0], [2.0, 1.0]], one row per sample. Instead
of these, [data] takes `name = "digits"` (or "mnist", "svhn", "cifar10" with `folder`) and
`classes`, `train`, `test`, `seed`. Pixels are then divided by the root mean square of the training
images; targets are ±1 for two classes and one output, else one-hot.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dynagram._toml import parse_toml
from dynagram.data import Data, digits, load_array, local_images
from dynagram.data._files import read_bytes
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, Chain, Network, load_network
from dynagram.networks._checks import checked_choice, checked_integer
from dynagram.networks._network import network_from_toml
from dynagram.training import Posterior, Training

_TABLES = ("network", "data", "training", "posterior")
_FILES = ("train_x", "train_y", "test_x", "test_y")
_NAMED = ("name", "classes", "train", "test", "seed", "folder")
# Bytes of Python objects per byte of a file, as it is read.
_TOML_FACTOR = 40.0
_IMAGES = ("mnist", "svhn", "cifar10")


@dataclass(frozen=True, eq=False)
class Config:
    """A network, what it learns and is asked, and how it learns."""

    network: MLP | Chain
    data: Data
    how: Training | Posterior


def read_config(path: str | Path, *, network: str | Path | None = None) -> Config:
    """Read and check the TOML file of a training problem; nothing is unpickled.

    **Arguments:**

    - `path`: the file; the paths in it are relative to its folder.
    - `network`: another file, with the network that this one then does not describe: see
        `dynagram.networks.load_network`.

    **Returns:** `Config`, for `predict_outputs` and for ensembles.

    >>> import tempfile
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, array in {"x": np.eye(2), "y": np.ones((2, 1)), "t": np.ones((3, 2))}.items():
    ...     np.save(folder / f"{name}.npy", array)
    >>> lines = ['[network]', 'widths = [2, 8, 1]', 'activation = "tanh"', 'C_b = 0', 'C_W = 1',
    ...          '[data]', 'train_x = "x.npy"', 'train_y = "y.npy"', 'test_x = "t.npy"',
    ...          '[training]', 'algorithm = "flow"', 'time = 3.0']
    >>> _ = (folder / "run.toml").write_text("\\n".join(lines))
    >>> config = read_config(folder / "run.toml")
    >>> config.data, config.how.name, config.how.recorded
    (Data(2 training samples, 3 test samples, 2 inputs, 1 output), 'flow', (3.0,))
    """
    path = Path(path)
    contents = read_bytes(path, "config", _TOML_FACTOR)
    try:
        text = contents.decode()
    except ValueError as error:
        allowed = "not a TOML file: it is not even text"
        raise InvalidValueError("config", str(path), allowed) from error
    return parse_config(text, path.parent, name=str(path), network=network)


def parse_config(
    text: str,
    folder: Path,
    *,
    name: str = "text",
    network: str | Path | None = None,
    at_most: tuple[int, int] | None = None,
) -> Config:
    """The training problem of a TOML text; see `read_config`.

    **Arguments:**

    - `text`: the contents of such a file.
    - `folder`: what the paths in it are relative to.
    - `name`: where it came from, for messages.
    - `network`: as for `read_config`.
    - `at_most`: for data with a name, take so many training and test samples instead of those it
        says, or as many as there are in that proportion.

    **Returns:** `Config`.
    """
    tables = _tables(text, name)
    _refuse_unknown("tables", tables, _TABLES)
    if network is not None and "network" in tables:
        allowed = "has a table [network] already: leave out the table, or the other file"
        raise InvalidValueError("config", name, allowed)
    for table in ("data",) if network is not None else ("network", "data"):
        if not isinstance(tables.get(table), dict):
            raise InvalidValueError("config", name, f"the table [{table}] must be given")
    if ("training" in tables) == ("posterior" in tables):
        allowed = "one of the tables [training] and [posterior] must be given"
        raise InvalidValueError("config", name, allowed)
    learning = Training if "training" in tables else Posterior
    data = _read_data(tables["data"], folder, at_most)
    size, outputs = data.x.shape[1], data.outputs
    made = (
        network_from_toml(text)
        if network is None
        else load_network(network, input_size=size, outputs=outputs)
    )
    data = _fitted(data, made) if "name" in tables["data"] else data
    return Config(made, data.check(made), learning.from_toml(text))


def _tables(text: str, name: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except (ValueError, RecursionError) as error:
        raise InvalidValueError("config", name, f"not a TOML file: {error}") from error


def _refuse_unknown(where: str, table: dict[str, Any], allowed: tuple[str, ...]) -> None:
    if unknown := [key for key in table if key not in allowed]:
        known = ", ".join(allowed)
        raise InvalidValueError(where, ", ".join(unknown), f"unknown; allowed: {known}")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidTypeError(name, value, "expected a text in quotes")
    return value


def _read_data(table: dict[str, Any], folder: Path, at_most: tuple[int, int] | None = None) -> Data:
    if "name" in table:
        _refuse_unknown("[data]", table, _NAMED)
        return _named(table, folder, at_most)
    _refuse_unknown("[data]", table, (*_FILES, "name"))
    if missing := [key for key in _FILES[:3] if key not in table]:
        raise InvalidValueError("[data]", ", ".join(missing), "must be given, or a name")
    arrays = {key: _array(key, value, folder) for key, value in table.items()}
    return Data(*(arrays.get(key) for key in _FILES))


def _array(key: str, value: object, folder: Path) -> np.ndarray:
    """The numbers of a file, or those that stand here."""
    if not isinstance(value, list):
        return load_array(folder / _text(key, value), key)
    try:
        return np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        allowed = "expected the name of a file, or rows of numbers of one length"
        raise InvalidValueError(key, _shortened(value), allowed) from error


def _shortened(value: object, most: int = 60) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"


def _named(table: dict[str, Any], folder: Path, at_most: tuple[int, int] | None) -> Data:
    """Images of some classes: the first `train` of a seeded order, then `test` others."""
    name = checked_choice("[data] name", table["name"], ("digits", *_IMAGES))
    if name in _IMAGES and "folder" not in table:
        raise InvalidValueError("[data] folder", None, f"{name} needs the folder of its files")
    images = (
        digits()
        if name == "digits"
        else local_images(name, folder / _text("[data] folder", table["folder"]))
    )
    classes = table.get("classes")
    if classes is not None and not (
        isinstance(classes, list) and all(isinstance(c, int) for c in classes)
    ):
        raise InvalidTypeError("[data] classes", classes, "expected a list of whole numbers")
    sizes = [checked_integer(f"[data] {key}", table.get(key, 16), 1) for key in ("train", "test")]
    seed = checked_integer("[data] seed", table.get("seed", 0), 0)
    if at_most is not None:
        there = len(images.subset(classes=classes).labels)
        share = min(1.0, there / sum(at_most))
        sizes = [max(1, int(share * size)) for size in at_most]
    return images.split(*sizes, classes=classes, seed=seed)


def _fitted(data: Data, network: Network) -> Data:
    """Targets ±1 for two classes and one output; else as many outputs as there are classes."""
    if network.output_size == 1 and data.outputs == 2:
        y, test_y = (2.0 * hot[:, 1:] - 1.0 for hot in (data.y, data.test_y) if hot is not None)
        return Data(data.x, y, data.test_x, test_y)
    if data.outputs != network.output_size:
        allowed = f"{data.outputs} classes need as many outputs (or 1 for two)"
        raise InvalidValueError("outputs of the network", network.output_size, allowed)
    return data
