"""Attention heads at infinite width: K and Θ of what they read, all inputs at once.

Queries, keys and their tangents are Gaussian given K and Θ of the signal; values are integrated
exactly: with the pattern S of a head and its tangent δS, K' = C_v E[S G Sᵀ] and
Θ' = E[S (λ_v G + C_v Θ) Sᵀ + C_v δS G δSᵀ]. Heads are sampled jointly for all inputs, since they
share weights: the sampled K' and Θ' are Gram matrices, as the exact ones are.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from dynagram._memory import require_memory
from dynagram.errors import InvalidValueError
from dynagram.networks.blocks._attention import Attention

Gram = Float[np.ndarray, "input position input position"]
_CHUNK_NUMBERS = 2**21  # floats of one product held at a time
_MOST_TOKENS = 4096  # in all inputs
_COPIES = 8  # queries, keys and their tangents, as drawn and as turned


class HeadKernels(NamedTuple):
    """K and Θ of what the heads read."""

    K: Gram
    Theta: Gram


def head_kernels(
    block: Attention, K: Gram, Theta: Gram | None, *, samples: int, seed: tuple[int, ...]
) -> HeadKernels:
    """Averages over `samples` heads. Cost: 12 U²T flop each, for U tokens in all, T of an input.

    Memory: about ten U × U matrices. Where patterns and their tangents do not vary (C_q or C_k is
    0, and queries and keys do not learn) one sample is enough and the result exact.
    """
    inputs, positions = K.shape[:2]
    tokens = inputs * positions
    if tokens > _MOST_TOKENS:
        allowed = f"attention takes at most {_MOST_TOKENS} tokens in all"
        raise InvalidValueError("inputs times positions", tokens, allowed)
    G = K.reshape(tokens, tokens)
    tangent = np.zeros_like(G) if Theta is None else Theta.reshape(tokens, tokens)
    roots = tuple(
        jnp.asarray(root_of(scale * G + rate * tangent))
        for scale, rate in (
            (block.C_q, 0.0), (block.C_k, 0.0),
            (block.lambda_q, block.C_q), (block.lambda_k, block.C_k),
        )
    )  # fmt: skip
    chunk = int(np.clip(_CHUNK_NUMBERS // tokens**2, 2, 512))
    needed = 8.0 * _COPIES * (chunk // 2) * tokens * block.head_size
    require_memory("head_size", block.head_size, needed, "smaller heads")
    chunks = 1 if is_certain(block) else max(1, samples // chunk)
    step = _batch(block, inputs, positions, chunk)
    first_key = jax.random.key(int(np.random.SeedSequence(seed).generate_state(1)[0]))
    total = None
    for key in jax.random.split(first_key, chunks):
        part = step(key, jnp.asarray(G), jnp.asarray(tangent), roots)
        total = part if total is None else jax.tree.map(jnp.add, total, part)
    assert total is not None
    shape = (inputs, positions, inputs, positions)
    heads = chunks * chunk
    patterned, moved, turned = (np.asarray(part).reshape(shape) / heads for part in total)
    Theta_out = block.lambda_v * patterned + block.C_v * (moved + turned)
    return HeadKernels(_symmetric(block.C_v * patterned), _symmetric(Theta_out))


def is_certain(block: Attention) -> bool:
    """Whether every head has the same pattern, and its tangent is zero."""
    learns = block.C_k * block.lambda_q + block.C_q * block.lambda_k
    return block.C_q * block.C_k == 0.0 and learns == 0.0


def _symmetric(array: Gram) -> Gram:
    return 0.5 * (array + array.transpose(2, 3, 0, 1))


def root_of(G: Float[np.ndarray, "token token"]) -> Float[np.ndarray, "token rank"]:
    """L with G = L Lᵀ, of the rank of G: repeated tokens cost nothing."""
    values, vectors = np.linalg.eigh(0.5 * (G + G.T))
    alive = values > 1e-14 * max(float(values[-1]), 1e-300)
    if not np.any(alive):
        return np.zeros((G.shape[0], 1))
    return vectors[:, alive] * np.sqrt(values[alive])


@functools.lru_cache(maxsize=32)
def _batch(block: Attention, inputs: int, positions: int, chunk: int):
    """Sums over `chunk` heads of S G Sᵀ, S Θ Sᵀ and δS G δSᵀ, compiled."""
    d, seen = block.head_size, jnp.asarray(block.mask(positions))
    angles = block.angles(positions)

    def drawn(key: jax.Array, root: jax.Array) -> jax.Array:
        normal = jax.random.normal(key, (chunk // 2, root.shape[1], d), jnp.float64)
        return jnp.einsum("ur,crd->cud", root, normal)

    def prepared(x: jax.Array, dx: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Queries or keys (…, input, position, d) and their tangents, normalised and rotated."""
        if block.qk_norm:
            scale = jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True))
            x = x * scale
            dx = scale * dx - x * jnp.mean(x * dx * scale, axis=-1, keepdims=True)
        return rotated(x), rotated(dx)

    def rotated(x: jax.Array) -> jax.Array:
        if angles is None:
            return x
        cos, sin = (jnp.asarray(f(angles))[None, None] for f in (np.cos, np.sin))
        first, second = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)

    def sandwich(left: jax.Array, G: jax.Array) -> jax.Array:
        """Σ_samples S G Sᵀ over all pairs of inputs."""
        half = jnp.einsum("cnpq,nqms->cnpms", left, G)
        return jnp.einsum("cnpms,cmts->npmt", half, left)

    @jax.jit
    def step(key, G, Theta, roots):
        shape = (chunk // 2, inputs, positions, d)
        keys = jax.random.split(key, 4)
        q, k, dq, dk = (
            drawn(one, root).reshape(shape) for one, root in zip(keys, roots, strict=True)
        )
        (q, dq), (k, dk) = prepared(q, dq), prepared(k, dk)
        product = functools.partial(jnp.einsum, "cnpd,cnqd->cnpq")
        logits = block.logit_scale * product(q, k)
        change = block.logit_scale * (product(dq, k) + product(q, dk))
        # Queries and their tangents change sign together: another head of the same probability.
        logits, change = (jnp.concatenate([part, -part]) for part in (logits, change))
        S = jax.nn.softmax(jnp.where(seen[None, None], logits, -jnp.inf), axis=-1)
        dS = S * (change - jnp.sum(S * change, axis=-1, keepdims=True))
        four = (inputs, positions, inputs, positions)
        G, Theta = G.reshape(four), Theta.reshape(four)
        return sandwich(S, G), sandwich(S, Theta), sandwich(dS, G)

    return step
