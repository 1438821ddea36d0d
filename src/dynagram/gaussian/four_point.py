"""Four-sample averages for all tuples at once: Cov_K(f_ab, g_cd) of pair functions.

The linear and quadratic parts of a pair function are known exactly (`families`); only the
remainder is averaged, over nodes shared by all tuples, as matrix products of pair features
(algorithms §3). The remainder is small near criticality and zero for linear networks, so the
error shrinks where the theory is used most.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation, product_activation
from dynagram.errors import InvalidValueError
from dynagram.gaussian.families import PairFamily, TwoPoint
from dynagram.gaussian.nodes import CHUNK, REPLICAS, NodeSet, grid_nodes, sobol_nodes
from dynagram.gaussian.scalar import moment
from dynagram.gaussian.two_point import cross_average
from dynagram.pairs import pair_indices
from dynagram.precision import float64

Orders = tuple[int, int]
Product = tuple[Orders, Orders]
MODES = 1 + REPLICAS
_FIRST_COUNT = 2**11
_LAST_COUNT = 2**17
_GRID_REFINEMENTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.7, 2.0)
_MAX_GRID_NODES = 30_000_000


@dataclass(frozen=True, eq=False)
class Covariances:
    """Cov_K(f_A, g_B) of one product of families, with its numerical error.

    `modes[0]` is the value; the sum of squares of the others is the variance of its error. A
    linear recursion applied to all modes alike carries both.
    """

    modes: Float[np.ndarray, "mode left right"]
    nodes: int

    @property
    def value(self) -> Float[np.ndarray, "left right"]:
        """The covariance."""
        return self.modes[0]

    @property
    def standard_error(self) -> Float[np.ndarray, "left right"]:
        """Its numerical standard error, zero where it is exact."""
        return np.sqrt(np.sum(self.modes[1:] ** 2, axis=0))


class FourPoint:
    """Covariances of pair functions of one layer, from shared two-sample averages and nodes.

    `accuracy` is relative to √(Var f_A · Var g_B). Smooth σ and up to about ten samples:
    deterministic product grids over every four samples. Otherwise entries with at most two
    distinct samples are exact, and for the rest scrambled Sobol nodes are doubled until the
    standard errors meet `accuracy` or 8·2¹⁷ nodes are used.
    Cost: 2·M·P² flop for M nodes and P ~ N²/2 pairs per product, at matrix-product speed; memory
    O(P² + 8192·P).

    >>> from dynagram.activations import activation
    >>> layer = FourPoint(TwoPoint(activation("tanh"), np.array([[1.0]])))
    >>> layer.covariances([((0, 0), (0, 0))])[(0, 0), (0, 0)].value.round(10)   # ⟨σ⁴⟩ − ⟨σ²⟩²
    array([[0.09752374]])
    """

    def __init__(self, averages: TwoPoint, *, accuracy: float = 1e-4, seed: int = 0):
        if not 1e-14 < accuracy < 1:
            raise InvalidValueError("accuracy", accuracy, "expected a number between 1e-14 and 1")
        self.averages, self.accuracy, self.seed = averages, accuracy, seed
        self._families: dict[Orders, PairFamily] = {}
        self._two_sample: dict[tuple[tuple[int, ...], tuple[int, ...]], np.ndarray] = {}

    def family(self, p: int, q: int) -> PairFamily:
        """The family f_ab = σ^(p)_a σ^(q)_b, made once."""
        if (p, q) not in self._families:
            self._families[p, q] = PairFamily.of(self.averages, p, q)
        return self._families[p, q]

    def covariances(self, products: Sequence[Product]) -> dict[Product, Covariances]:
        """Cov(f, g) for every (left, right) of `products`, in one pass over the nodes."""
        exact = {key: self._lower_orders(*key) for key in products}
        found = self._by_grid(products, exact)
        if found is not None:
            return found
        known = {key: self._two_sample_entries(*key) for key in products}
        if self.averages.samples <= 2:
            return {key: Covariances(_modes_of(known[key]), 0) for key in products}
        return self._by_sobol(products, exact, known)

    def _lower_orders(self, left: Orders, right: Orders) -> np.ndarray:
        """Σ l K l' + Σ J (KK + KK) J': the linear and quadratic parts, exactly."""
        f, g = self.family(*left), self.family(*right)
        K = self.averages.K
        by_sample = K[f.first] * f.linear[:, :1] + K[f.second] * f.linear[:, 1:]
        linear = by_sample[:, g.first] * g.linear[:, 0] + by_sample[:, g.second] * g.linear[:, 1]
        wick = wick_covariance(K)
        return linear + g.propagate(f.propagate(wick).T)

    def _by_grid(
        self, products: Sequence[Product], exact: dict[Product, np.ndarray]
    ) -> dict[Product, Covariances] | None:
        """Product grids over all samples or, beyond four, over every four; None if too many."""
        sigma, K, samples = self.averages.sigma, self.averages.K, self.averages.samples
        groups = [np.array(group) for group in combinations(range(samples), min(samples, 4))]
        # Up to three samples rounding accuracy costs next to nothing.
        target = min(self.accuracy, 1e-11) if samples <= 3 else 0.1 * self.accuracy
        # Pair functions of an odd or even σ are even when both derivatives are, or neither is.
        even = sigma.parity != "none" and all((p - q) % 2 == 0 for key in products for p, q in key)
        for refine in _GRID_REFINEMENTS:
            grids, nodes = [], 0
            for group in groups:  # one by one: at 32 samples there are 36 000
                grid = grid_nodes(sigma, K[np.ix_(group, group)], target, refine, even=even)
                if grid is None:
                    return None
                grids.append(grid)
                nodes += grid.count * grid.replicas
                if nodes > _MAX_GRID_NODES:
                    return None
            modes = {key: _modes_of(exact[key]) for key in products}
            if all(
                self._fill_group(group, grid, products, exact, modes, 10 * target)
                for group, grid in zip(groups, grids, strict=True)
            ):
                return {key: Covariances(modes[key], nodes) for key in products}
        return None

    def _fill_group(
        self,
        group: np.ndarray,
        grid: NodeSet,
        products: Sequence[Product],
        exact: dict[Product, np.ndarray],
        modes: dict[Product, np.ndarray],
        accuracy: float,
    ) -> bool:
        """Write the block of one group of samples; False when it misses the accuracy."""
        names = sorted({orders for key in products for orders in key})
        parts = {orders: _restricted(self.family(*orders), group) for orders in names}
        families = {orders: family for orders, (family, _) in parts.items()}
        K = self.averages.K[np.ix_(group, group)]
        remainder, variance = _remainders(self.averages.sigma, K, families, products, grid)
        for key in products:
            rows, columns = parts[key[0]][1], parts[key[1]][1]
            block = np.ix_(rows, columns)
            mean = exact[key][block] + remainder[key].mean(axis=0)
            error = 0.5 * (remainder[key][1] - remainder[key][0])
            spread = [
                variance[orders] + np.diagonal(self._lower_orders(orders, orders))[index]
                for orders, (_, index) in ((key[0], parts[key[0]]), (key[1], parts[key[1]]))
            ]
            if _worst(np.abs(error), *spread) > accuracy:
                return False
            modes[key][0][block], modes[key][1][block] = mean, error
        return True

    def _by_sobol(
        self,
        products: Sequence[Product],
        exact: dict[Product, np.ndarray],
        known: dict[Product, np.ndarray],
    ) -> dict[Product, Covariances]:
        names = sorted({orders for key in products for orders in key})
        families = {orders: self.family(*orders) for orders in names}
        lower = {o: np.diagonal(self._lower_orders(o, o)) for o in names}
        count = _FIRST_COUNT
        while True:
            nodes = sobol_nodes(self.averages.K, count, self.seed)
            remainder, variance = _remainders(
                self.averages.sigma, self.averages.K, families, products, nodes
            )
            result, worst = {}, 0.0
            for key in products:
                modes = _replica_modes(exact[key][None] + remainder[key])
                settled = ~np.isnan(known[key])
                modes[0] = np.where(settled, known[key], modes[0])
                modes[1:] = np.where(settled, 0.0, modes[1:])
                result[key] = Covariances(modes, count * nodes.replicas)
                spread = [variance[o] + lower[o] for o in key]
                worst = max(worst, _worst(result[key].standard_error, *spread))
            if worst <= self.accuracy or count >= _LAST_COUNT:
                return result
            # Scrambled Sobol errors fall about like 1/count for smooth remainders.
            growth = max(2, 2 ** math.ceil(math.log2(worst / self.accuracy)))
            count *= min(_LAST_COUNT // count, growth)

    def _two_sample_entries(self, left: Orders, right: Orders) -> np.ndarray:
        """Entries with at most two distinct samples from two-sample averages; nan elsewhere."""
        f, g = self.family(*left), self.family(*right)
        slots = np.broadcast_arrays(
            f.first[:, None], f.second[:, None], g.first[None, :], g.second[None, :]
        )
        orders = (*left, *right)
        u = slots[0]
        v = u
        for slot in slots[:0:-1]:
            v = np.where(slot != u, slot, v)
        two = np.all([(slot == u) | (slot == v) for slot in slots], axis=0)
        result = np.full(u.shape, np.nan)
        pattern = np.zeros(u.shape, dtype=int)
        for i, slot in enumerate(slots):
            pattern += ((slot == v) & (v != u)) << i
        for code in np.unique(pattern[two]):
            here = two & (pattern == code)
            on_v = [bool(code >> i & 1) for i in range(4)]
            first = tuple(sorted(o for o, is_v in zip(orders, on_v, strict=True) if not is_v))
            second = tuple(sorted(o for o, is_v in zip(orders, on_v, strict=True) if is_v))
            result[here] = self._cross(first, second)[u[here], v[here]]
        return result - np.outer(f.value, g.value)

    def _cross(self, first: tuple[int, ...], second: tuple[int, ...]) -> np.ndarray:
        """⟨Π σ^(p)(z_a) Π σ^(q)(z_b)⟩ for all a, b; without `second` the average at a."""
        key = (first, second)
        if key not in self._two_sample:
            sigma, K = self.averages.sigma, self.averages.K
            if not second:
                table = np.diag(moment(sigma, np.diagonal(K), first))
            else:
                a, b = np.nonzero(~np.eye(K.shape[0], dtype=bool))
                table = np.full(K.shape, np.nan)
                f, g = product_activation(sigma, first), product_activation(sigma, second)
                table[a, b] = cross_average(f, g, K[a, a], K[b, b], K[a, b])
            self._two_sample[key] = table
        return self._two_sample[key]


def wick_covariance(K: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "pair pair"]:
    """Cov(z_az_b, z_cz_d) = K_acK_bd + K_adK_bc on upper pairs (1.44)."""
    a, b = pair_indices(K.shape[0])
    return K[np.ix_(a, a)] * K[np.ix_(b, b)] + K[np.ix_(a, b)] * K[np.ix_(b, a)]


def _modes_of(value: np.ndarray) -> np.ndarray:
    """`value` without error."""
    modes = np.zeros((MODES, *value.shape))
    modes[0] = value
    return modes


def _replica_modes(replicas: np.ndarray) -> np.ndarray:
    """The mean of independent replicas, and deviations that add up to its variance."""
    mean = replicas.mean(axis=0)
    scale = math.sqrt(replicas.shape[0] * (replicas.shape[0] - 1))
    return np.concatenate([mean[None], (replicas - mean) / scale])


def _worst(error: np.ndarray, left: np.ndarray, right: np.ndarray) -> float:
    """Largest error relative to √(Var f Var g), leaving out functions that do not vary."""
    scale = np.sqrt(np.outer(np.maximum(left, 0.0), np.maximum(right, 0.0)))
    floor = max(1e-12 * float(np.max(scale, initial=0.0)), 1e-290)
    return float(np.max(error / np.maximum(scale, floor), initial=0.0))


def _restricted(family: PairFamily, group: np.ndarray) -> tuple[PairFamily, np.ndarray]:
    """The pairs of a family inside a group of samples, renumbered, and where they stand."""
    position = family.matrix()
    if family.p == family.q:
        a, b = pair_indices(group.size)
    else:
        a, b = (index.reshape(-1) for index in np.indices((group.size, group.size)))
    rows = position[group[a], group[b]]
    part = PairFamily(
        family.p, family.q, a, b, family.value[rows], family.linear[rows], family.jacobian[rows]
    )
    return part, rows


@float64
def _remainders(
    sigma: Activation,
    K: np.ndarray,
    families: dict[Orders, PairFamily],
    products: Sequence[Product],
    nodes: NodeSet,
) -> tuple[dict[Product, np.ndarray], dict[Orders, np.ndarray]]:
    """⟨R_A R_B⟩ per replica and ⟨R_A²⟩ of R = f − ⟨f⟩ − l·z − J·(zz − K)."""
    names = tuple(families)
    constants = tuple(_constants(families[o], K) for o in names)
    chosen = tuple((names.index(left), names.index(right)) for left, right in products)
    accumulate = _accumulator(sigma, names, chosen)
    totals = {key: [] for key in products}
    squares = {o: np.zeros(families[o].value.size) for o in names}
    size = 1024 if nodes.count <= 1024 else CHUNK
    for replica in range(nodes.replicas):
        sums = None
        for z, weights in nodes.chunks(replica):
            padded_z, padded_w = np.zeros((size, z.shape[1])), np.zeros(size)
            padded_z[: z.shape[0]], padded_w[: z.shape[0]] = z, weights
            sums = accumulate(jnp.asarray(padded_z), jnp.asarray(padded_w), constants, sums)
        assert sums is not None
        for key, part in zip(products, sums[0], strict=True):
            totals[key].append(np.asarray(part))
        for orders, part in zip(names, sums[1], strict=True):
            squares[orders] += np.asarray(part) / nodes.replicas
    return {key: np.stack(parts) for key, parts in totals.items()}, squares


def _constants(family: PairFamily, K: np.ndarray) -> jax.Array:
    """The six coefficients of the remainder of every ordered pair, as (6, n, n)."""
    a, b = family.first, family.second
    j_ab, j_aa, j_bb = family.jacobian.T
    offset = family.value - j_ab * K[a, b] - j_aa * K[a, a] - j_bb * K[b, b]
    table = np.zeros((6, *K.shape))
    table[:, a, b] = (offset, *family.linear.T, j_ab, j_aa, j_bb)
    return jnp.asarray(table)


@functools.lru_cache(maxsize=64)
def _accumulator(sigma: Activation, names: tuple[Orders, ...], chosen: tuple[tuple[int, int], ...]):
    """One compiled pass over a chunk of nodes: features, weighted matrix products, sums.

    Features are outer products over samples, (nodes, n, n) in one fused loop; of those with p = q
    the upper pairs go on to the products, which are a quarter as large.
    """
    orders = sorted({order for name in names for order in name})

    @jax.jit
    def accumulate(z: jax.Array, weights: jax.Array, constants, sums):
        values = {order: sigma.derivative(order)(z) for order in orders}
        z_a, z_b = z[:, :, None], z[:, None, :]
        features = []
        for (p, q), table in zip(names, constants, strict=True):
            offset, l_a, l_b, j_ab, j_aa, j_bb = (row[None] for row in table)
            lower = z_a * (l_a + j_ab * z_b + j_aa * z_a) + z_b * (l_b + j_bb * z_b)
            feature = values[p][:, :, None] * values[q][:, None, :] - lower - offset
            if p == q:
                a, b = pair_indices(z.shape[1])
                features.append(feature[:, a, b])
            else:
                features.append(feature.reshape(z.shape[0], -1))
        weighted = [feature * weights[:, None] for feature in features]
        products = tuple(weighted[left].T @ features[right] for left, right in chosen)
        squares = tuple(
            jnp.sum(w * feature, axis=0) for w, feature in zip(weighted, features, strict=True)
        )
        new = (products, squares)
        return new if sums is None else jax.tree.map(jnp.add, sums, new)

    return accumulate
