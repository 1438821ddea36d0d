"""The residual MLP: blocks z' = b + W σ(z) + γ z of hidden layers (B.3); general blocks (B.39).

The skip carries the preactivation z, not σ(z), with a strength γ of its own in every block. The
first layer (n_0 → n) and the output (n → n_L) are plain. A strength ξ in front of the block is
not needed: it is the same as ξ²C_b, ξ²C_W, ξ²λ_b, ξ²λ_W (B.6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from dynagram._toml import read_table
from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks._checks import (
    ActivationLike,
    PerLayer,
    Widths,
    as_list,
    checked_activation,
    checked_real,
    checked_widths,
    collapsed,
)
from dynagram.networks._mlp import MLP, Params, entering_signal


@dataclass(frozen=True, init=False, repr=False)
class ResidualMLP:
    """An MLP whose hidden layers ℓ = 2..L−1 are blocks with a skip; immutable, hashable.

    `plain` is the same network without skips: its C_b, C_W, λ_b, λ_W are those of the layers.
    `skip` holds γ of the L−2 blocks, given as one number or one per block; either sign. Where γ
    is not 0, the widths on both sides must agree. Functions of an `MLP` would leave out the
    skips, so this is not one, and the variances are found in `plain` only.

    >>> net = ResidualMLP([3, 8, 8, 8, 1], "relu", C_b=0, C_W=1.5, skip=0.5)
    >>> net
    ResidualMLP((3, 8, 8, 8, 1), 'relu', skip=0.5, C_b=0.0, C_W=1.5, lambda_b=1.0, lambda_W=1.0)
    >>> net.depth, net.skip, net.skip_of_layers
    (4, (0.5, 0.5), (0.0, 0.5, 0.5, 0.0))
    >>> net.apply(net.draw(jax.random.key(0)), jnp.ones((2, 3))).shape
    (2, 1)
    """

    plain: MLP
    skip: tuple[float, ...]

    def __init__(
        self,
        widths: Widths,
        activation: ActivationLike,
        C_b: PerLayer,
        C_W: PerLayer,
        skip: PerLayer,
        lambda_b: PerLayer = 1.0,
        lambda_W: PerLayer = 1.0,
    ):
        plain = MLP(widths, activation, C_b, C_W, lambda_b, lambda_W)
        object.__setattr__(self, "plain", plain)
        object.__setattr__(self, "skip", checked_skip(plain.widths, skip))

    @classmethod
    def critical(
        cls,
        widths: Widths,
        activation: ActivationLike,
        skip: PerLayer,
        *,
        lambda_b: PerLayer = 1.0,
        lambda_W: PerLayer = 1.0,
    ) -> ResidualMLP:
        """At criticality: blocks have (1 − γ²) times the plain C_b and C_W (B.20), (B.21).

        The first and the last layer keep the plain values. Needs γ² < 1 in every block: at γ = 1
        only C_W = 0 is critical.

        >>> ResidualMLP.critical([3, 8, 8, 8, 1], "relu", [0.5, 0.6]).plain.C_W
        (2.0, 1.5, 1.28, 2.0)
        """
        from dynagram.theory.criticality import critical_initialisation

        sizes, sigma = checked_widths(widths), checked_activation(activation)
        strengths = checked_skip(sizes, skip)
        for block, strength in enumerate(strengths, start=1):
            if strength**2 >= 1.0:
                allowed = "criticality needs γ² < 1, else K grows in every block: give C_b and C_W"
                raise InvalidValueError(f"skip of block {block}", strength, allowed)
        point = critical_initialisation(sigma)
        rest = [1.0, *(1.0 - strength**2 for strength in strengths), 1.0]
        C_b, C_W = ([factor * value for factor in rest] for value in (point.C_b, point.C_W))
        return cls(sizes, sigma, C_b, C_W, strengths, lambda_b, lambda_W)

    @property
    def widths(self) -> tuple[int, ...]:
        """(n_0, …, n_L)."""
        return self.plain.widths

    @property
    def activation(self) -> Activation:
        """σ."""
        return self.plain.activation

    @property
    def depth(self) -> int:
        """L, the number of weight matrices."""
        return self.plain.depth

    @property
    def number_of_parameters(self) -> int:
        """Σ_ℓ n_ℓ (n_{ℓ-1} + 1): skips have no parameters."""
        return self.plain.number_of_parameters

    @property
    def skip_of_layers(self) -> tuple[float, ...]:
        """γ^(1), …, γ^(L): 0 for the first and the last layer."""
        return (0.0, *self.skip, 0.0)

    def draw(self, key: Array, dtype: DTypeLike | None = None) -> Params:
        """Draw biases and weights as `MLP.draw` does; traceable."""
        return self.plain.draw(key, dtype)

    def preactivations(self, params: Params, x: ArrayLike) -> tuple[Float[Array, "samples _"], ...]:
        """z^(1), …, z^(L) for the samples in the rows of `x` (N, n_0); z^(ℓ) is (N, n_ℓ) (B.3)."""
        signal = entering_signal(self.widths, params, x)
        found: list[Array] = []
        for layer, strength in zip(params, self.skip_of_layers, strict=True):
            z = signal @ layer.W.T + layer.b[None, :]
            if strength != 0.0:
                z = z + strength * found[-1]
            found.append(z)
            signal = self.activation(z)
        return tuple(found)

    def apply(self, params: Params, x: ArrayLike) -> Float[Array, "samples n_L"]:
        """The network's output z^(L), of shape (N, n_L), for `x` of shape (N, n_0)."""
        return self.preactivations(params, x)[-1]

    def to_toml(self) -> str:
        """The `[network]` table of the plain network with a line for `skip`; read by `from_toml`.

        >>> net = ResidualMLP([2, 3, 3, 1], "tanh", C_b=0.0, C_W=1.0, skip=-0.5)
        >>> ResidualMLP.from_toml(net.to_toml()) == net
        True
        """
        return f"{self.plain.to_toml()}skip = {collapsed(self.skip)}\n"

    @classmethod
    def from_toml(cls, text: str) -> ResidualMLP:
        """Read the `[network]` table of a TOML text; other tables are left to others."""
        known = [*(field.name for field in fields(MLP)), "skip"]
        return cls(**read_table(text, "network", known, required=[*known[:4], "skip"]))

    def __repr__(self) -> str:
        inside = repr(self.plain).removeprefix(f"MLP({self.widths}, {self.activation.name!r}, ")
        name = self.activation.name
        return f"ResidualMLP({self.widths}, {name!r}, skip={collapsed(self.skip)}, {inside}"


def checked_skip(widths: tuple[int, ...], skip: object) -> tuple[float, ...]:
    """γ of every block ℓ = 2..L−1 of a network of these widths.

    >>> checked_skip((3, 8, 8, 1), 0.5)
    (0.5,)
    """
    blocks = len(widths) - 3
    if blocks < 1:
        allowed = "a block joins two hidden layers: at least n_0, n_1, n_2, n_3 needed"
        raise InvalidValueError("widths", widths, allowed)
    values = as_list(skip)
    if values is None:
        values = [skip] * blocks
    if len(values) != blocks:
        expected = f"one number, or one per block: {blocks} expected, {len(values)} given"
        raise InvalidValueError("skip", values, expected)
    strengths = tuple(checked_real("skip", value) for value in values)
    for layer, strength in enumerate(strengths, start=2):
        n_in, n_out = widths[layer - 1], widths[layer]
        if strength != 0.0 and n_in != n_out:
            allowed = (
                f"layer {layer} goes from {n_in} to {n_out} neurons: a skip needs equal widths"
            )
            raise InvalidValueError(f"skip of block {layer - 1}", strength, allowed)
    return strengths


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
        found = [jnp.asarray(z)]
        for theta, xi, gamma in zip(params, self.strength, self.skip, strict=True):
            found.append(xi * self.apply_block(theta, found[-1]) + gamma * found[-1])
        return tuple(found)

    def apply(
        self, params: tuple[Any, ...], z: Float[Array, "samples n"]
    ) -> Float[Array, "samples n"]:
        """What the last block gives."""
        return self.fields(params, z)[-1]
