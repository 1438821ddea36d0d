"""Order 1/n of trained networks: golden numbers, exact limits, refusals."""

import functools
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from dynagram.data import Data
from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.theory.training import _outputs as outputs_module
from dynagram.training import GradientDescent, GradientFlow, Training, TwoStep

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/trained.json").read_text())
TRAIN = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
TARGETS = np.array([[0.9, -0.45], [-0.6, 0.7]])
TESTS = np.array([[0.8, 0.6, -0.9], [-1.0, 1.5, -0.8], [1.5, 1.0, 1.4], [0.2, -1.3, 0.9]])
PER_LAYER = {
    "C_b": (0.10, 0.20, 0.15, 0.05),
    "C_W": (1.1, 1.3, 0.9, 1.2),
    "lambda_b": (0.3, 0.5, 0.2, 0.4),
    "lambda_W": (0.7, 0.6, 0.9, 0.8),
}
PARTS = ("ΔNTK", "dNTK", "ddI", "ddII")


def sincos(z):
    return jnp.sin(z) + 0.3 * (1.0 - jnp.cos(z))


def standard(depth, outputs, activation="tanh", width=64):
    """The standard setting of tests/golden/trained.json."""
    sigma = sincos if activation == "sincos" else activation
    per_layer = {name: values[:depth] for name, values in PER_LAYER.items()}
    return MLP([3, *[width] * (depth - 1), outputs], sigma, **per_layer)


@pytest.fixture(autouse=True, scope="module")
def tensors_once():
    """The costly part, which no algorithm and no target changes, is computed once per problem."""
    compute, found = outputs_module.output_tensors, {}

    def once(network, inputs, frozen, **options):
        key = (network, inputs.tobytes(), *options.items())
        if key not in found:
            found[key] = compute(network, inputs, frozen, **options)
        return found[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outputs_module, "output_tensors", once)
        yield


def trained(depth, outputs, activation, samples, tests, algorithm, eta):
    """The prediction of a golden case."""
    net = golden_network(depth, outputs, activation)
    data = Data(TRAIN[:samples], TARGETS[:samples, :outputs], TESTS[list(tests)])
    return predict_outputs(net, data, how(algorithm, eta), accuracy=1e-9)


@functools.cache
def golden_network(depth, outputs, activation):
    return standard(depth, outputs, activation)


def how(algorithm="gd", eta=None):
    if algorithm == "gd":
        return Training(GradientDescent(eta))
    return Training({"flow": GradientFlow, "two-step": TwoStep}[algorithm]())


def numbered(case):
    return "-".join(str(case[key]) for key in case if key not in ("values", "entries"))


@pytest.mark.parametrize("case", GOLDEN["means"], ids=numbered)
def test_golden_means(case):
    n = case["train"]
    found = trained(case["depth"], n, "tanh", n, (2,), case["algorithm"], case["eta"])
    i = case["output"]
    parts = [found.mean_parts[name][0, i] for name in PARTS]
    # The reference's own quadrature is good to 1e-7.
    np.testing.assert_allclose([*parts, sum(parts)], case["values"], atol=1.2e-7)
    total = sum(parts) + found.mean_parts["H1"][0, i]
    np.testing.assert_allclose(found.mean_correction[0, i], total, rtol=1e-12)
    if n == 2:
        kernel = GOLDEN["kernel_means"][str(case["depth"])]
        np.testing.assert_allclose(found.mean_infinite[0], kernel, atol=1e-8)
        shift = GOLDEN["ntk_shift"] if case["depth"] == 3 else [0.0, 0.0]
        np.testing.assert_allclose(found.mean_parts["H1"][0], shift, atol=1e-8)


@pytest.mark.parametrize("case", GOLDEN["two_samples"], ids=numbered)
def test_golden_covariance_and_wiring(case):
    problem = (case["depth"], 2, case["activation"], 2, (2,))
    found = trained(*problem, case["algorithm"], case["eta"])
    for (i, j), entries in zip([(0, 0), (0, 1), (1, 1)], case["entries"], strict=True):
        check_entry(found, (0, i, 0, j), entries)
        check_entry(found, (0, j, 0, i), entries)


@pytest.mark.parametrize("case", GOLDEN["one_sample"], ids=numbered)
def test_golden_covariance_between_test_points(case):
    problem = (case["depth"], 1, case["activation"], 1, (2, 3))
    found = trained(*problem, case["algorithm"], case["eta"])
    for (a, b), entries in zip([(0, 0), (0, 1), (1, 1)], case["entries"], strict=True):
        check_entry(found, (a, 0, b, 0), entries)


def check_entry(found, place, entries):
    columns = GOLDEN["covariance_columns"][1:-1]
    values = [found.covariance_infinite[place]]
    values += [found.covariance_parts[name][place] for name in columns]
    values.append(found.covariance_correction[place])
    np.testing.assert_allclose(values, entries, atol=2e-9)


def test_results_are_what_their_parts_say():
    found = trained(3, 2, "tanh", 2, (2,), "gd", 0.5)
    assert found.width == 64
    np.testing.assert_allclose(found.mean, found.mean_infinite + found.mean_correction / 64)
    np.testing.assert_allclose(
        found.covariance, found.covariance_infinite + found.covariance_correction / 64
    )
    np.testing.assert_allclose(found.std**2, np.einsum("titi->ti", found.covariance))
    assert np.max(found.error) < 1e-8 / 64
    assert found.regime.order == "1/n"
    assert found.regime.numbers["eta_times_largest_eigenvalue"] < 2.0


def test_training_points_and_repetitions():
    """Nothing moves at a training input; a repeated input counts with its weight."""
    net = standard(2, 1)
    x, y = TRAIN, np.array([[0.9], [-0.6]])
    tests = np.concatenate([x[:1], TESTS[2:3]])
    found = predict_outputs(net, Data(x, y, tests), how("flow"))
    np.testing.assert_allclose(found.mean_correction[0], 0.0, atol=1e-12)
    np.testing.assert_allclose(found.covariance_correction[0], 0.0, atol=1e-12)
    assert found.std[0, 0] == 0.0
    # Two copies of one input at step η are one input at 2η, when it is the only one.
    once = predict_outputs(net, Data(x[:1], y[:1], tests[1:]), how("gd", 0.5))
    twice = predict_outputs(net, Data(x[[0, 0]], y[[0, 0]], tests[1:]), how("gd", 0.25))
    np.testing.assert_allclose(twice.mean_correction, once.mean_correction, rtol=1e-10)
    np.testing.assert_allclose(twice.covariance_correction, once.covariance_correction, rtol=1e-9)
    assert "repeats row 0 as row 1" in twice.notes[0]
    other = predict_outputs(net, Data(x[[0, 0]], [0.5, 1.3], tests[1:]), how("gd", 0.25))
    np.testing.assert_allclose(other.mean_correction, once.mean_correction, rtol=1e-10)
    assert "with another target" in other.notes[0]


def test_only_the_last_layer_trained():
    """(∞.173): a linear model. Only the NTK's variance is left, and Bayes's rule to order 1/n."""
    zero = (0.0,)
    net = MLP([3, 32, 2], "tanh", C_b=(0.1, 0.2), C_W=(1.1, 1.3),
              lambda_b=(*zero, 0.2), lambda_W=(*zero, 1.3))  # fmt: skip
    found = predict_outputs(net, Data(TRAIN, TARGETS, TESTS[2:]), how("gd", 0.5))
    for name in ("dNTK", "ddI", "ddII"):
        np.testing.assert_allclose(found.mean_parts[name], 0.0, atol=1e-14)
        np.testing.assert_allclose(found.covariance_parts[name], 0.0, atol=1e-14)
    assert np.max(np.abs(found.mean_parts["ΔNTK"])) > 1e-3
    # Then Ĥ = Ĝ and z_β(T) is Gaussian given the hidden layer: mean Ĝ_β Ĝ⁻¹ y, and the average
    # over hidden layers to second order in ΔĜ needs V alone.
    from dynagram.theory._predict import predict

    tensors = predict(net, np.concatenate([TRAIN, TESTS[2:]]), ("K", "V"), accuracy=1e-8)
    K, V = tensors["K"][-1], tensors["V"][-1]
    inverse, M = np.linalg.inv(K[:2, :2]), np.eye(4)[2:]
    M = M - np.concatenate([K[2:, :2] @ inverse, np.zeros((2, 2))], axis=1)
    v = inverse @ TARGETS
    shift = -np.einsum("td,daeb,ae,bc,ci->ti", M, V[:, :2, :2, :2], inverse, inverse, TARGETS)
    np.testing.assert_allclose(found.mean_correction, shift, rtol=1e-6)
    schur = -np.einsum("td,se,daeb,ab->ts", M, M, V[:, :2, :, :2], inverse)
    spread = np.einsum("td,se,daeb,ai,bj->tisj", M, M, V[:, :2, :, :2], v, v)
    expected = np.einsum("ts,ij->tisj", schur, np.eye(2)) + spread
    np.testing.assert_allclose(found.covariance_correction, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("network", "eta", "message"),
    [
        (MLP([3, 8, 1], "relu", 0.0, 2.0), 0.1, "'relu': the order 1/n of .* order=\"infinite\""),
        (MLP([3, 1], "tanh", 0.0, 1.0), 0.1, "without a hidden layer there is no 1/n"),
        (MLP([3, 8, 1], "tanh", 0.0, 1.0), 9.0, "gradient descent diverges: the largest"),
        (MLP([3, 8, 8, 1], "tanh", 0.0, 1.0, skip=0.5), 0.1, "the order 1/n .* without skips"),
    ],
)
def test_refusals(network, eta, message):
    with pytest.raises(InvalidValueError, match=message):
        predict_outputs(network, Data(TRAIN, TARGETS[:, :1], TESTS), how("gd", eta))


def test_dependent_inputs_are_refused_by_name():
    net = MLP([3, 8, 1], "tanh", C_b=0.0, C_W=1.0, lambda_b=0.0)
    data = Data(np.concatenate([TRAIN, -TRAIN[:1]]), np.ones(3), TESTS)
    with pytest.raises(InvalidValueError, match="rank deficient, most of all along .* 0 and 2"):
        predict_outputs(net, data, how("flow"))


def test_verdicts():
    def verdict(width, size):
        net = standard(3, 1, width=width)
        y = size * np.array([[0.9], [-0.6]])
        return predict_outputs(net, Data(TRAIN, y, TESTS[2:3]), how("gd", 0.5)).regime

    assert verdict(2048, 1.0).verdict == "trust"
    assert verdict(8, 3.0).verdict == "do not use"
    assert "widen the network" in str(verdict(8, 3.0))
