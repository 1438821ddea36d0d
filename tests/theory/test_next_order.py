"""κ₃, V^{1}, G^{2} against printed numbers, one input, exact networks, autodiff and an ensemble."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram._pairs import pair_indices
from dynagram.activations import activation, registered
from dynagram.ensembles import simulate
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.results._comparison import compare
from dynagram.theory._next_order import _LayerAverages, next_order
from dynagram.theory._predict import predict
from dynagram.theory.criticality import single_input
from dynagram.theory.statistics._exact import exact_metric, linear_four_point

TWO = np.array([[1.0, 0.5, -0.3, 0.8], [-0.6, 0.3, 1.1, 0.9]])
THREE = np.concatenate([TWO, [[0.2, -0.7, 0.9, -0.4]]])
ALIASES = {"identity", "silu", "cube"}
SMOOTH = [
    name
    for name in registered()
    if activation(name).is_smooth and not activation(name).growth and name not in ALIASES
]

# Per (σ, C_b, C_W): rows of layer, K, V, G1, κ₃, V1, G2 of one input, K^(1) = 1, equal widths.
PRINTED = {
    ("tanh", 0.0, 1.0): [
        (2, 0.394294490, 0.09752374, 0, 0.0100808, 0, 0),
        (3, 0.236450410, 0.06780749, -0.03093252, 0.0229934, -0.0037444, -0.0068231),
        (4, 0.166656354, 0.05014660, -0.05268247, 0.0226113, -0.0101060, -0.0046942),
        (5, 0.127904735, 0.03939844, -0.06822537, 0.0203806, -0.0163492, 0.0040170),
        (6, 0.103440608, 0.03231099, -0.07986126, 0.0181496, -0.0218651, 0.0175068),
    ],
    ("sin", 0.0, 1.0): [
        (2, 0.432332358, 0.12046302, 0, 0.0120765, 0, 0),
        (3, 0.289403626, 0.10595370, -0.05073815, 0.0398884, -0.0164149, -0.0027210),
        (4, 0.219716709, 0.09207857, -0.08783622, 0.0522816, -0.0379770, 0.0088199),
    ],
    ("gelu", 0.17, 1.98): [
        (2, 1.011938535, 4.40600344, 0, 41.4737919, 0, 0),
        (3, 1.023443454, 8.61725413, 0.16242692, 208.5186726, 22.7286527, -0.0604820),
        (4, 1.034540453, 12.65859075, 0.46605125, 493.1760366, 70.5110620, -0.9856017),
    ],
    ("swish", 0.1, 2.0): [
        (3, 0.657117397, 3.95333278, 0.29216380, 77.0757008, 18.1715158, -0.6336541),
    ],
    ("sigmoid", 0.0, 1.0): [
        (3, 0.266091563, 0.01660880, -0.00084492, 0.0015834, -0.0007847, 0.0000261),
    ],
    ("softplus", 0.0, 0.8): [
        (3, 0.642164372, 0.69129470, 0.00862255, 2.6298467, 0.6911915, -0.0048911),
    ],
}


@pytest.mark.parametrize("case", PRINTED, ids=lambda case: case[0])
def test_the_printed_table(case):
    name, C_b, C_W = case
    hidden = PRINTED[case][-1][0] - 1
    variances = {"C_b": [0.0] + [C_b] * hidden, "C_W": [1.0] + [C_W] * hidden}
    result = next_order(MLP([2] + [10] * hidden + [1], name, **variances), np.ones((1, 2)))
    tensors = (result.K, result.V, result.G1, result.six_point, result.V1, result.G2)
    units = (1e-9, 1e-8, 1e-8, 1e-7, 1e-7, 1e-7)  # the last digit printed
    for layer, *numbers in PRINTED[case]:
        for tensor, expected, unit in zip(tensors, numbers, units, strict=True):
            assert abs(tensor[layer - 1].item() - expected) <= 0.501 * unit


def test_the_printed_numbers_of_two_inputs():
    net = MLP([4, 8, 12, 6, 1], "tanh", C_b=0.15, C_W=1.6)
    result = next_order(net, TWO)
    third, fourth = result.vertex[2], result.vertex[3]
    found = [third[0, 0, 1, 1], third[0, 1, 0, 1], result.metric[2, 0, 0]]
    found += [fourth[0, 1, 0, 1], fourth[0, 0, 1, 1]]
    np.testing.assert_allclose(found, [0.02817, 0.56545, 0.69675, 0.39023, 0.04988], atol=5.01e-6)
    result = next_order(MLP([4, 24, 36, 18, 1], "tanh", C_b=0.15, C_W=1.6), TWO)
    assert abs(result.six_point[3, 0, 0, 0, 0, 0, 0] - 0.07959) < 5.01e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", SMOOTH)
def test_one_input_is_the_scalar_recursion(name):
    """Also inside two inputs, at unequal widths and hyperparameters."""
    C_b, C_W = [0.1, 0.05, 0.2, 0.1], [0.8, 0.6, 0.7, 0.5]
    net = MLP([4, 8, 12, 6, 1], name, C_b=C_b, C_W=C_W)
    result = next_order(net, 0.5 * TWO)
    K1 = np.diagonal(result.K[0]).copy()
    flow = single_input(MLP(net.widths, name, C_b=C_b, C_W=C_W), K1, next_order=True)
    pairs = [
        (np.einsum("laaaaaa->la", result.six_point), flow.six_point),
        (np.einsum("laaaa->la", result.V1), flow.V1),
        (np.einsum("laa->la", result.G2), flow.G2),
        (np.einsum("laaaa->la", result.V), flow.V),
        (np.einsum("laa->la", result.G1), flow.G1),
    ]
    for found, expected in pairs:
        scale = np.max(np.abs(expected), axis=0)
        assert np.max(np.abs(found - expected) / np.maximum(scale, 1e-300)) < 1e-9


def test_deep_linear_networks():
    """Exact at any width: V + V^{1}/n and κ₃ are the first terms of n(M − GG) and n²κ₃."""
    equal = MLP([4, 9, 9, 9, 9, 1], "linear", C_b=0.0, C_W=1.0)
    result = next_order(equal, THREE)
    K, layers = result.K, np.arange(1, 6)
    diagonal = np.einsum("laa->la", K)
    six, V1 = np.einsum("laaaaaa->la", result.six_point), np.einsum("laaaa->la", result.V1)
    factor = 4.0 * (layers - 1) * (3 * layers - 4)
    np.testing.assert_allclose(six, factor[:, None] * diagonal**3, rtol=1e-9, atol=1e-12)
    factor = 2.0 * (layers - 1) * (layers - 2)
    np.testing.assert_allclose(V1, factor[:, None] * diagonal**2, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.G2, 0.0, atol=1e-12)
    remainders = []
    for scale in (100, 200):
        net = MLP([4, 4 * scale, 6 * scale, 3 * scale, 1], "linear", C_b=0.0, C_W=0.9)
        n = np.array([1, *net.widths[1:-1]])[:, None, None, None, None]
        result = next_order(net, TWO)
        G = result.K
        exact = n * (linear_four_point(net, TWO) - np.einsum("lab,lcd->labcd", G, G))
        third = n[:, :, 0, 0, 0] ** 2 * exact_metric(net, TWO, 3).cumulants[:, :, 2]
        six = np.einsum("laaaaaa->la", result.six_point)
        remainders.append([exact - result.vertex, third - six])
    for coarse, fine, order in zip(*remainders, (4.0, 2.0), strict=True):
        large = np.abs(coarse) > 1e-3 * np.max(np.abs(coarse))
        assert np.max(np.abs(coarse)) < 0.05
        np.testing.assert_allclose(coarse[large] / fine[large], order, rtol=0.02)


def test_the_leading_orders_are_those_of_predict():
    net = MLP([4, 8, 12, 6, 1], "swish", C_b=0.15, C_W=1.6)
    result, leading = next_order(net, THREE), predict(net, THREE, accuracy=1e-8)
    np.testing.assert_allclose(result.K, leading["K"], rtol=1e-13)
    np.testing.assert_allclose(result.G1, leading["G1"], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(result.V, leading["V"], rtol=1e-7, atol=1e-9)


def test_samples_can_be_left_out_and_permuted():
    net = MLP([4, 8, 12, 6, 1], "swish", C_b=0.15, C_W=1.6)
    three = next_order(net, THREE)
    for keep in ([0, 1], [2, 0], [1]):
        fewer = next_order(net, THREE[keep])
        for name, axes in (("six_point", 6), ("V1", 4), ("G2", 2)):
            part = getattr(three, name)[np.ix_(range(4), *[keep] * axes)]
            scale = np.max(np.abs(part), axis=tuple(range(1, axes + 1)), keepdims=True)
            error = np.abs(getattr(fewer, name) - part) / np.maximum(scale, 1e-300)
            assert np.max(error) < 1e-9


def test_symmetries():
    result = next_order(MLP([4, 8, 12, 6, 1], "gelu", C_b=0.1, C_W=1.9), TWO)
    six, V1 = result.six_point, result.V1
    for axes in ([0, 2, 1, 3, 4, 5, 6], [0, 3, 4, 1, 2, 5, 6], [0, 1, 2, 5, 6, 3, 4]):
        np.testing.assert_allclose(six, six.transpose(axes), rtol=1e-12, atol=1e-12)
    for axes in ([0, 2, 1, 3, 4], [0, 1, 2, 4, 3], [0, 3, 4, 1, 2]):
        np.testing.assert_allclose(V1, V1.transpose(axes), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(result.G2, result.G2.transpose(0, 2, 1), rtol=1e-12)


def test_repeated_opposite_and_zero_inputs():
    """K is singular here, and nothing is inverted."""
    net = MLP([4, 8, 12, 6, 1], "tanh", C_b=0.0, C_W=1.6)
    two = next_order(net, TWO)
    repeated = next_order(net, TWO[[0, 1, 0]])
    for name in ("six_point", "V1", "G2"):
        axes = getattr(two, name).ndim - 1
        written = getattr(two, name)[np.ix_(range(4), *[[0, 1, 0]] * axes)]
        np.testing.assert_allclose(getattr(repeated, name), written, rtol=1e-9, atol=1e-12)
    opposite = next_order(net, np.stack([TWO[0], -TWO[0]]))
    signs = np.array([1.0, -1.0])
    one = next_order(net, TWO[:1])
    np.testing.assert_allclose(opposite.G2, np.outer(signs, signs) * one.G2, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(
        opposite.V1,
        np.einsum("a,b,c,d->abcd", *[signs] * 4) * one.V1,
        rtol=1e-9, atol=1e-12,
    )  # fmt: skip
    zero = next_order(net, np.stack([TWO[0], np.zeros(4)]))
    np.testing.assert_allclose(
        zero.six_point[:, 0, 0, 0, 0, 0, 0], one.six_point.ravel(), rtol=1e-9
    )
    assert np.max(np.abs(zero.six_point[:, 0, 0, 0, 0, 0, 1])) == 0.0
    assert np.max(np.abs(zero.G2[:, 1])) == 0.0


@pytest.mark.slow
def test_derivatives_are_those_of_automatic_differentiation():
    """Price's theorem against derivatives of Gauss-Hermite sums through the Cholesky factor."""
    sigma = activation("sin")
    K = np.array([[0.5, 0.2], [0.2, 0.4]])
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights = weights / weights.sum()
    u = jnp.array(list(product(nodes, repeat=2)))
    w = jnp.array([p * q for p, q in product(weights, repeat=2)])
    first, second = pair_indices(2)

    def cumulants(k):
        root = jnp.sqrt(k[0])
        rest = jnp.sqrt(k[2] - k[1] ** 2 / k[0])
        s = jnp.sin(jnp.stack([root * u[:, 0], k[1] / root * u[:, 0] + rest * u[:, 1]], axis=1))
        pairs = s[:, first] * s[:, second]
        mean = w @ pairs
        centred = pairs - mean[None, :]
        return mean, jnp.einsum("m,ma,mb->ab", w, centred, centred), centred

    k = jnp.array([0.5, 0.2, 0.4])
    at = _LayerAverages.at(sigma, K)
    centred = cumulants(k)[2]
    third = jnp.einsum("m,ma,mb,mc->abc", w, centred, centred, centred)
    np.testing.assert_allclose(at.kappa3, third, rtol=1e-10, atol=1e-12)
    derivative = lambda k: cumulants(k)[0]  # noqa: E731
    for order in range(5):
        np.testing.assert_allclose(at.F[order], jax.jit(derivative)(k), rtol=1e-8, atol=1e-8)
        derivative = jax.jacfwd(derivative)
    derivative = lambda k: cumulants(k)[1]  # noqa: E731
    for order in range(3):
        np.testing.assert_allclose(at.c[order], jax.jit(derivative)(k), rtol=1e-8, atol=1e-8)
        derivative = jax.jacfwd(derivative)


@pytest.mark.slow
def test_an_ensemble_sees_the_next_order():
    """Narrow networks: V^{1} is many standard errors, what is left beyond it about one."""
    net = MLP([4, 8, 12, 6, 1], "tanh", C_b=0.15, C_W=1.6)
    theory = next_order(net, TWO)
    found = simulate(net, TWO, ("K", "V"), members=400_000, seed=2)
    K, V = (_layers(found.estimate(name), 3) for name in ("K", "V"))
    assert compare(theory.metric[:3], K).ok()
    assert compare(theory.vertex[:3], V).ok()
    assert not compare(theory.V[:3], V).ok(10.0)
    second = MLP([4, 5, 1], "tanh", C_b=0.15, C_W=1.6)  # κ₃ of layer 2 is exact
    measured = simulate(second, TWO, ("six_point",), members=400_000, seed=3)
    assert compare(next_order(second, TWO).six_point, measured.estimate("six_point")).ok()


def _layers(estimate, count):
    return type(estimate)(estimate.value[:count], estimate.standard_error[:count], estimate.count)


def test_refusals():
    with pytest.raises(InvalidValueError, match="eight derivatives of σ"):
        next_order(MLP([4, 8, 1], "relu", C_b=0.0, C_W=2.0), TWO)
    with pytest.raises(InvalidValueError, match="grows exponentially"):
        next_order(MLP([4, 8, 1], "sinh", C_b=0.0, C_W=1.0), TWO)
    with pytest.raises(InvalidValueError, match="number of samples = 4: at most 3"):
        next_order(MLP([4, 8, 1], "tanh", C_b=0.0, C_W=1.0), np.eye(4))
