"""The neural tangent kernel of one residual network, exact at any width.

As for an MLP, the gradient of an output factors into u^(ℓ-1) and J^(ℓ) = dz^(L)/dz^(ℓ); the skip
adds its own way back, J^(ℓ) = J^(ℓ+1)(W σ'(z^(ℓ)) + γ).
"""

from __future__ import annotations

import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dynagram.networks import MLP, Params
from dynagram.observables.tangents._ntk import between
from dynagram.observables.tangents._signals import Gradients, check_differentiable


def residual_gradients(network: MLP, params: Params, x: ArrayLike) -> Gradients:
    """∇z^(L) for the samples in the rows of `x`, in factors; traceable.

    >>> import jax
    >>> net = MLP([1, 2, 2, 1], "linear", C_b=0.0, C_W=1.0, skip=0.5)
    >>> params = net.draw(jax.random.key(0))
    >>> J = residual_gradients(net, params, jnp.ones((1, 1))).J
    >>> way = params[2].W @ (params[1].W + 0.5 * jnp.eye(2))
    >>> bool(jnp.allclose(J[0][0], way, rtol=1e-6))
    True
    """
    z = network.preactivations(params, x)
    dtype, samples, n_L = z[0].dtype, z[0].shape[0], network.widths[-1]
    u = (jnp.asarray(x, dtype=dtype), *(network.activation(values) for values in z[:-1]))
    slope, J = network.activation.derivative(1), []
    J.append(jnp.broadcast_to(jnp.eye(n_L, dtype=dtype), (samples, n_L, n_L)))
    for index in range(network.depth - 1, 0, -1):
        above, gamma = J[0], network.skip_of_layers[index]
        below = (above.reshape(samples * n_L, -1) @ params[index].W).reshape(samples, n_L, -1)
        below = below * slope(z[index - 1])[:, None, :]
        J.insert(0, below + gamma * above if gamma != 0.0 else below)
    return Gradients(u, tuple(J))


def residual_ntk(network: MLP, params: Params, x: ArrayLike) -> Float[Array, "N N n_L n_L"]:
    """The NTK of the output on the rows of `x`, [a, b, i, j] = H_ij;ab, in the params' dtype.

    Cost as for the `ntk` of an MLP.

    >>> import jax
    >>> net = MLP([1, 2, 2, 1], "linear", 0.0, 1.0, skip=1.0, lambda_b=0.0)
    >>> params = jax.tree.map(jnp.ones_like, net.draw(jax.random.key(0)))
    >>> residual_ntk(net, params, jnp.ones((1, 1))).ravel().tolist()  # 18 + 2·4 + 49
    [75.0]
    """
    check_differentiable(network, 1, "the NTK")
    found = residual_gradients(network, params, x)
    return between(network, found, found)
