"""What a training may be: its checks, its recorded steps, and TOML there and back."""

import numpy as np
import pytest

from dynagram import MLP, Training
from dynagram.ensembles.trained._losses import checked_targets
from dynagram.ensembles.trained._train import TrainingJob, recorded_steps, train_ensemble
from dynagram.errors import DynagramError

NET = MLP([2, 4, 3], "tanh", C_b=0.1, C_W=1.0)
X, Y = np.eye(2), np.zeros((2, 3))


def halved(params, x):
    """A user's observable, found by its name."""
    return params[0].b[:2] / 2 + 0 * x[0, 0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps = 0: expected 1 to"),
        ({"steps": 1.5}, "steps = 1.5: expected an integer"),
        ({"eta": 0.0}, "eta = 0.0: a learning rate must be > 0"),
        ({"eta": float("nan")}, "eta = nan: must be finite"),
        ({"algorithm": "sgd"}, "algorithm = 'sgd': expected gd, momentum, adam, flow or"),
        ({"algorithm": "optax:nothing"}, "cannot be imported"),
        ({"algorithm": "math:sqrt"}, "must return an optax transformation"),
        ({"options": {"momentum": 0.9}}, "options = 'momentum': gd takes none"),
        ({"algorithm": "adam", "options": {"c": 1}}, "adam does not take these"),
        ({"algorithm": "flow", "options": {"b1": 1}}, "flow takes rtol, atol, max_solver_steps"),
        ({"algorithm": "flow", "options": {"rtol": 0.0}}, "option rtol = 0.0: must be > 0"),
        ({"algorithm": "flow", "batch": 2}, "gradient flow takes all samples"),
        ({"loss": "hinge"}, "loss = 'hinge': expected one of mse, mse-mean"),
        ({"weight_decay": -1.0}, "weight_decay = -1.0: must be ≥ 0"),
        ({"batch": 0}, "batch = 0: expected 1"),
        ({"fixed": [0]}, "a layer of fixed = 0"),
        ({"record": 1}, "record = 1: expected 2"),
        ({"record": [11]}, "record = 11: the last step is 10"),
        ({"record": "all"}, "record = 'all': expected a number of steps"),
        ({"spacing": "square"}, "spacing = 'square': expected one of log, linear"),
        ({"stop": ["loss = 3"]}, "expected 'name < number'"),
        ({"stop": ["loss < tiny"]}, "expected 'name < number'"),
        ({"stop": "loss < 1"}, "stop = 'loss < 1': expected a list"),
        ({"dtype": "float16"}, "dtype = 'float16': expected one of float32, float64"),
    ],
)
def test_bad_training(arguments, message):
    with pytest.raises(DynagramError, match=message.replace("(", r"\(")):
        Training(**{"steps": 10, "eta": 0.1} | arguments)


@pytest.mark.parametrize(
    ("training", "arguments", "message"),
    [
        ({"fixed": [3]}, {}, "fixed = 3: the network has 2 layers"),
        ({"fixed": [1, 2]}, {}, "at least one layer must be trained"),
        ({"batch": 3}, {}, "batch = 3: there are 2 samples"),
        ({"stop": ["norm > 1"]}, {}, "stop = 'norm': not recorded; observables are loss"),
        ({}, {"y": np.zeros((2, 2))}, "shape of y = .*expected .2, 3."),
        ({}, {"y": None}, "expected x and y, or data alone"),
        ({}, {"y": Y + np.inf}, "y = 'not finite'"),
        ({"loss": "cross-entropy"}, {"y": [0, 3]}, "classes in y = .0, 3.: expected 0 to 2"),
        ({"loss": "cross-entropy"}, {}, "rows must be probabilities"),
        ({}, {"x": None, "y": None, "data": lambda key: key}, "expected data.key. → .x, y."),
        ({}, {"x": None, "y": None, "data": lambda _: (X, X)}, "expected .samples, 2. and"),
        ({"batch": 1}, {"x": None, "y": None, "data": lambda _: (X, Y)}, "needs a training set"),
        ({}, {"observables": ["lost"]}, "observables = 'lost': expected loss, outputs"),
        ({}, {"observables": ["loss", "loss"]}, "every name may appear once"),
        ({}, {"observables": {"step": "loss"}}, "observables = 'step'"),
        ({}, {"observables": [halved]}, "a function goes into a mapping"),
        ({}, {"covariances": ["outputs"]}, "covariances = 'outputs': not recorded"),
        ({}, {"seed": -1}, "seed = -1"),
        ({}, {"chunk_members": 0}, "chunk_members = 0"),
        ({}, {"parameters": [(np.zeros((1, 4)), np.zeros((1, 4, 2)))]}, "shapes of parameters"),
        (
            {},
            {"x": None, "y": None, "data": lambda _: (X, Y), "observables": ["outputs"]},
            "test_x = None: outputs is measured on test inputs",
        ),
    ],
)
def test_bad_job(training, arguments, message):
    request = {"x": X, "y": Y} | arguments
    with pytest.raises(DynagramError, match=message):
        TrainingJob(NET, Training(10, 0.1, **training), **request)


def test_bad_ensemble():
    training = Training(10, 0.1)
    with pytest.raises(DynagramError, match="members = None: expected the number of networks"):
        train_ensemble(NET, training, X, Y)
    start = [(np.zeros((1, 4)), np.zeros((1, 4, 2))), (np.zeros((1, 3)), np.zeros((1, 3, 4)))]
    with pytest.raises(DynagramError, match="members = 2: parameters of 1 members are given"):
        train_ensemble(NET, training, X, Y, members=2, parameters=start)
    step = MLP([2, 4, 1], "perceptron", C_b=0.0, C_W=1.0)
    with pytest.raises(DynagramError, match="gradient descent does not exist"):
        train_ensemble(step, training, X, Y[:, :1], members=2)


def test_recorded_steps():
    """Both ends, no step twice, at most as many as asked for, and as even as integers allow."""
    for steps in (1, 2, 7, 1000):
        for spacing in ("log", "linear"):
            for count in (2, 3, 10, 50):
                chosen = recorded_steps(steps, count, spacing)
                assert chosen[0] == 0
                assert chosen[-1] == steps
                assert list(chosen) == sorted(set(chosen))
                assert len(chosen) <= count
    ratios = np.diff(np.log(recorded_steps(10**6, 31)[1:]))
    assert np.ptp(ratios[10:]) < 0.01
    assert Training(9, 1.0, record=[3, 5, 3]).record == (0, 3, 5, 9)


def test_targets_of_classes():
    one_hot = checked_targets("cross-entropy", [2, 0], 2, 3)
    assert one_hot.tolist() == [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]


@pytest.mark.parametrize("network", [NET, MLP([2, 4, 4, 3], "relu", 0.0, 1.0, skip=0.5)])
def test_job_from_its_own_description(network):
    training = Training(
        7,
        0.1 / 3,
        "optax:adamw",
        options={"b1": 0.8, "nesterov": True},
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
        training,
        X,
        Y,
        seed=5,
        test_x=2 * X,
        observables={"loss": "loss", "halved": f"{__name__}:halved"},
        parameters=start,
        keep_members=False,
        covariances=["halved"],
        chunk_members=11,
    )
    again = TrainingJob.from_toml(job.to_toml(), job.arrays())
    assert again.to_toml() == job.to_toml()
    assert again.network == job.network
    assert again.training == job.training
    assert again.training.rules[1] == ("halved", False, 3e4)
    arrays = job.arrays()
    assert set(arrays) >= {"x", "y", "test_x", "start_b1", "start_W1"}
    for name, array in again.arrays().items():
        np.testing.assert_array_equal(array, arrays[name])
    shapes = {name: array.shape for name, array in arrays.items()} | job.shapes
    for name, shape in shapes.items():
        assert len(job.dims()[name]) == len(shape)


def test_functions_without_a_name_stay_at_home():
    job = TrainingJob(NET, Training(5, 0.1), X, Y, observables={"mine": lambda p, _: p[0].b})
    with pytest.raises(DynagramError, match="pass it as 'module:function'"):
        job.to_toml()
