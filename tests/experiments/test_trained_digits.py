"""trained-digits: verdicts on made-up numbers, and a small run that is stopped and goes on."""

import numpy as np
import pytest

pytest.importorskip("altair")
pytest.importorskip("sklearn")

from dynagram_experiments import Settings
from dynagram_experiments.digits import trained as trained_digits
from dynagram_experiments.digits.trained import Plan
from dynagram_experiments.digits.trained.statements import OutputsByWidth, judged

WIDTHS = (64, 128, 256)


def made_up(*, factor=1.0, next_order=4.0, noise=1e-4):
    """Means m^∞ + factor·m^{1}/n + next_order/n², and the same for variances."""
    rng = np.random.default_rng(0)
    limit, shift = rng.normal(size=12), rng.normal(size=12)
    n = np.array(WIDTHS)[:, None]
    mean = limit + factor * shift / n + next_order / n**2
    error = np.full((3, 12), noise)
    return OutputsByWidth(
        targets=np.sign(limit), widths=WIDTHS, infinite=limit, shift=shift,
        shift_error=np.full(12, 1e-3), variance=limit**2, variance_shift=shift,
        mean=mean, mean_error=error, joint_error=np.stack([np.eye(12) * noise**2] * 3),
        measured_variance=limit**2 + mean - limit, measured_variance_error=error,
        unfinished=(0, 0, 0), members=200, tolerance=3e-5,
    )  # fmt: skip


def test_a_correct_prediction_passes_and_its_gain_grows_with_width():
    found = judged(made_up())
    assert found.passed
    table = found.tables["trained_digits"]
    gain = np.array(table["error_infinite"]) / np.array(table["error_order_1_n"])
    assert np.all(np.diff(gain) > 0)
    # What is left is the next order: 4/n².
    np.testing.assert_allclose(table["error_order_1_n"], 4.0 / np.array(WIDTHS) ** 2, rtol=1e-8)
    assert set(found.figures) == {
        "trained_digits_mean", "trained_digits_variance", "trained_digits_shifts",
    }  # fmt: skip


@pytest.mark.parametrize("factor", [0.5, 2.0, -1.0])
def test_a_wrong_coefficient_fails(factor):
    assert not judged(made_up(factor=factor)).statements[1].passed


def test_the_error_of_the_factor_knows_that_images_share_their_networks():
    alone = made_up(noise=1e-3)
    together = OutputsByWidth(
        **(alone.__dict__ | {"joint_error": np.full((3, 12, 12), 1e-6)})  # fully correlated
    )
    predicted = alone.shift / WIDTHS[0]
    square = np.sum(predicted**2)
    numerical = np.sum(np.abs(predicted) * alone.shift_error / WIDTHS[0]) / square
    for found, spread in ((alone, square), (together, np.sum(predicted) ** 2)):
        expected = np.hypot(1e-3 * np.sqrt(spread) / square, numerical)
        assert found.amplitude()[1][0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.slow
def test_a_small_run_is_continued(tmp_path, monkeypatch):
    plan = Plan(train=2, test=1, widths=(16,), accuracy=0.1)
    monkeypatch.setattr(trained_digits, "QUICK", plan)
    monkeypatch.setattr(trained_digits, "KERNELS", 400)
    settings = Settings(seed=3, folder=tmp_path)
    first = trained_digits.EXPERIMENT.run(settings)
    assert first.statements[0].measured.startswith("0 of 200")
    folder = tmp_path / "trained-digits-parts"
    assert sorted(path.name for path in folder.iterdir()) == [
        "prediction.npz", "width_16", "width_16.npz",
    ]  # fmt: skip
    # A run that was stopped goes on with what is there.
    with np.load(folder / "width_16.npz") as stored:
        changed = dict(stored) | {"unfinished": np.array(7)}
    np.savez(folder / "width_16.npz", **changed)
    (folder / "prediction.npz").unlink()
    second = trained_digits.EXPERIMENT.run(settings)
    assert second.statements[0].measured.startswith("7 of 200")
    assert second.tables["trained_digits"] == first.tables["trained_digits"]
