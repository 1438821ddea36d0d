"""Blocks that are linear in the Gram matrix: matrices with taps, draws, pooling, residual sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from dynagram.theory.chain._fields import Key, Pair, size
from dynagram.theory.chain._state import (
    Kernel,
    PositionMap,
    Register,
    State,
    Term,
    Vertex,
    shift_of,
)


def matrix_register(
    state: State, number: int, *, C_W: float, C_b: float, lambda_W: float, lambda_b: float
) -> int:
    """Σ_SS' = C_W G_SS' + λ_W Σ_{r ∈ S∩S'} G_{S∖r, S'∖r}, and C_b, λ_b for biases.

    The fields of h = W x are h_S = W x_S + Σ_{r ∈ S} ξ^r x_{S∖r}.
    """
    source = state.registers[number]
    kernels = {}
    for s, K in source.K.items():
        kernels[s] = C_W * K + (lambda_W * s * source.K[s - 1] if s else 0.0)
        kernels[s] = kernels[s] + {0: C_b, 1: lambda_b}.get(s, 0.0)
    shifts = {}
    for s, shift in source.shift.items():
        shifts[s] = C_W * shift + (lambda_W * source.shift[s - 1] if s else 0.0)

    def terms(pair: Pair) -> list[Term]:
        S, S2 = pair
        found = [Term(number, pair, (0, 1), C_W)]
        for r in (1, 2, 4):
            if S & S2 & r:
                found.append(Term(number, (S ^ r, S2 ^ r), (0, 1), lambda_W))
        return found

    return state.carry(Register(kernels, shifts), terms)


def draw_register(state: State, number: int, width: int, *, centred: bool) -> int:
    """The Gram matrix of `width` rows drawn from N(0, Σ); `centred`: of rows less their mean."""
    source = state.registers[number]
    lost = 1.0 / width if centred else 0.0
    shifts = {s: shift.copy() for s, shift in source.shift.items()}
    for s, shift in shifts.items():
        shift[0] -= lost * source.K[s]
    made = Register(dict(source.K), shifts)

    def fluctuation(key: Key) -> Vertex | None:
        return wick(key, source, source, state.modes, 1.0 / width)

    return state.carry(made, lambda pair: [Term(number, pair, (0, 1), 1.0)], fluctuation)


def wick(key: Key, one: Register, two: Register, modes: int, scale: float) -> Vertex | None:
    """scale (K_ac L_bd + K_ad L_bc), K and L of two registers, where their fields agree."""
    (S, S2), (S3, S4) = key
    total = None
    for first, second, rule in (((S, S3), (S2, S4), "ac,bd"), ((S, S4), (S2, S3), "ad,bc")):
        left, right = one.kernel(*first), two.kernel(*second)
        if left is None or right is None:
            continue
        part = scale * np.einsum(f"{rule}->abcd", left, right)
        total = part if total is None else total + part
    if total is None:
        return None
    values = np.zeros((modes, *total.shape))
    values[0] = total
    return values


def residual_register(
    state: State,
    stream: int,
    branches: Sequence[int],
    *,
    skip: float,
    strength: float,
    width: int,
    centred: bool,
) -> int:
    """x' = γ x + α u, with the rows of u drawn from N(0, Φ), Φ the sum over the branches."""
    source = state.registers[stream]
    parts = [state.registers[branch] for branch in branches]
    square, share = skip**2, strength**2
    Phi = Register({s: sum(part.K[s] for part in parts) for s in source.K}, {})  # pyright: ignore[reportArgumentType]
    kernels = {s: square * K + share * Phi.K[s] for s, K in source.K.items()}
    listed = [(stream, square), *((branch, share) for branch in branches)]

    def terms(pair: Pair) -> list[Term]:
        return [Term(number, pair, (0, 1), factor) for number, factor in listed]

    shifts = {}
    for s in source.shift:
        pair = (2**s - 1, 2**s - 1)
        total = np.zeros_like(source.shift[s])
        for term in terms(pair):
            moved = shift_of(state, term)
            if moved is not None:
                total = total + moved
        if centred:
            total[0] -= share * Phi.K[s] / width
        shifts[s] = total

    def fluctuation(key: Key) -> Vertex | None:
        crossed = square * share / width
        total = None
        for one, two, scale in (
            (source, Phi, crossed),
            (Phi, source, crossed),
            (Phi, Phi, share**2 / width),
        ):
            part = wick(key, one, two, state.modes, scale)
            if part is not None:
                total = part if total is None else total + part
        return total

    return state.carry(Register(kernels, shifts), terms, fluctuation)


def tap_average(taps: Int[np.ndarray, "tap position"], inputs: int, positions: int) -> PositionMap:
    """G_pp' → (1/k) Σ_tap G_{tap(p), tap(p')}, between any two inputs; taps −1 read zero."""
    reads, seen = [], []
    for tap in taps:
        read = np.arange(inputs)[:, None] * positions + np.maximum(tap, 0)[None, :]
        reads.append(read.reshape(-1))
        seen.append(np.broadcast_to(tap >= 0, (inputs, tap.size)).reshape(-1).astype(np.float64))

    def move(G: np.ndarray) -> np.ndarray:
        total = 0.0
        for read, there in zip(reads, seen, strict=True):
            picked = np.take(np.take(G, read, axis=-2), read, axis=-1)
            total = total + picked * (there[:, None] * there[None, :])
        return np.asarray(total) / len(reads)

    return move


def mixing_map(weights: Float[np.ndarray, "out position"], inputs: int) -> PositionMap:
    """G → M G Mᵀ with the same averages over positions in every input."""
    matrix = np.kron(np.eye(inputs), weights)

    def move(G: np.ndarray) -> np.ndarray:
        return matrix @ G @ matrix.T

    return move


def input_register(G: Kernel, sizes: int, modes: int, shifts: Sequence[int]) -> Register:
    """A signal that is given: its fields are zero, nothing varies."""
    zero = np.zeros_like(G)
    kernels = {s: G if s == 0 else zero for s in range(sizes)}
    return Register(kernels, {s: np.zeros((modes, *G.shape)) for s in shifts})


def kernel_sizes(keys: Sequence[Key], least: int) -> int:
    """How many sizes of fields the entries and `least` ask for: that of x, or those of x and δx.

    An entry has every direction twice, so a field of two directions never meets its like, and the
    kernels of such fields enter nothing.
    """
    largest = max((size(S) for key in keys for pair in key for S in pair), default=0)
    return min(max(largest + 1, least), 2)
