"""From what the engine computed, or read back, to `Outputs`: statistics over the members."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dynagram.data import Data
from dynagram.ensembles.trained._failures import explain_failures
from dynagram.ensembles.trained._observe import outputs_name
from dynagram.ensembles.trained._pairs import joint_error
from dynagram.ensembles.trained._sums import (
    covariance_estimate,
    mean_errors_together,
    mean_estimate,
    sums_of,
)
from dynagram.errors import NonFiniteError
from dynagram.networks import Layer, Params
from dynagram.results._estimate import Estimate, Moments
from dynagram.results._failure import FailedMember
from dynagram.results._outputs import Outputs
from dynagram.training import TwoStep

if TYPE_CHECKING:
    from dynagram.ensembles.engine._outcome import Outcome
    from dynagram.ensembles.trained._job import TrainingJob
else:
    Outcome = TrainingJob = object  # which import this module


def outputs_of(job: TrainingJob, outcome: Outcome) -> Outputs:
    """The outputs of a training ensemble, with what was recorded of every member."""
    failures = _failures(job, outcome)
    measured = _pairs(job, outcome) if job.pairs else _members(job, outcome, failures)
    notes = job.data.merged.notes if isinstance(job.data, Data) else ()
    if failures:
        text = f"{len(failures)} of {outcome.members} networks failed and are left out, the first: "
        notes = (*notes, f"{text}{failures[0]}")
    return Outputs(
        network=job.network,
        how=job.how,
        order="measured",
        times=job.how.times,
        x=job.asked,
        training_samples=job.training_samples,
        regime=None,
        members=outcome.members,
        seed=job.seed,
        about=_about(job, outcome),
        notes=(*notes, *measured.pop("notes", ())),
        stopped=outcome.arrays.get("stopped"),
        failures=failures,
        parameters=_parameters(job, outcome),
        shown="test" if len(job.asked) > job.training_samples or not len(job.asked) else "train",
        **measured,
    )


def _failures(job: TrainingJob, outcome: Outcome) -> tuple[FailedMember, ...]:
    """Members that could not be computed, and those whose training failed."""
    explained = explain_failures(job, outcome.arrays.get("failed", np.zeros(0)))
    return tuple(sorted((*outcome.failed, *explained), key=lambda failure: failure.member))


def _about(job: TrainingJob, outcome: Outcome) -> dict[str, Any]:
    """How the run ended; of pairs how many, of a squared error how far training came."""
    about: dict[str, Any] = {"complete": outcome.complete}
    if outcome.until_error is not None and outcome.worst is not None:
        about["until_error"] = outcome.until_error
        about["worst"] = {"estimate": outcome.worst.name, "error": outcome.worst.value}
    if job.pairs:
        about |= {name: outcome.moments[name].count for name in ("pairs", "untrained")}
    errors = outcome.arrays.get("largest_error", np.zeros(0))
    errors = errors[np.isfinite(errors)]
    if errors.size:
        about["largest_error"] = float(errors.max())
        # What two leaps leave is of order 1/n² and no lack of steps.
        if job.how.reaches_the_end and not isinstance(job.how.algorithm, TwoStep):
            about["unfinished"] = int(np.sum(errors > job.tolerance))
    return about


def _parameters(job: TrainingJob, outcome: Outcome) -> Params | None:
    if not job.keep_parameters:
        return None
    numbers = range(1, job.network.depth + 1)
    arrays: Any = outcome.arrays
    return tuple(Layer(arrays[f"b{n}"], arrays[f"W{n}"]) for n in numbers)


# --- pairs ------------------------------------------------------------------------------------


def _pairs(job: TrainingJob, outcome: Outcome) -> dict[str, Any]:
    sums = outcome.moments["pairs"], outcome.moments["untrained"]
    estimates = job.estimates(outcome.moments)
    mean, covariance = estimates["mean"], estimates["covariance"]
    return {
        "measured_mean": mean.value,
        "mean_errors": mean.standard_error,
        "measured_covariance": covariance.value,
        "covariance_errors": covariance.standard_error,
        "joint_errors": joint_error(*sums, mean.value[0].size),
    }


# --- members ----------------------------------------------------------------------------------


class _Statistics(NamedTuple):
    mean: Estimate
    covariance: Estimate | None
    joint: np.ndarray | None


def _members(
    job: TrainingJob, outcome: Outcome, failures: tuple[FailedMember, ...]
) -> dict[str, Any]:
    good = np.ones(outcome.members, bool)
    good[[failure.member for failure in failures]] = False
    estimates: dict[str, Estimate] = {}
    notes: list[str] = []
    place = outputs_name(job.observables)
    shape = (len(job.how.recorded), len(job.asked), job.network.output_size)
    fields: dict[str, Any] = {"measured_mean": np.full(shape, np.nan)}
    for name, _ in job.observables:
        try:
            statistics = _statistics(job, outcome, good, name)
        except NonFiniteError as error:
            notes.append(f"no mean of {name}: {error}")
            continue
        if name == place:
            fields = _output_fields(statistics)
            if statistics.covariance is None and job.keep_members:
                fields["measured_std"] = _spread(outcome.arrays[name], good)
            continue
        estimates[name] = statistics.mean
        if statistics.covariance is not None:
            estimates[f"{name}_covariance"] = statistics.covariance
    names = [name for name, _ in job.observables] if job.keep_members else []
    recorded = _Recorded(outcome.arrays, names)
    return fields | {"estimates": estimates, "recorded": recorded, "notes": tuple(notes)}


class _Recorded(Mapping[str, np.ndarray]):
    """The observables of every member; those of a stored run are read when they are used."""

    def __init__(self, arrays: Mapping[str, np.ndarray], names: Sequence[str]):
        self._arrays, self._names = arrays, names

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _statistics(job: TrainingJob, outcome: Outcome, good: np.ndarray, name: str) -> _Statistics:
    order = job.order(name)
    if name in outcome.moments:
        return _of_sums(outcome.moments[name], job.shapes[name], order)
    # One moment at a time: the sums of all of them would be many times the records.
    shape, values = job.shapes[name], outcome.arrays[name]
    parts = [
        _of_sums(sums_of(values[:, [place]], good, order), (1, *shape[1:]), order)
        for place in range(shape[0])
    ]
    mean = _stacked([part.mean for part in parts])
    if order == 1:
        return _Statistics(mean, None, None)
    covariance = _stacked([part.covariance for part in parts if part.covariance is not None])
    return _Statistics(mean, covariance, np.concatenate([part.joint for part in parts]))  # pyright: ignore


def _of_sums(sums: Moments, shape: tuple[int, ...], order: int) -> _Statistics:
    mean = mean_estimate(sums, shape)
    if order == 1:
        return _Statistics(mean, None, None)
    return _Statistics(mean, covariance_estimate(sums, shape), mean_errors_together(sums))


def _stacked(parts: list[Estimate]) -> Estimate:
    values = np.concatenate([part.value for part in parts])
    errors = np.concatenate([part.standard_error for part in parts])
    return Estimate(values, errors, parts[0].count)


def _spread(values: np.ndarray, good: np.ndarray) -> np.ndarray:
    chosen = np.asarray(values[good], np.float64)
    return chosen.std(axis=0, ddof=1) if len(chosen) > 1 else np.full(values.shape[1:], np.nan)


def _output_fields(statistics: _Statistics) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "measured_mean": statistics.mean.value,
        "mean_errors": statistics.mean.standard_error,
    }
    if statistics.covariance is not None:
        fields["measured_covariance"] = statistics.covariance.value
        fields["covariance_errors"] = statistics.covariance.standard_error
        fields["joint_errors"] = statistics.joint
    return fields
