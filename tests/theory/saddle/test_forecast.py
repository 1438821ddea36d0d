"""Forecasts against gradient descent, and networks for which there is nothing to forecast."""

import math

import numpy as np
import pytest

from dynagram.errors import DynagramError
from dynagram.networks import Layer
from dynagram.theory.saddle._forecast import forecast
from dynagram_experiments.saddle._plateaus import draw_plateau, measured_escape

RATE = 0.05


def plateau(name="tanh", depth=4, width=24, scale=0.12, seed=3, samples=256):
    rng = np.random.default_rng(seed)
    return draw_plateau(rng, depth, width, inputs=6, samples=samples, scale=scale, name=name)


@pytest.mark.parametrize(
    ("name", "momentum", "allowed"), [("tanh", 0.0, 0.02), ("sin", 0.8, 0.03), ("gelu", 0.0, 0.1)]
)
def test_the_forecast_is_what_training_does(name, momentum, allowed):
    # The batch the forecaster sees is the one trained on: what is left is the theory's own error.
    member = plateau(name, scale=0.25 if name == "gelu" else 0.12)
    answer = forecast(member.weights, member.train, name, RATE, momentum=momentum)
    assert answer.plateau
    steps = measured_escape(
        member, answer.escape_loss, learning_rate=RATE, most_steps=6000, momentum=momentum
    )
    assert abs(math.log10(answer.escape_step / steps)) < allowed
    assert answer.interval[0] < answer.escape_step < answer.interval[1]


def test_the_interval_has_a_part_for_the_nonlinearity_and_one_for_the_batch():
    def width(name, scale, rows):
        member = plateau(name, scale=scale, samples=20_000)
        x, y = member.train
        answer = forecast(member.weights, (x[:rows], y[:rows]), name, RATE)
        low, high = answer.interval
        assert low * high == pytest.approx(answer.escape_step**2)
        return math.log10(high / low) / 2, max(answer.nonlinearity)

    # In a large batch the neglected z² of gelu is all that counts, 0.45 per unit as calibrated.
    whole, nonlinearity = width("gelu", 0.25, 20_000)
    assert whole == pytest.approx(1.645 * 0.45 * nonlinearity, rel=0.1)
    # The scatter of the batch falls like 1/√rows, the nonlinear part of tanh is small.
    assert width("tanh", 0.12, 100)[0] > 4 * width("tanh", 0.12, 20_000)[0]


def test_a_counterfactual_is_what_training_the_rescaled_network_does():
    member = plateau()
    answer = forecast(member.weights, member.train, "tanh", RATE)
    best = min(answer.counterfactuals, key=lambda entry: entry.escape_step)
    assert best.escape_step < 0.7 * answer.escape_step
    changed = member.rescaled(best.layer, best.factor)
    steps = measured_escape(changed, answer.escape_loss, learning_rate=RATE, most_steps=6000)
    assert abs(math.log10(best.escape_step / steps)) < 0.03
    assert math.isinf(measured_escape(changed, -1.0, learning_rate=RATE, most_steps=10))


def test_units_of_the_learning_rate():
    member = plateau()
    x, y = member.train
    half = forecast(member.weights, (x, y), "tanh", RATE).escape_step
    assert forecast(member.weights, (x, y), "tanh", RATE / 2).escape_step == pytest.approx(
        2 * half, rel=0.02
    )
    mse = forecast(member.weights, (x, y), "tanh", RATE, loss="mse").escape_step
    assert mse == pytest.approx(half / 2, rel=0.02)
    book = forecast(member.weights, (x, y), "tanh", RATE / len(x), loss="book").escape_step
    assert book == pytest.approx(half, rel=1e-6)
    frozen = forecast(member.weights, (x, y), "tanh", RATE, rates=[1.0, 1.0, 1.0, 0.0]).escape_step
    assert frozen > half


def test_bottleneck_and_stages_are_reported():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 6))
    weights = [rng.normal(size=s) * math.sqrt(2 / s[1]) for s in ((32, 6), (32, 32), (2, 32))]
    weights[0] *= 0.02
    weights[1] *= 0.02
    y = np.tanh(x[:, :2]) * np.array([1.0, 0.5])
    answer = forecast(weights, (x, y), "tanh", RATE)
    assert answer.bottleneck == (1, 2)
    assert answer.stages == 2
    small = forecast(weights, (x, np.tanh(x[:, :1]) * np.ones((1, 2))), "tanh", RATE)
    assert small.stages == 1


def test_biases_are_centred_away():
    member = plateau()
    x, y = member.train
    layers = [Layer(np.full(w.shape[0], 1e-3), w) for w in member.weights]
    plain = forecast(member.weights, (x, y), "tanh", RATE)
    shifted = forecast(layers, (x, y + 5.0), "tanh", RATE)
    assert shifted.plateau
    assert shifted.escape_step == pytest.approx(plain.escape_step, rel=0.15)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("large", "signal is not small"),
        ("relu", "kink at 0"),
        ("no signal", "no linear signal"),
        ("learnt", "not small"),
        ("single", "already falling"),
    ],
)
def test_what_is_no_small_signal_plateau_is_recognised(change, words):
    rng = np.random.default_rng(5)
    member = plateau(scale=1.5 if change == "large" else 0.1)
    (x, y), weights, name = member.train, member.weights, "tanh"
    if change == "relu":
        name = "relu"
    if change == "no signal":
        y = rng.normal(size=y.shape)
    if change == "learnt":
        h = x
        for w in weights[:-1]:
            h = np.tanh(h @ w.T)
        weights = [*weights[:-1], np.linalg.lstsq(h, y, rcond=None)[0].T]
    if change == "single":  # one small layer: r = 1 is no plateau
        weights = [0.3 * np.eye(6), np.eye(6), 1e-3 * rng.normal(size=(1, 6))]
    answer = forecast(weights, (x, y), name, RATE)
    assert not answer.plateau
    assert answer.escape_step is None
    assert answer.interval is None
    assert any(words in reason for reason in answer.reasons)


def test_weights_that_are_zero_never_leave():
    member = plateau()
    zero = [0.0 * w for w in member.weights]
    answer = forecast(zero, member.train, "tanh", RATE)
    assert answer.plateau
    assert answer.escape_step == math.inf


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"momentum": 1.0}, "momentum"),
        ({"loss": "cross-entropy"}, "expected one of half, mse, book"),
        ({"fraction": 1.5}, "fraction"),
        ({"rates": [1.0]}, "4 finite numbers"),
    ],
)
def test_bad_settings_are_refused(arguments, words):
    member = plateau()
    arguments = {"learning_rate": RATE} | arguments
    with pytest.raises(DynagramError, match=words):
        forecast(member.weights, member.train, "tanh", **arguments)
