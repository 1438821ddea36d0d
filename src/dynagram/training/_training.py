"""`Training`: an algorithm on a loss, for how long, and what is recorded on the way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dynagram._toml import read_table, write_table
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks._checks import checked_choice, checked_number
from dynagram.training._algorithms import (
    Algorithm,
    GradientDescent,
    GradientFlow,
    Optax,
    TwoStep,
    algorithm_of_table,
)
from dynagram.training._losses import check_loss, half_sum_factor
from dynagram.training._schedule import (
    StopRule,
    check_batch,
    check_factors,
    check_layers,
    check_record,
    check_steps,
    parse_stop,
)

_LONGEST = 1e60  # a time whose powers are numbers
_DTYPES = ("float32", "float64")
_KEYS = (
    "algorithm", "eta", "loss", "steps", "time", "batch", "record", "spacing", "stop",
    "weight_decay", "fixed", "dtype", "schedule", "options",
)  # fmt: skip

# What the constructor takes. At run time it validates by itself, with clearer messages.
if TYPE_CHECKING:
    Real = float
    Steps = int | Sequence[float] | np.ndarray
    Names = Sequence[str]
    Layers = Sequence[int]
    BatchLike = int | Sequence[Sequence[int]]
    Factors = Sequence[float]
    AlgorithmLike = Algorithm
else:
    Real = Steps = Names = Layers = AlgorithmLike = BatchLike = Factors = object


@dataclass(frozen=True, init=False)
class Training:
    """A training procedure, read by theory and ensembles alike; immutable, hashable, validated.

    **Arguments:**

    - `algorithm`: `GradientDescent(eta)`, `GradientFlow()`, `TwoStep()` or `Optax(rule, eta)`.
    - `loss`: "half-sum", the book's ½ΣΣ(z − y)² (7.2); "mean", the mean of (z − y)² over samples
        and outputs as in torch.nn.MSELoss; or "cross-entropy", the mean over samples as in
        torch.nn.CrossEntropyLoss.
    - `steps`, `time`: how long: steps of a discrete algorithm, a time τ of gradient flow; without
        either, to the end of training.
    - `batch`: samples per step, in a seeded order of each network's own without repetition in an
        epoch; or the batches themselves, lists of samples that are taken in turn; None: all.
    - `schedule`: factors of the step size, one per step, of which the last holds from then on.
    - `record`: when outputs are recorded: a number of moments, first and last included, or a list
        of steps (times for flow), to which the last is added. None: at the end only.
    - `spacing`: of a number of moments, "log" or "linear".
    - `stop`: conditions such as "loss < 1e-3", each on a recorded observable.
    - `weight_decay`: w adds wθ to the gradient.
    - `fixed`: layers, numbered from 1, that stay as they are.
    - `dtype`: in which concrete networks are trained.

    >>> how = Training(GradientDescent(0.1), steps=100, record=5, stop=["loss < 1e-3"])
    >>> how.recorded
    (0, 1, 5, 22, 100)
    >>> print(how.to_toml(), end="")
    [training]
    algorithm = "gd"
    eta = 0.1
    loss = "half-sum"
    steps = 100
    record = [0, 1, 5, 22, 100]
    stop = ["loss < 0.001"]
    >>> Training.from_toml(how.to_toml()) == how
    True
    """

    algorithm: Algorithm
    loss: str
    steps: int | None
    time: float | None
    batch: int | tuple[tuple[int, ...], ...] | None
    recorded: tuple[float | int, ...]
    stop: tuple[str, ...]
    weight_decay: float
    fixed: tuple[int, ...]
    dtype: str
    schedule: tuple[float, ...]

    def __init__(
        self,
        algorithm: AlgorithmLike,
        *,
        loss: str = "half-sum",
        steps: Real | None = None,
        time: Real | None = None,
        batch: BatchLike | None = None,
        record: Steps | None = None,
        spacing: str = "log",
        stop: Names = (),
        weight_decay: Real = 0.0,
        fixed: Layers = (),
        dtype: str = "float64",
        schedule: Factors = (),
    ):
        def store(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if not isinstance(algorithm, GradientDescent | GradientFlow | TwoStep | Optax):
            allowed = "expected GradientDescent(eta), GradientFlow(), TwoStep() or Optax(rule, eta)"
            raise InvalidTypeError("algorithm", algorithm, allowed)
        store("algorithm", algorithm)
        store("loss", check_loss(loss))
        store("steps", self._checked_steps(steps))
        store("time", self._checked_time(time))
        store("batch", check_batch(batch))
        store("schedule", check_factors(schedule))
        store("recorded", check_record(record, spacing, self.end, whole=self.is_discrete))
        store("stop", tuple(map(str, parse_stop(stop))))
        store("weight_decay", checked_number("weight_decay", weight_decay, "must be ≥ 0"))
        store("fixed", check_layers(fixed))
        store("dtype", checked_choice("dtype", dtype, _DTYPES))
        if self.batch is not None and isinstance(algorithm, GradientFlow | TwoStep):
            raise InvalidValueError("batch", self.batch, f"{self.name} takes all samples")
        if self.schedule and not self.is_discrete:
            raise InvalidValueError("schedule", self.schedule, f"{self.name} has no step size")

    def _checked_steps(self, steps: object) -> int | None:
        if steps is None or steps == math.inf:
            return None
        if not self.is_discrete:
            allowed = "gradient flow takes a time" if self.is_flow else "the two steps are given"
            raise InvalidValueError("steps", steps, allowed)
        return check_steps(steps)

    def _checked_time(self, time: object) -> float | None:
        if time is None or time == math.inf:
            return None
        if not self.is_flow:
            raise InvalidValueError("time", time, f"only gradient flow, this is {self.name}")
        size = checked_number("time", time, "a time must be ≥ 0")
        if size > _LONGEST:
            allowed = f"at most {_LONGEST:g}: without a time, flow goes on to its end"
            raise InvalidValueError("time", size, allowed)
        return size

    @property
    def name(self) -> str:
        """The algorithm's name in TOML: "gd", "flow", "two-step", "momentum", "adam", …"""
        names = {GradientDescent: "gd", GradientFlow: "flow", TwoStep: "two-step"}
        if isinstance(self.algorithm, Optax):
            return self.algorithm.rule
        return names[type(self.algorithm)]

    @property
    def eta(self) -> float | None:
        """The step size; None where there is none."""
        return getattr(self.algorithm, "eta", None)

    @property
    def is_flow(self) -> bool:
        """Whether it is gradient flow."""
        return isinstance(self.algorithm, GradientFlow)

    @property
    def is_discrete(self) -> bool:
        """Whether it is counted in steps."""
        return isinstance(self.algorithm, GradientDescent | Optax)

    @property
    def end(self) -> float | int:
        """The last step, or time of flow; ∞ for the end of training."""
        last = self.steps if self.steps is not None else self.time
        return math.inf if last is None else last

    @property
    def reaches_the_end(self) -> bool:
        """Whether it trains until nothing changes any more."""
        return math.isinf(self.end)

    @property
    def times(self) -> tuple[float | int, ...]:
        """τ of every recorded moment: η·steps, or the time of flow; ∞ at the end of training."""
        eta = 1.0 if self.eta is None else self.eta
        return tuple(eta * self._passed(moment) for moment in self.recorded)

    def _passed(self, moment: float | int) -> float | int:
        """Steps until a moment, each counted with its factor."""
        if not self.schedule:
            return moment
        given = min(moment, len(self.schedule))
        return sum(self.schedule[: int(given)]) + self.schedule[-1] * (moment - given)

    @property
    def batch_size(self) -> int | None:
        """Samples per step; None: all.

        >>> Training(GradientDescent(0.1), batch=[[0, 2], [1, 3]]).batch_size
        2
        """
        return len(self.batch[0]) if isinstance(self.batch, tuple) else self.batch

    @property
    def rules(self) -> tuple[StopRule, ...]:
        """The conditions of `stop`, parsed."""
        return tuple(parse_stop(self.stop))

    def in_half_sum(self, samples: int, outputs: int) -> Training:
        """The same training with its rate, or time, written for the loss "half-sum".

        Squared errors only: `samples` counts all training samples, repeated ones too.

        >>> Training(GradientDescent(1.0), loss="mean").in_half_sum(4, 2).algorithm
        GradientDescent(eta=0.25)
        """
        factor = half_sum_factor(self.loss, samples, outputs)
        if factor == 1.0 and self.loss == "half-sum":
            return self
        changes: dict[str, Any] = {"loss": "half-sum"}
        if self.is_flow:
            changes["time"] = None if self.time is None else self.time * factor
            changes["recorded"] = tuple(moment * factor for moment in self.recorded)
        elif isinstance(self.algorithm, GradientDescent):
            changes["algorithm"] = GradientDescent(self.algorithm.eta * factor)
        elif isinstance(self.algorithm, Optax):
            allowed = "its rate cannot be carried over to another loss"
            raise InvalidValueError("algorithm", self.name, allowed)
        return self._changed(**changes)

    def at(self, moment: float | int) -> Training:
        """The same training up to one of its moments, recorded there only."""
        changes: dict[str, Any] = {"recorded": (moment,), "steps": None, "time": None}
        if not math.isinf(moment):
            changes["time" if self.is_flow else "steps"] = moment if self.is_flow else int(moment)
        return self._changed(**changes)

    def _changed(self, **values: Any) -> Training:
        changed = object.__new__(Training)
        for name in self.__dataclass_fields__:
            object.__setattr__(changed, name, values.get(name, getattr(self, name)))
        return changed

    def to_toml(self) -> str:
        """The `[training]` table, which `from_toml` reads back exactly."""
        table: dict[str, Any] = {"algorithm": self.name, "eta": self.eta, "loss": self.loss}
        table |= {"steps": self.steps, "time": self.time, "batch": self.batch}
        if self.recorded != (self.end,):
            table["record"] = list(self.recorded)
        table |= {"stop": list(self.stop) or None, "weight_decay": self.weight_decay or None}
        table |= {"fixed": list(self.fixed) or None}
        table["dtype"] = None if self.dtype == "float64" else self.dtype
        table["schedule"] = list(self.schedule) or None
        text = write_table("training", table)
        options = dict(getattr(self.algorithm, "options", ()))
        if self.is_flow and self.algorithm != GradientFlow():
            options = {"rtol": self.algorithm.rtol, "atol": self.algorithm.atol}  # pyright: ignore
        return text + (write_table("training.options", options) if options else "")

    @classmethod
    def from_toml(cls, text: str) -> Training:
        """Read the `[training]` table of a TOML text; other tables are left to others.

        >>> Training.from_toml('[training]\\nalgorithm = "flow"\\ntime = 2.0').times
        (2.0,)
        """
        table = read_table(text, "training", _KEYS)
        algorithm = algorithm_of_table(
            table.pop("algorithm", "gd"), table.pop("eta", None), table.pop("options", {})
        )
        return cls(algorithm, **table)
