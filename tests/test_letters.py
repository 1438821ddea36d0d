"""Every letter of the registry is predicted or measured, with the axes and symmetries it lists."""

import functools
import itertools

import numpy as np
import pytest

from dynagram import MLP, predict, simulate
from dynagram.ensembles.initial._job import TANGENTS
from dynagram.errors import InvalidValueError
from dynagram.results import LETTERS
from dynagram.results._letters import INFINITE, RECURSIVE, check_letters, closure

X = np.array([[1.0, -0.4, 0.7], [-0.3, 1.2, 0.5]])
RATES = {"lambda_b": [0.3, 0.5, 0.2], "lambda_W": [0.7, 0.6, 0.9]}
PLAIN = MLP((3, 6, 5, 2), "tanh", 0.1, 1.2, **RATES)
SKIPS = MLP((3, 6, 6, 2), "tanh", 0.1, 1.2, skip=0.5, **RATES)
PREDICTED = (*INFINITE, *RECURSIVE)
MEASURED = tuple(LETTERS)


@functools.cache
def predicted():
    return predict(PLAIN, X, PREDICTED)


@functools.cache
def measured(network):
    names = [n for n in MEASURED if n != ("six_point" if network.has_skips else "odd")]
    return simulate(network, X, names, members=128)


@pytest.mark.slow
@pytest.mark.parametrize("name", LETTERS)
def test_axes_and_layers(name):
    letter, results = LETTERS[name], []
    if name in PREDICTED:
        results.append(predicted())
        assert predicted().layers[name] == (1, 2, 3)
    network = SKIPS if name == "odd" else PLAIN
    results.append(measured(network))
    layers = (1, 2, 3) if letter.everywhere else (3,)
    assert results[-1].layers[name] == layers
    assert (name in TANGENTS) == (not letter.everywhere)
    for result in results:
        shape = (len(result.layers[name]), *[2] * len(letter.axes))
        assert result[name].shape == result.error(name).shape == shape
        assert np.all(np.isfinite(result[name]))
        assert np.any(result[name] != 0.0)  # odd vanishes at the output, where no skip is


@pytest.mark.parametrize("name", LETTERS)
def test_pairs_are_symmetric(name):
    """The first 2·pairs axes come in pairs whose order does not matter."""
    letter = LETTERS[name]
    tensors = [measured(SKIPS if name == "odd" else PLAIN)[name]]
    tensors += [predicted()[name]] if name in PREDICTED else []
    for tensor, pair in itertools.product(tensors, range(letter.pairs)):
        swapped = np.swapaxes(tensor, 1 + 2 * pair, 2 + 2 * pair)
        np.testing.assert_allclose(swapped, tensor, atol=1e-12 * np.max(np.abs(tensor)))
    if letter.pairs == 0:  # listed because no such symmetry is there
        tensor = tensors[0]
        assert np.max(np.abs(np.swapaxes(tensor, 1, 2) - tensor)) > 1e-3 * np.max(np.abs(tensor))


@pytest.mark.parametrize("name", LETTERS)
def test_words_and_orders(name):
    letter = LETTERS[name]
    assert letter.name == name
    assert letter.plain
    assert letter.equation
    assert letter.order in ("∞", "1/n", "1/n²")
    assert 2 * letter.pairs <= len(letter.axes)
    assert set(letter.needs) <= set(RECURSIVE)
    assert measured(PLAIN).order == "measured"
    if name in RECURSIVE:
        assert name in closure([name])
        assert predicted().order_of(name) == "1/n"


def test_every_letter_is_predicted_or_measured():
    assert set(PREDICTED) | set(MEASURED) == set(LETTERS)
    for name in set(LETTERS) - set(PREDICTED):
        with pytest.raises(InvalidValueError, match="expected some of"):
            predict(PLAIN, X, (name,))


def test_networks_with_skips_have_letters_of_their_own():
    found = measured(SKIPS)
    assert list(found) == [name for name in LETTERS if name != "six_point"]
    with pytest.raises(InvalidValueError, match="'six_point': networks with skips have"):
        simulate(SKIPS, X, ("six_point",), members=64)
    with pytest.raises(InvalidValueError, match="'odd': networks without skips have"):
        simulate(PLAIN, X, ("odd",), members=64)


def test_letters_come_once_and_in_order():
    assert check_letters("V", tuple(LETTERS)) == ("V",)
    with pytest.raises(InvalidValueError, match="tensors = 'Z'"):
        check_letters(["Z"], tuple(LETTERS))
