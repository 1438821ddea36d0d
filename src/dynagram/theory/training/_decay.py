"""How errors shrink with time, and the divided differences of that function.

D(r) is what is left of an error of rate r: (1 − ηr)^t after t steps of gradient descent, e^{−rτ} in
gradient flow. Every finite-time formula is made of its divided differences: f(h) = [1 − D(h)]/h is
−D[0, h], time sums of products of errors are −D[0, σ], and sums propagated by a training direction
are −D[h, σ]. They are computed as entries of D of a triangular matrix, so that equal rates, for
which the quotients are 0/0, need no special care. Derivation:
docs/derivations/trained-outputs.md (D1.3), (D1.5).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import checked_number
from dynagram.theory.training._algorithms import Algorithm, checked_steps

_TAYLOR_ORDER = 16
_SMALL = 0.5


@dataclass(frozen=True)
class Decay:
    """D of gradient descent (`eta`, `steps`) or of gradient flow (`time` τ, `eta` = 0)."""

    eta: float
    steps: int
    time: float

    @classmethod
    def descent(cls, eta: float, steps: int) -> Decay:
        """After `steps` steps of size `eta`."""
        return cls(eta, steps, eta * steps)

    @classmethod
    def flow(cls, time: float) -> Decay:
        """At the time τ."""
        return cls(0.0, 0, time)

    @classmethod
    def checked(cls, algorithm: Algorithm, steps: object, time: object) -> Decay:
        """After `steps` of gradient descent or at a `time` of gradient flow, both finite.

        >>> Decay.checked(Algorithm("gd", 0.5), 3, None)
        Decay(eta=0.5, steps=3, time=1.5)
        """
        if algorithm.name == "gd" and algorithm.eta is not None and time is None:
            count = checked_steps(steps)
            if math.isfinite(count):
                return cls.descent(algorithm.eta, int(count))
            raise InvalidValueError("steps", steps, "finite here; `trained` gives the end")
        if algorithm.name == "flow" and steps is None:
            if time is None or time == math.inf:
                raise InvalidValueError("time", time, "finite here; `trained` gives the end")
            return cls.flow(checked_number("time", time, "a time must be ≥ 0"))
        raise InvalidValueError(
            "algorithm", algorithm.name, "gradient descent takes `steps`, gradient flow a `time`"
        )

    def __call__(self, *rates: Float[np.ndarray, "..."] | float) -> Float[np.ndarray, "..."]:
        """D(r), D[r₁, r₂] or D[r₁, r₂, r₃] of broadcast rates.

        >>> decay = Decay.flow(2.0)
        >>> decay(1.0).round(9).item(), decay(1.0, 1.0).round(9).item()       # e^{−rτ}, −τ e^{−rτ}
        (0.135335283, -0.270670566)
        >>> Decay.descent(0.5, 3)(0.0, 1.0).item()             # [(1 − ½)³ − 1]/1
        -0.875
        """
        arrays = np.broadcast_arrays(*(np.asarray(rate, dtype=np.float64) for rate in rates))
        count = len(arrays)
        if count == 1:
            rate = arrays[0]
            return np.asarray((1.0 - self.eta * rate) ** self.steps if self.eta else
                              np.exp(-rate * self.time))  # fmt: skip
        matrix = np.zeros((*arrays[0].shape, count, count))
        for place, rate in enumerate(arrays):
            matrix[..., place, place] = rate
        for place in range(count - 1):
            matrix[..., place, place + 1] = 1.0
        return self._of_matrix(matrix)[..., 0, -1]

    def _of_matrix(self, matrix: np.ndarray) -> np.ndarray:
        one = np.eye(matrix.shape[-1])
        if self.eta:
            return np.linalg.matrix_power(one - self.eta * matrix, self.steps)
        # e^{−Mτ} by Taylor's series on a short time, squared up. All rates are ≥ 0 and the
        # matrix triangular: no digits are lost.
        size = float(np.max(np.abs(matrix), initial=1.0)) * self.time
        squarings = max(0, int(np.ceil(np.log2(max(size, 1e-300) / _SMALL))))
        small = -matrix * (self.time / 2**squarings)
        total = one + np.zeros_like(matrix)
        term = total
        for order in range(1, _TAYLOR_ORDER + 1):
            term = term @ small / order
            total = total + term
        for _ in range(squarings):
            total = total @ total
        return total
