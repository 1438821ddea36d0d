"""Numbering of unordered pairs of samples."""

import numpy as np
import pytest

from dynagram._pairs import matrix_to_pairs, pair_indices, pair_numbers, pairs_to_matrix
from dynagram.errors import InvalidValueError


def test_numbers_and_indices_are_inverse_and_in_the_stated_order():
    first, second = pair_indices(4)
    assert list(zip(first.tolist(), second.tolist(), strict=True))[:6] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 1),
        (1, 2),
    ]
    numbers = pair_numbers(4)
    assert numbers[first, second].tolist() == list(range(10))
    assert np.array_equal(numbers, numbers.T)


def test_round_trip_and_middle_axes():
    matrix = np.random.default_rng(0).normal(size=(5, 3, 3))
    matrix = matrix + np.swapaxes(matrix, 1, 2)
    pairs = matrix_to_pairs(matrix)
    assert pairs.shape == (5, 6)
    assert np.array_equal(pairs_to_matrix(pairs), matrix)
    tensor = np.random.default_rng(1).normal(size=(2, 6, 6))
    full = pairs_to_matrix(pairs_to_matrix(tensor, 1), 3)
    assert full.shape == (2, 3, 3, 3, 3)
    assert full[1, 2, 0, 1, 1] == tensor[1, 2, 3]


def test_a_number_that_is_not_triangular_is_refused():
    with pytest.raises(InvalidValueError, match="number of pairs = 4"):
        pairs_to_matrix(np.zeros(4))
