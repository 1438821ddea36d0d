"""The output layer's tensors of a network, with the modes of their numerical error.

The recursions of `predict`, kept for the last layer only and with the deviations behind their
error bars: a trained prediction is linear in the tensors, so that running it on every mode gives
its own numerical error, however the training NTK amplifies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._arrays import Array, memory_limit
from dynagram._pairs import pair_indices
from dynagram._precision import float64
from dynagram.data._data import find_distinct
from dynagram.errors import InvalidValueError
from dynagram.gaussian._four_point import MODES
from dynagram.networks import Chain, Network
from dynagram.results._letters import LETTERS, closure
from dynagram.theory._kernels import FrozenKernels
from dynagram.theory._recursions import run_layers, written_out
from dynagram.theory.chain._predict import chain_modes

NEEDED = ("V", "G1", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
# Each mode needs about so many arrays of N⁴ numbers: eight tensors, the averages, and what a
# recursion makes on its way.
_ARRAYS = 20
# Modes kept up to so many samples: 0.1, 20 and 115 GiB. Four are the value and three sums of all
# deviations with random signs; of one such sum error bars mean something only on average over
# test points.
_MODES_UP_TO = ((MODES, 17), (4, 76), (2, 140))


class Mode(Mapping[str, Array]):
    """One mode of every tensor, for all samples in the printed order, written out when asked for.

    Twelve tensors of N⁴ numbers need not be in memory at once.
    """

    def __init__(self, modes: Mapping[str, Array], index: int, place: np.ndarray):
        self._modes, self._index, self._place = modes, index, place

    @float64
    def __getitem__(self, name: str) -> Float[Array, "..."]:
        values = self._modes[name][None, self._index : self._index + 1]
        return written_out(name, values, self._place)[0, 0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modes)

    def __len__(self) -> int:
        return len(self._modes)

    @float64
    def is_zero(self) -> bool:
        """Zero throughout: no error along this mode."""
        return not any(values[self._index].any() for values in self._modes.values())


@dataclass(frozen=True, eq=False)
class OutputTensors:
    """By letter, G1 to U of the output layer on the distinct samples.

    Arrays in `modes` have the mode first: the value, then deviations whose squares add up to the
    variance of its numerical error (all of them, or sums with random signs).
    """

    modes: dict[str, Float[Array, "mode ..."]]
    place: np.ndarray

    @property
    def number_of_modes(self) -> int:
        """The value and its deviations."""
        return next(iter(self.modes.values())).shape[0]

    def mode(self, index: int) -> Mode:
        """The value, for index 0, or a deviation of every tensor."""
        return Mode(self.modes, index, self.place)

    def all_modes(self) -> Iterator[Mode]:
        """The value, then every deviation that is not zero throughout."""
        for index in range(self.number_of_modes):
            mode = self.mode(index)
            if index == 0 or not mode.is_zero():
                yield mode


def output_tensors(
    network: Network,
    inputs: Float[np.ndarray, "sample n_0"],
    frozen: FrozenKernels,
    *,
    accuracy: float,
    seed: int,
) -> OutputTensors:
    """All tensors that a trained network needs at order 1/n, for the samples in `inputs`.

    `frozen` are the kernels of all layers on `inputs`; `accuracy` and `seed` as in `predict`; the
    activation must be smooth. Cost: that of `predict` with the letters in `NEEDED`. Memory: about
    20 N⁴ numbers per mode, with nine modes up to 17 samples, four up to 76 and two beyond.
    """
    first, place = find_distinct(inputs)
    count = modes_for(first.size)
    if isinstance(network, Chain):
        made = chain_modes(network, inputs[first], NEEDED, accuracy=accuracy, seed=seed)
        stored = {name: as_stored(name, values) for name, values in made.items()}
        return OutputTensors(stored, place)
    K, Theta = (kernel[:, first][:, :, first] for kernel in (frozen.K, frozen.Theta))
    layers = run_layers(
        network, K, Theta, closure(NEEDED), accuracy=accuracy, seed=seed, modes=count
    )
    *_, state = layers
    return OutputTensors({name: state[name] for name in NEEDED}, place)


def as_stored(name: str, values: Float[Array, "mode ..."]) -> Float[Array, "mode ..."]:
    """A tensor of all samples with its symmetric pairs stored once, as the recursions do."""
    a, b = pair_indices(values.shape[-1])
    if LETTERS[name].pairs >= 1:
        values = values[:, a, b]
    return values[..., a, b] if LETTERS[name].pairs == 2 else values


def modes_for(samples: int) -> int:
    """How many modes are kept; refuses at once what would not fit into memory."""
    count = next((modes for modes, most in _MODES_UP_TO if samples <= most), None)
    if count is None:
        allowed = f"at most {_MODES_UP_TO[-1][1]} training and test inputs together, for memory"
        raise InvalidValueError("number of samples", samples, allowed)
    needed, limit = 8 * _ARRAYS * count * samples**4, memory_limit()
    if limit is not None and needed > limit:
        raise InvalidValueError(
            "number of samples",
            samples,
            f"training and test inputs together need about {needed / 1024**3:.0f} GiB and there "
            f"are {limit / 1024**3:.0f}: use fewer, in several runs with the same training inputs "
            "if the test inputs are many, or a machine with more memory",
        )
    return count
