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


def table(relu_power=-0.5, factor=1.0, error=1e-6):
    """A change of ReLU networks by `factor` times the law, with another power if asked for."""
    rows = []
    cases = {("relu", n, L) for L in (2, 3) for n in relu_anomaly.WIDTHS}
    cases |= {("relu", n, L) for L, widths in relu_anomaly.OF_DEPTH.items() for n in widths}
    cases |= {(name, n, 3) for name in ("gelu", "linear") for n in relu_anomaly.SMOOTH_WIDTHS}
    for name, n, L in sorted(cases):
        law = factor * relu_anomaly.crossing_law(L, 1.5)
        size = law * n**relu_power if name == "relu" else 0.4 / n
        rows.append({
            "activation": name, "width": n, "depth": L, "mean": size, "mean_error": error,
            "rms": abs(size), "rms_error": error, "epsilon": 1.5, "Theta": 2.0,
        })  # fmt: skip
    return Table.of_rows(rows)


def verdicts(made):
    depths = {
        L: relu_anomaly.leading_coefficient(made, "relu", L, widths)
        for L, widths in relu_anomaly.OF_DEPTH.items()
    }
    laws = {L: relu_anomaly.crossing_law(L, 1.5) for L in depths}
    return [statement.passed for statement in relu_anomaly._statements(made, depths, laws)]


def test_powers_and_sizes_of_the_anomaly_are_told_apart():
    assert verdicts(table()) == [True] * 5
    assert verdicts(table(factor=1.5)) == [True, True, True, False, False]
    # Without an anomaly nothing is left at n = ∞.
    assert verdicts(table(relu_power=-1.0, error=1e-4))[0] is False
    deeper = table()
    deeper["mean"] = np.where(deeper["depth"] == 4, 1.2 * deeper["mean"], deeper["mean"])
    assert verdicts(deeper) == [True, True, True, True, False]


def test_the_law_by_sampling_neurons():
    """One hidden layer: neurons that fire and are pushed below zero, weighted with W²."""
    width, epsilon = 10_000, 1.5
    network = relu_anomaly.critical_network("relu", width, 2)
    K, below, Theta = 2.0, 0.5 + 0.5, 2.0  # C_W x·x/n_0, Θ of layer 1 with λ = 1/2, Θ = 2Θ_1
    rng = np.random.default_rng(0)
    z = np.sqrt(K) * rng.standard_normal(10_000_000)
    W = np.sqrt(network.C_W[1] / width) * rng.standard_normal(z.size)
    push = relu_anomaly.STEP / Theta * below * W * epsilon
    lost = np.where((z > 0) & (z < push), W**2, 0.0)
    expected = -np.sqrt(width) * width * below * lost.mean() / Theta
    error = np.sqrt(width) * width * below * lost.std() / np.sqrt(z.size) / Theta
    law = relu_anomaly.crossing_law(2, epsilon)
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
