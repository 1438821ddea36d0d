"""The quartic action against (4.46) by quadrature, exact integrals, and the recursions."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.integrate import quad

from dynagram.activations import activation
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._predict import predict
from dynagram.theory.statistics._couplings import (
    QuarticAction,
    integrated_out,
    inverse,
    leading_action,
    next_action,
    next_propagator,
    running_quadratic,
)

TANH = activation("tanh")
THREE = np.array([[1.0, 0.5, -0.3, 0.8], [-0.6, 0.3, 1.1, 0.9], [0.2, -0.7, 0.9, -0.4]])


def _random_action(samples, neurons, seed=0):
    """An action with every symmetry V has, and no other."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(samples, samples))
    g = inverse(root @ root.T / samples + 0.5 * np.eye(samples), "g")
    v = rng.normal(size=(samples,) * 4)
    v = v + v.transpose(1, 0, 2, 3)
    v = v + v.transpose(0, 1, 3, 2)
    v = v + v.transpose(2, 3, 0, 1)
    return QuarticAction(g, v, neurons)


class _FirstOrder:
    """(4.46) by Gauss-Hermite: ⟨F⟩ + ⟨QF⟩ − ⟨Q⟩⟨F⟩ with Q = ⅛ v Σ_ij zz zz."""

    def __init__(self, action, order):
        n, samples = action.neurons, action.quadratic.shape[0]
        nodes, weights = np.polynomial.hermite_e.hermegauss(order)
        weights = weights / weights.sum()
        u = np.array(list(product(nodes, repeat=n * samples))).reshape(-1, n, samples)
        self.w = np.array([math.prod(p) for p in product(weights, repeat=n * samples)])
        self.z = u @ np.linalg.cholesky(np.linalg.inv(action.quadratic)).T
        squares = np.einsum("mia,mib->mab", self.z, self.z)
        self.Q = np.einsum("abcd,mab,mcd->m", action.quartic, squares, squares) / 8

    def __call__(self, F):
        mean = np.sum(self.w * F)
        return mean + np.sum(self.w * self.Q * F) - np.sum(self.w * self.Q) * mean

    def slope(self, F):
        return self(F) - np.sum(self.w * F)


@pytest.mark.parametrize("neurons", [1, 2])
def test_two_and_four_points(neurons):
    action = _random_action(2, neurons)
    average = _FirstOrder(action, 6)
    z, g = average.z, action.propagator
    for a, b in product(range(2), repeat=2):
        assert average(z[:, 0, a] * z[:, 0, b]) == pytest.approx(action.metric[a, b], rel=1e-11)
    if neurons == 1:
        return
    v, one = action.vertex, np.eye(2)
    for a, b, c, d in product(range(2), repeat=4):
        for i, j, k, m in product(range(2), repeat=4):
            product_of_four = z[:, i, a] * z[:, j, b] * z[:, k, c] * z[:, m, d]
            shifted = action.metric - g  # first order of ⟨zz⟩⟨zz⟩, three times
            disconnected = sum(
                one[p[0], p[1]] * one[p[2], p[3]] * (shifted[s] * g[t] + g[s] * shifted[t])
                for p, s, t in [
                    ((i, j, k, m), (a, b), (c, d)),
                    ((i, k, j, m), (a, c), (b, d)),
                    ((i, m, j, k), (a, d), (b, c)),
                ]
            )
            expected = (
                one[i, j] * one[k, m] * v[a, b, c, d]
                + one[i, k] * one[j, m] * v[a, c, b, d]
                + one[i, m] * one[j, k] * v[a, d, b, c]
            )
            connected = average.slope(product_of_four) - disconnected
            assert connected == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("name", ["sin", "tanh"])
def test_averages_of_activations(name):
    """(4.61) on one neuron; the rule is exact for sin, nearly so for tanh at these variances."""
    sigma = activation(name)
    v = _random_action(2, 1, seed=3).quartic
    g = np.array([[0.3, 0.12], [0.12, 0.25]])
    small = QuarticAction(inverse(g, "g"), v, 1)
    average = _FirstOrder(small, 80)
    s = sigma.values(average.z[:, 0])
    direct = [[average(s[:, a] * s[:, b]) for b in range(2)] for a in range(2)]
    np.testing.assert_allclose(small.pair_average(sigma), direct, rtol=1e-9)


def test_the_number_of_neurons_enters_as_printed():
    """(4.61) has one term proportional to n: two neurons, by a 4-d rule, against one."""
    sigma = activation("sin")
    g = np.array([[0.3, 0.12], [0.12, 0.25]])
    action = QuarticAction(inverse(g, "g"), _random_action(2, 2, seed=3).quartic, 2)
    average = _FirstOrder(action, 14)
    s = sigma.values(average.z)
    direct = [[average(s[:, 1, a] * s[:, 1, b]) for b in range(2)] for a in range(2)]
    np.testing.assert_allclose(action.pair_average(sigma), direct, rtol=1e-9)
    # (4.63): pairs on different neurons.
    found = action.pair_covariance(sigma)
    for a, b, c, d in product(range(2), repeat=4):
        left, right = s[:, 0, a] * s[:, 0, b], s[:, 1, c] * s[:, 1, d]
        means = [np.sum(average.w * side) for side in (left, right)]
        first_order = (
            average.slope(left * right)
            - average.slope(left) * means[1]
            - average.slope(right) * means[0]
        )
        assert found[a, b, c, d] == pytest.approx(first_order, rel=1e-8, abs=1e-10)


def test_relu_averages_have_the_delta_functions():
    """½∂²F:v of a kinked σ: F(g) of a closed form, differentiated numerically."""
    relu = activation("relu")
    g = np.array([[0.8, 0.3], [0.3, 0.6]])
    v = _random_action(2, 1, seed=5).quartic * 1e-3
    action = QuarticAction(inverse(g, "g"), v, 1)

    def F(K):
        angle = math.acos(K[1] / math.sqrt(K[0] * K[2]))
        size = math.sqrt(K[0] * K[2]) / (2 * math.pi)
        return size * (math.sin(angle) + (math.pi - angle) * math.cos(angle))

    pair, h = np.array([g[0, 0], g[0, 1], g[1, 1]]), 1e-4
    indices = [(0, 0), (0, 1), (1, 1)]
    eye = h * np.eye(3)
    total = F(pair)
    for i in range(3):
        total += (action.metric - g)[indices[i]] * (F(pair + eye[i]) - F(pair - eye[i])) / (2 * h)
        for j in range(3):
            second = (
                F(pair + eye[i] + eye[j])
                - F(pair + eye[i] - eye[j])
                - F(pair - eye[i] + eye[j])
                + F(pair - eye[i] - eye[j])
            ) / (4 * h * h)
            total += 0.5 * action.vertex[*indices[i], *indices[j]] * second
    assert action.pair_average(relu)[0, 1] == pytest.approx(total, rel=1e-7)


# --- one input: radial integrals of e^{-S} with v < 0, for which S is bounded ------------------


def _radial_metric(g, v, neurons):
    """E[z²] of the full action, not of its expansion."""

    def integral(power):
        return quad(
            lambda r: r ** (neurons - 1 + power) * math.exp(-g * r * r / 2 + v * r**4 / 8),
            0, np.inf, epsabs=1e-14, epsrel=1e-13,
        )[0]  # fmt: skip

    return integral(2) / integral(0) / neurons


@pytest.mark.parametrize("neurons", [1, 3, 10])
def test_running_couplings_against_exact_integrals(neurons):
    fan_in, G = 100, 0.8
    remainders = []
    for V in (-0.02, -0.01):
        g = running_quadratic(G, V, fan_in=fan_in, neurons=neurons)
        v = V / (fan_in * G**4)
        remainders.append(_radial_metric(g, v, neurons) - G)
        action = QuarticAction(np.full((1, 1), g), np.full((1,) * 4, v), neurons)
        expansion = 1 / g + 0.5 * (neurons + 2) * v / g**3  # (4.101)
        assert action.metric.item() == pytest.approx(expansion, rel=1e-13)
    assert abs(remainders[0]) < 1e-5
    assert remainders[0] / remainders[1] == pytest.approx(4.0, rel=0.05)  # second order in v


def test_integrating_neurons_out():
    remainders = []
    for v in (-2e-3, -1e-3):
        kept = integrated_out(1.3, v, neurons=6, kept=2)
        remainders.append(_radial_metric(kept, v, 2) - _radial_metric(1.3, v, 6))
    assert abs(remainders[0]) < 2e-5
    assert remainders[0] / remainders[1] == pytest.approx(4.0, rel=0.05)
    # (4.100) is (4.102) at two numbers of neurons, to first order.
    wide, narrow = (running_quadratic(0.8, 1e-4, fan_in=100, neurons=m) for m in (6, 2))
    v = 1e-4 / (100 * 0.8**4)
    assert integrated_out(wide, v, neurons=6, kept=2) == pytest.approx(narrow, rel=1e-10)


# --- several inputs: matching to a network -----------------------------------------------------


@pytest.fixture(scope="module")
def layers():
    net = MLP([4, 30, 45, 20, 1], "tanh", C_b=0.15, C_W=1.6)
    return predict(net, THREE, accuracy=1e-9)


def test_leading_couplings(layers):
    prediction = layers
    K, V = prediction["K"][2], prediction["V"][2]
    action = leading_action(K, V, fan_in=45, neurons=5)
    np.testing.assert_allclose(action.quadratic @ K, np.eye(3), atol=1e-13)
    np.testing.assert_allclose(action.vertex, V / 45, rtol=1e-10, atol=1e-13)
    explicit = sum(
        np.multiply.outer(
            np.multiply.outer(np.linalg.inv(K)[a], np.linalg.inv(K)[b]),
            np.multiply.outer(np.linalg.inv(K)[c], np.linalg.inv(K)[d]),
        )
        * V[a, b, c, d]
        for a, b, c, d in product(range(3), repeat=4)
    )
    np.testing.assert_allclose(action.quartic * 45, explicit, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("neurons", [1, 3, 10])
def test_the_metric_does_not_depend_on_the_neurons_kept(layers, neurons):
    prediction = layers
    K, V, G1 = prediction["K"][2], prediction["V"][2], prediction["G1"][2]
    errors, inverses = [], []
    for fan_in in (10**4, 2 * 10**4):
        action = next_action(K, V, G1, fan_in=fan_in, neurons=neurons)
        errors.append(action.metric - (K + G1 / fan_in))
        lower = next_propagator(K, V, G1, fan_in=fan_in, neurons=neurons)
        inverses.append(lower @ action.quadratic - np.eye(3))
    first_order = 0.5 * neurons * np.einsum("abcd,cd->ab", V, np.linalg.inv(K)) / 10**4
    assert np.max(np.abs(errors[0])) < 0.05 * np.max(np.abs(first_order))
    for pair in (errors, inverses):
        large = np.abs(pair[0]) > 0.1 * np.max(np.abs(pair[0]))
        np.testing.assert_allclose(pair[0][large] / pair[1][large], 4.0, rtol=0.02)


@pytest.mark.parametrize("neurons", [1, 3, 10])
def test_the_action_gives_the_recursions_of_the_next_layer(layers, neurons):
    """(4.61) with (4.109) is (4.115); (4.62) and (4.63) are (4.119)."""
    prediction = layers
    K, V, G1 = prediction["K"][2], prediction["V"][2], prediction["G1"][2]
    errors = []
    for fan_in in (10**6, 2 * 10**6):
        action = next_action(K, V, G1, fan_in=fan_in, neurons=neurons)
        metric = 0.15 + 1.6 * action.pair_average(TANH)
        # 1/n_ℓ G^{1}(ℓ+1) is independent of n_ℓ: rescale the network's own fan-ins 45 → 20.
        expected = prediction["G1"][3] / 20 * 45
        errors.append(fan_in * (metric - prediction["K"][3]) - expected)
    assert np.max(np.abs(errors[0])) < 0.01 * np.max(np.abs(prediction["G1"][3]))
    large = np.abs(errors[0]) > 0.1 * np.max(np.abs(errors[0]))
    np.testing.assert_allclose(errors[0][large] / errors[1][large], 2.0, rtol=0.05)
    action = leading_action(K, V, fan_in=45, neurons=neurons)
    carried = 1.6**2 * 20 * action.pair_covariance(TANH)
    # The same layer with n_ℓ/n_{ℓ−1} doubled: the difference is the carried term alone.
    doubled = predict(MLP([4, 30, 45, 40, 1], TANH, C_b=0.15, C_W=1.6), THREE, accuracy=1e-9)
    np.testing.assert_allclose(doubled["V"][3] - prediction["V"][3], carried, rtol=1e-7, atol=1e-9)


def test_singular_kernels_are_explained():
    repeated = np.array([[1.0, 1.0, 0.2], [1.0, 1.0, 0.2], [0.2, 0.2, 1.0]])
    with pytest.raises(InvalidValueError, match="of K = .* repeated or collinear.* drop some"):
        next_action(repeated, np.zeros((3,) * 4), np.zeros((3, 3)), fan_in=10, neurons=1)
    with pytest.raises(InvalidValueError, match="smallest eigenvalue of G"):
        leading_action(np.zeros((1, 1)), np.zeros((1,) * 4), fan_in=10, neurons=1)
    with pytest.raises(InvalidValueError, match="quadratic coupling = -"):
        QuarticAction(np.diag([1.0, -1.0]), np.zeros((2,) * 4), 1).propagator.sum()


def test_refusals():
    one, four = np.ones((1, 1)), np.ones((1,) * 4)
    with pytest.raises(InvalidValueError, match="fan_in = 0"):
        leading_action(one, four, fan_in=0, neurons=1)
    with pytest.raises(InvalidValueError, match="neurons = 0"):
        leading_action(one, four, fan_in=1, neurons=0)
    with pytest.raises(InvalidValueError, match="too many for fan_in = 10"):
        running_quadratic(1.0, 2.0, fan_in=10, neurons=9)
    with pytest.raises(InvalidValueError, match="kept = 4"):
        integrated_out(1.0, 0.1, neurons=3, kept=4)
