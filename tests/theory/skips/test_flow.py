"""One input: the checked numbers, the printed recursion, and two other ways to the same tensors."""

import numpy as np
import pytest

from dynagram.activations import activation
from dynagram.activations._core import product_activation
from dynagram.errors import DynagramError
from dynagram.gaussian._hermite import hermite_table
from dynagram.gaussian._scalar import moment
from dynagram.gaussian._two_point import cross_average
from dynagram.networks import MLP
from dynagram.theory.criticality import mean_square, single_input
from dynagram.theory.skips import residual_flow

CASES = {
    "relu": ("relu", 1.0, 0.0, 1.5, 0.5),
    "relu, negative skip": ("relu", 1.0, 0.1, 1.2, -0.7),
    "tanh": ("tanh", 1.3, 0.05, 0.8, 0.6),
    "gelu": ("gelu", 2.0, 0.13, 1.5, 0.5),
    "hardtanh, kinks off zero": ("hardtanh", 1.1, 0.1, 1.0, 0.6),
}


def chain(name, depth, C_b, C_W, skip):
    """`depth` layers joined by blocks with a skip, and a readout behind them."""
    return MLP([1] * (depth + 2), name, C_b, C_W, skip=skip)


def flow(case, depth, **options):
    name, K1, C_b, C_W, skip = CASES[case]
    return residual_flow(chain(name, depth, C_b, C_W, skip), K1, **options)


@pytest.mark.parametrize(
    ("C_W", "skip", "corrected", "published"),
    [
        (1.5, 0.5, 8.617868, 7.125),
        (1.5, -0.5, 5.632132, 7.125),
        (0.72, 0.8, 3.725691, 3.1392),
        (1.7, 0.4, 10.013858, 8.480091),
    ],
)
def test_third_layer_of_relu(C_W, skip, corrected, published):
    """An independent conditional calculation gave these to six decimals."""
    for vertex, value in (("corrected", corrected), ("published", published)):
        V = residual_flow(chain("relu", 3, 0.0, C_W, skip), 1.0, vertex=vertex).V
        assert V[2] == pytest.approx(value, abs=6e-7)


def test_deeper_layers():
    found = flow("relu", 6)
    assert pytest.approx([0, 3.5625, 8.6179, 14.397, 20.535, 26.852], abs=5e-4) == found.V[:6]
    assert pytest.approx([0, 0.5984, 0.8976, 1.0472, 1.1220, 1.1594], abs=5e-5) == found.odd[:6]
    assert pytest.approx([0, 0, 0.3426, 0.8623, 1.4713, 2.1251], abs=5e-5) == found.G1[:6]
    negative = residual_flow(chain("relu", 6, 0.0, 1.5, -0.5), 1.0)
    assert negative.V[5] == pytest.approx(13.473, abs=5e-4)
    gelu = chain("gelu", 6, 0.17292239 * 0.75, 1.98305826 * 0.75, 0.5)
    assert residual_flow(gelu, 2.0).V[5] == pytest.approx(100.45, abs=5e-3)
    printed = residual_flow(gelu, 2.0, vertex="published").V[5]
    assert printed == pytest.approx(68.2, abs=0.05)
    tanh = residual_flow(chain("tanh", 6, 0.0, 0.75, 0.5), 1.0)
    assert tanh.G1[5] == pytest.approx(-0.0997, abs=5e-5)


@pytest.mark.parametrize("case", CASES)
def test_without_skip_it_is_the_plain_flow(case):
    name, K1, C_b, C_W, _ = CASES[case]
    net = MLP([3, 20, 50, 30, 40, 2], name, C_b, C_W)
    plain = single_input(net, K1)
    for vertex in ("corrected", "published"):
        found = residual_flow(net, K1, vertex=vertex)
        np.testing.assert_allclose(found.K, plain.K, rtol=1e-12)
        np.testing.assert_allclose(found.V, plain.V, rtol=1e-12)
    found = residual_flow(net, K1)
    np.testing.assert_allclose(found.G1, plain.G1, rtol=1e-10, atol=1e-14)
    assert not np.any(found.response)


@pytest.mark.parametrize("case", CASES)
def test_vertex_by_the_sum_over_layers(case):
    """V = C_W² Σ χχ Cov(σ²(z^(s)), σ²(z^(t))) + 2C_W Σ χ γ^{2(ℓ−s)} ⟨σ²(z² − K)⟩, by quadrature."""
    name, _, _, C_W, skip = CASES[case]
    sigma, found = activation(name), flow(case, 5)
    square, K, layer = product_activation(sigma, (0, 0)), found.K, 4
    gain = [np.prod(found.chi_parallel[s + 1 : layer]) for s in range(layer)]
    total = 0.0
    for s in range(layer):
        for t in range(layer):
            low, high = min(s, t), max(s, t)
            cross = skip ** (high - low) * K[low]
            if s == t:
                joint = float(moment(sigma, K[s], (0, 0, 0, 0)))
            else:
                K_low, K_high, C = (np.array([v]) for v in (K[low], K[high], cross))
                joint = cross_average(square, square, K_low, K_high, C)[0]
            means = [float(mean_square(name, K[i])) for i in (s, t)]
            total += C_W**2 * gain[s] * gain[t] * (joint - means[0] * means[1])
        moved = 2.0 * K[s] ** 2 * float(mean_square(name, K[s], derivative=1))
        total += 2.0 * C_W * gain[s] * skip ** (2 * (layer - s)) * moved
    assert found.V[layer] == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_metric_by_the_law_of_one_neuron(case):
    """G^{1} from all components d_p of a neuron's density, which the library never forms."""
    name, _, _, C_W, skip = CASES[case]
    found, count = flow(case, 6), 240
    square = product_activation(activation(name), (0, 0))
    d = np.zeros(count)
    p = np.arange(count)
    for i in range(5):
        K, next_K = found.K[i], found.K[i + 1]
        s = hermite_table(square, np.array([K]), 0, count)[:, 0]
        slope, phi, W = float(mean_square(name, K, derivative=1)), found.response[i], found.W[i]
        rho = skip * np.sqrt(K / next_K)
        overlap = s[1:] @ phi[1:count]
        fourth = float(moment(activation(name), K, (0, 0, 0, 0))) - s[0] ** 2
        new = rho**p * d
        low = p[3:] - 2
        driven = s[low] + slope * phi[low]
        new[3:] += C_W * np.sqrt(p[3:] * (p[3:] - 1)) / (2 * next_K) * rho**low * driven
        new[2] += C_W / (np.sqrt(2) * next_K) * (s[1:] @ d[1:])
        W_G = C_W**2 * (fourth + slope**2 * W + 2 * slope * overlap)
        bracket = 0.25 * C_W * skip**2 * (slope * W + overlap) + W_G / 8
        new[4] += np.sqrt(24) / next_K**2 * bracket
        d = new
        assert found.G1[i + 1] == pytest.approx(np.sqrt(2) * next_K * d[2], rel=2e-6, abs=1e-12)


def test_published_vertex_keeps_the_second_component_only():
    """(B.26) equals the corrected recursion with φ_p = 0 for p ≠ 2."""
    name, _, _, C_W, skip = CASES["gelu"]
    printed = flow("gelu", 6, vertex="published")
    W = phi = 0.0
    for i in range(5):
        K, chi = printed.K[i], printed.chi_parallel[i]
        s = np.sqrt(2) * K * float(mean_square(name, K, derivative=1))
        spread = float(moment(activation(name), K, (0,) * 4)) - float(mean_square(name, K)) ** 2
        W = chi**2 * W + C_W**2 * spread + 2 * C_W * chi * s * phi
        phi = skip**2 * K / printed.K[i + 1] * (C_W * s + chi * phi)
        V = W + 2 * np.sqrt(2) * printed.K[i + 1] * phi
        assert printed.V[i + 1] == pytest.approx(V, rel=1e-11)
    with pytest.raises(DynagramError, match="odd cumulants"):
        _ = printed.odd


def test_linear_networks_agree_with_the_book():
    for skip in (0.5, -0.9, 1.5):
        both = [
            residual_flow(chain("linear", 6, 0.1, 0.8, skip), 0.7, vertex=vertex).V
            for vertex in ("corrected", "published")
        ]
        np.testing.assert_allclose(both[0], both[1], rtol=1e-11)


def test_susceptibilities_are_the_growth_of_small_differences():
    name, K1, C_b, C_W, skip = CASES["gelu"]
    step = 1e-5
    net = chain(name, 4, C_b, C_W, skip)
    two = [residual_flow(net, K1 + side * step).K for side in (-1, 1)]
    growth = (two[1] - two[0])[-1] / (2 * step)
    assert np.prod(flow("gelu", 4).chi_parallel) == pytest.approx(growth, rel=1e-8)


def test_zero_input_and_refusals():
    quiet = residual_flow(chain("relu", 4, 0.0, 1.5, 0.5), 0.0)
    assert not np.any(quiet.K)
    assert not np.any(quiet.V)
    assert not np.any(quiet.G1)
    with pytest.raises(DynagramError, match="expected corrected or published"):
        residual_flow(chain("relu", 4, 0.0, 1.5, 0.5), 1.0, vertex="true")
    with pytest.raises(DynagramError, match="overflows at layer"):
        residual_flow(chain("relu", 4, 0.0, 1.5, 1e60), 1.0)
    with pytest.raises(DynagramError, match="K1 = -1.0"):
        residual_flow(chain("relu", 4, 0.0, 1.5, 0.5), -1.0)


def test_a_jump_has_no_perpendicular_susceptibility():
    assert residual_flow(chain("step", 3, 0.1, 1.0, 0.5), 1.0).chi_perpendicular is None
