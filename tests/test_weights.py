"""Weights from files: names, order, layout and biases are found or refused, nothing unpickled."""

import itertools
import pickle

import numpy as np
import pytest

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.networks._weights import assemble_model, load_weights

rng = np.random.default_rng(0)


def chain(tensors, **options):
    return assemble_model(tensors, "relu", **{"skip": 0.0} | options)


def layers(*widths, bias=True):
    """(W, b) of a chain of dense layers."""
    return [
        (rng.normal(size=(n_out, n_in)), rng.normal(size=n_out) if bias else None)
        for n_in, n_out in itertools.pairwise(widths)
    ]


WORDS = ("into", "between", "out")
NAMES = {
    "torch": lambda k: (f"layers.{k}.weight", f"layers.{k}.bias"),
    "sequential": lambda k: (f"{2 * k}.weight", f"{2 * k}.bias"),
    "short": lambda k: (f"W{k + 1}", f"b{k + 1}"),
    "underscored": lambda k: (f"w_{k}", f"b_{k}"),
    "words": lambda k: (f"{WORDS[k]}.weight", f"{WORDS[k]}.bias"),
    "positional": lambda k: (f"arr_{2 * k}", f"arr_{2 * k + 1}"),
    "parallel": lambda k: (f"module.net.fc{k}.weight", f"module.net.fc{k}.bias"),
}


@pytest.mark.parametrize("naming", NAMES)
def test_usual_names(naming):
    net = layers(5, 7, 4, 3)
    tensors = {}
    for k, (W, b) in enumerate(net):
        weight, bias = NAMES[naming](k)
        tensors |= {weight: W, bias: b}
    found = chain(tensors)
    assert found.network.widths == (5, 7, 4, 3)
    assert found.network.lambda_b == (1.0, 1.0, 1.0)
    for (W, b), layer in zip(net, found.params, strict=True):
        np.testing.assert_array_equal(W, layer.W)
        np.testing.assert_array_equal(b, layer.b)
    assert found.notes == ()


def test_many_square_layers_are_sorted_by_number_not_by_letter():
    net = layers(*[6] * 13, bias=False)
    names = [f"layers.{k}.weight" for k in range(12)]
    tensors = dict(zip(names, [W for W, _ in net], strict=True))
    found = chain({name: tensors[name] for name in sorted(names)})
    assert list(found.names) == names
    assert any("two orders" in note for note in found.notes)
    assert any("square" in note for note in found.notes)


def test_flax_and_keras_kernels_are_transposed():
    net = layers(5, 7, 3)
    flax = {f"params/Dense_{k}/kernel": W.T for k, (W, _) in enumerate(net)}
    flax |= {f"params/Dense_{k}/bias": b for k, (_, b) in enumerate(net)}
    found = chain(flax)
    assert found.network.widths == (5, 7, 3)
    assert "transposed" in found.notes[0]
    np.testing.assert_array_equal(found.params[0].W, net[0][0])
    keras = {"dense/kernel:0": net[0][0].T, "dense/bias:0": net[0][1][None, :]}
    assert chain(keras).network.widths == (5, 7)


def test_transposed_square_kernels_go_by_their_name():
    W = rng.normal(size=(4, 4))
    np.testing.assert_array_equal(chain({"a/kernel": W}).params[0].W, W.T)
    np.testing.assert_array_equal(chain({"a.weight": W}).params[0].W, W)


def test_shapes_decide_where_names_mislead():
    (V, _), (W, _), (U, _) = layers(5, 7, 4, 3)
    found = chain({"z": V, "y": U, "x": W})
    assert found.names == ("z", "x", "y")
    assert "ordered by their shapes" in found.notes[0]
    square = {"hidden": rng.normal(size=(4, 4)), "input": rng.normal(size=(4, 9))}
    assert chain(square).names == ("input", "hidden")


def test_inputs_and_given_order_overrule():
    tensors = {"a": rng.normal(size=(4, 4)), "b_": rng.normal(size=(4, 4))}
    assert chain(tensors, layers=["b_", "a"]).names == ("b_", "a")
    wide = {"a": rng.normal(size=(3, 5)), "c": rng.normal(size=(5, 3))}
    assert chain(wide, inputs=5).names == ("a", "c")
    assert chain(wide, inputs=3).names == ("c", "a")
    with pytest.raises(InvalidValueError, match="do not fit"):
        chain(wide, inputs=4, layers=["c", "a"])
    with pytest.raises(InvalidValueError, match="the matrices are a, c"):
        chain(wide, layers=["x"])


def test_npz_safetensors_and_torch_hold_the_same(tmp_path):
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2, bias=False)
    )
    state = model.state_dict()
    torch.save(state, tmp_path / "a.pt")
    torch.save({"epoch": 3, "model_state_dict": state, "loss": 0.1}, tmp_path / "b.pth")
    save_file(state, tmp_path / "c.safetensors")
    half = {name: value.to(torch.bfloat16) for name, value in state.items()}
    save_file(half, tmp_path / "d.safetensors")
    torch.save(half, tmp_path / "d.pt")
    np.savez(tmp_path / "e.npz", **{name: value.numpy() for name, value in state.items()})
    first = load_weights(tmp_path / "a.pt", "relu", inputs=3)
    assert first.network.widths == (3, 5, 2)
    assert first.params[0].W.dtype == np.float64
    for name in ("b.pth", "c.safetensors", "e.npz"):
        same = load_weights(tmp_path / name, "relu")
        for layer, other in zip(first.params, same.params, strict=True):
            np.testing.assert_array_equal(layer.W, other.W)
            np.testing.assert_array_equal(layer.b, other.b)
    for name in ("d.pt", "d.safetensors"):
        half = load_weights(tmp_path / name, "relu")
        np.testing.assert_allclose(half.params[0].W, first.params[0].W, rtol=1e-2)
    x = rng.normal(size=(4, 3))
    with torch.no_grad():
        expected = model(torch.tensor(x, dtype=torch.float32)).numpy()
    np.testing.assert_allclose(first(x), expected, atol=1e-6)
    # A bias that is not there does not learn; all else moves at the rate 1, λ_W/n_{ℓ-1}.
    assert first.network.lambda_b == (1.0, 0.0)
    assert first.network.lambda_W == (3.0, 5.0)


def test_the_initialisation_of_loaded_weights_is_not_invented(tmp_path):
    np.savez(tmp_path / "net.npz", W1=np.eye(3), W2=np.eye(3), W3=np.ones((1, 3)))
    model = load_weights(tmp_path / "net.npz", "tanh", skip=0.5)
    assert not hasattr(model.network, "C_W")
    assert model.network.skip == (0.5,)
    assert model.names == ("W1", "W2", "W3")
    x = rng.normal(size=(2, 3))
    expected = np.tanh(np.tanh(x) + 0.5 * x).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model(x), expected, rtol=1e-14)
    with pytest.raises(InvalidValueError, match="one per block"):
        load_weights(tmp_path / "net.npz", "tanh", skip=[0.5, 0.5])


class Harmful:
    """Would write a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_no_code_of_a_file_runs(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"weight": Harmful(tmp_path / "harm")}, tmp_path / "bad.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Harmful(tmp_path / "harm")))
    for name in ("bad.pt", "plain.pt"):
        with pytest.raises(InvalidValueError, match="weights_only=True"):
            load_weights(tmp_path / name, "relu")
    np.savez(tmp_path / "bad.npz", W=np.array([Harmful(tmp_path / "harm")], dtype=object))
    with pytest.raises(InvalidValueError, match="numpy.savez"):
        load_weights(tmp_path / "bad.npz", "relu")
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"conv.weight": np.ones((4, 3, 3, 3))}, "convolution"),
        ({"fc.weight": np.ones((2, 3)), "bn.weight": np.ones(2)}, "normalisation layer"),
        ({"fc.weight": np.ones((2, 3)), "bn.steps": np.array(3)}, "floating-point type"),
        ({"fc.weight": np.ones((2, 3)), "other.bias": np.ones(2)}, "belongs to no weight matrix"),
        ({"fc.weight": np.ones((2, 3)), "fc.bias": np.ones(5)}, "no chain of dense layers"),
        ({"a.weight": np.ones((2, 3)), "b.weight": np.ones((5, 4))}, r"a.weight \(2, 3\)"),
        ({"a.weight": np.full((2, 3), np.nan)}, "not finite"),
        ({"a.bias": np.ones(3)}, "belongs to no weight matrix"),
        ({}, "no weight matrix"),
        ({"scale": np.array(1.0), "W": np.ones((2, 2))}, "expected matrices, vectors"),
        ({"W1": np.ones((2, 3)), "w1": np.ones((2, 2))}, "one layer, two matrices"),
    ],
)
def test_refusals(tensors, message):
    with pytest.raises((InvalidValueError, NonFiniteError), match=message):
        chain(tensors)


def test_other_inputs_than_the_first_layer_takes_are_refused_with_both_numbers():
    tensors = {"W1": np.ones((5, 3)), "W2": np.ones((1, 5))}
    with pytest.raises(InvalidValueError, match="inputs = 4: W1 takes 3 features"):
        assemble_model(tensors, "relu", inputs=4)


def test_refused_files(tmp_path):
    with pytest.raises(InvalidValueError, match="no such file"):
        load_weights(tmp_path / "a.npz", "relu")
    with pytest.raises(InvalidValueError, match="expected a file .npz, .safetensors, .pt"):
        load_weights(tmp_path / "a.h5", "relu")
    for name in ("a.npz", "a.safetensors", "a.pt"):
        (tmp_path / name).write_bytes(b"nonsense, and quite a few bytes of it")
        with pytest.raises(InvalidValueError, match="not a"):
            load_weights(tmp_path / name, "relu")


def test_a_file_that_may_be_residual_is_refused():
    square = {f"W{i}": np.ones((4, 4)) for i in range(3)} | {"W3": np.ones((1, 4))}
    with pytest.raises(InvalidValueError, match="W1 has equal widths.*Model.of"):
        assemble_model(square, "relu")
    assert assemble_model(square, "relu", skip=1.0).network.skip == (1.0, 1.0)
    rows = {f"{2 * i}.weight": np.ones((4, 4)) for i in range(4)}  # torch.nn.Sequential
    assert assemble_model(rows, "relu").network.skip == (0.0, 0.0)
    blocks = {f"{i}.weight": np.ones((4, 4)) for i in range(4)}  # nothing in between
    with pytest.raises(InvalidValueError, match="skip = None"):
        assemble_model(blocks, "relu")
    heads = {f"h.{name}_proj.weight": np.ones((4, 4)) for name in "qkvo"}
    with pytest.raises(InvalidValueError, match="of attention"):
        assemble_model(heads, "relu", skip=0.0)
