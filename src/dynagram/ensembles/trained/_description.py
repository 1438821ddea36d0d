"""A training ensemble as text and arrays, from which another process makes the same one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dynagram._toml import read_toml, write_table
from dynagram._trust import check_trusted
from dynagram.data import Data
from dynagram.ensembles.trained._observe import OUTPUTS
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, Chain
from dynagram.networks._network import network_from_toml
from dynagram.training import Training

if TYPE_CHECKING:
    from dynagram.ensembles.trained._job import TrainingJob
else:
    TrainingJob = object  # which imports this module

_REQUEST = (
    "seed", "chunk_members", "keep_members", "keep_parameters", "pairs", "kernels", "tolerance",
    "max_steps",
)  # fmt: skip
_DIMS = {
    "loss": (),
    "norms": ("layer", "parameter"),
    "ntk": ("sample", "sample_2", "output", "output_2"),
} | dict.fromkeys(OUTPUTS, ("asked", "output"))


def to_toml(job: TrainingJob) -> str:
    """The tables [network], [training] and [ensemble]; functions must have a name."""
    if not isinstance(job.network, MLP | Chain):
        allowed = "an architecture without an initialisation cannot be written: train it here"
        raise InvalidTypeError("network", job.network, allowed)
    for name, source in (*job.observables, ("data", job.data)):
        if callable(source):
            allowed = "a function has no name to write: pass it as 'module:function'"
            raise InvalidValueError(name, getattr(source, "__qualname__", source), allowed)
    request: dict[str, Any] = {name: getattr(job, name) for name in _REQUEST}
    request |= {
        "observables": [name for name, _ in job.observables],
        "sources": [source for _, source in job.observables],
        "covariances": list(job.covariances),
        "data": None if isinstance(job.data, Data) else job.data,
    }
    return "\n".join([job.network.to_toml(), job.how.to_toml(), write_table("ensemble", request)])


def arrays_of(job: TrainingJob) -> dict[str, np.ndarray]:
    """Training set, test inputs, and the parameters to start from, where given."""
    arrays: dict[str, np.ndarray | None] = {"test_x": job.test_x}
    if isinstance(job.data, Data):
        tests = job.data.test_x if len(job.data.test_x) else None
        arrays |= {"x": job.data.x, "y": job.data.y, "test_x": tests, "test_y": job.data.test_y}
    for number, layer in enumerate(job.parameters or (), start=1):
        arrays[f"start_b{number}"] = np.asarray(layer.b)
        arrays[f"start_W{number}"] = np.asarray(layer.W)
    return {name: array for name, array in arrays.items() if array is not None}


def read(text: str, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The arguments of the job that `to_toml` and `arrays_of` describe; code must be trusted."""
    request: dict[str, Any] = dict(read_toml(text)["ensemble"])
    network = network_from_toml(text)
    for source in request["sources"]:
        check_trusted("observables", source)
    check_trusted("data", request.get("data"))
    sources = dict(zip(request.pop("observables"), request.pop("sources"), strict=True))
    request["observables"] = None if request["pairs"] else sources
    tests = arrays.get("test_x")
    if "data" in request:
        request["test_x"] = tests
    else:
        request["data"] = Data(arrays["x"], arrays["y"], tests, arrays.get("test_y"))
    if "start_b1" in arrays:
        numbers = range(1, network.depth + 1)
        request["parameters"] = [(arrays[f"start_b{n}"], arrays[f"start_W{n}"]) for n in numbers]
    return {"network": network, "how": Training.from_toml(text), **request}


def dims(job: TrainingJob) -> dict[str, tuple[str, ...]]:
    """Names of the axes of what is recorded, estimated and given."""
    entry = ("asked", "output")
    axes: dict[str, tuple[str, ...]] = dict.fromkeys(("stopped", "failed", "largest_error"), ())
    if job.pairs:
        axes["mean"] = ("time", *entry)
        axes["covariance"] = ("time", *entry, *(f"{axis}_2" for axis in entry))
    for name, source in job.observables:
        numbered = tuple(f"{name}_{n}" for n in range(1, len(job.shapes[name])))
        inner = _DIMS.get(source, numbered) if isinstance(source, str) else numbered
        axes[name] = ("time", *inner)
        axes[f"{name}_covariance"] = ("time", *inner, *(f"{axis}_other" for axis in inner))
    axes |= {"x": ("sample", "input"), "y": ("sample", "output")}
    axes |= {"test_x": ("test_sample", "input"), "test_y": ("test_sample", "output")}
    for number in range(1, job.network.depth + 1):
        inner = (f"neuron_{number}", f"neuron_{number - 1}")
        axes |= {f"b{number}": inner[:1], f"W{number}": inner}
        axes[f"start_b{number}"] = ("start", *inner[:1])
        axes[f"start_W{number}"] = ("start", *inner)
    return axes
