"""Running jobs: chunks of members, executors, progress."""

from dynagram.ensembles.engine._engine import read_job as read_job
from dynagram.ensembles.engine._engine import resume_job as resume_job
from dynagram.ensembles.engine._engine import run_job as run_job
from dynagram.ensembles.engine._outcome import Outcome as Outcome
from dynagram.ensembles.engine._progress import Progress as Progress

__all__ = ["Outcome", "Progress", "read_job", "resume_job", "run_job"]
