"""The output layer's tensors of a network, with the modes of their numerical error.

The recursions of `predict`, kept for the last layer only and with the deviations behind their
error bars: a trained prediction is linear in the tensors, so that running it on every mode gives
its own numerical error, however the training NTK amplifies it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian.families import TwoPoint
from dynagram.gaussian.four_point import MODES, Covariances
from dynagram.networks import MLP
from dynagram.theory import predict as recursions
from dynagram.theory.frozen import FrozenKernels, frozen_kernels
from dynagram.theory.layer import Step

NEEDED = ("G1", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
# All modes are kept while 16 tensors of N⁴ numbers (eight, old and new) take less than this:
# up to 17 samples. Beyond, three sums of the deviations with random signs stand for them.
_FULL_MODES_BYTES = 100 * 1024**2
_REDUCED_MODES = 4
_MAX_BYTES = 96 * 1024**3


@dataclass(frozen=True, eq=False)
class OutputTensors:
    """K, Θ of all samples and, by letter, G1 to U of the output layer on the distinct ones.

    Arrays in `modes` have the mode first: the value, then deviations whose squares add up to the
    variance of its numerical error (all of them, or sums with random signs).
    """

    frozen: FrozenKernels
    modes: dict[str, Float[np.ndarray, "mode ..."]]
    place: np.ndarray

    @property
    def number_of_modes(self) -> int:
        """The value and its deviations."""
        return next(iter(self.modes.values())).shape[0]

    def mode(self, index: int) -> dict[str, Float[np.ndarray, "..."]]:
        """One mode of every tensor, for all samples in the printed order."""
        return {
            name: recursions._written_out(name, values[None, index : index + 1], self.place)[0, 0]
            for name, values in self.modes.items()
        }

    def all_modes(self) -> Iterator[dict[str, Float[np.ndarray, "..."]]]:
        """The value, then every deviation that is not zero throughout."""
        for index in range(self.number_of_modes):
            if index == 0 or any(np.any(values[index]) for values in self.modes.values()):
                yield self.mode(index)


def output_tensors(
    network: MLP, inputs: Float[np.ndarray, "sample n_0"], *, accuracy: float, seed: int
) -> OutputTensors:
    """All tensors that a trained network needs at order 1/n, for the samples in `inputs`.

    `accuracy` and `seed` as in `predict`, which also refuses the same activations. Cost: that of
    `predict` with the letters in `NEEDED`. Memory: about 16 N⁴ numbers per mode, with nine modes
    up to 17 samples and four beyond.
    """
    recursions._checked(NEEDED, network)
    frozen = frozen_kernels(network, inputs)
    first, place = recursions._distinct(inputs)
    samples = first.size
    count = MODES if 16 * MODES * 8 * samples**4 <= _FULL_MODES_BYTES else _REDUCED_MODES
    if (need := 16 * count * 8 * samples**4) > _MAX_BYTES:
        raise InvalidValueError(
            "number of samples",
            samples,
            f"training and test inputs together would need {need / 1024**3:.0f} GiB; at most "
            f"{int((_MAX_BYTES / (16 * count * 8)) ** 0.25)}",
        )
    K, Theta = (kernel[:, first][:, :, first] for kernel in (frozen.K, frozen.Theta))
    names = recursions._closure(NEEDED)
    products = sorted({p for name in names for p in recursions._AVERAGES[name]})
    pairs = samples * (samples + 1) // 2
    state = {
        name: np.zeros((count, *[pairs] * recursions._ON_PAIRS[name]))
        if name in recursions._ON_PAIRS
        else np.zeros((count, *[samples] * 4))
        for name in names
    }
    for layer in range(network.depth - 1):
        step = Step.at(
            TwoPoint(network.activation, K[layer]),
            Theta[layer],
            C_W=network.C_W[layer + 1],
            lambda_W=network.lambda_W[layer + 1],
            ratio=network.widths[layer + 1] / network.widths[layer] if layer else 0.0,
            products=products,
            accuracy=accuracy,
            seed=seed + layer,
        )
        if count < MODES:
            step = _reduced(step, seed + layer)
        state = recursions._advance(step, state)
        _require_finite(network, layer + 2, state)
    return OutputTensors(frozen, {name: state[name] for name in NEEDED}, place)


def _reduced(step: Step, seed: int) -> Step:
    """Deviations summed with random signs: their squares average to the same variance."""
    count = _REDUCED_MODES - 1
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], (count, MODES - 1)) / np.sqrt(count)
    found = {
        key: Covariances(
            np.concatenate([c.modes[:1], np.tensordot(signs, c.modes[1:], axes=1)]), c.nodes
        )
        for key, c in step.covariances.items()
    }
    return replace(step, covariances=found)


def _require_finite(network: MLP, layer: int, state: dict[str, np.ndarray]) -> None:
    for name, values in state.items():
        if not np.all(np.isfinite(values)):
            raise NonFiniteError(
                f"{name} of {network.activation.name} is not finite at layer {layer}: the kernel "
                "grows out of range; initialise closer to criticality"
            )
