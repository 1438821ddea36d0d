"""`Tensors`: the protocol of results, its table, its files."""

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.results import Regime, Tensors, compare, load

NET = MLP([3, 10, 20, 2], "tanh", C_b=0.1, C_W=1.2)
X = np.array([[1.0, 0.5, -0.3], [0.2, -1.0, 0.6]])
LAYERS = (1, 2, 3)


def numbers(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def prediction():
    """K, V and G1 in all layers; V has numerical errors."""
    values = {
        "K": numbers((3, 2, 2)),
        "V": numbers((3, 2, 2, 2, 2), 1),
        "G1": numbers((3, 2, 2), 2),
    }
    errors = {"V": np.full((3, 2, 2, 2, 2), 1e-3), "G1": np.full((3, 2, 2), 1e-16)}
    regime = Regime("1/n", "careful", ("the <next> order is large",), {"next_order_of_V": 0.2})
    layers = dict.fromkeys(values, LAYERS)
    return Tensors(NET, X, "1/n", values, errors, layers, regime, about={"accuracy": 1e-4})


def measurement():
    """K in all layers, B at the output."""
    values = {"K": numbers((3, 2, 2), 3), "B": numbers((1, 2, 2, 2, 2), 4)}
    errors = {name: np.abs(numbers(array.shape, 5)) for name, array in values.items()}
    errors["K"][0] = 0.0
    layers = {"K": LAYERS, "B": (3,)}
    about = {"sampler": "weights", "complete": True, "worst": {"tensor": "B", "error": 0.0123}}
    return Tensors(NET, X, "measured", values, errors, layers, None, 500, 7, about)


def test_repr_is_short_whatever_is_inside():
    deep = MLP([3, *range(10, 60), 1], "tanh", 0.0, 1.0)
    every = {name: np.zeros((1, *[1] * 4)) for name in "ABDFPQRSTU"}
    layers = dict.fromkeys(every, (51,))
    big = Tensors(deep, np.ones((1, 3)), "measured", every, {}, layers, None, 10**9, 2**31)
    for result in (prediction(), measurement(), big):
        assert len(repr(result)) < 200
    assert repr(prediction()) == (
        "Tensors(K, V, G1; order 1/n; 2 samples; careful; MLP((3, 10, 20, 2), 'tanh', …))"
    )
    assert "500 networks" in repr(measurement())
    assert "(3, 10, 11, …, 59, 1)" in repr(big)


def test_tables_have_the_same_columns_and_errors_beside_their_numbers():
    grid = prediction().summary()
    assert grid.headings == ("layer", "fan-in n", "K", "V/n", "G1/n")
    assert [row[:2] for row in grid.rows] == [("1", "3"), ("2", "10"), ("3", "20")]
    K, V = (prediction().diagonals()[name] for name in ("K", "V"))
    assert grid.rows[1][2] == f"{K[1].mean():.5g}"
    assert grid.rows[1][3] == f"{V[1].mean() / 10:.5g} ± 0.0001"
    assert "±" not in grid.rows[1][4]  # rounding differs between machines
    assert "averaged over the 2 samples" in grid.notes[0]
    other = measurement().summary()
    assert other.headings == ("layer", "fan-in n", "K", "B/n")
    assert [row[3] == "–" for row in other.rows] == [True, True, False]
    assert "±" not in other.rows[0][2]
    assert "±" in other.rows[1][2]
    assert "500 networks (seed 7)" in " ".join(other.notes)
    assert "Worst standard error: 0.012 of the size of B." in other.notes


def test_tables_fit_a_line():
    grid = prediction().summary()
    pieces = grid.fitted(40)
    assert len(pieces) > 1
    assert all(piece.headings[:2] == ("layer", "fan-in n") for piece in pieces)
    assert [h for piece in pieces for h in piece.headings[2:]] == ["K", "V/n", "G1/n"]
    for piece in pieces:
        columns = zip(piece.headings, *piece.rows, strict=True)
        assert sum(max(map(len, column)) + 2 for column in columns) - 2 <= 40
    assert len(grid.fitted(200)) == 1
    assert grid.fitted(1)[0].headings == ("layer", "fan-in n", "K")  # never less than a column


def test_rich_and_html_tables_are_escaped():
    table = prediction().table()
    assert [str(column.header) for column in table.columns][2:] == ["K", "V/n", "G1/n"]
    assert table.row_count == 3
    page = prediction()._repr_html_()
    assert "the &lt;next&gt; order is large" in page
    assert "<next>" not in page
    assert page.count("<tr>") == 4


def test_entries_errors_and_corrections():
    result = prediction()
    assert list(result) == ["K", "V", "G1"]
    assert "V" in result
    assert "B" not in result
    with pytest.raises(InvalidValueError, match="tensor = 'B': this result holds K, V, G1"):
        result["B"]
    assert not np.any(result.error("K"))
    n = np.array([np.inf, 10, 20])[:, None, None]
    np.testing.assert_allclose(result.metric, result["K"] + result["G1"] / n)
    assert [result.order_of(name) for name in result] == ["∞", "1/n", "1/n"]
    assert measurement().order_of("K") == "measured"
    np.testing.assert_array_equal(measurement().metric, measurement()["K"])
    estimate = measurement().estimate("B")
    assert (estimate.count, estimate.value.shape) == (500, (1, 2, 2, 2, 2))
    assert any("four-point vertex, (4.119)" in line for line in result.references)


def test_some_of_the_samples():
    whole, part = prediction(), prediction().select([1])
    np.testing.assert_array_equal(part.x, X[1:])
    assert part["V"].ravel().tolist() == whole["V"][:, 1, 1, 1, 1].tolist()
    assert part.error("V").shape == (3, 1, 1, 1, 1)
    np.testing.assert_array_equal(whole.select([1, 0])["K"], whole["K"][:, ::-1, ::-1])
    for bad in ([], [2], [-1]):
        with pytest.raises(InvalidValueError, match="samples = .*expected some of 0 to 1"):
            whole.select(bad)


def test_dictionaries_whole_and_brief():
    whole, brief = prediction().to_dict(), prediction().brief()
    assert whole["tensors"]["V"]["value"].shape == (3, 2, 2, 2, 2)
    assert whole["tensors"]["K"]["error"] is None
    assert brief["diagonals"]["V"]["value"].shape == (3, 2)
    assert brief["diagonals"]["V"]["error"].shape == (3, 2)
    assert brief["diagonals"]["V"]["order"] == "1/n"
    assert brief["regime"]["verdict"] == "careful"
    assert (brief["order"], brief["samples"], brief["accuracy"]) == ("1/n", 2, 1e-4)
    assert MLP.from_toml(brief["network"]) == NET
    measured = measurement().brief()
    assert (measured["members"], measured["seed"], measured["order"]) == (500, 7, "measured")
    assert measured["diagonals"]["B"]["layers"] == [3]


def test_xarray_names_axes_and_layers():
    data = measurement().to_xarray()
    assert data.K.dims == ("layer", "a", "b")
    assert data.layer.values.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(data.B.sel(layer=3), measurement()["B"][0])
    np.testing.assert_array_equal(data.B_error.sel(layer=3), measurement().error("B")[0])
    assert np.all(np.isnan(data.B.sel(layer=1)))
    assert data.attrs["order"] == "measured"


@pytest.mark.parametrize("make", [prediction, measurement])
def test_files_give_back_everything(make, tmp_path):
    result = make()
    again = load(result.save(tmp_path / "t.npz"))
    assert repr(again) == repr(result)
    assert again.network == result.network
    assert (again.layers, again.about) == (result.layers, result.about)
    assert (again.members, again.seed, again.regime) == (
        result.members, result.seed, result.regime,
    )  # fmt: skip
    np.testing.assert_array_equal(again.x, result.x)
    for name in result:
        np.testing.assert_array_equal(again[name], result[name])
        np.testing.assert_array_equal(again.error(name), result.error(name))
    assert compare(again, result).ok()
    assert again.summary() == result.summary()


def test_files_that_are_no_results_are_refused_in_one_line(tmp_path):
    path = prediction().save(tmp_path / "t.npz")
    with np.load(path) as stored:
        good = dict(stored)
    cases = {
        "shape of V": good | {"V": good["V"][:2]},
        "layers_V": good | {"layers_V": np.array([1, 2, 9])},
        "no tensor in it": {n: a for n, a in good.items() if n in ("x", "kind", "about")},
        "'prediction', expected tensors": good | {"kind": np.array("prediction")},
        "not a result saved by dynagram": {n: a for n, a in good.items() if n != "kind"},
    }
    for words, arrays in cases.items():
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(InvalidValueError, match=words) as error:
            load(tmp_path / "bad.npz")
        assert "\n" not in str(error.value)
    path.write_bytes(path.read_bytes()[:-40])  # a copy that was cut off
    with pytest.raises(InvalidValueError, match="not an archive of arrays"):
        load(path)
    with pytest.raises(InvalidValueError, match="must end in .npz"):
        prediction().save(tmp_path / "t.txt")
