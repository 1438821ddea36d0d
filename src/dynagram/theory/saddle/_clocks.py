"""The three clocks of a saddle escape: reduced time t, matrix time s, SGD steps k.

Normalised flow (rate 1 for W_1, 1/N for the deeper layers) in matrix time s moves the scalars of
the ansatz as dX/ds = −(1/N) ∂𝓛/∂X, so that dX/dt = −∂𝓛/∂X in reduced time t = s/N; SGD with
learning rate η makes the step k at s = ηk. The drive constant K_t = √N β h_σ α^{L−1} belongs to t;
the published K = β h_σ α^{L−1}/√N is the same constant on the clock s.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dynagram.errors import InvalidValueError
from dynagram.networks import checked_number

ClockName = Literal["reduced", "matrix", "steps"]


@dataclass(frozen=True)
class Clock:
    """A way to tell the time, as `units` of it in one unit of reduced time.

    `name` is "reduced", "matrix" or "steps".

    >>> clock("steps", width=64, learning_rate=0.05).units
    1280.0
    """

    name: ClockName
    units: float

    @property
    def words(self) -> str:
        """What one unit is, for people."""
        words = {
            "reduced": "reduced time t = s/N",
            "matrix": "matrix time s = ηk",
            "steps": "SGD steps k",
        }
        return words[self.name]


REDUCED = Clock("reduced", 1.0)


def clock(name: str, *, width: int, learning_rate: float | None = None) -> Clock:
    """The clock called `name` for hidden layers of `width` neurons.

    **Arguments:**

    - `name`: "reduced" (t = s/N), "matrix" (s = ηk) or "steps" (k).
    - `width`: N, the size of a hidden layer; in a network of blocks, the size N_B of one block.
    - `learning_rate`: η of the first layer; the deeper ones have 1/N of it (normalised flow).
        Needed for "steps", and only there.

    **Returns:** a `Clock`.
    """
    if name not in get_args(ClockName):
        raise InvalidValueError("clock", name, "expected reduced, matrix or steps")
    if (name == "steps") != (learning_rate is not None):
        raise InvalidValueError(
            "learning rate", learning_rate, "needed for the clock steps, and only there"
        )
    if name == "reduced":
        return REDUCED
    if learning_rate is None:
        return Clock("matrix", float(width))
    eta = checked_number("learning rate", learning_rate, "must be > 0", positive=True)
    return Clock("steps", width / eta)
