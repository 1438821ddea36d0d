"""Plateaus of loss curves made to have them, or not."""

import numpy as np
import pytest

from dynagram.errors import DynagramError
from dynagram.observables._plateaus import find_plateaus

T = np.arange(3000.0)
STAGES = 1 / (1 + np.exp((T - 1000) / 30)) + 0.5 / (1 + np.exp((T - 2000) / 30))


def test_two_stages_and_an_end():
    found = find_plateaus(STAGES)
    assert [p.left for p in found] == [True, True, False]
    assert found[0].start == 0
    assert 900 < found[0].end < 1000
    assert 1040 < found[1].start < 1120
    assert 1880 < found[1].end < 2000
    assert found[1].level == pytest.approx(0.5, abs=0.02)


def test_a_plateau_ends_where_the_allowed_fall_is_used_up():
    """1/(1 + e^{(t − 1000)/30}) has fallen by 5 % of 1.5 at 1000 + 30 log(0.075/0.925)."""
    for fall, part in ((0.05, 0.075), (0.1, 0.15)):
        first = find_plateaus(STAGES, fall=fall)[0]
        assert first.end == np.floor(1000 + 30 * np.log(part / (1 - part)))


def test_steps_of_the_size_of_the_noise_are_no_plateaus():
    for seed in (1, 2, 3):
        loss = STAGES + 0.05 * np.random.default_rng(seed).normal(size=T.size)
        assert len(find_plateaus(loss)) == 3


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_noise_moves_the_ends_but_adds_no_long_plateau(noise):
    loss = STAGES + noise * np.random.default_rng(0).normal(size=T.size)
    long = [p for p in find_plateaus(loss) if p.end - p.start > 100]
    assert [p.left for p in long] == [True, True, False]
    assert abs(long[1].start - 1080) < 60
    assert abs(long[1].end - 1930) < 60


def test_uneven_steps_give_the_same_plateaus():
    some = np.unique(np.geomspace(1, 2999, 400).astype(int))
    every, sparse = find_plateaus(STAGES), find_plateaus(STAGES[some], T[some])
    assert len(every) == len(sparse)
    assert abs(every[0].end - sparse[0].end) < 30


def test_decays_have_no_plateau_that_is_left():
    for loss in (np.exp(-T / 200), 1 / (1 + T), 1 - T / 3000):
        assert not any(p.left for p in find_plateaus(loss))


def test_a_curve_of_noise_is_one_plateau():
    (only,) = find_plateaus(1 + 0.1 * np.random.default_rng(1).normal(size=500))
    assert (only.start, only.end, only.left) == (0.0, 499.0, False)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"loss": np.array([1.0, np.nan, 0.0])}, r"loss\[1\].*diverged"),
        ({"loss": np.ones(2)}, "at least 3"),
        ({"loss": np.ones(3), "steps": np.array([0.0, 2.0, 1.0])}, "increasing"),
        ({"loss": np.ones(3), "fall": 0.9}, "fall"),
        ({"loss": np.ones(3), "contrast": 1.0}, "contrast"),
    ],
)
def test_bad_input_is_refused(arguments, words):
    with pytest.raises(DynagramError, match=words):
        find_plateaus(**arguments)
