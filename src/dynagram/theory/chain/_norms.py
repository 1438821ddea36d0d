"""Norms: x̂ = x/√(x·x/n + ε) at every index, a function of the Gram matrix alone.

With the fields as coefficients of x + Σ_S t_S x_S, t_r² = 0, the norm is x̂_S = Σ_{U ⊆ S} r_U
x_{S∖U}, and r = (Γ + ε)^{−1/2} has the coefficients of Faà di Bruno in Γ_S = Σ_{T ⊔ T' = S} G_TT'.
The entry of fields (S, S') at (a, b) depends on Gram matrices at (a, b), (a, a) and (b, b) only.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._precision import float64
from dynagram.theory.chain._fields import (
    PLAIN,
    TANGENT,
    Pair,
    partitions,
    size,
    subsets,
)
from dynagram.theory.chain._state import (
    Kernel,
    Register,
    Shift,
    State,
    Term,
    pick_four,
    shift_of,
)

# A Gram entry seen from (a, b): its two fields and the slots they stand at.
Local = tuple[Pair, tuple[int, int]]


@dataclass
class Norm:
    """The register of the normalised signal of register `number`."""

    state: State
    number: int
    epsilon: float

    @float64
    def run(self) -> int:
        """Carry mean and covariance through the norm."""
        source = self.state.registers[self.number]
        kernels = {s: self._mean(2**s - 1) for s in source.K}
        shifts = {s: self._shift(pair) for s, pair in ((0, PLAIN), (1, TANGENT))
                  if s in source.shift}  # fmt: skip
        return self.state.carry(Register(kernels, shifts), self._terms)

    def _value(self, local: Local) -> Kernel:
        """The mean of a Gram entry seen from every (a, b)."""
        (S, S2), slots = local
        source = self.state.registers[self.number]
        shape = (source.indices, source.indices)
        if S != S2:
            return np.zeros(shape)
        K = source.K[size(S)]
        if slots[0] != slots[1]:
            return K
        diagonal = np.diagonal(K)
        return np.broadcast_to(diagonal[:, None] if slots == (0, 0) else diagonal[None], shape)

    def _mean(self, S: int) -> Kernel:
        locals_ = local_entries((S, S))
        values = np.stack([self._value(local) for local in locals_], axis=-1)
        return np.asarray(_mapped(self._function((S, S)), values))

    def _function(self, pair: Pair):
        return make_norm(pair, self.epsilon)

    def _terms(self, pair: Pair) -> list[Term]:
        locals_ = local_entries(pair)
        values = np.stack([self._value(local) for local in locals_], axis=-1)
        slopes = np.asarray(_mapped(jax.grad(self._function(pair)), values))
        return [
            Term(self.number, fields, slots, slopes[..., i])
            for i, (fields, slots) in enumerate(locals_)
            if np.any(slopes[..., i])
        ]

    def _shift(self, pair: Pair) -> Shift:
        """J·shift + ½ ∂²f : V."""
        source = self.state.registers[self.number]
        total = np.zeros((self.state.modes, source.indices, source.indices))
        for term in self._terms(pair):
            moved = shift_of(self.state, term)
            if moved is not None:
                total = total + moved
        locals_ = local_entries(pair)
        values = np.stack([self._value(local) for local in locals_], axis=-1)
        second = np.asarray(_mapped(jax.hessian(self._function(pair)), values))
        for i, (one, at) in enumerate(locals_):
            for j, (two, there) in enumerate(locals_):
                if not np.any(second[..., i, j]) or one[0] ^ one[1] != two[0] ^ two[1]:
                    continue
                entry = self.state.entry(self.number, self.number, (one, two))
                picked = pick_four(entry, (*at, *there))
                if picked is not None:
                    total = total + 0.5 * second[..., i, j] * picked
        return total


def local_entries(pair: Pair) -> tuple[Local, ...]:
    """The Gram entries that (S a, S' b) of the norm depends on."""
    S, S2 = pair
    found: list[Local] = []
    for T in sorted(set(subsets(S))):
        found += [((T, T2), (0, 1)) for T2 in sorted(set(subsets(S2)))]
    for slot, fields in enumerate(pair):
        for T in sorted(set(subsets(fields))):
            for T2 in sorted(set(subsets(fields ^ T))):
                if T <= T2:
                    found.append(((T, T2), (slot, slot)))
    return tuple(found)


def make_norm(pair: Pair, epsilon: float):
    """The normalised Gram entry (S a, S' b) as a function of the vector of its local entries."""
    where = {local: i for i, local in enumerate(local_entries(pair))}

    def function(values):
        coefficients = []
        for slot, fields in enumerate(pair):

            def length(U: int, slot: int = slot):
                """Γ_U at one index: a sum over ordered pairs T ⊔ T' = U."""
                return sum(
                    values[where[(min(T, U ^ T), max(T, U ^ T)), (slot, slot)]] for T in subsets(U)
                )

            base = length(0) + epsilon
            roots = {}
            for U in subsets(fields):
                total = 0.0
                for blocks in partitions(U):
                    power = -0.5
                    factor = 1.0
                    for B in blocks:
                        factor = factor * power * length(B)
                        power -= 1.0
                    total = total + factor * base**power
                roots[U] = total
            coefficients.append(roots)
        total = jnp.zeros(())
        for U, left in coefficients[0].items():
            for U2, right in coefficients[1].items():
                entry = values[where[(pair[0] ^ U, pair[1] ^ U2), (0, 1)]]
                total = total + left * right * entry
        return total

    return function


def _mapped(function, values: np.ndarray):
    return jax.vmap(jax.vmap(function))(jnp.asarray(values))
