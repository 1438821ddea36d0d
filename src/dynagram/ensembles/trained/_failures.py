"""Members whose training left the range of numbers: when, and the likely cause.

Gradient descent on the loss ½ΣΣ(z − y)² is stable while η < 2/λ_max, with λ_max the largest
eigenvalue of the NTK on the training set; for the mean over N n_L numbers the bound is
N n_L/λ_max.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from dynagram._precision import float64
from dynagram.data import Data
from dynagram.networks import Params
from dynagram.networks._network import Structure
from dynagram.observables.tangents._ntk import any_ntk
from dynagram.results._failure import FailedMember
from dynagram.training import GradientDescent
from dynagram.training._losses import SQUARED, half_sum_factor

if TYPE_CHECKING:
    from dynagram.ensembles.trained._job import TrainingJob
else:
    TrainingJob = object  # which imports this module

# Eigenvalues of larger kernels, and of more members, are not worth the wait.
_LARGEST_KERNEL = 1024
_LOOKED_INTO = 8


def explain_failures(job: TrainingJob, steps: np.ndarray) -> tuple[FailedMember, ...]:
    """The members of a run that failed, from the steps at which they did (NaN: they did not)."""
    failed = np.flatnonzero(~np.isnan(steps)).tolist()
    causes = [_cause(job, member) for member in failed[:_LOOKED_INTO]]
    causes += [_general(job)] * (len(failed) - len(causes))
    pairs = zip(failed, causes, strict=True)
    return tuple(FailedMember(member, job.seed, why, float(steps[member])) for member, why in pairs)


def _general(job: TrainingJob) -> str:
    if job.how.is_flow:
        return "the solver gave up: raise max_steps, loosen rtol or shorten the run"
    if job.how.eta is None:
        return "the leap left the range of numbers: its NTK is nearly singular"
    return f"the loss is not finite, the step is too large: lower eta = {job.how.eta:g}"


def _cause(job: TrainingJob, member: int) -> str:
    how, data = job.how, job.data
    plain = isinstance(how.algorithm, GradientDescent) and how.batch is None and not how.fixed
    if not plain or not isinstance(data, Data) or how.loss not in SQUARED:
        return _general(job)
    if data.y.size > _LARGEST_KERNEL:
        return _general(job)
    params = jax.tree.map(lambda a: a[0], job.initial(member, 1))
    curvature = _largest_eigenvalue(job.network, params, data.x)
    curvature *= half_sum_factor(how.loss, len(data.x), data.outputs)
    bound, eta = 2.0 / curvature, how.eta
    assert eta is not None
    if eta > bound:
        return f"eta = {eta:g} is above 2/λ_max = {bound:.3g} of its NTK at the start: lower eta"
    return (
        f"eta = {eta:g} is below 2/λ_max = {bound:.3g} of its NTK at the start, but the NTK grew: "
        "lower eta"
    )


@float64
def _largest_eigenvalue(network: Structure, params: Params, x: np.ndarray) -> float:
    kernel = np.asarray(
        any_ntk(network, jax.tree.map(jax.numpy.asarray, params), jax.numpy.asarray(x))
    )
    side = kernel.shape[0] * kernel.shape[2]
    return float(np.linalg.eigvalsh(kernel.transpose(0, 2, 1, 3).reshape(side, side))[-1])
