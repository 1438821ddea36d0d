"""Blocks one by one: which operations on the state each of them is.

A signal is fresh where its rows are drawn from a Gaussian given everything before (after a
matrix), given where it is the input, and a stream otherwise. Activations act on fresh signals
only: then the Gram matrix is a Markov chain at every width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagram.errors import InvalidValueError
from dynagram.networks._chain import Chain
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._block import Block, Shape
from dynagram.networks.blocks._composite import Blocks, Embedding, Residual
from dynagram.networks.blocks._linear import Dense, Mixing
from dynagram.networks.blocks._nonlinear import Activate, Gated, LayerNorm, RMSNorm
from dynagram.theory.chain._attention import Heads
from dynagram.theory.chain._elementwise import Features
from dynagram.theory.chain._linear import (
    draw_register,
    input_register,
    matrix_register,
    mixing_map,
    residual_register,
    tap_average,
)
from dynagram.theory.chain._norms import Norm
from dynagram.theory.chain._state import Register, State


@dataclass
class Signal:
    """Where a signal stands: its register, its shape, and what kind it is."""

    number: int
    shape: Shape
    fresh: bool  # a Gaussian given what came before: its Gram matrix is not drawn yet
    gram: str = "raw"  # "raw", "centred" (rows less their mean), or "both" where they agree


@dataclass
class Runner:
    """Carries a state through blocks; `inputs` is the number of inputs."""

    state: State
    inputs: int
    sizes: int
    shifts: tuple[int, ...]
    accuracy: float
    seed: int
    head_samples: int = 2**14
    note: Callable[[Block, Signal], None] | None = None  # called after every block

    def run(self, blocks: Blocks, signal: Signal) -> Signal:
        """The signal after blocks in a row."""
        for index, block in enumerate(blocks):
            before = set(self.state.registers)
            kept = signal.number
            signal = self.step(block, signal, blocks[index + 1 :])
            gone = [n for n in self.state.registers if n not in before and n != signal.number]
            self.state.drop(*gone)
            if kept != signal.number and kept in self._owned:
                self.state.drop(kept)
                self._owned.discard(kept)
            self._owned.add(signal.number)
            _require_finite(self.state.registers[signal.number], block)
            if self.note is not None:
                self.note(block, signal)
        return signal

    def __post_init__(self) -> None:
        self._owned: set[int] = set()  # registers that this runner made and may drop

    def step(self, block: Block, signal: Signal, after: Blocks) -> Signal:
        """The signal after one block; `after` are those that follow."""
        shape = block.out_shape(signal.shape)
        self.seed += 1
        if isinstance(block, Mixing):
            move = mixing_map(block.mixing(signal.shape), self.inputs)
            # An average of Gaussian rows over positions is one of Gaussian rows.
            number = self.state.carry_positions(signal.number, move)
            return Signal(number, shape, signal.fresh, signal.gram)
        if isinstance(block, Activate):
            return Signal(self._activated(block, signal), shape, fresh=False)
        if isinstance(block, Residual):
            return self._residual(block, signal, after)
        read = self.drawn(signal, block)
        if isinstance(block, Dense):
            return Signal(self._matrix(block, read), shape, fresh=True)
        if isinstance(block, Gated):
            return Signal(self._gated(block, read), shape, fresh=False)
        if isinstance(block, RMSNorm):
            number = Norm(self.state, read.number, block.epsilon).run()
            gram = "both" if isinstance(block, LayerNorm) or read.gram == "both" else "raw"
            return Signal(number, shape, fresh=False, gram=gram)
        if isinstance(block, Attention):
            return self._attention(block, read, shape)
        raise InvalidValueError("block", block.kind, "has no theory")

    def drawn(self, signal: Signal, reader: Block) -> Signal:
        """The signal with its rows drawn, in the form in which `reader` takes it."""
        wanted = "centred" if reads_centred((reader,)) else "raw"
        if signal.fresh:
            width, centred = signal.shape.channels, wanted == "centred"
            number = draw_register(self.state, signal.number, width, centred=centred)
            return Signal(number, signal.shape, fresh=False, gram=wanted)
        if signal.gram not in (wanted, "both"):
            raise InvalidValueError(
                "block",
                reader.kind,
                f"reads the {wanted} signal where the {signal.gram} one is known: layer norms must "
                "be the only readers of a residual stream, and come after a matrix",
            )
        return signal

    def _activated(self, block: Activate, signal: Signal) -> int:
        if not signal.fresh:
            raise InvalidValueError(
                "activation",
                block.activation.name,
                "acts on a signal that is not fresh from a matrix (a residual stream, a norm): "
                "its Gram matrix alone does not carry it; put a matrix before it",
            )
        return self._features(block.activation, [signal.number], signal.shape.channels)

    def _matrix(self, block: Dense, signal: Signal) -> int:
        number, shape = signal.number, signal.shape
        taps = block.taps(shape)
        if taps.shape[0] > 1 or not np.array_equal(taps[0], np.arange(shape.positions)):
            move = tap_average(taps, self.inputs, shape.positions)
            number = self.state.carry_positions(number, move)
        return matrix_register(
            self.state, number, C_W=block.C_W, C_b=block.C_b,
            lambda_W=block.lambda_W, lambda_b=block.lambda_b,
        )  # fmt: skip

    def _features(self, sigma: Any, numbers: list[int], width: int) -> int:
        layer = Features(self.state, sigma, numbers, width, accuracy=self.accuracy, seed=self.seed)
        return layer.run()

    def _gated(self, block: Gated, signal: Signal) -> int:
        pre = matrix_register(
            self.state, signal.number, C_W=block.C_W, C_b=0.0,
            lambda_W=block.lambda_W, lambda_b=0.0,
        )  # fmt: skip
        gate = matrix_register(
            self.state, signal.number, C_W=block.C_gate, C_b=0.0,
            lambda_W=block.lambda_gate, lambda_b=0.0,
        )  # fmt: skip
        return self._features(block.activation, [pre, gate], block.width)

    def _residual(self, block: Residual, signal: Signal, after: Blocks) -> Signal:
        stream = self.drawn(signal, block)
        ends = []
        for branch in block.branches:
            if not isinstance(branch[-1], Dense | Attention):
                allowed = "a branch ends with a matrix of its own: dense, conv or attention"
                raise InvalidValueError("last block of a branch", branch[-1].kind, allowed)
            number = self.state.copy(stream.number)
            start = Signal(number, stream.shape, fresh=False, gram=stream.gram)
            inner = Runner(
                self.state,
                self.inputs,
                self.sizes,
                self.shifts,
                self.accuracy,
                self.seed,
                self.head_samples,
            )
            inner._owned.add(number)
            ends.append(inner.run(branch, start).number)
            self.seed = inner.seed
        gram = stream.gram
        if gram == "both":
            gram = "centred" if reads_centred(after) else "raw"
        number = residual_register(
            self.state, stream.number, ends, skip=block.skip, strength=block.strength,
            width=stream.shape.channels, centred=gram == "centred",
        )  # fmt: skip
        return Signal(number, stream.shape, fresh=False, gram=gram)

    def _attention(self, block: Attention, signal: Signal, shape: Shape) -> Signal:
        heads = Heads(
            self.state, signal.number, block, self.inputs, signal.shape.positions,
            self.head_samples, self.seed,
        )  # fmt: skip
        number = matrix_register(
            self.state, heads.run(), C_W=block.C_O, C_b=0.0, lambda_W=block.lambda_O, lambda_b=0.0
        )
        return Signal(number, shape, fresh=True)


def first_signal(runner: Runner, network: Chain, x: np.ndarray) -> tuple[Signal, Blocks]:
    """The signal that enters the first block, and the blocks that are left."""
    shape = network.in_shape
    signal = x.reshape(x.shape[0], shape.positions, shape.channels)
    if isinstance(network.blocks[0], Embedding):
        block = network.blocks[0]
        number = runner.state.new(_embedded(block, signal[..., 0], runner))
        runner._owned.add(number)
        return Signal(number, block.out_shape(shape), fresh=True), network.blocks[1:]
    rows, gram = signal.reshape(-1, shape.channels), "raw"
    if reads_centred(network.blocks):
        rows, gram = rows - rows.mean(axis=1, keepdims=True), "centred"
    register = input_register(
        rows @ rows.T / shape.channels, runner.sizes, runner.state.modes, runner.shifts
    )
    number = runner.state.new(register)
    runner._owned.add(number)
    return Signal(number, shape, fresh=False, gram=gram), network.blocks


def _embedded(block: Embedding, tokens: np.ndarray, runner: Runner) -> Register:
    flat = tokens.reshape(-1)
    place = np.tile(np.arange(tokens.shape[1]), tokens.shape[0])
    same_token = (flat[:, None] == flat[None, :]).astype(np.float64)
    same_place = (place[:, None] == place[None, :]).astype(np.float64)
    register = input_register(
        block.C_token * same_token + block.C_position * same_place,
        runner.sizes, runner.state.modes, runner.shifts,
    )  # fmt: skip
    if 1 in register.K:
        register.K[1] = block.lambda_token * same_token + block.lambda_position * same_place
    return register


def reads_centred(blocks: Blocks) -> bool:
    """Whether the first of these blocks that reads the signal as a whole is a layer norm."""
    for block in blocks:
        if isinstance(block, Mixing):
            continue
        if isinstance(block, Residual):
            return any(reads_centred(branch) for branch in block.branches)
        return isinstance(block, LayerNorm)
    return False


def _require_finite(register: Register, block: Block) -> None:
    if not all(np.all(np.isfinite(K)) for K in register.K.values()):
        raise InvalidValueError("kernel after block", block.kind, "is not finite: check variances")
