"""Any loss at order 1/n: closed forms of a squared error, printed numbers, symmetry, refusals."""

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.training import _dynamics
from dynagram.theory.training._dynamics import (
    PARTS,
    Answers,
    FiniteWidth,
    FrozenMoments,
    frozen_moments,
)
from dynagram.theory.training._kernel_change import kernel_change
from dynagram.theory.training._nodes import draw_nodes
from dynagram.theory.training._optimisers import Optimiser
from dynagram.theory.training._path_problem import PathProblem, Targets
from dynagram.theory.training._path_regime import left_out_over_correction, square_over_shift
from dynagram.theory.training._path_statistics import Statistics
from dynagram.theory.training._tensors import output_tensors
from dynagram.training import GradientDescent, GradientFlow, Optax, Training

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
Y = np.array([[0.9, -0.45], [-0.6, 0.7]])
TEST = np.array([[0.8, 0.6, -0.9]])
NET = MLP([3, 64, 64, 2], "tanh", C_b=0.1, C_W=1.3, lambda_b=0.3, lambda_W=0.9)


def answers_of(net, x, test, y, loss, optimiser, moments, accuracy=1e-4, batch=None):
    inputs = np.concatenate([x, test])
    frozen = frozen_kernels(net, inputs)
    tensors = output_tensors(net, inputs, frozen, accuracy=accuracy, seed=0)
    n = len(x)
    problem = PathProblem(
        frozen.Theta[-1], frozen.K[-1], n, Targets(y, np.arange(n)), None, loss, optimiser, moments,
        batch,
    )  # fmt: skip
    limit = frozen_moments(problem)
    return problem, limit, FiniteWidth(problem, limit)(tensors.mode(0)), tensors


def check_closed_forms(how, optimiser, tolerance):
    """All parts of mean and covariance, on training and test inputs, at two moments."""
    closed = predict_outputs(NET, Data(X, Y, test_x=TEST), how)
    problem, limit, found, tensors = answers_of(NET, X, TEST, Y, how.loss, optimiser, how.recorded)
    np.testing.assert_allclose(limit.mean.value, closed.infinite_mean, atol=tolerance)
    kernel = np.einsum("xts,ij->xtisj", closed.infinite_kernel, np.eye(2))
    np.testing.assert_allclose(limit.covariance.value, kernel, atol=tolerance)
    for name in PARTS:
        expected = closed.parts_of_mean.get(name, np.zeros_like(found.means[name]))
        np.testing.assert_allclose(found.means[name], expected, atol=tolerance, err_msg=name)
    same = {name: (name,) for name in ("zΔH", "dNTK", "ddI", "ddII")}
    for name, parts in {**same, "ΔNTK": ("ΔHΔH", "zΔHΔH")}.items():
        expected = sum(closed.parts_of_covariance[part] for part in parts)
        assert np.max(np.abs(expected)) > 0.05
        np.testing.assert_allclose(found.covariances[name], expected, atol=tolerance, err_msg=name)
    shifted = found.covariances["H1"] + found.covariances["start"]
    np.testing.assert_allclose(shifted, closed.parts_of_covariance["H1"], atol=tolerance)
    groups = {name: values[0] for name, values in found.coefficients.items()}
    moved = sum(kernel_change(tensors.mode(0), groups, slice(2, None)).values())
    ntk = closed.estimates["ntk_change"].value
    np.testing.assert_allclose(moved, ntk, atol=tolerance)
    # E L = ½ Σ (m − y)² + ½ Σ Var, to order 1/n.
    factor = 1.0 if how.loss == "half-sum" else 2.0 / Y.size
    gap = limit.mean.value[:, :2] - Y
    spread = np.einsum("tsisi->t", found.covariance.value[:, :2, :, :2])
    shift = np.einsum("tsi,tsi->t", gap, found.mean.value[:, :2]) + 0.5 * spread
    np.testing.assert_allclose(found.loss.value[:, 0], factor * shift, atol=10 * tolerance)
    np.testing.assert_allclose(sum(found.losses.values()), found.loss.value, atol=1e-12)
    # Only the mean enters quadratically.
    square = 0.5 * factor * np.sum(found.mean.value[:, :2] ** 2, axis=(1, 2)) / 50**2
    scale = np.maximum.accumulate(np.abs(found.loss.value[:, 0])) / 50
    ratio = square_over_shift(problem, limit, found, 50)
    np.testing.assert_allclose(ratio, square / scale, atol=100 * tolerance)


@pytest.mark.slow
def test_gradient_descent_equals_closed_forms():
    how = Training(GradientDescent(0.6), loss="mean", steps=7, record=[2, 7])
    check_closed_forms(how, Optimiser(0.6), 1e-13)


@pytest.mark.slow
def test_gradient_flow_equals_closed_forms():
    check_closed_forms(Training(GradientFlow(), time=3.0, record=[0.7]), Optimiser(None), 1e-7)


@pytest.mark.slow
def test_logistic_loss_against_printed_numbers():
    """One training and one test input, found with finite differences in 1/n; the NTK moves too."""
    net = MLP([3, 64, 64, 1], "tanh", C_b=0.0, C_W=1.5, lambda_b=0.0, lambda_W=0.9)
    x, test = np.array([[0.7, -1.1, 0.4]]), np.array([[0.2, 0.9, -0.8]])
    how = Training(GradientFlow(), loss="logistic", time=6.0, record=[2.0])
    found = predict_outputs(net, Data(x, [1.0], test_x=test), how, accuracy=1e-6)
    expected = [[0.735435, -0.439618], [1.588905, -0.949792]]
    np.testing.assert_allclose(found.samples.means_infinite[..., 0], expected, atol=1e-6)
    both = {**found.parts_of_mean}
    both["ddI"] = both["ddI"] + both.pop("ddII")
    table = {
        "H1": ([[-0.04018, 0.04921], [-0.06266, 0.09189]], 1e-5),
        "zΔH": ([[0.0059, -0.0058], [0.001, -0.0058]], 6e-4),
        "dNTK": ([[0.1938, -0.0294], [0.580, 0.0151]], 2e-4),
        "ddI": ([[-0.2156, 0.0362], [-1.710, 0.1272]], 2e-4),
        "ΔNTK": ([[-0.21313, 0.10830], [-0.6576, 0.3032]], 5e-5),
        "start": ([[-0.00161, 0.00096], [-0.00226, 0.00135]], 1e-5),
    }
    for name, (values, tolerance) in table.items():
        np.testing.assert_allclose(both[name][..., 0], values, atol=tolerance, err_msg=name)
    # The mirror image: an odd activation without biases, and the other label.
    mirror = predict_outputs(net, Data(x, [-1.0], test_x=test), how, accuracy=1e-6)
    np.testing.assert_allclose(mirror.samples.means, -found.samples.means, atol=1e-8)
    np.testing.assert_allclose(mirror.samples.covariances, found.samples.covariances, atol=1e-8)
    assert found.regime is not None
    assert found.regime.verdict == "trust"


def test_momentum_of_one_step_is_gradient_descent():
    """The first step has no memory; after two it has, and Nesterov looks ahead in the first."""
    data, found = Data(X, Y, test_x=TEST), {}
    for name, algorithm in (
        ("gd", GradientDescent(0.3)),
        ("momentum", Optax("momentum", 0.3, momentum=0.5)),
        ("nesterov", Optax("momentum", 0.3, momentum=0.5, nesterov=True)),
    ):
        how = Training(algorithm, steps=2, record=[1, 2])
        found[name] = predict_outputs(NET, data, how, order="infinite").samples.means
    np.testing.assert_allclose(found["momentum"][0], found["gd"][0], atol=1e-13)
    # By hand: the second step of momentum is η(ε₁ + μ ε₀).
    frozen = frozen_kernels(NET, np.concatenate([X, TEST]), layers="last").Theta[-1][:, :2]
    first = 0.3 * frozen @ Y
    np.testing.assert_allclose(found["momentum"][0], first, atol=1e-13)
    np.testing.assert_allclose(found["nesterov"][0], 1.5 * first, atol=1e-13)
    second = first + 0.3 * frozen @ (Y - first[:2]) + 0.15 * frozen @ Y
    np.testing.assert_allclose(found["momentum"][1], second, atol=1e-13)


@pytest.mark.slow
def test_random_directions_tell_their_error(monkeypatch):
    """Where all directions at all nodes are too many: within an error that is not zero."""
    problem = (NET, X, TEST, Y, "half-sum", Optimiser(0.3), (3,))
    _, _, exact, _ = answers_of(*problem)
    monkeypatch.setattr(_dynamics, "_MOST_EXACT", 0)
    _, _, drawn, _ = answers_of(*problem)
    for one, other in ((exact.mean, drawn.mean), (exact.covariance, drawn.covariance)):
        assert not np.any(one.error)
        assert np.all(other.error[0, :2] > 0.0)
        size = np.sqrt(np.mean(other.error**2))
        assert np.sqrt(np.mean((other.value - one.value) ** 2)) < 2.0 * size
        assert size < 0.05 * np.max(np.abs(one.value))


@pytest.mark.slow
def test_a_given_batch_schedule_of_all_samples_is_gradient_descent():
    _, limit, found, _ = answers_of(
        NET, X, TEST, Y, "half-sum", Optimiser(0.3), (3,), batch=((0, 1), (1, 0))
    )
    closed = predict_outputs(NET, Data(X, Y, test_x=TEST), Training(GradientDescent(0.3), steps=3))
    np.testing.assert_allclose(limit.mean.value, closed.infinite_mean, atol=1e-13)
    expected = np.sum(list(closed.parts_of_mean.values()), axis=0)
    np.testing.assert_allclose(found.mean.value, expected, atol=1e-12)


@pytest.mark.slow
def test_kernel_change_after_one_step():
    """One step from the coefficients by hand: a = ηε, b = 0, E[u ε] = 1, E[ε ε] = K + yy."""
    problem, _, found, tensors = answers_of(NET, X, TEST, Y, "half-sum", Optimiser(0.3), (1,))
    mode, eta, n = tensors.mode(0), 0.3, 2
    ua = np.einsum("sa,ij->siaj", np.eye(3)[:, :n], eta * np.eye(2))
    square = np.einsum("ab,ij->aibj", problem.K[:n, :n], np.eye(2))
    aa = eta**2 * (square + np.einsum("ai,bj->aibj", Y, Y))
    for name, values in (("ua", ua), ("aa", aa), ("b", np.zeros_like(aa))):
        np.testing.assert_allclose(found.coefficients[name][0, 0], values, atol=1e-12)
    change = kernel_change(mode, {k: v[0] for k, v in found.coefficients.items()}, slice(None))
    P, Q = (np.asarray(mode[name]) for name in "PQ")
    # Two equal samples and outputs: −2 η Σ_a (P_00aa + 2·…), read off (11.45).
    expected = -2.0 * eta * sum(P[0, 0, a, a] + 2 * Q[0, 0, a, a] + Q[0, a, 0, a] for a in range(n))
    np.testing.assert_allclose(change["dNTK"][0, 0, 0, 0, 0], expected, rtol=1e-10)


def test_nodes_are_exact_for_polynomials():
    nodes = draw_nodes(2, 3, polynomial=True, count=8, seed=0)
    assert nodes.is_exact
    x, w = nodes.xi, nodes.weights
    for powers, expected in (
        ((2, 2, 0, 0, 0), 1.0), ((0, 4, 0, 0, 0), 3.0), ((1, 1, 1, 1, 0), 0.0),
        ((0, 0, 0, 2, 2), 1.0), ((1, 0, 3, 1, 0), 0.0),
    ):  # fmt: skip
        assert abs(w @ np.prod(x ** np.array(powers), axis=1) - expected) < 1e-12
    sobol = draw_nodes(5, 3, polynomial=False, count=64, seed=0)
    assert (sobol.groups, sobol.xi.shape) == (8, (512, 8))
    assert (sobol.only(1).groups, sobol.only(1).is_exact) == (1, False)  # else all directions
    halves = sobol.xi[:64], sobol.xi[64:128]
    assert not np.allclose(*halves)


@pytest.mark.parametrize("loss", ["cross-entropy", "half-sum"])
def test_what_is_left_out_where_parts_cancel(loss):
    """Σ|parts| (1 + 0.9) times the parameter over what does not cancel (0.1), by hand."""
    n_A, width = 2, 50
    y, K = np.array([[1.0, 0.0], [0.0, 1.0]]), np.eye(3)
    targets = Targets(y, np.arange(n_A))
    problem = PathProblem(K, K, n_A, targets, None, loss, Optimiser(0.1), (1, 5))
    nothing, one = np.zeros((2, 3, 2)), np.ones((2, 3, 2))
    covariance = np.zeros((2, 3, 2, 3, 2))
    mean = nothing.copy()
    mean[1, :n_A] = y - 0.05  # at step 5 this much is left of the errors
    no_loss = Statistics(np.zeros((2, 1)), np.zeros((2, 1)))
    nodes = draw_nodes(4, 2, polynomial=True, count=8, seed=0)
    limit = FrozenMoments(
        nodes, nothing[None], Statistics(mean, nothing), Statistics(covariance, covariance),
        no_loss, no_loss, np.full((2, 3), 2.0),
    )  # fmt: skip
    sizes = dict.fromkeys(PARTS, 0.0) | {"H1": 1.0, "dNTK": -0.9, "ddI": 7.0, "ddII": -7.0}
    means = {name: size * one for name, size in sizes.items()}
    losses = {name: -2.0 * size * np.ones((2, 1)) for name, size in sizes.items()}
    held = Statistics(0.1 * one, nothing)
    answers = Answers(
        means, {}, losses, held, limit.covariance, no_loss, no_loss, {}
    )  # fmt: skip
    outputs, of_loss = left_out_over_correction(problem, limit, answers, width)
    parameter = np.full(2, 1.9 / width / 2.0)
    if loss == "half-sum":
        to_go = np.array([np.sqrt(np.mean(y**2)), 0.05])
        parameter = np.maximum(parameter, 1.9 / width / (2.0 * to_go))
    np.testing.assert_allclose(outputs, parameter * 19.0, rtol=1e-12)
    np.testing.assert_allclose(of_loss, parameter * 19.0, rtol=1e-12)


@pytest.mark.slow
def test_the_law_of_initial_outputs():
    """G1 and V by Edgeworth's weights, ½ G1:He₂ + ⅛ V:He₄, on a grid, against "start"."""
    net = MLP([3, 24, 24, 1], "tanh", C_b=0.1, C_W=1.5, lambda_b=0.5, lambda_W=1.0)
    x, test, steps = X[:1], X[1:], 6
    how = Training(GradientDescent(2.0), loss="logistic", steps=steps)
    found = predict_outputs(net, Data(x, [1.0], test_x=test), how)
    both = np.concatenate([x, test])
    frozen = frozen_kernels(net, both)
    K, Theta = frozen.K[-1], frozen.Theta[-1][:, :1]
    tensors = output_tensors(net, both, frozen, accuracy=1e-4, seed=0).mode(0)
    nodes, w = np.polynomial.hermite_e.hermegauss(60)
    w = w / w.sum()
    xi = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    z = xi @ np.linalg.cholesky(K).T
    a = np.zeros((len(z), 1))
    for _ in range(steps):
        a = a - 2.0 / (1.0 + np.exp(z[:, :1] - a @ Theta[:1].T))
    path = z - a @ Theta.T
    inverse = np.linalg.inv(K)
    u = z @ inverse
    second = np.einsum("na,nb->nab", u, u) - inverse[None]
    fourth = np.einsum("na,nb,nc,nd->nabcd", u, u, u, u)
    for pair in ("ab,ncnd", "ac,nbnd", "ad,nbnc", "bc,nand", "bd,nanc", "cd,nanb"):
        left, right = pair.split(",")
        fourth -= np.einsum(f"{left},{right[:2]},{right[2:]}->nabcd", inverse, u, u)
    for pair in ("ab,cd", "ac,bd", "ad,bc"):
        fourth += np.einsum(f"{pair}->abcd", inverse, inverse)[None]
    weights = np.outer(w, w).ravel()
    shift = 0.5 * np.einsum("ab,nab->n", tensors["G1"], second)
    vertex = 0.125 * np.einsum("abcd,nabcd->n", tensors["V"], fourth)
    expected = (weights * (shift + vertex)) @ path
    np.testing.assert_allclose(found.parts_of_mean["start"][0, :, 0], expected, rtol=1e-6)
    without = (weights * shift) @ path
    assert np.all(np.abs(without - expected) > 0.05 * np.abs(expected))


def test_smoothed_labels_are_reached():
    """With smoothing a cross-entropy ends at q = p, at infinite width and any initialisation."""
    data = Data.of_classes(X, [0, 1], test_x=TEST, smoothing=0.2)
    how = Training(GradientDescent(2.0), loss="cross-entropy", steps=600)
    found = predict_outputs(NET, data, how, order="infinite")
    z = found.train.mean
    q = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(q, data.y, atol=1e-6)
    assert found.infinite_covariance is not None
    gap = found.train.covariances[0, :, 0] - found.train.covariances[0, :, 1]
    np.testing.assert_allclose(gap, 0.0, atol=1e-6)  # z_0 − z_1 is the same in every network
    assert np.all(found.train.std > 0.1)  # their sum is not moved at all
    entropy = -np.sum(data.y * np.log(data.y)) / 2
    assert found.estimates["loss"].value[0] == pytest.approx(entropy, abs=1e-6)


def test_too_many_samples_are_refused():
    x = np.random.default_rng(0).normal(size=(65, 3))
    how = Training(GradientDescent(0.1), loss="mean", steps=2, batch=3)
    with pytest.raises(InvalidValueError, match="number of samples = 65: at most 64"):
        predict_outputs(NET, Data(x, np.zeros((65, 2))), how)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Training(Optax("adam", 0.1), steps=3), "algorithm = 'adam': its steps are not linear"),
        (Training(GradientDescent(0.1), steps=3, weight_decay=0.1), "weight_decay = 0.1: .*θ·∂z"),
        (Training(GradientDescent(0.1), loss="cross-entropy"), "steps = inf: .*give steps"),
        (Training(GradientFlow(), loss="logistic"), "time = inf: .*give a time"),
        (Training(GradientDescent(0.1), loss="logistic", steps=1), r"y\[0\] = .*are 1 and −1"),
        (Training(GradientDescent(0.1), steps=3, batch=3), "batch = 3: there are 2 samples"),
    ],
)
def test_refusals(how, message):
    with pytest.raises(InvalidValueError, match=message):
        predict_outputs(NET, Data(X, Y, test_x=TEST), how)
