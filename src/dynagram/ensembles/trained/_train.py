"""Ensembles of trained networks: many members at once, recorded as they learn (7.8)-(7.11).

`train_ensemble` trains in this process and returns what was recorded. `TrainingJob` is the same
ensemble as a job for `dynagram.ensembles.engine._engine`: stored, resumable, on any executor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dynagram.ensembles.trained._failures import Failure as Failure
from dynagram.ensembles.trained._failures import explained
from dynagram.ensembles.trained._job import Data, Inputs, Targets
from dynagram.ensembles.trained._job import TrainingJob as TrainingJob
from dynagram.ensembles.trained._observe import ObservablesLike
from dynagram.ensembles.trained._specification import Training as Training
from dynagram.ensembles.trained._specification import Whole, checked_integer
from dynagram.ensembles.trained._specification import recorded_steps as recorded_steps
from dynagram.ensembles.trained._sums import reshaped, sums_of
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import Layer, Params
from dynagram.results._estimate import Estimate, Moments


@dataclass(frozen=True, eq=False)
class TrainedEnsemble:
    """What `members` networks did in training.

    `steps` are the recorded steps; `recorded[name]` is (member, step, …), in the precision of the
    training, and empty when members were not kept. `stopped` is the step at which a condition of
    `stop` was met, NaN where none was; from there on a member's records repeat. A member that
    failed is NaN from that step on and is left out of mean and covariance. `parameters` are the
    final ones, if kept, with the members first.
    """

    job: TrainingJob
    members: int
    steps: Int[np.ndarray, " step"]
    recorded: Mapping[str, Float[np.ndarray, "member step ..."]]
    moments: Mapping[str, Moments]
    stopped: Float[np.ndarray, " member"]
    failures: tuple[Failure, ...]
    parameters: Params | None

    def __getitem__(self, name: str) -> Float[np.ndarray, "member step ..."]:
        """The recorded observable `name`."""
        if name not in self.recorded:
            names = ", ".join(self.recorded) or "none, since members were not kept"
            raise InvalidValueError("observable", name, f"recorded: {names}")
        return self.recorded[name]

    def mean(self, name: str) -> Estimate:
        """The average over members, (step, …), with its standard error."""
        return reshaped(self._sums(name, 1).mean(), self.job.shapes[name])

    def covariance(self, name: str) -> Estimate:
        """The covariance over members of all pairs of entries at one step, (step, …, …).

        Memory: 128·steps·P² numbers for P entries.
        """
        shape = self.job.shapes[name]
        return reshaped(self._sums(name, 2).covariance(), (*shape, *shape[1:]))

    def _sums(self, name: str, order: int) -> Moments:
        if name in self.recorded:
            good = np.ones(self.members, bool)
            good[[failure.member for failure in self.failures]] = False
            return sums_of(self.recorded[name], good, order)
        if name not in self.moments:
            raise InvalidValueError("observable", name, f"recorded: {', '.join(self.job.shapes)}")
        return self.moments[name]


def train_ensemble(
    network: MLP,
    training: Training,
    x: Inputs = None,
    y: Targets = None,
    *,
    members: Whole | None = None,
    seed: Whole = 0,
    data: Data = None,
    test_x: Inputs = None,
    observables: ObservablesLike = ("loss",),
    parameters: Any = None,
    keep_members: bool = True,
    keep_parameters: bool = False,
    covariances: Sequence[str] = (),
    chunk_members: Whole | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> TrainedEnsemble:
    """Train `members` networks on inputs `x` (N, n_0) and targets `y` (N, n_L); record them.

    Instead of x and y, `data` may be a JAX function of a key that returns fresh (x, y) for every
    member and step. Members start from `network.init` and differ in their draw (and their data)
    only, or start from `parameters`: layers (b, W) with the members first. Member m is a function
    of the seed and of m alone; `chunk_members`, computed at a time, changes nothing but memory.

    `observables` lists what to record: "loss" (of all samples; with fresh data of the batch to
    come), "outputs" and "ntk" on `test_x` (by default x), "norms" |b|, |W| of every layer,
    "module:function", or, in a mapping from names, any JAX function of (params, test_x).

    With `keep_members` False only means are kept, and covariances of those named in
    `covariances`: memory does not grow with `members`. Cost: about 6 flop per parameter, sample
    and step, on all cores. `progress(done, members)` is called after each chunk.

    >>> from dynagram import MLP
    >>> net = MLP([2, 16, 1], "tanh", C_b=0.0, C_W=1.0)
    >>> training = Training(steps=200, eta=0.2, record=3, spacing="linear")
    >>> found = train_ensemble(net, training, np.eye(2), [[1.0], [-1.0]], members=100)
    >>> found.steps.tolist(), found["loss"].shape
    ([0, 100, 200], (100, 3))
    >>> loss = found.mean("loss")
    >>> bool(loss.value[0] > 1.0 > 1e-3 > loss.value[-1] > 0.0)
    True
    """
    if parameters is not None and members is None:
        members = len(np.asarray(parameters[0][0]))
    if members is None:
        raise InvalidTypeError("members", members, "expected the number of networks to train")
    count = checked_integer("members", members, 1)
    job = TrainingJob(
        network,
        training,
        x,
        y,
        seed=seed,
        data=data,
        test_x=test_x,
        observables=observables,
        parameters=parameters,
        keep_members=keep_members,
        keep_parameters=keep_parameters,
        covariances=covariances,
        chunk_members=chunk_members,
    )
    if job.parameters is not None and count > job.parameters[0].b.shape[0]:
        allowed = f"parameters of {job.parameters[0].b.shape[0]} members are given"
        raise InvalidValueError("members", count, allowed)
    chunks = -(-count // job.chunk_members)
    if chunk_members is None:
        pairs = dict(job.observables)
        job = replace(job, observables=pairs, chunk_members=-(-count // chunks))
    arrays: dict[str, list[np.ndarray]] = {}
    moments: dict[str, Moments] = {}
    for first in range(0, count, job.chunk_members):
        size = min(job.chunk_members, count - first)
        for name, found in job.run_chunk(first, size).items():
            if isinstance(found, Moments):
                moments[name] = moments[name].merge(found) if name in moments else found
            else:
                arrays.setdefault(name, []).append(found)
        if progress is not None:
            progress(first + size, count)
    return _assembled(job, {n: np.concatenate(parts) for n, parts in arrays.items()}, moments)


def _assembled(
    job: TrainingJob, arrays: dict[str, np.ndarray], moments: dict[str, Moments]
) -> TrainedEnsemble:
    names = [name for name, _ in job.observables if name in arrays]
    numbers = range(1, job.network.depth + 1) if job.keep_parameters else ()
    layers: Any = tuple(Layer(arrays[f"b{n}"], arrays[f"W{n}"]) for n in numbers)  # pyright: ignore
    return TrainedEnsemble(
        job=job,
        members=len(arrays["failed"]),
        steps=np.array(job.training.record),
        recorded={name: arrays[name] for name in names},
        moments=moments,
        stopped=arrays["stopped"],
        failures=explained(job, arrays["failed"]),
        parameters=layers or None,
    )
