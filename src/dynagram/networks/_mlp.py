"""Multilayer perceptrons: architecture, initialisation, learning rates; drawing and applying (2.5).

Layer ℓ maps σ of the previous preactivations to z^(ℓ) = b + W σ(z^(ℓ-1)) + γ z^(ℓ-1), with
z^(1) = b + W x; γ, the skip of a block (B.3), is 0 in a plain network and in the first and the last
layer. A strength ξ in front of a block is not needed: it is the same as ξ²C_b, ξ²C_W, ξ²λ_b, ξ²λ_W
(B.6). Biases are drawn from N(0, C_b) and weights from N(0, C_W/n_{ℓ-1}) (2.19-2.22); gradient
descent at global rate η moves biases with η λ_b and weights with η λ_W/n_{ℓ-1} (8.6).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from dynagram._memory import require_memory
from dynagram._toml import read_table
from dynagram._trust import check_trusted
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks._checks import (
    ActivationLike,
    PerLayer,
    Widths,
    checked_activation,
    checked_choice,
    checked_dtype,
    checked_widths,
    per_layer,
)
from dynagram.networks._distributions import DISTRIBUTIONS
from dynagram.networks._layers import Architecture, Layer, Params, checked_skip
from dynagram.networks._model import Model

_REQUIRED = ("widths", "activation", "C_b", "C_W")
_PER_LAYER = ("C_b", "C_W", "lambda_b", "lambda_W")
_POSITIVE_C_W = "must be > 0: with zero weights the output does not depend on the input"


@dataclass(frozen=True, init=False, repr=False)
class MLP(Architecture):
    """A multilayer perceptron, its initialisation and learning rates; immutable, hashable.

    **Arguments:**

    - `widths`: (n_0, …, n_L); the last layer is linear.
    - `activation`: a name, a callable or an `Activation`.
    - `C_b`, `C_W`: variances of biases and of weights times fan-in, one number or one per layer.
    - `lambda_b`, `lambda_W`: learning rates of biases and of weights times fan-in, likewise.
    - `skip`: γ of the blocks ℓ = 2..L−1, one number or one per block; 0 is the plain network.

    >>> net = MLP([4, 5, 5, 5, 1], "relu", C_b=0, C_W=2)
    >>> net
    MLP((4, 5, 5, 5, 1), 'relu', C_b=0.0, C_W=2.0, lambda_b=1.0, lambda_W=1.0)
    >>> net.depth, net.number_of_parameters, net.C_W
    (4, 91, (2.0, 2.0, 2.0, 2.0))
    >>> net.init(seed=0)(jnp.ones((3, 4))).shape
    (3, 1)
    >>> MLP([3, 8, 8, 8, 1], "relu", C_b=0, C_W=1.5, skip=0.5).skip_of_layers
    (0.0, 0.5, 0.5, 0.0)
    """

    C_b: tuple[float, ...]
    C_W: tuple[float, ...]

    def __init__(
        self,
        widths: Widths,
        activation: ActivationLike,
        C_b: PerLayer,
        C_W: PerLayer,
        lambda_b: PerLayer = 1.0,
        lambda_W: PerLayer = 1.0,
        *,
        skip: PerLayer = 0.0,
    ):
        super().__init__(widths, activation, skip=skip, lambda_b=lambda_b, lambda_W=lambda_W)
        self._store("C_b", per_layer("C_b", C_b, self.depth, "a variance must be ≥ 0"))
        self._store("C_W", per_layer("C_W", C_W, self.depth, _POSITIVE_C_W, positive=True))

    @classmethod
    def critical(
        cls,
        widths: Widths,
        activation: ActivationLike,
        *,
        skip: PerLayer = 0.0,
        lambda_b: PerLayer = 1.0,
        lambda_W: PerLayer = 1.0,
    ) -> MLP:
        """The network at the preferred critical initialisation of its activation (book §5).

        Blocks with a skip have (1 − γ²) times the plain C_b and C_W (B.20), (B.21), which needs
        γ² < 1: at γ = 1 only C_W = 0 is critical. Raises `InvalidValueError` there, and when the
        activation has no critical point.

        >>> MLP.critical([3, 8, 8, 8, 1], "relu", skip=[0.5, 0.6]).C_W
        (2.0, 1.5, 1.28, 2.0)
        """
        from dynagram.theory.criticality import critical_initialisation

        sizes, sigma = checked_widths(widths), checked_activation(activation)
        strengths = checked_skip(sizes, skip)
        for block, strength in enumerate(strengths, start=1):
            if abs(strength) >= 1.0:
                allowed = "criticality needs γ² < 1, else K grows in every block: give C_b and C_W"
                raise InvalidValueError(f"skip of block {block}", strength, allowed)
        point = critical_initialisation(sigma)
        rest = [1.0, *(1.0 - strength**2 for strength in strengths), 1.0][: len(sizes) - 1]
        C_b, C_W = ([factor * value for factor in rest] for value in (point.C_b, point.C_W))
        return cls(sizes, sigma, C_b, C_W, lambda_b, lambda_W, skip=strengths or 0.0)

    def init(
        self,
        seed: int | Array = 0,
        *,
        dtype: DTypeLike | None = None,
        distribution: str = "normal",
    ) -> Model:
        """A network drawn from this specification, with its weights.

        **Arguments:**

        - `seed`: an integer, or a JAX key.
        - `dtype`: of the parameters; by default JAX's current float.
        - `distribution`: "normal", which the theory assumes, or with the same variances "uniform",
            or "truncated-normal" cut at two standard deviations: equal at infinite width and not
            at order 1/n (`dynagram.theory.statistics.kurtosis_shift`).

        **Returns:** a `Model`, to be called on inputs (N, n_0).

        >>> float(MLP([2, 3, 1], "tanh", C_b=0.0, C_W=1.0).init(seed=0)(jnp.zeros((1, 2)))[0, 0])
        0.0
        """
        checked_choice("distribution", distribution, tuple(DISTRIBUTIONS))
        numbers = sum((1 + m) * n for m, n in itertools.pairwise(self.widths))
        itemsize = jnp.dtype(checked_dtype(dtype)).itemsize
        remedy = "it has too many weights"
        require_memory("network", self.summary, float(itemsize) * numbers, remedy)
        return Model(self, self.draw(checked_key(seed), dtype, distribution))

    def output_metric(self, params: Params, x: ArrayLike) -> Float[Array, "samples samples"]:
        """Ĝ^(L), the covariance of the outputs given all weights but the last; traceable."""
        signal = jnp.asarray(x, dtype=params[0].W.dtype)
        if self.depth > 1:
            signal = self.activation(self.preactivations(params, x)[-2])
        return self.C_b[-1] + self.C_W[-1] / signal.shape[1] * (signal @ signal.T)

    def draw(
        self, key: Array, dtype: DTypeLike | None = None, distribution: str = "normal"
    ) -> Params:
        """Parameters b ~ N(0, C_b) and W ~ N(0, C_W/n_{ℓ-1}) from `key`; traceable.

        `dtype` defaults to JAX's current float; `distribution` as in `init`. The draw of a layer
        depends on `key`, the depth and the widths of that layer only: changing C_b or C_W rescales
        the same numbers.
        """
        dtype = checked_dtype(dtype)
        layers = []
        for index, layer_key in enumerate(jax.random.split(key, self.depth)):
            n_in, n_out = self.widths[index], self.widths[index + 1]
            numbers = DISTRIBUTIONS[distribution](layer_key, (n_out, 1 + n_in), dtype)
            std_b, std_W = math.sqrt(self.C_b[index]), math.sqrt(self.C_W[index] / n_in)
            layers.append(Layer(std_b * numbers[:, 0], std_W * numbers[:, 1:]))
        return tuple(layers)

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
        return self._table(*_PER_LAYER)

    @classmethod
    def from_toml(cls, text: str) -> MLP:
        """Read the `[network]` table of a TOML text; other tables are left to others.

        An activation "module:function" is imported only if the user named it: see `trust`.

        >>> MLP.from_toml('[network]\\nwidths = [2, 1]\\nactivation = "relu"\\nC_b = 0\\nC_W = 2')
        MLP((2, 1), 'relu', C_b=0.0, C_W=2.0, lambda_b=1.0, lambda_W=1.0)
        """
        known = ["kind", *_REQUIRED, "lambda_b", "lambda_W", "skip"]
        table = read_table(text, "network", known, required=_REQUIRED)
        check_trusted("activation", table["activation"])
        table.pop("kind", None)
        return cls(**table)

    def __repr__(self) -> str:
        return self._described(*_PER_LAYER)


def checked_key(seed: int | Array) -> Array:
    """A JAX key from an integer, or the key itself."""
    if isinstance(seed, jax.Array):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise InvalidTypeError("seed", seed, "expected an integer or a JAX key")
    return jax.random.key(int(seed))
