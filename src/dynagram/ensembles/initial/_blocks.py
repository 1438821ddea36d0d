"""Tuning of a user's residual block z' = ξ R(z; θ) + γ z from measured correlators (book §B.4).

The block is a black box: an ensemble of them gives G_RR, G_Rz and G_zz, averages over members,
neurons and samples of R², Rz and z² (B.42), (B.43), and ξ or γ follows from (B.45). They change
along the chain (a block with a mean builds up G_Rz), so they are measured anew before every block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.errors import InvalidTypeError, InvalidValueError, NonFiniteError
from dynagram.networks import BlockChain, checked_real
from dynagram.networks._block_chain import Block
from dynagram.results._estimate import Estimate
from dynagram.theory.skips._blocks import balanced_skip, balanced_strength

# Delete-one-batch errors of ξ and γ.
_BATCHES = 32

Start = Callable[[Array], Array] | Float[np.ndarray, "samples n"]


@dataclass(frozen=True, eq=False)
class TunedBlocks:
    """The tuned chain and what was measured before each of its blocks, with standard errors.

    `solved` is what was solved for, ξ or γ, block by block; its errors say how far the signal of
    other draws may drift. `G_zz` has one entry more than there are blocks, the last after the last
    block: constant to rounding on the members it was tuned on; `measure_signal` takes others.
    """

    chain: BlockChain
    solved: Estimate
    G_RR: Float[np.ndarray, " block"]
    G_Rz: Float[np.ndarray, " block"]
    G_zz: Float[np.ndarray, " block_plus_1"]
    members: int
    seed: int


@float64
def tune_blocks(
    init_block: Callable[[Array], Any],
    apply_block: Block,
    start: Start,
    *,
    skip: Sequence[float] | None = None,
    strength: Sequence[float] | None = None,
    members: int,
    seed: int,
) -> TunedBlocks:
    """Solve for the ξ of every block given its γ in `skip`, or for γ given its ξ in `strength`.

    **Arguments:**

    - `init_block`, `apply_block`: init_block(key) and apply_block(θ, z), as in `BlockChain`.
    - `start`: what enters the first block, (samples, n), or a function of a key that draws it.
    - `skip`, `strength`: the γ or the ξ of every block; one of the two.
    - `members`: chains drawn.
    - `seed`: of the draw.

    **Returns:** `TunedBlocks`. Memory: members × samples × n numbers, and the parameters of one
    block for every member.

    >>> def init(key):
    ...     return jax.random.normal(key, (40, 40)) * (2.0 / 40) ** 0.5
    >>> def relu_block(W, z):
    ...     return jax.nn.relu(z) @ W.T
    >>> first = lambda key: jax.random.normal(key, (1, 40))
    >>> tuned = tune_blocks(init, relu_block, first, skip=[0.6] * 3, members=500, seed=0)
    >>> np.round(tuned.chain.strength, 1).tolist()                # √(1 − γ²) for an MLP block
    [0.8, 0.8, 0.8]
    """
    if (skip is None) == (strength is None):
        raise InvalidValueError("skip", skip, "give either skip (γ) or strength (ξ), one per block")
    _check_ensemble(members, seed)
    fixed = skip if skip is not None else strength
    given = [checked_real("skip or strength", value) for value in fixed or ()]
    z = _starts(start, members, seed)
    run = _block(init_block, apply_block)
    solved, errors, correlators = [], [], []
    for number, value in enumerate(given, start=1):
        R = run(z, _keys(members, seed, number))
        products = np.array([jnp.mean(product, axis=(1, 2)) for product in (R * R, R * z, z * z)])
        if not np.all(np.isfinite(products)):
            raise NonFiniteError(
                f"the output of block {number} is not finite: rescale its initialisation"
            )
        correlators.append(products.mean(axis=1))
        solved.append(_balance(correlators[-1], skip is not None, value))
        rest = [np.delete(products, part, axis=1).mean(axis=1) for part in _batches(members)]
        varied = np.array([_balance(means, skip is not None, value) for means in rest])
        errors.append(np.sqrt((_BATCHES - 1) * np.mean((varied - varied.mean()) ** 2)))
        xi, gamma = (solved[-1], value) if skip is not None else (value, solved[-1])
        z = xi * R + gamma * z
    free, known = tuple(solved), tuple(given)
    xis, gammas = (free, known) if skip is not None else (known, free)
    G_RR, G_Rz, G_zz = np.array(correlators).reshape(-1, 3).T
    return TunedBlocks(
        BlockChain(init_block, apply_block, xis, gammas),
        Estimate(np.array(free), np.array(errors), members),
        np.array(G_RR),
        np.array(G_Rz),
        np.append(G_zz, float(jnp.mean(z * z))),
        members,
        seed,
    )


def _balance(correlators: np.ndarray, for_strength: bool, value: float) -> float:
    """ξ for a given γ, or γ for a given ξ."""
    G_RR, G_Rz, G_zz = (float(entry) for entry in correlators)
    if for_strength:
        return balanced_strength(G_RR, G_Rz, G_zz, skip=value)
    return balanced_skip(G_RR, G_Rz, G_zz, strength=value)


def _batches(members: int) -> list[np.ndarray]:
    return np.array_split(np.arange(members), _BATCHES)


@float64
def measure_signal(chain: BlockChain, start: Start, *, members: int, seed: int) -> Estimate:
    """G_zz before the first block, …, after the last, on freshly drawn chains.

    **Arguments:**

    - `chain`: the blocks with their γ and ξ.
    - `start`: what enters the first block, (samples, n), or a function of a key that draws it.
    - `members`: chains drawn.
    - `seed`: of the draw.

    **Returns:** the mean and its standard error, blocks + 1 numbers each.

    >>> chain = BlockChain(lambda key: None, lambda _, z: z, (1.0, 1.0), (0.0, 1.0))
    >>> measure_signal(chain, np.ones((1, 3)), members=64, seed=0).value.tolist()
    [1.0, 1.0, 4.0]
    """
    _check_ensemble(members, seed)
    z = _starts(start, members, seed)
    run = _block(chain.init_block, chain.apply_block)
    sizes = [np.asarray(jnp.mean(z**2, axis=(1, 2)))]
    for number, (xi, gamma) in enumerate(zip(chain.strength, chain.skip, strict=True), start=1):
        z = xi * run(z, _keys(members, seed, number)) + gamma * z
        sizes.append(np.asarray(jnp.mean(z**2, axis=(1, 2))))
    table = np.array(sizes)
    error = np.std(table, axis=1, ddof=1) / members**0.5
    return Estimate(table.mean(axis=1), error, members)


def _check_ensemble(members: int, seed: int) -> None:
    if members < 64:
        raise InvalidValueError("members", members, "at least 64 needed for a standard error")
    if not 0 <= seed < 2**32:
        raise InvalidValueError("seed", seed, "expected 0 to 2**32 − 1")


def _keys(members: int, seed: int, stage: int) -> Array:
    """One key per member for the block `stage`, 0 being the start."""
    key = jax.random.fold_in(jax.random.key(seed), stage)
    return jax.vmap(functools.partial(jax.random.fold_in, key))(jnp.arange(members))


def _starts(start: Start, members: int, seed: int) -> Array:
    if callable(start):
        z = jax.vmap(start)(_keys(members, seed, 0)).astype(jnp.float64)
    else:
        z = jnp.broadcast_to(jnp.asarray(start, dtype=jnp.float64), (members, *np.shape(start)))
    if z.ndim != 3:
        raise InvalidTypeError("shape of start", z.shape[1:], "expected (samples, n)")
    return z


@functools.lru_cache(maxsize=16)
def _block(init_block: Callable[[Array], Any], apply_block: Block) -> Callable[..., Array]:
    """R of every member, each with parameters of its own."""

    @jax.jit
    def run(z: Array, keys: Array) -> Array:
        return jax.vmap(lambda key, one: apply_block(init_block(key), one))(keys, z)

    def checked(z: Array, keys: Array) -> Array:
        R = run(z, keys)
        if R.shape != z.shape:
            raise InvalidTypeError("shape of the block's output", R.shape[1:], f"{z.shape[1:]}")
        return R

    return checked
