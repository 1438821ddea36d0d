"""Arithmetic with derivative fields: x = Σ_S x_S t_S, products of disjoint t_S only (t_r² = 0).

An element is a dictionary from sets of directions to arrays; a set that is absent is zero. Results
have the sets asked for in `fields`, as far as they are not zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dynagram.theory.chain._fields import partitions, subsets

Element = dict[int, np.ndarray]
Fields = Sequence[int]


def multiply(
    a: Element, b: Element, product: Callable[[np.ndarray, np.ndarray], np.ndarray], fields: Fields
) -> Element:
    """(ab)_S = Σ_{U ⊆ S} a_U b_{S∖U}, with `product` of the arrays."""
    made: Element = {}
    for S in fields:
        parts = [product(a[U], b[S ^ U]) for U in subsets(S) if U in a and S ^ U in b]
        if parts:
            made[S] = sum(parts[1:], start=parts[0])
    return made


def compose(x: Element, derivatives: Sequence[np.ndarray], fields: Fields) -> Element:
    """f(x) from f, f', f'', f''' at x_∅ (Faà di Bruno)."""
    made: Element = {}
    for S in fields:
        for blocks in partitions(S):
            if any(B not in x for B in blocks):
                continue
            part = derivatives[len(blocks)]
            for B in blocks:
                part = part * x[B]
            made[S] = made[S] + part if S in made else part
    return made


def softmax(logits: Element, seen: np.ndarray, fields: Fields) -> Element:
    """Softmax over the last axis of the entries where `seen`; all its derivative fields."""
    top = np.max(np.where(seen, logits[0], -np.inf), axis=-1, keepdims=True)
    weights = np.where(seen, np.exp(np.where(seen, logits[0] - top, 0.0)), 0.0)
    raised = compose(logits, [weights] * 4, fields)
    total = {S: part.sum(axis=-1, keepdims=True) for S, part in raised.items()}
    inverse = 1.0 / total[0]
    slopes = [inverse, -(inverse**2), 2.0 * inverse**3, -6.0 * inverse**4]
    return multiply(raised, compose(total, slopes, fields), np.multiply, fields)


def inverse_rms(x: Element, fields: Fields) -> Element:
    """One over the root mean square of x along the last axis, which is kept."""
    square = multiply(x, x, lambda a, b: np.mean(a * b, axis=-1, keepdims=True), fields)
    base = square[0]
    slopes = [base**-0.5, -0.5 * base**-1.5, 0.75 * base**-2.5, -1.875 * base**-3.5]
    return compose(square, slopes, fields)
