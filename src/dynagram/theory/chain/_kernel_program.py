"""A network of blocks as a list of steps on K and Θ, with the pairs of positions each one needs.

Steps act on lists of pairs twice: for two inputs ("cross") and for one input with itself
("same"), whose diagonal gives the variances that activations and norms divide by.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks._chain import Chain
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._block import Block, Shape
from dynagram.networks.blocks._composite import Blocks, Embedding, Residual
from dynagram.networks.blocks._linear import Dense, Mixing
from dynagram.networks.blocks._nonlinear import Activate, Gated, LayerNorm, RMSNorm
from dynagram.theory.chain._position_pairs import PositionPairs, Reads
from dynagram.theory.chain._run import reads_centred

Sparse = sparse.csr_array


class Lists(NamedTuple):
    """The pairs of positions that are carried: of two inputs, and of one input with itself."""

    cross: PositionPairs
    same: PositionPairs


class Affine(NamedTuple):
    """K → C_b + C_W K, Θ → λ_b + λ_W K + C_W Θ."""

    C_W: float = 1.0
    C_b: float = 0.0
    lambda_W: float = 0.0
    lambda_b: float = 0.0


class Maps(NamedTuple):
    """A linear map on both lists; None where it is the identity."""

    cross: Sparse | None
    same: Sparse | None


@dataclass(frozen=True, eq=False)
class Linear:
    """A map over positions, then weights and biases."""

    maps: Maps
    affine: Affine


@dataclass(frozen=True, eq=False)
class Average:
    """⟨σσ⟩ and ⟨σ'σ'⟩Θ, gated where `gate` is given, then weights and biases."""

    sigma: Activation
    lists: Lists
    affine: Affine
    gate: tuple[float, float, float, float] | None = None  # C_W, C_gate, λ_W, λ_gate


@dataclass(frozen=True, eq=False)
class Normalise:
    """Ĝ_ab = G_ab/√((G_aa + ε)(G_bb + ε)), Θ likewise."""

    epsilon: float
    lists: Lists


@dataclass(frozen=True, eq=False)
class Attend:
    """What the heads of an attention block read, and its output matrix."""

    block: Attention
    positions: int
    out: Lists


@dataclass(frozen=True, eq=False)
class Push:
    """Put the stream aside for the branches of a residual block."""


@dataclass(frozen=True, eq=False)
class Recall:
    """Start a branch: the pairs of the stream that it reads."""

    maps: Maps


@dataclass(frozen=True, eq=False)
class Add:
    """End a branch: add what it gives to the sum of branches."""


@dataclass(frozen=True, eq=False)
class Merge:
    """γ² times the stream and α² times the sum of branches."""

    maps: Maps
    skip: float
    strength: float


Step = Linear | Average | Normalise | Attend | Push | Recall | Add | Merge


@dataclass(frozen=True, eq=False)
class Program:
    """Steps from the first Gram matrix to the output, and the pairs at both ends."""

    steps: tuple[Step, ...]
    first: Lists
    last: Lists
    centred: bool  # whether inputs are read less their mean over channels

    @property
    def has_heads(self) -> bool:
        """Whether some step averages over attention patterns."""
        return any(isinstance(step, Attend) for step in self.steps)

    @property
    def widest(self) -> Lists:
        """The longest lists on the way."""
        lists = [self.first, self.last]
        lists += [step.lists for step in self.steps if isinstance(step, Average | Normalise)]
        return Lists(
            max((pair.cross for pair in lists), key=lambda pairs: pairs.size),
            max((pair.same for pair in lists), key=lambda pairs: pairs.size),
        )

    @property
    def numbers_per_input(self) -> int:
        """Variances that steps read, and the last list of one input with itself."""
        read = [step.lists.same for step in self.steps if isinstance(step, Average | Normalise)]
        return sum(pairs.positions for pairs in read) + 2 * self.last.same.size


@functools.lru_cache(maxsize=4)
def compile_program(network: Chain) -> Program:
    """The steps of a network. Cost and memory: 9 to 20 bytes for every read of a pair of positions.

    A network refused here is one of which the Gram matrix alone does not carry the statistics.
    """
    blocks, shape = network.blocks, network.in_shape
    signal = _Signal(False, "centred" if reads_centred(blocks) else "raw")
    if isinstance(blocks[0], Embedding):
        shape, blocks = blocks[0].out_shape(shape), blocks[1:]
        signal = _Signal(True, "both")
    _follow(blocks, signal)
    P = network.positions
    last = Lists(PositionPairs.full(P), PositionPairs.full(P, turned=True))
    steps, first = _compile(blocks, shape, last)
    return Program(tuple(_fused(steps)), first, last, signal.gram == "centred")


def _compile(blocks: Blocks, shape: Shape, out: Lists) -> tuple[list[Step], Lists]:
    """The steps of blocks in a row that give the pairs `out`, and the pairs they read."""
    shapes = [shape]
    for block in blocks:
        shapes.append(block.out_shape(shapes[-1]))
    steps: list[Step] = []
    for block, before in zip(blocks[::-1], shapes[-2::-1], strict=True):
        made, out = _steps_of(block, before, out)
        steps = [*made, *steps]
    return steps, out


def _steps_of(block: Block, shape: Shape, out: Lists) -> tuple[list[Step], Lists]:
    if isinstance(block, Mixing):
        mixing = block.mixing(shape)
        maps, before = _mapped([Reads.of_mixing(mixing, pairs) for pairs in out])
        return [Linear(maps, Affine())], before
    if isinstance(block, Dense):
        affine = Affine(block.C_W, block.C_b, block.lambda_W, block.lambda_b)
        taps = block.taps(shape)
        if taps.shape[0] == 1 and np.array_equal(taps[0], np.arange(shape.positions)):
            return [Linear(Maps(None, None), affine)], out
        maps, before = _mapped([Reads.of_taps(taps, pairs, shape.positions) for pairs in out])
        return [Linear(maps, affine)], before
    if isinstance(block, Activate | Gated):
        lists = _with_variances(out)
        gate = None
        if isinstance(block, Gated):
            gate = (block.C_W, block.C_gate, block.lambda_W, block.lambda_gate)
        step = Average(block.activation, lists, Affine(), gate)
        return [step, *_restriction(lists, out)], lists
    if isinstance(block, RMSNorm):
        lists = _with_variances(out)
        return [Normalise(block.epsilon, lists), *_restriction(lists, out)], lists
    if isinstance(block, Attention):
        P = shape.positions
        before = Lists(PositionPairs.full(P), PositionPairs.full(P, turned=True))
        affine = Affine(block.C_O, 0.0, block.lambda_O, 0.0)
        return [Attend(block, P, out), Linear(Maps(None, None), affine)], before
    if isinstance(block, Residual):
        return _residual_steps(block, shape, out)
    raise InvalidValueError("block", block.kind, "has no theory")


def _residual_steps(block: Residual, shape: Shape, out: Lists) -> tuple[list[Step], Lists]:
    compiled = [_compile(branch, shape, out) for branch in block.branches]
    stream = Lists(*(
        pairs.joined(*(lists[i].codes for _, lists in compiled)) for i, pairs in enumerate(out)
    ))  # fmt: skip
    steps: list[Step] = [Push()]
    for branch, lists in compiled:
        steps += [Recall(_select(stream, lists)), *branch, Add()]
    return [*steps, Merge(_select(stream, out), block.skip, block.strength)], stream


def _mapped(reads: list[Reads]) -> tuple[Maps, Lists]:
    before = Lists(reads[0].pairs(turned=False), reads[1].pairs(turned=True))
    maps = (read.matrix(pairs) for read, pairs in zip(reads, before, strict=True))
    return Maps(*maps), before


def _with_variances(out: Lists) -> Lists:
    """With (p, p) of one input for every position that the cross list names."""
    return Lists(out.cross, out.same.joined(out.cross.ends(), out.same.ends()))


def _restriction(lists: Lists, out: Lists) -> list[Step]:
    maps = _select(lists, out)
    return [] if maps == (None, None) else [Linear(maps, Affine())]


def _select(source: Lists, target: Lists) -> Maps:
    """The maps that keep the pairs of `target`; None where these are all."""
    maps = []
    for pairs, wanted in zip(source, target, strict=True):
        if pairs.size == wanted.size:
            maps.append(None)
            continue
        places = pairs.places(wanted.codes).astype(np.int32)
        shape = (wanted.size, pairs.size)
        maps.append(Sparse((np.ones(wanted.size), places, np.arange(wanted.size + 1)), shape=shape))
    return Maps(*maps)


def _fused(steps: list[Step]) -> list[Step]:
    """Weights right after an average become part of it: one pass over memory fewer."""
    fused: list[Step] = []
    for step in steps:
        last = fused[-1] if fused else None
        if isinstance(step, Linear) and isinstance(last, Average) and last.affine == Affine():
            if step.maps == (None, None):
                fused[-1] = replace(last, affine=step.affine)
                continue
            C_W, C_b, lambda_W, lambda_b = step.affine
            fused[-1] = replace(last, affine=Affine(C_W, 0.0, lambda_W, 0.0))
            step = Linear(step.maps, Affine(1.0, C_b, 0.0, lambda_b))
        fused.append(step)
    return [_with_weights(step) if isinstance(step, Linear) else step for step in fused]


def _with_weights(step: Linear) -> Linear:
    """The variance of the weights as part of the map, which saves two passes over memory."""
    (cross, same), (C_W, C_b, lambda_W, lambda_b) = step.maps, step.affine
    if cross is None or same is None or C_W == 1.0 or not 1e-50 < C_W < 1e50:
        return step
    maps = Maps(Sparse(C_W * cross), Sparse(C_W * same))
    return Linear(maps, Affine(1.0, C_b, lambda_W / C_W, lambda_b))


# --- which networks the Gram matrix carries ---------------------------------------------------


class _Signal(NamedTuple):
    """Whether neurons are Gaussian at infinite width, and which Gram matrix is known.

    Of a Gaussian signal the mean over channels vanishes, and its Gram matrices agree.
    """

    gaussian: bool
    gram: str  # "raw", "centred" (less the mean over channels), or "both" where they agree


def _follow(blocks: Blocks, signal: _Signal) -> _Signal:
    """The signal after blocks; refuses those of which the Gram matrix does not say enough.

    Weaker than what the order 1/n asks: there a residual stream is not Gaussian.
    """
    for index, block in enumerate(blocks):
        if isinstance(block, Mixing):
            continue
        if isinstance(block, Activate):
            if not signal.gaussian:
                raise InvalidValueError(
                    "activation",
                    block.activation.name,
                    "acts on a signal that is not Gaussian (an input, what an activation gives): "
                    "put a matrix before it",
                )
            signal = _Signal(False, "raw")
        elif isinstance(block, Residual):
            signal = _follow_residual(block, signal, blocks[index + 1 :])
        else:
            _require_gram(block, signal)
            if isinstance(block, Dense | Attention):
                signal = _Signal(True, "both")
            elif isinstance(block, Gated):
                signal = _Signal(False, "raw")
            elif isinstance(block, LayerNorm):
                signal = _Signal(signal.gaussian, "both")
    return signal


def _follow_residual(block: Residual, signal: _Signal, after: Blocks) -> _Signal:
    for branch in block.branches:
        if not isinstance(branch[-1], Dense | Attention):
            allowed = "a branch ends with a matrix of its own: dense, conv or attention"
            raise InvalidValueError("last block of a branch", branch[-1].kind, allowed)
        _follow(branch, signal)
    if signal.gaussian or signal.gram != "both":
        return signal
    return _Signal(False, "centred" if reads_centred(after) else "raw")


def _require_gram(block: Block, signal: _Signal) -> None:
    wanted = "centred" if isinstance(block, LayerNorm) else "raw"
    if signal.gram not in (wanted, "both"):
        raise InvalidValueError(
            "block",
            block.kind,
            f"reads the {wanted} signal where the {signal.gram} one is known: layer norms must "
            "be the only readers of a residual stream, or come after a matrix",
        )
