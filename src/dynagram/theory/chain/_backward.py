"""The way back through a network of blocks at infinite width: squared gradients of every weight.

For f = Σ_a ε_a z_a, one output z at every (input, position) a, the derivatives g_ia = ∂f/∂x_ia of a
signal have the mean Gram matrix φ_ab = E Σ_i g_ia g_ib. It runs back through the blocks by the
transpose of the map that carries Θ forward, and a matrix with fan-in m that reads a signal with
Gram matrix G has E‖∂f/∂W‖² = m Σ_ab φ_ab G_ab (docs/derivations/birth.md, D14.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from dynagram._precision import float64
from dynagram.errors import InvalidValueError
from dynagram.gaussian._families import TwoPoint
from dynagram.networks._chain import Chain
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._block import Block, Shape
from dynagram.networks.blocks._composite import Blocks, Embedding, Residual
from dynagram.networks.blocks._linear import Dense, Mixing
from dynagram.networks.blocks._nonlinear import Activate, Gated, RMSNorm
from dynagram.theory.chain._head_gradients import HeadGradients
from dynagram.theory.chain._linear import mixing_map, tap_average
from dynagram.theory.chain._run import reads_centred

Gram = Float[np.ndarray, "_ _"]


@dataclass(frozen=True)
class Squares:
    """What the way back gives.

    **Arguments:**

    - `signals`: for every block of the network, E|∂f/∂x_a|² of the signal after it, averaged over
        (input, position).
    - `weights`: for every block, E‖∂f/∂W‖² of each of its arrays of parameters, by name.
    - `grams`: for every block, the Gram matrix of the signal after it on the way forward.
    """

    signals: tuple[float, ...]
    weights: tuple[dict[str, float], ...]
    grams: tuple[Gram, ...]


@float64
def squared_gradients(
    network: Chain,
    x: Float[np.ndarray, "samples n_0"],
    signals: Float[np.ndarray, " a"],
    *,
    seed: int = 0,
    samples: int = 2**12,
) -> Squares:
    """E‖∂f/∂W‖² of every weight for f = Σ_a ε_a z_a, at infinite width.

    Cost: two-sample averages of T² pairs for every activation, T = inputs × positions, and
    `samples` heads of every attention block, twice, T⁴d each.

    **Arguments:**

    - `network`: a `Chain`.
    - `x`: inputs, a row each.
    - `signals`: ε for every (input, position) of the output.
    - `seed`, `samples`: of sampled heads.

    **Returns:** `Squares`.
    """
    run = _Pass(x.shape[0], seed, samples)
    shape = network.in_shape
    signal = x.reshape(x.shape[0], shape.positions, shape.channels)
    pulls: list[Callable[[Gram], Gram]] = []
    grams: list[Gram] = []
    if isinstance(network.blocks[0], Embedding):
        block, run.same = network.blocks[0], _same_tokens(signal[..., 0])
        G = block.C_token * run.same["token"] + block.C_position * run.same["position"]
    else:
        rows = signal.reshape(-1, shape.channels)
        if reads_centred(network.blocks):
            rows = rows - rows.mean(axis=1, keepdims=True)
        G = rows @ rows.T / shape.channels
    for index, block in enumerate(network.blocks):
        run.weights.append({})
        G, pull = run.forward(block, G, shape, index)
        pulls.append(pull)
        grams.append(G)
        shape = block.out_shape(shape)
    phi = np.outer(signals, signals)
    after = []
    for pull in pulls[::-1]:
        after.append(float(np.mean(np.diagonal(phi))))
        phi = pull(phi)
    return Squares(tuple(after[::-1]), tuple(run.weights), tuple(grams))


class _Pass:
    """Blocks forward, each with the function that takes φ after it to φ before it."""

    def __init__(self, inputs: int, seed: int, samples: int):
        self.inputs, self.seed, self.samples = inputs, seed, samples
        self.weights: list[dict[str, float]] = []
        self.same: dict[str, Gram] = {}

    def forward(
        self, block: Block, G: Gram, shape: Shape, index: int, number: str = ""
    ) -> tuple[Gram, Callable[[Gram], Gram]]:
        """The Gram matrix after a block; its pull notes squares of block `index`.

        `number` stands behind the names of weights, where a branch has several of a kind.
        """

        def note(name: str, value: float) -> None:
            # Branches side by side may have weights of the same name: those are added.
            known = self.weights[index]
            known[name + number] = known.get(name + number, 0.0) + float(value)

        if isinstance(block, Embedding):
            return G, self._embedding(block, note)
        if isinstance(block, Dense):
            return self._matrix(block, G, shape, note)
        if isinstance(block, Mixing):
            move = mixing_map(block.mixing(shape), self.inputs)
            matrix = np.kron(np.eye(self.inputs), block.mixing(shape))
            return move(G), lambda phi: matrix.T @ phi @ matrix
        if isinstance(block, Activate):
            averages = TwoPoint(block.activation, G)
            slope = averages(1, 1)
            return averages(0, 0), lambda phi: slope * phi
        if isinstance(block, Gated):
            return self._gated(block, G, shape, note)
        if isinstance(block, RMSNorm):
            root = np.sqrt(np.diagonal(G) + block.epsilon)
            scale = 1.0 / np.outer(root, root)
            return G * scale, lambda phi: phi * scale
        if isinstance(block, Attention):
            return self._attention(block, G, shape, note)
        if isinstance(block, Residual):
            return self._residual(block, G, shape, index)
        raise InvalidValueError("block", block.kind, "has no theory")

    def _embedding(
        self, block: Embedding, note: Callable[[str, float], None]
    ) -> Callable[[Gram], Gram]:
        def pull(phi: Gram) -> Gram:
            for name, same in self.same.items():
                if name == "token" or block.has_positions:
                    note(name, np.sum(phi * same))
            return phi

        return pull

    def _matrix(
        self, block: Dense, G: Gram, shape: Shape, note: Callable[[str, float], None]
    ) -> tuple[Gram, Callable[[Gram], Gram]]:
        taps = block.taps(shape)
        read = tap_average(taps, self.inputs, shape.positions)(G)
        fan_in = taps.shape[0] * shape.channels

        def pull(phi: Gram) -> Gram:
            note("W", fan_in * np.sum(phi * read))
            if block.has_biases:
                note("b", float(np.sum(phi)))
            return block.C_W * _spread(taps, self.inputs, shape.positions, phi)

        return block.C_b + block.C_W * read, pull

    def _gated(
        self, block: Gated, G: Gram, shape: Shape, note: Callable[[str, float], None]
    ) -> tuple[Gram, Callable[[Gram], Gram]]:
        averages, R = TwoPoint(block.activation, block.C_W * G), block.C_gate * G
        value, slope = averages(0, 0), averages(1, 1)

        def pull(phi: Gram) -> Gram:
            before, gate = slope * R * phi, value * phi
            note("W", shape.channels * np.sum(before * G))
            note("gate", shape.channels * np.sum(gate * G))
            return block.C_W * before + block.C_gate * gate

        return value * R, pull

    def _attention(
        self, block: Attention, G: Gram, shape: Shape, note: Callable[[str, float], None]
    ) -> tuple[Gram, Callable[[Gram], Gram]]:
        self.seed += 1
        heads = HeadGradients(block, G, self.inputs, self.samples, self.seed)
        read, n = heads.forward(), shape.channels

        def pull(phi: Gram) -> Gram:
            note("O", block.heads * block.head_size * np.sum(phi * read))
            parts = heads.backward(block.C_O * phi)
            for name, part in parts.items():
                note(name, n * np.sum(part * G))
            scales = {"q": block.C_q, "k": block.C_k, "v": block.C_v}
            return np.sum([scales[name] * part for name, part in parts.items()], axis=0)

        return block.C_O * read, pull

    def _residual(
        self, block: Residual, G: Gram, shape: Shape, index: int
    ) -> tuple[Gram, Callable[[Gram], Gram]]:
        total, branches = block.skip**2 * G, []
        for branch in block.branches:
            out, pull = self._row(branch, G, shape, index)
            total = total + block.strength**2 * out
            branches.append(pull)

        def back(phi: Gram) -> Gram:
            inner = np.sum([pull(block.strength**2 * phi) for pull in branches], axis=0)
            return block.skip**2 * phi + inner

        return total, back

    def _row(
        self, blocks: Blocks, G: Gram, shape: Shape, index: int
    ) -> tuple[Gram, Callable[[Gram], Gram]]:
        matrices, pulls = [isinstance(block, Dense | Gated) for block in blocks], []
        for place, block in enumerate(blocks):
            several = matrices[place] and sum(matrices) > 1
            number = str(sum(matrices[: place + 1])) if several else ""
            G, pull = self.forward(block, G, shape, index, number)
            pulls.append(pull)
            shape = block.out_shape(shape)

        def back(phi: Gram) -> Gram:
            for pull in pulls[::-1]:
                phi = pull(phi)
            return phi

        return G, back


def _same_tokens(tokens: np.ndarray) -> dict[str, Gram]:
    """Which (input, position) hold the same token, and which stand at the same position."""
    flat = tokens.reshape(-1)
    place = np.tile(np.arange(tokens.shape[1]), tokens.shape[0])
    return {
        "token": (flat[:, None] == flat[None, :]).astype(np.float64),
        "position": (place[:, None] == place[None, :]).astype(np.float64),
    }


def _spread(taps: np.ndarray, inputs: int, positions: int, phi: Gram) -> Gram:
    """The transpose of the average over taps."""
    total = np.zeros((inputs * positions,) * 2)
    for tap in taps:
        there = np.broadcast_to(tap >= 0, (inputs, tap.size)).reshape(-1)
        read = np.arange(inputs)[:, None] * positions + np.maximum(tap, 0)[None, :]
        part = phi * np.outer(there, there) / len(taps)
        np.add.at(total, (read.reshape(-1)[:, None], read.reshape(-1)[None, :]), part)
    return total
