"""From the time of a flow to steps of training: momentum, mini-batches, schedules, Adam.

Derivation: docs/derivations/surrogate-flow.md (D4.9), (D4.10), (D4.11), (D4.12).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.training import GradientDescent, Optax, Training

# Below this many times 1/(1 − β) steps the expansion of the lag is not used: the steps are taken.
SHORT = 60.0


@dataclass(frozen=True)
class Descent:
    """Gradient descent as a forecast counts it.

    **Arguments:**

    - `rate`, `momentum`: η and β; of Adam η/ε and b1, which it is while gradients are below ε.
    - `batch`: samples per step, None for all.
    - `schedule`: factors of the rate, one per step, of which the last stays.
    - `epsilon`: Adam's ε, None for other algorithms.
    """

    rate: float
    momentum: float = 0.0
    batch: int | None = None
    schedule: tuple[float, ...] = ()
    epsilon: float | None = None

    @classmethod
    def of(cls, training: Training) -> Descent:
        """That of a `Training`; refused where a plateau forecast does not know how to follow.

        >>> Descent.of(Training(Optax("momentum", 0.1, momentum=0.5), batch=8))
        Descent(rate=0.1, momentum=0.5, batch=8, schedule=(), epsilon=None)
        """
        if not isinstance(training, Training):
            raise InvalidTypeError("training", type(training).__name__, "expected a Training")
        if training.weight_decay != 0.0:
            allowed = "a forecast is without weight decay"
            raise InvalidValueError("weight_decay", training.weight_decay, allowed)
        rest = (training.batch_size, training.schedule)
        algorithm = training.algorithm
        if isinstance(algorithm, GradientDescent):
            return cls(algorithm.eta, 0.0, *rest)
        options = dict(algorithm.options) if isinstance(algorithm, Optax) else {}
        if isinstance(algorithm, Optax) and algorithm.rule == "momentum":
            if options.get("nesterov", False):
                raise InvalidValueError("nesterov", True, "a forecast is for plain momentum")
            momentum = _below_one("momentum", options.get("momentum", 0.9))
            return cls(algorithm.eta, momentum, *rest)
        if isinstance(algorithm, Optax) and algorithm.rule == "adam":
            epsilon = float(options.get("eps", 1e-8))
            if not epsilon > 0.0:
                raise InvalidValueError("eps", epsilon, "a forecast needs eps > 0")
            momentum = _below_one("b1", options.get("b1", 0.9))
            return cls(algorithm.eta / epsilon, momentum, *rest, epsilon)
        allowed = 'forecasts follow GradientDescent(eta), Optax("momentum", eta) or ("adam", eta)'
        raise InvalidValueError("algorithm", training.name, allowed)

    @property
    def start(self) -> float:
        """Steps lost while a buffer that starts empty fills, β/(1 − β)."""
        return self.momentum / (1.0 - self.momentum)

    def steps(self, time: float, growth: float = 0.0) -> float:
        """Steps that take a flow time in which the velocity grows by e^growth (D4.10).

        >>> Descent(0.1).steps(10.0, 2.0)
        101.5
        """
        if not math.isfinite(time):
            return math.inf
        lag = 0.5 * (1.0 + self.momentum) / (1.0 - self.momentum) * max(growth, 0.0)
        return self.counted(time * (1.0 - self.momentum) / self.rate + lag + self.start + 0.5)

    def step_size(self, sharpness: float, steps: float) -> float:
        """The largest η·sharpness before `steps`, in units of the limit 2(1 + β) of stability.

        >>> Descent(0.1, momentum=0.5).step_size(15.0, 100.0)
        0.5
        """
        until = int(min(steps, len(self.schedule))) + 1
        factor = max(self.schedule[:until], default=1.0)
        return factor * self.rate * sharpness / (2.0 * (1.0 + self.momentum))

    def is_short(self, steps: float) -> bool:
        """Whether so few steps are better taken than expanded."""
        return steps * (1.0 - self.momentum) < SHORT and not self.schedule

    def counted(self, steps: float) -> float:
        """`steps` at the full rate, on the schedule: as many as have the same sum of factors.

        >>> Descent(0.1, schedule=(0.5, 0.5, 1.0)).counted(10.0)
        11.0
        """
        if not self.schedule:
            return steps
        sums = np.cumsum(self.schedule)
        if sums[-1] >= steps:
            return float(np.interp(steps, [0.0, *sums], np.arange(len(sums) + 1)))
        if self.schedule[-1] == 0.0:
            return math.inf
        return len(sums) + (steps - float(sums[-1])) / self.schedule[-1]


def _below_one(name: str, value: object) -> float:
    momentum = float(value)  # pyright: ignore[reportArgumentType]
    if not 0.0 <= momentum < 1.0:
        raise InvalidValueError(name, momentum, f"expected 0 ≤ {name} < 1")
    return momentum
