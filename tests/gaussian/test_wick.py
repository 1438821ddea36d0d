"""Pairings, partitions and moments ↔ cumulants against counts, quadrature and known laws."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynagram.errors import InvalidValueError
from dynagram.gaussian._wick import (
    cumulants_from_moments,
    joint_cumulant,
    joint_moment,
    moments_from_cumulants,
    pairings,
    set_partitions,
    wick,
)

BELL = [1, 1, 2, 5, 15, 52, 203, 877, 4140]


@pytest.mark.parametrize("points", range(9))
def test_counts_and_coverage(points):
    expected = 0 if points % 2 else math.prod(range(1, points, 2))
    assert len(set(pairings(points))) == len(pairings(points)) == expected
    assert len(set(set_partitions(points))) == len(set_partitions(points)) == BELL[points]
    for blocks in (*pairings(points), *set_partitions(points)):
        assert sorted(i for block in blocks for i in block) == list(range(points))


def test_too_many_points_are_refused():
    for function in (pairings, set_partitions):
        with pytest.raises(InvalidValueError, match="points = 13"):
            function(13)
        with pytest.raises(InvalidValueError, match="points = -1"):
            function(-1)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_wick_is_gauss_hermite_up_to_eight_points(rank):
    """Polynomials of degree 8 are exact on 8 nodes a direction; singular covariances included."""
    rng = np.random.default_rng(rank)
    root = rng.normal(size=(3, rank))
    K = root @ root.T
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    weights = weights / weights.sum()
    u = np.array(list(product(nodes, repeat=rank)))
    w = np.array([math.prod(point) for point in product(weights, repeat=rank)])
    z = u @ root.T
    for points in (2, 3, 4, 6, 8):
        for indices in rng.integers(0, 3, size=(5, points)):
            direct = np.sum(w * np.prod(z[:, indices], axis=1))
            scale = math.sqrt(np.prod(np.diagonal(K)[indices]))
            assert abs(wick(K, indices.tolist()) - direct) < 1e-12 * scale * math.factorial(points)


def test_the_parity_even_formulas():
    """(1.54) and (1.61): a mixture of two Gaussians, whose moments are known."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(2, 6, 6))
    covariances = roots @ roots.transpose(0, 2, 1)

    def moment(block):
        return 0.3 * wick(covariances[0], block) + 0.7 * wick(covariances[1], block)

    four = (
        moment((0, 1, 2, 3))
        - moment((0, 1)) * moment((2, 3))
        - moment((0, 2)) * moment((1, 3))
        - moment((0, 3)) * moment((1, 2))
    )
    assert math.isclose(joint_cumulant(moment, 4), four, rel_tol=1e-12)
    six = moment((0, 1, 2, 3, 4, 5))
    for pairing in pairings(6):
        six += 2 * math.prod(moment(pair) for pair in pairing)
    for i in range(6):
        for j in range(i + 1, 6):
            six -= moment(tuple(k for k in range(6) if k not in (i, j))) * moment((i, j))
    assert math.isclose(joint_cumulant(moment, 6), six, rel_tol=1e-9)
    assert joint_cumulant(moment, 3) == 0


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32 - 1))
def test_moments_and_cumulants_are_inverse(seed):
    rng = np.random.default_rng(seed)
    table = {}

    def cumulant(block):
        return table.setdefault(block, float(rng.normal()))

    def moment(block):
        return joint_moment(lambda inner: cumulant(tuple(block[i] for i in inner)), len(block))

    recovered = joint_cumulant(moment, 5)
    assert math.isclose(recovered, cumulant((0, 1, 2, 3, 4)), rel_tol=1e-9, abs_tol=1e-9)


def test_independent_variables_have_no_joint_cumulant():
    def moment(block):  # X_0 = X_1 Bernoulli(1/3), X_2 = X_3 exponential, independent
        bernoulli = any(i < 2 for i in block)
        exponential = math.factorial(sum(i >= 2 for i in block))
        return Fraction(1, 3) ** bernoulli * exponential

    assert joint_cumulant(moment, 4) == 0
    assert joint_cumulant(lambda block: moment(tuple(i + 2 for i in block)), 2) == 1


def test_cumulants_of_known_laws():
    poisson = cumulants_from_moments([2, 6, 22, 94])
    assert poisson == [2, 2, 2, 2]
    n = 7  # χ²_n: moments n(n + 2)…, cumulants 2^{k−1}(k−1)! n
    moments = [math.prod(n + 2 * s for s in range(m)) for m in range(1, 8)]
    expected = [2 ** (k - 1) * math.factorial(k - 1) * n for k in range(1, 8)]
    assert cumulants_from_moments(moments) == expected
    assert moments_from_cumulants(expected) == moments
    normal = [1, 3, 7, 25, 81, 331]  # mean 1, variance 2
    assert moments_from_cumulants([1, 2, 0, 0, 0, 0]) == normal


def test_one_variable_is_the_joint_case_repeated():
    moments = [Fraction(k * k + 1, k + 2) for k in range(1, 7)]
    for m in range(1, 7):
        joint = joint_cumulant(lambda block: moments[len(block) - 1], m)
        assert joint == cumulants_from_moments(moments)[m - 1]
