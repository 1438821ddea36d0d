"""Forecasts of networks as people train them: biases, offsets, several outputs, other losses."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.data import Data, digits
from dynagram.networks import Model
from dynagram.observables import find_plateaus
from dynagram.theory.saddle import forecast
from dynagram.training import GradientDescent, Optax, Training
from dynagram_experiments.saddle._plateaus import loss_curves


def draw(sizes, scale, seed=0, samples=256):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, sizes[0]))
    shapes = [(b, a) for a, b in itertools.pairwise(sizes)]
    return x, [scale * rng.normal(size=s) * math.sqrt(2 / s[1]) for s in shapes]


def measured(weights, x, y, level, *, rate, steps, biases=None, **options):
    """The first step at which gradient descent is at `level`."""
    offsets = [np.zeros(len(W)) for W in weights] if biases is None else biases
    params = [
        (jnp.asarray(W[None], jnp.float32), jnp.asarray(b[None], jnp.float32))
        for W, b in zip(weights, offsets, strict=True)
    ]
    options = {"loss": "mean", "trains_biases": biases is not None} | options
    curve = np.asarray(
        loss_curves(
            params, jnp.float32(x[None]), jnp.float32(y[None]), rate, steps=steps, **options
        )
    )[0]
    assert curve.min() <= level
    return int(np.argmax(curve <= level)), curve


def error(answer, steps):
    return abs(math.log10(answer.escape_step / max(steps, 1)))


@pytest.mark.parametrize("size", [0.0, pytest.param(1e-12, marks=pytest.mark.slow)])
def test_biases_that_are_zero_and_train_learn_the_mean_first(size):
    x, weights = draw([6, 24, 24, 24, 1], 0.15)
    y = 1.0 + np.tanh(x[:, :1])
    biases = [np.full(len(W), size) for W in weights]
    model = Model.of_matrices(weights, "tanh", biases=biases)
    answer = forecast(model, Data(x, y), Training(GradientDescent(0.025), loss="mean"))
    steps, curve = measured(
        weights, x, y, answer.escape_loss, rate=0.025, steps=1000, name="tanh", biases=biases
    )
    assert error(answer, steps) < 0.01
    # The loss is the one trained with: it falls to that of the plateau before the escape.
    assert answer.loss == pytest.approx(curve[0], rel=1e-5)
    assert answer.plateau_loss == pytest.approx(np.var(y), rel=1e-6)
    assert 0 < answer.plateau_step < 0.3 * steps
    assert curve[int(answer.plateau_step)] == pytest.approx(answer.plateau_loss, rel=0.1)
    assert "mean of the targets" in answer.reasons[0]
    # Without biases the same targets have another plateau.
    bare = Model.of_matrices(weights, "tanh")
    fixed = forecast(bare, Data(x, y), Training(GradientDescent(0.025), loss="mean"))
    assert fixed.plateau_loss > 1.2


@pytest.mark.parametrize(
    ("name", "mean", "rate"),
    [
        ("sigmoid", 1.0, 0.1),
        pytest.param("softplus", 1.0, 0.025, marks=pytest.mark.slow),
        pytest.param("sigmoid", 0.0, 0.1, marks=pytest.mark.slow),
    ],
)
def test_an_activation_with_an_offset_and_targets_with_a_mean(name, mean, rate):
    # The readout learns the mean on σ(0), and is then not what it was.
    x, weights = draw([6, 16, 16, 1], 0.02 if mean else 0.3)
    y = mean + np.tanh(x[:, :1])
    model = Model.of_matrices(weights, name)
    answer = forecast(model, Data(x, y), Training(GradientDescent(rate), loss="mean"))
    steps, _ = measured(weights, x, y, answer.escape_loss, rate=rate, steps=4000, name=name)
    assert answer.plateau
    assert error(answer, steps) < 0.015


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_that_overshoot_the_mean_are_refused_with_the_rate_to_take(momentum):
    # 32 units at softplus(0) = log 2 make the mean a sharp direction.
    x, weights = draw([6, 16, 32, 1], 0.1)
    y = 1.2 + np.tanh(x[:, :1])
    model = Model.of_matrices(weights, "softplus")

    def answer(rate):
        how = Optax("momentum", rate, momentum=momentum) if momentum else GradientDescent(rate)
        return forecast(model, Data(x, y), Training(how, loss="mean"))

    limit = 0.01 / answer(0.01).regime.numbers["step_over_limit"]
    # The loss "mean" has twice the curvature of ½|f − y|², here 32 log²2 without biases.
    assert limit == pytest.approx(2 * (1 + momentum) / (2 * 32 * math.log(2) ** 2), rel=0.1)
    if not momentum:  # with it the first steps swing out below the limit too
        for part in (0.9, 1.5):
            _, curve = measured(weights, x, y, 99.0, rate=part * limit, steps=40, name="softplus")
            assert (curve.max() > 1.5 * curve[0]) == (part > 1.0)
    refused = answer(1.1 * limit)
    assert not refused.plateau
    assert "steps are too large: 1.1 times" in refused.reasons[-1]
    assert f"learning rate below {limit:.2g}" in refused.reasons[-1]


@pytest.mark.slow
def test_the_first_of_several_stages_and_the_next():
    x, weights = draw([6, 24, 24, 3], 0.02, samples=1024)
    y = np.tanh(x[:, :3]) * np.array([1.0, 0.5, 0.2])
    model = Model.of_matrices(weights, "tanh")
    answer = forecast(model, Data(x, y), Training(GradientDescent(0.2), loss="mean"))
    assert answer.stages == 3
    # Two are followed: the third falls less than what is not linear in the first.
    assert [stage.stage for stage in answer.later] == [2]
    level = answer.later[0].loss
    second, curve = measured(weights, x, y, level, rate=0.2, steps=2000, name="tanh")
    assert error(answer, int(np.argmax(curve <= answer.escape_loss))) < 0.01
    assert abs(math.log10(answer.later[0].step / second)) < 0.02
    low, high = answer.later[0].interval
    assert low < second < high < 1.5 * low
    # The first escape is half of its own fall, which is not half of the whole.
    fall = answer.plateau_loss - answer.escape_loss
    assert fall == pytest.approx(0.5 * np.mean(y[:, 0] ** 2) / 3, rel=0.1)


@pytest.mark.parametrize(
    ("loss", "trains_biases"),
    [
        ("cross-entropy", True),
        pytest.param("cross-entropy", False, marks=pytest.mark.slow),
        pytest.param("logistic", True, marks=pytest.mark.slow),
    ],
)
def test_losses_that_are_no_squares(loss, trains_biases):
    x, weights = draw([6, 24, 24, 3], 0.06)
    order = np.argmax(x[:, :3] * np.array([2.0, 1.0, 1.0]), axis=1)
    y = np.eye(3)[order] if loss == "cross-entropy" else np.where(x[:, :3] > 0.5, 1.0, -1.0)
    biases = [np.zeros(len(W)) for W in weights] if trains_biases else None
    model = Model.of_matrices(weights, "tanh", biases=biases)
    answer = forecast(model, Data(x, y), Training(GradientDescent(0.1), loss=loss))
    steps, curve = measured(
        weights, x, y, answer.escape_loss, rate=0.1, steps=800, name="tanh", biases=biases,
        loss=loss,
    )  # fmt: skip
    assert error(answer, steps) < 0.01
    assert answer.loss == pytest.approx(curve[0], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("depth", "width", "scale", "rate"),
    [(2, 64, 1e-6, 0.05), (3, 32, 0.016, 0.2), (4, 48, 0.07, 0.2)],
)
def test_plateaus_of_digits_with_ten_outputs(depth, width, scale, rate):
    # The mean of the targets is learnt in tens of steps; then the loss stands still for some 1900.
    everything = digits()
    x = everything.x - everything.x.mean(axis=0)
    x = x / np.maximum(x.std(axis=0), 1e-9)
    y = np.eye(10)[everything.labels]
    _, weights = draw([64, *[width] * (depth - 1), 10], scale)
    biases = [np.zeros(len(W)) for W in weights]
    model = Model.of_matrices(weights, "tanh", biases=biases)
    answer = forecast(model, Data(x, y), Training(GradientDescent(rate), loss="mean"))
    assert answer.stages == 9
    assert answer.plateau_loss == pytest.approx(0.09, rel=0.01)
    steps, curve = measured(
        weights, x, y, answer.escape_loss, rate=rate, steps=2600, name="tanh", biases=biases
    )
    assert 1400 < steps < 2600
    assert error(answer, steps) < 0.01
    assert answer.interval[0] < steps < answer.interval[1]
    (seen, *_) = find_plateaus(np.asarray(curve, dtype=float))
    assert seen.start < 4 * answer.plateau_step
    assert 0.7 * steps < seen.end < steps


@pytest.mark.parametrize(
    ("momentum", "rate"),
    [
        (0.99, 0.025),
        pytest.param(0.99, 0.0025, marks=pytest.mark.slow),
        pytest.param(0.9, 0.025, marks=pytest.mark.slow),
    ],
)
def test_momentum_from_an_empty_buffer_on_plateaus_short_and_long(momentum, rate):
    x, weights = draw([6, 24, 24, 24, 1], 0.15)
    y = np.tanh(x[:, :1])
    how = Training(Optax("momentum", rate, momentum=momentum), loss="mean")
    answer = forecast(Model.of_matrices(weights, "tanh"), Data(x, y), how)
    steps, _ = measured(
        weights, x, y, answer.escape_loss, rate=rate, steps=1000, name="tanh", momentum=momentum
    )
    assert error(answer, steps) < 0.02
    # A buffer that is filled already saves β/(1 − β) steps: the interval says so.
    low, high = answer.interval
    assert answer.escape_step / low > 1.02 * high / answer.escape_step


@pytest.mark.slow
def test_mini_batches_widen_the_interval_by_what_they_scatter():
    x, weights = draw([6, 24, 24, 24, 1], 0.15)
    y = np.tanh(x[:, :1])
    model, data = Model.of_matrices(weights, "tanh"), Data(x, y)
    whole = forecast(model, data, Training(GradientDescent(0.05), loss="mean"))
    parts = forecast(model, data, Training(GradientDescent(0.05), loss="mean", batch=4))
    assert parts.escape_step == whole.escape_step
    wide, narrow = (math.log10(a.interval[1] / a.escape_step) for a in (parts, whole))
    expected = math.sqrt(wide**2 - narrow**2) / 1.645
    params = [
        (jnp.repeat(jnp.float32(W)[None], 32, 0), jnp.zeros((32, len(W)), jnp.float32))
        for W in weights
    ]
    x32, y32 = (jnp.repeat(jnp.float32(part)[None], 32, 0) for part in (x, y))
    curves = np.asarray(
        loss_curves(
            params, x32, y32, 0.05, name="tanh", loss="mean", steps=600,
            batch=4,
        )
    )  # fmt: skip
    logs = np.log10(np.argmax(curves <= whole.escape_loss, axis=1))
    assert 0.5 < expected / logs.std() < 2.0
    assert abs(logs.mean() - math.log10(whole.escape_step)) < expected
    # ½ of the sum over four samples has twice the gradient of the mean of their squares.
    total = forecast(model, data, Training(GradientDescent(0.025), loss="half-sum", batch=4))
    assert total.escape_step == pytest.approx(whole.escape_step, rel=1e-9)


def test_adam_is_descent_below_its_epsilon_and_not_forecast_above():
    x, weights = draw([6, 24, 24, 24, 1], 0.15)
    y = np.tanh(x[:, :1])
    model, data = Model.of_matrices(weights, "tanh"), Data(x, y)
    answer = forecast(model, data, Training(Optax("adam", 0.01), loss="mean"))
    assert not answer.plateau
    assert answer.regime.verdict == "do not use"
    assert "Adam divides gradients" in answer.reasons[0]
    assert "with momentum, or with eps above" in answer.reasons[0]
    large = forecast(model, data, Training(Optax("adam", 2.5, eps=100.0), loss="mean"))
    same = forecast(model, data, Training(Optax("momentum", 0.025, momentum=0.9), loss="mean"))
    assert large.escape_step == pytest.approx(same.escape_step, rel=1e-9)


@pytest.mark.slow
def test_a_schedule_is_counted():
    x, weights = draw([6, 24, 24, 24, 1], 0.15)
    model, data = Model.of_matrices(weights, "tanh"), Data(x, np.tanh(x[:, :1]))
    plain = forecast(model, data, Training(GradientDescent(0.01), loss="mean"))
    half = forecast(
        model, data, Training(GradientDescent(0.01), loss="mean", schedule=[0.5] * 100 + [1.0])
    )
    assert half.escape_step == pytest.approx(plain.escape_step + 50.0, rel=1e-2)


@pytest.mark.parametrize("loss", ["mean", "cross-entropy"])
def test_targets_that_do_not_vary_have_nothing_to_forecast(loss):
    x, weights = draw([6, 8, 8, 2], 0.1)
    y = np.tile([1.0, 0.0], (len(x), 1))
    biases = [np.zeros(len(W)) for W in weights]
    model = Model.of_matrices(weights, "tanh", biases=biases)
    answer = forecast(model, Data(x, y), Training(GradientDescent(0.1), loss=loss))
    assert not answer.plateau
    assert "no linear signal" in answer.reasons[-1]
