"""The job behind `dynagram simulate`: kernels of all layers and tangent tensors of the output.

Both are measured on the same networks, drawn with their weights, in one run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from dynagram._toml import write_table
from dynagram.ensembles.initial._batches import chunk_for
from dynagram.ensembles.initial._metric import KernelJob
from dynagram.ensembles.initial._skips import ResidualJob
from dynagram.ensembles.initial._tangents import TangentJob
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, check_inputs
from dynagram.results._estimate import Estimate, Moments

# The letters of predictions, and what the measured means are called by the jobs below. K, G1 and
# V are those of all layers, the others those of the output layer.
ALL_LAYERS = {"K": "G", "G1": "G1", "V": "V"}
OUTPUT_LAYER = {"Theta": "H"} | {name: name for name in ("H1", *"ABDFPQRSTU")}
LETTERS = (*ALL_LAYERS, *OUTPUT_LAYER)
WITH_SKIPS = ALL_LAYERS | {"Theta": "H"}
_LETTERS_OF = {"metric": ALL_LAYERS, "row": OUTPUT_LAYER, "fields": WITH_SKIPS}


@dataclass(frozen=True, eq=False)
class InitialJob:
    """Tensors at initialisation, by the letters of `LETTERS`, measured on concrete networks.

    K and Theta are the measured means, which contain all orders in 1/n; G1 and H1 are measured
    from the kernels of the theory. See `measure_kernels` and `measure_tangents`, and
    `measure_residual` for networks with skips, of which K, G1, V and Theta are measured.

    >>> from dynagram.ensembles.engine._engine import run_job
    >>> net = MLP([2, 10, 2], "linear", C_b=0.0, C_W=1.0)
    >>> job = InitialJob(net, np.ones((1, 2)), ("K", "V", "B"), seed=0)
    >>> found = run_job(job, members=5000).estimates
    >>> {name: estimate.value.shape for name, estimate in found.items()}
    {'K': (2, 1, 1), 'V': (2, 1, 1, 1, 1), 'B': (1, 1, 1, 1)}
    """

    kind: ClassVar[str] = "initial"

    network: MLP
    x: Float[np.ndarray, "samples n_0"]
    tensors: tuple[str, ...]
    seed: int
    chunk_members: int = 0  # 0: about a second of work

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", check_inputs(self.x, self.network.widths[0]))
        unknown = [name for name in self.tensors if name not in LETTERS]
        if unknown or len(self.tensors) == 0:
            raise InvalidValueError("tensors", self.tensors, f"expected some of {LETTERS}")
        absent = [name for name in self.tensors if name not in WITH_SKIPS]
        if absent and self.network.has_skips:
            allowed = f"not measured on networks with skips, only {', '.join(WITH_SKIPS)} are"
            raise InvalidValueError("tensors", ",".join(absent), allowed)
        if self.chunk_members == 0:
            object.__setattr__(self, "chunk_members", chunk_for(None, self.smallest_chunk))

    def in_chunks(self, members: int) -> InitialJob:
        """The same ensemble in chunks of `members`."""
        return replace(self, chunk_members=members)

    @property
    def smallest_chunk(self) -> int:
        """Members below which a chunk costs more than it should."""
        return max(part.smallest_chunk for part in self._parts.values())

    @cached_property
    def _parts(self) -> dict[str, KernelJob | TangentJob | ResidualJob]:
        """The jobs that measure the letters, by the name of what they sum."""
        if self.network.has_skips:
            names = tuple(WITH_SKIPS[name] for name in self.tensors)
            job = ResidualJob.of(
                self.network, self.x, seed=self.seed, tensors=names, sampler="weights"
            )
            return {"fields": job.in_chunks(self.chunk_members or job.chunk_members)}
        parts: dict[str, KernelJob | TangentJob | ResidualJob] = {}
        kernels = tuple(ALL_LAYERS[name] for name in self.tensors if name in ALL_LAYERS)
        tangents = tuple(OUTPUT_LAYER[name] for name in self.tensors if name in OUTPUT_LAYER)
        if tangents:
            theta = self._theta if "H1" in tangents else None
            parts["row"] = TangentJob(
                self.network, self.x, tangents, self.seed, theta, self.chunk_members
            )
        if kernels:
            # Weights are drawn, although the metrics alone would be faster: no theory is taken
            # for granted, and the networks are those of the tangent tensors.
            parts["metric"] = KernelJob(
                self.network, self.x, kernels, self.seed, "weights", None, self.chunk_members
            )
        return parts

    @cached_property
    def _theta(self) -> np.ndarray:
        from dynagram.theory._kernels import frozen_kernels

        return frozen_kernels(self.network, self.x).Theta[-1]

    def run_chunk(self, first: int, size: int) -> dict[str, Moments]:
        """The moments of both jobs."""
        found: dict[str, Moments] = {}
        for part in self._parts.values():
            found |= part.run_chunk(first, size)
        return found

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]:
        """The tensors with their standard errors."""
        found: dict[str, Estimate] = {}
        for name, letters in _LETTERS_OF.items():
            if name in self._parts:
                measured = self._parts[name].estimates(moments)
                found |= {
                    key: measured[letters[key]] for key in letters if letters[key] in measured
                }
        return {name: found[name] for name in self.tensors}

    def to_toml(self) -> str:
        """The specification but for the inputs."""
        own = {"tensors": self.tensors, "seed": self.seed, "chunk": self.chunk_members}
        return f"{self.network.to_toml()}\n{write_table('initial', own)}"

    def arrays(self) -> dict[str, np.ndarray]:
        """The inputs."""
        return {"x": self.x}

    @classmethod
    def from_toml(cls, text: str, arrays: Mapping[str, np.ndarray]) -> InitialJob:
        """The job that `to_toml` and `arrays` describe."""
        own = tomllib.loads(text)["initial"]
        network, tensors = MLP.from_toml(text), tuple(own["tensors"])
        return cls(network, arrays["x"], tensors, own["seed"], own["chunk"])

    def dims(self) -> dict[str, tuple[str, ...]]:
        """The names of the axes."""
        axes: dict[str, tuple[str, ...]] = {"x": ("sample", "input")}
        for part, letters in _LETTERS_OF.items():
            if part in self._parts:
                dims = self._parts[part].dims()
                axes |= {part: dims[part]} if part in dims else {}
                axes |= {key: dims[name] for key, name in letters.items() if name in dims}
        return axes

    def coordinates(self) -> dict[str, np.ndarray]:
        """ℓ of the layers."""
        return {"layer": np.arange(1, self.network.depth + 1)}
