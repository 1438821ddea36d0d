"""The Gram chain against drawn networks: tensors, and outputs after training.

The ensembles are those of `benchmarks/chain_ensembles.py`: 100 000 to 400 000 networks each. What
a measured tensor has beyond the order predicted falls as 1/n, so two widths extrapolate to it: the
value compared is 2 m(2n) − m(n), which leaves 1/n² of it. With three widths the last two are taken.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from dynagram import Data, GradientDescent, Training, predict, predict_outputs, simulate
from dynagram.networks import network_from_toml

GOLDEN = Path(__file__).parents[1] / "golden"
ABOUT = json.loads((GOLDEN / "chain_ensembles.json").read_text())
LOW = ("V", "G1", "H1", "A", "B", "D", "F")
HIGH = ("P", "Q", "R", "S", "T", "U")


@pytest.fixture(scope="module")
def measured():
    with np.load(GOLDEN / "chain_ensembles.npz") as arrays:
        return dict(arrays)


def extrapolated(measured, name, letter):
    """2 m(128) − m(64) and its standard error."""
    wide, narrow = (measured[f"{name}/{n}/{letter}"] for n in (128, 64))
    errors = [measured[f"{name}/{n}/{letter}/error"].astype(float) for n in (128, 64)]
    return 2.0 * wide - narrow, np.sqrt(4.0 * errors[0] ** 2 + errors[1] ** 2)


def check_letters(measured, name, letters, samples=2):
    network = network_from_toml(ABOUT[f"{name}/128"]["network"])
    T = predict(network, measured[f"{name}/128/x"][:samples], letters)
    for letter in letters:
        value, error = extrapolated(measured, name, letter)
        first = (slice(samples),) * value.ndim
        value, error = value[first], error[first]
        predicted, scale = T[letter][0], np.max(np.abs(T[letter]))
        # Entries that no network varies in (norms) are exact: rounding is not compared.
        error = np.sqrt(error**2 + T.error(letter)[0] ** 2 + (1e-9 * scale) ** 2)
        # What two widths leave, 1/n² of the coefficients seen here, is below 2e-3 of the scale.
        z = np.abs(value - predicted) / (error + 2e-3 * scale)
        assert z.max() < 4.0, (letter, float(z.max()))
        resolved = np.max(np.abs(predicted) / error)
        if letter not in ("G1", "H1"):
            assert resolved > 10.0, letter  # a factor of two would be seen


@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual", "swiglu", "post-norm", "layer-norm"])
def test_tensors_up_to_F(measured, name):
    check_letters(measured, name, LOW)


@pytest.mark.parametrize("name", ["residual", "conv"])
@pytest.mark.slow
def test_all_tensors(measured, name):
    check_letters(measured, name, (*LOW, *HIGH))


@pytest.mark.slow
def test_tensors_of_attention(measured):
    check_letters(measured, "attention", LOW, samples=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["residual", "conv"])
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
