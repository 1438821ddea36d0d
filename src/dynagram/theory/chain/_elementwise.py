"""Layers that act neuron by neuron: o = σ(h), or σ(h)·g with a gate, on all derivative fields.

The Gram matrix of m such features has the mean F(Σ) = ⟨o o⟩_Σ and the covariance
(1/m)[⟨oooo⟩ − ⟨oo⟩⟨oo⟩]; the derivatives of F act at the two samples of an entry only.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

from dynagram.activations import Activation
from dynagram.gaussian._families import TwoPoint, curvature
from dynagram.gaussian._four_point import FourPoint, Product
from dynagram.gaussian._rounding import is_steep
from dynagram.theory.chain._fields import PLAIN, TANGENT, Key, Pair
from dynagram.theory.chain._monomials import (
    Monomial,
    Variable,
    features,
    variables,
    weight,
)
from dynagram.theory.chain._state import (
    Kernel,
    Register,
    Shift,
    State,
    Term,
    Vertex,
    pick_four,
    shift_of,
)


class Features:
    """σ of one register, gated by another if there is one; `width` neurons.

    `accuracy` and `seed` are those of the four-sample averages.
    """

    def __init__(
        self,
        state: State,
        sigma: Activation,
        numbers: Sequence[int],
        width: int,
        *,
        accuracy: float,
        seed: int,
    ):
        self.state, self.sigma, self.numbers, self.width = state, sigma, tuple(numbers), width
        self.gated = len(self.numbers) == 2
        self.inputs = [state.registers[number] for number in self.numbers]
        self.averages = TwoPoint(sigma, self.inputs[0].K[0])
        self.four = FourPoint(self.averages, accuracy=accuracy, seed=seed, modes=state.modes)

    def run(self) -> int:
        """The register of the features' Gram matrix."""
        products = sorted(self._products(self.state.keys))
        self._covariances = self.four.covariances(products) if products else {}
        sizes = self.inputs[0].K
        kernels = {s: self._mean((2**s - 1, 2**s - 1)) for s in sizes}
        shifts = {s: self._shift(pair) for s, pair in ((0, PLAIN), (1, TANGENT))
                  if s in self.inputs[0].shift}  # fmt: skip
        return self.state.carry(Register(kernels, shifts), self._terms, self._source)

    # --- averages over two samples ------------------------------------------------------------

    def _mean(self, fields: Pair) -> Kernel:
        total = np.zeros_like(self.inputs[0].K[0])
        for monomial in features(fields, self.gated):
            total = total + self._two(monomial)
        return total

    def _two(self, monomial: Monomial) -> Kernel | float:
        """The average of a monomial of two slots, for all a, b."""
        ways = monomial.contractions()
        if not ways:
            return 0.0
        total = 0.0
        for way in ways:
            part: Kernel | float = 1.0
            for family, s, _, _ in way:  # of two slots: always one and the other
                part = part * self.inputs[family].K[s]
            total = total + part
        return self._slope(*monomial.orders, *monomial.extra) * total

    def _slope(self, p: int, q: int, k: int, m: int) -> Kernel:
        """⟨∂_a^k ∂_b^m (σ^(p)_a σ^(q)_b)⟩; kinks through derivatives of the Gaussian.

        Those of a steep σ too, for on the diagonal the parts of a derivative in K cancel.
        """
        along_kernel = k + m == 2 or (k + m == 4 and p == q)
        steep = is_steep(self.sigma) and along_kernel
        if (self.sigma.is_smooth and not steep) or k + m < 2:
            return self.averages(p + k, q + m)
        if k + m == 2:
            family = self.four.family(p, q)
            j_ab, j_aa, j_bb = family.jacobian[family.matrix()].transpose(2, 0, 1)
            if p == q:  # stored once: which of the two is a depends on the order
                swapped = np.tril(np.ones_like(j_ab, dtype=bool), -1)
                j_aa, j_bb = np.where(swapped, j_bb, j_aa), np.where(swapped, j_aa, j_bb)
            return {(1, 1): j_ab, (2, 0): 2.0 * j_aa, (0, 2): 2.0 * j_bb}[k, m]
        return self._fourth(p, (k, m))

    def _fourth(self, p: int, orders: tuple[int, int]) -> Kernel:
        """Fourth derivatives of ⟨σ^(p)σ^(p)⟩ from the table of second derivatives in K."""
        samples = self.averages.samples
        column, factor = {
            (2, 2): (0, 2.0), (4, 0): (1, 8.0), (0, 4): (2, 8.0), (3, 1): (3, 2.0), (1, 3): (4, 2.0)
        }[orders]  # fmt: skip
        mirrored = {1: 2, 2: 1, 3: 4, 4: 3}.get(column, column)
        table = curvature(self.averages, p)
        a, b = np.triu_indices(samples)
        matrix = np.zeros((samples, samples))
        matrix[b, a] = factor * table[:, mirrored]
        matrix[a, b] = factor * table[:, column]
        return matrix

    # --- how the mean moves with the covariances ----------------------------------------------

    def _terms(self, fields: Pair) -> list[Term]:
        terms = []
        for first, second in variables(fields, self.gated):
            coefficient = weight(first, second) * self._derived(fields, first, second)
            if np.any(coefficient):
                terms.append(_term(self.numbers, first, second, np.asarray(coefficient)))
        return terms

    def _derived(self, fields: Pair, *along: Variable) -> Kernel | float:
        total: Kernel | float = 0.0
        for monomial in features(fields, self.gated):
            current: Monomial | None = monomial
            for variable in along:
                current = None if current is None else current.derivative(variable)
            if current is not None:
                total = total + self._two(current)
        return total

    def _shift(self, fields: Pair) -> Shift:
        """J·shift + ½ ∂²F : V."""
        total = np.zeros((self.state.modes, *self.inputs[0].K[0].shape))
        for term in self._terms(fields):
            moved = shift_of(self.state, term)
            if moved is not None:
                total = total + moved
        listed = variables(fields, self.gated)
        for one in listed:
            for two in listed:
                entry = _entry(self.state, self.numbers, one, two)
                if entry is None:
                    continue
                coefficient = self._derived(fields, *one, *two)
                if not np.any(coefficient):
                    continue
                # An entry that is exactly zero does not vary: an infinite slope there is nothing.
                entry = np.where(entry == 0.0, 0.0, entry)
                with np.errstate(invalid="ignore"):
                    part = 0.5 * weight(*one) * weight(*two) * coefficient * entry
                total = total + np.where(entry == 0.0, 0.0, part)
        return total

    # --- fluctuations of the sum over neurons -------------------------------------------------

    def _products(self, keys: Iterable[Key]) -> set[Product]:
        """The four-sample averages that the sources need."""
        found = set()
        for left, right in keys:
            for monomial in features((*left, *right), self.gated):
                if monomial.contractions():
                    found.add(_matched(monomial.orders)[0])
        return found

    def _four(self, orders: tuple[int, ...]) -> Vertex:
        """⟨∏ σ^(p)⟩ over four samples, with the axes in the order of the slots."""
        (left, right), slots = _matched(orders)
        f, g = self.four.family(*left), self.four.family(*right)
        modes = np.array(self._covariances[left, right].modes)
        modes[0] += f.value[:, None] * g.value[None, :]
        samples = self.averages.samples
        for axis, family in ((1, f), (2, g)):
            modes = np.take(modes, family.matrix().reshape(-1), axis=axis)
        values = modes.reshape(-1, *[samples] * 4)
        return np.transpose(values, (0, *(1 + slots.index(i) for i in range(4))))

    def _source(self, key: Key) -> Vertex:
        left, right = key
        samples = self.averages.samples
        total = np.zeros((self.state.modes, *[samples] * 4))
        for monomial in features((*left, *right), self.gated):
            ways = monomial.contractions()
            if not ways:
                continue
            wick: np.ndarray | float = 0.0
            for way in ways:
                part: np.ndarray | float = 1.0
                for family, s, i, j in way:
                    part = part * _at(self.inputs[family].K[s], i, j)
                wick = wick + part
            total = total + self._four(monomial.orders) * wick
        if left[0] == left[1] and right[0] == right[1]:
            product = self._mean(left)[:, :, None, None] * self._mean(right)[None, None]
            total[0] -= product
        return total / self.width


def _term(numbers: Sequence[int], first: Variable, second: Variable, coefficient: Kernel) -> Term:
    return Term(numbers[first[0]], (first[1], second[1]), (first[2], second[2]), coefficient)


def _entry(
    state: State,
    numbers: Sequence[int],
    one: tuple[Variable, Variable],
    two: tuple[Variable, Variable],
) -> Float[np.ndarray, "mode _ _"] | None:
    key = ((one[0][1], one[1][1]), (two[0][1], two[1][1]))
    (S, S2), (S3, S4) = key
    if S ^ S2 != S3 ^ S4:
        return None
    entry = state.entry(numbers[one[0][0]], numbers[two[0][0]], key)
    return pick_four(entry, (one[0][2], one[1][2], two[0][2], two[1][2]))


def _at(K: Kernel, i: int, j: int) -> Float[np.ndarray, "1 _ _ _ _"]:
    """K with its two indices at slots i and j of four."""
    if i > j:
        K, i, j = K.T, j, i
    shape = [1] * 5
    shape[1 + i], shape[1 + j] = K.shape
    return K.reshape(shape)


@functools.cache
def _matched(orders: tuple[int, ...]) -> tuple[Product, tuple[int, ...]]:
    """Two pairs of orders, of even difference where possible, and the slots in that order.

    Pair functions of even difference are even for odd and even activations: fewer nodes.
    """
    slots = sorted(range(4), key=lambda slot: -orders[slot])
    first = slots[0]
    for partner in (slots[3], slots[2], slots[1]):
        others = [slot for slot in slots if slot not in (first, partner)]
        pairs = ((first, partner), (others[0], others[1]))
        even = all((orders[i] - orders[j]) % 2 == 0 for i, j in pairs)
        if even or partner == slots[1]:
            break
    (i, j), (k, m) = pairs
    left, right = (orders[i], orders[j]), (orders[k], orders[m])
    if right < left:
        return (right, left), (k, m, i, j)
    return (left, right), (i, j, k, m)
