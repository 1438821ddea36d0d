"""NTK, dNTK and ddNTK tensors: golden numbers, exact limits, symmetries, refusals."""

import json
from pathlib import Path

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._predict import TENSORS, predict

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/tangents_two_inputs.json").read_text())
X = np.array([[1.0, 0.5, -0.7, 0.3], [0.4, -1.1, 0.2, 0.9]])
C_W = {"relu": (1.7, 1.9, 1.6, 1.8), "tanh": (1.5, 1.3, 1.7, 1.4)}
PAIR_ENTRIES = [
    (0, 0, 0, 0), (0, 0, 0, 1), (0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 1), (1, 1, 1, 1),
]  # fmt: skip
# The standard setting, also that of tests/golden/trained.json.
X3 = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
STANDARD = {
    "C_b": (0.1, 0.2, 0.15, 0.05),
    "C_W": (1.1, 1.3, 0.9, 1.2),
    "lambda_b": (0.3, 0.5, 0.2, 0.4),
    "lambda_W": (0.7, 0.6, 0.9, 0.8),
}


def standard(depth, name, widths=None):
    widths = widths or [3, *[30] * (depth - 1), 2]
    return MLP(widths, name, **{key: value[:depth] for key, value in STANDARD.items()})


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_ntk_tensors_of_two_inputs(name):
    """Nine digits of an independent computation at unequal widths and rates."""
    network = MLP(
        [4, 64, 128, 192, 2], name, (0.1, 0.2, 0.05, 0.1), C_W[name],
        (0.5, 1.2, 0.3, 0.8), (1.3, 0.6, 0.9, 1.1),
    )  # fmt: skip
    result = predict(network, X, ("K", "Theta", "G1", "H1", "V", "A", "B", "D", "F"))
    for layer, golden in GOLDEN[name].items():
        for tensor, expected in golden.items():
            values = result[tensor][int(layer) - 1]
            if values.ndim == 2:
                got = values[np.triu_indices(2)]
            elif tensor in "VA":
                got = np.array([values[entry] for entry in PAIR_ENTRIES])
            else:
                got = values.reshape(-1)
            scale = np.max(np.abs(expected)) if np.any(expected) else 1.0
            np.testing.assert_allclose(got, expected, atol=6e-9 * max(scale, 1.0), err_msg=tensor)


@pytest.mark.parametrize(
    ("name", "layer", "entry", "letters", "expected"),
    [
        (
            "tanh", 2, (0, 0, 0, 0), "PQRSTU",
            [-0.08276723, -0.04040269, -0.34681134, 0.22678458, 0.02474007, 0.08158772],
        ),
        (
            "tanh", 2, (0, 1, 1, 1), "PQRSTU",
            [0.00023758, 0.01487375, -0.00282247, 0.03239181, -0.00506636, -0.00021414],
        ),
        (
            "tanh", 3, (0, 0, 1, 0), "PQRSTU",
            [-0.07207358, -0.01951337, -0.38748859, 0.31685287, 0.03762417, 0.00597066],
        ),
        (
            "gelu", 3, (0, 0, 0, 0), "PQRSTU",
            [0.06076387, 0.37450237, -0.17475741, 0.54037570, 0.63340890, 0.11458920],
        ),
        (
            "gelu", 3, (0, 1, 1, 1), "PQRSTU",
            [0.03528600, 0.13613165, 0.02332948, 0.17295262, 0.19508520, 0.02940500],
        ),
        (
            "gelu", 3, (0, 0, 1, 0), "FABPQRSTU",
            [0.12002464, 0.34758549, 0.13266225, 0.01978434, 0.11436925, -0.05996146,
             0.18963710, 0.25588244, 0.02836216],
        ),
    ],
)  # fmt: skip
def test_dntk_and_ddntk_of_two_inputs(name, layer, entry, letters, expected):
    """Eight digits of an independent computation."""
    result = predict(standard(3, name), X3, tuple(letters))
    got = [float(result[letter][layer - 1][entry]) for letter in letters]
    np.testing.assert_allclose(got, expected, atol=2e-8)


def test_unequal_widths_of_the_ddntk():
    network = standard(4, "tanh", [3, 20, 40, 10, 2])
    result = predict(network, X3, tuple("PQRSTU"))
    expected = [-0.01700037, 0.03932989, -0.11393735, 0.29974360, -0.03043666, 0.02298450]
    got = [float(result[letter][3][0, 1, 1, 1]) for letter in "PQRSTU"]
    np.testing.assert_allclose(got, expected, atol=1e-8)


@pytest.mark.parametrize("name", ["tanh", "relu", "gelu"])
def test_training_the_last_layer_only(name):
    """λ = 0 below, λ^(L) = C^(L): Θ = K, A = D = V, B = F = 0, H1 = G1."""
    C_b, C = 0.1, 1.4
    network = MLP([4, 20, 30, 10, 2], name, C_b, C, (0, 0, 0, C_b), (0, 0, 0, C))
    result = predict(network, X, ("K", "Theta", "V", "A", "D", "B", "F", "G1", "H1"))
    np.testing.assert_allclose(result["Theta"][-1], result["K"][-1], rtol=1e-12)
    np.testing.assert_allclose(result["A"][-1], result["V"][-1], rtol=1e-10)
    np.testing.assert_allclose(result["D"][-1], result["V"][-1], rtol=1e-10)
    np.testing.assert_allclose(result["H1"][-1], result["G1"][-1], rtol=1e-9, atol=1e-13)
    assert np.all(result["B"][-1] == 0)
    assert np.all(result["F"][-1] == 0)


def test_scaling_all_rates():
    """λ → cλ scales Θ, D, F, H1 by c; A, B, P, Q by c²; R, S, T, U by c³."""
    one = standard(4, "tanh")
    two = MLP(
        one.widths, "tanh", one.C_b, one.C_W,
        [2 * v for v in one.lambda_b], [2 * v for v in one.lambda_W],
    )  # fmt: skip
    small, large = (predict(network, X3, TENSORS) for network in (one, two))
    powers = dict.fromkeys(("K", "V", "G1"), 0) | dict.fromkeys(("Theta", "D", "F", "H1"), 1)
    powers |= dict.fromkeys("ABPQ", 2) | dict.fromkeys("RSTU", 3)
    for name, power in powers.items():
        np.testing.assert_allclose(large[name], 2.0**power * small[name], rtol=1e-11, atol=1e-15)


def test_symmetries():
    """Of the definitions (8.67), (8.82), (11.45), (∞.11), (∞.12)."""
    x = np.random.default_rng(0).standard_normal((3, 3))
    result = predict(standard(4, "gelu"), x, tuple("ABDFPRSTU"))
    symmetric = {
        "A": ["bacd", "abdc", "cdab"], "D": ["bacd", "abdc"], "B": ["badc", "cdab"],
        "F": ["cdab"], "P": ["acbd"], "R": ["abdc"], "S": ["badc"], "T": ["dcba"], "U": ["cdab"],
    }  # fmt: skip
    for name, orders in symmetric.items():
        for order in orders:
            swapped = np.einsum(f"labcd->l{order}", result[name])
            np.testing.assert_allclose(
                result[name], swapped, atol=1e-5 * np.max(np.abs(result[name])), err_msg=name
            )


def test_adding_a_sample_leaves_the_old_entries_alone():
    x = np.random.default_rng(1).standard_normal((3, 3))
    few = predict(standard(4, "tanh"), x[:2], tuple("ABDFPQRSTU"))
    many = predict(standard(4, "tanh"), x, tuple("ABDFPQRSTU"))
    for name, values in few.values.items():
        part = many[name][:, :2, :2, :2, :2]
        np.testing.assert_allclose(part, values, atol=2e-7 * np.max(np.abs(values)), err_msg=name)


def test_deep_linear_closed_forms():
    """(9.49)-(9.52), (∞.46)-(∞.48) with λ = λ̃/L, K* = 1."""
    depth, b, w = 6, 0.6, 0.9
    network = MLP([2, *[9] * (depth - 1), 1], "linear", 0.0, 1.0, b / depth, w / depth)
    result = predict(network, np.ones((1, 2)), tuple("ABDFPQRSTU"))
    ell = np.arange(1, depth + 1)
    total, weight = (b + w) / depth, w / depth
    squares = ell * (ell - 1) * (2 * ell - 1) / 6
    expected = {
        "B": squares * total**2,
        "A": 2 * squares * weight**2,
        "D": ell * (ell - 1) * weight,
        "F": ell * (ell - 1) / 2 * total,
        "P": 0 * ell,
        "Q": ell * (ell**2 - 1) / 6 * total * weight,
        "R": 0 * ell,
        "S": ell**2 * (ell**2 - 1) / 12 * total**2 * weight,
        "T": ell**2 * (ell**2 - 1) / 12 * total * weight**2,
        "U": 0 * ell,
    }
    for name, values in expected.items():
        np.testing.assert_allclose(result[name].reshape(-1), values, atol=1e-12, err_msg=name)


def test_repeated_inputs_are_copies():
    x = np.stack([X3[0], X3[1], X3[0]])
    result = predict(standard(3, "tanh"), x, ("Theta", *"ABDFPQRSTU"))
    for name in "ABDFPQRSTU":
        np.testing.assert_array_equal(result[name][:, 0], result[name][:, 2])
        np.testing.assert_array_equal(result[name][..., 0], result[name][..., 2])


def test_kinked_activations_have_no_dntk_tensors():
    network = standard(3, "relu")
    assert np.all(np.isfinite(predict(network, X3, tuple("ABDF"))["A"]))
    for name in "PQRSTU":
        with pytest.raises(InvalidValueError, match="kink"):
            predict(network, X3, (name,))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elu", "softsign"])
def test_a_jump_of_the_second_derivative_spares_all(name):
    """One input, two layers: P = C_W² Θ² ⟨σσ'²σ''⟩, R, S and U by quadrature on the two sides."""
    network = standard(2, name)
    result = predict(network, X3[:1], ("K", "Theta", *"PQRSTU"))
    K, Theta = result["K"][0, 0, 0], result["Theta"][0, 0, 0]
    sigma, C, lam = network.activation, network.C_W[1], network.lambda_W[1]
    nodes, weights = np.polynomial.legendre.leggauss(200)
    t = 6.0 * (nodes + 1.0)
    weights = 6.0 * weights * np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)

    def average(*orders):
        z = np.sqrt(K) * np.stack([t, -t])
        return float(np.sum(weights * np.prod([sigma.values(z, p) for p in orders], axis=0)))

    expected = {
        "P": C**2 * Theta**2 * average(0, 1, 1, 2),
        "S": lam * C * Theta**2 * average(1, 1, 1, 1) + C**2 * Theta**3 * average(1, 1, 2, 2),
        "U": C**2 * Theta**3 * average(1, 1, 2, 2),
    }
    # The jump of σ'' at 0 is a delta in its derivative, and counts with the slope there.
    delta = sigma.kinks[0].jumps[2] / np.sqrt(2.0 * np.pi * K)
    third = average(1, 1, 1, 3) + delta * sigma.values(np.array(1e-300), 1) ** 3
    expected["R"] = lam * C * Theta**2 * average(0, 1, 1, 2) + C**2 * Theta**3 * third
    for letter, value in expected.items():
        np.testing.assert_allclose(result[letter][1].item(), value, rtol=1e-10, err_msg=letter)


def test_errors_come_with_many_kinked_inputs():
    x = np.random.default_rng(2).standard_normal((4, 3))
    result = predict(standard(3, "relu"), x, ("V", "B"), accuracy=1e-3)
    other = predict(standard(3, "relu"), x, ("V", "B"), accuracy=1e-3, seed=100)
    for name in "VB":
        error = np.hypot(result.errors[name], other.errors[name])
        assert np.any(error > 0)
        assert np.all(np.abs(result[name] - other[name]) <= 5 * error + 1e-9)


def test_a_strongly_fluctuating_ntk_is_flagged():
    deep = MLP([3, *[12] * 15, 1], "relu", 0.0, 2.0, 0.1, 1.0)
    result = predict(deep, X3, ("Theta", "A", "B"))
    assert result.regime.numbers["ntk_fluctuation"] > 0.5
    assert result.regime.verdict == "do not use"
