"""`train`: many concrete networks trained at once, and what they output, with standard errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from dynagram._memory import require_memory
from dynagram.ensembles._runs import check_resumable, finish
from dynagram.ensembles.engine._engine import run_job
from dynagram.ensembles.engine._progress import Progress
from dynagram.ensembles.trained._checks import check_members
from dynagram.ensembles.trained._job import Inputs, Problem, Real, TrainingJob, Whole
from dynagram.ensembles.trained._observe import ObservablesLike
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, Chain, Model
from dynagram.networks._checks import checked_integer
from dynagram.results._outputs import Outputs
from dynagram.training import Training

if TYPE_CHECKING:
    Network = MLP | Chain | Model
    Run = str | Path
else:
    Network = Run = object  # checked here, with clearer messages


def train(
    network: Network,
    data: Problem,
    how: Training,
    *,
    members: Whole | None = None,
    seed: Whole = 0,
    observables: ObservablesLike | None = None,
    test_x: Inputs = None,
    keep_members: bool = True,
    keep_parameters: bool = False,
    covariances: Sequence[str] = (),
    parameters: Any = None,
    pairs: bool = False,
    kernels: Whole = 8,
    run: Run | None = None,
    resume: bool = False,
    executor: Executor | str | None = None,
    until_error: Real | None = None,
    tolerance: Real = 1e-6,
    max_steps: Whole | None = None,
    chunk_members: Whole | None = None,
    time_limit: Real | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> Outputs:
    """Train `members` networks and measure their outputs: means, spreads, covariances, with errors.

    Members start from the initialisation of `network` and differ in their draw (and their data)
    only: member m is a function of the seed and of m alone.

    **Arguments:**

    - `network`: an `MLP` or a `Chain` of blocks; or a `Model`, from whose weights every member
        starts.
    - `data`: a `Data`, or a JAX function of a key that returns fresh (x, y) for every member and
        step, itself or as "module:function".
    - `how`: algorithm, loss, length, and which moments are recorded. Without a length a member is
        trained until its largest error is below `tolerance`, or `max_steps` are used up.
    - `members`: how many networks; with `until_error` the most allowed.
    - `seed`: of the ensemble.

    **Further arguments:**

    - `observables`: what is recorded besides: "loss" (of all samples; of fresh data that of the
        batch to come), "test_loss", "accuracy", "test_accuracy", "norms" |b|, |W| of every layer,
        "ntk", "module:function", or, in a mapping from names, any JAX function of (params, test
        inputs). "outputs" are those of the test inputs (of the training inputs where there are
        none), "all_outputs" of both. By default the loss, and the outputs if there are test inputs.
    - `test_x`: test inputs, with fresh data only.
    - `keep_members`: whether `recorded` holds every member; else memory does not grow with them.
    - `keep_parameters`: whether the final parameters are kept.
    - `covariances`: further observables whose covariance is estimated, as `<name>_covariance`.
    - `parameters`: layers (b, W) with the members first to start from.
    - `pairs`: control variates for 1/n corrections. Every network is trained twice, the second
        time with its output layer reversed, and compared with its own infinite-width path. For
        squared errors, all samples, and gradient descent, flow or two leaps.
    - `kernels`: untrained networks per pair, for the part that a frozen NTK explains.
    - `run`: a folder that keeps the run, chunk by chunk. The same run in it is continued, to the
        same bits, or read if it is complete.
    - `resume`: whether there must be one.
    - `executor`: None for this process, "process:N", "dask", "dask:N", "tcp://host:port", or any
        `concurrent.futures.Executor`.
    - `until_error`: stop when the worst relative standard error is this; needs `pairs`, or
        `keep_members` False.
    - `tolerance`, `max_steps`: of training to the end; for gradient flow `max_steps` limits the
        steps of the solver, always.
    - `chunk_members`: networks computed at a time; changes nothing but memory and rounding.
    - `time_limit`: seconds that a chunk may take on a worker of "process:N" or Dask; one that takes
        longer is ended, and the members at fault are found and left out.
    - `progress`: called with a `Progress` after every chunk.

    **Returns:** `Outputs` of order "measured": statistics of the outputs at the recorded moments,
    `estimates` and `recorded` of the other observables, `failures` (members whose loss is not
    finite are left out), `stopped`, `parameters`. Cost: about 6 flop per parameter, sample and
    step, on all cores. `open_run` reads a stored run to the same result.

    >>> from dynagram.data import Data
    >>> from dynagram.training import GradientDescent
    >>> net = MLP([2, 16, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> how = Training(GradientDescent(0.2), steps=200, record=3, spacing="linear")
    >>> data = Data(np.eye(2), [1.0, -1.0], test_x=[[1.0, 1.0]])
    >>> y = train(net, data, how, members=100)
    >>> y
    Outputs(order measured; 100 networks; 1 test samples × 1 outputs; 3 moments up to τ = 40)
    >>> y.estimate("loss").value.round(3).tolist(), y["loss"].shape
    ([1.394, 0.0, 0.0], (100, 3))
    """
    if not isinstance(how, Training):
        raise InvalidTypeError("how", f"a {type(how).__name__}", "expected Training(…)")
    if isinstance(network, Model):
        if parameters is not None:
            raise InvalidValueError("parameters", "given", "a Model has its own")
        parameters = jax.tree.map(lambda leaf: np.asarray(leaf)[None], network.params)
        network = network.network  # pyright: ignore[reportAssignmentType]
    elif parameters is not None:
        members = _members_of(parameters, members)
    job_options: dict[str, Any] = {
        "seed": seed, "test_x": test_x, "observables": observables, "parameters": parameters,
        "keep_members": keep_members, "keep_parameters": keep_parameters,
        "covariances": covariances, "pairs": pairs, "kernels": kernels, "tolerance": tolerance,
        "max_steps": max_steps,
    }  # fmt: skip
    _check_request(members, until_error, pairs=pairs, keep_members=keep_members)
    check_resumable(run, resume=resume)
    job = TrainingJob(network, data, how, **job_options, chunk_members=chunk_members)  # pyright: ignore
    if chunk_members is None and members is not None:
        # Chunks of equal size, the last one too.
        size = -(-members // -(-members // job.chunk_members))
        job = job.in_chunks(size + pairs * (size % 2))
    if members is not None and run is None and job.keep_members and not pairs:
        numbers = sum(math.prod(shape) for shape in job.shapes.values())
        remedy = "give a run folder, or keep_members=False"
        require_memory("members", members, 16.0 * members * numbers, remedy)
    outcome = run_job(
        job,
        folder=run,
        resume=run is not None,
        members=members,
        executor=executor,
        until_error=until_error,
        time_limit=time_limit,
        progress=progress,
    )
    return finish(job, outcome)


def _members_of(parameters: Any, members: int | None) -> int:
    """The number of members, of which each has its own parameters."""
    given = len(np.asarray(parameters[0][0]))
    if members is not None and members > given:
        raise InvalidValueError("members", members, f"parameters of {given} members are given")
    return given if members is None else members


def _check_request(
    members: object, until_error: object, *, pairs: bool, keep_members: bool
) -> None:
    if members is None and until_error is None:
        raise InvalidTypeError("members", members, "expected the number of networks to train")
    if members is not None:
        check_members(checked_integer("members", members, 1, 2**32 - 1), pairs=pairs)
    if until_error is not None and keep_members and not pairs:
        raise InvalidValueError("until_error", until_error, "needs keep_members=False, or pairs")
