"""The Gram chain against drawn networks: tensors, and outputs after training.

The ensembles are those of `benchmarks/chain_ensembles.py`: 100 000 to 400 000 networks each. What
a measured tensor has beyond the order predicted is a series in 1/n: three widths extrapolate to
(8 m(128) − 6 m(64) + m(32))/3, which leaves 1/n³, two to 2 m(128) − m(64), which leaves 1/n².
"""

import json
from pathlib import Path

import numpy as np
import pytest

from dynagram import Data, GradientDescent, Training, predict, predict_outputs, simulate
from dynagram.networks._network import network_from_toml
from dynagram.theory.chain import chain_kernels

GOLDEN = Path(__file__).parents[1] / "golden"
ABOUT = json.loads((GOLDEN / "chain_ensembles.json").read_text())
LOW = ("V", "G1", "H1", "A", "B", "D", "F")
HIGH = ("P", "Q", "R", "S", "T", "U")


@pytest.fixture(scope="module")
def measured():
    with np.load(GOLDEN / "chain_ensembles.npz") as arrays:
        return dict(arrays)


def extrapolated(measured, name, letter):
    """The value at large width from those at 32 (if there), 64 and 128, and its standard error."""
    weights = {128: 2.0, 64: -1.0}
    if f"{name}/32/{letter}" in measured:
        weights = {128: 8.0 / 3.0, 64: -2.0, 32: 1.0 / 3.0}
    value = sum(w * measured[f"{name}/{n}/{letter}"] for n, w in weights.items())
    variance = sum(
        (w * measured[f"{name}/{n}/{letter}/error"].astype(float)) ** 2 for n, w in weights.items()
    )
    return value, np.sqrt(variance), len(weights)


def check_letters(measured, name, letters, samples=2):
    network = network_from_toml(ABOUT[f"{name}/128"]["network"])
    T = predict(network, measured[f"{name}/128/x"][:samples], letters)
    for letter in letters:
        value, error, widths = extrapolated(measured, name, letter)
        first = (slice(samples),) * value.ndim
        value, error = value[first], error[first]
        predicted, scale = T[letter][0], np.max(np.abs(T[letter]))
        # Entries that no network varies in (norms) are exact: rounding is not compared.
        error = np.sqrt(error**2 + T.error(letter)[0] ** 2 + (1e-9 * scale) ** 2)
        # What two widths leave, 1/n² of the coefficients seen here, is below 2e-3 of the scale.
        left = 2e-3 * scale if widths == 2 else 0.0
        z = np.abs(value - predicted) / (error + left)
        assert z.max() < 4.0, (letter, float(z.max()))
        resolved = np.max(np.abs(predicted) / error)
        if letter not in ("G1", "H1"):
            assert resolved > 8.0, letter  # a factor of two would be seen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual", "swiglu", "post-norm", "layer-norm"])
def test_tensors_up_to_F(measured, name):
    check_letters(measured, name, LOW)


@pytest.mark.parametrize("name", ["residual", "conv"])
@pytest.mark.slow
def test_all_tensors(measured, name):
    check_letters(measured, name, (*LOW, *HIGH))


@pytest.mark.slow
@pytest.mark.parametrize("samples", [1, 2])
def test_tensors_of_attention(measured, samples):
    check_letters(measured, "attention", (*LOW[:1], *LOW[3:], *HIGH), samples)


@pytest.mark.slow
def test_shifts_of_attention(measured):
    """n(mean − infinite width), with heads sampled well enough for n times their error to count.

    The stored G1 and H1 were taken from fewer heads; the means of K and Θ are compared instead.
    """
    network = network_from_toml(ABOUT["attention/128"]["network"])
    x = measured["attention/128/x"]
    infinite = chain_kernels(network, x, head_samples=2**17)
    T = predict(network, x, ("G1", "H1"))
    for letter, name, at, error_at in (
        ("G1", "K", infinite.K, infinite.K_error),
        ("H1", "Theta", infinite.Theta, infinite.Theta_error),
    ):
        inverse_variance, weighted = 0.0, 0.0
        for n in (32, 64, 128):
            value = n * (measured[f"attention/{n}/{name}"] - at)
            error = n * np.hypot(measured[f"attention/{n}/{name}/error"].astype(float), error_at)
            both = np.hypot(error, T.error(letter)[0])
            assert np.max(np.abs(value - T[letter][0]) / both) < 4.0, (letter, n)
            inverse_variance, weighted = inverse_variance + error**-2, weighted + value * error**-2
        if letter == "H1":  # seen, all widths together
            assert np.max(np.abs(weighted) / np.sqrt(inverse_variance)) > 8.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual", "conv", "attention"])
def test_trained_outputs(measured, name):
    """Order 1/n is at least three times closer than infinite width, and the rest falls as n⁻²."""
    corrections = {}
    for n in (64, 128):
        about = ABOUT[f"{name}/{n}"]["trained"]
        x = measured[f"{name}/{n}/trained_x"]
        data = Data(x[:2], about["y"], test_x=x[2:])
        how = Training(GradientDescent(about["eta"]), steps=about["steps"])
        y = predict_outputs(network_from_toml(about["network"]), data, how)
        for kind, infinite, predicted in (
            ("mean", y.mean_infinite, y.mean),
            ("variance", y.covariance_infinite, y.covariance),
        ):
            value, error = about[kind], about[f"{kind}_error"]
            far, near = (abs(value - float(z.ravel()[0])) for z in (infinite, predicted))
            if far > 9.0 * error:
                assert near < far / 3.0 + 3.0 * error, (kind, n)
            corrections[kind, n] = n * (value - float(infinite.ravel()[0])), n * error
            corrections[kind] = n * float((predicted - infinite).ravel()[0])
    for kind in ("mean", "variance"):
        (narrow, e_narrow), (wide, e_wide) = corrections[kind, 64], corrections[kind, 128]
        value, error = 2.0 * wide - narrow, np.hypot(2.0 * e_wide, e_narrow)
        # Two widths leave a few per cent of the correction, as in the n-scan of the tensors.
        assert abs(value - corrections[kind]) < 4.0 * error + 0.1 * abs(corrections[kind])


@pytest.mark.slow
def test_a_fresh_ensemble():
    """What is measured here and now agrees too: 16 and 32 channels, all letters but the noisy."""
    letters = ("V", "B", "D", "Q", "R", "S", "T")
    networks = {n: _narrow(n) for n in (16, 32)}
    x = np.array([[0.7, -1.1, 0.4], [0.2, 0.9, -0.8]])
    predicted = predict(networks[32], x, letters)
    runs = {n: simulate(net, x, letters, members=6000, seed=3) for n, net in networks.items()}
    for letter in letters:
        value = 2.0 * runs[32][letter] - runs[16][letter]
        error = np.hypot(2.0 * runs[32].error(letter), runs[16].error(letter))
        scale = np.max(np.abs(predicted[letter]))
        z = np.abs(value - predicted[letter]) / (error + 0.02 * scale)
        assert z.max() < 4.0, letter


def _narrow(n):
    from dynagram.networks import Chain
    from dynagram.networks.blocks import Activate, Dense, Residual

    branch = [Dense(n, C_W=1.5, lambda_W=0.9), Activate("tanh"), Dense(n, C_W=1.2, lambda_W=1.1)]
    first, last = Dense(n, C_W=1.0, lambda_W=0.7), Dense(2, C_W=1.0, lambda_W=0.8)
    return Chain([first, Residual(branch, strength=0.8), last], 3)
