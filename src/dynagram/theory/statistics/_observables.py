"""Averages of any function of a layer's preactivations at order 1/n, and how they vary together.

Given the layer below, neurons are Gaussian with one random metric Ĝ. Expanding the density of
N(0, Ĝ) around N(0, K) in Ĝ − K (4.56), (4.57) and averaging with E[Ĝ − K] = G^{1}/n and
Cov[Ĝ, Ĝ] = V/n gives E[F(z)] (D5.7); to first order in Ĝ − K the covariance of functions of
different neurons (8.41), and with D and F the correlation of any function with the NTK (8.71).
Weights take the place of derivatives: F may have kinks and jumps, K must be regular.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dynagram._precision import float64
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._nodes import NodeSet, sobol_nodes, square_root
from dynagram.gaussian._quadrature import normal_density
from dynagram.networks import MLP
from dynagram.theory._predict import predict
from dynagram.theory.statistics._couplings import inverse

# Up to so many variables a product grid is better than quasi-random points.
_GRID_VARIABLES = 4
_REACH = 9.0

# z (neurons, samples) ↦ a number or an array; traceable by JAX. Checked by use.
if TYPE_CHECKING:
    Function = Callable[[Array], Array]
else:
    Function = object


@dataclass(frozen=True, eq=False)
class ObservableMean:
    """E[F(z^(ℓ))] = `infinite` + `correction`/n, n = `fan_in` the width of the layer below.

    `errors` are the standard errors of `infinite` and `correction`, which share their nodes.
    """

    infinite: Float[np.ndarray, "*shape"]
    correction: Float[np.ndarray, "*shape"]
    errors: tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]
    fan_in: int

    @property
    def value(self) -> Float[np.ndarray, "*shape"]:
        """The average to order 1/n."""
        return np.asarray(self.infinite + self.correction / self.fan_in)

    @property
    def error(self) -> Float[np.ndarray, "*shape"]:
        """A bound on the standard error of `value`."""
        return np.asarray(self.errors[0] + self.errors[1] / self.fan_in)


def observable_mean(
    network: MLP,
    x: object,
    function: Function,
    *,
    layer: int | None = None,
    neurons: int = 1,
    count: int = 2**18,
    seed: int = 0,
) -> ObservableMean:
    """E[F(z^(ℓ))] for any function of a few neurons on a few inputs, to order 1/n (4.56).

    **Arguments:**

    - `network`: an `MLP` without skips.
    - `x`: inputs (N, n_0), one per row, no two collinear unless biases tell them apart.
    - `function`: F, of an array (neurons, N), to a number or an array; JAX must trace it.
    - `layer`: ℓ, by default the output.
    - `neurons`: how many neurons F looks at.
    - `count`: about how many nodes: a product grid for up to four variables (neurons times
        inputs), quasi-random points for more.
    - `seed`: scrambles quasi-random points.

    **Returns:** `ObservableMean`. Its error is the difference of two shifted grids, a rounding
    error for smooth functions of one or two variables, or the standard error of eight scramblings.
    Cost: `predict` of V and G1, and `count` values of F.

    >>> net = MLP([2, 30, 30, 1], "relu", C_b=0.0, C_W=2.0)
    >>> mean = observable_mean(net, [[1.0, 1.0]], lambda z: jnp.sum(z**4))
    >>> float(mean.infinite.round(6)), float(mean.correction.round(6))     # 3K², 3V = 3·10K²
    (12.0, 120.0)
    """
    z, weights, at = _prepared(network, x, layer, neurons, count, seed, ("V", "G1"))
    u = z @ at.inverse_K
    first = np.einsum("rnia,rnib->rnab", u, u) - neurons * at.inverse_K
    bent = np.einsum("abcd,bc->ad", at["V"], at.inverse_K)
    ratio = (
        0.5 * np.einsum("ab,rnab->rn", at["G1"], first)
        + 0.125 * np.einsum("rnab,abcd,rncd->rn", first, at["V"], first, optimize=True)
        - 0.5 * np.einsum("rnia,ab,rnib->rn", u, bent, u, optimize=True)
        + 0.25 * neurons * np.sum(bent * at.inverse_K)
    )
    values = _evaluated(function, z)
    infinite, error = _mean(values, weights)
    # The ratio averages to zero: what F is on average adds noise only.
    correction, second = _mean((values - infinite) * _beside(ratio, values), weights)
    return ObservableMean(infinite, correction, (error, second), at.fan_in)


def observable_covariance(
    network: MLP,
    x: object,
    first: Function,
    second: Function,
    *,
    layer: int | None = None,
    count: int = 2**18,
    seed: int = 0,
) -> ObservableMean:
    """Cov[F(z_i), G(z_j)] of functions of two different neurons of a layer (8.41), to order 1/n.

    **Arguments:**

    - `network`, `x`, `layer`, `count`, `seed`: as for `observable_mean`.
    - `first`, `second`: F and G, of an array (1, N) of one neuron each, to a number.

    **Returns:** `ObservableMean`, its `infinite` 0: different neurons are independent there. The
    correction is ∂⟨F⟩ V ∂⟨G⟩ with derivatives in K.

    >>> net = MLP([2, 30, 30, 1], "relu", C_b=0.0, C_W=2.0)
    >>> both = lambda z: jnp.sum(z**2)
    >>> found = observable_covariance(net, [[1.0, 1.0]], both, both)
    >>> float(found.correction.round(6))                                  # V = 10K²
    40.0
    """
    z, weights, at = _prepared(network, x, layer, 1, count, seed, ("V",))
    slopes = [_slope(function, z, weights, at) for function in (first, second)]
    if any(slope.ndim != 3 for slope in slopes):
        raise InvalidValueError("shape of F", slopes[0].shape[3:], "expected numbers, not arrays")
    # Replicas of F against their common mean of G, and the other way round: errors to first order.
    means = [slope.mean(axis=0) for slope in slopes]
    value = np.einsum("ab,abcd,cd->", means[0], at["V"], means[1])
    parts = np.einsum("rab,abcd,cd->r", slopes[0], at["V"], means[1])
    parts = parts + np.einsum("ab,abcd,rcd->r", means[0], at["V"], slopes[1])
    _, error = _spread(parts)
    zero = np.zeros(())
    return ObservableMean(zero, np.asarray(value), (zero, error), at.fan_in)


def observable_ntk_correlation(
    network: MLP,
    x: object,
    function: Function,
    *,
    layer: int | None = None,
    neurons: int = 2,
    count: int = 2**18,
    seed: int = 0,
) -> ObservableMean:
    """E[O(z^(ℓ)) ΔH_{ij;ab}] of any function with the NTK of its layer (8.71), to order 1/n.

    δ_ij ½ Σ_m ⟨∂²O/∂z_mc∂z_md⟩ D_cdab + ⟨∂²O/∂z_ic∂z_jd⟩ F_cadb, over n_{ℓ−1}.

    **Arguments:**

    - `network`, `x`, `layer`, `neurons`, `count`, `seed`: as for `observable_mean`.
    - `function`: O, of an array (neurons, N), to a number.

    **Returns:** `ObservableMean` with the axes [i, j, a, b], i and j the neurons of O; its
    `infinite` is 0.

    >>> net = MLP([2, 30, 30, 2], "relu", C_b=0.0, C_W=2.0)
    >>> found = observable_ntk_correlation(net, [[1.0, 1.0]], lambda z: z[0, 0] * z[1, 0])
    >>> found.correction[:, :, 0, 0].round(2) + 0.0     # F between different neurons
    array([[ 0., 24.],
           [24.,  0.]])
    """
    z, weights, at = _prepared(network, x, layer, neurons, count, seed, ("D", "F"))
    u = z @ at.inverse_K
    values = _evaluated(function, z)
    if values.ndim != 2:
        raise InvalidValueError("shape of O", values.shape[2:], "expected a number, not an array")
    weighted = weights * (values - _mean(values, weights)[0])
    bends = np.einsum("rn,rnia,rnjb->rijab", weighted, u, u, optimize=True)
    same = np.einsum("rmmcd,cdab->rab", bends, at["D"])
    crossed = np.einsum("rijcd,cadb->rijab", bends, at["F"])
    parts = crossed + 0.5 * np.einsum("ij,rab->rijab", np.eye(neurons), same)
    (value, error), zero = _spread(parts), np.zeros(parts.shape[1:])
    return ObservableMean(zero, value, (zero, error), at.fan_in)


# --- how --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Layer:
    """K⁻¹ and the tensors of one layer."""

    inverse_K: np.ndarray
    tensors: dict[str, np.ndarray]
    fan_in: int

    def __getitem__(self, name: str) -> np.ndarray:
        return self.tensors[name]


def _grid(covariance: np.ndarray, count: int) -> NodeSet:
    """A product trapezoid grid of about `count` nodes, in two replicas half a step apart."""
    root = square_root(covariance)
    per_axis = max(4, round((count / 2) ** (1.0 / root.shape[1])))
    step = 2.0 * _REACH / per_axis
    nodes = -_REACH + step * (np.arange(per_axis) + np.array([[0.0], [0.5]]))
    axis = (nodes, step * normal_density(nodes))
    return NodeSet(root, 2, per_axis ** root.shape[1], (axis,) * root.shape[1])


def _prepared(
    network: MLP,
    x: object,
    layer: int | None,
    neurons: int,
    count: int,
    seed: int,
    letters: tuple[str, ...],
) -> tuple[np.ndarray, np.ndarray, _Layer]:
    """Nodes z (replica, node, neuron, sample), their weights, and the tensors of the layer."""
    number = network.depth if layer is None else layer
    if not 1 <= number <= network.depth:
        allowed = f"this network has the layers 1 to {network.depth}"
        raise InvalidValueError("layer", layer, allowed)
    if neurons < 1:
        raise InvalidValueError("neurons", neurons, "a function of at least one neuron")
    if not 2**8 <= count <= 2**24:
        raise InvalidValueError("count", count, "expected 2⁸ to 2²⁴ nodes")
    tensors = predict(network, x, ("K", *letters))
    K = tensors["K"][number - 1]
    covariance = np.kron(np.eye(neurons), K)
    if covariance.shape[0] <= _GRID_VARIABLES:
        nodes = _grid(covariance, count)
    else:
        nodes = sobol_nodes(covariance, 2 ** (int(count).bit_length() - 4), seed)
    z, weights = [], []
    for replica in range(nodes.replicas):
        chunks = list(nodes.chunks(replica))
        z.append(np.concatenate([part for part, _ in chunks]).reshape(-1, neurons, K.shape[0]))
        weights.append(np.concatenate([part for _, part in chunks]))
    at = _Layer(
        inverse(K, "K"), {name: tensors[name][number - 1] for name in letters},
        network.widths[number - 1],
    )  # fmt: skip
    return np.stack(z), np.stack(weights), at


@float64
def _evaluated(function: Function, z: np.ndarray) -> np.ndarray:
    """F at every node: (replica, node, …)."""
    batched = jax.jit(jax.vmap(lambda node: jnp.asarray(function(node), dtype=jnp.float64)))
    values = np.stack([np.asarray(batched(jnp.asarray(replica))) for replica in z])
    if not np.all(np.isfinite(values)):
        raise NonFiniteError("the function is not finite at some preactivations")
    return values


def _beside(ratio: np.ndarray, values: np.ndarray) -> np.ndarray:
    return ratio.reshape(*ratio.shape, *[1] * (values.ndim - 2))


def _mean(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The average over nodes and its error, from the replicas."""
    return _spread(np.einsum("rn,rn...->r...", weights, values))


def _spread(replicas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of replicas; of two grids half their difference."""
    error = replicas.std(axis=0, ddof=1) / np.sqrt(len(replicas))
    return np.asarray(replicas.mean(axis=0)), np.asarray(error)


def _slope(function: Function, z: np.ndarray, weights: np.ndarray, at: _Layer) -> np.ndarray:
    """∂⟨F⟩/∂K_ab of every replica, as ½⟨F (uu − K⁻¹)⟩."""
    u, values = (z @ at.inverse_K)[:, :, 0], _evaluated(function, z)
    centred = values - _mean(values, weights)[0]
    return 0.5 * np.einsum("rn,rn...,rna,rnb->rab...", weights, centred, u, u, optimize=True)
