"""`TrainingJob`: a training ensemble as a job that the engine can cut, store and distribute."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float

from dynagram._memory import require_memory
from dynagram.data import Data
from dynagram.data._data import check_inputs
from dynagram.ensembles._jobs import Chunk
from dynagram.ensembles._reference import InfiniteWidth, frozen_ntk, infinite_width
from dynagram.ensembles.trained import _checks as checks
from dynagram.ensembles.trained import _description as description
from dynagram.ensembles.trained import _groups as groups
from dynagram.ensembles.trained._batches import DataFunction, check_data_function
from dynagram.ensembles.trained._chunk import member_chunk, pair_chunk
from dynagram.ensembles.trained._observe import (
    TESTED,
    Observables,
    ObservablesLike,
    checked_observables,
    hashable,
    outputs_name,
)
from dynagram.ensembles.trained._pairs import PairArrays, pair_estimates
from dynagram.ensembles.trained._program import drawn_parameters, observed_shapes
from dynagram.ensembles.trained._records import Arrays, Leap, Limits
from dynagram.ensembles.trained._result import outputs_of
from dynagram.ensembles.trained._sums import covariance_estimate, mean_estimate
from dynagram.errors import InvalidValueError
from dynagram.networks import Architecture, Network, Params
from dynagram.networks._checks import checked_integer, checked_number
from dynagram.networks._network import Structure
from dynagram.results._estimate import BATCHES, Estimate, Moments
from dynagram.results._outputs import Outputs
from dynagram.training import Training, TwoStep
from dynagram.training._losses import SQUARED

if TYPE_CHECKING:
    from dynagram.ensembles.engine._outcome import Outcome

    Inputs = Sequence[Sequence[float]] | np.ndarray | jax.Array | None
    Problem = Data | DataFunction | str
    Whole = int
    Real = float
else:
    Inputs = Problem = Whole = Real = Outcome = object  # checked here, with clearer messages

# A chunk should take seconds, so that little is lost when a run is killed, and its records must
# fit in memory.
_CHUNK_FLOP = 2e11
_CHUNK_BYTES = 2**24
_LARGEST_CHUNK = 2**12
# Of a training whose length is not known before.
_USUAL_STEPS = 1000
_MAX_STEPS = 100_000
# Sums by which a covariance is known with its error, at all moments: more must be asked for.
_COVARIANCE_NUMBERS = 2**25


@dataclass(frozen=True, eq=False, init=False)
class TrainingJob:
    """Members 0, 1, … of a training ensemble; see `dynagram.train` for the arguments.

    A chunk holds, per observable, an array (members, moments, …), or with `keep_members` False a
    `Moments` over the members that did not fail, of order 2 for outputs and those named in
    `covariances`; besides, `stopped` and `failed`, the steps at which members did (NaN: not), of a
    squared error `largest_error` at last, and with `keep_parameters` the final b1, W1, b2, … With
    `pairs` it holds the `Moments` of trained and of untrained networks instead.

    >>> from dynagram.training import GradientDescent
    >>> how = Training(GradientDescent(0.1), steps=50, record=5)
    >>> from dynagram.networks import MLP
    >>> job = TrainingJob(MLP([2, 8, 1], "tanh", 0, 1), Data(np.eye(2), [1.0, 1.0]), how)
    >>> {name: values.shape for name, values in job.run_chunk(first=100, size=3).items()}
    {'stopped': (3,), 'failed': (3,), 'largest_error': (3,), 'loss': (3, 5)}
    """

    kind: ClassVar[str] = "training"

    network: Structure
    data: Data | str | DataFunction
    how: Training
    seed: int
    test_x: Float[np.ndarray, "test n_0"] | None
    observables: Observables
    parameters: Params | None
    keep_members: bool
    keep_parameters: bool
    covariances: tuple[str, ...]
    pairs: bool
    kernels: int
    tolerance: float
    max_steps: int | None
    chunk_members: int

    def __init__(
        self,
        network: Structure,
        data: Problem,
        how: Training,
        *,
        seed: Whole = 0,
        test_x: Inputs = None,
        observables: ObservablesLike | None = None,
        parameters: Any = None,
        keep_members: bool = True,
        keep_parameters: bool = False,
        covariances: Sequence[str] = (),
        pairs: bool = False,
        kernels: Whole = 8,
        tolerance: Real = 1e-6,
        max_steps: Whole | None = None,
        chunk_members: Whole | None = None,
    ):
        def store(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        checks.check_training(network, how)
        checks.check_data(network, how, data)
        needed = 32.0 * network.number_of_parameters  # and gradients, in float64, and a copy
        require_memory("network", network.summary, needed, "a single network is too large")
        store("network", network)
        store("data", hashable(data) if callable(data) else data)
        store("how", how)
        store("seed", checked_integer("seed", seed, 0, 2**32 - 1))
        store("test_x", None if test_x is None else self._checked_test_x(test_x))
        store("pairs", pairs)
        store("observables", self._checked_observables(observables))
        store("parameters", checks.check_parameters(network, parameters))
        store("keep_members", keep_members)
        if keep_parameters and not isinstance(network, Architecture):
            allowed = "only the layers of an MLP are kept: record a function of the parameters"
            raise InvalidValueError("keep_parameters", keep_parameters, allowed)
        store("keep_parameters", keep_parameters)
        store("covariances", tuple(covariances))
        store("kernels", checked_integer("kernels", kernels, 1))
        limit = "the largest error allowed must be > 0"
        store("tolerance", checked_number("tolerance", tolerance, limit, positive=True))
        whole = None if max_steps is None else checked_integer("max_steps", max_steps, 1)
        store("max_steps", whole)
        checks.check_observables(self.observables, how, self.covariances, data, self.probe)
        if pairs:
            checks.check_pairs(
                network, data, how,
                observables=(observables, observables is not None),
                parameters=("given", parameters is not None),
                keep_parameters=(True, keep_parameters),
            )  # fmt: skip
            assert self.infinite is not None  # refuses what infinite width does
        if chunk_members is None:
            store("chunk_members", self._default_chunk())
        else:
            store("chunk_members", checked_integer("chunk_members", chunk_members, 1))

    def in_chunks(self, members: int) -> TrainingJob:
        """The same ensemble in chunks of `members`; what infinite width needed is kept."""
        changed = copy.copy(self)
        object.__setattr__(changed, "chunk_members", members)
        changed.__dict__.pop("group", None)  # the one thing cached that depends on the chunk
        return changed

    def _checked_test_x(self, test_x: object) -> np.ndarray:
        if isinstance(self.data, Data):
            raise InvalidValueError("test_x", "given", "a Data holds its own test inputs")
        return check_inputs(test_x, self.network.input_size, "test_x")

    def _checked_observables(self, observables: object) -> Observables:
        if self.pairs:
            return ()
        if observables is None:
            tests = self.data.test_x if isinstance(self.data, Data) else self.test_x
            observables = ["loss"] if tests is None or not len(tests) else ["loss", "outputs"]
        return checked_observables(observables)

    # --- what members share -------------------------------------------------------------------

    @property
    def function(self) -> DataFunction | None:
        """The function that makes fresh data, if one does."""
        return None if isinstance(self.data, Data) else checks.data_function(self.data)

    @functools.cached_property
    def samples(self) -> int:
        """Samples that one step sees."""
        if isinstance(self.data, Data):
            return self.how.batch_size or len(self.data.x)
        return check_data_function(
            checks.data_function(self.data), self.network.input_size, self.network.output_size
        )

    @property
    def probe(self) -> Float[np.ndarray, "probe n_0"] | None:
        """The inputs on which observables are measured: test inputs, or training inputs."""
        if not isinstance(self.data, Data):
            return self.test_x
        return self.data.test_x if len(self.data.test_x) else self.data.x

    @property
    def training_samples(self) -> int:
        """How many of `asked` are training inputs."""
        name = outputs_name(self.observables)
        if name is None or not isinstance(self.data, Data):
            return 0
        both = dict(self.observables)[name] == "all_outputs"
        return len(self.data.merged.x) if both or not len(self.data.test_x) else 0

    @property
    def asked(self) -> Float[np.ndarray, "asked n_0"]:
        """The inputs whose outputs are recorded: distinct training inputs, then test inputs."""
        if not self.pairs and outputs_name(self.observables) is None:
            return np.zeros((0, self.network.input_size))
        if not isinstance(self.data, Data):
            assert self.test_x is not None  # checked with the observables
            return self.test_x
        return np.concatenate([self.data.merged.x[: self.training_samples], self.data.test_x])

    @functools.cached_property
    def limits(self) -> Limits:
        """When a member is done."""
        usual = _MAX_STEPS
        if self.pairs and self.how.is_discrete and self.how.reaches_the_end:
            usual = self.infinite.steps
        steps = usual if self.max_steps is None else self.max_steps
        return Limits(self.tolerance if self.how.reaches_the_end else None, steps)

    @functools.cached_property
    def shared(self) -> Arrays:
        """The arrays that all members share."""
        arrays = Arrays(probe=self.probe, asked=self.asked if len(self.asked) else None)
        if not isinstance(self.data, Data):
            return arrays
        arrays, merged = arrays._replace(x=self.data.x, y=self.data.y), self.data.merged
        if any(source in TESTED for _, source in self.observables):
            arrays = arrays._replace(test_y=self.data.test_y)
        if isinstance(self.how.algorithm, TwoStep):
            assert isinstance(self.network, Network)
            kernel = frozen_ntk(self.network, merged.x)
            return arrays._replace(leap=Leap(merged.x, merged.y, kernel))
        if self.how.loss not in SQUARED or self.how.batch is not None:
            return arrays
        return arrays._replace(goals=merged.y[merged.place])

    @functools.cached_property
    def infinite(self) -> InfiniteWidth:
        """Infinite width, which pairs are compared with."""
        assert isinstance(self.data, Data)
        assert isinstance(self.network, Network)
        return infinite_width(self.network, self.data, self.how, self.tolerance)

    @functools.cached_property
    def pair_arrays(self) -> PairArrays:
        """The arrays that all pairs share."""
        assert isinstance(self.data, Data)
        merged = self.data.merged
        inputs = np.concatenate([merged.x, self.data.test_x])
        return PairArrays.of(inputs, merged.y, self.infinite, self.shared)

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes (moments, …) of the observables of a member."""
        shapes = observed_shapes(self.network, self.how, self.observables, self.shared)
        return {name: (len(self.how.recorded), *shape) for name, shape in shapes.items()}

    def order(self, name: str) -> int:
        """2 where the covariance of an observable is kept besides its mean, else 1.

        That of the outputs is, unless they are so many that it must be asked for.
        """
        if name in self.covariances:
            return 2
        moments, *axes = self.shapes[name]
        few = BATCHES * moments * int(np.prod(axes)) ** 2 <= _COVARIANCE_NUMBERS
        return 2 if name == outputs_name(self.observables) and few else 1

    # --- sizes --------------------------------------------------------------------------------

    @functools.cached_property
    def group(self) -> int:
        """Members trained by one call of the compiled program."""
        return self._group_size(1, self.samples, self.chunk_members)

    @property
    def pair_groups(self) -> tuple[int, int]:
        """Pairs, and untrained networks, in one call of their compiled programs."""
        pairs = -(-self.chunk_members // 2)
        inputs = len(self.pair_arrays.inputs) * self.network.output_size
        trained = self._group_size(2, 2 * self.samples + inputs, pairs)
        return trained, self._group_size(1, inputs, self.kernels * pairs)

    def _group_size(self, networks: int, samples: int, chunk: int) -> int:
        numbers = networks * self.network.number_of_parameters
        itemsize = np.dtype(self.how.dtype).itemsize
        return groups.group_size(numbers, samples, self.network.neurons, itemsize, chunk)

    def _default_chunk(self) -> int:
        parameters = self.network.number_of_parameters
        steps = _USUAL_STEPS if self.how.steps is None else max(self.how.steps, 1)
        flop = 6.0 * parameters * self.samples * steps
        if self.pairs:  # an NTK costs about as much as two steps
            flop += 12.0 * self.kernels * parameters * len(self.pair_arrays.inputs)
        numbers = sum(int(np.prod(shape)) for shape in self.shapes.values())
        held = 8.0 * (2 + numbers + self.keep_parameters * parameters)
        size = int(np.clip(min(_CHUNK_FLOP / flop, _CHUNK_BYTES / held), 1, _LARGEST_CHUNK))
        return size + size % 2 if self.pairs else size

    # --- computing ----------------------------------------------------------------------------

    def initial(self, first: int, size: int) -> Params:
        """Parameters of the members `first`, … before training, in float64, members first."""
        if self.parameters is None:
            assert isinstance(self.network, Network)
            return drawn_parameters(self.network, self.seed, first, size)
        # One set serves all members. A group may reach beyond the last; it repeats that one.
        last = self.parameters[0].b.shape[0] - 1
        index = np.minimum(np.arange(first, first + size), last)
        return jax.tree.map(lambda a: np.asarray(a[index], np.float64), self.parameters)

    def run_chunk(self, first: int, size: int) -> Chunk:
        """Train the members `first`, …, `first` + `size` − 1."""
        return (pair_chunk if self.pairs else member_chunk)(self, first, size)

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]:
        """Means over the members that did not fail, and covariances `<name>_covariance`."""
        if self.pairs:
            return pair_estimates(moments["pairs"], moments["untrained"], self.infinite.mean)
        estimates: dict[str, Estimate] = {}
        for name, sums in moments.items():
            estimates[name] = mean_estimate(sums, self.shapes[name])
            if self.order(name) == 2:
                covariance = covariance_estimate(sums, self.shapes[name])
                estimates[f"{name}_covariance"] = covariance
        return estimates

    def result(self, outcome: Outcome) -> Outputs:
        """What the engine computed, or read from a store, as outputs with standard errors."""
        return outputs_of(self, outcome)

    # --- the description as text and arrays ---------------------------------------------------

    def to_toml(self) -> str:
        """Structure, training and request as TOML; functions must be named "module:function"."""
        return description.to_toml(self)

    def arrays(self) -> dict[str, np.ndarray]:
        """Training set, test inputs, and the parameters to start from, where given."""
        return description.arrays_of(self)

    @classmethod
    def from_toml(cls, text: str, arrays: Mapping[str, np.ndarray]) -> TrainingJob:
        """The job that `to_toml` and `arrays` describe."""
        return cls(**description.read(text, arrays))

    def dims(self) -> dict[str, tuple[str, ...]]:
        """Names of the axes of what is recorded, estimated and given."""
        return description.dims(self)
