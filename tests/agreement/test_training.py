"""Networks really trained, by a loop written here, against the order-1/n theory.

Every network is paired with the one whose output layer is reversed, and what its own NTK moves to
first order is subtracted: with one hidden layer that has mean zero at every width. The broad
table is  python benchmarks/trained_agreement.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.data import Data
from dynagram.ensembles import train
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.training import GradientDescent, GradientFlow, Training

TRAIN = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
TARGETS = np.array([[0.9, -0.45], [-0.6, 0.7]])
TESTS = np.array([[0.8, 0.6, -0.9], [-1.0, 1.5, -0.8], [1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])
PER_LAYER = ((0.10, 0.20, 0.15), (1.1, 1.3, 0.9), (0.3, 0.5, 0.2), (0.7, 0.6, 0.9))


def forward(sigma, params, x):
    b1, W1, b2, W2 = params
    return sigma(x @ W1.T + b1[None]) @ W2.T + b2[None]


def trained_pairs(sigma, n, outputs, x, y, tests, eta, steps, pairs, seed):
    """For many pairs: final test outputs (pair, ±, test, output), initial outputs, NTKs."""
    C_b, C_W, lambda_b, lambda_W = (v[:2] for v in PER_LAYER)
    inputs = jnp.concatenate([x, tests])

    def one(key):
        k = jax.random.split(key, 4)
        params = (
            jnp.sqrt(C_b[0]) * jax.random.normal(k[0], (n,)),
            jnp.sqrt(C_W[0] / 3) * jax.random.normal(k[1], (n, 3)),
            jnp.sqrt(C_b[1]) * jax.random.normal(k[2], (outputs,)),
            jnp.sqrt(C_W[1] / n) * jax.random.normal(k[3], (outputs, n)),
        )
        rates = (lambda_b[0], lambda_W[0] / 3, lambda_b[1], lambda_W[1] / n)

        def train(p):
            def step(p, _):
                g = jax.grad(lambda q: 0.5 * jnp.sum((forward(sigma, q, x) - y) ** 2))(p)
                return tuple(a - eta * r * d for a, r, d in zip(p, rates, g, strict=True)), None

            return forward(sigma, jax.lax.scan(step, p, None, length=steps)[0], tests)

        z = forward(sigma, params, inputs)
        J = jax.jacrev(lambda q: forward(sigma, q, inputs))(params)
        H = sum(
            r * jnp.tensordot(j.reshape(*z.shape, -1), j.reshape(*z.shape, -1), axes=(2, 2))
            for r, j in zip(rates, J, strict=True)
        )  # [a, i, b, j]
        flipped = (params[0], params[1], -params[2], -params[3])
        return jnp.stack([train(params), train(flipped)]), z, H

    # All at once they would not fit into the cache.
    run = jax.jit(lambda keys: jax.lax.map(one, keys, batch_size=200))
    keys = jax.random.split(jax.random.key(seed), pairs)
    return [np.asarray(part) for part in run(keys)]


def network(activation, n, outputs, depth=2):
    widths = [3, *[n] * (depth - 1), outputs]
    return MLP(widths, activation, *(v[:depth] for v in PER_LAYER))


def shifts_and_spreads(sigma, activation, n, x, y, tests, eta, steps, pairs, seed):
    """n × (mean − ∞) and n × (covariance − ∞), each per pair of networks."""
    outputs, a = y.shape[1], x.shape[0]
    found = frozen_kernels(network(activation, n, outputs), np.concatenate([x, tests]))
    Theta, K = found.Theta[-1], found.K[-1]
    R = Theta[a:, :a] @ np.linalg.inv(Theta[:a, :a])
    bracket = np.concatenate([-R, np.eye(tests.shape[0])], axis=1)
    ends, z, H = trained_pairs(sigma, n, outputs, x, y, tests, eta, steps, pairs, seed)
    zeta = bracket @ z
    rho = ends - (R @ y)[None, None] - np.stack([zeta, -zeta], axis=1)
    own = np.einsum("ta,paibj->ptibj", bracket, H[:, :, :, :a])
    first = np.einsum("ptibj,bj->pti", own, np.linalg.solve(Theta[:a, :a], y))
    mean = n * (rho.mean(axis=1) - first)
    flat, z = rho.reshape(pairs, 2, -1), zeta.reshape(pairs, -1)
    cross = 0.5 * np.einsum("pi,pj->pij", z, flat[:, 0] - flat[:, 1])
    second = np.einsum("psi,psj->pij", flat, flat) / 2
    del K  # E[ζζ'] = 𝒦^∞ exactly with one hidden layer
    return mean, n * (cross + cross.transpose(0, 2, 1) + second), rho.mean(axis=1)


def extrapolated(widths, values, errors, degree):
    powers = np.stack([np.array(widths, float) ** -p for p in range(degree + 1)], axis=1)
    design = powers / errors[:, None]
    inverse = np.linalg.inv(design.T @ design)
    return (inverse @ design.T @ (values / errors))[0], np.sqrt(inverse[0, 0])


@pytest.mark.slow
def test_mean_shift_of_gelu_networks():
    """One training sample at η = 1/Θ: large shifts, few steps."""
    x, y, widths = TRAIN[:1], TARGETS[:1, :1], (32, 64, 128, 256)
    eta = 1.0 / frozen_kernels(network("gelu", 8, 1), x).Theta[-1, 0, 0]
    how = Training(GradientDescent(eta))
    theory = predict_outputs(network("gelu", 64, 1), Data(x, y, TESTS), how).mean_correction[:, 0]
    np.testing.assert_allclose(theory, [0.5502, 0.6058, 0.0298, 0.1593], atol=5e-4)
    gelu = lambda z: jax.nn.gelu(z, approximate=False)  # noqa: E731
    means, errors = [], []
    for n in widths:
        found, _, _ = shifts_and_spreads(gelu, "gelu", n, x, y, TESTS, eta, 40, 12_000, seed=n)
        means.append(found[..., 0].mean(axis=0))
        errors.append(found[..., 0].std(axis=0) / np.sqrt(len(found)))
    means, errors = np.array(means), np.array(errors)
    for t, expected in enumerate(theory):
        limit, error = extrapolated(widths, means[:, t], errors[:, t], 2)
        assert abs(limit - expected) < 3 * error
        if expected > 0.3:
            assert abs(limit / expected - 1) < 0.1
            assert error < 0.1 * expected
    # What is left after the order 1/n is no longer resolved at the largest width.
    assert np.all(np.abs(means[-1] - theory) < 4 * errors[-1] + 0.1 * np.abs(theory))


@pytest.mark.slow
def test_covariance_and_wiring_of_tanh_networks():
    """Two samples, two outputs: variances, and the covariance between the outputs."""
    tests, widths = TESTS[2:3], (32, 64, 128)
    eta = 0.9 / np.linalg.eigvalsh(frozen_kernels(network("tanh", 8, 2), TRAIN).Theta[-1])[-1]
    data, how = Data(TRAIN, TARGETS, tests), Training(GradientDescent(eta))
    theory = predict_outputs(network("tanh", 64, 2), data, how)
    expected = theory.covariance_correction.reshape(2, 2)
    values, errors = [], []
    for n in widths:
        _, spread, rho = shifts_and_spreads(
            jnp.tanh, "tanh", n, TRAIN, TARGETS, tests, eta, 60, 8000, seed=n
        )
        mean = rho.reshape(len(rho), -1).mean(axis=0)
        values.append(spread.mean(axis=0) - n * np.outer(mean, mean))
        errors.append(spread.std(axis=0) / np.sqrt(len(spread)))
    values, errors = np.array(values), np.array(errors)
    for i, j in ((0, 0), (0, 1), (1, 1)):
        limit, error = extrapolated(widths, values[:, i, j], errors[:, i, j], 1)
        assert abs(limit - expected[i, j]) < 3 * error
    limit, error = extrapolated(widths, values[:, 0, 1], errors[:, 0, 1], 1)
    assert error < 0.2 * abs(limit)  # the wiring is seen with five standard errors


@pytest.mark.slow
def test_depth_three_with_the_librarys_ensemble():
    """Mean and covariance of tanh networks with two hidden layers, flow, one wide width."""
    net = network("tanh", 128, 1, depth=3)
    x, y, tests = TRAIN[:1], np.array([[1.8]]), TESTS[3:]
    theory = predict_outputs(net, Data(x, y, tests), Training(GradientFlow()))
    found = train(
        net, Data(x, y, tests), Training(GradientFlow()), members=1024, seed=3, pairs=True,
        kernels=29,
    )  # fmt: skip
    shift = 128 * (found.mean - theory.mean_infinite)
    error = 128 * found.error
    # The next order in 1/n is a few per cent at this width.
    assert np.all(np.abs(shift - theory.mean_correction) < 3.5 * error + 0.1 * np.abs(shift))
    assert np.all(np.abs(shift) > 3 * error)
    spread = 128 * (found.covariance - theory.covariance_infinite)
    error = 128 * found.covariance_error
    assert np.all(np.abs(spread - theory.covariance_correction) < 4 * error)


@pytest.mark.slow
def test_three_steps_of_gradient_descent():
    """Training outputs still fluctuate: their covariances, with the test output and as wiring."""
    widths, tests = (32, 64), TESTS[2:3]
    eta = 0.9 / np.linalg.eigvalsh(frozen_kernels(network("tanh", 8, 2), TRAIN).Theta[-1])[-1]
    data, how = Data(TRAIN, TARGETS, tests), Training(GradientDescent(eta), steps=3)
    theory = predict_outputs(network("tanh", 64, 2), data, how).samples
    asked = Data(TRAIN, TARGETS, np.concatenate([TRAIN, tests]))
    values, errors = [], []
    for n in widths:
        found = train(network("tanh", n, 2), asked, how, members=5120, seed=n, pairs=True)
        rows = [(found.mean, theory.mean_infinite), (found.covariance, theory.covariance_infinite)]
        shifts = [n * (measured - infinite).ravel() for measured, infinite in rows]
        values.append(np.concatenate(shifts))
        parts = [found.error.ravel(), found.covariance_error.ravel()]
        errors.append(n * np.concatenate(parts))
    values, errors = np.array(values), np.array(errors)
    corrections = (theory.mean_correction, theory.covariance_correction)
    expected = np.concatenate([part.ravel() for part in corrections])
    limits = [extrapolated(widths, v, e, 1) for v, e in zip(values.T, errors.T, strict=True)]
    limit, error = np.array(limits).T
    z = (limit - expected) / error
    assert np.all(np.abs(z) < 4)
    assert np.sqrt(np.mean(z**2)) < 1.5
    # Both the variance of a training output and its wiring with the other are seen.
    seen = np.abs(expected / error)[6:].reshape(3, 2, 3, 2)
    assert seen[0, 0, 0, 0] > 8
    assert seen[0, 0, 1, 1] > 3
