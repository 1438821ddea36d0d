"""`Posterior`: Bayesian inference as a way of learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dynagram._toml import read_table, write_table
from dynagram.networks._checks import checked_number

if TYPE_CHECKING:
    Real = float
else:
    Real = object  # checked by the constructor, with clearer messages


@dataclass(frozen=True)
class Posterior:
    """Bayesian inference instead of training: the outputs given the targets (chapter 6).

    **Arguments:**

    - `noise`: variance σ² of the observation noise on the targets.
    - `jitter`: a fraction of the mean variance added to the training kernel; 0 adds nothing.

    >>> Posterior(noise=0.1)
    Posterior(noise=0.1, jitter=0.0)
    """

    noise: Real = 0.0
    jitter: Real = 0.0

    def __post_init__(self) -> None:
        noise = checked_number("noise", self.noise, "a variance must be ≥ 0")
        jitter = checked_number("jitter", self.jitter, "must be ≥ 0, a fraction of the variance")
        object.__setattr__(self, "noise", noise)
        object.__setattr__(self, "jitter", jitter)

    def to_toml(self) -> str:
        """A `[posterior]` table."""
        return write_table("posterior", {"noise": self.noise, "jitter": self.jitter})

    @classmethod
    def from_toml(cls, text: str) -> Posterior:
        """Read the `[posterior]` table of a TOML text."""
        return cls(**read_table(text, "posterior", ("noise", "jitter")))
