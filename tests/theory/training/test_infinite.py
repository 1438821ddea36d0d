"""Training at infinite width: a peer's numbers, brute-force descent, limits, bad input."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import expm

from dynagram.errors import InvalidTypeError, InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory.training._algorithms import Algorithm, step_sizes
from dynagram.theory.training._infinite import KernelTraining, infinite_training
from dynagram.theory.training._problem import Problem

PEER = json.loads((Path(__file__).parents[2] / "golden/neural_tangents_training.json").read_text())
NET = MLP([3, 40, 40, 2], "tanh", C_b=0.1, C_W=1.3, lambda_b=0.4, lambda_W=0.8)
X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [0.6, 0.3, -1.1]])
Y = np.array([[0.9, -0.45], [-0.6, 0.7], [0.2, 0.4]])
T = np.array([[1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])
FLOW = Algorithm("flow")


@pytest.fixture(scope="module")
def kernels():
    found = frozen_kernels(NET, np.concatenate([X, T]), layers="last")
    return found.Theta[-1], found.K[-1]


def test_equals_gradient_descent_mse_of_neural_tangents():
    Theta, y, initial = (np.array(PEER[key]) for key in ("Theta", "targets", "initial"))
    n = y.shape[0]
    kernel = KernelTraining(Theta, np.eye(7), y, np.ones(n), FLOW)
    error = initial[:n] - y
    for time, train, test in zip([*PEER["times"], None], PEER["train"], PEER["test"], strict=True):
        found = kernel.at() if time is None else kernel.at(time=time / y.size)
        np.testing.assert_allclose(initial[n:] - found.response @ error, test, rtol=1e-10)
        # The training outputs themselves, asked as test points.
        own = KernelTraining(
            np.block([[Theta[:n, :n], Theta[:n, :n]], [Theta[:n, :n], Theta[:n, :n]]]),
            np.eye(2 * n), y, np.ones(n), FLOW,
        )  # fmt: skip
        same = own.at() if time is None else own.at(time=time / y.size)
        np.testing.assert_allclose(initial[:n] - same.response @ error, train, rtol=1e-10)


@pytest.mark.parametrize("share", [0.3, 1.6])
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_descent_equals_iterated_steps(kernels, share, steps):
    Theta, K = kernels
    eta = share / np.linalg.eigvalsh(Theta[:3, :3])[-1]
    run = infinite_training(NET, X, Y, T, algorithm="gd", eta=eta)
    found = run.at(steps=steps)
    # The linear map of one step on all outputs, and the constant that the targets add.
    step = np.eye(5)
    step[:, :3] -= eta * Theta[:, :3]
    power = np.linalg.matrix_power(step, steps)
    constant = sum(
        (np.linalg.matrix_power(step, s) @ (eta * Theta[:, :3] @ Y) for s in range(steps)),
        start=np.zeros((5, 2)),
    )
    np.testing.assert_allclose(found.mean, constant[3:], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(found.train_mean, constant[:3], rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(found.covariance, (power @ K @ power.T)[3:, 3:], rtol=1e-10)
    np.testing.assert_allclose(
        found.train_covariance, (power @ K @ power.T)[:3, :3], rtol=1e-9, atol=1e-13
    )
    assert found.time == eta * steps


def test_flow_and_the_end(kernels):
    Theta, K = kernels
    run = infinite_training(NET, X, Y, T, algorithm="flow")
    inverse = np.linalg.inv(Theta[:3, :3])
    R = Theta[3:, :3] @ inverse @ (np.eye(3) - expm(-2.5 * Theta[:3, :3]))
    found = run.at(time=2.5)
    np.testing.assert_allclose(found.mean, R @ Y, rtol=1e-10)
    line = np.concatenate([-R, np.eye(2)], axis=1)
    np.testing.assert_allclose(found.covariance, line @ K @ line.T, rtol=1e-10)
    # (10.40), (10.41) as printed.
    end, R = run.at(), Theta[3:, :3] @ inverse
    np.testing.assert_allclose(end.mean, R @ Y, rtol=1e-10)
    printed = K[3:, 3:] - R @ K[:3, 3:] - K[3:, :3] @ R.T + R @ K[:3, :3] @ R.T
    np.testing.assert_allclose(end.covariance, printed, rtol=1e-10)
    np.testing.assert_allclose(end.std**2, np.diag(printed), rtol=1e-10)
    np.testing.assert_allclose(end.train_covariance, 0.0, atol=1e-12)
    assert (end.time, end.unreachable < 1e-12, end.notes) == (math.inf, True, ())
    # All algorithms end at the same place (10.35); Newton's leap is there at once.
    for algorithm, eta in (("gd", 0.2), ("two-step", None)):
        other = infinite_training(NET, X, Y, T, algorithm=algorithm, eta=eta).at()
        np.testing.assert_allclose(other.mean, end.mean, rtol=1e-12)
    long = infinite_training(NET, X, Y, T, algorithm="gd", eta=0.2).at(steps=100_000)
    np.testing.assert_allclose(long.mean, end.mean, rtol=1e-10)


def test_last_layer_alone_is_bayes():
    """(10.46)-(10.49): Θ = K when only the last layer trains, with λ = C."""
    zero = (0.0, 0.0)
    net = MLP([3, 40, 40, 2], "tanh", C_b=0.1, C_W=1.3,
              lambda_b=(*zero, 0.1), lambda_W=(*zero, 1.3))  # fmt: skip
    found = infinite_training(net, X, Y, T, algorithm="flow").at()
    K = frozen_kernels(net, np.concatenate([X, T]), layers="last").K[-1]
    posterior = K[3:, 3:] - K[3:, :3] @ np.linalg.solve(K[:3, :3], K[:3, 3:])
    np.testing.assert_allclose(found.covariance, posterior, rtol=1e-10)


def test_repeated_inputs_train_with_their_weight():
    """Merged duplicates against gradient descent on the full list, targets equal or not."""
    x = X[[0, 1, 0, 2, 0]]
    y = np.concatenate([Y[[0, 1]], Y[:1] + 0.3, Y[[2]], Y[:1]])
    eta = 0.15
    run = infinite_training(NET, x, y, T, algorithm="gd", eta=eta)
    Theta = frozen_kernels(NET, np.concatenate([x, T]), layers="last").Theta[-1]
    z = np.zeros((7, 2))
    for steps in range(1, 4001):
        z = z - eta * Theta[:, :5] @ (z[:5] - y)
        if steps == 9:
            np.testing.assert_allclose(run.at(steps=9).mean, z[5:], rtol=1e-10)
    end = run.at()
    np.testing.assert_allclose(end.mean, z[5:], rtol=1e-9)
    assert "row 0 as row 2 with another target" in end.notes[0]
    assert "row 0 as row 4" in end.notes[1]


def test_rank_deficient_kernels_give_the_flagged_minimum_norm_answer():
    # Odd σ without biases: the network cannot tell x and −x but by the sign.
    net = MLP([3, 40, 1], "tanh", C_b=0.0, C_W=1.0, lambda_b=0.0)
    x, y = np.array([[1.0, 0.2, 0.5], [-1.0, -0.2, -0.5]]), np.array([[1.0], [0.4]])
    end = infinite_training(net, x, y, T, algorithm="flow").at()
    assert end.unreachable == pytest.approx(0.7)
    assert "rank 1 of 2" in end.notes[-1]
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
    ("options", "message"),
    [
        ({"algorithm": "adam"}, "algorithm = 'adam': expected one of gd, flow, two-step"),
        ({"algorithm": "gd"}, "eta = None: gradient descent needs a step size"),
        ({"algorithm": "gd", "eta": -1.0}, "eta = -1.0"),
        ({"algorithm": "flow", "eta": 0.1}, "eta = 0.1: the algorithm 'flow' has no step size"),
        ({"algorithm": "gd", "eta": 50.0}, "the step size must be below 2/λ_max"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(InvalidValueError, match=message.replace("(", r"\(")):
        infinite_training(NET, X, Y, T, **options)


def test_refusals_of_times_and_data():
    run = infinite_training(NET, X, Y, T, algorithm="flow")
    with pytest.raises(InvalidValueError, match="steps = 3: the algorithm 'flow' has no steps"):
        run.at(steps=3)
    gd = infinite_training(NET, X, Y, T, eta=0.1)
    with pytest.raises(InvalidValueError, match="only 'flow' takes a time"):
        gd.at(time=1.0)
    with pytest.raises(InvalidValueError, match="steps = 1.5"):
        gd.at(steps=1.5)
    with pytest.raises(
        InvalidValueError, match="shape of train_y = \\(3, 1\\): expected \\(3, 2\\)"
    ):
        Problem.checked(NET, X, Y[:, :1], T)
    with pytest.raises(InvalidValueError, match="train_y\\[1, 0\\] = nan: not finite"):
        Problem.checked(NET, X, np.where(Y == -0.6, np.nan, Y), T)
    with pytest.raises(InvalidTypeError, match="train_y"):
        Problem.checked(NET, X, "targets", T)
    with pytest.raises(InvalidValueError, match="σ jumps"):
        infinite_training(MLP([3, 4, 2], "step", 0.0, 1.0), X, Y, T, algorithm="flow")
    frozen = MLP([3, 4, 2], "tanh", 0.0, 1.0, lambda_b=0.0, lambda_W=0.0)
    with pytest.raises(InvalidValueError, match="nothing can be learned"):
        infinite_training(frozen, X, Y, T, algorithm="flow")
