"""Correlators with neural indices against mixtures, exact networks, Möbius inversion and draws."""

import math
from itertools import product

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.gaussian._wick import joint_cumulant, wick
from dynagram.networks import MLP
from dynagram.theory._next_order import next_order
from dynagram.theory._predict import predict
from dynagram.theory.statistics._correlators import (
    MetricCumulants,
    averaged_covariance,
    connected_correlator,
    correlator,
    metric_cumulants,
)
from dynagram.theory.statistics._exact import exact_metric

TWO = np.array([[1.0, 0.5, -0.3, 0.8], [-0.6, 0.3, 1.1, 0.9]])


def _mixture():
    """A metric that takes three values: every moment of Ĝ and of z is a finite sum."""
    rng = np.random.default_rng(7)
    roots = rng.normal(size=(3, 2, 2))
    metrics, weights = roots @ roots.transpose(0, 2, 1), np.array([0.2, 0.5, 0.3])

    def moment(*entries):
        return float(np.sum(weights * np.prod([metrics[:, a, b] for a, b in entries], axis=0)))

    def cumulant(entries):
        return joint_cumulant(lambda block: moment(*(entries[i] for i in block)), len(entries))

    fan_in = 9
    G, V, U = np.zeros((2,) * 2), np.zeros((2,) * 4), np.zeros((2,) * 6)
    for tensor, power in ((G, 0), (V, 1), (U, 2)):
        for index in np.ndindex(tensor.shape):
            entries = [index[i : i + 2] for i in range(0, len(index), 2)]
            tensor[index] = fan_in**power * cumulant(entries)

    def exact(neurons, samples):
        """Given Ĝ, z is Gaussian with covariance δ_ij Ĝ_ab."""
        labels = [2 * i + a for i, a in zip(neurons, samples, strict=True)]
        return sum(
            weight * wick(np.kron(np.eye(3), metric), labels)
            for weight, metric in zip(weights, metrics, strict=True)
        )

    return MetricCumulants(G, V, fan_in, U), exact


def test_a_random_metric_with_three_values():
    cumulants, exact = _mixture()
    rng = np.random.default_rng(8)
    seen = 0
    for points in (2, 3, 4, 6):
        for _ in range(40):
            neurons = rng.integers(0, 3 if points < 6 else 2, size=points).tolist()
            samples = rng.integers(0, 2, size=points).tolist()
            direct = exact(neurons, samples)
            seen += direct != 0
            assert math.isclose(
                correlator(cumulants, neurons, samples), direct, rel_tol=1e-11, abs_tol=1e-12
            )
            connected = joint_cumulant(
                lambda block, i=neurons, a=samples: exact(
                    [i[k] for k in block], [a[k] for k in block]
                ),
                points,
            )
            found = connected_correlator(cumulants, neurons, samples)
            assert math.isclose(found, connected, rel_tol=1e-9, abs_tol=1e-10)
    assert seen > 40


def test_averages_over_neurons_are_sums_of_correlators():
    cumulants, _ = _mixture()
    width = 3
    found = averaged_covariance(cumulants, width)
    for a, b, c, d in product(range(2), repeat=4):
        total = sum(
            correlator(cumulants, [i, i, j, j], [a, b, c, d])
            - correlator(cumulants, [i, i], [a, b]) * correlator(cumulants, [j, j], [c, d])
            for i, j in product(range(width), repeat=2)
        )
        assert math.isclose(found[a, b, c, d], total / width**2, rel_tol=1e-12)


def test_deep_linear_correlators():
    """E[z^2m] = (2m−1)!! G_2m on one neuron, G_2m on m different ones (3.44)."""
    net = MLP([3, 5, 7, 2], "linear", C_b=0.0, C_W=1.3)
    exact = exact_metric(net, np.array([[1.0, -0.5, 2.0]]), 3)
    (G2, G4, G6), (_, k2, k3) = exact.moments[-1, 0], exact.cumulants[-1, 0]
    tensors = (np.full((1,) * rank, value) for rank, value in ((2, G2), (4, 7 * k2), (6, 49 * k3)))
    G, V, U = tensors
    cumulants = MetricCumulants(G, V, 7, U)
    zeros = [0] * 6
    assert correlator(cumulants, [4] * 6, zeros) == pytest.approx(15 * G6, rel=1e-12)
    assert correlator(cumulants, [0, 0, 1, 1, 2, 2], zeros) == pytest.approx(G6, rel=1e-12)
    assert correlator(cumulants, [1, 0, 1, 0], zeros[:4]) == pytest.approx(G4, rel=1e-12)
    assert connected_correlator(cumulants, [0] * 6, zeros) == pytest.approx(15 * k3, rel=1e-12)
    assert correlator(cumulants, [0, 0, 1, 2], zeros[:4]) == 0.0
    assert correlator(cumulants, [0, 0, 0], zeros[:3]) == 0.0


def test_drawn_networks_at_the_second_layer():
    """Layer 2 has no corrections beyond V and U: E[zzzz] of narrow networks is exact."""
    net = MLP([4, 6, 2], "tanh", C_b=0.15, C_W=1.6)
    cumulants = metric_cumulants(next_order(net, TWO), 2)
    rng, draws = np.random.default_rng(11), 400_000
    hidden = np.sqrt(0.15) * rng.normal(size=(draws, 6, 1)) + (
        np.sqrt(1.6 / 4) * rng.normal(size=(draws, 6, 4)) @ TWO.T
    )
    z = np.sqrt(0.15) * rng.normal(size=(draws, 2, 1)) + np.einsum(
        "dij,dja->dia", np.sqrt(1.6 / 6) * rng.normal(size=(draws, 2, 6)), np.tanh(hidden)
    )
    for neurons, samples in [
        ([0, 0], [0, 1]),
        ([0, 0, 1, 1], [0, 0, 1, 1]),
        ([0, 0, 1, 1], [0, 1, 0, 1]),
        ([0, 1, 0, 1], [0, 0, 1, 1]),
        ([0, 0, 0, 0], [0, 0, 1, 1]),
        ([0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]),
    ]:
        values = np.prod([z[:, i, a] for i, a in zip(neurons, samples, strict=True)], axis=0)
        error = values.std() / math.sqrt(draws)
        expected = correlator(cumulants, neurons, samples)
        assert error < 0.02 * abs(expected) + 0.002
        assert abs(values.mean() - expected) < 4 * error, (neurons, samples)


def test_what_a_prediction_says_of_a_layer():
    net = MLP([4, 20, 30, 10, 2], "tanh", C_b=0.15, C_W=1.6)
    leading, following = predict(net, TWO), next_order(net, TWO)
    found = metric_cumulants(leading, 3)
    assert found.fan_in == 30
    assert found.six_point is None
    np.testing.assert_allclose(found.G, leading["K"][2] + leading["G1"][2] / 30, rtol=1e-14)
    np.testing.assert_array_equal(found.V, leading["V"][2])
    deeper = metric_cumulants(following, 4)
    assert deeper.fan_in == 10
    np.testing.assert_array_equal(deeper.six_point, following.six_point[3])
    np.testing.assert_allclose(deeper.V, following.V[3] + following.V1[3] / 10, rtol=1e-14)
    np.testing.assert_allclose(deeper.G, leading.metric[3] + following.G2[3] / 100, rtol=1e-8)
    first = metric_cumulants(leading, 1)
    assert connected_correlator(first, [0] * 4, [0] * 4) == 0.0  # layer 1 is Gaussian


def test_refusals():
    cumulants, _ = _mixture()
    with pytest.raises(InvalidValueError, match="one per neural index, 2 in all"):
        correlator(cumulants, [0, 0], [0])
    with pytest.raises(InvalidValueError, match="at most 6 points"):
        correlator(cumulants, [0] * 8, [0] * 8)
    with pytest.raises(InvalidValueError, match="expected 0 to 1"):
        correlator(cumulants, [0, 0], [0, 2])
    without = MetricCumulants(cumulants.G, cumulants.V, 9)
    assert correlator(without, [0] * 4, [0] * 4) > 0
    with pytest.raises(InvalidValueError, match="six-point functions need it"):
        correlator(without, [0] * 6, [0] * 6)
    with pytest.raises(InvalidValueError, match="fan_in = 0"):
        MetricCumulants(cumulants.G, cumulants.V, 0)
    with pytest.raises(InvalidValueError, match="width = 0"):
        averaged_covariance(cumulants, 0)
    net = MLP([4, 6, 2], "tanh", C_b=0.15, C_W=1.6)
    with pytest.raises(InvalidValueError, match="layers 1 to 2"):
        metric_cumulants(predict(net, TWO), 3)
    with pytest.raises(InvalidValueError, match="this result holds K"):
        metric_cumulants(predict(net, TWO, ("K",)), 2)
