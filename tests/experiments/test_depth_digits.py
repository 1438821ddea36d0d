"""depth-digits: its verdicts on made-up numbers, and one small training run."""

import numpy as np
import pytest

pytest.importorskip("altair")
pytest.importorskip("sklearn")

from dynagram_experiments import Settings
from dynagram_experiments.digits import depth as depth_digits
from dynagram_experiments.digits.depth import Plan
from dynagram_experiments.digits.depth.statements import Point, judged


def ensembles(best, *, error=1e-4, name="tanh"):
    """Test errors with a sharp minimum at the depth `best[width]`."""
    return [
        Point(name, width, depth, 9, 0.1 + 0.01 * abs(depth - at), error, 0.2, 1e-3, 0.1, 1e-3)
        for width, at in best.items()
        for depth in (2, 3, 4, 6, 9, 13, 18)
    ]


def test_agreement_is_judged_by_the_depths_as_good_as_the_best():
    """r*·n of tanh is 3.8 and 7.7 at widths 32 and 64."""
    good = judged(ensembles({32: 4, 64: 9}))
    assert good.passed
    assert "width 32: best depth 4 (0.1000 ± 0.0001), as good 4, r*·n = 3.8" in (
        good.statements[0].measured
    )
    bad = judged(ensembles({32: 4, 64: 2}))
    assert [statement.passed for statement in bad.statements] == [False, False]
    flat = judged(ensembles({32: 13, 64: 13}, error=0.1))
    assert flat.statements[0].passed
    assert "as good 2, 3, 4, 6, 9, 13, 18" in flat.statements[0].measured
    assert not flat.statements[1].passed
    assert len(good.tables["depth_digits"]["wrong"]) == 14


def test_the_cost_of_following_the_ratio_is_told_against_one_depth_for_all():
    """r*·n = 3.8 and 7.7 make one take 4 and 9, at the cost of 0 and 3 steps from the best."""
    found = judged(ensembles({32: 4, 64: 6}))
    advice = found.tables["depth_digits_advice"]
    assert (advice["taken"], advice["best"]) == ([4, 9], [4, 6])
    assert advice["cost"] == pytest.approx([0.0, 0.03])
    assert advice["cost_error"] == pytest.approx([0.0, 2**0.5 * 1e-4])
    told = "have 0.0150 ± 0.0001 more wrong digits than the best ones, averaged over widths; "
    fixed = (
        "the best single depth for all, 4 in hindsight, has 0.0100 more, and depth 2 0.0300 more"
    )
    assert f"{told}{fixed}" in found.notes[1]
    assert "at L/n = 0.12, 0.094, the largest depths as good as the best at" in found.notes[0]
    assert "best depth 18, the deepest tried" in judged(ensembles({64: 18})).statements[0].measured


def test_activations_with_a_small_ratio_are_asked_for_few_layers_only():
    """r*·n of ReLU is 2.05 at width 128: no growth with width can be asked for."""
    found = judged(ensembles({16: 2, 128: 4}, name="relu"))
    assert found.passed
    assert len(found.statements) == 1
    assert "r*·n is 2.0 at most" in found.notes[0]
    assert not judged(ensembles({16: 2, 128: 6}, name="relu")).passed


@pytest.mark.slow
def test_a_run_learns_and_is_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(depth_digits, "QUICK", Plan((16,), {"tanh": 60}, members=2, train=50))
    monkeypatch.setattr(depth_digits, "DEPTHS", (2,))
    settings = Settings(folder=tmp_path)
    first = depth_digits.EXPERIMENT.run(settings)
    assert max(first.tables["depth_digits"]["wrong"]) < 0.8  # 0.9 by chance
    folder = tmp_path / "depth-digits-parts"
    assert (folder / "tanh_16_2" / "spec.toml").is_file()
    # Without its part, the stored ensemble gives the same; with it, the part is believed.
    (folder / "tanh_16_2.npz").unlink()
    assert depth_digits.EXPERIMENT.run(settings).tables == first.tables
    with np.load(folder / "tanh_16_2.npz") as stored:
        changed = dict(stored) | {"wrong": np.array([0.123])}
    np.savez(folder / "tanh_16_2.npz", **changed)
    again = depth_digits.EXPERIMENT.run(settings)
    assert again.tables["depth_digits"]["wrong"] == [0.123]
    assert again.tables["depth_digits"]["squared"] == first.tables["depth_digits"]["squared"]
