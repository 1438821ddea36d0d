"""Attention heads on the way back at infinite width: Gram matrices of the gradients of q, k, v.

With the pattern S of a head, P^a = diag(S_a) − S_a S_aᵀ and X = C_v G, a Gram matrix φ of gradients
of what the heads read gives those of values, E[Sᵀ φ S], and of logits, φ_ab (P^a X P^b)_cc' between
(a, c) and (b, c'); gradients of queries and keys follow by ∂ℓ_ac/∂q_a and ∂ℓ_ac/∂k_c. Heads are
sampled; forward and back use the same ones.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram.networks.blocks._attention import Attention

Gram = Float[np.ndarray, "_ _"]
_CHUNK_NUMBERS = 2**22  # floats of one product held at a time


class HeadGradients:
    """Sampled heads of a block that reads a signal with Gram matrix `G`."""

    def __init__(self, block: Attention, G: Gram, inputs: int, samples: int, seed: int):
        # What does not bear on patterns is left out, so that blocks share compiled code.
        same = dict.fromkeys(("C_O", "lambda_q", "lambda_k", "lambda_v", "lambda_O"), 1.0)
        self.block, self.inputs, self.seed = replace(block, **same), inputs, seed
        tokens = G.shape[0]
        self.G = jnp.asarray(G)
        self.chunk = 2 * int(np.clip(_CHUNK_NUMBERS // (2 * tokens**4), 1, 256))
        self.chunks = max(1, samples // self.chunk)
        self.root = jnp.asarray(_root(G))

    def forward(self) -> Gram:
        """C_v E[S G Sᵀ]."""
        run, _ = _compiled(self.block, self.inputs, self.G.shape[0] // self.inputs, self.chunk)
        return np.asarray(self._mean(lambda key: run(key, self.G, self.root)))

    def backward(self, phi: Gram) -> dict[str, Gram]:
        """Gram matrices of the gradients of queries, keys and values, summed over all channels."""
        _, run = _compiled(self.block, self.inputs, self.G.shape[0] // self.inputs, self.chunk)
        made = self._mean(lambda key: run(key, self.G, self.root, jnp.asarray(phi)))
        return {name: np.asarray(part) for name, part in made.items()}

    def _mean(self, function):
        total = None
        for key in jax.random.split(jax.random.key(self.seed), self.chunks):
            part = function(key)
            total = part if total is None else jax.tree.map(jnp.add, total, part)
        return jax.tree.map(lambda value: value / self.chunks, total)


def _root(G: Gram) -> Gram:
    values, vectors = np.linalg.eigh(0.5 * (G + G.T))
    return vectors * np.sqrt(np.maximum(values, 0.0))


@functools.lru_cache(maxsize=32)
def _compiled(block: Attention, inputs: int, positions: int, chunk: int):
    d, scale = block.head_size, block.logit_scale
    one = np.repeat(np.arange(inputs), positions)
    seen = (one[:, None] == one[None, :]) & np.tile(block.mask(positions), (inputs, inputs))
    angles = block.angles(positions)
    turn = None if angles is None else np.tile(angles, (inputs, 1))

    def logits(q: jax.Array, k: jax.Array) -> jax.Array:
        if block.qk_norm:
            q, k = (x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True)) for x in (q, k))
        if turn is not None:
            q, k = _turned(q, jnp.asarray(turn)), _turned(k, jnp.asarray(turn))
        return scale * (q @ k.T)

    def slopes(q: jax.Array, k: jax.Array) -> tuple[jax.Array, jax.Array]:
        """∂ℓ_ac/∂q_a and ∂ℓ_ac/∂k_c, (a, c, component)."""

        def entry(one: jax.Array, two: jax.Array, a: jax.Array, c: jax.Array) -> jax.Array:
            if block.qk_norm:
                one, two = (x * jax.lax.rsqrt(jnp.mean(x**2)) for x in (one, two))
            if turn is not None:
                angle = jnp.asarray(turn)
                one, two = _turned(one, angle[a]), _turned(two, angle[c])
            return scale * jnp.sum(one * two)

        at = jnp.arange(q.shape[0])
        over_c = jax.vmap(jax.grad(entry, (0, 1)), (None, 0, None, 0))
        return jax.vmap(over_c, (0, None, 0, None))(q, k, at, at)

    def drawn(key: jax.Array, root: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Queries, with both signs, and keys: (sample, token, component)."""
        size = (chunk // 2, root.shape[1], d)
        normal_q, normal_k = (
            jax.random.normal(k, size, jnp.float64) for k in jax.random.split(key)
        )
        q = np.sqrt(block.C_q) * jnp.einsum("ur,srd->sud", root, normal_q)
        k = np.sqrt(block.C_k) * jnp.einsum("ur,srd->sud", root, normal_k)
        return jnp.concatenate([q, -q]), jnp.concatenate([k, k])

    def pattern(q: jax.Array, k: jax.Array) -> jax.Array:
        return jax.nn.softmax(jnp.where(jnp.asarray(seen), logits(q, k), -jnp.inf), axis=-1)

    @jax.jit
    def forward(key, G, root):
        def read(q, k):
            S = pattern(q, k)
            return block.C_v * (S @ G @ S.T)

        return jnp.mean(jax.vmap(read)(*drawn(key, root)), axis=0)

    @jax.jit
    def backward(key, G, root, phi):
        def pulled(q, k):
            S = pattern(q, k)
            P = jax.vmap(jnp.diag)(S) - S[:, :, None] * S[:, None, :]
            # (a, c, b, c'): gradients of logits
            lam = block.C_v * jnp.einsum("ab,ace,ef,bfg->acbg", phi, P, G, P, optimize=True)
            u, w = slopes(q, k)
            return {
                "q": jnp.einsum("acbg,acd,bgd->ab", lam, u, u, optimize=True),
                "k": jnp.einsum("acbg,acd,bgd->cg", lam, w, w, optimize=True),
                "v": S.T @ phi @ S,
            }

        made = jax.vmap(pulled)(*drawn(key, root))
        return jax.tree.map(lambda part: jnp.mean(part, axis=0), made)

    return forward, backward


def _turned(x: jax.Array, angle: jax.Array) -> jax.Array:
    first, second = jnp.split(x, 2, axis=-1)
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)
