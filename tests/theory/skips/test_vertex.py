"""Several inputs: against one-input flows, plain networks, and deterministic product grids."""

import numpy as np
import pytest

from dynagram._pairs import matrix_to_pairs, pair_indices, pair_numbers
from dynagram.activations import activation
from dynagram.errors import DynagramError
from dynagram.gaussian._families import PairFamily, TwoPoint
from dynagram.gaussian._four_point import FourPoint, wick_covariance
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict import predict
from dynagram.theory.skips import residual_flow, residual_susceptibilities
from dynagram.theory.skips._vertex import residual_tensors

X = np.array([[1.0, 0.5, -0.3], [-0.6, 0.3, 1.1]])
VALUES = (0, 0)


def network(name, skip, widths=(3, 30, 30, 30, 2), C_b=0.1, C_W=1.2):
    return MLP(widths, name, C_b, C_W, lambda_b=0.7, lambda_W=1.3, skip=skip)


def within(found, name, wanted, *, rounding=1e-9):
    """Within four of the stated numerical errors, the largest of the layer for every entry."""
    error = found.errors[name].max(axis=tuple(range(1, found[name].ndim)), keepdims=True)
    size = np.max(np.abs(wanted))
    assert np.all(np.abs(found[name] - wanted) <= 4 * error + rounding * size)


@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_without_skips_the_recursion_is_the_plain_one(name):
    net = network(name, 0.0, widths=(3, 30, 20, 40, 2))
    wanted = predict(net, X, accuracy=1e-3)  # the same nodes in both
    number = pair_numbers(2)
    for vertex in ("corrected", "published"):
        metric = vertex == "corrected"
        found = residual_tensors(
            net, wanted["K"], vertex=vertex, metric=metric, accuracy=1e-3, seed=0
        )
        V = found.V[:, 0][:, number][..., number]
        np.testing.assert_allclose(V, wanted["V"], rtol=1e-9, atol=1e-9 * np.max(wanted["V"]))
        if metric:
            scale = np.max(np.abs(wanted["G1"]))
            G1 = found.G1[:, 0][:, number]
            np.testing.assert_allclose(G1, wanted["G1"], rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("name", ["relu", "gelu", "hardtanh"])
def test_each_input_alone(name):
    """The diagonal of several inputs is the one-input flow; segments of different widths too."""
    net = network(name, [0.6, 0.0, -0.8], widths=(3, 30, 30, 20, 20, 2))
    found, alone_K = predict(net, X, accuracy=1e-2), 0.1 + 1.2 * np.mean(X**2, axis=1)
    for a, x in enumerate(X):
        alone = predict(net, x[None])
        for tensor in ("V", "G1"):
            entry = found[tensor][(slice(None), *[a] * (found[tensor].ndim - 1))]
            np.testing.assert_allclose(entry, alone[tensor].ravel(), rtol=1e-10, atol=1e-13)
            assert np.max(alone.errors[tensor]) < 1e-10 * np.max(np.abs(alone[tensor]))
            flow = residual_flow(net, float(alone_K[a]))
            np.testing.assert_allclose(entry, getattr(flow, tensor), rtol=1e-10, atol=1e-13)
    equal = network(name, [0.6, 0.4, -0.8], widths=(3, *[30] * 4, 2))
    x = X[:1]
    K1 = float(frozen_kernels(equal, x).K[0, 0, 0])
    flow = residual_flow(equal, K1)
    alone = predict(equal, x)
    np.testing.assert_allclose(alone["V"].ravel(), flow.V, rtol=1e-10)
    np.testing.assert_allclose(alone["G1"].ravel(), flow.G1, rtol=1e-10, atol=1e-14)
    printed = predict(equal, x, ("V",), vertex="published")["V"].ravel()
    np.testing.assert_allclose(printed, residual_flow(equal, K1, vertex="published").V, rtol=1e-10)


def path_covariance(K, skips):
    """Cov(z^(s), z^(t)) = γ_{s→t} K^(s) of two layers given by their kernels and γ between them."""
    gamma = np.prod(skips)
    return np.block([[K[0], gamma * K[0]], [gamma * K[0], K[1]]])


def across(family, samples, layer):
    """Rows of a family on 2N composite samples that stand for pairs inside one layer."""
    if family.p == family.q:
        a, b = pair_indices(samples)
    else:
        a, b = (index.reshape(-1) for index in np.indices((samples, samples)))
    return family.matrix()[a + layer * samples, b + layer * samples]


@pytest.mark.slow
def test_two_inputs_by_the_sum_over_layers():
    """V and G^{1} at the third layer and the output from four-sample averages across layers.

    The joint Gaussian of two layers is averaged on product grids; components are never separated.
    """
    name, samples = "softplus", 2  # neither odd nor even: every component counts
    sigma = activation(name)
    net = network(name, [0.6, -0.7])
    found = predict(net, X, accuracy=1e-4)
    K, C_W, gammas = frozen_kernels(net, X).K, 1.2, net.skip_of_layers
    pairs, number = 3, pair_numbers(samples)
    a, b = pair_indices(samples)
    families = [PairFamily.of(TwoPoint(sigma, K[s]), 0, 0) for s in range(3)]
    J = [family.propagate(np.eye(pairs)).T for family in families]
    X_ = [C_W * J[s] + gammas[s + 1] ** 2 * np.eye(pairs) for s in range(3)]

    def gain(s, layer):
        """From the fluctuation that layer s makes to K̂ of `layer`."""
        matrix = np.eye(pairs)
        for t in range(s + 1, layer):
            matrix = X_[t] @ matrix
        return matrix

    def joint(s, t, products):
        """Cov(f(z^(t)), g(z^(s))) on pairs of each layer, s < t."""
        four = FourPoint(TwoPoint(sigma, path_covariance((K[s], K[t]), gammas[s + 1 : t + 1])))
        every = four.covariances(products)
        return {
            (left, right): every[left, right].value[
                np.ix_(across(four.family(*left), 2, 1), across(four.family(*right), 2, 0))
            ]
            for left, right in products
        }

    def same(s):
        return FourPoint(TwoPoint(sigma, K[s])).covariances([(VALUES, VALUES)])

    bends = [((1, 1), VALUES), ((2, 0), VALUES)]
    crossed = {(s, t): joint(s, t, [(VALUES, VALUES), *bends]) for t in (1, 2) for s in range(t)}
    G1 = np.zeros(pairs)
    for layer in (2, 3):  # index of the layer predicted: the third, then the output
        V, W_below = np.zeros((pairs, pairs)), np.zeros((pairs, pairs))
        for target, into in ((layer, V), (layer - 1, W_below)):
            for s in range(target):
                for t in range(target):
                    if s == t:
                        cov = same(s)[VALUES, VALUES].value
                    else:
                        cov = crossed[min(s, t), max(s, t)][VALUES, VALUES]
                        cov = cov if s > t else cov.T
                    into += C_W**2 * gain(s, target) @ cov @ gain(t, target).T
        for s in range(layer):
            memory = np.prod(gammas[s + 1 : layer + 1]) ** 2
            moved = C_W * memory * gain(s, layer) @ J[s] @ wick_covariance(K[s])
            V += moved + moved.T
        within_layer = found["V"][layer][a, b][:, a, b]
        error = 4 * found.errors["V"][layer].max() + 1e-10 * np.max(np.abs(V))
        assert np.all(np.abs(within_layer - V) <= error)
        assert 4 * found.errors["V"][layer].max() < 4e-3 * np.max(np.abs(V))
        # G^{1}: ½∂²F:W of the layer below, and ⟨½∂∂F ψ⟩ with ψ = C_W Σ_s gain (σσ(z^(s)) − …).
        below = layer - 1
        bend = np.zeros(pairs)
        for s in range(below):
            M = C_W * gain(s, below)
            slopes, curves = (crossed[s, below][key] for key in bends)
            for A in range(pairs):
                i, j = int(a[A]), int(b[A])
                bend[A] += slopes[A] @ M[number[i, j]]
                bend[A] += 0.5 * curves[2 * i + j] @ M[number[i, i]]
                bend[A] += 0.5 * curves[2 * j + i] @ M[number[j, j]]
        second = np.zeros((pairs, pairs, pairs))
        step = 1e-4
        for B in range(pairs):
            moved = []
            for side in (1, -1):
                shifted = K[below].copy()
                shifted[a[B], b[B]] += side * step
                shifted[b[B], a[B]] = shifted[a[B], b[B]]
                family = PairFamily.of(TwoPoint(sigma, shifted), 0, 0)
                moved.append(family.propagate(np.eye(pairs)).T)
            second[:, :, B] = (moved[0] - moved[1]) / (2 * step)
        bent = 0.5 * np.einsum("ABC,BC->A", second, W_below)
        G1 = X_[below] @ G1 + C_W * (bent + bend)
        error = 4 * found.errors["G1"][layer].max() + 1e-6 * np.max(np.abs(G1))
        assert np.all(np.abs(matrix_to_pairs(found["G1"][layer]) - G1) <= error)
        assert error < 2e-2 * np.max(np.abs(G1))


@pytest.mark.parametrize("skip", [0.7, -0.7])
def test_proportional_inputs_of_relu(skip):
    """x_2 = 2x_1 without biases: every tensor follows from that of x_1 by powers of 2.

    The deltas of σ'' and the rays of kinked activations are both at work here."""
    net = network("relu", skip, C_b=0.0)
    x = np.array([[1.0, 0.5, -0.3], [2.0, 1.0, -0.6], [-0.6, 0.3, 1.1]])
    found = predict(net, x, accuracy=1e-3)
    within(found, "V", np.einsum("labcd,a,b,c,d->labcd", *_scaled(found["V"])))
    within(found, "G1", np.einsum("lab,a,b->lab", *_scaled(found["G1"])))


def _scaled(tensor):
    """The tensor with sample 1 replaced by sample 0, and the factors that undo it."""
    index = np.array([0, 0, 2])
    for axis in range(1, tensor.ndim):
        tensor = np.take(tensor, index, axis=axis)
    return (tensor, *[np.array([1.0, 2.0, 1.0])] * (tensor.ndim - 1))


def test_repeated_and_zero_inputs_and_order():
    net = network("gelu", 0.5, C_b=0.0)
    x = np.array([X[1], X[0], X[1], np.zeros(3)])
    found, pair = (predict(net, inputs, accuracy=1e-3) for inputs in (x, X))
    order = np.array([1, 0, 1])
    for tensor in ("K", "V", "G1"):
        wanted = pair[tensor]
        mine = found[tensor]
        for axis in range(1, wanted.ndim):
            wanted, mine = np.take(wanted, order, axis=axis), np.take(mine, [0, 1, 2], axis=axis)
        scale = np.max(np.abs(wanted))
        np.testing.assert_allclose(mine, wanted, rtol=1e-9, atol=5e-3 * scale)
    assert np.max(np.abs(found["V"][:, 3, 3])) < 1e-40
    assert np.max(np.abs(found["G1"][:, 3, 3])) < 1e-40


def test_linear_network_is_exact():
    """No component beyond the second: printed and corrected vertex agree to rounding."""
    net = network("linear", [0.6, -0.9])
    found = predict(net, X)
    printed = predict(net, X, ("V",), vertex="published")
    np.testing.assert_allclose(found["V"], printed["V"], rtol=1e-10, atol=1e-12)
    assert np.max(found.errors["V"]) < 1e-10
    assert np.max(np.abs(found["G1"])) < 1e-10


def test_infinite_width_against_the_closed_form_of_relu():
    """K by the arc-cosine formula, Θ by its own recursion, with a skip, at C_b = 0."""
    net = MLP([3, 9, 9, 9, 1], "relu", 0.0, [1.0, 1.5, 1.3, 2.0], skip=[0.5, -0.8])
    kernels = frozen_kernels(net, X)
    K = X @ X.T / 3
    Theta = 1.0 + K
    for C_W, gamma in ((1.5, 0.5), (1.3, -0.8), (2.0, 0.0)):
        norm = np.sqrt(np.outer(np.diagonal(K), np.diagonal(K)))
        angle = np.arccos(np.clip(K / norm, -1, 1))
        value = norm / (2 * np.pi) * (np.sin(angle) + (np.pi - angle) * np.cos(angle))
        slope = (np.pi - angle) / (2 * np.pi)
        Theta = 1.0 + value + (C_W * slope + gamma**2) * Theta
        K = C_W * value + gamma**2 * K
    np.testing.assert_allclose(kernels.K[-1], K, rtol=1e-9)
    np.testing.assert_allclose(kernels.Theta[-1], Theta, rtol=1e-8)


@pytest.mark.parametrize("name", ["tanh", "gelu", "relu"])
def test_susceptibilities_by_the_kernels_of_near_inputs(name):
    """(B.13), (B.14): δK_[1]' = χ∥ δK_[1] and δδK_[2]' = χ⊥ δδK_[2] + h(δK_[1])²."""
    skip, C_W, x, size = -0.6, 1.1, np.array([1.2, -0.4]), 4e-3
    net = MLP([2, 8, 8, 8, 1], name, 0.2, C_W, skip=skip)
    across = np.array([0.4, 1.2])  # orthogonal to x: both inputs have the same norm
    along = x + 0.5 * across
    for direction in (across, along):
        inputs = np.array([x, x + size * direction, x - size * direction])
        K = frozen_kernels(net, inputs).K[:2]
        found = residual_susceptibilities(name, K[0, 0, 0], C_W, skip)
        one = 0.5 * (K[:, 1, 1] - K[:, 2, 2])
        two = 0.25 * (K[:, 1, 1] + K[:, 2, 2] - 2 * K[:, 1, 2])
        wanted = found.perpendicular * two[0] + found.source * one[0] ** 2
        # An angle between the inputs adds its third power where σ has a kink.
        assert two[1] == pytest.approx(wanted, rel=1e-2 if name == "relu" else 2e-4)
        if direction is along:
            assert one[1] == pytest.approx(found.parallel * one[0], rel=2e-4)
            if name != "relu":  # h = 0 for ReLU
                assert abs(found.source) * one[0] ** 2 > 0.01 * two[1]


def test_the_result_says_what_it_is():
    net = MLP.critical([3, 20, 20, 20, 20, 1], "relu", skip=0.5)
    found = predict(net, X[:1], ("K", "Theta", "V", "G1"))
    assert found.about["vertex"] == "corrected"
    assert predict(net, X[:1], ("V",), vertex="published").about["vertex"] == "published"
    assert [found.order_of(name) for name in ("K", "Theta", "V", "G1")] == ["∞", "∞", "1/n", "1/n"]
    n = np.array([np.inf, 20, 20, 20, 20])[:, None, None]
    np.testing.assert_allclose(found.metric, found["K"] + found["G1"] / n)
    assert found.regime.verdict == "do not use"
    assert "too deep for its width" in found.regime.reasons[0]
    wide = MLP.critical([3, *[2000] * 4, 1], "relu", skip=0.5)
    assert predict(wide, X[:1]).regime.verdict == "trust"
    assert predict(wide, X[:1], ("K",)).regime.order == "∞"
    hot = MLP([3, *[2000] * 4, 1], "relu", 0.0, 30.0, skip=0.5)
    assert "off critical" in " ".join(predict(hot, X[:1]).regime.reasons)


def test_refusals():
    net = network("relu", 0.5)
    for arguments, words in (
        ({"tensors": ("K", "Z")}, "expected some of K, Theta, V, G1"),
        ({"tensors": ("K", "H1", "A")}, "'H1,A': not yet computed for networks with skips"),
        ({"tensors": ()}, "expected some of"),
        ({"tensors": ("V", "G1"), "vertex": "published"}, "the book has no G1"),
        ({"vertex": "exact"}, "expected corrected or published"),
        ({"accuracy": 0.0}, "accuracy = 0.0"),
    ):
        with pytest.raises(DynagramError, match=words):
            predict(net, X, **arguments)
    with pytest.raises(DynagramError, match="only K, V and G1 exist"):
        predict(network("step", 0.5), X, ("K", "Theta"))
    assert predict(network("step", 0.5), X, ("K",)).regime.order == "∞"
    with pytest.raises(DynagramError, match="only networks with skips have a choice"):
        predict(network("relu", 0.0), X, vertex="published")
    with pytest.raises(DynagramError, match="this result holds K"):
        predict(net, X, ("K",))["V"]
    with pytest.raises(DynagramError, match="overflows at layer"):
        frozen_kernels(MLP([3, *[5] * 60, 1], "relu", 0.0, 9.0, skip=1e3), X)
