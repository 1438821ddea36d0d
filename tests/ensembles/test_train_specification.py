"""What a training ensemble may be asked, and its description as TOML there and back."""

import numpy as np
import pytest

from dynagram import (
    MLP,
    Data,
    GradientDescent,
    GradientFlow,
    Optax,
    Training,
    TwoStep,
    train,
)
from dynagram.ensembles.trained._job import TrainingJob
from dynagram.errors import DynagramError
from dynagram.networks import Architecture, Model

NET = MLP([2, 4, 3], "tanh", C_b=0.1, C_W=1.0)
X, Y = np.eye(2), np.zeros((2, 3))


def halved(params, x):
    """A user's observable, found by its name."""
    return params[0].b[:2] / 2 + 0 * x[0, 0]


DATA = Data(X, Y)
FRESH = {"data": lambda _: (X, Y)}
END = {"steps": None}


@pytest.mark.parametrize(
    ("training", "arguments", "message"),
    [
        ({"fixed": [3]}, {}, "this network has layers 1 to 2"),
        ({"fixed": [1, 2]}, {}, "at least one layer must be trained"),
        ({"batch": 3}, {}, "batch = 3: there are 2 samples"),
        ({"stop": ["norm > 1"]}, {}, "stop = 'norm': not recorded; observables are loss"),
        ({}, {"data": Data(X, np.zeros((2, 2)))}, "shape of y = .*expected .2, 3."),
        ({}, {"data": None}, "expected a Data, a function of a key, or 'module:function'"),
        ({}, {"data": "nowhere:function"}, "data = 'nowhere:function': cannot be imported"),
        ({"loss": "cross-entropy"}, {}, "targets of a cross-entropy are probabilities"),
        ({}, {"data": lambda key: key}, "expected data.key. → .x, y."),
        ({}, {"data": lambda _: (X, X)}, "expected .samples, 2. and"),
        ({"batch": 1}, FRESH, "a batch size needs a training set"),
        (END, FRESH, "training to the end needs a training set"),
        (END | {"loss": "cross-entropy"}, {}, "loss = 'cross-entropy': training to the end"),
        (
            END | {"batch": 1},
            {},
            "batch = 1: training to the end stops at zero error.*steps",
        ),
        (END | {"weight_decay": 0.1}, {}, "weight_decay = 0.1: training to the end"),
        ({}, {"test_x": X}, "test_x = 'given': a Data holds its own test inputs"),
        ({}, {"observables": ["lost"]}, "observables = 'lost': expected loss, outputs"),
        ({}, {"observables": ["loss", "loss"]}, "every name may appear once"),
        ({}, {"observables": {"step": "loss"}}, "observables = 'step'"),
        ({}, {"observables": [halved]}, "a function goes into a mapping"),
        ({}, {"observables": ["outputs", "all_outputs"]}, "one of outputs, all_outputs, not both"),
        ({}, {"covariances": ["outputs"]}, "covariances = 'outputs': not recorded"),
        ({}, {"seed": -1}, "seed = -1"),
        ({}, {"chunk_members": 0}, "chunk_members = 0"),
        ({}, {"tolerance": 0.0}, "tolerance = 0.0: the largest error allowed must be > 0"),
        ({}, {"max_steps": 0}, "max_steps = 0: expected 1"),
        ({}, {"parameters": [(np.zeros((1, 4)), np.zeros((1, 4, 2)))]}, "shapes of parameters"),
        ({}, FRESH | {"observables": ["outputs"]}, "test_x = None: outputs is measured on test"),
        ({}, FRESH | {"observables": ["all_outputs"]}, "fresh data have no training inputs"),
    ],
)
def test_bad_job(training, arguments, message):
    how = Training(GradientDescent(0.1), **{"steps": 10} | training)
    with pytest.raises(DynagramError, match=message):
        TrainingJob(NET, **{"data": DATA, "how": how} | arguments)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (Training(GradientFlow(), stop=["loss < 1"]), "stop = .*: give a time"),
        (Training(TwoStep(), fixed=[1]), "the two leaps move every layer"),
        (Training(TwoStep(), record=[1.0]), "two leaps have no moments but the end"),
    ],
)
def test_bad_ends(how, message):
    with pytest.raises(DynagramError, match=message):
        TrainingJob(NET, DATA, how)


def test_bad_ensemble():
    how = Training(GradientDescent(0.1), steps=10)
    with pytest.raises(DynagramError, match="members = None: expected the number of networks"):
        train(NET, DATA, how)
    with pytest.raises(DynagramError, match="members = 0: expected 1"):
        train(NET, DATA, how, members=0)
    start = [(np.zeros((1, 4)), np.zeros((1, 4, 2))), (np.zeros((1, 3)), np.zeros((1, 3, 4)))]
    with pytest.raises(DynagramError, match="members = 2: parameters of 1 members are given"):
        train(NET, DATA, how, members=2, parameters=start)
    with pytest.raises(DynagramError, match="parameters = 'given': a Model has its own"):
        train(NET.init(0), DATA, how, members=2, parameters=start)
    step = MLP([2, 4, 1], "perceptron", C_b=0.0, C_W=1.0)
    with pytest.raises(DynagramError, match="gradient descent does not exist"):
        train(step, Data(X, Y[:, :1]), how, members=2)
    with pytest.raises(DynagramError, match="an architecture without an initialisation"):
        train(Architecture([2, 4, 3], "tanh"), DATA, how, members=2)


def test_a_model_without_an_initialisation_trains_here_only(tmp_path):
    architecture = Architecture([2, 4, 3], "tanh")
    model = Model(architecture, NET.init(0).params)
    how = Training(GradientDescent(0.1), steps=2)
    assert train(model, Data(X, Y, X), how, members=2).mean.shape == (2, 3)
    with pytest.raises(DynagramError, match="cannot be written: train it here"):
        train(model, DATA, how, members=2, run=tmp_path / "run")


@pytest.mark.parametrize("network", [NET, MLP([2, 4, 4, 3], "relu", 0.0, 1.0, skip=0.5)])
def test_job_from_its_own_description(network):
    how = Training(
        Optax("optax:adamw", 0.1 / 3, b1=0.8, nesterov=True),
        steps=7,
        weight_decay=0.25,
        fixed=[2],
        stop=["loss < 0.001", "halved > 3e4"],
        dtype="float32",
    )
    start = [
        (np.full((3, n_out), 0.1), np.ones((3, n_out, n_in)))
        for n_in, n_out in zip(network.widths[:-1], network.widths[1:], strict=True)
    ]
    job = TrainingJob(
        network,
        Data(X, Y, 2 * X, Y + 1.0),
        how,
        seed=5,
        observables={"loss": "loss", "z": "all_outputs", "halved": f"{__name__}:halved"},
        parameters=start,
        keep_members=False,
        covariances=["halved"],
        max_steps=70,
        chunk_members=11,
    )
    again = described_again(job)
    assert again.how.rules[1] == ("halved", False, 3e4)
    assert set(job.arrays()) >= {"x", "y", "test_x", "test_y", "start_b1", "start_W1"}


def test_other_jobs_from_their_own_description():
    pairs = described_again(TrainingJob(NET, Data(X, Y, X), Training(TwoStep()), pairs=True))
    assert pairs.pairs
    how = Training(GradientDescent(0.1), steps=3)
    fresh = described_again(TrainingJob(NET, f"{__name__}:fresh", how, test_x=X))
    assert fresh.function is not None
    np.testing.assert_array_equal(fresh.asked, X)


def fresh(_):
    """Data found by their name."""
    return X, Y


def described_again(job):
    again = TrainingJob.from_toml(job.to_toml(), job.arrays())
    assert again.to_toml() == job.to_toml()
    assert again.network == job.network
    assert again.how == job.how
    arrays = job.arrays()
    for name, array in again.arrays().items():
        np.testing.assert_array_equal(array, arrays[name])
    shapes = {name: array.shape for name, array in arrays.items()} | job.shapes
    for name, shape in shapes.items():
        assert len(job.dims()[name]) == len(shape)
    return again


def test_functions_without_a_name_stay_at_home():
    how = Training(GradientDescent(0.1), steps=5)
    job = TrainingJob(NET, DATA, how, observables={"mine": lambda p, _: p[0].b})
    with pytest.raises(DynagramError, match="pass it as 'module:function'"):
        job.to_toml()
