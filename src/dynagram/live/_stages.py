"""What a network of blocks shows at every stage, in numbers: one with its weights, or many drawn.

After every block: the mean square of the signal, how alike tokens are, the mean square of ∂f/∂x
there and ‖∂f/∂θ‖² of every array of parameters, for f the mean of the first output.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._memory import require_memory
from dynagram._precision import own_precision
from dynagram.live._walk import matrices_of, with_variances
from dynagram.networks import Chain
from dynagram.networks.blocks import Attention, Residual
from dynagram.networks.blocks._block import Block, Shape

NUMBERS = ("mean square", "token similarity", "squared gradient", "Jacobian", "share of the NTK")
_COPIES = 3  # of every signal: on the way forward, on the way back, and at work


@dataclass(frozen=True, eq=False)
class StageNumbers:
    """The numbers of all stages of one network, or of many with the networks first.

    **Arguments:**

    - `numbers`: (…, stage) by the names in `NUMBERS`; nan where there is none.
    - `weights`: ‖∂f/∂W‖² by (block, place in its parameters).
    - `outputs`: (…, samples, outputs).
    """

    numbers: dict[str, np.ndarray]
    weights: dict[tuple[Any, ...], np.ndarray]
    outputs: np.ndarray


def measure_stages(network: Chain, params: Any, rows: np.ndarray) -> StageNumbers:
    """The numbers of a network with its weights, in their precision; one pass forth and back."""
    require_room(network, len(rows))
    return _as_numbers(network, _measured(params, _bare(network), rows))


def draw_stages(
    network: Chain,
    rows: np.ndarray,
    draws: int,
    seed: int,
    uniform: Collection[tuple[Any, ...]] = (),
) -> StageNumbers:
    """The numbers of `draws` networks with other weights, at places in `uniform` uniform ones."""
    require_room(network, len(rows))
    keys = jax.random.split(jax.random.key(seed), draws)
    # Compiled once for all networks of these blocks, whatever their variances are.
    sizes = {
        str(m.place): (jnp.float32(m.variance**0.5), jnp.bool_(m.place in uniform))
        for m in matrices_of(network)
    }
    made = _drawn(_bare(network), jnp.asarray(rows, jnp.float32), keys, sizes)
    return _as_numbers(network, made)


def require_room(network: Chain, samples: int) -> None:
    """Refuse inputs and positions whose signals, and what attention looks at, would not fit.

    **Arguments:**

    - `network`: a `Chain`.
    - `samples`: the number of inputs.
    """
    needed = 4.0 * _COPIES * samples * _signal_size(network.blocks, network.in_shape)
    words = f"{samples} × {network.in_shape.positions}"
    require_memory("samples × positions", words, needed, "take fewer")


def _signal_size(blocks: Sequence[Block], shape: Shape) -> int:
    """Numbers that one sample has at all stages, within branches too."""
    size = shape.positions * shape.channels
    for block in blocks:
        if isinstance(block, Residual):
            size += sum(_signal_size(branch, shape) for branch in block.branches)
        if isinstance(block, Attention):
            size += block.heads * shape.positions**2
        shape = block.out_shape(shape)
        size += shape.positions * shape.channels
    return size


def _bare(network: Chain) -> Chain:
    """The blocks with entries of variance 1: what is compiled does not depend on variances."""
    return with_variances(network, lambda _: 1.0)


@own_precision
def _measured(params: Any, network: Chain, rows: np.ndarray) -> Any:
    arrays = jax.tree.map(jnp.asarray, params)
    dtype = jax.tree.leaves(arrays)[0].dtype
    return jax.tree.map(np.asarray, _compiled(network, arrays, jnp.asarray(rows, dtype)))


@functools.partial(jax.jit, static_argnums=0)
def _drawn(network: Chain, rows: Any, keys: Any, sizes: dict[str, Any]) -> Any:
    def member(key: Any) -> Any:
        unit = network.draw(key, rows.dtype)
        params = tuple(_sized(values, (i,), sizes) for i, values in enumerate(unit))
        return _one(network, params, rows)

    return jax.lax.map(member, keys)


def _sized(values: Any, place: tuple[Any, ...], sizes: dict[str, Any]) -> Any:
    """Parameters of a block times their standard deviations."""
    if isinstance(values, dict):
        return {key: _one_size(array, *sizes[str((*place, key))]) for key, array in values.items()}
    return tuple(_sized(part, (*place, i), sizes) for i, part in enumerate(values))


def _one_size(normal: Any, std: Any, is_uniform: Any) -> Any:
    flat = 3.0**0.5 * jax.lax.erf(normal / 2.0**0.5)  # uniform, of variance 1
    return std * jnp.where(is_uniform, flat, normal)


@functools.partial(jax.jit, static_argnums=0)
def _compiled(network: Chain, params: Any, rows: Any) -> Any:
    return _one(network, params, rows)


def _one(network: Chain, params: Any, rows: Any) -> Any:
    shape = network.in_shape
    start = rows.reshape(rows.shape[0], shape.positions, shape.channels)

    def run(params: Any, shifts: Any) -> Any:
        x, here, streams = start, shape, []
        for block, values, shift in zip(network.blocks, params, shifts, strict=True):
            x = block.apply(values, x, here) + shift
            here = block.out_shape(here)
            streams.append(x)
        return jnp.mean(x[..., 0]), streams

    sizes = jax.eval_shape(lambda: run(params, [0.0] * len(network.blocks))[1])
    shifts = [jnp.zeros(size.shape, size.dtype) for size in sizes]
    (slopes, back), streams = jax.grad(run, argnums=(0, 1), has_aux=True)(params, shifts)
    squares = [jax.tree.map(lambda g: jnp.sum(g**2), slope) for slope in slopes]
    signals = [(jnp.mean(x**2), similarity(x), jnp.mean(jnp.sum(g**2, axis=-1)))
               for x, g in zip(streams, back, strict=True)]  # fmt: skip
    return signals, squares, streams[-1]


def similarity(x: Any) -> Any:
    """The mean of x_a·x_b/|x_a||x_b| over tokens a ≠ b of a sample; nan where there is one token.

    >>> round(float(similarity(jnp.array([[[1.0, 0.0], [1.0, 1.0]]]))), 4)
    0.7071
    """
    positions = x.shape[1]
    if positions == 1:
        return jnp.full((), jnp.nan, x.dtype)
    length = jnp.linalg.norm(x, axis=-1, keepdims=True)
    unit = x / jnp.where(length > 0, length, 1.0)
    gram = jnp.einsum("sac,sbc->sab", unit, unit)
    off = jnp.sum(gram, axis=(1, 2)) - jnp.trace(gram, axis1=1, axis2=2)
    return jnp.mean(off) / (positions * (positions - 1))


def _as_numbers(network: Chain, made: Any) -> StageNumbers:
    signals, squares, outputs = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), made)
    rows = [np.stack([signal[i] for signal in signals], axis=-1) for i in range(3)]
    weights: dict[tuple[Any, ...], np.ndarray] = {}
    for number, (block, slopes) in enumerate(zip(network.blocks, squares, strict=True)):
        if isinstance(block, Residual):
            for b, branch in enumerate(slopes):
                for p, values in enumerate(branch):
                    weights |= {(number, b, p, key): v for key, v in dict(values or {}).items()}
        else:
            weights |= {(number, key): v for key, v in dict(slopes or {}).items()}
    total = np.stack(
        [sum((v for key, v in weights.items() if key[0] == i), start=np.zeros(rows[0].shape[:-1]))
         for i in range(len(network.blocks))], axis=-1,
    )  # fmt: skip
    share = total / np.sum(total, axis=-1, keepdims=True)
    none = np.array([not _learns(network, i) for i in range(len(network.blocks))])
    gradient, part = (np.where(none, np.nan, values) for values in (total, share))
    columns = (rows[0], rows[1], gradient, rows[2], part)
    numbers: dict[str, np.ndarray] = dict(zip(NUMBERS, columns, strict=True))
    return StageNumbers(numbers, weights, outputs)


def _learns(network: Chain, number: int) -> bool:
    block = network.blocks[number]
    return (
        isinstance(block, Residual) or hasattr(block, "lambda_W") or hasattr(block, "lambda_token")
    )
