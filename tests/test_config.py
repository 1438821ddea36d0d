"""The TOML file of a training problem: what it reads, and what it refuses in one line."""

import numpy as np
import pytest

from dynagram.config import read_config
from dynagram.errors import DynagramError, InvalidValueError

NETWORK = '[network]\nwidths = [2, 8, 1]\nactivation = "tanh"\nC_b = 0\nC_W = 1\n'
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
    np.testing.assert_array_equal(config.train_x, np.eye(2))
    assert config.test_x.shape == (3, 2)
    assert (config.test_y, config.algorithm, config.eta) == (None, "gd", 0.1)
    assert (config.steps, config.time) == (None, None)
    path = write(NETWORK + DATA + "[training]\neta = 0.1\nsteps = 20\n")
    assert read_config(path).steps == 20
    path = write(NETWORK + DATA + '[training]\nalgorithm = "flow"\ntime = 3\n')
    assert read_config(path).time == 3.0


def test_the_digits(write):
    network = NETWORK.replace("[2, 8, 1]", "[64, 8, 1]")
    data = '[data]\nname = "digits"\nclasses = [3, 5]\ntrain = 6\ntest = 4\nseed = 1\n'
    config = read_config(write(network + data + '[training]\nalgorithm = "flow"\n'))
    assert config.train_x.shape == (6, 64)
    assert config.test_x.shape == (4, 64)
    assert np.mean(config.train_x**2) == pytest.approx(1.0)
    assert set(np.unique(config.train_y)) <= {-1.0, 1.0}
    assert config.test_y is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[network", "not a TOML file"),
        (DATA, r"\[network\] must be given"),
        (NETWORK, r"\[data\] must be given"),
        (NETWORK + DATA + "[extra]\na = 1\n", "unknown; allowed: network, data, training"),
        (NETWORK + "depth = 3\n" + DATA, "depth"),
        (NETWORK + DATA + "more = 1\n", "unknown; allowed: train_x, train_y, test_x, test_y, name"),
        (NETWORK + '[data]\ntrain_x = "x.npy"\n', "train_y, test_x"),
        (NETWORK + DATA.replace("x.npy", "none.npy"), "no such file"),
        (NETWORK + '[data]\nname = "letters"\n', "expected one of digits"),
        (NETWORK + '[data]\nname = "mnist"\n', "needs the folder"),
        (NETWORK + DATA + '[training]\nalgorithm = "adam"\n', "expected one of gd, flow, two-step"),
        (
            NETWORK + DATA + "[training]\nrate = 3\n",
            "unknown; allowed: algorithm, eta, steps, time",
        ),
        (NETWORK + DATA + '[training]\nalgorithm = "flow"\nsteps = 3\n', "gradient flow a `time`"),
        (NETWORK + DATA + "[training]\neta = 0.1\nsteps = 2.5\n", "expected a whole number"),
        (NETWORK + DATA + '[training]\nalgorithm = "flow"\ntime = "1"\n', "expected a real number"),
        (NETWORK + DATA + "[training]\n", "gradient descent needs a step size"),
    ],
)
def test_refusals(write, text, message):
    with pytest.raises(DynagramError, match=message):
        read_config(write(text))


def test_a_missing_file(tmp_path):
    with pytest.raises(InvalidValueError, match="no such file"):
        read_config(tmp_path / "none.toml")
