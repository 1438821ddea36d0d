"""What training makes of one given network: from its own NTK, and from its dNTK and ddNTKs too.

The infinite-width formulas hold for a single network with its own NTK Ĥ up to O(1/n) (∞.93). With
its dNTK and ddNTKs the trained output is known to higher order (∞.141), (∞.154). Output and sample
are one index here, since Ĥ mixes outputs, and the projectors are those of Ĥ itself.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.data import Data
from dynagram.networks import Model
from dynagram.observables.tangents._ddntk import ddntk
from dynagram.observables.tangents._dntk import dntk
from dynagram.observables.tangents._ntk import ntk
from dynagram.observables.tangents._signals import check_differentiable
from dynagram.results._outputs import Outputs
from dynagram.results._regime import worst_regime
from dynagram.theory.training._corrections import row_projectors
from dynagram.theory.training._decay import Decay
from dynagram.theory.training._eigenbasis import Eigenbasis
from dynagram.theory.training._infinite import InfiniteTraining, distinct_inputs
from dynagram.theory.training._regime import own_regime
from dynagram.training import Training

_NOTE = "of one given network: at n = ∞ stands what its own NTK, held fixed, makes of it"

# The tensors of one network with (sample, output) as one index, in the training frame.
Differentials = Mapping[str, Float[np.ndarray, "..."]]


@float64
def own_outputs(model: Model, data: Data, how: Training, *, order: str) -> Outputs:
    """The outputs of this very network at every recorded moment; `order` "∞" or "1/n".

    "∞" is its own NTK held fixed, with an error O(1/n); any activation with an NTK. Cost: `ntk` on
    all samples and (N_A n_L)³. "1/n" adds its dNTK and ddNTKs: the error falls faster than
    n^{-3/2}. Cost: `ddntk` on all samples, (N n_L)³ n_ℓ n_{ℓ−1} and (N n_L)⁴ n_ℓ; memory
    2(N n_L)⁴ numbers.
    """
    exact = Model(model.network.with_fixed(how.fixed), model.in_float64().params)
    if order == "1/n":
        what = "the expansion in the step size behind (∞.154)"
        check_differentiable(model.network, 3, f'{what} (order="infinite" needs an NTK only)')
    training, initial = own_training(exact, data, how)
    inputs, outputs = distinct_inputs(data), model.network.output_size
    moments = [training.at(moment) for moment in how.recorded]
    linearised = [moment.outputs(initial.reshape(-1, 1)) for moment in moments]
    parts = [{} for _ in moments]
    if order == "1/n":
        differentials = _differentials(exact, inputs, training.basis)
        n = training.weights.size
        error = training.basis.basis @ (initial.reshape(-1)[:n] - training.targets[:, 0])
        parts = [_moved(differentials, training.basis, moment.decay, error) for moment in moments]
    shape = (len(moments), inputs.shape[0], outputs)
    regimes = [
        own_regime(training, *values, order)
        for values in zip(moments, linearised, parts, strict=True)
    ]
    return Outputs(
        network=model.network,
        how=how,
        order=order,
        times=how.times,
        x=inputs,
        training_samples=data.merged.x.shape[0],
        regime=worst_regime(regimes),
        infinite_mean=np.stack(linearised).reshape(shape),
        infinite_kernel=np.zeros((shape[0], shape[1], shape[1])),
        # What is added stands as a coefficient of 1/n, as all parts do.
        parts_of_mean={
            name: model.network.width * np.stack([part[name] for part in parts]).reshape(shape)
            for name in parts[0]
        },
        about={"given_network": True},
        notes=(*data.merged.notes, _NOTE),
    )


@float64
def own_training(
    model: Model, data: Data, how: Training
) -> tuple[InfiniteTraining, Float[np.ndarray, "sample outputs"]]:
    """Training by the network's own NTK, (sample, output) one index, and its initial outputs."""
    inputs = distinct_inputs(data.check(model.network))
    H = flattened(np.asarray(ntk(model, inputs), dtype=np.float64))
    targets = data.merged.y.reshape(-1, 1)
    weights = np.repeat(data.merged.weights, model.network.output_size)
    training = InfiniteTraining(H, np.zeros_like(H), targets, weights, how)
    return training, np.asarray(model(inputs), dtype=np.float64)


def _differentials(model: Model, inputs: np.ndarray, frame: Eigenbasis) -> Differentials:
    first, second = ddntk(model, inputs)
    tensors = {"dNTK": dntk(model, inputs), "ddI": first, "ddII": second}
    return {name: frame.turn(flattened(np.asarray(tensor))) for name, tensor in tensors.items()}


def _moved(
    differentials: Differentials,
    frame: Eigenbasis,
    decay: Decay,
    e: Float[np.ndarray, " direction"],
) -> dict[str, Float[np.ndarray, " sample_output"]]:
    """What the differentials add to the outputs of all samples (∞.154); `e` are initial errors."""
    Z, row = row_projectors(frame, decay), "t" if decay.at_end else "*"

    def slots(name: str, pattern: str) -> np.ndarray:
        return differentials[name][frame.split(pattern.replace("t", row))]

    moved = {
        "dNTK": np.einsum("atb,tab,a,b->t", slots("dNTK", "ata"), Z.Z_A, e, e)
        + np.einsum("tab,tab,a,b->t", slots("dNTK", "taa"), Z.Z_B, e, e),
        "ddI": np.einsum("atbc,tabc,a,b,c->t", slots("ddI", "ataa"), Z.Z_IA, e, e, e)
        + np.einsum("tabc,tabc,a,b,c->t", slots("ddI", "taaa"), Z.Z_IB, e, e, e),
        "ddII": np.einsum("abtc,tabc,a,b,c->t", slots("ddII", "aata"), Z.Z_IIA, e, e, e)
        + np.einsum("tabc,tabc,a,b,c->t", slots("ddII", "taaa"), Z.Z_IIB, e, e, e),
    }
    if decay.at_end:  # training outputs are where their targets are
        return {name: np.pad(part, (frame.directions, 0)) for name, part in moved.items()}
    return {name: frame.back @ part for name, part in moved.items()}


def flattened(tensor: np.ndarray) -> np.ndarray:
    """[a, b, …, i, j, …] with (a, i), (b, j), … as single indices, samples slowest."""
    slots = tensor.ndim // 2
    order = [axis for slot in range(slots) for axis in (slot, slots + slot)]
    size = tensor.shape[0] * tensor.shape[-1]
    return tensor.transpose(order).reshape([size] * slots)
