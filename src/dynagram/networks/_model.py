"""A concrete network: a specification or architecture together with its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import equinox as eqx
from jax.typing import ArrayLike
from jaxtyping import Array, Float

if TYPE_CHECKING:
    from dynagram.networks._mlp import Architecture, Params
else:
    Architecture = Params = Any


class Model(eqx.Module):
    """One network with its weights: drawn by `MLP.init`, loaded by `load_weights`, or trained.

    A pytree whose leaves are the parameters: `jax.jit`, `jax.grad` and `jax.vmap` go through it.

    **Arguments:**

    - `network`: the `MLP` it was drawn from, or the `Architecture` of weights whose initialisation
        is not known.
    - `params`: one layer (b, W) for each ℓ = 1..L.
    - `notes`: what had to be guessed when the weights were read.

    >>> from dynagram.networks import MLP
    >>> import jax.numpy as jnp
    >>> model = MLP([2, 3, 1], "tanh", C_b=0.0, C_W=1.0).init(seed=1)
    >>> model
    Model(MLP((2, 3, 1), 'tanh', C_b=0.0, C_W=1.0, lambda_b=1.0, lambda_W=1.0), 13 parameters)
    >>> model(jnp.zeros((4, 2))).shape
    (4, 1)
    """

    network: Architecture = eqx.field(static=True)
    params: Params
    notes: tuple[str, ...] = eqx.field(static=True, default=())

    def __call__(self, x: ArrayLike) -> Float[Array, "samples n_L"]:
        """The outputs z^(L), (N, n_L), for the samples in the rows of `x` (N, n_0)."""
        return self.network.apply(self.params, x)

    def preactivations(self, x: ArrayLike) -> tuple[Float[Array, "samples _"], ...]:
        """z^(1), …, z^(L) for the samples in the rows of `x`."""
        return self.network.preactivations(self.params, x)

    def __repr__(self) -> str:
        return f"Model({self.network}, {self.network.number_of_parameters} parameters)"
