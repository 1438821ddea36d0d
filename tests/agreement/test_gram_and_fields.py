"""Nordio's pullback metrics and Cha's virtual covariance: the relations of (D16.1)-(D16.4)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.networks import Model
from dynagram.observables.fields import fields, fixed_readout, output_fields, pullback_metric
from dynagram.observables.gram import gram_law, virtual_covariance
from dynagram.theory.fields import output_signal
from dynagram.training._losses import loss_value

SIZES = ((9, 5), (8, 9), (7, 8), (3, 7))


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    model = Model.of_matrices(
        [rng.normal(size=size) * np.sqrt(2 / size[1]) for size in SIZES], "relu"
    )
    x, y = rng.normal(size=(6, 5)), np.eye(3)[rng.integers(3, size=6)]
    state = output_fields(model, x)
    return model, x, y, state, output_signal(state, y, "cross-entropy")


def autodiff_gradient(model, x, y):
    with jax.enable_x64(True):
        inputs, targets = jnp.asarray(x), jnp.asarray(y)

        def loss(params):
            return loss_value("cross-entropy", model.network.apply(params, inputs), targets)

        return jax.grad(loss)(jax.tree.map(jnp.asarray, model.params))


@pytest.mark.parametrize("layer", [1, 2])
def test_gram_of_a_step_in_conjugate_fields(problem, layer):
    """(D16.1), (D16.3), (D16.4) for W^(ℓ+1), against a real step and the gradient by autodiff."""
    model, x, y, state, e = problem
    W, u, N, eta = np.asarray(model.params[layer].W), state.shared.u[layer], state.shared.N, 0.3
    gradient = np.asarray(autodiff_gradient(model, x, y)[layer].W)
    g = sum(e[:, k, None] * one.b[layer - 1] for k, one in enumerate(state.each)) / N
    zeta = state.pulled(e)[layer]
    np.testing.assert_allclose(zeta.T @ u / N, gradient, atol=1e-12)
    np.testing.assert_allclose(g, zeta @ W / N, atol=1e-12)
    law = gram_law(W, gradient, u, g, eta)
    np.testing.assert_allclose(law.virtual, virtual_covariance(u, g, eta), atol=1e-12)
    step = -eta * gradient
    halfway = sum(
        e[:, k, None] * (one.b[layer - 1] + 0.5 * one.z[layer] @ step)
        for k, one in enumerate(state.each)
    ) / N  # fmt: skip
    change = (W + step).T @ (W + step) - W.T @ W
    np.testing.assert_allclose(-eta * (halfway.T @ u + u.T @ halfway), change, atol=1e-12)
    S = zeta @ zeta.T / N
    np.testing.assert_allclose(
        eta**2 / N * np.einsum("ab,ai,bj->ij", S, u, u), step.T @ step, atol=1e-12
    )


def test_metric_and_second_order_are_pullbacks(problem):
    """(D16.2): G = JᵀJ, and g gᵀ is the pullback of what it is one layer above."""
    model, _, _, state, e = problem
    alpha, beta, N = 1, 4, state.shared.N
    W, a = np.asarray(model.params[1].W), state.shared.a[1]
    J = [a[sample][:, None] * W for sample in (alpha, beta)]
    metric = pullback_metric(state.shared, 1, [alpha], [beta])
    np.testing.assert_allclose(metric.dense()[0], J[0].T @ J[1], atol=1e-12)
    g = [
        sum(e[:, k, None] * one.b[layer] for k, one in enumerate(state.each)) / N
        for layer in (0, 1)
    ]
    above = np.outer(g[1][alpha], g[1][beta])
    np.testing.assert_allclose(J[0].T @ above @ J[1], np.outer(g[0][alpha], g[0][beta]), atol=1e-14)
    u = state.shared.u
    sent = W.T @ (a[alpha] * u[2][beta])
    np.testing.assert_allclose(metric.dense()[0] @ u[1][beta], sent, atol=1e-12)


def test_isotropic_readouts_make_them_agree():
    """n_out = N orthonormal columns: Σ_k b_k b_kᵀ = N G; random signs: in the mean."""
    rng = np.random.default_rng(1)
    W = [rng.normal(size=(8, 5)), rng.normal(size=(7, 8))]
    x = rng.normal(size=(3, 5))
    Q = np.linalg.qr(rng.normal(size=(7, 7)))[0]
    state = output_fields(Model.of_matrices([*W, Q / np.sqrt(7)], "relu"), x)
    total = sum(np.outer(one.b[0][0], one.b[0][2]) for one in state.each)
    G = pullback_metric(state.shared, 1, [0], [2]).dense()[0]
    np.testing.assert_allclose(total, 7 * G, atol=1e-11)
    signs = rng.choice([-1.0, 1.0], size=(4000, 7))
    mask = state.shared.a[1]
    b = [(mask[sample] * signs) @ W[1] for sample in (0, 2)]
    single = fields(fixed_readout(W, readout=signs[0]), x)
    np.testing.assert_allclose(single.b[0][0], b[0][0], atol=1e-12)
    products = np.einsum("di,dj->dij", *b)
    error = products.std(axis=0, ddof=1) / np.sqrt(len(signs))
    z = (products.mean(axis=0) - G) / np.maximum(error, 1e-12)
    assert np.max(np.abs(z)) < 4
