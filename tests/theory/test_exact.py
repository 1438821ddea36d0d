"""Exact finite-width solutions against loop counting, recursions, limits and ensembles."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad

from dynagram.ensembles import simulate
from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._wick import pairings
from dynagram.networks import MLP
from dynagram.results._comparison import compare
from dynagram.theory.statistics._exact import (
    double_scaling,
    exact_metric,
    linear_four_point,
    log_metric,
    mean_square_variance,
    width_factors,
)

ONE = np.array([[1.0, -0.5, 2.0]])
TWO = np.array([[1.0, 0.5, -0.3, 0.8], [-0.6, 0.3, 1.1, 0.9]])


def three_factors(plus, minus, n):
    """c_2, c_4, c_6 of a layer of n neurons in closed form."""
    A2, A4, A6 = (0.5 * (plus**k + minus**k) for k in (2, 4, 6))
    second = A2**2 + (3 * A4 - A2**2) / n
    third = ((n - 1) * (n - 2) * A2**3 + 9 * (n - 1) * A2 * A4 + 15 * A6) / n**2
    return np.array([A2, second, third])


def _loops(pairing, m):
    """Index loops when neuron indices are tied as (0,1), (2,3), … and as in `pairing`."""
    parent = list(range(m))

    def find(i):
        while parent[i] != i:
            i = parent[i]
        return i

    for i, j in pairing:
        parent[find(i // 2)] = find(j // 2)
    return len({find(i) for i in range(m)})


@pytest.mark.parametrize("n", [1, 3, 10, 1000])
def test_linear_factors_are_loop_counts_and_gamma_functions(n):
    found = width_factors("linear", n, 5)
    for m in range(1, 6):
        counted = sum(Fraction(n) ** (_loops(pairing, m) - m) for pairing in pairings(2 * m))
        product = math.prod(1 + 2 * s / n for s in range(m))
        gamma = (2 / n) ** m * math.exp(math.lgamma(n / 2 + m) - math.lgamma(n / 2))
        np.testing.assert_allclose(found[m - 1], float(counted), rtol=1e-14)
        np.testing.assert_allclose(found[m - 1], product, rtol=1e-14)
        np.testing.assert_allclose(found[m - 1], gamma, rtol=1e-11)
    np.testing.assert_allclose(found[3], 1 + 12 / n + 44 / n**2 + 48 / n**3, rtol=1e-14)


@pytest.mark.parametrize("name", ["relu", "leaky_relu(0.3)", "abs", "linear"])
def test_scale_invariant_factors(name):
    """One neuron and two neurons can be summed by hand; three moments are known at any width."""
    plus, minus = {"relu": (1, 0), "leaky_relu(0.3)": (1, 0.3)}.get(name, (1, 1))
    single = [
        math.prod(range(1, 2 * m, 2)) * 0.5 * (plus ** (2 * m) + minus ** (2 * m))
        for m in range(1, 7)
    ]
    np.testing.assert_allclose(width_factors(name, 1, 6), single, rtol=1e-14)
    padded = [1.0, *single]
    double = [
        sum(math.comb(m, k) * padded[k] * padded[m - k] for k in range(m + 1)) / 2**m
        for m in range(1, 7)
    ]
    np.testing.assert_allclose(width_factors(name, 2, 6), double, rtol=1e-14)
    np.testing.assert_allclose(
        width_factors(name, 17, 3), three_factors(plus, minus, 17), rtol=1e-13
    )


def test_moments_and_connected_parts_of_a_linear_network():
    """(3.28), (3.47), (3.57) and the eight-point formula at unequal widths and variances."""
    net = MLP([3, 4, 7, 5, 2], "linear", C_b=0.0, C_W=[1.3, 0.7, 1.1, 0.9])
    exact = exact_metric(net, ONE, 4)
    square = np.sum(ONE**2) / 3
    for layer in range(4):
        G2 = square * math.prod(net.C_W[: layer + 1])
        hidden = net.widths[1 : layer + 1]
        G = [
            G2**m * math.prod(1 + 2 * s / n for n in hidden for s in range(m)) for m in range(1, 5)
        ]
        np.testing.assert_allclose(exact.moments[layer, 0], G, rtol=1e-13)
        G2, G4, G6, G8 = G
        expected = [
            G2,
            G4 - G2**2,
            G6 - 3 * G2 * G4 + 2 * G2**3,
            G8 - 4 * G2 * G6 - 3 * G4**2 + 12 * G2**2 * G4 - 6 * G2**4,
        ]
        np.testing.assert_allclose(exact.cumulants[layer, 0], expected, rtol=1e-11, atol=1e-13)


def test_cumulants_of_very_wide_networks_keep_their_digits():
    """κ_4 is 1e-24 of G_2⁴ here: computed from float moments it would be noise."""
    n, depth = 10**8, 5
    net = MLP([3] + [n] * (depth - 1) + [1], "linear", C_b=0.0, C_W=1.0)
    found = exact_metric(net, math.sqrt(3) * np.eye(3)[:1], 4).cumulants[-1, 0]
    mu = [math.prod(1 + Fraction(2 * s, n) for s in range(m)) ** (depth - 1) for m in range(5)]
    expected = [
        mu[1],
        mu[2] - mu[1] ** 2,
        mu[3] - 3 * mu[1] * mu[2] + 2 * mu[1] ** 3,
        mu[4] - 4 * mu[1] * mu[3] - 3 * mu[2] ** 2 + 12 * mu[1] ** 2 * mu[2] - 6 * mu[1] ** 4,
    ]
    np.testing.assert_allclose(found, [float(value) for value in expected], rtol=1e-14)
    assert found[1] == pytest.approx(2 * (depth - 1) / n, rel=1e-6)


def test_moments_with_printed_numbers():
    """ReLU, n = 100: Var = [(1 + 5/n)^{ℓ−1} − 1]K², no correction to the mean."""
    net = MLP([10, *[100] * 7, 1], "relu", C_b=0.0, C_W=2.0)
    moments = exact_metric(net, np.full((1, 10), np.sqrt(0.5)), 2).moments[:, 0]
    np.testing.assert_allclose(moments[:, 0], 1.0, rtol=1e-14)
    spread = 100 * (moments[:, 1] - 1)
    np.testing.assert_allclose(spread[[1, 2, 4, 7]], [5, 10.25, 21.5506, 40.71], atol=5e-3)
    # linear: c_6 = 1 + 6/n + 8/n² (3.42)
    linear = MLP([3, 7, 1], "linear", C_b=0.0, C_W=1.0)
    third = exact_metric(linear, np.full((1, 3), np.sqrt(2.0)), 3).moments[1, 0, 2]
    assert third == pytest.approx(8 * (1 + 6 / 7 + 8 / 49), rel=1e-14)


def test_relu_at_criticality():
    net = MLP([3, 9, 5, 8, 1], "relu", C_b=0.0, C_W=2.0)
    exact = exact_metric(net, ONE, 2)
    G2 = 2.0 * np.sum(ONE**2) / 3
    growth = np.cumprod([1.0, 1 + 5 / 9, 1 + 5 / 5, 1 + 5 / 8])
    np.testing.assert_allclose(exact.moments[:, 0, 0], G2, rtol=1e-14)
    np.testing.assert_allclose(exact.moments[:, 0, 1], G2**2 * growth, rtol=1e-14)


@pytest.mark.parametrize("name", ["relu", "leaky_relu(0.3)"])
def test_moments_agree_with_the_three_known_ones(name):
    net = MLP([3, 6, 9, 5, 1], name, C_b=0.0, C_W=1.4)
    exact = exact_metric(net, np.concatenate([ONE, 2 * ONE]), 3)
    K1 = 1.4 * float(np.sum(ONE**2)) / 3
    slopes = (1.0, 0.0 if name == "relu" else 0.3)
    factors = [1.4 ** np.arange(1, 4) * three_factors(*slopes, n) for n in (6, 9, 5)]
    expected = K1 ** np.arange(1, 4) * np.cumprod([np.ones(3), *factors], axis=0)
    np.testing.assert_allclose(exact.moments[:, 0], expected, rtol=1e-13)
    np.testing.assert_allclose(exact.moments[:, 1], expected * [4, 16, 64], rtol=1e-13)


def test_linear_four_point_recursion():
    """M' = C_W²[M_(12)(34) + (M_(13)(24) + M_(14)(23))/n], layer by layer."""
    net = MLP([4, 7, 5, 3, 2], "linear", C_b=0.0, C_W=[1.2, 0.8, 1.1, 0.9])
    M = linear_four_point(net, TWO)
    first = 1.2 * TWO @ TWO.T / 4
    np.testing.assert_allclose(M[0], np.einsum("ab,cd->abcd", first, first), rtol=1e-13)
    for layer in range(1, 4):
        below, n = M[layer - 1], net.widths[layer]
        crossed = np.einsum("acbd->abcd", below) + np.einsum("adbc->abcd", below)
        expected = net.C_W[layer] ** 2 * (below + crossed / n)
        np.testing.assert_allclose(M[layer], expected, rtol=1e-13)
    one = exact_metric(net, TWO, 2).moments[:, :, 1]
    np.testing.assert_allclose(np.einsum("laaaa->la", M), one, rtol=1e-13)


def test_a_linear_slope_is_part_of_the_gain():
    half = MLP([4, 7, 5, 1], lambda z: 0.5 * z, C_b=0.0, C_W=1.2)
    unit = MLP([4, 7, 5, 1], "linear", C_b=0.0, C_W=[1.2, 0.3, 0.3])
    np.testing.assert_allclose(
        linear_four_point(half, TWO), linear_four_point(unit, TWO), rtol=1e-13
    )


def test_linear_ensembles():
    """V = n(M − GG) and Var Ĝ of ReLU are exact, so they meet samples at a narrow width."""
    net = MLP([4, 7, 5, 1], "linear", C_b=0.0, C_W=1.2)
    G = np.stack([1.2**layer * TWO @ TWO.T / 4 for layer in (1, 2, 3)])
    exact = linear_four_point(net, TWO) - np.einsum("lab,lcd->labcd", G, G)
    fan_in = np.array([0, 7, 5])[:, None, None, None, None]
    found = simulate(net, TWO, ("V",), members=200_000, seed=3).estimate("V")
    assert np.max(found.standard_error[2] / np.abs(exact[2] * 5)) < 0.2
    assert compare(fan_in * exact, found).ok(), str(compare(fan_in * exact, found))
    relu = MLP([3, 9, 5, 1], "relu", C_b=0.0, C_W=2.0)
    cumulants = exact_metric(relu, ONE, 2).cumulants[:, 0, 1] * np.array([0, 9, 5])
    found = simulate(relu, ONE, ("V",), members=200_000, seed=4).estimate("V")
    assert compare(cumulants.reshape(3, 1, 1, 1, 1), found).ok()


def test_mean_square_variance_of_drawn_weights():
    rng = np.random.default_rng(5)
    net = MLP([3, 4, 5, 6], "linear", C_b=0.0, C_W=1.1)
    draws, z = 300_000, np.sqrt(1.1 / 3) * rng.normal(size=(300_000, 4, 3)) @ ONE[0]
    expected = mean_square_variance(net, ONE)[:, 0]
    for layer, (n_in, n_out) in enumerate([(3, 4), (4, 5), (5, 6)]):
        if layer:
            weights = np.sqrt(1.1 / n_in) * rng.normal(size=(draws, n_out, n_in))
            z = np.einsum("bij,bj->bi", weights, z)
        squared = (np.mean(z**2, axis=1) - 1.1 ** (layer + 1) * np.sum(ONE**2) / 3) ** 2
        error = squared.std() / math.sqrt(draws)
        assert error < 0.03 * expected[layer]
        assert abs(squared.mean() - expected[layer]) < 4 * error
    wide = MLP([1] + [10**6] * 4, "linear", C_b=0.0, C_W=1.0)
    leading = 2 * np.arange(1, 5) / 10**6
    np.testing.assert_allclose(
        mean_square_variance(wide, np.ones((1, 1)))[:, 0], leading, rtol=1e-5
    )


@pytest.mark.parametrize("n", [3, 8])
def test_log_metric_of_one_layer_is_the_chi_square_integral(n):
    def density(g):  # of χ²_n/n
        return math.exp(
            n / 2 * math.log(n / 2) - math.lgamma(n / 2) + (n / 2 - 1) * math.log(g) - n * g / 2
        )

    moments = [
        quad(lambda g, k=k: density(g) * math.log(g) ** k, 0, np.inf, epsabs=1e-13)[0]
        for k in (1, 2)
    ]
    mean, variance = log_metric(MLP([2, n, n, 1], "linear", C_b=0.0, C_W=0.7))
    np.testing.assert_allclose(mean, np.arange(3) * moments[0], rtol=1e-8)
    np.testing.assert_allclose(variance, np.arange(3) * (moments[1] - moments[0] ** 2), rtol=1e-8)


@pytest.mark.parametrize(("name", "slope"), [("linear", 2.0), ("relu", 5.0), ("abs", 2.0)])
def test_double_scaling_is_reached_at_rate_one_over_n(name, slope):
    ratio, errors = 0.3, []
    limit = double_scaling(name, ratio, 4)
    m = np.arange(1, 5)
    np.testing.assert_allclose(limit.moments, np.exp(slope * m * (m - 1) * ratio / 2), rtol=1e-13)
    critical = 2.0 if name == "relu" else 1.0
    for n in (200, 400):
        net = MLP([1] + [n] * int(ratio * n) + [1], name, C_b=0.0, C_W=critical)
        exact = exact_metric(net, np.full((1, 1), 1 / math.sqrt(critical)), 4)
        errors.append(exact.moments[-1, 0, 1:] / limit.moments[1:] - 1)
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.1)


def test_double_scaling_cumulants_and_lognormal_law():
    # κ_m as a sum of exponentials e^{kr}, expanded in r: the low orders cancel exactly.
    r, weights = 1e-3, [{2: 1, 0: -1}, {6: 1, 2: -3, 0: 2}, {12: 1, 6: -4, 4: -3, 2: 12, 0: -6}]
    series = [
        [sum(w * k**p for k, w in terms.items()) / math.factorial(p) for p in range(12)]
        for terms in weights
    ]
    assert [next(c for c in row if c) for row in series] == [2, 12, 128]
    expected = [sum(c * r**p for p, c in enumerate(row)) for row in series]
    limit = double_scaling("linear", r, 4)
    np.testing.assert_allclose(limit.cumulants[1:], expected, rtol=1e-13)
    # A lognormal law has E[g^m] = exp(m μ + m² s²/2).
    limit = double_scaling("relu", 0.4, 5)
    m = np.arange(1, 6)
    lognormal = np.exp(m * limit.log_mean + 0.5 * m**2 * limit.log_variance)
    np.testing.assert_allclose(limit.moments, lognormal, rtol=1e-13)
    mean, variance = log_metric(MLP([1] + [2000] * 1000 + [1], "linear", C_b=0.0, C_W=1.0))
    linear = double_scaling("linear", 0.5, 1)
    assert mean[-1] == pytest.approx(linear.log_mean, rel=2e-3)
    assert variance[-1] == pytest.approx(linear.log_variance, rel=2e-3)
    assert double_scaling("linear", 0.0, 3).cumulants.tolist() == [1.0, 0.0, 0.0]


def test_the_limits_do_not_commute():
    def kurtosis(n, depth):
        net = MLP([1] + [n] * (depth - 1) + [1], "linear", C_b=0.0, C_W=1.0)
        return exact_metric(net, np.ones((1, 1)), 2).moments[-1, 0, 1]

    assert kurtosis(10**9, 50) == pytest.approx(1.0, abs=2e-7)  # (3.49)
    assert kurtosis(10, 400) > 1e31  # (3.50)
    assert kurtosis(1000, 501) == pytest.approx(math.e, rel=2e-3)  # (3.55)


def test_refusals():
    linear = MLP([3, 4, 1], "linear", C_b=0.0, C_W=1.0)
    for bad, complaint in [
        (MLP([3, 4, 1], "tanh", C_b=0.0, C_W=1.0), "scale-invariant"),
        (MLP([3, 4, 1], "relu2", C_b=0.0, C_W=1.0), "scale-invariant"),
        (MLP([3, 4, 1], "relu", C_b=[0.0, 0.1], C_W=1.0), "C_b = 0 in every layer"),
    ]:
        with pytest.raises(InvalidValueError, match=complaint):
            exact_metric(bad, ONE, 2)
    relu = MLP([3, 4, 1], "relu", C_b=0.0, C_W=2.0)
    with pytest.raises(InvalidValueError, match="linear networks only"):
        linear_four_point(relu, ONE)
    with pytest.raises(InvalidValueError, match="linear networks only"):
        log_metric(relu)
    with pytest.raises(InvalidValueError, match="count = 0"):
        exact_metric(linear, ONE, 0)
    with pytest.raises(InvalidValueError, match="width = 0"):
        width_factors("linear", 0, 2)
    with pytest.raises(InvalidValueError, match="ratio = -1.0"):
        double_scaling("linear", -1.0, 2)
    deep = MLP([3] + [2] * 900 + [1], "linear", C_b=0.0, C_W=1.0)
    with pytest.raises(NonFiniteError, match="too deep for its width"):
        exact_metric(deep, ONE, 4)
    with pytest.raises(NonFiniteError, match="leave float64"):
        exact_metric(linear, 1e100 * ONE, 4)
