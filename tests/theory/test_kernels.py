"""K, V and G^{1}: golden numbers, exact cases and symmetries."""

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._predict import predict
from dynagram.theory.criticality import single_input

X = np.array([[1.0, 0.5, -0.3, 0.8], [-0.6, 0.3, 1.1, 0.9]])
ENTRIES = [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 1), (1, 1, 1, 1)]


def test_two_inputs_tanh():
    """By an independent quadrature, widths 30-45-20: seven digits of V, six of G^{1}."""
    result = predict(MLP([4, 30, 45, 20, 3], "tanh", 0.15, 1.6), X)
    V = {
        1: [0.2431380, 0.0352451, 0.0025200, 0.4074670, 0.0354344, 0.2629826],
        2: [0.2689441, 0.0772072, 0.0135700, 0.5847924, 0.0771876, 0.2751396],
        3: [0.2276463, 0.1055313, 0.0299827, 0.3995187, 0.1057659, 0.2306066],
    }
    G1 = {2: [-0.076270, 0.019478, -0.074211], 3: [-0.041723, 0.020564, -0.040550]}
    for layer, values in V.items():
        np.testing.assert_allclose([result["V"][layer][e] for e in ENTRIES], values, atol=6e-8)
    for layer, values in G1.items():
        got = result["G1"][layer][np.triu_indices(2)]
        np.testing.assert_allclose(got, values, atol=6e-7)
    np.testing.assert_allclose(
        result["K"][3][np.triu_indices(2)], [0.68013677, 0.36485393, 0.68792743], atol=6e-9
    )
    assert result.regime.verdict == "trust"
    np.testing.assert_allclose(result.metric[3], result["K"][3] + result["G1"][3] / 20, rtol=1e-14)


def test_two_inputs_relu():
    """By an independent computation, widths 24-36-18."""
    result = predict(MLP([4, 24, 36, 18, 3], "relu", 0.1, 1.9), X)
    V = {
        1: [4.88541, 1.20729, 0.19848, 1.24768, 1.47735, 7.31551],
        2: [11.95994, 4.76090, 2.05008, 4.37910, 5.79304, 17.64240],
        3: [11.20032, 6.14555, 4.02312, 5.93294, 7.37631, 16.11353],
    }
    for layer, values in V.items():
        np.testing.assert_allclose([result["V"][layer][e] for e in ENTRIES], values, atol=6e-6)
    np.testing.assert_allclose(result["G1"][[2, 3], 0, 1], [-0.36247, -0.34970], atol=6e-6)
    np.testing.assert_allclose(np.diagonal(result["G1"], axis1=1, axis2=2), 0.0, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tanh", "gelu", "relu", "elu", "sigmoid", "softsign"])
def test_diagonal_follows_the_single_input_recursion(name):
    network = MLP([4, 12, 30, 20, 3], name, [0.1, 0.0, 0.2, 0.1], [1.0, 1.5, 0.7, 1.1])
    result = predict(network, X)
    flow = single_input(
        MLP(network.widths, name, C_b=network.C_b, C_W=network.C_W), np.diagonal(result["K"][0])
    )
    for a in range(2):
        np.testing.assert_allclose(result["K"][:, a, a], flow.K[:, a], rtol=1e-11)
        np.testing.assert_allclose(result["V"][:, a, a, a, a], flow.V[:, a], rtol=1e-7, atol=1e-12)
        np.testing.assert_allclose(result["G1"][:, a, a], flow.G1[:, a], rtol=1e-6, atol=1e-10)


def test_deep_linear_is_exact_at_leading_order():
    """V = (ℓ−1)(K_13 K_24 + K_14 K_23) at equal widths, whatever the number of inputs."""
    x = np.random.default_rng(0).standard_normal((7, 4))
    found = predict(MLP([4, 9, 9, 9, 1], "linear", 0.0, 1.0), x, ("K", "V"))
    V, K = found["V"], found["K"]
    wick = np.einsum("ac,bd->abcd", K[0], K[0]) + np.einsum("ad,bc->abcd", K[0], K[0])
    for layer in range(4):
        np.testing.assert_allclose(V[layer], layer * wick, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["tanh", "relu", "elu"])
def test_repeated_zero_and_opposite_inputs(name):
    network = MLP([4, 12, 18, 9, 3], name, 0.1, 1.3)
    x = np.stack([X[0], X[1], X[0], np.zeros(4), -X[0]])
    result, two = predict(network, x), predict(network, X)
    np.testing.assert_array_equal(result["V"][:, 0], result["V"][:, 2])
    np.testing.assert_array_equal(result["G1"][:, 0], result["G1"][:, 2])
    # Adding samples leaves the old entries alone, to the error reported.
    slack = 6 * result.errors["V"][:, :2, :2, :2, :2] + 1e-7
    assert np.all(np.abs(result["V"][:, :2, :2, :2, :2] - two["V"]) < slack)
    np.testing.assert_allclose(result["G1"][:, :2, :2], two["G1"], atol=2e-6)


def test_symmetries_and_positivity():
    x = np.random.default_rng(3).standard_normal((3, 4))
    V = predict(MLP([4, 12, 18, 3], "gelu", 0.1, 1.6), x, ("V",))["V"]
    for axes in ((0, 2, 1, 3, 4), (0, 1, 2, 4, 3), (0, 3, 4, 1, 2)):
        np.testing.assert_allclose(V, V.transpose(axes), atol=1e-13)
    a, b = np.triu_indices(3)
    for layer in (1, 2):
        matrix = V[layer][a, b][:, a, b]
        assert np.linalg.eigvalsh(matrix).min() > -1e-9 * np.trace(matrix)
    order = [2, 0, 1]
    permuted = predict(MLP([4, 12, 18, 3], "gelu", 0.1, 1.6), x[order], ("V",))["V"]
    chosen = V[:, order][:, :, order][:, :, :, order][..., order]
    np.testing.assert_allclose(permuted, chosen, rtol=1e-6, atol=1e-10)


def test_rescaling_the_inputs_of_a_scale_invariant_network():
    network = MLP([4, 12, 18, 3], "leaky_relu(0.3)", 0.0, 1.5)
    small, large = predict(network, X), predict(network, 3 * X)
    np.testing.assert_allclose(large["K"], 9 * small["K"], rtol=1e-11)
    np.testing.assert_allclose(large["V"], 81 * small["V"], rtol=1e-8)


def test_each_tensor_by_itself_and_requests():
    network = MLP([4, 12, 18, 3], "sin", 0.1, 1.0)
    result = predict(network, X, ("K", "Theta"))
    assert result.regime.order == "∞"
    full = predict(network, X)
    np.testing.assert_array_equal(result["K"], full["K"])
    np.testing.assert_array_equal(full["V"], predict(network, X, ("V",))["V"])
    np.testing.assert_array_equal(full["G1"], predict(network, X, "G1")["G1"])
    with pytest.raises(InvalidValueError, match="tensors"):
        predict(network, X, ("W",))
    with pytest.raises(InvalidValueError, match="this result holds K, Theta"):
        _ = result.metric


def test_too_many_samples_for_the_vertex_are_refused_in_one_line():
    network = MLP([4, 12, 1], "relu", 0.0, 2.0)
    with pytest.raises(InvalidValueError, match="at most .* samples"):
        predict(network, np.ones((400, 4)))


def test_a_jump_has_no_tangent_kernel():
    network = MLP([4, 12, 12, 1], "step", 0.0, 1.0)
    K = predict(network, X, ("K",))["K"]
    angle = np.arccos(K[0, 0, 1] / np.sqrt(K[0, 0, 0] * K[0, 1, 1]))
    off = 0.5 - angle / (2 * np.pi)
    np.testing.assert_allclose(K[1], [[0.5, off], [off, 0.5]], rtol=1e-10)
    with pytest.raises(InvalidValueError, match="only K, V and G1 exist"):
        predict(network, X, ("K", "Theta"))
