"""Order 1/n of evidence and posterior: 8-digit vectors, exact mixtures, the book's own route."""

from itertools import pairwise

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._predict import predict
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.bayes import log_evidence
from dynagram.theory.bayes._solve import training_kernel
from dynagram.theory.bayes._terms import (
    Dual,
    blocks_of,
    covariance_terms,
    evaluate,
    evidence_terms,
    mean_terms,
    wiring_terms,
)
from dynagram.theory.statistics._couplings import next_action, next_propagator
from dynagram.training import Posterior

X = 1.3 * np.array([[1.0, 0.4, -0.3], [0.2, -1.1, 0.7], [0.9, -0.2, 0.5]])
Y = np.array([[0.9, 0.3], [-0.5, 1.1]])
# Setup S of the reference: (log p∞, coefficient), m∞, coefficient, 𝕂, coefficients 00, 01, 11.
VECTORS = {
    "T1": ((7,), -4.72972608, -0.40252659, (0.27196588, 0.75139917), (-0.03795880, 0.08909686),
           0.29175034, (-0.08361739, -0.14904814, -0.19914732)),
    "T2": ((7, 7), -4.70012546, -1.13596780, (0.25173342, 0.69816244), (-0.05900794, 0.08464846),
           0.29013071, (0.08284832, -0.45726172, -0.32809155)),
    "T3": ((14, 7), -4.70012546, -0.97954188, (0.25173342, 0.69816244), (-0.03945852, 0.06169854),
           0.29013071, (0.07595307, -0.35444939, -0.22729183)),
}  # fmt: skip


def posterior(network, x, y, test_x, *, noise=0.0, accuracy=None):
    return predict_outputs(network, Data(x, y, test_x), Posterior(noise), accuracy=accuracy)


@pytest.mark.parametrize("name", VECTORS)
def test_eight_digit_vectors(name):
    hidden, log_p, log_p1, mean, mean1, variance, covariance1 = VECTORS[name]
    network = MLP([3, *hidden, 2], "sin", C_b=0.1, C_W=1.6)
    found = posterior(network, X[:2], Y, X[2:])
    digits = {"rtol": 0, "atol": 6e-9}
    np.testing.assert_allclose(found.about["log_evidence_infinite"], log_p, **digits)
    np.testing.assert_allclose(found.about["log_evidence_correction"], log_p1, **digits)
    np.testing.assert_allclose(found.mean_infinite[0], mean, **digits)
    np.testing.assert_allclose(found.mean_correction[0], mean1, **digits)
    np.testing.assert_allclose(found.covariance_infinite[0, :, 0], variance * np.eye(2), **digits)
    correction = found.covariance_correction[0, :, 0]
    np.testing.assert_allclose(correction[[0, 0, 1], [0, 1, 1]], covariance1, **digits)
    np.testing.assert_allclose(correction, correction.T, rtol=1e-12)
    np.testing.assert_allclose(found.covariance[0, 0, 0, 1], covariance1[1] / 7, atol=1e-9)
    for part in ("G1", "V"):  # only the wiring connects outputs
        assert found.covariance_parts[part][0, 0, 0, 1] == 0.0
    assert max(np.max(found.error), np.max(found.covariance_error)) < 1e-9 / 7
    assert found.about["log_evidence_error"] < 1e-9 / 7
    alone = log_evidence(network, Data(X[:2], Y), Posterior())
    assert alone.correction == pytest.approx(found.about["log_evidence_correction"], rel=1e-9)
    assert alone.value == pytest.approx(found.about["log_evidence"], rel=1e-12)
    # Nothing is left to know at the training inputs.
    np.testing.assert_allclose(found.train.mean, Y, rtol=1e-12)
    np.testing.assert_array_equal(found.train.std, 0.0)


def test_noise():
    """Setup N of the reference at n = 16."""
    network = MLP([2, 16, 1], "tanh", 0.3, 1.4)
    x = np.array([[1.0, 0.4], [-0.3, 0.9], [0.7, 0.8]])
    found = posterior(network, x[:2], [1.0, -0.6], x[2:], noise=0.25)
    assert found.about["log_evidence"] == pytest.approx(-2.88883, abs=6e-6)
    assert found.mean.item() == pytest.approx(0.38157, abs=6e-6)
    assert found.covariance.item() == pytest.approx(0.17709, abs=6e-6)
    assert found.std.item() == pytest.approx(np.sqrt(found.covariance.item()))


@pytest.mark.parametrize(
    ("name", "K", "expected"),
    [("linear", 0.8, (0.847656, -1.808594, 1.0625)), ("relu", 0.8, (2.119141, -4.521484, 2.65625))],
)
def test_one_input_evidence(name, K, expected):
    """[u² − 2(n_L + 2)u + n_L(n_L + 2)] V/(8K²), one hidden layer, n_L = 2."""
    C_W = 1.0 if name == "linear" else 2.0
    network, x = MLP([1, 5, 2], name, 0.0, C_W), np.sqrt([[K / C_W]])
    for square, value in zip((0.5, 2.5, 6.0), expected, strict=True):
        y = np.sqrt(0.5 * square) * np.ones((1, 2))
        assert log_evidence(network, Data(x, y), Posterior()).correction == pytest.approx(
            value, abs=6e-7
        )


def test_deep_relu_evidence():
    network, x = MLP([1, 9, 9, 9, 1], "relu", 0.0, 2.0), np.sqrt([[0.5]])
    for square, value in ((1.0, -3.75), (3.0, -11.25)):
        found = log_evidence(network, Data(x, np.sqrt([[square]])), Posterior())
        assert found.correction == pytest.approx(value, rel=1e-9)


def mixture(seed, samples=4, members=6):
    """K, A_k, B_k: Ĝ = K ± √h A_k + h B_k has exact V = mean A A and G1 = mean B at order h."""
    rng = np.random.default_rng(seed)

    def symmetric(scale):
        matrix = rng.normal(size=(members, samples, samples))
        return scale * (matrix + matrix.swapaxes(1, 2))

    factor = rng.normal(size=(samples, samples + 3))
    K = factor @ factor.T / samples + 0.3 * np.eye(samples)
    return K, symmetric(0.08), symmetric(0.1)


def exact_mixture(K, A, B, h, y, train, noise):
    """Evidence, mean and covariance of the Gaussian mixture, without any expansion."""
    N, n_L = train, y.shape[1]
    evidence, mean, second = 0.0, 0.0, 0.0
    for G in (
        K + sign * np.sqrt(h) * a + h * b for sign in (1, -1) for a, b in zip(A, B, strict=True)
    ):
        train_G = G[:N, :N] + noise * np.eye(N)
        inverse = np.linalg.inv(train_G)
        log_p = -0.5 * n_L * np.linalg.slogdet(2 * np.pi * train_G)[1]
        p = np.exp(log_p - 0.5 * np.trace(y.T @ inverse @ y))
        m = (G[N:, :N] @ inverse @ y).reshape(-1)
        S = np.kron(G[N:, N:] - G[N:, :N] @ inverse @ G[:N, N:], np.eye(n_L))
        evidence, mean = evidence + p, mean + p * m
        second = second + p * (S + np.outer(m, m))
    mean = mean / evidence
    covariance = second / evidence - np.outer(mean, mean)
    count = 2 * len(A)
    return np.concatenate([[np.log(evidence / count)], mean, covariance.reshape(-1)])


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_every_term_against_an_exact_mixture_of_gaussian_processes(noise):
    """The coefficient of h by Richardson extrapolation of the exact mixture, all terms at once."""
    K, A, B = mixture(3)
    train, y = 2, np.array([[0.9, -1.3], [-0.4, 0.7]])
    V, G1 = np.einsum("kab,kcd->abcd", A, A) / len(A), B.mean(axis=0)
    kernel = training_kernel(K[:train, :train], Posterior(noise))
    dual = Dual.of(kernel, y)
    P = np.concatenate([-kernel.solve(K[:train, train:]).T, np.eye(2)], axis=1)
    blocks = blocks_of(G1, V, train)
    nothing = {name: 0.0 * block for name, block in blocks.items()}
    parts = [
        evaluate(terms, blocks, nothing).value
        for terms in (
            evidence_terms(dual), mean_terms(dual, P), covariance_terms(dual, P),
            wiring_terms(dual, P),
        )
    ]  # fmt: skip
    covariance = parts[2][:, None, :, None] * np.eye(2)[None, :, None, :] + parts[3]
    predicted = np.concatenate([part.reshape(-1) for part in (parts[0], parts[1], covariance)])
    start = exact_mixture(K, A, B, 0.0, y, train, noise)
    steps = 0.02 * 0.5 ** np.arange(5)
    table = [(exact_mixture(K, A, B, h, y, train, noise) - start) / h for h in steps]
    for order in range(1, 5):  # errors are a power series in h
        table = [(2**order * b - a) / (2**order - 1) for a, b in pairwise(table)]
    np.testing.assert_allclose(predicted, table[0], rtol=0, atol=1e-8)
    assert np.min(np.abs(predicted)) > 1e-4  # every entry is tested


def test_the_book_s_route_gives_the_same_mean():
    """(6.81)-(6.88) with the couplings of (4.108), (4.109): derivative by 1/n at 0."""
    K, A, B = mixture(11, samples=5)
    train, y = 3, np.array([[0.9, -1.3], [-0.4, 0.7], [0.2, 1.1]])
    V, G1, n_L = np.einsum("kab,kcd->abcd", A, A) / len(A), B.mean(axis=0), 2

    def book(fan_in):
        g = next_propagator(K, V, G1, fan_in=fan_in, neurons=n_L)
        v = next_action(K, V, G1, fan_in=fan_in, neurons=n_L).quartic
        regression = g[train:, :train] @ np.linalg.inv(g[:train, :train])
        m = regression @ y
        spread = g[train:, train:] - regression @ g[:train, train:]
        phi = np.concatenate([y, m])
        Bs = slice(train, None)
        cubic = np.einsum("uabc,ai,bk,ck->ui", v[Bs], phi, phi, phi)
        shift = 0.5 * spread @ cubic
        loop = v[Bs][:, Bs][:, :, Bs]
        shift += 0.5 * n_L * np.einsum("uv,tw,uvwa,ai->ti", spread, spread, loop, phi)
        shift += np.einsum("tu,vw,uvwa,ai->ti", spread, spread, loop, phi)
        return m + shift

    n = 10**5
    numeric = n * (book(n) - K[train:, :train] @ np.linalg.solve(K[:train, :train], y))
    doubled = 2 * n * (book(2 * n) - K[train:, :train] @ np.linalg.solve(K[:train, :train], y))
    kernel = training_kernel(K[:train, :train], Posterior())
    P = np.concatenate([-kernel.solve(K[:train, train:]).T, np.eye(2)], axis=1)
    blocks = blocks_of(G1, V, train)
    terms = mean_terms(Dual.of(kernel, y), P)
    predicted = evaluate(terms, blocks, {k: 0 * b for k, b in blocks.items()}).value
    np.testing.assert_allclose(predicted, 2 * doubled - numeric, rtol=1e-6, atol=1e-8)


def test_linear_networks_have_no_mean_shift_and_a_known_covariance():
    """7.3: Cov = δ_ij 𝕂 (1 − N_A/n) + 𝕂 y_i K̃⁻¹ y_j/n."""
    network = MLP([3, 10, 2], "linear", 0.0, 1.3)
    found = posterior(network, X[:2], Y, X[2:])
    K_AA = 1.3**2 * X[:2] @ X[:2].T / 3
    np.testing.assert_allclose(found.mean_correction, 0.0, atol=1e-12)
    variance = found.covariance_infinite[0, 0, 0, 0]
    expected = variance * (Y.T @ np.linalg.solve(K_AA, Y) - 2 * np.eye(2))
    np.testing.assert_allclose(found.covariance_correction[0, :, 0], expected, rtol=1e-9)


def test_a_test_point_does_not_know_of_the_others():
    network = MLP([3, 12, 8, 2], "sin", 0.1, 1.4)
    alone = posterior(network, X[:1], Y[:1], X[2:])
    both = posterior(network, X[:1], Y[:1], X[1:])
    np.testing.assert_allclose(both.mean_correction[1:], alone.mean_correction, rtol=1e-10)
    np.testing.assert_allclose(
        both.covariance_correction[1:, :, 1:], alone.covariance_correction, rtol=1e-10
    )


def test_nothing_is_left_to_know_at_a_training_input():
    found = posterior(MLP([3, 16, 2], "sin", C_b=0.1, C_W=1.6), X[:2], Y, X)
    np.testing.assert_array_equal(found.std[:2], 0.0)
    assert np.all(found.std[2] > 0.1)
    np.testing.assert_allclose(found.mean[:2], Y, rtol=1e-10)


def test_outputs_can_be_exchanged():
    network = MLP([3, 12, 8, 2], "sin", 0.1, 1.4)
    one = posterior(network, X[:2], Y, X[2:])
    two = posterior(network, X[:2], Y[:, ::-1], X[2:])
    np.testing.assert_allclose(one.mean_correction, two.mean_correction[:, ::-1], rtol=1e-10)
    swapped = two.covariance_correction[:, ::-1, :, ::-1]
    np.testing.assert_allclose(one.covariance_correction, swapped, rtol=1e-10)


def test_the_correction_of_the_evidence_averages_to_zero_over_the_prior():
    """p stays normalised; the coefficient is a quartic in y, so six nodes are exact."""
    theory = predict(MLP([3, 12, 8, 1], "sin", 0.1, 1.4), X[:2])
    kernel = training_kernel(theory["K"][-1], Posterior())
    blocks = blocks_of(theory["G1"][-1], theory["V"][-1], 2)
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    weights = weights / weights.sum()
    values = [
        p * q * evaluate(evidence_terms(dual), blocks, blocks).value.item()
        for s, p in zip(nodes, weights, strict=True)
        for t, q in zip(nodes, weights, strict=True)
        for dual in [Dual.of(kernel, (kernel.root @ [s, t])[:, None])]
    ]
    assert abs(sum(values)) < 1e-10
    assert max(map(abs, values)) > 1e-3


def test_error_bounds_cover_a_coarse_calculation():
    network = MLP([3, 30, 30, 1], "relu", 0.2, 1.8)
    x = np.random.default_rng(0).normal(size=(5, 3))
    y = [0.3, -0.2, 0.9]
    coarse = posterior(network, x[:3], y, x[3:], accuracy=2e-2)
    fine = posterior(network, x[:3], y, x[3:], accuracy=1e-3)
    difference = np.max(np.abs(coarse.mean_correction - fine.mean_correction))
    bounds = [30 * np.max(found.error) for found in (coarse, fine)]
    assert 0.0 < difference < sum(bounds)
    assert bounds[1] < bounds[0]
    off = coarse.regime.numbers["numerical_error_of_log_evidence"]
    assert off == coarse.about["log_evidence_error"]


def test_the_regime_refuses_what_the_expansion_cannot_do():
    wide, narrow = (MLP([3, n, n, 2], "sin", 0.1, 1.6) for n in (200, 2))
    assert posterior(wide, X[:2], Y, X[2:]).regime.verdict == "trust"
    unlikely = posterior(narrow, X[:2], 4 * Y, X[2:])
    assert unlikely.regime.verdict == "do not use"
    assert "log evidence" in str(unlikely.regime)
    known = posterior(wide, X[:2], Y, X[:1])  # a training input: nothing is left open
    assert known.regime.numbers["mean_terms_in_std"] == 0.0
    np.testing.assert_allclose(known.mean_correction, 0.0, atol=1e-10)
    with pytest.raises(InvalidValueError, match="without a hidden layer"):
        posterior(MLP([3, 2], "sin", 0.1, 1.6), X[:2], Y, X[2:])
