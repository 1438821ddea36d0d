"""`Outputs`: mean, spread and covariance of a network's outputs, predicted or measured, in time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.networks import Params
from dynagram.networks._network import Structure
from dynagram.results._estimate import Estimate
from dynagram.results._failure import FailedMember
from dynagram.results._outputs_forms import (
    as_dataset,
    as_dictionary,
    equations_of,
    file_arrays,
    file_description,
)
from dynagram.results._outputs_table import curves_grid, outputs_grid
from dynagram.results._regime import Regime, worst_regime
from dynagram.results._result import Result
from dynagram.results._table import Grid
from dynagram.training import Posterior, Training

if TYPE_CHECKING:
    import xarray
else:
    xarray = object  # imported when it is needed

# At a training input everything cancels to rounding, which counts as zero.
_ROUNDING = 1e-14

# Arrays that do not have the moments first.
_NOT_IN_TIME = ("x", "stopped")

Parts = Mapping[str, Float[np.ndarray, "time sample ..."]]


@dataclass(frozen=True, eq=False, repr=False)
class Outputs(Result):
    """Outputs of networks after learning, at some moments: statistics over initialisations.

    `mean`, `std`, `error`, `covariance` are those of the test samples at the last moment, of
    shapes (test, outputs) and (test, outputs, test, outputs); `means`, `stds`, `errors`,
    `covariances` have every moment of `times` first. `.train` shows the training samples instead
    (repeated ones merged), `.samples` both, `.at(time)` one moment.

    `order` is "∞", "1/n" or "measured" (all orders). `mean_infinite` and `covariance_infinite` are
    the infinite-width parts of a prediction; `mean_parts` and `covariance_parts` add up to
    `mean_correction` and `covariance_correction`, the coefficients of 1/n_{L−1}. `error` is the
    numerical error of a predicted mean, or the standard error of a measured one. The entries of a
    measured mean err together: `joint_error` is the covariance matrix of their errors.

    Of trained networks, `estimates` are those of further observables, `recorded` what every member
    did, `failures` the members left out, `stopped` the step (the time, of flow) at which a member
    met a condition of `stop` (NaN: none), `parameters` the final ones with the members first.
    """

    kind = "outputs"

    network: Structure
    how: Training | Posterior
    order: str
    times: tuple[float | int, ...]
    x: Float[np.ndarray, "sample n_0"]
    training_samples: int
    regime: Regime | None
    infinite_mean: Float[np.ndarray, "time sample outputs"] | None = None
    infinite_kernel: Float[np.ndarray, "time sample sample"] | None = None
    infinite_covariance: Float[np.ndarray, "time sample outputs sample outputs"] | None = None
    parts_of_mean: Parts = field(default_factory=dict)
    parts_of_covariance: Parts = field(default_factory=dict)
    measured_mean: Float[np.ndarray, "time sample outputs"] | None = None
    measured_covariance: Float[np.ndarray, "time sample outputs sample outputs"] | None = None
    mean_errors: Float[np.ndarray, "time sample outputs"] | None = None
    covariance_errors: Float[np.ndarray, "time sample outputs sample outputs"] | None = None
    joint_errors: Float[np.ndarray, "time entry entry"] | None = None
    measured_std: Float[np.ndarray, "time sample outputs"] | None = None
    members: int | None = None
    seed: int | None = None
    stopped: Float[np.ndarray, " member"] | None = None
    failures: tuple[FailedMember, ...] = ()
    parameters: Params | None = None
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    recorded: Mapping[str, np.ndarray] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    shown: str = "test"
    regimes: Mapping[str, tuple[Regime, ...]] = field(default_factory=dict)

    # --- which samples and moments ------------------------------------------------------------

    @property
    def train(self) -> Outputs:
        """The outputs at the training samples."""
        if self.training_samples == 0:
            allowed = "training outputs were not computed: at the end of training they are targets"
            raise InvalidValueError("train", "asked", allowed)
        return self._showing("train")

    @property
    def test(self) -> Outputs:
        """The outputs at the test samples."""
        return self._showing("test")

    @property
    def samples(self) -> Outputs:
        """The outputs at training samples, then test samples, with covariances between both."""
        return self._showing("all")

    def at(self, time: float | int) -> Outputs:
        """The outputs at one of `times`."""
        near = [math.isclose(time, moment, rel_tol=1e-9) for moment in self.times]
        if not any(near):
            allowed = f"recorded: {', '.join(f'{t:g}' for t in self.times)}"
            raise InvalidValueError("time", time, allowed)
        index = near.index(True)
        now = slice(index, index + 1)
        cut: dict[str, Any] = {"times": self.times[now]}
        for item in dataclasses.fields(self):
            value: Any = getattr(self, item.name)
            if item.name.startswith("parts_of"):
                cut[item.name] = {name: part[now] for name, part in value.items()}
            elif isinstance(value, np.ndarray) and item.name not in _NOT_IN_TIME:
                cut[item.name] = value[now]
        cut["estimates"] = {
            name: Estimate(estimate.value[now], estimate.standard_error[now], estimate.count)
            for name, estimate in self.estimates.items()
        }
        cut["recorded"] = {name: values[:, now] for name, values in self.recorded.items()}
        cut["regimes"] = {shown: regimes[now] for shown, regimes in self.regimes.items()}
        return dataclasses.replace(self, **cut)._showing(self.shown)

    def _showing(self, shown: str) -> Outputs:
        """These samples, with the verdict on them where it was judged apart."""
        judged = [
            regime
            for samples, regimes in self.regimes.items()
            for regime in regimes
            if shown in (samples, "all")
        ]
        regime = worst_regime(judged) if judged else self.regime
        return dataclasses.replace(self, shown=shown, regime=regime)

    @property
    def rows(self) -> slice:
        """The samples that are shown, among training and test samples."""
        first = self.training_samples
        return {"test": slice(first, None), "train": slice(0, first), "all": slice(None)}[
            self.shown
        ]

    @property
    def inputs(self) -> Float[np.ndarray, "sample n_0"]:
        """The inputs that the outputs belong to."""
        return self.x[self.rows]

    @property
    def width(self) -> int:
        """n_{L−1}, which divides the corrections."""
        return self.network.width

    # --- all moments --------------------------------------------------------------------------

    @property
    def means(self) -> Float[np.ndarray, "time sample outputs"]:
        """The mean at the actual width, at every moment."""
        if self.measured_mean is not None:
            return self.measured_mean[:, self.rows]
        return self.means_infinite + self.mean_corrections / self.width

    @property
    def covariances(self) -> Float[np.ndarray, "time sample outputs sample outputs"]:
        """The covariance at the actual width, at every moment."""
        if self.measured_covariance is not None:
            return _block(self.measured_covariance, self.rows)
        infinite = self.covariances_infinite
        if not self.parts_of_covariance:
            return infinite
        return infinite + self.covariance_corrections / self.width

    @property
    def stds(self) -> Float[np.ndarray, "time sample outputs"]:
        """Standard deviations at every moment; nan where an order in 1/n makes a variance < 0."""
        if self.measured_std is not None:
            return self.measured_std[:, self.rows]
        if self.measured_covariance is not None or self.parts_of_covariance:
            variance = np.einsum("xtiti->xti", self.covariances)
            return _roots(variance)
        return self.stds_infinite

    @property
    def means_infinite(self) -> Float[np.ndarray, "time sample outputs"]:
        """The mean at infinite width, at every moment."""
        return self._needed("infinite_mean")[:, self.rows]

    @property
    def stds_infinite(self) -> Float[np.ndarray, "time sample outputs"]:
        """Standard deviations at infinite width, at every moment."""
        return _roots(self._infinite_variances())

    @property
    def errors(self) -> Float[np.ndarray, "time sample outputs"]:
        """Errors of `means`: numerical for a prediction, standard errors for a measurement."""
        if self.mean_errors is None:
            return np.zeros_like(self.means)
        return self.mean_errors[:, self.rows]

    # --- the last moment ----------------------------------------------------------------------

    @property
    def time(self) -> float | int:
        """τ of the last moment; ∞ at the end of training."""
        return self.times[-1]

    @property
    def mean(self) -> Float[np.ndarray, "sample outputs"]:
        """The mean at the actual width."""
        return self.means[-1]

    @property
    def covariance(self) -> Float[np.ndarray, "sample outputs sample outputs"]:
        """The covariance at the actual width."""
        return self.covariances[-1]

    @property
    def std(self) -> Float[np.ndarray, "sample outputs"]:
        """Standard deviations at the actual width."""
        return self.stds[-1]

    @property
    def error(self) -> Float[np.ndarray, "sample outputs"]:
        """Errors of `mean`."""
        return self.errors[-1]

    @property
    def covariance_error(self) -> Float[np.ndarray, "sample outputs sample outputs"]:
        """Errors of `covariance`."""
        if self.covariance_errors is None:
            return np.zeros_like(self.covariance)
        return _block(self.covariance_errors, self.rows)[-1]

    @property
    def joint_error(self) -> Float[np.ndarray, "entry entry"]:
        """Covariance matrix of the errors of a measured mean, (sample, output) one index."""
        entries = np.arange(self.x.shape[0] * self.network.output_size)
        shown = entries.reshape(self.x.shape[0], -1)[self.rows].ravel()
        return self._needed("joint_errors")[-1][np.ix_(shown, shown)]

    @property
    def mean_infinite(self) -> Float[np.ndarray, "sample outputs"]:
        """The mean at infinite width."""
        return self.means_infinite[-1]

    @property
    def covariance_infinite(self) -> Float[np.ndarray, "sample outputs sample outputs"]:
        """The covariance at infinite width; after a squared error outputs are independent."""
        return self.covariances_infinite[-1]

    @property
    def kernel_infinite(self) -> Float[np.ndarray, "sample sample"]:
        """The covariance of any one output at infinite width, where outputs are independent."""
        return self._needed("infinite_kernel")[-1, self.rows, self.rows]

    @property
    def mean_parts(self) -> dict[str, Float[np.ndarray, "sample outputs"]]:
        """What adds up to `mean_correction`."""
        return {name: part[-1, self.rows] for name, part in self.parts_of_mean.items()}

    @property
    def covariance_parts(self) -> dict[str, Float[np.ndarray, "sample outputs sample outputs"]]:
        """What adds up to `covariance_correction`."""
        return {n: _block(part, self.rows)[-1] for n, part in self.parts_of_covariance.items()}

    @property
    def mean_correction(self) -> Float[np.ndarray, "sample outputs"]:
        """m^{1}: everything that multiplies 1/n_{L−1} in the mean."""
        return self.mean_corrections[-1]

    @property
    def covariance_correction(self) -> Float[np.ndarray, "sample outputs sample outputs"]:
        """𝒞: everything that multiplies 1/n_{L−1} in the covariance."""
        return self.covariance_corrections[-1]

    def estimate(self, name: str = "mean") -> Estimate:
        """ "mean", "covariance" or a recorded observable with its errors."""
        if name == "mean":
            return Estimate(self.mean, self.error, self.members or 0)
        if name == "covariance":
            return Estimate(self.covariance, self.covariance_error, self.members or 0)
        if name not in self.estimates:
            have = ", ".join(("mean", "covariance", *self.estimates))
            raise InvalidValueError("estimate", name, f"this result holds {have}")
        return self.estimates[name]

    def __getitem__(self, name: str) -> np.ndarray:
        """A recorded observable of every member, (member, moment, …)."""
        if name not in self.recorded:
            have = ", ".join(self.recorded) or "none, since members were not kept"
            raise InvalidValueError("observable", name, f"recorded: {have}")
        return self.recorded[name]

    # --- the protocol -------------------------------------------------------------------------

    @property
    def references(self) -> tuple[str, ...]:
        """The book and the equations used."""
        return equations_of(self)

    @property
    def of_one_network(self) -> bool:
        """Whether it is one given network that is predicted, not all initialisations."""
        return bool(self.about.get("given_network"))

    def summary(self) -> Grid:
        """Mean and spread of every output that is shown, at every moment."""
        return outputs_grid(self)

    def curves(self) -> Grid | None:
        """Losses, accuracies and other single numbers at every moment; None where there are none.

        Predicted ones are those of the training set and of the test set, at the order of the
        prediction and (`_infinite`) at infinite width, with the standard deviation (`_std`)
        between networks.
        """
        return curves_grid(self)

    def to_dict(self) -> dict[str, Any]:
        """Network, training, moments, means, errors, spreads, covariances, regime; moments first.

        At infinite width the covariance of every output is `kernel_infinite`; where the loss ties
        outputs together there is `covariance_infinite` instead.
        """
        return as_dictionary(self)

    def to_xarray(self) -> xarray.Dataset:
        """mean, error, std (time, sample, output) and covariance, with τ and sample numbers."""
        return as_dataset(self)

    def plot(self) -> Any:
        """Means with spreads over samples, or over time, as an altair chart (extra `report`)."""
        from dynagram.report._output_charts import outputs_chart

        return outputs_chart(self)

    def _arrays(self) -> dict[str, Any]:
        return file_arrays(self)

    def _about(self) -> dict[str, Any]:
        return file_description(self)

    def __repr__(self) -> str:
        count, outputs = self.means.shape[1:]
        of = "one network; " if self.of_one_network else ""
        of = of if self.members is None else f"{self.members} networks; "
        when = "the end" if math.isinf(self.time) else f"τ = {self.time:g}"
        moments = when if len(self.times) == 1 else f"{len(self.times)} moments up to {when}"
        moments = "posterior" if isinstance(self.how, Posterior) else moments
        verdict = "" if self.regime is None else f"; {self.regime.verdict}"
        words = {"test": "test", "train": "training", "all": "training and test"}[self.shown]
        return (
            f"Outputs(order {self.order}; {of}{count} {words} samples × {outputs} outputs; "
            f"{moments}{verdict})"
        )

    # --- inside -------------------------------------------------------------------------------

    @property
    def has_covariance(self) -> bool:
        """Covariances of very many measured outputs are not formed unless asked for."""
        return self.measured_covariance is not None or self.measured_mean is None

    @property
    def has_spread(self) -> bool:
        """Whether standard deviations are known."""
        return self.has_covariance or self.measured_std is not None

    def _needed(self, name: str) -> np.ndarray:
        value = getattr(self, name)
        if value is None:
            raise InvalidValueError(name, None, f"a result of order {self.order} does not have it")
        return value

    @property
    def mean_corrections(self) -> Float[np.ndarray, "time sample ..."]:
        """What multiplies 1/n_{L−1} in the mean, at every moment."""
        if not self.parts_of_mean:
            return np.zeros_like(self.means_infinite)
        return np.sum(list(self.parts_of_mean.values()), axis=0)[:, self.rows]

    @property
    def covariance_corrections(self) -> Float[np.ndarray, "time sample ..."]:
        """What multiplies 1/n_{L−1} in the covariance, at every moment."""
        if not self.parts_of_covariance:
            return np.zeros_like(self.covariances_infinite)
        return _block(np.sum(list(self.parts_of_covariance.values()), axis=0), self.rows)

    def _infinite_variances(self) -> np.ndarray:
        if self.infinite_covariance is not None:
            return np.einsum("xtiti->xti", self.covariances_infinite)
        kernel = self._needed("infinite_kernel")[:, self.rows, self.rows]
        single = np.einsum("xtt->xt", kernel)[:, :, None]
        return np.broadcast_to(single, (*single.shape[:2], self.network.output_size))

    @property
    def covariances_infinite(self) -> Float[np.ndarray, "time sample ..."]:
        """The covariance at infinite width, at every moment."""
        if self.infinite_covariance is not None:
            return _block(self.infinite_covariance, self.rows)
        kernel = self._needed("infinite_kernel")[:, self.rows, self.rows]
        return np.einsum("xts,ij->xtisj", kernel, np.eye(self.network.output_size))


def _roots(variance: np.ndarray) -> np.ndarray:
    """Standard deviations: what is zero but for rounding is zero, what is negative is nan."""
    rounding = _ROUNDING * max(1.0, float(np.max(np.abs(variance), initial=0.0)))
    variance = np.where(np.abs(variance) <= rounding, 0.0, variance)
    return np.sqrt(np.where(variance < 0.0, np.nan, variance))


def _block(covariance: np.ndarray, rows: slice) -> np.ndarray:
    return covariance[:, rows, :, rows]
