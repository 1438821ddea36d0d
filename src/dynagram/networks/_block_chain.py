"""A chain of general residual blocks z' = ξ R(z) + γ z (B.39), R any function of a user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dynagram.errors import InvalidValueError

Block = Callable[[Any, Array], Array]


@dataclass(frozen=True)
class BlockChain:
    """z^(k+1) = ξ_k R(θ_k, z^(k)) + γ_k z^(k) (B.39) for any block R of a user, k = 1..B.

    `init_block(key)` makes the parameters θ of one block and `apply_block(θ, z)` maps (samples, n)
    to (samples, n); both JAX functions. `strength` is ξ, `skip` is γ, one of each per block.

    >>> scale = BlockChain(lambda key: 2.0, lambda theta, z: theta * z, (0.5, 1.0), (0.0, -1.0))
    >>> [float(z[0, 0]) for z in scale.fields(scale.init(jax.random.key(0)), jnp.ones((1, 1)))]
    [1.0, 1.0, 1.0]
    """

    init_block: Callable[[Array], Any]
    apply_block: Block
    strength: tuple[float, ...]
    skip: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.strength) != len(self.skip):
            allowed = f"one ξ per block: {len(self.skip)} skips given"
            raise InvalidValueError("strength", self.strength, allowed)

    def init(self, key: Array) -> tuple[Any, ...]:
        """Independent parameters of every block."""
        return tuple(self.init_block(one) for one in jax.random.split(key, len(self.skip)))

    def fields(
        self, params: tuple[Any, ...], z: Float[Array, "samples n"]
    ) -> tuple[Float[Array, "samples n"], ...]:
        """z^(1), …, z^(B+1), the first being `z` itself."""
        states = [jnp.asarray(z)]
        for theta, xi, gamma in zip(params, self.strength, self.skip, strict=True):
            states.append(xi * self.apply_block(theta, states[-1]) + gamma * states[-1])
        return tuple(states)

    def apply(
        self, params: tuple[Any, ...], z: Float[Array, "samples n"]
    ) -> Float[Array, "samples n"]:
        """What the last block gives."""
        return self.fields(params, z)[-1]
