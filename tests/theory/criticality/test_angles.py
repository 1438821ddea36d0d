"""Finite angles under scale-invariant activations against golden values and direct integration."""

import json
from pathlib import Path

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.criticality import (
    angle,
    angle_flow,
    angle_law,
    crossover_depth,
    distance_law,
    pair_kernel_flow,
    to_gamma,
)
from dynagram.theory.criticality._angles import angle_estimate, slope_product

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "golden" / "criticality_classes.json").read_text("utf-8")
)
RELU_ANGLES = [1.570796326795, 1.246850219863, 1.054421263954, 0.921249323756, 0.821732418825]


def test_golden_relu_angles():
    flow = angle_flow("relu", np.pi, 7)
    np.testing.assert_allclose(flow[1:6], RELU_ANGLES, atol=6e-13)
    assert flow[6] == pytest.approx(0.743732928798, abs=6e-13)
    deep = angle_flow("relu", np.pi / 2, 10_000)
    np.testing.assert_allclose(deep[[9, 99, 999]], [0.54561320, 0.08538223, 0.00929681], atol=6e-9)
    scaled = deep[[99, 999, 9999]] * np.array([1e2, 1e3, 1e4]) / (3 * np.pi)
    np.testing.assert_allclose(scaled, [0.905934, 0.986422, 0.998282], atol=6e-7)


def test_special_activations():
    assert angle_flow("abs", np.pi, 2)[1] < 1e-7  # antipodal inputs coincide
    np.testing.assert_array_equal(angle_flow("linear", 1.1, 5), 1.1)


def _polar(plus, minus, psi, power):
    """⟨f₊f₋⟩ by the angular integral, panels cut at the kinks; f = σ (power 1) or σ' (power 0)."""
    cuts = np.sort(
        [0, np.pi / 2, np.pi / 2 + psi, 3 * np.pi / 2, (3 * np.pi / 2 + psi) % (2 * np.pi)]
    )
    nodes, weights = np.polynomial.legendre.leggauss(40)
    total = 0.0
    for a, b in zip(cuts, [*cuts[1:], 2 * np.pi], strict=True):
        phi, w = 0.5 * (a + b) + 0.5 * (b - a) * nodes, 0.5 * (b - a) * weights
        values = []
        for c in (np.cos(phi), np.cos(phi - psi)):
            slope = np.where(c > 0, plus, minus)
            values.append(slope * c if power else slope)
        total += np.sum(w * values[0] * values[1])
    return total / (2 * np.pi) * (2.0 if power else 1.0)


@pytest.mark.parametrize("psi", [1e-3, 0.4, 1.5, 2.9])
@pytest.mark.parametrize(
    ("name", "slopes"), [("relu", (1, 0)), ("leaky_relu(0.3)", (1, 0.3)), ("abs", (1, -1))]
)
def test_pair_averages_match_direct_integration(name, slopes, psi):
    norms = 1.7, 0.6
    kernel = np.array([[norms[0], 0.0], [0.0, norms[1]]])
    kernel[0, 1] = kernel[1, 0] = np.sqrt(norms[0] * norms[1]) * np.cos(psi)
    flow = pair_kernel_flow(MLP([1] * 3, name, C_b=0.0, C_W=1.0), kernel)
    wanted = np.sqrt(norms[0] * norms[1]) * _polar(*slopes, psi, 1)
    assert flow[1, 0, 1] == pytest.approx(wanted, rel=1e-12)
    assert float(slope_product(name, psi)) == pytest.approx(_polar(*slopes, psi, 0), rel=1e-12)


@pytest.mark.parametrize(
    "row", [r for r in GOLDEN["pair_unequal_norms"]["rows"] if r[0] != "tanh"], ids=str
)
def test_golden_kernels_of_unequal_norms(row):
    name, C_b, C_W, layer, *wanted = row
    kernel = np.array([[2.0, 0.5], [0.5, 0.4]])
    last = pair_kernel_flow(MLP([1] * (layer + 1), name, C_b=C_b, C_W=C_W), kernel)[-1]
    np.testing.assert_allclose([last[0, 0], last[1, 1], last[0, 1]], wanted, atol=2e-12)


def test_angle_flow_is_the_kernel_flow_at_criticality():
    kernel = 0.8 * np.array([[1.0, np.cos(2.0)], [np.cos(2.0), 1.0]])
    flow = pair_kernel_flow(MLP([1] * 31, "leaky_relu(0.2)", C_b=0.0, C_W=1 / 0.52), kernel)
    np.testing.assert_allclose(angle(flow), angle_flow("leaky_relu(0.2)", 2.0, 30), rtol=1e-11)


def test_small_angles_keep_their_digits():
    """ψ' = ψ − ρψ²/3 − ρ²ψ³/18 + O(ψ⁴) (5.164)."""
    rho = 1 / np.pi
    for psi in (1e-3, 1e-6, 1e-9):
        step = psi - float(angle_flow("relu", psi, 2)[1])
        series = rho / 3 * psi**2 + rho**2 / 18 * psi**3
        assert step == pytest.approx(series, rel=1e-5, abs=4e-16 * psi)


def test_angle_law_with_its_logarithm():
    """(5.166): ℓ₀ fitted at the last layer; the measured log coefficient is −3/2."""
    flow = angle_flow("relu", np.pi / 2, 20_000)
    deep, shallow = 20_000.0, 1_000.0
    rho = 1 / np.pi

    def excess(layer):
        return (flow[int(layer) - 1] * layer * rho / 3 - 1) * layer

    # What is beyond the law is of order log²ℓ/ℓ: small, and falling about fourfold here.
    coefficients = [(excess(4 * layer) - excess(layer)) / np.log(4.0) for layer in (1250, 5000)]
    errors = np.abs(np.array(coefficients) + 1.5)
    assert errors[1] < 0.03
    assert errors[1] < errors[0] / 2.5
    ell_0 = np.exp(np.log(deep) + excess(deep) / 1.5)
    law = angle_law("relu", np.array([shallow]), ell_0=float(ell_0))[0]
    assert flow[999] == pytest.approx(law, rel=2e-4)
    assert abs(flow[999] * shallow * rho / 3 - 1) > 0.01


def test_crossover_and_uniform_estimate():
    psi = 0.01
    cross = crossover_depth("relu", psi)
    assert cross == pytest.approx(3 * np.pi / psi, rel=1e-14)
    layers = np.array([1, 10, int(cross), int(20 * cross)])
    flow = angle_flow("relu", psi, int(layers[-1]))
    estimate = angle_estimate("relu", psi, layers.astype(float))
    np.testing.assert_allclose(flow[layers - 1], estimate, rtol=0.01)
    assert flow[9] == pytest.approx(psi, rel=0.02)  # before the crossover: nothing happens


def test_distance_law():
    """(5.168), (5.171): K_[2] → (9/4ρ²)K/ℓ², and the non-analytic map behind it."""
    flow = angle_flow("relu", np.pi / 2, 10_000)
    K2 = np.sin(flow / 2) ** 2  # K_[2] = K_d (1 − cos ψ)/2 at K_d = 1
    law = distance_law("relu", np.array([10_000.0]), 1.0)[0]
    assert K2[-1] == pytest.approx(law, rel=5e-3)
    small = 1e-6
    kernel = np.array([[1.0, 1 - 2 * small], [1 - 2 * small, 1.0]])
    after = to_gamma(pair_kernel_flow(MLP([1] * 3, "relu", C_b=0.0, C_W=2.0), kernel)[1])[2]
    predicted = small - 4 / (3 * np.pi) * small**1.5
    assert after == pytest.approx(predicted, rel=3e-7)
    assert abs(after - small) > 100 * abs(after - predicted)


def test_refusals():
    with pytest.raises(InvalidValueError, match="expected a scale-invariant activation"):
        angle_flow("tanh", 1.0, 3)
    with pytest.raises(InvalidValueError, match="expected angles from 0 to π"):
        angle_flow("relu", 4.0, 3)
    with pytest.raises(InvalidValueError, match="ρ = 0"):
        crossover_depth("linear", 0.1)
