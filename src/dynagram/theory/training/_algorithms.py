"""How a network is trained on L = ½ Σ (z − y)²: the algorithm, its step, its stable limit, time.

"gd" is gradient descent at the global rate η, "flow" its limit of small steps, "newton" the one
giant leap (10.30) of infinite width and "two-step" its finite-width form (∞.71), (∞.77). Time is
τ = η·steps everywhere. The loss is a sum over samples and outputs, without a mean: a user who
averages has another η, which `parametrisations.mean_squared_error_factor` converts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import checked_number

ALGORITHMS = ("gd", "flow", "two-step")
_ETA = "the step size must be > 0"


@dataclass(frozen=True)
class Algorithm:
    """A way of training to the end: `name`, one of `ALGORITHMS`, and `eta`, None except for "gd".

    >>> Algorithm.checked("gd", 0.1)
    Algorithm(name='gd', eta=0.1)
    """

    name: str
    eta: float | None = None

    @classmethod
    def checked(cls, name: str, eta: float | int | None) -> Algorithm:
        """Refuse an unknown name, "gd" without `eta`, and `eta` where it means nothing."""
        if name not in ALGORITHMS:
            raise InvalidValueError("algorithm", name, f"expected one of {', '.join(ALGORITHMS)}")
        if name == "gd":
            if eta is None:
                raise InvalidValueError("eta", eta, "gradient descent needs a step size")
            return cls(name, checked_number("eta", eta, _ETA, positive=True))
        if eta is not None:
            raise InvalidValueError("eta", eta, f"the algorithm {name!r} has no step size")
        return cls(name, None)

    def check_stable(self, largest: float, *, where: str = "the training NTK") -> None:
        """Refuse a step size at which the largest eigenvalue diverges, η ≥ 2/λ_max."""
        if self.eta is not None and self.eta * largest >= 2.0:
            raise InvalidValueError(
                "eta",
                self.eta,
                f"gradient descent diverges: the largest eigenvalue of {where} is {largest:.6g}, "
                f"so the step size must be below 2/λ_max = {2.0 / largest:.6g}",
            )


@dataclass(frozen=True, eq=False)
class StepSizes:
    """What the eigenvalues of a training NTK say about the step size of gradient descent.

    `largest` = 2/λ_max is where training diverges; `fastest` = 2/(λ_max + λ_min) shrinks the
    slowest direction fastest; `time_constants` = 1/λ in units of τ = η·steps, fastest first.
    """

    eigenvalues: Float[np.ndarray, " direction"]
    largest: float
    fastest: float
    time_constants: Float[np.ndarray, " direction"]

    def steps_to(self, fraction: float, eta: float | int) -> float:
        """Steps until every direction of the error is below `fraction` of its start; ∞ if never.

        Gradient descent multiplies direction λ by 1 − ηλ in every step.
        """
        if not 0.0 < fraction < 1.0:
            raise InvalidValueError("fraction", fraction, "expected a number between 0 and 1")
        step = checked_number("eta", eta, _ETA, positive=True)
        slowest = float(np.max(np.abs(1.0 - step * self.eigenvalues)))
        if slowest >= 1.0:
            return math.inf
        return float(math.ceil(math.log(fraction) / math.log(slowest))) if slowest > 0.0 else 1.0


def step_sizes(Theta: Float[np.ndarray, "train train"]) -> StepSizes:
    """Learning-rate limits and time constants from the NTK on the training inputs (∞.93).

    >>> found = step_sizes(np.diag([0.5, 2.0]))
    >>> found.largest, found.fastest, found.time_constants, found.steps_to(1e-3, eta=0.8)
    (1.0, 0.8, array([0.5, 2. ]), 14.0)
    """
    if Theta.size == 0 or not np.all(np.isfinite(Theta)):
        raise InvalidValueError("Theta", Theta.shape, "expected a finite matrix, not empty")
    values = np.linalg.eigvalsh(0.5 * (Theta + Theta.T))[::-1]
    top = float(values[0])
    if top <= 0.0:
        raise InvalidValueError("Theta", top, "no positive eigenvalue: nothing can be learned")
    with np.errstate(divide="ignore"):
        constants = np.where(values > 1e-14 * top, 1.0 / np.maximum(values, 1e-300), np.inf)
    return StepSizes(values, 2.0 / top, 2.0 / (top + max(float(values[-1]), 0.0)), constants)


def checked_steps(steps: object) -> float:
    """A number of steps: a whole number ≥ 0, or ∞ for the end of training."""
    if isinstance(steps, bool) or not isinstance(steps, int | float | np.integer | np.floating):
        raise InvalidTypeError("steps", steps, "expected a whole number or math.inf")
    value = float(steps)
    if math.isnan(value) or value < 0.0 or (math.isfinite(value) and value != math.floor(value)):
        raise InvalidValueError("steps", steps, "expected a whole number ≥ 0, or math.inf")
    return value
