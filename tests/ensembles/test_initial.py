"""Measured K, G1, V and six_point against exact finite-width results; sampler against sampler."""

import numpy as np
import pytest

from dynagram.ensembles import simulate
from dynagram.ensembles.initial._sample import SAMPLERS
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.results._comparison import compare

# Fewer members from weights: they cost n times more each.
MEMBERS = {"metric": 60_000, "weights": 20_000}


def deep_linear(widths, C_W, x):
    """G (3.15) and V of a deep linear network without biases, exact for any widths and inputs.

    M_(12)(34) = E[Ĝ_12 Ĝ_34] obeys M' = C_W² [M_(12)(34) + (M_(13)(24) + M_(14)(23))/n_ℓ].
    """
    G = C_W * x @ x.T / widths[0]
    M = np.einsum("ab,cd->abcd", G, G)
    metrics, vertices = [G], [np.zeros_like(M)]
    for n in widths[1:-1]:
        # crossed[1,2,3,4] = M[1,3,2,4] + M[1,4,2,3]
        crossed = M.transpose(0, 2, 1, 3) + M.transpose(0, 2, 3, 1)
        G, M = C_W * G, C_W**2 * (M + crossed / n)
        metrics.append(G)
        vertices.append(n * (M - np.einsum("ab,cd->abcd", G, G)))
    return np.stack(metrics), np.stack(vertices)


def one_input(widths, C_W, plus, minus, first):
    """G, V, U per layer for one input, σ = plus·z (z > 0) or minus·z, no biases; exact.

    Ĝ' = C_W Ĝ (1/n) Σ_j s_j, where s is σ² of a standard normal: E[s] = A_2, E[s²] = 3A_4,
    E[s³] = 15A_6 with A_k = (plus^k + minus^k)/2. Linear: the products of c_2m(n) (3.47).
    """
    s1, s2, s3 = ((plus**k + minus**k) / 2 * odd for k, odd in ((2, 1), (4, 3), (6, 15)))
    g, g2, g3 = first, first**2, first**3
    tensors = [(g, 0.0, 0.0)]
    for n in widths[1:-1]:
        g *= C_W * s1
        g2 *= C_W**2 * (s1**2 + (s2 - s1**2) / n)
        g3 *= C_W**3 * ((n - 1) * (n - 2) * s1**3 + 3 * (n - 1) * s1 * s2 + s3) / n**2
        tensors.append((g, n * (g2 - g**2), n**2 * (g3 - 3 * g * g2 + 2 * g**3)))
    return np.array(tensors).T


def assert_agreement(prediction, estimate, *, power, prediction_error=0.0):
    """|z| < 4 everywhere, with errors below `power` of the largest entry of each layer."""
    result = compare(prediction, estimate, prediction_error=prediction_error)
    assert result.ok(), str(result)
    layers = prediction.shape[0]
    largest = np.abs(prediction).reshape(layers, -1).max(axis=1)
    errors = estimate.standard_error.reshape(layers, -1).max(axis=1)
    assert np.all(errors <= power * largest)


def layers(estimate, start, stop=None):
    part = slice(start, stop)
    return type(estimate)(estimate.value[part], estimate.standard_error[part], estimate.count)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_deep_linear_with_several_and_dependent_inputs(sampler):
    """Three inputs in two dimensions: Ĝ is singular. Unequal widths tell n_ℓ from n_{ℓ-1}."""
    widths, C_W = (2, 14, 20, 9, 3), 1.1
    x = np.array([[1.0, 0.5], [-0.7, 1.2], [0.4, -1.5]])
    network = MLP(widths, "linear", C_b=0.0, C_W=C_W)
    found = simulate(network, x, ("K", "V"), members=MEMBERS[sampler], seed=10, sampler=sampler)
    G, V = deep_linear(widths, C_W, x)
    assert_agreement(G, found.estimate("K"), power=0.01)
    assert_agreement(V, found.estimate("V"), power=0.06)
    assert np.all(found["V"][0] == 0.0)
    assert np.all(found.error("V")[0] == 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("activation", "slopes"), [("linear", (1.0, 1.0)), ("relu", (1.0, 0.0))])
def test_one_input_piecewise_linear_with_third_cumulants(sampler, activation, slopes):
    widths, C_W = (1, 24, 40, 16, 1), 2.0 / (slopes[0] + slopes[1])
    network = MLP(widths, activation, C_b=0.0, C_W=C_W)
    found = simulate(
        network,
        np.ones((1, 1)),
        ("K", "V", "six_point"),
        members=MEMBERS[sampler],
        seed=11,
        sampler=sampler,
    )
    G, V, U = one_input(widths, C_W, *slopes, first=C_W)
    if activation == "relu":  # G_4/G_2² = Π(1 + 5/n) in the same words
        ratio = 1 + V[3] / (16 * G[3] ** 2)
        assert ratio == pytest.approx((1 + 5 / 24) * (1 + 5 / 40) * (1 + 5 / 16), rel=1e-13)
    assert_agreement(G.reshape(4, 1, 1), found.estimate("K"), power=0.01)
    assert_agreement(V.reshape(4, 1, 1, 1, 1), found.estimate("V"), power=0.05)
    assert_agreement(U.reshape(4, 1, 1, 1, 1, 1, 1), found.estimate("six_point"), power=0.25)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_second_layer_of_two_inputs_with_biases(sampler):
    """K and V of layer 2 are exact at any width; reference values by quadrature."""
    network = MLP((4, 7, 1), "tanh", C_b=0.15, C_W=1.6)
    x = np.array([[1.0, 0.5, -0.3, 0.8], [-0.6, 0.3, 1.1, 0.9]])
    found = simulate(network, x, ("K", "V"), members=MEMBERS[sampler], seed=12, sampler=sampler)
    K = np.array([[0.76352434, 0.22242309], [0.22242309, 0.81858338]])
    V = np.array(  # the pairs 00, 01, 11
        [
            [0.2431380, 0.0352451, 0.0025200],
            [0.0352451, 0.4074670, 0.0354344],
            [0.0025200, 0.0354344, 0.2629826],
        ]
    )
    pair = np.array([[0, 1], [1, 2]])
    full = V[pair[:, :, None, None], pair[None, None, :, :]]
    assert_agreement(K[None], layers(found.estimate("K"), 1), power=0.005)
    assert_agreement(full[None], layers(found.estimate("V"), 1), power=0.02)


@pytest.mark.slow
def test_the_samplers_agree_on_all_layers_and_tensors():
    network = MLP((3, 7, 11, 5, 2), "tanh", C_b=[0.1, 0.2, 0.0, 0.3], C_W=[1.2, 2.5, 1.5, 1.8])
    x = np.random.default_rng(0).normal(size=(3, 3))
    tensors = ("K", "V", "six_point")
    fast = simulate(network, x, tensors, members=100_000, seed=1)
    slow = simulate(network, x, tensors, members=30_000, seed=2, sampler="weights")
    assert (fast.about["sampler"], slow.about["sampler"]) == ("metric", "weights")
    for name, power in (("K", 0.01), ("V", 0.05), ("six_point", 0.25)):
        exact, measured = fast.estimate(name), slow.estimate(name)
        assert_agreement(exact.value, measured, power=power, prediction_error=exact.standard_error)
        assert np.array_equal(exact.value[0], measured.value[0])


@pytest.mark.slow
def test_correction_to_the_kernel_of_one_input():
    """Width 12, tanh: n(G − K) = G1 + G2/n and n Var = V + V1/n of layer 4, at K^(1) = 1."""
    network = MLP((1, 12, 12, 12, 1), "tanh", C_b=0.0, C_W=1.0)
    found = simulate(network, np.ones((1, 1)), ("G1", "V"), members=1_000_000, seed=3)
    G1 = np.array([0.0, 0.0, -0.03093252 - 0.0068231 / 12, -0.05268247 - 0.0046942 / 12])
    V = np.array([0.0, 0.09752374, 0.06780749 - 0.0037444 / 12, 0.05014660 - 0.0101060 / 12])
    # What is left out is of the next order: a fraction 1/12 of the last term kept.
    left_out = np.array([0.0, 0.0, 0.0068231, 0.0046942]) / 144
    assert_agreement(
        G1[2:].reshape(2, 1, 1),
        layers(found.estimate("G1"), 2),
        power=0.03,
        prediction_error=left_out[2:].reshape(2, 1, 1),
    )
    assert_agreement(V.reshape(4, 1, 1, 1, 1)[1:], layers(found.estimate("V"), 1), power=0.01)
    assert compare(np.zeros((2, 1, 1)), layers(found.estimate("G1"), 0, 2)).ok()
    assert list(found) == ["V", "G1"]


def test_shifts_are_counted_from_infinite_width():
    widths, C_W, x = (2, 6, 5, 1), 1.3, np.array([[1.0, 0.5], [-0.7, 1.2]])
    network = MLP(widths, "linear", C_b=0.0, C_W=C_W)
    found = simulate(network, x, ("K", "G1"), members=200, seed=4)
    G, _ = deep_linear(widths, C_W, x)
    expected = (found["K"] - G) * np.array([0.0, 6.0, 5.0])[:, None, None]
    np.testing.assert_allclose(found["G1"], expected, rtol=1e-9, atol=1e-9)


def test_progress_counts_up_to_the_members():
    seen = []
    network = MLP((1, 40, 1), "relu", C_b=0.0, C_W=2.0)
    simulate(network, np.ones((1, 1)), "K", members=30_000, progress=lambda p: seen.append(p.done))
    assert seen[-1] == 30_000
    assert len(seen) > 1
    assert seen == sorted(set(seen))


def test_the_result_says_what_it_is():
    network = MLP((3, 4, 4, 1), "relu", C_b=0.0, C_W=2.0)
    found = simulate(network, np.eye(3), ("V", "K", "V"), members=100, seed=7)
    assert (found.order, found.members, found.seed, found.regime) == ("measured", 100, 7, None)
    assert found.layers == {"K": (1, 2, 3), "V": (1, 2, 3)}
    assert found.about == {"sampler": "metric", "complete": True}
    assert "100 networks" in repr(found)
    assert simulate(network, np.eye(3), "K", until_error=0.2, chunk_members=64).members % 64 == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": 10}, "members = 10: at least 64"),
        ({"tensors": ("G",)}, "tensors = 'G': expected some of K, Theta"),
        ({"tensors": ()}, "expected some of K, Theta"),
        ({"tensors": ("V", "odd")}, "tensors = 'odd': networks without skips have K, V"),
        ({"sampler": "other"}, "sampler = 'other': expected one of auto, metric, weights"),
        ({"sampler": "metric", "tensors": ("K", "Theta")}, 'Theta need "weights"'),
        ({"seed": -1}, "seed = -1"),
        ({"chunk_members": 0}, "chunk_members = 0"),
        ({"x": np.ones((1, 2))}, "shape of x"),
    ],
)
def test_bad_requests_name_the_argument(options, message):
    network = MLP((3, 4, 1), "relu", C_b=0.0, C_W=2.0)
    usual = {"x": np.ones((1, 3)), "members": 100, "seed": 0}
    with pytest.raises(InvalidValueError, match=message):
        simulate(network, **(usual | options))
