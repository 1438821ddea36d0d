"""`dynagram advise`: ten lines with their sources, the theory behind --why, code that runs."""

import numpy as np
import pytest

ARGUMENTS = ["advise", "--activation", "tanh", "--width", 32, "--depth", 5]


def test_advise_prints_sentences_comparison_and_code(run):
    result = run(*ARGUMENTS)
    assert result.exit_code == 0, result.output
    text = " ".join(result.stdout.split())
    for piece in (
        "Initialise: orthogonal weights",
        "[theory (D15.1)]",
        "Step: torch.optim.SGD",
        "Expect: a loss of",
        "give your own data",
        "PyTorch default",
        "init_(model, x)",
        "optax.stateless",
    ):
        assert piece in text, piece
    assert text.count("Depth:") == 1
    assert "quantity" not in text


def test_advise_json(answer):
    data = answer(*ARGUMENTS, "--optimizer", "adam", "--batch", 16, "--json")
    assert data["optimizer"] == "adam"
    assert len(data["rates"]) == 5
    assert data["why"] is None
    assert "batch=16" in data["pytorch"]
    assert all(sentence["source"] for sentence in data["sentences"])


def test_why_carries_value_meaning_and_equation(answer, run):
    data = answer(*ARGUMENTS, "--why", "--json")["why"]
    for name in ("C_b", "C_W", "lambda_b", "lambda_W", "largest_step", "ntk_fluctuation"):
        statement = data["statements"][name]
        assert statement["meaning"]
        assert statement["equation"].startswith("(")
    # λ_b^(ℓ) = 1/ℓ, λ_W constant (9.96).
    assert data["statements"]["lambda_b"]["value"] == pytest.approx([1 / k for k in range(1, 6)])
    text = run(*ARGUMENTS, "--why").stdout
    for piece in ("(9.96)", "largest_step", "√((A + 2B)/n)/Θ", "Can the 1/n theory be used there?"):
        assert piece in text, piece


def test_advise_measures_on_the_data(answer, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 7)) + 2.0
    np.savez(tmp_path / "xy.npz", x=x, y=np.arange(50) % 3)
    np.save(tmp_path / "x.npy", x)
    # (∂²L/∂z² of a cross-entropy does not depend on the labels; the gradient does.)
    more = ["--loss", "cross-entropy", "--optimizer", "adam", "--json"]
    labelled = answer(*ARGUMENTS, "--data", tmp_path / "xy.npz", *more)
    assert "widths = [7, 32, 32, 32, 32, 3]" in labelled["network"]
    assert not labelled["is_stand_in"]
    inputs = answer(*ARGUMENTS, "--data", tmp_path / "x.npy", "--outputs", 3, *more)
    assert inputs["rates"] != labelled["rates"]
    assert inputs["point"] == labelled["point"]


def test_skips_and_sigmoid(run):
    assert "1/5 of that variance" in " ".join(run(*ARGUMENTS, "--residual").stdout.split())
    # Without a critical initialisation there is an operating point, but no theory to show.
    words = [*ARGUMENTS[:2], "sigmoid", *ARGUMENTS[3:]]
    assert run(*words).exit_code == 0
    assert "no critical initialisation" in run(*words, "--why").output


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--activation", "tahn"], "did you mean tanh"),
        (["--width", "0"], "--width = 0: expected 1 or more"),
        (["--depth", "1"], "--depth = 1"),
        (["--loss", "hinge"], "expected one of half-sum, mean, cross-entropy"),
        (["--loss", "cross-entropy"], "at least two classes"),
        (["--optimizer", "lion"], "expected one of sgd"),
        (["--batch", "0"], "batch"),
        (["--seed", "-1"], "--seed"),
        (["--inputs", "0"], "--inputs"),
        (["--data", "missing.npy"], "--data = 'missing.npy': no such file"),
        (["--width", "wide"], "'--width'"),
        (["--depth", "2", "--residual"], "a block joins two hidden layers"),
    ],
)
def test_advise_refuses(complaint, more, words):
    assert words in complaint(*ARGUMENTS, *more)
