"""Outputs of trained networks over initialisations, at infinite width and to order 1/n."""

from __future__ import annotations

import numpy as np

from dynagram.data import Data
from dynagram.data._data import find_distinct
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Network
from dynagram.networks._checks import require_plain
from dynagram.results._outputs import Outputs
from dynagram.results._regime import worst_regime
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.training._corrections import corrections
from dynagram.theory.training._infinite import InfiniteTraining, distinct_inputs
from dynagram.theory.training._kernel_change import kernel_estimates, squared_coefficients
from dynagram.theory.training._regime import infinite_regime, trained_regime
from dynagram.theory.training._squared_curves import squared_curves
from dynagram.theory.training._tensors import modes_for, output_tensors
from dynagram.training import Training

# Up to so many samples four-sample averages are cheap.
_FEW_SAMPLES = 10
_ACCURACY, _ACCURACY_OF_MANY = 1e-4, 0.015
_WHY_NOT = (
    "the order 1/n of training needs σ'' and σ''': at a kink they are deltas, P and Q depend on "
    "how a step crosses it, the means R, S, T, U of the ddNTKs diverge and the NTK of ReLU changes "
    'by 1/√n, not 1/n; use a smooth activation, or order="infinite"'
)


def infinite_outputs(network: Network, data: Data, how: Training) -> Outputs:
    """Mean and covariance at infinite width, at every recorded moment (10.40), (10.41)."""
    training = InfiniteTraining.of(network.with_fixed(how.fixed), data, how)
    moments = [training.at(moment) for moment in how.recorded]
    return Outputs(
        network=network,
        how=how,
        order="∞",
        times=how.times,
        x=distinct_inputs(data),
        training_samples=training.weights.size,
        regime=worst_regime([infinite_regime(training, moment) for moment in moments]),
        infinite_mean=np.stack([moment.mean for moment in moments]),
        infinite_kernel=np.stack([moment.kernel for moment in moments]),
        estimates=squared_curves(data, how.loss, moments),
        notes=data.merged.notes,
    )


def finite_outputs(
    network: Network, data: Data, how: Training, *, accuracy: float | None, seed: int
) -> Outputs:
    """Mean and covariance to order 1/n, at every recorded moment.

    What can be refused is refused before the tensors, the costly part, are computed: once for all
    moments.
    """
    inputs, trained = distinct_inputs(data), network.with_fixed(how.fixed)
    require_smooth(network)
    modes_for(find_distinct(inputs)[0].size)
    frozen = frozen_kernels(trained, inputs)
    training = InfiniteTraining.of(trained, data, how, frozen=frozen)
    training.basis.require_full_rank()
    moments = [training.at(moment) for moment in how.recorded]
    if accuracy is None:
        accuracy = default_accuracy(inputs.shape[0])
    tensors = output_tensors(trained, inputs, frozen, accuracy=accuracy, seed=seed)
    decays = [moment.decay for moment in moments]
    changes = corrections(tensors, training.basis, decays, training.targets, training.K)
    coefficients = squared_coefficients(training.basis, decays, training.targets, training.K)
    samples = training.weights.size
    rows = {"train": slice(0, samples), "test": slice(samples, None)}
    if inputs.shape[0] == samples:
        rows["test"] = slice(None)
    regimes = {
        shown: tuple(
            trained_regime(network, training, moment, change, tensors.mode(0), rows[shown])
            for moment, change in zip(moments, changes, strict=True)
        )
        for shown in rows
    }
    return Outputs(
        network=network,
        how=how,
        order="1/n",
        times=how.times,
        x=inputs,
        training_samples=training.weights.size,
        regime=worst_regime(regimes["test"]),
        regimes=regimes,
        infinite_mean=np.stack([moment.mean for moment in moments]),
        infinite_kernel=np.stack([moment.kernel for moment in moments]),
        parts_of_mean=_stack([change.means for change in changes]),
        parts_of_covariance=_stack([change.covariances for change in changes]),
        mean_errors=np.stack([change.mean_error for change in changes]) / network.width,
        covariance_errors=np.stack([change.covariance_error for change in changes]) / network.width,
        estimates=squared_curves(data, how.loss, moments, changes, network.width)
        | kernel_estimates(tensors, [coefficients], training.Theta, rows["test"], network.width),
        seed=seed,
        notes=data.merged.notes,
    )


def _stack(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """One array per part, moments first."""
    return {name: np.stack([moment[name] for moment in parts]) for name in parts[0]}


def default_accuracy(samples: int) -> float:
    """Of four-sample averages, which are cheap for few samples."""
    return _ACCURACY if samples <= _FEW_SAMPLES else _ACCURACY_OF_MANY


def require_smooth(network: Network) -> None:
    """Refuse networks without a 1/n, or whose expansion in the step size fails."""
    if network.depth < 2:
        raise InvalidValueError(
            "depth", network.depth, "without a hidden layer there is no 1/n: the network is "
            'linear in its parameters and order="infinite" exact',
        )  # fmt: skip
    if isinstance(network, MLP):
        require_plain(network, 'the order 1/n of training (order="infinite" takes skips)')
    for sigma in network.activations():
        if sigma.derivatives < 2:
            raise InvalidValueError("activation", sigma.name, _WHY_NOT)
        if sigma.derivatives < 3 and not isinstance(network, MLP):
            allowed = "σ'' jumps, which at order 1/n only MLPs take; use a smooth activation"
            raise InvalidValueError("activation", sigma.name, allowed)
