"""Stored runs for their users: read one, or continue one, and get the result it makes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from dynagram.ensembles._jobs import ResultJob
from dynagram.ensembles.engine._engine import read_job, resume_job
from dynagram.ensembles.engine._outcome import Outcome
from dynagram.ensembles.engine._progress import Progress
from dynagram.ensembles.store._store import RunStore
from dynagram.errors import InvalidValueError, RunWarning
from dynagram.results import Outputs, Tensors


def open_run(folder: str | Path) -> Tensors | Outputs:
    """The result of a stored run, finished or not: what `simulate` or `train` returned.

    Every chunk is checked against its checksums first, and `RunError` names one that is damaged.
    Of a run that is not finished these are the members up to the first chunk that is missing, and
    `about["complete"]` is False. Arrays with one entry per member are read from disk when they are
    used; any Zarr library reads them too, from `folder/arrays`. Code that the folder names, such as
    an activation "module:function", is imported only if you named it: see `dynagram.trust`.

    **Arguments:**

    - `folder`: what was given as `run`.

    **Returns:** `Tensors` or `Outputs`.

    >>> import tempfile
    >>> import numpy as np
    >>> from dynagram import MLP, simulate
    >>> net = MLP([3, 20, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = simulate(net, np.ones((1, 3)), ("V",), members=1000, run=f"{folder}/run")
    ...     again = open_run(f"{folder}/run")
    >>> bool(np.all(first["V"] == again["V"])), again.members, again.about["complete"]
    (True, 1000, True)
    """
    outcome = read_job(folder)
    return _job_of(outcome).result(outcome)


def resume_run(
    folder: str | Path,
    *,
    executor: Executor | str | None = None,
    time_limit: float | int | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Tensors | Outputs:
    """Continue a stored run from its folder alone, computing chunks that are missing or damaged.

    The result is the one an unbroken run gives, to the bit on the same kind of machine. A run that
    is complete is read and checked.

    **Arguments:**

    - `folder`: what was given as `run`.
    - `executor`, `time_limit`, `progress`: as for `simulate`.

    **Returns:** `Tensors` or `Outputs`. A `RunWarning` tells of damaged chunks that were computed
    again, and of other versions of dynagram or jax than those the run was begun with.

    >>> import tempfile
    >>> import numpy as np
    >>> from dynagram import MLP, simulate
    >>> net = MLP([3, 20, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = simulate(net, np.ones((1, 3)), ("V",), members=1000, run=f"{folder}/run")
    ...     again = resume_run(f"{folder}/run")
    >>> bool(np.all(first["V"] == again["V"]))
    True
    """
    outcome = resume_job(folder, executor=executor, time_limit=time_limit, progress=progress)
    return finish(_job_of(outcome), outcome)


def check_resumable(run: str | Path | None, *, resume: bool) -> None:
    """Where `resume` is asked for there must be a run to continue."""
    if resume and (run is None or not RunStore.is_run(Path(run))):
        raise InvalidValueError("run", None if run is None else str(run), "holds no run to resume")


def finish(job: ResultJob, outcome: Outcome) -> Any:
    """The result of a run; what its user should hear comes as a `RunWarning`."""
    for note in outcome.notes:
        warnings.warn(note, RunWarning, stacklevel=3)
    return job.result(outcome)


def _job_of(outcome: Outcome) -> ResultJob:
    """The job of a run; jobs of one's own, which have no kind, are refused by the store."""
    assert isinstance(outcome.job, ResultJob)  # all kinds that the store knows are
    return outcome.job
