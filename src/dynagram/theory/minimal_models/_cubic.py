"""Cubic models z = Wφ + ½WWψ + ⅙WWWΨ (11.151): what a network is to the order that 1/n needs.

Expanded around its initialisation to third order in its parameters, a network has random features
φ = dz/dθ, ψ = d²z/dθ² and Ψ = d³z/dθ³ (11.152). Contracted with φ they are its NTK, its dNTK and
its two ddNTKs, all of which count at order 1/n (11.153); a quadratic model lacks the last of them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from dynagram._arrays import memory_limit
from dynagram._precision import float64
from dynagram.data._data import check_inputs
from dynagram.errors import InvalidValueError
from dynagram.networks import Layer, Model
from dynagram.observables.tangents._signals import check_differentiable


@dataclass(frozen=True, eq=False)
class CubicModel:
    """Features φ, meta features ψ and their own meta features Ψ, symmetric in their parameters.

    Rows are samples, or (sample, output) pairs whose parameters are shared. `constant` is z at
    W = 0. Learning rates λ ≠ 1 are covered by φ → √λ φ, and so on.

    >>> model = CubicModel(np.ones((1, 1)), np.ones((1, 1, 1)), np.ones((1, 1, 1, 1)), np.zeros(1))
    >>> model.outputs(np.array([2.0])).round(6)                   # 2 + 4/2 + 8/6
    array([5.333333])
    """

    features: Float[np.ndarray, "row parameter"]
    meta_features: Float[np.ndarray, "row parameter parameter"]
    third: Float[np.ndarray, "row parameter parameter parameter"]
    constant: Float[np.ndarray, " row"]

    def outputs(self, W: Float[np.ndarray, " parameter"]) -> Float[np.ndarray, " row"]:
        """z(W) (11.151)."""
        quadratic = np.einsum("apq,p,q->a", self.meta_features, W, W, optimize=True)
        cubic = np.einsum("apqr,p,q,r->a", self.third, W, W, W, optimize=True)
        return self.constant + self.features @ W + quadratic / 2.0 + cubic / 6.0

    def effective_features(
        self, W: Float[np.ndarray, " parameter"]
    ) -> Float[np.ndarray, "row parameter"]:
        """φ^E = dz/dW = φ + Wψ + ½WWΨ (11.143)."""
        bent = np.einsum("apqr,q,r->ap", self.third, W, W, optimize=True)
        return self.features + self.meta_features @ W + bent / 2.0

    @functools.cached_property
    def kernel(self) -> Float[np.ndarray, "row row"]:
        """φ_1·φ_2, the NTK of a network (11.146)."""
        return self.features @ self.features.T

    @functools.cached_property
    def meta_kernel(self) -> Float[np.ndarray, "row row row"]:
        """φ_1ψ_0φ_2, its dNTK (11.149)."""
        phi = self.features
        return np.einsum("apq,bp,cq->abc", self.meta_features, phi, phi, optimize=True)

    @functools.cached_property
    def second_meta_kernels(
        self,
    ) -> tuple[Float[np.ndarray, "row row row row"], Float[np.ndarray, "row row row row"]]:
        """Ψ_0φ_1φ_2φ_3 and (ψ_1φ_3)·(ψ_2φ_4), its two ddNTKs (11.153)."""
        phi = self.features
        first = np.einsum("apqr,bp,cq,dr->abcd", self.third, phi, phi, phi, optimize=True)
        turned = np.einsum("apq,bp->abq", self.meta_features, phi, optimize=True)
        return first, np.einsum("acq,bdq->abcd", turned, turned, optimize=True)

    def descend(
        self, y: Float[np.ndarray, " train"], *, eta: float, steps: int
    ) -> Float[np.ndarray, " parameter"]:
        """W after `steps` steps of gradient descent on ½Σ(z − y)² of the first rows, from W = 0."""
        rows = slice(0, y.size)
        part = CubicModel(
            self.features[rows], self.meta_features[rows], self.third[rows], self.constant[rows]
        )
        W = np.zeros(self.features.shape[1])
        for _ in range(steps):
            W = W - eta * part.effective_features(W).T @ (part.outputs(W) - y)
        return W


@float64
def cubic_model(model: Model, x: object) -> CubicModel:
    """The cubic model of one network around its weights (11.152), in units of √λ.

    **Arguments:**

    - `model`: a small network, with its learning rates, and its weights; σ'' must not jump.
    - `x`: inputs (N, n_0), one per row.

    **Returns:** `CubicModel`, rows numbered sample·n_L + output; its W are parameter changes over
    √λ, in the order of `ravel_pytree`. Memory: N n_L P³ numbers for P parameters, refused where
    there is not enough.

    >>> from dynagram.networks import MLP
    >>> drawn = MLP([1, 2, 1], "tanh", C_b=0.0, C_W=1.0).init(seed=0)
    >>> cubic_model(drawn, [[1.0]]).third.shape
    (1, 7, 7, 7)
    """
    inputs = check_inputs(x, model.network.input_size)
    check_differentiable(model.network, 3, "the third derivative of the output")
    network, exact = model.network, model.in_float64()
    rows, size = inputs.shape[0] * network.output_size, network.number_of_parameters
    needed, limit = 3 * 8 * rows * size**3, memory_limit()
    if limit is not None and needed > limit:
        raise InvalidValueError(
            "number of parameters", size, f"third derivatives on {rows} outputs need about "
            f"{needed / 1024**3:.0f} GiB and there are {limit / 1024**3:.0f}: a smaller network",
        )  # fmt: skip
    start, restore = ravel_pytree(jax.tree.map(jnp.asarray, exact.params))
    scale = jnp.sqrt(ravel_pytree(_rates(exact))[0])

    def outputs(W: Array) -> Array:
        return network.apply(restore(start + scale * W), jnp.asarray(inputs)).reshape(-1)

    @jax.jit
    def derivatives(W: Array) -> tuple[Array, ...]:
        first = jax.jacfwd(outputs)
        second = jax.jacfwd(first)
        return first(W), second(W), jax.jacfwd(second)(W), outputs(W)

    return CubicModel(*(np.asarray(part) for part in derivatives(jnp.zeros(size))))


def _rates(model: Model) -> tuple[Layer, ...]:
    """λ of every parameter, λ_W/n_{ℓ−1} of a weight."""
    network = model.network
    return tuple(
        Layer(
            jnp.full(layer.b.shape, network.lambda_b[i]),
            jnp.full(layer.W.shape, network.lambda_W[i] / network.widths[i]),
        )
        for i, layer in enumerate(model.params)
    )
