"""Attention heads: the Gram matrix of what they read, by sampling queries and keys.

Given the Gram matrix of the signal, the fields of queries and keys of a head are Gaussian, and
those of values are integrated exactly: A = P Cov(v) Pᵀ with P the softmax and its derivative
fields. With H heads of size d the Gram matrix of the outputs has the mean E A and the covariance
(1/H) Cov(A, A) + (1/Hd) E[AA + AA]. Their error shows in runs with other seeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dynagram._memory import require_memory
from dynagram.errors import InvalidValueError
from dynagram.networks.blocks._attention import Attention
from dynagram.theory.chain._algebra import Element
from dynagram.theory.chain._fields import CROSSED, PLAIN, TANGENT, Key, Pair, pairs_below, subsets
from dynagram.theory.chain._head_curvature import Curvature, decompose
from dynagram.theory.chain._head_kernels import root_of
from dynagram.theory.chain._head_slopes import Slopes, gather_slopes, measure_slopes
from dynagram.theory.chain._patterns import (
    Layout,
    doubled,
    draw_fields,
    make_pattern,
    prepare,
    signed,
)
from dynagram.theory.chain._state import (
    DenseTerm,
    Kernel,
    Register,
    Shift,
    State,
    Vertex,
    shift_of,
)

_CHUNK_NUMBERS = 2_000_000  # floats of one array held at a time
# Heads sampled for each average, in units of `samples`: products of four fields vary the most.
_SLOPES, _PRODUCTS, _CURVATURE = 1, 8, 4
_COPIES = 8  # queries and keys of both signs, as drawn and as the logits take them
_MOST_TOKENS = 32  # in all inputs: time grows as their fifth power


@dataclass
class Heads:
    """The register of the outputs of the heads of `block` reading register `number`.

    Cost: for each of `samples` heads a few T⁵, T the (input, position) pairs in all, and T⁴ for
    every entry of the vertex.
    """

    state: State
    number: int
    block: Attention
    inputs: int
    positions: int
    samples: int
    seed: int

    def run(self) -> int:
        """Carry mean and covariance through the heads."""
        source = self.state.registers[self.number]
        self._layout = Layout(self.block, self.inputs, self.positions)
        self._K, self._tokens = source.K, source.indices
        self._values = self._covariances("v")
        self._slopes = self._sampled_slopes()
        self._products = self._sampled_products()
        self._curved = self._sampled_curvature()
        kernels = {s: self._mean(s) for s in source.K}
        shifts = {s: self._shift(s) for s in source.shift}
        return self.state.carry(Register(kernels, shifts), self._terms, self._source)

    def _covariances(self, name: str) -> dict[int, Kernel]:
        """Σ_SS of queries, keys or values by |S|."""
        C, rate = self._scales(name)
        return {s: C * K + (rate * self._K[0] if s else 0.0) for s, K in self._K.items()}

    def _scales(self, name: str) -> tuple[float, float]:
        return getattr(self.block, f"C_{name}"), getattr(self.block, f"lambda_{name}")

    # --- averages over sampled heads ----------------------------------------------------------

    def _draws(self, purpose: int, numbers: int):
        """A generator and a number of heads of one sign for every batch; `numbers` per head."""
        wanted = purpose * self.samples
        half = int(np.clip(_CHUNK_NUMBERS // numbers, 2, 2048))
        half = min(half, max(4, wanted // 4))
        for index in range(max(2, round(wanted / (2 * half)))):
            yield np.random.default_rng((self.seed, purpose, index)), half

    def _drawn(self, rng: np.random.Generator, name: str, fields: tuple[int, ...], half: int):
        roots = {s: root_of(Sigma) for s, Sigma in self._covariances(name).items()}
        size = self.block.head_size
        needed = 8.0 * _COPIES * len(fields) * half * self._tokens * size
        require_memory("head_size", size, needed, "smaller heads")
        return draw_fields(rng, roots, fields, half, size)

    def _sampled_slopes(self) -> Slopes:
        fields, T = tuple(self._K), self._tokens
        total, samples = None, 0
        for rng, half in self._draws(_SLOPES, 2 * T**4):
            q, k = (self._drawn(rng, name, fields, half) for name in ("q", "k"))
            queries = prepare(self._layout, signed(q), fields)
            keys = prepare(self._layout, doubled(k), fields)
            sums = measure_slopes(self._layout, queries, keys, self._values, fields)
            if total is None:
                total = sums
            else:
                total = tuple(a + b for a, b in zip(total, sums, strict=True))
            samples += 2 * half
        assert total is not None
        return gather_slopes(total, samples)

    def _sampled_products(self) -> dict[Key, tuple[np.ndarray, np.ndarray]]:
        """Cov(Ā_ab, Ā_cd), and E Σ_rs (B_ac B_bd + B_ad B_bc), Ā the mean over a group."""
        keys, T = self.state.keys, self._tokens
        if not keys:
            return {}
        fields = tuple(sorted({U for key in keys for S in (*key[0], *key[1]) for U in subsets(S)}))
        shared = self.block.heads // self.block.key_heads
        products: dict[Key, np.ndarray] = {key: np.zeros((T * T, T * T)) for key in keys}
        apart: dict[Key, np.ndarray] = {key: np.zeros((T,) * 4) for key in keys}
        means: dict[Pair, np.ndarray] = {}
        samples = 0
        for rng, half in self._draws(_PRODUCTS, 4 * len(fields) * T * T * shared):
            patterns = self._patterns(rng, fields, half)
            samples += 2 * half
            grams = _Grams(patterns, self._values)
            for key in keys:
                left, right = key
                one, two = grams.mean(*left), grams.mean(*right)
                products[key] += one.T @ two
                (S, S2), (S3, S4) = key
                for r in range(shared):
                    for s in range(shared):
                        b = grams.between
                        crossed = (b(r, s, S, S3).T @ b(r, s, S2, S4)).reshape((T,) * 4)
                        apart[key] += crossed.transpose(0, 2, 1, 3)
                        crossed = (b(r, s, S, S4).T @ b(r, s, S2, S3)).reshape((T,) * 4)
                        apart[key] += crossed.transpose(0, 2, 3, 1)
            for pair in {pair for key in keys for pair in key}:
                means[pair] = means.get(pair, 0.0) + grams.mean(*pair).sum(axis=0)
        found = {}
        for key in keys:
            outer = np.outer(means[key[0]] / samples, means[key[1]] / samples)
            covariance = (products[key] / samples - outer).reshape((T,) * 4)
            found[key] = (covariance, apart[key] / samples)
        return found

    def _patterns(
        self, rng: np.random.Generator, fields: tuple[int, ...], half: int
    ) -> list[Element]:
        """P of every query head of a group."""
        k = prepare(self._layout, doubled(self._drawn(rng, "k", fields, half)), fields).ready
        made = []
        for _ in range(self.block.heads // self.block.key_heads):
            q = prepare(self._layout, signed(self._drawn(rng, "q", fields, half)), fields).ready
            made.append(make_pattern(self._layout, q, k, fields)[1])
        return made

    def _sampled_curvature(self) -> dict[int, np.ndarray]:
        """½ ∂²f : V, f the mean of A_∅∅ and A_11."""
        shifts = self.state.registers[self.number].shift
        if not shifts:
            return {}
        pairs = (PLAIN, TANGENT, CROSSED) if 1 in shifts else (PLAIN,)
        entries = {}
        for left in pairs:
            for right in pairs:
                if (left == CROSSED) == (right == CROSSED):
                    entry = self.state.entry(self.number, self.number, (left, right))
                    entries[left, right] = None if entry is None else entry[0]
        fluctuation = decompose(entries, self._tokens)
        T = self._tokens
        kernels = self._K if 1 in shifts else {0: self._K[0]}
        total: dict[int, np.ndarray] = {s: np.zeros((T, T)) for s in kernels}
        if fluctuation.eigenvalues.size == 0:  # nothing varies yet
            return total
        curvature = Curvature(self._layout, kernels, fluctuation)
        samples = 0
        for rng, half in self._draws(_CURVATURE, 32 * T * max(T, self.block.head_size)):
            for s, part in curvature.sampled(rng, half).items():
                total[s] += part
            samples += 2 * half
        settled = curvature.settled(self._slopes)
        return {s: _symmetric(part / samples + settled[s]) for s, part in total.items()}

    # --- the state ----------------------------------------------------------------------------

    def _mean(self, s: int) -> Kernel:
        """E A_SS: the average of P_U Cov(v) P_Uᵀ over the two halves of S."""
        total = np.zeros_like(self._values[0])
        for W in range(s + 1):
            total += np.einsum("abce,ce->ab", self._slopes.apart["v"][W], self._values[s - W])
        return _symmetric(total)

    def _terms(self, pair: Pair) -> list[DenseTerm]:
        """J over the Gram matrix of the signal, of which Σ = C G_TT' + λ Σ_r G_{T∖r, T'∖r}."""
        terms = []
        for T, T2 in pairs_below(pair):
            total = None
            for name in ("q", "k", "v"):
                C, rate = self._scales(name)
                parts = [(C, (T, T2))]
                parts += [(rate, (T | r, T2 | r)) for r in (1, 2, 4) if not (T | T2) & r]
                for scale, fields in parts:
                    slope = self._slopes.of(name, pair, fields)
                    if slope is not None and scale:
                        total = scale * slope if total is None else total + scale * slope
            if total is not None:
                terms.append(DenseTerm(self.number, (T, T2), total))
        return terms

    def _shift(self, s: int) -> Shift:
        T = self._tokens
        total = np.zeros((self.state.modes, T, T))
        for term in self._terms(PLAIN if s == 0 else TANGENT):
            moved = shift_of(self.state, term)
            if moved is not None:
                total = total + moved
        total[0] += self._curved[s]
        return total

    def _source(self, key: Key) -> Vertex:
        values = np.zeros((self.state.modes, *[self._tokens] * 4))
        together, apart = self._products[key]
        groups, shared = self.block.key_heads, self.block.heads // self.block.key_heads
        values[0] = together / groups
        values[0] += apart / (groups * shared**2 * self.block.head_size)
        return values


class _Grams:
    """B^rs_SS' = Σ P_U Cov(v_{S∖U}, v_{S'∖U'}) P_U'ᵀ of the heads r, s of a group, by sample."""

    def __init__(self, patterns: list[Element], values: dict[int, np.ndarray]):
        self.patterns, self.values = patterns, values
        self._made: dict[tuple[int, int, int, int], np.ndarray] = {}

    def between(self, r: int, s: int, S: int, S2: int) -> np.ndarray:
        """B^rs of one pair of fields, (sample, a·b)."""
        if (r, s, S, S2) not in self._made:
            total = 0.0
            for Y in subsets(S & S2):
                if Y.bit_count() in self.values:
                    read = self.patterns[r][S ^ Y] @ self.values[Y.bit_count()]
                    total = total + read @ np.swapaxes(self.patterns[s][S2 ^ Y], 1, 2)
            total = np.asarray(total)
            self._made[r, s, S, S2] = total.reshape(total.shape[0], -1)
        return self._made[r, s, S, S2]

    def mean(self, S: int, S2: int) -> np.ndarray:
        """Ā of one pair of fields: the mean over the group."""
        heads = range(len(self.patterns))
        return np.mean([self.between(r, r, S, S2) for r in heads], axis=0)


def _symmetric(array: np.ndarray) -> np.ndarray:
    return 0.5 * (array + array.T)


def require_room(tokens: int) -> None:
    """Refuse more tokens than heads can be sampled for."""
    if tokens > _MOST_TOKENS:
        allowed = f"attention takes at most {_MOST_TOKENS} tokens in all at order 1/n"
        raise InvalidValueError("inputs times positions", tokens, allowed)
