"""What one network contributes to the tensors of the output layer; many networks at once.

From its NTK, dNTK and ddNTKs (`dynagram.observables`); `_tangents` makes the tensors of them and
lists the equations.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._pairs import pair_indices
from dynagram._precision import float64
from dynagram.ensembles.initial._batches import check_integers
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP, Params, check_inputs
from dynagram.observables.tangents._ddntk import network_ddntk_patterns, output_pairs
from dynagram.observables.tangents._dntk import network_dntk
from dynagram.observables.tangents._ntk import network_ntk
from dynagram.observables.tangents._signals import check_differentiable
from dynagram.results._letters import check_letters

LETTERS = ("Theta", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
_SECOND, _THIRD = {"P", "Q"}, {"R", "S", "T", "U"}
# What a member delivers: Ĝ^(L), Ĥ_ii of every output, and what has the mean tensor/n_{L-1}.
PARTS = ("G", "H", "B", "F", "P", "Q", "R", "S", "T", "U")
# D and A are covariances, of these; H_i is the H of every output.
FACTORS = {"D": ("G", "H"), "A": ("H_i", "H_i")}
# Numbers of one batch: large enough to amortise a call, small enough to stay near the cache.
_BATCH_NUMBERS = 2**18
_LARGEST_BATCH = 2**12


def sample_tangents(
    network: MLP,
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
    >>> [{name: values.shape for name, values in found.items()} for found in chunks]
    [{'H': (3, 3, 3), 'B': (3, 2, 2, 2, 2)}, {'H': (2, 3, 3), 'B': (2, 2, 2, 2, 2)}]
    """
    inputs = check_inputs(x, network.widths[0])
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
    means = {"Theta": ("H",), "H1": ("H",)}
    factors = (means.get(name) or FACTORS.get(name, (name,)) for name in tensors)
    needed = {factor[0] for pair in factors for factor in pair}
    return tuple(name for name in PARTS if name in needed)


def _chunks(
    network: MLP, x: np.ndarray, members: int, seed: int, parts: tuple[str, ...], size: int
) -> Iterator[dict[str, np.ndarray]]:
    for first in range(0, members, size):
        # The last chunk is computed whole, so that one compilation serves all.
        found = compute_tangents(network, x, seed, parts, first, size)
        yield {name: values[: members - first] for name, values in found.items()}


@float64
def compute_tangents(
    network: MLP, x: np.ndarray, seed: int, parts: tuple[str, ...], first: int, size: int
) -> dict[str, np.ndarray]:
    """The `parts` of the members `first`, …, `first` + `size` − 1, members first."""
    numbers = np.arange(first, first + size).astype(np.uint32)
    found = _members(network, parts, x, jax.random.key(seed), numbers)
    return {name: np.asarray(found[name]) for name in parts}


@functools.partial(jax.jit, static_argnums=(0, 1))
def _members(
    network: MLP, parts: tuple[str, ...], x: Array, key: Array, numbers: Array
) -> dict[str, Array]:
    def member(number: Array) -> dict[str, Array]:
        params = network.draw(jax.random.fold_in(key, number), dtype=jnp.float64)
        return _contributions(network, parts, params, x)

    return jax.vmap(member)(numbers)


def _contributions(
    network: MLP, parts: tuple[str, ...], params: Params, x: Array
) -> dict[str, Array]:
    i, j = output_pairs(network.widths[-1])
    a, b = pair_indices(x.shape[0])
    z = network.preactivations(params, x)
    found: dict[str, Array] = {}
    if "G" in parts:
        signal = network.activation(z[-2]) if network.depth > 1 else x
        metric = network.C_W[-1] / network.widths[-2] * (signal @ signal.T)
        found["G"] = network.C_b[-1] + metric[a, b]
    if {"H", "B", "F"}.intersection(parts):
        H = network_ntk(network, params, x)
        found["H"] = jnp.diagonal(H, axis1=2, axis2=3)[a, b].T
        found["B"] = jnp.einsum("acp,bdp->abcd", H[..., i, j], H[..., i, j])
        found["F"] = jnp.einsum("ap,cp,bdp->abcd", z[-1][:, i], z[-1][:, j], H[..., i, j])
    if _SECOND.intersection(parts):
        dH = network_dntk(network, params, x)
        found["P"] = jnp.einsum("abcp,dp->abcd", dH[..., i, j, j], z[-1][:, i])
        found["Q"] = jnp.einsum("abcp,dp->abcd", dH[..., i, i, j], z[-1][:, j])
    if _THIRD.intersection(parts):
        first, *second = network_ddntk_patterns(network, params, x)
        S, T, U = (pattern.sum(axis=-1) for pattern in second)
        # dd_II has the samples 1234; T and U are printed as T_1342 and U_1423.
        found |= {"R": first.sum(axis=-1), "S": S}
        found |= {"T": T.transpose(0, 2, 3, 1), "U": U.transpose(0, 3, 1, 2)}
    return {k: found[k] if k in ("G", "H") else found[k] / i.size for k in parts}


def largest_batch(network: MLP, samples: int, parts: tuple[str, ...]) -> int:
    """Members that are computed at once so that they stay near the cache."""
    n_L, neurons = network.widths[-1], sum(network.widths)
    rows = samples * n_L
    numbers = network.number_of_parameters + rows * neurons + rows**2
    numbers += len(parts) * samples**4
    if _SECOND.intersection(parts):
        numbers += rows**2 * (neurons + rows)
    if _THIRD.intersection(parts):
        numbers += rows**2 * samples * (neurons + rows)
    return int(np.clip(_BATCH_NUMBERS // numbers, 1, _LARGEST_BATCH))


def check_tensors(network: MLP, samples: int, tensors: Sequence[str]) -> None:
    """Refuse tensors that do not exist, or not for this network.

    Where σ' jumps (ReLU), R, S, T and U do not exist, and P and Q do for one input only: automatic
    differentiation takes σ'' as 0 and would miss its delta function. Where σ'' jumps (ELU) it
    would miss that of σ''', which only R has.
    """
    check_letters(tensors, LETTERS)
    paired = [name for name in tensors if name not in ("Theta", "H1", "D")]
    if paired and network.widths[-1] < 2:
        allowed = f"{', '.join(paired)} are read off two distinct outputs"
        raise InvalidValueError("n_L of widths", network.widths[-1], allowed)
    harmless = samples == 1 and network.activation.is_scale_invariant
    if _SECOND.intersection(tensors) and not harmless:
        check_differentiable(network, 2, "P and Q by automatic differentiation")
    if _THIRD.intersection(tensors):
        order = 3 if "R" in tensors else 2
        check_differentiable(network, order, "the expansion in the step size behind the ddNTK")
