"""`TensorJob`: the tensors of a network at initialisation, measured on an ensemble of draws.

K, G1, V, the six-point vertex and the odd cumulant are measured in every layer, the tangent tensors
at the output, all on the same networks. K and Theta are the measured means, which contain all
orders in 1/n; G1 = n(K − K_∞) (4.104) and H1 = n(Θ − Θ_∞) (9.3) are counted from infinite width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from dynagram._memory import require_memory
from dynagram._toml import read_toml, write_table
from dynagram.ensembles._reference import infinite_kernels
from dynagram.ensembles.engine._outcome import Outcome
from dynagram.ensembles.initial import _metric, _skips, _tangent_members
from dynagram.ensembles.initial._batches import check_integers, chunk_for, smallest_chunk
from dynagram.ensembles.initial._metric import MetricSums, scale_layers
from dynagram.ensembles.initial._sample import SAMPLERS
from dynagram.ensembles.initial._skips import FieldSums
from dynagram.ensembles.initial._tangents import TangentSums
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Network, check_inputs
from dynagram.networks._network import network_from_toml
from dynagram.results._estimate import Estimate, Moments
from dynagram.results._letters import LETTERS, check_letters
from dynagram.results._tensors import Tensors

TANGENTS = _tangent_members.LETTERS


@dataclass(frozen=True, eq=False)
class TensorJob:
    """Tensors at initialisation by the letters of the registry, as a job of the engine.

    **Arguments:**

    - `network`, `x`: the specification, and one input a row.
    - `tensors`: letters. Those read off two distinct outputs (A, B, F, P to U) need n_L ≥ 2; P to
        U need a smooth activation, but P and Q of one input.
    - `seed`: of the ensemble. Member m depends on it and on m alone.
    - `sampler`: "metric" draws preactivations layer by layer, the same law at every width and far
        faster; "weights" draws weights, as tangent tensors need; "auto" the first where it can.
    - `chunk_members`: members per chunk; 0 for about a second of work.

    >>> from dynagram.ensembles.engine import run_job
    >>> net = MLP([2, 10, 2], "linear", C_b=0.0, C_W=1.0)
    >>> job = TensorJob(net, np.ones((1, 2)), ("K", "V", "B"), seed=0)
    >>> job.sampler
    'weights'
    >>> estimates = run_job(job, members=5000).estimates
    >>> {name: estimate.value.shape for name, estimate in estimates.items()}
    {'K': (2, 1, 1), 'V': (2, 1, 1, 1, 1), 'B': (1, 1, 1, 1, 1)}
    """

    kind: ClassVar[str] = "tensors"

    network: Network
    x: Float[np.ndarray, "samples n_0"]
    tensors: tuple[str, ...]
    seed: int
    sampler: str = "auto"
    chunk_members: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", check_inputs(self.x, self.network.input_size))
        names = _check_tensors(self.network, self.tensors)
        object.__setattr__(self, "tensors", names)
        drawn = [name for name in names if name in self._at_the_output]
        object.__setattr__(self, "sampler", _choose_sampler(self.sampler, drawn))
        check_integers(seed=(self.seed, 0), chunk=(self.chunk_members, 0))
        self._check_memory()
        if self.chunk_members == 0:
            object.__setattr__(self, "chunk_members", chunk_for(None, self.smallest_chunk))

    def _check_memory(self) -> None:
        """Refuse, before anything is drawn, what does not fit: tensors, sums, one network."""
        samples, network = len(self.x) * self.network.positions, self.network
        tensors = sum(
            len(self._layers(name)) * samples ** len(LETTERS[name].axes) for name in self.tensors
        )
        # A tensor with its error, and both again while the jackknife goes through the batches.
        asked, fewer = ",".join(self.tensors), "give fewer inputs, or ask for less"
        require_memory("number of samples", samples, 32.0 * tensors, f"{asked}: {fewer}")
        member = samples * (samples + network.neurons)
        member += network.number_of_parameters if self.sampler == "weights" else 0
        require_memory("network", network.summary, 16.0 * member, "a single network is too large")
        # Those of a chunk, of all chunks before it, and their sum.
        sums = sum(part.numbers for part in self._sums_of_chunks(1))
        require_memory("number of samples", samples, 24.0 * sums, f"sums of {asked}: {fewer}")

    def in_chunks(self, members: int) -> TensorJob:
        """The same ensemble in chunks of `members`."""
        return replace(self, chunk_members=members)

    @cached_property
    def smallest_chunk(self) -> int:
        """Members below which a chunk costs more than it should."""
        wanted = self._sums_of_chunks(1)
        return max(smallest_chunk(sums.largest_batch, sums.numbers) for sums in wanted)

    @cached_property
    def _sums(self) -> list[MetricSums | FieldSums | TangentSums]:
        return self._sums_of_chunks(self.chunk_members)

    def _sums_of_chunks(self, chunk: int) -> list[MetricSums | FieldSums | TangentSums]:
        """What is summed over the members, for the letters wanted."""
        network, x, seed = self.network, self.x, self.seed
        everywhere = tuple(name for name in self.tensors if name not in self._at_the_output)
        at_the_output = tuple(name for name in self.tensors if name in self._at_the_output)
        sums: list[MetricSums | FieldSums | TangentSums] = []
        if at_the_output:
            sums.append(TangentSums(network, x, at_the_output, seed, chunk))
        if not everywhere:
            return sums
        assert isinstance(network, MLP)
        if network.has_skips:
            K = self._infinite.K
            sums.append(FieldSums(network, x, K, everywhere, seed, self.sampler, chunk))
        else:
            sums.append(MetricSums(network, x, everywhere, seed, self.sampler, chunk))
        return sums

    @property
    def _at_the_output(self) -> tuple[str, ...]:
        return TANGENTS if isinstance(self.network, MLP) else _tangent_members.CHAIN_LETTERS

    @cached_property
    def _infinite(self) -> Any:
        return infinite_kernels(self.network, self.x)

    def run_chunk(self, first: int, size: int) -> dict[str, Moments]:
        """The sums over the members from `first` on."""
        moments: dict[str, Moments] = {}
        for sums in self._sums:
            moments |= sums.run_chunk(first, size)
        return moments

    def estimates(self, moments: Mapping[str, Moments]) -> dict[str, Estimate]:
        """The tensors with their standard errors, layers first."""
        estimates: dict[str, Estimate] = {}
        for sums in self._sums:
            estimates |= sums.estimates(moments)
        if "G1" in self.tensors:
            layers = self._layers("G1")
            frozen = self._infinite.K[-len(layers) :]
            estimates["G1"] = self._shift(estimates["K"], frozen, layers)
        if "H1" in self.tensors:
            frozen = self._infinite.Theta[-1:]
            estimates["H1"] = self._shift(estimates["Theta"], frozen, self._layers("H1"))
        return {name: estimates[name] for name in self.tensors}

    def _shift(self, mean: Estimate, frozen: np.ndarray, layers: tuple[int, ...]) -> Estimate:
        """n_{ℓ-1}(mean − frozen): layer 1 is that of infinite width in every member."""
        n = [0 if layer == 1 else self.network.fan_in(layer) for layer in layers]
        difference = Estimate(mean.value - frozen, mean.standard_error, mean.count)
        return scale_layers(difference, np.array(n, dtype=np.float64))

    def _layers(self, name: str) -> tuple[int, ...]:
        depth = self.network.depth
        return (depth,) if name in self._at_the_output else tuple(range(1, depth + 1))

    def result(self, outcome: Outcome) -> Tensors:
        """What a run of this job gave, with the number of members and how it ended."""
        about: dict[str, Any] = {"sampler": self.sampler, "complete": outcome.complete}
        if outcome.failed:
            about["failed"] = [str(member) for member in outcome.failed]
        if outcome.until_error is not None and outcome.worst is not None:
            about["until_error"] = outcome.until_error
            about["worst"] = {"tensor": outcome.worst.name, "error": outcome.worst.value}
        return Tensors(
            self.network,
            self.x,
            "measured",
            {name: outcome.estimates[name].value for name in self.tensors},
            {name: outcome.estimates[name].standard_error for name in self.tensors},
            {name: self._layers(name) for name in self.tensors},
            None,
            outcome.members - len(outcome.failed),
            self.seed,
            about,
        )

    def to_toml(self) -> str:
        """The specification but for the inputs."""
        names = ("tensors", "seed", "sampler", "chunk_members")
        request = {name: getattr(self, name) for name in names}
        return f"{self.network.to_toml()}\n{write_table('tensors', request)}"

    def arrays(self) -> dict[str, np.ndarray]:
        """The inputs."""
        return {"x": self.x}

    @classmethod
    def from_toml(cls, text: str, arrays: Mapping[str, np.ndarray]) -> TensorJob:
        """The job that `to_toml` and `arrays` describe."""
        request = read_toml(text)["tensors"]
        tensors = tuple(request.pop("tensors"))
        return cls(network_from_toml(text), arrays["x"], tensors, **request)

    def dims(self) -> dict[str, tuple[str, ...]]:
        """The names of the axes."""
        axes: dict[str, tuple[str, ...]] = {"x": ("sample", "input")}
        for sums in self._sums:
            axes |= sums.dims()
        return axes | {name: ("layer", *LETTERS[name].axes) for name in self.tensors}


def _check_tensors(network: Network, tensors: Sequence[str]) -> tuple[str, ...]:
    """The letters in the order of the registry; those of the other kind of network are refused."""
    names = check_letters(tensors, tuple(LETTERS))
    if not isinstance(network, MLP):
        return check_letters(names, _tangent_members.CHAIN_LETTERS)
    measured = _skips.LETTERS if network.has_skips else _metric.LETTERS
    absent = [name for name in names if name not in (*measured, *TANGENTS)]
    if absent:
        which = "with" if network.has_skips else "without"
        allowed = f"networks {which} skips have {', '.join((*measured, *TANGENTS))}"
        raise InvalidValueError("tensors", ",".join(absent), allowed)
    return names


def _choose_sampler(sampler: str, tangents: Sequence[str]) -> str:
    """The sampler meant: "weights" where any of `tangents` is wanted, else "metric"."""
    if sampler == "auto":
        return "weights" if tangents else "metric"
    if sampler not in SAMPLERS:
        allowed = f"expected one of auto, {', '.join(SAMPLERS)}"
        raise InvalidValueError("sampler", sampler, allowed)
    if sampler == "metric" and tangents:
        raise InvalidValueError("sampler", sampler, f'{", ".join(tangents)} need "weights"')
    return sampler
