"""Training at infinite width: a peer's numbers, brute-force descent, limits, bad input."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import expm

from dynagram.data import Data
from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.training import step_sizes
from dynagram.theory.training._infinite import InfiniteTraining
from dynagram.training import GradientDescent, GradientFlow, Optax, Training, TwoStep

PEER = json.loads((Path(__file__).parents[2] / "golden/neural_tangents_training.json").read_text())
NET = MLP([3, 40, 40, 2], "tanh", C_b=0.1, C_W=1.3, lambda_b=0.4, lambda_W=0.8)
X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [0.6, 0.3, -1.1]])
Y = np.array([[0.9, -0.45], [-0.6, 0.7], [0.2, 0.4]])
T = np.array([[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])
FLOW = Training(GradientFlow())
DATA = Data(X, Y, T)


def predicted(how, data=DATA, network=NET):
    return predict_outputs(network, data, how, order="infinite")


@pytest.fixture(scope="module")
def kernels():
    found = frozen_kernels(NET, np.concatenate([X, T]), layers="last")
    return found.Theta[-1], found.K[-1]


def test_equals_gradient_descent_mse_of_neural_tangents():
    Theta, y, initial = (np.array(PEER[key]) for key in ("Theta", "targets", "initial"))
    n = y.shape[0]
    kernel = InfiniteTraining(Theta, np.eye(7), y, np.ones(n), FLOW)
    moments = [*(time / y.size for time in PEER["times"]), math.inf]
    for moment, train, test in zip(moments, PEER["train"], PEER["test"], strict=True):
        outputs = kernel.at(moment).outputs(initial)
        np.testing.assert_allclose(outputs[n:], test, rtol=1e-10)
        np.testing.assert_allclose(outputs[:n], train, rtol=1e-10)
        # R itself, and the training inputs asked as test points.
        error, response = initial[:n] - y, kernel.at(moment).response
        np.testing.assert_allclose(initial - response @ error, outputs, rtol=1e-10)
        block = Theta[:n, :n]
        twice = np.block([[block, block], [block, block]])
        own = InfiniteTraining(twice, np.eye(2 * n), y, np.ones(n), FLOW).at(moment)
        np.testing.assert_allclose(initial[:n] - own.response[n:] @ error, train, rtol=1e-10)


@pytest.mark.parametrize("share", [0.3, 1.6])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_descent_equals_iterated_steps(kernels, share, steps):
    Theta, K = kernels
    eta = share / np.linalg.eigvalsh(Theta[:3, :3])[-1]
    found = predicted(Training(GradientDescent(eta), steps=steps))
    # The linear map of one step on all outputs, and the constant that the targets add.
    step = np.eye(5)
    step[:, :3] -= eta * Theta[:, :3]
    power = np.linalg.matrix_power(step, steps)
    constant = sum(
        (np.linalg.matrix_power(step, s) @ (eta * Theta[:, :3] @ Y) for s in range(steps)),
        start=np.zeros((5, 2)),
    )
    np.testing.assert_allclose(found.mean, constant[3:], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(found.train.mean, constant[:3], rtol=1e-10, atol=1e-13)
    spread = power @ K @ power.T
    np.testing.assert_allclose(found.kernel_infinite, spread[3:, 3:], rtol=1e-10)
    np.testing.assert_allclose(found.train.kernel_infinite, spread[:3, :3], rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(found.samples.kernel_infinite, spread, rtol=1e-9, atol=1e-13)
    assert found.time == eta * steps


def test_flow_and_the_end(kernels):
    Theta, K = kernels
    outputs = predicted(Training(GradientFlow(), record=[2.5]))
    inverse = np.linalg.inv(Theta[:3, :3])
    R = Theta[3:, :3] @ inverse @ (np.eye(3) - expm(-2.5 * Theta[:3, :3]))
    found = outputs.at(2.5)
    np.testing.assert_allclose(found.mean, R @ Y, rtol=1e-10)
    line = np.concatenate([-R, np.eye(2)], axis=1)
    np.testing.assert_allclose(found.kernel_infinite, line @ K @ line.T, rtol=1e-10)
    # (10.40), (10.41) as printed.
    end, R = outputs.at(math.inf), Theta[3:, :3] @ inverse
    np.testing.assert_allclose(end.mean, R @ Y, rtol=1e-10)
    printed = K[3:, 3:] - R @ K[:3, 3:] - K[3:, :3] @ R.T + R @ K[:3, :3] @ R.T
    np.testing.assert_allclose(end.kernel_infinite, printed, rtol=1e-10)
    np.testing.assert_allclose(end.std**2, np.diag(printed)[:, None] * np.ones(2), rtol=1e-10)
    np.testing.assert_allclose(end.train.kernel_infinite, 0.0, atol=1e-12)
    np.testing.assert_allclose(end.train.mean, Y, atol=1e-12)
    assert (end.time, end.notes, end.regime.verdict) == (math.inf, (), "trust")
    # All algorithms end at the same place (10.35); Newton's leap is there at once.
    for algorithm in (GradientDescent(0.2), TwoStep()):
        other = predicted(Training(algorithm))
        np.testing.assert_allclose(other.mean, end.mean, rtol=1e-12)
    long = predicted(Training(GradientDescent(0.2), steps=100_000))
    np.testing.assert_allclose(long.mean, end.mean, rtol=1e-10)


def test_a_mean_loss_is_a_half_sum_at_another_rate():
    """The mean over 3 samples and 2 outputs is 2/6 of the half-sum; times are the user's."""
    mean = predicted(Training(GradientDescent(0.6), loss="mean", steps=7))
    book = predicted(Training(GradientDescent(0.2), steps=7))
    np.testing.assert_allclose(mean.mean, book.mean, rtol=1e-12)
    np.testing.assert_allclose(mean.covariance, book.covariance, rtol=1e-12)
    assert mean.times == (0.6 * 7,)
    flow = predicted(Training(GradientFlow(), loss="mean", record=[1.5, 3.0]))
    np.testing.assert_allclose(
        flow.at(3.0).mean, predicted(Training(GradientFlow(), time=1.0)).mean, rtol=1e-12
    )
    # Repeated samples count in the mean, merged or not.
    twice = Data(X[[0, 1, 2, 0]], Y[[0, 1, 2, 0]], T)
    merged = predicted(Training(GradientDescent(0.4), loss="mean", steps=3), twice)
    np.testing.assert_allclose(
        merged.mean, predicted(Training(GradientDescent(0.1), steps=3), twice).mean, rtol=1e-12
    )
    with pytest.raises(InvalidValueError, match="must be below N n_L/λ_max"):
        predicted(Training(GradientDescent(20.0), loss="mean"))


def test_fixed_layers_do_not_learn():
    """Their λ is zero: the NTK is what the others add to it."""
    some = MLP([3, 40, 40, 2], "tanh", C_b=0.1, C_W=1.3,
               lambda_b=(0.4, 0.0, 0.4), lambda_W=(0.8, 0.0, 0.8))  # fmt: skip
    found = predicted(Training(GradientFlow(), time=1.0, fixed=[2]))
    expected = predicted(Training(GradientFlow(), time=1.0), network=some)
    np.testing.assert_array_equal(found.mean, expected.mean)
    assert found.network == NET
    with pytest.raises(InvalidValueError, match="layers 1 to 3"):
        predicted(Training(GradientFlow(), fixed=[4]))


def test_last_layer_alone_is_bayes():
    """(10.46)-(10.49): Θ = K when only the last layer trains, with λ = C."""
    zero = (0.0, 0.0)
    net = MLP([3, 40, 40, 2], "tanh", C_b=0.1, C_W=1.3,
              lambda_b=(*zero, 0.1), lambda_W=(*zero, 1.3))  # fmt: skip
    found = predicted(FLOW, network=net)
    K = frozen_kernels(net, np.concatenate([X, T]), layers="last").K[-1]
    posterior = K[3:, 3:] - K[3:, :3] @ np.linalg.solve(K[:3, :3], K[:3, 3:])
    np.testing.assert_allclose(found.kernel_infinite, posterior, rtol=1e-10)


def test_repeated_inputs_train_with_their_weight():
    """Merged duplicates against gradient descent on the full list, targets equal or not."""
    x = X[[0, 1, 0, 2, 0]]
    y = np.concatenate([Y[[0, 1]], Y[:1] + 0.3, Y[[2]], Y[:1]])
    eta = 0.15
    outputs = predicted(Training(GradientDescent(eta), record=[9]), Data(x, y, T))
    Theta = frozen_kernels(NET, np.concatenate([x, T]), layers="last").Theta[-1]
    z = np.zeros((7, 2))
    for steps in range(1, 4001):
        z = z - eta * Theta[:, :5] @ (z[:5] - y)
        if steps == 9:
            np.testing.assert_allclose(outputs.at(9 * eta).mean, z[5:], rtol=1e-10)
    end = outputs.at(math.inf)
    np.testing.assert_allclose(end.mean, z[5:], rtol=1e-9)
    assert end.train.mean.shape == (3, 2)
    assert "row 0 as row 2 with another target" in end.notes[0]
    assert "row 0 as row 4" in end.notes[1]


def test_rank_deficient_kernels_give_the_flagged_minimum_norm_answer():
    # Odd σ without biases: the network cannot tell x and −x but by the sign.
    net = MLP([3, 40, 1], "tanh", C_b=0.0, C_W=1.0, lambda_b=0.0)
    x, y = np.array([[1.0, 0.2, 0.5], [-1.0, -0.2, -0.5]]), np.array([[1.0], [0.4]])
    end = predicted(FLOW, Data(x, y, T), net)
    assert np.max(np.abs(end.train.mean - y)) == pytest.approx(0.7)
    assert end.regime.verdict == "careful"
    assert "rank 1 of 2: minimum-norm answer, the mean stays 0.7 away" in str(end.regime)
    # Gradient descent from zero ends there too.
    Theta = frozen_kernels(net, np.concatenate([x, T]), layers="last").Theta[-1]
    z = np.zeros((4, 1))
    for _ in range(2000):
        z = z - 0.3 * Theta[:, :2] @ (z[:2] - y)
    np.testing.assert_allclose(end.mean, z[2:], rtol=1e-9)


def test_step_sizes():
    found = step_sizes(np.diag([4.0, 1.0, 0.0]))
    assert (found.largest, found.fastest) == (0.5, 0.5)
    np.testing.assert_array_equal(found.time_constants, [0.25, 1.0, np.inf])
    assert step_sizes(np.diag([4.0, 1.0])).steps_to(1e-3, 0.4) == 14.0  # 0.6¹⁴ < 1e-3 < 0.6¹³
    assert step_sizes(np.diag([4.0, 1.0])).steps_to(1e-3, 0.51) == math.inf


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            Training(Optax("adam", 0.1)),
            "algorithm = 'adam': its steps are not linear",
        ),
        (Training(Optax("momentum", 0.1)), "steps = inf: momentum on half-sum has no known end"),
        (Training(GradientDescent(50.0)), "eta = 50.0: .* the step size must be below 2/λ_max"),
        (Training(GradientDescent(0.1), loss="cross-entropy"), "steps = inf: gd on cross-entropy"),
        (Training(GradientDescent(0.1), batch=2), "steps = inf: gd on half-sum has no known end"),
        (
            Training(GradientDescent(0.1), weight_decay=0.1),
            "weight_decay = 0.1: .*no equations",
        ),
        (Training(GradientDescent(0.1), stop=["loss < 1"]), "stop = .* list them in `record`"),
        (Training(TwoStep(), record=[1.0]), "two-step has no moments before its end"),
    ],
)
def test_refusals(how, message):
    for order in ("infinite", "1/n"):
        with pytest.raises(InvalidValueError, match=message):
            predict_outputs(NET, DATA, how, order=order)


def test_refusals_of_orders_data_and_networks():
    with pytest.raises(InvalidValueError, match="order = '∞': expected one of infinite, 1/n"):
        predict_outputs(NET, DATA, FLOW, order="∞")
    with pytest.raises(InvalidValueError, match=r"shape of y = \(3, 1\): expected \(3, 2\)"):
        predicted(FLOW, Data(X, Y[:, :1], T))
    with pytest.raises(InvalidValueError, match=r"shape of x = \(3, 2\): expected \(3, 3\)"):
        predicted(FLOW, Data(X[:, :2], Y))
    with pytest.raises(InvalidTypeError, match="data = 'a ndarray': expected Data"):
        predict_outputs(NET, X, FLOW)
    with pytest.raises(InvalidTypeError, match="how = 'a str': expected Training"):
        predict_outputs(NET, DATA, "gd")
    with pytest.raises(InvalidTypeError, match="network = 'a str': expected an MLP or a Chain"):
        predict_outputs("tanh", DATA, FLOW)
    with pytest.raises(InvalidValueError, match="σ jumps"):
        predicted(FLOW, network=MLP([3, 4, 2], "step", 0.0, 1.0))
    frozen = MLP([3, 4, 2], "tanh", 0.0, 1.0, lambda_b=0.0, lambda_W=0.0)
    with pytest.raises(InvalidValueError, match="nothing can be learned"):
        predicted(FLOW, network=frozen)
