"""Memory is asked for before it is taken, whatever the machine has."""

import tracemalloc

import numpy as np
import pytest

import dynagram._memory as memory
from dynagram import MLP, Data, GradientDescent, Model, Training, measure, predict, simulate, train
from dynagram._toml import parse_toml
from dynagram.data import load_array, load_arrays
from dynagram.errors import InvalidValueError
from dynagram.networks import Chain
from dynagram.networks.blocks import Attention, Dense, Residual


@pytest.fixture
def small(monkeypatch):
    """A machine of 64 MiB."""
    monkeypatch.setattr(memory, "machine_memory", lambda: 2**26)


def refused(function, words):
    """In one line, and without having taken what was refused."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidValueError) as error:
            function()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert words in str(error.value)
    assert "would need" in str(error.value)
    assert "\n" not in str(error.value)
    assert peak < 2**26


def test_simulate_asks_for_its_tensors():
    """On any machine: V of 5 000 inputs has 6e14 numbers in every layer."""
    network, x = MLP([3, 4, 1], "tanh", 0.0, 1.0), np.ones((5000, 3))
    refused(lambda: simulate(network, x, ("V",), members=100), "number of samples = 5000")
    wide = MLP([3, 10**9, 10**9, 1], "tanh", 0.0, 1.0)
    x = np.ones((1, 3))
    refused(
        lambda: simulate(wide, x, ("K",), members=100, sampler="weights"),
        "a single network is too large",
    )


@pytest.mark.usefixtures("small")
def test_simulate_asks_for_its_sums():
    """128 batches of sums are more than the tensor they are made for."""
    network, x = MLP([3, 4, 4, 1], "tanh", 0.0, 1.0), np.random.default_rng(0).normal(size=(12, 3))
    assert 8 * 12**4 * 3 < 2**20
    refused(lambda: simulate(network, x, ("V",), members=100), "sums of V: give fewer inputs")
    assert simulate(network, x[:2], ("V",), members=100).members == 100


@pytest.mark.usefixtures("small")
def test_training_asks_for_its_networks_and_members():
    data, how = Data(np.eye(2), [1.0, 0.0], np.eye(2)), Training(GradientDescent(0.1), steps=2)
    wide = MLP([2, 2000, 2000, 1], "tanh", 0.0, 1.0)
    refused(lambda: train(wide, data, how, members=4), "a single network is too large")
    network = MLP([2, 4, 1], "tanh", 0.0, 1.0)
    refused(lambda: train(network, data, how, members=10**7), "members = 10000000")


def test_measure_asks_for_its_factors():
    """Features of a million inputs, and as many samples as there may be: not begun."""
    weights = [np.zeros((1, 10**6)), np.ones((1, 1))]
    model = Model.of_matrices(weights, "tanh")
    data = Data(np.ones((4, 10**6)), np.ones((4, 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "machine_memory", lambda: 2**28)
        with pytest.raises(InvalidValueError, match="would need .*measure fewer samples"):
            measure(model, data)


@pytest.mark.usefixtures("small")
def test_files_larger_than_the_memory_are_not_read(tmp_path):
    for name in ("a.npy", "a.npz", "a.csv"):
        with open(tmp_path / name, "wb") as file:
            file.write({"a.npy": b"\x93NUMPY", "a.npz": b"PK"}.get(name, b"1.0\n"))
            file.truncate(2**32)  # no disk is used for the zeros
        reader = load_arrays if name == "a.npz" else load_array
        refused(lambda path=tmp_path / name, read=reader: read(path), "it cannot be read here")


@pytest.mark.usefixtures("small")
def test_a_text_grows_when_it_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("1.0\n" * 10**6)
    refused(lambda: load_array(tmp_path / "a.csv"), "save it with numpy.save")


def test_a_key_of_many_parts_grows_when_it_is_read():
    """60 kB of text took 3 GB and a minute."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="has too many parts"):
            parse_toml(5_000 * "a." + "b = 1")
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
    rows = ", ".join(["[0.5, 1.5, 2.5, 3.5]"] * 20)
    text = f"[data] # one. two ...................\nx = [{rows}]\nname = '../../../a.b.c'"
    assert len(parse_toml(text)["data"]["x"]) == 20


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("letter", ["K", "V"])
def test_heads_as_large_as_the_memory(letter):
    """Queries and keys are drawn: what only the theory reads has no weights to be refused for."""
    net = Chain([Dense(8), Residual([Attention(2, 10**6), Dense(8)]), Dense(1)], (4, 8))
    refused(lambda: predict(net, np.ones((1, 32)), (letter,)), "head_size = 1000000")


def test_the_limit_of_a_container_counts(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("123456789\n")
    monkeypatch.setattr(memory, "_CONTAINER", (str(tmp_path / "memory.max"),))
    assert memory.machine_memory() == 123456789
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.machine_memory() != 123456789


def test_who_does_not_know_its_memory_refuses_nothing(monkeypatch):
    monkeypatch.setattr(memory, "machine_memory", lambda: None)
    memory.require_memory("samples", 1, 1e30, "")
