"""Attention heads: the Gram matrix of what they read, by sampling queries and keys.

Given the Gram matrix of the signal, the fields of queries and keys of a head are Gaussian, and
those of values are integrated exactly: A = P Cov(v) Pᵀ with P the softmax and its derivative
fields. With H heads of size d the Gram matrix of the outputs has the mean E A and the covariance
(1/H) Cov(A, A) + (1/Hd) E[AA + AA]. Derivatives are taken through the samples, which are common to
all of them; their error shows in runs with other seeds.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dynagram._precision import float64
from dynagram.errors import InvalidValueError
from dynagram.networks.blocks._attention import Attention
from dynagram.theory.chain._algebra import Element, multiply, softmax, unit_rms
from dynagram.theory.chain._fields import PLAIN, TANGENT, Key, Pair, size, subsets
from dynagram.theory.chain._state import (
    DenseTerm,
    Kernel,
    Register,
    Shift,
    State,
    Vertex,
    needed_pairs,
    shift_of,
)

Gram = dict[Pair, jax.Array]  # of the pairs S ≤ S' that are needed
_CHUNK_NUMBERS = 4_000_000  # floats held at a time


@dataclass
class Heads:
    """The register of the outputs of the heads of `block` reading register `number`."""

    state: State
    number: int
    block: Attention
    inputs: int
    positions: int
    samples: int
    seed: int

    @float64
    def run(self) -> int:
        """Carry mean and covariance through the heads."""
        source = self.state.registers[self.number]
        self._first, self._inverse = _distinct(source.K[0])
        pairs = set(needed_pairs(self.state.keys)) | {
            (2**s - 1, 2**s - 1) for s in range(len(source.K))
        }
        self.pairs = tuple(sorted(pairs))
        self.fields = tuple(sorted({S for pair in self.pairs for S in pair}))
        sums = self._sampled(source)
        self._mean, self._slopes, self._curved = sums["mean"], sums["slopes"], sums["curved"]
        self._products = sums["products"]
        kernels = {s: self._mean[2**s - 1, 2**s - 1] for s in source.K}
        shifts = {s: self._shift(s) for s in source.shift}
        return self.state.carry(Register(kernels, shifts), self._terms, self._source)

    # --- what one batch of samples gives ------------------------------------------------------

    def _sampled(self, source: Register) -> dict[str, Any]:
        """Averages over the samples, chunk by chunk."""
        at = self._gram(source)
        directions = self._directions()
        u = self._first.size
        per_sample = (len(directions[0]) + 1) * len(self.fields) * u * (2 * self._size + u)
        chunk = int(np.clip(_CHUNK_NUMBERS // max(per_sample, 1), 16, 4096))
        chunks = max(2, self.samples // chunk)
        curves = self._curves()
        step = _batch(
            self.block, self.fields, self.pairs, self.state.keys, self.inputs, self.positions,
            tuple(self._first.tolist()), tuple(self._inverse.tolist()), chunk,
        )  # fmt: skip
        total = None
        for index in range(chunks):
            key = jax.random.fold_in(jax.random.key(self.seed), index)
            part = step(key, at, directions, curves)
            total = part if total is None else jax.tree.map(jnp.add, total, part)
        return self._named(jax.tree.map(lambda value: np.asarray(value) / chunks, total))

    @property
    def _size(self) -> int:
        return self.block.head_size * (1 + self.block.heads // self.block.key_heads)

    def _gram(self, source: Register) -> Gram:
        """The mean Gram matrix of the distinct indices, by pairs of fields."""
        pick = np.ix_(self._first, self._first)
        zero = np.zeros((self._first.size,) * 2)
        return {
            (S, S2): jnp.asarray(source.K[size(S)][pick] if S == S2 else zero)
            for S, S2 in self.pairs
        }

    def _directions(self) -> tuple[Gram]:
        """Every entry of every pair as a direction, stacked."""
        u = self._first.size
        total = len(self.pairs) * u * u
        stacked = {}
        for i, pair in enumerate(self.pairs):
            block = np.zeros((total, u, u))
            block.reshape(total, -1)[np.arange(i * u * u, (i + 1) * u * u), np.arange(u * u)] = 1.0
            stacked[pair] = jnp.asarray(block)
        return (stacked,)

    def _curves(self) -> dict[int, tuple[Any, Gram]]:
        """For each shift: eigenvalues and directions of V whose second derivatives it takes."""
        u = self._first.size
        curves: dict[int, tuple[Any, Gram]] = {}
        for s in self.state.registers[self.number].shift:
            sectors = [((0, 0),)] if s == 0 else [((0, 0), (1, 1)), ((0, 1),)]
            values, vectors = [], {pair: [] for pair in self.pairs}
            for sector in sectors:
                matrix = np.zeros((len(sector), u * u, len(sector), u * u))
                for i, left in enumerate(sector):
                    for j, right in enumerate(sector):
                        if left == right == TANGENT:
                            continue  # the mean is linear in it
                        entry = self._entry((left, right))
                        if entry is not None:
                            matrix[i, :, j, :] = entry.reshape(u * u, u * u)
                flat = matrix.reshape(len(sector) * u * u, -1)
                eigenvalues, basis = np.linalg.eigh(0.5 * (flat + flat.T))
                # As many directions as there are free entries, always: one compiled program.
                rank = sum(u * (u + 1) // 2 if S == S2 else u * u for S, S2 in sector)
                keep = np.argsort(-np.abs(eigenvalues), kind="stable")[:rank]
                values.append(eigenvalues[keep])
                for pair in self.pairs:
                    rows = np.zeros((rank, u, u))
                    if pair in sector:
                        part = basis[:, keep].T.reshape(-1, len(sector), u, u)
                        rows = part[:, sector.index(pair)]
                    vectors[pair].append(rows)
            stacked = {pair: jnp.asarray(np.concatenate(rows)) for pair, rows in vectors.items()}
            curves[s] = (jnp.asarray(np.concatenate(values)), stacked)
        return curves

    def _entry(self, key: Key) -> np.ndarray | None:
        """The value of V between distinct indices."""
        entry = self.state.entry(self.number, self.number, key)
        if entry is None:
            return None
        f = self._first
        return entry[0][np.ix_(f, f, f, f)]

    def _named(self, sums: Any) -> dict[str, Any]:
        """Averages with indices written out for repeated tokens."""
        mean, slopes, curved, products = sums
        T = self._inverse.size
        return {
            "mean": dict(zip(self.pairs, mean, strict=True)),
            "slopes": dict(zip(self.pairs, slopes, strict=True)),
            "curved": {s: part.reshape(T, T) for s, part in curved.items()},
            "products": dict(zip(self.state.keys, products, strict=True)),
        }

    # --- the state ----------------------------------------------------------------------------

    def _terms(self, pair: Pair) -> list[DenseTerm]:
        S, S2 = pair
        turned = S > S2
        slopes = self._slopes[(S2, S) if turned else (S, S2)]  # (direction, a, b)
        u, T = self._first.size, self._inverse.size
        terms = []
        for i, fields in enumerate(self.pairs):
            if fields[0] ^ fields[1] != S ^ S2 or not _is_below(fields, pair):
                continue
            block = slopes[i * u * u : (i + 1) * u * u].reshape(u, u, T, T)
            block = np.moveaxis(block, (0, 1), (2, 3))  # (a, b, c, e) with c, e distinct indices
            if turned:
                block = np.swapaxes(block, 0, 1)
            full = np.zeros((T, T, T, T))
            full[:, :, self._first[:, None], self._first[None, :]] = block
            terms.append(DenseTerm(self.number, fields, full))
        return terms

    def _shift(self, s: int) -> Shift:
        pair = PLAIN if s == 0 else TANGENT
        T = self._inverse.size
        total = np.zeros((self.state.modes, T, T))
        for term in self._terms(pair):
            moved = shift_of(self.state, term)
            if moved is not None:
                total = total + moved
        total[0] += self._curved[s]
        return total

    def _source(self, key: Key) -> Vertex:
        values = np.zeros((self.state.modes, *[self._inverse.size] * 4))
        together, apart = self._products[key]
        left, right = key
        mean = 0.0
        if left[0] == left[1] and right[0] == right[1]:
            one, two = self._mean[left], self._mean[right]
            mean = one[:, :, None, None] * two[None, None]
        groups, shared = self.block.key_heads, self.block.heads // self.block.key_heads
        values[0] = (together - mean) / groups
        values[0] += apart / (groups * shared**2 * self.block.head_size)
        return values


def _is_below(fields: Pair, pair: Pair) -> bool:
    from dynagram.theory.chain._fields import pairs_below

    return fields in pairs_below(pair)


def _distinct(K: Kernel) -> tuple[np.ndarray, np.ndarray]:
    """Indices that differ, and for every index the one it equals."""
    first: list[int] = []
    inverse = np.zeros(K.shape[0], dtype=np.intp)
    scale = np.diagonal(K)
    for a in range(K.shape[0]):
        for number, b in enumerate(first):
            distance = scale[a] + scale[b] - 2.0 * K[a, b]
            if distance <= 1e-10 * max(scale[a], scale[b]):
                inverse[a] = number
                break
        else:
            inverse[a] = len(first)
            first.append(a)
    return np.array(first), inverse


@functools.lru_cache(maxsize=32)
def _batch(
    block: Attention,
    fields: tuple[int, ...],
    pairs: tuple[Pair, ...],
    keys: tuple[Key, ...],
    inputs: int,
    positions: int,
    first: tuple[int, ...],
    inverse: tuple[int, ...],
    chunk: int,
):
    """One compiled batch: means, derivatives along directions, second ones, products of A."""
    u, T, d = len(first), len(inverse), block.head_size
    shared = block.heads // block.key_heads
    expand = np.array(inverse)
    one = np.arange(inputs)
    same_input = np.repeat(one, positions)[:, None] == np.repeat(one, positions)[None, :]
    seen = same_input & np.tile(block.mask(positions), (inputs, inputs))
    angles = block.angles(positions)

    def extended(gram: Gram, C: float, rate: float) -> jax.Array:
        """Σ_SS' = C G_SS' + λ Σ_r G_{S∖r, S'∖r} as one matrix over (field, index)."""
        rows = []
        for S in fields:
            row = []
            for S2 in fields:
                part = C * read(gram, S, S2)
                for r in (1, 2, 4):
                    if S & S2 & r:
                        part = part + rate * read(gram, S ^ r, S2 ^ r)
                row.append(part)
            rows.append(jnp.concatenate(row, axis=1))
        return jnp.concatenate(rows, axis=0)

    def read(gram: Gram, S: int, S2: int) -> jax.Array:
        if (S, S2) in gram:
            return 0.5 * (gram[S, S2] + gram[S, S2].T) if S == S2 else gram[S, S2]
        if (S2, S) in gram:
            return gram[S2, S].T
        return jnp.zeros((u, u))

    def root(matrix: jax.Array) -> jax.Array:
        # Fields that do not move yet have no variance: they only enter linearly, so a tiny one
        # in its place changes nothing.
        floor = 1e-14 * jnp.max(jnp.abs(jnp.diagonal(matrix)))
        return jnp.linalg.cholesky(matrix + floor * jnp.eye(matrix.shape[0]))

    def split(rows: jax.Array) -> Element:
        """(field·index, d) → fields of (index, d), repeated tokens written out."""
        parts = rows.reshape(len(fields), u, -1)
        return {S: parts[i][expand] for i, S in enumerate(fields)}

    def prepared(x: Element) -> Element:
        if block.qk_norm:
            x = unit_rms(x)
        if angles is None:
            return x
        turn = np.tile(angles, (inputs, 1))
        cos, sin = jnp.asarray(np.cos(turn)), jnp.asarray(np.sin(turn))

        def rotate(part: jax.Array) -> jax.Array:
            left, right = jnp.split(part, 2, axis=-1)
            return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], axis=-1)

        return {S: rotate(part) for S, part in x.items()}

    def patterns(roots, normals) -> list[Element]:
        """P of every query head of a group."""
        root_q, root_k = roots
        k = prepared(split(root_k @ normals[0]))
        made = []
        for r in range(shared):
            q = prepared(split(root_q @ normals[1 + r]))
            logits = multiply(q, k, lambda a, b: block.logit_scale * (a @ b.T))
            made.append(softmax(logits, jnp.asarray(seen)))
        return made

    def grams(made: list[Element], values: dict[Pair, jax.Array], r: int, s: int):
        """B^rs_SS' = Σ P_U Cov(v_{S∖U}, v_{S'∖U'}) P_U'ᵀ."""

        def entry(S: int, S2: int) -> jax.Array:
            total = jnp.zeros((T, T))
            for U in subsets(S):
                for U2 in subsets(S2):
                    if (S ^ U, S2 ^ U2) in values:
                        total = total + made[r][U] @ values[S ^ U, S2 ^ U2] @ made[s][U2].T
            return total

        return entry

    def value_covariance(gram: Gram) -> dict[Pair, jax.Array]:
        matrix = extended(gram, block.C_v, block.lambda_v).reshape(len(fields), u, len(fields), u)
        found = {}
        for i, S in enumerate(fields):
            for j, S2 in enumerate(fields):
                found[S, S2] = matrix[i, :, j, :][expand][:, expand]
        return found

    def average(gram: Gram, normals) -> list[jax.Array]:
        """The mean over a group of A_SS' for the pairs asked for, of one sample."""
        roots = (root(extended(gram, block.C_q, block.lambda_q)),
                 root(extended(gram, block.C_k, block.lambda_k)))  # fmt: skip
        made = patterns(roots, normals)
        values = value_covariance(gram)
        found = []
        for S, S2 in pairs:
            parts = [grams(made, values, r, r)(S, S2) for r in range(shared)]
            found.append(sum(parts[1:], start=parts[0]) / shared)
        return found

    rows = len(fields) * u
    # Only products q·k count, unless each is normalised or rotated by itself. Then keys may be
    # turned into a triangular matrix (Bartlett), and d components become as many as there are rows.
    short = d > rows and not block.qk_norm and angles is None

    def draw(key: jax.Array) -> jax.Array:
        """Normal numbers (sample, keys and query heads, row, component); queries of both signs."""
        half, size = chunk // 2, rows if short else d
        key_q, key_k, key_chi = jax.random.split(key, 3)
        queries = jax.random.normal(key_q, (half, shared, rows, size), jnp.float64)
        keys_ = jax.random.normal(key_k, (half, 1, rows, size), jnp.float64)
        if short:
            freedom = 0.5 * (d - jnp.arange(rows))
            lengths = jnp.sqrt(2.0 * jax.random.gamma(key_chi, freedom, (half, 1, rows)))
            keys_ = jnp.tril(keys_, -1) + lengths[..., None] * jnp.eye(rows)[None, None]
        signed = jnp.concatenate([queries, -queries])
        return jnp.concatenate([jnp.concatenate([keys_, keys_]), signed], axis=1)

    def mean_of(gram: Gram, normals) -> list[jax.Array]:
        return [jnp.mean(part, axis=0) for part in jax.vmap(average, (None, 0))(gram, normals)]

    def products(gram: Gram, normals) -> list[tuple[jax.Array, jax.Array]]:
        """Ā_ab Ā_cd, and Σ_rs (B_ac B_bd + B_ad B_bc), of one sample."""
        roots = (root(extended(gram, block.C_q, block.lambda_q)),
                 root(extended(gram, block.C_k, block.lambda_k)))  # fmt: skip
        made, values = patterns(roots, normals), value_covariance(gram)
        entries = {(r, s): grams(made, values, r, s) for r in range(shared) for s in range(shared)}

        def mean(S: int, S2: int) -> jax.Array:
            parts = [entries[r, r](S, S2) for r in range(shared)]
            return sum(parts[1:], start=parts[0]) / shared

        found = []
        for (S, S2), (S3, S4) in keys:
            together = jnp.einsum("ab,cd->abcd", mean(S, S2), mean(S3, S4))
            apart = jnp.zeros((T,) * 4)
            for entry in entries.values():
                apart = apart + jnp.einsum("ac,bd->abcd", entry(S, S3), entry(S2, S4))
                apart = apart + jnp.einsum("ad,bc->abcd", entry(S, S4), entry(S2, S3))
            found.append((together, apart))
        return found

    @jax.jit
    def step(key, gram, directions, curves):
        normals = draw(key)
        (along,) = directions
        value = mean_of(gram, normals)
        slopes = jax.vmap(lambda v: jax.jvp(lambda g: mean_of(g, normals), (gram,), (v,))[1])(along)

        curved = {}
        for s, (eigenvalues, vectors) in curves.items():
            where = pairs.index(PLAIN if s == 0 else TANGENT)

            def second(v, where=where):
                def first_derivative(g):
                    return jax.jvp(lambda h: mean_of(h, normals)[where], (g,), (v,))[1]

                return jax.jvp(first_derivative, (gram,), (v,))[1]

            bends = jax.vmap(second)(vectors)
            curved[s] = 0.5 * jnp.einsum("r,rab->ab", eigenvalues, bends)
        pairs_of_products = jax.vmap(products, (None, 0))(gram, normals)
        made = [tuple(jnp.mean(part, axis=0) for part in two) for two in pairs_of_products]
        return value, slopes, curved, made

    return step


def require_room(indices: int, fields: int) -> None:
    """Refuse more tokens than the dense derivatives of a head can take."""
    if indices * fields > 96:
        allowed = f"attention with {fields} fields takes at most {96 // fields} tokens in all"
        raise InvalidValueError("inputs times positions", indices, allowed)
