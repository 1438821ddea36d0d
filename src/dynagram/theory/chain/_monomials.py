"""Products of σ-derivatives and Gaussian fields: derivatives and averages, term by term.

A feature o_S of a layer is a sum of monomials σ^(p)(h) ∏ h_B ∏ g_B, with h_B the fields of the
preactivation (Faà di Bruno) and, in gated layers, g_B those of the gate. At infinite width fields
of different sets are independent, so an average is a σ-average over h times Wick contractions.
Derivatives in the covariances are averages of derivatives in the fields (Price's theorem).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from dynagram.theory.chain._fields import partitions, subsets

PRE, GATE = 0, 1  # the two families of fields
Variable = tuple[int, int, int]  # family, field B, slot


@dataclass(frozen=True)
class Monomial:
    """∏_slot σ^(orders)(h_slot), `extra` derivatives on top, times the fields `factors`.

    Derivatives with respect to h_∅ are counted in `extra`, apart from `orders`, because averages
    of kinked activations take them through the Gaussian instead of through σ.
    """

    orders: tuple[int, ...]
    extra: tuple[int, ...]
    factors: tuple[Variable, ...]

    def derivative(self, variable: Variable) -> Monomial | None:
        """∂/∂(a field at a slot); None where it is zero. No field stands twice at a slot."""
        family, B, slot = variable
        if (family, B) == (PRE, 0):
            extra = (*self.extra[:slot], self.extra[slot] + 1, *self.extra[slot + 1 :])
            return Monomial(self.orders, extra, self.factors)
        if variable not in self.factors:
            return None
        left = tuple(factor for factor in self.factors if factor != variable)
        return Monomial(self.orders, self.extra, left)

    def contractions(self) -> list[tuple[tuple[int, int, int, int], ...]]:
        """All ways to pair the fields: each a tuple of (family, size, slot, slot')."""
        groups: dict[tuple[int, int], list[int]] = {}
        for family, B, slot in self.factors:
            groups.setdefault((family, B), []).append(slot)
        ways: list[list[tuple[tuple[int, int, int, int], ...]]] = []
        for (family, B), slots in sorted(groups.items()):
            pairings = list(_pairings(tuple(slots)))
            if not pairings:
                return []
            size = B.bit_count()
            ways.append([tuple((family, size, i, j) for i, j in pairing) for pairing in pairings])
        return [sum(choice, start=()) for choice in product(*ways)]


@functools.cache
def _pairings(slots: tuple[int, ...]) -> tuple[tuple[tuple[int, int], ...], ...]:
    if not slots:
        return ((),)
    if len(slots) % 2:
        return ()
    first, rest = slots[0], slots[1:]
    return tuple(
        ((first, second), *others)
        for index, second in enumerate(rest)
        for others in _pairings(rest[:index] + rest[index + 1 :])
    )


@functools.cache
def feature(S: int, slot: int, slots: int, gated: bool) -> tuple[Monomial, ...]:
    """o_S at a slot: Σ over partitions of σ^(|π|) ∏ h_B; with a gate, Σ over subsets times g."""
    monomials = []
    for U in subsets(S) if gated else (S,):
        for blocks in partitions(U):
            orders = tuple(len(blocks) if i == slot else 0 for i in range(slots))
            factors = [(PRE, B, slot) for B in blocks]
            factors += [(GATE, S ^ U, slot)] if gated else []
            monomials.append(Monomial(orders, (0,) * slots, tuple(sorted(factors))))
    return tuple(monomials)


@functools.cache
def features(fields: tuple[int, ...], gated: bool) -> tuple[Monomial, ...]:
    """∏_slot o_S(slot), expanded."""
    slots = len(fields)
    parts = [feature(S, slot, slots, gated) for slot, S in enumerate(fields)]
    expanded = []
    for choice in product(*parts):
        orders = tuple(sum(m.orders[i] for m in choice) for i in range(slots))
        factors = tuple(sorted(factor for m in choice for factor in m.factors))
        expanded.append(Monomial(orders, (0,) * slots, factors))
    return tuple(expanded)


def variables(fields: tuple[int, int], gated: bool) -> tuple[tuple[Variable, Variable], ...]:
    """The pairs of fields at slots in whose covariance ⟨o_S o_S'⟩ is differentiated."""
    one_family = [(PRE, B, slot) for slot, S in enumerate(fields) for B in sorted(set(subsets(S)))]
    gates = [(GATE, B, slot) for _, B, slot in one_family] if gated else []
    return tuple(_unordered(one_family)) + tuple(_unordered(gates))


def _unordered(listed: list[Variable]) -> Iterator[tuple[Variable, Variable]]:
    for index, first in enumerate(listed):
        for second in listed[index:]:
            yield first, second


def weight(first: Variable, second: Variable) -> float:
    """½ for the variance of one field at one slot, 1 for a covariance."""
    return 0.5 if first == second else 1.0
