"""The tensors behind a trained prediction: what fits into memory, and what is written out."""

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.networks import MLP
from dynagram.theory._kernels import frozen_kernels
from dynagram.theory._predict import predict
from dynagram.theory.training import _tensors as tensors
from dynagram.theory.training._tensors import NEEDED, modes_for, output_tensors

NETWORK = MLP([2, 8, 1], "tanh", C_b=0.1, C_W=1.2)


def _inputs(samples):
    return np.random.default_rng(0).standard_normal((samples, 2))


@pytest.mark.parametrize(
    ("samples", "memory", "message"),
    [
        (141, 10**15, "141: at most 140 training and test inputs"),
        (128, 24 * 1024**3, "128: training and test inputs together need about 80 GiB .* are 24"),
        (20, 10**6, "20: training and test inputs together"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(monkeypatch, samples, memory, message):
    monkeypatch.setattr(tensors, "memory_limit", lambda: memory)
    with pytest.raises(InvalidValueError, match=message):
        modes_for(samples)


def test_repeated_inputs_are_written_out():
    x = _inputs(3)[[0, 1, 0, 2]]
    found = output_tensors(NETWORK, x, frozen_kernels(NETWORK, x), accuracy=1e-6, seed=0).mode(0)
    expected = predict(NETWORK, x, NEEDED, accuracy=1e-6)
    assert sorted(found) == sorted(NEEDED)
    assert len(found) == len(NEEDED)
    for name in NEEDED:
        np.testing.assert_allclose(found[name], expected[name][-1], rtol=1e-12, atol=1e-14)
