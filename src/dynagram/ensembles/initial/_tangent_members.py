"""What one network contributes to the tensors of the output layer; many networks at once.

From its NTK, dNTK and ddNTKs (`dynagram.observables`); `_tangents` makes the tensors of them and
lists the equations.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._pairs import pair_indices
from dynagram._precision import float64
from dynagram.ensembles.initial._batches import check_integers
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Network, check_inputs
from dynagram.observables.tangents._ddntk import (
    function_ddntk,
    network_ddntk_patterns,
    output_pairs,
)
from dynagram.observables.tangents._dntk import function_dntk, network_dntk
from dynagram.observables.tangents._ntk import any_ntk
from dynagram.observables.tangents._signals import check_differentiable
from dynagram.results._letters import check_letters

LETTERS = ("Theta", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
# Of networks of blocks the metric is measured at the output too.
CHAIN_LETTERS = ("K", "V", "G1", *LETTERS)
_SECOND, _THIRD = {"P", "Q"}, {"R", "S", "T", "U"}
# What a member delivers: Ĝ^(L), Ĥ_ii of every output, and what has the mean tensor/n_{L-1}.
PARTS = ("G", "H", "B", "F", "P", "Q", "R", "S", "T", "U")
# V, D and A are covariances, of these; H_i is the H of every output.
FACTORS = {"V": ("G", "G"), "D": ("G", "H"), "A": ("H_i", "H_i")}
# Numbers of one batch: large enough to amortise a call, small enough to stay near the cache.
_BATCH_NUMBERS = 2**18
_LARGEST_BATCH = 2**12


def sample_tangents(
    network: Network,
    x: Float[np.ndarray, "samples n_0"],
    *,
    members: int,
    seed: int,
    tensors: Sequence[str],
    chunk: int | None = None,
) -> Iterator[dict[str, Float[np.ndarray, "chunk ..."]]]:
    """Yield what each member contributes to `tensors`, some of Theta, H1, A to U, chunk by chunk.

    "G" is Ĝ^(L) and "H" is Ĥ_ii of every output, both for the pairs (ab) of `dynagram._pairs`:
    their means and covariances give Theta, H1, D and A. The others are averages over pairs of
    outputs of what has the mean tensor/n_{L-1}. Member m is a function of the seed and of m alone,
    so that `chunk` changes nothing but speed and memory.

    **Arguments:**

    - `network`, `x`: the specification, and one input a row.
    - `members`, `seed`: how many networks, and which.
    - `tensors`: letters of the registry.
    - `chunk`: members per array; by default what stays near the cache.

    **Returns:** an iterator over dictionaries of arrays with the members first.

    >>> net = MLP([2, 10, 3], "tanh", C_b=0.0, C_W=1.0)
    >>> chunks = sample_tangents(net, np.eye(2), members=5, seed=0, tensors=("A", "B"), chunk=3)
    >>> [{name: values.shape for name, values in tensors.items()} for tensors in chunks]
    [{'H': (3, 3, 3), 'B': (3, 2, 2, 2, 2)}, {'H': (2, 3, 3), 'B': (2, 2, 2, 2, 2)}]
    """
    inputs = check_inputs(x, network.input_size)
    check_tensors(network, inputs.shape[0], tensors)
    parts = parts_of(tensors)
    size = largest_batch(network, inputs.shape[0], parts) if chunk is None else chunk
    check_integers(members=(members, 1), seed=(seed, 0), chunk=(size, 1))
    return _chunks(network, inputs, members, seed, parts, min(size, members))


def parts_of(tensors: Sequence[str]) -> tuple[str, ...]:
    """What a member must deliver for `tensors`.

    >>> parts_of(("Theta", "D", "F"))
    ('G', 'H', 'F')
    """
    means = {"Theta": ("H",), "H1": ("H",), "K": ("G",), "G1": ("G",)}
    factors = (means.get(name) or FACTORS.get(name, (name,)) for name in tensors)
    needed = {factor[0] for pair in factors for factor in pair}
    return tuple(name for name in PARTS if name in needed)


def _chunks(
    network: Network, x: np.ndarray, members: int, seed: int, parts: tuple[str, ...], size: int
) -> Iterator[dict[str, np.ndarray]]:
    for first in range(0, members, size):
        # The last chunk is computed whole, so that one compilation serves all.
        tensors = compute_tangents(network, x, seed, parts, first, size)
        yield {name: values[: members - first] for name, values in tensors.items()}


@float64
def compute_tangents(
    network: Network, x: np.ndarray, seed: int, parts: tuple[str, ...], first: int, size: int
) -> dict[str, np.ndarray]:
    """The `parts` of the members `first`, …, `first` + `size` − 1, members first."""
    numbers = np.arange(first, first + size).astype(np.uint32)
    tensors = _members(network, parts, x, jax.random.key(seed), numbers)
    return {name: np.asarray(tensors[name]) for name in parts}


@functools.partial(jax.jit, static_argnums=(0, 1))
def _members(
    network: Network, parts: tuple[str, ...], x: Array, key: Array, numbers: Array
) -> dict[str, Array]:
    def member(number: Array) -> dict[str, Array]:
        params = network.draw(jax.random.fold_in(key, number), dtype=jnp.float64)
        return _contributions(network, parts, params, x)

    return jax.vmap(member)(numbers)


@dataclass(frozen=True)
class _Tangents:
    """What is read off one network of any architecture: outputs, dNTK, ddNTK; each on demand."""

    network: Network
    params: Any
    x: Array

    def _function(self, params: Any, x: Array) -> Array:
        return self.network.apply(params, x).reshape(-1, self.network.outputs)

    def outputs(self) -> Array:
        """z, a row for every sample and position."""
        return self._function(self.params, self.x)

    def dntk(self) -> Array:
        """[a, b, c, i, j, k]."""
        if isinstance(self.network, MLP):
            return network_dntk(self.network, self.params, self.x)
        return function_dntk(self._function, self.params, self.x, self.network.rates())

    def ddntk(self) -> tuple[Array, ...]:
        """The patterns of `DDNTKPatterns`."""
        if isinstance(self.network, MLP):
            return network_ddntk_patterns(self.network, self.params, self.x)
        both = function_ddntk(self._function, self.params, self.x, self.network.rates())
        i, j = output_pairs(self.network.outputs)
        first, second = both.first, both.second
        return (
            first[..., i, i, j, j], second[..., i, i, j, j], second[..., i, j, i, j],
            second[..., i, j, j, i],
        )  # fmt: skip


def _contributions(
    network: Network, parts: tuple[str, ...], params: Any, x: Array
) -> dict[str, Array]:
    i, j = output_pairs(network.outputs)
    a, b = pair_indices(x.shape[0] * network.positions)
    member = _Tangents(network, params, x)
    z = member.outputs()
    tensors: dict[str, Array] = {}
    if "G" in parts:
        tensors["G"] = network.output_metric(params, x)[a, b]
    if {"H", "B", "F"}.intersection(parts):
        H = any_ntk(network, params, x)
        tensors["H"] = jnp.diagonal(H, axis1=2, axis2=3)[a, b].T
        tensors["B"] = jnp.einsum("acp,bdp->abcd", H[..., i, j], H[..., i, j])
        tensors["F"] = jnp.einsum("ap,cp,bdp->abcd", z[:, i], z[:, j], H[..., i, j])
    if _SECOND.intersection(parts):
        dH = member.dntk()
        tensors["P"] = jnp.einsum("abcp,dp->abcd", dH[..., i, j, j], z[:, i])
        tensors["Q"] = jnp.einsum("abcp,dp->abcd", dH[..., i, i, j], z[:, j])
    if _THIRD.intersection(parts):
        first, *second = member.ddntk()
        S, T, U = (pattern.sum(axis=-1) for pattern in second)
        # dd_II has the samples 1234; T and U are printed as T_1342 and U_1423.
        tensors |= {"R": first.sum(axis=-1), "S": S}
        tensors |= {"T": T.transpose(0, 2, 3, 1), "U": U.transpose(0, 3, 1, 2)}
    return {k: tensors[k] if k in ("G", "H") else tensors[k] / i.size for k in parts}


def largest_batch(network: Network, samples: int, parts: tuple[str, ...]) -> int:
    """Members that are computed at once so that they stay near the cache."""
    n_L, neurons = network.outputs, network.neurons
    samples = samples * network.positions
    rows = samples * n_L
    parameters = network.number_of_parameters
    if not isinstance(network, MLP):
        parameters = parameters * (1 + rows)  # automatic differentiation holds directions whole
    numbers = parameters + rows * neurons + rows**2
    numbers += len(parts) * samples**4
    if _SECOND.intersection(parts):
        numbers += rows**2 * (neurons + rows)
    if _THIRD.intersection(parts):
        numbers += rows**2 * samples * (neurons + rows)
    return int(np.clip(_BATCH_NUMBERS // numbers, 1, _LARGEST_BATCH))


def check_tensors(network: Network, samples: int, tensors: Sequence[str]) -> None:
    """Refuse tensors that do not exist, or not for this network.

    Where σ' jumps (ReLU), R, S, T and U do not exist, and P and Q do for one input only: automatic
    differentiation takes σ'' as 0 and would miss its delta function. Where σ'' jumps (ELU) it
    would miss that of σ''', which only R has.
    """
    check_letters(tensors, LETTERS if isinstance(network, MLP) else CHAIN_LETTERS)
    single = ("Theta", "H1", "D", "K", "V", "G1")
    paired = [name for name in tensors if name not in single]
    if paired and network.outputs < 2:
        allowed = f"{', '.join(paired)} are read off two distinct outputs"
        raise InvalidValueError("number of outputs", network.outputs, allowed)
    harmless = samples == 1 and all(s.is_scale_invariant for s in network.activations())
    if _SECOND.intersection(tensors) and not harmless:
        check_differentiable(network, 2, "P and Q by automatic differentiation")
    if _THIRD.intersection(tensors):
        order = 3 if "R" in tensors else 2
        check_differentiable(network, order, "the expansion in the step size behind the ddNTK")
