"""Operators without matrices against the matrices, built from the definitions."""

import numpy as np
import pytest

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP, Model
from dynagram.observables.fields._metrics import metric_statistics
from dynagram.observables.fields._operators import ScaledIdentity, Sum
from dynagram.observables.fields._overlaps import coactivation, conjugate_correlators
from dynagram.observables.fields._state import fields, fixed_readout
from dynagram.observables.fields._transport import (
    CollectiveTransport,
    Pullback,
    coactivation_projector,
    pullback_metric,
    transport_operator,
)

N, M = 30, 4
PAIRS = [i.ravel() for i in np.indices((M, M))]


def state(L, activation="relu", samples=M, width=N):
    rng = np.random.default_rng(L)
    sizes = [(width, 5), *[(width, width)] * (L - 1)]
    weights = [rng.standard_normal(size) * np.sqrt(2 / size[1]) for size in sizes]
    return fields(fixed_readout(weights, activation), rng.standard_normal((samples, 5)))


FOUR, FIVE = state(4), state(5)


def dense(found, layer, alpha, beta):
    """𝓜_ℓ^αβ by the recursion (186), (187) on matrices."""
    S = conjugate_correlators(found)[layer][alpha, beta] * np.eye(N)
    if layer == found.hidden_layers - 1:
        return S
    W = found.weights(layer + 1)
    left, right = (np.diag(found.a[layer][i]) for i in (alpha, beta))
    return S + W.T @ left @ dense(found, layer + 1, alpha, beta) @ right @ W


def test_the_projector_and_the_metric():
    alpha, beta = PAIRS
    for layer in (1, 2, 3):
        D = coactivation_projector(FOUR, layer, alpha, beta)
        np.testing.assert_array_equal(D, D * D)
        np.testing.assert_allclose(D.mean(axis=1), coactivation(FOUR)[layer].ravel(), rtol=1e-14)
        W = FOUR.weights(layer + 1)
        expected = np.stack([W.T @ np.diag(d) @ W for d in D])
        G = pullback_metric(FOUR, layer, alpha, beta)
        assert G.symmetric
        np.testing.assert_allclose(G.dense(), expected, atol=1e-12)


# From five layers on the operator inside 𝒫_1 is itself not symmetric.
@pytest.mark.parametrize(("found", "layer"), [(FOUR, 3), (FOUR, 2), (FOUR, 1), (FIVE, 1)])
def test_the_transport_operator(found, layer):
    alpha, beta = PAIRS
    operator = transport_operator(found, layer, alpha, beta)
    expected = np.stack([dense(found, layer, *pair) for pair in zip(alpha, beta, strict=True)])
    scale = np.abs(expected).max()
    np.testing.assert_allclose(operator.dense(), expected, atol=1e-13 * scale)
    np.testing.assert_allclose(operator.T.dense(), np.swapaxes(expected, 1, 2), atol=1e-13 * scale)
    swapped = transport_operator(found, layer, beta, alpha).dense()
    np.testing.assert_allclose(swapped, np.swapaxes(expected, 1, 2), atol=1e-13 * scale)
    x = np.random.default_rng(0).standard_normal((M * M, N))
    images = np.einsum("pij,pj->pi", expected, x)
    np.testing.assert_allclose(operator.apply(x), images, atol=1e-12 * scale)
    several = np.stack([x, 2 * x], axis=1)
    np.testing.assert_allclose(operator.apply(several)[:, 1], 2 * images, atol=1e-12 * scale)
    traces = np.trace(expected, axis1=1, axis2=2)
    squares = np.sum(expected**2, axis=(1, 2))
    np.testing.assert_allclose(operator.trace(), traces, rtol=1e-11)
    np.testing.assert_allclose(operator.effective_rank(), traces**2 / squares, rtol=1e-11)


def test_the_examples_of_the_source():
    """(189) for three hidden layers and (192) for four."""
    S = conjugate_correlators(FOUR)
    for alpha, beta in ((0, 0), (1, 3)):
        G = {layer: pullback_metric(FOUR, layer, alpha, beta).dense()[0] for layer in (1, 2)}
        W = FOUR.weights(2)
        lifted = W.T @ np.diag(FOUR.a[1][alpha]) @ G[2] @ np.diag(FOUR.a[1][beta]) @ W
        at = alpha, beta
        expected = S[1][at] * np.eye(N) + S[2][at] * G[1] + S[3][at] * lifted
        found = transport_operator(FOUR, 1, alpha, beta).dense()[0]
        np.testing.assert_allclose(found, expected, atol=1e-12)
    three = state(3)
    expected = conjugate_correlators(three)[1][0, 2] * np.eye(N)
    expected += conjugate_correlators(three)[2][0, 2] * pullback_metric(three, 1, 0, 2).dense()[0]
    np.testing.assert_allclose(transport_operator(three, 1, 0, 2).dense()[0], expected, atol=1e-12)


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_the_collective_operator(layer):
    operator = CollectiveTransport(FOUR, layer)
    blocks = np.array([[dense(FOUR, layer, a, b) for b in range(M)] for a in range(M)])
    whole = blocks.transpose(0, 2, 1, 3).reshape(M * N, M * N)
    np.testing.assert_allclose(operator.dense()[0], whole, atol=1e-12)
    eigenvalues = np.linalg.eigvalsh(whole)
    assert eigenvalues[0] > -1e-12 * eigenvalues[-1]  # positive semidefinite
    np.testing.assert_allclose(operator.top_eigenvalues(3)[0], eigenvalues[:-4:-1], rtol=1e-9)
    x = np.random.default_rng(1).standard_normal((M, N))
    expected = np.einsum("abij,bj->ai", blocks, x)
    np.testing.assert_allclose(operator.apply_fields(x), expected, atol=1e-12)
    np.testing.assert_allclose(operator.trace()[0], np.trace(whole), rtol=1e-12)


def test_top_of_the_spectrum_by_lanczos():
    G = pullback_metric(FOUR, 2, [0, 1], [0, 2])
    exact = np.linalg.eigvalsh(G.dense())[:, ::-1]
    np.testing.assert_allclose(G.top_eigenvalues(4), exact[:, :4], rtol=1e-9)
    np.testing.assert_allclose(G.top_eigenvalues(20), exact[:, :20], atol=1e-11)  # by matrices
    operator = transport_operator(FOUR, 1, [0, 0], [1, 3])
    with pytest.raises(InvalidValueError, match="not symmetric: ask for top_singular_values"):
        operator.top_eigenvalues()
    exact = np.linalg.svd(operator.dense(), compute_uv=False)[:, :2]
    np.testing.assert_allclose(operator.top_singular_values(2), exact, rtol=1e-9)
    assert transport_operator(FOUR, 1, [0, 1], [0, 1]).symmetric
    with pytest.raises(InvalidValueError, match="k = 0: expected 1 to 30"):
        G.top_eigenvalues(0)


def test_other_inner_operators():
    inner = ScaledIdentity(np.array([2.0, -1.0]), N)
    twice = Sum(inner, inner)
    found = Pullback(FOUR, 1, np.array([0, 1]), np.array([1, 1]), twice).dense()
    G = pullback_metric(FOUR, 1, [0, 1], [1, 1]).dense()
    np.testing.assert_allclose(found, np.array([4.0, -2.0])[:, None, None] * G, atol=1e-12)
    with pytest.raises(InvalidValueError, match="expected 3 maps of R\\^30"):
        Pullback(FOUR, 1, np.zeros(3, int), np.zeros(3, int), inner)
    with pytest.raises(InvalidValueError, match="pairs and sizes must agree"):
        Sum(inner, ScaledIdentity(np.ones(3), N))


def test_applying_stores_no_matrix_per_pair():
    import tracemalloc

    samples, width = 24, 192
    found = state(5, samples=samples, width=width)
    alpha, beta = (i.ravel() for i in np.indices((samples, samples)))
    operator, x = transport_operator(found, 1, alpha, beta), found.u[1][beta]
    tracemalloc.start()
    operator.apply(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * x.nbytes  # one matrix per pair would be 192 times x
    with pytest.raises(InvalidValueError, match="max_bytes = 10000000: 169869312 bytes needed"):
        operator.dense(max_bytes=10**7)


def test_metrics_of_many_pairs_follow_from_one_matrix():
    alpha, beta = np.array([0, 1, 2]), np.array([0, 3, 1])
    found = metric_statistics(FOUR, 2, alpha, beta)
    G, W = pullback_metric(FOUR, 2, alpha, beta), FOUR.weights(3)
    np.testing.assert_allclose(found.trace, G.trace(), rtol=1e-12)
    np.testing.assert_allclose(found.effective_rank, G.effective_rank(), rtol=1e-11)
    gram = W.T @ W
    overlap = [np.sum(g * gram) / np.linalg.norm(g) / np.linalg.norm(gram) for g in G.dense()]
    np.testing.assert_allclose(found.gram_overlap, overlap, rtol=1e-12)
    np.testing.assert_array_equal(
        found.coactive, coactivation_projector(FOUR, 2, alpha, beta).sum(axis=1)
    )


def test_random_weights_give_the_nulls_of_the_metrics():
    ratios, overlaps = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        weights = [rng.standard_normal((120, 120)) * np.sqrt(2 / 120) for _ in range(2)]
        found = fields(fixed_readout(weights), rng.standard_normal((20, 120)))
        pairs = rng.integers(0, 20, (2, 60))
        measured = metric_statistics(found, 1, *pairs)
        ratios.append(measured.rank_ratio.mean())
        overlaps.append(np.mean(measured.gram_overlap / measured.gram_overlap_null))
    for values in (ratios, overlaps):
        error = np.std(values, ddof=1) / np.sqrt(len(values))
        assert error < 0.004
        # the nulls are ratios of averages: right up to 1/N
        assert abs(np.mean(values) - 1) < 4 * error + 1 / 120


def test_pairs_without_a_common_unit():
    weights = [np.eye(2), np.array([[1.0, -1.0], [-1.0, 1.0]])]
    found = fields(fixed_readout(weights), np.array([[2.0, 1.0], [1.0, 2.0]]))
    measured = metric_statistics(found, 1, [0], [1])
    assert (measured.coactive[0], measured.effective_rank[0]) == (0.0, 0.0)
    assert np.isnan(measured.rank_ratio[0])
    assert np.isnan(measured.gram_overlap[0])
    assert pullback_metric(found, 1, [0], [1]).effective_rank()[0] == 0.0


def test_bad_requests_are_refused():
    with pytest.raises(InvalidValueError, match="layer = 4: expected 1 to 3"):
        pullback_metric(FOUR, 4, 0, 0)
    with pytest.raises(InvalidValueError, match="needs two hidden layers or more"):
        transport_operator(state(1), 1, 0, 0)
    with pytest.raises(InvalidValueError, match="beta = 4: samples are 0 to 3"):
        transport_operator(FOUR, 1, 0, 4)
    with pytest.raises(InvalidValueError, match="lengths of alpha and beta"):
        coactivation_projector(FOUR, 1, [0, 1], [0])
    with pytest.raises(InvalidTypeError, match="alpha = 0.5"):
        pullback_metric(FOUR, 1, 0.5, 0)
    with pytest.raises(InvalidValueError, match="shape of x = \\(2, 30\\)"):
        pullback_metric(FOUR, 1, 0, 0).apply(np.ones((2, 30)))
    network = MLP([5, N, N, 1], "relu", C_b=0.0, C_W=2.0)
    trained = fields(Model(network, state(2).model.params), np.ones((1, 5)))
    with pytest.raises(InvalidValueError, match="needs a fixed readout"):
        CollectiveTransport(trained, 1)
