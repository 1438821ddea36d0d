"""Self-attention over the positions of one sequence, with its output matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from dynagram.errors import InvalidValueError
from dynagram.networks._checks import checked_choice, checked_integer
from dynagram.networks.blocks._block import (
    Block,
    Shape,
    Signal,
    check_variances,
    draw_normal,
    store,
)

SCALES = ("1/sqrt(d)", "1/d")


@dataclass(frozen=True)
class Attention(Block):
    """Softmax attention of several heads, and the matrix that mixes what they read.

    **Arguments:**

    - `heads`: their number H.
    - `head_size`: d, the size of queries, keys and values of a head.
    - `width`: channels that come out; by default as many as come in.
    - `causal`: whether a position sees only itself and those before it.
    - `scale`: of the logits q·k, "1/sqrt(d)" or "1/d".
    - `groups`: key and value heads, each shared by H/groups query heads; by default H.
    - `qk_norm`: whether queries and keys are divided by their root mean square.
    - `rope`: the base of rotary position angles, such as 10000; None for none.
    - `C_q`, `C_k`, `C_v`, `C_O`: variances of the weights times fan-in.
    - `lambda_q`, `lambda_k`, `lambda_v`, `lambda_O`: learning rates times fan-in.

    >>> Attention(heads=4, head_size=8).out_shape(Shape((5,), 32))
    Shape(grid=(5,), channels=32)
    """

    kind: ClassVar[str] = "attention"

    heads: int
    head_size: int
    width: int | None = None
    causal: bool = False
    scale: str = "1/sqrt(d)"
    groups: int | None = None
    qk_norm: bool = False
    rope: float | None = None
    C_q: float = 1.0
    C_k: float = 1.0
    C_v: float = 1.0
    C_O: float = 1.0
    lambda_q: float = 1.0
    lambda_k: float = 1.0
    lambda_v: float = 1.0
    lambda_O: float = 1.0

    def __post_init__(self) -> None:
        for name in ("heads", "head_size"):
            store(self, **{name: checked_integer(name, getattr(self, name), 1)})
        if self.width is not None:
            store(self, width=checked_integer("width", self.width, 1))
        store(self, scale=checked_choice("scale", self.scale, SCALES))
        if self.groups is not None:
            store(self, groups=checked_integer("groups", self.groups, 1))
            if self.heads % self.groups:
                raise InvalidValueError("groups", self.groups, f"must divide {self.heads} heads")
        if self.rope is not None and (self.rope <= 0 or self.head_size % 2):
            raise InvalidValueError("rope", self.rope, "a positive base, and an even head size")
        letters = ("q", "k", "v", "O")
        check_variances(self, *(f"{what}_{of}" for what in ("C", "lambda") for of in letters))

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.groups is None else self.groups

    @property
    def logit_scale(self) -> float:
        """What multiplies q·k."""
        return 1.0 / self.head_size if self.scale == "1/d" else self.head_size**-0.5

    def out_shape(self, shape: Shape) -> Shape:
        """The same positions."""
        return Shape(shape.grid, shape.channels if self.width is None else self.width)

    def _sizes(self, shape: Shape) -> dict[str, tuple[tuple[int, int], float, float]]:
        """Shape, variance and learning rate of every matrix."""
        n, d = shape.channels, self.head_size
        queries, keys = self.heads * d, self.key_heads * d
        out = self.out_shape(shape).channels
        return {
            "q": ((queries, n), self.C_q / n, self.lambda_q / n),
            "k": ((keys, n), self.C_k / n, self.lambda_k / n),
            "v": ((keys, n), self.C_v / n, self.lambda_v / n),
            "O": ((out, queries), self.C_O / queries, self.lambda_O / queries),
        }

    def draw(self, key: Array, shape: Shape, dtype: Any) -> Any:
        """The matrices q, k, v, O."""
        sizes = self._sizes(shape)
        pairs = zip(jax.random.split(key, len(sizes)), sizes.items(), strict=True)
        return {name: draw_normal(k, size, c, dtype) for k, (name, (size, c, _)) in pairs}

    def rates(self, shape: Shape) -> Any:
        """λ over fan-in."""
        return {name: rate for name, (_, _, rate) in self._sizes(shape).items()}

    def mask(self, positions: int) -> Bool[np.ndarray, "query key"]:
        """Which position sees which."""
        full = np.ones((positions, positions), dtype=bool)
        return np.tril(full) if self.causal else full

    def angles(self, positions: int) -> np.ndarray | None:
        """The rotary angle of every position in every plane, (positions, d/2)."""
        if self.rope is None:
            return None
        planes = np.arange(self.head_size // 2)
        return np.arange(positions)[:, None] * self.rope ** (-2.0 * planes / self.head_size)

    def apply(self, params: Any, x: Signal, shape: Shape) -> Signal:
        """W_O times what the heads read."""
        samples, T, d = x.shape[0], x.shape[1], self.head_size

        def split(name: str, heads: int) -> Array:
            return (x @ params[name].T).reshape(samples, T, heads, d)

        q, k = split("q", self.heads), split("k", self.key_heads)
        q, k = (self.prepared(part, shape.positions) for part in (q, k))
        v, shared = split("v", self.key_heads), self.heads // self.key_heads
        k, v = (jnp.repeat(part, shared, axis=2) for part in (k, v))
        logits = self.logit_scale * jnp.einsum("sqhd,skhd->shqk", q, k)
        logits = jnp.where(self.mask(T)[None, None], logits, -jnp.inf)
        read = jnp.einsum("shqk,skhd->sqhd", jax.nn.softmax(logits, axis=-1), v)
        return read.reshape(samples, T, -1) @ params["O"].T

    def prepared(self, q: Array, positions: int) -> Array:
        """Queries or keys (…, positions, heads, d), normalised and rotated as asked."""
        if self.qk_norm:
            q = q * jax.lax.rsqrt(jnp.mean(q**2, axis=-1, keepdims=True))
        angles = self.angles(positions)
        if angles is not None:
            shape = (*[1] * (q.ndim - 3), positions, 1, angles.shape[1])
            cos, sin = (jnp.asarray(f(angles), q.dtype).reshape(shape) for f in (np.cos, np.sin))
            first, second = jnp.split(q, 2, axis=-1)
            q = jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)
        return q
