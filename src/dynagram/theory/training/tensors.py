"""The output layer's tensors of a network, with the modes of their numerical error.

The recursions of `predict`, kept for the last layer only and with the deviations behind their
error bars: a trained prediction is linear in the tensors, so that running it on every mode gives
its own numerical error, however the training NTK amplifies it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram.errors import InvalidValueError
from dynagram.gaussian.four_point import MODES
from dynagram.networks import MLP
from dynagram.theory.frozen import FrozenKernels, frozen_kernels
from dynagram.theory.recursions import closure, distinct, run_layers, written_out

NEEDED = ("G1", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
# Modes kept up to so many samples, with sixteen tensors of N⁴ numbers (eight, old and new) each:
# 0.1, 16 and 92 GiB. Four are three sums of all deviations with random signs; of one such sum the
# error bars mean something only on average over test points.
_MODES_UP_TO = ((MODES, 17), (4, 76), (2, 140))


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
            name: written_out(name, values[None, index : index + 1], self.place)[0, 0]
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

    `accuracy` and `seed` as in `predict`; the activation must be smooth. Cost: that of `predict`
    with the letters in `NEEDED`. Memory: about 16 N⁴ numbers per mode, with nine modes up to 17
    samples, four up to 76 and two beyond.
    """
    frozen = frozen_kernels(network, inputs)
    first, place = distinct(inputs)
    count = next((modes for modes, most in _MODES_UP_TO if first.size <= most), None)
    if count is None:
        allowed = f"at most {_MODES_UP_TO[-1][1]} training and test inputs together, for memory"
        raise InvalidValueError("number of samples", first.size, allowed)
    K, Theta = (kernel[:, first][:, :, first] for kernel in (frozen.K, frozen.Theta))
    layers = run_layers(
        network, K, Theta, closure(NEEDED), accuracy=accuracy, seed=seed, modes=count
    )
    (state,) = deque(layers, maxlen=1)
    return OutputTensors(frozen, {name: state[name] for name in NEEDED}, place)
