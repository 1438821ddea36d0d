"""Four-sample averages for all tuples at once: Cov_K(f_ab, g_cd) of pair functions.

The linear and quadratic parts of a pair function are known exactly (`families`); only the
remainder is averaged, over nodes shared by all tuples, as matrix products of pair features. The
remainder is small near criticality and zero for linear networks, so the error shrinks where the
theory is used most. Derivation: docs/derivations/gaussian-averages.md (D7.13), (D7.14).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._arrays import Array, array_namespace
from dynagram._pairs import pair_indices
from dynagram._precision import float64
from dynagram.activations import Activation
from dynagram.activations._core import product_activation
from dynagram.errors import InvalidValueError
from dynagram.gaussian._families import PairFamily, TwoPoint
from dynagram.gaussian._nodes import CHUNK, REPLICAS, NodeSet, grid_nodes, sobol_nodes
from dynagram.gaussian._replicas import ReplicaMean
from dynagram.gaussian._scalar import moment
from dynagram.gaussian._two_point import cross_average

Orders = tuple[int, int]
Product = tuple[Orders, Orders]
Entries = tuple[np.ndarray, np.ndarray]
MODES = 1 + REPLICAS
_FIRST_COUNT = 2**11
_LAST_COUNT = 2**17
_GRID_REFINEMENTS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.4, 1.7, 2.0)
_MAX_GRID_NODES = 30_000_000
_FEW_SAMPLES = 4


@dataclass(frozen=True, eq=False)
class Covariances:
    """Cov_K(f_A, g_B) of one product of families, with its numerical error.

    `modes[0]` is the value; the sum of squares of the others is the variance of its error. A
    linear recursion applied to all modes alike carries both.
    """

    modes: Float[Array, "mode left right"]
    nodes: int

    @property
    def value(self) -> Float[Array, "left right"]:
        """The covariance."""
        return self.modes[0]

    @property
    def standard_error(self) -> Float[Array, "left right"]:
        """Its numerical standard error, zero where it is exact."""
        return (self.modes[1:] ** 2).sum(axis=0) ** 0.5


class FourPoint:
    """Covariances of pair functions of one layer, from shared two-sample averages and nodes.

    Smooth σ and up to about ten samples: deterministic product grids over every four samples.
    Otherwise entries with at most two distinct samples are exact, and for the rest scrambled Sobol
    nodes are doubled until the standard errors meet `accuracy` or 8·2¹⁷ nodes are used.
    Cost: 2·M·P² flop for M nodes and P ~ N²/2 pairs per product, at matrix-product speed; memory
    (modes + 3)·P² per product and 8192·P per family.

    **Arguments:**

    - `averages`: the `TwoPoint` of the activation and the covariance of the samples.
    - `accuracy`: relative to √(Var f_A · Var g_B), between 1e-14 and 1.
    - `seed`: scrambles the Sobol nodes.
    - `modes`: with fewer than nine the deviations of the replicas are summed with random signs.
    - `on_device`: whether to leave the covariances where JAX computed them.

    >>> from dynagram.activations import activation
    >>> layer = FourPoint(TwoPoint(activation("tanh"), np.array([[1.0]])))
    >>> layer.covariances([((0, 0), (0, 0))])[(0, 0), (0, 0)].value.round(10)   # ⟨σ⁴⟩ − ⟨σ²⟩²
    array([[0.09752374]])
    """

    def __init__(
        self,
        averages: TwoPoint,
        *,
        accuracy: float = 1e-4,
        seed: int = 0,
        modes: int = MODES,
        on_device: bool = False,
    ):
        if not 1e-14 < accuracy < 1:
            raise InvalidValueError("accuracy", accuracy, "expected a number between 1e-14 and 1")
        self.averages, self.accuracy, self.seed = averages, accuracy, seed
        self.modes, self.on_device = modes, on_device
        self._families: dict[Orders, PairFamily] = {}
        self._two_sample: dict[tuple[tuple[int, ...], tuple[int, ...]], np.ndarray] = {}

    def family(self, p: int, q: int) -> PairFamily:
        """The family f_ab = σ^(p)_a σ^(q)_b, made once."""
        if (p, q) not in self._families:
            self._families[p, q] = PairFamily.of(self.averages, p, q)
        return self._families[p, q]

    @float64
    def placed(self, values: Array) -> Array:
        """`values` where the covariances are to be."""
        return jnp.asarray(values) if self.on_device else np.asarray(values)

    @float64
    def covariances(self, products: Sequence[Product]) -> dict[Product, Covariances]:
        """Cov(f, g) for every (left, right) of `products`, in one pass over the nodes."""
        found = self._by_grid(products)
        if found is not None:
            return found
        if self.averages.samples > 2:
            return self._by_sobol(products)
        return {key: Covariances(self._all_known(*key), 0) for key in products}

    @float64
    def beside(
        self, other: FourPoint, covariances: dict[Product, Covariances]
    ) -> dict[Product, Covariances]:
        """Those of `other`, with the averages over up to two samples from here; values alone.

        What nodes have added is left as it is: differences are those of the averages.
        """
        if self.averages.samples <= 2:
            return {key: Covariances(self._all_known(*key), 0) for key in covariances}
        found = {}
        for key, there in covariances.items():
            lower = self._lower_orders(*key) - other._lower_orders(*key)
            value = _written(there.value + lower, *self._two_sample_entries(*key))
            found[key] = Covariances(value[None], there.nodes)
        return found

    def _lower_orders(self, left: Orders, right: Orders) -> Array:
        """Σ l K l' + Σ J (KK + KK) J': the linear and quadratic parts, exactly."""
        f, g = self.family(*left), self.family(*right)
        K = self.placed(self.averages.K)
        by_sample = K[f.first] * f.linear[:, :1] + K[f.second] * f.linear[:, 1:]
        on_first, on_second = g.linear.T[:, None, :]
        linear = by_sample[:, g.first] * on_first + by_sample[:, g.second] * on_second
        return linear + g.propagate(f.propagate(wick_covariance(K)).T)

    def _lower_variance(self, orders: Orders) -> np.ndarray:
        """The diagonal of `_lower_orders` of a family with itself."""
        f, K = self.family(*orders), self.averages.K
        a, b = f.first, f.second
        l_a, l_b = f.linear.T
        j_ab, j_aa, j_bb = f.jacobian.T
        k_aa, k_ab, k_bb = K[a, a], K[a, b], K[b, b]
        linear = l_a**2 * k_aa + 2.0 * l_a * l_b * k_ab + l_b**2 * k_bb
        squares = j_ab**2 * (k_aa * k_bb + k_ab**2) + 2.0 * (j_aa * k_aa) ** 2
        squares += 2.0 * (j_bb * k_bb) ** 2 + 4.0 * j_aa * j_bb * k_ab**2
        return linear + squares + 4.0 * j_ab * k_ab * (j_aa * k_aa + j_bb * k_bb)

    def _by_grid(self, products: Sequence[Product]) -> dict[Product, Covariances] | None:
        """Product grids over all samples or, beyond four, over every four; None if too many."""
        sigma, K, samples = self.averages.sigma, self.averages.K, self.averages.samples
        # Up to three samples rounding accuracy costs next to nothing.
        target = min(self.accuracy, 1e-11) if samples <= 3 else 0.1 * self.accuracy
        # Pair functions of an odd or even σ are even when both derivatives are, or neither is.
        even = sigma.parity != "none" and all((p - q) % 2 == 0 for key in products for p, q in key)
        for refine in _GRID_REFINEMENTS:
            grids, nodes = [], 0
            # One by one: at 32 samples there are 36 000 groups of four.
            for members in combinations(range(samples), min(samples, 4)):
                group = np.array(members)
                grid = grid_nodes(sigma, K[np.ix_(group, group)], target, refine, even=even)
                if grid is None:
                    return None
                grids.append((group, grid))
                nodes += grid.count * grid.replicas
                if nodes > _MAX_GRID_NODES:
                    return None
            found = self._filled(grids, products, 10 * target)
            if found is not None:
                return {key: Covariances(found[key], nodes) for key in products}
        return None

    def _filled(
        self,
        grids: Sequence[tuple[np.ndarray, NodeSet]],
        products: Sequence[Product],
        accuracy: float,
    ) -> dict[Product, Array] | None:
        """The modes by the grids of all groups of samples; None when one misses the accuracy."""
        exact = {key: np.asarray(self._lower_orders(*key)) for key in products}
        modes = {key: np.zeros((self.modes, *exact[key].shape)) for key in products}
        names = sorted({orders for key in products for orders in key})
        lower = {orders: self._lower_variance(orders) for orders in names}
        for group, grid in grids:
            parts = {orders: _restricted(self.family(*orders), group) for orders in names}
            families = {orders: family for orders, (family, _) in parts.items()}
            K = self.averages.K[np.ix_(group, group)]
            first, second = sum_over_nodes(self.averages.sigma, K, families, products, grid)
            for key in products:
                rows, columns = (parts[orders][1] for orders in key)
                block = np.ix_(rows, columns)
                one, two = np.asarray(first.products[key]), np.asarray(second.products[key])
                error = 0.5 * (two - one)
                spread = [
                    0.5 * (first.squares[o] + second.squares[o]) + lower[o][parts[o][1]]
                    for o in key
                ]
                if _worst(np.abs(error), *spread) > accuracy:
                    return None
                modes[key][0][block] = exact[key][block] + 0.5 * (one + two)
                modes[key][1][block] = error
        return {key: self.placed(values) for key, values in modes.items()}

    def _by_sobol(self, products: Sequence[Product]) -> dict[Product, Covariances]:
        names = sorted({orders for key in products for orders in key})
        families = {orders: self.family(*orders) for orders in names}
        lower = {orders: self._lower_variance(orders) for orders in names}
        known = {key: self._two_sample_entries(*key) for key in products}
        count = _FIRST_COUNT
        while True:
            nodes = sobol_nodes(self.averages.K, count, self.seed)
            found = {key: ReplicaMean(nodes.replicas, self.modes, self.seed) for key in products}
            variance = dict(lower)
            for sums in sum_over_nodes(
                self.averages.sigma, self.averages.K, families, products, nodes
            ):
                for key in products:
                    found[key].add(self.placed(sums.products.pop(key)))
                for orders in names:
                    variance[orders] = variance[orders] + sums.squares[orders] / nodes.replicas
            worst = max(
                _worst(
                    _written(found[key].standard_error, known[key][0], 0.0),
                    *(variance[o] for o in key),
                )
                for key in products
            )
            if worst <= self.accuracy or count >= _LAST_COUNT:
                break
            # Scrambled Sobol errors fall about like 1/count for smooth remainders.
            growth = max(2, 2 ** math.ceil(math.log2(worst / self.accuracy)))
            count *= min(_LAST_COUNT // count, growth)
        return {
            key: Covariances(self._settled(found.pop(key), key, *known[key]), count * REPLICAS)
            for key in products
        }

    def _settled(
        self, remainder: ReplicaMean, key: Product, entries: Entries, known: np.ndarray
    ) -> Array:
        """The modes of a covariance: lower orders added, entries known exactly written over."""
        value = _written(remainder.mean + self._lower_orders(*key), entries, known)
        deviations = [_written(mode, entries, 0.0) for mode in remainder.deviations]
        return array_namespace(value).stack([value, *deviations])

    def _all_known(self, left: Orders, right: Orders) -> Array:
        """The modes when there are no more than two samples."""
        entries, known = self._two_sample_entries(left, right)
        sizes = (self.family(*orders).value.size for orders in (left, right))
        modes = np.zeros((self.modes, *sizes))
        modes[0][entries] = known
        return self.placed(modes)

    def _two_sample_entries(self, left: Orders, right: Orders) -> tuple[Entries, np.ndarray]:
        """Where at most two samples are involved, and the covariance there."""
        f, g = self.family(*left), self.family(*right)
        samples, orders = self.averages.samples, (*left, *right)
        u, v = (index[~np.eye(samples, dtype=bool)] for index in np.indices((samples, samples)))
        rows, columns, values = [], [], []
        # The first slot holds u; bit i says that slot i + 1 holds v.
        for code in range(8):
            on_v = [False, *(bool(code >> i & 1) for i in range(3))]
            first = tuple(sorted(o for o, is_v in zip(orders, on_v, strict=True) if not is_v))
            second = tuple(sorted(o for o, is_v in zip(orders, on_v, strict=True) if is_v))
            here, there = (u, v) if code else (np.arange(samples),) * 2
            slots = [there if is_v else here for is_v in on_v]
            rows.append(f.matrix()[slots[0], slots[1]])
            columns.append(g.matrix()[slots[2], slots[3]])
            values.append(self._cross(first, second)[here, there])
        entries = (np.concatenate(rows), np.concatenate(columns))
        return entries, np.concatenate(values) - f.value[entries[0]] * g.value[entries[1]]

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


def wick_covariance(K: Float[Array, "n n"]) -> Float[Array, "pair pair"]:
    """Cov(z_az_b, z_cz_d) = K_acK_bd + K_adK_bc on upper pairs (1.44)."""
    a, b = pair_indices(K.shape[0])
    return K[np.ix_(a, a)] * K[np.ix_(b, b)] + K[np.ix_(a, b)] * K[np.ix_(b, a)]


def _worst(error: Array, left: np.ndarray, right: np.ndarray) -> float:
    """Largest error relative to √(Var f Var g), leaving out functions that do not vary."""
    xp = array_namespace(error)
    left, right = (np.sqrt(np.maximum(variance, 0.0)) for variance in (left, right))
    floor = max(1e-12 * float(np.max(left, initial=0.0) * np.max(right, initial=0.0)), 1e-290)
    scale = xp.maximum(xp.asarray(left)[:, None] * right[None, :], floor)
    return float(xp.max(error / scale, initial=0.0))


def _written(values: Array, entries: Entries, new: np.ndarray | float) -> Array:
    """`values` with some entries replaced; a NumPy array is changed in place."""
    if isinstance(values, jax.Array):
        return values.at[entries].set(new)
    values[entries] = new
    return values


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


@dataclass(frozen=True)
class NodeSums:
    """⟨R_A R_B⟩ of every product and ⟨R_A²⟩ of every family, of one replica."""

    products: dict[Product, jax.Array]
    squares: dict[Orders, np.ndarray]


def sum_over_nodes(
    sigma: Activation,
    K: np.ndarray,
    families: dict[Orders, PairFamily],
    products: Sequence[Product],
    nodes: NodeSet,
) -> Iterator[NodeSums]:
    """Averages over nodes of the remainders R = f − ⟨f⟩ − l·z − J·(zz − K), replica by replica.

    Call inside float64. Cost: 2·P·P' operations per node and product.
    """
    names = tuple(families)
    constants = tuple(_constants(families[o], K) for o in names)
    chosen = tuple((names.index(left), names.index(right)) for left, right in products)
    accumulate = _accumulator(sigma, names, chosen)
    # One size, compiled once: of more samples a smaller one fills matrix products as well.
    size = CHUNK if K.shape[0] <= _FEW_SAMPLES else _FIRST_COUNT
    pairs = [families[o].value.size for o in names]
    zero = (  # on the accelerator: for a hundred samples they are gigabytes
        tuple(jnp.zeros((pairs[left], pairs[right])) for left, right in chosen),
        tuple(jnp.zeros(count) for count in pairs),
    )
    for replica in range(nodes.replicas):
        sums: Any = zero
        for chunk_z, chunk_weights in nodes.chunks(replica):
            for start in range(0, chunk_z.shape[0], size):
                z, weights = chunk_z[start : start + size], chunk_weights[start : start + size]
                padded_z, padded_w = np.zeros((size, z.shape[1])), np.zeros(size)
                padded_z[: z.shape[0]], padded_w[: z.shape[0]] = z, weights
                sums = accumulate(padded_z, padded_w, constants, sums)
        yield NodeSums(
            dict(zip(products, sums[0], strict=True)),
            {orders: np.asarray(part) for orders, part in zip(names, sums[1], strict=True)},
        )


def _constants(family: PairFamily, K: np.ndarray) -> jax.Array:
    """The six coefficients of the remainder of every ordered pair, as (6, n, n)."""
    a, b = family.first, family.second
    j_ab, j_aa, j_bb = family.jacobian.T
    offset = family.value - j_ab * K[a, b] - j_aa * K[a, a] - j_bb * K[b, b]
    table = np.zeros((6, *K.shape))
    table[:, a, b] = (offset, *family.linear.T, j_ab, j_aa, j_bb)
    return jax.device_put(table)


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
        return jax.tree.map(jnp.add, sums, (products, squares))

    return accumulate
