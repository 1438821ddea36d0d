"""Arithmetic with derivative fields: x = Σ_S x_S t_S, products of disjoint t_S only (t_r² = 0).

An element is a dictionary from sets of directions to arrays; a set that is absent is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from dynagram.theory.chain._fields import partitions, subsets

Element = dict[int, Any]


def multiply(a: Element, b: Element, product: Callable[[Any, Any], Any]) -> Element:
    """(ab)_S = Σ_{U ⊆ S} a_U b_{S∖U}, with `product` of the arrays."""
    made: Element = {}
    for S in sorted(set(a) | set(b)):
        parts = [product(a[U], b[S ^ U]) for U in subsets(S) if U in a and S ^ U in b]
        if parts:
            made[S] = sum(parts[1:], start=parts[0])
    return made


def compose(x: Element, derivatives: Sequence[Any]) -> Element:
    """f(x) from f, f', f'', f''' at x_∅ (Faà di Bruno)."""
    made: Element = {}
    for S in sorted(x):
        total = None
        for blocks in partitions(S):
            if any(B not in x for B in blocks):
                continue
            part = derivatives[len(blocks)]
            for B in blocks:
                part = part * x[B]
            total = part if total is None else total + part
        if total is not None:
            made[S] = total
    return made


def softmax(logits: Element, seen: Any) -> Element:
    """Softmax over the last axis of the entries where `seen`; all its derivative fields."""
    top = jnp.max(jnp.where(seen, logits[0], -jnp.inf), axis=-1, keepdims=True)
    weights = jnp.where(seen, jnp.exp(jnp.where(seen, logits[0] - top, 0.0)), 0.0)
    raised = compose(logits, [weights] * 4)
    total = {S: jnp.sum(part, axis=-1, keepdims=True) for S, part in raised.items()}
    inverse = 1.0 / total[0]
    slopes = [inverse, -(inverse**2), 2.0 * inverse**3, -6.0 * inverse**4]
    return multiply(raised, compose(total, slopes), jnp.multiply)


def unit_rms(x: Element) -> Element:
    """x over its root mean square along the last axis."""
    square = multiply(x, x, lambda a, b: jnp.mean(a * b, axis=-1, keepdims=True))
    base = square[0]
    slopes = [base**-0.5, -0.5 * base**-1.5, 0.75 * base**-2.5, -1.875 * base**-3.5]
    return multiply(x, compose(square, slopes), jnp.multiply)
