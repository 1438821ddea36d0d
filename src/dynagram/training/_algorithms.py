"""Algorithms of training as objects, each with its own numbers and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dynagram._trust import check_trusted, import_function
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks._checks import checked_number

_ETA = "the step size must be > 0"

# What constructors take. At run time they validate by themselves, with clearer messages.
if TYPE_CHECKING:
    Real = float
else:
    Real = object


@dataclass(frozen=True)
class GradientDescent:
    """Full-batch or minibatch gradient descent, θ ← θ − η λ ∂L.

    **Arguments:**

    - `eta`: the global step size η > 0, for the loss that `Training` names.

    >>> GradientDescent(0.1)
    GradientDescent(eta=0.1)
    """

    eta: Real

    def __post_init__(self) -> None:
        object.__setattr__(self, "eta", checked_number("eta", self.eta, _ETA, positive=True))


@dataclass(frozen=True)
class GradientFlow:
    """The limit of small steps, dθ/dτ = −λ ∂L/∂θ; it takes a `time` instead of steps.

    **Arguments:**

    - `rtol`, `atol`: tolerances per step of the solver that trains concrete networks.
    """

    rtol: Real = 1e-8
    atol: Real = 1e-10

    def __post_init__(self) -> None:
        for name in ("rtol", "atol"):
            value = checked_number(name, getattr(self, name), "must be > 0", positive=True)
            object.__setattr__(self, name, value)


@dataclass(frozen=True)
class TwoStep:
    """Two leaps that end training to order 1/n: by the network's own NTK, then by the frozen one.

    (∞.71), (∞.77). At infinite width the first is Newton's and ends it (10.30). No step size.
    """


@dataclass(frozen=True, init=False)
class Optax:
    """Any other update: an optax rule at the rate `eta`.

    **Arguments:**

    - `rule`: "momentum" (options momentum = 0.9, nesterov), "adam" (options b1, b2, eps), or
        "module:function" such as "optax:rmsprop", called with `eta` and the options.
    - `eta`: the learning rate.
    - `options`: numbers, truth values or texts by name.

    >>> Optax("adam", 1e-3, b2=0.99)
    Optax(rule='adam', eta=0.001, options=(('b2', 0.99),))
    """

    rule: str
    eta: float
    options: tuple[tuple[str, Any], ...]

    def __init__(self, rule: str, eta: Real, **options: Any):
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "eta", checked_number("eta", eta, _ETA, positive=True))
        object.__setattr__(self, "options", _check_options(options))
        self.transformation()

    def transformation(self) -> Any:
        """The optax transformation; refused in one line where the rule does not give one."""
        import optax

        known: dict[str, Callable[..., Any]] = {
            "momentum": lambda eta, momentum=0.9, nesterov=False: optax.sgd(
                eta, momentum, nesterov
            ),
            "adam": lambda eta, b1=0.9, b2=0.999, eps=1e-8: optax.adam(eta, b1, b2, eps),
        }
        make = known.get(self.rule) if isinstance(self.rule, str) else None
        if make is None:
            if not isinstance(self.rule, str) or ":" not in self.rule:
                allowed = f"expected {', '.join(known)} or module:function"
                raise InvalidValueError("rule", self.rule, allowed)
            make = import_function("rule", self.rule)
        try:
            made = make(self.eta, **dict(self.options))
        except (TypeError, ValueError) as error:
            allowed = f"{self.rule} does not take these: {error}"
            raise InvalidValueError("options", dict(self.options), allowed) from error
        if not (hasattr(made, "init") and hasattr(made, "update")):
            allowed = "the function must return an optax transformation"
            raise InvalidTypeError("rule", self.rule, allowed)
        return made


Algorithm = GradientDescent | GradientFlow | TwoStep | Optax
ALGORITHMS = ("gd", "flow", "two-step", "momentum", "adam", "module:function")


def algorithm_of_table(name: object, eta: object, options: object) -> Algorithm:
    """The algorithm of a TOML table."""
    if not isinstance(name, str):
        raise InvalidTypeError("algorithm", name, f"expected one of {', '.join(ALGORITHMS)}")
    if not isinstance(options, Mapping):
        raise InvalidTypeError("options", options, "expected a table of names and values")
    if name in ("flow", "two-step"):
        if eta is not None:
            raise InvalidValueError("eta", eta, f"the algorithm {name!r} has no step size")
        if name == "two-step":
            return TwoStep()
        if unknown := [key for key in options if key not in ("rtol", "atol")]:
            raise InvalidValueError("options", ", ".join(unknown), "flow takes rtol and atol")
        return GradientFlow(**options)
    if eta is None:
        raise InvalidValueError("eta", eta, f"the algorithm {name!r} needs a step size")
    if name == "gd":
        if options:
            names = ", ".join(map(str, options))
            raise InvalidValueError("options", names, "gd takes none; momentum does")
        return GradientDescent(eta)  # pyright: ignore[reportArgumentType]
    if name not in ALGORITHMS[3:5] and ":" not in name:
        raise InvalidValueError("algorithm", name, f"expected one of {', '.join(ALGORITHMS)}")
    check_trusted("algorithm", name)
    return Optax(name, eta, **dict(options))  # pyright: ignore[reportArgumentType]


def _check_options(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    for key, value in options.items():
        if not isinstance(value, bool | int | float | str):
            allowed = "expected a name and a number, truth value or text"
            raise InvalidTypeError("options", {key: value}, allowed)
    return tuple(sorted(options.items()))
