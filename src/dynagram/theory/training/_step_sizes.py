"""What the eigenvalues of a training NTK say about the step size of gradient descent."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks._checks import checked_number


@dataclass(frozen=True, eq=False)
class StepSizes:
    """Limits of the step size and time constants of gradient descent with a frozen NTK.

    `eigenvalues` of the training NTK, largest first; `largest` = 2/λ_max is where training
    diverges; `fastest` = 2/(λ_max + λ_min) shrinks the slowest direction fastest; `time_constants`
    = 1/λ in units of τ = η·steps, fastest first.
    """

    eigenvalues: Float[np.ndarray, " direction"]
    largest: float
    fastest: float
    time_constants: Float[np.ndarray, " direction"]

    @classmethod
    def of_eigenvalues(cls, values: Float[np.ndarray, " direction"]) -> StepSizes:
        """From the eigenvalues of a training NTK, largest first."""
        top = float(values[0])
        if top <= 0.0:
            raise InvalidValueError("Theta", top, "no positive eigenvalue: nothing can be learned")
        with np.errstate(divide="ignore"):
            constants = np.where(values > 1e-14 * top, 1.0 / np.maximum(values, 1e-300), np.inf)
        return cls(values, 2.0 / top, 2.0 / (top + max(float(values[-1]), 0.0)), constants)

    def steps_to(self, fraction: float, eta: float | int) -> float:
        """Steps until every direction of the error is below `fraction` of its start; ∞ if never.

        Gradient descent multiplies direction λ by 1 − ηλ in every step.

        **Arguments:**

        - `fraction`: between 0 and 1.
        - `eta`: the step size.

        **Returns:** a whole number, or ∞.
        """
        if not 0.0 < fraction < 1.0:
            raise InvalidValueError("fraction", fraction, "expected a number between 0 and 1")
        step = checked_number("eta", eta, "the step size must be > 0", positive=True)
        slowest = float(np.max(np.abs(1.0 - step * self.eigenvalues)))
        if slowest >= 1.0:
            return math.inf
        return float(math.ceil(math.log(fraction) / math.log(slowest))) if slowest > 0.0 else 1.0


def step_sizes(Theta: Float[np.ndarray, "train train"]) -> StepSizes:
    """Learning-rate limits and time constants from the NTK on the training inputs (∞.93).

    **Arguments:**

    - `Theta`: the NTK (N_A, N_A); of a network, `frozen_kernels(network, x, layers="last")` has it.

    **Returns:** `StepSizes` for the loss "half-sum"; for "mean" multiply steps by N_A n_L/2.

    >>> limits = step_sizes(np.diag([0.5, 2.0]))
    >>> limits.largest, limits.fastest, limits.time_constants, limits.steps_to(1e-3, eta=0.8)
    (1.0, 0.8, array([0.5, 2. ]), 14.0)
    """
    if Theta.size == 0 or not np.all(np.isfinite(Theta)):
        raise InvalidValueError("Theta", Theta.shape, "expected a finite matrix, not empty")
    return StepSizes.of_eigenvalues(np.linalg.eigvalsh(0.5 * (Theta + Theta.T))[::-1])
