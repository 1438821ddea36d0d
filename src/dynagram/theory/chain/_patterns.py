"""Queries and keys of a head with their derivative fields, and the pattern of its attention.

Given the Gram matrix of the signal, the fields q_S and k_S are Gaussian and, at infinite width,
independent for different S. An entry of the vertex has every direction twice, so a field of two
directions never meets its like: it stands alone, averages to zero and is not drawn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from dynagram.networks.blocks._attention import Attention
from dynagram.theory.chain._algebra import Element, Fields, inverse_rms, multiply, softmax
from dynagram.theory.chain._fields import size


@dataclass(frozen=True)
class Layout:
    """Which token sees which, and where it stands: (input, position) pairs in order."""

    block: Attention
    inputs: int
    positions: int

    @property
    def seen(self) -> Bool[np.ndarray, "token token"]:
        """A token sees tokens of its own input, as the mask of the block allows."""
        owner = np.repeat(np.arange(self.inputs), self.positions)
        mask = np.tile(self.block.mask(self.positions), (self.inputs, self.inputs))
        return (owner[:, None] == owner[None, :]) & mask

    def turn(self, x: np.ndarray, axis: int, sign: float = 1.0) -> np.ndarray:
        """x with its last axis rotated by the angle of the token on `axis`."""
        angles = self.block.angles(self.positions)
        if angles is None:
            return x
        shape = [1] * x.ndim
        shape[axis], shape[-1] = self.inputs * self.positions, angles.shape[1]
        angles = np.tile(sign * angles, (self.inputs, 1)).reshape(shape)
        cos, sin = np.cos(angles), np.sin(angles)
        left, right = np.split(x, 2, axis=-1)
        return np.concatenate([left * cos - right * sin, left * sin + right * cos], axis=-1)


@dataclass(frozen=True)
class Prepared:
    """Queries or keys (sample, token, component) as the logits take them.

    `ready` are normalised and rotated, `unit` normalised only, `inverse` one over their root mean
    square; the last two are None where nothing is normalised.
    """

    ready: Element
    unit: Element | None
    inverse: Element | None


def prepare(layout: Layout, x: Element, fields: Fields) -> Prepared:
    """Normalise and rotate, as the block asks."""
    unit = inverse = None
    if layout.block.qk_norm:
        inverse = inverse_rms(x, fields)
        unit = x = multiply(x, inverse, np.multiply, fields)
    return Prepared({S: layout.turn(part, 1) for S, part in x.items()}, unit, inverse)


def make_pattern(layout: Layout, q: Element, k: Element, fields: Fields) -> tuple[Element, Element]:
    """The logits s q·k of prepared queries and keys, and their softmax (sample, token, token)."""
    scale = layout.block.logit_scale
    logits = multiply(q, k, lambda a, b: scale * (a @ np.swapaxes(b, 1, 2)), fields)
    return logits, softmax(logits, layout.seen, fields)


def draw_fields(
    rng: np.random.Generator,
    roots: dict[int, Float[np.ndarray, "token rank"]],
    fields: Fields,
    count: int,
    components: int,
) -> Element:
    """Gaussian fields of at most one direction, with covariances root rootᵀ by their size."""
    return {
        S: roots[size(S)] @ rng.standard_normal((count, roots[size(S)].shape[1], components))
        for S in fields
        if size(S) in roots
    }


def signed(queries: Element) -> Element:
    """Queries of both signs: all fields together, another head of the same probability."""
    return {S: np.concatenate([part, -part]) for S, part in queries.items()}


def doubled(keys: Element) -> Element:
    """Keys for queries of both signs."""
    return {S: np.concatenate([part, part]) for S, part in keys.items()}
