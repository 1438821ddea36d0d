"""Single-input recursions against golden sequences, exact finite-width results and each other."""

import json
from pathlib import Path

import numpy as np
import pytest

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks import MLP
from dynagram.theory.criticality import (
    critical_initialisation,
    mean_square,
    single_input,
    small_separation,
)
from dynagram.theory.statistics._exact import exact_metric

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "criticality_classes.json").read_text("utf-8")
)
SEQUENCES = GOLDEN["single_input"]["rows"]
RENORMALISATION = {"tanh": 2 / 3, "sin": 2 / 3, "elu": 1 / 2, "gelu": 0.0, "swish": 0.0}


@pytest.mark.parametrize("name", RENORMALISATION)
def test_golden_sequences(name):
    """K, V, G^{1} bare and renormalised, χ products and δδK_[2] to the digits printed."""
    point = critical_initialisation(name)
    rows = [row for row in SEQUENCES if row[0] == name]
    depth = max(row[1] for row in rows)
    hyperparameters = {"C_b": point.C_b, "C_W": point.C_W}
    flow = single_input(MLP([1] * (depth + 1), name, **hyperparameters), 1.0)
    tuned = single_input(
        MLP([1] * (depth + 1), name, **hyperparameters), 1.0, c_W1=RENORMALISATION[name]
    )
    pair = small_separation(MLP([1] * (depth + 1), name, **hyperparameters), 1.0, delta_1=1.0)
    assert flow.perpendicular_gain is not None
    for _, layer, K, V, G1, G1_tuned, parallel, perpendicular, delta_2 in rows:
        i = layer - 1
        assert flow.K[i] == pytest.approx(K, abs=2e-12)
        assert flow.V[i] == pytest.approx(V, rel=1e-12, abs=2e-12)
        assert flow.G1[i] == pytest.approx(G1, rel=1e-11, abs=2e-12)
        assert tuned.G1[i] == pytest.approx(G1_tuned, rel=1e-11, abs=2e-12)
        assert flow.parallel_gain[i] == pytest.approx(parallel, rel=1e-10)
        assert flow.perpendicular_gain[i] == pytest.approx(perpendicular, rel=1e-10)
        assert pair.delta_1[i] == pytest.approx(parallel, rel=1e-10)
        assert pair.delta_2[i] == pytest.approx(delta_2, rel=1e-10)


@pytest.mark.parametrize("row", GOLDEN["next_order"]["rows"], ids=lambda row: f"{row[0]}-{row[3]}")
def test_golden_next_orders(row):
    name, C_b, C_W, layer, *values = row
    flow = single_input(MLP([1] * (layer + 1), name, C_b=C_b, C_W=C_W), 1.0, next_order=True)
    assert flow.six_point is not None
    assert flow.V1 is not None
    assert flow.G2 is not None
    got = [part[-1] for part in (flow.K, flow.V, flow.G1, flow.six_point, flow.V1, flow.G2)]
    digits = (5e-10, 5e-9, 5e-9, 5.1e-8, 5.1e-8, 5.1e-8)
    for value, wanted, half_digit in zip(got, values, digits, strict=True):
        assert value == pytest.approx(wanted, rel=1e-12, abs=half_digit)


def test_unequal_widths():
    """Values of the reference for widths 60, 240, 80, 160, 100, which a simulation confirmed."""
    flow = single_input(MLP((5, 60, 240, 80, 160, 100, 1), "tanh", C_b=0.05, C_W=1.3), 0.8)
    V = [0, 0.14809, 0.21373, 0.11030, 0.14474, 0.10643]
    np.testing.assert_allclose(flow.V, V, atol=5e-6)
    np.testing.assert_allclose(flow.G1, [0, 0, -0.1773, -0.0567, -0.1586, -0.0977], atol=5e-5)


@pytest.mark.parametrize("name", ["linear", "relu", "leaky_relu(0.3)", "abs"])
def test_expansion_of_the_exact_finite_width_law(name):
    """Scale-invariant: Var Ĝ and κ₃ are known at any width; what is left falls like 1/n³."""
    C_W = 1.1 * critical_initialisation(name).C_W
    shape = np.array([7, 20, 50, 30, 40, 10])
    left = []
    for scale in (40, 80):
        widths = tuple(int(n) for n in scale * shape)
        net = MLP(widths, name, C_b=0.0, C_W=C_W)
        x = np.full((1, widths[0]), np.sqrt(0.7 / C_W))
        mean, second, third = exact_metric(net, x, 3).moments[:, 0].T
        flow = single_input(net, 0.7, next_order=True)
        assert flow.six_point is not None
        assert flow.V1 is not None
        np.testing.assert_allclose(flow.K, mean, rtol=1e-13)
        np.testing.assert_array_equal(flow.G1, 0.0)
        np.testing.assert_array_equal(flow.G2, 0.0)
        n = np.array(widths[:5])
        variance = second - mean**2
        cumulant = third - 3 * mean * second + 2 * mean**3
        left.append(
            (
                np.abs(variance - flow.V / n - flow.V1 / n**2)[2:],
                np.abs(cumulant - flow.six_point / n**2)[2:],
            )
        )
        assert np.all(left[-1][0] < 0.05 * np.abs(flow.V1 / n**2)[2:])
        assert np.all(left[-1][1] < 0.2 * np.abs(flow.six_point / n**2)[2:])
    # At layer 3 the variance is a product of two factors: nothing is left but rounding.
    assert left[0][0][0] < 1e-15
    np.testing.assert_allclose(left[0][0][1:] / left[1][0][1:], 8.0, rtol=0.05)
    np.testing.assert_allclose(left[0][1] / left[1][1], 8.0, rtol=0.2)


def test_deep_linear_network_term_by_term():
    """V = 2(ℓ−1)K², V^{1} = 2(ℓ−1)(ℓ−2)K², κ₃ = 4(ℓ−1)(3ℓ−4)K³ at equal widths."""
    flow, K, layer = (
        single_input(MLP([1] * 10, "linear", C_b=0.0, C_W=1.0), 1.3, next_order=True),
        1.3,
        np.arange(1, 10),
    )
    np.testing.assert_allclose(flow.V, 2 * (layer - 1) * K**2, rtol=1e-13)
    np.testing.assert_allclose(flow.V1, 2 * (layer - 1) * (layer - 2) * K**2, rtol=1e-13)
    np.testing.assert_allclose(flow.six_point, 4 * (layer - 1) * (3 * layer - 4) * K**3, rtol=1e-13)


@pytest.mark.parametrize("name", ["tanh", "elu", "gelu"])
def test_width_expanded_hyperparameters(name):
    """C = c⁰ + c¹/n put in directly, or expanded with c_b1 and c_W1: equal to O(1/n³)."""
    C_b, C_W, c_b1, c_W1 = 0.1, 1.2, 0.4, 0.9
    left = []
    for n in (1000, 2000):
        widths = (3, *(n,) * 6)
        direct = single_input(
            MLP(widths, name, C_b=C_b + c_b1 / n, C_W=C_W + c_W1 / n), 0.8, next_order=True
        )
        expanded = single_input(
            MLP(widths, name, C_b=C_b, C_W=C_W), 0.8, c_b1=c_b1, c_W1=c_W1, next_order=True
        )
        mean = [f.K + f.G1 / n + f.G2 / n**2 for f in (direct, expanded)]
        spread = [f.V + f.V1 / n for f in (direct, expanded)]
        left.append((np.abs(mean[0] - mean[1])[1:], np.abs(spread[0] - spread[1])[1:]))
    # K itself moves at layer 2 by exactly (c_b1 + c_W1 g)/n, so the first entry may be rounding
    np.testing.assert_allclose(left[0][0][2:] / left[1][0][2:], 8.0, rtol=0.05)
    np.testing.assert_allclose(left[0][1][1:] / left[1][1][1:], 4.0, rtol=0.05)


def test_hyperparameters_per_layer():
    C_b, C_W = [9.0, 0.1, 0.2], [9.0, 1.5, 0.8]
    flow = single_input(MLP([1] * 4, "sin", C_b=C_b, C_W=C_W), 0.6)
    second = 0.1 + 1.5 * float(mean_square("sin", 0.6))
    third = 0.2 + 0.8 * float(mean_square("sin", second))
    np.testing.assert_allclose(flow.K, [0.6, second, third], rtol=1e-14)
    gains = (
        1.5 * mean_square("sin", 0.6, derivative=1),
        0.8 * mean_square("sin", second, derivative=1),
    )
    np.testing.assert_allclose(flow.parallel_gain, [1.0, gains[0], gains[0] * gains[1]], rtol=1e-13)


@pytest.mark.parametrize("name", ["gelu", "softsign", "relu", "hardtanh"])
def test_samples_flow_independently(name):
    K1 = np.array([0.05, 1.0, 40.0])
    together = single_input(MLP([1] * 8, name, C_b=0.1, C_W=1.4), K1, next_order=True)
    for i, first in enumerate(K1):
        alone = single_input(MLP([1] * 8, name, C_b=0.1, C_W=1.4), float(first), next_order=True)
        for field in (
            "K",
            "V",
            "G1",
            "six_point",
            "V1",
            "G2",
            "parallel_gain",
            "perpendicular_gain",
        ):
            both = getattr(together, field)
            assert both.shape == (7, 3)
            size = np.abs(getattr(alone, field)).max()
            np.testing.assert_allclose(
                both[:, i], getattr(alone, field), rtol=1e-11, atol=1e-11 * size
            )


def test_flow_that_outgrows_its_nodes_is_still_exact():
    """K rises by four orders of magnitude: compare every layer with a fresh average."""
    flow = single_input(MLP([1] * 17, "gelu", C_b=0.0, C_W=4.5), 0.1)
    assert flow.K[-1] > 1e3
    fresh = np.array([float(mean_square("gelu", float(K))) for K in flow.K[:-1]])
    np.testing.assert_allclose(flow.K[1:], 4.5 * fresh, rtol=1e-12)


@pytest.mark.parametrize("name", ["tanh", "elu", "gelu", "leaky_relu(0.1)", "hardtanh"])
def test_a_zero_input_stays_without_fluctuations(name):
    flow = single_input(MLP([1] * 5, name, C_b=0.0, C_W=1.0), np.array([0.0, 0.7]), next_order=True)
    for field in ("K", "V", "G1", "six_point", "V1", "G2"):
        np.testing.assert_array_equal(getattr(flow, field)[:, 0], 0.0)
    alone = single_input(MLP([1] * 5, name, C_b=0.0, C_W=1.0), 0.7, next_order=True)
    np.testing.assert_allclose(flow.V[:, 1], alone.V, rtol=1e-11)
    # with a bias K leaves 0, and nothing fluctuates before the second layer
    biased = single_input(MLP([1] * 4, name, C_b=0.3, C_W=1.0), 0.0, next_order=True)
    later = single_input(MLP([1] * 3, name, C_b=0.3, C_W=1.0), 0.3, next_order=True)
    np.testing.assert_allclose(biased.V[1:], later.V, rtol=1e-12)
    np.testing.assert_allclose(biased.K[1:], later.K, rtol=1e-14)


def test_a_jump_has_no_perpendicular_gain():
    flow = single_input(MLP([1] * 5, "step", C_b=0.0, C_W=1.0), 2.0)
    assert flow.perpendicular_gain is None
    np.testing.assert_allclose(flow.K, [2.0, 0.5, 0.5, 0.5], rtol=1e-14)
    np.testing.assert_allclose(flow.V, [0.0, 0.25, 0.25, 0.25], rtol=1e-14)


def test_bad_input_is_refused_in_one_line():
    good = {"C_b": 0.0, "C_W": 1.0}
    with pytest.raises(InvalidValueError, match="K1 = -1.0"):
        single_input(MLP([1] * 4, "tanh", **good), -1.0)
    with pytest.raises(InvalidValueError, match="expected one number or 3, one per layer"):
        single_input(MLP([1] * 4, "tanh", **good), 1.0, c_b1=[0.0, 0.0])
    with pytest.raises(InvalidValueError, match="needs c_b1 = 0"):
        single_input(MLP([1] * 4, "elu", **good), 0.0, c_b1=0.1, next_order=True)
    with pytest.raises(InvalidValueError, match="for networks without skips only"):
        single_input(MLP([1] * 4, "tanh", **good, skip=0.5), 1.0)
    with pytest.raises(NonFiniteError, match="K of gelu reaches .* and explodes"):
        single_input(MLP([1] * 4, "gelu", C_b=0.0, C_W=6.0), 2e8)
    with pytest.raises(NonFiniteError, match="at layer 3 and explodes"):
        single_input(MLP([1] * 21, "exp", C_b=0.0, C_W=3.0), 1.0)
