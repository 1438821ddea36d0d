"""Escape times: the reduced ODE against the full network, the laws against the ODE."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.theory.saddle import (
    SymmetricNetwork,
    balanced_escape_time,
    bottleneck,
    clock,
    critical_depth_time,
    escape_ratio,
    escape_times,
    first_correction,
    leading_escape_time,
    next_to_leading_escape_time,
    reduced_escape_time,
    reduced_escape_times,
    reduced_path,
    universal_time,
)
from dynagram.theory.saddle._flow import gaussian_nodes


def balanced(sigma, depth, epsilon, **options):
    return SymmetricNetwork.balanced(sigma, depth=depth, width=64, scale=epsilon, **options)


# --- against the full network ------------------------------------------------------------------


@pytest.mark.slow
def test_reduced_flow_is_the_flow_of_the_full_network():
    """Population gradient flow of all weights, two input axes, at matrix time s = N t."""
    start = SymmetricNetwork("tanh", (0.2, 0.25, 0.3, 0.4), width=5, beta=1.3)
    model = start.embedded(n_0=2)
    network, params = model.network, model.params
    nodes, w = gaussian_nodes(start.activation, 2, 0.2)
    x, w = jnp.asarray(nodes), jnp.asarray(w)
    y = 1.3 * start.activation(x[:, :1])
    rates = [rate / n for rate, n in zip(network.lambda_W, network.widths[:-1], strict=True)]

    def velocity(_s, theta, _args):
        def loss(theta):
            return 0.5 * jnp.sum(w * jnp.sum((network.apply(theta, x) - y) ** 2, axis=1))

        gradient = jax.grad(loss)(theta)
        return tuple(
            layer._replace(b=jnp.zeros_like(layer.b), W=-rate * layer.W)
            for layer, rate in zip(gradient, rates, strict=True)
        )

    times = np.linspace(0.0, 12.0, 5)  # reduced; the escape is in the middle
    s = start.width * times
    saved = diffrax.diffeqsolve(
        diffrax.ODETerm(velocity), diffrax.Dopri8(), s[0], s[-1], None, params,
        saveat=diffrax.SaveAt(ts=jnp.asarray(s)),
        stepsize_controller=diffrax.PIDController(rtol=1e-11, atol=1e-13), max_steps=4000,
    ).ys  # fmt: skip
    path = reduced_path(start, times)
    assert path.X[-1, 0] > 1.5 * path.X[0, 0]  # it did move
    N = start.width
    factors = [1.0, *[float(N)] * (start.depth - 2), np.sqrt(N)]
    for index, (layer, factor) in enumerate(zip(saved, factors, strict=True)):
        W = factor * np.asarray(layer.W)
        aligned = W[:, :, :1] if index == 0 else W
        assert np.ptp(aligned, axis=(1, 2)).max() < 1e-13  # the ansatz is kept
        if index == 0:
            assert np.abs(W[:, :, 1]).max() < 1e-13
        np.testing.assert_allclose(aligned[:, 0, 0], path.X[:, index], rtol=1e-8)
    np.testing.assert_allclose(
        reduced_path(start, s, clock("matrix", width=N)).X, path.X, rtol=1e-9
    )


# --- the numbers of docs/derivations/escape-times.md --------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "depth", "epsilon", "leading", "following"),
    [
        ("tanh", 4, 0.05, "-1.56", "-0.22"),
        ("tanh", 4, 0.02, "-0.34", "-0.04"),
        ("gelu", 4, 0.02, "+5.44", "+0.52"),
    ],
)
def test_laws_against_the_reduced_flow(sigma, depth, epsilon, leading, following):
    found = escape_times(balanced(sigma, depth, epsilon), 0.3)
    assert f"{100 * (found.leading / found.ode - 1):+.2f}" == leading
    assert f"{100 * (found.next_to_leading / found.ode - 1):+.2f}" == following
    if (sigma, depth, epsilon) == ("tanh", 4, 0.02):
        assert round(found.ode, 5) == 257.68349
        assert round(found.leading, 3) == 256.817
        assert found.notes == ()


def test_clocks_scale_times_and_constant_together():
    network = balanced("tanh", 4, 0.02)
    reduced, steps = (
        escape_times(network, 0.3, c)
        for c in (clock("reduced", width=64), clock("steps", width=64, learning_rate=0.5))
    )
    for name in ("leading", "next_to_leading", "ode"):
        assert getattr(steps, name) == pytest.approx(128 * getattr(reduced, name), rel=1e-12)
    assert steps.K * steps.leading == pytest.approx(reduced.K * reduced.leading, rel=1e-12)
    # The published constant is that of matrix time; used in reduced time it is off by N.
    assert balanced_escape_time(network.K / 64, 4, 0.02, 0.3) == pytest.approx(16436.3, rel=1e-5)


def test_slopes_count_the_small_layers():
    """d log t/d log ε of the exact flow → −(r−2) as ε → 0, whatever the depth."""
    epsilons = (2e-4, 1e-4)
    networks = [balanced("tanh", 6, e, bottleneck=r) for r in (3, 4, 5, 6) for e in epsilons]
    times = reduced_escape_times(networks, 0.3).reshape(4, 2)
    slopes = np.diff(np.log(times), axis=1)[:, 0] / np.diff(np.log(epsilons))
    np.testing.assert_allclose(slopes, [-1, -2, -3, -4], rtol=0.01)
    law = [critical_depth_time(network) for network in networks[1::2]]
    np.testing.assert_allclose(times[:, 1] / law, 1.0, atol=0.01)


# --- the laws themselves ------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [2, 3, 4, 6])
def test_quadrature_is_the_closed_form_for_balanced_scales(depth):
    network = balanced("tanh", depth, 0.01)
    expected = balanced_escape_time(network.K, depth, 0.01, 0.4)
    assert leading_escape_time(network, 0.4) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("scales", [(0.03, 0.05, 0.07, 0.09), (0.1, 0.001, 0.05, 0.2)])
def test_quadrature_is_the_leading_flow_for_any_scales(scales):
    """Against a Runge-Kutta solution of dX_ℓ/dt = K Π_{m≠ℓ} X_m."""
    network = SymmetricNetwork("tanh", scales, width=64)

    def rate(X):
        return network.K * np.prod(X) / X

    X, t = np.array(scales), 0.0
    while True:
        h = 2e-3 * np.min(X / rate(X))
        k1 = rate(X)
        k2 = rate(X + h / 2 * k1)
        k3 = rate(X + h / 2 * k2)
        step = h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(X + h * k3))
        if X[0] + step[0] >= 0.4:
            break
        X, t = X + step, t + h
    # The last step is short: a quadratic in time ends it.
    curve, rest = 2 * (step[0] - h * k1[0]) / h**2, 0.4 - X[0]
    t += 2 * rest / (k1[0] + np.sqrt(k1[0] ** 2 + 2 * curve * rest))
    assert leading_escape_time(network, 0.4) == pytest.approx(t, rel=1e-7)


def test_next_to_leading_is_nan_where_it_has_no_meaning():
    network = balanced("tanh", 4, 0.02)
    assert np.isnan(next_to_leading_escape_time(network, 0.7))  # K + 3cθ² < 0
    linear = balanced("relu", 4, 0.02)
    assert next_to_leading_escape_time(linear, 0.3) == leading_escape_time(linear, 0.3)
    assert np.isnan(next_to_leading_escape_time(balanced("elu", 4, 0.02), 0.3))


def test_universality():
    assert escape_ratio("tanh", "tanh", 4) == 1.0
    ratio = leading_escape_time(balanced("gelu", 4, 0.01), 0.3) / leading_escape_time(
        balanced("tanh", 4, 0.01), 0.3
    )
    assert escape_ratio("gelu", "tanh", 4) == pytest.approx(ratio, rel=1e-12)
    for sigma in ("tanh", "erf", "gelu"):
        network = balanced(sigma, 4, 0.01)
        time = leading_escape_time(network, 0.3)
        assert universal_time(network, 0.3, time) == pytest.approx(1.0, rel=1e-12)
    assert first_correction("linear", 4) is None
    tanh = first_correction("tanh", 5)
    assert (tanh.power, tanh.logarithm) == (2, False)
    assert tanh.size(0.1) == pytest.approx(0.01)
    assert first_correction("gelu", 3).logarithm


@pytest.mark.slow
@pytest.mark.parametrize(("sigma", "depth"), [("tanh", 3), ("tanh", 5), ("tanh", 6), ("gelu", 5)])
def test_power_of_the_first_correction(sigma, depth):
    """How the exact reduced time approaches the universal one, measured over a halving of ε."""
    deviations = []
    for scale in (0.004, 0.002):
        network = balanced(sigma, depth, scale)
        time = reduced_escape_time(network, 0.3)
        deviations.append(abs(universal_time(network, 0.3, time) - 1.0))
    slope = np.log2(deviations[0] / deviations[1])
    assert slope == pytest.approx(first_correction(sigma, depth).power, abs=0.15)


@pytest.mark.slow
def test_class_d_output_layer_leaves_the_bottleneck():
    """σ(0) ≠ 0: the mean is learned first, by X_L alone, and the exponent drops by one."""
    found = escape_times(balanced("sigmoid", 4, 0.05), 0.3)
    assert round(found.ode) == 5336
    assert found.leading / found.ode > 1.4
    assert "class D" in found.notes[0]


def test_bottleneck_and_refusals():
    assert bottleneck(balanced("tanh", 5, 0.1, bottleneck=3)) == (0.1, 3)
    assert np.isnan(critical_depth_time(balanced("tanh", 5, 0.1, bottleneck=1)))
    with pytest.raises(InvalidValueError, match="must be above X_1"):
        leading_escape_time(balanced("tanh", 4, 0.5), 0.3)
    with pytest.raises(InvalidValueError, match="needs K"):
        leading_escape_time(balanced("square", 4, 0.1), 0.3)
    with pytest.raises(InvalidValueError, match="not reached"):
        reduced_escape_time(balanced("tanh", 4, 0.05), 5.0)
    with pytest.raises(InvalidValueError, match="at most the depth"):
        balanced("tanh", 4, 0.1, bottleneck=5)
    with pytest.raises(InvalidValueError, match="X_2 of scales"):
        SymmetricNetwork("tanh", [0.1, -0.1], width=4)
    with pytest.raises(InvalidValueError, match="kink away from 0"):
        SymmetricNetwork("hardtanh", [0.1, 0.1], width=4)
    with pytest.raises(InvalidValueError, match="differ in their scales only"):
        reduced_escape_times([balanced("tanh", 4, 0.1), balanced("tanh", 5, 0.1)], 0.3)
