"""The figures of the book: every statement holds; the ReLU anomaly on made-up numbers and small."""

import importlib

import numpy as np
import pytest

pytest.importorskip("altair")

from dynagram_experiments import Settings
from dynagram_experiments._parts import Table
from dynagram_experiments.book import relu_anomaly


@pytest.mark.parametrize("name", ["fig2_2", "fig5_1", "fig5_2", "fig5_3"])
def test_figures_show_what_the_book_says(name):
    result = importlib.import_module(f"dynagram_experiments.book.{name}").EXPERIMENT.run(Settings())
    assert [statement.claim for statement in result.statements if not statement.passed] == []
    assert result.tables
    assert list(result.figures) == [f"figure{name.removeprefix('fig')}"]


def table(relu_power, depth_power=1.0, error=1e-6):
    """A change that goes with the powers asked for, and errors that hide nothing."""
    rows = []
    cases = [("relu", n, L) for L in (2, 3, 4, 6) for n in relu_anomaly.WIDTHS]
    cases += [(name, n, 3) for name in ("gelu", "linear") for n in relu_anomaly.SMOOTH_WIDTHS]
    for name, n, L in cases:
        Theta = 2.0
        law = relu_anomaly.one_hidden_layer_law(n, 1.5, Theta) * np.sqrt(n)
        size = law * n**relu_power * (L / 2) ** depth_power if name == "relu" else 0.4 / n
        rows.append({
            "activation": name, "width": n, "depth": L, "mean": size, "mean_error": error,
            "rms": abs(size), "rms_error": error, "epsilon": 1.5, "Theta": Theta,
        })  # fmt: skip
    return Table.of_rows(rows)


def verdicts(made):
    return [statement.passed for statement in relu_anomaly._statements(made)]


def test_powers_of_the_anomaly_are_told_apart():
    assert verdicts(table(-0.5)) == [True] * 5
    assert verdicts(table(-0.5, depth_power=2.0)) == [True, True, True, True, False]
    # Without an anomaly nothing is left at n = ∞.
    assert verdicts(table(-1.0, error=1e-4))[0] is False
    wrong = table(-0.5)
    wrong["mean"] = np.where(wrong["depth"] == 2, 2 * wrong["mean"], wrong["mean"])
    assert verdicts(wrong)[3] is False


def test_one_hidden_layer_by_sampling_neurons():
    """−ηΘ₁²|ε|C_W^{3/2}/(π√(nK)) counts neurons that fire and are pushed below zero."""
    width, epsilon, Theta = 10_000, 1.5, 2.0
    network = relu_anomaly.critical_network("relu", width, 2)
    K, below = 2.0, 0.5 + 0.5  # C_W x·x/n_0, and λ_b + λ_W x·x/n_0 with λ = 1/2
    rng = np.random.default_rng(0)
    z = np.sqrt(K) * rng.standard_normal(10_000_000)
    W = np.sqrt(network.C_W[1] / width) * rng.standard_normal(z.size)
    push = relu_anomaly.STEP / Theta * below * W * epsilon
    lost = np.where((z > 0) & (z < push), W**2, 0.0)
    expected = -width * below * lost.mean() / Theta
    error = width * below * lost.std() / np.sqrt(z.size) / Theta
    law = relu_anomaly.one_hidden_layer_law(width, epsilon, Theta)
    assert abs(law - expected) < 4 * error
    assert error < 0.05 * abs(law)


@pytest.mark.slow
def test_a_small_run_is_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(relu_anomaly, "MEMBERS", 60)
    settings = Settings(folder=tmp_path)
    first = relu_anomaly.EXPERIMENT.run(settings)
    assert (tmp_path / "book-relu-anomaly-parts" / "relu_32_3.npz").is_file()
    assert relu_anomaly.EXPERIMENT.run(settings).tables == first.tables
    assert list(first.figures) == ["relu_anomaly"]
