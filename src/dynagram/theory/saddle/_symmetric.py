"""`SymmetricNetwork`: all neurons of a layer alike, one scalar X_ℓ per layer (Definition 3).

Rows of W_1 are X_1 v, entries of W_ℓ are X_ℓ/N (2 ≤ ℓ ≤ L−1), entries of W_L are X_L/√N, so that
f = √N X_L σ(X_{L−1} σ(… σ(X_1 g))) with g = v·x (3); the target is β σ(g).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from dynagram.activations import Activation
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import (
    ActivationLike,
    Architecture,
    Layer,
    Model,
    checked_activation,
    checked_number,
)
from dynagram.theory.saddle._classes import ActivationClass, classify

# What the constructors take. At run time they validate by themselves, with clearer messages.
if TYPE_CHECKING:
    Numbers = Sequence[float] | np.ndarray
    Number = float
else:
    Numbers = Number = object

_POSITIVE = "must be > 0"
_LARGEST = 2**53
_DEEPEST = 100_000  # layers of a list that is made for them


@dataclass(frozen=True, init=False)
class SymmetricNetwork:
    """A network on the symmetric balanced ansatz and its single-mode teacher; hashable.

    **Arguments:**

    - `activation`: σ: a name, a callable or an `Activation`, without jumps or kinks away from 0.
    - `scales`: (X_1, …, X_L), all > 0, at least two.
    - `width`: N, the size of every hidden layer.
    - `beta`: β > 0, the teacher's amplitude.

    >>> network = SymmetricNetwork.balanced("tanh", depth=4, width=64, scale=0.02)
    >>> network.scales, round(network.K, 6)
    ((0.02, 0.02, 0.02, 0.02), 4.845644)
    """

    activation: Activation
    scales: tuple[float, ...]
    width: int
    beta: float

    def __init__(self, activation: ActivationLike, scales: Numbers, width: int, beta: Number = 1.0):
        def store(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        sigma = checked_activation(activation)
        if any(kink.location != 0.0 for kink in sigma.kinks) or sigma.jumps:
            reason = "a kink away from 0, or a jump, moves with the flow: not supported"
            raise InvalidValueError("activation", sigma.name, reason)
        if len(scales) < 2:
            raise InvalidValueError("scales", tuple(scales), "at least two layers needed")
        store("activation", sigma)
        store(
            "scales",
            tuple(
                checked_number(f"X_{layer} of scales", value, _POSITIVE, positive=True)
                for layer, value in enumerate(scales, start=1)
            ),
        )
        store("width", checked_count("width", width))
        store("beta", checked_number("beta", beta, _POSITIVE, positive=True))

    @classmethod
    def balanced(
        cls,
        activation: ActivationLike,
        *,
        depth: int,
        width: int,
        scale: Number,
        bottleneck: int | None = None,
        rest: Number = 1.0,
        beta: Number = 1.0,
    ) -> SymmetricNetwork:
        """The first `bottleneck` layers (all by default) at `scale`, the others at `rest`."""
        depth = checked_count("depth", depth, least=2, most=_DEEPEST)
        r = depth if bottleneck is None else checked_count("bottleneck", bottleneck)
        if r > depth:
            raise InvalidValueError("bottleneck", r, f"at most the depth, {depth}")
        return cls(activation, [scale] * r + [rest] * (depth - r), width, beta)

    @property
    def depth(self) -> int:
        """L, the number of weight matrices."""
        return len(self.scales)

    @property
    def activation_class(self) -> ActivationClass:
        """Class and constants of the activation."""
        return classify(self.activation)

    @property
    def K(self) -> float:
        """The drive constant √N β h_σ α^{L−1} of dX_ℓ/dt = K Π_{m≠ℓ} X_m, in reduced time."""
        return math.sqrt(self.width) * self.beta * self.activation_class.chain_drive(self.depth)

    def embedded(self, n_0: int) -> Model:
        """The full network and its weights for inputs of `n_0` components; v is the first axis.

        Its learning-rate tensor is that of the normalised flow: rate 1 for W_1, 1/N for the
        deeper layers, none for the biases, which are zero. Weights in JAX's current float.
        """
        N, depth = self.width, self.depth
        network = Architecture(
            [n_0, *[N] * (depth - 1), 1],
            self.activation,
            lambda_b=0.0,
            lambda_W=[float(n_0), *[1.0] * (depth - 1)],
        )
        first = np.zeros((N, n_0))
        first[:, 0] = self.scales[0]
        hidden = [np.full((N, N), X / N) for X in self.scales[1:-1]]
        weights = [first, *hidden, np.full((1, N), self.scales[-1] / math.sqrt(N))]
        layers = [Layer(jnp.zeros(W.shape[0]), jnp.asarray(W)) for W in weights]
        return Model(network, tuple(layers))


def checked_count(name: str, value: object, *, least: int = 1, most: int = _LARGEST) -> int:
    """`value` as an integer from `least` to `most`, by default one that a float can be."""
    allowed = f"expected an integer ≥ {least}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise InvalidTypeError(name, value, allowed)
    number = operator.index(value)  # pyright: ignore[reportArgumentType]
    if number < least:
        raise InvalidValueError(name, number, allowed)
    if number > most:
        raise InvalidValueError(name, number, f"at most {most}")
    return number


def require_drive(network: SymmetricNetwork) -> float:
    """K, refused where the origin does not drive the signal up: no escape law then."""
    if not network.K > 0:
        raise InvalidValueError(
            "activation",
            network.activation.name,
            f"the escape law needs K = √N β h_σ α^(L−1) > 0, here {network.K:.4g}",
        )
    return network.K
