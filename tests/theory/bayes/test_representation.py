"""Hidden-layer shifts: 8-digit vectors, deep ReLU laws, earlier layers, exact mixtures."""

from itertools import pairwise

import numpy as np
import pytest

from dynagram._pairs import pairs_to_matrix
from dynagram.activations import activation
from dynagram.data import Data
from dynagram.gaussian._families import PairFamily, TwoPoint
from dynagram.networks import MLP
from dynagram.theory._predict import predict
from dynagram.theory.bayes import association, conditional_metric, representation_shift
from dynagram.theory.bayes._representation import pulled_back
from dynagram.theory.statistics._correlators import MetricCumulants, metric_cumulants
from dynagram.training import Posterior

X = 1.3 * np.array([[1.0, 0.4, -0.3], [0.2, -1.1, 0.7], [0.9, -0.2, 0.5]])
Y = np.array([[0.9, 0.3], [-0.5, 1.1]])
# Coefficients (6.104) of the last hidden layer on the pairs 00, 01, 02, 11, 12, 22.
VECTORS = {
    (7,): (-0.10452884, -0.02670216, -0.07438995, -0.03366056, -0.01525362, -0.03744709),
    (7, 7): (-0.09478751, -0.16801412, -0.13011161, 0.00402441, -0.07200609, -0.06223881),
    (14, 7): (-0.09172045, -0.13716669, -0.11441930, 0.00289360, -0.05841263, -0.05610212),
}


@pytest.mark.parametrize("hidden", VECTORS)
def test_eight_digit_vectors(hidden):
    network = MLP([3, *hidden, 2], "sin", C_b=0.1, C_W=1.6)
    found = representation_shift(network, Data(X[:2], Y, X[2:]), Posterior())
    expected = pairs_to_matrix(np.array(VECTORS[hidden]))
    np.testing.assert_allclose(found.activations[-1], expected, rtol=0, atol=6e-9)
    np.testing.assert_allclose(found.activation_shift[-1], expected / 7, rtol=0, atol=2e-9)
    if len(hidden) == 2:  # the layer before moves at the same order
        first = [-0.0202, -0.0902, -0.0531, 0.0081, -0.0422, -0.0387]
        np.testing.assert_allclose(
            found.activations[0], pairs_to_matrix(np.array(first)), rtol=0, atol=6e-5
        )


def test_noise_and_larger_targets():
    network = MLP([3, 7, 2], "sin", C_b=0.1, C_W=1.6)
    found = representation_shift(network, Data(X[:2], 2 * Y, X[2:]), Posterior(0.3))
    expected = np.array([0.1129, -0.1550, -0.0194, 0.2627, 0.0382, 0.0001])
    np.testing.assert_allclose(found.activations[0], pairs_to_matrix(expected), atol=6e-5)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_deep_relu(depth):
    """K = 1, Y = 3: 5ℓ/2 per layer for activations; z² of one neuron moves by 2 + V."""
    network, x = MLP([1, *[9] * (depth - 1), 1], "relu", 0.0, 2.0), np.sqrt([[0.5]])
    found = representation_shift(network, Data(x, np.sqrt([[3.0]])), Posterior())
    layers = np.arange(1.0, depth)
    np.testing.assert_allclose(found.activations.ravel(), 2.5 * layers, rtol=1e-9)
    np.testing.assert_allclose(found.preactivations.ravel(), 2.0 + 5.0 * (layers - 1), rtol=1e-9)
    np.testing.assert_allclose(found.preactivation_shift, found.preactivations / 9)
    np.testing.assert_allclose(found.source, [[2.0]], rtol=1e-9)


def test_neurons_of_a_linear_network_move_like_their_average():
    """σ = z: the shift of one neuron's product is that of the average over neurons."""
    network = MLP([3, 12, 8, 20, 2], "linear", [0.1, 0.2, 0.0, 0.3], [1.1, 0.9, 1.2, 0.8])
    found = representation_shift(network, Data(X[:2], Y, X[2:]), Posterior())
    np.testing.assert_allclose(found.preactivations, found.activations, rtol=1e-9)
    assert np.min(np.abs(found.activations)) > 1e-3


def test_typical_targets_move_nothing():
    """Σ_i y_i y_i = n_L K: the targets look like the prior."""
    network = MLP([3, 20, 20, 2], "tanh", 0.1, 1.3)
    root = np.linalg.cholesky(predict(network, X[:2], ("K",))["K"][-1])
    found = representation_shift(network, Data(X[:2], np.sqrt(2.0) * root), Posterior())
    np.testing.assert_allclose(found.activations, 0.0, atol=1e-12)


def test_pulling_back_is_the_transpose_of_propagating():
    rng = np.random.default_rng(5)
    factor = rng.normal(size=(3, 5))
    for name in ("tanh", "relu"):
        family = PairFamily.of(TwoPoint(activation(name), factor @ factor.T), 0, 0)
        tensor, weights = rng.normal(size=6), rng.normal(size=6)
        left, right = weights @ family.propagate(tensor), pulled_back(family, weights) @ tensor
        assert left == pytest.approx(right, rel=1e-12)


# --- neurons that fire together ---------------------------------------------------------------


@pytest.mark.parametrize(("name", "slope"), [("linear", 1.0), ("relu", 2.5)])
def test_association_of_two_neurons(name, slope):
    """n ΔVar = slope (ž² − 1) in the second layer, K = 1: V = 2 for linear, 5 for ReLU."""
    C_W = 1.0 if name == "linear" else 2.0
    theory = predict(MLP([1, 50, 1], name, 0.0, C_W), np.sqrt([[1.0 / C_W]]))
    cumulants = metric_cumulants(theory, 2)
    for observed in (0.0, 1.0, 2.0):
        variance = conditional_metric(cumulants, np.array([[observed]]))
        assert 50 * (variance.item() - 1.0) == pytest.approx(slope * (observed**2 - 1), abs=1e-9)
    assert 50 * association(cumulants).item() == pytest.approx(slope, rel=1e-9)


def test_association_of_a_linear_layer_by_integration():
    """Ĝ = χ²_n/n exactly: E[g N(z; g)]/E[N(z; g)] by quadrature, extrapolated in 1/n."""
    from scipy.integrate import quad
    from scipy.stats import gamma

    def coefficient(n, z):
        def weighted(power):
            def integrand(g):
                density = gamma.pdf(g, n / 2, scale=2 / n)
                return density * g ** (power - 0.5) * np.exp(-z * z / (2 * g))

            return quad(integrand, 0.0, 4.0, points=[1.0], epsabs=0, epsrel=1e-11, limit=200)[0]

        return n * (weighted(1) / weighted(0) - 1.0)

    for z in (0.0, 2.0):
        extrapolated = 2 * coefficient(800, z) - coefficient(400, z)
        assert extrapolated == pytest.approx(z * z - 1.0, abs=2e-3)


def test_several_neurons_and_inputs_against_an_exact_mixture():
    """Ĝ = K ± √h A: the conditional metric without expansion, extrapolated in h."""
    rng = np.random.default_rng(2)
    factor, A = rng.normal(size=(3, 6)), rng.normal(size=(4, 3, 3))
    K, A = factor @ factor.T / 4, 0.1 * (A + A.swapaxes(1, 2))
    observed = rng.normal(size=(2, 3))

    def exact(h):
        total, weights = 0.0, 0.0
        for G in (K + sign * np.sqrt(h) * a for sign in (1, -1) for a in A):
            inverse = np.linalg.inv(G)
            exponent = np.einsum("ja,ab,jb->", observed, inverse, observed)
            weight = np.linalg.det(G) ** -1.0 * np.exp(-0.5 * exponent)
            total, weights = total + weight * G, weights + weight
        return total / weights

    V = np.einsum("kab,kcd->abcd", A, A) / len(A)
    predicted = conditional_metric(MetricCumulants(K, V, fan_in=1), observed) - K
    table = [(exact(h) - K) / h for h in 2e-3 * 0.5 ** np.arange(5)]
    for order in range(1, 5):
        table = [(2**order * b - a) / (2**order - 1) for a, b in pairwise(table)]
    np.testing.assert_allclose(predicted, table[0], rtol=0, atol=1e-8)
    assert np.min(np.abs(predicted)) > 1e-4
