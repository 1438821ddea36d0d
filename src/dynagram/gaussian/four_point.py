"""Four-sample averages for all tuples at once: Cov_K(σ_aσ_b, σ_cσ_d) over pairs of samples.

The parts of σ_aσ_b that are linear and quadratic in z are known exactly through two-sample
averages (they are the Stein derivatives l and J); only the remainder is averaged over shared
nodes, as one matrix product over pair features (algorithms §3). The remainder is small near
criticality and zero for linear networks, so the error bar shrinks where the theory is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float, Int

from dynagram.activations import Activation, powered
from dynagram.errors import InvalidValueError
from dynagram.gaussian.nodes import NodeSet, grid_nodes, sobol_nodes
from dynagram.gaussian.scalar import kernel_derivative, moment
from dynagram.gaussian.two_point import cross_average, two_point_matrix
from dynagram.pairs import pair_indices, pair_numbers

_FIRST_COUNT = 2**11
_LAST_COUNT = 2**17
_GRID_ACCURACY = 1e-9
_GRID_REFINEMENTS = (1.0, 1.4, 2.0)
_MAX_GRID_NODES = 60_000_000


@dataclass(frozen=True)
class PairDerivatives:
    """Stein derivatives of F_ab = ⟨σ_aσ_b⟩ for the upper pairs (a, b): all from two samples.

    `value` F_ab · `linear` (l_a, l_b) = (⟨σ'_aσ_b⟩, ⟨σ_aσ'_b⟩) ·
    `jacobian` ∂F_ab/∂(K_ab, K_aa, K_bb) = (⟨σ'_aσ'_b⟩, ½⟨σ''_aσ_b⟩, ½⟨σ_aσ''_b⟩). On the diagonal
    the first entry is the whole derivative: (2⟨σσ'⟩, 0) and (dF_aa/dK_aa, 0, 0).
    """

    value: Float[np.ndarray, " pair"]
    linear: Float[np.ndarray, "pair 2"]
    jacobian: Float[np.ndarray, "pair 3"]

    def select(self, rows: Int[np.ndarray, " few"]) -> PairDerivatives:
        """The same for some of the pairs."""
        return PairDerivatives(self.value[rows], self.linear[rows], self.jacobian[rows])

    def absolute(self) -> PairDerivatives:
        """|F|, |l|, |J|: carries error bounds."""
        return PairDerivatives(np.abs(self.value), np.abs(self.linear), np.abs(self.jacobian))

    def propagate(
        self, tensor: Float[np.ndarray, "pair *rest"], samples: int
    ) -> Float[np.ndarray, "pair *rest"]:
        """Σ_C (∂F_A/∂K_C) tensor_C: at most three entries per pair, never a full matrix."""
        first, second = pair_indices(samples)
        index = pair_numbers(samples)
        rows = (index[first, second], index[first, first], index[second, second])
        shape = (-1,) + (1,) * (tensor.ndim - 1)
        total = np.zeros_like(tensor)
        for i, row in enumerate(rows):
            total += self.jacobian[:, i].reshape(shape) * tensor[row]
        return total


@dataclass(frozen=True)
class PairCovariance:
    """Cov_K(σ_aσ_b, σ_cσ_d) on upper pairs, and the standard error of its numerical part."""

    value: Float[np.ndarray, "pair pair"]
    standard_error: Float[np.ndarray, "pair pair"]
    nodes: int


def pair_derivatives(sigma: Activation, K: Float[np.ndarray, "n n"]) -> PairDerivatives:
    """F, l and J of every upper pair from five two-sample averages, each evaluated once."""
    first, second = pair_indices(K.shape[0])
    value = two_point_matrix(sigma, K)[first, second]
    mixed = two_point_matrix(sigma, K, 0, 1)
    curved = two_point_matrix(sigma, K, 0, 2)
    slopes = two_point_matrix(sigma, K, 1, 1)[first, second]
    jacobian = np.stack([slopes, 0.5 * curved[second, first], 0.5 * curved[first, second]], axis=1)
    linear = np.stack([mixed[second, first], mixed[first, second]], axis=1)
    # A sample that is zero does not fluctuate: its (possibly infinite) derivatives never count.
    zero = (K[first, first] == 0.0) | (K[second, second] == 0.0)
    jacobian[zero[:, None] & ~np.isfinite(jacobian)] = 0.0
    linear[zero[:, None] & ~np.isfinite(linear)] = 0.0
    diagonal = first == second
    jacobian[diagonal] = 0.0
    jacobian[diagonal, 0] = kernel_derivative(sigma, np.diagonal(K), 1)
    linear[diagonal, 0] *= 2.0
    linear[diagonal, 1] = 0.0
    return PairDerivatives(value, linear, jacobian)


def wick_covariance(K: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "pair pair"]:
    """Cov(z_az_b, z_cz_d) = K_acK_bd + K_adK_bc on upper pairs (1.44)."""
    a, b = pair_indices(K.shape[0])
    return K[np.ix_(a, a)] * K[np.ix_(b, b)] + K[np.ix_(a, b)] * K[np.ix_(b, a)]


def pair_covariance(
    sigma: Activation,
    K: Float[np.ndarray, "n n"],
    derivatives: PairDerivatives,
    *,
    accuracy: float = 1e-4,
    seed: int = 0,
) -> PairCovariance:
    """Cov_K(σ_aσ_b, σ_cσ_d) for all N⁴ tuples, to `accuracy` relative to √(Cov_AA Cov_BB).

    Smooth σ and up to about a dozen samples: deterministic product grids over every four samples.
    Otherwise entries with at most two distinct samples are exact, and for the rest Sobol nodes
    are doubled until every standard error is below `accuracy` times that scale, or 8·2¹⁷ nodes
    are reached. The standard errors are returned either way.
    Cost: 2·M·P² flop for M nodes and P = N(N+1)/2 pairs at matrix-product speed; memory
    O(P² + 8192·P).

    >>> from dynagram.activations import activation
    >>> K = np.array([[1.0]])
    >>> tanh = activation("tanh")
    >>> result = pair_covariance(tanh, K, pair_derivatives(tanh, K))
    >>> result.value.round(10)                      # ⟨σ⁴⟩ − ⟨σ²⟩² at K = 1
    array([[0.09752374]])
    """
    if not 1e-14 < accuracy < 1:
        raise InvalidValueError("accuracy", accuracy, "expected a number between 1e-14 and 1")
    samples = K.shape[0]
    quadratic = derivatives.propagate(derivatives.propagate(wick_covariance(K), samples).T, samples)
    exact = quadratic + _linear_part(derivatives, K)
    by_grid = _grid_covariance(sigma, K, derivatives, exact, accuracy)
    if by_grid is not None:
        return by_grid
    known = _two_sample_entries(sigma, K, derivatives)
    if samples <= 2:
        return PairCovariance(known, np.zeros_like(known), 0)
    return _sobol_covariance(sigma, K, derivatives, exact, known, accuracy, seed)


def _grid_covariance(
    sigma: Activation,
    K: np.ndarray,
    derivatives: PairDerivatives,
    exact: np.ndarray,
    accuracy: float,
) -> PairCovariance | None:
    """Product grids over all samples or, beyond four, over every four of them; None if too many."""
    samples = K.shape[0]
    groups = [np.array(group) for group in combinations(range(samples), min(samples, 4))]
    target = min(accuracy, _GRID_ACCURACY) if samples <= 4 else accuracy
    position = pair_numbers(samples)
    for refine in _GRID_REFINEMENTS:
        grids = [grid_nodes(sigma, K[np.ix_(group, group)], target, refine) for group in groups]
        if any(grid is None for grid in grids):
            return None
        nodes = sum(grid.count * grid.replicas for grid in grids if grid is not None)
        if nodes > _MAX_GRID_NODES:
            return None
        value, error = exact.copy(), np.zeros_like(exact)
        for group, grid in zip(groups, grids, strict=True):
            assert grid is not None
            a, b = pair_indices(group.size)
            rows = position[group[a], group[b]]
            block = np.ix_(rows, rows)
            remainder, error[block] = _remainder_covariance(
                sigma, K[np.ix_(group, group)], derivatives.select(rows), grid
            )
            value[block] = exact[block] + remainder
            if _worst(value[block], error[block]) > accuracy:
                break
        else:
            return PairCovariance(value, error, nodes)
    return None


def _worst(value: np.ndarray, error: np.ndarray) -> float:
    scale = np.sqrt(np.maximum(np.diagonal(value), 0.0))
    return float(np.max(error / np.maximum(np.outer(scale, scale), 1e-290), initial=0.0))


def _sobol_covariance(
    sigma: Activation,
    K: np.ndarray,
    derivatives: PairDerivatives,
    exact: np.ndarray,
    known: np.ndarray,
    accuracy: float,
    seed: int,
) -> PairCovariance:
    """Double the nodes until the error bars are small; keep what two samples give exactly."""
    count = _FIRST_COUNT
    is_known = ~np.isnan(known)
    while True:
        nodes = sobol_nodes(K, count, seed)
        remainder, error = _remainder_covariance(sigma, K, derivatives, nodes)
        value = np.where(is_known, known, exact + remainder)
        error = np.where(is_known, 0.0, error)
        worst = _worst(value, error)
        if worst <= accuracy or count >= _LAST_COUNT:
            return PairCovariance(value, error, count * nodes.replicas)
        # Scrambled Sobol errors fall about like 1/count for smooth remainders.
        growth = max(2, 2 ** math.ceil(math.log2(worst / accuracy)))
        count *= min(_LAST_COUNT // count, growth)


def _two_sample_entries(
    sigma: Activation, K: np.ndarray, derivatives: PairDerivatives
) -> np.ndarray:
    """Entries of at most two distinct samples, by ⟨σ⁴⟩, ⟨σ_a³σ_b⟩, ⟨σ_a²σ_b²⟩; nan elsewhere."""
    samples = K.shape[0]
    position = pair_numbers(samples)
    diagonal = np.arange(samples)
    product = np.full((position.max() + 1,) * 2, np.nan)
    same = position[diagonal, diagonal]
    product[same, same] = moment(sigma, np.diagonal(K), (0, 0, 0, 0))
    a, b = (index.reshape(-1) for index in np.nonzero(~np.eye(samples, dtype=bool)))
    if a.size:
        arguments = (K[a, a], K[b, b], K[a, b])
        cubic = cross_average(powered(sigma, 3), sigma, *arguments)
        square = cross_average(powered(sigma, 2), powered(sigma, 2), *arguments)
        aa, ab, bb = position[a, a], position[a, b], position[b, b]
        product[aa, ab] = product[ab, aa] = cubic
        product[aa, bb] = product[ab, ab] = square
    return product - np.outer(derivatives.value, derivatives.value)


def _linear_part(derivatives: PairDerivatives, K: np.ndarray) -> np.ndarray:
    """Covariance of the parts linear in z: Σ l_γ l'_δ K_γδ."""
    a, b = pair_indices(K.shape[0])
    l_a, l_b = derivatives.linear.T
    rows = l_a[:, None] * K[a] + l_b[:, None] * K[b]
    return rows[:, a] * l_a + rows[:, b] * l_b


def _remainder_covariance(
    sigma: Activation, K: np.ndarray, derivatives: PairDerivatives, nodes: NodeSet
) -> tuple[np.ndarray, np.ndarray]:
    """⟨R_A R_B⟩ of R = σσ − F − l·z − J·(zz − K), whose mean and lower Hermite parts vanish."""
    a, b = pair_indices(K.shape[0])
    estimates = np.zeros((nodes.replicas, a.size, a.size))
    j_ab, j_aa, j_bb = derivatives.jacobian.T
    l_a, l_b = derivatives.linear.T
    offset = derivatives.value - j_ab * K[a, b] - j_aa * K[a, a] - j_bb * K[b, b]
    for replica in range(nodes.replicas):
        for z, weights in nodes.chunks(replica):
            s = sigma.values(z)
            z_a, z_b = z[:, a], z[:, b]
            features = s[:, a] * s[:, b]
            features -= z_a * (l_a + j_ab * z_b + j_aa * z_a)
            features -= z_b * (l_b + j_bb * z_b)
            features -= offset
            estimates[replica] += (features * weights[:, None]).T @ features
    mean = estimates.mean(axis=0)
    if nodes.is_grid:
        return mean, 0.5 * np.abs(estimates[1] - estimates[0])
    return mean, estimates.std(axis=0, ddof=1) / math.sqrt(nodes.replicas)
