"""Marchenko–Pastur, exact draws, power-law fits; untrained weights are not called heavy-tailed."""

import numpy as np
import pytest

from dynagram.errors import InvalidValueError, NonFiniteError
from dynagram.observables.gram._agop import random_rotation
from dynagram.observables.spectra._power_law import fit_power_law
from dynagram.observables.spectra._random_matrices import (
    gaussian_eigenvalues,
    marchenko_pastur_density,
    marchenko_pastur_distribution,
    marchenko_pastur_edges,
    marchenko_pastur_median,
)
from dynagram.observables.spectra._spectra import weight_spectrum

rng = np.random.default_rng(5)
SHAPES = [(256, 64), (128, 128), (64, 300), (40, 33)]
ENTRIES = {
    "normal": lambda shape: rng.normal(size=shape),
    "uniform": lambda shape: rng.uniform(-0.1, 0.1, size=shape),
    "signs": lambda shape: rng.choice([-2.0, 2.0], size=shape),
    "laplace": lambda shape: rng.laplace(size=shape),
}


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.1])
def test_distribution_is_the_integral_of_the_density(ratio):
    from scipy.integrate import quad

    low, high = marchenko_pastur_edges(ratio)
    points = np.linspace(low, high, 7)[1:-1]
    for point in points:
        # λ = t² removes the root singularity at 0 of the square case.
        integral = quad(
            lambda t: 2 * t * marchenko_pastur_density(np.array([t * t]), ratio)[0],
            np.sqrt(low),
            np.sqrt(point),
        )[0]
        found = marchenko_pastur_distribution(np.array([point]), ratio)[0]
        assert found == pytest.approx(integral, abs=2e-6)
    half = marchenko_pastur_distribution(np.array([marchenko_pastur_median(ratio)]), ratio)
    assert half[0] == pytest.approx(0.5, abs=1e-9)


def test_drawn_eigenvalues_are_those_of_gaussian_matrices():
    """Mean and variance of the sum, mean of the squares, and the mean largest eigenvalue."""
    drawn = np.array([gaussian_eigenvalues((12, 7), rng) for _ in range(4000)])
    dense = np.array(
        [np.linalg.svd(rng.normal(size=(7, 12)), compute_uv=False) ** 2 / 12 for _ in range(4000)]
    )
    for statistic in (np.sum, lambda v, axis: np.sum(v**2, axis), np.max, np.min):
        a, b = statistic(drawn, axis=1), statistic(dense, axis=1)
        error = np.sqrt((a.var() + b.var()) / 4000)
        assert abs(a.mean() - b.mean()) < 4 * error
        assert abs(a.std() / b.std() - 1) < 0.1
    assert abs(drawn.sum(axis=1).mean() - 7) < 4 * np.sqrt(2 * 7 / 12 / 4000)
    assert gaussian_eigenvalues((5, 1), rng).shape == (1,)


@pytest.mark.parametrize("entries", ENTRIES)
@pytest.mark.parametrize("shape", SHAPES)
def test_untrained_weights_are_called_random(shape, entries):
    found = [weight_spectrum(ENTRIES[entries](shape)) for _ in range(4)]
    assert [f.verdict for f in found] == ["random"] * 4
    variance = np.mean([f.bulk_variance for f in found])
    assert variance == pytest.approx(np.var(ENTRIES[entries]((400, 400))), rel=0.1)
    for f in found:
        assert f.distance_null.score(f.distance) < 6
        assert f.random_exponent > 2
        assert f.index_null.score(f.tail.index) < 4


@pytest.mark.parametrize("shape", SHAPES[:3])
def test_heavy_tails_and_spikes_are_told_apart(shape):
    n_out, n_in = shape
    for _ in range(4):
        base = rng.normal(size=shape)
        low_rank = 1.5 * rng.normal(size=(n_out, 4)) @ rng.normal(size=(4, n_in))
        spiked = weight_spectrum(base + low_rank)
        assert (spiked.verdict, spiked.spikes) == ("spikes", 4)
        heavy = weight_spectrum(rng.standard_t(1.3, size=shape))
        assert heavy.verdict != "random"
        assert heavy.tail.exponent < 3


def test_a_power_law_spectrum_is_called_heavy_tailed():
    verdicts = []
    for _ in range(5):
        values = (1 - rng.random(128)) ** (-1 / 1.0)  # density λ^-2
        U, V = random_rotation(128, rng), random_rotation(128, rng)
        found = weight_spectrum(U @ np.diag(np.sqrt(values)) @ V)
        assert abs(found.tail.exponent - 2.0) < 4 * found.tail.error
        verdicts.append(found.verdict)
    assert verdicts.count("heavy-tailed") >= 4


def test_other_spectra_get_other_words():
    assert weight_spectrum(random_rotation(64, rng)).verdict == "neither"
    assert weight_spectrum(np.zeros((64, 64))).verdict == "neither"
    small = weight_spectrum(rng.normal(size=(10, 300)))
    assert small.verdict == "too small"
    assert small.tail is None
    assert small.random_exponent is None
    assert small.eigenvalues.size == 10
    assert "too few" in small.sentence
    convolution = weight_spectrum(rng.normal(size=(64, 8, 3, 3)))
    assert convolution.eigenvalues.size == 64
    assert convolution.verdict == "random"


@pytest.mark.parametrize("exponent", [1.8, 2.5, 4.0])
def test_fit_recovers_exponent_with_its_error(exponent):
    scores = []
    for _ in range(60):
        body = rng.random(100) * 0.9 + 0.1
        tail = (1 - rng.random(200)) ** (-1 / (exponent - 1))
        law = fit_power_law(np.concatenate([body, tail]), test=False)
        scores.append((law.exponent - exponent) / law.error)
    # x_min is chosen on the same data, so that the spread is somewhat above 1.
    assert abs(np.mean(scores)) < 0.6
    assert 0.7 < np.std(scores) < 2.0


def test_goodness_of_fit_accepts_power_laws_and_rejects_others():
    accepted = [fit_power_law((1 - rng.random(300)) ** (-0.6)).p_value for _ in range(10)]
    assert sum(p >= 0.1 for p in accepted) >= 7
    clumps = np.repeat(np.geomspace(1, 1000, 8), 40) * (1 + 0.01 * rng.random(320))
    assert fit_power_law(clumps).p_value < 0.05


def test_refusals():
    with pytest.raises(InvalidValueError, match="at least 10"):
        fit_power_law(np.ones(5))
    with pytest.raises(InvalidValueError, match="equal values"):
        fit_power_law(np.ones(50))
    with pytest.raises(NonFiniteError, match="diverged"):
        weight_spectrum(np.full((40, 40), np.nan))
    with pytest.raises(InvalidValueError, match="ratio"):
        marchenko_pastur_edges(1.5)
