"""Overlaps against their sums, and the collective kernel against the Jacobian's Gram matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.networks import MLP, Model
from dynagram.observables.fields._overlaps import (
    activation_overlaps,
    coactivation,
    collective_kernel,
    conjugate_correlators,
    kernel_terms,
    layer_shares,
)
from dynagram.observables.fields._state import fields, fixed_readout
from dynagram.observables.tangents._ntk import ntk_terms

RNG = np.random.default_rng(7)
X, UNSEEN = RNG.standard_normal((5, 4)), RNG.standard_normal((5, 4))


def network(L, activation="relu", width=24, **options):
    rng = np.random.default_rng(L)
    shapes = [(width, 4), *[(width, width)] * (L - 1)]
    weights = [rng.standard_normal(shape) * np.sqrt(2 / shape[1]) for shape in shapes]
    return weights, fixed_readout(weights, activation, **options)


def jacobian(weights, sigma, c, x):
    """∂Ŷ/∂W for every sample, flat, by automatic differentiation of a network written out here."""

    def output(Ws):
        u = jnp.asarray(x)
        for W in Ws:
            u = sigma(u @ W.T)
        return u @ c / c.shape[0]

    parts = jax.jacrev(output)([jnp.asarray(W) for W in weights])
    return np.concatenate([np.asarray(part).reshape(len(x), -1) for part in parts], axis=1)


@pytest.mark.parametrize(
    ("L", "activation"), [*((L, "relu") for L in (1, 2, 3, 4, 5)), (3, "tanh")]
)
def test_the_kernel_is_the_gram_matrix_of_the_jacobian(L, activation):
    c = np.where(np.arange(24) % 2, -1.0, 1.0)
    weights, model = network(L, activation, readout=c)
    sigma = {"relu": lambda z: jnp.maximum(z, 0.0), "tanh": jnp.tanh}[activation]
    train, unseen = fields(model, X), fields(model, UNSEEN)
    J, J_unseen = (jacobian(weights, sigma, c, x) for x in (X, UNSEEN))
    scale = np.abs(J @ J.T).max()
    assert np.abs(collective_kernel(train) - J @ J.T).max() < 1e-12 * scale
    assert np.abs(collective_kernel(unseen, train) - J_unseen @ J.T).max() < 1e-12 * scale


@pytest.mark.parametrize("L", [1, 3])
def test_overlaps_are_sums_over_neurons(L):
    _, model = network(L)
    train, unseen = fields(model, X), fields(model, UNSEEN)
    Q, S, A = (f(unseen, train) for f in (activation_overlaps, conjugate_correlators, coactivation))
    assert (Q.shape, S.shape, A.shape) == ((L + 1, 5, 5), (L, 5, 5), (L, 5, 5))
    for ell in range(L + 1):
        for alpha, beta in ((0, 0), (2, 4)):
            overlap = sum(unseen.u[ell][alpha] * train.u[ell][beta]) / 24  # 24 for the input, too
            np.testing.assert_allclose(Q[ell, alpha, beta], overlap, rtol=1e-12, atol=1e-15)
            if ell:
                a, b = unseen.a[ell - 1][alpha], unseen.b[ell - 1][alpha]
                a_, b_ = train.a[ell - 1][beta], train.b[ell - 1][beta]
                expected = np.mean(a * b * a_ * b_)
                np.testing.assert_allclose(S[ell - 1, alpha, beta], expected, rtol=1e-12)
                assert A[ell - 1, alpha, beta] == np.mean(a * a_)
    np.testing.assert_allclose(S[-1], A[-1], rtol=1e-14)  # the mean readout
    np.testing.assert_allclose(kernel_terms(unseen, train)[:-1], Q[:-1] * S, rtol=1e-12)


def test_a_signed_readout_leaves_the_last_correlator():
    _, model = network(2, readout=np.where(np.arange(24) < 10, -1.0, 1.0))
    found = fields(model, X)
    np.testing.assert_allclose(conjugate_correlators(found)[-1], coactivation(found)[-1])


def test_learning_rates_and_a_trained_readout_as_in_the_ntk():
    net = MLP([4, 9, 7, 1], "tanh", C_b=0.2, C_W=1.4, lambda_b=[0.3, 0.0, 2.0], lambda_W=[2, 1, 3])
    params = net.draw(jax.random.key(1))
    expected = np.asarray(ntk_terms(Model(net, params), X))[..., 0, 0]
    np.testing.assert_allclose(kernel_terms(fields(Model(net, params), X)), expected, rtol=1e-11)


def test_untrained_layers_share_the_kernel_as_their_inputs_are_large():
    """n_0/(n_0 + N(L-1)) for the first layer and N/(…) for the others, with a signed readout."""
    rng, n_0, N, L = np.random.default_rng(0), 16, 256, 3
    x = rng.standard_normal((40, n_0))
    shares = []
    for _ in range(8):
        sizes = [(N, n_0), *[(N, N)] * (L - 1)]
        weights = [rng.standard_normal(s) * np.sqrt(2 / s[1]) for s in sizes]
        readout = np.where(np.arange(N) % 2, -1.0, 1.0)
        terms = kernel_terms(fields(fixed_readout(weights, readout=readout), x))
        shares.append(layer_shares(terms)[:L])
    expected = np.array([n_0, N, N]) / (n_0 + N * (L - 1))
    error = np.std(shares, axis=0, ddof=1) / np.sqrt(len(shares))
    assert np.all(np.abs(np.mean(shares, axis=0) - expected) < 4 * error)
    assert np.all(error < 0.03)
