"""The TOML file of a training problem: what it reads, and what it refuses in one line."""

import numpy as np
import pytest

from dynagram.config import read_config
from dynagram.errors import DynagramError, InvalidValueError
from dynagram.training import GradientDescent, Posterior, Training

NETWORK = '[network]\nwidths = [2, 8, 1]\nactivation = "tanh"\nC_b = 0\nC_W = 1\n'
FLOW = '[training]\nalgorithm = "flow"\n'
DATA = '[data]\ntrain_x = "x.npy"\ntrain_y = "y.npy"\ntest_x = "sub/t.npy"\n'


@pytest.fixture
def write(tmp_path):
    (tmp_path / "sub").mkdir()
    np.save(tmp_path / "x.npy", np.eye(2))
    np.save(tmp_path / "y.npy", np.array([[1.0], [-1.0]]))
    np.save(tmp_path / "sub" / "t.npy", np.ones((3, 2)))

    def call(text):
        path = tmp_path / "run.toml"
        path.write_text(text)
        return path

    return call


def test_reads_files_beside_the_config(write, monkeypatch, tmp_path_factory):
    path = write(NETWORK + DATA + '[training]\nalgorithm = "gd"\neta = 0.1\n')
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    config = read_config(path)
    assert config.network.widths == (2, 8, 1)
    np.testing.assert_array_equal(config.data.x, np.eye(2))
    assert config.data.test_x.shape == (3, 2)
    assert config.data.test_y is None
    assert config.how == Training(GradientDescent(0.1))
    path = write(NETWORK + DATA + "[training]\neta = 0.1\nsteps = 20\nrecord = [3, 7]\n")
    assert read_config(path).how.recorded == (3, 7, 20)
    path = write(NETWORK + DATA + '[training]\nalgorithm = "flow"\ntime = 3\nloss = "mean"\n')
    assert (read_config(path).how.time, read_config(path).how.loss) == (3.0, "mean")


def test_few_numbers_may_stand_in_the_file(write):
    here = "[data]\ntrain_x = [[1, 0.5], [0, 2]]\ntrain_y = [1.0, -1.0]\ntest_x = [[3, 4]]\n"
    config = read_config(write(NETWORK + here + FLOW))
    np.testing.assert_array_equal(config.data.x, [[1.0, 0.5], [0.0, 2.0]])
    np.testing.assert_array_equal(config.data.y, [[1.0], [-1.0]])
    np.testing.assert_array_equal(config.data.test_x, [[3.0, 4.0]])


def test_reads_a_posterior_and_skips(write):
    network = NETWORK.replace("[2, 8, 1]", "[2, 8, 8, 1]") + "skip = 0.5\n"
    config = read_config(write(network + DATA + "[posterior]\nnoise = 0.1\n"))
    assert config.how == Posterior(0.1)
    assert config.network.skip == (0.5,)


def test_the_digits(write):
    network = NETWORK.replace("[2, 8, 1]", "[64, 8, 1]")
    data = '[data]\nname = "digits"\nclasses = [3, 5]\ntrain = 6\ntest = 4\nseed = 1\n'
    config = read_config(write(network + data + '[training]\nalgorithm = "flow"\n'))
    assert config.data.x.shape == (6, 64)
    assert config.data.test_x.shape == (4, 64)
    assert np.mean(config.data.x**2) == pytest.approx(1.0)
    assert set(np.unique(config.data.y)) <= {-1.0, 1.0}
    assert set(np.unique(config.data.test_y)) <= {-1.0, 1.0}
    three = read_config(write(
        network.replace(", 1]", ", 3]") + data.replace("[3, 5]", "[3, 5, 8]") + FLOW
    ))  # fmt: skip
    assert three.data.y.shape == (6, 3)
    assert np.array_equal(three.data.y.sum(axis=1), np.ones(6))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[network", "not a TOML file"),
        (DATA, r"\[network\] must be given"),
        (NETWORK, r"\[data\] must be given"),
        (NETWORK + DATA + "[extra]\na = 1\n", "unknown; allowed: network, data, training"),
        (NETWORK + DATA, r"one of the tables \[training\] and \[posterior\]"),
        (NETWORK + DATA + FLOW + "[posterior]\n", r"one of the tables \[training\] and"),
        (NETWORK + "depth = 3\n" + DATA + FLOW, "depth"),
        (NETWORK.replace("2, 8, 1", "3, 8, 1") + DATA + FLOW, r"shape of x = \(2, 2\)"),
        (NETWORK + DATA + "more = 1\n" + FLOW, "allowed: train_x, train_y, test_x, test_y, name"),
        (NETWORK + '[data]\ntrain_x = "x.npy"\n' + FLOW, "train_y, test_x"),
        (NETWORK + DATA.replace("x.npy", "none.npy") + FLOW, "no such file"),
        (NETWORK + DATA.replace('"x.npy"', "[[1, 2], [3]]") + FLOW, "rows of numbers of one len"),
        (NETWORK + DATA.replace('"x.npy"', '["a"]') + FLOW, "expected the name of a file, or rows"),
        (NETWORK + DATA.replace('"x.npy"', "3") + FLOW, "expected a text in quotes"),
        (NETWORK + '[data]\nname = "letters"\n' + FLOW, "expected one of digits"),
        (NETWORK + '[data]\nname = "mnist"\n' + FLOW, "needs the folder"),
        (NETWORK + DATA + '[training]\nalgorithm = "sgd"\n', "eta = None"),
        (NETWORK + DATA + '[training]\nalgorithm = "sgd"\neta = 1\n', "expected one of gd, flow"),
        (NETWORK + DATA + "[training]\nrate = 3\n", "unknown key; known: algorithm, eta, loss"),
        (NETWORK + DATA + FLOW + "steps = 3\n", "gradient flow takes a time"),
        (NETWORK + DATA + "[training]\neta = 0.1\nsteps = 2.5\n", "expected a whole number"),
        (NETWORK + DATA + FLOW + 'time = "1"\n', "expected a real number"),
        (NETWORK + DATA + "[training]\n", "the algorithm 'gd' needs a step size"),
        (NETWORK + DATA + '[training]\neta = 1.0\nloss = "mse"\n', 'write "half-sum"'),
        (NETWORK + DATA + "[posterior]\nnoise = -1\n", "a variance must be ≥ 0"),
    ],
)
def test_refusals(write, text, message):
    with pytest.raises(DynagramError, match=message):
        read_config(write(text))


def test_a_missing_file(tmp_path):
    with pytest.raises(InvalidValueError, match="no such file"):
        read_config(tmp_path / "none.toml")
