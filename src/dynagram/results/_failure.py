"""A member of an ensemble that could not be computed, or whose training failed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FailedMember:
    """A member that is left out: its number, the seed of the ensemble, and what happened.

    `step` is that of a training which failed on the way (the time, for gradient flow): from there
    on its records are NaN.

    >>> print(FailedMember(3, 0, "the loss is not finite", step=12.0))
    member 3 (seed 0), step 12: the loss is not finite
    """

    member: int
    seed: int
    error: str
    step: float | None = None

    def __str__(self) -> str:
        when = "" if self.step is None else f", step {self.step:g}"
        return f"member {self.member} (seed {self.seed}){when}: {self.error}"
