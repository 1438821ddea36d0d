"""Where tensors live and how many modes of error they carry does not change them."""

import jax
import numpy as np
import pytest

from dynagram.activations import activation
from dynagram.data import Data
from dynagram.gaussian._families import TwoPoint
from dynagram.gaussian._four_point import MODES, FourPoint
from dynagram.networks import MLP
from dynagram.theory import _recursions as recursions
from dynagram.theory._predict import predict
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.training import GradientFlow, Training

INPUTS = np.random.default_rng(0).standard_normal((4, 3))
NETWORK = MLP([3, 8, 16, 1], "tanh", C_b=0.1, C_W=1.2, lambda_b=0.3, lambda_W=0.7)


@pytest.fixture
def on_device(monkeypatch):
    """Tensors of any number of samples stay where JAX computes, with JAX's 32 bits around them."""
    with jax.enable_x64(False):
        yield lambda: monkeypatch.setattr(recursions, "stays_on_device", lambda _: True)


def _close(found, expected):
    scale = np.max(np.abs(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12 * scale)


@pytest.mark.slow
def test_tensors_on_the_device_are_those_on_the_host(on_device):
    names = ("V", "G1", "H1", "A", "B", "D", "F", "P", "Q", "R", "S", "T", "U")
    host = predict(NETWORK, INPUTS[[0, 1, 1]], names)
    on_device()
    device = predict(NETWORK, INPUTS[[0, 1, 1]], names)
    for name in names:
        _close(device[name], host[name])
        assert isinstance(device[name], np.ndarray)
        assert device[name].dtype == np.float64


@pytest.mark.slow
def test_trained_outputs_from_the_device(on_device):
    data = Data(INPUTS[[0, 1, 0]], [0.5, -0.3, 0.5], INPUTS[[2, 3]])
    host = predict_outputs(NETWORK, data, Training(GradientFlow()), accuracy=1e-2)
    on_device()
    device = predict_outputs(NETWORK, data, Training(GradientFlow()), accuracy=1e-2)
    for name in ("mean_correction", "covariance_correction", "error", "covariance_error"):
        found = getattr(device, name)
        _close(found, getattr(host, name))
        assert isinstance(found, np.ndarray)
        assert found.dtype == np.float64
    assert device.regime.numbers == pytest.approx(host.regime.numbers, rel=1e-9)


@pytest.mark.parametrize("modes", [4, 2])
def test_sobol_averages_with_fewer_modes(modes):
    """The value is the same on host and device, its variance the same on average over signs."""
    K = INPUTS @ INPUTS.T / 3 + 0.1
    key = ((0, 0), (1, 1))

    def found(**options):
        layer = FourPoint(TwoPoint(activation("relu"), K), accuracy=0.3, seed=1, **options)
        return layer.covariances([key])[key]

    full = found()
    assert full.modes.shape[0] == MODES
    assert np.max(full.standard_error) > 0
    reduced, device = found(modes=modes), found(modes=modes, on_device=True)
    _close(reduced.value, full.value)
    _close(np.asarray(device.modes), np.asarray(reduced.modes))
    assert reduced.modes.shape[0] == modes
    exact = np.asarray(full.standard_error) == 0
    assert np.all(np.asarray(reduced.standard_error)[exact] == 0)
