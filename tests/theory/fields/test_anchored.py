"""Predictions with fixed masks: where they are exact, and how fast they go wrong elsewhere."""

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.observables.fields._state import fields, fixed_readout
from dynagram.theory.fields import (
    activation_updates,
    anchored_run,
    conjugate_updates,
    descend,
    output_update,
)
from dynagram.theory.fields._anchored import CARRIED
from dynagram.theory.fields._descent import gradient_step

RNG = np.random.default_rng(12)
X, UNSEEN, Y = RNG.standard_normal((10, 6)), RNG.standard_normal((10, 6)), RNG.random(10)
SHAPES = {1: [(24, 6)], 3: [(24, 6), (24, 24), (20, 24)]}
NETWORKS = {
    L: [RNG.standard_normal(s) * np.sqrt(2 / s[1]) for s in shapes] for L, shapes in SHAPES.items()
}
DATA = {"x": X, "y": Y, "unseen": UNSEEN}


@pytest.mark.parametrize("carried", CARRIED)
def test_one_layer_is_exact_until_a_mask_flips(carried):
    network = fixed_readout(NETWORKS[1])
    run = anchored_run(network, **DATA, eta=1e-3, steps=6, every=3, carried=carried)
    assert run.flipped.sum() == 0
    assert run.residual_error.max() < 1e-13
    assert run.unseen_error.max() < 1e-13
    assert run.u_error.max() < 1e-13
    assert run.b_error.shape == (6, 0)
    assert run.residual_change.min() > 1e-5


def test_carried_weights_are_exact_where_masks_are_the_network():
    """A linear network has no masks that flip: gradient descent itself, at any distance."""
    network = fixed_readout(NETWORKS[3], "linear")
    run = anchored_run(network, **DATA, eta=0.02, steps=40, every=20, carried="weights")
    assert run.residual_error.max() < 1e-12
    assert run.unseen_error.max() < 1e-12
    assert run.u_error.max() < 1e-12
    assert run.b_error.max() < 1e-12
    truth = descend(network, X, Y, eta=0.02, steps=40)
    np.testing.assert_allclose(run.losses, truth.losses[1:], rtol=1e-10)
    np.testing.assert_allclose(run.predicted_losses, run.losses, rtol=1e-10)


def test_carried_weights_follow_the_network_with_frozen_masks():
    """Written out in NumPy; masks flip on the way, and the prediction must not notice."""
    model = fixed_readout(NETWORKS[3])
    eta, steps = 0.3, 6
    run = anchored_run(model, **DATA, eta=eta, steps=steps, every=steps, carried="weights")
    assert run.flipped[-2].sum() > 0
    start, other = (fields(model, x) for x in (X, UNSEEN))
    weights = [np.array(W) for W in NETWORKS[3]]

    def forward(x, masks):
        u = [x]
        for W, a in zip(weights, masks, strict=True):
            u.append(a * (u[-1] @ W.T))
        return u

    for step in range(steps):
        u = forward(X, start.a)
        z = start.a[-1] * (u[-1].mean(axis=1) - Y)[:, None] * 2 / (len(X) * 20)
        moves = []
        for layer in (2, 1, 0):
            moves.insert(0, eta * z.T @ u[layer])
            z = start.a[layer - 1] * (z @ weights[layer]) if layer else z
        weights = [W - move for W, move in zip(weights, moves, strict=True)]
        guess = forward(X, start.a)[-1].mean(axis=1) - Y
        np.testing.assert_allclose(run.predicted_losses[step], np.mean(guess**2), rtol=1e-10)
    end = fields(descend(model, X, Y, eta=eta, steps=steps).model, UNSEEN)
    wrong = np.linalg.norm(forward(UNSEEN, other.a)[-1].mean(axis=1) - end.output)
    expected = wrong / np.linalg.norm(other.output)
    np.testing.assert_allclose(run.unseen_error[-1], expected, rtol=1e-9)


@pytest.mark.parametrize("carried", CARRIED)
def test_the_first_step_is_the_law(carried):
    model = fixed_readout(NETWORKS[3])
    eta = 0.05
    run = anchored_run(model, X, Y, eta=eta, steps=3, every=1, carried=carried)
    for step in range(3):
        start = fields(model, X)
        model = gradient_step(model, X, Y, eta)[0]
        end, r = fields(model, X), start.output - Y
        if carried != "weights":  # those hold the higher orders of the frozen masks, too
            guess = start.output + output_update(start, r, eta)
            error = np.linalg.norm(guess - end.output) / np.linalg.norm(r)
            np.testing.assert_allclose(run.residual_error[step], error, rtol=1e-8)
            guess = start.u[2] + activation_updates(start, r, eta)[1]
            error = np.linalg.norm(guess - end.u[2]) / np.linalg.norm(start.u[2])
            np.testing.assert_allclose(run.u_error[step, 1], error, rtol=1e-8)
            guess = start.b[0] + conjugate_updates(start, r, eta)[0]
            error = np.linalg.norm(guess - end.b[0]) / np.linalg.norm(start.b[0])
            np.testing.assert_allclose(run.b_error[step, 0], error, rtol=1e-8)
        change = np.linalg.norm(end.output - start.output) / np.linalg.norm(r)
        np.testing.assert_allclose(run.residual_change[step], change, rtol=1e-10)
        np.testing.assert_array_equal(run.flips[step], run.flipped[step])


def test_errors_grow_from_an_anchor_and_vanish_at_the_next():
    model = fixed_readout(NETWORKS[3])
    options = {"eta": 0.02, "steps": 30}
    for carried in CARRIED:
        run = anchored_run(model, X, Y, **options, every=10, carried=carried)
        near, far = run.residual_error[run.at(1)], run.residual_error[run.at(10)]
        assert near.shape == far.shape == (3,)
        assert near.mean() < 0.3 * far.mean()
        assert np.all(near < run.residual_change[run.at(1)])
        assert run.flips.sum() > 0
    # whole flips add up to those seen from the anchor, at most
    assert np.all(run.flipped[run.at(1)] == run.flips[run.at(1)])
    assert np.all(run.flipped.sum(axis=1) <= run.flips.cumsum(axis=0).sum(axis=1))


def test_orders_in_the_step_size():
    """With no flips, fixed masks and carried weights are exact; the laws err by η² a step."""
    model = fixed_readout(NETWORKS[3])
    errors = {}
    for eta in (4e-5, 1e-5):
        for carried in CARRIED:
            run = anchored_run(model, X, Y, eta=eta, steps=5, every=5, carried=carried)
            assert run.flipped.sum() == 0
            errors[carried, eta] = run.residual_error[-1], run.b_error[-1].max()
    for part in (0, 1):
        assert errors["weights", 4e-5][part] < 1e-13
        for carried in ("fields", "kernel"):
            ratio = errors[carried, 4e-5][part] / errors[carried, 1e-5][part]
            assert abs(np.log(ratio) / np.log(4) - 2) < 0.05
    # Q and S that follow the fields know more than those of the anchor
    assert errors["fields", 4e-5][0] < 0.7 * errors["kernel", 4e-5][0]


def test_bad_requests_are_refused():
    model = fixed_readout(NETWORKS[1])
    sets = {"x": X, "y": Y, "eta": 0.1}
    with pytest.raises(InvalidValueError, match="carried = 'masks': expected one of weights"):
        anchored_run(model, **sets, steps=1, every=1, carried="masks")
    with pytest.raises(InvalidValueError, match="every = 0"):
        anchored_run(model, **sets, steps=1, every=0)
    with pytest.raises(InvalidValueError, match="activation = 'tanh'"):
        anchored_run(fixed_readout(NETWORKS[1], "tanh"), **sets, steps=1, every=1)
    with pytest.raises(InvalidValueError, match="shape of unseen"):
        anchored_run(model, **sets, steps=1, every=1, unseen=np.ones((2, 3)))
    run = anchored_run(model, **sets, steps=2, every=2)
    assert run.unseen_error is None
    with pytest.raises(InvalidValueError, match="distance = 3: expected 1 to 2"):
        run.at(3)
