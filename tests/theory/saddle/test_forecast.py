"""Forecasts against gradient descent, and networks for which there is nothing to forecast."""

import math

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.errors import DynagramError
from dynagram.networks import MLP, Architecture, Model
from dynagram.theory.saddle._forecast import forecast
from dynagram.theory.saddle._interval import _CORRECTED
from dynagram.training import GradientDescent, GradientFlow, Optax, Training
from dynagram_experiments.saddle._plateaus import draw_plateau, measured_escape

RATE = 0.05  # of ½ mean |f − y|², so half of it for one output and the loss "mean"


def how(rate=RATE, momentum=0.0, loss="mean", **options):
    rate = rate / 2 if loss == "mean" else rate
    algorithm = Optax("momentum", rate, momentum=momentum) if momentum else GradientDescent(rate)
    return Training(algorithm, loss=loss, **options)


def predicted(weights, batch, name, training=None, **options):
    """The forecast for a network without biases."""
    model = Model.of_matrices(weights, name)
    return forecast(model, Data(*batch), training or how(), **options)


def plateau(name="tanh", depth=4, width=24, scale=0.12, seed=3, samples=256):
    rng = np.random.default_rng(seed)
    return draw_plateau(rng, depth, width, inputs=6, samples=samples, scale=scale, name=name)


@pytest.mark.parametrize(
    ("name", "momentum", "allowed"), [("tanh", 0.0, 0.01), ("sin", 0.8, 0.01), ("gelu", 0.0, 0.01)]
)
def test_the_forecast_is_what_training_does(name, momentum, allowed):
    # The batch the forecaster sees is the one trained on: what is left is the theory's own error.
    member = plateau(name, scale=0.25 if name == "gelu" else 0.12)
    answer = predicted(member.weights, member.train, name, how(momentum=momentum))
    assert answer.plateau
    assert answer.regime.verdict == "trust"
    steps = measured_escape(
        member, answer.escape_loss / 2, learning_rate=RATE, most_steps=6000, momentum=momentum
    )
    assert abs(math.log10(answer.escape_step / steps)) < allowed
    assert answer.interval[0] < answer.escape_step < answer.interval[1]


@pytest.mark.slow
def test_the_interval_has_a_part_for_the_nonlinearity_and_one_for_the_batch():
    def width(name, scale, rows):
        member = plateau(name, scale=scale, samples=20_000)
        x, y = member.train
        answer = predicted(member.weights, (x[:rows], y[:rows]), name)
        low, high = answer.interval
        assert low * high == pytest.approx(answer.escape_step**2)
        return math.log10(high / low) / 2, answer.regime.numbers["curvature_ratio"]

    # In a large batch the corrected z² of gelu is all that counts, a share of it as calibrated.
    whole, ratio = width("gelu", 0.25, 20_000)
    assert whole == pytest.approx(1.645 * _CORRECTED * abs(math.log10(ratio)), rel=0.2)
    # The scatter of the batch falls like 1/√rows, the nonlinear part of tanh is small.
    assert width("tanh", 0.12, 100)[0] > 4 * width("tanh", 0.12, 20_000)[0]


def test_a_counterfactual_is_what_training_the_rescaled_network_does():
    member = plateau()
    answer = predicted(member.weights, member.train, "tanh")
    best = min(answer.counterfactuals, key=lambda entry: entry.escape_step)
    assert best.escape_step < 0.7 * answer.escape_step
    changed = member.rescaled(best.layer, best.factor)
    steps = measured_escape(changed, answer.escape_loss / 2, learning_rate=RATE, most_steps=6000)
    assert abs(math.log10(best.escape_step / steps)) < 0.03
    assert math.isinf(measured_escape(changed, -1.0, learning_rate=RATE, most_steps=10))


@pytest.mark.slow
def test_units_of_the_learning_rate_and_of_the_loss():
    member = plateau()
    x, y = member.train
    whole = predicted(member.weights, (x, y), "tanh")
    slow = predicted(member.weights, (x, y), "tanh", how(RATE / 2))
    assert slow.escape_step == pytest.approx(2 * whole.escape_step, rel=0.02)
    total = predicted(member.weights, (x, y), "tanh", how(RATE / len(x), loss="half-sum"))
    assert total.escape_step == pytest.approx(whole.escape_step, rel=1e-6)
    assert total.loss == pytest.approx(whole.loss * len(x) / 2)
    assert total.escape_loss == pytest.approx(whole.escape_loss * len(x) / 2)
    outputs = np.asarray(Model.of_matrices(member.weights, "tanh")(x))
    assert whole.loss == pytest.approx(np.mean((outputs - y) ** 2))


@pytest.mark.slow
def test_the_learning_rates_of_the_network_and_fixed_layers():
    member = plateau()
    model, data = Model.of_matrices(member.weights, "tanh"), Data(*member.train)
    whole = forecast(model, data, how())
    frozen = forecast(model, data, how(fixed=[4]))
    assert frozen.escape_step > whole.escape_step
    widths = model.network.widths
    rates = [*map(float, widths[:-2]), 0.0]
    slow = Model(Architecture(widths, "tanh", lambda_b=0.0, lambda_W=rates), model.params)
    assert forecast(slow, data, how()).escape_step == frozen.escape_step
    # λ_W = 1 for all layers of width n is plain descent at a rate 1/n but in the first layer.
    rates = [widths[0] / widths[1], 1, 1, 1]
    spec = MLP(widths, "tanh", C_b=0.0, C_W=1.0, lambda_b=0.0, lambda_W=rates)
    by_width = forecast(Model(spec, model.params), data, how(RATE * widths[1]))
    assert by_width.escape_step == pytest.approx(whole.escape_step, rel=1e-9)


def test_bottleneck_and_stages_are_reported():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 6))
    weights = [rng.normal(size=s) * math.sqrt(2 / s[1]) for s in ((32, 6), (32, 32), (2, 32))]
    weights[0] *= 0.02
    weights[1] *= 0.02
    y = np.tanh(x[:, :2]) * np.array([1.0, 0.5])
    answer = predicted(weights, (x, y), "tanh")
    assert answer.bottleneck == (1, 2)
    assert answer.stages == 2
    small = predicted(weights, (x, np.tanh(x[:, :1]) * np.ones((1, 2))), "tanh")
    assert small.stages == 1


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
    answer = predicted(weights, (x, y), name)
    assert not answer.plateau
    assert answer.regime.verdict == "do not use"
    assert answer.escape_step is None
    assert answer.interval is None
    assert any(words in reason for reason in answer.reasons)


def test_other_layers_that_grow_too_shorten_the_time_in_which_the_small_ones_are_too_small():
    # One layer is smaller than the rest by a factor of two, and alone would have to grow too far.
    member = plateau()
    weights = [0.5 * member.weights[0], *member.weights[1:]]
    answer = predicted(weights, member.train, "tanh")
    assert answer.bottleneck == (1,)
    assert answer.bounds.lower < answer.bootstrap_step < answer.escape_step


def test_weights_that_are_zero_never_leave():
    member = plateau()
    zero = [0.0 * w for w in member.weights]
    answer = predicted(zero, member.train, "tanh")
    assert answer.plateau
    assert answer.escape_step == math.inf


def test_the_record_shows_itself():
    answer = predicted(plateau().weights, plateau().train, "tanh")
    assert repr(answer).startswith("Forecast(escape in ")
    assert "escape if scaled" in answer._repr_html_()
    assert answer.table().row_count == 4
    plain = answer.to_dict()
    assert plain["plateau"] is True
    assert plain["regime"]["numbers"]["nonlinearity"] == max(answer.nonlinearity)
    assert plain["counterfactuals"][0]["layer"] == 1


@pytest.mark.parametrize(
    ("training", "options", "words"),
    [
        (how(), {"fraction": 1.5}, "fraction"),
        (how(), {"factor": 0.0}, "factor"),
        (how(momentum=1.0), {}, "momentum = 1.0"),
        (how(loss="cross-entropy"), {}, "are probabilities"),
        (how(loss="some:function"), {}, "expected one of half-sum"),
        (how(weight_decay=0.1), {}, "weight_decay"),
        (Training(GradientFlow(), loss="mean"), {}, "forecasts follow GradientDescent"),
        (Training(Optax("optax:rmsprop", 0.1), loss="mean"), {}, "forecasts follow"),
        (Training(Optax("momentum", 0.1, nesterov=True)), {}, "nesterov"),
    ],
)
def test_bad_settings_are_refused(training, options, words):
    member = plateau()
    model, data = Model.of_matrices(member.weights, "tanh"), Data(*member.train)
    with pytest.raises(DynagramError, match=words):
        forecast(model, data, training, **options)


def test_networks_that_are_not_understood_are_refused():
    member = plateau()
    x, y = member.train
    blocks = MLP([6, 8, 8, 1], "tanh", C_b=0.0, C_W=1.0, skip=0.5).init(seed=0)
    with pytest.raises(DynagramError, match="without skips"):
        forecast(blocks, Data(x, y), how())
    with pytest.raises(DynagramError, match="shape of y"):
        predicted(member.weights, (x, np.hstack([y, y])), "tanh")
