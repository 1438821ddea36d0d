"""K and Θ at infinite width: against neural-tangents, two-sample averages and exact laws."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.gaussian._two_point import two_point_matrix
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "neural_tangents.json").read_text())


@pytest.mark.parametrize(
    ("name", "digits"), [("relu", 1e-12), ("erf", 1e-12), ("gelu", 1e-12), ("tanh", 1e-10)]
)
def test_equals_neural_tangents(name, digits):
    golden = GOLDEN[name]
    x = np.random.default_rng(0).standard_normal((golden["samples"], 64))
    C_W = golden["C_W"]
    network = MLP([64, *[512] * 10, 1], name, 0.0, C_W, lambda_b=0.0, lambda_W=C_W)
    result = frozen_kernels(network, x, layers="last")
    np.testing.assert_allclose(result.K[0, 0, :2], golden["K"], rtol=digits)
    np.testing.assert_allclose(result.Theta[0, 0, 1], golden["Theta"][1], rtol=digits)
    # Its ReLU diagonal goes through arccos near 1 and is off by 4e-9; the exact value is 11 K.
    expected = 11 * result.K[0, 0, 0] if name == "relu" else golden["Theta"][0]
    np.testing.assert_allclose(result.Theta[0, 0, 0], expected, rtol=digits)


@pytest.mark.parametrize("name", ["tanh", "swish", "elu", "cos", "relu2", "hardtanh", "gelu"])
def test_equals_the_recursion_from_two_sample_averages(name):
    x = np.random.default_rng(1).standard_normal((7, 5))
    x[5] = x[0]
    x[6] = 0.0
    network = MLP([5, 9, 9, 9, 2], name, [0.1, 0.2, 0.3, 0.0], [0.9, 0.5, 0.8, 0.4], 0.3, 0.7)
    result = frozen_kernels(network, x)
    gram = x @ x.T / 5
    K, theta = 0.1 + 0.9 * gram, 0.3 + 0.7 * gram
    for layer in range(1, 4):
        value = two_point_matrix(network.activation, K)
        slope = two_point_matrix(network.activation, K, 1, 1)
        K = network.C_b[layer] + network.C_W[layer] * value
        theta = 0.3 + 0.7 * value + network.C_W[layer] * slope * theta
        np.testing.assert_allclose(result.K[layer], K, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(result.Theta[layer], theta, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("skip", [0.6, [-0.9, 0.0], [1.3, -0.4]])
@pytest.mark.parametrize("name", ["tanh", "elu", "relu2", "hardtanh", "gelu", "relu", "erf"])
def test_skips_equal_the_recursion_from_two_sample_averages(name, skip):
    """K' = C_b + C_W⟨σσ⟩ + γ²K (B.11), Θ' = λ_b + λ_W⟨σσ⟩ + (C_W⟨σ'σ'⟩ + γ²)Θ, matrix by matrix."""
    x = np.random.default_rng(3).standard_normal((7, 5))
    x[5] = x[0]
    x[6] = 0.0
    network = MLP(
        [5, 9, 9, 9, 2], name, [0.1, 0.2, 0.3, 0.0], [0.9, 0.5, 0.8, 0.4], 0.3, 0.7, skip=skip
    )
    result = frozen_kernels(network, x)
    gram = x @ x.T / 5
    K, theta = 0.1 + 0.9 * gram, 0.3 + 0.7 * gram
    for layer in range(1, 4):
        value = two_point_matrix(network.activation, K)
        slope = two_point_matrix(network.activation, K, 1, 1)
        gamma2 = network.skip_of_layers[layer] ** 2
        theta = 0.3 + 0.7 * value + (network.C_W[layer] * slope + gamma2) * theta
        K = network.C_b[layer] + network.C_W[layer] * value + gamma2 * K
        np.testing.assert_allclose(result.K[layer], K, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(result.Theta[layer], theta, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
def test_skips_of_a_jump_and_of_many_samples():
    """K of a step function keeps its skip, Θ does not exist; tiles beyond the first have skips."""
    step = MLP([2, 5, 5, 5, 1], "step", 0.1, 1.0, skip=0.5)
    kernels = frozen_kernels(step, np.eye(2))
    value = two_point_matrix(step.activation, kernels.K[1])
    np.testing.assert_allclose(kernels.K[2], 0.1 + value + 0.25 * kernels.K[1], rtol=1e-12)
    assert np.all(np.isinf(np.diagonal(kernels.Theta[-1])))
    x = np.random.default_rng(2).standard_normal((150, 3))
    network = MLP([3, 9, 9, 9, 1], "arctan", 0.1, 1.0, skip=[0.7, -0.3])
    full, few = frozen_kernels(network, x), frozen_kernels(network, x[[0, 70, 149]])
    chosen = np.ix_(range(4), [0, 70, 149], [0, 70, 149])
    np.testing.assert_allclose(full.K[chosen], few.K, rtol=1e-12)
    np.testing.assert_allclose(full.Theta[chosen], few.Theta, rtol=1e-12)
    with pytest.raises(NonFiniteError, match=r"at layer 2.* of 61: .*use fewer blocks"):
        frozen_kernels(MLP([3, *[5] * 60, 1], "relu", 0.0, 9.0, skip=1e4), x)


@pytest.mark.slow
def test_many_samples_use_several_tiles_and_stay_symmetric():
    x = np.random.default_rng(2).standard_normal((150, 3))
    network = MLP([3, 9, 9, 1], "arctan", 0.1, 1.0)
    full, few = frozen_kernels(network, x), frozen_kernels(network, x[[0, 70, 149]])
    np.testing.assert_array_equal(full.K, np.swapaxes(full.K, 1, 2))
    chosen = np.ix_([0, 1, 2], [0, 70, 149], [0, 70, 149])
    np.testing.assert_allclose(full.K[chosen], few.K, rtol=1e-12)
    np.testing.assert_allclose(full.Theta[chosen], few.Theta, rtol=1e-12)


def test_tanh_angle_sequence():
    """Equal norms, cos ψ = 0.3 at layer 1: the angle drifts to a limit."""
    x = np.array([[1.0, 0.0], [0.3, np.sqrt(1 - 0.09)]]) * np.sqrt(2)
    network = MLP([2, *[4] * 99, 1], "tanh", 0.0, 1.0)
    K = frozen_kernels(network, x).K
    golden = {
        2: (0.394294490398, 0.110668385547),
        5: (0.127904735299, 0.034206526434),
        30: (0.017760803411, 0.004617575287),
        100: (0.005120715666, 0.001326276698),
    }
    for layer, (diagonal, off) in golden.items():
        assert K[layer - 1, 0, 0] == pytest.approx(diagonal, abs=6e-13)
        assert K[layer - 1, 0, 1] == pytest.approx(off, abs=6e-13)


@pytest.mark.parametrize(
    ("name", "C_b", "C_W", "layer", "expected"),
    [
        ("tanh", 0.02, 1.2, 10, (0.198212950804, 0.193556320673, 0.147014513413)),
        ("relu", 0.1, 1.8, 10, (1.387420489, 0.7675477066, 0.948253700794)),
        ("leaky_relu(0.2)", 0.05, 2.0, 10, (3.375763390370, 1.098464490495, 1.620878737681)),
    ],
)
def test_unequal_norms(name, C_b, C_W, layer, expected):
    """Start K_++ = 2, K_-- = 0.4, K_+- = 0.5."""
    target = (np.array([[2.0, 0.5], [0.5, 0.4]]) - C_b) / C_W * 2
    x = np.linalg.cholesky(target)
    network = MLP([2, *[4] * (layer - 1), 1], name, C_b, C_W)
    K = frozen_kernels(network, x, layers="last").K[0]
    np.testing.assert_allclose([K[0, 0], K[1, 1], K[0, 1]], expected, atol=6e-13)


def test_overflow_names_layer_and_remedy():
    network = MLP([2, *[4] * 400, 1], "relu", 0.0, 20.0)
    with pytest.raises(NonFiniteError, match="overflows at layer .* above critical for relu"):
        frozen_kernels(network, np.ones((1, 2)))


def test_bad_arguments():
    network = MLP([2, 4, 1], "relu", 0.0, 2.0)
    with pytest.raises(InvalidValueError, match="not finite"):
        frozen_kernels(network, np.array([[1.0, np.nan]]))
    with pytest.raises(InvalidValueError, match="layers"):
        frozen_kernels(network, np.ones((1, 2)), layers="first")


def test_leaves_the_global_precision_alone():
    with jax.enable_x64(False):
        result = frozen_kernels(MLP([2, 4, 1], "tanh", 0.0, 1.0), np.ones((1, 2)))
        assert result.K.dtype == np.float64
        assert jax.numpy.ones(1).dtype == np.float32
