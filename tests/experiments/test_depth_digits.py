"""depth-digits: its verdicts on made-up numbers, and one small training run."""

import json

import pytest

pytest.importorskip("altair")
pytest.importorskip("sklearn")

from dynagram.experiments import Settings, depth_digits
from dynagram.experiments.depth_digits import Plan, Point, judged


def ensembles(best, *, error=1e-4):
    """Test errors with a sharp minimum at the depth `best[width]`."""
    return [
        Point("tanh", width, depth, 0.1 + 0.01 * abs(depth - at), error, 0.2, 1e-3)
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


def test_a_run_learns_and_is_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(depth_digits, "QUICK", Plan({"tanh": (16,)}, members=2, steps=60, train=50))
    monkeypatch.setattr(depth_digits, "DEPTHS", (2, 3))
    settings = Settings(folder=tmp_path)
    first = depth_digits.EXPERIMENT.run(settings)
    assert max(first.tables["depth_digits"]["wrong"]) < 0.8  # 0.9 by chance
    kept = tmp_path / "depth_digits_quick_0.json"
    changed = json.loads(kept.read_text())
    changed["tanh 16 2"][3] = 0.123
    kept.write_text(json.dumps(changed))
    again = depth_digits.EXPERIMENT.run(settings)
    assert again.tables["depth_digits"]["wrong"][0] == 0.123
    assert again.tables["depth_digits"]["wrong"][1] == first.tables["depth_digits"]["wrong"][1]
