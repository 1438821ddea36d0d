"""How an ensemble is trained: algorithm, rate, loss, batches, what to record and when to stop.

Every algorithm moves θ_μ by η λ_μ times its direction, with the network's learning-rate tensor:
λ_b for biases and λ_W/n_{ℓ-1} for weights (8.6). Gradient flow is dθ/ds = −η λ ∂L/∂θ, so that its
step s is the time t = η s, and `steps` means the same for both.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dynagram._toml import write_table
from dynagram.ensembles.trained._losses import LOSSES
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks._checks import as_list, checked_number, shortened

ALGORITHMS = ("gd", "momentum", "adam", "flow")
DTYPES = ("float32", "float64")
SPACINGS = ("log", "linear")
FLOW_OPTIONS = ("rtol", "atol", "max_solver_steps")
_STOP = re.compile(r"\s*([A-Za-z_]\w*)\s*([<>])\s*(\S+)\s*")
_STEPS_ALLOWED = "expected a number of steps to record, or the steps themselves"

# What the constructor takes. At run time it validates by itself, with clearer messages.
if TYPE_CHECKING:
    Real = float
    Whole = int
    Options = Mapping[str, float | int | bool | str]
    Steps = int | Sequence[int] | np.ndarray
    Names = Sequence[str]
    Layers = Sequence[int]
else:
    Real = Whole = Options = Steps = Names = Layers = object


class StopRule(NamedTuple):
    """Stop a member as soon as any entry of `observable` is below, or above, `value`."""

    observable: str
    below: bool
    value: float


@dataclass(frozen=True, init=False)
class Training:
    """A training procedure; immutable, hashable, validated when made, printable as TOML.

    `algorithm` is "gd", "momentum" (options momentum = 0.9, nesterov), "adam" (options b1, b2,
    eps), "flow" (options rtol, atol, max_solver_steps) or "module:function", such as
    "optax:rmsprop": the function is called with `eta` and the options and returns an optax
    transformation. `loss` is "mse", the book's ½ΣΣ(z − y)², "mse-mean" (PyTorch's, over samples
    and outputs), "cross-entropy" (summed over samples) or "cross-entropy-mean". `weight_decay` w
    adds wθ to the gradient. `batch` samples per step are taken in a seeded order, without
    repetition in an epoch; None takes all. Layers in `fixed`, numbered from 1, stay as they are.

    `record` is the number of recorded steps, with `spacing` "log" or "linear", or a list of them;
    step 0 and the last are always recorded. `stop` lists conditions such as "loss < 1e-3" or
    "norm > 10", each on a recorded observable and looked at in every step.

    >>> training = Training(steps=100, eta=0.1, record=5, stop=["loss < 1e-3"])
    >>> training.record
    (0, 1, 5, 22, 100)
    >>> print(training.to_toml(), end="")
    [training]
    steps = 100
    eta = 0.1
    algorithm = "gd"
    loss = "mse"
    weight_decay = 0.0
    fixed = []
    record = [0, 1, 5, 22, 100]
    stop = ["loss < 0.001"]
    dtype = "float64"
    >>> Training.from_toml(training.to_toml()) == training
    True
    """

    steps: int
    eta: float
    algorithm: str
    options: tuple[tuple[str, Any], ...]
    loss: str
    weight_decay: float
    batch: int | None
    fixed: tuple[int, ...]
    record: tuple[int, ...]
    stop: tuple[str, ...]
    dtype: str

    def __init__(
        self,
        steps: Whole,
        eta: Real,
        algorithm: str = "gd",
        *,
        options: Options | None = None,
        loss: str = "mse",
        weight_decay: Real = 0.0,
        batch: Whole | None = None,
        fixed: Layers = (),
        record: Steps = 20,
        spacing: str = "log",
        stop: Names = (),
        dtype: str = "float64",
    ):
        def store(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        store("steps", checked_integer("steps", steps, 1))
        store("eta", checked_number("eta", eta, "a learning rate must be > 0", positive=True))
        store("algorithm", algorithm)
        store("options", _checked_options(options))
        store("loss", _one_of("loss", loss, LOSSES))
        store("weight_decay", checked_number("weight_decay", weight_decay, "must be ≥ 0"))
        store("batch", None if batch is None else checked_integer("batch", batch, 1))
        store("fixed", _checked_layers(fixed))
        store("record", _checked_record(record, _one_of("spacing", spacing, SPACINGS), self.steps))
        store("stop", tuple(map(_written, _parsed_stop(stop))))
        store("dtype", _one_of("dtype", dtype, DTYPES))
        if algorithm == "flow":
            self._check_flow()
        else:
            self.optimiser()

    @property
    def rules(self) -> tuple[StopRule, ...]:
        """The conditions of `stop`, parsed."""
        return tuple(_parsed_stop(self.stop))

    def optimiser(self) -> Any:
        """The optax transformation of the algorithm, for the rate `eta`."""
        import optax

        known: dict[str, Callable[..., Any]] = {
            "gd": optax.sgd,
            "momentum": lambda eta, momentum=0.9, nesterov=False: optax.sgd(
                eta, momentum, nesterov
            ),
            "adam": lambda eta, b1=0.9, b2=0.999, eps=1e-8: optax.adam(eta, b1, b2, eps),
        }
        make = known.get(self.algorithm) if isinstance(self.algorithm, str) else None
        if self.algorithm == "gd" and self.options:
            names = ", ".join(dict(self.options))
            raise InvalidValueError("options", names, "gd takes none; momentum does")
        if make is None:
            if not isinstance(self.algorithm, str) or ":" not in self.algorithm:
                allowed = f"expected {', '.join(ALGORITHMS)} or module:function"
                raise InvalidValueError("algorithm", self.algorithm, allowed)
            make = imported("algorithm", self.algorithm)
        try:
            made = make(self.eta, **dict(self.options))
        except (TypeError, ValueError) as error:
            allowed = f"{self.algorithm} does not take these: {error}"
            raise InvalidValueError("options", dict(self.options), allowed) from error
        if not (hasattr(made, "init") and hasattr(made, "update")):
            allowed = "the function must return an optax transformation"
            raise InvalidTypeError("algorithm", self.algorithm, allowed)
        return made

    def _check_flow(self) -> None:
        if unknown := [name for name, _ in self.options if name not in FLOW_OPTIONS]:
            allowed = f"flow takes {', '.join(FLOW_OPTIONS)}"
            raise InvalidValueError("options", ", ".join(unknown), allowed)
        for name, value in self.options:
            checked_number(f"option {name}", value, "must be > 0", positive=True)
        if self.batch is not None:
            raise InvalidValueError("batch", self.batch, "gradient flow takes all samples")

    def to_toml(self) -> str:
        """The `[training]` table, which `from_toml` reads back exactly."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        options = dict(values.pop("options"))
        table = write_table("training", values)
        return table + (write_table("training.options", options) if options else "")

    @classmethod
    def from_toml(cls, text: str) -> Training:
        """Read the `[training]` table of a TOML text; other tables are left to others."""
        try:
            table = tomllib.loads(text).get("training")
        except tomllib.TOMLDecodeError as error:
            raise InvalidValueError("TOML", shortened(text), f"cannot be read: {error}") from error
        if not isinstance(table, dict):
            raise InvalidValueError("TOML", shortened(text), "has no [training] table")
        known = [*(field.name for field in dataclasses.fields(cls)), "spacing"]
        if unknown := [key for key in table if key not in known]:
            allowed = f"unknown key; known: {', '.join(known)}"
            raise InvalidValueError("[training]", ", ".join(unknown), allowed)
        if missing := [key for key in ("steps", "eta") if key not in table]:
            raise InvalidValueError("[training]", ", ".join(missing), "this key must be given")
        return cls(**table)


def recorded_steps(steps: int, count: int, spacing: str = "log") -> tuple[int, ...]:
    """About `count` steps from 0 to `steps`, both included, evenly or logarithmically spaced.

    >>> recorded_steps(1000, 4), recorded_steps(1000, 5, "linear")
    ((0, 1, 32, 1000), (0, 250, 500, 750, 1000))
    """
    if spacing == "linear":
        wanted = np.linspace(0, steps, max(count, 2))
    else:
        wanted = np.append(0, np.geomspace(1, steps, max(count - 1, 1)) if count > 2 else steps)
    return tuple(int(step) for step in np.unique(np.rint(wanted)))


def imported(name: str, path: str) -> Callable[..., Any]:
    """The function that "module:function" means; `name` is the argument blamed when it fails."""
    module, _, attribute = path.partition(":")
    try:
        target: Any = importlib.import_module(module)
        for part in attribute.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidValueError(name, path, f"cannot be imported: {error}") from error
    if not callable(target):
        raise InvalidTypeError(name, path, "is not callable")
    return target


def checked_integer(name: str, value: object, smallest: int) -> int:
    """`value` as an int ≥ `smallest` that fits 32 bits."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InvalidTypeError(name, value, "expected an integer")
    if not smallest <= value < 2**31:
        raise InvalidValueError(name, int(value), f"expected {smallest} to 2**31 − 1")
    return int(value)


def _one_of(name: str, value: object, allowed: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidValueError(name, value, f"expected one of {', '.join(allowed)}")
    return value


def _checked_options(options: object) -> tuple[tuple[str, Any], ...]:
    if options is None:
        return ()
    if not isinstance(options, Mapping):
        raise InvalidTypeError("options", options, "expected a mapping of names to values")
    for key, value in options.items():
        if not isinstance(key, str) or not isinstance(value, bool | int | float | str):
            allowed = "expected a name and a number, truth value or text"
            raise InvalidTypeError("options", {key: value}, allowed)
    return tuple(sorted(options.items()))


def _checked_layers(fixed: object) -> tuple[int, ...]:
    values = as_list(fixed)
    if values is None:
        raise InvalidTypeError("fixed", fixed, "expected a list of layers, numbered from 1")
    return tuple(sorted({checked_integer("a layer of fixed", value, 1) for value in values}))


def _checked_record(record: object, spacing: str, steps: int) -> tuple[int, ...]:
    values = as_list(record)
    if values is None:
        if isinstance(record, bool) or not isinstance(record, int | np.integer):
            raise InvalidTypeError("record", record, _STEPS_ALLOWED)
        return recorded_steps(steps, checked_integer("record", record, 2), spacing)
    chosen = {checked_integer("a step of record", value, 0) for value in values}
    if chosen and max(chosen) > steps:
        raise InvalidValueError("record", max(chosen), f"the last step is {steps}")
    return tuple(sorted(chosen | {0, steps}))


def _parsed_stop(stop: object) -> list[StopRule]:
    rules = []
    values = as_list(stop)
    if values is None:
        raise InvalidTypeError("stop", stop, 'expected a list such as ["loss < 0.001"]')
    for text in values:
        match = _STOP.fullmatch(text) if isinstance(text, str) else None
        try:
            value = float(match[3]) if match else None
        except ValueError:
            value = None
        if match is None or value is None or not np.isfinite(value):
            raise InvalidValueError("stop", text, "expected 'name < number' or 'name > number'")
        rules.append(StopRule(match[1], match[2] == "<", value))
    return rules


def _written(rule: StopRule) -> str:
    return f"{rule.observable} {'<' if rule.below else '>'} {rule.value!r}"
