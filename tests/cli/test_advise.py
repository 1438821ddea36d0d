"""`dynagram advise`: numbers with their formulas, and code that sets them."""

import json

import numpy as np
import pytest

ARGUMENTS = ["advise", "--activation", "tanh", "--width", 64, "--depth", 5]


def test_advise_json_carries_value_meaning_and_equation(answer):
    data = answer(*ARGUMENTS, "--json")
    assert list(data) == [
        "network",
        "loss",
        "class",
        "statements",
        "sweet_spot",
        "depth_verdict",
        "residual",
        "regime",
        "notes",
        "standard_parametrisation",
        "pytorch",
        "optax",
    ]
    for name in ("C_b", "C_W", "lambda_b", "lambda_W", "largest_step", "ntk_fluctuation"):
        statement = data["statements"][name]
        assert statement["meaning"]
        assert statement["equation"].startswith("(")
    # λ_b^(ℓ) = 1/ℓ, λ_W constant (9.96).
    assert data["statements"]["lambda_b"]["value"] == pytest.approx([1 / k for k in range(1, 6)])
    assert data["statements"]["lambda_W"]["value"] == pytest.approx([1.0] * 5)
    rate = data["statements"]["step"]["value"] * data["statements"]["pytorch_factor"]["value"]
    assert data["standard_parametrisation"]["rate_b"][1] == pytest.approx(rate / 2)
    assert data["standard_parametrisation"]["rate_W"][1] == pytest.approx(rate / 64)


def test_advise_prints_table_paragraph_and_code(run):
    result = run(*ARGUMENTS)
    assert result.exit_code == 0, result.output
    for piece in (
        "(9.96)",
        "largest_step",
        "√((A + 2B)/n)/Θ",
        "Draw the weights with variance",
        "Can the 1/n theory be used here?",
        "torch.optim.SGD(groups)",
        "optax.stateless",
    ):
        assert piece in result.stdout, piece


def test_advise_tells_why_it_knows_no_skips(complaint, run):
    """hardtanh has no r*; the rest of the advice is there."""
    plain = ["advise", "--activation", "hardtanh", "--width", 64, "--depth", 10]
    line = complaint(*plain, "--residual")
    assert "no law V/(nK²) → ν·ℓ/n is known for its class" in line
    assert "leave residual out for all other advice" in line
    assert run(*plain).exit_code == 0


def test_advise_holds_depth_against_width(run, answer):
    """L/n against r*, the fluctuation to expect, and what skips would change."""
    deep = ["advise", "--activation", "relu", "--width", 64, "--depth", 10, "--outputs", 2]
    data = answer(*deep, "--residual", "--json")
    statements = data["statements"]
    assert statements["aspect_ratio"]["value"] == pytest.approx(10 / 64)
    assert statements["optimal_aspect_ratio"]["value"] == pytest.approx(4 / 26 / 5)
    assert statements["depth_scale"]["value"] == pytest.approx(64 * 4 / 26 / 5)
    assert statements["signal_fluctuation"]["value"] == pytest.approx((5 * 9 / 64) ** 0.5)
    assert "too deep for its width" in data["depth_verdict"]
    residual = data["residual"]
    assert residual["wanted"]
    assert residual["r_star"] == pytest.approx(10 / 64)
    assert residual["skip"] > residual["published_skip"] > 0.85
    assert residual["C_W"] == pytest.approx(2 * (1 - residual["skip"] ** 2))
    assert residual["fluctuation"] < 0.5 * residual["plain_fluctuation"]
    assert answer(*deep, "--json")["residual"] is None
    text = " ".join(run(*deep, "--residual").stdout.split())
    assert "Is the depth right for the width? L/n = 0.16 is 5.1 times r* = 0.031" in text
    assert "What would skips change? With γ = 0.9649 in every block" in text
    shallow = run("advise", "--activation", "tanh", "--width", 512, "--depth", 4, "--residual")
    assert "No skip is called for" in shallow.stdout


def test_advise_takes_the_step_from_the_data(answer, tmp_path):
    path = tmp_path / "x.npy"
    one = answer(*ARGUMENTS, "--json")["statements"]
    np.save(path, np.ones((7, 3)))
    seven = answer(*ARGUMENTS, "--data", path, "--json")["statements"]
    # Seven equal inputs: λ_max is seven times Θ.
    ratio = seven["largest_eigenvalue"]["value"] / one["largest_eigenvalue"]["value"]
    assert ratio == pytest.approx(7.0, rel=1e-9)
    assert seven["pytorch_factor"]["value"] == pytest.approx(7 / 2)


def test_advise_for_cross_entropy(answer):
    data = answer(*ARGUMENTS, "--outputs", 10, "--loss", "cross-entropy", "--json")
    assert data["loss"] == "cross-entropy"
    assert "CrossEntropyLoss" in data["pytorch"]
    json.dumps(data, allow_nan=False)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--activation", "tahn"], "did you mean tanh"),
        (["--activation", "sigmoid"], "no critical initialisation"),
        (["--width", "0"], "width"),
        (["--depth", "1"], "depth = 1"),
        (["--loss", "hinge"], "expected one of half-sum, mean, cross-entropy"),
        (["--loss", "cross-entropy"], "at least two classes"),
        (["--data", "missing.npy"], "--data = 'missing.npy': no such file"),
        (["--width", "wide"], "'--width'"),
        (["--depth", "2", "--residual"], "blocks with skips need at least 3 layers"),
    ],
)
def test_advise_refuses(complaint, more, words):
    assert words in complaint(*ARGUMENTS, *more)
