"""The layers of a multilayer perceptron: widths, activation, skips; how they are applied (2.5).

What loaded weights have; an `MLP` adds how weights are drawn and how fast they learn.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dynagram._toml import read_table
from dynagram._trust import check_trusted
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
    per_layer,
)

_RATE = "a learning rate must be ≥ 0"


class Layer(NamedTuple):
    """Parameters of one layer: b of shape (n_ℓ,) and W of shape (n_ℓ, n_{ℓ-1})."""

    b: Array
    W: Array


Params = tuple[Layer, ...]
N = TypeVar("N", bound="Architecture")


@dataclass(frozen=True, init=False, repr=False)
class Architecture:
    """What a multilayer perceptron computes and how its parameters move; immutable, hashable.

    An `MLP` is one with an initialisation; the architecture of weights that were loaded has none.
    The last layer is linear.

    **Arguments:**

    - `widths`: (n_0, …, n_L).
    - `activation`: a name, a callable or an `Activation`.
    - `skip`: γ of the blocks ℓ = 2..L−1, one number or one per block, of either sign. Where γ is
        not 0, the widths on both sides must agree.
    - `lambda_b`, `lambda_W`: learning rates, one number or one per layer. By default every
        parameter moves at the same rate, as under plain gradient descent: λ_b = 1, λ_W = n_{ℓ-1}.

    >>> Architecture([4, 5, 1], "relu")
    Architecture((4, 5, 1), 'relu', lambda_b=1.0, lambda_W=[4.0, 5.0])
    """

    widths: tuple[int, ...]
    activation: Activation
    skip: tuple[float, ...]
    lambda_b: tuple[float, ...]
    lambda_W: tuple[float, ...]

    def __init__(
        self,
        widths: Widths,
        activation: ActivationLike,
        *,
        skip: PerLayer = 0.0,
        lambda_b: PerLayer = 1.0,
        lambda_W: PerLayer | None = None,
    ):
        self._store("widths", checked_widths(widths))
        self._store("activation", checked_activation(activation))
        self._store("skip", checked_skip(self.widths, skip))
        rates = self.widths[:-1] if lambda_W is None else lambda_W
        self._store("lambda_b", per_layer("lambda_b", lambda_b, self.depth, _RATE))
        self._store("lambda_W", per_layer("lambda_W", rates, self.depth, _RATE))

    def _store(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def depth(self) -> int:
        """L, the number of weight matrices."""
        return len(self.widths) - 1

    @property
    def width(self) -> int:
        """n_{L−1}, which divides the finite-width tensors of the output."""
        return self.widths[-2]

    @property
    def input_size(self) -> int:
        """n_0."""
        return self.widths[0]

    @property
    def output_size(self) -> int:
        """n_L."""
        return self.widths[-1]

    @property
    def positions(self) -> int:
        """Outputs stand at one position for every sample."""
        return 1

    @property
    def outputs(self) -> int:
        """n_L, the outputs at a position."""
        return self.widths[-1]

    def fan_in(self, layer: int) -> int:
        """n_{ℓ−1} of a layer ℓ = 1..L."""
        return self.widths[layer - 1]

    @property
    def neurons(self) -> int:
        """Σ_ℓ n_ℓ, numbers in all signals of a sample."""
        return sum(self.widths)

    @property
    def depth_over_width(self) -> float:
        """Σ 1/n_ℓ over the hidden layers."""
        return float(sum(1.0 / n for n in self.widths[1:-1]))

    def activations(self) -> tuple[Activation, ...]:
        """Every activation in the network."""
        return (self.activation,)

    def rates(self) -> tuple[tuple[float, float], ...]:
        """The learning rates λ_b and λ_W/n_{ℓ−1} of b and W of every layer."""
        layers = zip(self.lambda_b, self.lambda_W, self.widths[:-1], strict=True)
        return tuple((lambda_b, lambda_W / n) for lambda_b, lambda_W, n in layers)

    @property
    def summary(self) -> str:
        """The network in a few words, for the line that shows a result."""
        return f"MLP(({short_widths(self.widths)}), {self.activation.name!r}, …)"

    @property
    def has_skips(self) -> bool:
        """Whether any block has a skip."""
        return any(self.skip)

    @property
    def skip_of_layers(self) -> tuple[float, ...]:
        """γ^(1), …, γ^(L): 0 for the first and the last layer."""
        return (0.0, *self.skip, 0.0) if self.depth > 1 else (0.0,)

    @property
    def number_of_parameters(self) -> int:
        """Σ_ℓ n_ℓ (n_{ℓ-1} + 1) (2.7): skips have no parameters."""
        pairs = zip(self.widths[1:], self.widths[:-1], strict=True)
        return sum(n_out * (n_in + 1) for n_out, n_in in pairs)

    def preactivations(self, params: Params, x: ArrayLike) -> tuple[Float[Array, "samples _"], ...]:
        """z^(1), …, z^(L) for the samples in the rows of `x` (N, n_0); z^(ℓ) is (N, n_ℓ) (B.3).

        Computes in the dtype of the parameters; traceable and differentiable in both arguments.
        """
        signal = entering_signal(self.widths, params, x)
        layers: list[Array] = []
        for layer, strength in zip(params, self.skip_of_layers, strict=True):
            z = signal @ layer.W.T + layer.b[None, :]
            if strength != 0.0:
                z = z + strength * layers[-1]
            layers.append(z)
            signal = self.activation(z)
        return tuple(layers)

    def apply(self, params: Params, x: ArrayLike) -> Float[Array, "samples n_L"]:
        """The network's output z^(L), of shape (N, n_L), for `x` of shape (N, n_0) (2.5)."""
        return self.preactivations(params, x)[-1]

    def with_fixed(self: N, layers: Sequence[int]) -> N:
        """The same network with layers, numbered from 1, that do not learn: λ_b = λ_W = 0 there.

        >>> Architecture([2, 3, 1], "tanh").with_fixed([1])
        Architecture((2, 3, 1), 'tanh', lambda_b=[0.0, 1.0], lambda_W=[0.0, 3.0])
        """
        if strange := [layer for layer in layers if not 1 <= layer <= self.depth]:
            raise InvalidValueError("fixed", strange, f"this network has layers 1 to {self.depth}")
        changed = copy.copy(self)
        for name in ("lambda_b", "lambda_W"):
            rates = enumerate(getattr(self, name), start=1)
            changed._store(name, tuple(0.0 if layer in layers else rate for layer, rate in rates))
        return changed

    def to_toml(self) -> str:
        """The architecture as a `[network]` table, which `from_toml` reads back exactly.

        >>> network = Architecture([4, 5, 1], "relu")
        >>> Architecture.from_toml(network.to_toml()) == network
        True
        """
        return self._table("lambda_b", "lambda_W", kind="architecture")

    @classmethod
    def from_toml(cls, text: str) -> Architecture:
        """Read a `[network]` table without an initialisation; code it names must be trusted."""
        known = ["kind", "widths", "activation", "lambda_b", "lambda_W", "skip"]
        table = read_table(text, "network", known, required=known[1:3])
        check_trusted("activation", table["activation"])
        table.pop("kind", None)
        return cls(**table)

    def _table(self, *names: str, kind: str | None = None) -> str:
        if self.activation.anonymous:
            allowed = "a callable has no name to write: pass it as 'package.module:function'"
            raise InvalidValueError("activation", self.activation.name, allowed)
        name = json.dumps(self.activation.name, ensure_ascii=False)
        lines = ["[network]", *([] if kind is None else [f'kind = "{kind}"'])]
        lines += [f"widths = {list(self.widths)}", f"activation = {name}"]
        lines += [f"{field} = {collapsed(getattr(self, field))}" for field in names]
        lines += [f"skip = {collapsed(self.skip)}"] if self.has_skips else []
        return "\n".join(lines) + "\n"

    def __repr__(self) -> str:
        return self._described("lambda_b", "lambda_W")

    def _described(self, *names: str) -> str:
        parts = [repr(self.widths), repr(self.activation.name)]
        parts += [f"skip={collapsed(self.skip)}"] if self.has_skips else []
        parts += [f"{name}={collapsed(getattr(self, name))}" for name in names]
        return f"{type(self).__name__}({', '.join(parts)})"


def short_widths(widths: Sequence[int]) -> str:
    """n_0, …, n_L with runs of equal widths in one piece, and only the ends where that is long.

    >>> short_widths((8, 128, 128, 128, 1)), short_widths((9, 8, 7, 6, 5, 4, 3, 2))
    ('8, 128 × 3, 1', '9, 8, 7, …, 3, 2')
    """
    runs = [(n, len(list(group))) for n, group in itertools.groupby(widths)]
    texts = [str(n) if count == 1 else f"{n} × {count}" for n, count in runs]
    return ", ".join(texts if len(texts) <= 6 else [*texts[:3], "…", *texts[-2:]])


def checked_skip(widths: tuple[int, ...], skip: object) -> tuple[float, ...]:
    """γ of every block ℓ = 2..L−1 of a network of these widths; 0 fits every network.

    >>> checked_skip((3, 8, 8, 1), 0.5), checked_skip((3, 8, 1), 0.0)
    ((0.5,), ())
    """
    blocks = max(len(widths) - 3, 0)
    values = as_list(skip)
    if values is None:
        strength = checked_real("skip", skip)
        if strength != 0.0 and blocks == 0:
            allowed = "a block joins two hidden layers: at least n_0, n_1, n_2, n_3 needed"
            raise InvalidValueError("widths", widths, allowed)
        values = [strength] * blocks
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


def entering_signal(
    widths: tuple[int, ...], params: Params, x: ArrayLike
) -> Float[Array, "samples n_0"]:
    """`x` in the dtype of `params`, after checking that both fit `widths`; traceable."""
    if len(params) != len(widths) - 1:
        raise InvalidValueError(
            "number of layers in params", len(params), f"this network has {len(widths) - 1}"
        )
    for index, layer in enumerate(params):
        shapes = (jnp.shape(layer.b), jnp.shape(layer.W))
        n_in, n_out = widths[index], widths[index + 1]
        if shapes != ((n_out,), (n_out, n_in)):
            allowed = f"expected ({n_out},) and ({n_out}, {n_in})"
            raise InvalidValueError(f"shapes of b and W in layer {index + 1}", shapes, allowed)
    signal = jnp.asarray(x, dtype=params[0].W.dtype)
    if signal.ndim != 2 or signal.shape[1] != widths[0]:
        allowed = f"expected (samples, {widths[0]}), one sample per row"
        raise InvalidValueError("shape of x", signal.shape, allowed)
    return signal
