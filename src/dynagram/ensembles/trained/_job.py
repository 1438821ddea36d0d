"""`TrainingJob`: a training ensemble as a job that the engine can cut, store and distribute."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np
from jaxtyping import Float

from dynagram._toml import write_table
from dynagram.ensembles._jobs import Chunk
from dynagram.ensembles.trained import _checks as checks
from dynagram.ensembles.trained import _groups as groups
from dynagram.ensembles.trained._batches import DataFunction, check_data_function
from dynagram.ensembles.trained._descent import Result
from dynagram.ensembles.trained._observe import (
    Observables,
    ObservablesLike,
    checked_observables,
    hashable,
)
from dynagram.ensembles.trained._program import (
    compiled_program,
    drawn_keys,
    drawn_parameters,
    observed_shapes,
)
from dynagram.ensembles.trained._specification import (
    Training,
    Whole,
    checked_integer,
    imported,
)
from dynagram.ensembles.trained._sums import reshaped, sums_of
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Params, check_inputs
from dynagram.results._estimate import Estimate, Moments

_DIMS = {
    "loss": (),
    "outputs": ("test_sample", "output"),
    "norms": ("layer", "parameter"),
    "ntk": ("test_sample", "test_sample_2", "output", "output_2"),
}
# A chunk should take seconds, so that little is lost when a run is killed, and its records must
# fit in memory.
_CHUNK_FLOP = 2e11
_CHUNK_BYTES = 2**24
_LARGEST_CHUNK = 2**12

# What the constructor takes. At run time it validates by itself, with clearer messages.
if TYPE_CHECKING:
    Inputs = Sequence[Sequence[float]] | np.ndarray | jax.Array | None
    Targets = Sequence[Any] | np.ndarray | jax.Array | None
    Data = str | DataFunction | None
else:
    Inputs = Targets = Data = object


@dataclass(frozen=True, eq=False, init=False)
class TrainingJob:
    """Members 0, 1, … of a training ensemble; see `train_ensemble` for the arguments.

    A chunk holds, per observable, an array (members, steps, …), or with `keep_members` False a
    `Moments` over the members that did not fail, of order 2 for those named in `covariances`;
    besides, `stopped` and `failed`, the steps at which members did (NaN: not), and with
    `keep_parameters` the final b1, W1, b2, … `chunk_members` is by default what some seconds
    of work and 16 MB of records allow. `run_job` of the engine stores, resumes, distributes it.

    >>> training = Training(steps=50, eta=0.1, record=5)
    >>> job = TrainingJob(MLP([2, 8, 1], "tanh", 0, 1), training, np.eye(2), np.ones((2, 1)))
    >>> {name: values.shape for name, values in job.run_chunk(first=100, size=3).items()}
    {'stopped': (3,), 'failed': (3,), 'loss': (3, 5)}
    """

    kind: ClassVar[str] = "training"

    network: MLP
    training: Training
    x: Float[np.ndarray, "samples n_0"] | None
    y: Float[np.ndarray, "samples n_L"] | None
    seed: int
    data: str | DataFunction | None
    test_x: Float[np.ndarray, "test n_0"] | None
    observables: Observables
    parameters: Params | None
    keep_members: bool
    keep_parameters: bool
    covariances: tuple[str, ...]
    chunk_members: int

    def __init__(
        self,
        network: MLP,
        training: Training,
        x: Inputs = None,
        y: Targets = None,
        *,
        seed: Whole = 0,
        data: Data = None,
        test_x: Inputs = None,
        observables: ObservablesLike = ("loss",),
        parameters: Any = None,
        keep_members: bool = True,
        keep_parameters: bool = False,
        covariances: Sequence[str] = (),
        chunk_members: Whole | None = None,
    ):
        def store(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        checks.check_training(network, training)
        inputs, targets = checks.checked_data(network, training, x, y, data)
        store("network", network)
        store("training", training)
        store("x", inputs)
        store("y", targets)
        store("seed", checks.checked_seed(seed))
        store("data", data if data is None or isinstance(data, str) else hashable(data))
        n_0 = network.widths[0]
        store("test_x", None if test_x is None else check_inputs(test_x, n_0, "test_x"))
        store("observables", checked_observables(observables))
        store("parameters", checks.checked_parameters(network, parameters))
        store("keep_members", keep_members)
        store("keep_parameters", keep_parameters)
        store("covariances", tuple(covariances))
        inside = self.probe is not None
        checks.check_observables(self.observables, training, self.covariances, inputs=inside)
        if chunk_members is None:
            store("chunk_members", self._default_chunk())
        else:
            store("chunk_members", checked_integer("chunk_members", chunk_members, 1))

    @property
    def data_function(self) -> DataFunction | None:
        """The function that makes fresh data, if one does."""
        return imported("data", self.data) if isinstance(self.data, str) else self.data

    @functools.cached_property
    def samples(self) -> int:
        """Samples that one step sees."""
        if self.x is not None:
            return self.training.batch or self.x.shape[0]
        function = self.data_function
        assert function is not None  # a job has x or data
        return check_data_function(function, self.network.widths[0], self.network.widths[-1])

    @property
    def probe(self) -> np.ndarray | None:
        """The inputs on which observables are measured."""
        return self.x if self.test_x is None else self.test_x

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes (steps, …) of the observables of a member."""
        found = observed_shapes(self.network, self.training, self.observables, self.probe)
        return {name: (len(self.training.record), *shape) for name, shape in found.items()}

    @functools.cached_property
    def group(self) -> int:
        """Members trained by one call of the compiled program."""
        itemsize = np.dtype(self.training.dtype).itemsize
        number, widths = self.network.number_of_parameters, sum(self.network.widths)
        return groups.group_size(number, self.samples, widths, itemsize, self.chunk_members)

    def _default_chunk(self) -> int:
        parameters = self.network.number_of_parameters
        flop = 6.0 * parameters * self.samples * self.training.steps
        numbers = sum(int(np.prod(shape)) for shape in self.shapes.values())
        held = 8.0 * (2 + numbers + self.keep_parameters * parameters)
        return int(np.clip(min(_CHUNK_FLOP / flop, _CHUNK_BYTES / held), 1, _LARGEST_CHUNK))

    # --- computing ----------------------------------------------------------------------------

    def run_chunk(self, first: int, size: int) -> Chunk:
        """Train the members `first`, …, `first` + `size` − 1."""
        run = self._program()
        pieces = list(groups.in_threads(run, range(first, first + size, self.group)))
        whole = jax.tree.map(lambda *parts: np.concatenate(parts)[:size], *pieces)
        good = np.isnan(whole.failed)
        found: dict[str, Any] = {"stopped": whole.stopped, "failed": whole.failed}
        # From the step of a failure on nothing is known.
        last = np.where(good, np.inf, whole.failed)
        lost = np.array(self.training.record)[None, :] >= last[:, None]
        for name, _ in self.observables:
            values = whole.observed[name]
            values[lost] = np.nan
            if not self.keep_members:
                order = 2 if name in self.covariances else 1
                values = sums_of(values, good, order, first)
            found[name] = values
        if self.keep_parameters:
            for number, layer in enumerate(whole.params, start=1):
                found |= {f"b{number}": layer.b, f"W{number}": layer.W}
        return found

    def initial(self, first: int, size: int) -> Params:
        """Parameters of the members `first`, … before training, in float64, members first."""
        if self.parameters is None:
            return drawn_parameters(self.network, self.seed, first, size)
        # A group may reach beyond the last member; it repeats that one.
        last = self.parameters[0].b.shape[0] - 1
        index = np.minimum(np.arange(first, first + size), last)
        return jax.tree.map(lambda a: np.asarray(a[index], np.float64), self.parameters)

    def _program(self) -> Callable[[int], Result]:
        """first member → what its group gives."""
        size, dtype = self.group, self.training.dtype
        shared = [None if a is None else a.astype(dtype) for a in (self.x, self.y, self.probe)]
        shapes = tuple(None if a is None else a.shape for a in shared)
        alone = size == self.chunk_members
        description = (self.network, self.training, self.observables, self.data_function)
        program = compiled_program(*description, size, shapes, alone)

        def start(first: int) -> tuple[Params, jax.Array]:
            params = jax.tree.map(lambda a: a.astype(dtype), self.initial(first, size))
            return params, drawn_keys(self.seed, first, size)

        start(0)  # compiles here, not in every thread

        def run(first: int) -> Result:
            params, keys = start(first)
            with jax.enable_x64(dtype == "float64"):  # a setting of the thread
                result = program(params, keys, *shared)
                if not self.keep_parameters:
                    result = result._replace(params=())
                return jax.tree.map(np.array, result)

        return run

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]:
        """Means over the members that did not fail, and covariances `<name>_covariance`."""
        found: dict[str, Estimate] = {}
        for name, sums in moments.items():
            shape = self.shapes[name]
            found[name] = reshaped(sums.mean(), shape)
            if name in self.covariances:
                found[f"{name}_covariance"] = reshaped(sums.covariance(), (*shape, *shape[1:]))
        return found

    # --- the specification as text and arrays -------------------------------------------------

    def to_toml(self) -> str:
        """Network, training and request as TOML; functions must be named "module:function"."""
        for name, source in (*self.observables, ("data", self.data)):
            if callable(source):
                allowed = "a function has no name to write: pass it as 'module:function'"
                raise InvalidValueError(name, getattr(source, "__qualname__", source), allowed)
        request = {
            "seed": self.seed,
            "chunk_members": self.chunk_members,
            "observables": [name for name, _ in self.observables],
            "sources": [source for _, source in self.observables],
            "data": self.data,
            "keep_members": self.keep_members,
            "keep_parameters": self.keep_parameters,
            "covariances": list(self.covariances),
        }
        tables = (self.network.to_toml(), self.training.to_toml())
        return "\n".join([*tables, write_table("ensemble", request)])

    def arrays(self) -> dict[str, np.ndarray]:
        """Inputs, targets, test inputs, and the parameters to start from, where given."""
        arrays = {"x": self.x, "y": self.y, "test_x": self.test_x}
        for number, layer in enumerate(self.parameters or (), start=1):
            arrays[f"start_b{number}"] = np.asarray(layer.b)
            arrays[f"start_W{number}"] = np.asarray(layer.W)
        return {name: array for name, array in arrays.items() if array is not None}

    @classmethod
    def from_toml(cls, text: str, arrays: Mapping[str, np.ndarray]) -> TrainingJob:
        """The job that `to_toml` and `arrays` describe."""
        tables = tomllib.loads(text)
        request = dict(tables["ensemble"])
        network = MLP.from_toml(text)
        names, sources = request.pop("observables"), request.pop("sources")
        parameters = None
        if "start_b1" in arrays:
            numbers = range(1, network.depth + 1)
            parameters = [(arrays[f"start_b{n}"], arrays[f"start_W{n}"]) for n in numbers]
        return cls(
            network,
            Training.from_toml(text),
            arrays.get("x"),
            arrays.get("y"),
            test_x=arrays.get("test_x"),
            observables=dict(zip(names, sources, strict=True)),
            parameters=parameters,
            **request,
        )

    def dims(self) -> dict[str, tuple[str, ...]]:
        """Names of the axes of what is recorded, estimated and given."""
        found: dict[str, tuple[str, ...]] = {"stopped": (), "failed": ()}
        for name, source in self.observables:
            axes = tuple(f"{name}_{n}" for n in range(1, len(self.shapes[name])))
            axes = _DIMS.get(source, axes) if isinstance(source, str) else axes
            if self.test_x is None:
                axes = tuple(axis.replace("test_", "") for axis in axes)
            found[name] = ("step", *axes)
            if name in self.covariances:
                found[f"{name}_covariance"] = ("step", *axes, *(f"{axis}_other" for axis in axes))
        found |= {"x": ("sample", "input"), "y": ("sample", "output")}
        found["test_x"] = ("test_sample", "input")
        for number in range(1, self.network.depth + 1):
            axes = (f"neuron_{number}", f"neuron_{number - 1}")
            found |= {f"b{number}": axes[:1], f"W{number}": axes}
            found[f"start_b{number}"] = ("start", *axes[:1])
            found[f"start_W{number}"] = ("start", *axes)
        return found

    def coordinates(self) -> dict[str, np.ndarray]:
        """The recorded steps, the numbers of the layers, and which parameter a norm is of."""
        return {
            "step": np.array(self.training.record),
            "layer": np.arange(1, self.network.depth + 1),
            "parameter": np.array(["b", "W"]),
        }
