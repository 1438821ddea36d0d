"""Alignment measures: values by definition, and their nulls on shuffled labels and random noise."""

import numpy as np
import pytest

from dynagram.errors import InvalidValueError
from dynagram.observables.fields._alignment import (
    class_contrast,
    kernel_target_alignment,
    rayleigh_quotient,
    residual_in_top,
)
from dynagram.observables.fields._overlaps import coactivation, collective_kernel
from dynagram.observables.fields._state import fields, fixed_readout

M = 40
RNG = np.random.default_rng(3)
LABELS = np.arange(M) % 2
X = RNG.standard_normal((M, 10)) + 1.5 * LABELS[:, None] * np.ones(10)
WEIGHTS = [RNG.standard_normal(s) * np.sqrt(2 / s[1]) for s in ((60, 10), (60, 60))]
FOUND = fields(fixed_readout(WEIGHTS), X)
K = collective_kernel(FOUND)


def z_score(values, expected):
    """Of the mean of independent values."""
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return (np.mean(values) - expected) / error


def test_values_by_definition():
    y = LABELS.astype(float)
    H = np.eye(M) - 1 / M
    centred, t = H @ K @ H, H @ y
    expected = t @ centred @ t / np.linalg.norm(centred) / (t @ t)
    np.testing.assert_allclose(kernel_target_alignment(K, y).value, expected, rtol=1e-12)
    values, vectors = np.linalg.eigh(K)
    share = np.sum((vectors[:, -3:].T @ y) ** 2) / np.sum(y**2)
    np.testing.assert_allclose(residual_in_top(K, y, 3).value, share, rtol=1e-12)
    expected = y @ K @ y / values[-1] / (y @ y)
    np.testing.assert_allclose(rayleigh_quotient(K, y).value, expected, rtol=1e-12)


@pytest.mark.slow
def test_random_residuals_give_the_null():
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((400, M))
    for measure in (lambda r: residual_in_top(K, r, 5), lambda r: rayleigh_quotient(K, r)):
        found = [measure(r) for r in draws]
        values, null = [f.value for f in found], found[0].null
        assert abs(z_score(values, null.mean)) < 4
        assert abs(np.std(values) / null.deviation - 1) < 0.2


def test_shuffled_targets_give_the_null():
    rng = np.random.default_rng(1)
    y = RNG.standard_normal(M)
    found = [kernel_target_alignment(K, rng.permutation(y)) for _ in range(2000)]
    values, null = [f.value for f in found], found[0].null
    assert abs(z_score(values, null.mean)) < 4  # the mean is exact under shuffles
    assert abs(np.std(values) / null.deviation - 1) < 0.15  # the deviation is so up to 1/M
    assert kernel_target_alignment(K, LABELS.astype(float)).score > 10  # and there is a signal


def test_the_contrast_of_classes():
    A = coactivation(FOUND)
    found = class_contrast(A, LABELS)
    same = (LABELS[:, None] == LABELS[None, :]) & ~np.eye(M, dtype=bool)
    np.testing.assert_allclose(found.same, A[:, same].mean(axis=1), rtol=1e-12)
    different = LABELS[:, None] != LABELS[None, :]
    np.testing.assert_allclose(found.different, A[:, different].mean(axis=1), rtol=1e-12)
    assert np.all(found.gap > 4 * found.gap_deviation)  # classes differ in the input already


def test_shuffled_labels_and_unclassed_inputs_show_no_contrast():
    rng = np.random.default_rng(2)
    A = coactivation(FOUND)
    gaps = np.array(
        [class_contrast(A, rng.permutation(LABELS), shuffles=1).gap for _ in range(300)]
    )
    for layer in range(2):
        assert abs(z_score(gaps[:, layer], 0.0)) < 4
    spread = class_contrast(A, LABELS, shuffles=500).gap_deviation
    np.testing.assert_allclose(np.std(gaps, axis=0), spread, rtol=0.15)
    unclassed = fields(FOUND.model, rng.standard_normal((M, 10)))
    measured = class_contrast(coactivation(unclassed), LABELS)
    assert np.all(np.abs(measured.gap) < 4 * measured.gap_deviation)


def test_bad_requests_are_refused():
    with pytest.raises(InvalidValueError, match="shape of kernel"):
        rayleigh_quotient(K, np.ones(3))
    with pytest.raises(InvalidValueError, match="top = 41: expected 1 to 40"):
        residual_in_top(K, np.ones(M), 41)
    with pytest.raises(InvalidValueError, match="y = 0.0: has no direction"):
        kernel_target_alignment(K, np.ones(M))
    with pytest.raises(InvalidValueError, match="at least two classes"):
        class_contrast(K[None], np.zeros(M))
    with pytest.raises(InvalidValueError, match="number of labels"):
        class_contrast(K[None], np.zeros(3))
