"""SGD with a frozen kernel against the enumeration of every sequence of batches."""

import itertools

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.training import stochastic_moments
from dynagram.theory.training._infinite import InfiniteTraining
from dynagram.theory.training._sgd import kernel_moments
from dynagram.training import GradientDescent, GradientFlow, Training

RNG = np.random.default_rng(4)
ROOT = RNG.normal(size=(5, 8))
THETA = ROOT @ ROOT.T / 8 + 0.5 * np.eye(5)
SPREAD = RNG.normal(size=(5, 8))
K = SPREAD @ SPREAD.T / 8
Y = RNG.normal(size=(3, 2))
KERNEL = InfiniteTraining(THETA, K, Y, np.ones(3), Training(GradientFlow()))


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_every_sequence_of_batches(batch):
    eta, steps = 0.3, 3
    batches = list(itertools.combinations(range(3), batch))
    means, seconds, losses = [], [], []
    for sequence in itertools.product(batches, repeat=steps):
        power, constant = np.eye(5), np.zeros((5, 2))
        for chosen in sequence:
            step = np.eye(5)
            step[:, chosen] -= eta * THETA[:, chosen]
            power = step @ power
            constant = step @ constant + eta * THETA[:, chosen] @ Y[list(chosen)]
        spread = power @ K @ power.T
        means.append(constant)
        seconds.append(
            np.einsum("de,ij->diej", spread, np.eye(2))
            + np.einsum("di,ej->diej", constant, constant)
        )
        error = constant[:3] - Y
        losses.append(0.5 * np.sum(error**2) + np.trace(spread[:3, :3]))
    mean = np.mean(means, axis=0)
    covariance = np.mean(seconds, axis=0) - np.einsum("di,ej->diej", mean, mean)
    found = kernel_moments(KERNEL, eta=eta, batch=batch, steps=steps)
    np.testing.assert_allclose(found.mean, mean[3:], rtol=1e-10)
    np.testing.assert_allclose(found.covariance, covariance[3:, :, 3:], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.training_loss, np.mean(losses), rtol=1e-10)
    if batch == 3:
        np.testing.assert_allclose(found.batch_covariance, 0.0, atol=1e-12)
    else:
        assert np.all(np.linalg.eigvalsh(found.batch_covariance.reshape(4, 4)) > -1e-12)
        assert found.batch_covariance[0, 0, 0, 0] > 1e-3


def test_constant_steps_end_at_the_kernel_prediction():
    found = kernel_moments(KERNEL, eta=0.3, batch=1, steps=3000)
    end = KERNEL.at()
    np.testing.assert_allclose(found.mean, end.mean[3:], rtol=1e-8)
    np.testing.assert_allclose(found.batch_covariance, 0.0, atol=1e-8)


def test_refusals():
    with pytest.raises(InvalidValueError, match="batch = 4: expected 1 to 3"):
        kernel_moments(KERNEL, eta=0.1, batch=4, steps=1)
    eta = 1.5 / np.max(np.diag(THETA)[:3]) * 2
    with pytest.raises(InvalidValueError, match="diverges"):
        kernel_moments(KERNEL, eta=eta, batch=1, steps=4000)


def test_of_a_network():
    """The kernels of the network; the mean over a batch; what has no batches."""
    net = MLP([2, 9, 2], "tanh", C_b=0.1, C_W=1.3)
    x, y = np.array([[1.0, 0.3], [-0.4, 1.1], [0.2, -0.9]]), RNG.normal(size=(3, 2))
    data = Data(x, y, [[0.7, 0.5]])
    how = Training(GradientDescent(0.1), batch=2, steps=5)
    found = stochastic_moments(net, data, how)
    kernels = InfiniteTraining.of(net, data, Training(GradientFlow()))
    expected = kernel_moments(kernels, eta=0.1, batch=2, steps=5)
    np.testing.assert_array_equal(found.covariance, expected.covariance)
    mean = Training(GradientDescent(0.2), loss="mean", batch=2, steps=5)  # 2/(2·2) of the half-sum
    np.testing.assert_allclose(stochastic_moments(net, data, mean).mean, found.mean, rtol=1e-12)
    with pytest.raises(InvalidValueError, match="expected gradient descent for some steps"):
        stochastic_moments(net, data, Training(GradientFlow()))
    with pytest.raises(InvalidValueError, match="batches of repeated inputs"):
        stochastic_moments(net, Data(x[[0, 0]], y[[0, 0]]), how)
