"""The book's route to the posterior mean (6.80)-(6.88) against the closed forms, and Q itself."""

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._predict import predict
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.bayes import posterior_couplings
from dynagram.theory.statistics import next_action
from dynagram.training import Posterior

X, T = [[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]], [[0.6, 0.8, -0.9], [0.1, 0.5, 1.1]]
Y = np.array([[0.9, -0.4], [-0.6, 0.7]])
NET = MLP([3, 30, 20, 2], "tanh", C_b=0.1, C_W=1.3)


def action(fan_in):
    tensors = predict(NET, np.array(X + T))
    K, V, G1 = (tensors[name][-1] for name in ("K", "V", "G1"))
    return next_action(K, V, G1, fan_in=fan_in, neurons=2)


def test_the_mean_is_that_of_the_closed_form():
    """n (mean − m^∞) at large n is the coefficient of 1/n of `predict_outputs`."""
    found = predict_outputs(NET, Data(X, Y, T), Posterior())
    n = 10**6
    slope = n * (posterior_couplings(action(n), Y).mean - found.mean_infinite)
    size = np.max(np.abs(found.mean_correction))
    np.testing.assert_allclose(slope, found.mean_correction, atol=1e-4 * size)


def test_without_the_running_of_the_quadratic_coupling_it_is_wrong():
    """K in place of g (4.108) leaves an error of order 1/n in (6.88)."""
    from dynagram.theory.statistics import leading_action

    found, n = predict_outputs(NET, Data(X, Y, T), Posterior()), 10**6
    tensors = predict(NET, np.array(X + T))
    plain = leading_action(tensors["K"][-1], tensors["V"][-1], fan_in=n, neurons=2)
    slope = n * (posterior_couplings(plain, Y).mean - found.mean_infinite)
    assert np.max(np.abs(slope - found.mean_correction)) > 0.1 * np.max(np.abs(slope))


def test_q_is_the_quartic_term():
    """Q(w) − Q(0) = ⅛ v (zzzz(w) − zzzz(0)) with z = (y, m + w)."""
    some = action(20)
    found = posterior_couplings(some, Y)
    w = np.random.default_rng(0).standard_normal((2, 2))

    def quartic(shift):
        z = np.concatenate([Y, found.naive_mean + shift.T])
        pairs = z @ z.T
        return np.einsum("abcd,ab,cd->", some.quartic, pairs, pairs) / 8.0

    np.testing.assert_allclose(found.interaction(w), quartic(w) - quartic(0 * w), rtol=1e-10)


def test_shapes_are_checked():
    with pytest.raises(InvalidValueError, match="2 outputs on fewer than 4"):
        posterior_couplings(action(20), Y[:, :1])
