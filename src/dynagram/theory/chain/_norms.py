"""Norms: x̂ = x/√(x·x/n + ε) at every index, a function of the Gram matrix alone.

With the fields as coefficients of x + Σ_S t_S x_S, t_r² = 0, the norm is x̂_S = Σ_{U ⊆ S} r_U
x_{S∖U}, and r = (Γ + ε)^{−1/2} has the coefficients of Faà di Bruno in Γ_S = Σ_{T ⊔ T' = S} G_TT'.
The entry of fields (S, S') at (a, b) depends on Gram matrices at (a, b), (a, a) and (b, b) only. At
infinite width Γ_B = 0 for B ≠ ∅, so that ∂r_U/∂Γ_B = −½ Γ^{−3/2} for U = B, ∂²r_U/∂Γ_B∂Γ_B' =
¾ Γ^{−5/2} for U = B ⊔ B', and everything else is zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dynagram.theory.chain._fields import PLAIN, TANGENT, Pair, subsets
from dynagram.theory.chain._state import (
    Kernel,
    Register,
    Shift,
    State,
    Term,
    pick_four,
    shift_of,
)


class Local(NamedTuple):
    """A Gram entry seen from (a, b): its fields, the slots they stand at, how often it counts.

    `part` is None between the slots; at one slot it is the B for which it is part of Γ_B.
    """

    fields: Pair
    slots: tuple[int, int]
    part: int | None
    times: float


@dataclass
class Norm:
    """The register of the normalised signal of register `number`."""

    state: State
    number: int
    epsilon: float

    def run(self) -> int:
        """Carry mean and covariance through the norm."""
        source = self.state.registers[self.number]
        length = np.diagonal(source.K[0]) + self.epsilon
        self._lengths = (length[:, None], length[None, :])
        kernels = {s: K * self._powers(0, 0) for s, K in source.K.items()}
        shifts = {s: self._shift(pair) for s, pair in ((0, PLAIN), (1, TANGENT))
                  if s in source.shift}  # fmt: skip
        return self.state.carry(Register(kernels, shifts), self._terms)

    def _powers(self, first: int, second: int) -> Kernel:
        """The derivatives of Γ^{−1/2} of these orders at a and at b."""
        factors = (1.0, -0.5, 0.75)
        left, right = self._lengths
        scale = factors[first] * factors[second]
        return scale * left ** (-0.5 - first) * right ** (-0.5 - second)

    def _kernel(self, S: int, S2: int) -> Kernel | None:
        return self.state.registers[self.number].kernel(S, S2)

    def _slope(self, pair: Pair, local: Local) -> Kernel | None:
        """∂/∂(a Gram entry); None where it is zero."""
        if local.part is None:
            return self._powers(0, 0) if local.fields == pair else None
        return self._bend(pair, [(local.slots[0], local.part)], local.times)

    def _second(self, pair: Pair, one: Local, two: Local) -> Kernel | None:
        """The second derivative; None where it is zero."""
        if one.part is None and two.part is None:
            return None
        if one.part is None or two.part is None:
            between, at = (one, two) if one.part is None else (two, one)
            assert at.part is not None
            slot = at.slots[0]
            left = [*pair]
            if at.part & ~left[slot]:
                return None
            left[slot] ^= at.part
            if between.fields != tuple(left):
                return None
            return at.times * self._powers(1 - slot, slot)
        parts = [(local.slots[0], local.part) for local in (one, two) if local.part is not None]
        return self._bend(pair, parts, one.times * two.times)

    def _bend(self, pair: Pair, parts: list[tuple[int, int]], count: float) -> Kernel | None:
        """Derivatives in Γ_B at slots: what is left of the fields must be one and the same."""
        left, orders = [*pair], [0, 0]
        for slot, B in parts:
            if B & ~left[slot]:
                return None
            left[slot] ^= B
            orders[slot] += 1
        K = self._kernel(*left)
        return None if K is None else count * self._powers(*orders) * K

    def _terms(self, pair: Pair) -> list[Term]:
        terms = []
        for local in local_entries(pair):
            slope = self._slope(pair, local)
            if slope is not None:
                terms.append(Term(self.number, local.fields, local.slots, slope))
        return terms

    def _shift(self, pair: Pair) -> Shift:
        """J·shift + ½ ∂²f : V."""
        source = self.state.registers[self.number]
        total = np.zeros((self.state.modes, source.indices, source.indices))
        for term in self._terms(pair):
            moved = shift_of(self.state, term)
            if moved is not None:
                total = total + moved
        listed = list(local_entries(pair))
        for one in listed:
            for two in listed:
                second = self._second(pair, one, two)
                if second is None or one.fields[0] ^ one.fields[1] != two.fields[0] ^ two.fields[1]:
                    continue
                entry = self.state.entry(self.number, self.number, (one.fields, two.fields))
                picked = pick_four(entry, (*one.slots, *two.slots))
                if picked is not None:
                    total = total + 0.5 * second * picked
        return total


def local_entries(pair: Pair) -> Iterator[Local]:
    """The Gram entries that (S a, S' b) of the norm depends on."""
    S, S2 = pair
    for T in subsets(S):
        for T2 in subsets(S2):
            yield Local((T, T2), (0, 1), None, 1.0)
    for slot, fields in enumerate(pair):
        for B in subsets(fields):
            for T in subsets(B):
                if T <= B ^ T:  # the two orders of different fields are equal
                    yield Local((T, B ^ T), (slot, slot), B, 1.0 if T == B ^ T else 2.0)
