"""Blocks that act channel by channel or on the length of the signal: activations, gates, norms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from dynagram.networks._checks import checked_activation, checked_integer, checked_number
from dynagram.networks.blocks._block import (
    Block,
    Shape,
    Signal,
    check_variances,
    draw_normal,
    store,
)


@dataclass(frozen=True)
class Activate(Block):
    """σ of every channel.

    **Arguments:**

    - `activation`: a name, a callable or an `Activation`.

    >>> Activate("gelu").activation.name
    'gelu'
    """

    kind: ClassVar[str] = "activate"

    activation: Any

    def __post_init__(self) -> None:
        store(self, activation=checked_activation(self.activation))

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """σ(x)."""
        return self.activation(x)


@dataclass(frozen=True)
class Gated(Block):
    """A gated pair of weight matrices, as in SwiGLU: σ(W x) ⊙ (W' x).

    **Arguments:**

    - `width`: channels that come out.
    - `activation`: σ.
    - `C_W`, `C_gate`: variances times fan-in of W and of W', the factor without σ.
    - `lambda_W`, `lambda_gate`: their learning rates times fan-in.
    """

    kind: ClassVar[str] = "gated"

    width: int
    activation: Any = "silu"
    C_W: float = 1.0
    C_gate: float = 1.0
    lambda_W: float = 1.0
    lambda_gate: float = 1.0

    def __post_init__(self) -> None:
        store(self, width=checked_integer("width", self.width, 1))
        store(self, activation=checked_activation(self.activation))
        check_variances(self, "C_W", "C_gate", "lambda_W", "lambda_gate")

    def out_shape(self, shape: Shape) -> Shape:
        """The same positions with `width` channels."""
        return Shape(shape.grid, self.width)

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Any:
        """W and W', (width, channels) each."""
        keys, size = jax.random.split(key), (self.width, shape.channels)
        variances = {"W": self.C_W / shape.channels, "gate": self.C_gate / shape.channels}
        pairs = zip(keys, variances.items(), strict=True)
        return {name: draw_normal(k, size, variance, dtype) for k, (name, variance) in pairs}

    def rates(self, shape: Shape) -> Any:
        """λ over fan-in."""
        n = shape.channels
        return {"W": self.lambda_W / n, "gate": self.lambda_gate / n}

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """σ(W x) ⊙ (W' x)."""
        return self.activation(x @ params["W"].T) * (x @ params["gate"].T)


@dataclass(frozen=True)
class RMSNorm(Block):
    """x over √(mean of x² over channels + ε), at every position; gains are 1 and fixed.

    **Arguments:**

    - `epsilon`: ε.
    """

    kind: ClassVar[str] = "rms-norm"

    epsilon: float = 0.0

    def __post_init__(self) -> None:
        allowed = "must be ≥ 0"
        store(self, epsilon=checked_number("epsilon", self.epsilon, allowed))

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """The normalised signal."""
        square = jnp.mean(x**2, axis=-1, keepdims=True)
        return x * jax.lax.rsqrt(square + self.epsilon)


@dataclass(frozen=True)
class LayerNorm(RMSNorm):
    """The norm of the signal less its mean over channels; gains 1 and biases 0 are fixed.

    **Arguments:**

    - `epsilon`: ε.
    """

    kind: ClassVar[str] = "layer-norm"

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """The centred and normalised signal."""
        return super().apply(params, x - jnp.mean(x, axis=-1, keepdims=True), shape)
