"""Rates that make training inference (10.46), and rates that keep the mean NTK at finite width."""

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.ensembles import simulate
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._predict import predict
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.training import bayesian_rates, retuned_rates
from dynagram.training import GradientFlow, Posterior, Training

DATA = Data([[1.0, -0.4], [-0.3, 1.2]], [0.9, -0.6], test_x=[[0.5, 0.8], [-1.0, 0.1]])


@pytest.mark.parametrize("skip", [0.0, 0.4])
def test_training_is_inference(skip):
    network = MLP([2, 9, 9, 1], "tanh", C_b=0.2, C_W=1.3, skip=skip)
    trained = predict_outputs(
        bayesian_rates(network), DATA, Training(GradientFlow()), order="infinite"
    )
    inferred = predict_outputs(network, DATA, Posterior(), order="infinite")
    np.testing.assert_allclose(trained.mean, inferred.mean, rtol=1e-9)
    np.testing.assert_allclose(trained.std, inferred.std, rtol=1e-9)


@pytest.mark.parametrize("widths", [(40, 40, 40), (40, 120, 20)])
def test_retuned_rates_shift_the_frozen_ntk_back(widths):
    """Θ(λ') = Θ(λ) − H1/n in every layer, exactly: Θ is linear in the rates."""
    x = np.array([[1.0, -0.4, 0.7]])
    network = MLP([3, *widths, 1], "gelu", C_b=0.1, C_W=1.6, lambda_b=0.3, lambda_W=0.8)
    before = predict(network, x, ("Theta", "H1"))
    after = predict(retuned_rates(network, x[0]), x, ("Theta",))
    n = np.array(network.widths[:-1], dtype=float)
    expected = before["Theta"].ravel() - before["H1"].ravel() / n
    np.testing.assert_allclose(after["Theta"].ravel(), expected, rtol=1e-10)


@pytest.mark.slow
def test_networks_with_retuned_rates_have_the_frozen_ntk():
    x = np.array([[1.0, -0.4, 0.7]])
    network = MLP([3, 24, 24, 24, 2], "swish", C_b=0.1, C_W=2.2, lambda_b=0.3, lambda_W=0.8)
    Theta = predict(network, x, ("Theta",))["Theta"][-1, 0, 0]
    found = {}
    for name, net in (("plain", network), ("retuned", retuned_rates(network, x[0]))):
        H1 = simulate(net, x, ("H1",), members=30_000, seed=5).estimate("H1")
        mean = predict(net, x, ("Theta",))["Theta"][-1, 0, 0] + H1.value[-1, 0, 0] / 24
        found[name] = (mean - Theta, H1.standard_error[-1, 0, 0] / 24)
    plain, error = found["plain"]
    retuned, _ = found["retuned"]
    assert abs(plain) > 8 * error
    # What is left is of order 1/n².
    assert abs(retuned) < 0.35 * abs(plain) + 4 * error


def test_refusals():
    network = MLP([2, 8, 1], "tanh", C_b=0.0, C_W=1.0)
    with pytest.raises(InvalidValueError, match="expected one"):
        retuned_rates(network, np.eye(2))
    still = MLP([2, 8, 1], "tanh", C_b=0.0, C_W=1.0, lambda_b=0.0, lambda_W=[1.0, 0.0])
    with pytest.raises(InvalidValueError, match="must be > 0"):
        retuned_rates(still, [1.0, 2.0])
