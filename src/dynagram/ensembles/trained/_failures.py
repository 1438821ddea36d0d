"""Members whose training left the range of numbers: when, and the likely cause.

Gradient descent on the loss ½ΣΣ(z − y)² is stable while η < 2/λ_max, with λ_max the largest
eigenvalue of the NTK on the training set; for the mean over N n_L numbers the bound is
N n_L/λ_max.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import numpy as np

from dynagram._precision import float64
from dynagram.ensembles.trained._job import TrainingJob
from dynagram.ensembles.trained._observe import member_ntk
from dynagram.networks import Params

# Eigenvalues of larger kernels, and of more members, are not worth the wait.
_LARGEST_KERNEL = 1024
_LOOKED_INTO = 8


@dataclass(frozen=True)
class Failure:
    """A member whose loss was not finite at `step`; its records end before that step."""

    member: int
    step: float
    cause: str

    def __str__(self) -> str:
        return f"member {self.member}, step {self.step:g}: {self.cause}"


def explained(job: TrainingJob, steps: np.ndarray) -> tuple[Failure, ...]:
    """The members of a run that failed, from the steps at which they did (NaN: they did not)."""
    failed = np.flatnonzero(~np.isnan(steps)).tolist()
    causes = [_cause(job, member) for member in failed[:_LOOKED_INTO]]
    causes += [_general(job)] * (len(failed) - len(causes))
    pairs = zip(failed, causes, strict=True)
    return tuple(Failure(member, float(steps[member]), cause) for member, cause in pairs)


def _general(job: TrainingJob) -> str:
    if job.training.algorithm == "flow":
        return "the solver gave up: raise max_solver_steps, lower eta or shorten the run"
    return f"the loss is not finite, the step is too large: lower eta = {job.training.eta:g}"


def _cause(job: TrainingJob, member: int) -> str:
    training = job.training
    plain = training.algorithm == "gd" and training.batch is None and job.x is not None
    if not plain or not training.loss.startswith("mse"):
        return _general(job)
    assert job.x is not None
    numbers = job.x.shape[0] * job.network.widths[-1]
    if numbers > _LARGEST_KERNEL or training.fixed:
        return _general(job)
    params = jax.tree.map(lambda a: a[0], job.initial(member, 1))
    curvature = _largest_eigenvalue(job.network, params, job.x)
    if training.loss == "mse-mean":
        curvature *= 2.0 / numbers
    bound = 2.0 / curvature
    if training.eta > bound:
        return (
            f"eta = {training.eta:g} is above 2/λ_max = {bound:.3g} of its NTK at the start: "
            "lower eta"
        )
    return (
        f"eta = {training.eta:g} is below 2/λ_max = {bound:.3g} of its NTK at the start, but the "
        "NTK grew: lower eta"
    )


@float64
def _largest_eigenvalue(network: MLP, params: Params, x: np.ndarray) -> float:
    kernel = np.asarray(
        member_ntk(network, jax.tree.map(jax.numpy.asarray, params), jax.numpy.asarray(x))
    )
    side = kernel.shape[0] * kernel.shape[2]
    return float(np.linalg.eigvalsh(kernel.transpose(0, 2, 1, 3).reshape(side, side))[-1])
