"""The MLP specification: widths, activation, initialisation, learning rates; init and apply (2.5).

Layer ℓ maps σ of the previous preactivations to z^(ℓ) = b + W σ(z^(ℓ-1)), with z^(1) = b + W x.
Biases are drawn from N(0, C_b) and weights from N(0, C_W/n_{ℓ-1}) (2.19-2.22); gradient descent
at global rate η moves biases with η λ_b and weights with η λ_W/n_{ℓ-1} (8.6).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from dynagram.activations import Activation
from dynagram.errors import InvalidValueError
from dynagram.networks._checks import (
    ActivationLike,
    PerLayer,
    Widths,
    checked_activation,
    checked_dtype,
    checked_widths,
    collapsed,
    network_table,
    per_layer,
)

_PER_LAYER = ("C_b", "C_W", "lambda_b", "lambda_W")
_RATE = "a learning rate must be ≥ 0"
_POSITIVE_C_W = "must be > 0: with zero weights the output does not depend on the input"


class Layer(NamedTuple):
    """Parameters of one layer: b of shape (n_ℓ,) and W of shape (n_ℓ, n_{ℓ-1})."""

    b: Array
    W: Array


Params = tuple[Layer, ...]


@dataclass(frozen=True, init=False, repr=False)
class MLP:
    """A multilayer perceptron, its initialisation and learning-rate tensor; immutable, hashable.

    `widths` is (n_0, …, n_L); the last layer is linear. `activation` is anything that
    `dynagram.activations.activation` understands. `C_b`, `C_W`, `lambda_b`, `lambda_W` take one
    number for all layers or one per layer ℓ = 1..L, and are stored per layer.

    >>> net = MLP([4, 5, 5, 5, 1], "relu", C_b=0, C_W=2)
    >>> net
    MLP((4, 5, 5, 5, 1), 'relu', C_b=0.0, C_W=2.0, lambda_b=1.0, lambda_W=1.0)
    >>> net.depth, net.number_of_parameters, net.C_W
    (4, 91, (2.0, 2.0, 2.0, 2.0))
    >>> params = net.init(jax.random.key(0))
    >>> net.apply(params, jnp.ones((3, 4))).shape
    (3, 1)
    """

    widths: tuple[int, ...]
    activation: Activation
    C_b: tuple[float, ...]
    C_W: tuple[float, ...]
    lambda_b: tuple[float, ...]
    lambda_W: tuple[float, ...]

    def __init__(
        self,
        widths: Widths,
        activation: ActivationLike,
        C_b: PerLayer,
        C_W: PerLayer,
        lambda_b: PerLayer = 1.0,
        lambda_W: PerLayer = 1.0,
    ):
        def store(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        store("widths", checked_widths(widths))
        store("activation", checked_activation(activation))
        store("C_b", per_layer("C_b", C_b, self.depth, "a variance must be ≥ 0"))
        store("C_W", per_layer("C_W", C_W, self.depth, _POSITIVE_C_W, positive=True))
        store("lambda_b", per_layer("lambda_b", lambda_b, self.depth, _RATE))
        store("lambda_W", per_layer("lambda_W", lambda_W, self.depth, _RATE))

    @classmethod
    def critical(
        cls,
        widths: Widths,
        activation: ActivationLike,
        *,
        lambda_b: PerLayer = 1.0,
        lambda_W: PerLayer = 1.0,
    ) -> MLP:
        """The network at the preferred critical initialisation of its activation (book §5).

        Raises `InvalidValueError` when the activation has no critical point.
        """
        from dynagram.theory.criticality import critical_initialisation

        sigma = checked_activation(activation)
        point = critical_initialisation(sigma)
        return cls(widths, sigma, point.C_b, point.C_W, lambda_b, lambda_W)

    @property
    def depth(self) -> int:
        """L, the number of weight matrices."""
        return len(self.widths) - 1

    @property
    def number_of_parameters(self) -> int:
        """Σ_ℓ n_ℓ (n_{ℓ-1} + 1) (2.7)."""
        pairs = zip(self.widths[1:], self.widths[:-1], strict=True)
        return sum(n_out * (n_in + 1) for n_out, n_in in pairs)

    def init(self, key: Array, dtype: DTypeLike | None = None) -> Params:
        """Draw b ~ N(0, C_b) and W ~ N(0, C_W/n_{ℓ-1}) from `key`; traceable.

        `dtype` defaults to JAX's current float. The draw of a layer depends on `key`, the depth
        and the widths of that layer only: changing C_b or C_W rescales the same normal numbers.
        """
        dtype = checked_dtype(dtype)
        layers = []
        for index, layer_key in enumerate(jax.random.split(key, self.depth)):
            n_in, n_out = self.widths[index], self.widths[index + 1]
            normal = jax.random.normal(layer_key, (n_out, 1 + n_in), dtype)
            std_b, std_W = math.sqrt(self.C_b[index]), math.sqrt(self.C_W[index] / n_in)
            layers.append(Layer(std_b * normal[:, 0], std_W * normal[:, 1:]))
        return tuple(layers)

    def preactivations(self, params: Params, x: ArrayLike) -> tuple[Float[Array, "samples _"], ...]:
        """z^(1), …, z^(L) for the samples in the rows of `x` (N, n_0); z^(ℓ) is (N, n_ℓ) (2.5).

        Computes in the dtype of the parameters; traceable and differentiable in both arguments.
        """
        signal = entering_signal(self.widths, params, x)
        fields_of_layers = []
        for layer in params:
            z = signal @ layer.W.T + layer.b[None, :]
            fields_of_layers.append(z)
            signal = self.activation(z)
        return tuple(fields_of_layers)

    def apply(self, params: Params, x: ArrayLike) -> Float[Array, "samples n_L"]:
        """The network's output z^(L), of shape (N, n_L), for `x` of shape (N, n_0) (2.5)."""
        return self.preactivations(params, x)[-1]

    def to_toml(self) -> str:
        """The specification as a `[network]` table, which `from_toml` reads back exactly.

        >>> print(MLP([2, 3, 1], "tanh", C_b=0.0, C_W=[1.0, 0.5]).to_toml(), end="")
        [network]
        widths = [2, 3, 1]
        activation = "tanh"
        C_b = 0.0
        C_W = [1.0, 0.5]
        lambda_b = 1.0
        lambda_W = 1.0
        """
        if self.activation.anonymous:
            allowed = "a callable has no name to write: pass it as 'package.module:function'"
            raise InvalidValueError("activation", self.activation.name, allowed)
        name = json.dumps(self.activation.name, ensure_ascii=False)
        lines = ["[network]", f"widths = {list(self.widths)}", f"activation = {name}"]
        lines += [f"{field} = {collapsed(getattr(self, field))}" for field in _PER_LAYER]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_toml(cls, text: str) -> MLP:
        """Read the `[network]` table of a TOML text; other tables are left to others.

        >>> MLP.from_toml('[network]\\nwidths = [2, 1]\\nactivation = "relu"\\nC_b = 0\\nC_W = 2')
        MLP((2, 1), 'relu', C_b=0.0, C_W=2.0, lambda_b=1.0, lambda_W=1.0)
        """
        known = [field.name for field in fields(cls)]
        return cls(**network_table(text, known, required=known[:4]))

    def __repr__(self) -> str:
        per_layer = ", ".join(f"{name}={collapsed(getattr(self, name))}" for name in _PER_LAYER)
        return f"MLP({self.widths}, {self.activation.name!r}, {per_layer})"


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
