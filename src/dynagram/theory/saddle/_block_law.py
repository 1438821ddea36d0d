"""Leading escape law of a block network: T = C(θ/ε)/(√N_B h_σ α^{L−1} ε^{L−2}).

While the signal is small the gradient is that of the drive alone, F = ⟨B, a A_{L−1} ⋯ A_1⟩ with
B = (β_1 … β_K) for one output and diag β for one output per mode, rows a of A_1 counting
√(n_a/N_B) times in blocks of unequal sizes; F is homogeneous, so that the
scale ε and the constants separate from a pure number C of the initial pattern. C = ½ for one mode.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dynagram._precision import float64
from dynagram.errors import InvalidValueError
from dynagram.theory.saddle._blocks import BlockNetwork
from dynagram.theory.saddle._flow import RELATIVE_TOLERANCE, Coordinates, cross

_FAR = 1e6  # stands for ∞: what is left of the time is of the order ratio^{−(L−2)}


@float64
def drive_constant(
    network: BlockNetwork, pattern: Coordinates, ratio: float = math.inf, *, mode: int = 1
) -> float:
    """C: the time in which A_1[mode, mode] of the drive-only flow grows to `ratio`.

    Cost: a small ODE.

    **Arguments:**

    - `network`: a `BlockNetwork`; its closures apply.
    - `pattern`: the initial state divided by ε.
    - `ratio`: the value to reach, above the one at the start; ∞ needs at least three layers.
    - `mode`: which mode is watched, counted from 1.

    **Returns:** C, a pure number.

    >>> network = BlockNetwork("tanh", depth=4, betas=(1, 0.3, 0.08), block_size=20)
    >>> round(drive_constant(network, network.aligned(1.0), 6.0), 8)
    0.35625735
    """
    if not ratio > pattern.A1[mode - 1, mode - 1]:
        raise InvalidValueError("ratio", ratio, "must be above the initial value")
    if math.isinf(ratio) and network.depth == 2:
        raise InvalidValueError("ratio", ratio, "two layers grow exponentially: no finite limit")
    betas = np.asarray(network.betas)
    target = betas[None, :] if network.outputs == "sum" else np.diag(betas)
    found = _time(
        Coordinates(*(jnp.asarray(part) for part in network.metric())),
        jnp.asarray(target),
        jnp.sqrt(jnp.asarray(network.block_sizes)[:, None] / network.N_B),
        Coordinates(*(jnp.asarray(part) for part in pattern)),
        jnp.asarray(min(ratio, _FAR)),
        mode - 1,
    )
    time, reached = (float(part) for part in found)
    if not math.isclose(reached, min(ratio, _FAR), rel_tol=1e-8):
        raise InvalidValueError(
            "ratio", ratio, f"A_1[{mode}, {mode}] of the drive-only flow ends at {reached:.4g}"
        )
    return time


def leading_block_time(
    network: BlockNetwork, pattern: Coordinates, epsilon: float, threshold: float
) -> float:
    """T = C(θ/ε)/(√N_B h_σ α^{L−1} ε^{L−2}) in reduced time, from the state ε·pattern.

    **Arguments:**

    - `network`: a `BlockNetwork`.
    - `pattern`: the initial state divided by ε.
    - `epsilon`: ε, the scale of the initial state.
    - `threshold`: θ, the value that A_1[1, 1] has to reach.

    **Returns:** T, in reduced time.

    >>> network = BlockNetwork("tanh", depth=4, betas=(1, 0.3, 0.08), block_size=20)
    >>> round(leading_block_time(network, network.aligned(1.0), 0.05, 0.3), 3)
    52.607
    """
    C = drive_constant(network, pattern, threshold / epsilon)
    return C / (network.K * epsilon ** (network.depth - 2))


@functools.partial(jax.jit, static_argnums=5)
def _time(
    metric: Coordinates,
    target: Array,
    roots: Array,
    pattern: Coordinates,
    ratio: Array,
    mode: int,
) -> tuple[Array, Array]:
    def drive(x: Coordinates) -> Array:
        product = roots * x.A1
        for layer in x.A:
            product = layer @ product
        return jnp.sum(target * (x.a @ product))

    def rate(x: Coordinates) -> Coordinates:
        return jax.tree.map(lambda m, g: m * g, metric, jax.grad(drive)(x))

    def logarithm(x: Coordinates) -> Array:
        return jnp.log(jnp.asarray(x.A1)[mode, mode])

    longest = jnp.asarray(1e12)
    time, _, value = cross(rate, logarithm, pattern, jnp.log(ratio), longest, RELATIVE_TOLERANCE)
    return time, jnp.exp(value)
