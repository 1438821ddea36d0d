"""Functions smooth but for one place: singular third derivatives, faint kinks, jumps."""

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram import MLP, predict
from dynagram.activations import activation
from dynagram.gaussian._quadrature import panel_rule
from dynagram.gaussian._two_point import _conditional_quadrature, two_point
from dynagram.theory.criticality import single_input

PLACE, POWER, RHO = 0.3, 2.5, 0.4


def _power(z):
    return jnp.abs(z - PLACE) ** POWER


@pytest.fixture(scope="module")
def power():
    return activation(_power)


def _hermite(orders):
    """⟨∂₁^p ∂₂^q σσ⟩ of unit variances with all derivatives on the Gaussian, nodes graded to c."""
    grades = 0.5 ** np.arange(40)
    t, w = panel_rule(np.concatenate([[PLACE], PLACE + grades, PLACE - grades]), None, 12.5)
    root = np.sqrt(1.0 - RHO**2)
    x, y = t[:, None], t[None, :]
    density = np.exp(-0.5 * ((y - RHO * x) ** 2 / root**2 - y * y)) / root
    first, second, inverse = (x - RHO * y) / root**2, (y - RHO * x) / root**2, 1.0 / root**2
    weight = {
        (4, 0): first**4 - 6 * inverse * first**2 + 3 * inverse**2,
        (3, 1): first**3 * second + 3 * RHO * inverse * first**2
        - 3 * inverse * first * second - 3 * RHO * inverse**2,
    }[orders]  # fmt: skip
    values = np.abs(t - PLACE) ** POWER * w
    return float(values @ (density * weight) @ values)


@pytest.mark.parametrize("orders", [(4, 0), (3, 1)])
def test_a_derivative_without_an_integral_stands_on_the_gaussian(power, orders):
    one = np.ones(1)
    expected = _hermite(orders)
    assert two_point(power, one, one, RHO * one, *orders)[0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("orders", [(4, 0), (3, 1), (3, 3)])
def test_conditional_quadrature_does_the_same(power, orders):
    one = np.ones(1)
    series = two_point(power, one, one, RHO * one, *orders)[0]
    p, q = orders
    found = _conditional_quadrature(power, p, power, q, 1.0, 1.0, RHO)
    assert found == pytest.approx(series, rel=1e-10)


@pytest.mark.parametrize(("size", "power"), [(1e-5, 3), (1e-7, 2), (1e-9, 1)])
def test_faint_kinks_are_found(size, power):
    sigma = activation(lambda z: jnp.tanh(z) + size * jnp.maximum(z - 0.4, 0.0) ** power)
    (kink,) = sigma.kinks
    assert kink.location == pytest.approx(0.4, abs=1e-9)
    assert kink.jumps[power] == pytest.approx(size * [1, 2, 6][power - 1], rel=0.01)


def test_faint_functions_have_the_kinks_of_loud_ones():
    faint = activation(lambda z: 1e-12 * jnp.maximum(z - 0.3, 0.0))
    (kink,) = faint.kinks
    assert kink.location == 0.3
    assert kink.jumps == pytest.approx((0.0, 1e-12))


def test_fluctuations_of_a_function_that_jumps():
    """Step: ⟨σσ⟩ = ¼ + arcsin(ρ)/2π (5.62), so that V of two layers is known in closed form."""
    net = MLP([2, 7, 7, 1], "step", C_b=0.0, C_W=1.0)
    made = predict(net, np.array([[np.sqrt(2.0), 0.0], [0.5, np.sqrt(1.75)]]), ("K", "V", "G1"))
    rho = made["K"][0][0, 1]
    joint = 0.25 + np.arcsin(rho) / (2 * np.pi)
    assert made["V"][1][0, 1, 0, 1] == pytest.approx(joint - joint**2, rel=1e-12)
    # In the second layer both variances are ½ and the covariance is `joint`.
    slope = 1.0 / (2 * np.pi * np.sqrt(0.25 - joint**2))
    J = slope * np.array([-joint, 1.0, -joint])  # ∂⟨σσ⟩/∂(K_11, K_12, K_22)
    V = np.array(
        [
            [0.25, joint / 2, joint - 0.25],
            [joint / 2, joint - joint**2, joint / 2],
            [joint - 0.25, joint / 2, 0.25],
        ]
    )
    second = 0.25 + np.arcsin(2 * joint) / (2 * np.pi)
    expected = second - second**2 + J @ V @ J
    assert made["V"][2][0, 1, 0, 1] == pytest.approx(expected, rel=1e-11)
    alone = single_input(net, np.array([made["K"][0][0, 0]]))
    assert made["V"][2][0, 0, 0, 0] == pytest.approx(alone.V[-1, 0], rel=1e-12)
    assert made["G1"][2][0, 0] == pytest.approx(alone.G1[-1, 0], abs=1e-13)


def test_what_ends_at_a_root_is_resolved_up_to_it():
    sigma = activation(lambda z: jnp.sqrt(jnp.maximum(81.0 - z * z, 0.0)))
    assert sigma.panels is not None
    assert 8.9 < sigma.panels.obstacle < 9.0
