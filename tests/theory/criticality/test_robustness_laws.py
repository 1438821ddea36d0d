"""Laws of robustness against the recursions of two inputs at great depth."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory.criticality import (
    angle_ntk,
    critical_initialisation,
    robustness_laws,
    small_separation_ntk,
)

DEPTH = 6_000


def tilted(z):
    """sin z + ½(1 − cos z): K* = 0 with σ''(0) ≠ 0, p = 0.923."""
    return jnp.sin(z) + 0.5 * (1.0 - jnp.cos(z))


@pytest.mark.parametrize("activation", ["tanh", "sin", tilted])
@pytest.mark.parametrize(("lambda_b", "lambda_W"), [(0.4, 0.9)])
def test_depth_scaled_rates(activation, lambda_b, lambda_W):
    """(10.75)-(10.78): Θ_2/K_2 and −2Θ_2/Θ at ℓ = 6000, where logarithms leave below 1 %."""
    laws = robustness_laws(activation, lambda_b=lambda_b, lambda_W=lambda_W)
    point = critical_initialisation(activation)
    p, ell = laws["K_2"].exponent, np.arange(1.0, DEPTH + 1)
    network = MLP(
        [1] * (DEPTH + 1), activation, point.C_b, point.C_W,
        lambda_b * ell**-p, lambda_W * ell ** (1.0 - p),
    )  # fmt: skip
    flow = small_separation_ntk(network, 1.0, distance=1.0)
    last = np.array([float(DEPTH)])
    delta = flow.K_2[-1] / laws["K_2"](last)  # δ², what is left of the start
    for found, name in ((flow.Theta_midpoint[-1], "Theta"), (flow.Theta_2[-1] / delta, "Theta_2")):
        np.testing.assert_allclose(found, laws[name](last)[0], rtol=1e-2, err_msg=name)
    robustness = -2.0 * flow.Theta_2[-1] / flow.Theta_midpoint[-1] / delta
    np.testing.assert_allclose(robustness, laws["robustness"](last)[0], rtol=1e-2)


@pytest.mark.parametrize("activation", ["tanh", "sin"])
def test_uniform_rates(activation):
    """(10.79)-(10.81) corrected; the printed ones are off by 1 + (−a₁)λ_b/(2λ_Wσ₁²)."""
    laws = robustness_laws(activation, lambda_b=1.0, lambda_W=0.6, uniform=True)
    network = MLP([1] * (DEPTH + 1), activation, 0.0, 1.0, 1.0, 0.6)
    flow = small_separation_ntk(network, 1.0, distance=1.0)
    delta = flow.K_2[-1] / laws["K_2"](np.array([float(DEPTH)]))
    last = np.array([float(DEPTH)])
    np.testing.assert_allclose(flow.Theta_midpoint[-1], laws["Theta"](last)[0], rtol=1e-2)
    np.testing.assert_allclose(flow.Theta_2[-1] / delta, laws["Theta_2"](last), rtol=1e-2)
    printed = 0.6 * laws["K_2"](last) * DEPTH
    assert np.all(flow.Theta_2[-1] / delta > 1.5 * printed)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu(0.2)"])
def test_scale_invariant(activation):
    """(10.90)-(10.95) at ℓ = 6000, from two angles, whatever the rates."""
    laws, last = robustness_laws(activation, K=1.0), np.array([float(DEPTH)])
    C_W = critical_initialisation(activation).C_W
    for cosine in (0.2, -0.7):
        gram = np.array([[1.0, cosine], [cosine, 1.0]]) / C_W
        network = MLP([1] * (DEPTH + 1), activation, 0.0, C_W, 0.7, 0.3)
        pair = angle_ntk(network, gram)
        np.testing.assert_allclose(pair.psi[-1], laws["psi"](last)[0], rtol=1e-2)
        np.testing.assert_allclose(pair.cosine[-1], laws["cosine"](last)[0], rtol=1e-2)
        ratio = pair.Theta[-1, 1, 0] / pair.Theta[-1, 0, 0]
        np.testing.assert_allclose(ratio - 1, laws["robustness"](last)[0], rtol=1e-2)
        line = np.array([-ratio, 1.0])
        variance = line @ pair.K[-1] @ line
        np.testing.assert_allclose(variance, laws["variance"](last)[0], rtol=1e-2)


def test_linear_networks_keep_their_angle():
    """(10.97), (10.98), exact at every depth."""
    psi = 0.8
    laws = robustness_laws("linear", K=1.0, psi=psi, lambda_b=0.5, lambda_W=2.0)
    gram = np.array([[1.0, math.cos(psi)], [math.cos(psi), 1.0]])
    pair = angle_ntk(MLP([1] * 8, "linear", 0.0, 1.0, 0.5, 2.0), gram)
    np.testing.assert_allclose(pair.cosine, laws["cosine"].coefficient, rtol=1e-12)
    line = np.array([-laws["cosine"].coefficient, 1.0])
    np.testing.assert_allclose(line @ pair.K[-1] @ line, laws["variance"].coefficient, rtol=1e-12)


def test_refusals():
    for name, options, words in (
        ("relu", {}, "give it"), ("linear", {"K": 1.0}, "keeps its angle"),
        ("relu", {"K": 1.0, "psi": 0.3}, "forget it"), ("tanh", {"K": 1.0}, "leave it out"),
        ("gelu", {}, "no closed law"), (tilted, {"uniform": True}, "odd activations only"),
        ("tanh", {"uniform": True, "lambda_b": 0.0}, "biases that learn"),
    ):  # fmt: skip
        with pytest.raises(InvalidValueError, match=words):
            robustness_laws(name, **options)
