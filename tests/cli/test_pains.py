"""What new users stumbled over: each stays gone."""

import re
from pathlib import Path

import numpy as np
import pytest

from dynagram import MLP, Data, compare, measure, predict, simulate
from dynagram.errors import InvalidTypeError
from dynagram.networks import Model
from dynagram.observables._likely_activation import likely_activation
from dynagram.results._agreement import family_limit


@pytest.mark.slow
def test_eight_random_inputs_agree_and_a_wrong_network_does_not():
    """4096 entries of V per layer: one limit for each of them would call chance a difference."""
    x = np.random.default_rng(3).normal(size=(8, 3))
    network = MLP.critical([3, 50, 50, 1], "tanh")
    predicted = predict(network, x, ("K", "V", "G1"), accuracy=1e-3)
    measured = simulate(network, x, ("K", "V", "G1"), members=4000)
    agreement = compare(predicted, measured)
    assert agreement.ok()
    assert {row.verdict() for row in agreement.rows} <= {"agree", "next order"}
    wrong = {name: 1.3 * values for name, values in predicted.values.items()}
    object.__setattr__(predicted, "values", wrong)
    assert not compare(predicted, measured).ok()


def test_the_limit_of_a_family_grows_with_its_size():
    limits = [family_limit(4.0, n) for n in (1, 10, 1000, 10**6)]
    assert limits[0] == pytest.approx(4.0)
    assert limits == sorted(limits)
    # Of so many standard normal numbers the largest is rarely beyond.
    largest = np.abs(np.random.default_rng(0).normal(size=(200, 1000))).max(axis=1)
    assert np.all(largest < limits[2])


def test_one_hot_targets_are_classes():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4))
    y = np.eye(2)[(x[:, 0] > 0).astype(int)]
    model = Model.of_matrices([rng.normal(size=(8, 4)), rng.normal(size=(2, 8))], "relu")
    result = measure(model, Data(x, y))
    assert result.loss_name == "cross-entropy"
    assert result.accuracy is not None
    assert any("one-hot" in note for note in result.notes)
    assert measure(model, Data(x, y), loss="mean").loss_name == "mean"


def test_a_wrong_activation_is_doubted(run, tmp_path):
    rng = np.random.default_rng(1)
    weights = {"W1": rng.normal(size=(64, 6)), "W2": rng.normal(size=(1, 64)) / 4}
    x = rng.normal(size=(80, 6))
    true = Model.of_matrices(list(weights.values()), "relu")
    y = np.asarray(true(x))
    np.savez(tmp_path / "net.npz", **weights)
    np.savez(tmp_path / "batch.npz", x=x, y=y)
    options = ("measure", tmp_path / "net.npz", "--data", tmp_path / "batch.npz", "--activation")
    assert "is tanh right? With relu the loss" in run(*options, "tanh").stderr
    assert "right?" not in run(*options, "relu").stderr
    noise = Data(x, rng.normal(size=(80, 1)))
    assert likely_activation(Model.of_matrices(list(weights.values()), "tanh"), noise) is None


def test_modules_and_functions_of_torch_are_named():
    torch = pytest.importorskip("torch")
    for given, name in (
        (torch.nn.ReLU(), "relu"), (torch.nn.GELU(approximate="tanh"), "gelu_tanh"),
        (torch.relu, "relu"), (torch.nn.functional.silu, "silu"),
    ):  # fmt: skip
        with pytest.raises(InvalidTypeError, match=f'PyTorch is not looked into: write "{name}"'):
            MLP([2, 3, 1], given, 0.0, 1.0)
    with pytest.raises(InvalidTypeError, match=r"written with jax\.numpy"):
        MLP([2, 3, 1], torch.nn.RReLU(), 0.0, 1.0)


def test_tensors_and_frames_are_arrays():
    torch, pandas = pytest.importorskip("torch"), pytest.importorskip("pandas")
    x = [[1.0, 2.0], [3.0, 5.0], [0.5, 0.1]]
    plain = Data(x, [1.0, 0.0, 1.0])
    tensor = torch.tensor(x, requires_grad=True)
    frame = pandas.DataFrame({"a": [1, 3, 0.5], "b": pandas.array([2, 5, 0.1], dtype="Float64")})
    for given in (tensor, tensor.double(), frame):
        data = Data(given, torch.tensor([1, 0, 1], dtype=torch.bfloat16))
        np.testing.assert_allclose(data.x, plain.x, rtol=1e-6)
        np.testing.assert_array_equal(data.y, plain.y)
    assert Data.of_classes(frame, pandas.Series([0, 1, 0])).classes.tolist() == [0, 1]
    network = MLP([2, 3, 1], "tanh", 0.0, 1.0)
    np.testing.assert_allclose(predict(network, tensor, ("K",))["K"],
                               predict(network, x, ("K",))["K"], rtol=1e-6)  # fmt: skip
    model = Model.of_matrices([torch.ones(3, 2), torch.ones(1, 3)], "relu")
    assert model(np.ones((1, 2))).tolist() == [[6.0]]


def test_plateaus_of_a_log_with_a_header(run, answer, tmp_path):
    t = np.arange(0, 1000, 5.0)
    train = 1 / (1 + np.exp((t - 500) / 10)) + 0.01
    lines = [f"{int(a)},{b},{c}" for a, b, c in zip(t, train, 2 * train, strict=True)]
    path = tmp_path / "log.csv"
    path.write_text("epoch,train_loss,val_loss\n" + "\n".join(lines))
    (first, *_) = answer("plateaus", path, "--json")["plateaus"]
    assert first["level"] == pytest.approx(1.01, abs=0.01)
    assert first["end"] == pytest.approx(470, abs=20)
    assert "reading train_loss" in run("plateaus", path).stderr
    (other, *_) = answer("plateaus", path, "--column", "val_loss", "--json")["plateaus"]
    assert other["level"] == pytest.approx(2.02, abs=0.02)


def test_plateaus_refuses_a_column_that_is_not_there(complaint, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("epoch,a,b\n0,1,2\n1,1,2\n2,1,2\n3,0,0\n")
    assert "epoch, a, b" in complaint("plateaus", path, "--column", "loss")
    assert "--column" in complaint("plateaus", path)


def test_critical_gelu_speaks_to_everyone(run):
    text = run("critical", "gelu").stdout
    assert "p_0" not in text
    assert "power laws of the depth set in after" in text


def test_mistakes_of_a_new_user_name_what_was_typed(complaint, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 3)))
    assert "C_W = 'abc': expected a number" in complaint(
        "studio", "--state", "activation=tanh&C_W=abc", "--no-browser"
    )
    assert "shape of the curve = (2, 3)" in complaint("plateaus", tmp_path / "x.npy")
    assert "no such folder" in complaint("watch", tmp_path / "nothing")


def test_the_file_of_the_question_page_is_one_that_commands_read(run, tmp_path):
    page = (Path(__file__).parents[2] / "docs/what-is-your-question.md").read_text()
    text = re.search(r"```toml\n(.*?)```", page, re.S).group(1)
    (tmp_path / "run.toml").write_text(text)
    result = run("train-predict", tmp_path / "run.toml", "--order", "infinite")
    assert result.exit_code == 0, result.output
    assert "infinite" in result.stdout.lower() or "∞" in result.stdout
