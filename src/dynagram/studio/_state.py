"""What the studio is set to: read from anything, checked, and written as Python, CLI and TOML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from dynagram.activations import Activation, activation
from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.studio._formula import parse_formula
from dynagram.training import GradientDescent, Training

# Least and largest of what sliders set.
RANGES: dict[str, tuple[float, float]] = {
    "C_b": (0.0, 4.0), "C_W": (0.01, 20.0), "width": (2, 4096), "depth": (2, 200),
    "skip": (0.0, 0.99), "eta": (1e-5, 10.0), "steps": (1, 5000), "scale": (1e-3, 0.5),
}  # fmt: skip
DATA = ("wave", "step", "two points", "noise")
_NAMED = ("relu", "gelu", "tanh", "silu", "erf", "sin", "linear", "softplus", "elu")
# Kernels of these are closed formulas; others take time for every pair of places.
_CLOSED = ("relu", "gelu", "erf", "sin", "linear")
# Places at which trained networks are asked.
GRID = np.linspace(-3.0, 3.0, 49)
# A trained network has at most so many layers here; signals flow through all of them.
DEEPEST_TRAINED = 4


@dataclass(frozen=True)
class State:
    """The settings of the studio.

    `activation` is a name, or "formula" with the text in `formula`; `depth` counts weight
    matrices; `eta` and `steps` train on `data`; `scale` is that of the start on a plateau.
    """

    activation: str = "gelu"
    formula: str = ""
    C_b: float = 0.1729
    C_W: float = 1.983
    width: int = 64
    depth: int = 12
    skip: float = 0.0
    eta: float = 0.01
    steps: int = 300
    data: str = "wave"
    scale: float = 0.05

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> State:
        """From texts or numbers by name, each checked; what is left out is as usual."""
        known = {field.name: field for field in fields(cls)}
        if unknown := [name for name in values if name not in known]:
            raise InvalidValueError("state", unknown[0], f"known: {', '.join(known)}")
        made: dict[str, Any] = {}
        for name, value in values.items():
            made[name] = _number(name, value) if name in RANGES else _text(name, value)
        if made.get("data", "wave") not in DATA:
            raise InvalidValueError("data", made["data"], f"expected one of {', '.join(DATA)}")
        if ":" in made.get("activation", ""):
            allowed = "a name, or a formula: code of a module is not imported here"
            raise InvalidValueError("activation", made["activation"], allowed)
        return cls(**made)

    @property
    def sigma(self) -> Activation:
        """The activation that is meant."""
        if self.activation == "formula":
            return parse_formula(self.formula)
        return activation(self.activation)

    def network(self) -> MLP:
        """The deep network through which a signal flows."""
        widths = [self.width] * self.depth + [1]
        return MLP(widths, self.sigma, self.C_b, self.C_W, skip=self.skip)

    def trained_network(self) -> MLP:
        """The network that is trained on two inputs, a coordinate and a constant."""
        depth = min(self.depth, DEEPEST_TRAINED)
        widths = [2, *[self.width] * (depth - 1), 1]
        skip = self.skip if depth > 2 else 0.0
        return MLP(widths, self.sigma, self.C_b, self.C_W, skip=skip)

    def training(self) -> Training:
        """Gradient descent on the summed squares."""
        return Training(GradientDescent(self.eta), steps=self.steps)

    def problem(self) -> Data:
        """A few points of a curve, asked on a grid; the second input is constant.

        Close places cost most where kernels have no closed form: few are asked there, between the
        training points, whose outputs are known besides.
        """
        x, y = points_of(self.data)
        grid = GRID if self.activation in _CLOSED else GRID[::6]
        return Data(_inputs(x), y, test_x=_inputs(grid))

    def to_dict(self) -> dict[str, Any]:
        """Everything by name."""
        return asdict(self)

    # --- copies -------------------------------------------------------------------------------

    def to_python(self) -> str:
        """Lines that make the same predictions."""
        x, y = points_of(self.data)
        numbers = ", ".join(f"{value:.4g}" for value in x)
        targets = ", ".join(f"{value:.4g}" for value in y)
        trained = self.trained_network()
        sigma = repr(self.activation)
        lines = ["import numpy as np", "from dynagram import *"]
        if self.activation == "formula":
            sigma = "sigma"
            lines += [
                "from dynagram.studio import parse_formula",
                f"sigma = parse_formula({self.formula!r})",
            ]
        skip = f", skip={self.skip:g}" if self.skip else ""
        return "\n".join(
            [
                *lines,
                f"network = MLP({list(trained.widths)}, {sigma}, C_b={self.C_b:g}, "
                f"C_W={self.C_W:g}{skip})",
                f"x = np.array([{numbers}])",
                f"y = np.array([{targets}])",
                "both = lambda x: np.stack([x, np.ones_like(x)], axis=1)",
                "data = Data(both(x), y, test_x=both(np.linspace(-3, 3, 49)))",
                f"how = Training(GradientDescent({self.eta:g}), steps={self.steps})",
                'predicted = predict_outputs(network, data, how, order="infinite")',
                "trained = train(network, data, how, members=5)",
            ]
        )

    def to_command(self) -> str:
        """The commands about initialisation and depth."""
        if self.activation == "formula":
            return (
                f"{self._own_module()}\n"
                f"dynagram critical my_module:sigma --cb {self.C_b:g} --cw {self.C_W:g}"
            )
        return "\n".join(
            [
                f"dynagram critical {self.activation} --cb {self.C_b:g} --cw {self.C_W:g}",
                f"dynagram advise --activation {self.activation} --width {self.width} "
                f"--depth {self.depth}",
                f"dynagram escape --activation {self.activation} --depth {max(self.depth, 2)} "
                f"--width {self.width} --scale {self.scale:g}",
            ]
        )

    def to_toml(self) -> str:
        """A file for `dynagram train`, `train-predict` and `report`, with the data in it."""
        sigma, note = self.activation, ""
        if self.activation == "formula":
            sigma, note = "my_module:sigma", f"{self._own_module()}\n"
        trained = self.trained_network()
        skip = f"skip = {self.skip:g}\n" if trained.has_skips else ""
        x, y = points_of(self.data)
        inputs, grid = (_inputs(places).round(6).tolist() for places in (x, GRID[::4]))
        return (
            f'{note}[network]\nwidths = {list(trained.widths)}\nactivation = "{sigma}"\n'
            f"C_b = {self.C_b:g}\nC_W = {self.C_W:g}\n{skip}"
            f"[data]\ntrain_x = {inputs}\ntrain_y = {y.round(6).tolist()}\ntest_x = {grid}\n"
            f'[training]\nalgorithm = "gd"\neta = {self.eta:g}\nloss = "half-sum"\n'
            f"steps = {self.steps}\n"
        )

    def _own_module(self) -> str:
        """How a formula becomes a function that the commands can import."""
        text = " ".join(self.formula.replace("^", "**").split())
        return f"# in my_module.py, with names of jax.numpy and jax.nn: def sigma(z): return {text}"


def points_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of the training points."""
    x = np.linspace(-2.0, 2.0, 6)
    if name == "two points":
        return np.array([-1.0, 1.0]), np.array([-1.0, 1.0])
    if name == "step":
        return x, np.sign(x)
    if name == "noise":
        return x, np.array([0.9, -0.4, 0.3, 1.1, -1.2, 0.2])
    return x, np.sin(1.5 * x)


def names_of_activations() -> tuple[str, ...]:
    """What the list of the studio offers."""
    return _NAMED


def _inputs(x: np.ndarray) -> np.ndarray:
    return np.stack([x, np.ones_like(x)], axis=1)


def _number(name: str, value: object) -> float | int:
    low, high = RANGES[name]
    try:
        number = float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        raise InvalidValueError(name, value, "expected a number") from None
    if not math.isfinite(number) or not low <= number <= high:
        raise InvalidValueError(name, value, f"expected {low:g} to {high:g}")
    return round(number) if isinstance(low, int) else number


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > 200:
        raise InvalidValueError(name, value, "expected a short text")
    return value
