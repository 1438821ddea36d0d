"""K and Θ of networks of blocks at infinite width, for whole data sets.

Every input is first taken with itself, which gives the variances that activations and norms read;
then blocks of inputs are taken in pairs. Only pairs of positions that the output depends on are
carried. Attention heads are sampled for all inputs at once, several times, which gives the error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.errors import InvalidValueError
from dynagram.networks._chain import Chain
from dynagram.networks.blocks._composite import Embedding
from dynagram.theory.chain._head_kernels import head_kernels, is_certain
from dynagram.theory.chain._kernel_averages import Values
from dynagram.theory.chain._kernel_program import Attend, Lists, Program, compile_program
from dynagram.theory.chain._kernel_steps import CrossRun, SameRun
from dynagram.theory.chain._position_pairs import PositionPairs

Signal = Float[np.ndarray, "_ position channel"]
HEAD_SAMPLES = 2**12
_WORKERS = min(os.cpu_count() or 1, 8)  # blocks of inputs at a time
_FEW_NUMBERS = 2**18  # that threads would only hold up
REPLICAS = 8  # runs with other samples of the heads, whose spread is the error
_MAX_BYTES = 8 * 1024**3
_BLOCK_NUMBERS = 2**18  # of one array of a pair of blocks of inputs
_KEPT_BYTES = 24 * 1024**2  # below the 32 MiB up to which the C library learns
_NUMBERS_PER_CALL = 20_000  # that cost as much as calling a compiled pass
# By program, the sizes of blocks that it has run on: a first block compiles for all, by itself.
_compiled: WeakKeyDictionary[Program, set[int]] = WeakKeyDictionary()


@dataclass(frozen=True)
class ChainKernels:
    """K and Θ of the output between all (sample, position); order "∞".

    Their errors are those of sampled heads, one standard deviation; None without attention.
    """

    K: Float[np.ndarray, "a b"]
    Theta: Float[np.ndarray, "a b"]
    K_error: Float[np.ndarray, "a b"] | None = None
    Theta_error: Float[np.ndarray, "a b"] | None = None


@float64
def chain_kernels(
    network: Chain,
    x: Float[np.ndarray, "samples n_0"],
    z: Float[np.ndarray, "others n_0"] | None = None,
    *,
    seed: int = 0,
    head_samples: int = HEAD_SAMPLES,
) -> ChainKernels:
    """K and Θ of the output of a network of blocks, all blocks of `dynagram.networks.blocks`.

    About 12 digits for any activation; with attention as many as `head_samples` heads, eight times,
    allow. Cost: one average per pair of inputs, pair of positions in need, and activation; pairs
    of positions are those that later blocks read: equal ones under a flattening layer, all under a
    global average. Memory: 16 bytes per entry of the result, and blocks of a few hundred MB
    whatever the number of inputs; with attention about twenty times (inputs × positions)² numbers.

    **Arguments:**

    - `network`: a `Chain`.
    - `x`: inputs (N, n_0), one per row.
    - `z`: more inputs: then only the kernels between `x` and `z` are computed.
    - `seed`, `head_samples`: of sampled attention heads.

    **Returns:** `ChainKernels` with matrices (N·positions, N·positions), or (N·…, N'·…) with `z`.

    >>> from dynagram.networks.blocks import Activate, Conv, Dense, Flatten
    >>> net = Chain([Conv(8, size=3, C_W=2.0), Activate("relu"), Flatten(1)], inputs=(4, 1))
    >>> chain_kernels(net, np.eye(4)[:2]).K.round(6)
    array([[0.166667, 0.053052],
           [0.053052, 0.25    ]])
    """
    program = compile_program(network)
    signal = _signal(network, program, x)
    others = None if z is None else _signal(network, program, z)
    if program.has_heads:
        return _sampled(network, program, signal, others, seed, head_samples)
    require_room(network, program, signal.shape[0], others)
    K, Theta = _by_blocks(network, program, signal, others)
    return ChainKernels(K, Theta)


# --- without attention: block by block --------------------------------------------------------


def _by_blocks(
    network: Chain, program: Program, signal: Signal, others: Signal | None
) -> tuple[np.ndarray, np.ndarray]:
    P, N = network.positions, signal.shape[0]
    is_square = others is None
    every = signal if is_square else np.concatenate([signal, others])
    alone = run_alone(network, program, every)
    M = every.shape[0] - (0 if is_square else N)
    K, Theta = (np.empty((N, P, M, P)) for _ in range(2))
    tile = tile_size(program, max(N, M))
    right_of = 0 if is_square else N

    @float64  # which a thread must say for itself
    def fill(blocks: tuple[range, range]) -> None:
        left, right = blocks
        rows, columns = _padded(left, tile), right_of + _padded(right, tile)
        run = CrossRun(
            first_cross(network, program.first, every[rows], every[columns]),
            [variance[:, rows] for variance in alone.read],
            [variance[:, columns] for variance in alone.read],
        )
        for step in program.steps:
            run.take(step)
        for array, tiles in zip((K, Theta), run.values, strict=True):
            _write(array, tiles, left, right, mirrored=is_square and left != right)

    _keep_memory()
    blocks, shapes = list(_block_pairs(N, M, tile, is_square)), _compiled.setdefault(program, set())
    if tile not in shapes:
        fill(blocks.pop(0))
        shapes.add(tile)
    if program.widest.cross.size * N * M < _FEW_NUMBERS:
        for pair in blocks:
            fill(pair)
    else:
        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(fill, blocks))
    if is_square:
        for array, values in zip((K, Theta), alone.values, strict=True):
            write_same(array, values, program.last.same)
    return K.reshape(N * P, M * P), Theta.reshape(N * P, M * P)


@lru_cache(maxsize=1)
def _keep_memory() -> None:
    """Let the C library keep the memory of a block for the next one, once in a process.

    It gives back what lies free above twice the largest array it has seen freed; arrays of
    blocks, as large as that, were given back and taken again page by page, a quarter of the time.
    Nothing is written here, so that no memory is taken.
    """
    np.empty(_KEPT_BYTES, dtype=np.uint8)


def run_alone(network: Chain, program: Program, signal: Signal) -> SameRun:
    """Every input with itself, some at a time: values and variances of all of them."""
    most = max(1, 2**20 // program.widest.same.size)
    runs = []
    for start in range(0, signal.shape[0], most):
        run = SameRun(first_same(network, program.first.same, signal[start : start + most]))
        for step in program.steps:
            run.take(step)
        runs.append(run)
    tangents = [run.values.Theta for run in runs if run.values.Theta is not None]
    Theta = np.concatenate(tangents, axis=1) if tangents else None
    values = Values(np.concatenate([run.values.K for run in runs], axis=1), Theta)
    read = [np.concatenate(part, axis=1) for part in zip(*(run.read for run in runs), strict=True)]
    return SameRun(values, read)


def tile_size(program: Program, inputs: int) -> int:
    """Inputs of a block: few where many pairs of positions are carried."""
    pairs = program.widest.cross.size
    most = max(1, int((_BLOCK_NUMBERS / pairs) ** 0.5))
    if inputs <= most and inputs <= 8:
        return 1 << (inputs - 1).bit_length()  # few compiled shapes
    # Of A(1 + 1/b) for blocks on the diagonal, computed twice, and B b²/2 for calls.
    best = round((inputs**2 * pairs / _NUMBERS_PER_CALL) ** (1.0 / 3.0))
    return -(-inputs // max(-(-inputs // most), best, 1))


def _block_pairs(N: int, M: int, tile: int, is_square: bool) -> Iterator[tuple[range, range]]:
    for i in range(0, N, tile):
        for j in range(i if is_square else 0, M, tile):
            yield range(i, min(i + tile, N)), range(j, min(j + tile, M))


def _padded(inputs: range, tile: int) -> np.ndarray:
    """`tile` inputs, the last one repeated: one shape for all blocks."""
    return np.minimum(inputs.start + np.arange(tile), inputs.stop - 1)


def _write(
    array: np.ndarray, tiles: np.ndarray | None, left: range, right: range, *, mirrored: bool
) -> None:
    """Put a block of the output, values (pair, left, right), where it belongs."""
    P = array.shape[1]
    rows, columns = slice(left.start, left.stop), slice(right.start, right.stop)
    if tiles is None:
        block = np.zeros((len(left), P, len(right), P))
    else:
        part = tiles[:, : len(left), : len(right)].reshape(P, P, len(left), len(right))
        block = part.transpose(2, 0, 3, 1)
    array[rows, :, columns] = block
    if mirrored:
        array[columns, :, rows] = block.transpose(2, 3, 0, 1)


def write_same(array: np.ndarray, values: np.ndarray | None, pairs: PositionPairs) -> None:
    """Put the values (pair, input) of inputs with themselves on the diagonal."""
    inputs = np.arange(array.shape[0])
    if values is None:
        return
    for p, q, value in zip(pairs.first, pairs.second, values, strict=True):
        array[inputs, p, inputs, q] = value
        array[inputs, q, inputs, p] = value


# --- with attention: all inputs at once, step by step -----------------------------------------


def _sampled(
    network: Chain,
    program: Program,
    signal: Signal,
    others: Signal | None,
    seed: int,
    head_samples: int,
) -> ChainKernels:
    N = signal.shape[0]
    every = signal if others is None else np.concatenate([signal, others])
    _require_tokens(program, every.shape[0])
    certain = all(is_certain(step.block) for step in program.steps if isinstance(step, Attend))
    runs = [
        _run_all(network, program, every, (seed, replica), head_samples)
        for replica in range(1 if certain else REPLICAS)
    ]
    stacked = np.stack(runs)  # (replica, K or Θ, …)
    if others is not None:
        P = network.positions
        stacked = stacked[:, :, : N * P, N * P :]
    K, Theta = stacked.mean(axis=0)
    if certain:
        return ChainKernels(K, Theta)
    errors = stacked.std(axis=0, ddof=1) / np.sqrt(REPLICAS)
    return ChainKernels(K, Theta, *errors)


def _run_all(
    network: Chain, program: Program, signal: Signal, seed: tuple[int, ...], head_samples: int
) -> np.ndarray:
    """K and Θ of the output, stacked, with one set of samples of every head."""
    N, P = signal.shape[0], network.positions
    same = SameRun(first_same(network, program.first.same, signal))
    cross = CrossRun(first_cross(network, program.first, signal, signal), same.read, same.read)
    for number, step in enumerate(program.steps):
        if isinstance(step, Attend):
            full = _assembled(cross.values, same.values, step.positions, N)
            made = head_kernels(step.block, *full, samples=head_samples, seed=(*seed, number))
            cross.values, same.values = _listed(made, step.out)
        else:
            same.take(step)
            cross.take(step)
    output = _assembled(cross.values, same.values, P, N)
    zero = np.zeros((N, P, N, P))
    return np.stack([zero if part is None else part for part in output]).reshape(2, N * P, N * P)


def _assembled(cross: Values, same: Values, P: int, N: int) -> Values:
    """Values on all pairs as (input, position, input, position), the exact ones on the diagonal."""

    def full(tiles: np.ndarray, values: np.ndarray | None) -> np.ndarray:
        array = np.ascontiguousarray(tiles.reshape(P, P, N, N).transpose(2, 0, 3, 1))
        write_same(array, values, PositionPairs.full(P, turned=True))
        return array

    Theta = None if cross.Theta is None else full(cross.Theta, same.Theta)
    return Values(full(cross.K, same.K), Theta)


def _listed(made: tuple[np.ndarray, np.ndarray], out: Lists) -> tuple[Values, Values]:
    """Full arrays as values on lists of pairs."""
    inputs = np.arange(made[0].shape[0])
    cross, same = [], []
    for array in made:
        cross.append(np.ascontiguousarray(array[:, out.cross.first, :, out.cross.second]))
        p, q = out.same.first, out.same.second
        same.append(array[inputs[None], p[:, None], inputs[None], q[:, None]])
    return Values(*cross), Values(*same)


# --- the first Gram matrix --------------------------------------------------------------------


def _signal(network: Chain, program: Program, x: np.ndarray) -> Signal:
    shape = network.in_shape
    signal = np.asarray(x, dtype=np.float64).reshape(-1, shape.positions, shape.channels)
    if program.centred:
        signal = signal - signal.mean(axis=2, keepdims=True)
    return signal


def first_cross(network: Chain, lists: Lists, left: Signal, right: Signal) -> Values:
    """K and Θ that enter the first step, between two blocks of inputs."""
    pairs = lists.cross
    block, p, q = network.blocks[0], pairs.first, pairs.second
    if isinstance(block, Embedding):
        one, two = left[:, p, 0].T[:, :, None], right[:, q, 0].T[:, None, :]
        return _embedded(block, one == two, (p == q)[:, None, None])
    one = np.ascontiguousarray(left.transpose(1, 0, 2)) / left.shape[2]
    two = np.ascontiguousarray(right.transpose(1, 2, 0))
    if pairs.is_full:
        gram = one[:, None] @ two[None, :]
        return Values(gram.reshape(pairs.size, *gram.shape[2:]), None)
    return Values(one[p] @ two[q], None)


def first_same(network: Chain, pairs: PositionPairs, signal: Signal) -> Values:
    """K and Θ that enter the first step, of inputs with themselves."""
    block, p, q = network.blocks[0], pairs.first, pairs.second
    if isinstance(block, Embedding):
        alike = (signal[:, p, 0] == signal[:, q, 0]).T
        return _embedded(block, alike, (p == q)[:, None])
    return Values(np.einsum("apc,apc->pa", signal[:, p], signal[:, q]) / signal.shape[2], None)


def _embedded(block: Embedding, same_token: np.ndarray, same_place: np.ndarray) -> Values:
    K = block.C_token * same_token + block.C_position * same_place
    if block.lambda_token == block.lambda_position == 0.0:
        return Values(K, None)
    return Values(K, block.lambda_token * same_token + block.lambda_position * same_place)


# --- memory -----------------------------------------------------------------------------------


def require_room(network: Chain, program: Program, inputs: int, others: Signal | None) -> None:
    """Refuse what would not fit: the result, the variances of all inputs, one pair of blocks."""
    right, extra = inputs, 0
    if others is not None:
        right = extra = others.shape[0]
    result = 16.0 * inputs * right * network.positions**2
    tile = tile_size(program, max(inputs, right))
    block = 8.0 * 12 * program.widest.cross.size * tile**2 * _WORKERS
    needed = result + block + 8.0 * (inputs + extra) * program.numbers_per_input
    if needed > _MAX_BYTES:
        allowed = (
            f"K and Θ would need {needed / 1024**3:.0f} GiB, at most {_MAX_BYTES // 1024**3} are "
            "taken: fewer samples, or kernels between parts of them"
        )
        raise InvalidValueError("number of samples", inputs, allowed)


def _require_tokens(program: Program, inputs: int) -> None:
    P = max(program.widest.cross.positions, program.first.cross.positions)
    needed = 8.0 * 20 * (inputs * P) ** 2
    if needed > _MAX_BYTES:
        allowed = f"attention to {P} positions would need {needed / 1024**3:.0f} GiB"
        raise InvalidValueError("number of samples", inputs, allowed)
