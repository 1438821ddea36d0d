"""The state of a chain: Gram matrices of the signals in use, with their mean and covariance.

A register is one signal: its kernels K_S by the size of S, and the shifts of the mean at order
one over width. The vertex holds the covariances of the Gram matrices of any two registers, by the
entries of `fields`. Arrays have the modes of their numerical error first (see `FourPoint`).
Everything is in units of 1: a covariance is that of the Gram matrix itself, not times a width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from dynagram.theory.chain._fields import Key, Pair, canonical, pairs_below, size

Kernel = Float[np.ndarray, "a b"]
Shift = Float[np.ndarray, "mode a b"]
Vertex = Float[np.ndarray, "mode a b c d"]
PositionMap = Callable[[np.ndarray], np.ndarray]  # on the last two axes, (a, b) → (a', b')


@dataclass
class Register:
    """K_S by |S| and the shifts of the means of x·x and δx·δx (|S| = 0 and 1)."""

    K: dict[int, Kernel]
    shift: dict[int, Shift]

    @property
    def indices(self) -> int:
        """How many (input, position) pairs there are."""
        return self.K[0].shape[0]

    def kernel(self, S: int, S2: int) -> Kernel | None:
        """E of the Gram matrix of fields S and S'; None where parity makes it zero."""
        return self.K[size(S)] if S == S2 else None


@dataclass(frozen=True)
class Term:
    """One input of an entry (S a, S' b): coefficient_ab times G_(T, T') of a register.

    `slots` say at which of the samples (a, b) the fields T and T' stand.
    """

    register: int
    fields: Pair
    slots: tuple[int, int]
    coefficient: Kernel | float


@dataclass(frozen=True)
class DenseTerm:
    """One input of an entry (S a, S' b): Σ_ce coefficient_abce G_(T c, T' e) of a register.

    For T = T' the coefficients of (c, e) and (e, c) are equal and both are summed.
    """

    register: int
    fields: Pair
    coefficient: Float[np.ndarray, "a b c e"]


@dataclass
class State:
    """Registers by number, and the vertex between any two of them."""

    keys: tuple[Key, ...]
    modes: int
    registers: dict[int, Register] = field(default_factory=dict)
    vertex: dict[tuple[int, int], dict[Key, Vertex]] = field(default_factory=dict)
    last: int = -1

    def new(self, register: Register) -> int:
        """The number of a register that does not vary yet."""
        self.last += 1
        self.registers[self.last] = register
        return self.last

    def drop(self, *numbers: int) -> None:
        """Forget registers that nothing will read."""
        for number in numbers:
            self.registers.pop(number)
        gone = set(numbers)
        self.vertex = {pair: v for pair, v in self.vertex.items() if not gone & set(pair)}

    def oriented_keys(self, left: int, right: int) -> list[Key]:
        """The entries stored for two registers: for different ones both orders of the pairs."""
        if left == right:
            return list(self.keys)
        both = {canonical(key, False)[0] for key in self.keys}
        both |= {canonical((right_, left_), False)[0] for left_, right_ in self.keys}
        return sorted(both)

    def entry(self, left: int, right: int, key: Key) -> Vertex | None:
        """V of two registers with axes in the order of `key`; None where it is zero."""
        same = left == right
        if (left, right) in self.vertex:
            stored, axes = canonical(key, same)
            values = self.vertex[left, right].get(stored)
        elif (right, left) in self.vertex:
            stored, axes = canonical((key[1], key[0]), same)
            values = self.vertex[right, left].get(stored)
            axes = (*axes[2:], *axes[:2])
        else:
            return None
        if values is None:
            return None
        return np.transpose(values, (0, *(1 + axis for axis in axes)))

    def copy(self, number: int) -> int:
        """A second register with the same Gram matrix."""
        source = self.registers[number]
        twin = self.new(Register(dict(source.K), dict(source.shift)))
        for other in [*self.registers]:
            if other == twin:
                continue
            self._write(twin, other, lambda key, other=other: self.entry(number, other, key))
        self._write(twin, twin, lambda key: self.entry(number, number, key))
        return twin

    def _write(self, left: int, right: int, value: Callable[[Key], Vertex | None]) -> None:
        found = {key: value(key) for key in self.oriented_keys(left, right)}
        block = {key: entry for key, entry in found.items() if entry is not None}
        if block:
            self.vertex[left, right] = block

    def carry(
        self,
        made: Register,
        terms: Callable[[Pair], Sequence[Term | DenseTerm]],
        source: Callable[[Key], Vertex | None] | None = None,
    ) -> int:
        """A register whose Gram matrix is linear in others, to first order, plus a source.

        V' = J V Jᵀ + source. Cost: the number of terms times the size of V, (indices)⁴.
        """
        rows: dict[Pair, Sequence[Term | DenseTerm]] = {}

        def row(pair: Pair) -> Sequence[Term | DenseTerm]:
            if pair not in rows:
                rows[pair] = terms(pair)
            return rows[pair]

        others = list(self.registers)
        number = self.new(made)
        for other in others:
            self._write(number, other, lambda key, other=other: self._left(row(key[0]), other, key))

        def full(key: Key) -> Vertex | None:
            left, right = key
            total = None if source is None else source(key)
            for term in row(right):
                inner = self.entry(number, term.register, (left, term.fields))
                total = _added(total, _picked(inner, term, 3))
            return total

        self._write(number, number, full)
        return number

    def _left(self, row: Sequence[Term | DenseTerm], other: int, key: Key) -> Vertex | None:
        total = None
        for term in row:
            inner = self.entry(term.register, other, (term.fields, key[1]))
            total = _added(total, _picked(inner, term, 1))
        return total

    def carry_positions(self, number: int, move: PositionMap) -> int:
        """A register whose Gram matrices are linear in those of `number`, pair of fields by pair.

        `move` acts on two sample axes, such as the average over the taps of a convolution.
        """
        source = self.registers[number]
        kernels = {s: move(K) for s, K in source.K.items()}
        shifts = {s: move(shift) for s, shift in source.shift.items()}
        others = list(self.registers)
        made = self.new(Register(kernels, shifts))
        for other in others:

            def moved(key: Key, other: int = other) -> Vertex | None:
                entry = self.entry(number, other, key)
                return None if entry is None else _on_left(move, entry)

            self._write(made, other, moved)

        def twice(key: Key) -> Vertex | None:
            entry = self.entry(made, number, key)
            return None if entry is None else move(entry)

        self._write(made, made, twice)
        return made


def needed_pairs(keys: Sequence[Key]) -> tuple[Pair, ...]:
    """Every pair of fields that stands in some entry, and those below."""
    pairs = {pair for key in keys for pair in key}
    return tuple(sorted({below for pair in pairs for below in pairs_below(pair)}))


def _on_left(move: PositionMap, entry: Vertex) -> Float[np.ndarray, "mode _ _ _ _"]:
    moved = move(np.moveaxis(entry, (1, 2), (3, 4)))
    return np.moveaxis(moved, (3, 4), (1, 2))


def _added(total: Vertex | None, part: Vertex | None) -> Vertex | None:
    if part is None:
        return total
    return part if total is None else total + part


def _picked(entry: Vertex | None, term: Term | DenseTerm, axis: int) -> Vertex | None:
    """coefficient_ab · entry with (T, T') at the slots, for the sample axes `axis`, `axis` + 1."""
    if entry is None:
        return None
    if isinstance(term, DenseTerm):
        rule = "xyab,mabcd->mxycd" if axis == 1 else "xycd,mabcd->mabxy"
        return np.einsum(rule, term.coefficient, entry, optimize=True)
    if isinstance(term.coefficient, np.ndarray):
        shape = [1] * entry.ndim
        shape[axis : axis + 2] = term.coefficient.shape
        coefficient = term.coefficient.reshape(shape)
    else:
        coefficient = np.asarray(term.coefficient)
    if term.slots == (0, 1):
        return coefficient * entry
    if term.slots == (1, 0):
        return coefficient * np.swapaxes(entry, axis, axis + 1)
    diagonal = np.diagonal(entry, axis1=axis, axis2=axis + 1)  # the sample axis comes last
    position = axis if term.slots == (0, 0) else axis + 1
    absent = axis + 1 if term.slots == (0, 0) else axis
    entry = np.expand_dims(np.moveaxis(diagonal, -1, axis), absent)
    assert position != absent
    return coefficient * entry


def shift_of(state: State, term: Term | DenseTerm) -> Float[np.ndarray, "mode _ _"] | None:
    """coefficient · shift: what a term takes from the shift of a mean, zero unless T = T'."""
    S, S2 = term.fields
    shift = state.registers[term.register].shift.get(size(S)) if S == S2 else None
    if shift is None:
        return None
    if isinstance(term, DenseTerm):
        return np.einsum("abce,mce->mab", term.coefficient, shift)
    if term.slots == (1, 0):
        shift = np.swapaxes(shift, 1, 2)
    elif term.slots != (0, 1):
        diagonal = np.diagonal(shift, axis1=1, axis2=2)
        shift = diagonal[:, :, None] if term.slots == (0, 0) else diagonal[:, None, :]
    return term.coefficient * shift


def pick_four(
    entry: Vertex | None, slots: tuple[int, int, int, int]
) -> Float[np.ndarray, "mode _ _"] | None:
    """entry_(s s')(s'' s''') with every sample one of (a, b)."""
    if entry is None:
        return None
    letters = "".join("ab"[slot] for slot in slots)
    present = "".join(sorted(set(letters)))
    values = np.einsum(f"m{letters}->m{present}", entry)
    if present == "ab":
        return values
    return values[:, :, None] if present == "a" else values[:, None, :]
