"""What a run is to reach, and its chunks combined in the order of the members."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dynagram.ensembles._jobs import FailedMember, Job, Packed, unpack
from dynagram.ensembles.engine._progress import Progress, WorstError, worst_relative_error
from dynagram.errors import AccuracyError, InvalidValueError
from dynagram.results._estimate import BATCHES, Moments

# Members are numbered by 32-bit integers, which is what random keys are folded with.
LARGEST_ENSEMBLE = 2**32 - 1
# Fewer give standard errors that are too uncertain to stop on.
_FEWEST_MEMBERS = 2 * BATCHES


@dataclass(frozen=True)
class Goal:
    """The chunks of a run, and when it is over."""

    job: Job
    members: int | None
    until_error: float | None

    @property
    def limit(self) -> int:
        """The most members."""
        return LARGEST_ENSEMBLE if self.members is None else self.members

    @property
    def chunks(self) -> int:
        """The most chunks."""
        return -(-self.limit // self.job.chunk_members)

    def span(self, chunk: int) -> tuple[int, int]:
        """The first member of a chunk and their number."""
        first = chunk * self.job.chunk_members
        return first, min(self.job.chunk_members, self.limit - first)


@dataclass
class Combined:
    """The chunks 0, …, `chunks` − 1 combined."""

    goal: Goal
    keep_arrays: bool
    chunks: int = 0
    members: int = 0
    failed: list[FailedMember] = field(default_factory=list)
    moments: dict[str, Moments] = field(default_factory=dict)
    pieces: dict[int, Packed] = field(default_factory=dict)  # arrays by first member

    def add(self, size: int, packed: Packed, failed: tuple[FailedMember, ...]) -> None:
        """The next chunk, of `size` members."""
        arrays: Packed = {}
        for name, value in unpack(packed).items():
            if isinstance(value, Moments):
                mine = self.moments.get(name)
                self.moments[name] = value if mine is None else mine.merge(value)
            else:
                arrays[name] = value
        if self.keep_arrays:
            self.pieces[self.members] = arrays
        self.failed.extend(failed)
        self.chunks += 1
        self.members += size

    def worst(self) -> WorstError | None:
        """The worst relative error of the estimates; None where nothing is estimated."""
        if not self.moments:
            return None
        if self.members - len(self.failed) < _FEWEST_MEMBERS:
            return WorstError("", np.inf)
        job = self.goal.job
        return worst_relative_error(job.estimates(self.moments), job.dims())

    def progress(self) -> Progress:
        """Where the run stands."""
        return Progress(
            self.members, self.goal.members, self.goal.until_error, len(self.failed), self.worst
        )

    def finished(self, progress: Progress) -> bool:
        """Whether the goal is reached; judged after every chunk, in order, so the same always."""
        if self.chunks >= self.goal.chunks:
            return True
        target = self.goal.until_error
        if target is None:
            return False
        worst = progress.worst
        if worst is None:
            raise InvalidValueError("until_error", target, "this job makes no estimates")
        if worst.value <= target:
            return True
        needed = self.members * (worst.value / target) ** 2
        if np.isfinite(worst.value) and self.goal.members is None and needed > LARGEST_ENSEMBLE:
            raise AccuracyError(
                f"{worst.name} is known to {worst.value:.2g} of its size after {self.members} "
                f"members; {target:g} would take {needed:.1g}: ask for less, or set members"
            )
        return False
