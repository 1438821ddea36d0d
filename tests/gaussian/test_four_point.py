"""Covariances of pair functions against Wick, brute-force grids, closed forms and other seeds."""

import math
from itertools import product

import numpy as np
import pytest

from dynagram._pairs import matrix_to_pairs, pair_indices, pair_numbers
from dynagram.activations import activation
from dynagram.errors import InvalidValueError
from dynagram.gaussian._families import PairFamily, TwoPoint, contract, curvature
from dynagram.gaussian._four_point import FourPoint, wick_covariance
from dynagram.gaussian._scalar import moment

VALUES = ((0, 0), (0, 0))
X = np.array(
    [[1.0, 0.5, -0.3, 0.8], [-0.6, 0.3, 1.1, 0.9], [0.2, -0.7, 0.9, -0.4], [0.9, 0.1, 0.6, -0.8]]
)


def _kernel(samples, C_b=0.15, C_W=1.6):
    return C_b + C_W * X[:samples] @ X[:samples].T / 4


def _covariance(name, K, product=VALUES, **options):
    return FourPoint(TwoPoint(activation(name), K), **options).covariances([product])[product]


def _brute_force(name, K, product, step, reach):
    """Cov of all pair functions by a plain product trapezoid rule through the Cholesky factor."""
    sigma, n = activation(name), K.shape[0]
    t = np.arange(-reach, reach + step / 2, step)
    w = np.exp(-t * t / 2)
    w /= w.sum()
    u = np.stack(np.meshgrid(*[t] * n, indexing="ij"), axis=-1).reshape(-1, n)
    weights = np.prod(np.stack(np.meshgrid(*[w] * n, indexing="ij")), axis=0).reshape(-1)
    z = u @ np.linalg.cholesky(K).T

    def functions(p, q):
        left, right = sigma.values(z, p), sigma.values(z, q)
        if p == q:
            a, b = pair_indices(n)
        else:
            a, b = (index.reshape(-1) for index in np.indices((n, n)))
        pairs = left[:, a] * right[:, b]
        return pairs - weights @ pairs

    f, g = functions(*product[0]), functions(*product[1])
    return (f * weights[:, None]).T @ g


# --- exact cases -------------------------------------------------------------------------------


def test_linear_networks_are_wick():
    K = _kernel(4)
    found = _covariance("linear", K)
    np.testing.assert_allclose(found.value, wick_covariance(K), rtol=1e-11, atol=1e-12)
    assert np.max(found.standard_error) < 1e-11
    a, b = pair_indices(4)
    for A, B in product(range(a.size), repeat=2):
        i, j, k, m = a[A], b[A], a[B], b[B]
        assert wick_covariance(K)[A, B] == pytest.approx(K[i, k] * K[j, m] + K[i, m] * K[j, k])


@pytest.mark.parametrize("name", ["tanh", "relu", "gelu", "elu", "hardtanh", "softsign", "sigmoid"])
def test_one_sample(name):
    K = np.array([[0.7]])
    expected = moment(activation(name), K, (0, 0, 0, 0)) - moment(activation(name), K, (0, 0)) ** 2
    np.testing.assert_allclose(_covariance(name, K).value, expected, rtol=1e-10)


@pytest.mark.parametrize("samples", [2, 4])
def test_relu_pairs_by_the_printed_closed_forms(samples):
    """⟨σ_1²σ_2²⟩ and ⟨σ_1³σ_2⟩; with more samples these entries stay exact."""
    K = _kernel(samples)
    found = _covariance("relu", K)
    k00, k01, k11 = K[0, 0], K[0, 1], K[1, 1]
    theta = math.acos(k01 / math.sqrt(k00 * k11))
    rest, sine, cosine = math.pi - theta, math.sin(theta), math.cos(theta)
    square = k00 * k11 / (2 * math.pi) * (3 * sine * cosine + rest * (1 + 2 * cosine**2))
    arc = 3 / 8 * rest + math.sin(2 * theta) / 4 - math.sin(4 * theta) / 32
    cubic = 4 / math.pi * k00**1.5 * math.sqrt(k11) * (cosine * arc + sine**5 / 4)
    mean = math.sqrt(k00 * k11) / (2 * math.pi) * (sine + rest * cosine)
    number = pair_numbers(samples)
    aa, ab, bb = number[0, 0], number[0, 1], number[1, 1]
    expected = {
        (aa, aa): 1.25 * k00**2,
        (aa, bb): square - k00 * k11 / 4,
        (ab, ab): square - mean**2,
        (aa, ab): cubic - mean * k00 / 2,
    }
    for entry, value in expected.items():
        assert found.value[entry] == pytest.approx(value, rel=1e-10)
        assert found.standard_error[entry] == 0.0


def test_printed_vertices_of_the_second_layer():
    """V^(2) = C_W² Cov(σσ, σσ) of two inputs: tanh and ReLU."""
    number = pair_numbers(2)
    entries = [(0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 1), (1, 1, 1, 1)]
    rows = [number[a, b] for a, b, _, _ in entries]
    columns = [number[c, d] for _, _, c, d in entries]
    tanh = 1.6**2 * _covariance("tanh", _kernel(2)).value[rows, columns]
    printed = [0.2431380, 0.0352451, 0.0025200, 0.4074670, 0.0354344, 0.2629826]
    np.testing.assert_allclose(tanh, printed, atol=5.01e-8)
    relu = 1.9**2 * _covariance("relu", _kernel(2, 0.1, 1.9)).value[rows, columns]
    printed = [4.88541, 1.20729, 0.19848, 1.24768, 1.47735, 7.31551]
    np.testing.assert_allclose(relu, printed, atol=5.01e-6)


@pytest.mark.parametrize(
    ("name", "orders"), [("gelu", (0, 0)), ("gelu", (1, 1)), ("gelu", (2, 0)), ("relu", (0, 0))]
)
def test_variance_of_the_lower_orders(name, orders):
    layer = FourPoint(TwoPoint(activation(name), _kernel(4)))
    expected = np.diagonal(layer._lower_orders(orders, orders))
    np.testing.assert_allclose(layer._lower_variance(orders), expected, rtol=1e-12)


# --- brute force -------------------------------------------------------------------------------

PRODUCTS = [
    VALUES, ((0, 0), (1, 1)), ((1, 1), (1, 1)),
    ((2, 0), (1, 1)), ((3, 1), (1, 1)), ((2, 2), (1, 1)),
]  # fmt: skip


@pytest.mark.parametrize("name", ["tanh", "gelu"])
@pytest.mark.parametrize("orders", PRODUCTS)
def test_two_samples_by_brute_force(name, orders):
    K = _kernel(2)
    found = _covariance(name, K, orders, accuracy=1e-9)
    direct = _brute_force(name, K, orders, 0.08, 9.0)
    scale = np.max(np.abs(direct))
    assert np.max(np.abs(found.value - direct)) < 1e-9 * scale
    assert np.max(found.standard_error) < 1e-8 * scale


@pytest.mark.parametrize("orders", PRODUCTS)
def test_three_samples_by_brute_force(orders):
    K = 0.6 * _kernel(3)
    found = _covariance("tanh", K, orders, accuracy=1e-8)
    direct = _brute_force("tanh", K, orders, 0.2, 8.0)
    assert np.max(np.abs(found.value - direct)) < 1e-8 * np.max(np.abs(direct))


def test_four_samples_by_brute_force():
    K = 0.4 * _kernel(4) + 0.1 * np.eye(4)
    found = _covariance("tanh", K, accuracy=1e-6)
    direct = _brute_force("tanh", K, VALUES, 0.45, 6.75)
    error = np.abs(found.value - direct) / np.max(np.abs(direct))
    assert np.max(error) < 1e-6


@pytest.mark.parametrize("name", ["relu", "elu"])
def test_kinked_covariances_by_monte_carlo(name):
    """Four samples, 2·10⁶ draws: every entry within 4.5 standard errors of the two combined."""
    sigma, K = activation(name), _kernel(4)
    rng, draws = np.random.default_rng(4), 500_000
    found = _covariance(name, K, accuracy=1e-4)
    means = PairFamily.of(TwoPoint(sigma, K), 0, 0).value
    a, b = pair_indices(4)
    batches = []
    for _ in range(4):
        z = rng.normal(size=(draws, 4)) @ np.linalg.cholesky(K).T
        s = sigma.values(z)
        pairs = s[:, a] * s[:, b] - means  # known means: unbiased products
        batches.append((pairs.T @ pairs / draws, (pairs**2).T @ (pairs**2) / draws))
    mean = np.mean([value for value, _ in batches], axis=0)
    square = np.mean([value for _, value in batches], axis=0)
    error = np.sqrt((square - mean**2) / (4 * draws))
    z_score = (found.value - mean) / np.hypot(error, found.standard_error)
    assert np.max(error / np.sqrt(np.outer(np.diagonal(mean), np.diagonal(mean)))) < 0.01
    assert np.max(np.abs(z_score)) < 4.5


# --- symmetries and error bars -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_permuting_the_samples_permutes_the_covariance(name):
    K, order = _kernel(4), [2, 0, 3, 1]
    found, permuted = _covariance(name, K), _covariance(name, K[np.ix_(order, order)])
    a, b = pair_indices(4)
    rows = pair_numbers(4)[np.array(order)[a], np.array(order)[b]]
    difference = permuted.value - found.value[np.ix_(rows, rows)]
    error = np.hypot(permuted.standard_error, found.standard_error[np.ix_(rows, rows)])
    scale = np.sqrt(np.outer(*[np.diagonal(permuted.value)] * 2))
    assert np.all(np.abs(difference) <= 6 * error + 1e-8 * scale)


@pytest.mark.parametrize("name", ["tanh", "relu", "sigmoid"])
def test_adding_a_sample_leaves_the_others_alone(name):
    few, many = _covariance(name, _kernel(3)), _covariance(name, _kernel(4))
    a, b = pair_indices(3)
    rows = pair_numbers(4)[a, b]
    block = np.ix_(rows, rows)
    difference = np.abs(many.value[block] - few.value)
    error = np.hypot(many.standard_error[block], few.standard_error)
    scale = np.sqrt(np.outer(*[np.diagonal(few.value)] * 2))
    assert np.all(difference <= 6 * error + 1e-5 * scale)


@pytest.mark.parametrize("name", ["relu", "hardtanh"])
def test_standard_errors_are_honest(name):
    """Two seeds, and one against a run ten times as accurate, differ by a few of their errors."""
    K = _kernel(4)
    coarse = [_covariance(name, K, accuracy=3e-3, seed=seed) for seed in (1, 2)]
    fine = _covariance(name, K, accuracy=3e-4, seed=3)
    unknown = coarse[0].standard_error > 0
    assert np.sum(unknown) > 20
    scale = np.sqrt(np.outer(*[np.diagonal(fine.value)] * 2))
    for left, right in ((coarse[0], coarse[1]), (coarse[0], fine), (coarse[1], fine)):
        error = np.hypot(left.standard_error, right.standard_error)
        z = (left.value - right.value)[unknown] / error[unknown]
        assert np.max(np.abs(z)) < 5.0
        assert np.sqrt(np.mean(z**2)) > 0.2  # and the errors are not far too large
        assert np.array_equal(left.value[~unknown], right.value[~unknown])
    assert np.max(coarse[0].standard_error / scale) <= 1.1 * 3e-3
    assert np.max(fine.standard_error / scale) <= 1.1 * 3e-4


@pytest.mark.parametrize("name", ["tanh", "relu", "gelu"])
def test_positive_semidefinite(name):
    eigenvalues = np.linalg.eigvalsh(_covariance(name, _kernel(4)).value)
    assert eigenvalues[0] > -1e-4 * eigenvalues[-1]


@pytest.mark.parametrize("name", ["tanh", "relu"])
def test_repeated_opposite_and_zero_samples(name):
    """Singular K: a repeated sample repeats entries, a zero sample covaries with nothing."""
    x = np.stack([X[0], X[1], X[0], -X[0], np.zeros(4)])
    K = 1.6 * x @ x.T / 4
    two, all_five = _covariance(name, K[:2, :2]), _covariance(name, K)
    number = pair_numbers(5)
    rows = [number[2, 2], number[2, 1], number[1, 1]]
    block = np.ix_(rows, rows)
    scale = np.sqrt(np.outer(*[np.diagonal(two.value)] * 2))
    tolerance = 6 * all_five.standard_error[block] + 1e-7 * scale
    assert np.all(np.abs(all_five.value[block] - two.value) <= tolerance)
    zero = all_five.value[number[4]]
    assert np.max(np.abs(zero)) < 1e-12
    opposite = all_five.value[number[3, 3], number[0, 0]]
    expected = two.value[0, 0] if name == "tanh" else -(K[0, 0] ** 2) / 4  # never both active
    assert opposite == pytest.approx(expected, rel=1e-7)


def test_bad_accuracy_is_refused():
    for accuracy in (0.0, 1.0, 1e-20):
        with pytest.raises(InvalidValueError, match="accuracy"):
            FourPoint(TwoPoint(activation("tanh"), np.eye(1)), accuracy=accuracy)


# --- derivatives in K, which carry the inherited terms -----------------------------------------


@pytest.mark.parametrize("name", ["tanh", "relu", "elu", "gelu"])
def test_jacobians_and_curvatures_are_derivatives(name):
    """Along a random direction in K: ⟨σσ⟩ by central differences, second order too."""
    sigma, K = activation(name), _kernel(3)
    rng = np.random.default_rng(6)
    direction = rng.normal(size=(3, 3))
    direction = 0.1 * (direction + direction.T)

    def value(t):
        return PairFamily.of(TwoPoint(sigma, K + t * direction), 0, 0).value

    h = 0.01
    points = {k: value(k * h) for k in (-2, -1, 0, 1, 2)}
    first = (8 * (points[1] - points[-1]) - (points[2] - points[-2])) / (12 * h)
    second = (16 * (points[1] + points[-1]) - points[2] - points[-2] - 30 * points[0]) / (
        12 * h * h
    )
    averages = TwoPoint(sigma, K)
    step = matrix_to_pairs(direction)
    jacobian = PairFamily.of(averages, 0, 0).propagate(step)
    np.testing.assert_allclose(jacobian, first, rtol=1e-7, atol=1e-9)
    bent = contract(curvature(averages, 0), np.outer(step, step))
    np.testing.assert_allclose(2 * bent, second, rtol=1e-5, atol=1e-7)
