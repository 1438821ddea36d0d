"""What a run of a job gave, finished or not: the record that jobs make results of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dynagram.ensembles._jobs import FailedMember, Job
from dynagram.ensembles.engine._progress import WorstError
from dynagram.results._estimate import Estimate, Moments


@dataclass(frozen=True, eq=False)
class Outcome:
    """Estimates with standard errors, and the arrays with one entry per member.

    `job` is what was run. `members` counts those computed and those that failed. Of a stored run
    `arrays` are read from disk when they are used. `worst` is the worst relative standard error,
    to be compared with the `until_error` asked for. `recomputed` are the chunks found damaged when
    resuming, `complete` says whether the run reached its end, and `notes` what its user should
    hear.
    """

    job: Job
    members: int
    estimates: dict[str, Estimate]
    arrays: Mapping[str, np.ndarray]
    moments: dict[str, Moments]
    failed: tuple[FailedMember, ...]
    worst: WorstError | None
    until_error: float | None
    recomputed: tuple[int, ...] = ()
    complete: bool = True
    notes: tuple[str, ...] = ()
