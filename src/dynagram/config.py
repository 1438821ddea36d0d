"""The TOML file of a training problem: tables [network], [data] and [training].

    [network]                  # as MLP.from_toml reads it
    widths = [4, 32, 32, 2]
    activation = "tanh"
    C_b = 0.0
    C_W = 1.0
    [data]
    train_x = "x.npy"          # (N_A, n_0); paths are relative to the TOML file
    train_y = "y.npy"          # (N_A, n_L)
    test_x = "t.npy"           # (N_B, n_0); test_y may be given too
    [training]
    algorithm = "gd"           # "gd" with eta, "flow" or "two-step"
    eta = 0.1                  # for the loss ½ Σ (z − y)², summed over samples and outputs
    steps = 100                # "gd" only; a `time` τ for "flow"; without either, to the end

Instead of files, [data] takes `name = "digits"` (or "mnist", "svhn", "cifar10" with `folder`) and
`classes`, `train`, `test`, `seed`. Pixels are then divided by the root mean square of the training
images; targets are ±1 for two classes and one output, else one-hot.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from dynagram.data import digits, load_array, local_images
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, check_inputs
from dynagram.theory.training._algorithms import Algorithm
from dynagram.theory.training._decay import Decay
from dynagram.theory.training._problem import check_targets

_TABLES = ("network", "data", "training")
_FILES = ("train_x", "train_y", "test_x", "test_y")
_NAMED = ("name", "classes", "train", "test", "seed", "folder")
_IMAGES = ("mnist", "svhn", "cifar10")
_TRAINING = ("algorithm", "eta", "steps", "time")


@dataclass(frozen=True, eq=False)
class Config:
    """A network, what it is trained on, where it is asked, and how it is trained.

    `steps` of gradient descent or a `time` of flow; None for both is the end of training.
    """

    network: MLP
    train_x: Float[np.ndarray, "train n_0"]
    train_y: Float[np.ndarray, "train outputs"]
    test_x: Float[np.ndarray, "test n_0"]
    test_y: Float[np.ndarray, "test outputs"] | None
    algorithm: str
    eta: float | None
    steps: int | None
    time: float | None


def read_config(path: str | Path) -> Config:
    """Read and check the TOML file at `path`; nothing is unpickled.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name, array in {"x": np.eye(2), "y": np.ones((2, 1)), "t": np.ones((3, 2))}.items():
    ...     np.save(folder / f"{name}.npy", array)
    >>> lines = ['[network]', 'widths = [2, 8, 1]', 'activation = "tanh"', 'C_b = 0', 'C_W = 1',
    ...          '[data]', 'train_x = "x.npy"', 'train_y = "y.npy"', 'test_x = "t.npy"',
    ...          '[training]', 'algorithm = "flow"']
    >>> _ = (folder / "run.toml").write_text("\\n".join(lines))
    >>> config = read_config(folder / "run.toml")
    >>> config.network.widths, config.test_x.shape, config.algorithm, config.eta
    ((2, 8, 1), (3, 2), 'flow', None)
    """
    path = Path(path)
    tables, text = _parsed(path)
    _refuse_unknown("tables", tables, _TABLES)
    for name in ("network", "data"):
        if not isinstance(tables.get(name), dict):
            raise InvalidValueError("config", str(path), f"the table [{name}] must be given")
    network = MLP.from_toml(text)
    arrays = _data(tables["data"], path.parent, network)
    training = tables.get("training", {})
    if not isinstance(training, dict):
        raise InvalidTypeError("training", training, "expected a table")
    _refuse_unknown("[training]", training, _TRAINING)
    chosen = Algorithm.checked(
        _text("[training] algorithm", training.get("algorithm", "gd")), training.get("eta")
    )
    steps, time = training.get("steps"), training.get("time")
    if steps is not None or time is not None:
        decay = Decay.checked(chosen, steps, time)
        steps, time = (decay.steps, None) if time is None else (None, decay.time)
    return Config(network, *arrays, chosen.name, chosen.eta, steps, time)


def _parsed(path: Path) -> tuple[dict[str, Any], str]:
    if not path.is_file():
        raise InvalidValueError("config", str(path), "no such file")
    try:
        text = path.read_text(encoding="utf-8")
        return tomllib.loads(text), text
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidValueError("config", str(path), f"not a TOML file: {error}") from error


def _refuse_unknown(where: str, table: dict[str, Any], allowed: tuple[str, ...]) -> None:
    if unknown := [key for key in table if key not in allowed]:
        known = ", ".join(allowed)
        raise InvalidValueError(where, ", ".join(unknown), f"unknown; allowed: {known}")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidTypeError(name, value, "expected a text in quotes")
    return value


def _whole(name: str, value: object, smallest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTypeError(name, value, "expected a whole number")
    if value < smallest:
        raise InvalidValueError(name, value, f"at least {smallest} needed")
    return value


def _data(
    table: dict[str, Any], folder: Path, network: MLP
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    if "name" in table:
        _refuse_unknown("[data]", table, _NAMED)
        return _named(table, folder, network)
    _refuse_unknown("[data]", table, (*_FILES, "name"))
    missing = [key for key in _FILES[:3] if key not in table]
    if missing:
        raise InvalidValueError("[data]", ", ".join(missing), "must be given, or a name")
    found = {key: load_array(folder / _text(key, table[key]), key) for key in table}
    x = check_inputs(found["train_x"], network.widths[0], "train_x")
    y = check_targets(found["train_y"], x.shape[0], network.widths[-1])
    test = check_inputs(found["test_x"], network.widths[0], "test_x")
    targets = None
    if "test_y" in found:
        targets = check_targets(found["test_y"], test.shape[0], network.widths[-1], "test_y")
    return x, y, test, targets


def _named(
    table: dict[str, Any], folder: Path, network: MLP
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Images of some classes: the first `train` of a seeded order, then `test` others."""
    name = _text("[data] name", table["name"])
    if name not in ("digits", *_IMAGES):
        allowed = f"expected one of {', '.join(('digits', *_IMAGES))}"
        raise InvalidValueError("[data] name", name, allowed)
    if name in _IMAGES and "folder" not in table:
        raise InvalidValueError("[data] folder", None, f"{name} needs the folder of its files")
    data = (
        digits()
        if name == "digits"
        else local_images(name, folder / _text("[data] folder", table["folder"]))
    )
    classes = table.get("classes")
    if classes is not None and not (
        isinstance(classes, list) and all(isinstance(c, int) for c in classes)
    ):
        raise InvalidTypeError("[data] classes", classes, "expected a list of whole numbers")
    train = _whole("[data] train", table.get("train", 16), 1)
    test = _whole("[data] test", table.get("test", 16), 1)
    seed = _whole("[data] seed", table.get("seed", 0), 0)
    pool = data.subset(classes=classes)
    chosen = pool.subset(limit=train + test, seed=seed)
    outputs = network.widths[-1]
    y = (chosen.labels[:, None] == pool.classes[None, :]).astype(np.float64)
    if outputs == 1 and pool.classes.size == 2:
        y = 2.0 * y[:, 1:] - 1.0
    if y.shape[1] != outputs:
        raise InvalidValueError(
            "widths", network.widths, f"{y.shape[1]} classes need as many outputs (or 1 for two)"
        )
    x = check_inputs(chosen.x, network.widths[0], f"{name} images")
    x = x / np.sqrt(np.mean(x[:train] ** 2))
    return x[:train], y[:train], x[train:], y[train:]
