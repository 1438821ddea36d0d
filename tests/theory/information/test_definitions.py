"""Entropies of appendix A: identities, signs, and the refusal of what is no distribution."""

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.theory.information import (
    cross_entropy,
    relative_entropy,
    shannon_entropy,
    shared_entropy,
)

RNG = np.random.default_rng(0)


def some(*shape):
    p = RNG.random(shape)
    return p / p.sum()


def test_entropy():
    """(A.2), (A.3), (A.6)-(A.8): certain, uniform, independent, dependent."""
    assert shannon_entropy(np.array([0.0, 1.0, 0.0])) == 0.0
    assert shannon_entropy(np.full((3, 4), 1 / 12)) == pytest.approx(np.log(12))
    p, q, joint = some(3), some(4), some(3, 4)
    both = shannon_entropy(np.outer(p, q))
    assert both == pytest.approx(shannon_entropy(p) + shannon_entropy(q))
    parts = shannon_entropy(joint.sum(axis=1)) + shannon_entropy(joint.sum(axis=0))
    assert shannon_entropy(joint) < parts
    assert shared_entropy(joint) == pytest.approx(parts - shannon_entropy(joint))


def test_relative_entropy():
    """(A.12)-(A.14): ≥ 0, zero for equal ones, and the information as one."""
    p, q = some(6), some(6)
    assert relative_entropy(p, q) > 0
    assert relative_entropy(p, q) != pytest.approx(relative_entropy(q, p))
    assert relative_entropy(p, p) == 0.0
    direct = float(np.sum(p * np.log(p / q)))
    assert relative_entropy(p, q) == pytest.approx(direct)
    joint = some(3, 4)
    product = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    assert shared_entropy(joint) == pytest.approx(relative_entropy(joint, product))
    assert cross_entropy(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == np.inf


def test_three_variables():
    """(A.24): the printed sum of logarithms, and three copies of one bit."""
    p = some(2, 3, 4)
    xy, yz, zx = p.sum(axis=2), p.sum(axis=0), p.sum(axis=1)
    x, y, z = p.sum(axis=(1, 2)), p.sum(axis=(0, 2)), p.sum(axis=(0, 1))
    above = xy[:, :, None] * yz[None] * zx[:, None, :]
    below = x[:, None, None] * y[None, :, None] * z[None, None, :] * p
    assert shared_entropy(p) == pytest.approx(float(np.sum(p * np.log(above / below))))
    copies = np.zeros((2, 2, 2))
    copies[0, 0, 0] = copies[1, 1, 1] = 0.5
    assert shared_entropy(copies) == pytest.approx(np.log(2))


def test_refusals():
    with pytest.raises(InvalidValueError, match="add up to 1"):
        shannon_entropy(np.array([0.5, 0.4]))
    with pytest.raises(InvalidValueError, match="≥ 0"):
        shannon_entropy(np.array([1.5, -0.5]))
    with pytest.raises(InvalidValueError, match="shape of q"):
        cross_entropy(some(3), some(4))
    with pytest.raises(InvalidValueError, match="two or three"):
        shared_entropy(some(3))
