"""What a training may be: its checks, its recorded moments, and TOML there and back."""

import math

import numpy as np
import pytest

from dynagram.errors import DynagramError
from dynagram.training import GradientDescent, GradientFlow, Optax, Posterior, Training, TwoStep
from dynagram.training._algorithms import algorithm_of_table
from dynagram.training._losses import check_loss_targets
from dynagram.training._schedule import spaced_moments

GD, FLOW = GradientDescent(0.1), GradientFlow()


@pytest.mark.parametrize(
    ("algorithm", "arguments", "message"),
    [
        ("gd", {}, r"algorithm = 'gd': expected GradientDescent\(eta\)"),
        (GD, {"steps": -1}, "steps = -1: expected 0 to"),
        (GD, {"steps": 1.5}, "steps = 1.5: expected a whole number"),
        (GD, {"time": 1.0}, "time = 1.0: only gradient flow, this is gd"),
        (FLOW, {"steps": 3}, "steps = 3: gradient flow takes a time"),
        (FLOW, {"time": -1.0}, "time = -1.0: a time must be ≥ 0"),
        (TwoStep(), {"steps": 3}, "steps = 3: the two steps are given"),
        (FLOW, {"batch": 2}, "batch = 2: flow takes all samples"),
        (GD, {"loss": "hinge"}, "loss = 'hinge': expected one of half-sum, mean"),
        (GD, {"loss": "mse"}, "loss = 'mse': write \"half-sum\" for ½ΣΣ"),
        (GD, {"loss": "mse-mean"}, "loss = 'mse-mean': write \"mean\""),
        (GD, {"loss": "cross-entropy-mean"}, "which is the mean over samples"),
        (GD, {"weight_decay": -1.0}, "weight_decay = -1.0: must be ≥ 0"),
        (GD, {"batch": 0}, "batch = 0: expected 1"),
        (GD, {"batch": [[0, 1], [2]]}, "lists of samples of equal length"),
        (GD, {"batch": [[0, 0]]}, "each without repetition"),
        (FLOW, {"schedule": [1.0]}, "flow has no step size"),
        (GD, {"schedule": [-1.0]}, "a factor of schedule = -1.0"),
        (GD, {"fixed": [0]}, "a layer of fixed = 0"),
        (GD, {"record": 1}, "record = 1: expected 2"),
        (GD, {"record": [11]}, "record = 11: training ends at 10"),
        (GD, {"record": "all"}, "record = 'all': expected a number of moments"),
        (GD, {"record": 5, "steps": None}, "training to the end has no spacing"),
        (GD, {"spacing": "square"}, "spacing = 'square': expected one of log, linear"),
        (GD, {"stop": ["loss = 3"]}, "expected 'name < number'"),
        (GD, {"stop": ["loss < tiny"]}, "expected 'name < number'"),
        (GD, {"stop": "loss < 1"}, "stop = 'loss < 1': expected a list"),
        (GD, {"dtype": "float16"}, "dtype = 'float16': expected one of float32, float64"),
    ],
)
def test_bad_training(algorithm, arguments, message):
    length = {} if "steps" in arguments or algorithm != GD else {"steps": 10}
    with pytest.raises(DynagramError, match=message):
        Training(algorithm, **length | arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GradientDescent(0.0), "eta = 0.0: the step size must be > 0"),
        (lambda: GradientDescent(math.nan), "eta = nan: must be finite"),
        (lambda: GradientFlow(rtol=0.0), "rtol = 0.0: must be > 0"),
        (lambda: Optax("sgd", 0.1), "rule = 'sgd': expected momentum, adam or module:function"),
        (lambda: Optax("optax:nothing", 0.1), "cannot be imported"),
        (lambda: Optax("math:sqrt", 0.1), "must return an optax transformation"),
        (lambda: Optax("adam", 0.1, c=1), "adam does not take these"),
        (lambda: algorithm_of_table("gd", 0.1, {"momentum": 0.9}), "gd takes none; momentum does"),
        (lambda: algorithm_of_table("gd", None, {}), "the algorithm 'gd' needs a step size"),
        (lambda: algorithm_of_table("flow", 0.1, {}), "the algorithm 'flow' has no step size"),
        (lambda: algorithm_of_table("flow", None, {"b1": 1}), "flow takes rtol and atol"),
        (lambda: algorithm_of_table("newton", 0.1, {}), "algorithm = 'newton': expected one of"),
    ],
)
def test_bad_algorithms(make, message):
    with pytest.raises(DynagramError, match=message):
        make()


def test_recorded_moments():
    """Both ends, no step twice, at most as many as asked for, and as even as integers allow."""
    for steps in (1, 2, 7, 1000):
        for spacing in ("log", "linear"):
            for count in (2, 3, 10, 50):
                chosen = spaced_moments(steps, count, spacing)
                assert chosen[0] == 0
                assert chosen[-1] == steps
                assert list(chosen) == sorted(set(chosen))
                assert len(chosen) <= count
    ratios = np.diff(np.log(spaced_moments(10**6, 31)[1:]))
    assert np.ptp(ratios[10:]) < 0.01
    assert Training(GD, steps=9, record=[3, 5, 3]).recorded == (3, 5, 9)
    assert Training(GD, record=[0, 3]).times == (0.0, pytest.approx(0.3), math.inf)
    assert Training(FLOW, time=2.0, record=[0.5]).times == (0.5, 2.0)
    slower = Training(GD, steps=5, record=[1, 2, 5], schedule=[1.0, 0.5])
    assert slower.times == pytest.approx((0.1, 0.15, 0.3))


@pytest.mark.parametrize(
    "how",
    [
        Training(GD),
        Training(GD, record=[0, 3]),
        Training(GradientDescent(0.1 / 3), steps=7, batch=2, record=4, loss="mean"),
        Training(GradientFlow(1e-6, 1e-9), time=0.1 / 3, record=3, stop=["loss < 1e-3"]),
        Training(TwoStep()),
        Training(GD, steps=4, batch=[[0, 2], [1, 3]], schedule=[1.0, 0.1 / 3], loss="my:loss"),
        Training(
            Optax("optax:adamw", 0.1, b1=0.8, nesterov=True), steps=3, loss="cross-entropy",
            weight_decay=0.25, fixed=[2], stop=["loss < 0.001", "own > 3e4"], dtype="float32",
        ),
    ],
)  # fmt: skip
def test_toml_there_and_back(how):
    assert Training.from_toml(how.to_toml()) == how
    assert hash(Training.from_toml(how.to_toml())) == hash(how)


def test_toml_of_a_posterior_and_unknown_keys():
    assert Posterior.from_toml(Posterior(noise=0.1).to_toml()) == Posterior(noise=0.1)
    with pytest.raises(DynagramError, match="momentum': unknown key; known: algorithm"):
        Training.from_toml("[training]\neta = 0.1\nmomentum = 0.9")


def test_targets_of_a_cross_entropy():
    with pytest.raises(DynagramError, match=r"y\[1\] = \[0.5, 0.6\]: targets of a cross-entropy"):
        check_loss_targets("cross-entropy", np.array([[0.0, 1.0], [0.5, 0.6]]))
