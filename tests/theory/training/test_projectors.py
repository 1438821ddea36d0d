"""Algorithm projectors against their definitions as dense tensors, and their closed forms."""

import numpy as np
import pytest

from dynagram.theory.training._decay import Decay
from dynagram.theory.training._projectors import end_projectors, inverting_tensors

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(2, 2))
H = ROOT @ ROOT.T + 0.5 * np.eye(2)
h, E = np.linalg.eigh(H)
INVERSE = np.linalg.inv(H)
ONE = np.eye(2)


def pairs(scalars):
    """Z^{1234} of scalars in the eigenbasis."""
    return np.einsum("ab,ia,jb,ka,lb->ijkl", scalars, E, E, E, E)


def triples(scalars):
    """Z^{123456}."""
    return np.einsum("abc,ia,jb,kc,la,mb,nc->ijklmn", scalars, E, E, E, E, E, E)


def dense(eta):
    """X_II, X_III and Y_1 to Y_4 as printed: inverses on pairs and triples, then contractions."""
    two = np.einsum("ik,jl->ijkl", H, ONE) + np.einsum("ik,jl->ijkl", ONE, H)
    two -= eta * np.einsum("ik,jl->ijkl", H, H)
    X2 = np.linalg.inv(two.reshape(4, 4)).reshape(2, 2, 2, 2)

    def product(a, b, c):
        return np.einsum("il,jm,kn->ijklmn", a, b, c)

    three = product(H, ONE, ONE) + product(ONE, H, ONE) + product(ONE, ONE, H)
    three -= eta * (product(H, H, ONE) + product(H, ONE, H) + product(ONE, H, H))
    three += eta**2 * product(H, H, H)
    X3 = np.linalg.inv(three.reshape(8, 8)).reshape([2] * 6)
    inv = INVERSE
    Y1 = np.einsum("ijlm,kn->ijklmn", X2, inv) - np.einsum("kp,ijplmn->ijklmn", inv, X3)
    Y2 = np.einsum("ik,jl->ijkl", inv, inv) - np.einsum("jp,ipkl->ijkl", inv, X2)
    Y3 = (
        product(inv, inv, inv)
        - np.einsum("jp,iplm,kn->ijklmn", inv, X2, inv)
        - np.einsum("il,kp,jpmn->ijklmn", inv, inv, X2)
        + np.einsum("kr,jrpq,ipqlmn->ijklmn", inv, X2, X3)
    )
    Y4 = np.einsum("il,jkmn->ijklmn", inv, X2) - np.einsum("jkpq,ipqlmn->ijklmn", X2, X3)
    return X2, X3, Y1, Y2, Y3, Y4


@pytest.mark.parametrize("eta", [0.0, 0.17, 0.4])
def test_inverting_tensors_are_the_printed_ones(eta):
    X2, X3, Y1, Y2, Y3, Y4 = dense(eta)
    found = inverting_tensors(h, eta)
    for name, expected in (("X_II", X2), ("Y_2", Y2)):
        np.testing.assert_allclose(pairs(getattr(found, name)), expected, rtol=1e-10, atol=1e-12)
    for name, expected in (("X_III", X3), ("Y_1", Y1), ("Y_3", Y3), ("Y_4", Y4)):
        np.testing.assert_allclose(triples(getattr(found, name)), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("eta", [0.0, 0.17, 0.4])
def test_gradient_descent_projectors(eta):
    """(∞.142)-(∞.147) with the index orders as printed; Z_B and Z_IB up to their symmetry."""
    X2, X3, Y1, Y2, Y3, Y4 = dense(eta)
    found = end_projectors(h, Decay(eta, 0, np.inf))
    Z_B = Y2 + eta / 2 * X2
    Z_IB = -Y3 - eta / 2 * Y4 - eta / 2 * Y1 - eta**2 / 6 * X3
    Z_IIB = -Y3 - np.einsum("jikmln->ijklmn", Y3) - np.einsum("ikjlnm->ijklmn", Y3)
    Z_IIB -= eta * (Y4 + Y1)
    symmetric = [
        np.transpose(Z_IB, [*order, *(3 + i for i in order)])
        for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1), (1, 0, 2), (0, 2, 1), (2, 1, 0))
    ]
    expected = {
        "Z_A": Y2,
        "Z_B": (Z_B + Z_B.transpose(1, 0, 3, 2)) / 2,
        "Z_IA": -Y3 - eta / 2 * Y4,
        "Z_IB": np.mean(symmetric, axis=0),
        "Z_IIA": -Y3,
        "Z_IIB": Z_IIB,
    }
    for name, tensor in expected.items():
        scalars = getattr(found, name)[0]
        written = pairs(scalars) if scalars.ndim == 2 else triples(scalars)
        np.testing.assert_allclose(written, tensor, rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("x", [0.1, 0.9, 1.0, 1.7])
def test_one_training_sample(x):
    """Closed forms in x = ηh, docs/derivations/trained-outputs.md, below (D1.9)."""
    one = 1.3
    found = end_projectors(np.array([one]), Decay.descent(x / one, np.inf))
    cubic = 3 - 3 * x + x**2
    expected = {
        "Z_A": (1 - x) / (one**2 * (2 - x)),
        "Z_B": 1 / (2 * one**2),
        "Z_IA": -(1 - x) * (2 - 2 * x + x**2) / (2 * one**3 * (2 - x) * cubic),
        "Z_IB": -1 / (6 * one**3),
        "Z_IIA": -((1 - x) ** 3) / (one**3 * (2 - x) * cubic),
        "Z_IIB": -(1 - x) / (one**3 * (2 - x)),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(found, name), value, rtol=1e-12, atol=1e-15)


def test_gradient_descent_at_the_inverse_eigenvalue_is_the_two_step_algorithm():
    descent = end_projectors(np.array([0.8]), Decay.descent(1 / 0.8, np.inf))
    leap = end_projectors(np.array([0.8]), Decay(0.0, 0, np.inf, leaps=True))
    for name in ("Z_A", "Z_B", "Z_IA", "Z_IB", "Z_IIA", "Z_IIB"):
        np.testing.assert_allclose(getattr(descent, name), getattr(leap, name), atol=1e-15)
