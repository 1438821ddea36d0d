"""Fields against weights on digits: the experiments' own runs, shortened."""

import numpy as np
import pytest

from dynagram_experiments.fields._tasks import parity, zero_or_one
from dynagram_experiments.fields.closure.runs import (
    activations_only,
    anchored,
    one_layer,
    one_step,
)
from dynagram_experiments.fields.coactivation import runs
from dynagram_experiments.fields.coactivation.runs import Case, Runs, run_case

TASK = zero_or_one(200, 7)


@pytest.mark.slow
@pytest.mark.parametrize("readout", ["mean", "signed"])
def test_one_layer_trains_without_weights(readout):
    run = one_layer(TASK, readout, 30.0, 7, 120, "<f8")
    assert run.flips > 10_000
    assert run.masks_apart == 0
    assert max(run.difference, run.unseen_difference) < 1e-12
    assert run.loss_difference < 1e-10
    assert run.losses[-1] < 0.05 * run.losses[0]
    if readout == "mean":
        residual, _ = activations_only(TASK, readout, 30.0, 7, 120)
        assert np.linalg.norm(residual - run.residual) > 0.05 * np.linalg.norm(run.residual)


@pytest.mark.parametrize("L", [1, 3])
def test_one_step_on_digits(L):
    found = one_step(TASK, L, 7)
    assert found.kernel < 1e-12
    if L == 1:
        assert np.nanmax(found.errors["r"]) < 1e-8
    else:
        for name in ("r", "u", "b"):
            assert abs(found.order(name) - 2) < 0.05


@pytest.mark.slow
def test_frozen_masks_on_digits():
    run = anchored(2, "fields", 7, width=64, samples=60, steps=100)
    for k in (1, 5, 20):
        assert run.residual_error[run.at(k)].mean() < 0.5 * run.residual_change[run.at(k)].mean()
    assert run.flipped[-1].sum() > 0


@pytest.mark.slow
def test_classes_part(monkeypatch):
    monkeypatch.setattr(runs, "STEPS", (0, 60))
    found = run_case(Case("L = 2", "0 vs 1", 2), [7, 8], "<f4")
    signs = {"gap 2": 1, "upper 2": 1, "different 2": -1, "lower 2": -1, "rank different": -1,
             "residual in top 5": -1}  # fmt: skip
    for name, sign in signs.items():
        start, end = found.numbers[name].T
        assert np.all(sign * (end - start) > 0), name
    assert np.all(np.abs(found.numbers["shuffled gap score"]) < 4.5)
    assert np.all(np.abs(found.numbers["rank ratio different"][:, 0] - 1) < 0.02)
    for name, values in found.numbers.items():
        assert np.all(np.isfinite(values)), name
    assert set(found.tails.each("verdict", weights="untrained")) == {"random"}
    again = Runs.of_part(found.case, found.part())
    assert again.tails.keys() == found.tails.keys()
    for name, values in found.numbers.items():
        np.testing.assert_array_equal(again.numbers[name], values)


def test_unseen_digits_are_others():
    task = parity(300, 3)
    assert task.x.shape == (300, 64)
    assert task.unseen.shape == (500, 64)
    both = np.concatenate([task.x, task.unseen])
    assert len(np.unique(both, axis=0)) == len(both)
    assert abs(task.x.mean()) < 1e-12
    assert abs(task.x.std() - 1) < 1e-12
