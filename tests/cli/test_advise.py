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
        (["--loss", "hinge"], "expected 'mse' or 'cross-entropy'"),
        (["--loss", "cross-entropy"], "at least two classes"),
        (["--data", "missing.npy"], "--data = 'missing.npy': no such file"),
        (["--width", "wide"], "'--width'"),
    ],
)
def test_advise_refuses(complaint, more, words):
    assert words in complaint(*ARGUMENTS, *more)
