"""`Chain`: a network of blocks in a row, with its initialisation and learning rates."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from dynagram._memory import require_memory
from dynagram._toml import read_table
from dynagram._trust import check_trusted
from dynagram.activations import Activation
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks._checks import as_list, checked_dtype, checked_integer
from dynagram.networks._mlp import checked_key
from dynagram.networks._model import Model
from dynagram.networks.blocks._attention import Attention
from dynagram.networks.blocks._block import Shape
from dynagram.networks.blocks._composite import (
    Blocks,
    Embedding,
    Residual,
    apply_blocks,
    checked_blocks,
    draw_blocks,
    every_block,
    rates_of_blocks,
    shape_after,
)
from dynagram.networks.blocks._kinds import blocks_from_tables
from dynagram.networks.blocks._linear import Dense
from dynagram.networks.blocks._nonlinear import Activate, Gated
from dynagram.networks.blocks._presets import convolutional_blocks, transformer_blocks

_EMBEDDING_OPTIONS = ("C_token", "C_position", "lambda_token", "lambda_position")


@dataclass(frozen=True, init=False, repr=False)
class Chain:
    """A network made of blocks in a row; immutable, hashable, validated when made.

    Inputs are rows of numbers, as for an `MLP`, read as a grid of positions with channels: all
    channels of the first position, then those of the second. The last block is a matrix.

    **Arguments:**

    - `blocks`: a list of blocks of `dynagram.networks.blocks`.
    - `inputs`: n_0, or (positions, n_0) of a sequence, or (rows, columns, n_0) of an image. For an
        embedding, (positions, 1): the numbers of the tokens.

    >>> from dynagram.networks.blocks import Activate, Dense, Residual, RMSNorm
    >>> branch = [RMSNorm(), Dense(32, C_W=2.0), Activate("gelu"), Dense(16, C_W=2.0)]
    >>> net = Chain([Dense(16), Residual(branch), RMSNorm(), Dense(1)], inputs=3)
    >>> net
    Chain(dense → residual → rms-norm → dense; 3 inputs, 1 outputs, 1088 parameters)
    >>> net.init(seed=0)(jnp.ones((5, 3))).shape
    (5, 1)
    >>> Chain.from_toml(net.to_toml()) == net
    True
    """

    blocks: Blocks
    inputs: tuple[int, ...]

    def __init__(self, blocks: Any, inputs: Any):
        listed = as_list(inputs)
        sizes = [inputs] if listed is None else listed
        if not sizes:
            raise InvalidValueError("inputs", inputs, "n_0, or positions and n_0")
        shape = tuple(checked_integer("inputs", size, 1) for size in sizes)
        object.__setattr__(self, "inputs", shape)
        object.__setattr__(self, "blocks", checked_blocks("blocks", blocks))
        if any(isinstance(block, Embedding) for block in self.blocks[1:]):
            raise InvalidValueError("blocks", "embedding", "an embedding is the first block")
        if not isinstance(self.blocks[-1], Dense):
            allowed = "the last block is a matrix: dense, conv or flatten"
            raise InvalidValueError("last block", self.blocks[-1].kind, allowed)
        _ = self.out_shape  # every block must fit

    @classmethod
    def transformer(
        cls,
        width: int,
        depth: int,
        heads: int,
        *,
        positions: int,
        outputs: int,
        vocabulary: int | None = None,
        inputs: int = 1,
        hidden: int | None = None,
        activation: Any = "gelu",
        gated: bool = False,
        norm: str = "rms",
        place: str = "pre",
        causal: bool = True,
        readout: str = "last",
        strength: float = 1.0,
        hidden_C: tuple[float, float] = (1.0, 1.0),
        readout_C: float = 1.0,
        **options: Any,
    ) -> Chain:
        """A transformer: `depth` layers of attention and an MLP on a residual stream.

        **Arguments:**

        - `width`, `depth`, `heads`: channels of the stream, layers, heads of a layer.
        - `positions`, `outputs`: length of the sequences, and outputs at a position.
        - `vocabulary`: number of tokens; without it inputs are `inputs` numbers per position,
            read by a matrix.
        - `inputs`: channels of the inputs where there is no vocabulary.
        - `hidden`, `activation`, `gated`: of the MLPs; by default 4 × width.
        - `norm`, `place`: "rms", "layer" or "none"; "pre" (in every branch, and before the readout)
            or "post" (on the stream, after every branch).
        - `causal`: whether positions see only those before them.
        - `readout`: "last" position, "mean" of all, or "all" of them.
        - `strength`: α in front of every branch.
        - `hidden_C`, `readout_C`: C_W of the two matrices of an MLP (the gate has that of the
            first), and of the readout.
        - `options`: of `Embedding` (C_token, C_position, …) and of `Attention` (C_q, scale, …).

        **Returns:** a `Chain`.

        >>> net = Chain.transformer(32, 2, 4, positions=5, vocabulary=11, outputs=11)
        >>> net.depth, net.init(seed=0)(jnp.zeros((3, 5))).shape
        (10, (3, 11))
        """
        embedding = {
            name: options.pop(name) for name in list(options) if name in _EMBEDDING_OPTIONS
        }
        blocks = transformer_blocks(
            width=width, depth=depth, heads=heads, outputs=outputs, vocabulary=vocabulary,
            hidden=hidden, activation=activation, gated=gated, norm=norm, place=place,
            causal=causal, readout=readout, strength=strength, embedding=embedding,
            attention=options,
            hidden_C=hidden_C, readout_C=readout_C,
        )  # fmt: skip
        return cls(blocks, (positions, inputs if vocabulary is None else 1))

    @classmethod
    def convnet(
        cls,
        width: int,
        depth: int,
        *,
        inputs: Any,
        outputs: int,
        activation: Any = "gelu",
        size: int = 3,
        stride: int = 1,
        padding: str = "zero",
        C_W: float = 1.0,
        C_b: float = 0.0,
        readout: str = "mean",
    ) -> Chain:
        """Convolutions of one width, each with its activation, and a readout.

        **Arguments:**

        - `width`, `depth`: channels, and number of convolutions.
        - `inputs`: (length, channels) or (rows, columns, channels).
        - `outputs`: how many.
        - `activation`, `size`, `padding`, `C_W`, `C_b`: of every convolution.
        - `stride`: of all but the first.
        - `readout`: "mean" over positions, or "flatten".

        **Returns:** a `Chain`.

        >>> Chain.convnet(16, 2, inputs=(8, 8, 1), outputs=10).depth
        3
        """
        blocks = convolutional_blocks(
            width=width, depth=depth, outputs=outputs, activation=activation, size=size,
            stride=stride, padding=padding, C_W=C_W, C_b=C_b, readout=readout,
        )  # fmt: skip
        return cls(blocks, inputs)

    @property
    def in_shape(self) -> Shape:
        """Grid and channels of the inputs."""
        return Shape(self.inputs[:-1], self.inputs[-1])

    @property
    def out_shape(self) -> Shape:
        """Grid and channels of the outputs."""
        return shape_after(self.blocks, self.in_shape)

    @property
    def depth(self) -> int:
        """Weight matrices on the longest way from input to output."""
        return _depth(self.blocks)

    @property
    def width(self) -> int:
        """Channels that the last matrix reads; they divide the finite-width tensors."""
        return shape_after(self.blocks[:-1], self.in_shape).channels

    @property
    def positions(self) -> int:
        """Positions at which outputs stand, for every sample."""
        return self.out_shape.positions

    @property
    def outputs(self) -> int:
        """Channels of the output at a position."""
        return self.out_shape.channels

    @property
    def has_skips(self) -> bool:
        """No: residual blocks of a chain keep its Gram matrix Markovian, unlike the MLP's skips."""
        return False

    @property
    def neurons(self) -> int:
        """Numbers in all signals of a sample, about."""
        return _neurons(self.blocks, self.in_shape)

    @property
    def depth_over_width(self) -> float:
        """Hidden matrices over the width that the last one reads."""
        return (self.depth - 1) / self.width

    def with_fixed(self, layers: Sequence[int]) -> Chain:
        """Itself; layers that do not learn have λ = 0 in their blocks."""
        if layers:
            allowed = "of a Chain, blocks with lambda_W = lambda_b = 0 do not learn"
            raise InvalidValueError("fixed", list(layers), allowed)
        return self

    def activations(self) -> tuple[Activation, ...]:
        """Every activation in the network, once."""
        listed = every_block(self.blocks)
        return tuple(
            {
                b.activation.name: b.activation for b in listed if isinstance(b, Activate | Gated)
            }.values()
        )

    def fan_in(self, layer: int) -> int:
        """Channels that the last matrix reads; only the last layer is predicted or measured."""
        if layer != self.depth:
            raise InvalidValueError("layer", layer, f"only the output, {self.depth}, is known")
        return self.width

    @property
    def summary(self) -> str:
        """The network in a few words, for the line that shows a result."""
        return f"Chain({len(self.blocks)} blocks, width {self.width})"

    @property
    def input_size(self) -> int:
        """Numbers in a row of inputs."""
        return int(np.prod(self.inputs))

    @property
    def output_size(self) -> int:
        """Numbers in a row of outputs: positions times channels."""
        return self.out_shape.positions * self.out_shape.channels

    @property
    def number_of_parameters(self) -> int:
        """Entries of all arrays of parameters that are drawn or learn."""
        shapes = jax.eval_shape(lambda key: self.draw(key, jnp.float32), jax.random.key(0))
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))

    def draw(self, key: Array, dtype: DTypeLike | None = None) -> Any:
        """Parameters of every block from `key`; traceable."""
        return draw_blocks(self.blocks, key, self.in_shape, checked_dtype(dtype))

    def rates(self) -> Any:
        """The learning rate of each array of parameters, a pytree like that of `draw`."""
        return rates_of_blocks(self.blocks, self.in_shape)

    def init(self, seed: int | Array = 0, *, dtype: DTypeLike | None = None) -> Model:
        """A network drawn from this specification, with its weights."""
        itemsize = jnp.dtype(checked_dtype(dtype)).itemsize
        needed = float(itemsize) * self.number_of_parameters
        require_memory("network", str(self.in_shape), needed, "it has too many weights")
        return Model(self, self.draw(checked_key(seed), dtype))  # pyright: ignore[reportArgumentType]

    def apply(self, params: Any, x: ArrayLike) -> Float[Array, "samples outputs"]:
        """The outputs (N, output_size) for rows of inputs (N, input_size); traceable."""
        signal = self._entering(params, x)
        out = apply_blocks(self.blocks, params, signal, self.in_shape)
        return out.reshape(signal.shape[0], -1)

    def rows(self, params: Any, x: ArrayLike) -> Float[Array, "indices channels"]:
        """The outputs with every (sample, position) a row; traceable."""
        return self.apply(params, x).reshape(-1, self.outputs)

    def output_metric(self, params: Any, x: ArrayLike) -> Float[Array, "indices indices"]:
        """The covariance of the outputs given all weights but the last; traceable."""
        signal = self._entering(params, x)
        last = self.blocks[-1]
        assert isinstance(last, Dense)
        shape = shape_after(self.blocks[:-1], self.in_shape)
        signal = apply_blocks(self.blocks[:-1], params[:-1], signal, self.in_shape)
        return last.metric(signal, shape)

    def _entering(self, params: Any, x: ArrayLike) -> Float[Array, "samples _ _"]:
        leaves = jax.tree.leaves(params)
        signal = jnp.asarray(x, dtype=leaves[0].dtype)
        if signal.ndim != 2 or signal.shape[1] != self.input_size:
            allowed = f"expected (samples, {self.input_size}), one sample per row"
            raise InvalidValueError("shape of x", signal.shape, allowed)
        shape = self.in_shape
        return signal.reshape(signal.shape[0], shape.positions, shape.channels)

    def to_toml(self) -> str:
        """The network as a `[network]` table, which `from_toml` reads back exactly."""
        blocks = ",\n".join(f"  {_inline(block.table())}" for block in self.blocks)
        return (
            f'[network]\nkind = "chain"\ninputs = {list(self.inputs)}\nblocks = [\n{blocks},\n]\n'
        )

    @classmethod
    def from_toml(cls, text: str) -> Chain:
        """Read the `[network]` table of a TOML text; other tables are left to others.

        An activation "module:function" is imported only if the user named it: see `trust`.
        """
        table = read_table(text, "network", ["kind", "inputs", "blocks"], ["inputs", "blocks"])
        check_trusted("blocks", table["blocks"])
        return cls(blocks_from_tables(table["blocks"]), table["inputs"])

    def __repr__(self) -> str:
        kinds = [block.kind for block in self.blocks]
        if len(kinds) > 7:
            kinds = [*kinds[:3], f"… {len(kinds) - 6} more …", *kinds[-3:]]
        sizes = f"{self.input_size} inputs, {self.output_size} outputs"
        return f"Chain({' → '.join(kinds)}; {sizes}, {self.number_of_parameters} parameters)"


def _depth(blocks: Blocks) -> int:
    total = 0
    for block in blocks:
        if isinstance(block, Residual):
            total += max(_depth(branch) for branch in block.branches)
        elif isinstance(block, Attention):
            total += 2
        elif isinstance(block, Dense | Gated | Embedding):
            total += 1
    return total


def _neurons(blocks: Blocks, shape: Shape) -> int:
    total = shape.positions * shape.channels
    for block in blocks:
        if isinstance(block, Residual):
            total += sum(_neurons(branch, shape) for branch in block.branches)
        shape = block.out_shape(shape)
        total += shape.positions * shape.channels
    return total


def _inline(value: Any) -> str:
    """A TOML value on one line; None is left out of tables."""
    if isinstance(value, Mapping):
        entries = (f"{key} = {_inline(entry)}" for key, entry in value.items() if entry is not None)
        return "{" + ", ".join(entries) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(_inline(entry) for entry in value)}]"
    raise InvalidTypeError("block", type(value).__name__, "cannot be written as TOML")
