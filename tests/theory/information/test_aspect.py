"""r*, I*, γ* to the digits of the reference; information in residual layers; counts; inputs."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from dynagram.errors import DynagramError
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.criticality import single_input
from dynagram.theory.information import (
    complexity_count,
    equal_norm_information,
    gaussian_entropy,
    gaussian_information,
    optimal_aspect_ratio,
    optimal_skip,
    optimal_variance,
    residual_information,
    trained_information,
    truncated_information,
)
from dynagram.theory.skips import residual_flow
from dynagram.theory.statistics._exact import exact_metric

OUTPUTS = (2, 10, 100, 1000)
TABLE = {
    "tanh": (2 / 3, 0.230769, 0.120000, 0.018750, 0.00198675),
    "sin": (2 / 3, 0.230769, 0.120000, 0.018750, 0.00198675),
    "linear": (2.0, 0.0769231, 0.0400000, 0.00625000, 0.000662252),
    "leaky_relu(0.3)": (4.090986, 0.0376061, 0.0195552, 0.00305549, 0.000323761),
    "leaky_relu(0.1)": (4.882364, 0.0315106, 0.0163855, 0.00256023, 0.000271283),
    "leaky_relu(0.01)": (4.998800, 0.0307766, 0.0160038, 0.00250060, 0.000264964),
    "relu": (5.0, 0.0307692, 0.0160000, 0.00250000, 0.000264901),
}
RESIDUAL = {  # γ: r* for n_L = 10 of K* = 0, ReLU as printed, ReLU corrected
    0.0: (0.12000, 0.01600, 0.01600),
    0.2: (0.12019, 0.01680, 0.01346),
    0.4: (0.12315, 0.01968, 0.01230),
    0.5: (0.12800, 0.02246, 0.01231),
    0.6: (0.13787, 0.02694, 0.01291),
    0.8: (0.20325, 0.05097, 0.01848),
    0.9: (0.34894, 0.10049, 0.03155),
    0.95: (0.64692, 0.20025, 0.05841),
    0.99: (3.04538, 1.00005, 0.27487),
}


@pytest.mark.parametrize("name", TABLE)
def test_table_of_aspect_ratios(name):
    nu, *ratios = TABLE[name]
    for outputs, ratio in zip(OUTPUTS, ratios, strict=True):
        found = optimal_aspect_ratio(name, outputs)
        assert found.nu == pytest.approx(nu, abs=6e-7)
        assert found.r_star == pytest.approx(ratio, rel=3e-6)
    peaks = [optimal_aspect_ratio(name, outputs).information for outputs in OUTPUTS]
    assert peaks == pytest.approx([9.861933e-4, 6.666667e-3, 1.627604e-2, 1.827405e-2], rel=3e-7)


@pytest.mark.parametrize("skip", RESIDUAL)
def test_table_with_skips(skip):
    origin, printed, corrected = RESIDUAL[skip]
    assert optimal_aspect_ratio("tanh", 10, skip=skip).r_star == pytest.approx(origin, abs=6e-6)
    book = optimal_aspect_ratio("relu", 10, skip=skip, vertex="published")
    assert book.r_star == pytest.approx(printed, abs=6e-6)
    assert book.vertex == "published"
    mine = optimal_aspect_ratio("relu", 10, skip=skip)
    assert mine.r_star == pytest.approx(corrected, abs=6e-6)


def test_the_peak_is_a_peak():
    best = optimal_aspect_ratio("relu", 10)
    found = minimize_scalar(
        lambda r: -truncated_information(r, best.nu, first=5, second=5),
        bounds=(1e-3, 0.1), method="bounded", options={"xatol": 1e-9},
    )  # fmt: skip
    assert found.x == pytest.approx(best.r_star, rel=1e-6)
    assert -found.fun == pytest.approx(best.information, rel=1e-9)
    assert truncated_information(1.51 * best.r_star, best.nu, first=5, second=5) < 0
    # Uneven groups: ⅔ m_1m_2/(20 + 3m_1 + 3m_2)².
    x = optimal_variance(1, 4)
    peak = truncated_information(x, 1.0, first=1, second=4)
    assert peak == pytest.approx(2 / 3 * 4 / 35**2, rel=1e-12)
    assert best.resummed == pytest.approx(math.log1p(0.08) / 5, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "vertex", "values"),
    [
        ("relu", "published", {0.02: 0.414214, 0.1: 0.899505, 1.0: 0.990000}),
        ("relu", "corrected", {0.02: 0.821429, 0.1: 0.971744, 1.0: 0.997281}),
        ("tanh", "corrected", {0.2: 0.795271, 1.0: 0.968547, 10.0: 0.996986}),
        ("tanh", "published", {0.2: 0.795271, 1.0: 0.968547, 10.0: 0.996986}),
    ],
)
def test_optimal_skip(name, vertex, values):
    for ratio, skip in values.items():
        found = optimal_skip(name, ratio, 10, vertex=vertex)
        assert found == pytest.approx(skip, abs=6e-7)
        back = optimal_aspect_ratio(name, 10, skip=found, vertex=vertex).r_star
        assert back == pytest.approx(ratio, rel=1e-9)
    assert optimal_skip(name, 0.015, 10, vertex=vertex) == 0.0


def test_closed_form_of_the_printed_skip():
    """γ*² = (a − ν_t)/((a − 2) + √(4 + (a − 4)ν_t)) for a scale-invariant activation."""
    a = 3 * (1 + 0.3**4) / 2 / ((1 + 0.3**2) / 2) ** 2 - 1
    for ratio in (0.03, 0.3):
        target = optimal_variance(5, 5) / ratio
        wanted = (a - target) / ((a - 2) + math.sqrt(4 + (a - 4) * target))
        found = optimal_skip("leaky_relu(0.3)", ratio, 10, vertex="published")
        assert found**2 == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize(
    ("skip", "whole", "vertex"), [(0.5, 1.7673, 1.5864), (0.8, 0.4209, 0.3080)]
)
def test_information_between_neurons_of_a_residual_layer(skip, whole, vertex):
    """n²I of two neurons in layer 2; quadrature gave 1.7615 and 0.4205, V alone is not enough."""
    flow = residual_flow(MLP([1] * 4, "relu", 0.0, 2 * (1 - skip**2), skip=skip), 1.0)
    found = residual_information(flow, fan_in=10, first=1, second=1)
    assert 100 * found[1] == pytest.approx(whole, abs=6e-5)
    assert flow.V[1] ** 2 / 8 == pytest.approx(vertex, abs=6e-5)
    assert found[0] == 0.0
    net = MLP([1] * 4, "relu", 0.0, 1.5, skip=0.5)
    printed = residual_flow(net, 1.0, vertex="published")
    with pytest.raises(DynagramError, match="corrected flow is needed"):
        residual_information(printed, fan_in=10, first=1, second=1)


def test_two_neurons_of_a_residual_layer_by_quadrature():
    """I(z_1, z_2) in layer 2 of a ReLU residual network at large n, from the exact joint density.

    z = √K̂ε + γz^(1) with the two neurons' own σ² split off from Ĝ, and the n − 2 others Gaussian:
    relative to the leading order 1/n² the rest is of order 1/n."""
    skip, n, C_W = 0.5, 400, 1.5
    t = np.linspace(-8, 8, 161)
    w = np.exp(-t * t / 2)
    w /= w.sum()
    # The shift of K̂ given z_1^(1): C_W(σ²(z) − 1/2)/n; Var of the rest: C_W²(5/4)/n.
    own = C_W * (np.maximum(t, 0.0) ** 2 - 0.5) / n
    q = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    s = 1.0 - skip**2  # noise variance at infinite width
    kernel = np.exp(-((t[:, None] - skip * t[None, :]) ** 2) / (2 * s)) / math.sqrt(2 * math.pi * s)
    first = ((t[:, None] - skip * t[None, :]) ** 2 / s - 1) / (2 * s)
    # p(z_1, z_2) − p(z_1)p(z_2) to order 1/n: E over both pasts of the first-order shifts.
    alone, bent, driven = kernel @ w, (kernel * first) @ w, kernel @ (w * own)
    he2 = t * t - 1
    common = C_W**2 * 1.25 / n
    shift = (
        np.outer(bent, driven) + np.outer(driven, bent) + common * np.outer(bent, bent)
    ) / np.outer(q, q)
    np.testing.assert_allclose(alone, q, atol=1e-9)
    measure = np.outer(q, q) * (t[1] - t[0]) ** 2
    information = 0.5 * float(np.sum(measure * shift**2))
    flow = residual_flow(MLP([1] * 4, "relu", 0.0, C_W, skip=skip), 1.0)
    wanted = residual_information(flow, fan_in=n, first=1, second=1)[1]
    assert information == pytest.approx(wanted, rel=2e-3)
    assert float(np.sum(measure * shift * np.outer(he2, he2))) == pytest.approx(
        flow.V[1] / n, rel=1e-3
    )


def test_six_point_vertex_and_counts():
    """(ε.20): κ₃/K³ = 75(ℓ − 1)(ℓ − 2) + 44(ℓ − 1), and exact at finite n."""
    flow = single_input(MLP([1] * 6, "relu", C_b=0.0, C_W=2.0), 1.0, next_order=True)
    assert pytest.approx([0, 44, 238, 582, 1076], rel=1e-9) == flow.six_point
    n = 64
    net = MLP([3, n, n, n, n, 1], "relu", C_b=0.0, C_W=2.0)
    m1, m2, m3 = exact_metric(net, np.full((1, 3), np.sqrt(0.5)), 3).moments[:, 0].T
    third = n**2 * (m3 - 3 * m2 * m1 + 2 * m1**3)
    assert third == pytest.approx([0, 44, 259.10, 699.76, 1434.77], abs=6e-3)
    count = complexity_count(20, train=12, outputs=3)
    assert sum(count.independent.values()) == 3 * 12 + 20 * 21
    assert [complexity_count(20, train=12, outputs=3, order=k).leading_power for k in range(3)] == [
        2,
        4,
        6,
    ]
    assert [complexity_count(20, train=1, outputs=1, order=k).printed_power for k in (1, 2)] == [
        2,
        4,
    ]
    found = complexity_count(3, train=2, outputs=5, order=2).independent
    for name, places in (("K", 2), ("Theta", 2), ("V", 4), ("six-point vertex", 6)):
        entries = itertools.product(range(3), repeat=places)
        pairs = (sorted(sorted(entry[i : i + 2]) for i in range(0, places, 2)) for entry in entries)
        assert found[name] == len({str(entry) for entry in pairs})
    assert found["y"] == 10
    with pytest.raises(DynagramError, match="train = 30"):
        complexity_count(20, train=30, outputs=1)


def test_information_between_inputs():
    network = MLP([3, 10, 10, 1], "tanh", C_b=0.1, C_W=1.3)
    x = np.array([[1.0, 0.2, 0.0], [0.3, -0.5, 1.0], [0.0, 1.0, 0.4], [0.9, 0.3, 0.1]])
    K = frozen_kernels(network, x, layers="last").K[0]
    det = np.linalg.det
    wanted = 0.5 * math.log(det(K[:2, :2]) * det(K[2:, 2:]) / det(K))
    assert gaussian_information(K, [0, 1], [2, 3]) == pytest.approx(wanted, rel=1e-10)
    twice = gaussian_information(K, [0, 1], [2, 3], neurons=2)
    assert twice == pytest.approx(2 * wanted, rel=1e-10)
    # I = S_A + S_B − S_AB.
    parts = gaussian_entropy(K[:2, :2]) + gaussian_entropy(K[2:, 2:]) - gaussian_entropy(K)
    assert parts == pytest.approx(wanted, rel=1e-9)
    assert equal_norm_information(1.3, 0.2) == pytest.approx(0.385854751531524, rel=1e-14)
    pair = np.array([[1.5, 1.1], [1.1, 1.5]])
    assert gaussian_information(pair, [0], [1]) == pytest.approx(0.385854751531524, rel=1e-12)
    assert equal_norm_information(1.0, 1.0) == 0.0
    assert equal_norm_information(1.0, 0.0) == math.inf
    assert gaussian_information(np.ones((2, 2)), [0], [1]) == math.inf


def test_information_of_trained_networks():
    """The formula with the covariances written out: (6.57) and (10.41)."""
    network = MLP([2, 10, 10, 1], "tanh", C_b=0.1, C_W=1.3)
    known, tests = np.array([[1.1, 0.1], [-1.0, 0.5]]), np.array([[1.0, 0.2], [0.5, 0.9]])
    frozen = frozen_kernels(network, np.concatenate([known, tests]), layers="last")
    K, Theta = frozen.K[0], frozen.Theta[0]
    posterior = K[2:, 2:] - K[2:, :2] @ np.linalg.solve(K[:2, :2], K[:2, 2:])
    R = Theta[2:, :2] @ np.linalg.inv(Theta[:2, :2])
    change = np.concatenate([-R, np.eye(2)], axis=1)
    for state, covariance in (
        ("untrained", K[2:, 2:]), ("posterior", posterior), ("trained", change @ K @ change.T),
    ):  # fmt: skip
        wanted = gaussian_information(covariance, [0], [1])
        found = trained_information(network, known, tests, [0], [1], state=state)
        assert found == pytest.approx(wanted, rel=1e-8)
    noisy = K[2:, 2:] - K[2:, :2] @ np.linalg.solve(K[:2, :2] + 0.3 * np.eye(2), K[:2, 2:])
    found = trained_information(network, known, tests, [0], [1], noise=0.3, neurons=2)
    assert found == pytest.approx(2 * gaussian_information(noisy, [0], [1]), rel=1e-8)
    with pytest.raises(DynagramError, match="expected untrained, posterior or trained"):
        trained_information(network, known, tests, [0], [1], state="tired")


def test_refusals():
    K = np.array([[1.0, 0.2], [0.2, 2.0]])
    for call, words in (
        (lambda: gaussian_information(K, [0], [0]), "shares inputs"),
        (lambda: gaussian_information(K, [0], [2]), "row numbers below 2"),
        (lambda: gaussian_information(K, [], [1]), "row numbers below 2"),
        (lambda: gaussian_entropy(np.ones((2, 2))), "the entropy is −∞"),
        (lambda: gaussian_entropy(np.zeros((1, 1))), "variances > 0"),
        (lambda: equal_norm_information(0.0, 0.1), "expected K_0 > 0"),
        (lambda: optimal_skip("relu", 0.0, 10), "must be > 0"),
        (lambda: optimal_aspect_ratio("relu", 10, vertex="x"), "corrected or published"),
        (lambda: optimal_variance(0, 1), "expected numbers > 0"),
    ):
        with pytest.raises(DynagramError, match=words):
            call()
