"""Activation classes: every class found, constants against closed forms, clocks."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.theory.saddle import classify, clock

E_TANH_PRIME = 0.605705509602  # E[tanh'(g)], from the reference


@pytest.mark.parametrize(
    ("name", "expected", "order"),
    [
        ("linear", "A", None),
        ("relu", "A", None),
        ("leaky_relu(0.1)", "A", None),
        ("tanh", "B_3", 3),
        ("erf", "B_3", 3),
        ("sin", "B_3", 3),
        ("gelu", "C", 2),
        ("swish", "C", 2),
        ("sigmoid", "D", 0),
        ("softplus", "D", 0),
        ("hardtanh", "unclassified", None),
        ("elu", "unclassified", 2),
        ("square", "unclassified", 2),
    ],
)
def test_classes(name, expected, order):
    found = classify(name)
    assert (found.name, found.deficit_order) == (expected, order)


def test_a_fifth_order_activation_and_a_mixed_one():
    fifth = classify(lambda z: z - z**5 / 10)
    assert (fifth.name, fifth.q) == ("B_5", 5)
    np.testing.assert_allclose(fifth.h_q, 15 - 945 / 10, rtol=1e-12)  # E[g⁶ − g¹⁰/10]
    mixed = classify(lambda z: z + z**4)
    assert (mixed.name, mixed.q, mixed.deficit_order) == ("unclassified", 4, 4)


def test_constants_against_closed_forms():
    tanh = classify("tanh")
    np.testing.assert_allclose([tanh.h, tanh.h_q], [E_TANH_PRIME, 1.453521152526], rtol=1e-12)
    np.testing.assert_allclose(tanh.a_q, -1 / 3, rtol=1e-14)
    sine = classify("sin")
    np.testing.assert_allclose(sine.h, math.exp(-0.5), rtol=1e-14)  # E[cos g]
    np.testing.assert_allclose(sine.h_q, 2 * math.exp(-0.5), rtol=1e-14)  # E[g³ sin g] = 3h − h
    gelu = classify("gelu")
    np.testing.assert_allclose([gelu.h, gelu.alpha], [0.5, 0.5], rtol=1e-14)
    np.testing.assert_allclose(gelu.a_q, 1 / math.sqrt(2 * math.pi), rtol=1e-14)
    # u − a u³ has h = 1 − 3a: negative beyond a third.
    np.testing.assert_allclose(classify(lambda z: z - 0.4 * z**3).h, -0.2, rtol=1e-12)


def test_h_is_also_the_mean_slope():
    for name in ("tanh", "gelu", "swish", "sigmoid", "softplus"):
        t = np.linspace(-12, 12, 2401)
        w = 0.01 * np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
        sigma = classify(name).activation
        np.testing.assert_allclose(classify(name).h, np.sum(w * sigma.values(t, 1)), rtol=1e-12)


def test_drive_of_a_chain():
    np.testing.assert_allclose(classify("erf").chain_drive(4), 0.9359650024082437, rtol=1e-12)
    # Kinked at 0: E[σ(g) σ∘…∘σ(g)] = ½(1 + a^L) for slopes 1 and a.
    for depth in (2, 3, 5):
        found = classify("leaky_relu(0.2)").chain_drive(depth)
        np.testing.assert_allclose(found, 0.5 * (1 + 0.2**depth), rtol=1e-12)
    np.testing.assert_allclose(classify("relu").chain_drive(4), 0.5, rtol=1e-12)
    assert jnp.isnan(classify("relu").alpha)


def test_clocks():
    assert clock("reduced", width=64).units == 1.0
    assert clock("matrix", width=64).units == 64.0
    assert clock("steps", width=64, learning_rate=0.05).units == pytest.approx(1280.0)
    with pytest.raises(InvalidValueError, match="expected reduced, matrix or steps"):
        clock("seconds", width=64)
    for name, rate in (("steps", None), ("matrix", 0.1)):
        with pytest.raises(InvalidValueError, match="needed for the clock steps, and only there"):
            clock(name, width=64, learning_rate=rate)
