"""Networks set up on their data: orthogonal weights, every layer at its operating point.

Layer by layer on a batch of inputs: W is a random orthogonal matrix, scaled so that the
preactivations have variance K over units and samples, about a mean that the bias makes μ for
every unit. What is common to all inputs, and what one draw would add to or take from the size of
the signal, is gone at every layer. With a skip γ = 1 a block adds K/L to the variance.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from dynagram.errors import InvalidValueError
from dynagram.networks import Model, check_inputs
from dynagram.networks._mlp import Architecture, Layer, checked_key
from dynagram.theory.criticality._operating_point import BUDGET, OperatingPoint, operating_point

OUTPUT = 1.0  # variance of the outputs


def initialise(
    network: Architecture,
    x: ArrayLike,
    *,
    seed: int | Array = 0,
    budget: float = BUDGET,
) -> Model:
    """A network with orthogonal weights whose layers work at the operating point on `x`.

    **Arguments:**

    - `network`: an `MLP` or `Architecture`; of it the widths, activation and skips are used.
    - `x`: inputs (N, n_0), a batch of those to be trained on; at least two different ones.
    - `seed`: an integer, or a JAX key.
    - `budget`: of `operating_point`.

    **Returns:** a `Model` of an `Architecture`, as its weights are not those of C_b and C_W.
    Cost: one pass over `x` and one QR decomposition per layer.

    >>> from dynagram.networks import MLP
    >>> x = np.random.default_rng(0).normal(size=(50, 8)) + 3.0
    >>> model = initialise(MLP.critical([8, *[32] * 5, 2], "relu"), x)
    >>> z = model.network.preactivations(model.params, x)[3]
    >>> float(jnp.abs(z.mean(axis=0)).max().round(6)), round(float(z.var()), 6)
    (0.0, 1.0)
    """
    inputs = check_inputs(x, network.widths[0])
    if np.ptp(inputs, axis=0).max() == 0.0:
        raise InvalidValueError("x", "one input", "at least two different inputs needed")
    point = layer_point(network, budget)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(checked_key(seed))))
    signal, z, layers = np.asarray(inputs, np.float64), np.zeros(()), []
    for index in range(network.depth):
        skip = network.skip_of_layers[index]
        is_last = index == network.depth - 1
        variance, mean = (OUTPUT, 0.0) if is_last else (point.variance, point.mean)
        if skip:
            # The branch of a block adds what keeps K, or 1/L of it where the skip alone does.
            variance *= 1.0 - skip**2 if abs(skip) < 1.0 else 1.0 / network.depth
            mean *= 1.0 - skip
        W = orthogonal(rng, signal.shape[1], network.widths[index + 1])
        layer, branch = _placed(W, signal, mean, variance)
        layers.append(layer)
        z = branch + skip * z if skip else branch
        signal = network.activation.values(z)
    structure = Architecture(network.widths, network.activation, skip=network.skip or 0.0)
    return Model(structure, tuple(layers))


def layer_point(network: Architecture, budget: float = BUDGET) -> OperatingPoint:
    """The operating point of a network: with skips the nonlinearities do not multiply.

    **Arguments:**

    - `network`: an `MLP` or `Architecture`.
    - `budget`: of `operating_point`.

    **Returns:** `OperatingPoint`.
    """
    plain = sum(not skip for skip in network.skip_of_layers)
    return operating_point(network.activation, max(plain, 2), budget=budget)


def orthogonal(rng: np.random.Generator, n_in: int, n_out: int) -> Float[np.ndarray, "n_out n_in"]:
    """A random matrix with orthonormal rows or columns, whichever are fewer.

    **Arguments:**

    - `rng`: a generator of random numbers.
    - `n_in`, `n_out`: its shape is (n_out, n_in).

    **Returns:** the matrix, from the uniform distribution of such matrices.
    """
    tall, wide = max(n_in, n_out), min(n_in, n_out)
    Q, R = np.linalg.qr(rng.normal(size=(tall, wide)))
    Q = Q * np.sign(np.diagonal(R))
    return Q if n_out >= n_in else Q.T


def _placed(
    W: Float[np.ndarray, "n_out n_in"],
    signal: Float[np.ndarray, "samples n_in"],
    mean: float,
    variance: float,
) -> tuple[Layer, Float[np.ndarray, "samples n_out"]]:
    z = signal @ W.T
    centre = z.mean(axis=0)
    scale = np.sqrt(variance / np.mean((z - centre) ** 2))
    layer = Layer(jnp.asarray(mean - scale * centre), jnp.asarray(scale * W))
    return layer, scale * (z - centre) + mean
