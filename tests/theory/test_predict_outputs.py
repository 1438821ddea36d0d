"""`predict_outputs`: what all its results have in common, and how little it computes."""

import json
import math
import sys

import numpy as np
import pytest

from dynagram.data import Data
from dynagram.ensembles._exact_posterior import exact_posterior
from dynagram.networks import MLP, Architecture, Model
from dynagram.results import compare, load
from dynagram.results._files import plain
from dynagram.theory import _kernels
from dynagram.theory._predict_outputs import predict_outputs
from dynagram.training import GradientDescent, GradientFlow, Posterior, Training, TwoStep

NET = MLP([3, 24, 2], "tanh", C_b=0.1, C_W=1.2)
X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5], [1.0, -0.4, 0.7]])  # one input twice
Y = np.array([[0.9, -0.45], [-0.6, 0.7], [0.9, -0.45]])
T = np.array([[1.5, 1.0, 1.4], [0.2, -1.3, 0.9], [0.4, 0.4, -0.8]])
DATA, NOISY = Data(X, Y, T), Posterior(noise=0.2)
STEPS = Training(GradientDescent(0.2), steps=7, record=[0, 3])
LOADED = Architecture([3, 24, 2], "tanh", lambda_b=1.0, lambda_W=1.0)
SIBLINGS = {
    "training ∞": (NET, Training(GradientFlow()), "infinite"),
    "training 1/n": (NET, Training(GradientFlow()), "1/n"),
    "two steps": (NET, Training(TwoStep()), "1/n"),
    "in time ∞": (NET, STEPS, "infinite"),
    "in time 1/n": (NET, STEPS, "1/n"),
    "posterior ∞": (NET, NOISY, "infinite"),
    "posterior 1/n": (NET, NOISY, "1/n"),
    "one network ∞": (NET.init(seed=0), STEPS, "infinite"),
    "one network 1/n": (NET.init(seed=0), STEPS, "1/n"),
    "given weights": (Model(LOADED, NET.init(seed=0).params), STEPS, "1/n"),
}


@pytest.fixture(scope="module")
def found():
    """Every sibling, and a measured one."""
    results = {
        name: predict_outputs(network, DATA, how, order=order)
        for name, (network, how, order) in SIBLINGS.items()
    }
    return results | {"measured": exact_posterior(NET, DATA, NOISY, members=1000, seed=0)}


NAMES = [*SIBLINGS, "measured"]


@pytest.mark.parametrize("name", NAMES)
def test_siblings_have_the_same_shapes(found, name):
    outputs = found[name]
    moments = len(outputs.times)
    assert moments == (3 if SIBLINGS.get(name, (0, 0))[1] is STEPS else 1)
    assert outputs.mean.shape == outputs.std.shape == outputs.error.shape == (3, 2)
    assert outputs.covariance.shape == outputs.covariance_error.shape == (3, 2, 3, 2)
    assert outputs.means.shape == outputs.stds.shape == (moments, 3, 2)
    assert outputs.covariances.shape == (moments, 3, 2, 3, 2)
    np.testing.assert_allclose(outputs.std**2, np.einsum("titi->ti", outputs.covariance))
    if name == "measured":
        return
    assert outputs.mean_infinite.shape == outputs.mean_correction.shape == (3, 2)
    assert outputs.covariance_infinite.shape == outputs.covariance_correction.shape
    assert outputs.kernel_infinite.shape == (3, 3)
    # Repeated inputs are merged where they train, and not where each has a noise of its own.
    train = 3 if name.startswith("posterior") else 2
    assert outputs.train.mean.shape == (train, 2)
    assert outputs.samples.covariance.shape == (train + 3, 2, train + 3, 2)
    assert outputs.regime is not None
    total = sum(outputs.mean_parts.values(), start=np.zeros((3, 2)))
    np.testing.assert_allclose(outputs.mean, outputs.mean_infinite + total / 24)


@pytest.mark.parametrize("name", NAMES)
def test_siblings_show_themselves(found, name):
    outputs = found[name]
    assert len(repr(outputs)) < 200
    assert repr(outputs).startswith(f"Outputs(order {outputs.order}; ")
    table = outputs.table()
    assert table.row_count == outputs.means.size
    html = outputs._repr_html_()
    assert html.count("<tr>") == 1 + outputs.means.size
    assert outputs.regime.verdict in html
    assert all(isinstance(text, str) for text in outputs.references)
    assert "arXiv:2106.10165" in outputs.references[0]
    described = json.loads(json.dumps(plain(outputs.to_dict())))
    np.testing.assert_array_equal(described["mean"], outputs.means)
    assert described["regime"]["verdict"] == outputs.regime.verdict
    dataset = outputs.to_xarray()
    assert dataset["mean"].dims == ("time", "sample", "output")
    np.testing.assert_array_equal(dataset["covariance"], outputs.covariances)
    np.testing.assert_array_equal(dataset["time"], outputs.times)


@pytest.mark.parametrize("name", NAMES)
def test_siblings_are_saved_and_read(found, name, tmp_path):
    outputs = found[name]
    again = load(outputs.save(tmp_path / "outputs.npz"))
    assert (again.network, again.how, again.order) == (outputs.network, outputs.how, outputs.order)
    assert again.times == outputs.times
    assert (again.notes, again.about) == (outputs.notes, dict(outputs.about))
    assert again.regime == outputs.regime
    for one, two in ((again, outputs), (again.at(again.time), outputs.at(outputs.time))):
        np.testing.assert_array_equal(one.mean, two.mean)
        np.testing.assert_array_equal(one.covariance, two.covariance)
        np.testing.assert_array_equal(one.error, two.error)
        assert one.estimates.keys() == two.estimates.keys()
    assert repr(again) == repr(outputs)


def test_a_prediction_and_a_measurement_are_compared(found):
    agreement = compare(found["posterior 1/n"], found["measured"])
    assert {row.label for row in agreement.rows} == {"mean", "covariance"}
    assert agreement.ok(5.0)


def test_notes_say_what_repeats(found):
    assert "x repeats row 0 as row 2" in found["training 1/n"].notes[0]
    assert found["posterior 1/n"].notes == ()
    assert "one given network" in found["one network ∞"].notes[-1]


def test_moments(found):
    outputs = found["in time 1/n"]
    assert outputs.times == STEPS.times
    np.testing.assert_array_equal(outputs.at(0.2 * 3).mean, outputs.means[1])
    early = outputs.at(0.6000000000000001).train
    np.testing.assert_array_equal(early.mean, outputs.train.means[1])
    assert "τ" in outputs.summary().headings
    with pytest.raises(ValueError, match="time = 9.0: recorded: 0, 0.6, 1.4"):
        outputs.at(9.0)


def test_a_callable_activation_is_described_in_words():
    """It has no name that a file could hold, but shows itself."""
    import jax.numpy as jnp

    net = MLP([3, 8, 2], lambda z: jnp.sin(z) + 0.1 * z, C_b=0.1, C_W=1.2)
    outputs = predict_outputs(net, DATA, Training(GradientFlow()), order="infinite")
    assert "MLP((3, 8, 2)" in outputs.to_dict()["network"]
    with pytest.raises(ValueError, match="no name to write"):
        outputs.save("never.npz")


# --- how little is computed -------------------------------------------------------------------


LEARNING = ("dynagram.theory.training", "dynagram.theory.bayes")


@pytest.fixture
def counted(monkeypatch):
    """How often kernels are computed, and matrices diagonalised in training and inference."""
    calls = {"kernels": 0, "eigen": 0}
    first = _kernels._first

    def kernels(*arguments):
        calls["kernels"] += 1
        return first(*arguments)

    monkeypatch.setattr(_kernels, "_first", kernels)

    def counting(compute):
        def diagonalise(*arguments, **options):
            caller = sys._getframe(1).f_globals["__name__"]
            calls["eigen"] += caller.startswith(
                ("dynagram.theory.training", "dynagram.theory.bayes")
            )
            return compute(*arguments, **options)

        return diagonalise

    for name in ("eigh", "eigvalsh", "svd", "inv"):
        monkeypatch.setattr(np.linalg, name, counting(getattr(np.linalg, name)))
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("name", SIBLINGS)
def test_one_diagonalisation_and_one_kernel(counted, name):
    network, how, order = SIBLINGS[name]
    predict_outputs(network, DATA, how, order=order)
    kernels = 0 if isinstance(network, Model) else 1  # a given network has its own
    assert counted == {"kernels": kernels, "eigen": 1}


@pytest.mark.slow
def test_several_moments_share_the_tensors(monkeypatch):
    from dynagram.theory.training import _outputs

    calls, compute = [], _outputs.output_tensors
    monkeypatch.setattr(
        _outputs, "output_tensors", lambda *a, **o: calls.append(1) or compute(*a, **o)
    )
    predict_outputs(NET, DATA, Training(GradientFlow(), record=[0.1, 1.0, math.inf]))
    assert len(calls) == 1


def test_what_is_refused_is_refused_before_the_tensors(monkeypatch):
    from dynagram.theory.training import _outputs

    def never(*_, **__):
        raise AssertionError("the costly part has begun")

    monkeypatch.setattr(_outputs, "output_tensors", never)
    for how in (Training(GradientDescent(90.0)), Training(TwoStep(), record=[1.0])):
        with pytest.raises(ValueError, match="eta|two-step"):
            predict_outputs(NET, DATA, how)
    deficient = Data([[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]], Y[:2], T)
    linear = MLP([3, 8, 2], "linear", C_b=0.0, C_W=1.0, lambda_b=0.0)
    with pytest.raises(ValueError, match="rank deficient"):
        predict_outputs(linear, deficient, Training(GradientFlow()))
